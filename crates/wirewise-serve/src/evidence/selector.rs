// SPDX-License-Identifier: Apache-2.0
//! Which frames belong to an alert.

use wirewised::object::flow_table::protocol_number;
use wirewised::packets::outer::{Address, Outer, address};
use wirewised::reading::events::Tuple;

/// One end of a flow; what the flow key lacks is `None`, and fits anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    /// With the version of IP.
    address: Option<(u8, Address)>,
    port: Option<u16>,
}

impl End {
    fn fits(&self, version: u8, address: Address, port: u16) -> bool {
        self.address.is_none_or(|wanted| wanted == (version, address))
            && self.port.is_none_or(|wanted| wanted == port)
    }
}

/// The packets of a flow key, in both directions, by their outermost headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    ends: [End; 2],
    protocol: Option<u8>,
}

impl Selector {
    pub fn of(tuple: &Tuple) -> Self {
        let end = |ip: Option<std::net::IpAddr>, port| End {
            address: ip.map(|ip| (if ip.is_ipv4() { 4 } else { 6 }, address(ip))),
            port,
        };
        Self {
            ends: [end(tuple.src_ip, tuple.src_port), end(tuple.dest_ip, tuple.dest_port)],
            protocol: tuple.proto.as_deref().and_then(protocol_number),
        }
    }

    pub fn fits(&self, frame: &[u8]) -> bool {
        let Some(outer) = Outer::parse(frame) else { return false };
        let [first, second] = &self.ends;
        let is_between = |from: &End, to: &End| {
            from.fits(outer.version, outer.source, outer.source_port)
                && to.fits(outer.version, outer.destination, outer.destination_port)
        };
        self.protocol.is_none_or(|protocol| protocol == outer.protocol)
            && (is_between(first, second) || is_between(second, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(source: [u8; 4], destination: [u8; 4], ports: [u16; 2]) -> Vec<u8> {
        let mut frame = [[2; 12].as_slice(), &[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]].concat();
        frame.extend([source, destination].concat());
        frame.extend(ports.map(u16::to_be_bytes).concat());
        frame.extend([0, 8, 0, 0]);
        frame
    }

    fn tuple(source: Option<&str>, source_port: Option<u16>, dest: Option<&str>) -> Tuple {
        Tuple {
            src_ip: source.map(|it| it.parse().unwrap()),
            src_port: source_port,
            dest_ip: dest.map(|it| it.parse().unwrap()),
            dest_port: dest.map(|_| 53),
            proto: dest.map(|_| "UDP".to_string()),
            vlan: Default::default(),
            teid: None,
            community_id: None,
        }
    }

    #[test]
    fn a_flow_has_two_directions() {
        let (a, b, c) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]);
        let flow = Selector::of(&tuple(Some("10.0.0.1"), Some(7), Some("10.0.0.2")));
        for (frame, fits) in [
            (udp(a, b, [7, 53]), true),
            (udp(b, a, [53, 7]), true),
            (udp(b, a, [7, 53]), false),
            (udp(a, b, [8, 53]), false),
            (udp(a, c, [7, 53]), false),
            (vec![0; 60], false),
        ] {
            assert_eq!(flow.fits(&frame), fits, "{frame:?}");
        }
        let tagged = [&udp(a, b, [7, 53])[..12], &[0x81, 0, 0, 9], &udp(a, b, [7, 53])[12..]].concat();
        assert!(flow.fits(&tagged));
        let other = Selector::of(&Tuple {
            proto: Some("TCP".into()),
            ..tuple(Some("10.0.0.1"), Some(7), Some("10.0.0.2"))
        });
        assert!(!other.fits(&udp(a, b, [7, 53])));
    }

    #[test]
    fn what_the_key_lacks_is_not_compared() {
        let (a, b, c) = ([10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]);
        let source = Selector::of(&tuple(Some("10.0.0.1"), None, None));
        assert!(source.fits(&udp(a, b, [7, 53])) && source.fits(&udp(c, a, [1, 2])));
        assert!(!source.fits(&udp(b, c, [7, 53])));
    }
}
