// SPDX-License-Identifier: Apache-2.0
//! Notes for later agents: JSON in a pinned map, which lies with the pins it is about and needs no other place to be written to.

use std::ffi::CStr;
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

const MAP_NAME: &str = "ww_meta";
const BYTES_NAME: &str = "ww_bytes";

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::other(format!("cannot keep what is attached: {error}"))
}

/// A new map that holds what is to be remembered.
pub fn new(what: &impl Serialize) -> Result<MapHandle> {
    let mut value = serde_json::to_vec(what).map_err(|error| failed(&error))?;
    value.resize(value.len().next_multiple_of(8) + 8, 0);
    map_of(MAP_NAME, &value)
}

/// A new map that holds bytes, behind their number.
pub fn of_bytes(bytes: &[u8]) -> Result<MapHandle> {
    map_of(BYTES_NAME, &[&(bytes.len() as u64).to_ne_bytes()[..], bytes].concat())
}

/// What a pinned map of `of_bytes` holds; `None` if it is not there or holds something else.
pub fn read_bytes(path: &Path) -> Option<Vec<u8>> {
    let value = value(path)?;
    let (length, bytes) = value.split_first_chunk()?;
    bytes.get(..usize::try_from(u64::from_ne_bytes(*length)).ok()?).map(<[u8]>::to_vec)
}

fn map_of(name: &str, value: &[u8]) -> Result<MapHandle> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::Array, Some(name), 4, value.len() as u32, 1, &opts)
        .map_err(|error| failed(&error))?;
    map.update(&0u32.to_ne_bytes(), value, MapFlags::ANY).map_err(|error| failed(&error))?;
    Ok(map)
}

/// What a pinned map of `new` holds; `None` if it is not there or holds something else.
pub fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let value = value(path)?;
    let text = CStr::from_bytes_until_nul(&value).ok()?;
    serde_json::from_slice(text.to_bytes()).ok()
}

fn value(path: &Path) -> Option<Vec<u8>> {
    let map = MapHandle::from_pinned_path(path).ok()?;
    map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()?
}
