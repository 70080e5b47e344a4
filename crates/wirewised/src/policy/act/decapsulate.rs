// SPDX-License-Identifier: Apache-2.0
//! Packets come out of their tunnel of GTP-U.

use serde_json::Value;

use super::{Act, ActionMap, Does, Pool, Steering};
use crate::abi;
use crate::policy::tunnels;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decapsulate;

impl Act for Decapsulate {
    const DOES: Does = Does::Tunnels;
    const KIND: u32 = abi::STEER_DECAPSULATE;
    const NAME: &'static str = "decapsulate";
    const ABSENT: Value = Value::Bool(false);

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        let kind = file.decapsulate.as_deref().map(|kind| tunnels::check_kind("decapsulate", kind));
        Ok(kind.transpose()?.map(|()| Self))
    }

    fn check(&self, class: &Steering) -> Result<(), String> {
        // Of a packet that is put into another tunnel, `encapsulate` says more.
        if class.encapsulate.is_some() {
            return Ok(());
        }
        let ports = class.forward.as_ref().is_some_and(|forward| forward.bridge.is_some());
        let inside = class.qfi.is_some() || class.inner_dscp.is_some();
        if class.bounce.is_none() && !ports && class.backend.is_none() && !inside {
            return Ok(());
        }
        Err(
            "decapsulate goes together with the action forward, redirect and dscp: what is behind a tunnel has no Ethernet address, \
             and what is in none has no QFI"
                .to_string(),
        )
    }
}
