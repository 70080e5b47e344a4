// SPDX-License-Identifier: Apache-2.0
//! Objects compiled while the tests run.

use std::path::Path;
use std::process::Command;

use test_needs::{Need, skip};

const COMPILERS: [&str; 4] = ["clang-19", "clang", "clang-16", "clang-14"];

pub fn clang() -> Option<&'static str> {
    COMPILERS.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())
}

/// An object of a source, relative to this crate, with some macros defined. `None`, the test being skipped, where there is no
/// clang.
pub fn compile(source: &str, defines: &[&str]) -> Option<Vec<u8>> {
    let Some(clang) = clang() else {
        skip(Need::Clang, "no clang to compile the test's eBPF object with");
        return None;
    };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("object.bpf.o");
    let compiled = Command::new(clang)
        .args(["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", "-I"])
        .arg(here.join("../../bpf"))
        .arg("-I")
        .arg(here.join("tests/fixtures/datapath"))
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .args(defines.iter().map(|define| format!("-D{define}")))
        .arg("-c")
        .arg(here.join(source))
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Some(std::fs::read(object).unwrap())
}
