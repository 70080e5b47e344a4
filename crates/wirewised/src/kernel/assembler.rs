// SPDX-License-Identifier: Apache-2.0
//! Small eBPF programs that the agent writes itself: instructions by name, and jumps to places that have one.

use std::ffi::CStr;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

use libbpf_sys as bpf;

use crate::kernel::objects::owned;

/// An instruction: what to do, to a register, with another register, where in memory or where to jump to, and
/// with a number.
pub type Line = (u8, u8, u8, i16, i32);

/// Of `LOAD_MAP`, as the other register: the address of the map, or of the value of its only element.
pub const THE_MAP: u8 = bpf::BPF_PSEUDO_MAP_FD as u8;
pub const ITS_VALUE: u8 = bpf::BPF_PSEUDO_MAP_VALUE as u8;

pub const LOAD_U16: u8 = 0x69;
pub const LOAD_U32: u8 = 0x61;
pub const LOAD_U64: u8 = 0x79;
pub const STORE_U16: u8 = 0x6b;
pub const STORE_U32: u8 = 0x63;
pub const STORE_U64: u8 = 0x7b;
/// The line's number, in 32 bits.
pub const STORE_NUMBER: u8 = 0x62;
/// Takes two lines: behind it stands `SECOND_HALF`.
pub const LOAD_MAP: u8 = 0x18;
pub const SECOND_HALF: Line = (0, 0, 0, 0, 0);
pub const MOVE: u8 = 0xbf;
pub const SET: u8 = 0xb7;
/// To a number of 32 bits without a sign.
pub const SET_LOW: u8 = 0xb4;
pub const ADD: u8 = 0x07;
pub const ADD_REGISTER: u8 = 0x0f;
pub const AND: u8 = 0x57;
pub const XOR: u8 = 0xa7;
pub const SHIFT_LEFT: u8 = 0x67;
pub const TO_BIG_ENDIAN: u8 = 0xdc;
pub const IF_EQUAL: u8 = 0x15;
pub const IF_NOT: u8 = 0x55;
pub const IF_BELOW: u8 = 0xa5;
pub const IF_BEYOND: u8 = 0x2d;
/// From another register.
pub const IF_DIFFERS: u8 = 0x5d;
pub const CALL: u8 = 0x85;
/// Of `CALL`, as the other register: a function of the kernel by its number, instead of a helper.
pub const KERNEL_FUNCTION: u8 = bpf::BPF_PSEUDO_KFUNC_CALL as u8;
pub const EXIT: u8 = 0x95;

/// places : what stands in a line for where to jump to (no number that a line needs for anything else), and the line it means.
pub fn assemble(lines: &[Line], places: &[(i16, usize)], map: RawFd) -> Vec<bpf::bpf_insn> {
    let make = |(at, (code, to, with, place, number)): (usize, &Line)| {
        let target = places.iter().find(|(name, _)| name == place);
        let mut made = bpf::bpf_insn {
            code: *code,
            off: target.map_or(*place, |(_, target)| (target - at - 1) as i16),
            imm: if *code == LOAD_MAP { map } else { *number },
            ..Default::default()
        };
        made.set_dst_reg(*to);
        made.set_src_reg(*with);
        made
    };
    lines.iter().enumerate().map(make).collect()
}

/// Has the kernel check a program, and keep it for as long as the descriptor is open.
pub fn load(kind: bpf::bpf_prog_type, name: &CStr, code: &[bpf::bpf_insn]) -> io::Result<OwnedFd> {
    let (license, no_options) = (c"Apache-2.0".as_ptr(), std::ptr::null_mut());
    // SAFETY: both names end in NUL; `code` has `code.len()` instructions and outlives the call.
    owned(unsafe {
        bpf::bpf_prog_load(kind, name.as_ptr(), license, code.as_ptr(), code.len() as u64, no_options)
    })
}

/// The number of one of the kernel's functions; `None`: it has none of this name, or does not say.
pub fn kernel_function(name: &CStr) -> Option<i32> {
    // SAFETY: takes nothing; null is an error.
    let types = unsafe { bpf::btf__load_vmlinux_btf() };
    if types.is_null() {
        return None;
    }
    // SAFETY: the types are there until they are freed, and the name is a C string.
    let id = unsafe { bpf::btf__find_by_name_kind(types, name.as_ptr(), bpf::BTF_KIND_FUNC) };
    // SAFETY: they are not used any more.
    unsafe { bpf::btf__free(types) };
    (id > 0).then_some(id)
}

/// As `load`, for XDP on this interface alone, of whose driver it may then ask what it knows of a packet. The kernel gives its functions only
/// to programs under its own licence: whoever uses this puts the program under (GPL-2.0-only OR BSD-2-Clause), as those in bpf/ are.
pub fn load_for_driver(name: &CStr, code: &[bpf::bpf_insn], ifindex: u32) -> io::Result<OwnedFd> {
    let mut opts = bpf::bpf_prog_load_opts {
        sz: size_of::<bpf::bpf_prog_load_opts>() as _,
        prog_flags: bpf::BPF_F_XDP_DEV_BOUND_ONLY,
        prog_ifindex: ifindex,
        ..Default::default()
    };
    let (kind, license) = (bpf::BPF_PROG_TYPE_XDP, c"Dual BSD/GPL".as_ptr());
    // SAFETY: both names end in NUL; `code` has `code.len()` instructions, `opts` says its size, and all outlive the call.
    owned(unsafe {
        bpf::bpf_prog_load(kind, name.as_ptr(), license, code.as_ptr(), code.len() as u64, &mut opts)
    })
}
