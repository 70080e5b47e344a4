// SPDX-License-Identifier: Apache-2.0
//! What becomes of a test that lacks something, as the test harness and its caller see it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use test_needs::{Need, REQUIRE, SKIPPED, skip};

#[test]
#[ignore = "run by the others, in a process of its own"]
fn lacks_clang() {
    skip(Need::Clang, "no clang here");
}

fn run(require: Option<&str>, skipped: &std::path::Path) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "lacks_clang"]).env_remove(REQUIRE).env(SKIPPED, skipped);
    command.envs(require.map(|list| (REQUIRE, list)));
    command.output().unwrap()
}

#[test]
fn a_skipped_test_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let skipped = folder.path().join("skipped");
    for require in [None, Some(""), Some("root"), Some("root,cpus")] {
        assert!(run(require, &skipped).status.success(), "{require:?}");
    }
    let line = "skips::lacks_clang\tclang: no clang here\n";
    assert_eq!(std::fs::read_to_string(&skipped).unwrap(), line.repeat(4));
}

#[test]
fn a_skipped_test_fails_where_nothing_may_be_lacking() {
    let folder = tempfile::tempdir().unwrap();
    for list in ["clang", "root,clang", "root, clang"] {
        let output = run(Some(list), &folder.path().join("skipped"));
        assert_eq!(output.status.code(), Some(101), "{list}");
        let said = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("WIREWISE_REQUIRE lists clang: no clang here"), "{said}");
    }
}
