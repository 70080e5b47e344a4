// SPDX-License-Identifier: Apache-2.0
//! Puts a policy into the maps the data path reads, while packets may be passing through it. Who is allowed by the
//! old and by the new policy is allowed all the time in between: what is new comes first, what is gone goes last. So do interfaces and CPUs that
//! packets go to.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use bytemuck::bytes_of;
use libbpf_rs::{MapCore, MapFlags, MapType};

use crate::abi;
use crate::error::{Error, Result};
use crate::kernel::objects;
use crate::object::maps::{
    CPUS, FIXED, INTERFACES, LIMIT_MAP, POLICY, Scope, failed, no_map, of_scopes, update,
};
use crate::object::{pools, tunnels};
use crate::policy::{Policy, Prefix};

/// Packets that the queue of another CPU holds.
const CPU_QUEUE: u32 = 2048;

/// Writes the allow list and `element` (made by `policy.to_abi`).
///
/// find : an open map by its name; `None` if the object has no such map. settle : waits until the program goes by the allow list as it
/// is now.
pub fn write<M: MapCore>(
    policy: &Policy,
    element: &abi::Policy,
    find: impl Fn(&str) -> Option<M>,
    settle: impl Fn() -> Result<()>,
) -> Result<()> {
    let (v4, v6): (Vec<_>, Vec<_>) = policy.prefixes.iter().partition(|prefix| prefix.address.is_ipv4());
    let tables = [
        PrefixTable::open("ww_allow4", find("ww_allow4"), &v4)?,
        PrefixTable::open("ww_allow6", find("ww_allow6"), &v6)?,
    ];
    let tables: Vec<_> = tables.into_iter().flatten().collect();
    let ports = find("ww_allow_ports");
    if ports.is_none() && !(policy.ports.is_empty() && policy.source_ports.is_empty()) {
        return Err(no_map("ww_allow_ports"));
    }
    let words = policy.port_words();
    tables.iter().try_for_each(PrefixTable::add)?;
    settle()?;
    merge_ports(&ports, &words, |old, new| old | new)?;
    let mut element = *element;
    let change = pools::Change::begin(&policy.pools, &mut element, &find)?;
    tunnels::write(policy.tunnels.as_deref(), &find)?;
    let interfaces = find(INTERFACES);
    let wanted: BTreeSet<u32> = targets(policy, &element).chain(policy.ways()).collect();
    if let Some(map) = &interfaces {
        wanted.iter().try_for_each(|index| update(map, bytes_of(index), bytes_of(index)))?;
    }
    // A queue stays when nothing goes there any more: it may hold packets.
    if let Some(map) = find(CPUS) {
        let missing = |cpu: &u32| map.lookup(bytes_of(cpu), MapFlags::ANY).ok().flatten().is_none();
        let cpus: BTreeSet<u32> = cpus(&element).filter(missing).collect();
        cpus.iter().try_for_each(|cpu| update(&map, bytes_of(cpu), bytes_of(&CPU_QUEUE)))?;
    }
    let fixed = find(FIXED);
    let stations = policy.stations();
    if let Some(map) = &fixed {
        stations.iter().try_for_each(|(key, port)| update(map, key, bytes_of(port)))?;
    }
    write_element(&element, &find)?;
    change.finish(&find)?;
    merge_ports(&ports, &words, |_, new| new)?;
    tables.iter().try_for_each(PrefixTable::remove)?;
    if let Some(map) = &interfaces {
        let stale = |key: &Vec<u8>| !wanted.iter().any(|index| bytes_of(index) == key.as_slice());
        for key in map.keys().filter(stale).collect::<Vec<_>>() {
            // An interface that goes away takes its entry along.
            let _ = map.delete(&key);
        }
    }
    if let Some(map) = &fixed {
        for key in map.keys().filter(|key| !stations.contains_key(key)).collect::<Vec<_>>() {
            map.delete(&key).map_err(|error| failed(map, &error))?;
        }
    }
    settle()
}

/// The interfaces that packets are redirected to, by index.
fn targets(policy: &Policy, element: &abi::Policy) -> impl Iterator<Item = u32> {
    let redirected = element.steered().filter(|(_, steer)| steer.kinds & abi::STEER_REDIRECT != 0);
    let ways_to_pools = policy.pools.iter().filter_map(|pool| pool.interface.as_ref());
    redirected.map(|(_, steer)| steer.ifindex).chain(ways_to_pools.map(|target| target.ifindex))
}

