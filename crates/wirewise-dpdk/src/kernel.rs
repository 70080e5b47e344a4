// SPDX-License-Identifier: Apache-2.0
//! What is asked of the kernel about the interface under a device: is it there, is it promiscuous, whose XDP
//! program is on it, which sockets the driver opened for it.

use super::eal::check;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

unsafe extern "C" {
    fn dpdk_kernel_flags(watch: c_int, interface: u32) -> c_int;
    fn dpdk_kernel_xdp(interface: u32, mode: u32, name: *mut c_char) -> c_int;
    fn dpdk_kernel_queue_free(interface: u32, queue: u32) -> c_int;
}

/// What the kernel needs to free the queue of an AF_XDP socket, amply.
pub const AFTERMATH: Duration = Duration::from_millis(100);
/// The names libxdp gives the programs that lead packets to sockets.
const OURS: [&str; 2] = ["xsk_def_prog", "xdp_dispatcher"];
/// Generic, native and offloaded: XDP_FLAGS_SKB_MODE, _DRV_MODE and _HW_MODE.
const MODES: [u32; 3] = [2, 4, 8];

/// The number of an interface of this thread's network namespace.
pub fn number(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: a string that lives here.
    Some(unsafe { libc::if_nametoindex(name.as_ptr()) }).filter(|number| *number != 0)
}

/// The network namespace in which a plane was opened, and a socket to ask about its interfaces.
pub struct Space {
    watch: OwnedFd,
    namespace: File,
}

impl Space {
    /// That of this thread.
    pub fn here() -> Result<Space, String> {
        let why = |error| format!("DPDK: watching interfaces: {error}; mount /proc and allow more files");
        let namespace = File::open("/proc/thread-self/ns/net").map_err(why)?;
        // SAFETY: opens a socket and returns its number.
        let watch = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if watch < 0 {
            return Err(why(std::io::Error::last_os_error()));
        }
        // SAFETY: it is open and nobody else's.
        let watch = unsafe { OwnedFd::from_raw_fd(watch) };
        Ok(Space { watch, namespace })
    }

    /// Does something there, and comes back. Without CAP_SYS_ADMIN this thread stays where it is, but then it
    /// never left.
    pub fn inside(&self, work: impl FnOnce()) {
        let back = File::open("/proc/thread-self/ns/net");
        // SAFETY: changes this thread only.
        let enter = |there: &File| unsafe { libc::setns(there.as_raw_fd(), libc::CLONE_NEWNET) };
        let entered = back.is_ok() && enter(&self.namespace) == 0;
        work();
        if let Ok(back) = back.as_ref()
            && entered
        {
            enter(back);
        }
    }

    fn flags(&self, interface: u32) -> c_int {
        // SAFETY: a socket that is open.
        unsafe { dpdk_kernel_flags(self.watch.as_raw_fd(), interface) }
    }

    pub fn gone(&self, interface: u32) -> bool {
        matches!(-self.flags(interface), libc::ENODEV | libc::ENXIO)
    }

    pub fn promiscuous(&self, interface: u32) -> bool {
        let flags = self.flags(interface);
        flags >= 0 && flags & libc::IFF_PROMISC != 0
    }
}

/// The name of the XDP program that an interface has in a mode, if it has one.
fn program(interface: u32, mode: u32) -> Option<String> {
    let mut name = [0_u8; 16];
    // SAFETY: the shim writes 16 bytes.
    let id = unsafe { dpdk_kernel_xdp(interface, mode, name.as_mut_ptr().cast()) };
    let text = name.iter().take_while(|byte| **byte != 0).copied().collect();
    (id > 0).then(|| String::from_utf8(text).unwrap_or_default())
}

/// Refuses an interface for AF_XDP that is somebody's already. device : as in messages. That must be known
/// before it is plugged in: the driver takes off whatever program it finds when it is closed, even if it
/// could not be started.
pub fn refuse_taken(device: &str, name: &str, queues: std::ops::Range<u32>) -> Result<(), String> {
    let number = number(name)
        .ok_or_else(|| format!("{device}: there is no interface {name}; create it, or name another"))?;
    let programs: Vec<String> = MODES.iter().filter_map(|mode| program(number, *mode)).collect();
    if programs.is_empty() {
        return Ok(());
    }
    if let Some(program) = programs.iter().find(|program| !OURS.contains(&program.as_str())) {
        return Err(format!(
            "{device}: an XDP program ({program:?}) is on interface {name} already; take it off with \
             ip link set dev {name} xdp off"
        ));
    }
    // A program of libxdp's: a process uses it, or a killed one left it, and then it is taken over.
    for queue in queues {
        // SAFETY: takes numbers only.
        check(unsafe { dpdk_kernel_queue_free(number, queue) }, |why| {
            format!(
                "{device}: asking for queue {queue} of interface {name}: {why}; another program, or this \
                 one, receives from it with AF_XDP: end that first"
            )
        })?;
    }
    std::thread::sleep(AFTERMATH);
    Ok(())
}

/// A socket that a driver opened. inode : as in `socket:[1234]`, so that it is not taken for another.
#[derive(Clone, PartialEq, Eq)]
pub struct Socket {
    fd: c_int,
    inode: String,
}

/// This process's sockets of a family. What is there after a step of a driver's and was not before is taken
/// to be the driver's: nobody else must open such a socket meanwhile.
pub fn sockets(family: c_int) -> Vec<Socket> {
    let files = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    files
        .filter_map(|file| {
            let fd = file.file_name().to_str()?.parse().ok()?;
            let inode = inode(fd)?;
            (option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, 0)? == family).then_some(Socket { fd, inode })
        })
        .collect()
}

fn inode(fd: c_int) -> Option<String> {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    Some(link.to_str()?.to_string()).filter(|link| link.starts_with("socket:["))
}

/// A socket's option: of its first words the one at `index`.
fn option(fd: c_int, level: c_int, name: c_int, index: usize) -> Option<c_int> {
    let mut words: [c_int; 8] = [0; 8];
    let mut length = size_of_val(&words) as libc::socklen_t;
    // SAFETY: a place for an answer and its length.
    let result = unsafe { libc::getsockopt(fd, level, name, words.as_mut_ptr().cast(), &mut length) };
    words.get(index).copied().filter(|_| result == 0)
}

impl Socket {
    /// Packets that the kernel dropped since the last call, because this packet socket's ring was full.
    pub fn dropped(&self) -> u64 {
        const PACKET_STATISTICS: c_int = 6;
        // The first word counts all packets.
        option(self.fd, libc::SOL_PACKET, PACKET_STATISTICS, 1).map_or(0, |dropped| u64::from(dropped as u32))
    }

    /// Closes a socket that its driver forgot, and unmaps its rings, which keep it alive.
    pub fn forget(&self) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        for line in maps.lines().filter(|line| line.ends_with(&self.inode)) {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |text| usize::from_str_radix(text, 16).ok();
            if let Some((Some(from), Some(to))) = range.map(|(from, to)| (number(from), number(to))) {
                // SAFETY: rings of a driver that is closed and does not use them any more.
                unsafe { libc::munmap(from as *mut c_void, to - from) };
            }
        }
        if inode(self.fd).as_ref() == Some(&self.inode) {
            // SAFETY: it is still that socket, and its driver is closed.
            unsafe { libc::close(self.fd) };
        }
    }
}
