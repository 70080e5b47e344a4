// SPDX-License-Identifier: Apache-2.0
//! A program compiled for this processor: a shared object made of bench/native. The types are those of bench/native/native.h.

use std::path::Path;

use libloading::{Library, Symbol};
use wirewise_engine::PacketSpan;
use wirewised::abi;
use wirewised::error::{Error, Result};

use crate::packets::LowMemory;

/// `struct native_packet`.
#[repr(C)]
struct Packet {
    meta: u32,
    data: u32,
    end: u32,
}

/// `struct native_maps`.
#[repr(C)]
struct Maps {
    stats: *const abi::Stats,
    scratch: *const abi::Scratch,
}

type Prepare = unsafe extern "C" fn() -> Maps;
type Run = unsafe extern "C" fn(*const Packet, usize, *mut u32);

pub struct Native {
    run: Run,
    maps: Maps,
    packets: Vec<Packet>,
    pub codes: Vec<u32>,
    // Dropped after what came out of it.
    _library: Library,
}

impl Native {
    pub fn load(path: &Path) -> Result<Self> {
        let broken = |error| Error::input(format!("{}: {error}", path.display()));
        // The loader would look for a bare name in the system's folders.
        let full =
            path.canonicalize().map_err(|error| Error::input(format!("{}: {error}", path.display())))?;
        // SAFETY: made by bench/native, which runs nothing when it is loaded.
        let library = unsafe { Library::new(full) }.map_err(broken)?;
        // SAFETY: the type that native.h gives it.
        let prepare: Symbol<Prepare> = unsafe { library.get(c"native_prepare") }.map_err(broken)?;
        // SAFETY: as above.
        let run: Symbol<Run> = unsafe { library.get(c"native_run") }.map_err(broken)?;
        let run = *run;
        // SAFETY: called once, before any packet.
        let maps = unsafe { prepare() };
        Ok(Self { run, maps, packets: Vec::new(), codes: Vec::new(), _library: library })
    }

    /// Sets the packets of the next runs.
    pub fn set(&mut self, memory: &LowMemory, spans: &[PacketSpan]) {
        let packet = |span: &PacketSpan| Packet {
            meta: memory.address(span.start),
            data: memory.address(span.start + span.metadata),
            end: memory.address(span.start + span.length),
        };
        self.packets = spans.iter().map(packet).collect();
        self.codes = vec![0; spans.len()];
    }

    /// Runs the packets that were set, which lie in this memory, and notes their codes.
    pub fn run(&mut self, _lent: &mut LowMemory) {
        // SAFETY: the packets lie in memory that is lent, there are as many codes as packets, and the program reads and writes what
        // the verifier allowed it to: these packets and its own maps.
        unsafe { (self.run)(self.packets.as_ptr(), self.packets.len(), self.codes.as_mut_ptr()) };
    }

    /// What it counted.
    pub fn stats(&self) -> abi::Stats {
        // SAFETY: points at the statistics of a program that is not running.
        unsafe { self.maps.stats.read() }
    }

    /// What it left of the last packet; `None` if it is no data path of wirewise.
    pub fn scratch(&self) -> Option<abi::Scratch> {
        // SAFETY: null, or the scratch space of a program that is not running.
        unsafe { self.maps.scratch.as_ref() }.copied()
    }
}
