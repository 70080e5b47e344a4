// SPDX-License-Identifier: Apache-2.0
//! Where in the kernel a program sees packets: one module for each kind of hook, which `HOOKS` lists. What is attached is always a BPF
//! link: it lives by its pin, and its program is replaced without a gap.

pub mod tc;
mod xdp;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::abi;
use crate::error::Error;
use crate::interface::offloads::Direction;
use crate::kernel;
use crate::kernel::objects::{check, owned};

pub use xdp::{Driver, driver};

/// Every kind of hook.
const HOOKS: [&dyn Hook; 2] = [&xdp::Xdp, &tc::Tc];

/// What each hook does in its own way; `Plane` says of each what. All of it is about the network namespace this thread is in.
trait Hook: Sync {
    /// The programs that the kernel says are attached to an interface.
    fn query(&self, ifindex: u32) -> io::Result<Vec<Attached>>;

    /// The interface of a link of this hook (0: it is gone, or the link was detached), `None` for other hooks' links.
    fn ifindex(&self, link: &libbpf_sys::bpf_link_info) -> Option<u32>;

    fn attach(
        &self,
        program: BorrowedFd<'_>,
        ifindex: u32,
        plane: Plane,
        order: Order,
    ) -> io::Result<OwnedFd>;
    fn attach_without_link(&self, program: BorrowedFd<'_>, ifindex: u32, plane: Plane) -> io::Result<()>;
    fn detach_without_link(&self, program: BorrowedFd<'_>, ifindex: u32, plane: Plane) -> io::Result<()>;
    fn attach_error(&self, interface: &str, plane: Plane, error: &io::Error) -> Error;
}

/// Where in the kernel the program sees the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plane {
    /// In the driver, before the kernel makes a socket buffer: fast, needs a driver that supports it
    XdpNative,
    /// After the driver, on socket buffers: slower, works on every interface
    XdpGeneric,
    /// Incoming packets at TC, beside the programs of others (Linux 6.6)
    TcIngress,
    /// Outgoing packets at TC, as the host hands them over
    TcEgress,
}

/// Our place among the programs of others, at a hook that takes several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Order {
    /// Before those that are there: sees every packet
    #[default]
    First,
    /// Behind them: sees what they let through
    Last,
}

impl Plane {
    pub fn name(self) -> &'static str {
        match self {
            Self::XdpNative => "xdp-native",
            Self::XdpGeneric => "xdp-generic",
            Self::TcIngress => "tc-ingress",
            Self::TcEgress => "tc-egress",
        }
    }

    /// What the program must be loaded for.
    pub fn kind(self) -> abi::Hook {
        match self {
            Self::XdpNative | Self::XdpGeneric => abi::Hook::Xdp,
            Self::TcIngress => abi::Hook::TcIngress,
            Self::TcEgress => abi::Hook::TcEgress,
        }
    }

    /// Programs of others may be attached beside ours.
    pub fn is_shared(self) -> bool {
        self.kind() != abi::Hook::Xdp
    }

    /// Whether a program of somebody else that is here keeps one from going to another plane of the same interface.
    pub fn is_in_the_way_of(self, other: Self) -> bool {
        self.kind() == other.kind() && !self.is_shared()
    }

    /// Whether it sees packets that were merged, or are not taken apart yet.
    pub fn sees_merged(self) -> bool {
        self != Self::XdpNative
    }

    /// Of the packets it sees.
    pub fn direction(self) -> Direction {
        if self == Self::TcEgress { Direction::Sent } else { Direction::Received }
    }

    fn hook(self) -> &'static dyn Hook {
        match self {
            Self::XdpNative | Self::XdpGeneric => &xdp::Xdp,
            Self::TcIngress | Self::TcEgress => &tc::Tc,
        }
    }

    /// Attaches a program. It stays as long as the descriptor, or a pin of it, is there.
    pub fn attach(self, program: BorrowedFd<'_>, ifindex: u32, order: Order) -> io::Result<OwnedFd> {
        self.hook().attach(program, ifindex, self, order)
    }

    /// Puts a program that was attached without a link back.
    pub fn attach_without_link(self, program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
        self.hook().attach_without_link(program, ifindex, self)
    }

    /// Detaches a program that was attached without a link, if it is still this one.
    pub fn detach_without_link(self, program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
        self.hook().detach_without_link(program, ifindex, self)
    }

    /// What an error of the kernel means to whoever wanted to attach.
    pub fn attach_error(self, interface: &str, error: &io::Error) -> Error {
        self.hook().attach_error(interface, self, error)
    }
}

