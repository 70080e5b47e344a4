// SPDX-License-Identifier: Apache-2.0
//! A policy in maps beside those in use, on its way into them: written whole, then taken over map by map.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use bytemuck::bytes_of;
use libbpf_rs::MapHandle;

use crate::abi;
use crate::abi::maps::{POLICY, TUNNELS};
use crate::attachment::limits;
use crate::attachment::staging;
use crate::error::{Error, Result};
use crate::kernel::change;
use crate::kernel::note;
use crate::kernel::objects;
use crate::kernel::pinned::{self, Provisional};
use crate::object::{policy_maps, value_of};
use crate::plane::Note;
use crate::policy::Policy;
use crate::reading::meta::Meta;
use crate::reading::policy::of_shadow;

/// The pin of the policy's element as it was.
const BEFORE: &str = "before";

/// Where the maps are.
#[derive(Clone, Copy)]
pub struct Places<'a> {
    /// In use.
    pub current: &'a Path,
    /// On their way.
    pub policy: &'a Path,
    pub shadow: &'a Path,
}

/// Writes the policy into maps of its own, and pins them.
pub fn stage(
    places: Places<'_>,
    policy: &Policy,
    element: &abi::Element,
    before: &abi::Policy,
) -> Result<Provisional> {
    let live = live(places.current);
    let mut maps: BTreeMap<_, MapHandle> = policy_maps::blank(&live)?.into_iter().collect();
    if policy.tunnels.is_none() {
        maps.remove(TUNNELS);
    }
    let staged = |name: &str| maps.get(name).and_then(|map| MapHandle::try_from(map).ok());
    policy_maps::copy_changed(&live, staged)?;
    policy_maps::write(policy, element, |name| staged(name).or_else(|| live(name)), || Ok(()))?;
    let failed = |error: std::io::Error| Error::other(format!("{}: {error}", places.policy.display()));
    let provisional = Provisional::create(places.policy)?;
    for (name, map) in &maps {
        objects::pin(map.as_fd(), &places.policy.join(name)).map_err(failed)?;
    }
    let before = note::of_bytes(bytes_of(before))?;
    objects::pin(before.as_fd(), &places.policy.join(BEFORE)).map_err(failed)?;
    Ok(provisional)
}

/// Takes over a policy that is staged, if there is one. link : of what is attached.
pub fn finish(places: Places<'_>, link: Option<BorrowedFd<'_>>) -> Result<()> {
    let directory = places.policy;
    let failed = |error: std::io::Error| Error::other(format!("{}: {error}", directory.display()));
    if !directory.is_dir() {
        return Ok(());
    }
    let note = directory.join(pinned::META);
    if let Some(meta) = Meta::open(&note) {
        let (staged, live) = (live(directory), live(places.current));
        policy_maps::follow(&staged, &live, || settle(link, "allow", &meta.interface))?;
        if let Some(map) = live(POLICY) {
            let policy = value_of(&map)?;
            if let Some(before) = before(directory) {
                limits::renew(&before, &policy, &live)?;
            }
            write_shadow(places.shadow, &policy_maps::read_element(&live)?)?;
        }
        staging::remember(places.current, &meta)?;
        change::remove_file(&note).map_err(failed)?;
    }
    pinned::remove(directory).map_err(failed)
}

/// Waits until the program goes by its allow list and deny list as they are now. The kernel's programs look them up where they are. which :
/// the one that was changed, for messages.
pub fn settle(link: Option<BorrowedFd<'_>>, which: &str, interface: &str) -> Result<()> {
    let carried = link.map(Note::open).transpose().map(Option::flatten);
    let settled = carried.and_then(|note| note.map_or(Ok(()), |note| note.allow_list_changed()));
    settled.map_err(|error| Error::other(format!("{interface}: the {which} list was changed, but {error}")))
}

fn before(directory: &Path) -> Option<abi::Policy> {
    bytemuck::try_pod_read_unaligned(&note::read_bytes(&directory.join(BEFORE))?).ok()
}

/// A shadow has the same trigger, allow list, deny list and bans.
pub fn write_shadow(shadow: &Path, element: &abi::Element) -> Result<()> {
    if !shadow.is_dir() {
        return Ok(());
    }
    policy_maps::write_element(&of_shadow(element), live(shadow))
}

pub fn live(directory: &Path) -> impl Fn(&str) -> Option<MapHandle> {
    let directory = directory.to_path_buf();
    move |name| MapHandle::from_pinned_path(directory.join(name)).ok()
}
