// SPDX-License-Identifier: Apache-2.0
//! Puts a bundle on an interface: does what the plan (`plan.rs`) says, so that a failure, or a kill, at any moment leaves
//! what was there before.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::attachment::Attachment;
use crate::attachment::bridge::bridge;
use crate::attachment::companion;
use crate::attachment::displaced::Displaced;
use crate::attachment::next;
use crate::attachment::outgoing;
use crate::attachment::plan::{AttachPlan, AttachRequest, directory};
use crate::attachment::policy_change;
use crate::attachment::ready::{Prepared, stage};
use crate::attachment::staging;
use crate::attachment::succession::{Places, not_tidied};
use crate::attachment::swap::{self, SwapRequest};
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::interface::offloads::{self, SwitchedOff};
use crate::kernel::change;
use crate::kernel::objects;
use crate::kernel::pinned;
use crate::object::Loaded;
use crate::plane::{self, Attached, Plane, Port, link};

/// Does what the plan says. The caller holds the lock of the root.
pub fn execute(request: &AttachRequest, plan: AttachPlan, prepared: Prepared) -> Result<Attachment> {
    match plan {
        AttachPlan::Adopt(ours) => adopt(request, ours),
        AttachPlan::Reload(ours) => reload(request, ours),
        AttachPlan::Attach { displaced } => attach(request, displaced, prepared),
        AttachPlan::Replace(ours) | AttachPlan::Reattach(ours, _) => replace(request, ours, prepared),
    }
}

/// Only policy and mode may change.
fn adopt(request: &AttachRequest, ours: Attachment) -> Result<Attachment> {
    let places = Places::of(&ours.directory);
    let switched = switch_offloads(request, &places)?;
    let policy = request.policy.as_ref().map(|(file, policy)| (file.as_path(), policy));
    let asked = match policy {
        Some((_, policy)) => request.plane.by_companion(policy.steering_kinds()),
        None => request.plane.by_companion(ours.element()?.steering()),
    };
    let change = || policy_change::change(&ours, policy, request.mode);
    places.with_companion(&request.interface, asked, request.joining, change)?;
    if let Some(switched) = switched {
        switched.keep();
    }
    Attachment::open(&ours.directory)
}

/// Puts the bundle in the place of what is attached.
fn replace(request: &AttachRequest, ours: Attachment, prepared: Prepared) -> Result<Attachment> {
    let places = Places::of(&ours.directory);
    let config = prepared.config;
    let loaded = load(request, prepared)?;
    let staged = stage(request, &loaded, &config, &places.new)?;
    let switched = switch_offloads(request, &places)?;
    with_companion(request, &places, || {
        exchange(request, &ours, &loaded, &places)?;
        if let Some(switched) = switched {
            switched.keep();
        }
        staged.keep();
        places.tidy().map_err(|error| not_tidied(&places, &error))
    })?;
    // XDP at one end of a veth pair keeps the other from merging, so some of it shows only now.
    if let Some(switched) = switch_offloads(request, &places)? {
        switched.keep();
    }
    Attachment::open(&ours.directory)
}

/// The same bundle once more, able to do what the new policy asks for; `rollback` brings back what ran, with its policy.
fn reload(request: &AttachRequest, ours: Attachment) -> Result<Attachment> {
    let places = Places::of(&ours.directory);
    let switched = switch_offloads(request, &places)?;
    let swap = SwapRequest {
        ours,
        bundle: request.bundle.clone(),
        bundle_file: request.bundle_file.clone(),
        policy: request.policy.clone(),
        mode: request.mode,
        reset_flows: false,
        shadow: None,
    };
    let plan = swap::plan(&swap)?;
    let loaded = swap::load(&swap, &plan)?;
    let attachment = swap::execute(&swap, &plan, &loaded)?;
    if let Some(switched) = switched {
        switched.keep();
    }
    Ok(attachment)
}

fn attach(request: &AttachRequest, displaced: Option<Attached>, prepared: Prepared) -> Result<Attachment> {
    let directory = directory(request)?;
    let config = prepared.config;
    let loaded = load(request, prepared)?;
    // What an agent that was killed, or an interface that went away, left behind.
    let places = Places::of(&directory);
    places.remove().map_err(|error| Error::other(format!("{}: {error}", directory.display())))?;
    let staged = stage(request, &loaded, &config, &directory)?;
    let port = request.plane.port(&request.interface)?;
    let switched = switch_offloads(request, &places)?;
    with_companion(request, &places, || {
        let bridge = displaced.map(|_| bridge(request, &places, port)).transpose()?;
        let displaced = take_off(displaced, port)?;
        let link = directory.join(pinned::LINK);
        let attached = request
            .plane
            .attach_pinned(loaded.entry()?.as_fd(), port, request.joining, &link)
            .map_err(|error| request.plane.attach_error(&request.interface, &error))
            .and_then(|()| attach_outgoing(request, port, &directory).inspect_err(|_| take_back(&link)));
        drop(bridge);
        attached.map_err(|failure| put_back(displaced, failure))
    })?;
    if let Some(switched) = switched {
        switched.keep();
    }
    staged.keep();
    Attachment::open(&directory)
}

