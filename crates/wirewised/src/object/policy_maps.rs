// SPDX-License-Identifier: Apache-2.0
//! Puts a policy into the maps the data path reads, while packets may be passing through it. Who is allowed by the
//! old and by the new policy is allowed all the time in between: what is new comes first, what is gone goes last. So do interfaces and CPUs that
//! packets go to.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;

use bytemuck::{Zeroable, bytes_of};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::abi;
use crate::abi::maps::{
    ACT_POLICY, ALLOW_PORTS, ALLOW4, CPUS, DENY_FILTER, DENY_PORTS, FIXED, INTERFACES, LIMIT, MAPS, POLICY,
    Scope, TUNNELS, find as row, of_scopes,
};
use crate::error::{Error, Result};
use crate::kernel;
use crate::kernel::objects;
use crate::object::deny_filter::Filter;
use crate::object::maps::{delete, no_map, read_all, update, value_of};
use crate::object::{allow, deny, pools, tunnels};
use crate::policy::Policy;

/// Packets that the queue of another CPU holds.
const CPU_QUEUE: u32 = 2048;

/// Writes the allow list and `element` (made by `policy.to_abi`).
///
/// find : an open map by its name; `None` if the object has no such map. settle : waits until the program goes by the allow list as it
/// is now.
pub fn write<M: MapCore>(
    policy: &Policy,
    element: &abi::Element,
    find: impl Fn(&str) -> Option<M>,
    settle: impl Fn() -> Result<()>,
) -> Result<()> {
    let prefixes = allow::Maps::open(&find);
    if prefixes.is_none() && !policy.prefixes.is_empty() {
        return Err(no_map(ALLOW4));
    }
    let prefixes = prefixes.map(|maps| {
        let edit = allow::Edit::Policy(policy.prefixes.iter().copied().collect());
        let change = maps.plan(&maps.read()?, edit, kernel::boot_s())?;
        Ok::<_, Error>((maps, change))
    });
    let prefixes = prefixes.transpose()?;
    let ports = find(ALLOW_PORTS);
    if ports.is_none() && !(policy.ports.is_empty() && policy.source_ports.is_empty()) {
        return Err(no_map(ALLOW_PORTS));
    }
    let words = policy.port_words();
    prefixes.iter().try_for_each(|(maps, change)| maps.put(change))?;
    deny::write(policy, &find, kernel::boot_s())?;
    merge_ports(&find(DENY_PORTS), &policy.denied_port_words(), |_, new| new)?;
    settle()?;
    merge_ports(&ports, &words, |old, new| old | new)?;
    let mut element = *element;
    // The policy does not know the prefixes that `wirewised allow` lets through.
    element.policy.allow |= prefixes.as_ref().map_or(0, |(_, change)| change.bits);
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
    prefixes.iter().try_for_each(|(maps, change)| maps.take(change))?;
    if let Some(map) = &interfaces {
        let stale = |key: &Vec<u8>| !wanted.iter().any(|index| bytes_of(index) == key.as_slice());
        for key in map.keys().filter(stale).collect::<Vec<_>>() {
            // An interface that goes away takes its entry along.
            let _ = delete(map, &key);
        }
    }
    if let Some(map) = &fixed {
        for key in map.keys().filter(|key| !stations.contains_key(key)).collect::<Vec<_>>() {
            delete(map, &key)?;
        }
    }
    settle()
}

/// The interfaces that packets are redirected to, by index.
fn targets(policy: &Policy, element: &abi::Element) -> impl Iterator<Item = u32> {
    let redirected = element.steered().filter(|(_, steer)| steer.kinds & abi::STEER_REDIRECT != 0);
    let ways_to_pools = policy.pools.iter().filter_map(|pool| pool.interface.as_ref());
    redirected.map(|(_, steer)| steer.ifindex).chain(ways_to_pools.map(|target| target.ifindex))
}

/// The CPUs that packets go to.
fn cpus(element: &abi::Element) -> impl Iterator<Item = u32> {
    let spread = element.steered().filter(|(_, steer)| steer.kinds & abi::STEER_CPU != 0);
    spread.flat_map(|(_, steer)| steer.cpu.into_iter().take(usize::from(steer.cpus)).map(u32::from))
}

