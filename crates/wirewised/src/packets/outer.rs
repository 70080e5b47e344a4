// SPDX-License-Identifier: Apache-2.0
//! The outermost IP header of a frame, by the rules of docs/architecture.md ("Parsing"): what labels refer to, what names a
//! flow in tables, and what a packet's worker is chosen by. Features come from the data path, never from here.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PPPOE_SESSION: u16 = 0x8864;
const MAX_VLAN_TAGS: usize = 2;
const MAX_EXTENSIONS: usize = 8;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
pub const TCP: u8 = 6;
const UDP: u8 = 17;
const HOP_BY_HOP: u8 = 0;
const PAD1: u8 = 0;
const JUMBO: u8 = 0xc2;
const MAX_HOP_BY_HOP_OPTIONS: usize = 8;
/// The largest number that a 16-bit length holds.
const MAX_FIELD: usize = 0xffff;

/// An address as a number whose first byte is the highest; IPv4 in the first four, the rest zero. A number, so that it goes through
/// registers: its bytes would be written one part at a time and read as a whole, which stalls the processor.
pub type Address = u128;

/// As the outer header has them.
pub fn address(of: IpAddr) -> Address {
    match of {
        IpAddr::V4(address) => ipv4(address.octets()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[inline]
fn ipv4(bytes: [u8; 4]) -> Address {
    Address::from(u32::from_be_bytes(bytes)) << 96
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    pub version: u8,
    /// Id of the outermost VLAN tag, and of the one behind it << 12.
    pub vlans: u32,
    pub source: Address,
    pub destination: Address,
    /// Behind IPv6 extension headers.
    pub protocol: u8,
    /// The first fragment too.
    pub fragment: bool,
    /// 0 where the protocol has none, and in fragments but the first.
    pub source_port: u16,
    pub destination_port: u16,
    pub tcp_flags: u8,
    /// Of ICMP and ICMPv6.
    pub icmp_type: u8,
}

impl Outer {
    /// `None`: the packet is not IP, or broken, so that the data path does not classify it either.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let mut at = 14;
        let mut kind = u16_at(frame, 12)?;
        let mut vlans = 0;
        for tag in 0..MAX_VLAN_TAGS {
            if !matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
                break;
            }
            vlans |= u32::from(u16_at(frame, at)? & 0xfff) << (12 * tag);
            kind = u16_at(frame, at + 2)?;
            at += 4;
        }
        let mut packet = frame.get(at..)?;
        if kind == PPPOE_SESSION {
            (kind, packet) = enter_pppoe(packet)?;
        }
        let outer = match kind {
            IPV4 => Self::parse_ipv4(packet),
            IPV6 => Self::parse_ipv6(packet),
            _ => None,
        };
        outer.map(|outer| Self { vlans, ..outer })
    }

    fn parse_ipv4(packet: &[u8]) -> Option<Self> {
        let header = packet.first_chunk::<20>()?;
        let length = usize::from(header[0] & 15) * 4;
        let mut total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if total == 0 && packet.len() > MAX_FIELD {
            total = packet.len();
        }
        if header[0] >> 4 != 4 || length < 20 || length > total {
            return None;
        }
        let fragment = u16::from_be_bytes([header[6], header[7]]);
        let outer = Self {
            version: 4,
            vlans: 0,
            source: ipv4(*header[12..].first_chunk()?),
            destination: ipv4(*header[16..].first_chunk()?),
            protocol: header[9],
            fragment: fragment & 0x3fff != 0,
            source_port: 0,
            destination_port: 0,
            tcp_flags: 0,
            icmp_type: 0,
        };
        let transport = packet.get(length..)?;
        if fragment & 0x1fff == 0 { outer.with_transport(transport, total - length) } else { Some(outer) }
    }

    fn parse_ipv6(packet: &[u8]) -> Option<Self> {
        let (header, mut rest) = packet.split_first_chunk::<40>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let mut outer = Self {
            version: 6,
            vlans: 0,
            source: Address::from_be_bytes(*header[8..].first_chunk()?),
            destination: Address::from_be_bytes(*header[24..].first_chunk()?),
            protocol: header[6],
            fragment: false,
            source_port: 0,
            destination_port: 0,
            tcp_flags: 0,
            icmp_type: 0,
        };
        let mut left = ipv6_payload(header, rest);
        let mut offset = 0;
        let mut extensions = 0;
        while matches!(outer.protocol, 0 | 43 | FRAGMENT | AUTHENTICATION | 60 | 135 | 139 | 140)
            && offset == 0
        {
            if extensions == MAX_EXTENSIONS {
                return None;
            }
            extensions += 1;
            let extension = rest.get(..left.min(rest.len()))?.first_chunk::<8>()?;
            let length = usize::from(extension[1]);
            let size = match outer.protocol {
                AUTHENTICATION => (length + 2) * 4,
                FRAGMENT => 8,
                _ => (length + 1) * 8,
            };
            if outer.protocol == FRAGMENT {
                outer.fragment = true;
                offset = u16::from_be_bytes([extension[2], extension[3]]) >> 3;
            }
            outer.protocol = extension[0];
            rest = rest.get(size..)?;
            left = left.checked_sub(size)?;
        }
        if offset == 0 { outer.with_transport(rest, left) } else { Some(outer) }
    }

    /// length : of the transport header and the payload, by the IP header. More is padding; less, a frame that was cut.
    fn with_transport(mut self, transport: &[u8], length: usize) -> Option<Self> {
        let size = match self.protocol {
            TCP => 20,
            UDP | 136 | 1 | 58 => 8,
            132 | 33 => 12,
            _ => return Some(self),
        };
        let header = transport.get(..size)?;
        if size > length {
            return None;
        }
        match self.protocol {
            1 | 58 => self.icmp_type = header[0],
            _ => {
                self.source_port = u16::from_be_bytes([header[0], header[1]]);
                self.destination_port = u16::from_be_bytes([header[2], header[3]]);
            }
        }
        if self.protocol == TCP {
            let words = usize::from(header[12] >> 4);
            if words < 5 || words * 4 > length {
                return None;
            }
            self.tcp_flags = header[13];
        }
        if self.protocol == UDP {
            // Of a fragment it is about all fragments, of a jumbogram 0.
            let own = usize::from(u16::from_be_bytes([header[4], header[5]]));
            let large = own == 0 && length > MAX_FIELD;
            if !large && (own < size || (own > length && !self.fragment)) {
                return None;
            }
        }
        Some(self)
    }

    /// The sender is the second end of the conversation.
    pub fn swapped(&self) -> bool {
        (self.source, self.source_port) > (self.destination, self.destination_port)
    }

    pub fn conversation(&self) -> Conversation {
        let swap = self.swapped();
        // Without a branch, which would be a guess for each packet.
        let address = (self.source ^ self.destination) & 0u128.wrapping_sub(swap.into());
        let port = (self.source_port ^ self.destination_port) & 0u16.wrapping_sub(swap.into());
        Conversation {
            version: self.version,
            protocol: self.protocol,
            addresses: [self.source ^ address, self.destination ^ address],
            ports: [self.source_port ^ port, self.destination_port ^ port],
        }
    }
}

/// Bytes behind the fixed header of IPv6: of larger payloads an option says how many (RFC 2675), or the frame.
fn ipv6_payload(header: &[u8; 40], rest: &[u8]) -> usize {
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if payload > 0 {
        return payload;
    }
    let jumbo = if header[6] == HOP_BY_HOP { jumbo_payload(rest) } else { None };
    jumbo.unwrap_or(if rest.len() > MAX_FIELD { rest.len() } else { 0 })
}

fn jumbo_payload(rest: &[u8]) -> Option<usize> {
    let size = (usize::from(*rest.get(1)?) + 1) * 8;
    let mut options = rest.get(2..size.min(rest.len()))?;
    for _ in 0..MAX_HOP_BY_HOP_OPTIONS {
        let [kind, length, a, b, c, d] = *options.first_chunk()?;
        if kind == JUMBO {
            let payload = u32::from_be_bytes([a, b, c, d]) as usize;
            return (length == 4 && payload > MAX_FIELD).then_some(payload);
        }
        options = options.get(if kind == PAD1 { 1 } else { 2 + usize::from(length) }..)?;
    }
    None
}

/// EtherType of the IP packet in a PPPoE session, and what is behind the session's header. `None`: it is not IP, or longer than that says.
fn enter_pppoe(session: &[u8]) -> Option<(u16, &[u8])> {
    let ([0x11, 0, _, _, length @ ..], packet) = session.split_first_chunk::<8>()? else { return None };
    let [high, low, protocol @ ..] = *length;
    let left = usize::from(u16::from_be_bytes([high, low])).checked_sub(2)?;
    let (kind, claimed) = match u16::from_be_bytes(protocol) {
        0x0021 => (IPV4, usize::from(u16_at(packet, 2)?)),
        0x0057 => (IPV6, usize::from(u16_at(packet, 4)?) + 40),
        _ => return None,
    };
    (claimed <= left).then_some((kind, packet))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// What is equal for all packets of a conversation, in both directions, and for no others: the column `flow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conversation {
    pub version: u8,
    pub protocol: u8,
    /// The lower address with its port first.
    pub addresses: [Address; 2],
    pub ports: [u16; 2],
}

impl Hash for Conversation {
    /// In few words: a table looks up the conversation of every row.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [low, high] = self.ports;
        let rest = [u16::from(self.version), u16::from(self.protocol), low, high];
        state.write_u64(rest.into_iter().fold(0, |word, part| word << 16 | u64::from(part)));
        self.addresses.into_iter().for_each(|address| state.write_u128(address));
    }
}

