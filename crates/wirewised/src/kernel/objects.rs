// SPDX-License-Identifier: Apache-2.0
//! Programs, maps and links as the kernel keeps them: by number, and by pin.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

use crate::kernel::change;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProgramInfo {
    pub id: u32,
    /// At most 15 characters: the kernel keeps no more.
    pub name: String,
    pub verified_instructions: u32,
}

fn info_of_program(program: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is a zeroed bpf_prog_info of `length` bytes, so the kernel copies no arrays.
    check(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut length) })?;
    Ok(info)
}

pub fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let info = info_of_program(program)?;
    // SAFETY: the kernel ends the name, of 16 bytes, with a zero byte.
    let name = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    Ok(ProgramInfo {
        id: info.id,
        name: name.to_string_lossy().into_owned(),
        verified_instructions: info.verified_insns,
    })
}

/// Nanoseconds in a program, and runs of it, since it was loaded and while the kernel measured them; `None`: it is gone, or this process may not
/// ask by a number (CAP_SYS_ADMIN).
pub fn program_times(id: u32) -> Option<(u64, u64)> {
    let info = info_of_program(program_by_id(id).ok()?.as_fd()).ok()?;
    Some((info.run_time_ns, info.run_cnt))
}

/// Has the kernel measure the time in all programs for as long as the descriptor is open.
pub fn measure_programs() -> io::Result<OwnedFd> {
    // SAFETY: takes a number only.
    owned(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })
}

/// The number of a map that is one of notes, by name and size of its value; `None`: it is something else.
pub fn note_id(map: BorrowedFd<'_>, name: &CStr, value_size: usize) -> io::Result<Option<u32>> {
    let Some(info) = map_info(map)? else { return Ok(None) };
    // SAFETY: the kernel ends the name, of 16 bytes, with a zero byte.
    let found = unsafe { CStr::from_ptr(info.name.as_ptr()) };
    Ok((found == name && info.value_size as usize == value_size).then_some(info.id))
}

/// A map of one element, these words: a note by its name.
pub fn new_note<T: bytemuck::Pod>(name: &CStr, words: &T) -> io::Result<OwnedFd> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let (kind, size) = (libbpf_sys::BPF_MAP_TYPE_ARRAY, size_of::<T>() as u32);
    // SAFETY: the name is a C string, and `opts` says its size; both outlive the call.
    let map = owned(unsafe { libbpf_sys::bpf_map_create(kind, name.as_ptr(), 4, size, 1, &opts) })?;
    set_first_element(map.as_fd(), words)?;
    Ok(map)
}

/// A program's type, `BPF_PROG_TYPE_*`; `None`: a map, a link or another object.
pub fn program_kind(program: BorrowedFd<'_>) -> io::Result<Option<u32>> {
    if !is(program, "anon_inode:bpf-prog")? {
        return Ok(None);
    }
    info_of_program(program).map(|info| Some(info.type_))
}

/// Whether the kernel shows a descriptor as one of these.
fn is(object: BorrowedFd<'_>, what: &str) -> io::Result<bool> {
    let shown = std::fs::read_link(format!("/proc/self/fd/{}", object.as_raw_fd()))?;
    Ok(shown.as_os_str() == what)
}

/// `None`: it is no map.
pub fn map_info(map: BorrowedFd<'_>) -> io::Result<Option<libbpf_sys::bpf_map_info>> {
    if !is(map, "anon_inode:bpf-map")? {
        return Ok(None);
    }
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut length = size_of::<libbpf_sys::bpf_map_info>() as u32;
    // SAFETY: `info` is a zeroed bpf_map_info of `length` bytes, which the call fills.
    check(unsafe { libbpf_sys::bpf_map_get_info_by_fd(map.as_raw_fd(), &mut info, &mut length) })?;
    Ok(Some(info))
}

/// All maps there are, as far as this process may ask: that takes CAP_SYS_ADMIN.
pub fn maps() -> impl Iterator<Item = OwnedFd> {
    let mut id = 0;
    let next = move || {
        loop {
            // SAFETY: `id` outlives the call, which writes the next number to it.
            check(unsafe { libbpf_sys::bpf_map_get_next_id(id, &mut id) }).ok()?;
            // SAFETY: takes a number, returns a new descriptor.
            match owned(unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) }) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                map => return map.ok(),
            }
        }
    };
    std::iter::from_fn(next)
}

/// The maps that a program uses. Needs CAP_SYS_ADMIN.
pub fn maps_of_program(program: BorrowedFd<'_>) -> io::Result<Vec<OwnedFd>> {
    let mut ids = vec![0u32; info_of_program(program)?.nr_map_ids as usize];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: ids.len() as u32,
        map_ids: ids.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut length = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is a bpf_prog_info of `length` bytes, which says how many numbers `ids` has room for; both outlive the call.
    check(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut length) })?;
    ids.into_iter().map(map_by_id).collect()
}

/// Needs CAP_SYS_ADMIN.
pub fn map_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number, returns a new descriptor.
    owned(unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) })
}

/// The first element of an array whose values are no larger than a `T`, which the caller has checked; the rest is zero.
pub fn first_element<T: bytemuck::Pod>(map: BorrowedFd<'_>) -> io::Result<T> {
    let (key, mut value) = (0u32, T::zeroed());
    // SAFETY: the map's key is a number, and its value at most as long as `value`; both outlive the call.
    check(unsafe {
        libbpf_sys::bpf_map_lookup_elem(map.as_raw_fd(), (&raw const key).cast(), (&raw mut value).cast())
    })?;
    Ok(value)
}

/// Writes the first element of an array whose values have the size of `T`.
pub fn set_first_element<T: bytemuck::Pod>(map: BorrowedFd<'_>, value: &T) -> io::Result<()> {
    let (key, value) = (0u32, (&raw const *value).cast());
    // SAFETY: the map's key is a number, and its value as long as `value`; both outlive the call.
    check(unsafe { libbpf_sys::bpf_map_update_elem(map.as_raw_fd(), (&raw const key).cast(), value, 0) })
        .map(drop)
}

/// The number of a function in the type information of a loaded program.
pub fn function_of_program(program: BorrowedFd<'_>, name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    let id = info_of_program(program)?.btf_id;
    // SAFETY: takes a number, returns type information of its own or null.
    let types = unsafe { libbpf_sys::btf__load_from_kernel_by_id(id) };
    if types.is_null() {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `types` is not null and freed once, after its last use; the name is a C string that outlives the call.
    let found = unsafe {
        let found = libbpf_sys::btf__find_by_name_kind(types, name.as_ptr(), libbpf_sys::BTF_KIND_FUNC);
        libbpf_sys::btf__free(types);
        found
    };
    check(found).map(|id| id as u32)
}

/// Needs CAP_SYS_ADMIN.
pub fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number, returns a new descriptor.
    owned(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })
}

/// Pins a program, map or link.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    // SAFETY: `path` is a C string that outlives the call.
    check(unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) }).map(|_| change::made("pin"))
}

pub fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = c_path(path)?;
    // SAFETY: `path` is a C string that outlives the call.
    owned(unsafe { libbpf_sys::bpf_obj_get(path.as_ptr()) })
}

/// As `open_pin`; `None`: nothing is pinned there.
pub fn open_pin_if_there(path: &Path) -> io::Result<Option<OwnedFd>> {
    match open_pin(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// libbpf returns what a call gave, or the negated error number.
pub(crate) fn check(code: i32) -> io::Result<i32> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(code) }
}

pub(crate) fn owned(code: i32) -> io::Result<OwnedFd> {
    let fd = check(code)?;
    // SAFETY: `fd` is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
