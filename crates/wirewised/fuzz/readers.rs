// SPDX-License-Identifier: Apache-2.0
//! The agent's readers alone: without its kernel side they build, instrumented, in a third of the time.
#![allow(dead_code, unused_macros, reason = "the rest of the agent uses what the readers do not")]

// As the agent's modules call it: of the engine, the readers need one module.
extern crate self as wirewise_engine;

#[path = "../src/abi.rs"]
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
mod one_line;
#[path = "../src/policy/mod.rs"]
pub mod policy;
#[macro_use]
#[path = "../src/text/mod.rs"]
pub mod text;

/// What a person gets to see of a refusal.
pub fn assert_one_line(message: &str) {
    one_line::assert_one_line(&error::Error::input(message).to_string());
}
