// SPDX-License-Identifier: Apache-2.0
//! Where packets leave that a policy redirects, and copies, on planes in user space: by a raw socket, whatever interface it is.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use wirewise_engine::{Engine, Output};
use wirewise_lane::Span;

use crate::error::{Error, Result};
use crate::interface::netdev::{self, Device};
use crate::interface::socket;

const REDIRECT: u32 = libbpf_sys::XDP_REDIRECT;

pub struct Outlet(OwnedFd);

impl Outlet {
    pub fn open() -> Result<Self> {
        // Of no protocol: it receives nothing.
        let socket = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(|error| {
            Error::missing(format!(
                "a raw socket for what is redirected cannot be had: {error} (CAP_NET_RAW)"
            ))
        })?;
        Ok(Self(socket))
    }

    /// Sends what an engine redirected in its last batch, and copies; notes where packets lie that it moved.
    pub fn take(&self, engine: &Engine, area: &[u8], packets: &mut [Span], codes: &[u32]) {
        for Output { data, packet } in engine.outputs() {
            if let Ok(interface) = data.try_into() {
                self.send(u32::from_ne_bytes(interface), packet);
            }
        }
        for steered in engine.steered() {
            let Some(packet) = packets.get_mut(steered.packet) else { continue };
            (packet.start, packet.length) = (steered.start, steered.length);
            let frame = area.get(packet.start..).and_then(|rest| rest.get(..packet.length));
            if codes.get(steered.packet) == Some(&REDIRECT)
                && let Some(frame) = frame
            {
                self.send(steered.interface, frame);
            }
        }
    }

    /// Sends a frame. One that the interface does not take is lost, as it is where the kernel redirects.
    fn send(&self, ifindex: u32, frame: &[u8]) {
        // SAFETY: zero is a value of every field of this plain C struct.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = ifindex as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        loop {
            // SAFETY: frame and address have the lengths given, and outlive the call.
            let sent = unsafe {
                libc::sendto(
                    self.0.as_raw_fd(),
                    frame.as_ptr().cast(),
                    frame.len(),
                    libc::MSG_DONTWAIT,
                    (&raw const to).cast(),
                    length,
                )
            };
            if sent >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return;
            }
        }
    }
}

/// MTUs of interfaces, as they were a moment ago. The kernel is asked for those that packets go to, and not for each packet.
#[derive(Default)]
pub struct Mtus(Vec<Known>);

struct Known {
    interface: u32,
    /// `None`: there is none of this index.
    mtu: Option<u32>,
    asked: Instant,
}

impl Mtus {
    const HOLDS: Duration = Duration::from_millis(20);

    pub fn of(&mut self, interface: u32) -> Option<u32> {
        let now = Instant::now();
        let fresh = |it: &Known| now - it.asked < Self::HOLDS;
        if let Some(it) = self.0.iter().find(|it| it.interface == interface && fresh(it)) {
            return it.mtu;
        }
        self.0.retain(fresh);
        let device = netdev::name(interface).and_then(|name| Device::open(&name).ok());
        let mtu = device.and_then(|device| device.mtu());
        self.0.push(Known { interface, mtu, asked: now });
        mtu
    }
}
