// SPDX-License-Identifier: Apache-2.0
//! One direction of a lane: from an RX queue to the judge, and from there perhaps to another interface.

use std::io::Error;
use std::sync::Arc;

use libc::xdp_desc;
use wirewise_lane::{BURST, Fate, Judge, LaneCounts, Span};

use super::checksums;
use super::interface::Interface;
use super::options::Options;
use super::ports::{Outlet, Port};
use super::rings::{Area, Producer};
use super::socket::Socket;
use super::stack::Stack;

/// Where one frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameLocation {
    Free,
    /// With the kernel for a packet to come, or in the RX ring.
    Fill,
    Held,
    Tx,
}

pub(super) struct Way {
    // Dropped first, before the memory.
    pub port: Port,
    pub from: Interface,
    to: Option<Interface>,
    /// Where what passes goes back to the host.
    pub stack: Option<Arc<Stack>>,
    number: usize,
    /// Where our part of the area starts: so many frames lie from here on.
    start: u64,
    frame_size: u64,
    places: Vec<FrameLocation>,
    /// Addresses of the frames that nobody has.
    free: Vec<u64>,
    held: Vec<xdp_desc>,
    spans: Vec<Span>,
    fates: Vec<Fate>,
    reclaimed: Vec<u64>,
    /// The interfaces we send to, on and back, are down: what is sent now would go out stale when they come up.
    down: [bool; 2],
    pub zero_copy: bool,
    counts: LaneCounts,
    area: Arc<Area>,
}

impl Way {
    /// number : of all ways over `area`, which has a part for each.
    pub fn new(
        port: Port,
        (from, to): (Interface, Option<Interface>),
        (area, number, frame_size): (&Arc<Area>, usize, u32),
        options: &Options,
    ) -> Self {
        let frame_size = u64::from(frame_size);
        let start = number as u64 * u64::from(options.frames) * frame_size;
        let mut way = Self {
            zero_copy: port.entry.socket.is_zero_copy(),
            port,
            from,
            to,
            stack: None,
            number,
            start,
            frame_size,
            places: vec![FrameLocation::Free; options.frames as usize],
            free: (0..u64::from(options.frames)).map(|frame| start + frame * frame_size).collect(),
            held: Vec::with_capacity(BURST),
            spans: Vec::with_capacity(BURST),
            fates: Vec::with_capacity(BURST),
            reclaimed: Vec::with_capacity(options.ring as usize),
            down: [false; 2],
            counts: LaneCounts::default(),
            area: Arc::clone(area),
        };
        way.refill();
        way
    }

    /// Handles a burst that is there already.
    pub fn burst(&mut self, judge: &mut dyn Judge) -> Result<usize, String> {
        self.settle()?;
        self.receive()?;
        let received = self.held.len();
        if received == 0 {
            return Ok(0);
        }
        self.counts.received += received as u64;
        let outcome = self.judge(judge).and_then(|()| self.send());
        self.settle()?;
        outcome.map(|()| received)
    }

    /// Gets all frames moving that are not on their way already.
    pub fn settle(&mut self) -> Result<(), String> {
        // What did not pass; at the start of a burst only a judge that panicked leaves anything.
        while let Some(desc) = self.held.pop() {
            let frame = self.move_frame(desc.addr, FrameLocation::Held, FrameLocation::Free)?;
            self.free.push(frame);
        }
        self.kick()?;
        for direction in [ON, BACK] {
            let Some(outlet) = self.port.outlet(direction) else { continue };
            outlet.reclaim(self.number, &mut self.reclaimed);
            while let Some(address) = self.reclaimed.pop() {
                let frame = self.move_frame(address, FrameLocation::Tx, FrameLocation::Free)?;
                self.free.push(frame);
            }
        }
        self.refill();
        Ok(())
    }

    pub fn has_packets(&self) -> bool {
        self.port.entry.rx.available() > 0
    }

    pub fn is_sending(&self) -> bool {
        self.places.contains(&FrameLocation::Tx)
    }

    /// An error if an interface is gone, which poll does not tell. One that is down is none of our concern.
    pub fn look(&self) -> Result<(), String> {
        let exit = self.port.exit.as_ref().map(|exit| &exit.socket);
        for (socket, interface) in
            [(Some(&self.port.entry.socket), Some(&self.from)), (exit, self.to.as_ref())]
        {
            let (Some(socket), Some(interface)) = (socket, interface) else { continue };
            if let Err(error) = socket.receive() {
                match error.raw_os_error() {
                    // A socket that only sends has no buffers to receive; its state was looked at before that.
                    Some(libc::ENOBUFS | libc::EOPNOTSUPP) => {}
                    Some(libc::ENETDOWN) if interface.is_there() => {}
                    _ => check(&error, interface, "receive packets")?,
                }
            }
        }
        Ok(())
    }

