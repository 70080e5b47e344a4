// SPDX-License-Identifier: Apache-2.0
//! The allow list's prefixes in their maps, which change while packets pass: what is new comes first, what is gone goes last. The policy allows
//! some, `wirewised allow` others for a while; a prefix of both is allowed until the later end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use bytemuck::{Zeroable, bytes_of};
use libbpf_rs::MapCore;

use crate::abi;
use crate::abi::maps::{ALLOW4, ALLOW6};
use crate::error::{Error, Result};
use crate::object::maps::{delete, update};
use crate::object::prefixes::{Counts, OF_POLICY, Until, elements, left};
use crate::policy::Prefix;

/// What allows prefixes beside the policy.
pub const BY_HAND: &str = "hand";

/// The maps of the list's prefixes.
pub struct Maps<M> {
    v4: M,
    v6: M,
}

/// What the maps hold.
#[derive(Debug, Clone, Default)]
pub struct Held(BTreeMap<Prefix, abi::Allowed>);

/// Times are in seconds of CLOCK_BOOTTIME, or `abi::LIST_FOREVER`.
#[derive(Debug, Clone)]
pub enum Edit {
    /// The policy allows these and no others.
    Policy(BTreeSet<Prefix>),
    /// These are allowed by hand too; of one that is already, the time is the new one.
    Add(BTreeMap<Prefix, Until>),
    /// These are no longer allowed by hand.
    Remove(BTreeSet<Prefix>),
}

/// How the list changes: of each prefix what was there and what will be; `None`: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    elements: BTreeMap<Prefix, (Option<abi::Allowed>, Option<abi::Allowed>)>,
    pub counts: Counts,
    /// `abi::ALLOW_IPV4` and `ALLOW_IPV6`: of which IP versions there are prefixes afterwards.
    pub bits: u32,
}

impl Held {
    /// Prefixes that are allowed now. Each has its origins, with the seconds that are left; `None`: until it is removed. now_s : CLOCK_BOOTTIME.
    pub fn allowances(
        &self,
        now_s: u32,
    ) -> impl Iterator<Item = (&Prefix, Vec<(&'static str, Option<u32>)>)> {
        self.0.iter().filter_map(move |(prefix, allowed)| {
            let each = [(OF_POLICY, allowed.policy_until_s), (BY_HAND, allowed.hand_until_s)];
            let who: Vec<_> =
                each.into_iter().filter_map(|(name, until)| Some((name, left(until, now_s)?))).collect();
            (!who.is_empty()).then_some((prefix, who))
        })
    }

    /// Whether an address is allowed until somebody changes that.
    pub fn always_allows(&self, address: IpAddr) -> bool {
        self.0
            .iter()
            .any(|(prefix, allowed)| allowed.until_s == abi::LIST_FOREVER && prefix.contains(address))
    }

    /// What `edit` changes. now_s : CLOCK_BOOTTIME; what expired before goes.
    pub fn change(&self, edit: Edit, now_s: u32) -> Result<Change> {
        let mut after = self.0.clone();
        let mut counts = Counts::default();
        for allowed in after.values_mut() {
            if allowed.hand_until_s != 0 && allowed.hand_until_s <= now_s {
                allowed.hand_until_s = 0;
                counts.expired += 1;
            }
        }
        match edit {
            Edit::Policy(wanted) => {
                for (prefix, allowed) in &mut after {
                    let until = if wanted.contains(prefix) { abi::LIST_FOREVER } else { 0 };
                    counts.count(std::mem::replace(&mut allowed.policy_until_s, until), until);
                }
                for prefix in wanted.into_iter().filter(|prefix| !self.0.contains_key(prefix)) {
                    counts.count(0, abi::LIST_FOREVER);
                    after.insert(prefix, of_policy(&prefix));
                }
            }
            Edit::Add(more) => {
                for (prefix, until) in more {
                    let allowed = after.entry(prefix).or_insert_with(|| empty(&prefix));
                    counts.count(std::mem::replace(&mut allowed.hand_until_s, until), until);
                }
            }
            Edit::Remove(fewer) => {
                for prefix in fewer {
                    let allowed = after.get_mut(&prefix).filter(|allowed| allowed.hand_until_s != 0);
                    let allowed = allowed.ok_or_else(|| self.not_by_hand(&prefix))?;
                    counts.count(std::mem::take(&mut allowed.hand_until_s), 0);
                }
            }
        }
        for allowed in after.values_mut() {
            allowed.until_s = allowed.policy_until_s.max(allowed.hand_until_s);
        }
        after.retain(|_, allowed| allowed.until_s != 0);
        let bit = |prefix: &Prefix| if prefix.address.is_ipv4() { abi::ALLOW_IPV4 } else { abi::ALLOW_IPV6 };
        let bits = after.keys().fold(0, |bits, prefix| bits | bit(prefix));
        let prefixes: BTreeSet<_> = self.0.keys().chain(after.keys()).copied().collect();
        let elements =
            prefixes.into_iter().map(|it| (it, (self.0.get(&it).copied(), after.get(&it).copied())));
        let elements = elements.filter(|(_, (before, new))| before != new).collect();
        Ok(Change { elements, counts, bits })
    }

    fn not_by_hand(&self, prefix: &Prefix) -> Error {
        Error::input(match self.0.get(prefix) {
            Some(allowed) if allowed.policy_until_s != 0 => {
                format!("{prefix} is allowed by the policy: change its file and give it to `run` again")
            }
            _ => format!("{prefix} is not allowed; `wirewised allow list` shows what is"),
        })
    }
}

impl Change {
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }
}

fn empty(prefix: &Prefix) -> abi::Allowed {
    abi::Allowed { length: prefix.length.into(), ..abi::Allowed::zeroed() }
}

