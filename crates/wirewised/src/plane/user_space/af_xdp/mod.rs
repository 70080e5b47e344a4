// SPDX-License-Identifier: Apache-2.0
//! AF_XDP: the driver puts packets into memory that this process shares with it, past the kernel's stack. What passes goes to a second
//! interface, or back into the stack. There is no crate for the rings: of those that are kept up, one (xdpilone 1.3) is under the EUPL, which a
//! static program of ours cannot take in, the other (xdp 0.8) cannot share memory between two devices.

mod checksums;
mod interface;
mod lanes;
mod options;
mod ports;
mod receiver;
mod redirect;
mod rings;
mod socket;
mod stack;
mod way;

use clap::Args;
use wirewise_lane::Lane;

use super::options::{TO, Takes};
use super::{Carried, Footprint, Kind, Lanes, STEERS, Wanted};
use crate::error::{Error, Result};
use crate::interface::offloads::Direction;
use crate::plane::{Abilities, Drops, Plane, Site};
use options::{BusyPoll, Given, Options};

pub use receiver::Receiver;

pub const KIND: Kind =
    Kind { name: PLANE.0.name, takes: Takes { common: &[TO], own: Given::augment_args }, plane: Some(PLANE) };

const PLANE: Plane = Plane(&Abilities {
    name: "af-xdp",
    about: "In user space, straight from the driver: what passes goes to a second interface or back to the host",
    choose: "a wire between two interfaces is wanted, at the driver's speed",
    needs: "a driver with XDP, CAP_NET_RAW",
    native: true,
    shared: false,
    sees_merged: false,
    direction: Direction::Received,
    drops: Drops::Always,
    steers: STEERS,
    place: Site::User(&AfXdp),
});

/// Packets that are handled in one go while a socket polls.
const BUSY_BUDGET: u32 = 64;

struct AfXdp;

impl Carried for AfXdp {
    fn footprint(&self, wanted: &Wanted<'_>) -> Result<Footprint> {
        let (lanes, bytes) =
            lanes::area(wanted.interface, wanted.to, &Options::default()).map_err(Error::other)?;
        Ok(Footprint { lanes: wanted.admit(lanes)?, used: bytes, mapped: bytes })
    }

    fn open(&self, wanted: &Wanted<'_>) -> Result<Lanes> {
        let Given { copying, busy_poll } = wanted.options.own()?;
        let busy_poll = busy_poll.map(|microseconds| BusyPoll { microseconds, budget: BUSY_BUDGET });
        let options = Options { copying: copying.unwrap_or_default(), busy_poll, ..Options::default() };
        let lanes = lanes::open(wanted.interface, wanted.to, &options).map_err(Error::other)?;
        // Queues may have been added since the footprint was taken.
        wanted.admit(lanes.len() as u32)?;
        let zero_copy = lanes.iter().all(lanes::XdpLane::is_zero_copy);
        let queues = if lanes.len() == 1 { "1 queue".to_string() } else { format!("{} queues", lanes.len()) };
        let mut obtained =
            format!("{queues}, {}", if zero_copy { "zero-copy" } else { "copied by the driver" });
        if !lanes.iter().all(lanes::XdpLane::restores_tags) {
            obtained += ", without VLAN tags that the driver takes off (Linux 6.8 puts them back)";
        }
        let lanes = lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn Lane>).collect();
        Ok(Lanes { lanes, obtained })
    }
}
