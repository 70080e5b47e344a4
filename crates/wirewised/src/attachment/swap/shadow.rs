// SPDX-License-Identifier: Apache-2.0
//! A second model beside the first, on the same packets, that changes no verdict.
//!
//! The shadow takes the link: it has each packet first, gives it a class and no verdict, and hands it over to the first by a tail call.
//! For that the first's bundle is loaded once more, as a program that takes the time from the shadow and counts where both
//! agree; it uses all the maps of the program that ran, which stays pinned and comes back when the shadow ends. The shadow
//! has flow tables of its own, so it begins with none of the flows that are there.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags};

use super::{known, share, update_link, with_tables_of};
use crate::abi::maps::{AGREEMENT, FIRST, NEXT, Scope, TAIL_CALLS, of_scopes, of_steering};
use crate::abi::{self, MAX_TAIL_CALLS};
use crate::abi::{Clock, Shadow};
use crate::attachment::Attachment;
use crate::attachment::followed;
use crate::attachment::outgoing;
use crate::attachment::staging;
use crate::attachment::succession::{Places, not_tidied};
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::kernel::objects;
use crate::kernel::pinned::{self, Provisional};
use crate::object::policy_maps;
use crate::object::{Loaded, Opened, Runs, Settings};
use crate::reading::meta::Meta;
use crate::reading::policy;

/// Where programs that the first calls are pinned, beside the shadow's own: the parts of a split model, and who comes next.
const OF_FIRST: [(&str, &str); 2] = [(TAIL_CALLS, "first-progs"), (NEXT, "first-next")];

/// Both programs, loaded; nothing runs them.
#[derive(Debug)]
pub struct Pair {
    meta: Meta,
    first: Loaded,
    second: Loaded,
    /// Bytes of the shadow's flow tables.
    pub table_bytes: u64,
}

/// running : the file of the bundle that runs, if it is not where it was.
pub fn load(ours: &Attachment, bundle: &Bundle, file: &Path, running: Option<&Path>) -> Result<Pair> {
    let (meta, config) = known(ours)?;
    let running = running_bundle(ours, &meta, running)?;
    let mut first = Opened::open(&meta.bundle.file, &running.object)?;
    let mut second = Opened::open(&file.display().to_string(), &bundle.object)?;
    let runs = ours.runs(meta.plane);
    let calls = first.tail_calls() + second.tail_calls() + 1 + u32::from(runs == Runs::InDispatcher);
    if calls > MAX_TAIL_CALLS {
        return Err(Error::input(format!(
            "{}: {} cannot run beside {}: together they are {calls} tail calls, and the kernel allows {MAX_TAIL_CALLS} for a \
             packet; compile one of them smaller",
            ours.interface, bundle.manifest.name, meta.bundle.name
        )));
    }
    // Both go by the second's time, so that must be the finer one.
    let fine = [&first, &second]
        .iter()
        .any(|opened| opened.config().is_some_and(|config| config.clock == Clock::Fine.code()));
    let clock = Some(if fine { Clock::Fine } else { Clock::Coarse });
    // It infers no packet that the first drops before it would.
    let acts = config.acts & (abi::STEER_DENY | abi::STEER_BAN);
    let hash_seed = config.hash_seed;
    second.prepare(&Settings {
        shadow: Shadow::Second,
        trace: true,
        clock,
        acts,
        hash_seed,
        frags: config.frags != 0,
        ..Settings::live(runs)?
    })?;
    let keep_out = of_scopes(|scope| scope == Scope::AllowList).chain(of_steering(abi::STEER_BAN));
    share(&mut second, ours, keep_out)?;
    let outgoing_too = ours.outgoing.is_some();
    let next = followed::of(ours)?;
    next.as_ref().map_or(Ok(()), |next| next.check_room(&first, second.tail_calls() + 1))?;
    let second = staging::load(second, bundle, outgoing_too, None)?;
    policy_maps::write_element(&policy::of_shadow(&ours.element()?), |name| second.map(name))?;
    first.prepare(&Settings {
        shadow: Shadow::First,
        trace: true,
        clock,
        ..with_tables_of(&config, runs)?
    })?;
    share(&mut first, ours, of_scopes(|scope| scope != Scope::Load))?;
    first.share(AGREEMENT, &second.require_map(AGREEMENT)?)?;
    let first = staging::load(first, &running, outgoing_too, next)?;
    for (second, first) in second.directions().zip(first.directions()) {
        let entry = first.entry()?.as_fd().as_raw_fd();
        second
            .require_map(FIRST)?
            .update(&0u32.to_ne_bytes(), &entry.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| Error::other(format!("{FIRST}: {error}")))?;
    }
    let bytes = |name: &str| {
        second.map(name).map_or(0, |map| u64::from(map.max_entries()) * u64::from(map.value_size()))
    };
    let table_bytes = of_scopes(|scope| scope == Scope::Table).map(bytes).sum();
    Ok(Pair { meta, first, second, table_bytes })
}

