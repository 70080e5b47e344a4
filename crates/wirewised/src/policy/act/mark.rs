// SPDX-License-Identifier: Apache-2.0
//! The mark of packets, for what the host does with them.

use serde_json::Value;

use super::{Act, ActionMap, Does, Pool};
use crate::abi;
use crate::policy::words::Number;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark(u32);

impl Act for Mark {
    const DOES: Does = Does::Writes;
    const KIND: u32 = abi::STEER_MARK;
    const NAME: &'static str = "mark";

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        Ok(file.mark.0.map(|Number(mark)| Self(mark)))
    }

    fn write(&self, steer: &mut abi::Steer) {
        steer.mark = self.0;
    }

    fn value(&self) -> Value {
        self.0.into()
    }
}
