// SPDX-License-Identifier: Apache-2.0
//! A cable of our own to measure on: a veth pair between two new network namespaces, a sender at one end, and what its packets cost at
//! the other. Neither namespaces nor mounts have a name, so the kernel takes all of it back with this process, however that ends.

mod addresses;
pub mod cpu_time;
pub mod exit;
pub mod receiver;
pub mod sender;
pub mod steady;
pub mod transactions;

use std::ffi::CStr;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::interface::netdev::{self, Device};
use crate::interface::{netns, rtnetlink};
use crate::kernel::{self, bpffs};

const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_SGRO: u32 = 0x2c;
/// As in the frames that are sent.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
pub const SENDER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const ETHERNET: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SENDER_ETHERNET: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SENDING_END: &str = "sender";
const NO_IPV6: [&str; 2] = ["all", "default"];

/// The two CPUs that are measured with.
#[derive(Debug, Clone, Copy)]
pub struct Cpus {
    pub sender: u32,
    pub receiver: u32,
}

impl Cpus {
    /// The first two that this process may use.
    pub fn choose() -> Result<Self> {
        match kernel::allowed_cpus()?[..] {
            [sender, receiver, ..] => Ok(Self { sender, receiver }),
            ref few => Err(Error::missing(format!(
                "planes are measured on two CPUs, one that sends and one that receives, and this process may use {}; run it on a \
                 machine with two, or without `taskset` and the like",
                few.len()
            ))),
        }
    }
}

/// The cable. This thread is in the receiver's namespace.
pub struct Wire {
    /// Of the receiving end. No other interface of the machine has it.
    pub interface: String,
    pub cpus: Cpus,
    index: u32,
    outside: netns::Other,
    sending_end: u32,
}

impl Wire {
    /// The name of the receiving end. Together with `napi/` it is the start of a thread's name, which has 15 characters.
    pub fn name() -> String {
        format!("wb{}", std::process::id())
    }

    /// Moves this process, which must not have another thread yet, into a mount namespace and a network namespace of its own, and
    /// this thread to the receiver's CPU. /sys shows what is there, with an empty BPF file system.
    pub fn lay(cpus: Cpus) -> Result<Self> {
        kernel::require()?;
        if !kernel::may_mount() {
            return Err(Error::missing(
                "bench planes makes namespaces of its own, which takes CAP_SYS_ADMIN: run it as root",
            ));
        }
        let (interface, peer) = (Self::name(), SENDING_END);
        private_mounts().map_err(|error| cannot("have mounts of its own", &error))?;
        let outside = netns::make().map_err(|error| cannot("make a network namespace", &error))?;
        without_ipv6()?;
        netns::make().map_err(|error| cannot("make a network namespace", &error))?;
        without_ipv6()?;
        mount(c"sysfs", c"/sys").map_err(|error| cannot("mount /sys of a network namespace", &error))?;
        mount(c"bpf", c"/sys/fs/bpf").map_err(|error| cannot("mount a BPF file system", &error))?;
        rtnetlink::make_veth(&interface, peer, outside.file())
            .map_err(|error| cannot("make a veth pair (kernel module veth)", &error))?;
        let there = exit::inside(&outside, || plug_in(peer))??;
        let index = plug_in(&interface)?;
        kernel::pin_to(cpus.receiver)?;
        Ok(Self { interface, cpus, index, outside, sending_end: there })
    }

    /// Has a thread of the kernel's poll the receiving end, and moves it to the receiver's CPU, where it is as nice as the agent. To be
    /// called again for a program that was attached, as that may start polling anew. Returns the threads.
    pub fn poll_in_threads(&self) -> Result<Vec<u32>> {
        let path = PathBuf::from(format!("/sys/class/net/{}/threaded", self.interface));
        fs::write(&path, "1").map_err(|error| {
            Error::missing(format!(
                "{}: {error}; the receiver's CPU time is that of threaded NAPI (Linux 5.12)",
                path.display()
            ))
        })?;
        let threads = cpu_time::threads_called(&format!("napi/{}-", self.interface));
        if threads.is_empty() {
            return Err(Error::missing(
                "the kernel's threads cannot be seen: run bench planes outside of PID namespaces (containers)",
            ));
        }
        for thread in &threads {
            kernel::pin_thread(*thread, self.cpus.receiver)?;
            kernel::share_niceness(*thread)?;
        }
        Ok(threads)
    }

