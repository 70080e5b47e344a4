// SPDX-License-Identifier: Apache-2.0
//! An object after linking: byte code whose maps are known, and the maps' descriptions.

use crate::error::Error;
use crate::insn::Insn;
use crate::limits;

/// The prefix length in front of an LPM key.
pub(crate) const PREFIX_LENGTH_BYTES: u32 = 4;
/// The kernel's: LPM data.
const MAX_LPM_BYTES: u32 = 256;
/// Bytes of the smallest ring buffer: a page.
const SMALLEST_RING: u32 = 4096;

/// Where the byte code comes from, hence how it may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The kernel's verifier accepted exactly this byte code: it runs with direct memory access.
    Verified,
    /// Nobody checked it: it runs caged.
    Unverified,
}

/// The kinds of map the engine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MapKind {
    /// `BPF_MAP_TYPE_ARRAY`; also `.rodata`, `.data` and `.bss`, as arrays of one element.
    Array,
    /// `BPF_MAP_TYPE_PERCPU_ARRAY`: a worker is one CPU and holds one value an element.
    PerCpuArray,
    /// `BPF_MAP_TYPE_HASH`.
    Hash,
    /// `BPF_MAP_TYPE_LRU_HASH`, with exact least-recently-used order.
    LruHash,
    /// `BPF_MAP_TYPE_LPM_TRIE`.
    LpmTrie,
    /// `BPF_MAP_TYPE_PROG_ARRAY`.
    ProgArray,
    /// `BPF_MAP_TYPE_RINGBUF`; `max_entries` is its size in bytes.
    RingBuf,
    /// `BPF_MAP_TYPE_PERF_EVENT_ARRAY`: what is written there comes out of [`Engine::outputs`](crate::Engine::outputs).
    PerfEventArray,
}

impl MapKind {
    /// From `enum bpf_map_type`.
    pub fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            1 => MapKind::Hash,
            2 => MapKind::Array,
            3 => MapKind::ProgArray,
            4 => MapKind::PerfEventArray,
            // A worker is one CPU: its shard of a per-CPU hash is a hash.
            5 => MapKind::Hash,
            6 => MapKind::PerCpuArray,
            9 | 10 => MapKind::LruHash,
            11 => MapKind::LpmTrie,
            // A program reads of it whether a key is there; nothing is sent from here.
            16 | 17 | 25 => MapKind::Hash,
            27 => MapKind::RingBuf,
            _ => return None,
        })
    }

    /// Whether elements are numbered and lie in one block.
    pub fn is_array(self) -> bool {
        matches!(self, MapKind::Array | MapKind::PerCpuArray)
    }
}

/// A map as the object describes it: of sizes that its kind takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapSpec {
    name: String,
    kind: MapKind,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    initial: Option<Vec<u8>>,
    read_only: bool,
}

impl MapSpec {
    /// max_entries: of a ring buffer, its bytes. 0: not known yet, see [`Linked::set_max_entries`].
    ///
    /// # Errors
    /// [`Error::Map`] for sizes that the kind does not take.
    pub fn new(
        name: impl Into<String>,
        kind: MapKind,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    ) -> Result<Self, Error> {
        let spec = Self {
            name: name.into(),
            kind,
            key_size,
            value_size,
            max_entries: 0,
            initial: None,
            read_only: false,
        };
        let (keys, values) = match kind {
            MapKind::Array | MapKind::PerCpuArray => (4..=4, 1..=limits::VALUE_BYTES),
            MapKind::ProgArray | MapKind::PerfEventArray => (4..=4, 4..=4),
            MapKind::Hash | MapKind::LruHash => (1..=limits::KEY_BYTES, 1..=limits::VALUE_BYTES),
            MapKind::LpmTrie => {
                (PREFIX_LENGTH_BYTES + 1..=PREFIX_LENGTH_BYTES + MAX_LPM_BYTES, 1..=limits::VALUE_BYTES)
            }
            MapKind::RingBuf => (0..=0, 0..=0),
        };
        if !keys.contains(&key_size) {
            return spec.refuse(format!("a key of {key_size} bytes; {kind:?} takes {keys:?}"));
        }
        if !values.contains(&value_size) {
            return spec.refuse(format!("a value of {value_size} bytes; {kind:?} takes {values:?}"));
        }
        spec.with_max_entries(max_entries)
    }

