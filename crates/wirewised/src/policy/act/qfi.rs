// SPDX-License-Identifier: Apache-2.0
//! The QoS flow identifier of packets in a tunnel.

use serde_json::Value;

use super::{Act, ActionMap, Does, Pool, Steering};
use crate::abi;
use crate::policy::tunnels;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qfi(u8);

impl Act for Qfi {
    const DOES: Does = Does::Tunnels;
    const KIND: u32 = abi::STEER_QFI;
    const NAME: &'static str = "qfi";

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        Ok(file.qfi.0.map(tunnels::qfi).transpose()?.map(Self))
    }

    fn check(&self, class: &Steering) -> Result<(), String> {
        check_stays(class)
    }

    fn write(&self, steer: &mut abi::Steer) {
        steer.qfi = self.0;
    }

    fn value(&self) -> Value {
        self.0.into()
    }
}

/// Of what is written inside of a tunnel.
pub(super) fn check_stays(class: &Steering) -> Result<(), String> {
    if class.encapsulate.is_some() || class.forward.is_none() && class.backend.is_none() {
        return Ok(());
    }
    Err(
        "qfi and inner-dscp are written on a packet that stays in its tunnel: leave out forward and backend, or give encapsulate"
            .to_string(),
    )
}
