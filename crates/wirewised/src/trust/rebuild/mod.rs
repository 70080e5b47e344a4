// SPDX-License-Identifier: Apache-2.0
//! Compiles a bundle's sources again and compares the program with the one in the bundle.
//!
//! The sources are somebody's, and so is what they make clang do. Only what wirewise generates is compiled (`generated.rs`); what
//! comes out is compared and thrown away; clang itself gets no privilege, no file to write, none to read but its own and the
//! sources (`landlock.rs`), and limited time and memory.

mod compare;
mod compiler;
pub mod datapath;
mod generated;
mod landlock;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Serialize;

use crate::bundle::{Bundle, inspection};
use crate::ending;
use crate::error::{Error, Result};
use compiler::Compiler;
use generated::DataPath;

const MAIN: &str = "main.bpf.c";
/// What `wirewise compile` generates.
const GENERATED: [&str; 3] = ["ww_feature_set.h", "ww_model.h", "ww_tail_calls.h"];
const DATA_PATH: &str = "datapath";
/// The last way in which the compiler driver cuts the packet's path to fit the stack (clang.py).
const MAXIMUM_SPLIT: u32 = 2;

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Rebuilt {
    /// The compiler and its version here.
    pub clang: String,
    /// The same program, instruction for instruction, with the same data and maps.
    pub same: bool,
    /// The first difference.
    pub difference: Option<String>,
}

/// input : what errors call the bundle.
pub fn rebuild(input: &str, bundle: &Bundle) -> Result<Rebuilt> {
    check_sources(input, bundle)?;
    let compiler = Compiler::find(input, &bundle.manifest.program.clang)?;
    // A signal is seen while clang runs, and the folder removed.
    let _held = ending::hold();
    let folder = tempfile::Builder::new()
        .prefix("wirewised-rebuild-")
        .permissions(PermissionsExt::from_mode(0o750))
        .tempdir()
        .map_err(|error| Error::other(format!("no temporary folder: {error}")))?;
    write_sources(folder.path(), bundle)
        .map_err(|error| Error::other(format!("{}: {error}", folder.path().display())))?;
    compiler.admit(folder.path())?;
    let theirs = inspection::read(&bundle.object).map_err(|what| Error::input(format!("{input}: {what}")))?;
    let mut difference = None;
    // The compiler driver decides by the size of the stack; each is right.
    for split in 0..=MAXIMUM_SPLIT {
        let object = compiler.compile(input, &folder.path().join(MAIN), split, &bundle.manifest.meaning())?;
        let ours =
            inspection::read(&object).map_err(|what| Error::other(format!("what clang made {what}")))?;
        match compare::difference(&theirs, &ours) {
            None => return Ok(Rebuilt { clang: compiler.version, same: true, difference: None }),
            // The nearer one tells more.
            Some(found) if difference.as_ref().is_none_or(|(at, _)| found.0 > *at) => {
                difference = Some(found)
            }
            Some(_) => {}
        }
    }
    let difference = difference.map(|(_, text)| text);
    Ok(Rebuilt { clang: compiler.version, same: false, difference })
}

/// The files that wirewise writes, of this release's data path.
fn check_sources(input: &str, bundle: &Bundle) -> Result<()> {
    let known = |name: &str| name == MAIN || GENERATED.contains(&name);
    if let Some(other) = bundle.sources.keys().find(|name| !known(name)) {
        return Err(Error::input(format!(
            "{input}: its sources hold {other:?}, which wirewise does not write"
        )));
    }
    if let Some(missing) =
        [MAIN, GENERATED[0], GENERATED[1]].iter().find(|name| !bundle.sources.contains_key(**name))
    {
        return Err(Error::input(format!(
            "{input}: its sources have no {missing}, so it cannot be compiled again; compile the model again"
        )));
    }
    let data_path = DataPath::of(datapath::FILES);
    for name in GENERATED.iter().filter(|name| bundle.sources.contains_key(**name)) {
        generated::check(&bundle.sources[*name], &data_path).map_err(|what| {
            Error::input(format!(
                "{input}: its sources/{name}: {what}, which wirewise does not write; compile the model again"
            ))
        })?;
    }
    let ours = datapath::FILES.iter().find(|(name, _)| *name == MAIN).map_or("", |(_, text)| text);
    let stated = bundle.manifest.tools.get(DATA_PATH);
    if bundle.sources[MAIN] != ours.as_bytes() || stated.is_some_and(|digest| *digest != datapath::digest()) {
        let made_by = bundle.manifest.tools.get("wirewise").map_or("another version", String::as_str);
        return Err(Error::input(format!(
            "{input}: was made by wirewise {made_by} with another data path than that of this wirewised {}: use the wirewised of \
             the wirewise that made it",
            env!("CARGO_PKG_VERSION")
        )));
    }
    Ok(())
}

fn write_sources(folder: &Path, bundle: &Bundle) -> std::io::Result<()> {
    for (name, text) in datapath::FILES {
        let file = folder.join(name);
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        fs::write(file, text)?;
    }
    for (name, text) in bundle.sources.iter().filter(|(name, _)| *name != MAIN) {
        fs::write(folder.join(name), text)?;
    }
    Ok(())
}
