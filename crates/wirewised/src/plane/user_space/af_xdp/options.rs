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

/// This plane's options of `run`.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub struct Given {
    /// With --plane af-xdp: whether the driver puts packets into this process' memory itself [default: where it can]
    #[arg(long, value_enum, value_name = "HOW")]
    pub copying: Option<Copying>,

    /// With --plane af-xdp: poll the driver for so many microseconds instead of waiting for interrupts
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub busy_poll: Option<u32>,
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
