// SPDX-License-Identifier: Apache-2.0
//! Sockets over which the kernel is asked, of the network namespace of this thread.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

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
