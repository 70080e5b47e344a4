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
use crate::limits;
use crate::linked::{MapKind, MapSpec, PREFIX_LENGTH_BYTES};
use crate::memory::{CAGE_BYTES, PAGE};

const CAGED_WAY_OUT: &str = "choose fewer, or load the object through the kernel, so that no cage is needed";
/// A cache line. Not a page: a load waits for stores whose addresses have the same low 12 bits.
const ALIGN: usize = 64;

/// Where a map's values lie behind `base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub offset: usize,
    /// From one value to the next: the value size rounded up to 8.
    pub stride: usize,
    pub bytes: usize,
}

impl Layout {
    fn end(&self) -> Option<usize> {
        self.offset.checked_add(self.bytes)
    }
}

/// Places all maps behind `start`; returns them and the first byte behind. Caged: inside the cage, and with little kept beside.
/// is_shared : of maps that others keep, which take pages of their own.
pub(crate) fn lay_out(
    maps: &[MapSpec],
    start: usize,
    caged: bool,
    is_shared: impl Fn(&MapSpec) -> bool,
) -> Result<(Vec<Layout>, usize), Error> {
    let (room, room_to_keep) =
        if caged { (CAGE_BYTES, limits::KEPT_BYTES) } else { (limits::MAPPED_BYTES, limits::MAPPED_BYTES) };
    let (mut at, mut kept) = (start, 0usize);
    let mut places = Vec::with_capacity(maps.len());
    for map in maps {
        let refuse = |why: String| Error::Map { name: map.name().to_owned(), why };
        if map.max_entries() == 0 {
            return Err(refuse("max_entries is 0: set it before the engine is made".into()));
        }
        let way_out = if caged { CAGED_WAY_OUT } else { "choose fewer" };
        let align = if is_shared(map) { PAGE } else { ALIGN };
        let place = place(map, at, align).filter(|place| place.end().is_some_and(|end| end <= room));
        let Some(place) = place else {
            return Err(refuse(format!(
                "{} entries with values of {} bytes are too large, as all maps take at most {room} bytes: {way_out}",
                map.max_entries(),
                map.value_size()
            )));
        };
        kept = kept_bytes(map).and_then(|bytes| kept.checked_add(bytes)).unwrap_or(usize::MAX);
        if kept > room_to_keep {
            return Err(refuse(format!(
                "{} entries with keys of {} bytes are too large, as what finds the values of all maps takes at most \
                 {room_to_keep} bytes: {way_out}",
                map.max_entries(),
                map.key_size()
            )));
        }
        at = place.offset + place.bytes;
        if align == PAGE {
            at = at.next_multiple_of(PAGE);
        }
        places.push(place);
    }
    Ok((places, at))
}

/// Where a map's values lie, the first at `at` or a little later; `None`: nowhere, they are too large to count.
fn place(map: &MapSpec, at: usize, align: usize) -> Option<Layout> {
    let stride = (map.value_size() as usize).next_multiple_of(8);
    let entries = map.max_entries() as usize;
    let bytes = match map.kind() {
        MapKind::Array | MapKind::PerCpuArray => stride.checked_mul(entries)?,
        MapKind::Hash | MapKind::LruHash | MapKind::LpmTrie => {
            stride.checked_mul(entries.checked_add(SPARE as usize)?)?
        }
        MapKind::RingBuf => entries.checked_mul(2)?,
        MapKind::ProgArray | MapKind::PerfEventArray => 0,
    };
    Some(Layout { offset: at.checked_next_multiple_of(align)?, stride, bytes })
}

/// Bytes that a map takes at most beside its values.
fn kept_bytes(map: &MapSpec) -> Option<usize> {
    let entries = map.max_entries() as usize;
    match map.kind() {
        MapKind::Array | MapKind::PerCpuArray | MapKind::PerfEventArray => Some(0),
        MapKind::Hash | MapKind::LruHash | MapKind::LpmTrie => {
            entries.checked_add(SPARE as usize)?.checked_mul(map.key_size() as usize + hash::BYTES_PER_PLACE)
        }
        MapKind::ProgArray => entries.checked_mul(size_of::<Option<u32>>()),
        MapKind::RingBuf => Some(entries / ring::LEAST_RECORD * ring::BYTES_PER_RECORD),
    }
}

#[derive(Debug)]
enum Body {
    Array,
    Hash(Hash),
    Lpm(Lpm),
    /// Up to the last that was set.
    Programs(Vec<Option<u32>>),
    Ring(Ring),
    /// Nothing: what is written goes elsewhere.
    Outlet,
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
    pub place: Layout,
    body: Body,
    /// For prefixes under way.
    buffer: Vec<u8>,
}

impl Store {
    pub(crate) fn new(spec: &MapSpec, place: Layout) -> Self {
        let hash = |lru| Hash::new(spec.key_size() as usize, spec.max_entries(), lru);
        let body = match spec.kind() {
            MapKind::Array | MapKind::PerCpuArray => Body::Array,
            MapKind::Hash => Body::Hash(hash(false)),
            MapKind::LruHash => Body::Hash(hash(true)),
            MapKind::LpmTrie => Body::Lpm(Lpm { prefixes: hash(false), lengths: BTreeMap::new() }),
            MapKind::ProgArray => Body::Programs(Vec::new()),
            MapKind::RingBuf => Body::Ring(Ring::new(spec.max_entries())),
            MapKind::PerfEventArray => Body::Outlet,
        };
        Self { spec: spec.clone(), place, body, buffer: Vec::new() }
    }

