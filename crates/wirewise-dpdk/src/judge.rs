// SPDX-License-Identifier: Apache-2.0
//! What a lane does for whoever judges its packets.

use std::time::Duration;

/// Packets that are judged together at most.
pub const BURST: usize = 64;

/// Where a packet lies in an area of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    pub start: usize,
    pub length: usize,
}

/// What judges packets.
pub trait Judge {
    /// One outcome for each packet (true: it passes), in the order given. packets : at most `BURST`, inside `area`.
    fn judge(&mut self, area: &mut [u8], packets: &[Span], passes: &mut Vec<bool>) -> Result<(), String>;
}

/// Since the lane was opened. What came in is what was judged and what was lost before that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneCounts {
    /// Packets that were judged.
    pub received: u64,
    /// Packets that the queue had no room for.
    pub lost: u64,
    /// Packets sent on.
    pub sent: u64,
    /// Packets that pass but could not be sent on.
    pub unsent: u64,
    /// Packet buffers of the lane.
    pub frames: u64,
    /// Those of them that hold a packet, or that the driver keeps to receive into.
    pub frames_busy: u64,
}

/// One worker's way to the packets: receives bursts, has them judged, sends on what passes. Dropping it gives everything back.
pub trait Lane: Send {
    /// Waits for packets for at most `patience` and handles a burst; returns how many packets it was, 0 if none came.
    /// An error ends the lane for good (the interface is gone).
    fn turn(&mut self, judge: &mut dyn Judge, patience: Duration) -> Result<usize, String>;

    fn counts(&mut self) -> LaneCounts;
}
