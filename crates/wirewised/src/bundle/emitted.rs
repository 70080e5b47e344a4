// SPDX-License-Identifier: Apache-2.0
//! What `wirewise compile` emits. The object of a bundle may hold nothing else: a bundle comes from others, and the kernel
//! would do for it what it does for root. `inspection.rs` looks at it before libbpf sees the object, without it.
//!
//! What new versions of the data path need more of (maps, helpers, sections) is added to the tables here, and nowhere else.

use std::ops::RangeInclusive;

use crate::abi;
use crate::bundle::manifest::Flow;

pub const ENTRY: &str = "ww_xdp";
pub(super) const MODEL: &str = "ww_model_";
/// The kernel's limit for one packet (MAX_TAIL_CALL_CNT).
pub const MAX_TAIL_CALLS: u32 = 33;

pub(super) const PROGRAMS: &str = "xdp";
pub(super) const FUNCTIONS: &str = ".text";
pub(super) const MAPS: &str = ".maps";
pub(super) const BTF: &str = ".BTF";
pub(super) const BTF_EXT: &str = ".BTF.ext";
pub(super) const CONFIG: &str = ".rodata.ww_config";
pub(super) const LICENSE: &str = "license";
pub(super) const REQUIRED: [&str; 6] = [PROGRAMS, MAPS, BTF, BTF_EXT, CONFIG, LICENSE];

/// Sections that become maps of one element, and how many bytes they may have. Those of the model have what it needs.
pub(super) const DATA: [(&str, RangeInclusive<u64>); 7] = [
    (CONFIG, exactly(size_of::<abi::Config>())),
    (".data.ww_policy", exactly(size_of::<abi::Policy>())),
    (".data.ww_cpu", exactly(size_of::<abi::Cpu>())),
    (".rodata.ww_rows", 0..=4 << 20),
    (".rodata.ww_weights", 0..=4 << 20),
    // Tables that clang makes of a `switch`, and the counters of bench.h.
    (".rodata", 0..=4096),
    (".bss", 0..=4096),
];

/// Sections that the kernel never gets, beside those whose name starts with `.debug_`, and relocations.
pub(super) const OTHERS: [&str; 6] = [BTF, BTF_EXT, LICENSE, ".strtab", ".symtab", ".llvm_addrsig"];

/// Helpers the data path calls: `enum bpf_func_id` of linux/bpf.h.
pub(super) const HELPERS: [(i32, &str); 32] = [
    (1, "map_lookup_elem"),
    (2, "map_update_elem"),
    (5, "ktime_get_ns"),
    (7, "get_prandom_u32"),
    (8, "get_smp_processor_id"),
    (12, "tail_call"),
    (13, "clone_redirect"),
    (23, "redirect"),
    (25, "perf_event_output"),
    (28, "csum_diff"),
    (39, "skb_pull_data"),
    (40, "csum_update"),
    (44, "xdp_adjust_head"),
    (50, "skb_adjust_room"),
    (51, "redirect_map"),
    (54, "xdp_adjust_meta"),
    (65, "xdp_adjust_tail"),
    (69, "fib_lookup"),
    (85, "sk_lookup_udp"),
    (86, "sk_release"),
    (99, "skc_lookup_tcp"),
    (110, "tcp_gen_syncookie"),
    (118, "jiffies64"),
    (125, "ktime_get_boot_ns"),
    (160, "ktime_get_coarse_ns"),
    (163, "check_mtu"),
    (189, "xdp_load_bytes"),
    (190, "xdp_store_bytes"),
    (204, "tcp_raw_gen_syncookie_ipv4"),
    (205, "tcp_raw_gen_syncookie_ipv6"),
    (206, "tcp_raw_check_syncookie_ipv4"),
    (207, "tcp_raw_check_syncookie_ipv6"),
];

/// `enum bpf_map_type`, and BPF_F_* flags.
const HASH: u64 = 1;
const ARRAY: u64 = 2;
const PROG_ARRAY: u64 = 3;
const PERF_EVENT_ARRAY: u64 = 4;
const PERCPU_ARRAY: u64 = 6;
const LRU_HASH: u64 = 9;
const LPM_TRIE: u64 = 11;
const CPUMAP: u64 = 16;
const XSKMAP: u64 = 17;
const DEVMAP_HASH: u64 = 25;
/// As in maps.h: more than the old and the new policy file together can name.
const ALLOW_PREFIXES: u64 = 1 << 18;
const NO_PREALLOC: u64 = 1;
const MMAPABLE: u64 = 1 << 10;

/// A map the data path has; `entries`: at most.
pub(super) struct MapRule {
    pub name: &'static str,
    pub kind: u64,
    pub key: u64,
    pub value: RangeInclusive<u64>,
    pub entries: u64,
    pub flags: u64,
}

const fn exactly(size: usize) -> RangeInclusive<u64> {
    size as u64..=size as u64
}