/// The element of a prefix that the policy allows.
pub fn of_policy(prefix: &Prefix) -> abi::Allowed {
    abi::Allowed { until_s: abi::LIST_FOREVER, policy_until_s: abi::LIST_FOREVER, ..empty(prefix) }
}

impl<M: MapCore> Maps<M> {
    /// `None`: the program has no such list.
    pub fn open(find: impl Fn(&str) -> Option<M>) -> Option<Self> {
        Some(Self { v4: find(ALLOW4)?, v6: find(ALLOW6)? })
    }

    pub fn read(&self) -> Result<Held> {
        let mut held = BTreeMap::new();
        for (map, name) in [(&self.v4, ALLOW4), (&self.v6, ALLOW6)] {
            held.extend(elements(map, name)?);
        }
        Ok(Held(held))
    }

    /// What an edit changes, if there is room for it.
    pub fn plan(&self, held: &Held, edit: Edit, now_s: u32) -> Result<Change> {
        let change = held.change(edit, now_s)?;
        for (map, name, is_v4) in [(&self.v4, ALLOW4, true), (&self.v6, ALLOW6, false)] {
            // What goes does so last.
            let prefixes: BTreeSet<_> = held.0.keys().chain(change.elements.keys()).collect();
            let count = prefixes.into_iter().filter(|prefix| prefix.address.is_ipv4() == is_v4).count();
            check_room(name, count, map.max_entries())?;
        }
        Ok(change)
    }

    /// Writes what is new. If memory runs out, the maps are as they were.
    pub fn put(&self, change: &Change) -> Result<()> {
        let new = change.elements.iter().filter_map(|(prefix, (_, new))| Some((prefix, (*new)?)));
        for (prefix, new) in new {
            if let Err(error) = update(self.of(prefix), &prefix.map_key(), bytes_of(&new)) {
                self.undo(change);
                return Err(error);
            }
        }
        Ok(())
    }

    /// As far as it goes: the error that leads here is the one to be told.
    fn undo(&self, change: &Change) {
        for (prefix, (before, _)) in &change.elements {
            let (map, key) = (self.of(prefix), prefix.map_key());
            let _ = match before {
                Some(before) => update(map, &key, bytes_of(before)),
                None => delete(map, &key),
            };
        }
    }

    /// Deletes what is gone.
    pub fn take(&self, change: &Change) -> Result<()> {
        let gone = change.elements.iter().filter(|(_, (_, new))| new.is_none());
        gone.map(|(prefix, _)| prefix).try_for_each(|prefix| delete(self.of(prefix), &prefix.map_key()))
    }

    fn of(&self, prefix: &Prefix) -> &M {
        if prefix.address.is_ipv4() { &self.v4 } else { &self.v6 }
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1000;
    const FOREVER: u32 = abi::LIST_FOREVER;

    fn set(list: &[&str]) -> BTreeSet<Prefix> {
        list.iter().map(|prefix| prefix.parse().unwrap()).collect()
    }

    fn add(prefix: &str, until: Until) -> Edit {
        Edit::Add([(prefix.parse().unwrap(), until)].into())
    }

    fn after(mut held: Held, edit: Edit, now_s: u32) -> (Held, Change) {
        let change = held.change(edit, now_s).unwrap();
        for (prefix, (_, new)) in &change.elements {
            match new {
                Some(new) => held.0.insert(*prefix, *new),
                None => held.0.remove(prefix),
            };
        }
        (held, change)
    }

    fn until(held: &Held, prefix: &str) -> Option<u32> {
        held.0.get(&prefix.parse().unwrap()).map(|allowed| allowed.until_s)
    }

    #[test]
    fn a_prefix_is_allowed_until_the_later_of_policy_and_hand() {
        let (held, _) = after(Held::default(), add("10.0.0.0/8", 1600), NOW);
        let (held, change) = after(held, Edit::Policy(set(&["10.0.0.0/8", "2001:db8::/32"])), NOW);
        assert_eq!((change.counts.added, until(&held, "10.0.0.0/8")), (2, Some(FOREVER)));
        assert_eq!(change.bits, abi::ALLOW_IPV4 | abi::ALLOW_IPV6);
        let (held, change) = after(held, Edit::Policy(set(&[])), NOW);
        assert_eq!((change.counts.removed, until(&held, "10.0.0.0/8")), (2, Some(1600)));
        assert_eq!((until(&held, "2001:db8::/32"), change.bits), (None, abi::ALLOW_IPV4));
        let (_, change) = after(held, Edit::Remove(set(&["10.0.0.0/8"])), NOW);
        assert_eq!((change.counts.removed, change.bits), (1, 0));
    }

    #[test]
    fn what_has_expired_goes_with_the_next_change() {
        let (held, _) = after(Held::default(), add("10.0.0.0/8", NOW + 1), NOW);
        assert_eq!(held.allowances(NOW).count(), 1);
        assert_eq!(held.allowances(NOW + 1).count(), 0);
        let (held, change) = after(held, add("192.0.2.7/32", FOREVER), NOW + 1);
        assert_eq!((change.counts.expired, change.counts.added), (1, 1));
        assert_eq!(until(&held, "10.0.0.0/8"), None);
        assert!(held.always_allows("192.0.2.7".parse().unwrap()));
    }

    #[test]
    fn what_is_not_allowed_by_hand_cannot_be_removed() {
        let (held, _) = after(Held::default(), Edit::Policy(set(&["10.0.0.0/8"])), NOW);
        let refused = |prefix: &str| held.change(Edit::Remove(set(&[prefix])), NOW).unwrap_err().to_string();
        assert!(refused("10.0.0.0/8").contains("by the policy"));
        assert!(refused("10.0.0.0/9").contains("allow list"));
    }
}
