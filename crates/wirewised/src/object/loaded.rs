// SPDX-License-Identifier: Apache-2.0
//! An object in the kernel: its programs and maps.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::{Map, MapCore, MapFlags, Object, Program, ProgramMut};
use serde::Serialize;

use crate::abi;
use crate::abi::maps::{NEXT, PER_CPU, TAIL_CALLS, variable};
use crate::bundle::emitted::{ENTRY, tail_call_index};
use crate::error::{Error, Result};
use crate::object::mapped::MappedArray;

/// A loaded program as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramInfo {
    pub name: String,
    /// After the kernel's own rewriting.
    pub instructions: u32,
    pub jited_bytes: u32,
    /// What the verifier went through, of its limit of one million.
    pub verified_instructions: u32,
}

/// An object in the kernel. Dropping it frees what is neither attached nor pinned.
#[derive(Debug)]
pub struct Loaded {
    pub object: Object,
    pub load_time: Duration,
    pub config: Option<abi::Config>,
    /// The same program once more on the same maps, for what the host sends.
    pub outgoing: Option<Box<Loaded>>,
    /// Somebody else's, to which what passes goes on.
    pub next: Option<OwnedFd>,
}

impl Loaded {
    /// This, and then that of the other direction, if that is judged too.
    pub fn directions(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(self.outgoing.as_deref())
    }

    /// The program to attach or run: `ww_main`, or the only one of an object that is not ours.
    pub fn entry(&self) -> Result<ProgramMut<'_>> {
        if let Some(entry) = self.object.progs_mut().find(|program| program.name() == ENTRY) {
            return Ok(entry);
        }
        let mut programs = self.object.progs_mut();
        match (programs.next(), programs.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(Error::input(format!("the object holds no program {ENTRY}"))),
        }
    }

    /// Those that were made; of the others, libbpf has a descriptor that is no map's.
    pub fn maps(&self) -> impl Iterator<Item = Map<'_>> {
        self.object.maps().filter(Map::autocreate)
    }

    pub fn map(&self, name: &str) -> Option<Map<'_>> {
        self.maps().find(|map| variable(&map.name().to_string_lossy()) == name)
    }

    pub fn require_map(&self, name: &str) -> Result<Map<'_>> {
        self.map(name).ok_or_else(|| Error::input(format!("the object has no map {name}")))
    }

    /// Buckets of a CPU's shard of each flow table.
    pub fn buckets(&self) -> u32 {
        self.config.map_or(0, |config| config.bucket_mask + 1)
    }

    pub fn map_array(&self, name: &str) -> Result<MappedArray> {
        let map = self.require_map(name)?;
        if name == PER_CPU { MappedArray::per_cpu(&map) } else { MappedArray::new(&map) }
    }

    pub fn programs(&self) -> Result<Vec<ProgramInfo>> {
        self.object.progs().map(|program| program_info(&program)).collect()
    }

    /// Puts the parts of a split model into `ww_progs`.
    pub fn fill_tail_calls(&self) -> Result<()> {
        let Some(map) = self.map(TAIL_CALLS) else { return Ok(()) };
        for program in self.object.progs() {
            let name = program.name().to_string_lossy();
            let Some(index) = tail_call_index(&name) else { continue };
            let fd = program.as_fd().as_raw_fd();
            map.update(&index.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).map_err(|error| {
                Error::other(format!("cannot put program {name} into {TAIL_CALLS}: {error}"))
            })?;
        }
        Ok(())
    }

    /// Has what passes go on to a program. The kernel's error: it does not let this program call that one.
    pub fn set_next(&mut self, program: OwnedFd) -> Result<std::result::Result<(), libbpf_rs::Error>> {
        let fd = program.as_raw_fd().to_ne_bytes();
        let set = self.require_map(NEXT)?.update(&0u32.to_ne_bytes(), &fd, MapFlags::ANY);
        self.next = Some(program);
        Ok(set)
    }
}

fn program_info(program: &Program<'_>) -> Result<ProgramInfo> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = mem::size_of_val(&info) as u32;
    // SAFETY: `info` is a bpf_prog_info of `length` bytes, zeroed so that the kernel copies no arrays; the
    // descriptor is open as long as `program` lives.
    let code =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &mut info, &mut length) };
    if code != 0 {
        let error = std::io::Error::from_raw_os_error(-code);
        return Err(Error::other(format!("cannot read what the kernel made of the program: {error}")));
    }
    Ok(ProgramInfo {
        name: program.name().to_string_lossy().into_owned(),
        instructions: info.xlated_prog_len / mem::size_of::<libbpf_sys::bpf_insn>() as u32,
        jited_bytes: info.jited_prog_len,
        verified_instructions: info.verified_insns,
    })
}
