// SPDX-License-Identifier: Apache-2.0
//! The deny list in its maps, which change while packets pass: what is new comes first, what is gone goes last. Several origins may deny the
//! same prefix, each for its own time; it is denied until the last of them.

use std::collections::{BTreeMap, BTreeSet};

use bytemuck::{Zeroable, bytes_of};
use libbpf_rs::{MapCore, MapFlags};

use crate::abi;
use crate::abi::maps::{ACT_CPU, DENY_FILTER, DENY_ORIGINS, DENY4, DENY6};
use crate::error::{Error, Result, shortage};
use crate::kernel::change;
use crate::object::deny_filter::Filter;
use crate::object::maps::{BATCH, act_cpus, failed, no_map, update};
use crate::object::prefixes::{Counts, OF_POLICY, Until, elements, left};
use crate::policy::{Policy, Prefix};

/// What the kernel takes for a prefix, at most: its node in the trie and one that joins it to the others.
pub const BYTES_A_PREFIX: u64 = 192;

/// The maps of the list.
pub struct Maps<M> {
    v4: M,
    v6: M,
    filter: M,
    origins: M,
    cpus: M,
}

/// What the maps hold.
#[derive(Debug, Clone, Default)]
pub struct Held {
    pub entries: BTreeMap<Prefix, abi::Denied>,
    /// An origin's place is its number; `None`: the place is free.
    origins: [Option<String>; abi::DENY_ORIGINS],
}

/// What an origin asks for.
#[derive(Debug, Clone)]
pub enum Edit {
    /// These, and no others.
    Replace(BTreeMap<Prefix, Until>),
    /// These too; of one that it denies already, the time is the new one.
    Add(BTreeMap<Prefix, Until>),
    /// These no longer.
    Remove(BTreeSet<Prefix>),
}

/// How a list changes: elements to be written or, `None`, deleted, and the names of origins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    elements: BTreeMap<Prefix, Option<abi::Denied>>,
    names: BTreeMap<usize, Option<String>>,
    pub counts: Counts,
}

impl Held {
    /// Those who deny something, and how many prefixes each.
    pub fn origins(&self) -> impl Iterator<Item = (&str, usize)> {
        let count = |number: usize| self.entries.values().filter(|it| it.origin_until_s[number] != 0).count();
        let names = self.origins.iter().enumerate();
        names.filter_map(move |(number, name)| Some((name.as_deref()?, count(number))))
    }

    /// Who denies a prefix, and until when.
    pub fn who(&self, denied: &abi::Denied) -> Vec<(&str, Until)> {
        let each = self.origins.iter().zip(denied.origin_until_s);
        each.filter_map(|(name, until)| Some((name.as_deref()?, (until != 0).then_some(until)?))).collect()
    }

    /// Prefixes that are denied, each with its origins and the seconds that are left; `None`: until it is removed. What has expired is in the
    /// tables until the next change. now_s : CLOCK_BOOTTIME.
    pub fn denials(&self, now_s: u32) -> impl Iterator<Item = (&Prefix, Vec<(&str, Option<u32>)>)> {
        self.entries.iter().filter_map(move |(prefix, denied)| {
            let who = self.who(denied).into_iter();
            let who: Vec<_> = who.filter_map(|(name, until)| Some((name, left(until, now_s)?))).collect();
            (!who.is_empty()).then_some((prefix, who))
        })
    }

