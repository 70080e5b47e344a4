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
    /// Bytes in front of it that it may grow into.
    pub headroom: usize,
}

/// What the lane does with a packet that was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fate {
    /// Nothing: it ends here.
    Ends,
    /// It goes on to the other port, if there is one.
    Passes,
    /// It goes back out of the port that it came by.
    Bounces,
}

/// What judges packets.
pub trait Judge {
    /// One fate for each packet, in the order given. from : the kernel's interface behind the port that they came by; 0: there is none.
    /// packets : at most `BURST`, inside `area`; where they lie afterwards.
    fn judge(
        &mut self,
        area: &mut [u8],
        from: u32,
        packets: &mut [Span],
        fates: &mut Vec<Fate>,
    ) -> Result<(), String>;
}

/// Since the lane was opened. What came in is what was judged and what was lost before that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneCounts {
    /// Packets that were judged.
    pub received: u64,
    /// Packets that the queue had no room for.
    pub lost: u64,
    /// Packets sent on, or back.
    pub sent: u64,
    /// Packets that pass, or go back, but could not be sent.
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
