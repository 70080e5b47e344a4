// SPDX-License-Identifier: Apache-2.0
//! The sizes and the elements of maps. What maps there are says `abi/maps.rs`.

use libbpf_rs::{MapCore, MapFlags};

use crate::abi;
use crate::abi::maps::{ACT_CONFIG, ACT_CPU, CONFIG, Room, Value, find, variable};
use crate::error::{Error, Result};
use crate::kernel::change;

pub fn other_layout(map: &str) -> Error {
    Error::other(format!(
        "the map {map} has another layout than this agent's: another version of wirewise made it"
    ))
}

/// How many elements a map has under this configuration; `None`: as compiled.
pub fn max_entries(map: &str, config: &abi::Config) -> Result<Option<u32>> {
    let Some(map) = find(map).filter(|map| map.need.is_met(config)) else { return Ok(None) };
    match map.room {
        _ if map.is_variable() => Ok(None),
        Room::Declared => Ok(None),
        Room::PerCpu(count) => Ok(Some(config.shards * count as u32)),
        Room::Records => Ok(config.shards.checked_mul(config.record)),
        Room::Aggregates => Ok(config.aggregate_mask.checked_add(1)),
        Room::Buckets => {
            let tables = if config.shared == 0 { config.shards } else { 1 };
            let buckets = u64::from(tables) * (u64::from(config.bucket_mask) + 1);
            u32::try_from(buckets).map(Some).map_err(|_| {
                Error::input(format!("a flow table of {buckets} buckets is too large: choose a smaller size"))
            })
        }
    }
}

/// What a map of constants holds under this configuration; `None`: the loader writes nothing there.
pub fn constants(map: &str, config: &abi::Config) -> Option<Vec<u8>> {
    match variable(map) {
        CONFIG => Some(bytemuck::bytes_of(config).to_vec()),
        ACT_CONFIG => Some(bytemuck::bytes_of(&abi::ActConfig::of(config)).to_vec()),
        _ => None,
    }
}

/// Bytes of a variable with an element for each CPU; `None` for all other maps.
pub fn bytes_of_cpus(map: &str, config: &abi::Config) -> Option<u32> {
    let map = find(map).filter(|map| map.is_variable())?;
    match (map.room, map.value) {
        (Room::PerCpu(count), Value::Exactly(size)) => Some(config.shards * (count * size) as u32),
        _ => None,
    }
}

/// What a variable holds.
pub fn value_of<T: bytemuck::AnyBitPattern>(map: &impl MapCore) -> Result<T> {
    read_element(map, 0)
}

/// One element of an array map of a type of `abi`.
pub fn read_element<T: bytemuck::AnyBitPattern>(map: &impl MapCore, index: u32) -> Result<T> {
    let name = map.name().to_string_lossy();
    let value = map
        .lookup(&index.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| Error::other(format!("{name}: cannot be read: {error}")))?;
    value
        .and_then(|bytes| bytemuck::try_pod_read_unaligned(bytes.get(..size_of::<T>())?).ok())
        .ok_or_else(|| other_layout(&name))
}

/// What each CPU has of the actor's.
pub fn act_cpus(map: &impl MapCore) -> Result<Vec<abi::ActCpu>> {
    let bytes = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).ok().flatten();
    let bytes = bytes.ok_or_else(|| other_layout(ACT_CPU))?;
    let cpus = bytes.chunks_exact(size_of::<abi::ActCpu>());
    Ok(cpus.map(bytemuck::pod_read_unaligned).collect())
}

/// An element of `ww_backend_counts` or `ww_tunnel_counts`, which have counters for each CPU.
pub fn sum_of_cpus(map: &impl MapCore, index: u32) -> Result<abi::Counter> {
    let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).map_err(|error| {
        Error::other(format!("{}: cannot be read: {error}", map.name().to_string_lossy()))
    })?;
    let mut sum = abi::Counter::default();
    for value in values.iter().flatten() {
        let one = value.get(..size_of::<abi::Counter>()).map(bytemuck::pod_read_unaligned::<abi::Counter>);
        let one = one.unwrap_or_default();
        sum.packets += one.packets;
        sum.bytes += one.bytes;
    }
    Ok(sum)
}

/// Elements that one call reads or writes.
pub const BATCH: u32 = 4096;

/// All keys and values of an array or a trie.
pub fn read_all<M: MapCore>(map: &M) -> Result<impl Iterator<Item = (Vec<u8>, Vec<u8>)> + use<'_, M>> {
    map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(|error| failed("read", map, &error))
}

pub fn update(map: &impl MapCore, key: &[u8], value: &[u8]) -> Result<()> {
    map.update(key, value, MapFlags::ANY).map_err(|error| failed("write", map, &error))?;
    change::made(&format!("write {}", map.name().to_string_lossy()));
    Ok(())
}

pub fn delete(map: &impl MapCore, key: &[u8]) -> Result<()> {
    map.delete(key).map_err(|error| failed("delete from", map, &error))?;
    change::made(&format!("delete from {}", map.name().to_string_lossy()));
    Ok(())
}

pub fn failed(what: &str, map: &impl MapCore, error: &libbpf_rs::Error) -> Error {
    Error::other(format!("cannot {what} {}: {error}", map.name().to_string_lossy()))
}

pub fn no_map(name: &str) -> Error {
    Error::input(format!("the program has no map {name}, so this policy cannot be applied to it"))
}
