// SPDX-License-Identifier: Apache-2.0
//! Puts a bundle on an interface: decides what has to happen (`Plan`), then does it so that a failure, or a kill, at
//! any moment leaves what was there before.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::abi::{self, Mode};
use crate::attachment::{Attachment, Whereabouts};
use crate::bundle::Bundle;
use crate::doctor;
use crate::error::{Error, Result};
use crate::kernel;
use crate::limits;
use crate::manifest::Sharing;
use crate::meta::{self, Meta, PolicyMeta};
use crate::names;
use crate::netdev;
use crate::netns;
use crate::object::{Loaded, Opened, Settings};
use crate::offloads::{self, SwitchedOff};
use crate::pins::{self, Provisional, Root};
use crate::policy::Policy;
use crate::policy_maps;
use crate::staging;
use crate::succession::Places;
use crate::swap::shadow::policy_of_shadow;
use crate::xdp::{self, Attached, Plane};

#[derive(Debug)]
pub struct Request {
    pub interface: String,
    pub plane: Plane,
    /// `None`: observe, or what an adopted attachment has.
    pub mode: Option<Mode>,
    pub bundle: Bundle,
    pub bundle_file: PathBuf,
    /// `None`: everything passes, or what an adopted attachment has.
    pub policy: Option<(PathBuf, Policy)>,
    pub replace: bool,
    pub table_size: Option<u32>,
    /// Switch off what merges packets before generic XDP.
    pub offloads_off: bool,
    pub root: Root,
}

/// What `run` comes down to.
#[derive(Debug)]
pub enum Plan {
    /// Nothing is attached, or what is goes first.
    Attach { displaced: Option<Attached> },
    /// The same bundle is attached: only policy and mode may change.
    Adopt(Attachment),
    /// Ours is replaced in one step; no packet meets the interface without a program.
    Replace(Attachment),
    /// Ours has to go before the new one can come, because the plane changes.
    Reattach(Attachment, Plane),
}

/// The plane of what we have on an interface; `None` if we have nothing there.
pub fn current_plane(root: &Root, interface: &str) -> Option<Plane> {
    let ours = Attachment::find(root, Some(interface)).ok()?;
    xdp::query(ours.ifindex()?).ok()?.plane_of(ours.link.as_ref()?.1.program_id)
}

/// Looks, and changes nothing.
pub fn plan(request: &Request) -> Result<Plan> {
    let plan = choose(request)?;
    let kept = match &plan {
        Plan::Adopt(ours) => ours.meta.as_ref().is_some_and(|meta| meta.policy.file.is_some()),
        _ => false,
    };
    if request.mode == Some(Mode::Enforce) && request.policy.is_none() && !kept {
        return Err(Error::input(
            "--mode enforce needs --policy FILE: without a policy every class passes and there is nothing to \
             enforce (such as `version: 1` and `classes: {NAME: drop}`)",
        ));
    }
    Ok(plan)
}

fn choose(request: &Request) -> Result<Plan> {
    let Request { interface, replace, .. } = request;
    let ifindex = netdev::index(interface)?;
    let state = xdp::query(ifindex)
        .map_err(|error| Error::other(format!("{interface}: cannot ask what is attached: {error}")))?;
    let ours =
        Attachment::all(&request.root)?.into_iter().find(|attachment| attachment.ifindex() == Some(ifindex));
    let Some(ours) = ours else {
        return match state.attached.first() {
            Some(taken) if !replace => Err(doctor::taken(interface, *taken).to_error()),
            taken => Ok(Plan::Attach { displaced: taken.copied() }),
        };
    };
    let obtained = ours.link.as_ref().and_then(|(_, link)| state.plane_of(link.program_id));
    let difference = difference(request, &ours, obtained);
    match (difference, obtained) {
        (None, _) => Ok(Plan::Adopt(ours)),
        (Some(difference), _) if !replace => Err(Error::other(format!(
            "{interface}: wirewise is attached {difference}; `--replace` changes that"
        ))),
        (Some(_), Some(obtained)) if obtained != request.plane => Ok(Plan::Reattach(ours, obtained)),
        (Some(_), _) => Ok(Plan::Replace(ours)),
    }
}