fn load(request: &AttachRequest, prepared: Prepared) -> Result<Loaded> {
    let next = request.policy.as_ref().map(|(_, policy)| next::of_policy(policy, request.plane));
    staging::load(prepared.opened, &request.bundle, request.outgoing, next.transpose()?.flatten())
}

/// Only interfaces have programs of others.
fn take_off(displaced: Option<Attached>, port: Port) -> Result<Option<(Displaced, u32)>> {
    let taken = displaced.zip(port.index());
    taken.map(|(attached, ifindex)| Ok((Displaced::remove(attached, ifindex)?, ifindex))).transpose()
}

/// After a failure.
fn put_back(displaced: Option<(Displaced, u32)>, failure: Error) -> Error {
    match displaced.map(|(displaced, ifindex)| displaced.restore(ifindex)) {
        Some(Err(restore)) => {
            Error::other(format!("{failure}; what was attached before could not be put back: {restore}"))
        }
        _ => failure,
    }
}

fn take_back(link: &Path) {
    let _ = objects::open_pin(link).and_then(|link| link::detach(link.as_fd()));
}

/// Makes a change with the companion that the request's policy asks for.
fn with_companion(
    request: &AttachRequest,
    places: &Places,
    change: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let asked = companion::asked(request.plane, request.policy.as_ref().map(|(_, policy)| policy));
    places.with_companion(&request.interface, asked, request.joining, change)
}

/// Attaches the program of the other direction, if there is to be one.
fn attach_outgoing(request: &AttachRequest, port: Port, directory: &Path) -> Result<()> {
    outgoing::complete(directory, directory, port, request.joining)
        .map_err(|error| outgoing::PLANE.attach_error(&request.interface, &error))
}

/// Switches off what merges packets, if that is asked for; on again, if what follows fails.
fn switch_offloads<'a>(request: &AttachRequest, places: &'a Places) -> Result<Option<SwitchedOff<'a>>> {
    if !request.offloads_off {
        return Ok(None);
    }
    let directions: Vec<_> = request
        .planes()
        .map(Plane::abilities)
        .filter(|plane| plane.sees_merged)
        .map(|plane| plane.direction)
        .collect();
    offloads::switch_off(netdev::index(&request.interface)?, &directions, &places.offloads).map(Some)
}

/// Puts the loaded program in the place of ours. On another plane it is attached before ours is taken off, unless both would be at XDP.
fn exchange(request: &AttachRequest, ours: &Attachment, loaded: &Loaded, places: &Places) -> Result<()> {
    let failed = |error: io::Error| request.plane.attach_error(&request.interface, &error);
    let gone = || Error::other("the attachment went away meanwhile");
    let (link, info) = ours.link.as_ref().ok_or_else(gone)?;
    let port = info.port.ok_or_else(gone)?;
    let entry = loaded.entry()?;
    let obtained = info.plane().map_err(failed)?;
    let Some(obtained) = obtained.filter(|obtained| *obtained != request.plane) else {
        return link::update(link.as_fd(), entry.as_fd()).map_err(failed);
    };
    let new = places.new.join(pinned::LINK);
    let attach = || request.plane.attach_pinned(entry.as_fd(), port, request.joining, &new);
    if !obtained.excludes(request.plane) {
        // Where an agent was killed that took the place of another's program.
        let in_the_way = plane::attached_to(port).map_err(failed)?.into_iter();
        let displaced = in_the_way
            .filter(|it| it.program_id != info.program_id && request.joining.priority.is_none())
            .find(|it| it.plane.is_in_the_way_of(request.plane));
        let displaced = take_off(displaced, port)?;
        attach().map_err(|error| put_back(displaced, failed(error)))?;
        return link::detach(link.as_fd()).map_err(failed);
    }
    let _bridge = bridge(request, places, port)?;
    let (old_pin, old_program) = (ours.directory.join(pinned::LINK), ours.directory.join(pinned::PROGRAM));
    let old_program = objects::open_pin(&old_program).map_err(failed)?;
    link::detach(link.as_fd()).map_err(failed)?;
    attach().map_err(|error| {
        let restored = change::remove_file(&old_pin)
            .and_then(|()| obtained.attach_pinned(old_program.as_fd(), port, request.joining, &old_pin));
        match restored {
            Ok(()) => failed(error),
            Err(restore) => {
                Error::other(format!("{}; the old program is gone too: {restore}", failed(error)))
            }
        }
    })
}