    pub fn counts(&self) -> LaneCounts {
        let mut counts = self.counts;
        // The others are with the kernel for packets to come, or nobody's.
        let busy =
            self.places.iter().filter(|place| matches!(place, FrameLocation::Held | FrameLocation::Tx));
        (counts.frames, counts.frames_busy) = (self.places.len() as u64, busy.count() as u64);
        if let Ok(seen) = self.port.entry.socket.statistics() {
            counts.lost = seen.rx_dropped + seen.rx_ring_full;
            // When it copies, the kernel counts a packet that found no frame as dropped as well.
            if self.zero_copy {
                counts.lost += seen.rx_fill_ring_empty_descs;
            }
        }
        for socket in [Some(&self.port.entry.socket), self.port.exit.as_ref().map(|exit| &exit.socket)] {
            let Some(Ok(seen)) = socket.map(Socket::statistics) else { continue };
            counts.sent = counts.sent.saturating_sub(seen.tx_invalid_descs);
            counts.unsent += seen.tx_invalid_descs;
        }
        counts
    }

    /// Notes that the frame around `address` goes from one place to another, and tells where it starts. The
    /// kernel gives back what it was given, so anything else means that memory is no longer safe to use: the
    /// lane ends.
    fn move_frame(&mut self, address: u64, from: FrameLocation, to: FrameLocation) -> Result<u64, String> {
        let number = address.checked_sub(self.start).map(|offset| offset / self.frame_size);
        let place = number.and_then(|number| self.places.get_mut(usize::try_from(number).ok()?));
        match (place, number) {
            (Some(place), Some(number)) if *place == from => {
                *place = to;
                Ok(self.start + number * self.frame_size)
            }
            (place, _) => Err(format!(
                "interface {}: the kernel gave back the frame at {address}, which is {place:?} and not {from:?}; \
                 the lane cannot go on",
                self.from.name
            )),
        }
    }

    /// Gives all free frames to the kernel for packets to come.
    fn refill(&mut self) {
        let entry = &mut self.port.entry;
        let given = entry.fill.put(self.free.iter().rev().copied());
        for frame in self.free.drain(self.free.len() - given..) {
            self.places[((frame - self.start) / self.frame_size) as usize] = FrameLocation::Fill;
        }
        if entry.fill.needs_wakeup() {
            // An error comes again when the lane looks.
            let _ = entry.socket.receive();
        }
    }

    /// Takes up to a burst from the RX ring.
    fn receive(&mut self) -> Result<(), String> {
        self.port.entry.rx.take(BURST, &mut self.held);
        self.spans.clear();
        for at in 0..self.held.len() {
            let xdp_desc { addr, len, .. } = self.held[at];
            let frame = self.move_frame(addr, FrameLocation::Fill, FrameLocation::Held)?;
            // A packet that reached into the next frame would be judged together with another one.
            if addr - frame + u64::from(len) > self.frame_size {
                return Err(format!(
                    "interface {}: the kernel gave {len} bytes at {addr}, which leaves the frame",
                    self.from.name
                ));
            }
            let headroom = (addr - frame) as usize;
            self.spans.push(Span { start: (addr - self.start) as usize, length: len as usize, headroom });
        }
        Ok(())
    }

    fn judge(&mut self, judge: &mut dyn Judge) -> Result<(), String> {
        self.fates.clear();
        let length = self.places.len() * self.frame_size as usize;
        // SAFETY: every way has its own part of the area and lends it only here, with itself borrowed. The
        // kernel writes to frames it was given for packets to come, which a judge does not look at.
        let part = unsafe { self.area.part(self.start as usize, length) };
        judge.judge(part, self.from.index, &mut self.spans, &mut self.fates)?;
        let (given, got) = (self.spans.len(), self.fates.len());
        if got != given {
            return Err(format!("the judge gave {got} outcomes for {given} packets"));
        }
        for (desc, span) in self.held.iter_mut().zip(&self.spans) {
            (desc.addr, desc.len) = (self.start + span.start as u64, span.length as u32);
        }
        let leaving = self.spans.iter().zip(&self.fates).filter(|(_, fate)| **fate != Fate::Ends);
        leaving.for_each(|(span, _)| checksums::finish(&mut part[span.start..span.start + span.length]));
        let Some(stack) = &self.stack else { return Ok(()) };
        let passing = self.spans.iter().zip(&self.fates).filter(|(_, fate)| **fate == Fate::Passes);
        let (sent, unsent) =
            stack.give(passing.map(|(span, _)| &part[span.start..span.start + span.length]))?;
        self.counts.sent += sent;
        self.counts.unsent += unsent;
        Ok(())
    }