    /// What `edit` changes. now_s : CLOCK_BOOTTIME; what expired before goes, whoever denied it.
    pub fn change(&self, origin: &str, edit: Edit, now_s: u32) -> Result<Change> {
        let number = self.number(origin)?;
        let mut counts = Counts::default();
        let mut after = BTreeMap::new();
        let mut set = |prefix: Prefix, until: Until, counts: &mut Counts| {
            let mut denied = self.entries.get(&prefix).copied().unwrap_or_else(|| empty(&prefix));
            let before = std::mem::replace(&mut denied.origin_until_s[number], until);
            counts.count(before, until);
            after.insert(prefix, denied);
        };
        match edit {
            Edit::Replace(wanted) => {
                for (prefix, denied) in &self.entries {
                    if denied.origin_until_s[number] != 0 && !wanted.contains_key(prefix) {
                        set(*prefix, 0, &mut counts);
                    }
                }
                wanted.into_iter().for_each(|(prefix, until)| set(prefix, until, &mut counts));
            }
            Edit::Add(more) => {
                more.into_iter().for_each(|(prefix, until)| set(prefix, until, &mut counts));
            }
            Edit::Remove(fewer) => {
                for prefix in fewer {
                    let there = self.entries.get(&prefix).is_some_and(|it| it.origin_until_s[number] != 0);
                    if !there {
                        return Err(self.not_denied(&prefix, origin));
                    }
                    set(prefix, 0, &mut counts);
                }
            }
        }
        let mut change = Change::default();
        let mut in_use = [false; abi::DENY_ORIGINS];
        let mut settle = |prefix: Prefix, mut denied: abi::Denied| {
            for until in &mut denied.origin_until_s {
                if *until != 0 && *until <= now_s {
                    *until = 0;
                    counts.expired += 1;
                }
            }
            denied.until_s = denied.origin_until_s.into_iter().max().unwrap_or(0);
            in_use.iter_mut().zip(denied.origin_until_s).for_each(|(used, until)| *used |= until != 0);
            let new = (denied.until_s != 0).then_some(denied);
            if new != self.entries.get(&prefix).copied() {
                change.elements.insert(prefix, new);
            }
        };
        let untouched = self.entries.iter().filter(|(prefix, _)| !after.contains_key(prefix));
        untouched.for_each(|(prefix, denied)| settle(*prefix, *denied));
        // Last, because a list of millions is not to be in memory twice.
        after.into_iter().for_each(|(prefix, denied)| settle(prefix, denied));
        for (place, used) in in_use.into_iter().enumerate() {
            let name = match used {
                false => None,
                true if place == number => Some(origin.to_owned()),
                true => self.origins[place].clone(),
            };
            if name != self.origins[place] {
                change.names.insert(place, name);
            }
        }
        change.counts = counts;
        self.check_room(&change)?;
        Ok(change)
    }

    /// The number of an origin that is there, or of the first free place.
    fn number(&self, origin: &str) -> Result<usize> {
        if origin.is_empty() || origin.len() >= abi::DENY_NAME || origin.contains(char::is_control) {
            return Err(Error::input(format!(
                "'{origin}' cannot be an origin's name: 1 to {} bytes, none of them a control character",
                abi::DENY_NAME - 1
            )));
        }
        if origin == OF_POLICY {
            return Ok(0);
        }
        let place =
            |wanted: Option<&str>| (1..abi::DENY_ORIGINS).find(|it| self.origins[*it].as_deref() == wanted);
        place(Some(origin)).or_else(|| place(None)).ok_or_else(|| {
            let names: Vec<_> = self.origins().map(|(name, _)| name).filter(|name| *name != OF_POLICY).collect();
            Error::input(format!(
                "there is no room for another origin, {origin}: the list has {} ({}); remove one: `wirewised deny remove --origin {}`",
                names.len(),
                names.join(", "),
                names.first().unwrap_or(&OF_POLICY)
            ))
        })
    }

    fn not_denied(&self, prefix: &Prefix, origin: &str) -> Error {
        let who = self.entries.get(prefix).map(|denied| self.who(denied)).unwrap_or_default();
        let who: Vec<_> = who.into_iter().map(|(name, _)| name).collect();
        Error::input(match who.first() {
            None => format!("{prefix} is not denied; `wirewised deny list` shows what is"),
            Some(&OF_POLICY) => {
                format!("{prefix} is denied by the policy: change its file and give it to `run` again")
            }
            Some(other) => {
                format!(
                    "{prefix} is not denied by {origin}, but by {}; add `--origin {other}`",
                    who.join(", ")
                )
            }
        })
    }

