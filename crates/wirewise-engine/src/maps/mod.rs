// SPDX-License-Identifier: Apache-2.0
//! The maps of one worker: no locks, values at addresses that stay.

pub(crate) mod hash;
pub(crate) mod ring;
mod view;

pub use view::{Map, MapMut};

use std::collections::BTreeMap;

use self::hash::{Hash, SPARE};
use self::ring::Ring;
use crate::error::{Error, MapError};
use crate::linked::{MapKind, MapSpec};

const MAX_KEY_BYTES: u32 = 512;
const MAX_VALUE_BYTES: u32 = 1 << 30;
/// The prefix length in front of an LPM key.
const PREFIX_LENGTH_BYTES: u32 = 4;
/// The kernel's: LPM data.
const MAX_LPM_BYTES: u32 = 256;
/// A cache line. Not a page: a load waits for stores whose addresses have the same low 12 bits.
const ALIGN: usize = 64;
const PAGE: usize = 4096;

/// Where a map's values lie behind `base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub offset: usize,
    /// From one value to the next: the value size rounded up to 8.
    pub stride: usize,
    pub bytes: usize,
}

/// Places all maps behind `start`; returns them and the first byte behind.
pub(crate) fn lay_out(maps: &[MapSpec], start: usize) -> Result<(Vec<Place>, usize), Error> {
    let mut at = start;
    let mut places = Vec::with_capacity(maps.len());
    for map in maps {
        check(map).map_err(|why| Error::Map { name: map.name.clone(), why })?;
        let stride = (map.value_size as usize).next_multiple_of(8);
        let entries = map.max_entries as usize;
        let bytes = match map.kind {
            MapKind::Array | MapKind::PerCpuArray => stride * entries,
            MapKind::Hash | MapKind::LruHash | MapKind::LpmTrie => stride * (entries + SPARE as usize),
            MapKind::RingBuf => 2 * entries,
            MapKind::ProgArray => 0,
        };
        at = at.next_multiple_of(ALIGN);
        places.push(Place { offset: at, stride, bytes });
        at += bytes;
    }
    Ok((places, at))
}

fn check(map: &MapSpec) -> Result<(), String> {
    if map.max_entries == 0 {
        return Err("max_entries is 0: set it before the engine is made".into());
    }
    let (keys, values) = match map.kind {
        MapKind::Array | MapKind::PerCpuArray => (4..=4, 1..=MAX_VALUE_BYTES),
        MapKind::ProgArray => (4..=4, 4..=4),
        MapKind::Hash | MapKind::LruHash => (1..=MAX_KEY_BYTES, 1..=MAX_VALUE_BYTES),
        MapKind::LpmTrie => {
            (PREFIX_LENGTH_BYTES + 1..=PREFIX_LENGTH_BYTES + MAX_LPM_BYTES, 1..=MAX_VALUE_BYTES)
        }
        MapKind::RingBuf => (0..=0, 0..=0),
    };
    if !keys.contains(&map.key_size) {
        return Err(format!("a key of {} bytes; {:?} takes {keys:?}", map.key_size, map.kind));
    }
    if !values.contains(&map.value_size) {
        return Err(format!("a value of {} bytes; {:?} takes {values:?}", map.value_size, map.kind));
    }
    let ring_ok = map.max_entries.is_power_of_two() && map.max_entries as usize >= PAGE;
    if map.kind == MapKind::RingBuf && !ring_ok {
        return Err(format!("a ring buffer of {} bytes; it takes a power of two from 4096", map.max_entries));
    }
    match &map.initial {
        Some(_) if !(map.kind.is_array() && map.max_entries == 1) => {
            Err("initial bytes, which only an array of one element has".into())
        }
        Some(initial) if initial.len() != map.value_size as usize => {
            Err(format!("{} initial bytes for a value of {}", initial.len(), map.value_size))
        }
        _ => Ok(()),
    }
}

#[derive(Debug)]
enum Body {
    Array,
    Hash(Hash),
    Lpm(Lpm),
    Programs(Vec<Option<u32>>),
    Ring(Ring),
}

/// Prefixes in one hash table, and how many there are of each length; a look-up tries the lengths from the longest.
#[derive(Debug)]
struct Lpm {
    prefixes: Hash,
    lengths: BTreeMap<u32, u32>,
}

/// A prefix as its key: the bits behind its length are zeros. `None` if it is longer than the data.
fn prefix(key: &[u8], length: u32, into: &mut Vec<u8>) -> Option<()> {
    let data = key.get(PREFIX_LENGTH_BYTES as usize..)?;
    let (whole, bits) = ((length / 8) as usize, length % 8);
    into.clear();
    into.extend_from_slice(&length.to_ne_bytes());
    into.extend_from_slice(data.get(..whole)?);
    if bits != 0 {
        into.push(data.get(whole)? & !(0xff >> bits));
    }
    into.resize(key.len(), 0);
    Some(())
}

