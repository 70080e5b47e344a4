// SPDX-License-Identifier: Apache-2.0
//! Packets in memory that every plane reads in place.

use std::ptr;
use std::slice;

use wirewise_engine::PacketSpan;
use wirewised::error::{Error, Result};

/// Frames begin at multiples of a cache line, as in a receive ring.
const ALIGNMENT: usize = 64;
/// Where the source address of an IPv4 frame stands.
const SOURCE: std::ops::Range<usize> = 26..30;

/// Memory below 4 GB, where the 32-bit addresses of `struct xdp_md` reach.
pub struct LowMemory {
    start: *mut u8,
    length: usize,
}

// SAFETY: a mapping of this process, which goes with its only owner.
unsafe impl Send for LowMemory {}

impl LowMemory {
    pub fn new(length: usize) -> Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            let error = std::io::Error::last_os_error();
            return Err(Error::other(format!("no {length} bytes of memory below 4 GB: {error}")));
        }
        Ok(Self { start: start.cast(), length })
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: our own mapping, initialised with zeros, and `self` is borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.start, self.length) }
    }

    /// The address of an offset.
    pub fn address(&self, offset: usize) -> u32 {
        (self.start.addr() + offset) as u32
    }
}

impl Drop for LowMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

/// Frames and the order in which they come.
pub struct Packets {
    pub memory: LowMemory,
    pub spans: Vec<PacketSpan>,
}

impl Packets {
    /// At least `least` packets, each flow as often as the others. The source addresses are those of `ww_bench_rewrite`
    /// (bpf/classify/bench.h) in its order; a single flow keeps the frame's.
    pub fn of_flows(frame: &[u8], flows: u32, least: usize) -> Result<Self> {
        let mut packets = Self::from_flow(frame, 0, flows, least)?;
        if flows == 1 {
            packets.memory.bytes()[..frame.len()].copy_from_slice(frame);
        }
        Ok(packets)
    }

    /// As `of_flows`, of flows with numbers from `first` on, which all have addresses of their own.
    pub fn from_flow(frame: &[u8], first: u32, flows: u32, least: usize) -> Result<Self> {
        let stride = frame.len().next_multiple_of(ALIGNMENT);
        let count = flows as usize;
        let mut memory = LowMemory::new(stride * count)?;
        for (flow, place) in (0..flows).zip(memory.bytes().chunks_exact_mut(stride)) {
            place[..frame.len()].copy_from_slice(frame);
            place[SOURCE].copy_from_slice(&(first + flow).wrapping_mul(0x9e37_79b1).to_ne_bytes());
        }
        let span = |flow| PacketSpan { start: flow * stride, length: frame.len(), ..PacketSpan::default() };
        let spans = (0..least.next_multiple_of(count)).map(|index| span(index % count)).collect();
        Ok(Self { memory, spans })
    }
}
