// SPDX-License-Identifier: Apache-2.0
//! The headers of a frame in words, for `explain`. Only for showing: what the data path reads is its own business.

use std::net::{Ipv4Addr, Ipv6Addr};

use etherparse::{LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket, LinkSlice, TransportSlice};
use serde::Serialize;

const PPPOE_SESSION: u16 = 0x8864;

/// One header: `IPv4 10.0.0.1 -> 10.0.0.2, protocol 6, ...`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Header {
    pub name: &'static str,
    pub text: String,
}

impl Header {
    fn new(name: &'static str, text: String) -> Self {
        Self { name, text }
    }
}

/// From the outside in, as far as the frame can be read; the last says what stopped the reading, if something did.
pub fn of(frame: &[u8]) -> Vec<Header> {
    let packet = match LaxSlicedPacket::from_ethernet(frame) {
        Ok(packet) => packet,
        Err(error) => return vec![Header::new("unreadable", error.to_string())],
    };
    let mut headers = Vec::new();
    if let Some(LinkSlice::Ethernet2(ethernet)) = &packet.link {
        let text = format!(
            "{} -> {}, type {:#06x}, frame {} bytes",
            mac(ethernet.source()),
            mac(ethernet.destination()),
            ethernet.ether_type().0,
            frame.len()
        );
        headers.push(Header::new("Ethernet", text));
    }
    for extension in &packet.link_exts {
        headers.push(match extension {
            LaxLinkExtSlice::Vlan(vlan) => {
                let (id, kind) = (vlan.vlan_identifier().value(), vlan.ether_type().0);
                Header::new("VLAN", format!("id {id}, type {kind:#06x}"))
            }
            LaxLinkExtSlice::Macsec(_) => Header::new("MACsec", "encrypted or authenticated".to_owned()),
        });
    }
    let payload = packet.ether_payload();
    let session = payload.as_ref().filter(|payload| payload.ether_type.0 == PPPOE_SESSION);
    match session.and_then(|session| session.payload.split_first_chunk::<8>()) {
        Some((header, behind)) => headers.extend(pppoe(*header, behind)),
        None => headers.extend(behind_link(&packet)),
    }
    headers
}

fn behind_link(packet: &LaxSlicedPacket<'_>) -> Vec<Header> {
    let mut headers: Vec<Header> = packet.net.as_ref().map(net).into_iter().collect();
    headers.extend(packet.transport.as_ref().map(transport));
    if let Some((error, _)) = &packet.stop_err {
        headers.push(Header::new("unreadable", error.to_string()));
    }
    headers
}

/// header : of PPPoE, and PPP's protocol.
fn pppoe(header: [u8; 8], behind: &[u8]) -> Vec<Header> {
    let [_, code, session, length, protocol] =
        [header[0].into(), header[1].into(), at(header, 2), at(header, 4), at(header, 6)];
    let text = format!("session {session}, code {code}, length {length} bytes, PPP protocol {protocol:#06x}");
    let mut headers = vec![Header::new("PPPoE", text)];
    if matches!(protocol, 0x0021 | 0x0057) {
        match LaxSlicedPacket::from_ip(behind) {
            Ok(packet) => headers.extend(behind_link(&packet)),
            Err(error) => headers.push(Header::new("unreadable", error.to_string())),
        }
    }
    headers
}

fn at(header: [u8; 8], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

fn net(net: &LaxNetSlice<'_>) -> Header {
    match net {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let mut text = format!(
                "{} -> {}, protocol {}, TTL {}, length {} bytes (header {})",
                Ipv4Addr::from(header.source()),
                Ipv4Addr::from(header.destination()),
                header.protocol().0,
                header.ttl(),
                header.total_len(),
                u32::from(header.ihl()) * 4
            );
            if header.is_fragmenting_payload() {
                text += &format!(", fragment at byte {}", header.fragments_offset().byte_offset());
            }
            Header::new("IPv4", text)
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let text = format!(
                "{} -> {}, next header {}, hop limit {}, payload {} bytes",
                Ipv6Addr::from(header.source()),
                Ipv6Addr::from(header.destination()),
                header.next_header().0,
                header.hop_limit(),
                header.payload_length()
            );
            Header::new("IPv6", text)
        }
        LaxNetSlice::Arp(_) => Header::new("ARP", "address resolution".to_owned()),
    }
}

fn transport(transport: &TransportSlice<'_>) -> Header {
    match transport {
        TransportSlice::Tcp(tcp) => {
            let flags = [
                (tcp.syn(), "SYN"),
                (tcp.fin(), "FIN"),
                (tcp.rst(), "RST"),
                (tcp.psh(), "PSH"),
                (tcp.ack(), "ACK"),
                (tcp.urg(), "URG"),
                (tcp.ece(), "ECE"),
                (tcp.cwr(), "CWR"),
            ];
            let set: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
            let flags = if set.is_empty() { "none".to_owned() } else { set.join(" ") };
            let text = format!(
                "port {} -> {}, flags {flags}, window {}, header {} bytes",
                tcp.source_port(),
                tcp.destination_port(),
                tcp.window_size(),
                u32::from(tcp.data_offset()) * 4
            );
            Header::new("TCP", text)
        }
        TransportSlice::Udp(udp) => {
            let (source, destination) = (udp.source_port(), udp.destination_port());
            Header::new("UDP", format!("port {source} -> {destination}, length {} bytes", udp.length()))
        }
        TransportSlice::Icmpv4(icmp) => {
            Header::new("ICMP", format!("type {}, code {}", icmp.type_u8(), icmp.code_u8()))
        }
        TransportSlice::Icmpv6(icmp) => {
            Header::new("ICMPv6", format!("type {}, code {}", icmp.type_u8(), icmp.code_u8()))
        }
        TransportSlice::Igmp(_) => Header::new("IGMP", "group management".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    #[test]
    fn headers_are_shown_from_the_outside_in() {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .single_vlan(7.try_into().unwrap())
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(40_000, 443, 1, 1024)
            .syn();
        builder.write(&mut frame, &[]).unwrap();
        let shown: Vec<String> =
            of(&frame).iter().map(|header| format!("{} {}", header.name, header.text)).collect();
        assert_eq!(
            shown,
            [
                "Ethernet 02:00:00:00:00:01 -> 02:00:00:00:00:02, type 0x8100, frame 58 bytes",
                "VLAN id 7, type 0x0800",
                "IPv4 10.0.0.1 -> 10.0.0.2, protocol 6, TTL 64, length 40 bytes (header 20)",
                "TCP port 40000 -> 443, flags SYN, window 1024, header 20 bytes",
            ]
        );
    }

    #[test]
    fn a_session_of_pppoe_is_a_header() {
        let mut packet = Vec::new();
        PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).udp(5, 53).write(&mut packet, &[]).unwrap();
        let mut frame = [[2; 6], [4; 6]].concat();
        frame.extend([0x88, 0x64, 0x11, 0, 0, 9, 0, 30, 0, 0x21]);
        let shown = |frame: &[u8]| of(frame).iter().map(|header| header.name).collect::<Vec<_>>();
        assert_eq!(shown(&[&frame[..], &packet].concat()), ["Ethernet", "PPPoE", "IPv4", "UDP"]);
        let session = of(&frame)[1].text.clone();
        assert_eq!(session, "session 9, code 0, length 30 bytes, PPP protocol 0x0021");
        assert_eq!(shown(&frame), ["Ethernet", "PPPoE", "unreadable"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_shown_without_a_panic(frame in proptest::collection::vec(any::<u8>(), 0..120)) {
            of(&frame);
        }
    }
}
