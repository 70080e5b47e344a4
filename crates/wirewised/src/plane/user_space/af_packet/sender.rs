// SPDX-License-Identifier: Apache-2.0
//! Sending what passes, or goes back.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr;

use wirewise_lane::{BURST, Fate};

use super::interface::Interface;
use super::ring::{Burst, OFFLOAD_BYTES};
use crate::error::Result;
use crate::interface::socket;

pub struct Sender {
    interface: Interface,
    socket: OwnedFd,
}

impl Sender {
    pub fn open(interface: Interface) -> Result<Self> {
        let failed = |error: io::Error| interface.failed("a raw socket", &error);
        let socket = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(failed)?;
        // The kernel finishes checksums and segments as it would have for the sender.
        socket::set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32).map_err(failed)?;
        socket::bind(&socket, interface.index, 0).map_err(failed)?;
        Ok(Self { interface, socket })
    }

    /// Sends those of one fate. Returns how many packets were sent, and how many could not be.
    pub fn send(&self, burst: &mut Burst<'_>, fates: &[Fate], fate: Fate) -> Result<(u64, u64)> {
        let area = burst.area.as_mut_ptr();
        let mut parts = [[libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; 2]; BURST];
        let (mut count, mut unsent) = (0, 0);
        let packets = burst.packets.iter().zip(burst.offloads.iter_mut()).zip(burst.arrivals).zip(fates);
        for (((packet, offload), arrival), _) in packets.filter(|(_, of)| **of == fate) {
            offload.follow(packet.start);
            // Not whole.
            if packet.length < arrival.wire_length {
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
        // SAFETY: the messages' parts point into the burst, which outlives the call.
        match unsafe { socket::send_each(&self.socket, &mut messages[..count]) } {
            Ok((sent, too)) => Ok((sent, unsent + too)),
            Err(error) => {
                self.interface.require()?;
                Err(self.interface.failed("sending", &error))
            }
        }
    }
}
