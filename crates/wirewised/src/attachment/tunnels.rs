// SPDX-License-Identifier: Apache-2.0
//! What tunnels need of this network namespace: the addresses that answers come from, and that the other ends' Ethernet addresses are known.

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};

use crate::attachment::doctor::finding::Finding;
use crate::attachment::way_out::Judged;
use crate::error::Result;
use crate::interface::netdev::{self, Device};
use crate::policy::Policy;
use crate::policy::tunnels::Tunnel;

pub const CHECK: &str = "tunnels";
/// discard (RFC 863): nobody is to do anything with what is sent there.
const DISCARD: u16 = 9;
/// More base stations than one host talks to.
const MOST_PEERS: usize = 1024;

/// Looks up the addresses of the judged interface, from which senders are told that their packets are too long.
pub fn admit(policy: &mut Policy, judged: &Judged<'_>) -> Result<Vec<Finding>> {
    let Judged { interface, own, .. } = *judged;
    if !policy.steering().any(|(_, steering)| steering.encapsulate.is_some()) {
        return Ok(Vec::new());
    }
    let (v4, v6) = (Device::open(interface)?.ipv4(), netdev::ipv6(own));
    policy.encapsulating_mut().for_each(|encapsulate| {
        encapsulate.own = (v4.unwrap_or_default(), v6.map_or([0; 16], |v6| v6.octets()));
    });
    greet(policy.tunnels.as_deref().unwrap_or_default());
    let without = match (v4, v6) {
        (None, None) => "IPv4 and IPv6",
        (None, Some(_)) => "IPv4",
        _ => return Ok(Vec::new()),
    };
    Ok(vec![Finding::warning(
        CHECK,
        format!(
            "{interface} has no address of {without}: packets that are too long for their tunnel pass, and nobody tells their senders"
        ),
        format!("give {interface} an address before the policy"),
    )])
}

/// Sends an empty packet to the other ends, so that the kernel asks for the Ethernet addresses on the way.
pub fn greet(tunnels: &[Tunnel]) {
    let peers: BTreeSet<_> = tunnels.iter().filter_map(|tunnel| tunnel.peer.map(|(peer, _)| peer)).collect();
    for peer in peers.into_iter().take(MOST_PEERS) {
        let any: IpAddr = if peer.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        // Who cannot be reached is not: packets for it pass, and are counted.
        let _ = UdpSocket::bind((any, 0)).and_then(|socket| socket.send_to(&[], (peer, DISCARD)));
    }
}
