// SPDX-License-Identifier: Apache-2.0
//! The program of somebody else's that a policy names with `next`: what passes goes on to it by a tail call, and its verdict is the packet's.
//!
//! It is part of a load, as the parts of a split model are: another one, or none, comes with the program loaded once more. So a swap or a
//! rollback changes both in one step. It is pinned once more beside the program that calls it (`followed.rs`).

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::abi::{Hook, MAX_TAIL_CALLS};
use crate::error::{Error, Result};
use crate::kernel::{bpffs, objects};
use crate::object::{Loaded, Opened, Runs};
use crate::plane::Plane;
use crate::policy::Policy;

/// The pin beside those of the program that calls it.
pub const PIN: &str = "next";

/// A program that is there, and what errors call it.
#[derive(Debug)]
pub struct Next {
    pub(super) program: OwnedFd,
    pub(super) name: String,
}

/// Whether each of these planes can call it.
pub fn admit(policy: &Policy, planes: &[Plane]) -> Result<()> {
    // The other direction, beside a plane, does without.
    planes.first().map_or(Ok(()), |plane| of_policy(policy, *plane).map(|_| ()))
}

/// Refuses one in a dispatcher, whose programs come one after the other by themselves.
pub fn admit_beside(runs: Runs, next: bool) -> Result<()> {
    if !next || runs != Runs::InDispatcher {
        return Ok(());
    }
    Err(Error::input(
        "policy: next: in a dispatcher of libxdp what passes goes on to the programs with a larger run priority; load that program there \
         (`xdp-loader load`), and leave `next` out",
    ))
}

/// That of a policy, `None` if it names none.
pub fn of_policy(policy: &Policy, plane: Plane) -> Result<Option<Next>> {
    policy.next.as_deref().map(|path| Next::open(path, plane)).transpose()
}

impl Next {
    /// Opens a pin. Refuses anything but a program for the plane's hook.
    fn open(path: &Path, plane: Plane) -> Result<Self> {
        let name = path.display().to_string();
        let Runs::InKernel(hook) = plane.runs() else {
            let can: Vec<_> =
                Plane::all().iter().filter(|it| !it.is_in_user_space()).map(|it| it.name()).collect();
            return Err(Error::input(format!(
                "policy: next: {plane} judges packets in user space, from where no program of the kernel can be called; planes that can: {}",
                can.join(", ")
            )));
        };
        let program = objects::open_pin(path).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => Error::input(format!(
                "policy: next: nothing is pinned at {name}; `bpftool prog pin id ID {name}` pins a program that is loaded"
            )),
            Some(libc::EPERM | libc::EACCES) if bpffs::is_in_one(path) => Error::missing(format!("policy: next: {name}: this user may not open it")),
            _ => Error::input(format!(
                "policy: next: {name} is not a pin ({error}); give that of a program in a BPF file system"
            )),
        })?;
        let kind = objects::program_kind(program.as_fd())
            .map_err(|error| Error::other(format!("policy: next: {name}: {error}")))?;
        let (wanted, called) = match hook {
            Hook::Xdp => (libbpf_sys::BPF_PROG_TYPE_XDP, "XDP"),
            _ => (libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, "TC (sched_cls)"),
        };
        let is = match kind {
            Some(kind) if kind == wanted => return Ok(Self { program, name }),
            Some(libbpf_sys::BPF_PROG_TYPE_XDP) => "a program for XDP".to_owned(),
            Some(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS) => "a program for TC (sched_cls)".to_owned(),
            Some(libbpf_sys::BPF_PROG_TYPE_EXT) => {
                "a part of somebody else's dispatcher (an extension), which only that can call".to_owned()
            }
            Some(other) => format!("a program of another type ({other} in linux/bpf.h)"),
            None => "a map or a link".to_owned(),
        };
        Err(Error::input(format!(
            "policy: next: {name} is {is}; {plane} can only call a program for {called}"
        )))
    }

    pub(super) fn id(&self) -> Result<u32> {
        let info = objects::program_info(self.program.as_fd());
        info.map(|info| info.id).map_err(|error| Error::other(format!("{}: {error}", self.name)))
    }

    /// Refuses a model that leaves no tail call for it.
    pub fn check_room(&self, opened: &Opened, more: u32) -> Result<()> {
        let calls = opened.tail_calls() + more;
        if calls < MAX_TAIL_CALLS {
            return Ok(());
        }
        Err(Error::input(format!(
            "{}: takes {calls} tail calls itself, of the {MAX_TAIL_CALLS} that the kernel allows for a packet, so none is left for the policy's \
             `next`; compile the model smaller, or leave `next` out",
            opened.input()
        )))
    }

    /// Has what passes go on to it.
    pub fn follow(self, loaded: &mut Loaded) -> Result<()> {
        let Self { program, name } = self;
        let frags = if loaded.config.is_some_and(|config| config.frags != 0) {
            "for multi-buffer (xdp.frags), as this interface's MTU asks for, and without a device"
        } else {
            "without multi-buffer (xdp.frags) or a device"
        };
        loaded.set_next(program)?.map_err(|error| {
            Error::input(format!(
                "policy: next: the kernel does not let {name} be called ({error}): it has to be loaded for the same hook, {frags} \
                 of its own, and no other program may extend it; load it again that way"
            ))
        })
    }
}
