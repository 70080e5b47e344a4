// SPDX-License-Identifier: Apache-2.0
//! An object after linking: byte code whose maps are known, and the maps' descriptions.

use crate::frontend::insn::Insn;

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
}

impl MapKind {
    /// From `enum bpf_map_type`.
    pub fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            1 => MapKind::Hash,
            2 => MapKind::Array,
            3 => MapKind::ProgArray,
            // A worker is one CPU: its shard of a per-CPU hash is a hash.
            5 => MapKind::Hash,
            6 => MapKind::PerCpuArray,
            9 | 10 => MapKind::LruHash,
            11 => MapKind::LpmTrie,
            27 => MapKind::RingBuf,
            _ => return None,
        })
    }

    /// Whether elements are numbered and lie in one block.
    pub fn is_array(self) -> bool {
        matches!(self, MapKind::Array | MapKind::PerCpuArray)
    }
}

/// A map as the object describes it. Change `max_entries` and `initial` before [`Engine::new`](crate::Engine::new).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapSpec {
    /// Name in the object; global data has its section's name, such as `.rodata.ww_config` or `.bss`.
    pub name: String,
    /// Kind of map.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Elements; of a ring buffer: bytes.
    pub max_entries: u32,
    /// Global data: the one element's bytes. `None`: zeros.
    pub initial: Option<Vec<u8>>,
    /// Frozen before the program runs: loads from it become constants.
    pub read_only: bool,
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
    /// The entry programs.
    pub programs: Vec<LinkedProgram>,
    /// The maps, in the order the byte code numbers them.
    pub maps: Vec<MapSpec>,
    /// How far the byte code is to be trusted.
    pub trust: Trust,
}

impl Linked {
    /// A map's description by name.
    pub fn map(&self, name: &str) -> Option<&MapSpec> {
        self.maps.iter().find(|map| map.name == name)
    }

    /// A map's description by name, to change before [`Engine::new`](crate::Engine::new).
    pub fn map_mut(&mut self, name: &str) -> Option<&mut MapSpec> {
        self.maps.iter_mut().find(|map| map.name == name)
    }
}
