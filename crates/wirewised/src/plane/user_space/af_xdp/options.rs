// SPDX-License-Identifier: Apache-2.0
//! What can be chosen of AF_XDP, and where frames are.

/// How packets get into the memory of the lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Copying {
    /// Zero-copy where all drivers concerned can, else copy.
    #[default]
    Auto,
    ZeroCopy,
    Copy,
}

/// The kernel works for the socket while it waits, in place of interrupts. It has effect with the interface's
/// `napi_defer_hard_irqs` and `gro_flush_timeout` set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BusyPoll {
    pub microseconds: u32,
    /// Packets at most in one go.
    pub budget: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub copying: Copying,
    /// Packets that a lane has memory for, in each direction: a power of two.
    pub frames: u32,
    /// Packets that the RX ring and the TX ring hold: a power of two, at most half of `frames`.
    pub ring: u32,
    pub busy_poll: Option<BusyPoll>,
}

impl Default for Options {
    fn default() -> Self {
        Self { copying: Copying::Auto, frames: 4096, ring: 2048, busy_poll: None }
    }
}
