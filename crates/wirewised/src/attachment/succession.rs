// SPDX-License-Identifier: Apache-2.0
//! How one program follows another on an interface. Beside its directory of pins may lie others: `::new`, a program that is being
//! made ready; `::previous`, what ran before the last swap; `::old`, what is on its way from the one to the other place; `::shadow`, a
//! second model, which has each packet before the first; `::offloads`, what is switched off for the attachment; `::companion`, a program
//! at TC beside one at XDP.
//!
//! The one moment that counts is the update of the link, which the kernel does in one step: what the link's program is, runs. The
//! directories only follow. So whoever finds them in any state, after a kill too, can tell what runs, and put the rest in order.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::attachment::companion;
use crate::attachment::names::BESIDE;
use crate::attachment::outgoing;
use crate::attachment::pins::Root;
use crate::error::{Error, Result};
use crate::interface::offloads;
use crate::kernel::objects;
use crate::kernel::pinned;
use crate::plane::Joining;
use crate::plane::link::{self, LinkInfo};

const NEW: &str = "new";
const PREVIOUS: &str = "previous";
const OLD: &str = "old";
const SHADOW: &str = "shadow";
const OFFLOADS: &str = "offloads";
const COMPANION: &str = "companion";

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
        }
    }

    /// In the order in which a link is looked for.
    fn all(&self) -> [&PathBuf; 4] {
        [&self.current, &self.new, &self.previous, &self.old]
    }

    /// Whether there is any of them.
    pub fn exist(&self) -> bool {
        self.all().into_iter().chain([&self.shadow]).any(|place| place.is_dir())
    }

    /// Looks for the link and for what it runs.
    pub fn find(&self) -> io::Result<Found> {
        let mut links = Vec::new();
        for place in self.all() {
            let Some(link) = objects::open_pin_if_there(&place.join(pinned::LINK))? else { continue };
            let Some(info) = link::info(link.as_fd())? else { continue };
            links.push((link, info, place.clone()));
        }
        // Two only if a program was moved to another plane: the first link is detached, or else was never given up.
        let live = links.iter().position(|(_, info, _)| info.port.is_some()).unwrap_or(0);
        if links.is_empty() {
            let directory = self.all().into_iter().find(|place| place.is_dir()).unwrap_or(&self.current);
            return Ok(Found { link: None, directory: directory.clone(), shadowed: false });
        }
        let (link, info, holder) = links.swap_remove(live);
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
        Ok(Found { link: Some((link, info, holder)), directory, shadowed })
    }

    /// The link of the other direction.
    pub fn outgoing(&self) -> io::Result<Option<outgoing::Found>> {
        outgoing::find(self.all())
    }

    /// Where a program is pinned; `None`: nowhere here.
    pub fn of_program(&self, id: u32) -> io::Result<Option<PathBuf>> {
        for place in self.all().into_iter().chain([&self.shadow]) {
            if program_id(&place.join(pinned::PROGRAM))? == Some(id) {
                return Ok(Some(place.clone()));
            }
        }
        Ok(None)
    }

    /// Puts the directories in order: the one of what runs in its place, with the link; what ran before as `previous`; nothing
    /// else. The caller holds the lock of the root.
    pub fn tidy(&self) -> io::Result<()> {
        let Found { link, directory, shadowed } = self.find()?;
        let Some((_, _, holder)) = link else {
            // Nobody ever attached it, or the link was removed by hand.
            return self.remove();
        };
        if let Some(outgoing) = self.outgoing()? {
            outgoing.follow(if shadowed { &self.shadow } else { &directory }, &directory)?;
        }
        if holder != directory {
            fs::rename(holder.join(pinned::LINK), directory.join(pinned::LINK))?;
        }
        if directory != self.current {
            if self.current.is_dir() {
                fs::rename(&self.current, &self.old)?;
            }
            fs::rename(&directory, &self.current)?;
        }
        if self.old.is_dir() {
            remove_if_there(&self.previous)?;
            fs::rename(&self.old, &self.previous)?;
        }
        if !shadowed {
            remove_if_there(&self.shadow)?;
        }
        remove_if_there(&self.new)?;
        self.settle_companion()
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

    /// Gives up what ran before.
    pub fn forget_previous(&self) -> io::Result<()> {
        remove_if_there(&self.previous)
    }

    /// Removes all of them, and switches on again what was switched off. The link is to be detached before; those of the other direction and
    /// of the companion go here.
    pub fn remove(&self) -> io::Result<()> {
        self.outgoing()?.map_or(Ok(()), |outgoing| outgoing.end())?;
        companion::end(&self.companion)?;
        offloads::put_back(&self.offloads);
        self.all().into_iter().chain([&self.shadow]).try_for_each(|place| remove_if_there(place))
    }
}

/// What the directories of an interface hold.
#[derive(Debug)]
pub struct Found {
    /// With the directory it is pinned in. `None`: nothing is attached.
    pub link: Option<(OwnedFd, LinkInfo, PathBuf)>,
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

/// The number of a pinned program.
fn program_id(pin: &Path) -> io::Result<Option<u32>> {
    let Some(program) = objects::open_pin_if_there(pin)? else { return Ok(None) };
    Ok(Some(objects::program_info(program.as_fd())?.id))
}

fn remove_if_there(directory: &Path) -> io::Result<()> {
    if directory.is_dir() { pinned::remove(directory) } else { Ok(()) }
}
