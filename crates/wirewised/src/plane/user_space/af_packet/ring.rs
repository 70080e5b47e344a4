// SPDX-License-Identifier: Apache-2.0
//! Receiving: a ring of blocks that the kernel fills and gives over one by one (TPACKET_V3), mapped into this process.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use bytemuck::{Pod, Zeroable};
use wirewise_lane::{BURST, Span};

use super::interface::Interface;
use crate::error::Result;
use crate::interface::socket::{self, get, set};

/// A block has room for the largest merged packet.
const BLOCK_BYTES: u32 = 1 << 18;
/// What the kernel takes for the least; with this version of the ring packets may be longer.
const FRAME_BYTES: u32 = 1 << 11;
/// Room in front of a frame, for the VLAN tag that the driver took off and for headers that a policy puts around it.
const RESERVE: u32 = 80;
/// What is left of it in any case: the tag, and the longest outer headers (IPv6 and GUE).
const HEADROOM: usize = 52;
const _: () = assert!(HEADROOM + TAG_BYTES + OFFLOAD_BYTES <= RESERVE as usize);
/// The sockets of a group go by this flag of the group, and not by the option each has (linux/if_packet.h).
const FANOUT_IGNORE_OUTGOING: u32 = 0x4000;
const TAG_BYTES: usize = 4;
const ADDRESSES: usize = 12;
/// `struct virtio_net_hdr`, in front of each frame: what is left to do of checksums and segments.
pub const OFFLOAD_BYTES: usize = 10;
const SEGMENTS: usize = 1;
const CHECKSUM_START: usize = 6;
const HEADER_LENGTH: usize = 2;

/// What is left to do of a packet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Offload {
    pub words: [u8; OFFLOAD_BYTES],
    /// Where the frame began that it speaks of.
    start: usize,
}

impl Offload {
    /// The frame begins there now. Zeros are places that are not given.
    pub fn follow(&mut self, start: usize) {
        let grown = self.start.wrapping_sub(start) as u16;
        for at in [HEADER_LENGTH, CHECKSUM_START] {
            let word = u16::from_ne_bytes([self.words[at], self.words[at + 1]]);
            let moved = if word == 0 { 0 } else { word.wrapping_add(grown) };
            self.words[at..at + 2].copy_from_slice(&moved.to_ne_bytes());
        }
        self.start = start;
    }

    /// Several packets that the kernel merged, or has still to cut.
    fn is_merged(&self) -> bool {
        self.words[SEGMENTS] != 0
    }
}

/// How the sockets of an interface divide its packets: by the kernel's hash of the flow, which is the same in both directions.
#[derive(Debug, Clone, Copy)]
pub enum Fanout {
    Alone,
    First,
    /// The group's number.
    Join(u16),
}

impl Fanout {
    pub fn of(workers: u32) -> Self {
        if workers == 1 { Self::Alone } else { Self::First }
    }

    fn enter(&mut self, socket: &OwnedFd) -> io::Result<()> {
        let (number, flags) = match *self {
            Self::Alone => return Ok(()),
            Self::First => (0, libc::PACKET_FANOUT_FLAG_UNIQUEID),
            Self::Join(number) => (number, 0),
        };
        let join = |flags: u32| {
            let word = u32::from(number) | (libc::PACKET_FANOUT_HASH | flags) << 16;
            set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &word)
        };
        // Older kernels do not know the flag: there `take` leaves out what is sent.
        match join(flags | FANOUT_IGNORE_OUTGOING) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => join(flags)?,
            joined => joined?,
        }
        if let Self::First = self {
            *self = Self::Join(get::<u32>(socket, libc::SOL_PACKET, libc::PACKET_FANOUT)? as u16);
        }
        Ok(())
    }
}

/// What a ring is for.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    blocks: u32,
    /// Milliseconds after which a block that is not full is given over.
    give_over_ms: u32,
    /// What passes is sent on: packets for others are received too, and what is left to do of them is kept.
    to_send: bool,
    /// What the host sends is received too.
    outgoing: bool,
    /// Bytes of a packet that are kept; `None`: all.
    snap: Option<u32>,
}

impl Shape {
    pub fn of_plane(to_send: bool) -> Self {
        Self { blocks: 32, give_over_ms: 1, to_send, outgoing: false, snap: None }
    }

    /// Looks on, in both directions, with less memory and fewer wake-ups.
    pub fn of_tap(snap: u32) -> Self {
        Self { blocks: 8, give_over_ms: 20, to_send: false, outgoing: true, snap: Some(snap) }
    }