impl Conversation {
    /// Appends `6 10.0.0.1|40000 10.0.0.2|443`.
    pub fn append_text(&self, out: &mut Vec<u8>) {
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(number.format(self.protocol).as_bytes());
        for (address, port) in self.addresses.into_iter().zip(self.ports) {
            if self.version == 4 {
                for (separator, byte) in b" ...".iter().zip(address.to_be_bytes()) {
                    out.push(*separator);
                    out.extend_from_slice(number.format(byte).as_bytes());
                }
            } else {
                // A list takes what is written to it.
                let _ = write!(out, " {}", Ipv6Addr::from_bits(address));
            }
            out.push(b'|');
            out.extend_from_slice(number.format(port).as_bytes());
        }
    }
}

impl fmt::Display for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(96);
        self.append_text(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, PacketHeaders, TransportHeader};
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn frame(v6: bool, tcp: bool, ports: (u16, u16), vlan: bool) -> Vec<u8> {
        let link = PacketBuilder::ethernet2([2; 6], [4; 6]);
        let link = if vlan {
            link.single_vlan(7.try_into().unwrap())
        } else {
            link.single_vlan(8.try_into().unwrap())
        };
        let ip =
            if v6 { link.ipv6([9; 16], [7; 16], 64) } else { link.ipv4([10, 0, 0, 2], [10, 0, 0, 1], 64) };
        let mut frame = Vec::new();
        if tcp {
            ip.tcp(ports.0, ports.1, 1, 2).syn().ack(3).write(&mut frame, &[5; 9]).unwrap();
        } else {
            ip.udp(ports.0, ports.1).write(&mut frame, &[5; 9]).unwrap();
        }
        frame
    }

    #[test]
    fn both_directions_have_one_name() {
        let there = Outer::parse(&frame(false, true, (40_000, 443), true)).unwrap();
        assert_eq!(there.tcp_flags, 0x12);
        assert_eq!(there.conversation().to_string(), "6 10.0.0.1|443 10.0.0.2|40000");
        let back = Outer {
            source: there.destination,
            destination: there.source,
            source_port: 443,
            destination_port: 40_000,
            ..there
        };
        assert_eq!(back.conversation(), there.conversation());
        let six = Outer::parse(&frame(true, false, (1, 2), false)).unwrap().conversation().to_string();
        assert_eq!(six, "17 707:707:707:707:707:707:707:707|2 909:909:909:909:909:909:909:909|1");
    }

    /// The frame, behind its tag, in a session that says its packet has so many bytes more than it has.
    fn in_session(frame: &[u8], more: i32) -> Vec<u8> {
        let (front, packet) = frame.split_at(18);
        let (kind, length) = if front[16..] == [8, 0] {
            (0x21, i32::from(u16_at(packet, 2).unwrap()))
        } else {
            (0x57, i32::from(u16_at(packet, 4).unwrap()) + 40)
        };
        let [.., high, low] = (length + 2 + more).to_be_bytes();
        [&front[..16], &[0x88, 0x64, 0x11, 0, 0, 1, high, low, 0, kind], packet].concat()
    }

    #[test]
    fn a_session_of_pppoe_is_looked_into() {
        for v6 in [false, true] {
            let plain = frame(v6, true, (1, 2), true);
            let session = in_session(&plain, 0);
            let outer = Outer::parse(&plain);
            assert_eq!(outer.map(|outer| outer.vlans), Some(7));
            assert_eq!(Outer::parse(&session), outer);
            assert_eq!(Outer::parse(&in_session(&plain, 1)), outer);
            assert_eq!(Outer::parse(&in_session(&plain, -1)), None, "longer than the session says");
            for (at, byte) in [(18, 0x12), (19, 9), (24, 0xc0)] {
                let mut other = session.clone();
                other[at] = byte;
                assert_eq!(Outer::parse(&other), None, "byte {at}");
            }
        }
    }

    #[test]
    fn headers_end_where_the_lengths_say() {
        // Whether ports are read, by layer, IP version, and what is added to the length that is right.
        let read = |v6: bool, tcp: bool, at: usize, length: u16| {
            let mut bytes = frame(v6, tcp, (1, 2), true);
            bytes.extend([7; 30]);
            bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
            Outer::parse(&bytes).is_some()
        };
        for (v6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            let (at, fixed) = if v6 { (22, 0) } else { (20, 20) };
            let header = fixed + if tcp { 20 } else { 8 };
            for length in 0..header {
                assert!(!read(v6, tcp, at, length), "IPv6 {v6}, TCP {tcp}, length {length}");
            }
            // UDP's own length is 17.
            assert!(read(v6, tcp, at, header + 9) && read(v6, tcp, at, 9000));
            assert_eq!(read(v6, tcp, at, header), tcp);
        }
        for (v6, at) in [(false, 42), (true, 62)] {
            for (length, fits) in [(0, false), (7, false), (8, true), (17, true), (18, false)] {
                assert_eq!(read(v6, false, at, length), fits, "UDP length {length}");
            }
        }
        for (v6, at) in [(false, 50), (true, 70)] {
            for (words, fits) in [(4, false), (5, true), (7, true), (8, false), (15, false)] {
                assert_eq!(read(v6, true, at, words << 12), fits, "data offset {words}");
            }
        }
    }

    #[test]
    fn a_length_of_0_is_more_than_the_field_can_say() {
        let large = |v6: bool, bytes: usize| {
            let mut frame = frame(v6, true, (1, 2), true);
            let at = if v6 { 22 } else { 20 };
            frame[at..at + 2].fill(0);
            frame.resize(frame.len() + bytes, 0);
            Outer::parse(&frame).is_some()
        };
        for v6 in [false, true] {
            assert!(!large(v6, 1000) && large(v6, 1 << 16));
        }
        let mut frame = frame(true, true, (1, 2), true);
        frame[22..24].fill(0);
        frame[24] = 0;
        let option = [6, 0, 0xc2, 4, 0, 1, 0, 0];
        frame.splice(58..58, option);
        assert!(Outer::parse(&frame).is_some());
        frame[63] = 0; // a length that the field could have said
        assert_eq!(Outer::parse(&frame), None);
    }

    #[test]
    fn a_frame_cut_inside_its_headers_has_no_outer_header() {
        for (v6, tcp) in [(false, false), (false, true), (true, false), (true, true)] {
            for whole in [frame(v6, tcp, (1, 2), true), in_session(&frame(v6, tcp, (1, 2), true), 0)] {
                let headers = whole.len() - 9;
                for length in 0..headers {
                    assert_eq!(Outer::parse(&whole[..length]), None, "{length} of {headers}");
                }
                assert_eq!(Outer::parse(&whole[..headers]), Outer::parse(&whole));
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(mut bytes in vec(any::<u8>(), 0..200), kind in 0usize..4) {
            if let Some(place) = bytes.get_mut(12..15) {
                place.copy_from_slice([[8, 0, 0x45], [0x86, 0xdd, 0x60], [0x81, 0, 0], [0, 0, 0]][kind].as_slice());
            }
            let _ = Outer::parse(&bytes);
        }

        #[test]
        fn ports_are_those_another_parser_finds(v6: bool, tcp: bool, source: u16, destination: u16, vlan: bool) {
            let bytes = frame(v6, tcp, (source, destination), vlan);
            let outer = Outer::parse(&bytes).unwrap();
            let ports = match PacketHeaders::from_ethernet_slice(&bytes).unwrap().transport.unwrap() {
                TransportHeader::Tcp(header) => (header.source_port, header.destination_port),
                TransportHeader::Udp(header) => (header.source_port, header.destination_port),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!((outer.source_port, outer.destination_port), ports);
        }
    }
}
