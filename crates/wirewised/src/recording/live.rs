// SPDX-License-Identifier: Apache-2.0
//! The program at work on live traffic, held by this process alone: however that ends, the kernel takes it off.

use std::os::fd::{AsFd, OwnedFd};

use crate::error::Result;
use crate::kernel;
use crate::object::Loaded;
use crate::plane::user_space::Workers;
use crate::plane::{Joining, Plane};

pub enum Live {
    Link(OwnedFd),
    Workers(Workers),
}

impl Live {
    pub fn in_kernel(plane: Plane, interface: &str, joining: Joining, loaded: &Loaded) -> Result<Self> {
        plane
            .attach(loaded.entry()?.as_fd(), plane.port(interface)?, joining)
            .map(Self::Link)
            .map_err(|error| plane.attach_error(interface, &error))
    }

    /// It does not go on by itself.
    pub fn has_failed(&self) -> bool {
        matches!(self, Self::Workers(workers) if workers.have_failed())
    }

    /// After this the program sees no more packets. interface_gone : so what failed is known. Returns how many packets found a full
    /// queue before the program could see them, where that can be said.
    pub fn end(self, interface_gone: bool) -> Result<u64> {
        match self {
            Self::Link(link) => {
                drop(link);
                kernel::wait_for_packets();
                Ok(0)
            }
            Self::Workers(workers) => match workers.end() {
                Err(_) if interface_gone => Ok(0),
                ended => ended.map(|counts| counts.lost),
            },
        }
    }
}