/// Where the pins of a new attachment go: to the interface's directory, unless that is kept for an interface that had this name
/// before, or has it in another network namespace.
pub fn directory(request: &Request) -> Result<PathBuf> {
    let plain = request.root.directory(&request.interface);
    let Some(there) = Attachment::all(&request.root)?.into_iter().find(|there| there.directory == plain)
    else {
        return Ok(plain);
    };
    let index = netdev::index(&request.interface)?;
    let free = match there.whereabouts {
        Whereabouts::Here(here) => here == index,
        Whereabouts::Elsewhere => false,
        Whereabouts::Gone => there.meta.as_ref().is_none_or(Meta::is_from_here),
    };
    Ok(if free { plain } else { names::apart(&plain, index, netns::cookie()) })
}

/// How what is attached differs from what is asked for, beyond policy and mode.
fn difference(request: &Request, ours: &Attachment, obtained: Option<Plane>) -> Option<String> {
    let Some(meta) = &ours.meta else { return Some("by another version of wirewised".to_string()) };
    if meta.bundle.digest != request.bundle.digest {
        let Meta { bundle, .. } = meta;
        return Some(format!(
            "with another bundle ({}, {}): `wirewised swap` replaces it and keeps its flows",
            bundle.name,
            &bundle.digest[..12]
        ));
    }
    if let Some(obtained) = obtained.filter(|obtained| *obtained != request.plane) {
        return Some(format!("as {obtained}"));
    }
    let table_size = request.table_size.filter(|size| *size != meta.table_size);
    table_size.map(|_| format!("with flow tables of {}", meta.flow.sharing.entries(meta.table_size)))
}

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

pub fn prepare(request: &Request) -> Result<Prepared> {
    let manifest = &request.bundle.manifest;
    let mut opened = Opened::open(&request.bundle_file.display().to_string(), &request.bundle.object)?;
    let settings = Settings { table_size: request.table_size, ..Settings::live()? };
    opened.prepare(&settings)?;
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
    let table_bytes = u64::from(table_size) * u64::from(tables) * entry;
    Ok(Prepared { opened, config, shards: settings.shards, sharing, table_size, table_bytes })
}

/// Does what the plan says. The caller holds the lock of the root.
pub fn execute(request: &Request, plan: Plan, prepared: Prepared) -> Result<Attachment> {
    let ours = match plan {
        Plan::Adopt(ours) => {
            let places = Places::of(&ours.directory);
            let switched = switch_offloads(request, &places)?;
            let adopted = adopt(request, ours)?;
            if let Some(switched) = switched {
                switched.keep();
            }
            return Ok(adopted);
        }
        Plan::Attach { displaced } => return attach(request, displaced, prepared),
        Plan::Replace(ours) | Plan::Reattach(ours, _) => ours,
    };
    let places = Places::of(&ours.directory);
    let loaded = staging::load(prepared.opened, &request.bundle)?;
    let staged = stage(request, &loaded, &prepared.config, &places.new)?;
    let switched = switch_offloads(request, &places)?;
    exchange(request, &ours, &loaded, &places.new)?;
    if let Some(switched) = switched {
        switched.keep();
    }
    staged.keep();
    places.tidy().and_then(|()| places.forget_previous()).map_err(|error| not_tidied(&places, &error))?;
    Attachment::open(&ours.directory)
}

/// The program runs, but the pins are not where they should be.
pub fn not_tidied(places: &Places, error: &io::Error) -> Error {
    Error::other(format!("attached, but {} cannot be put in order: {error}", places.current.display()))
}