fn prefix_length(key: &[u8]) -> u32 {
    key.first_chunk().map_or(0, |length| u32::from_ne_bytes(*length))
}

impl Lpm {
    fn find(&self, key: &[u8], buffer: &mut Vec<u8>) -> Option<u32> {
        let wanted = prefix_length(key);
        if wanted as usize > (key.len() - PREFIX_LENGTH_BYTES as usize) * 8 {
            return None;
        }
        self.lengths.range(..=wanted).rev().find_map(|(length, _)| {
            prefix(key, *length, buffer)?;
            self.prefixes.find(buffer)
        })
    }

    fn update(&mut self, key: &[u8], flags: u64, buffer: &mut Vec<u8>) -> Result<u32, MapError> {
        let length = prefix_length(key);
        prefix(key, length, buffer).ok_or(MapError::Invalid)?;
        let before = self.prefixes.len();
        let place = self.prefixes.update(buffer, flags)?;
        if self.prefixes.len() > before {
            *self.lengths.entry(length).or_default() += 1;
        }
        Ok(place)
    }

    fn delete(&mut self, key: &[u8], buffer: &mut Vec<u8>) -> Result<(), MapError> {
        let length = prefix_length(key);
        prefix(key, length, buffer).ok_or(MapError::Invalid)?;
        self.prefixes.delete(buffer)?;
        if let Some(count) = self.lengths.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
        Ok(())
    }
}

/// One map: its description, its place, and what is not program-visible memory.
#[derive(Debug)]
pub(crate) struct Store {
    pub spec: MapSpec,
    pub place: Place,
    body: Body,
    /// For prefixes under way.
    buffer: Vec<u8>,
}

impl Store {
    pub(crate) fn new(spec: &MapSpec, place: Place) -> Self {
        let hash = |lru| Hash::new(spec.key_size as usize, spec.max_entries, lru);
        let body = match spec.kind {
            MapKind::Array | MapKind::PerCpuArray => Body::Array,
            MapKind::Hash => Body::Hash(hash(false)),
            MapKind::LruHash => Body::Hash(hash(true)),
            MapKind::LpmTrie => Body::Lpm(Lpm { prefixes: hash(false), lengths: BTreeMap::new() }),
            MapKind::ProgArray => Body::Programs(vec![None; spec.max_entries as usize]),
            MapKind::RingBuf => Body::Ring(Ring::new(spec.max_entries)),
        };
        Self { spec: spec.clone(), place, body, buffer: Vec::new() }
    }

    fn at(&self, place: u32) -> usize {
        self.place.offset + place as usize * self.place.stride
    }

    fn index(&self, key: &[u8]) -> Option<u32> {
        let index = u32::from_ne_bytes(*key.first_chunk()?);
        (index < self.spec.max_entries).then_some(index)
    }

