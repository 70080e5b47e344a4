// SPDX-License-Identifier: Apache-2.0
//! An interface, and what is asked of its packet sockets.

use std::io;
use std::os::fd::AsRawFd;

use crate::error::{Error, Result};
use crate::interface::netdev;

/// An interface of this network namespace, as it was when it was named.
#[derive(Debug, Clone)]
pub struct Interface {
    pub name: String,
    pub index: u32,
}

impl Interface {
    pub fn find(name: &str) -> Result<Self> {
        Ok(Self { name: name.to_string(), index: netdev::index(name)? })
    }

    pub fn failed(&self, what: &str, error: &io::Error) -> Error {
        let name = &self.name;
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                Error::missing(format!("{name}: {what} needs CAP_NET_RAW in its network namespace"))
            }
            Some(libc::ENOMEM) => Error::other(format!(
                "{name}: {what}: no memory for the ring of packets; choose fewer workers (`--workers`)"
            )),
            _ => Error::other(format!("{name}: {what}: {error}")),
        }
    }

    /// Fails if it was deleted, or moved to another network namespace; that it is down is no failure.
    pub fn require(&self) -> Result<()> {
        if netdev::name(self.index).is_some() {
            return Ok(());
        }
        Err(Error::other(format!("{}: the interface was deleted, or left this network namespace", self.name)))
    }
}

/// Sets an option of a socket.
pub fn set<T>(socket: &impl AsRawFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has `length` bytes, which the call reads.
    let code = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option of a socket, of a type of which any bits are a value.
pub fn get<T: Default + bytemuck::Pod>(socket: &impl AsRawFd, level: i32, option: i32) -> io::Result<T> {
    let mut value = T::default();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the call writes at most `length` bytes to `value`.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_mut(&mut value).cast(),
            &mut length,
        )
    };
    if code == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Makes a socket that of one interface. protocol : 0 receives nothing.
pub fn bind(socket: &impl AsRawFd, interface: &Interface, protocol: i32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (protocol as u16).to_be(),
        sll_ifindex: interface.index as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` is a sockaddr_ll of `length` bytes.
    let code = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