    fn refuse<T>(&self, why: impl Into<String>) -> Result<T, Error> {
        Err(Error::Map { name: self.name.clone(), why: why.into() })
    }

    fn with_max_entries(self, max_entries: u32) -> Result<Self, Error> {
        let fits = max_entries.is_power_of_two() && max_entries >= SMALLEST_RING || max_entries == 0;
        if self.kind == MapKind::RingBuf && !fits {
            return self
                .refuse(format!("a ring buffer of {max_entries} bytes; it takes a power of two from 4096"));
        }
        if self.initial.is_some() && max_entries != 1 {
            return self.refuse("initial bytes, which only an array of one element has");
        }
        Ok(Self { max_entries, ..self })
    }

    /// Global data: the one element's bytes. read_only: frozen before the program runs, so that loads from it become constants.
    ///
    /// # Errors
    /// [`Error::Map`] if it is no array of one element, or one of another size.
    pub fn with_initial(self, initial: Vec<u8>, read_only: bool) -> Result<Self, Error> {
        if !(self.kind.is_array() && self.max_entries == 1) {
            return self.refuse("initial bytes, which only an array of one element has");
        }
        if initial.len() != self.value_size as usize {
            return self.refuse(format!(
                "{} initial bytes for a value of {}",
                initial.len(),
                self.value_size
            ));
        }
        Ok(Self { initial: Some(initial), read_only, ..self })
    }

    /// Name in the object; global data has its section's name, such as `.rodata.ww_config` or `.bss`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kind of map.
    pub fn kind(&self) -> MapKind {
        self.kind
    }

    /// Bytes of a key.
    pub fn key_size(&self) -> u32 {
        self.key_size
    }

    /// Bytes of a value.
    pub fn value_size(&self) -> u32 {
        self.value_size
    }

    /// Elements; of a ring buffer: bytes.
    pub fn max_entries(&self) -> u32 {
        self.max_entries
    }

    /// Global data: the one element's bytes. `None`: zeros.
    pub fn initial(&self) -> Option<&[u8]> {
        self.initial.as_deref()
    }

    /// Whether it is frozen before the program runs.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
}

/// A program with the subprograms it calls, in one piece: what `bpf_program__insns()` gives after loading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedProgram {
    /// Name of the function.
    pub name: String,
    /// ELF section, such as `xdp`.
    pub section: String,
    /// Byte code. Map references are indices into [`Linked::maps`]
    /// ([`PSEUDO_MAP_IDX`](crate::insn::PSEUDO_MAP_IDX), [`PSEUDO_MAP_IDX_VALUE`](crate::insn::PSEUDO_MAP_IDX_VALUE)).
    pub insns: Vec<Insn>,
}

impl LinkedProgram {
    /// Whether it is an XDP program, the one type the engine runs.
    pub fn is_xdp(&self) -> bool {
        let section = self.section.trim_start_matches('?');
        section == "xdp" || section.starts_with("xdp.") || section.starts_with("xdp/")
    }
}

/// Linked byte code and its maps, from one of the loaders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linked {
    programs: Vec<LinkedProgram>,
    maps: Vec<MapSpec>,
    trust: Trust,
}

impl Linked {
    /// Byte code that nobody checked. maps: in the order the byte code numbers them.
    ///
    /// # Errors
    /// [`Error::Object`] for more maps or instructions than an engine takes (README, "Limits").
    pub fn new(programs: Vec<LinkedProgram>, maps: Vec<MapSpec>) -> Result<Self, Error> {
        let refuse = |what: &str, found: usize, limit: usize| {
            Err(Error::Object(format!("it has {found} {what}; the engine takes {limit}")))
        };
        if maps.len() > limits::MAPS {
            return refuse("maps", maps.len(), limits::MAPS);
        }
        let insns = programs.iter().map(|program| program.insns.len()).sum();
        if insns > limits::ALL_INSNS {
            return refuse("instructions in all programs", insns, limits::ALL_INSNS);
        }
        Ok(Self { programs, maps, trust: Trust::Unverified })
    }

    /// The same as [`Trust::Verified`](crate::Trust): it runs with direct memory access.
    ///
    /// # Safety
    /// A verifier accepted exactly this byte code with exactly these maps: every access stays within the program's memory, and every
    /// program ends.
    #[must_use]
    pub unsafe fn assume_verified(self) -> Self {
        Self { trust: Trust::Verified, ..self }
    }

