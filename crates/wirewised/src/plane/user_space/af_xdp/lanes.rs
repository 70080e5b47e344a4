// SPDX-License-Identifier: Apache-2.0
//! A lane for each queue. With a second interface they are a wire between both: what passes is sent on, in either direction.

use std::io::Error;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use wirewise_lane::{BURST, Judge, Lane, LaneCounts};

use super::interface::Interface;
use super::options::{Copying, Options};
use super::ports::{self, Failure, Port, Route};
use super::redirect::Redirect;
use super::rings::Area;
use super::stack::Stack;
use super::way::Way;

/// Bytes the kernel keeps free before each packet (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;
/// Ethernet header and two VLAN tags.
const LINK_HEADER: u32 = 14 + 8;
/// Nothing tells a waiting socket that its interface is gone, so it wakes up this often to look.
const LOOK: Duration = Duration::from_millis(250);
/// The same while frames are on their way out, which nothing reports either.
const LOOK_AFTER_SENDING: Duration = Duration::from_millis(20);
/// The kernel frees queues, and memory that counts as locked, a little after the sockets are closed: of a program that is restarted, or
/// of the way that was tried before.
const BUSY_TRIES: u32 = 25;
const BUSY_PAUSE: Duration = Duration::from_millis(20);

/// As many lanes as `interface` or `to` has RX queues: lane n has the queue n of both. What passes goes out of the
/// other one, through its queue n (modulo its TX queues); without `to` it ends here.
pub fn open(interface: &str, to: Option<&str>, options: &Options) -> Result<Vec<XdpLane>, String> {
    let mut interfaces = vec![Interface::find(interface)?];
    interfaces.extend(to.map(Interface::find).transpose()?);
    if let [from, to] = interfaces.as_slice()
        && from.index == to.index
    {
        return Err(format!("interface {interface}: packets cannot be sent on to where they come from"));
    }
    let Options { frames, ring, .. } = *options;
    if !frames.is_power_of_two() || !ring.is_power_of_two() || ring > frames / 2 || (ring as usize) < BURST {
        return Err(format!(
            "{frames} frames and rings of {ring} packets: both must be powers of two, the rings at least {BURST} \
             and at most half of the frames"
        ));
    }
    let frame_size = frame_size(&interfaces)?;
    let stack = match to {
        Some(_) => None,
        None => Some(Arc::new(Stack::of(&interfaces[0], frame_size)?)),
    };
    let mut routes = Vec::new();
    for queue in 0..interfaces.iter().map(|interface| interface.rx_queues).max().unwrap_or(0) {
        for (at, _) in interfaces.iter().enumerate().filter(|(_, from)| queue < from.rx_queues) {
            let to = interfaces.get(1 - at).map(|to| (1 - at, queue % to.tx_queues));
            routes.push(Route { from: (at, queue), to });
        }
    }
    let (area, ports) = open_ports(&interfaces, &routes, frame_size, options)?;

    let mut lanes: Vec<XdpLane> = Vec::new();
    let mut sockets = vec![Vec::new(); interfaces.len()];
    for (number, (port, Route { from: (from, queue), to })) in ports.into_iter().zip(routes).enumerate() {
        sockets[from].push((queue, port.entry.socket.as_raw_fd()));
        let ends = (interfaces[from].clone(), to.map(|(to, _)| interfaces[to].clone()));
        let mut way = Way::new(port, ends, (&area, number, frame_size), options);
        way.stack = stack.clone();
        match lanes.last_mut().filter(|lane| lane.queue == queue) {
            Some(lane) => lane.ways.push(way),
            None => lanes.push(XdpLane {
                ways: vec![way],
                queue,
                busy_poll: options.busy_poll.is_some(),
                redirects: Vec::new(),
            }),
        }
    }
    // Last, so that no packet comes before everything is in place.
    for (interface, sockets) in interfaces.iter().zip(&sockets) {
        let redirect = Arc::new(Redirect::attach(interface, sockets)?);
        lanes.iter_mut().for_each(|lane| lane.redirects.push(Arc::clone(&redirect)));
    }
    Ok(lanes)
}

/// How many lanes there would be, and the bytes of their memory for packets.
pub fn area(interface: &str, to: Option<&str>, options: &Options) -> Result<(u32, u64), String> {
    let mut interfaces = vec![Interface::find(interface)?];
    interfaces.extend(to.map(Interface::find).transpose()?);
    let lanes = interfaces.iter().map(|interface| interface.rx_queues).max().unwrap_or(0);
    let routes: u32 = interfaces.iter().map(|interface| interface.rx_queues).sum();
    Ok((lanes, u64::from(routes) * u64::from(options.frames) * u64::from(frame_size(&interfaces)?)))
}

