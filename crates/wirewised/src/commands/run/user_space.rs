// SPDX-License-Identifier: Apache-2.0
//! What `run` does where this process carries the packets itself.

use std::os::fd::AsFd;
use std::sync::Arc;

use crate::abi::Mode;
use crate::attachment::Attachment;
use crate::attachment::detach::detach;
use crate::attachment::pins::Root;
use crate::attachment::plan::AttachRequest;
use crate::attachment::succession::Places;
use crate::error::{Error, Result};
use crate::plane::user_space::{Carrier, End, Footprint, Options, Wanted};
use crate::plane::{Drops, Note, Plane};
use crate::stop::Stop;
use crate::text::shell::quoted;

/// What only some planes take, and what they cannot do.
pub fn check(options: &Options, request: &AttachRequest) -> Result<()> {
    let plane = request.plane;
    options.check(plane)?;
    let forwards = plane.carried().is_some() && plane.abilities().drops == Drops::Forwarding;
    let current = Attachment::find(&request.root, Some(&request.interface)).ok();
    let carrier = current.and_then(|current| current.carrier()).filter(|carrier| carrier.is_alive);
    if let Some(carrier) = &carrier
        && (options.to().is_some() && options.to() != carrier.to.as_deref() || options.workers().is_some())
    {
        return Err(Error::input(format!(
            "{}: process {} carries its packets already, with its own --to and --workers; `wirewised detach --interface {}` ends it",
            request.interface,
            carrier.process,
            quoted(&request.interface)
        )));
    }
    let to = options.to().or(carrier.as_ref().and_then(|carrier| carrier.to.as_deref()));
    if forwards && to.is_none() && request.mode == Some(Mode::Enforce) {
        if plane.names_device(&request.interface) {
            return Err(Error::input(format!(
                "--mode enforce with --plane {plane}: what comes in by {} goes nowhere, so there is nothing to keep from anybody; \
                 give a second device or interface with `--to NAME`",
                request.interface
            )));
        }
        return Err(Error::input(format!(
            "--mode enforce with --plane {plane}: it sees copies of packets, so it can drop none of them; give a second interface \
             with `--to NAME`, between which and the first it is the only way, or take a plane in the kernel"
        )));
    }
    options.check_to(plane, &request.interface)
}

/// What carrying packets will take of memory; `None`: the kernel does it.
pub fn footprint(wanted: &Wanted<'_>, plane: Plane) -> Result<Option<Footprint>> {
    plane.carried().map(|carried| carried.footprint(wanted)).transpose()
}

/// Begins to carry packets, if the attachment is one whose packets this process carries.
pub fn start(
    wanted: &Wanted<'_>,
    root: &Root,
    attachment: &Attachment,
    plane: Plane,
    stop: &Stop,
) -> Result<Option<Carrier>> {
    let Some(note) = ours(attachment)? else { return Ok(None) };
    let places = Places::of(&attachment.directory);
    let started = attachment.shards().and_then(|shards| {
        let wanted = Wanted { interface: &attachment.interface, most_workers: shards, ..*wanted };
        Carrier::start(&note, Box::new(move |program| places.of_program(program)), plane, &wanted, stop)
    });
    if started.is_err() {
        note.ended();
        detach(root, &attachment.interface, false)?;
    }
    started.map(Some)
}

/// The note of an attachment whose packets this process is to carry; `None`: somebody else's, or the kernel's.
fn ours(attachment: &Attachment) -> Result<Option<Arc<Note>>> {
    let Some((link, _)) = &attachment.link else { return Ok(None) };
    let note = Note::open(link.as_fd())
        .map_err(|error| Error::other(format!("{}: cannot read its link: {error}", attachment.interface)))?;
    Ok(note.filter(|note| note.process() == std::process::id()).map(Arc::new))
}

/// Waits until no more packets are carried, and leaves nothing behind.
pub fn end(carrier: Carrier, root: &Root, interface: &str) -> Result<()> {
    let end = carrier.join();
    // Who detached it removes the pins.
    if end != Ok(End::Detached) {
        detach(root, interface, false)?;
    }
    end.map(drop)
}