/// Writes mode, actions, trigger and events, and leaves the allow list as it is. Without an actor in the program, its half is left out.
pub fn write_element<M: MapCore>(element: &abi::Element, find: impl Fn(&str) -> Option<M>) -> Result<()> {
    let (map, first) = (find(POLICY).ok_or_else(|| no_map(POLICY))?, bytes_of(&0u32));
    let Some(act) = find(ACT_POLICY) else { return update(&map, first, bytes_of(&element.policy)) };
    // The actor keeps a class's arguments as long as the classifier may send it packets of that class.
    let mut both = element.act;
    let before: abi::ActPolicy = value_of(&act)?;
    for (class, (steer, before)) in both.steer.iter_mut().zip(before.steer).enumerate() {
        if element.policy.class_policy[class].action != abi::Action::Act.code() {
            *steer = before;
        }
    }
    if both != before {
        update(&act, first, bytes_of(&both))?;
    }
    update(&map, first, bytes_of(&element.policy))?;
    if both == element.act { Ok(()) } else { update(&act, first, bytes_of(&element.act)) }
}

/// What `write_element` wrote.
pub fn read_element<M: MapCore>(find: impl Fn(&str) -> Option<M>) -> Result<abi::Element> {
    element_of(&find(POLICY).ok_or_else(|| no_map(POLICY))?, find(ACT_POLICY).as_ref())
}

/// A policy as its maps hold it. act : `None` if the program has no actor.
pub fn element_of<M: MapCore>(policy: &M, act: Option<&M>) -> Result<abi::Element> {
    let act = act.map_or_else(|| Ok(abi::ActPolicy::zeroed()), value_of)?;
    Ok(abi::Element { policy: value_of(policy)?, act })
}

/// All that belongs to a policy but its element, and what its limits remember, which are numbered by class.
fn beside_element() -> impl Iterator<Item = &'static str> {
    let is_of_policy = |scope| matches!(scope, Scope::AllowList | Scope::Policy);
    of_scopes(is_of_policy).filter(|name| ![POLICY, ACT_POLICY, LIMIT].contains(name))
}

/// Copies what belongs to a policy, whatever the numbers of classes, into maps that are still empty.
pub fn copy<M: MapCore, N: MapCore>(
    from: impl Fn(&str) -> Option<M>,
    to: impl Fn(&str) -> Option<N>,
) -> Result<()> {
    copy_maps(beside_element(), from, to)
}

/// As `copy`, where another policy is written over it.
pub fn copy_changed<M: MapCore, N: MapCore>(
    from: impl Fn(&str) -> Option<M>,
    to: impl Fn(&str) -> Option<N>,
) -> Result<()> {
    copy_maps(MAPS.iter().filter(|map| map.is_changed).map(|map| map.name), from, to)
}

fn copy_maps<M: MapCore, N: MapCore>(
    mut names: impl Iterator<Item = &'static str>,
    from: impl Fn(&str) -> Option<M>,
    to: impl Fn(&str) -> Option<N>,
) -> Result<()> {
    names.try_for_each(|name| match (from(name), to(name)) {
        (Some(from), Some(to)) if same_map(&from, &to)? => Ok(()),
        // So many elements would take as many calls.
        (Some(from), Some(to)) if name == DENY_FILTER => Filter::read(&from)?.replace(&to),
        (Some(from), Some(to)) => entries(&from)?.iter().try_for_each(|(key, value)| update(&to, key, value)),
        _ => Ok(()),
    })
}

/// What a map holds; of an array, what is not zeros, which it is from the beginning.
fn entries(map: &impl MapCore) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    if map.map_type() == MapType::Array {
        return Ok(read_all(map)?.filter(|(_, value)| value.iter().any(|byte| *byte != 0)).collect());
    }
    let entry = |key: Vec<u8>| Some((map.lookup(&key, MapFlags::ANY).ok()??, key));
    Ok(map.keys().filter_map(entry).map(|(value, key)| (key, value)).collect())
}

