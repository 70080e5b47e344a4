// SPDX-License-Identifier: Apache-2.0
//! A sniffer: the first bytes of each frame that an interface receives or sends.

use std::io;
use std::time::Duration;

use super::interface::Interface;
use super::ring::{Fanout, Ring, Shape};
use super::wait_for;
use crate::error::{Error, Result};

/// Visited at a time, so that whoever visits can see to other things under any load.
const BURSTS: usize = 64;

/// A frame, with the VLAN tag that the driver took off.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Since 1970.
    pub time_ns: u64,
    /// Bytes on the wire; `frame` may have fewer.
    pub wire_length: usize,
    pub frame: &'a [u8],
}

pub struct Tap {
    interface: Interface,
    ring: Ring,
}

impl Tap {
    /// interface : in this thread's network namespace; the tap can be read in any. snap : bytes of a frame that are kept, without a VLAN
    /// tag that the driver took off.
    pub fn open(interface: &str, snap: u32) -> Result<Self> {
        let interface = Interface::find(interface)?;
        let ring = Ring::open(&interface, Shape::of_tap(snap), &mut Fanout::Alone)?;
        Ok(Self { interface, ring })
    }

    /// Visits the frames that are there. Returns whether there may be more.
    pub fn each(&mut self, mut visit: impl FnMut(Seen<'_>)) -> bool {
        for _ in 0..BURSTS {
            let Some(burst) = self.ring.burst() else { return false };
            for (packet, arrival) in burst.packets.iter().zip(burst.arrivals) {
                let frame = &burst.area[packet.start..packet.start + packet.length];
                visit(Seen { time_ns: arrival.time_ns, wire_length: arrival.wire_length, frame });
            }
            self.ring.done();
        }
        true
    }

    /// Waits for frames, no longer than this. An error: the interface is down, or gone.
    pub fn wait(&self, patience: Duration) -> Result<()> {
        let mut wait = wait_for(self.ring.descriptor());
        // SAFETY: one `pollfd`, which the call fills.
        let found = unsafe { libc::poll(&raw mut wait, 1, patience.as_millis() as i32) };
        if found > 0 && wait.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
            let code = self.ring.error().unwrap_or(libc::ENETDOWN);
            let error = io::Error::from_raw_os_error(code);
            return Err(Error::other(format!("{}: {error}", self.interface.name)));
        }
        Ok(())
    }

    /// Packets without room in the ring, since the last call.
    pub fn lost(&self) -> u64 {
        self.ring.lost()
    }
}
