// SPDX-License-Identifier: Apache-2.0
//! Planes in user space: the agent itself carries packets from the interface to the engine, so they run for as long as it does. Each plane
//! has a folder with its lanes and its options of `run`; `KINDS` lists them. All share the note that serves as the program's link, the
//! carrier with its workers, and the engines.

mod af_packet;
mod af_xdp;
mod carrier;
mod dpdk;
mod engines;
pub mod note;
mod options;
mod outlet;
mod unpinned;
mod worker;

use wirewise_lane::Lane;

use crate::abi;
use crate::error::{Error, Result};
use crate::plane::Plane;
use crate::text::shell::quoted;

pub use af_packet::{Seen, Tap};
pub use af_xdp::Receiver;
pub use carrier::{Carrier, End};
pub use engines::Pins;
pub use options::Options;
use options::Takes;
pub use unpinned::Workers;

/// A plane that this agent may have been built with.
pub struct Kind {
    pub name: &'static str,
    takes: Takes,
    /// `None`: this agent was built without it.
    pub plane: Option<Plane>,
}

/// Every plane in user space, in the order in which they are shown.
pub const KINDS: &[Kind] = &[af_packet::KIND, af_xdp::KIND, dpdk::KIND];

/// What a policy may ask of every plane in user space: `abi::STEER_*` bits.
pub const STEERS: u32 = abi::STEER_REDIRECT
    | abi::STEER_BOUNCE
    | abi::STEER_DSCP
    | abi::STEER_MIRROR
    | abi::STEER_BACKEND
    | abi::STEER_QFI
    | abi::STEER_INNER_DSCP;

/// What a plane in user space does in its own way.
pub trait Carried: Sync {
    /// Whether a name, with arguments or without, is that of a device which this plane has and the kernel has not.
    fn names_device(&self, _name: &str) -> bool {
        false
    }

    /// What such a device is, for people. An error if it is not there, or not as it has to be.
    fn check_device(&self, name: &str) -> Result<String> {
        Err(Error::input(format!("{name}: this plane has no devices of its own")))
    }

    /// What its lanes will take. An error where what is asked for cannot be looked at.
    fn footprint(&self, wanted: &Wanted<'_>) -> Result<Footprint>;

    /// Opens the way to the packets, a lane for each worker. Nothing is left behind when the lanes are dropped, or the process dies.
    fn open(&self, wanted: &Wanted<'_>) -> Result<Lanes>;
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub interface: &'a str,
    /// Of a device that the kernel has not: what follows its name.
    pub arguments: Option<&'a str>,
    /// Where what passes is sent on to, and what comes in there to `interface`.
    pub to: Option<&'a str>,
    /// `None`: what suits the plane.
    pub workers: Option<u32>,
    /// With those of the plane's own.
    pub options: &'a Options,
    /// That there can be: CPUs that have counters.
    pub most_workers: u32,
}

impl Wanted<'_> {
    /// lanes : each of which takes a worker. Fails if there cannot be so many.
    pub fn admit(&self, lanes: u32) -> Result<u32> {
        let most = self.most_workers;
        if lanes <= most {
            return Ok(lanes);
        }
        let (interface, cpus) = (self.interface, if most == 1 { "CPU" } else { "CPUs" });
        Err(Error::input(match self.workers {
            Some(_) => format!(
                "--workers {lanes}: there are {most} {cpus}, and each worker needs one; `--workers {most}` is the most"
            ),
            None => format!(
                "{interface}: {lanes} queues need as many workers, and there are {most} {cpus}; `ethtool -L {} combined {most}`",
                quoted(interface)
            ),
        }))
    }
}

/// What was obtained.
pub struct Lanes {
    pub lanes: Vec<Box<dyn Lane>>,
    /// For people: how the packets come.
    pub obtained: String,
}

/// What lanes take of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    pub lanes: u32,
    /// Bytes that are used at once and count as this process' own.
    pub used: u64,
    /// Bytes of addresses.
    pub mapped: u64,
}
