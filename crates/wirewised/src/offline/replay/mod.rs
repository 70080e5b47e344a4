// SPDX-License-Identifier: Apache-2.0
//! A bundle on captured traffic, by several workers: packets go out in blocks, each worker runs those of its flows, and results come
//! back in the order of the packets.

mod flow_rows;
mod packet_rows;
mod run;
mod shard;
mod summary;
mod worker;

pub use flow_rows::FlowRows;
pub use packet_rows::PacketRows;
pub use run::{Elsewhere, Outputs, Replay, Totals};
pub use shard::Shards;
pub use summary::ReplaySummary;

use std::sync::Arc;

use crate::abi::{self, Action, Outcome};

/// Names that the rows of verdicts refer to.
#[derive(Debug)]
pub struct Names {
    pub captures: Vec<String>,
    pub classes: Vec<String>,
    pub actions: Vec<String>,
    pub outcomes: Vec<String>,
    pub ends: Vec<String>,
}

impl Names {
    /// acts : by class, what its policy calls an action of the code `Act`.
    pub fn new(captures: Vec<String>, classes: Vec<String>, acts: impl Iterator<Item = String>) -> Arc<Self> {
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let actions = Action::ALL.iter().map(|action| action.name().to_owned());
        Arc::new(Self {
            captures,
            classes,
            actions: actions.chain(acts).collect(),
            outcomes: owned(Outcome::ALL.iter().map(|outcome| outcome.name()).collect()),
            ends: owned(crate::offline::tracker::End::NAMES.to_vec()),
        })
    }

    /// Which of `actions` was taken for a packet.
    fn action_of(scratch: &abi::Scratch) -> u32 {
        match scratch.action == Action::Act.code() {
            true => Action::COUNT as u32 + scratch.class_id,
            false => scratch.action,
        }
    }
}
