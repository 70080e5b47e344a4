// SPDX-License-Identifier: Apache-2.0
//! The maps of a program, by name.

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::abi;
use crate::error::{Error, Result};
use crate::kernel::change;

pub const CONFIG_MAP: &str = ".rodata.ww_config";
/// One element: `abi::Policy`.
pub const POLICY: &str = "ww_policy";
pub const TAIL_CALLS: &str = "ww_progs";
pub const FLOW_TABLES: [&str; 2] = ["ww_flows4", "ww_flows6"];
/// What is kept beside the flows; a program has those that its features read.
pub const AGGREGATE_TABLES: [&str; 6] =
    ["ww_source4", "ww_source6", "ww_destination4", "ww_destination6", "ww_service4", "ww_service6"];
/// A variable: counters and scratch space, `abi::Cpu` for each CPU.
pub const PER_CPU: &str = "ww_cpu";
pub const PER_CPU_MAP: &str = ".data.ww_cpu";
/// What happened to packets that do not simply pass.
pub const EVENTS: &str = "ww_events";
/// Where two models' classes are counted.
pub const AGREEMENT: &str = "ww_agreement";
/// Where a shadow hands its packets over.
pub const FIRST: &str = "ww_first";

/// Where packets may be redirected to at XDP, by index.
pub const INTERFACES: &str = "ww_interfaces";

/// CPUs that packets may go to.
pub const CPUS: &str = "ww_cpus";
/// Sockets that packets may go to, by receive queue.
pub const SOCKETS: &str = "ww_sockets";
/// What steering remembers of flows: `abi::Memory`.
pub const MEMORY: &str = "ww_memory";

/// Who was seen behind which port: `abi::Station`; and who is there whatever was seen.
pub const STATIONS: &str = "ww_stations";
pub const FIXED: &str = "ww_fixed";
/// Rows to train on, and where each CPU stands in its part of them.
pub const RECORDS: &str = "ww_records";
pub const RECORD_RINGS: &str = "ww_record_rings";
/// Pools of servers, their tables, the servers, and what each was sent: `abi::Pool`, `abi::Table`, `abi::Backend`, `abi::Counter`.
pub const POOLS: &str = "ww_pools";
pub const TABLES_OF_POOLS: &str = "ww_tables";
pub const BACKENDS: &str = "ww_backends";
pub const BACKEND_COUNTS: &str = "ww_backend_counts";

/// Copies that a plane in user space sends.
pub const COPIES: &str = "ww_copies";
/// Tunnels of GTP-U by their ends, and what became of packets: `abi::TunnelEnd`, `abi::Tunnel`, `abi::Counter`.
pub const TUNNELS: &str = "ww_tunnels";
pub const TUNNEL_COUNTS: &str = "ww_tunnel_counts";

/// The allow list: prefixes of both versions of IP, and ports.
pub const ALLOW_LIST: [&str; 3] = ["ww_allow4", "ww_allow6", "ww_allow_ports"];
/// What the rate limit of each class remembers.
pub const LIMIT_MAP: &str = "ww_limit";

/// What a map belongs to, and so which programs have it in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One load: its constants, and the programs it is made of.
    Load,
    /// Every load of one bundle on an interface.
    Bundle,
    /// Programs that keep the same of a flow.
    Table,
    /// Programs with the same classes: numbered by class.
    Classes,
    /// Programs under the same policy.
    Policy,
    /// All programs on an interface, one after the other: what others put there, what flows were given, and counters that
    /// mean the same in each.
    Host,
}