/// The CPUs that packets go to.
fn cpus(element: &abi::Policy) -> impl Iterator<Item = u32> {
    let spread = element.steered().filter(|(_, steer)| steer.kinds & abi::STEER_CPU != 0);
    spread.flat_map(|(_, steer)| steer.cpu.into_iter().take(usize::from(steer.cpus)).map(u32::from))
}

/// Writes mode, actions, trigger and events, and leaves the allow list as it is.
pub fn write_element<M: MapCore>(element: &abi::Policy, find: impl Fn(&str) -> Option<M>) -> Result<()> {
    let map = find(POLICY).ok_or_else(|| no_map(POLICY))?;
    update(&map, bytes_of(&0u32), bytes_of(element))
}

/// Copies what belongs to a policy into maps that are still empty: all but its element, and what its limits remember, which are numbered by
/// class.
pub fn copy<M: MapCore, N: MapCore>(
    from: impl Fn(&str) -> Option<M>,
    to: impl Fn(&str) -> Option<N>,
) -> Result<()> {
    for name in of_scopes(|scope| scope == Scope::Policy).filter(|name| ![POLICY, LIMIT_MAP].contains(name)) {
        let (Some(from), Some(to)) = (from(name), to(name)) else { continue };
        if same_map(&from, &to)? {
            continue;
        }
        let is_array = from.map_type() == MapType::Array;
        for key in from.keys() {
            if let Ok(Some(value)) = from.lookup(&key, MapFlags::ANY)
                // An array is zeros from the beginning.
                && !(is_array && value.iter().all(|byte| *byte == 0))
            {
                update(&to, &key, &value)?;
            }
        }
    }
    Ok(())
}

fn same_map(one: &impl MapCore, other: &impl MapCore) -> Result<bool> {
    let id = |fd: BorrowedFd<'_>| {
        let info =
            objects::map_info(fd).map_err(|error| Error::other(format!("cannot look at a map: {error}")))?;
        Ok::<_, Error>(info.map(|info| info.id))
    };
    Ok(id(one.as_fd())? == id(other.as_fd())?)
}

fn merge_ports(map: &Option<impl MapCore>, words: &[u64], merge: impl Fn(u64, u64) -> u64) -> Result<()> {
    let Some(map) = map else { return Ok(()) };
    for (index, new) in (0u32..).zip(words) {
        let old = map.lookup(bytes_of(&index), MapFlags::ANY).ok().flatten();
        let old = old.and_then(|bytes| Some(u64::from_ne_bytes(bytes.try_into().ok()?))).unwrap_or(0);
        let merged = merge(old, *new);
        if merged != old {
            update(map, bytes_of(&index), bytes_of(&merged))?;
        }
    }
    Ok(())
}

/// The allow list of one IP version: what is in the map, and what shall be.
struct PrefixTable<M> {
    map: M,
    present: BTreeSet<Vec<u8>>,
    wanted: BTreeSet<Vec<u8>>,
}

impl<M: MapCore> PrefixTable<M> {
    fn open(name: &str, map: Option<M>, prefixes: &[&Prefix]) -> Result<Option<Self>> {
        let Some(map) = map else {
            return if prefixes.is_empty() { Ok(None) } else { Err(no_map(name)) };
        };
        let present = map.keys().collect::<BTreeSet<_>>();
        let wanted = prefixes.iter().map(|prefix| map_key(prefix)).collect::<BTreeSet<_>>();
        check_room(name, present.union(&wanted).count(), map.max_entries())?;
        Ok(Some(Self { map, present, wanted }))
    }

    fn add(&self) -> Result<()> {
        self.wanted.difference(&self.present).try_for_each(|key| update(&self.map, key, bytes_of(&1u32)))
    }

    fn remove(&self) -> Result<()> {
        let mut stale = self.present.difference(&self.wanted);
        stale.try_for_each(|key| self.map.delete(key)).map_err(|error| failed(&self.map, &error))
    }
}

/// Refuses an allow list that a table has no room for. prefixes : of one IP version.
pub fn check_room(name: &str, prefixes: usize, max_entries: u32) -> Result<()> {
    if prefixes <= max_entries as usize {
        return Ok(());
    }
    Err(Error::input(format!(
        "the allow list needs room for {prefixes} prefixes, {name} holds {max_entries}; join neighbouring prefixes"
    )))
}

/// The key of a prefix in its table.
pub fn map_key(prefix: &Prefix) -> Vec<u8> {
    let length = u32::from(prefix.length);
    match prefix.address {
        IpAddr::V4(address) => bytes_of(&abi::Prefix4 { length, address: address.octets() }).to_vec(),
        IpAddr::V6(address) => bytes_of(&abi::Prefix6 { length, address: address.octets() }).to_vec(),
    }
}
