// SPDX-License-Identifier: Apache-2.0
//! Sockets over which the kernel is asked, or given packets, of the network namespace of this thread.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// As socket(2); closed in programs that this one starts.
pub fn open(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: makes a new socket and returns its descriptor, or -1.
    let descriptor = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
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

/// Makes a raw socket that of one interface. protocol : 0 receives nothing.
pub fn bind(socket: &impl AsRawFd, interface: u32, protocol: i32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (protocol as u16).to_be(),
        sll_ifindex: interface as i32,
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

/// Cuts the packets that a raw socket receives to this length.
pub fn keep_first(socket: &impl AsRawFd, bytes: u32) -> io::Result<()> {
    let mut whole = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: bytes };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut whole };
    // The kernel copies the program that this points to.
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}

/// Sends messages by a raw socket, passing over those that the kernel does not take: too long for the interface, which is down, or its queue
/// is full. Returns how many were sent, and how many were not. An error: the socket's interface is gone.
///
/// # Safety
///
/// What the messages point to outlives the call.
pub unsafe fn send_each(socket: &impl AsRawFd, messages: &mut [libc::mmsghdr]) -> io::Result<(u64, u64)> {
    let (mut at, mut sent, mut unsent) = (0, 0, 0);
    while at < messages.len() {
        let rest = &mut messages[at..];
        let (first, length) = (rest.as_mut_ptr(), rest.len() as u32);
        // SAFETY: `length` messages, whose parts outlive the call.
        let done = unsafe { libc::sendmmsg(socket.as_raw_fd(), first, length, libc::MSG_DONTWAIT) };
        if done > 0 {
            (at, sent) = (at + done as usize, sent + done as u64);
            continue;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ENXIO | libc::ENODEV) => return Err(error),
            _ => (at, unsent) = (at + 1, unsent + 1),
        }
    }
    Ok((sent, unsent))
}
