// SPDX-License-Identifier: Apache-2.0
//! Tunnels as they are now, what each has carried, and what became of packets that did not get through one.

use std::collections::BTreeMap;

use libbpf_rs::MapHandle;
use serde::Serialize;

use crate::abi;
use crate::abi::maps::{TUNNEL_COUNTS, TUNNELS};
use crate::error::{Error, Result};
use crate::object::sum_of_cpus;
use crate::object::tunnels::Held;

#[derive(Debug, Serialize)]
pub struct Tunnels {
    pub interface: String,
    pub tunnels: Vec<TunnelState>,
    /// Packets by what became of them: `abi::TunnelCount`.
    pub packets: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct TunnelState {
    pub ue: Vec<String>,
    pub local: String,
    pub teid: Option<u32>,
    pub peer: Option<String>,
    pub peer_teid: Option<u32>,
    pub qfi: Option<u8>,
    /// What was taken out, and what was put in.
    pub taken_out: Count,
    pub put_in: Count,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub struct Count {
    pub packets: u64,
    pub bytes: u64,
}

impl From<abi::Counter> for Count {
    fn from(counter: abi::Counter) -> Self {
        Self { packets: counter.packets, bytes: counter.bytes }
    }
}

pub fn no_tunnels(interface: &str) -> Error {
    Error::input(format!(
        "{interface}: the policy in force has no class with `decapsulate` or `encapsulate`; docs/tunnels.md says how to write one"
    ))
}

impl Tunnels {
    /// find : opens the program's map of this name, if there is one.
    pub fn read(interface: &str, find: impl Fn(&str) -> Result<Option<MapHandle>>) -> Result<Self> {
        let map = find(TUNNELS)?.ok_or_else(|| no_tunnels(interface))?;
        let tunnels =
            Held::read(&map)?.tunnels().into_iter().map(|(tunnel, [taken_out, put_in])| TunnelState {
                ue: tunnel.ue.texts(),
                local: tunnel.local.to_string(),
                teid: tunnel.teid,
                peer: tunnel.peer.map(|(peer, _)| peer.to_string()),
                peer_teid: tunnel.peer.map(|(_, teid)| teid),
                qfi: tunnel.qfi,
                taken_out: taken_out.into(),
                put_in: put_in.into(),
            });
        let tunnels = tunnels.collect();
        let mut packets = BTreeMap::new();
        if let Some(counts) = find(TUNNEL_COUNTS)? {
            for count in abi::TunnelCount::ALL {
                packets.insert(count.name(), sum_of_cpus(&counts, count.code())?.packets);
            }
        }
        Ok(Self { interface: interface.to_string(), tunnels, packets })
    }
}
