// SPDX-License-Identifier: Apache-2.0
//! Puts a bundle on an interface: does what the plan (`plan.rs`) says, so that a failure, or a kill, at any moment leaves
//! what was there before.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use crate::abi::{self, Mode};
use crate::attachment::Attachment;
use crate::attachment::companion;
use crate::attachment::displaced::Displaced;
use crate::attachment::forwarding;
use crate::attachment::outgoing;
use crate::attachment::plan::{AttachPlan, AttachRequest, directory};
use crate::attachment::staging;
use crate::attachment::succession::{Places, not_tidied};
use crate::attachment::swap::{self, SwapRequest};
use crate::bundle::manifest::Sharing;
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::interface::offloads::{self, SwitchedOff};
use crate::kernel;
use crate::kernel::objects;
use crate::kernel::pinned::{self, Provisional};
use crate::object::policy_maps;
use crate::object::{Loaded, Opened, Settings};
use crate::plane::{Attached, Plane, link};
use crate::policy::Policy;
use crate::running::Running;
use crate::running::meta::{Meta, PolicyMeta};

/// The object of a request, ready to be loaded.
#[derive(Debug)]
pub struct Prepared {
    opened: Opened,
    config: abi::Config,
    pub shards: u32,
    pub sharing: Sharing,
    /// Entries: of all CPUs together if they share the tables, else of each.
    pub table_size: u32,
    /// Bytes of both flow tables.
    pub table_bytes: u64,
}

pub fn prepare(request: &AttachRequest) -> Result<Prepared> {
    let manifest = &request.bundle.manifest;
    let mut opened = Opened::open(&request.bundle_file.display().to_string(), &request.bundle.object)?;
    let kinds = request.policy.as_ref().map_or(0, |(_, policy)| policy.steering_kinds());
    let steer = request.plane.loads_for(kinds);
    let settings =
        Settings { table_size: request.table_size, steer, ..Settings::live(request.plane.runs())? };
    opened.prepare(&settings)?;
    forwarding::join(&mut opened, request.root.path())?;
    let config = *opened.config().ok_or_else(|| {
        Error::input(format!(
            "{}: the object has no ww_config, so it is no data path",
            request.bundle_file.display()
        ))
    })?;
    let table_size = (config.bucket_mask + 1) * abi::WAYS;
    let entry = u64::from(manifest.flow.entry4_size) + u64::from(manifest.flow.entry6_size);
    let sharing = manifest.flow.sharing;
    let tables = if sharing == Sharing::Shared { 1 } else { settings.shards };
    let aggregates = manifest.flow.aggregates.iter().map(|aggregate| {
        u64::from(aggregate.table_size) * u64::from(aggregate.entry4_size + aggregate.entry6_size)
    });
    let table_bytes = u64::from(table_size) * u64::from(tables) * entry + aggregates.sum::<u64>();
    Ok(Prepared { opened, config, shards: settings.shards, sharing, table_size, table_bytes })
}

