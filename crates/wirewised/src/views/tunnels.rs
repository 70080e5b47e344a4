// SPDX-License-Identifier: Apache-2.0
//! Tunnels as a table.

use crate::abi;
use crate::error::Result;
use crate::reading::tunnels::{TunnelState, Tunnels};
use crate::text::table;

pub fn print(tunnels: &Tunnels) -> Result<()> {
    println!("{} tunnels on {}", tunnels.tunnels.len(), tunnels.interface);
    let head =
        ["ue", "local", "teid", "peer", "peer teid", "qfi", "out packets", "bytes", "in packets", "bytes"];
    let rows: Vec<_> =
        std::iter::once(head.map(str::to_string)).chain(tunnels.tunnels.iter().map(row)).collect();
    table::print(&rows, 5);
    let known = abi::TunnelCount::ALL.iter().filter_map(|count| {
        let name = count.name();
        let packets = tunnels.packets.get(name).copied().unwrap_or(0);
        (packets > 0).then(|| format!("{packets} {name}"))
    });
    let known: Vec<_> = known.collect();
    println!("packets: {}", if known.is_empty() { "none yet".to_string() } else { known.join(", ") });
    Ok(())
}

fn row(tunnel: &TunnelState) -> [String; 10] {
    let teid = |teid: Option<u32>| teid.map_or("-".to_string(), |teid| format!("{teid:#x}"));
    let ue = tunnel.ue.join(" ");
    [
        if ue.is_empty() { "any".to_string() } else { ue },
        tunnel.local.clone(),
        teid(tunnel.teid),
        tunnel.peer.clone().unwrap_or_else(|| "-".to_string()),
        teid(tunnel.peer_teid),
        tunnel.qfi.map_or("-".to_string(), |qfi| qfi.to_string()),
        tunnel.taken_out.packets.to_string(),
        tunnel.taken_out.bytes.to_string(),
        tunnel.put_in.packets.to_string(),
        tunnel.put_in.bytes.to_string(),
    ]
}
