// SPDX-License-Identifier: Apache-2.0
//! Notes for later agents: JSON in a pinned map, which lies with the pins it is about and needs no other place to be written to.

use std::ffi::CStr;
use std::path::Path;

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

const MAP_NAME: &str = "ww_meta";

/// A new map that holds what is to be remembered.
pub fn new(what: &impl Serialize) -> Result<MapHandle> {
    let failed =
        |error: &dyn std::fmt::Display| Error::other(format!("cannot keep what is attached: {error}"));
    let mut value = serde_json::to_vec(what).map_err(|error| failed(&error))?;
    value.resize(value.len().next_multiple_of(8) + 8, 0);
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    let map = MapHandle::create(MapType::Array, Some(MAP_NAME), 4, value.len() as u32, 1, &opts)
        .map_err(|error| failed(&error))?;
    map.update(&0u32.to_ne_bytes(), &value, MapFlags::ANY).map_err(|error| failed(&error))?;
    Ok(map)
}

/// What a pinned map of `new` holds; `None` if it is not there or holds something else.
pub fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let map = MapHandle::from_pinned_path(path).ok()?;
    let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok()??;
    let text = CStr::from_bytes_until_nul(&value).ok()?;
    serde_json::from_slice(text.to_bytes()).ok()
}