/// The bundle of what is attached, for which only its file is known.
fn running_bundle(ours: &Attachment, meta: &Meta, named: Option<&Path>) -> Result<Bundle> {
    let file = named.unwrap_or(Path::new(&meta.bundle.file));
    let other = |what: &str| {
        Error::input(format!(
            "{}: a shadow needs the file of the bundle that runs, {} (sha256 {}), but {} {what}; name it with `--running FILE`",
            ours.interface,
            meta.bundle.name,
            &meta.bundle.digest[..16],
            file.display()
        ))
    };
    let bundle = Bundle::read(file).map_err(|error| other(&format!("cannot be used ({error})")))?;
    if bundle.digest == meta.bundle.digest { Ok(bundle) } else { Err(other("is another bundle now")) }
}

/// Runs the second model beside the first; a shadow that is there ends. The caller holds the lock of the root.
pub fn start(ours: &Attachment, bundle: &Bundle, file: &Path, pair: &Pair) -> Result<Attachment> {
    if ours.shadow().is_some() {
        end(ours)?;
    }
    let places = Places::of(&ours.directory);
    let staged = stage(&places.shadow, bundle, file, pair)?;
    update_link(ours, pair.second.entry()?.as_fd())?;
    staged.keep();
    places.tidy().map_err(|error| not_tidied(&places, &error))?;
    Attachment::open(&ours.directory)
}

fn stage(directory: &Path, bundle: &Bundle, file: &Path, pair: &Pair) -> Result<Provisional> {
    let staged = staging::pin(&pair.second, directory)?;
    staging::keep_object(directory, pair.meta.plane, bundle)?;
    let directories = [directory.to_path_buf(), outgoing::directory(directory)];
    for (first, directory) in pair.first.directions().zip(directories) {
        for (name, pin) in OF_FIRST {
            let Some(programs) = first.map(name) else { continue };
            objects::pin(programs.as_fd(), &directory.join(pin))
                .map_err(|error| Error::other(format!("{}: {error}", directory.display())))?;
        }
    }
    let Meta { interface, plane, policy, .. } = &pair.meta;
    if let Some(config) = &pair.second.config {
        let meta = Meta::new(bundle, file, interface, *plane, config, policy.clone());
        staging::remember(directory, &meta)?;
    }
    Ok(staged)
}

/// Ends the shadow: the first's program without one runs again. The caller holds the lock of the root.
pub fn end(ours: &Attachment) -> Result<Attachment> {
    let places = Places::of(&ours.directory);
    let pin = places.current.join(pinned::PROGRAM);
    let program =
        objects::open_pin(&pin).map_err(|error| Error::other(format!("{}: {error}", pin.display())))?;
    update_link(ours, program.as_fd())?;
    places.tidy().map_err(|error| not_tidied(&places, &error))?;
    Attachment::open(&ours.directory)
}

/// The shadow, or why there is none to speak of.
pub fn of(ours: &Attachment) -> Result<(Attachment, Meta)> {
    let shadow = ours.shadow().and_then(|shadow| Some((shadow.meta.clone()?, shadow)));
    shadow.map(|(meta, shadow)| (shadow, meta)).ok_or_else(|| {
        Error::input(format!(
            "{}: no shadow runs here; `wirewised swap --shadow --bundle FILE` starts one",
            ours.interface
        ))
    })
}
