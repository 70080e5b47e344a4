// SPDX-License-Identifier: Apache-2.0
//! How one program follows another on an interface. Beside its directory of pins may lie others: `::new`, a program that is being
//! made ready; `::previous`, what ran before the last swap; `::old`, what is on its way from the one to the other place; `::shadow`, a
//! second model, which has each packet before the first; `::offloads`, what is switched off for the attachment; `::companion`, a program
//! at TC beside one at XDP; `::bridge`, a program at TC that judges packets while one takes the place of another at XDP;
//! `::policy`, a policy on its way into the maps.
//!
//! The one moment that counts is the update of the link, which the kernel does in one step: what the link's program is, runs. The
//! directories only follow. So whoever finds them in any state, after a kill too, can tell what runs, and put the rest in order.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::attachment::companion;
use crate::attachment::names::BESIDE;
use crate::attachment::outgoing;
use crate::attachment::pins::Root;
use crate::attachment::staged_policy;
use crate::error::{Error, Result};
use crate::interface::offloads;
use crate::kernel::change;
use crate::kernel::objects;
use crate::kernel::pinned;
use crate::plane::link::{self, LinkInfo};
use crate::plane::{Joining, dispatcher};
use crate::reading::meta::Meta;

const NEW: &str = "new";
const PREVIOUS: &str = "previous";
const OLD: &str = "old";
const SHADOW: &str = "shadow";
const OFFLOADS: &str = "offloads";
const COMPANION: &str = "companion";
const BRIDGE: &str = "bridge";
const POLICY: &str = "policy";

/// The directories of one interface.
#[derive(Debug, Clone)]
pub struct Places {
    pub current: PathBuf,
    pub new: PathBuf,
    pub previous: PathBuf,
    old: PathBuf,
    pub shadow: PathBuf,
    /// What is switched off on interfaces for as long as there is an attachment, whichever program runs.
    pub offloads: PathBuf,
    /// Likewise of the program at TC.
    pub companion: PathBuf,
    /// What judges packets while one program takes the place of another at XDP.
    pub bridge: PathBuf,
    /// A policy on its way into the maps.
    pub policy: PathBuf,
}

impl Places {
    /// current : the interface's directory.
    pub fn of(current: &Path) -> Self {
        let beside = |what: &str| {
            let mut name = current.as_os_str().to_os_string();
            name.push(BESIDE);
            name.push(what);
            PathBuf::from(name)
        };
        Self {
            current: current.to_path_buf(),
            new: beside(NEW),
            previous: beside(PREVIOUS),
            old: beside(OLD),
            shadow: beside(SHADOW),
            offloads: beside(OFFLOADS),
            companion: beside(COMPANION),
            bridge: beside(BRIDGE),
            policy: beside(POLICY),
        }
    }

    /// In the order in which a link is looked for.
    fn all(&self) -> [&PathBuf; 5] {
        [&self.current, &self.new, &self.previous, &self.old, &self.bridge]
    }

    /// Whether there is any of them.
    pub fn exist(&self) -> bool {
        self.all().into_iter().chain([&self.shadow, &self.policy]).any(|place| place.is_dir())
    }

    /// Looks for the link and for what it runs.
    pub fn find(&self) -> io::Result<Contents> {
        let mut links = Vec::new();
        for place in self.all() {
            let Some(link) = objects::open_pin_if_there(&place.join(pinned::LINK))? else { continue };
            let Some(info) = link::info(link.as_fd())? else { continue };
            links.push((link, info, place.clone()));
        }
        // Two only if a program moves to another plane, where the new one is attached before the old one is taken off.
        let is_live = |(_, info, _): &(_, LinkInfo, _)| info.port.is_some();
        let newest = links.iter().position(|link| is_live(link) && link.2 == self.new);
        let live = newest.or_else(|| links.iter().position(is_live)).unwrap_or(0);
        if links.is_empty() {
            let directory = self.all().into_iter().find(|place| place.is_dir()).unwrap_or(&self.current);
            return Ok(Contents {
                link: None,
                others: Vec::new(),
                directory: directory.clone(),
                shadowed: false,
            });
        }
        let (link, info, holder) = links.swap_remove(live);
        let others = links.into_iter().map(|(link, _, _)| link).collect();
        let mut directory = holder.clone();
        for place in self.all() {
            if program_id(&place.join(pinned::PROGRAM))? == Some(info.program_id) {
                directory.clone_from(place);
            }
        }
        let shadowed = program_id(&self.shadow.join(pinned::PROGRAM))? == Some(info.program_id);
        if shadowed {
            directory.clone_from(&self.current);
        }
        Ok(Contents { link: Some((link, info, holder)), others, directory, shadowed })
    }

