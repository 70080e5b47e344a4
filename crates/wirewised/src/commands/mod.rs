// SPDX-License-Identifier: Apache-2.0
//! One module a command: its options (`Args`) and `run(&Args)`.

pub mod bench;
pub mod completions;
pub mod explain;
pub mod trace;
pub mod verify;
