// SPDX-License-Identifier: Apache-2.0
//! What `wirewise compile` emits. The object of a bundle may hold nothing else: a bundle comes from others, and the kernel
//! would do for it what it does for root. `inspection.rs` looks at it before libbpf sees the object, without it.
//!
//! What new versions of the data path need more of is added to the tables here, and maps to the table of maps (`abi/maps.rs`), and nowhere else.

use std::ops::RangeInclusive;

use crate::abi;
use crate::abi::maps::{Map, Value, find};
use crate::bundle::manifest::Flow;

pub const ENTRY: &str = "ww_main";
/// Where the agent links its actor: functions that do nothing in a bundle.
pub(super) const SEAMS: [&str; 8] =
    ["ww_act", "ww_denied4", "ww_denied6", "ww_ban", "ww_weigh4", "ww_weigh6", "ww_told", "ww_describe"];
pub(super) const MODEL: &str = "ww_model_";

pub(super) const PROGRAMS: &str = "xdp";
pub(super) const FUNCTIONS: &str = ".text";
pub(super) const MAPS: &str = ".maps";
pub(super) const BTF: &str = ".BTF";
pub(super) const BTF_EXT: &str = ".BTF.ext";
pub(super) const CONFIG: &str = ".rodata.ww_config";
pub(super) const LICENSE: &str = "license";
pub(super) const REQUIRED: [&str; 6] = [PROGRAMS, MAPS, BTF, BTF_EXT, CONFIG, LICENSE];
/// The actor has no program, and nothing of the bundle's.
pub(super) const OF_ACTOR: [&str; 5] = [FUNCTIONS, MAPS, BTF, BTF_EXT, LICENSE];

/// How many bytes a section may have that becomes a map of one element; `None`: it becomes none.
pub(super) fn data_bytes(section: &str) -> Option<RangeInclusive<u64>> {
    match section {
        // Tables that clang makes of a `switch`, and the counters of bench.h.
        ".rodata" | ".bss" => Some(0..=4096),
        _ => find(section)
            .filter(|map| map.is_variable() && map.in_object() == section)
            .map(Map::section_bytes),
    }
}

/// Sections that the kernel never gets, beside those whose name starts with `.debug_`, and relocations.
pub(super) const OTHERS: [&str; 6] = [BTF, BTF_EXT, LICENSE, ".strtab", ".symtab", ".llvm_addrsig"];

/// Helpers that a bundle's program may call: `enum bpf_func_id` of linux/bpf.h. Those of actions are the actor's, which the agent carries.
pub(super) const HELPERS: [(i32, &str); 13] = [
    (1, "map_lookup_elem"),
    (2, "map_update_elem"),
    (5, "ktime_get_ns"),
    (8, "get_smp_processor_id"),
    (12, "tail_call"),
    (39, "skb_pull_data"),
    (85, "sk_lookup_udp"),
    (86, "sk_release"),
    (99, "skc_lookup_tcp"),
    (118, "jiffies64"),
    (125, "ktime_get_boot_ns"),
    (160, "ktime_get_coarse_ns"),
    (188, "xdp_get_buff_len"),
];

/// Bytes that an element of a map may have in an object for this manifest; `None`: the object has no such map.
pub(super) fn value_bytes(map: &Map, flow: &Flow) -> Option<RangeInclusive<u64>> {
    match map.value {
        _ if map.is_variable() => None,
        Value::Exactly(size) => Some(size as u64..=size as u64),
        Value::Bucket(by, ip_version) => {
            let bytes = flow.bucket_bytes(by, ip_version)?.into();
            Some(bytes..=bytes)
        }
        // The blank entries lie behind each other, aligned as entries are.
        Value::Blank => {
            let aggregates = flow.aggregates.iter().map(|aggregate| u64::from(aggregate.entry6_size));
            Some(flow.state_offset(6) as u64..=u64::from(flow.entry6_size) + aggregates.sum::<u64>())
        }
        // Who reads it compares the size with the number of features.
        Value::Inputs => {
            let most = size_of::<abi::EventInputs>() + size_of::<i64>() * abi::MAX_FEATURES;
            Some(size_of::<abi::EventInputs>() as u64..=most as u64)
        }
        Value::UpTo(_) | Value::Row => None,
    }
}

/// The last word of the state, where CPUs share the flow tables (bpf/classify/claim.h).
pub(super) const CLAIM: &str = "claim";

/// Where a program stands in the array of tail calls: `ww_model_<i>` at i. `None`: it is no part of a split model.
pub fn tail_call_index(program: &str) -> Option<u32> {
    program.strip_prefix(MODEL)?.parse().ok()
}

pub fn tail_call_name(index: u32) -> String {
    format!("{MODEL}{index}")
}
