// SPDX-License-Identifier: Apache-2.0
//! The second direction of an attachment: its program once more, for what the host sends, at TC. It uses the same maps, so both directions
//! of a flow meet in one table. Its pins are in a directory of their own beside those of the first.
//!
//! What the first direction's link runs, is attached; this link follows it (`succession.rs`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::MapCore;

use crate::abi;
use crate::abi::maps::{is_shared_by_loads, variable};
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::kernel::change;
use crate::kernel::objects;
use crate::kernel::pinned;
use crate::object::{Loaded, Opened, no_data_path};
use crate::plane::link::{self, LinkInfo};
use crate::plane::{Filter, Joining, Plane, Port};

/// Where outgoing packets are judged.
pub const PLANE: Plane = Plane::TC_EGRESS;

/// Where the pins are. beside : those of the first direction.
pub fn directory(beside: &Path) -> PathBuf {
    beside.join("outgoing")
}

/// Loads the program of a bundle for this direction, beside what is loaded.
pub fn load(bundle: &Bundle, loaded: &Loaded, input: &str) -> Result<Loaded> {
    let config = loaded.config.ok_or_else(|| no_data_path(input))?;
    let mut opened = Opened::open(input, &bundle.object)?;
    // What passes on its way out goes on to nobody: a program for XDP could not be called here.
    opened.prepare_as(abi::Config { hook: abi::Hook::TcEgress.code(), next: 0, ..config })?;
    for map in loaded.maps() {
        let name = map.name().to_string_lossy();
        if is_shared_by_loads(&name) {
            opened.share(variable(&name), &map)?;
        }
    }
    opened.load()
}

/// Whether the program is pinned, but its link is not, or tells of a filter that is yet to come. home : the pins of the first direction.
pub fn is_awaited(home: &Path) -> io::Result<bool> {
    if !directory(home).join(pinned::PROGRAM).exists() {
        return Ok(false);
    }
    let Some(link) = objects::open_pin_if_there(&directory(home).join(pinned::LINK))? else {
        return Ok(true);
    };
    Ok(Filter::open(link.as_fd())?.is_some_and(|filter| filter.info().port.is_none()))
}

/// Attaches it if it is awaited: comes after the first direction, whose link says that something is attached. home : the pins of the first
/// direction, runs : those of what it runs.
pub fn complete(runs: &Path, home: &Path, port: Port, joining: Joining) -> io::Result<()> {
    if !is_awaited(home)? {
        return Ok(());
    }
    let pin = directory(home).join(pinned::LINK);
    if let Some(half) = objects::open_pin_if_there(&pin)? {
        link::detach(half.as_fd())?;
        change::remove_file(&pin)?;
    }
    let program = objects::open_pin(&directory(runs).join(pinned::PROGRAM))?;
    PLANE.attach_pinned(program.as_fd(), port, joining, &pin)
}

/// A link that was found.
#[derive(Debug)]
pub struct OutgoingLink {
    link: OwnedFd,
    pub info: LinkInfo,
    /// The directory of the first direction beside which it is pinned.
    beside: PathBuf,
}

/// The link, if one is pinned beside any of these.
pub fn find<'a>(places: impl IntoIterator<Item = &'a PathBuf>) -> io::Result<Option<OutgoingLink>> {
    for place in places {
        let pin = directory(place).join(pinned::LINK);
        let Some(link) = objects::open_pin_if_there(&pin)? else { continue };
        if let Some(info) = link::info(link.as_fd())? {
            return Ok(Some(OutgoingLink { link, info, beside: place.clone() }));
        }
    }
    Ok(None)
}

impl OutgoingLink {
    /// Runs what is pinned beside `runs`, and has the link pinned beside `home`. Nothing is there: this direction ends.
    pub fn follow(&self, runs: &Path, home: &Path) -> io::Result<()> {
        let pin = directory(&self.beside).join(pinned::LINK);
        let program = directory(runs).join(pinned::PROGRAM);
        let Some(program) = objects::open_pin_if_there(&program)? else {
            self.end()?;
            return change::remove_file(&pin);
        };
        let wanted = objects::program_info(program.as_fd())?.id;
        if self.info.port.is_some() && self.info.program_id != wanted {
            link::update(self.link.as_fd(), program.as_fd())?;
        }
        if self.beside == home { Ok(()) } else { change::rename(&pin, &directory(home).join(pinned::LINK)) }
    }

    /// Takes the program off the interface, also one that is half attached. Its pins stay.
    pub fn end(&self) -> io::Result<()> {
        link::detach(self.link.as_fd())
    }
}

/// What cannot be judged in both directions.
pub fn check(plane: Plane) -> Result<()> {
    if plane == PLANE {
        return Err(Error::input(format!("--outgoing: `--plane {plane}` judges outgoing packets already")));
    }
    if plane.is_in_user_space() {
        return Err(Error::input(format!(
            "--outgoing is for planes in the kernel, not for `--plane {plane}`; with `--to NAME` that one judges both directions \
             between two interfaces"
        )));
    }
    Ok(())
}