fn attach(request: &Request, displaced: Option<Attached>, prepared: Prepared) -> Result<Attachment> {
    let directory = directory(request)?;
    let loaded = staging::load(prepared.opened, &request.bundle)?;
    // What an agent that was killed, or an interface that went away, left behind.
    let places = Places::of(&directory);
    places.remove().map_err(|error| Error::other(format!("{}: {error}", directory.display())))?;
    let staged = stage(request, &loaded, &prepared.config, &directory)?;
    let ifindex = netdev::index(&request.interface)?;
    let switched = switch_offloads(request, &places)?;
    let displaced = displaced.map(|attached| Displaced::remove(attached, ifindex)).transpose()?;
    let attached = xdp::create_link(loaded.entry()?.as_fd(), ifindex, request.plane)
        .and_then(|link| xdp::pin(link.as_fd(), &directory.join(pins::LINK)));
    if let Err(error) = attached {
        let mut failure = attach_error(&request.interface, request.plane, &error);
        if let Some(Err(restore)) = displaced.map(|displaced| displaced.restore(ifindex)) {
            failure =
                Error::other(format!("{failure}; what was attached before could not be put back: {restore}"));
        }
        return Err(failure);
    }
    if let Some(switched) = switched {
        switched.keep();
    }
    staged.keep();
    Attachment::open(&directory)
}

/// Switches off what merges packets, if that is asked for; on again, if what follows fails.
fn switch_offloads<'a>(request: &Request, places: &'a Places) -> Result<Option<SwitchedOff<'a>>> {
    if !request.offloads_off {
        return Ok(None);
    }
    offloads::switch_off(netdev::index(&request.interface)?, &places.offloads).map(Some)
}

/// Pins everything but a link, and writes the policy. All of it is gone again if the result is dropped.
fn stage(request: &Request, loaded: &Loaded, config: &abi::Config, directory: &Path) -> Result<Provisional> {
    let provisional = staging::pin(loaded, directory)?;
    let all_pass = Policy::all_pass(&request.bundle.manifest.classes);
    let (file, policy) = match &request.policy {
        Some((file, policy)) => (Some(file.as_path()), policy),
        None => (None, &all_pass),
    };
    let element = policy.to_abi(kernel::boot_ns(), request.mode.unwrap_or(Mode::Observe));
    policy_maps::write(policy, &element, |name| loaded.map(name))?;
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
fn exchange(request: &Request, ours: &Attachment, loaded: &Loaded, staging: &Path) -> Result<()> {
    let failed = |error: io::Error| attach_error(&request.interface, request.plane, &error);
    let Some((link, info)) = &ours.link else {
        return Err(Error::other("the attachment went away meanwhile"));
    };
    let (old_pin, new_pin) = (ours.directory.join(pins::LINK), staging.join(pins::LINK));
    let old_program = xdp::open_pin(&ours.directory.join(pins::PROGRAM)).map_err(failed)?;
    let entry = loaded.entry()?;
    let obtained = xdp::query(info.ifindex).map_err(failed)?.plane_of(info.program_id);
    let Some(obtained) = obtained.filter(|obtained| *obtained != request.plane) else {
        return xdp::update_link(link.as_fd(), entry.as_fd()).map_err(failed);
    };
    xdp::detach_link(link.as_fd()).map_err(failed)?;
    let attached = xdp::create_link(entry.as_fd(), info.ifindex, request.plane)
        .and_then(|new| xdp::pin(new.as_fd(), &new_pin));
    attached.map_err(|error| {
        let restored = fs::remove_file(&old_pin)
            .and_then(|()| xdp::create_link(old_program.as_fd(), info.ifindex, obtained))
            .and_then(|old| xdp::pin(old.as_fd(), &old_pin));
        match restored {
            Ok(()) => failed(error),
            Err(restore) => {
                Error::other(format!("{}; the old program is gone too: {restore}", failed(error)))
            }
        }
    })
}

/// Gives the attachment the policy and mode that were asked for; what was not asked for stays.
fn adopt(request: &Request, ours: Attachment) -> Result<Attachment> {
    let now = kernel::boot_ns();
    let current = ours.policy()?;
    let Some(mut meta) = ours.meta.clone() else { return Ok(ours) };
    let find = |name: &str| ours.optional_map(name).ok().flatten();
    let mode = request.mode.unwrap_or_else(|| effective_mode(&current, now));
    if let Some((file, policy)) = &request.policy {
        let element = policy.to_abi(now, mode);
        policy_maps::write(policy, &element, find)?;
        limits::renew(&current, &element, find)?;
        meta.policy = PolicyMeta::new(Some(file), policy);
    } else if request.mode.is_some() {
        let until = meta.policy.enforce_for_ns.map_or(0, |duration| now.saturating_add(duration));
        let element = abi::Policy { mode: mode.code(), enforce_until_ns: until, ..current };
        policy_maps::write_element(&element, find)?;
        meta.policy.changed = meta::now();
    } else {
        return Ok(ours);
    }
    if let Some(shadow) = ours.shadow() {
        let element = policy_of_shadow(&ours.policy()?);
        policy_maps::write_element(&element, |name| shadow.optional_map(name).ok().flatten())?;
    }
    staging::remember(&ours.directory, &meta)?;
    Attachment::open(&ours.directory)
}

/// What holds now: enforcement may have run out.
pub fn effective_mode(policy: &abi::Policy, now_ns: u64) -> Mode {
    let in_time = policy.enforce_until_ns == 0 || now_ns < policy.enforce_until_ns;
    if policy.mode == Mode::Enforce.code() && in_time { Mode::Enforce } else { Mode::Observe }
}

/// A program of somebody else, taken off an interface.
struct Displaced {
    program: OwnedFd,
    plane: Plane,
}

impl Displaced {
    fn remove(attached: Attached, ifindex: u32) -> Result<Self> {
        let failed = |error: io::Error| {
            let what = format!("cannot take {} off: {error}", doctor::describe_program(attached.program_id));
            match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => Error::missing(format!(
                    "{what}; taking over another's program (and being able to put it back) needs CAP_SYS_ADMIN"
                )),
                _ => Error::other(what),
            }
        };
        let program = xdp::program_by_id(attached.program_id).map_err(failed)?;
        match xdp::find_link(ifindex, attached.program_id).map_err(failed)? {
            Some(link) => xdp::detach_link(link.as_fd()),
            None => xdp::detach_without_link(program.as_fd(), ifindex, attached.plane),
        }
        .map_err(failed)?;
        Ok(Self { program, plane: attached.plane })
    }

    fn restore(self, ifindex: u32) -> io::Result<()> {
        xdp::attach_without_link(self.program.as_fd(), ifindex, self.plane)
    }
}