    /// Has the stacks of both ends know each other, as 10.77.0.1 and `ADDRESS`, and the frames of the sender.
    pub fn give_addresses(&self) -> Result<()> {
        let failed = |error: io::Error| cannot("give an interface an address", &error);
        let there = || {
            addresses::set_ethernet(SENDING_END, SENDER_ETHERNET)?;
            addresses::set_ipv4(SENDING_END, SENDER_ADDRESS)?;
            addresses::set_neighbour(SENDING_END, ADDRESS, ETHERNET)?;
            // A cable would carry them; a pair of interfaces leaves them to who receives, and a packet on its way to another CPU loses that.
            let sums =
                Device::open(SENDING_END).ok().and_then(|end| end.ethtool(ETHTOOL_STXCSUM, &mut [0, 0]));
            sums.ok_or_else(|| io::Error::other("checksums cannot be had of it"))
        };
        exit::inside(&self.outside, there)?.map_err(failed)?;
        addresses::set_ethernet(&self.interface, ETHERNET)
            .and_then(|()| addresses::set_ipv4(&self.interface, ADDRESS))
            .and_then(|()| addresses::set_neighbour(&self.interface, SENDER_ADDRESS, SENDER_ETHERNET))
            .map_err(failed)
    }

    /// Gives the receiving end another address, so that frames for `ADDRESS` are no more for this namespace.
    pub fn move_away(&self) -> Result<()> {
        addresses::set_ipv4(&self.interface, Ipv4Addr::new(10, 78, 0, 1))
            .map_err(|error| cannot("give an interface an address", &error))
    }

    /// Has the sending end take frames that an XDP program sends there, for as long as the result is kept. answers : those for the
    /// sender's stack go there.
    pub fn take_back(&self, answers: bool) -> Result<OwnedFd> {
        exit::inside(&self.outside, || exit::take(self.sending_end, answers.then_some(SENDER_ADDRESS)))?
    }

    /// Packets that came back to the sending end.
    pub fn returned(&self) -> Result<u64> {
        let count = exit::inside(&self.outside, || rtnetlink::received_packets(self.sending_end))?;
        count.map_err(|error| Error::other(format!("the sender's counters cannot be read: {error}")))
    }

    /// Packets that the receiving driver has taken.
    pub fn received(&self) -> Result<u64> {
        rtnetlink::received_packets(self.index).map_err(|error| {
            Error::other(format!("{}: its counters cannot be read: {error}", self.interface))
        })
    }
}

fn cannot(what: &str, error: &io::Error) -> Error {
    Error::missing(format!("bench planes cannot {what}: {error}"))
}

/// What is mounted from here on is seen by this process and its children alone.
fn private_mounts() -> io::Result<()> {
    // SAFETY: changes nothing but which mount namespace this thread is in; there is no other thread.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let none = std::ptr::null();
    // SAFETY: the only pointer that is read is a C string; for a change of propagation the others may be null.
    match unsafe { libc::mount(none, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn mount(kind: &CStr, place: &CStr) -> io::Result<()> {
    let flags = bpffs::MOUNT_FLAGS;
    // SAFETY: all are C strings that outlive the call, but for the options, of which there are none.
    match unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), flags, std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// No neighbour discovery of the namespace's own among the packets that are counted.
fn without_ipv6() -> Result<()> {
    for which in NO_IPV6 {
        match fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1") {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(cannot("switch off IPv6", &error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Brings an end up, polled by NAPI, without which a veth takes no frames that have no socket buffer: that comes with GRO, if it is
/// switched on when the end is up.
fn plug_in(interface: &str) -> Result<u32> {
    let index = netdev::index(interface)?;
    rtnetlink::bring_up(index).map_err(|error| cannot("bring up an interface", &error))?;
    let device = Device::open(interface)?;
    let gro = device.ethtool(ETHTOOL_SGRO, &mut [0, 1]);
    gro.ok_or_else(|| Error::missing("a veth here has no GRO (Linux 5.13)"))?;
    Ok(index)
}
