// SPDX-License-Identifier: Apache-2.0
//! Packets go into the tunnel of GTP-U of who they are for, and on by the routes. What is looked up for that: attachment/tunnels.rs.

use serde_json::Value;

use super::{Act, ActionMap, Does, Pool, Steering};
use crate::abi;
use crate::policy::tunnels;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Encapsulate {
    /// The judged interface's addresses, of IPv4 and IPv6, to be looked up; zeros: it has none.
    pub own: ([u8; 4], [u8; 16]),
}

impl Act for Encapsulate {
    const DOES: Does = Does::Tunnels;
    const KIND: u32 = abi::STEER_ENCAPSULATE;
    const NAME: &'static str = "encapsulate";
    const ABSENT: Value = Value::Bool(false);

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        let kind = file.encapsulate.as_deref().map(|kind| tunnels::check_kind("encapsulate", kind));
        Ok(kind.transpose()?.map(|()| Self::default()))
    }

    fn check(&self, class: &Steering) -> Result<(), String> {
        let routes = class.forward.as_ref().is_some_and(|forward| forward.bridge.is_none());
        if routes && class.decapsulate.is_none() {
            return Ok(());
        }
        Err("encapsulate needs the routes, and a packet that is in no tunnel: {encapsulate: gtp-u, action: forward}".to_string())
    }

    fn write(&self, steer: &mut abi::Steer) {
        (steer.own4, steer.own6) = self.own;
    }
}