/// What an error of the kernel means for who wanted to attach.
fn attach_error(interface: &str, plane: Plane, error: &io::Error) -> Error {
    let generic = "`--plane xdp-generic` works on every interface";
    match (error.raw_os_error(), plane) {
        (Some(libc::EOPNOTSUPP), Plane::XdpNative) => {
            Error::missing(format!("{interface}: the driver has no native XDP; {generic}"))
        }
        (Some(libc::EBUSY | libc::EEXIST), _) => Error::other(format!(
            "{interface}: another XDP program was attached meanwhile; `wirewised doctor --interface {interface}`"
        )),
        (Some(libc::EPERM | libc::EACCES), _) => {
            Error::missing(format!("{interface}: attaching needs CAP_NET_ADMIN in its network namespace"))
        }
        (Some(libc::ERANGE | libc::EINVAL), Plane::XdpNative) => Error::missing(format!(
            "{interface}: the driver refuses native XDP in its present settings ({error}): MTU or LRO, see \
             `wirewised doctor --interface {interface}`; {generic}"
        )),
        _ => Error::other(format!("{interface}: cannot attach as {plane}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    #[test]
    fn enforcement_runs_out_by_itself() {
        let mut policy = abi::Policy { mode: Mode::Enforce.code(), ..abi::Policy::zeroed() };
        assert_eq!(effective_mode(&policy, 10), Mode::Enforce);
        policy.enforce_until_ns = 11;
        assert_eq!(effective_mode(&policy, 10), Mode::Enforce);
        assert_eq!(effective_mode(&policy, 11), Mode::Observe);
    }

    #[test]
    fn a_driver_without_native_xdp_is_told_from_a_missing_privilege() {
        let error = |code, plane| attach_error("eth0", plane, &io::Error::from_raw_os_error(code));
        let native = error(libc::EOPNOTSUPP, Plane::XdpNative);
        assert_eq!(native.kind().exit_code(), 3);
        assert!(native.to_string().contains("--plane xdp-generic"), "{native}");
        assert!(error(libc::EPERM, Plane::XdpGeneric).to_string().contains("CAP_NET_ADMIN"));
    }
}
