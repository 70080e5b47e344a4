// SPDX-License-Identifier: Apache-2.0
//! The DSCP of packets.

use serde_json::Value;

use super::{Act, ActionMap, Does, Pool};
use crate::abi;
use crate::policy::words;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dscp(words::Dscp);

impl Act for Dscp {
    const DOES: Does = Does::Writes;
    const KIND: u32 = abi::STEER_DSCP;
    const NAME: &'static str = "dscp";

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        Ok(file.dscp.0.map(Self))
    }

    fn write(&self, steer: &mut abi::Steer) {
        steer.dscp = self.0.0;
    }

    fn value(&self) -> Value {
        self.0.0.into()
    }

    fn text(&self) -> String {
        format!("dscp {}", self.0)
    }
}
