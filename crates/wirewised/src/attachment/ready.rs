// SPDX-License-Identifier: Apache-2.0
//! What `run` attaches, made ready: the object before it is loaded, and the pins before there is a link.

use std::path::Path;

use crate::abi::maps::{BAN_FILTER, BANS, DENY_FILTER, DENY_PORTS, HANDSHAKES, Scope, of_scopes};
use crate::abi::{self, Mode};
use crate::attachment::Attachment;
use crate::attachment::forwarding;
use crate::attachment::next;
use crate::attachment::plan::AttachRequest;
use crate::attachment::staging;
use crate::attachment::swap;
use crate::bundle::manifest::Sharing;
use crate::error::{Error, Result};
use crate::interface::netdev::Device;
use crate::kernel;
use crate::kernel::pinned::Provisional;
use crate::object::deny::BYTES_A_PREFIX;
use crate::object::{Loaded, Opened, Settings, policy_maps};
use crate::policy::Policy;
use crate::reading::meta::{Meta, PolicyMeta};

/// The object of a request, ready to be loaded.
#[derive(Debug)]
pub struct Prepared {
    pub(super) opened: Opened,
    pub(super) config: abi::Config,
    pub shards: u32,
    pub sharing: Sharing,
    /// Entries: of all CPUs together if they share the tables, else of each.
    pub table_size: u32,
    /// Bytes of both flow tables.
    pub table_bytes: u64,
    /// Bytes for those who are kept out, by a deny list or by bans, without the prefixes that others may add.
    pub list_bytes: u64,
}

/// What a deny list has whatever it holds, and what bans have.
const LISTS: [&str; 5] = [DENY_FILTER, DENY_PORTS, BANS, BAN_FILTER, HANDSHAKES];

pub fn prepare(request: &AttachRequest) -> Result<Prepared> {
    prepare_with(request, None)
}

/// As `prepare`, on the flow tables of another interface's program of the same bundle.
pub fn prepare_beside(request: &AttachRequest, first: &Attachment) -> Result<Prepared> {
    prepare_with(request, Some(first))
}

fn prepare_with(request: &AttachRequest, first: Option<&Attachment>) -> Result<Prepared> {
    let manifest = &request.bundle.manifest;
    if let Some((_, policy)) = &request.policy {
        policy.check_key(&manifest.flow.key)?;
    }
    let mut opened = Opened::open(&request.bundle_file.display().to_string(), &request.bundle.object)?;
    let kinds = request.policy.as_ref().map_or(0, |(_, policy)| policy.steering_kinds());
    let acts = request.plane.loads_for(kinds);
    let next = request.policy.as_ref().is_some_and(|(_, policy)| policy.next.is_some());
    let runs = request.runs();
    next::admit_beside(runs, next)?;
    let settings = match first {
        Some(first) => swap::settings_with_tables_of(first, runs)?,
        None => Settings { table_size: request.table_size, ..Settings::live(runs)? },
    };
    let mtu = Device::open(&request.interface).ok().and_then(|device| device.mtu());
    let frags = mtu.is_some_and(|mtu| request.plane.needs_frags(mtu));
    let settings = Settings { acts, next, frags, ..settings };
    opened.prepare(&settings)?;
    if let Some(first) = first {
        swap::share(&mut opened, first, of_scopes(|scope| scope == Scope::Table))?;
    }
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
    let denied = request.policy.as_ref().and_then(|(_, policy)| policy.deny.as_ref());
    let prefixes = denied.map_or(0, |deny| deny.prefixes.len() as u64);
    let list_bytes = opened.map_bytes(&LISTS) + prefixes * BYTES_A_PREFIX;
    Ok(Prepared { opened, config, shards: settings.shards, sharing, table_size, table_bytes, list_bytes })
}

/// Pins everything but a link, and writes the policy. All of it is gone again if the result is dropped.
pub(super) fn stage(
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
    let meta = Meta { joining: request.joining, begins: true, ..meta };
    staging::remember(directory, &meta)?;
    Ok(provisional)
}
