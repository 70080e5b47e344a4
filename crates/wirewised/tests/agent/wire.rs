// SPDX-License-Identifier: Apache-2.0
//! Whole frames in and out of an interface, and what is checked of them by hand.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

use crate::quiet::{self, Sending};

/// `PACKET_OUTGOING` (linux/if_packet.h): what this host sent itself.
const OUTGOING: u8 = 4;

/// Addresses of the pair's ends.
pub const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const FAR: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A raw socket on an interface of the network namespace that this thread was in.
pub struct Wire {
    socket: File,
    interface: Sending,
}

impl AsRawFd for Wire {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Wire {
    pub fn open(interface: &str) -> Self {
        Self::of_kind(interface, libc::ETH_P_ALL)
    }

    /// Of packets of one kind, behind TC; those of all kinds come from before it.
    pub fn of_kind(interface: &str, kind: i32) -> Self {
        let index = wirewised::interface::netdev::index(interface).unwrap();
        let protocol = (kind as u16).to_be();
        // SAFETY: the call takes three numbers; the descriptor it returns is ours alone.
        let socket = unsafe {
            let descriptor =
                libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol.into());
            assert!(descriptor >= 0, "{}", io::Error::last_os_error());
            File::from_raw_fd(descriptor)
        };
        // SAFETY: zero is a value of every field of this plain C struct.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        quiet::make_room(&socket);
        // SAFETY: the address is of the size given, and outlives the call.
        let code = unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        assert_eq!(code, 0, "{}", io::Error::last_os_error());
        Self { socket, interface: Sending::on(interface) }
    }

    pub fn send(&self, frames: &[Vec<u8>]) {
        self.interface.each(frames.len(), |number| {
            let frame = &frames[number];
            assert_eq!((&self.socket).write(frame).unwrap(), frame.len());
        });
    }

    /// The frames with UDP that came in, until none comes for a while.
    pub fn received(&self) -> Vec<Vec<u8>> {
        self.received_of(libc::IPPROTO_UDP)
    }

    /// Likewise those of a protocol: not ARP and not ICMP, with which hosts answer.
    pub fn received_of(&self, protocol: i32) -> Vec<Vec<u8>> {
        self.frames(|frame| is_of(frame, protocol))
    }

    /// Those in sessions of PPPoE.
    pub fn sessions(&self) -> Vec<Vec<u8>> {
        self.frames(|frame| frame[12..14] == [0x88, 0x64])
    }

    /// As `received`, with those that carry other packets.
    pub fn all(&self) -> Vec<Vec<u8>> {
        self.frames(|frame| {
            is_of(frame, libc::IPPROTO_UDP)
                || matches!((frame[14] >> 4, frame[20], frame[23]), (4, _, 4 | 41) | (6, 4 | 41, _))
        })
    }

    fn frames(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while quiet::more(self) {
            let mut frame = vec![0; 4096];
            // SAFETY: zero is a value of every field of this plain C struct.
            let mut from: libc::sockaddr_ll = unsafe { mem::zeroed() };
            let mut size = size_of_val(&from) as libc::socklen_t;
            // SAFETY: buffer and address are of the sizes given.
            let length = unsafe {
                libc::recvfrom(
                    self.as_raw_fd(),
                    frame.as_mut_ptr().cast(),
                    frame.len(),
                    libc::MSG_DONTWAIT,
                    (&raw mut from).cast(),
                    &raw mut size,
                )
            };
            let Ok(length) = usize::try_from(length) else {
                // Its interface may be gone, or down.
                assert_ne!(io::Error::last_os_error().kind(), io::ErrorKind::WouldBlock);
                break;
            };
            frame.truncate(length);
            if from.sll_pkttype != OUTGOING && wanted(&frame) {
                frames.push(frame);
            }
        }
        assert_eq!(quiet::lost(self), 0, "frames that the socket had no room for");
        frames
    }

    /// Forgets what came so far.
    pub fn clear(&self) {
        let _ = self.received();
    }
}

fn is_of(frame: &[u8], protocol: i32) -> bool {
    let packet = if frame[12..14] == [0x81, 0] { &frame[18..] } else { &frame[14..] };
    let has = match packet[0] >> 4 {
        4 => packet[9],
        6 => packet[6],
        _ => return false,
    };
    i32::from(has) == protocol
}

pub fn ethernet(kind: u16, packet: &[u8]) -> Vec<u8> {
    [&NEAR[..], &FAR, &kind.to_be_bytes(), packet].concat()
}

/// Ones' complement sum of a header: 0 if its checksum is right (RFC 1071).
pub fn sum(header: &[u8]) -> u16 {
    let total: u64 = header.chunks(2).map(|word| u64::from(word[0]) << 8 | u64::from(word[1])).sum();
    let folded = (total & 0xffff) + (total >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

/// IPv4 and UDP to a port, with so many bytes of payload. fragment : flags and offset.
pub fn ipv4(port: u16, payload: usize, fragment: u16) -> Vec<u8> {
    let length = 28 + payload as u16;
    let mut packet = vec![0x45, 0x01, 0, 0, 0, 7, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2];
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[6..8].copy_from_slice(&fragment.to_be_bytes());
    let checksum = sum(&packet);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(udp(port, payload));
    ethernet(0x0800, &packet)
}

pub fn ipv6(port: u16, payload: usize) -> Vec<u8> {
    let mut packet = vec![0x60, 0x1a, 0xbc, 0xde, 0, 0, 17, 64];
    packet[4..6].copy_from_slice(&(8 + payload as u16).to_be_bytes());
    for host in [1, 2] {
        packet.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    packet.extend(udp(port, payload));
    ethernet(0x86dd, &packet)
}

/// Without a checksum, which UDP over IPv4 may do.
fn udp(port: u16, payload: usize) -> Vec<u8> {
    let mut header = vec![0x9c, 0x40, 0, 0, 0, 0, 0, 0];
    header[2..4].copy_from_slice(&port.to_be_bytes());
    header[4..6].copy_from_slice(&(8 + payload as u16).to_be_bytes());
    header.resize(8 + payload, 0);
    header
}

/// The frame, which has no tag, in a session of PPPoE.
pub fn in_session(frame: &[u8]) -> Vec<u8> {
    let protocol = if frame[12..14] == [8, 0] { 0x21 } else { 0x57 };
    let [high, low] = (frame.len() as u16 - 14 + 2).to_be_bytes();
    [&frame[..12], &[0x88, 0x64, 0x11, 0, 0, 9, high, low, 0, protocol], &frame[14..]].concat()
}

/// The frame with a VLAN tag.
pub fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat()
}

/// The frame without one.
pub fn untagged(frame: &[u8]) -> Vec<u8> {
    if frame[12..14] == [0x81, 0] { [&frame[..12], &frame[16..]].concat() } else { frame.to_vec() }
}
