// SPDX-License-Identifier: Apache-2.0
//! One module a command: its options (`Args`) and `run(&Args)`.

pub mod bench;
pub mod completions;
pub mod detach;
pub mod doctor;
pub mod events;
pub mod explain;
pub mod features;
pub mod flood;
pub mod flows;
pub mod replay;
pub mod run;
pub mod stats;
pub mod status;
pub mod trace;
pub mod verify;
