// SPDX-License-Identifier: Apache-2.0
//! The queue that packets are sent from.

use serde_json::Value;

use super::{Act, ActionMap, Does, Pool};
use crate::abi;
use crate::policy::words::Number;

/// The kernel keeps 65535 for "none", and counts from 1.
const MOST: u32 = 65_533;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue(u16);

impl Act for Queue {
    const DOES: Does = Does::Writes;
    const KIND: u32 = abi::STEER_QUEUE;
    const NAME: &'static str = "queue";

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        match file.queue.0 {
            None => Ok(None),
            Some(Number(queue)) if queue <= MOST => Ok(Some(Self(queue as u16))),
            Some(Number(queue)) => Err(format!("queue {queue} is out of range; 0 to {MOST}")),
        }
    }

    fn write(&self, steer: &mut abi::Steer) {
        steer.queue = self.0;
    }

    fn value(&self) -> Value {
        self.0.into()
    }
}
