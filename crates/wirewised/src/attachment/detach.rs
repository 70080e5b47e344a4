// SPDX-License-Identifier: Apache-2.0
//! Takes what runs off an interface, with all it left: also what an agent that was killed half-way left, and what cannot be read.

use serde::Serialize;

use crate::attachment::followed;
use crate::attachment::pins::Root;
use crate::attachment::succession::Places;
use crate::attachment::{Attachment, Listing, Unreadable};
use crate::error::{Error, Result};
use crate::interface::offloads::{self, Merging};

/// What was removed, or would be.
#[derive(Debug, Serialize)]
pub struct Detached {
    pub interface: String,
    pub dry_run: bool,
    pub program_ids: Vec<u32>,
    pub pins: Vec<String>,
    /// What is switched on again.
    pub offloads: Vec<Merging>,
    /// The pin of somebody else's program that came next, and is attached nowhere then.
    pub next: Option<String>,
}

pub fn detach(root: &Root, interface: &str, dry_run: bool) -> Result<Detached> {
    // Taking the lock makes the directory, which a failing command must not.
    let _lock = if root.directories()?.is_empty() { None } else { Some(root.lock()?) };
    // What an agent that was killed half-way left is removed too.
    let Listing { attachments, unreadable } = Attachment::all(root)?;
    let found = Attachment::of_interface(attachments, interface);
    if let (true, Some(unreadable)) =
        (found.is_empty(), unreadable.iter().find(|it| it.interface == interface))
    {
        return remove_unreadable(unreadable, dry_run);
    }
    if found.is_empty() {
        let gone = || Error::other("it went away meanwhile");
        return Err(Attachment::find(root, Some(interface)).err().unwrap_or_else(gone));
    }
    let done = Detached {
        interface: interface.to_string(),
        dry_run,
        program_ids: found.iter().filter_map(|found| Some(found.link.as_ref()?.1.program_id)).collect(),
        pins: found.iter().map(|found| found.directory.display().to_string()).collect(),
        offloads: found
            .iter()
            .flat_map(|found| offloads::read(&Places::of(&found.directory).offloads))
            .collect(),
        next: found.iter().find_map(|found| followed::status(found).ok()?).map(|next| next.path),
    };
    for Attachment { directory, .. } in found.into_iter().filter(|_| !dry_run) {
        Places::of(&directory)
            .remove()
            .map_err(|error| Error::other(format!("{}: cannot be removed: {error}", directory.display())))?;
    }
    Ok(done)
}

/// Removes the pins of what cannot be read. Nothing else keeps its program.
fn remove_unreadable(unreadable: &Unreadable, dry_run: bool) -> Result<Detached> {
    let Unreadable { directory, interface, .. } = unreadable;
    let places = Places::of(directory);
    let offloads = offloads::read(&places.offloads);
    if !dry_run {
        places
            .remove()
            .map_err(|error| Error::other(format!("{}: cannot be removed: {error}", directory.display())))?;
    }
    let pins = vec![directory.display().to_string()];
    Ok(Detached {
        interface: interface.clone(),
        dry_run,
        program_ids: Vec::new(),
        pins,
        offloads,
        next: None,
    })
}
