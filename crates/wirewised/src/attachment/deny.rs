// SPDX-License-Identifier: Apache-2.0
//! The deny list of what is attached: read, and changed while packets pass.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsFd;

use libbpf_rs::MapHandle;

use crate::abi::Mode;
use crate::attachment::allow::AllowList;
use crate::attachment::pins::Root;
use crate::attachment::session::Session;
use crate::attachment::staged_policy::settle;
use crate::attachment::{Attachment, Whereabouts, succession};
use crate::error::{Error, Result};
use crate::kernel;
use crate::kernel::memory::{Bounds, limits};
use crate::object::deny::{Change, Edit, Held, Maps};
use crate::object::prefixes::Until;
use crate::policy::Prefix;
use crate::reading::policy::will_enforce;
use crate::text::units::format_bytes;

/// The deny list of an attachment.
pub struct DenyList<'a> {
    ours: &'a Attachment,
    maps: Maps<MapHandle>,
    pub held: Held,
}

impl<'a> DenyList<'a> {
    pub fn read(ours: &'a Attachment) -> Result<Self> {
        let no_list = || {
            Error::input(format!(
                "the policy on {} has no deny list; write `deny: {{}}` into its file, and give that to `wirewised run` again",
                ours.interface
            ))
        };
        if !ours.element()?.denies() {
            return Err(no_list());
        }
        let maps = Maps::open(|name| ours.optional_map(name).ok().flatten()).ok_or_else(no_list)?;
        let held = maps.read()?;
        Ok(Self { ours, maps, held })
    }

    /// What an origin's edit changes. Refused are prefixes that keep out who asks for it, unless `sure`.
    pub fn plan(&self, origin: &str, edit: Edit, sure: bool) -> Result<Change> {
        let change = self.held.change(origin, edit, kernel::boot_s())?;
        let mode = will_enforce(&self.ours.policy()?, kernel::boot_ns());
        if mode == Mode::Enforce && !sure {
            self.check_session(&change)?;
        }
        check_memory(change.memory(&self.held))?;
        Ok(change)
    }

    pub fn apply(&self, change: &Change) -> Result<()> {
        self.maps.apply(&self.held, change)?;
        let link = self.ours.link.as_ref().map(|(link, _)| link.as_fd());
        settle(link, "deny", &self.ours.interface)
    }

    fn check_session(&self, change: &Change) -> Result<()> {
        let Ok(Session { address, told_by }) = Session::find() else { return Ok(()) };
        if self.allows(address)? {
            return Ok(());
        }
        match change.denied().find(|prefix| prefix.contains(address)) {
            None => Ok(()),
            Some(prefix) => Err(Error::input(format!(
                "{prefix} holds {address}, where you are logged in from ({told_by}): you would lock yourself out; put your address into \
                 the policy (`allow: {{prefixes: [...]}}`), or add --yes"
            ))),
        }
    }

    fn allows(&self, address: IpAddr) -> Result<bool> {
        Ok(AllowList::read(self.ours)?.held.always_allows(address))
    }
}

/// Has an origin deny these prefixes and no others, on each of these interfaces where a policy has a deny list. Returns the interface of each, and
/// what changed there. The others go on if one fails.
pub fn replace_on(
    interfaces: &BTreeSet<String>,
    root: &Root,
    origin: &str,
    wanted: &BTreeMap<Prefix, Until>,
) -> Result<Vec<(String, Result<Change>)>> {
    let each = |act: &dyn Fn(&Attachment) -> Result<Change>| -> Result<Vec<_>> {
        let is_meant = |ours: &Attachment| {
            ours.link.is_some()
                && ours.whereabouts != Whereabouts::Gone
                && interfaces.contains(&ours.interface)
        };
        let mut changes = Vec::new();
        for ours in Attachment::all(root)?.attachments.into_iter().filter(is_meant) {
            let change = match ours.element().map(|element| element.denies()) {
                Ok(false) => continue,
                Ok(true) => act(&ours),
                Err(error) => Err(error),
            };
            changes.push((ours.interface.clone(), change));
        }
        Ok(changes)
    };
    let edit = || Edit::Replace(wanted.clone());
    let planned = each(&|ours| DenyList::read(ours)?.plan(origin, edit(), true))?;
    // Without a change others need not wait.
    if planned.iter().all(|(_, change)| change.as_ref().is_ok_and(Change::is_empty)) {
        return Ok(planned);
    }
    let _lock = root.lock()?;
    succession::tidy_all(root)?;
    each(&|ours| {
        let list = DenyList::read(ours)?;
        let change = list.plan(origin, edit(), true)?;
        if !change.is_empty() {
            list.apply(&change)?;
        }
        Ok(change)
    })
}

/// Refuses a list that needs more memory than is left, which the kernel would kill for.
fn check_memory(needed: u64) -> Result<()> {
    let bound =
        limits().into_iter().filter(|limit| limit.bounds == Bounds::Use).min_by_key(|limit| limit.left);
    match bound {
        Some(limit) if limit.left < needed => Err(Error::other(format!(
            "the list needs {} of the kernel's memory, and {} leaves {}: {}, join neighbouring prefixes, or load fewer",
            format_bytes(needed),
            limit.name,
            format_bytes(limit.left),
            limit.remedy
        ))),
        _ => Ok(()),
    }
}
