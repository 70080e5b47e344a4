// SPDX-License-Identifier: Apache-2.0
//! A program of somebody else, in whose place ours comes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use crate::attachment::doctor;
use crate::error::{Error, Result};
use crate::kernel::objects;
use crate::plane::{Attached, Plane, link};

/// Taken off an interface.
pub struct Displaced {
    program: OwnedFd,
    plane: Plane,
}

impl Displaced {
    pub fn remove(attached: Attached, ifindex: u32) -> Result<Self> {
        let failed = |error: io::Error| {
            let what = format!("cannot take {} off: {error}", doctor::describe_program(attached.program_id));
            match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => Error::missing(format!(
                    "{what}; taking over another's program (and being able to put it back) needs CAP_SYS_ADMIN"
                )),
                _ => Error::other(what),
            }
        };
        let program = objects::program_by_id(attached.program_id).map_err(failed)?;
        match link::find(ifindex, attached.program_id).map_err(failed)? {
            Some(link) => link::detach(link.as_fd()),
            None => attached.plane.detach_without_link(program.as_fd(), ifindex),
        }
        .map_err(failed)?;
        Ok(Self { program, plane: attached.plane })
    }

    pub fn restore(self, ifindex: u32) -> io::Result<()> {
        self.plane.attach_without_link(self.program.as_fd(), ifindex)
    }
}
