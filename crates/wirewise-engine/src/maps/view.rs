// SPDX-License-Identifier: Apache-2.0
//! Maps as user space sees them, between packets.

use super::{Body, Store};
use crate::error::MapError;
use crate::ids::ProgramId;
use crate::linked::{MapKind, MapSpec};
use crate::memory::Memory;

/// A map to read.
#[derive(Debug, Clone, Copy)]
pub struct Map<'a> {
    pub(crate) store: &'a Store,
    pub(crate) memory: &'a Memory,
}

impl<'a> Map<'a> {
    /// The map's description.
    pub fn spec(&self) -> &'a MapSpec {
        &self.store.spec
    }

    /// Entries it holds: of an array, all; of a ring buffer, the submitted records.
    pub fn len(&self) -> usize {
        match &self.store.body {
            Body::Array => self.store.spec.max_entries() as usize,
            Body::Hash(hash) => hash.len(),
            Body::Lpm(lpm) => lpm.prefixes.len(),
            Body::Programs(programs) => programs.iter().flatten().count(),
            Body::Ring(ring) => ring.pending(),
            Body::Outlet => 0,
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes from one value of an array to the next: the value size rounded up to 8.
    pub fn stride(&self) -> usize {
        self.store.place.stride
    }

    /// The value of a key: of a number (`u32` in host byte order) in arrays, of the longest prefix in LPM tries.
    pub fn lookup(&self, key: &[u8]) -> Option<&'a [u8]> {
        let at = self.store.find(key)?;
        Some(self.memory.bytes(at, self.store.spec.value_size() as usize))
    }

    /// All elements of an array, [`Map::stride`] bytes each; `None` of other kinds.
    pub fn bytes(&self) -> Option<&'a [u8]> {
        let place = self.store.place;
        self.store.spec.kind().is_array().then(|| self.memory.bytes(place.offset, place.bytes))
    }

    /// Keys and values of a hash map or LPM trie, in no order; nothing of other kinds.
    pub fn entries(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let Self { store, memory } = *self;
        let hash = match &store.body {
            Body::Hash(hash) => Some(hash),
            Body::Lpm(lpm) => Some(&lpm.prefixes),
            _ => None,
        };
        hash.into_iter().flat_map(move |hash| {
            hash.places().map(move |place| {
                (hash.key(place), memory.bytes(store.at(place), store.spec.value_size() as usize))
            })
        })
    }

    /// The program at an index of a program array.
    pub fn program(&self, index: u32) -> Option<ProgramId> {
        self.store.program(index).map(ProgramId)
    }
}

/// A map to read and change.
#[derive(Debug)]
pub struct MapMut<'a> {
    pub(crate) store: &'a mut Store,
    pub(crate) memory: &'a mut Memory,
    /// How many programs the engine has.
    pub(crate) programs: u32,
}

impl<'a> MapMut<'a> {
    /// The same map, to read.
    pub fn as_map(&self) -> Map<'_> {
        Map { store: self.store, memory: self.memory }
    }

    /// Sets a key's value. flags: 0 (`BPF_ANY`), 1 (`BPF_NOEXIST`), 2 (`BPF_EXIST`).
    pub fn update(&mut self, key: &[u8], value: &[u8], flags: u64) -> Result<(), MapError> {
        let spec = &self.store.spec;
        if key.len() != spec.key_size() as usize || value.len() != spec.value_size() as usize {
            return Err(MapError::Invalid);
        }
        if spec.is_read_only() {
            return Err(MapError::Unsupported);
        }
        self.store.settle();
        let at = self.store.update(key, flags)?;
        self.memory.bytes_mut(at, value.len()).copy_from_slice(value);
        Ok(())
    }

    /// Removes a key from a hash map or LPM trie.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), MapError> {
        if key.len() != self.store.spec.key_size() as usize {
            return Err(MapError::Invalid);
        }
        self.store.settle();
        self.store.delete(key)
    }

    /// All elements of an array, [`Map::stride`] bytes each; `None` of other kinds, and of read-only data, whose values are part of
    /// the code.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let place = self.store.place;
        let writable = self.store.spec.kind().is_array() && !self.store.spec.is_read_only();
        writable.then(|| self.memory.bytes_mut(place.offset, place.bytes))
    }

    /// As [`MapMut::bytes_mut`], for as long as the engine is borrowed.
    pub fn into_bytes_mut(self) -> Option<&'a mut [u8]> {
        let place = self.store.place;
        let writable = self.store.spec.kind().is_array() && !self.store.spec.is_read_only();
        writable.then(|| self.memory.bytes_mut(place.offset, place.bytes))
    }

    /// Puts a program of the same engine into a program array, or takes it out.
    pub fn set(&mut self, index: u32, program: Option<ProgramId>) -> Result<(), MapError> {
        if program.is_some_and(|program| program.0 >= self.programs) {
            return Err(MapError::Invalid);
        }
        match &mut self.store.body {
            Body::Programs(_) if index >= self.store.spec.max_entries() => Err(MapError::Full),
            Body::Programs(programs) => {
                let index = index as usize;
                if programs.len() <= index {
                    programs.resize(index + 1, None);
                }
                programs[index] = program.map(|program| program.0);
                Ok(())
            }
            _ => Err(MapError::Unsupported),
        }
    }

    /// Hands the submitted records of a ring buffer to `each`, in order, and makes room; returns how many.
    pub fn drain(&mut self, mut each: impl FnMut(&[u8])) -> Result<usize, MapError> {
        let offset = self.store.place.offset;
        let memory = &*self.memory;
        let ring = self.store.ring().ok_or(MapError::Unsupported)?;
        let mut count = 0;
        ring.drain(|at, length| {
            each(memory.bytes(offset + at, length));
            count += 1;
        });
        Ok(count)
    }

    /// The map's kind.
    pub fn kind(&self) -> MapKind {
        self.store.spec.kind()
    }
}
