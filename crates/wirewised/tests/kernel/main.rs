// SPDX-License-Identifier: Apache-2.0
//! The commands that need no interface, with programs compiled here and run in this kernel.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod actor;
mod allowances;
mod alterations;
mod altered;
mod bench;
mod canonical;
mod clock;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/compiled.rs"]
mod compiled;
mod cpus;
mod emitted;
mod features;
mod fixture;
mod flood;
mod inputs;
mod large_programs;
mod loading;
mod replay;
mod signatures;
mod trace;
mod verify;