    /// Offset of a key's value, for user space.
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        if key.len() != self.spec.key_size as usize {
            return None;
        }
        let place = match &self.body {
            Body::Array => self.index(key)?,
            Body::Hash(hash) => hash.find(key)?,
            Body::Lpm(lpm) => lpm.find(key, &mut Vec::new())?,
            Body::Programs(_) | Body::Ring(_) => return None,
        };
        Some(self.at(place))
    }

    /// Offset of a key's value, for a program.
    pub(crate) fn lookup(&mut self, key: &[u8]) -> Option<usize> {
        let place = match &mut self.body {
            Body::Array => self.index(key)?,
            Body::Hash(hash) => hash.touch(key)?,
            Body::Lpm(lpm) => lpm.find(key, &mut self.buffer)?,
            Body::Programs(_) | Body::Ring(_) => return None,
        };
        Some(self.at(place))
    }

    /// Offset of where a key's new value goes.
    pub(crate) fn update(&mut self, key: &[u8], flags: u64) -> Result<usize, MapError> {
        let place = match &mut self.body {
            Body::Array if flags > hash::UPDATE_EXIST => return Err(MapError::Invalid),
            // The kernel's order: a number beyond the end is E2BIG, then no element can be new.
            Body::Array => {
                let index = self.index(key).ok_or(MapError::Full)?;
                if flags == hash::UPDATE_NO_EXIST {
                    return Err(MapError::Exists);
                }
                index
            }
            Body::Hash(hash) => hash.update(key, flags)?,
            Body::Lpm(lpm) => lpm.update(key, flags, &mut self.buffer)?,
            Body::Programs(_) | Body::Ring(_) => return Err(MapError::Unsupported),
        };
        Ok(self.at(place))
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<(), MapError> {
        match &mut self.body {
            Body::Array => Err(MapError::Invalid),
            Body::Hash(hash) => hash.delete(key),
            Body::Lpm(lpm) => lpm.delete(key, &mut self.buffer),
            Body::Programs(_) | Body::Ring(_) => Err(MapError::Unsupported),
        }
    }

    /// Number of the program at an index of a program array.
    pub(crate) fn program(&self, index: u32) -> Option<u32> {
        match &self.body {
            Body::Programs(programs) => *programs.get(index as usize)?,
            _ => None,
        }
    }

    pub(crate) fn ring(&mut self) -> Option<&mut Ring> {
        match &mut self.body {
            Body::Ring(ring) => Some(ring),
            _ => None,
        }
    }

    /// Between packets.
    pub(crate) fn settle(&mut self) {
        match &mut self.body {
            Body::Hash(hash) => hash.settle(),
            Body::Lpm(lpm) => lpm.prefixes.settle(),
            Body::Ring(ring) => ring.settle(),
            Body::Array | Body::Programs(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> MapSpec {
        MapSpec { name: "m".into(), kind, key_size, value_size, max_entries, initial: None, read_only: false }
    }

    fn lpm_key(length: u32, address: [u8; 4]) -> Vec<u8> {
        [&length.to_ne_bytes()[..], &address].concat()
    }

    #[test]
    fn values_do_not_overlap_and_are_aligned() {
        let maps = [
            spec(MapKind::Array, 4, 5, 3),
            spec(MapKind::Hash, 1, 3, 10),
            spec(MapKind::RingBuf, 0, 0, 4096),
            spec(MapKind::Array, 4, 8, 1),
        ];
        let (places, end) = lay_out(&maps, 100).unwrap();
        for pair in places.windows(2) {
            assert!(pair[0].offset + pair[0].bytes <= pair[1].offset);
        }
        assert!(places.iter().all(|place| place.offset % 8 == 0 && place.stride % 8 == 0));
        assert_eq!(end, places[3].offset + 8);
    }

    #[test]
    fn impossible_maps_are_refused_by_name() {
        let mut initial = spec(MapKind::Array, 4, 8, 1);
        initial.initial = Some(vec![0; 7]);
        for map in [
            spec(MapKind::Array, 8, 8, 1),
            spec(MapKind::Array, 4, 0, 1),
            spec(MapKind::Array, 4, 8, 0),
            spec(MapKind::LpmTrie, 4, 8, 1),
            spec(MapKind::RingBuf, 0, 0, 5000),
            initial,
        ] {
            assert!(matches!(lay_out(std::slice::from_ref(&map), 0), Err(Error::Map { .. })), "{map:?}");
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let map = spec(MapKind::LpmTrie, 8, 4, 10);
        let mut store = Store::new(&map, Place { offset: 0, stride: 8, bytes: 80 });
        let all = store.update(&lpm_key(0, [0; 4]), 0).unwrap();
        let ten = store.update(&lpm_key(8, [10, 9, 9, 9]), 0).unwrap();
        let odd = store.update(&lpm_key(13, [10, 0b0101_0111, 0, 0]), 0).unwrap();
        let mut look = |length, address| store.lookup(&lpm_key(length, address));
        assert_eq!(look(32, [10, 0b0101_0001, 1, 1]), Some(odd));
        assert_eq!(look(32, [10, 0b0101_1001, 1, 1]), Some(ten));
        assert_eq!(look(12, [10, 0b0101_0001, 1, 1]), Some(ten), "no prefix longer than asked for");
        assert_eq!(look(32, [11, 0, 0, 0]), Some(all));
        assert_eq!(look(33, [10, 0, 0, 0]), None);
        assert_eq!(store.delete(&lpm_key(8, [10, 1, 1, 1])), Ok(()));
        assert_eq!(store.lookup(&lpm_key(32, [10, 0, 0, 0])), Some(all));
        assert_eq!(store.update(&lpm_key(33, [0; 4]), 0), Err(MapError::Invalid));
    }

    #[test]
    fn arrays_answer_as_in_the_kernel() {
        let map = spec(MapKind::Array, 4, 12, 4);
        let mut store = Store::new(&map, Place { offset: 64, stride: 16, bytes: 64 });
        assert_eq!(store.lookup(&3u32.to_ne_bytes()), Some(64 + 48));
        assert_eq!(store.lookup(&4u32.to_ne_bytes()), None);
        assert_eq!(store.update(&4u32.to_ne_bytes(), 0), Err(MapError::Full));
        assert_eq!(store.update(&0u32.to_ne_bytes(), 1), Err(MapError::Exists));
        assert_eq!(store.delete(&0u32.to_ne_bytes()), Err(MapError::Invalid));
    }
}
