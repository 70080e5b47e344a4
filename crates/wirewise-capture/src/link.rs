// SPDX-License-Identifier: Apache-2.0
//! Link types, and how packets of those that are not Ethernet become Ethernet frames.

use std::fmt;

/// A LINKTYPE_ number of the pcap formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkType(pub u16);

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PPPOE_SESSION: u16 = 0x8864;
/// No Ethernet type, and no length of an 802.3 frame that could be taken for one of ours.
const NOTHING: u16 = 0;
const ETHERNET_HEADER: usize = 14;
/// Address families: IPv4 everywhere; IPv6 on Linux, NetBSD and OpenBSD, FreeBSD, macOS.
const AF_INET: u32 = 2;
const AF_INET6: [u32; 4] = [10, 24, 28, 30];
/// ARPHRD_ numbers whose cooked packets have something else in the place of the protocol: frame relay, 802.11 (three),
/// netlink.
const WITHOUT_PROTOCOL: [u16; 5] = [770, 801, 802, 803, 824];

impl LinkType {
    pub const NULL: Self = Self(0);
    pub const ETHERNET: Self = Self(1);
    pub const PPP: Self = Self(9);
    pub const PPP_HDLC: Self = Self(50);
    pub const PPP_ETHER: Self = Self(51);
    pub const RAW: Self = Self(101);
    pub const LOOP: Self = Self(108);
    pub const LINUX_SLL: Self = Self(113);
    pub const IPV4: Self = Self(228);
    pub const IPV6: Self = Self(229);
    pub const LINUX_SLL2: Self = Self(276);

    /// Whether packets of this type can be handed on.
    pub fn is_known(self) -> bool {
        matches!(self.0, 0 | 1 | 9 | 12 | 14 | 50 | 51 | 101 | 108 | 113 | 228 | 229 | 276)
    }

    /// Bytes in front of the network header and the Ethernet type it has. `None`: the packet ends before.
    fn network(self, packet: &[u8]) -> Option<(usize, u16)> {
        let u16_at = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
        Some(match self {
            Self::IPV4 => (0, IPV4),
            Self::IPV6 => (0, IPV6),
            // From the header of PPPoE on.
            Self::PPP_ETHER => (0, PPPOE_SESSION),
            Self::PPP | Self::PPP_HDLC => {
                // Address and control of HDLC-like framing (RFC 1662) may be left out.
                let start = if u16_at(0)? == 0xff03 { 2 } else { 0 };
                (start + 2, ppp(u16_at(start)?))
            }
            Self::NULL | Self::LOOP => (4, family(*packet.first_chunk()?)),
            Self::LINUX_SLL if packet.len() >= 16 => (16, cooked(u16_at(2)?, u16_at(14)?)),
            Self::LINUX_SLL2 if packet.len() >= 20 => (20, cooked(u16_at(8)?, u16_at(0)?)),
            Self::LINUX_SLL | Self::LINUX_SLL2 => return None,
            _ => (0, if packet.first().is_some_and(|byte| byte >> 4 == 6) { IPV6 } else { IPV4 }),
        })
    }

    /// Appends the packet as an Ethernet frame.
    pub(crate) fn write_ethernet(self, packet: &[u8], frame: &mut Vec<u8>) {
        match self.network(packet) {
            Some((start, kind)) => {
                frame.extend_from_slice(&[0; ETHERNET_HEADER - 2]);
                frame.extend_from_slice(&kind.to_be_bytes());
                frame.extend_from_slice(&packet[start..]);
            }
            None => frame.resize(frame.len() + packet.len().min(ETHERNET_HEADER - 1), 0),
        }
    }
}

fn family(bytes: [u8; 4]) -> u16 {
    // Null packets have the byte order of the machine that captured them; no family needs more than two bytes.
    let big = u32::from_be_bytes(bytes);
    let family = if big > 0xffff { big.swap_bytes() } else { big };
    match family {
        AF_INET => IPV4,
        family if AF_INET6.contains(&family) => IPV6,
        _ => NOTHING,
    }
}

/// By the protocol of PPP, in two bytes.
fn ppp(protocol: u16) -> u16 {
    match protocol {
        0x0021 => IPV4,
        0x0057 => IPV6,
        _ => NOTHING,
    }
}

fn cooked(device: u16, protocol: u16) -> u16 {
    if WITHOUT_PROTOCOL.contains(&device) { NOTHING } else { protocol }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0 => "NULL",
            1 => "ETHERNET",
            8 => "SLIP",
            9 => "PPP",
            12 | 14 | 101 => "RAW",
            50 => "PPP_HDLC",
            51 => "PPP_ETHER",
            104 => "C_HDLC",
            105 => "IEEE802_11",
            107 => "FRELAY",
            108 => "LOOP",
            113 => "LINUX_SLL",
            127 => "IEEE802_11_RADIOTAP",
            228 => "IPV4",
            229 => "IPV6",
            276 => "LINUX_SLL2",
            other => return write!(f, "LINKTYPE_{other}"),
        };
        f.pad(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet(link: u16, packet: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        LinkType(link).write_ethernet(packet, &mut frame);
        frame
    }

    #[test]
    fn what_follows_the_link_header_gets_its_ethernet_type() {
        let sll = |device: u16, protocol: u16| {
            let mut packet = vec![0; 16];
            packet[2..4].copy_from_slice(&device.to_be_bytes());
            packet[14..16].copy_from_slice(&protocol.to_be_bytes());
            packet.extend([0x45, 9]);
            packet
        };
        let mut sll2 = vec![0x86, 0xdd];
        sll2.extend([0; 18]);
        sll2.extend([0x60, 9]);
        for (link, packet, kind) in [
            (101, vec![0x45, 9], 0x0800u16),
            (12, vec![0x60, 9], 0x86dd),
            (14, vec![0xff, 9], 0x0800),
            (228, vec![0x60, 9], 0x0800),
            (229, vec![0x45, 9], 0x86dd),
            (0, vec![2, 0, 0, 0, 0x45, 9], 0x0800),
            (0, vec![0, 0, 0, 2, 0x45, 9], 0x0800),
            (0, vec![30, 0, 0, 0, 0x60, 9], 0x86dd),
            (108, vec![0, 0, 0, 24, 0x60, 9], 0x86dd),
            (108, vec![0, 0, 0, 7, 0x60, 9], 0),
            (9, vec![0xff, 3, 0, 0x21, 0x45, 9], 0x0800),
            (9, vec![0, 0x57, 0x60, 9], 0x86dd),
            (50, vec![0xff, 3, 0, 0x57, 0x60, 9], 0x86dd),
            (50, vec![0xff, 3, 0xc0, 0x21, 0x60, 9], 0),
            (51, vec![0x11, 0], 0x8864),
            (113, sll(1, 0x0800), 0x0800),
            (113, sll(824, 0x0800), 0),
            (276, sll2, 0x86dd),
        ] {
            let frame = ethernet(link, &packet);
            assert_eq!(frame[..12], [0; 12], "{link}");
            assert_eq!(frame[12..14], kind.to_be_bytes(), "{link}");
            assert_eq!(frame[14..], packet[packet.len() - 2..], "{link}");
        }
    }

    #[test]
    fn a_packet_that_ends_inside_its_link_header_is_no_whole_ethernet_header() {
        for (link, length) in [(113, 15), (276, 19), (0, 3), (108, 0), (9, 1), (50, 0)] {
            assert_eq!(ethernet(link, &vec![1; length]), vec![0; length.min(13)], "{link}");
        }
        assert_eq!(ethernet(101, &[]).len(), 14);
    }
}
