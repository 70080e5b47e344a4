// SPDX-License-Identifier: Apache-2.0
//! The DSCP of packets in a tunnel.

use serde_json::Value;

use super::qfi::check_stays;
use super::{Act, ActionMap, Does, Pool, Steering};
use crate::abi;
use crate::policy::words::Dscp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerDscp(Dscp);

impl Act for InnerDscp {
    const DOES: Does = Does::Tunnels;
    const KIND: u32 = abi::STEER_INNER_DSCP;
    const NAME: &'static str = "inner_dscp";

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        Ok(file.inner_dscp.0.map(Self))
    }

    fn check(&self, class: &Steering) -> Result<(), String> {
        check_stays(class)
    }

    fn write(&self, steer: &mut abi::Steer) {
        steer.inner_dscp = self.0.0;
    }

    fn value(&self) -> Value {
        self.0.0.into()
    }

    fn text(&self) -> String {
        format!("inner-dscp {}", self.0)
    }
}
