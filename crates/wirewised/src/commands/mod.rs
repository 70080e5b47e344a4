// SPDX-License-Identifier: Apache-2.0
//! One module a command: its options (`Args`) and `run(&Args)`.

pub mod completions;
