// SPDX-License-Identifier: Apache-2.0
//! One worker: its maps, its memory, and the native code of every program.

use crate::error::{Error, Trap};
use crate::linked::Linked;
use crate::maps::{Map, MapMut, Store};
use crate::memory::Memory;
use crate::options::Options;

/// A program of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProgramId(pub(crate) u32);

/// A packet in a buffer, for [`Engine::run_xdp_batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketSpan {
    /// Where it begins in the buffer, metadata included.
    pub start: usize,
    /// Bytes of metadata in front of the frame.
    pub metadata: usize,
    /// Bytes in all, metadata included.
    pub length: usize,
    /// Its time, for [`ClockSource::Manual`](crate::ClockSource::Manual).
    pub time_ns: u64,
}

/// One worker: its own maps, memory and stack. To run on several cores, make one engine for each.
#[derive(Debug)]
pub struct Engine {
    stores: Vec<Store>,
    memory: Memory,
    names: Vec<String>,
}

impl Engine {
    /// Checks, translates and compiles every XDP program; programs of other types are left out.
    pub fn new(_linked: &Linked, _options: Options) -> Result<Engine, Error> {
        Err(Error::Backend("not built yet".into()))
    }

    /// A program by name.
    pub fn program(&self, name: &str) -> Option<ProgramId> {
        self.names.iter().position(|known| known == name).map(|index| ProgramId(index as u32))
    }

    /// Runs a program on a packet: `metadata` bytes, then the frame. Returns the XDP code.
    ///
    /// # Errors
    /// See [`Trap`].
    pub fn run_xdp(&mut self, _program: ProgramId, _packet: &mut [u8], _metadata: usize) -> Result<u32, Trap> {
        Err(Trap::Packet)
    }

    /// Runs a program on many packets of one buffer and appends their XDP codes to `codes`. At a trap, the codes of the packets
    /// before are there.
    ///
    /// # Errors
    /// See [`Trap`].
    pub fn run_xdp_batch(
        &mut self,
        _program: ProgramId,
        _buffer: &mut [u8],
        _packets: &[PacketSpan],
        _codes: &mut Vec<u32>,
    ) -> Result<(), Trap> {
        Err(Trap::Packet)
    }

    /// A map by name.
    pub fn map(&self, name: &str) -> Option<Map<'_>> {
        let store = self.stores.iter().find(|store| store.spec.name == name)?;
        Some(Map { store, memory: &self.memory })
    }

    /// A map by name, to change.
    pub fn map_mut(&mut self, name: &str) -> Option<MapMut<'_>> {
        let programs = self.names.len() as u32;
        let store = self.stores.iter_mut().find(|store| store.spec.name == name)?;
        Some(MapMut { store, memory: &mut self.memory, programs })
    }

    /// The time that programs see, in nanoseconds, with [`ClockSource::Manual`](crate::ClockSource::Manual).
    pub fn set_time(&mut self, _ns: u64) {}

    /// Whether the programs run in the cage.
    pub fn is_caged(&self) -> bool {
        false
    }
}
