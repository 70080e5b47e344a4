// SPDX-License-Identifier: Apache-2.0
//! Scores of flows, as far as `ww_verdicts` has them.

use std::net::IpAddr;

use bytemuck::{Zeroable, bytes_of};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::abi;
use crate::object::flow_table::{Flow, FlowKey};

pub struct Scores(MapHandle);

impl Scores {
    /// map : `ww_verdicts`.
    pub(crate) fn new(map: MapHandle) -> Self {
        Self(map)
    }

    /// The score with which a flow got its class. `None`: the flow was forgotten, or the model gives none.
    pub fn of(&self, flow: &Flow) -> Option<i64> {
        let verdict = self.0.lookup(bytes_of(&five_tuple(&flow.key)), MapFlags::ANY).ok()??;
        let verdict: abi::FlowVerdict = bytemuck::try_pod_read_unaligned(&verdict).ok()?;
        let scored = u32::from(verdict.flags) & abi::METADATA_SCORE != 0;
        // VLANs and tunnels are not part of its key: it may be of another flow.
        let own = Some(verdict.class_id) == flow.class_id && verdict.time_ns <= flow.last_seen_ns;
        (scored && own).then_some(verdict.score)
    }
}

fn five_tuple(key: &FlowKey) -> abi::FiveTuple {
    let mut tuple = abi::FiveTuple {
        source_port: key.source_port.to_be_bytes(),
        destination_port: key.destination_port.to_be_bytes(),
        protocol: key.protocol,
        ip_version: if key.source.is_ipv4() { 4 } else { 6 },
        ..abi::FiveTuple::zeroed()
    };
    for (address, to) in [(key.source, &mut tuple.source), (key.destination, &mut tuple.destination)] {
        match address {
            IpAddr::V4(address) => to[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => *to = address.octets(),
        }
    }
    tuple
}