    /// The same as [`Trust::Unverified`](crate::Trust): it runs caged, and everything about its maps can be changed.
    #[must_use]
    pub fn distrusted(self) -> Self {
        Self { trust: Trust::Unverified, ..self }
    }

    /// The entry programs.
    pub fn programs(&self) -> &[LinkedProgram] {
        &self.programs
    }

    /// The maps, in the order the byte code numbers them.
    pub fn maps(&self) -> &[MapSpec] {
        &self.maps
    }

    /// How far the byte code is to be trusted.
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// A map's description by name.
    pub fn map(&self, name: &str) -> Option<&MapSpec> {
        self.maps.iter().find(|map| map.name == name)
    }

    fn change(
        &mut self,
        name: &str,
        change: impl FnOnce(MapSpec, Trust) -> Result<MapSpec, Error>,
    ) -> Result<(), Error> {
        let trust = self.trust;
        let Some(map) = self.maps.iter_mut().find(|map| map.name == name) else {
            return Err(Error::Map { name: name.to_owned(), why: "the object has no such map".into() });
        };
        *map = change(map.clone(), trust)?;
        Ok(())
    }

    /// Sets how many elements a map has.
    ///
    /// # Errors
    /// [`Error::Map`] if there is no such map, or not of that size; if the byte code is verified and an array would become shorter
    /// than what was verified.
    pub fn set_max_entries(&mut self, name: &str, max_entries: u32) -> Result<(), Error> {
        self.change(name, |map, trust| {
            if trust == Trust::Verified && map.kind.is_array() && max_entries < map.max_entries {
                return map.refuse(format!(
                    "verified with {} elements, {max_entries} are too few: set them before the load",
                    map.max_entries
                ));
            }
            map.with_max_entries(max_entries)
        })
    }

    /// Sets the bytes that global data begins with.
    ///
    /// # Errors
    /// [`Error::Map`] if there is no such map, or of another size; if the byte code is verified with other constants.
    pub fn set_initial(&mut self, name: &str, initial: Vec<u8>) -> Result<(), Error> {
        self.change(name, |map, trust| {
            if trust == Trust::Verified && map.read_only && map.initial.as_ref() != Some(&initial) {
                return map.refuse("verified with other constants: set them before the load");
            }
            let read_only = map.read_only;
            map.with_initial(initial, read_only)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_maps_are_refused_by_name() {
        let refused = [
            MapSpec::new("m", MapKind::Array, 8, 8, 1),
            MapSpec::new("m", MapKind::Array, 4, 0, 1),
            MapSpec::new("m", MapKind::Array, 4, (1 << 30) + 1, 1),
            MapSpec::new("m", MapKind::Hash, 513, 8, 1),
            MapSpec::new("m", MapKind::LpmTrie, 4, 8, 1),
            MapSpec::new("m", MapKind::RingBuf, 0, 0, 5000),
            MapSpec::new("m", MapKind::Array, 4, 8, 1).unwrap().with_initial(vec![0; 7], false),
            MapSpec::new("m", MapKind::Array, 4, 8, 2).unwrap().with_initial(vec![0; 8], false),
        ];
        for refused in refused {
            assert!(matches!(&refused, Err(Error::Map { name, .. }) if name == "m"), "{refused:?}");
        }
    }

    #[test]
    fn what_was_verified_stays_as_it_was() {
        let frozen = MapSpec::new(".rodata", MapKind::Array, 4, 2, 1).unwrap();
        let maps = vec![
            MapSpec::new("array", MapKind::Array, 4, 8, 4).unwrap(),
            frozen.with_initial(vec![1, 2], true).unwrap(),
        ];
        let linked = Linked::new(Vec::new(), maps).unwrap();
        // SAFETY: there is no byte code.
        let mut verified = unsafe { linked.assume_verified() };
        assert!(verified.set_max_entries("array", 3).is_err());
        assert!(verified.set_initial(".rodata", vec![1, 3]).is_err());
        assert_eq!(verified.set_max_entries("array", 5), Ok(()));
        assert_eq!(verified.set_initial(".rodata", vec![1, 2]), Ok(()));
        let mut free = verified.distrusted();
        assert_eq!(free.set_max_entries("array", 3), Ok(()));
        assert_eq!(free.set_initial(".rodata", vec![1, 3]), Ok(()));
        assert!(free.set_initial("array", vec![0; 8]).is_err() && free.set_max_entries("none", 1).is_err());
    }
}
