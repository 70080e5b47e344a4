// SPDX-License-Identifier: Apache-2.0
//! The agent's readers alone: without its kernel side they build, instrumented, in a third of the time.
#![allow(dead_code, reason = "the rest of the agent uses what the readers do not")]

#[path = "../src/abi.rs"]
pub mod abi;
#[path = "../src/bundle.rs"]
pub mod bundle;
#[path = "../src/error.rs"]
pub mod error;
#[path = "../src/manifest.rs"]
pub mod manifest;
#[path = "../src/policy.rs"]
pub mod policy;
#[path = "../src/policy_file.rs"]
pub mod policy_file;
#[path = "../src/units.rs"]
pub mod units;

/// What a person gets to see of a refusal.
pub fn assert_one_line(message: &str) {
    let shown = error::Error::input(message).to_string();
    assert!(!shown.is_empty() && !shown.chars().any(char::is_control), "not one line: {shown:?}");
    assert!(shown.len() < 2000, "not short: {} bytes", shown.len());
}
