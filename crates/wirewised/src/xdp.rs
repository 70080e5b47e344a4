// SPDX-License-Identifier: Apache-2.0
//! The system calls behind attaching: XDP links, what an interface has attached, pins. Everything here is about the
//! network namespace this thread is in.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::kernel;

/// Where in the kernel the program sees the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plane {
    /// In the driver, before the kernel makes a socket buffer: fast, needs a driver that supports it
    XdpNative,
    /// After the driver, on socket buffers: slower, works on every interface
    XdpGeneric,
}

impl Plane {
    pub fn name(self) -> &'static str {
        match self {
            Self::XdpNative => "xdp-native",
            Self::XdpGeneric => "xdp-generic",
        }
    }

    fn flags(self) -> u32 {
        match self {
            Self::XdpNative => libbpf_sys::XDP_FLAGS_DRV_MODE,
            Self::XdpGeneric => libbpf_sys::XDP_FLAGS_SKB_MODE,
        }
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

/// What the kernel says about XDP on an interface.
#[derive(Debug, Clone, Default)]
pub struct Interface {
    pub attached: Vec<Attached>,
    /// A program runs on the network card itself.
    pub offloaded: bool,
    /// `NETDEV_XDP_ACT_*` bits of the driver; 0 before Linux 6.3, which does not tell, and for drivers without XDP.
    pub driver_features: u64,
}

impl Interface {
    /// Where a program is attached; `None` if it is not.
    pub fn plane_of(&self, program_id: u32) -> Option<Plane> {
        self.attached.iter().find(|attached| attached.program_id == program_id).map(|attached| attached.plane)
    }
}

pub fn query(ifindex: u32) -> io::Result<Interface> {
    let mut opts = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as _,
        ..Default::default()
    };
    // SAFETY: `opts` is a bpf_xdp_query_opts that says its size, and the call fills it.
    check(unsafe { libbpf_sys::bpf_xdp_query(ifindex as i32, 0, &mut opts) })?;
    // With one program only `prog_id` need be set; its place is then in `attach_mode`.
    let mode = u32::from(opts.attach_mode);
    let id = |specific: u32, alone: u32| match specific {
        0 if mode == alone => opts.prog_id,
        id => id,
    };
    let native = id(opts.drv_prog_id, libbpf_sys::XDP_ATTACHED_DRV);
    let generic = id(opts.skb_prog_id, libbpf_sys::XDP_ATTACHED_SKB);
    let attached = [(native, Plane::XdpNative), (generic, Plane::XdpGeneric)];
    Ok(Interface {
        attached: attached
            .into_iter()
            .filter(|(program_id, _)| *program_id != 0)
            .map(|(program_id, plane)| Attached { program_id, plane })
            .collect(),
        offloaded: id(opts.hw_prog_id, libbpf_sys::XDP_ATTACHED_HW) != 0,
        driver_features: opts.feature_flags,
    })
}

/// Attaches a program. It stays as long as the descriptor, or a pin of it, is there.
pub fn create_link(program: BorrowedFd<'_>, ifindex: u32, plane: Plane) -> io::Result<OwnedFd> {
    // SAFETY: zero is a value of every field of this plain C struct.
    let mut opts: libbpf_sys::bpf_link_create_opts = unsafe { std::mem::zeroed() };
    opts.sz = size_of::<libbpf_sys::bpf_link_create_opts>() as _;
    opts.flags = plane.flags();
    // SAFETY: `opts` says its size and outlives the call; the descriptors are plain numbers to it.
    owned(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex as i32, libbpf_sys::BPF_XDP, &opts)
    })
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

/// Attaches a program without a link, as `ip link set xdp` does.
pub fn attach_without_link(program: BorrowedFd<'_>, ifindex: u32, plane: Plane) -> io::Result<()> {
    let flags = plane.flags() | libbpf_sys::XDP_FLAGS_UPDATE_IF_NOEXIST;
    // SAFETY: no options are given; the descriptor is a plain number to the call.
    check(unsafe { libbpf_sys::bpf_xdp_attach(ifindex as i32, program.as_raw_fd(), flags, std::ptr::null()) })
        .map(drop)
}

/// Detaches a program that was attached without a link, if it is still this one.
pub fn detach_without_link(program: BorrowedFd<'_>, ifindex: u32, plane: Plane) -> io::Result<()> {
    let opts = libbpf_sys::bpf_xdp_attach_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_attach_opts>() as _,
        old_prog_fd: program.as_raw_fd(),
        ..Default::default()
    };
    let flags = plane.flags() | libbpf_sys::XDP_FLAGS_REPLACE;
    // SAFETY: `opts` says its size and outlives the call.
    check(unsafe { libbpf_sys::bpf_xdp_detach(ifindex as i32, flags, &opts) }).map(drop)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkInfo {
    pub id: u32,
    pub program_id: u32,
    /// 0: the interface is gone, or the link was detached.
    pub ifindex: u32,
}

/// `None`: a link, but not one of XDP.
pub fn link_info(link: BorrowedFd<'_>) -> io::Result<Option<LinkInfo>> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut length = size_of::<libbpf_sys::bpf_link_info>() as u32;
    // SAFETY: `info` is a zeroed bpf_link_info of `length` bytes, which the call fills.
    check(unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &mut info, &mut length) })?;
    if info.type_ != libbpf_sys::BPF_LINK_TYPE_XDP {
        return Ok(None);
    }
    // SAFETY: `xdp` is the part of the union that the type names.
    let ifindex = unsafe { info.__bindgen_anon_1.xdp.ifindex };
    Ok(Some(LinkInfo { id: info.id, program_id: info.prog_id, ifindex }))
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramInfo {
    pub id: u32,
    /// At most 15 characters: the kernel keeps no more.
    pub name: String,
    pub verified_instructions: u32,
}

pub fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is a zeroed bpf_prog_info of `length` bytes, so the kernel copies no arrays.
    check(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut length) })?;
    // SAFETY: the kernel ends the name, of 16 bytes, with a zero byte.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    Ok(ProgramInfo {
        id: info.id,
        name: name.to_string_lossy().into_owned(),
        verified_instructions: info.verified_insns,
    })
}

/// Needs CAP_SYS_ADMIN.
pub fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number, returns a new descriptor.
    owned(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })
}

/// The XDP link that keeps `program_id` on an interface, if it is there by a link. Needs CAP_SYS_ADMIN.
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
        let info = link_info(std::os::fd::AsFd::as_fd(&link))?;
        if info.is_some_and(|info| info.ifindex == ifindex && info.program_id == program_id) {
            return Ok(Some(link));
        }
    }
}

/// Pins a program, map or link.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: `path` is a C string that outlives the call.
    check(unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) }).map(drop)
}

pub fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: `path` is a C string that outlives the call.
    owned(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// libbpf returns what a call gave, or the negated error number.
fn check(code: i32) -> io::Result<i32> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(code) }
}

fn owned(code: i32) -> io::Result<OwnedFd> {
    let fd = check(code)?;
    // SAFETY: `fd` is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