/// Every map, without the prefix of a variable's section, and its scope. `swap`, `swap --shadow` and `run --outgoing` go by this. Those of a policy
/// are in the order in which another policy is written: what others lead to comes first.
const SCOPES: [(&str, Scope); 36] = [
    ("ww_config", Scope::Load),
    (TAIL_CALLS, Scope::Load),
    (FIRST, Scope::Load),
    ("ww_blank", Scope::Bundle),
    ("ww_answers", Scope::Bundle),
    (AGREEMENT, Scope::Bundle),
    (COPIES, Scope::Bundle),
    (RECORDS, Scope::Bundle),
    (RECORD_RINGS, Scope::Bundle),
    (FLOW_TABLES[0], Scope::Table),
    (FLOW_TABLES[1], Scope::Table),
    (AGGREGATE_TABLES[0], Scope::Table),
    (AGGREGATE_TABLES[1], Scope::Table),
    (AGGREGATE_TABLES[2], Scope::Table),
    (AGGREGATE_TABLES[3], Scope::Table),
    (AGGREGATE_TABLES[4], Scope::Table),
    (AGGREGATE_TABLES[5], Scope::Table),
    (PER_CPU, Scope::Classes),
    (EVENTS, Scope::Classes),
    (POLICY, Scope::Policy),
    (LIMIT_MAP, Scope::Policy),
    (ALLOW_LIST[0], Scope::Policy),
    (ALLOW_LIST[1], Scope::Policy),
    (ALLOW_LIST[2], Scope::Policy),
    (INTERFACES, Scope::Policy),
    (CPUS, Scope::Policy),
    (FIXED, Scope::Policy),
    (TUNNELS, Scope::Policy),
    (BACKENDS, Scope::Policy),
    (TABLES_OF_POOLS, Scope::Policy),
    (POOLS, Scope::Policy),
    (SOCKETS, Scope::Host),
    (MEMORY, Scope::Host),
    (STATIONS, Scope::Host),
    (BACKEND_COUNTS, Scope::Host),
    (TUNNEL_COUNTS, Scope::Host),
];

/// The scope of a map; `None`: it is not one of the data path's.
pub fn scope(map: &str) -> Option<Scope> {
    SCOPES.iter().find(|(name, _)| *name == variable(map)).map(|(_, scope)| *scope)
}

/// The maps whose scope is one of those that `wanted` picks.
pub fn of_scopes(wanted: impl Fn(Scope) -> bool) -> impl Iterator<Item = &'static str> {
    SCOPES.into_iter().filter(move |(_, scope)| wanted(*scope)).map(|(name, _)| name)
}

/// Whether a program with these constants has a map; without, the map is not made.
pub fn is_needed(map: &str, config: &abi::Config) -> bool {
    // Captured packets go nowhere.
    let asks = |kinds| config.steer & kinds != 0 && config.steer & abi::STEER_TOLD == 0;
    match map {
        AGREEMENT | FIRST => config.shadow != 0,
        RECORDS | RECORD_RINGS => config.record != 0,
        // At TC and in user space an interface's index is enough.
        INTERFACES => {
            asks(abi::STEER_REDIRECT | abi::STEER_FORWARD | abi::STEER_BACKEND)
                && config.hook == abi::Hook::Xdp.code()
                && config.steer & abi::STEER_CARRIED == 0
        }
        COPIES => asks(abi::STEER_MIRROR) && config.steer & abi::STEER_CARRIED != 0,
        CPUS => asks(abi::STEER_CPU),
        SOCKETS => asks(abi::STEER_SOCKET),
        MEMORY => asks(abi::STEER_BACKEND | abi::STEER_CHALLENGE),
        STATIONS | FIXED => asks(abi::STEER_BRIDGE),
        // Captured packets get backends too, and go through tunnels.
        TUNNELS => config.steer & abi::STEER_THROUGH_TUNNELS != 0,
        TUNNEL_COUNTS => {
            let kinds = abi::STEER_THROUGH_TUNNELS | abi::STEER_QFI | abi::STEER_INNER_DSCP;
            config.steer & kinds != 0
        }
        POOLS | TABLES_OF_POOLS | BACKENDS | BACKEND_COUNTS => config.steer & abi::STEER_BACKEND != 0,
        _ => true,
    }
}

/// The name of a map; of a variable's own section, which is a map too, the variable's.
pub fn variable(map: &str) -> &str {
    map.strip_prefix(".data.").or_else(|| map.strip_prefix(".rodata.")).unwrap_or(map)
}