/// The smallest frame that holds any packet whole: packets of several frames are not received.
pub(super) fn frame_size(interfaces: &[Interface]) -> Result<u32, String> {
    const MOST: u32 = 4096 - LINK_HEADER - HEADROOM;
    if let Some(Interface { name, mtu, .. }) = interfaces.iter().find(|interface| interface.mtu > MOST) {
        return Err(format!(
            "interface {name}: packets of its MTU of {mtu} do not fit into a frame; lower it to {MOST} or less"
        ));
    }
    Ok(if interfaces.iter().any(|interface| interface.mtu > MOST - 2048) { 4096 } else { 2048 })
}

/// Opens the sockets in the best way there is.
fn open_ports(
    interfaces: &[Interface],
    routes: &[Route],
    frame_size: u32,
    options: &Options,
) -> Result<(Arc<Area>, Vec<Port>), String> {
    let ways: &[bool] = match options.copying {
        Copying::ZeroCopy => &[true],
        Copying::Copy => &[false],
        Copying::Auto => &[true, false],
    };
    let mut last = Failure::default();
    for &zero_copy in ways {
        for attempt in 0..BUSY_TRIES {
            if attempt > 0 {
                sleep(BUSY_PAUSE);
            }
            match ports::open(interfaces, routes, frame_size, options, zero_copy) {
                Ok(opened) => return Ok(opened),
                Err(failure) => last = failure,
            }
            if !matches!(last.errno, libc::EBUSY | libc::ENOBUFS) {
                break;
            }
        }
        // Copying would not help against these.
        if matches!(last.errno, libc::EBUSY | libc::ENOBUFS | libc::EPERM | libc::EACCES | libc::ENODEV) {
            break;
        }
    }
    Err(last.text)
}

/// One worker's queues: one of each interface that has so many.
pub struct XdpLane {
    // Fields are dropped in this order: the sockets first.
    ways: Vec<Way>,
    queue: u32,
    busy_poll: bool,
    redirects: Vec<Arc<Redirect>>,
}

impl Lane for XdpLane {
    fn turn(&mut self, judge: &mut dyn Judge, patience: Duration) -> Result<usize, String> {
        let handled = self.bursts(judge)?;
        if handled > 0 {
            return Ok(handled);
        }
        self.wait(patience)?;
        self.bursts(judge)
    }

    fn counts(&mut self) -> LaneCounts {
        let mut all = LaneCounts::default();
        self.ways.iter().for_each(|way| all.add(&way.counts()));
        all
    }
}

impl XdpLane {
    /// Whether the kernel puts packets into the lane's memory without a copy.
    pub fn is_zero_copy(&self) -> bool {
        self.ways.iter().all(|way| way.zero_copy)
    }

    /// Whether VLAN tags that the drivers take off come back.
    pub fn restores_tags(&self) -> bool {
        self.redirects.iter().all(|redirect| redirect.restores_tags)
    }

    fn bursts(&mut self, judge: &mut dyn Judge) -> Result<usize, String> {
        self.ways.iter_mut().try_fold(0, |handled, way| Ok(handled + way.burst(judge)?))
    }

    fn has_packets(&self) -> bool {
        self.ways.iter().any(Way::has_packets)
    }

    /// Waits for a packet. An interface that is down is none of our concern, one that is gone ends the lane.
    fn wait(&mut self, patience: Duration) -> Result<(), String> {
        let start = Instant::now();
        loop {
            if self.busy_poll {
                // It is this call that makes the kernel work for the socket.
                self.ways.iter().try_for_each(Way::look)?;
            }
            if self.has_packets() {
                return Ok(());
            }
            let left = patience.saturating_sub(start.elapsed());
            let sending = self.ways.iter().any(Way::is_sending);
            let slice = left.min(if sending { LOOK_AFTER_SENDING } else { LOOK });
            let time = libc::timespec {
                tv_sec: slice.as_secs() as libc::time_t,
                tv_nsec: slice.subsec_nanos() as libc::c_long,
            };
            // Of the second one, which a lane need not have, a negative descriptor is passed over.
            let mut polls = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; 2];
            for (poll, way) in polls.iter_mut().zip(&self.ways) {
                poll.fd = way.port.entry.socket.as_raw_fd();
            }
            // SAFETY: two pollfd and a time, which outlive the call; no signal mask.
            let result = unsafe { libc::ppoll(polls.as_mut_ptr(), 2, &time, std::ptr::null()) };
            let error = Error::last_os_error();
            if self.has_packets() || (result < 0 && error.raw_os_error() == Some(libc::EINTR)) {
                return Ok(());
            }
            if result < 0 {
                return Err(format!(
                    "interface {}: cannot wait for packets: {error}",
                    self.ways[0].from.name
                ));
            }
            self.ways.iter().try_for_each(Way::look)?;
            self.ways.iter_mut().try_for_each(Way::settle)?;
            let left = patience.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            if polls.iter().any(|poll| poll.revents & !libc::POLLIN != 0) {
                // An error that is none: without a pause it would be reported again and again.
                sleep(left.min(LOOK_AFTER_SENDING));
            }
        }
    }
}
