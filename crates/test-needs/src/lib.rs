// SPDX-License-Identifier: Apache-2.0
//! What a test needs of the machine and may have to do without. The test harness knows no skipped test, only passed and
//! failed ones: a test that lacks something says so here and returns, and `make test` names it at its end. Where
//! `WIREWISE_REQUIRE` lists what it lacks, it fails instead. tests/needs.py is the same for Python.

use std::fmt::{Display, Formatter, Result};
use std::io::Write;

/// The variable that lists, with commas, what no test may lack.
pub const REQUIRE: &str = "WIREWISE_REQUIRE";
/// The variable that names the file for lines of what was left out: the test, and `need: why` behind a tab.
pub const SKIPPED: &str = "WIREWISE_SKIPPED";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// To load and attach programs, and make network namespaces.
    Root,
    Clang,
    /// Two of them.
    Cpus,
    /// Programs such as setpriv.
    Tools,
}

impl Display for Need {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Need::Root => "root",
            Need::Clang => "clang",
            Need::Cpus => "cpus",
            Need::Tools => "tools",
        })
    }
}

/// Notes that the running test is left out, as is or in part; the caller then leaves it.
///
/// # Panics
///
/// If `WIREWISE_REQUIRE` lists `need`, or the note cannot be kept.
#[allow(clippy::panic, reason = "a test fails by panicking")]
pub fn skip(need: Need, why: impl Display) {
    let thread = std::thread::current();
    let test = format!("{}::{}", binary(), thread.name().unwrap_or("a test"));
    if std::env::var(REQUIRE).is_ok_and(|list| list.split(',').any(|name| name.trim() == need.to_string())) {
        panic!("{test} would be skipped, but {REQUIRE} lists {need}: {why}");
    }
    eprintln!("skipped: {test}: {need}: {why}");
    if let Some(path) = std::env::var_os(SKIPPED) {
        // In one piece: tests run side by side.
        let line = format!("{test}\t{need}: {why}\n");
        let file = std::fs::File::options().create(true).append(true).open(&path);
        if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
            panic!("{}: {error}", path.display());
        }
    }
}

/// The test program without the digest that cargo adds to its name.
fn binary() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    name.rsplit_once('-').map_or(&*name, |(name, _)| name).to_owned()
}
