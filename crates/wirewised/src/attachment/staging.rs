// SPDX-License-Identifier: Apache-2.0
//! A program that is loaded and pinned, but runs nowhere yet.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use libbpf_rs::MapCore;

use crate::abi::maps::{MAPS, Value, is_shared_by_loads, variable};
use crate::attachment::next::{self, Next};
use crate::attachment::outgoing;
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::kernel::change;
use crate::kernel::note;
use crate::kernel::objects;
use crate::kernel::pinned::{self, Provisional};
use crate::object::{Loaded, Opened};
use crate::plane::Plane;
use crate::reading::meta::Meta;

/// Loads a bundle's object, for what the host sends too if that is wanted, and checks that its flow tables are what the manifest says. next :
/// the program that what passes goes on to, if the object was prepared for one.
pub fn load(opened: Opened, bundle: &Bundle, outgoing_too: bool, next: Option<Next>) -> Result<Loaded> {
    let input = opened.input().to_owned();
    next.as_ref().map_or(Ok(()), |next| next.check_room(&opened, 0))?;
    opened.check_dispatched()?;
    let mut loaded = opened.load()?;
    let flow = &bundle.manifest.flow;
    for table in MAPS {
        if let Value::Bucket(by, ip_version) = table.value
            && let Some(map) = loaded.map(table.name)
            && flow.bucket_bytes(by, ip_version) != Some(map.value_size())
        {
            return Err(Error::input(format!(
                "the bundle's manifest and program disagree about the entries of {}; compile the model again",
                table.name
            )));
        }
    }
    next.map_or(Ok(()), |next| next.follow(&mut loaded))?;
    if outgoing_too {
        loaded.outgoing = Some(Box::new(outgoing::load(bundle, &loaded, &input)?));
    }
    Ok(loaded)
}

/// Pins program and maps in a new directory, which goes again unless the result is kept.
pub fn pin(loaded: &Loaded, directory: &Path) -> Result<Provisional> {
    let provisional = Provisional::create(directory)?;
    pin_as(loaded, directory, |name| name.starts_with("ww_"))?;
    if let Some(second) = &loaded.outgoing {
        let directory = outgoing::directory(directory);
        Provisional::create(&directory)?.keep();
        pin_as(second, &directory, |name| name.starts_with("ww_") && !is_shared_by_loads(name))?;
    }
    Ok(provisional)
}

fn pin_as(loaded: &Loaded, directory: &Path, is_pinned: impl Fn(&str) -> bool) -> Result<()> {
    let pin = |object: BorrowedFd<'_>, name: &str| {
        objects::pin(object, &directory.join(name))
            .map_err(|error| Error::other(format!("cannot pin {}/{name}: {error}", directory.display())))
    };
    for map in loaded.maps() {
        let name = map.name().to_string_lossy();
        let name = variable(&name);
        if is_pinned(name) {
            pin(map.as_fd(), name)?;
        }
    }
    if let Some(next) = &loaded.next {
        pin(next.as_fd(), next::PIN)?;
    }
    pin(loaded.entry()?.as_fd(), pinned::PROGRAM)
}

/// Keeps the object with the pins where its packets are carried in user space: whoever carries them has it from there.
pub fn keep_object(directory: &Path, plane: Plane, bundle: &Bundle) -> Result<()> {
    if plane.carried().is_none() {
        return Ok(());
    }
    let pin = directory.join(pinned::OBJECT);
    objects::pin(note::of_bytes(&bundle.object)?.as_fd(), &pin)
        .map_err(|error| Error::other(format!("cannot pin {}: {error}", pin.display())))
}

/// Writes what an attachment remembers, in one step. A map keeps its size, so it is a new one that takes the old one's name.
pub fn remember(directory: &Path, meta: &Meta) -> Result<()> {
    let (pin, new) = (directory.join(pinned::META), directory.join("meta-new"));
    let _ = change::remove_file(&new);
    let replaced = objects::pin(meta.to_map()?.as_fd(), &new).and_then(|()| change::rename(&new, &pin));
    replaced.map_err(|error| Error::other(format!("{}: {error}", pin.display())))
}
