// SPDX-License-Identifier: Apache-2.0
//! Where packets leave that a policy redirects, on planes in user space: by a raw socket, whatever interface it is.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use libbpf_rs::MapHandle;

use crate::abi;
use crate::error::{Error, Result};
use crate::interface::socket;
use crate::object::read_element;

pub struct Outlet {
    socket: OwnedFd,
    policy: MapHandle,
}

impl Outlet {
    /// policy : the pinned map, which says where each class goes.
    pub fn open(policy: MapHandle) -> Result<Self> {
        // Of no protocol: it receives nothing.
        let socket = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(|error| {
            Error::missing(format!(
                "a raw socket for what is redirected cannot be had: {error} (CAP_NET_RAW)"
            ))
        })?;
        Ok(Self { socket, policy })
    }

    /// What holds now.
    pub fn policy(&self) -> Result<abi::Policy> {
        read_element(&self.policy, 0)
    }

    /// Sends a whole frame. One that the interface does not take is lost, as it is where the kernel redirects.
    pub fn send(&self, ifindex: u32, frame: &[u8]) {
        // SAFETY: zero is a value of every field of this plain C struct.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = ifindex as i32;
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        loop {
            // SAFETY: frame and address have the lengths given, and outlive the call.
            let sent = unsafe {
                libc::sendto(
                    self.socket.as_raw_fd(),
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
