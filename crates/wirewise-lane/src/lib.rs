// SPDX-License-Identifier: Apache-2.0
//! The interface between planes in user space and the code that runs programs on their packets: a plane implements `Lane`, which receives
//! and sends packets, and calls a `Judge` for each burst. Errors are plain text because all they do is end a lane.

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
    /// Nothing: it ends here, or has left already.
    Ends,
    /// It goes on to the other port, if there is one.
    Passes,
    /// It goes back out of the port that it came by.
    Bounces,
}

/// What judges packets.
pub trait Judge {
    /// One fate for each packet, in the order given. from : the kernel's interface that they came by; 0: there is none.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LaneCounts {
    /// Packets that were judged.
    pub received: u64,
    /// Packets that the queue had no room for.
    pub lost: u64,
    /// Packets sent on, or back.
    pub sent: u64,
    /// Packets that pass, or go back, but could not be sent.
    pub unsent: u64,
    /// Frames of memory that packets are received to, where the lane has its own.
    pub frames: u64,
    /// Those of them that hold a packet which is being judged or sent, or that a driver keeps to receive into.
    pub frames_busy: u64,
}

impl LaneCounts {
    /// How many there are.
    pub const LENGTH: usize = 6;

    /// All of them, in the order of `LaneCounts`.
    pub fn to_array(self) -> [u64; Self::LENGTH] {
        let Self { received, lost, sent, unsent, frames, frames_busy } = self;
        [received, lost, sent, unsent, frames, frames_busy]
    }

    pub fn from_array(counts: [u64; Self::LENGTH]) -> Self {
        let [received, lost, sent, unsent, frames, frames_busy] = counts;
        Self { received, lost, sent, unsent, frames, frames_busy }
    }

    pub fn add(&mut self, other: &Self) {
        let (own, more) = (self.to_array(), other.to_array());
        *self = Self::from_array(std::array::from_fn(|at| own[at] + more[at]));
    }
}

/// One worker's way to the packets: receives bursts, has them judged, sends on what passes. Dropping it gives everything back.
pub trait Lane: Send {
    /// Waits for packets for at most `patience` and handles a burst; returns how many packets it was, 0 if none came.
    /// An error ends the lane for good (the interface is gone).
    fn turn(&mut self, judge: &mut dyn Judge, patience: Duration) -> Result<usize, String>;

    fn counts(&mut self) -> LaneCounts;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_keep_their_places_in_an_array_and_in_sums() {
        let one = LaneCounts { received: 1, lost: 2, sent: 3, unsent: 4, frames: 5, frames_busy: 6 };
        assert_eq!(one.to_array(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(LaneCounts::from_array(one.to_array()), one);
        let mut sum = one;
        sum.add(&one);
        assert_eq!(sum.to_array(), [2, 4, 6, 8, 10, 12]);
    }
}
