// SPDX-License-Identifier: Apache-2.0
//! The priority of packets, for the queueing discipline.

use serde_json::Value;

use super::{Act, ActionMap, Does, Pool};
use crate::abi;
use crate::policy::words::Number;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priority(u32);

impl Act for Priority {
    const DOES: Does = Does::Writes;
    const KIND: u32 = abi::STEER_PRIORITY;
    const NAME: &'static str = "priority";

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        Ok(file.priority.0.map(|Number(priority)| Self(priority)))
    }

    fn write(&self, steer: &mut abi::Steer) {
        steer.priority = self.0;
    }

    fn value(&self) -> Value {
        self.0.into()
    }
}
