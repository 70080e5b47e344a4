// SPDX-License-Identifier: Apache-2.0
//! Verdicts kept in a flow table that outlives the program they are of.

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use libbpf_rs::{MapCore, MapHandle};

use crate::abi;
use crate::error::{Error, Result};

/// The bit that marks the verdicts of a program with other classes than one whose bit is `verdict`.
pub fn other(verdict: u8) -> u8 {
    if verdict == abi::SLOT_VERDICT { abi::SLOT_VERDICT_2 } else { abi::SLOT_VERDICT }
}

/// Makes every verdict with the bit `verdict` one of the past, so that another program may use the bit. A program that uses the
/// other bit may be at work on the table: it only ever writes all flags at once.
pub fn retire(table: &MapHandle, verdict: u8) -> Result<()> {
    let bucket = (table.value_size() as usize).next_multiple_of(8);
    let entry = table.value_size() as usize / abi::WAYS as usize;
    let buckets = table.max_entries() as usize;
    let length = bucket * buckets;
    let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, table.as_fd().as_raw_fd());
    // SAFETY: a new shared mapping of `length` bytes of the map; the kernel checks type, flags and size.
    let start = unsafe { libc::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, fd, 0) };
    if start == libc::MAP_FAILED {
        let name = table.name().to_string_lossy();
        return Err(Error::other(format!("cannot map {name}: {}", io::Error::last_os_error())));
    }
    for index in 0..buckets * abi::WAYS as usize {
        let (in_bucket, way) = (index / abi::WAYS as usize * bucket, index % abi::WAYS as usize);
        let offset = in_bucket + way * entry + offset_of!(abi::Slot, flags);
        // SAFETY: `offset` is inside the mapping, which lives until the end of this function; others touch the byte, in this
        // process or the kernel, with loads and stores of a byte only.
        let flags = unsafe { AtomicU8::from_ptr(start.cast::<u8>().add(offset)) };
        let past = |flags| (flags & verdict != 0).then_some(flags & !verdict | abi::SLOT_VERDICT_PAST);
        // An error only says that there was nothing to change.
        let _ = flags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, past);
    }
    // SAFETY: the mapping made above; nothing points into it any more.
    unsafe { libc::munmap(start, length) };
    Ok(())
}