    fn at(&self, place: u32) -> usize {
        self.place.offset + place as usize * self.place.stride
    }

    fn index(&self, key: &[u8]) -> Option<u32> {
        let index = u32::from_ne_bytes(*key.first_chunk()?);
        (index < self.spec.max_entries()).then_some(index)
    }

    /// Offset of a key's value, for user space.
    pub(crate) fn find(&self, key: &[u8]) -> Option<usize> {
        if key.len() != self.spec.key_size() as usize {
            return None;
        }
        let place = match &self.body {
            Body::Array => self.index(key)?,
            Body::Hash(hash) => hash.find(key)?,
            Body::Lpm(lpm) => lpm.find(key, &mut Vec::new())?,
            Body::Programs(_) | Body::Ring(_) | Body::Outlet => return None,
        };
        Some(self.at(place))
    }

    /// How many keys a look-up tries at most.
    pub(crate) fn tries(&self) -> usize {
        match &self.body {
            Body::Lpm(lpm) => lpm.lengths.len(),
            _ => 1,
        }
    }

    /// Offset of a key's value, for a program.
    pub(crate) fn lookup(&mut self, key: &[u8]) -> Option<usize> {
        let place = match &mut self.body {
            Body::Array => self.index(key)?,
            Body::Hash(hash) => hash.touch(key)?,
            Body::Lpm(lpm) => lpm.find(key, &mut self.buffer)?,
            Body::Programs(_) | Body::Ring(_) | Body::Outlet => return None,
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
            Body::Programs(_) | Body::Ring(_) | Body::Outlet => return Err(MapError::Unsupported),
        };
        Ok(self.at(place))
    }

    pub(crate) fn delete(&mut self, key: &[u8]) -> Result<(), MapError> {
        match &mut self.body {
            Body::Array => Err(MapError::Invalid),
            Body::Hash(hash) => hash.delete(key),
            Body::Lpm(lpm) => lpm.delete(key, &mut self.buffer),
            Body::Programs(_) | Body::Ring(_) | Body::Outlet => Err(MapError::Unsupported),
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
            Body::Array | Body::Programs(_) | Body::Outlet => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> MapSpec {
        MapSpec::new("m", kind, key_size, value_size, max_entries).unwrap()
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
        let (places, end) = lay_out(&maps, 100, true, |_| false).unwrap();
        for pair in places.windows(2) {
            assert!(pair[0].offset + pair[0].bytes <= pair[1].offset);
        }
        assert!(places.iter().all(|place| place.offset % 8 == 0 && place.stride % 8 == 0));
        assert_eq!(end, places[3].offset + 8);
    }

    fn refused(maps: &[MapSpec]) -> bool {
        matches!(lay_out(maps, 100, true, |_| false), Err(Error::Map { .. }))
    }

    /// Sizes whose sum is small modulo 2^64.
    #[test]
    fn maps_that_wrap_around_are_refused() {
        let huge = || spec(MapKind::Array, 4, 1 << 30, u32::MAX);
        let small = || spec(MapKind::Array, 4, 8, 1);
        let maps = [huge(), huge(), huge(), huge(), small(), spec(MapKind::Array, 4, 1 << 30, 4)];
        assert!(refused(&maps));
        let sum = maps.iter().fold(0usize, |sum, map| {
            sum.wrapping_add((map.value_size() as usize).wrapping_mul(map.max_entries() as usize))
        });
        assert_eq!(sum, 8, "else the test shows nothing");
    }

    #[test]
    fn maps_that_are_too_large_are_refused() {
        for (kind, key) in [(MapKind::Array, 4), (MapKind::Hash, 4), (MapKind::LruHash, 512)] {
            assert!(refused(&[spec(kind, key, 1 << 30, u32::MAX)]));
            assert!(refused(&[spec(kind, key, 1, u32::MAX)]));
            assert!(refused(&[spec(kind, key, 1 << 30, 4)]));
            assert!(refused(&[spec(kind, key, 8, 0)]));
        }
        let ring = spec(MapKind::RingBuf, 0, 0, 1 << 31);
        assert!(refused(&[ring.clone(), ring]));
        let key_bytes = |key_size| spec(MapKind::Hash, key_size, 8, 1 << 19);
        assert!(!refused(&[key_bytes(256)]) && refused(&[key_bytes(512)]));
        assert!(refused(&[key_bytes(256), key_bytes(256)]), "altogether");
        assert!(refused(&[spec(MapKind::ProgArray, 4, 4, u32::MAX)]));
    }

    #[test]
    fn the_longest_prefix_wins() {
        let map = spec(MapKind::LpmTrie, 8, 4, 10);
        let mut store = Store::new(&map, Layout { offset: 0, stride: 8, bytes: 80 });
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
        let mut store = Store::new(&map, Layout { offset: 64, stride: 16, bytes: 64 });
        assert_eq!(store.lookup(&3u32.to_ne_bytes()), Some(64 + 48));
        assert_eq!(store.lookup(&4u32.to_ne_bytes()), None);
        assert_eq!(store.update(&4u32.to_ne_bytes(), 0), Err(MapError::Full));
        assert_eq!(store.update(&0u32.to_ne_bytes(), 1), Err(MapError::Exists));
        assert_eq!(store.delete(&0u32.to_ne_bytes()), Err(MapError::Invalid));
    }
}