    /// What the ring takes of memory.
    pub const fn bytes(&self) -> usize {
        (BLOCK_BYTES * self.blocks) as usize
    }
}

/// `struct tpacket_stats_v3`; reading it sets it to zero.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
struct Statistics {
    packets: u32,
    drops: u32,
    freezes: u32,
}

/// Packets in a block, all with what the kernel left to do of them if they are sent on.
pub struct Burst<'a> {
    pub area: &'a mut [u8],
    pub packets: &'a mut [Span],
    pub offloads: &'a mut [Offload],
    pub arrivals: &'a [Arrival],
}

/// When a packet came, and how long it was.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Since 1970.
    pub time_ns: u64,
    /// Bytes on the wire: more than there are here if the packet is longer than a block, or than the ring keeps.
    pub wire_length: usize,
}

pub struct Ring {
    socket: OwnedFd,
    start: *mut u8,
    shape: Shape,
    /// The block that comes next, or is under way.
    block: usize,
    /// In the block: where the next packet is, and how many are left.
    at: usize,
    left: u32,
    packets: Vec<Span>,
    offloads: Vec<Offload>,
    arrivals: Vec<Arrival>,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Ring {}

impl Ring {
    pub fn open(interface: &Interface, shape: Shape, fanout: &mut Fanout) -> Result<Self> {
        let failed = |error: io::Error| interface.failed("a raw socket", &error);
        let socket = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(failed)?;
        Self::prepare(&socket, &shape).map_err(failed)?;
        let (flags, access) = (libc::MAP_SHARED, libc::PROT_READ | libc::PROT_WRITE);
        let length = shape.bytes();
        // SAFETY: a new shared mapping of the socket's ring, which has `length` bytes.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, socket.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(failed(io::Error::last_os_error()));
        }
        let (packets, offloads, arrivals) = (Vec::new(), Vec::new(), Vec::new());
        let ring = Self {
            socket,
            start: start.cast(),
            shape,
            block: 0,
            at: 0,
            left: 0,
            packets,
            offloads,
            arrivals,
        };
        // Packets come from here on.
        socket::bind(&ring.socket, interface.index, libc::ETH_P_ALL).map_err(failed)?;
        fanout.enter(&ring.socket).map_err(failed)?;
        if shape.to_send {
            let all = libc::packet_mreq {
                mr_ifindex: interface.index as i32,
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            set(&ring.socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all).map_err(failed)?;
        }
        Ok(ring)
    }

    fn prepare(socket: &OwnedFd, shape: &Shape) -> io::Result<()> {
        let option = |option: i32, value: i32| set(socket, libc::SOL_PACKET, option, &value);
        option(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as i32)?;
        option(libc::PACKET_RESERVE, RESERVE as i32)?;
        // What is sent here, by the host or by us.
        option(libc::PACKET_IGNORE_OUTGOING, i32::from(!shape.outgoing))?;
        if shape.to_send {
            option(libc::PACKET_VNET_HDR, 1)?;
        }
        if let Some(snap) = shape.snap {
            socket::keep_first(socket, snap)?;
        }
        let ring = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES,
            tp_block_nr: shape.blocks,
            tp_frame_size: FRAME_BYTES,
            tp_frame_nr: BLOCK_BYTES / FRAME_BYTES * shape.blocks,
            tp_retire_blk_tov: shape.give_over_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &ring)
    }

    pub fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// An error that the socket has to tell, as its number.
    pub fn error(&self) -> Option<i32> {
        get::<i32>(&self.socket, libc::SOL_SOCKET, libc::SO_ERROR).ok().filter(|code| *code != 0)
    }

    /// Packets that there was no room for, since the last call.
    pub fn lost(&self) -> u64 {
        let statistics = get::<Statistics>(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS);
        statistics.map_or(0, |statistics| statistics.drops.into())
    }

    fn block(&self) -> *mut u8 {
        // SAFETY: `block` is below the number of blocks, so inside the mapping.
        unsafe { self.start.add(self.block * BLOCK_BYTES as usize) }
    }

    /// Whose the block is: the kernel's, or ours with TP_STATUS_USER.
    fn status(&self) -> &AtomicU32 {
        let at = std::mem::offset_of!(libc::tpacket_block_desc, hdr)
            + std::mem::offset_of!(libc::tpacket_hdr_v1, block_status);
        // SAFETY: a word of the block's description, inside the mapping and aligned; the kernel writes it in one piece.
        unsafe { AtomicU32::from_ptr(self.block().add(at).cast()) }
    }