/// Does what the plan says. The caller holds the lock of the root.
pub fn execute(request: &AttachRequest, plan: AttachPlan, prepared: Prepared) -> Result<Attachment> {
    let ours = match plan {
        AttachPlan::Adopt(ours) => {
            let places = Places::of(&ours.directory);
            let switched = switch_offloads(request, &places)?;
            let policy = request.policy.as_ref().map(|(file, policy)| (file.as_path(), policy));
            let asked = match policy {
                Some((_, policy)) => request.plane.by_companion(policy.steering_kinds()),
                None => request.plane.by_companion(ours.policy()?.steering()),
            };
            let change = || ours.change_policy(policy, request.mode);
            places.with_companion(&request.interface, asked, request.joining, change)?;
            if let Some(switched) = switched {
                switched.keep();
            }
            return Attachment::open(&ours.directory);
        }
        AttachPlan::Reload(ours) => return reload(request, ours),
        AttachPlan::Attach { displaced } => return attach(request, displaced, prepared),
        AttachPlan::Replace(ours) | AttachPlan::Reattach(ours, _) => ours,
    };
    let places = Places::of(&ours.directory);
    let loaded = staging::load(prepared.opened, &request.bundle, request.outgoing)?;
    let staged = stage(request, &loaded, &prepared.config, &places.new)?;
    let switched = switch_offloads(request, &places)?;
    if ours.outgoing.is_none() {
        attach_outgoing(request, &loaded, &places.new)?;
    }
    with_companion(request, &places, || {
        exchange(request, &ours, &loaded, &places.new)?;
        if let Some(switched) = switched {
            switched.keep();
        }
        staged.keep();
        places.tidy().and_then(|()| places.forget_previous()).map_err(|error| not_tidied(&places, &error))
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
    let loaded = staging::load(prepared.opened, &request.bundle, request.outgoing)?;
    // What an agent that was killed, or an interface that went away, left behind.
    let places = Places::of(&directory);
    places.remove().map_err(|error| Error::other(format!("{}: {error}", directory.display())))?;
    let staged = stage(request, &loaded, &prepared.config, &directory)?;
    let port = request.plane.port(&request.interface)?;
    let switched = switch_offloads(request, &places)?;
    // Before the first, whose link says that something is attached.
    attach_outgoing(request, &loaded, &directory)?;
    // Only interfaces have programs of others.
    let displaced = displaced.zip(port.index());
    with_companion(request, &places, || {
        let displaced = displaced
            .map(|(attached, ifindex)| Displaced::remove(attached, ifindex).map(|it| (it, ifindex)))
            .transpose()?;
        let attached = request
            .plane
            .attach(loaded.entry()?.as_fd(), port, request.joining)
            .and_then(|link| objects::pin(link.as_fd(), &directory.join(pinned::LINK)));
        let Err(error) = attached else { return Ok(()) };
        let failure = request.plane.attach_error(&request.interface, &error);
        match displaced.map(|(displaced, ifindex)| displaced.restore(ifindex)) {
            Some(Err(restore)) => Err(Error::other(format!(
                "{failure}; what was attached before could not be put back: {restore}"
            ))),
            _ => Err(failure),
        }
    })?;
    if let Some(switched) = switched {
        switched.keep();
    }
    staged.keep();
    Attachment::open(&directory)
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
fn attach_outgoing(request: &AttachRequest, loaded: &Loaded, directory: &Path) -> Result<()> {
    let Some(second) = &loaded.outgoing else { return Ok(()) };
    let ifindex = netdev::index(&request.interface)?;
    outgoing::attach(second, &request.interface, ifindex, request.joining, directory)
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

/// Pins everything but a link, and writes the policy. All of it is gone again if the result is dropped.
fn stage(
    request: &AttachRequest,
    loaded: &Loaded,
    config: &abi::Config,
    directory: &Path,
) -> Result<Provisional> {
    let provisional = staging::pin(loaded, directory)?;
    staging::keep_object(directory, request.plane, &request.bundle)?;
    let all_pass = Policy::all_pass(&request.bundle.manifest.classes);
    let (file, policy) = match &request.policy {
        Some((file, policy)) => (Some(file.as_path()), policy),
        None => (None, &all_pass),
    };
    let element = policy.to_abi(kernel::boot_ns(), request.mode.unwrap_or(Mode::Observe));
    policy_maps::write(policy, &element, |name| loaded.map(name), || Ok(()))?;
    let meta = Meta::new(
        &request.bundle,
        &request.bundle_file,
        &request.interface,
        request.plane,
        config,
        PolicyMeta::new(file, policy),
    );
    staging::remember(directory, &meta)?;
    Ok(provisional)
}

/// Puts the loaded program in the place of ours.
fn exchange(request: &AttachRequest, ours: &Attachment, loaded: &Loaded, staging: &Path) -> Result<()> {
    let failed = |error: io::Error| request.plane.attach_error(&request.interface, &error);
    let Some((link, info)) = &ours.link else {
        return Err(Error::other("the attachment went away meanwhile"));
    };
    let (old_pin, new_pin) = (ours.directory.join(pinned::LINK), staging.join(pinned::LINK));
    let old_program = objects::open_pin(&ours.directory.join(pinned::PROGRAM)).map_err(failed)?;
    let entry = loaded.entry()?;
    let port = info.port.ok_or_else(|| Error::other("the attachment went away meanwhile"))?;
    let obtained = info.plane().map_err(failed)?;
    let Some(obtained) = obtained.filter(|obtained| *obtained != request.plane) else {
        return link::update(link.as_fd(), entry.as_fd()).map_err(failed);
    };
    link::detach(link.as_fd()).map_err(failed)?;
    let attached = request
        .plane
        .attach(entry.as_fd(), port, request.joining)
        .and_then(|new| objects::pin(new.as_fd(), &new_pin));
    attached.map_err(|error| {
        let restored = fs::remove_file(&old_pin)
            .and_then(|()| obtained.attach(old_program.as_fd(), port, request.joining))
            .and_then(|old| objects::pin(old.as_fd(), &old_pin));
        match restored {
            Ok(()) => failed(error),
            Err(restore) => {
                Error::other(format!("{}; the old program is gone too: {restore}", failed(error)))
            }
        }
    })
}
