// SPDX-License-Identifier: Apache-2.0
//! The allow list's prefixes of what is attached: read, and changed while packets pass.

use std::os::fd::AsFd;

use libbpf_rs::MapHandle;

use crate::abi::{self, maps::ALLOW4};
use crate::attachment::Attachment;
use crate::attachment::staged_policy::{live, settle, write_shadow};
use crate::attachment::succession::Places;
use crate::error::Result;
use crate::kernel;
use crate::object::allow::{Change, Edit, Held, Maps};
use crate::object::{no_map, policy_maps};

/// The allow list of an attachment.
pub struct AllowList<'a> {
    ours: &'a Attachment,
    maps: Maps<MapHandle>,
    pub held: Held,
}

impl<'a> AllowList<'a> {
    pub fn read(ours: &'a Attachment) -> Result<Self> {
        let maps = Maps::open(|name| ours.optional_map(name).ok().flatten());
        let maps = maps.ok_or_else(|| no_map(ALLOW4))?;
        let held = maps.read()?;
        Ok(Self { ours, maps, held })
    }

    pub fn plan(&self, edit: Edit) -> Result<Change> {
        self.maps.plan(&self.held, edit, kernel::boot_s())
    }

    /// The caller holds the lock of the root. The program looks at a list only where the policy says that it holds something.
    pub fn apply(&self, change: &Change) -> Result<()> {
        let link = self.ours.link.as_ref().map(|(link, _)| link.as_fd());
        let settle = || settle(link, "allow", &self.ours.interface);
        let places = Places::of(&self.ours.directory);
        self.maps.put(change)?;
        settle()?;
        let mut element = self.ours.element()?;
        element.policy.allow = element.policy.allow & !(abi::ALLOW_IPV4 | abi::ALLOW_IPV6) | change.bits;
        policy_maps::write_element(&element, live(&places.current))?;
        write_shadow(&places.shadow, &element)?;
        self.maps.take(change)?;
        settle()
    }
}