    /// The next packets that are there; `done` gives them back.
    pub fn burst(&mut self) -> Option<Burst<'_>> {
        if self.left == 0 {
            if self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return None;
            }
            // SAFETY: the block is ours (its status says so) until we give it back, and begins with its description.
            let header = unsafe { (*self.block().cast::<libc::tpacket_block_desc>()).hdr.bh1 };
            (self.at, self.left) = (header.offset_to_first_pkt as usize, header.num_pkts);
        }
        self.packets.clear();
        self.offloads.clear();
        self.arrivals.clear();
        let block = self.block();
        // SAFETY: the block is ours until we give it back, and nothing else refers to it; BLOCK_BYTES of the mapping.
        let area = unsafe { std::slice::from_raw_parts_mut(block, BLOCK_BYTES as usize) };
        let count = (self.left as usize).min(BURST);
        for _ in 0..count {
            let Some(header) = header_at(area, self.at) else { break };
            self.take(area, &header);
            self.at += header.tp_next_offset as usize;
        }
        self.left -= count as u32;
        Some(Burst {
            area,
            packets: &mut self.packets,
            offloads: &mut self.offloads,
            arrivals: &self.arrivals,
        })
    }

    /// Notes a packet; a VLAN tag that was taken off comes back to its place.
    fn take(&mut self, area: &mut [u8], header: &libc::tpacket3_hdr) {
        let start = self.at + header.tp_mac as usize;
        let mut span = Span { start, length: header.tp_snaplen as usize, headroom: 0 };
        let inside = span.start.checked_add(span.length).is_some_and(|end| end <= area.len());
        if !inside || start < OFFLOAD_BYTES.max(TAG_BYTES) || (!self.shape.outgoing && self.is_sent(area)) {
            return;
        }
        let mut wire_length = header.tp_len as usize;
        let mut offload = Offload { start, ..Offload::default() };
        if self.shape.to_send {
            offload.words.copy_from_slice(&area[start - OFFLOAD_BYTES..start]);
        }
        if header.tp_status & libc::TP_STATUS_VLAN_VALID != 0 && span.length >= ADDRESSES {
            let known = header.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let kind = if known { header.hv1.tp_vlan_tpid } else { libc::ETH_P_8021Q as u16 };
            area.copy_within(start..start + ADDRESSES, start - TAG_BYTES);
            let tag = start - TAG_BYTES + ADDRESSES;
            area[tag..tag + 2].copy_from_slice(&kind.to_be_bytes());
            area[tag + 2..tag + TAG_BYTES].copy_from_slice(&(header.hv1.tp_vlan_tci as u16).to_be_bytes());
            (span.start, span.length) = (start - TAG_BYTES, span.length + TAG_BYTES);
            wire_length += TAG_BYTES;
            offload.follow(span.start);
        }
        // What is merged is too long, or would have to be cut behind the headers that it gets.
        if self.shape.to_send && !offload.is_merged() {
            span.headroom = HEADROOM;
        }
        self.packets.push(span);
        self.offloads.push(offload);
        let time_ns = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
        self.arrivals.push(Arrival { time_ns, wire_length });
    }

    /// Whether the packet is one that was sent here; its address lies behind its description.
    fn is_sent(&self, area: &[u8]) -> bool {
        let header = size_of::<libc::tpacket3_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);
        let kind = self.at + header + std::mem::offset_of!(libc::sockaddr_ll, sll_pkttype);
        area.get(kind).is_some_and(|kind| *kind == libc::PACKET_OUTGOING)
    }

    /// The packets of the last burst are not needed any more.
    pub fn done(&mut self) {
        if self.left == 0 {
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.block = (self.block + 1) % self.shape.blocks as usize;
        }
    }
}

/// The description in front of a packet; `None`: it is not inside the block.
fn header_at(area: &[u8], at: usize) -> Option<libc::tpacket3_hdr> {
    let bytes = area.get(at..)?.get(..size_of::<libc::tpacket3_hdr>())?;
    // SAFETY: as many bytes as the header has, any of which are one.
    Some(unsafe { ptr::read_unaligned(bytes.as_ptr().cast()) })
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping of `open`, which nothing points into any more.
        unsafe { libc::munmap(self.start.cast(), self.shape.bytes()) };
    }
}