    fn check_room(&self, change: &Change) -> Result<()> {
        for (is_v4, name) in [(true, DENY4), (false, DENY6)] {
            let of = |prefix: &Prefix| prefix.address.is_ipv4() == is_v4;
            // What goes does so last.
            let new = change.elements.keys().filter(|it| of(it) && !self.entries.contains_key(it)).count();
            let count = self.entries.keys().filter(|it| of(it)).count() + new;
            if count > abi::DENY_PREFIXES as usize {
                return Err(Error::input(format!(
                    "the deny list needs room for {count} prefixes, {name} holds {}; join neighbouring prefixes",
                    abi::DENY_PREFIXES
                )));
            }
        }
        Ok(())
    }
}

fn empty(prefix: &Prefix) -> abi::Denied {
    abi::Denied { length: prefix.length.into(), ..abi::Denied::zeroed() }
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty() && self.names.is_empty()
    }

    /// What is denied afterwards and changed.
    pub fn denied(&self) -> impl Iterator<Item = &Prefix> {
        self.elements.iter().filter(|(_, new)| new.is_some()).map(|(prefix, _)| prefix)
    }

    /// Bytes that the kernel needs, at most, beside those it has.
    pub fn memory(&self, held: &Held) -> u64 {
        let new =
            self.elements.iter().filter(|(prefix, new)| new.is_some() && !held.entries.contains_key(prefix));
        new.count() as u64 * BYTES_A_PREFIX
    }
}

/// `None`: the place is free.
fn name_of(origin: &abi::DenyOrigin) -> Option<String> {
    let end = origin.name.iter().position(|byte| *byte == 0).unwrap_or(origin.name.len());
    (end != 0).then(|| String::from_utf8_lossy(&origin.name[..end]).into_owned())
}

impl<M: MapCore> Maps<M> {
    /// `None`: the program has no deny list.
    pub fn open(find: impl Fn(&str) -> Option<M>) -> Option<Self> {
        Some(Self {
            v4: find(DENY4)?,
            v6: find(DENY6)?,
            filter: find(DENY_FILTER)?,
            origins: find(DENY_ORIGINS)?,
            cpus: find(ACT_CPU)?,
        })
    }

    /// Packets that each origin kept out since it has been in the list: of an address that several deny, the one that denies it longest.
    pub fn kept_out(&self) -> Result<Vec<(String, u64)>> {
        let counts = self.counts()?;
        let mut kept_out = Vec::new();
        for (number, count) in counts.into_iter().enumerate() {
            let origin = self.origin(number)?;
            kept_out.extend(name_of(&origin).map(|name| (name, count.saturating_sub(origin.before))));
        }
        Ok(kept_out)
    }

    /// By place.
    fn counts(&self) -> Result<[u64; abi::DENY_ORIGINS]> {
        let mut counts = [0u64; abi::DENY_ORIGINS];
        for cpu in act_cpus(&self.cpus)? {
            counts.iter_mut().zip(cpu.denied).for_each(|(sum, one)| *sum += one);
        }
        Ok(counts)
    }

    fn origin(&self, number: usize) -> Result<abi::DenyOrigin> {
        super::maps::read_element(&self.origins, number as u32)
    }

    pub fn read(&self) -> Result<Held> {
        let mut held = Held::default();
        for (map, name) in [(&self.v4, DENY4), (&self.v6, DENY6)] {
            held.entries.extend(elements::<abi::Denied>(map, name)?);
        }
        for (number, place) in held.origins.iter_mut().enumerate() {
            *place = name_of(&self.origin(number)?);
        }
        Ok(held)
    }

