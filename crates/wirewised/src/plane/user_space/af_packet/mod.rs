// SPDX-License-Identifier: Apache-2.0
//! The raw socket: copies of what an interface receives, on every kernel and driver. With a second interface it is a wire between both:
//! what passes is sent on, in either direction.

mod interface;
mod ring;
mod sender;
mod tap;

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use wirewise_lane::{Fate, Judge, Lane, LaneCounts};

use self::interface::Interface;
use self::ring::{Fanout, Ring, Shape};
use self::sender::Sender;
use super::options::{TO, Takes, WORKERS};
use super::{Carried, Footprint, Kind, Lanes, STEERS, Wanted};
use crate::error::{Error, Result};
use crate::interface::offloads::Direction;
use crate::kernel;
use crate::plane::{Abilities, Drops, Plane, Site};

pub use tap::{Seen, Tap};

pub const KIND: Kind = Kind {
    name: PLANE.0.name,
    takes: Takes { common: &[TO, WORKERS], own: |command| command },
    plane: Some(PLANE),
};

const PLANE: Plane = Plane(&Abilities {
    name: "af-packet",
    about: "A raw socket in user space: counts verdicts, or joins two interfaces; works on every interface",
    choose: "only copies are to be judged, or two interfaces joined, on any driver",
    needs: "CAP_NET_RAW",
    native: false,
    shared: true,
    sees_merged: true,
    direction: Direction::Received,
    drops: Drops::Forwarding,
    steers: STEERS,
    place: Site::User(&AfPacket),
});

struct AfPacket;

impl Carried for AfPacket {
    fn footprint(&self, wanted: &Wanted<'_>) -> Result<Footprint> {
        let lanes = workers(wanted)?;
        let rings = u64::from(lanes) * if wanted.to.is_some() { 2 } else { 1 };
        // The kernel counts rings as nobody's.
        Ok(Footprint { lanes, used: 0, mapped: rings * Shape::of_plane(wanted.to.is_some()).bytes() as u64 })
    }

    fn open(&self, wanted: &Wanted<'_>) -> Result<Lanes> {
        let workers = workers(wanted)?;
        // One group of sockets an interface, each the packets of its flows: in both directions, on both interfaces, the same.
        let mut fanouts = [Fanout::of(workers), Fanout::of(workers)];
        let mut lanes: Vec<Box<dyn Lane>> = Vec::new();
        for _ in 0..workers {
            let mut ways = vec![Way::open(wanted.interface, wanted.to, &mut fanouts[0])?];
            if let Some(to) = wanted.to {
                ways.push(Way::open(to, Some(wanted.interface), &mut fanouts[1])?);
            }
            lanes.push(Box::new(Socket { ways }));
        }
        let sockets = if workers == 1 { "1 socket".to_string() } else { format!("{workers} sockets") };
        Ok(Lanes { lanes, obtained: format!("{sockets} (TPACKET_V3)") })
    }
}

fn workers(wanted: &Wanted<'_>) -> Result<u32> {
    let most = wanted.most_workers.min(kernel::allowed_cpus()?.len() as u32);
    wanted.admit(wanted.workers.unwrap_or(most).max(1))
}

/// A worker's sockets, one for each direction.
struct Socket {
    ways: Vec<Way>,
}

/// From one interface, and perhaps to another.
struct Way {
    interface: Interface,
    ring: Ring,
    ends: Option<Ends>,
    fates: Vec<Fate>,
    counts: LaneCounts,
}

/// Where packets are sent: on, and back.
struct Ends {
    on: Sender,
    back: Sender,
}

impl Way {
    fn open(from: &str, to: Option<&str>, fanout: &mut Fanout) -> Result<Self> {
        let interface = Interface::find(from)?;
        let ring = Ring::open(&interface, Shape::of_plane(to.is_some()), fanout)?;
        let ends = |to: &str| -> Result<Ends> {
            let on = Sender::open(Interface::find(to)?)?;
            Ok(Ends { on, back: Sender::open(interface.clone())? })
        };
        let ends = to.map(ends).transpose()?;
        Ok(Self { interface, ring, ends, fates: Vec::new(), counts: LaneCounts::default() })
    }

    /// Handles a burst that is there already.
    fn burst(&mut self, judge: &mut dyn Judge) -> Result<usize> {
        let Self { interface, ring, ends, fates, counts } = self;
        let Some(mut burst) = ring.burst() else { return Ok(0) };
        fates.clear();
        let packets = burst.packets.len();
        judge.judge(burst.area, interface.index, burst.packets, fates).map_err(Error::other)?;
        counts.received += packets as u64;
        for (fate, sender) in ends.iter().flat_map(|it| [(Fate::Passes, &it.on), (Fate::Bounces, &it.back)]) {
            if fates.contains(&fate) {
                let sent = sender.send(&mut burst, fates, fate)?;
                counts.sent += sent.0;
                counts.unsent += sent.1;
            }
        }
        ring.done();
        Ok(packets)
    }

    /// The socket has an error to tell.
    fn check(&mut self) -> Result<()> {
        match self.ring.error() {
            Some(libc::ENETDOWN) => self.interface.require(),
            Some(code) => Err(self.interface.failed("receiving", &io::Error::from_raw_os_error(code))),
            None => Ok(()),
        }
    }
}

impl Lane for Socket {
    fn turn(&mut self, judge: &mut dyn Judge, patience: Duration) -> std::result::Result<usize, String> {
        self.bursts(judge, patience).map_err(|error| error.to_string())
    }

    fn counts(&mut self) -> LaneCounts {
        let mut all = LaneCounts::default();
        for way in &mut self.ways {
            way.counts.lost += way.ring.lost();
            all.add(&way.counts);
        }
        all
    }
}

impl Socket {
    /// Handles a burst of each way, waiting for packets at most so long.
    fn bursts(&mut self, judge: &mut dyn Judge, patience: Duration) -> Result<usize> {
        let mut packets = 0;
        for way in &mut self.ways {
            packets += way.burst(judge)?;
        }
        if packets > 0 {
            return Ok(packets);
        }
        let mut waits: Vec<_> = self.ways.iter().map(|way| wait_for(way.ring.descriptor())).collect();
        // SAFETY: an array of so many `pollfd`, which the call fills.
        let found = unsafe { libc::poll(waits.as_mut_ptr(), waits.len() as _, patience.as_millis() as i32) };
        for (way, wait) in self.ways.iter_mut().zip(&waits) {
            if found > 0 && wait.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
                way.check()?;
            }
            packets += way.burst(judge)?;
        }
        Ok(packets)
    }
}

fn wait_for(descriptor: RawFd) -> libc::pollfd {
    libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 }
}
