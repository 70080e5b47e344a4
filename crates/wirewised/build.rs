// SPDX-License-Identifier: Apache-2.0
//! Lists the data path's sources, which the agent carries (`trust/rebuild/datapath.rs`).
#![allow(clippy::unwrap_used, reason = "a build fails by panicking")]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    let bpf = Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../bpf");
    // What a bundle is compiled from; the actor, in act/, is the agent's.
    let mut names: Vec<String> = sources(&bpf, "c").chain(sources(&bpf, "h")).collect();
    for folder in ["frame", "classify"] {
        names.extend(sources(&bpf.join(folder), "h").map(|name| format!("{folder}/{name}")));
    }
    names.sort();
    let mut list = String::from("&[\n");
    for name in names {
        let path = bpf.join(&name).canonicalize().unwrap();
        writeln!(list, "    ({name:?}, include_str!({path:?})),").unwrap();
    }
    list.push_str("]\n");
    fs::write(PathBuf::from(std::env::var_os("OUT_DIR").unwrap()).join("datapath_files.rs"), list).unwrap();
}

/// Names of files in a folder; the build is repeated when one comes or goes.
fn sources(folder: &Path, extension: &'static str) -> impl Iterator<Item = String> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(move |path| path.extension().is_some_and(|found| found == extension));
    paths.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
}