    /// Makes a change to what the maps hold, or none of it where there is no memory for all.
    pub fn apply(&self, held: &Held, change: &Change) -> Result<()> {
        self.apply_names(change, true)?;
        Filter::of(change.denied()).cover(&self.filter)?;
        if let Err(error) = self.put(change) {
            let undo = change.elements.keys().map(|prefix| (*prefix, held.entries.get(prefix).copied()));
            let undo = Change { elements: undo.collect(), ..Change::default() };
            self.take(&undo)?;
            self.put(&undo)?;
            self.filter_for(held, &undo)?;
            return Err(error);
        }
        self.take(change)?;
        self.filter_for(held, change)?;
        self.apply_names(change, false)
    }

    /// Clears the bits of removed prefixes, and those left by an agent that died before it had added its prefixes.
    fn filter_for(&self, held: &Held, change: &Change) -> Result<()> {
        let stays = held.entries.keys().filter(|prefix| change.elements.get(prefix) != Some(&None));
        Filter::of(stays.chain(change.denied())).replace(&self.filter)
    }

    /// Names come before their prefixes, and go after them.
    fn apply_names(&self, change: &Change, come: bool) -> Result<()> {
        for (number, name) in change.names.iter().filter(|(_, name)| name.is_some() == come) {
            let mut origin = abi::DenyOrigin { before: self.counts()?[*number], ..abi::DenyOrigin::zeroed() };
            let name = name.as_deref().unwrap_or_default().as_bytes();
            origin.name[..name.len()].copy_from_slice(name);
            update(&self.origins, bytes_of(&(*number as u32)), bytes_of(&origin))?;
        }
        Ok(())
    }

    fn put(&self, change: &Change) -> Result<()> {
        for (map, is_v4) in [(&self.v4, true), (&self.v6, false)] {
            let of = |prefix: &Prefix| prefix.address.is_ipv4() == is_v4;
            let new = change.elements.iter().filter_map(|(prefix, new)| Some((prefix, (*new)?)));
            let new: Vec<_> = new.filter(|(prefix, _)| of(prefix)).collect();
            for batch in new.chunks(BATCH as usize) {
                let keys: Vec<u8> = batch.iter().flat_map(|(prefix, _)| prefix.map_key()).collect();
                let values: Vec<u8> = batch.iter().flat_map(|(_, new)| bytes_of(new).to_vec()).collect();
                map.update_batch(&keys, &values, batch.len() as u32, MapFlags::ANY, MapFlags::ANY).map_err(
                    |error| match shortage(&format!("{error:#}")) {
                        Some(shortage) => Error::other(format!("the deny list: {shortage}")),
                        None => failed("write", map, &error),
                    },
                )?;
                change::made(&format!("write {}", map.name().to_string_lossy()));
            }
        }
        Ok(())
    }

    /// What is not there is gone already.
    fn take(&self, change: &Change) -> Result<()> {
        for (prefix, _) in change.elements.iter().filter(|(_, new)| new.is_none()) {
            let map = if prefix.address.is_ipv4() { &self.v4 } else { &self.v6 };
            match map.delete(&prefix.map_key()) {
                Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                    return Err(failed("delete from", map, &error));
                }
                _ => change::made(&format!("delete from {}", map.name().to_string_lossy())),
            }
        }
        Ok(())
    }
}

/// The element of a prefix that the policy denies.
pub fn of_policy(prefix: &Prefix) -> abi::Denied {
    let mut denied = abi::Denied { until_s: abi::LIST_FOREVER, ..empty(prefix) };
    denied.origin_until_s[0] = abi::LIST_FOREVER;
    denied
}

