// SPDX-License-Identifier: Apache-2.0
//! Hash tables whose values lie in a slab at stable addresses.
//!
//! A value keeps its address until the packet ends, even if its entry is deleted, replaced or evicted: freed places wait in
//! limbo until `settle`.

use std::collections::VecDeque;
use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::error::MapError;

/// Places beyond `max_entries`, for values that wait in limbo.
pub(crate) const SPARE: u32 = 64;
const NONE: u32 = u32::MAX;
/// What a place takes beside its key and value: in the table, in `free` or `limbo`, in the order of use; these grow by doubling.
pub(crate) const BYTES_PER_PLACE: usize = 40;

pub(crate) const UPDATE_ANY: u64 = 0;
pub(crate) const UPDATE_NO_EXIST: u64 = 1;
pub(crate) const UPDATE_EXIST: u64 = 2;

#[derive(Debug)]
pub(crate) struct Hash {
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
    key_size: usize,
    max_entries: u32,
    /// Keys by place.
    keys: Vec<u8>,
    free: Vec<u32>,
    limbo: VecDeque<u32>,
    /// Neighbours by place in the order of use, and its ends; only in an LRU map.
    order: Option<Order>,
}

#[derive(Debug)]
struct Order {
    links: Vec<[u32; 2]>,
    oldest: u32,
    newest: u32,
}

impl Order {
    fn new() -> Self {
        Self { links: Vec::new(), oldest: NONE, newest: NONE }
    }

    fn unlink(&mut self, place: u32) {
        let [older, newer] = self.links[place as usize];
        match older {
            NONE => self.oldest = newer,
            _ => self.links[older as usize][1] = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.links[newer as usize][0] = older,
        }
    }

    fn push_newest(&mut self, place: u32) {
        if self.links.len() <= place as usize {
            self.links.resize(place as usize + 1, [NONE; 2]);
        }
        self.links[place as usize] = [self.newest, NONE];
        match self.newest {
            NONE => self.oldest = place,
            newest => self.links[newest as usize][1] = place,
        }
        self.newest = place;
    }
}

impl Hash {
    pub(crate) fn new(key_size: usize, max_entries: u32, least_recently_used: bool) -> Self {
        Self {
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            key_size,
            max_entries,
            keys: Vec::new(),
            free: Vec::new(),
            limbo: VecDeque::new(),
            order: least_recently_used.then(Order::new),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn key(&self, place: u32) -> &[u8] {
        &self.keys[place as usize * self.key_size..][..self.key_size]
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = u32> + '_ {
        self.table.iter().copied()
    }

    /// The place of a key's value.
    pub(crate) fn find(&self, key: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.table.find(hash, |place| self.key(*place) == key).copied()
    }

    /// As `find`, for a program: makes the entry the most recently used.
    pub(crate) fn touch(&mut self, key: &[u8]) -> Option<u32> {
        let place = self.find(key)?;
        if let Some(order) = &mut self.order
            && order.newest != place
        {
            order.unlink(place);
            order.push_newest(place);
        }
        Some(place)
    }

    /// Makes room for a key's new value and returns its place, still to be filled.
    pub(crate) fn update(&mut self, key: &[u8], flags: u64) -> Result<u32, MapError> {
        let known = self.find(key);
        match (flags, known) {
            (UPDATE_NO_EXIST, Some(_)) => return Err(MapError::Exists),
            (UPDATE_EXIST, None) => return Err(MapError::NoEntry),
            (UPDATE_ANY | UPDATE_NO_EXIST | UPDATE_EXIST, _) => {}
            _ => return Err(MapError::Invalid),
        }
        match known {
            Some(place) => self.remove(key, place),
            None if self.table.len() < self.max_entries as usize => {}
            None => self.evict()?,
        }
        let place = self.take_place().ok_or(MapError::Full)?;
        self.keys[place as usize * self.key_size..][..self.key_size].copy_from_slice(key);
        let Self { table, hasher, keys, key_size, .. } = self;
        let key_at = |place: &u32| &keys[*place as usize * *key_size..][..*key_size];
        table.insert_unique(hasher.hash_one(key), place, |place| hasher.hash_one(key_at(place)));
        if let Some(order) = &mut self.order {
            order.push_newest(place);
        }
        Ok(place)
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<(), MapError> {
        let place = self.find(key).ok_or(MapError::NoEntry)?;
        self.remove(key, place);
        Ok(())
    }

    /// Between packets: nobody points at what is in limbo any more.
    pub(crate) fn settle(&mut self) {
        self.free.extend(self.limbo.drain(..));
    }

    fn evict(&mut self) -> Result<(), MapError> {
        let oldest = self.order.as_ref().map_or(NONE, |order| order.oldest);
        if oldest == NONE {
            return Err(MapError::Full);
        }
        let key = self.key(oldest).to_vec();
        self.remove(&key, oldest);
        Ok(())
    }

    fn remove(&mut self, key: &[u8], place: u32) {
        let hash = self.hasher.hash_one(key);
        if let Ok(entry) = self.table.find_entry(hash, |other| *other == place) {
            entry.remove();
        }
        if let Some(order) = &mut self.order {
            order.unlink(place);
        }
        self.limbo.push_back(place);
    }

    fn take_place(&mut self) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            return Some(place);
        }
        let place = (self.keys.len() / self.key_size) as u32;
        if place < self.max_entries.saturating_add(SPARE) {
            self.keys.resize(self.keys.len() + self.key_size, 0);
            return Some(place);
        }
        // A packet that frees more than SPARE values gets the oldest of them back.
        self.limbo.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_and_limits_are_those_of_the_kernel() {
        let mut hash = Hash::new(1, 2, false);
        assert_eq!(hash.update(&[1], UPDATE_EXIST), Err(MapError::NoEntry));
        assert!(hash.update(&[1], UPDATE_NO_EXIST).is_ok());
        assert_eq!(hash.update(&[1], UPDATE_NO_EXIST), Err(MapError::Exists));
        assert_eq!(hash.update(&[1], 9), Err(MapError::Invalid));
        assert!(hash.update(&[2], UPDATE_ANY).is_ok());
        assert_eq!(hash.update(&[3], UPDATE_ANY), Err(MapError::Full));
        assert!(hash.delete(&[1]).is_ok());
        assert_eq!(hash.delete(&[1]), Err(MapError::NoEntry));
        assert_eq!(hash.len(), 1);
    }

    #[test]
    fn a_place_is_not_reused_before_the_packet_ends() {
        let mut hash = Hash::new(1, 1, true);
        let first = hash.update(&[1], UPDATE_ANY).unwrap();
        let second = hash.update(&[2], UPDATE_ANY).unwrap();
        assert_ne!(first, second);
        assert_eq!(hash.find(&[1]), None);
        hash.settle();
        assert_eq!(hash.update(&[3], UPDATE_ANY), Ok(first));
    }

    #[test]
    fn the_least_recently_used_entry_goes_first() {
        let mut hash = Hash::new(1, 3, true);
        for key in 1..=3 {
            hash.update(&[key], UPDATE_ANY).unwrap();
        }
        assert!(hash.touch(&[1]).is_some());
        hash.update(&[4], UPDATE_ANY).unwrap();
        hash.update(&[5], UPDATE_ANY).unwrap();
        let known: Vec<bool> = (1..=5).map(|key| hash.find(&[key]).is_some()).collect();
        assert_eq!(known, [true, false, false, true, true]);
    }
}
