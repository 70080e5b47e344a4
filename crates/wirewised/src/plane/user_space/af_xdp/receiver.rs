// SPDX-License-Identifier: Apache-2.0
//! A socket that only receives, without a program of its own: what another program redirects to it.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use wirewise_lane::BURST;

use super::interface::Interface;
use super::ports::way_out;
use super::rings::{Area, Consumer, Producer};
use super::socket::Socket;
use crate::abi;
use crate::error::{Error, Result};

/// Packets that it has memory for: a power of two.
const FRAMES: u32 = 4096;

pub struct Receiver {
    socket: Socket,
    rx: Consumer<libc::xdp_desc>,
    fill: Producer<u64>,
    taken: Vec<libc::xdp_desc>,
    frame_size: u32,
    // Dropped last: the kernel writes there.
    area: Area,
}

impl Receiver {
    /// Of one receive queue of an interface.
    pub fn open(interface: &str, queue: u32) -> Result<Self> {
        let interface = Interface::find(interface).map_err(Error::input)?;
        if queue >= interface.rx_queues {
            return Err(Error::input(format!(
                "{}: there is no receive queue {queue}; it has {}, from 0 on",
                interface.name, interface.rx_queues
            )));
        }
        let failed = |error: io::Error| {
            let name = &interface.name;
            let way_out = way_out(&error, false);
            Error::other(format!("{name} queue {queue}: cannot open an AF_XDP socket: {error}{way_out}"))
        };
        let frame_size = super::lanes::frame_size(std::slice::from_ref(&interface)).map_err(Error::input)?;
        let area = Area::new(FRAMES as usize * frame_size as usize).map_err(failed)?;
        let socket = Socket::new().map_err(failed)?;
        socket.register(&area, frame_size).map_err(failed)?;
        let mut fill = socket.fill(FRAMES).map_err(failed)?;
        // The kernel wants one, though nothing is sent.
        socket.completion(FRAMES).map_err(failed)?;
        let rx = socket.rx(FRAMES).map_err(failed)?;
        socket.bind(interface.index, queue, libc::XDP_USE_NEED_WAKEUP, None).map_err(failed)?;
        fill.put((0..u64::from(FRAMES)).map(|frame| frame * u64::from(frame_size)));
        Ok(Self { socket, rx, fill, taken: Vec::new(), frame_size, area })
    }

    /// Hands over the packets that are there, each with its metadata if a program of ours has put some in front, waiting for some at most so
    /// long. Returns how many there were.
    pub fn burst(
        &mut self,
        patience: Duration,
        mut take: impl FnMut(&[u8], Option<abi::Metadata>) -> Result<()>,
    ) -> Result<usize> {
        if self.rx.available() == 0 {
            let mut wait = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one `pollfd`, which the call fills.
            unsafe { libc::poll(&mut wait, 1, patience.as_millis() as i32) };
            if wait.revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
                return Err(Error::other("the interface is gone, or down"));
            }
        }
        self.taken.clear();
        self.rx.take(BURST, &mut self.taken);
        for packet in &self.taken {
            let metadata = self.take_metadata(packet.addr as usize);
            // SAFETY: the kernel is done with the frame until it is in the fill ring again, and no other reference is made.
            let frame = unsafe { self.area.part(packet.addr as usize, packet.len as usize) };
            take(frame, metadata)?;
        }
        let size = u64::from(self.frame_size);
        self.fill.put(self.taken.iter().map(|packet| packet.addr / size * size));
        if self.fill.needs_wakeup() {
            // What is not received now is received at the next call.
            let _ = self.socket.receive();
        }
        Ok(self.taken.len())
    }

    /// What is in front of a packet. Its magic word is cleared, or the next packet in this memory, which may have none, would have that of this one.
    fn take_metadata(&self, packet: usize) -> Option<abi::Metadata> {
        let start = packet.checked_sub(size_of::<abi::Metadata>())?;
        // SAFETY: as of the packet, behind which it is.
        let bytes = unsafe { self.area.part(start, size_of::<abi::Metadata>()) };
        let metadata: abi::Metadata = bytemuck::try_pod_read_unaligned(bytes).ok()?;
        bytes[..size_of::<u32>()].fill(0);
        (metadata.magic == abi::METADATA && metadata.version == abi::METADATA_VERSION as u16)
            .then_some(metadata)
    }

    /// Packets for which there was no room.
    pub fn lost(&self) -> u64 {
        self.socket.statistics().map_or(0, |it| it.rx_dropped + it.rx_ring_full + it.rx_fill_ring_empty_descs)
    }
}

impl AsRawFd for Receiver {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