    /// The link of the other direction.
    pub fn outgoing(&self) -> io::Result<Option<outgoing::OutgoingLink>> {
        outgoing::find(self.all())
    }

    /// Where a program is pinned, in the form of `user_space::Pins`.
    pub fn of_program(&self, id: u32) -> Result<Vec<PathBuf>> {
        let here = self.current.display();
        for place in self.all().into_iter().chain([&self.shadow]) {
            let found = program_id(&place.join(pinned::PROGRAM));
            if found.map_err(|error| Error::other(format!("{here}: {error}")))? == Some(id) {
                let first = (place == &self.shadow).then_some(&self.current);
                return Ok([place].into_iter().chain(first).cloned().collect());
            }
        }
        Err(Error::other(format!("{here}: no pins of program {id}")))
    }

    /// Puts the directories in order: the one of what runs in its place, with the link; what ran before as `previous`; nothing
    /// else. The caller holds the lock of the root.
    pub fn tidy(&self) -> io::Result<()> {
        let Contents { link, others, directory, shadowed } = self.find()?;
        let Some((link, info, holder)) = link else {
            // Nobody ever attached it, or the link was removed by hand.
            return self.remove();
        };
        others.iter().try_for_each(|other| link::detach(other.as_fd()))?;
        if let Some(outgoing) = self.outgoing()? {
            outgoing.follow(if shadowed { &self.shadow } else { &directory }, &directory)?;
        }
        if holder != directory {
            // First what a component calls the program by: wherever its note is, that is there already, or still to follow.
            let calls = holder.join(dispatcher::CALLS);
            if calls.exists() {
                change::rename(&calls, &directory.join(dispatcher::CALLS))?;
            }
            change::rename(&holder.join(pinned::LINK), &directory.join(pinned::LINK))?;
        }
        let begins = Meta::open(&directory.join(pinned::META)).is_some_and(|meta| meta.begins);
        if [&self.new, &self.bridge].contains(&&directory) && begins {
            remove_if_there(&self.current)?;
            remove_if_there(&self.previous)?;
            remove_if_there(&self.old)?;
        }
        if directory != self.current {
            if self.current.is_dir() {
                change::rename(&self.current, &self.old)?;
            }
            change::rename(&directory, &self.current)?;
        }
        if self.old.is_dir() {
            remove_if_there(&self.previous)?;
            change::rename(&self.old, &self.previous)?;
        }
        if !shadowed {
            remove_if_there(&self.shadow)?;
        }
        remove_if_there(&self.new)?;
        remove_if_there(&self.bridge)?;
        self.finish_policy(link.as_fd())?;
        self.settle_companion()?;
        self.complete_outgoing(&info, if shadowed { &self.shadow } else { &self.current })
    }