/// Maps for a policy on its way: as those in use, and empty. Where packets would go by a map's entries, it is a map of its entries alone.
pub fn blank<M: MapCore>(live: impl Fn(&str) -> Option<M>) -> Result<Vec<(&'static str, MapHandle)>> {
    let mut maps = Vec::new();
    for name in beside_element().chain([POLICY, ACT_POLICY]) {
        let Some(map) = live(name) else { continue };
        let kind = match map.map_type() {
            kind @ (MapType::Array | MapType::LpmTrie) => kind,
            _ => MapType::Hash,
        };
        let flags = match kind {
            MapType::Array => libbpf_sys::BPF_F_MMAPABLE,
            _ => libbpf_sys::BPF_F_NO_PREALLOC,
        };
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
            map_flags: flags,
            ..Default::default()
        };
        let (key, value, most) = (map.key_size(), map.value_size(), map.max_entries());
        let made = MapHandle::create(kind, Some("ww_staged"), key, value, most, &options);
        maps.push((
            name,
            made.map_err(|error| Error::other(format!("cannot make a map like {name}: {error}")))?,
        ));
    }
    Ok(maps)
}

/// Has the maps in use hold what others hold: as `write`, of a policy that is written already.
pub fn follow<M: MapCore, N: MapCore>(
    wanted: impl Fn(&str) -> Option<M>,
    live: impl Fn(&str) -> Option<N>,
    settle: impl Fn() -> Result<()>,
) -> Result<()> {
    let pair = |name| Some((name, wanted(name)?, live(name)?));
    let (lists, others): (Vec<_>, Vec<_>) = beside_element()
        .filter_map(pair)
        .partition(|(name, _, _)| row(name).is_some_and(|row| row.scope == Scope::AllowList));
    lists.iter().try_for_each(|(name, wanted, live)| add(name, wanted, live))?;
    settle()?;
    others.iter().try_for_each(|(name, wanted, live)| add(name, wanted, live))?;
    write_element(&read_element(&wanted)?, &live)?;
    lists.iter().chain(&others).try_for_each(|(name, wanted, live)| remove(name, wanted, live))?;
    settle()
}

/// What a map holds under a key. A trie, asked for a prefix, would answer with a shorter one that holds it.
fn exactly(map: &impl MapCore) -> Result<impl Fn(&[u8]) -> Option<Vec<u8>>> {
    let of_trie = (map.map_type() == MapType::LpmTrie).then(|| entries(map)).transpose()?;
    Ok(move |key: &[u8]| match &of_trie {
        Some(all) => all.get(key).cloned(),
        None => map.lookup(key, MapFlags::ANY).ok().flatten(),
    })
}

fn add(name: &str, wanted: &impl MapCore, live: &impl MapCore) -> Result<()> {
    if name == DENY_FILTER {
        return Filter::read(wanted)?.cover(live);
    }
    let held = exactly(live)?;
    for (key, mut value) in entries(wanted)? {
        let before = held(&key);
        if let Some(before) = &before {
            match name {
                // Ports are bits.
                ALLOW_PORTS => value.iter_mut().zip(before).for_each(|(new, old)| *new |= old),
                TUNNELS => tunnels::keep_counters(&mut value, before),
                // A CPU's queue has a descriptor of its own beside what was written.
                CPUS => continue,
                _ => {}
            }
        }
        if before.as_ref() != Some(&value) {
            update(live, &key, &value)?;
        }
    }
    Ok(())
}

fn remove(name: &str, wanted: &impl MapCore, live: &impl MapCore) -> Result<()> {
    // A queue stays when nothing goes there any more: it may hold packets.
    if name == CPUS {
        return Ok(());
    }
    if name == DENY_FILTER {
        return Filter::read(wanted)?.replace(live);
    }
    let is_array = live.map_type() == MapType::Array;
    let wanted = exactly(wanted)?;
    for (key, before) in entries(live)? {
        match wanted(&key) {
            Some(value) if is_array && value != before => update(live, &key, &value)?,
            Some(_) => {}
            // An interface that goes away takes its entry along.
            None if name == INTERFACES => drop(delete(live, &key)),
            None => delete(live, &key)?,
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
    let held = entries(map)?;
    for (index, new) in (0u32..).zip(words) {
        let old = held.get(bytes_of(&index)).and_then(|bytes| bytes.as_slice().try_into().ok());
        let old = old.map_or(0, u64::from_ne_bytes);
        let merged = merge(old, *new);
        if merged != old {
            update(map, bytes_of(&index), bytes_of(&merged))?;
        }
    }
    Ok(())
}
