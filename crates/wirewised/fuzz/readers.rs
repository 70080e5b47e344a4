// SPDX-License-Identifier: Apache-2.0
//! The agent's readers alone: without its kernel side they build, instrumented, in a third of the time.
#![allow(dead_code, reason = "the rest of the agent uses what the readers do not")]

// As the agent's modules call it: of the engine, the readers need one module.
extern crate self as wirewise_engine;

#[path = "../src/abi.rs"]
pub mod abi;
#[path = "../../wirewise-engine/src/loader/btf.rs"]
pub mod btf;
#[path = "../src/bundle.rs"]
pub mod bundle;
#[path = "../src/emitted.rs"]
pub mod emitted;
#[path = "../src/error.rs"]
pub mod error;
#[path = "../src/manifest.rs"]
pub mod manifest;
#[path = "../src/policy.rs"]
pub mod policy;
#[path = "../src/policy_file.rs"]
pub mod policy_file;
#[path = "../src/signature.rs"]
pub mod signature;
#[path = "../src/text.rs"]
pub mod text;
#[path = "../src/units.rs"]
pub mod units;

/// What a person gets to see of a refusal.
pub fn assert_one_line(message: &str) {
    let shown = error::Error::input(message).to_string();
    assert!(!shown.is_empty() && !shown.chars().any(char::is_control), "not one line: {shown:?}");
    assert!(shown.len() < 2000, "not short: {} bytes", shown.len());
}
