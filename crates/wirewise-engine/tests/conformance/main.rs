// SPDX-License-Identifier: Apache-2.0
//! The engine against the kernel: every feature, for every instruction set that clang makes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod batches;
mod cage;
mod datapath;
mod elf;
mod features;
mod floods;
mod maps;
mod random;
mod steering;
mod support;
mod vectors;