/// Writes what the policy denies. What others deny stays.
pub fn write<M: MapCore>(policy: &Policy, find: impl Fn(&str) -> Option<M>, now_s: u32) -> Result<()> {
    let Some(maps) = Maps::open(find) else {
        return if policy.deny.is_none() { Ok(()) } else { Err(no_map(DENY4)) };
    };
    let held = maps.read()?;
    let wanted = policy.deny.iter().flat_map(|deny| &deny.prefixes);
    let wanted = wanted.map(|prefix| (*prefix, abi::LIST_FOREVER)).collect();
    maps.apply(&held, &held.change(OF_POLICY, Edit::Replace(wanted), now_s)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1000;
    const FOREVER: u32 = abi::LIST_FOREVER;

    fn prefixes<const N: usize>(list: [(&str, Until); N]) -> BTreeMap<Prefix, Until> {
        list.into_iter().map(|(prefix, until)| (prefix.parse().unwrap(), until)).collect()
    }

    fn after(mut held: Held, origin: &str, edit: Edit) -> (Held, Counts) {
        let change = held.change(origin, edit, NOW).unwrap();
        for (prefix, new) in change.elements {
            match new {
                Some(new) => held.entries.insert(prefix, new),
                None => held.entries.remove(&prefix),
            };
        }
        for (number, name) in change.names {
            held.origins[number] = name;
        }
        (held, change.counts)
    }

    fn until(held: &Held, prefix: &str) -> Option<u32> {
        held.entries.get(&prefix.parse().unwrap()).map(|denied| denied.until_s)
    }

    #[test]
    fn a_prefix_is_denied_until_the_last_of_its_origins() {
        let (held, _) = after(Held::default(), "hand", Edit::Add(prefixes([("10.0.0.0/8", 1600)])));
        let list = prefixes([("10.0.0.0/8", FOREVER), ("192.0.2.0/24", FOREVER)]);
        let (held, counts) = after(held, "drop", Edit::Replace(list));
        assert_eq!((counts.added, until(&held, "10.0.0.0/8")), (2, Some(FOREVER)));
        let (held, counts) = after(held, "drop", Edit::Replace(prefixes([("192.0.2.0/24", FOREVER)])));
        assert_eq!((counts.removed, until(&held, "10.0.0.0/8")), (1, Some(1600)));
        assert_eq!(held.origins().collect::<Vec<_>>(), [("hand", 1), ("drop", 1)]);
    }

    #[test]
    fn who_has_nothing_left_leaves_room_for_others() {
        let mut held = Held::default();
        for number in 1..abi::DENY_ORIGINS {
            held = after(held, &format!("list-{number}"), Edit::Add(prefixes([("10.0.0.0/8", FOREVER)]))).0;
        }
        let more = Edit::Add(prefixes([("10.0.0.0/9", FOREVER)]));
        let error = held.change("one-more", more.clone(), NOW).unwrap_err().to_string();
        assert!(error.contains("deny remove --origin list-1"), "{error}");
        let (held, _) = after(held, "list-2", Edit::Replace(BTreeMap::new()));
        let (held, _) = after(held, "one-more", more);
        assert!(held.origins().any(|it| it == ("one-more", 1)));
    }

    #[test]
    fn what_has_expired_goes_with_the_next_change() {
        let (held, _) = after(Held::default(), "a", Edit::Add(prefixes([("10.0.0.0/8", NOW + 1)])));
        let change = held.change("b", Edit::Add(prefixes([("10.0.0.0/9", FOREVER)])), NOW + 1).unwrap();
        assert_eq!(
            (change.counts.expired, change.elements.values().filter(|it| it.is_none()).count()),
            (1, 1)
        );
        assert_eq!(change.names.get(&1), Some(&None));
    }

    #[test]
    fn what_is_not_denied_cannot_be_removed() {
        let (held, _) = after(Held::default(), "drop", Edit::Add(prefixes([("10.0.0.0/8", FOREVER)])));
        let remove = |origin, prefix: &str| {
            let edit = Edit::Remove([prefix.parse().unwrap()].into());
            held.change(origin, edit, NOW).unwrap_err().to_string()
        };
        assert!(remove("hand", "10.0.0.0/8").contains("--origin drop"));
        assert!(remove("hand", "10.0.0.0/9").contains("deny list"));
    }
}