    /// Puts what passes, and what goes back, into TX rings.
    fn send(&mut self) -> Result<(), String> {
        for (direction, fate) in [(ON, Fate::Passes), (BACK, Fate::Bounces)] {
            if self.fates.contains(&fate) {
                self.send_those(direction, fate)?;
            }
        }
        Ok(())
    }

    /// As far as there is room, and takes them out of `held` and `fates`.
    fn send_those(&mut self, direction: usize, fate: Fate) -> Result<(), String> {
        let packets = self.held.iter().zip(&self.fates);
        let going = packets.filter(|(_, of)| **of == fate).map(|(desc, _)| xdp_desc { options: 0, ..*desc });
        let tx = match direction {
            BACK => self.port.entry.tx.as_mut(),
            // What passes goes to the host, or ends here.
            _ if self.port.exit.is_none() => return Ok(()),
            _ => self.port.exit.as_mut().map(|exit| &mut exit.tx),
        };
        let tx = tx.filter(|_| !self.down[direction]);
        let mut left = tx.map_or(0, |tx| tx.put(going.clone()));
        self.counts.sent += left as u64;
        self.counts.unsent += (going.count() - left) as u64;
        let mut stay = 0;
        for at in 0..self.held.len() {
            let desc = self.held[at];
            if self.fates[at] == fate && left > 0 {
                self.move_frame(desc.addr, FrameLocation::Held, FrameLocation::Tx)?;
                left -= 1;
            } else {
                (self.held[stay], self.fates[stay]) = (desc, self.fates[at]);
                stay += 1;
            }
        }
        self.held.truncate(stay);
        self.fates.truncate(stay);
        Ok(())
    }

    /// Makes the kernel transmit what is in the TX rings. What it does not take now stays there for next time.
    fn kick(&mut self) -> Result<(), String> {
        let Port { entry, exit } = &self.port;
        // Set again below as long as it holds: a driver may also have emptied the ring by itself.
        self.down = [false; 2];
        if let (Some(exit), Some(to)) = (exit, &self.to) {
            self.down[ON] = kick(&exit.socket, &exit.tx, to, self.zero_copy, &mut self.counts)?;
        }
        if let Some(tx) = &entry.tx {
            self.down[BACK] = kick(&entry.socket, tx, &self.from, self.zero_copy, &mut self.counts)?;
        }
        Ok(())
    }
}

/// Which way packets are sent.
const ON: usize = 0;
const BACK: usize = 1;

impl Port {
    fn outlet(&self, direction: usize) -> Option<Arc<Outlet>> {
        let outlet = if direction == BACK { &self.entry.outlet } else { &self.exit.as_ref()?.outlet };
        Some(Arc::clone(outlet))
    }
}

/// Returns whether the interface is down.
fn kick(
    socket: &Socket,
    tx: &Producer<xdp_desc>,
    to: &Interface,
    zero_copy: bool,
    counts: &mut LaneCounts,
) -> Result<bool, String> {
    let mut stuck = 0;
    // When it copies, the kernel takes at most 32 packets a call.
    while tx.pending() > 0 && tx.needs_wakeup() && stuck < 2 {
        let before = tx.pending();
        if let Err(error) = socket.send() {
            match error.raw_os_error() {
                // The interface threw one packet away; its frame comes back all the same.
                Some(libc::EBUSY) if !zero_copy => {
                    counts.sent = counts.sent.saturating_sub(1);
                    counts.unsent += 1;
                }
                Some(libc::ENETDOWN) if to.is_there() => return Ok(true),
                _ => check(&error, to, "send packets")?,
            }
        }
        stuck = if tx.pending() < before { 0 } else { stuck + 1 };
    }
    Ok(false)
}

/// Tells errors that pass from those that end the lane.
fn check(error: &Error, interface: &Interface, what: &str) -> Result<(), String> {
    let name = &interface.name;
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::EBUSY | libc::ENOMEM) => Ok(()),
        Some(libc::ENXIO | libc::ENODEV | libc::ENETDOWN) if !interface.is_there() => {
            Err(format!("interface {name}: it is gone (deleted, or moved to another network namespace)"))
        }
        _ => Err(format!("interface {name}: cannot {what}: {error}")),
    }
}
