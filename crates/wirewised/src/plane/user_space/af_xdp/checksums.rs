// SPDX-License-Identifier: Apache-2.0
//! Checksums that a sender on this machine left to a card which is not there (veth): such a packet has the sum of its pseudo-header where the
//! checksum belongs, and the kernel's note of that does not come with the bytes. A packet that is whole stays as it is, whatever stands
//! there by chance: what is computed is then the same.

const VLAN: [[u8; 2]; 3] = [[0x81, 0], [0x88, 0xa8], [0x91, 0]];
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const GRE: u8 = 47;
const IPV4: u8 = 4;
const IPV6: u8 = 41;
const VXLAN_PORT: [u8; 2] = 4789_u16.to_be_bytes();
/// Tunnels in tunnels that are looked into.
const DEPTH: u32 = 2;

/// Completes the checksum of an Ethernet frame, and of the packet in a tunnel of it, where the sender left it undone.
pub(super) fn finish(frame: &mut [u8]) {
    let _ = ethernet(frame, DEPTH);
}

/// `None`, as of all these: there is nothing to complete.
fn ethernet(frame: &mut [u8], depth: u32) -> Option<()> {
    let mut at = 12;
    while VLAN.iter().any(|kind| frame.get(at..at + 2) == Some(kind)) {
        at += 4;
    }
    let kind = [*frame.get(at)?, *frame.get(at + 1)?];
    network(kind, frame.get_mut(at + 2..)?, depth)
}

fn network(kind: [u8; 2], packet: &mut [u8], depth: u32) -> Option<()> {
    match kind {
        [0x08, 0x00] => ipv4(packet, depth),
        [0x86, 0xdd] => ipv6(packet, depth),
        [0x65, 0x58] => ethernet(packet, depth),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]).into())
}

fn ipv4(packet: &mut [u8], depth: u32) -> Option<()> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    let (end, protocol) = (word(packet, 2)?, *packet.get(9)?);
    // Fragments were whole before they were cut.
    if word(packet, 6)? & 0x3fff != 0 || header < 20 {
        return None;
    }
    let (head, body) = packet.get_mut(..end)?.split_at_mut_checked(header)?;
    transport(protocol, &head[12..20], body, depth)
}

fn ipv6(packet: &mut [u8], depth: u32) -> Option<()> {
    let (length, mut next) = (word(packet, 4)?, *packet.get(6)?);
    let (head, mut body) = packet.get_mut(..40 + length)?.split_at_mut_checked(40)?;
    // Hop-by-hop, routing and destination options.
    while matches!(next, 0 | 43 | 60) {
        let length = (usize::from(*body.get(1)?) + 1) * 8;
        next = body[0];
        body = body.get_mut(length..)?;
    }
    transport(next, &head[8..40], body, depth)
}

fn transport(protocol: u8, addresses: &[u8], body: &mut [u8], depth: u32) -> Option<()> {
    let at = match protocol {
        TCP => 16,
        UDP => {
            let tunnel = body.get(2..4)? == VXLAN_PORT && depth > 0 && *body.get(8)? & 0x08 != 0;
            // What is inside first: the outer checksum counts on it.
            if tunnel {
                let _ = ethernet(body.get_mut(16..)?, depth - 1);
            }
            6
        }
        SCTP => return sctp(body),
        _ if depth == 0 => return None,
        GRE => {
            // Checksum, key and sequence number take four bytes each.
            let flags = *body.first()?;
            let options = (flags & 0xb0).count_ones() as usize;
            let kind = [*body.get(2)?, *body.get(3)?];
            return network(kind, body.get_mut(4 + 4 * options..)?, depth - 1);
        }
        IPV4 => return ipv4(body, depth - 1),
        IPV6 => return ipv6(body, depth - 1),
        _ => return None,
    };
    let left = word(body, at)?;
    let pseudo = u64::from(protocol) + body.len() as u64 + sum(addresses);
    if left != usize::from(fold(pseudo)) {
        return None;
    }
    body[at..at + 2].copy_from_slice(&[0, 0]);
    let checksum = match !fold(pseudo + sum(body)) {
        // Zero means that there is none.
        0 if protocol == UDP => 0xffff,
        checksum => checksum,
    };
    body[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    Some(())
}

/// Of which nothing but zeros is left where its checksum belongs (RFC 9260, appendix A).
fn sctp(body: &mut [u8]) -> Option<()> {
    if body.get(8..12)? != [0; 4] {
        return None;
    }
    let checksum = crc32c(body);
    body[8..12].copy_from_slice(&checksum.to_le_bytes());
    Some(())
}

fn crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ (POLYNOMIAL & (crc & 1).wrapping_neg()))
    })
}

