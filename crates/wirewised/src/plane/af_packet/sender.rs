// SPDX-License-Identifier: Apache-2.0
//! Sending what passes, or goes back.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use super::interface::{Interface, bind, set};
use super::ring::{Burst, OFFLOAD_BYTES};
use crate::error::Result;
use crate::interface::socket;
use crate::plane::{BURST, Fate};

pub struct Sender {
    interface: Interface,
    socket: OwnedFd,
}

impl Sender {
    pub fn open(interface: Interface) -> Result<Self> {
        let failed = |error: io::Error| interface.failed("a raw socket", &error);
        let socket = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(failed)?;
        // The kernel finishes checksums and segments as it would have for the sender.
        set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32).map_err(failed)?;
        bind(&socket, &interface, 0).map_err(failed)?;
        Ok(Self { interface, socket })
    }

    /// Sends those of one fate. Returns how many packets were sent, and how many could not be.
    pub fn send(&self, burst: &mut Burst<'_>, fates: &[Fate], fate: Fate) -> Result<(u64, u64)> {
        let area = burst.area.as_mut_ptr();
        let mut parts = [[libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; 2]; BURST];
        let (mut count, mut unsent) = (0, 0);
        let packets = burst.packets.iter().zip(burst.offloads.iter_mut()).zip(burst.cut).zip(fates);
        for (((packet, offload), cut), _) in packets.filter(|(_, of)| **of == fate) {
            offload.follow(packet.start);
            if *cut {
                unsent += 1;
                continue;
            }
            parts[count] = [
                libc::iovec { iov_base: offload.words.as_mut_ptr().cast(), iov_len: OFFLOAD_BYTES },
                // SAFETY: the packet lies inside the area.
                libc::iovec { iov_base: unsafe { area.add(packet.start) }.cast(), iov_len: packet.length },
            ];
            count += 1;
        }
        // SAFETY: zero is a value of every field of this plain C struct.
        let mut messages: [libc::mmsghdr; BURST] = unsafe { std::mem::zeroed() };
        for (message, part) in messages.iter_mut().zip(&mut parts[..count]) {
            message.msg_hdr.msg_iov = part.as_mut_ptr();
            message.msg_hdr.msg_iovlen = part.len() as _;
        }
        let (mut at, mut sent) = (0, 0);
        while at < count {
            let rest = &mut messages[at..count];
            let (first, length) = (rest.as_mut_ptr(), rest.len() as u32);
            // SAFETY: `length` messages, whose parts point into the burst and outlive the call.
            let done = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), first, length, libc::MSG_DONTWAIT) };
            if done > 0 {
                (at, sent) = (at + done as usize, sent + done as u64);
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::ENXIO | libc::ENODEV) => {
                    self.interface.require()?;
                    return Err(self.interface.failed("sending", &error));
                }
                // This one is too long for the interface, it is down, or its queue is full: the packet is lost, as on a wire.
                _ => (at, unsent) = (at + 1, unsent + 1),
            }
        }
        Ok((sent, unsent))
    }
}
