// SPDX-License-Identifier: Apache-2.0
//! Takes byte code and maps out of an object that libbpf has loaded.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use libbpf_rs::{AsRawLibbpf, MapCore, MapFlags, Object, Program};
// The libelf.a of newer distributions unpacks zstd, and nothing else would bring that along.
use zstd_sys as _;

use crate::error::Error;
use crate::insn::{self, Insn};
use crate::linked::{Linked, LinkedProgram, MapKind, MapSpec};

/// `BPF_F_RDONLY_PROG`: programs may not write.
const READ_ONLY: u32 = 1 << 7;

pub(super) fn take(object: &Object) -> Result<Linked, Error> {
    let mut maps = Vec::new();
    let mut by_descriptor: HashMap<RawFd, usize> = HashMap::new();
    // Of maps it was told not to make, libbpf has a descriptor that is no map's; no live code uses them.
    for map in object.maps().filter(libbpf_rs::Map::autocreate) {
        by_descriptor.insert(map.as_fd().as_raw_fd(), maps.len());
        maps.push(map_spec(&map)?);
    }
    let mut programs = Vec::new();
    for program in object.progs().filter(is_loaded) {
        let name = program.name().to_string_lossy().into_owned();
        let mut insns = Vec::with_capacity(program.insns().len());
        for slot in program.insns() {
            insns.push(link(slot, &by_descriptor, &name)?);
        }
        clear_second_slots(&mut insns);
        let section = program.section().to_string_lossy().into_owned();
        programs.push(LinkedProgram { name, section, insns });
    }
    // libbpf lists subprograms as programs of .text, without code of their own to run.
    let several = programs.len() > 1;
    programs.retain(|program| !(several && program.section == ".text"));
    let linked = Linked::new(programs, maps)?;
    // SAFETY: the kernel's verifier accepted this byte code with these maps, else libbpf would not have loaded them.
    Ok(unsafe { linked.assume_verified() })
}

/// The kernel never saw what libbpf was told not to load, such as `SEC("?xdp")`.
fn is_loaded(program: &Program<'_>) -> bool {
    // SAFETY: a program of the object, which is borrowed.
    unsafe { libbpf_rs::libbpf_sys::bpf_program__fd(program.as_libbpf_object().as_ptr()) >= 0 }
}

/// One slot, with a map's number instead of its descriptor.
fn link(
    slot: &libbpf_rs::libbpf_sys::bpf_insn,
    maps: &HashMap<RawFd, usize>,
    program: &str,
) -> Result<Insn, Error> {
    let mut insn =
        Insn { code: slot.code, dst: slot.dst_reg(), src: slot.src_reg(), off: slot.off, imm: slot.imm };
    let pseudo = match (insn.code, insn.src) {
        (insn::LD_IMM64, insn::PSEUDO_MAP_FD) => insn::PSEUDO_MAP_IDX,
        (insn::LD_IMM64, insn::PSEUDO_MAP_VALUE) => insn::PSEUDO_MAP_IDX_VALUE,
        _ => return Ok(insn),
    };
    let map = maps.get(&insn.imm).copied();
    insn.src = pseudo;
    insn.imm = map.ok_or_else(|| {
        Error::Object(format!(
            "program {program} uses a map (descriptor {}) that is not the object's",
            slot.imm
        ))
    })? as i32;
    Ok(insn)
}

/// libbpf leaves what the file had behind a map; nothing reads it.
fn clear_second_slots(insns: &mut [Insn]) {
    let mut at = 0;
    while at + 1 < insns.len() {
        let wide = insns[at].code == insn::LD_IMM64;
        if wide && insns[at].src == insn::PSEUDO_MAP_IDX {
            insns[at + 1].imm = 0;
        }
        at += if wide { 2 } else { 1 };
    }
}

fn map_spec(map: &libbpf_rs::Map<'_>) -> Result<MapSpec, Error> {
    let name = map.name().to_string_lossy().into_owned();
    let code = u32::from(map.map_type());
    let kind = MapKind::from_code(code).ok_or_else(|| Error::Map {
        name: name.clone(),
        why: format!("map type {code} (enum bpf_map_type) is not one the engine has"),
    })?;
    let unreadable = |error: libbpf_rs::Error| Error::Map { name: name.clone(), why: error.to_string() };
    let read_only = map.info().map_err(unreadable)?.info.map_flags & READ_ONLY != 0;
    // Global data has a name with a point: its section's, behind the object's where the section is one of the plain three.
    let section = name.find('.').map(|point| name[point..].to_owned());
    let initial = match &section {
        Some(_) => map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?,
        None => None,
    };
    let read_only = read_only && section.is_some();
    let sizes = (map.key_size(), map.value_size(), map.max_entries());
    let map = MapSpec::new(section.unwrap_or(name), kind, sizes.0, sizes.1, sizes.2)?;
    match initial {
        Some(initial) => map.with_initial(initial, read_only),
        None => Ok(map),
    }
}