pub(super) fn map_rules(flow: &Flow) -> Vec<MapRule> {
    let bucket = |entry: u32| exactly(entry as usize * abi::WAYS as usize);
    // The blank entries lie behind each other, aligned as entries are.
    let aggregates = flow.aggregates.iter().map(|aggregate| u64::from(aggregate.entry6_size));
    let blank = flow.state_offset(6) as u64..=u64::from(flow.entry6_size) + aggregates.sum::<u64>();
    let (prefix4, prefix6) = (size_of::<abi::Prefix4>() as u64, size_of::<abi::Prefix6>() as u64);
    let rule = |name, kind, key, value, entries, flags| MapRule { name, kind, key, value, entries, flags };
    let tables = flow.aggregates.iter().flat_map(|aggregate| {
        let [ipv4, ipv6] = aggregate.by.tables();
        [(ipv4, aggregate.entry4_size), (ipv6, aggregate.entry6_size)]
    });
    let mut rules = vec![
        rule("ww_flows4", ARRAY, 4, bucket(flow.entry4_size), 1, MMAPABLE),
        rule("ww_flows6", ARRAY, 4, bucket(flow.entry6_size), 1, MMAPABLE),
        rule("ww_limit", ARRAY, 4, exactly(8), abi::MAX_CLASSES as u64, MMAPABLE),
        rule("ww_allow4", LPM_TRIE, prefix4, exactly(4), ALLOW_PREFIXES, NO_PREALLOC),
        rule("ww_allow6", LPM_TRIE, prefix6, exactly(4), ALLOW_PREFIXES, NO_PREALLOC),
        rule("ww_allow_ports", ARRAY, 4, exactly(8), 4 * u64::from(abi::ALLOW_PORT_WORDS), MMAPABLE),
        rule("ww_blank", PERCPU_ARRAY, 4, blank, 1, 0),
        rule(
            "ww_agreement",
            ARRAY,
            4,
            exactly(size_of::<abi::Agreement>()),
            abi::AGREEMENT_ROWS as u64,
            MMAPABLE,
        ),
        rule("ww_first", PROG_ARRAY, 4, exactly(4), 1, 0),
        rule("ww_progs", PROG_ARRAY, 4, exactly(4), u64::from(MAX_TAIL_CALLS) + 1, 0),
        rule("ww_cpus", CPUMAP, 4, exactly(4), 1, 0),
        rule("ww_sockets", XSKMAP, 4, exactly(4), u64::from(abi::SOCKETS), 0),
        rule("ww_interfaces", DEVMAP_HASH, 4, exactly(4), u64::from(abi::INTERFACES), 0),
        rule(
            "ww_stations",
            LRU_HASH,
            size_of::<abi::StationKey>() as u64,
            exactly(size_of::<abi::Station>()),
            u64::from(abi::STATIONS),
            0,
        ),
        rule(
            "ww_fixed",
            HASH,
            size_of::<abi::StationKey>() as u64,
            exactly(4),
            u64::from(abi::FIXED),
            NO_PREALLOC,
        ),
        rule(
            "ww_memory",
            LRU_HASH,
            size_of::<abi::EndsKey>() as u64,
            exactly(size_of::<abi::Memory>()),
            u64::from(abi::MEMORY),
            0,
        ),
        rule("ww_answers", LRU_HASH, size_of::<abi::TunnelKey6>() as u64, exactly(8), 1 << 12, 0),
        rule("ww_pools", ARRAY, 4, exactly(size_of::<abi::Pool>()), abi::POOLS as u64, MMAPABLE),
        rule("ww_tables", ARRAY, 4, exactly(size_of::<abi::Table>()), 2 * abi::POOLS as u64, MMAPABLE),
        rule("ww_backends", ARRAY, 4, exactly(size_of::<abi::Backend>()), abi::BACKENDS as u64, MMAPABLE),
        rule(
            "ww_backend_counts",
            ARRAY,
            4,
            exactly(size_of::<abi::Counter>()),
            abi::BACKENDS as u64,
            MMAPABLE,
        ),
        rule("ww_copies", PERF_EVENT_ARRAY, 4, exactly(4), 1, 0),
        rule(
            "ww_tunnels",
            HASH,
            size_of::<abi::TunnelEnd>() as u64,
            exactly(size_of::<abi::Tunnel>()),
            (abi::ENDS_OF_A_TUNNEL * abi::TUNNELS) as u64,
            NO_PREALLOC,
        ),
        rule(
            "ww_tunnel_counts",
            PERCPU_ARRAY,
            4,
            exactly(size_of::<abi::Counter>()),
            abi::TunnelCount::COUNT as u64,
            0,
        ),
        rule("ww_events", ARRAY, 4, exactly(size_of::<abi::Event>()), u64::from(abi::EVENTS), MMAPABLE),
    ];
    rules.extend(tables.map(|(name, entry)| rule(name, ARRAY, 4, bucket(entry), 1, MMAPABLE)));
    rules
}

/// The last word of the state, where CPUs share the flow tables (bpf/wirewise/claim.h).
pub(super) const CLAIM: &str = "claim";

/// Where a program stands in the array of tail calls: `ww_model_<i>` at i. `None`: it is no part of a split model.
pub fn tail_call_index(program: &str) -> Option<u32> {
    program.strip_prefix(MODEL)?.parse().ok()
}

pub fn tail_call_name(index: u32) -> String {
    format!("{MODEL}{index}")
}
