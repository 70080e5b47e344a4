// SPDX-License-Identifier: Apache-2.0
//! The table of tunnels in the map `ww_tunnels`, which changes while packets pass: what is new comes first, what is gone goes last.

use std::collections::{BTreeMap, BTreeSet};

use bytemuck::bytes_of;
use libbpf_rs::{MapCore, MapFlags};

use crate::abi;
use crate::abi::maps::TUNNELS;
use crate::error::{Error, Result};
use crate::object::maps::{delete, no_map, other_layout, update};
use crate::policy::tunnels::{EndName, Tunnel};

/// What the map holds.
#[derive(Debug, Default)]
pub struct Held(BTreeMap<abi::TunnelEnd, abi::Tunnel>);

/// How many tunnels came, are others than before, and went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Changes {
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
}

impl Held {
    pub fn read(map: &impl MapCore) -> Result<Self> {
        let mut held = BTreeMap::new();
        for key in map.keys() {
            // One that goes meanwhile is not there.
            let Ok(Some(value)) = map.lookup(&key, MapFlags::ANY) else { continue };
            let (Ok(end), Ok(tunnel)) =
                (bytemuck::try_pod_read_unaligned(&key), bytemuck::try_pod_read_unaligned(&value))
            else {
                return Err(other_layout(TUNNELS));
            };
            held.insert(end, tunnel);
        }
        Ok(Self(held))
    }

    pub fn of(tunnels: &[Tunnel]) -> Self {
        Self(tunnels.iter().flat_map(Tunnel::ends).collect())
    }

    /// Every tunnel once, with what came and what went.
    pub fn tunnels(&self) -> BTreeMap<Tunnel, [abi::Counter; 2]> {
        let mut tunnels = BTreeMap::<_, [abi::Counter; 2]>::new();
        for (end, value) in &self.0 {
            let counters = tunnels.entry(Tunnel::of(value)).or_default();
            let counter = &mut counters[usize::from(end.side.min(1))];
            counter.packets += value.packets;
            counter.bytes += value.bytes;
        }
        tunnels
    }

    /// The tunnels with some more, in the place of those that have the same ends.
    pub fn with(&self, more: &[Tunnel]) -> Result<Vec<Tunnel>> {
        let mut wanted: BTreeSet<_> = self.tunnels().into_keys().collect();
        for tunnel in more {
            for (end, _) in tunnel.ends() {
                if let Some(value) = self.0.get(&end) {
                    wanted.remove(&Tunnel::of(value));
                }
            }
        }
        let mut seen = BTreeSet::new();
        for (end, _) in more.iter().flat_map(Tunnel::ends) {
            if !seen.insert(end) {
                return Err(Error::input(format!("--add: {} stands twice", EndName(end))));
            }
        }
        wanted.extend(more);
        Ok(wanted.into_iter().collect())
    }

    /// The tunnels without those that have one of these ends.
    pub fn without(&self, ends: &[EndName]) -> Result<Vec<Tunnel>> {
        let mut wanted: BTreeSet<_> = self.tunnels().into_keys().collect();
        for end in ends {
            let value = self.0.get(&end.0);
            let value = value.ok_or_else(|| Error::input(format!("there is no tunnel with {end}")))?;
            wanted.remove(&Tunnel::of(value));
        }
        Ok(wanted.into_iter().collect())
    }

    /// What `replace` does.
    pub fn changes(&self, wanted: &[Tunnel]) -> Changes {
        let before: BTreeSet<_> = self.tunnels().into_keys().collect();
        let after: BTreeSet<_> = wanted.iter().copied().collect();
        let known = |tunnel: &&Tunnel| tunnel.ends().iter().any(|(end, _)| self.0.contains_key(end));
        let changed = after.difference(&before).filter(known).count();
        let came = after.difference(&before).count();
        let gone = before.difference(&after).count();
        Changes { added: came - changed, changed, removed: gone.saturating_sub(changed) }
    }
}

/// Has the map hold these tunnels and no others. Counters of ends that stay go on.
pub fn replace(map: &impl MapCore, wanted: &[Tunnel]) -> Result<Changes> {
    if wanted.len() > abi::TUNNELS {
        return Err(Error::input(format!("{} tunnels are too many; at most {}", wanted.len(), abi::TUNNELS)));
    }
    let held = Held::read(map)?;
    let ends: BTreeMap<_, _> = wanted.iter().flat_map(Tunnel::ends).collect();
    for (end, value) in &ends {
        let before = held.0.get(end);
        let (packets, bytes) = before.map_or((0, 0), |before| (before.packets, before.bytes));
        let value = abi::Tunnel { packets, bytes, ..*value };
        if before != Some(&value) {
            update(map, bytes_of(end), bytes_of(&value))?;
        }
    }
    for end in held.0.keys().filter(|end| !ends.contains_key(end)) {
        delete(map, bytes_of(end))?;
    }
    Ok(held.changes(wanted))
}

/// Of an element that takes the place of another.
pub fn keep_counters(new: &mut [u8], old: &[u8]) {
    let of = |value: &[u8]| bytemuck::try_pod_read_unaligned::<abi::Tunnel>(value).ok();
    if let (Some(tunnel), Some(abi::Tunnel { packets, bytes, .. })) = (of(new), of(old)) {
        new.copy_from_slice(bytes_of(&abi::Tunnel { packets, bytes, ..tunnel }));
    }
}

/// As a policy asks for it: `None` leaves them.
pub fn write<M: MapCore>(wanted: Option<&[Tunnel]>, find: impl Fn(&str) -> Option<M>) -> Result<()> {
    let Some(wanted) = wanted else { return Ok(()) };
    let map = find(TUNNELS).ok_or_else(|| no_map(TUNNELS))?;
    replace(&map, wanted).map(drop)
}