    pub fn of_policy(&self) -> staged_policy::Places<'_> {
        staged_policy::Places { current: &self.current, policy: &self.policy, shadow: &self.shadow }
    }

    fn finish_policy(&self, link: BorrowedFd<'_>) -> io::Result<()> {
        staged_policy::finish(self.of_policy(), Some(link))
            .map_err(|error| io::Error::other(error.to_string()))
    }

    /// Has the second direction judged too, if that is yet to come. runs : the pins of what the first one runs.
    fn complete_outgoing(&self, first: &LinkInfo, runs: &Path) -> io::Result<()> {
        // Of an interface that is gone, or in another network namespace, nothing is to come.
        let (Some(port), Ok(Some(_))) = (first.port, first.plane()) else { return Ok(()) };
        let joining = Meta::open(&self.current.join(pinned::META)).map(|meta| meta.joining);
        outgoing::complete(runs, &self.current, port, joining.unwrap_or_default())
    }

    /// Makes a change with the companion in place before it, if what is to run asks for one, and gone after it, if what runs does not. The
    /// caller holds the lock of the root.
    ///
    /// asked : what the policy of what is to run leaves to it, `abi::STEER_*` bits.
    pub fn with_companion<T>(
        &self,
        interface: &str,
        asked: u32,
        joining: Joining,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if asked != 0 {
            companion::provide(&self.companion, interface, joining)?;
        }
        let done = change();
        let settled = self.settle_companion().map_err(|error| {
            Error::other(format!(
                "{interface}: the companion at {} cannot be removed: {error}",
                companion::PLANE
            ))
        });
        done.and_then(|done| settled.map(|()| done))
    }

    fn settle_companion(&self) -> io::Result<()> {
        let found = self.find()?;
        companion::settle(&self.companion, found.link.is_some().then_some(&found.directory))
    }

    /// Takes what is attached off, removes all of them, and switches on again what was switched off. The first direction goes after the
    /// second, as its link says that something is attached.
    pub fn remove(&self) -> io::Result<()> {
        self.outgoing()?.map_or(Ok(()), |outgoing| outgoing.end())?;
        for place in self.all() {
            // What cannot be read cannot be detached either: the kernel does so when its pin is gone.
            if let Ok(Some(link)) = objects::open_pin_if_there(&place.join(pinned::LINK))
                && let Ok(Some(_)) = link::info(link.as_fd())
            {
                link::detach(link.as_fd())?;
            }
        }
        companion::end(&self.companion)?;
        offloads::put_back(&self.offloads);
        let others = [&self.shadow, &self.policy];
        self.all().into_iter().chain(others).try_for_each(|place| remove_if_there(place))
    }
}

/// What the directories of an interface hold.
#[derive(Debug)]
pub struct Contents {
    /// With the directory it is pinned in. `None`: nothing is attached.
    pub link: Option<(OwnedFd, LinkInfo, PathBuf)>,
    /// Links of programs that it takes the place of.
    others: Vec<OwnedFd>,
    /// Where the maps and the memory of what runs are.
    pub directory: PathBuf,
    /// The link's program is the shadow's, which hands its packets over.
    pub shadowed: bool,
}

/// The program runs, but the pins are not where they should be.
pub fn not_tidied(places: &Places, error: &io::Error) -> Error {
    Error::other(format!("attached, but {} cannot be put in order: {error}", places.current.display()))
}

/// Puts all interfaces of a root in order. The caller holds its lock.
pub fn tidy_all(root: &Root) -> Result<()> {
    // What cannot be read is left as it is, and is no obstacle to the others.
    let directories =
        root.directories()?.into_iter().filter(|directory| Places::of(directory).find().is_ok());
    directories.into_iter().try_for_each(|directory| {
        Places::of(&directory).tidy().map_err(|error| {
            Error::other(format!("{}: cannot be put in order: {error}", directory.display()))
        })
    })
}

/// Goes on with policies whose writers died, so that what is looked at is one policy and no other.
pub fn finish_policies(root: &Root) -> Result<()> {
    let pending = |directory: &PathBuf| Places::of(directory).policy.is_dir();
    if !root.directories()?.iter().any(pending) {
        return Ok(());
    }
    let _lock = root.lock()?;
    root.directories()?.iter().filter(|directory| pending(directory)).try_for_each(|directory| {
        let places = Places::of(directory);
        let finished = places.find().and_then(|found| match found.link {
            Some((link, _, _)) if found.directory == places.current => places.finish_policy(link.as_fd()),
            // What is there is to be put in order first.
            _ => Ok(()),
        });
        finished.map_err(|error| Error::other(format!("{}: {error}", directory.display())))
    })
}

/// The number of a pinned program.
fn program_id(pin: &Path) -> io::Result<Option<u32>> {
    let Some(program) = objects::open_pin_if_there(pin)? else { return Ok(None) };
    Ok(Some(objects::program_info(program.as_fd())?.id))
}

fn remove_if_there(directory: &Path) -> io::Result<()> {
    if directory.is_dir() { pinned::remove(directory) } else { Ok(()) }
}