/// Of words of 16 bits (RFC 1071), not folded yet; of an odd number of bytes as if a zero followed.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(2);
    let last = words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>() + last
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    fn packet(v6: bool, tcp: bool, payload: &[u8]) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6]);
        let builder = if v6 { builder.ipv6([3; 16], [4; 16], 9) } else { builder.ipv4([3; 4], [4; 4], 9) };
        let mut frame = Vec::new();
        if tcp {
            builder.tcp(1, 2, 3, 4).write(&mut frame, payload).unwrap();
        } else {
            builder.udp(1, 2).write(&mut frame, payload).unwrap();
        }
        frame
    }

    /// As the kernel leaves it.
    fn undone(frame: &[u8], v6: bool, tcp: bool) -> Vec<u8> {
        let mut frame = frame.to_vec();
        let (addresses, body) = if v6 { (22..54, 54) } else { (26..34, 34) };
        let at = body + if tcp { 16 } else { 6 };
        let length = (frame.len() - body) as u64;
        let pseudo = fold(u64::from(if tcp { TCP } else { UDP }) + length + sum(&frame[addresses]));
        frame[at..at + 2].copy_from_slice(&pseudo.to_be_bytes());
        frame
    }

    proptest! {
        #[test]
        fn undone_checksums_are_completed_and_whole_ones_left(
            v6: bool, tcp: bool, tag: bool, payload in proptest::collection::vec(any::<u8>(), 0..200)
        ) {
            let whole = packet(v6, tcp, &payload);
            let with_tag = |frame: &[u8]| match tag {
                true => [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat(),
                false => frame.to_vec(),
            };
            let expected = with_tag(&whole);
            for mut frame in [expected.clone(), with_tag(&undone(&whole, v6, tcp))] {
                finish(&mut frame);
                prop_assert_eq!(&frame, &expected);
            }
        }

        #[test]
        fn any_bytes_are_taken_without_a_panic(mut frame in proptest::collection::vec(any::<u8>(), 0..200)) {
            finish(&mut frame);
        }
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut frame = packet(false, false, b"payload");
        frame[40] ^= 1;
        let before = frame.clone();
        finish(&mut frame);
        assert_eq!(frame, before);
    }

    #[test]
    fn the_packet_in_a_tunnel_is_completed_too() {
        let whole = packet(false, true, b"inside");
        let inner = undone(&whole, false, true);
        let around = |protocol: u8, header: &[u8], inner: &[u8]| {
            let body = [header, inner].concat();
            let length = (20 + body.len() as u16).to_be_bytes();
            let ip = [0x45, 0, length[0], length[1], 0, 0, 0, 0, 9, protocol, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2];
            [&[0; 12], &[8, 0][..], &ip, &body].concat()
        };
        let vxlan = [0, 1, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0];
        for (protocol, header, from) in
            [(IPV4, &[][..], 14), (GRE, &[0, 0, 8, 0], 14), (GRE, &[0, 0, 0x65, 0x58], 0), (UDP, &vxlan, 0)]
        {
            let mut frame = around(protocol, header, &inner[from..]);
            finish(&mut frame);
            assert_eq!(frame, around(protocol, header, &whole[from..]), "{protocol}");
        }
    }

    #[test]
    fn sctp_gets_its_crc() {
        // The check value of CRC-32C.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let mut body = [&[0; 12][..], b"payload"].concat();
        let expected = crc32c(&body).to_le_bytes();
        sctp(&mut body).unwrap();
        assert_eq!(body[8..12], expected);
        assert!(sctp(&mut [1; 20]).is_none());
    }
}