impl std::fmt::Display for Plane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A program that the kernel says is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Attached {
    pub program_id: u32,
    pub plane: Plane,
}

/// All that is attached to an interface, at any hook.
pub fn attached(ifindex: u32) -> io::Result<Vec<Attached>> {
    let each: io::Result<Vec<_>> = HOOKS.iter().map(|hook| hook.query(ifindex)).collect();
    Ok(each?.concat())
}

/// Where a program is attached to an interface; `None` if it is not.
pub fn plane_of(ifindex: u32, program_id: u32) -> io::Result<Option<Plane>> {
    Ok(plane_among(&attached(ifindex)?, program_id))
}

/// The same, of what is known to be attached.
pub fn plane_among(attached: &[Attached], program_id: u32) -> Option<Plane> {
    attached.iter().find(|it| it.program_id == program_id).map(|it| it.plane)
}

/// Attaches a program by a link.
fn link(
    program: BorrowedFd<'_>,
    ifindex: u32,
    kind: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    // SAFETY: zero is a value of every field of this plain C struct.
    let mut opts: libbpf_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    opts.sz = size_of::<libbpf_sys::bpf_link_create_opts>() as _;
    opts.flags = flags;
    // SAFETY: `opts` says its size and outlives the call; the descriptors are plain numbers to it.
    owned(unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, kind, &opts) })
}

/// Replaces the program of a link. No packet meets the interface without one; the old program is at no packet any more when this
/// returns, so it may lose its pins, without which it would lose its tail calls.
pub fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no options are given; the descriptors are plain numbers to the call.
    check(unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) })
        .map(|_| kernel::wait_for_packets())
}

/// Detaches a link, whoever holds it.
pub fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is a plain number to the call.
    check(unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) }).map(drop)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkInfo {
    pub id: u32,
    pub program_id: u32,
    /// 0: the interface is gone, or the link was detached.
    pub ifindex: u32,
}

/// `None`: a link, but of no hook of ours.
pub fn link_info(link: BorrowedFd<'_>) -> io::Result<Option<LinkInfo>> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut length = size_of::<libbpf_sys::bpf_link_info>() as u32;
    // SAFETY: `info` is a zeroed bpf_link_info of `length` bytes, which the call fills.
    check(unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &mut info, &mut length) })?;
    let ifindex = HOOKS.iter().find_map(|hook| hook.ifindex(&info));
    Ok(ifindex.map(|ifindex| LinkInfo { id: info.id, program_id: info.prog_id, ifindex }))
}

/// The link that keeps `program_id` on an interface, if it is there by a link. Needs CAP_SYS_ADMIN.
pub fn find_link(ifindex: u32, program_id: u32) -> io::Result<Option<OwnedFd>> {
    let mut id = 0;
    loop {
        // SAFETY: `id` outlives the call, which writes the next number to it.
        match check(unsafe { libbpf_sys::bpf_link_get_next_id(id, &mut id) }) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            other => other?,
        };
        // SAFETY: takes a number, returns a new descriptor.
        let link = match owned(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) }) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
            other => other?,
        };
        let info = link_info(link.as_fd())?;
        if info.is_some_and(|info| info.ifindex == ifindex && info.program_id == program_id) {
            return Ok(Some(link));
        }
    }
}