/// Whether another load of the same bundle uses this map too.
pub fn is_shared_by_loads(map: &str) -> bool {
    scope(map).is_some_and(|scope| scope != Scope::Load)
}

pub fn other_layout(map: &str) -> Error {
    Error::other(format!("the map {map} has another layout than this agent's"))
}

/// How many elements a map has under this configuration; `None`: as compiled.
pub fn max_entries(map: &str, config: &abi::Config) -> Result<Option<u32>> {
    if map == AGREEMENT && config.shadow != 0 {
        return Ok(Some(config.shards * abi::AGREEMENT_ROWS as u32));
    }
    if map == CPUS && is_needed(CPUS, config) {
        return Ok(Some(config.shards));
    }
    if map == RECORDS && config.record != 0 {
        return Ok(config.shards.checked_mul(config.record));
    }
    if map == RECORD_RINGS {
        return Ok(Some(config.shards));
    }
    if map == EVENTS {
        return Ok(Some(config.shards * abi::EVENTS));
    }
    if map == BACKEND_COUNTS && is_needed(BACKEND_COUNTS, config) {
        return Ok(Some(config.shards * abi::BACKENDS as u32));
    }
    if AGGREGATE_TABLES.contains(&map) {
        return Ok(config.aggregate_mask.checked_add(1));
    }
    if !FLOW_TABLES.contains(&map) {
        return Ok(None);
    }
    let tables = if config.shared == 0 { config.shards } else { 1 };
    let buckets = u64::from(tables) * (u64::from(config.bucket_mask) + 1);
    u32::try_from(buckets).map(Some).map_err(|_| {
        Error::input(format!("a flow table of {buckets} buckets is too large: choose a smaller size"))
    })
}

/// One element of an array map of a type of `abi`.
pub fn read_element<T: bytemuck::AnyBitPattern>(map: &MapHandle, index: u32) -> Result<T> {
    let name = map.name().to_string_lossy();
    let value = map
        .lookup(&index.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| Error::other(format!("{name}: cannot be read: {error}")))?;
    value.and_then(|bytes| bytemuck::try_pod_read_unaligned(bytes.get(..size_of::<T>())?).ok()).ok_or_else(
        || Error::other(format!("{name}: not as this agent knows it; it was attached by another version")),
    )
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

pub fn update(map: &impl MapCore, key: &[u8], value: &[u8]) -> Result<()> {
    map.update(key, value, MapFlags::ANY).map_err(|error| failed(map, &error))?;
    change::made(&format!("write {}", map.name().to_string_lossy()));
    Ok(())
}

pub fn delete(map: &impl MapCore, key: &[u8]) -> Result<()> {
    map.delete(key).map_err(|error| failed(map, &error))?;
    change::made(&format!("delete from {}", map.name().to_string_lossy()));
    Ok(())
}

pub fn failed(map: &impl MapCore, error: &libbpf_rs::Error) -> Error {
    Error::other(format!("cannot write {}: {error}", map.name().to_string_lossy()))
}

pub fn no_map(name: &str) -> Error {
    Error::input(format!("the program has no map {name}, so this policy cannot be applied to it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// The names that the data path's sources give to their maps.
    fn maps_of_sources() -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf/wirewise");
        let mut names = BTreeSet::new();
        for file in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            for line in text.lines().filter(|line| !line.starts_with("#define")) {
                let name = match (line.strip_prefix("WW_MAP("), line.find("SEC(\".")) {
                    (Some(arguments), _) => arguments.split(',').next(),
                    (_, Some(end)) => line[..end].split_whitespace().rfind(|word| word.starts_with("ww_")),
                    _ => None,
                };
                names.extend(name.map(|name| name.split('[').next().unwrap().to_string()));
            }
        }
        names
    }

    #[test]
    fn every_map_of_the_data_path_has_a_scope() {
        let scopes: BTreeSet<_> = SCOPES.iter().map(|(name, _)| (*name).to_string()).collect();
        assert_eq!(scopes.len(), SCOPES.len(), "a map has two scopes");
        assert_eq!(scopes, maps_of_sources());
    }
}
