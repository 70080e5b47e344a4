// SPDX-License-Identifier: Apache-2.0
//! The agent's readers alone: without its kernel side they build, instrumented, in a third of the time.
#![allow(dead_code, unused_macros, reason = "the rest of the agent uses what the readers do not")]

// As the agent's modules call it: of the engine, the readers need these two modules, `btf` and `limits`.
extern crate self as wirewise_engine;

#[path = "../src/abi/mod.rs"]
pub mod abi;
#[path = "../../wirewise-engine/src/loader/btf/mod.rs"]
pub mod btf;
#[path = "../src/bundle/mod.rs"]
pub mod bundle;
#[path = "../src/ending.rs"]
pub mod ending;
#[path = "../src/error.rs"]
pub mod error;
#[path = "../src/files/mod.rs"]
pub mod files;
#[path = "../src/harmless.rs"]
pub mod harmless;
#[path = "../src/inference/mod.rs"]
pub mod inference;
#[path = "../src/trust/keys.rs"]
pub mod keys;
#[path = "../src/labels/mod.rs"]
pub mod labels;
#[path = "../../wirewise-engine/src/limits.rs"]
pub mod limits;
#[path = "../src/packets/mod.rs"]
pub mod packets;
#[path = "../src/policy/mod.rs"]
pub mod policy;
#[macro_use]
#[path = "../src/text/mod.rs"]
pub mod text;

/// What a person gets to see of a refusal.
pub fn assert_one_line(message: impl std::fmt::Display) {
    let shown = error::Error::input(message).to_string();
    assert!(!shown.is_empty() && !shown.chars().any(char::is_control), "not one line: {shown:?}");
    assert!(shown.len() < 2000, "not short: {} bytes", shown.len());
}
