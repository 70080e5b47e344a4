// SPDX-License-Identifier: Apache-2.0
//! What joins a program to an interface, and lies pinned beside it: a BPF link of the kernel, whose program is replaced without a gap, the
//! note of an agent that carries the packets itself, that of a filter, or that of a dispatcher's component. Whoever holds one can ask, replace
//! and end it in the same way.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::{Component, Filter, Note, PLANES, Plane, Port, Site, attached};
use crate::interface::netns;
use crate::kernel;
use crate::kernel::change;
use crate::kernel::objects::{self, check, owned};

/// Attaches a program by a link of the kernel.
pub(super) fn create(
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
        .inspect(|_| change::made("link"))
}

/// Pins a link, if it is to be pinned.
pub(super) fn pinned(link: OwnedFd, pin: Option<&Path>) -> io::Result<OwnedFd> {
    pin.map_or(Ok(()), |pin| objects::pin(link.as_fd(), pin))?;
    Ok(link)
}

/// A link, as what it is.
enum Joined {
    ByKernel,
    Carried(Note),
    Filter(Filter),
    Component(Component),
}

fn open(link: BorrowedFd<'_>) -> io::Result<Joined> {
    if objects::map_info(link)?.is_none() {
        return Ok(Joined::ByKernel);
    }
    if let Some(note) = Note::open(link)? {
        return Ok(Joined::Carried(note));
    }
    if let Some(filter) = Filter::open(link)? {
        return Ok(Joined::Filter(filter));
    }
    let component = Component::open(link)?.map(Joined::Component);
    component.ok_or_else(|| io::Error::other("it is a map, but no note of this agent's"))
}

/// Replaces the program of a link. No packet meets the interface without one; the old program is at no packet any more when this
/// returns, so it may lose its pins, without which it would lose its tail calls.
pub fn update(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    match open(link)? {
        Joined::Carried(note) => return note.change_program(objects::program_info(program)?.id),
        Joined::Filter(filter) => filter.change_program(program)?,
        Joined::Component(component) => component.change_program(program)?,
        Joined::ByKernel => {
            let no_options = std::ptr::null();
            // SAFETY: no options are given; the descriptors are plain numbers to the call.
            check(unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), no_options) })?;
            change::made("update link");
        }
    }
    kernel::wait_for_packets();
    Ok(())
}

/// Ends what a link does, whoever holds it.
pub fn detach(link: BorrowedFd<'_>) -> io::Result<()> {
    match open(link)? {
        Joined::Carried(note) => note.stop(),
        Joined::Filter(filter) => filter.stop(),
        Joined::Component(component) => component.stop(),
        // SAFETY: the descriptor is a plain number to the call.
        Joined::ByKernel => check(unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) })
            .map(|_| change::made("detach link")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkInfo {
    pub id: u32,
    pub program_id: u32,
    /// `None`: the interface is gone, the link was detached, or who carried the packets is gone.
    pub port: Option<Port>,
    /// From a note, which knows; the kernel is asked of its links.
    noted: Option<(Plane, u64)>,
}

impl LinkInfo {
    /// By a note. cookie : of the interface's network namespace.
    pub(super) fn noted(id: u32, program_id: u32, port: Option<Port>, plane: Plane, cookie: u64) -> Self {
        Self { id, program_id, port, noted: Some((plane, cookie)) }
    }

    /// Where the program is on the interface of this network namespace that has the link's index; `None`: it is not, so the interface
    /// is another's. An index alone says nothing, as every namespace counts for itself.
    pub fn plane(&self) -> io::Result<Option<Plane>> {
        if let Some((plane, cookie)) = self.noted {
            return Ok((self.port.is_some() && cookie == netns::cookie()).then_some(plane));
        }
        Ok(attached(self.port.and_then(Port::index).unwrap_or(0))?
            .iter()
            .find(|it| it.program_id == self.program_id)
            .map(|it| it.plane))
    }
}

/// `None`: a link, but of no hook of ours.
pub fn info(link: BorrowedFd<'_>) -> io::Result<Option<LinkInfo>> {
    match open(link)? {
        Joined::Carried(note) => return Ok(note.info()),
        Joined::Filter(filter) => return Ok(Some(filter.info())),
        Joined::Component(component) => return component.info().map(Some),
        Joined::ByKernel => {}
    }
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut length = size_of::<libbpf_sys::bpf_link_info>() as u32;
    // SAFETY: `info` is a zeroed bpf_link_info of `length` bytes, which the call fills.
    check(unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &mut info, &mut length) })?;
    let ifindex = PLANES.iter().find_map(|plane| match plane.abilities().place {
        Site::Kernel(hook) => hook.ifindex(&info),
        Site::User(_) => None,
    });
    let port = |ifindex| Some(Port::Interface(ifindex)).filter(|_| ifindex != 0);
    Ok(ifindex.map(|ifindex| LinkInfo {
        id: info.id,
        program_id: info.prog_id,
        port: port(ifindex),
        noted: None,
    }))
}

/// The link that keeps `program_id` on an interface, if it is there by a link. Needs CAP_SYS_ADMIN.
pub fn find(ifindex: u32, program_id: u32) -> io::Result<Option<OwnedFd>> {
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
        let info = info(link.as_fd())?;
        if info
            .is_some_and(|info| info.port == Some(Port::Interface(ifindex)) && info.program_id == program_id)
        {
            return Ok(Some(link));
        }
    }
}
