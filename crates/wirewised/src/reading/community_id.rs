// SPDX-License-Identifier: Apache-2.0
//! Names of flows that other tools know: Community ID version 1 (<https://github.com/corelight/community-id-spec>), which Zeek,
//! Suricata and Arkime give the same flow, and a number like Suricata's `flow_id`.

use std::net::IpAddr;

use base64ct::{Base64, Encoding};
use sha1::{Digest, Sha1};

use crate::object::flow_table::FlowKey;

/// Who compares IDs must use one seed; this is everybody's default.
const SEED: u16 = 0;
const ICMP: [u8; 2] = [1, 58];
/// TCP, UDP, SCTP: protocols whose ports the specification takes.
const WITH_PORTS: [u8; 3] = [6, 17, 132];
/// Numbers that JSON readers keep exact; Suricata's have as many bits.
const FLOW_ID_BITS: u32 = 51;

/// The same for both directions. `None`: the key lacks an address, the protocol, the ports (a fragment), or the type and code of ICMP.
pub fn community_id(key: &FlowKey) -> Option<String> {
    let ports = WITH_PORTS.contains(&key.protocol);
    let lacks_ports = ports && (key.source_port, key.destination_port) == (0, 0);
    if key.source.is_unspecified() || key.destination.is_unspecified() || key.protocol == 0 {
        return None;
    }
    if lacks_ports || ICMP.contains(&key.protocol) {
        return None;
    }
    let mut ends = [(octets(key.source), key.source_port), (octets(key.destination), key.destination_port)];
    ends.sort();
    let mut hash = Sha1::new();
    hash.update(SEED.to_be_bytes());
    ends.iter().for_each(|(address, _)| hash.update(address));
    hash.update([key.protocol, 0]);
    if ports {
        ends.iter().for_each(|(_, port)| hash.update(port.to_be_bytes()));
    }
    Some(format!("1:{}", Base64::encode_string(&hash.finalize())))
}

/// The same for all packets of a flow as the program keeps flows, and other for another key.
pub fn flow_id(key: &FlowKey) -> u64 {
    let mut hash = Sha1::new();
    for (address, port) in [(key.source, key.source_port), (key.destination, key.destination_port)] {
        hash.update(octets(address));
        hash.update(port.to_be_bytes());
    }
    hash.update([key.protocol]);
    if !key.vlans.is_none() {
        hash.update(key.vlans.0);
    }
    if let Some(teid) = key.teid {
        hash.update(teid.to_be_bytes());
    }
    let digest = hash.finalize();
    let first = digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte));
    first & ((1 << FLOW_ID_BITS) - 1)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::flow_table::Vlans;

    fn key(source: (&str, u16), destination: (&str, u16), protocol: u8) -> FlowKey {
        let [(source, source_port), (destination, destination_port)] =
            [source, destination].map(|(address, port)| (address.parse().unwrap(), port));
        FlowKey {
            source,
            destination,
            source_port,
            destination_port,
            protocol,
            vlans: Vlans::default(),
            teid: None,
        }
    }

    /// Published with the specification and its reference implementation.
    #[test]
    fn it_is_what_the_specification_says_in_both_directions() {
        let v6 = ("2001:470:e5bf:dead:4957:2174:e82c:4887", "2607:f8b0:400c:c03::1a");
        for (one, other, protocol, expected) in [
            (("128.232.110.120", 34855), ("66.35.250.204", 80), 6, "1:LQU9qZlK+B5F3KDmev6m5PMibrg="),
            (("192.168.1.52", 54585), ("8.8.8.8", 53), 17, "1:d/FP5EW3wiY1vCndhwleRRKHowQ="),
            (("192.168.170.8", 7), ("192.168.170.56", 7), 132, "1:MP2EtRCAUIZvTw6MxJHLV7N7JDs="),
            ((v6.0, 63943), (v6.1, 25), 6, "1:/qFaeAR+gFe1KYjMzVDsMv+wgU4="),
        ] {
            assert_eq!(community_id(&key(one, other, protocol)).as_deref(), Some(expected));
            assert_eq!(community_id(&key(other, one, protocol)).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_key_without_what_it_takes_has_none() {
        for lacking in [
            key(("10.0.0.1", 0), ("10.0.0.2", 0), 6),
            key(("10.0.0.1", 0), ("10.0.0.2", 0), 1),
            key(("fe80::1", 0), ("fe80::2", 0), 58),
            key(("10.0.0.1", 0), ("0.0.0.0", 0), 0),
            key(("::", 5), ("fe80::2", 6), 17),
        ] {
            assert_eq!(community_id(&lacking), None, "{lacking:?}");
        }
        // Of other protocols the addresses are all there is.
        let gre = key(("10.0.0.1", 0), ("10.0.0.2", 0), 47);
        assert!(community_id(&gre).is_some());
    }

    #[test]
    fn flow_ids_tell_keys_apart_and_are_exact_in_json() {
        let there = key(("10.0.0.1", 5), ("10.0.0.2", 6), 17);
        let back = key(("10.0.0.2", 6), ("10.0.0.1", 5), 17);
        let other = key(("10.0.0.1", 5), ("10.0.0.2", 6), 6);
        assert_ne!(flow_id(&there), flow_id(&back));
        assert_ne!(flow_id(&there), flow_id(&other));
        assert_eq!(flow_id(&there), flow_id(&there.clone()));
        for one in [there, back, other] {
            assert_eq!(flow_id(&one) as f64 as u64, flow_id(&one));
        }
    }
}
