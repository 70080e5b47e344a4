// SPDX-License-Identifier: Apache-2.0
//! Written by scripts/abi.py from bpf/abi.h and bpf/act/act_abi.h, where the meaning of each stands.

use std::mem::{offset_of, size_of};

use bytemuck::{Pod, Zeroable};

pub const ABI_VERSION: u32 = 17;
pub const MAX_FEATURES: usize = 128;
pub const MAX_CLASSES: usize = 64;
pub const MAX_WIDTH: usize = 128;
pub const WAYS: u32 = 4;
pub const HASH_WORDS: usize = 12;
pub const HASH_SEEDS: usize = 13;
pub const MAX_SAMPLES: usize = 64;
pub const TRIGGER_WORDS: usize = 16;
pub const SELECTORS: usize = 8;
pub const MEANING_BYTES: usize = 32;
pub const ACT_STACK: u32 = 224;
pub const DENY_STACK: u32 = 96;
pub const TELL_STACK: u32 = 64;
pub const ALLOW_PREFIXES: u32 = 262_144;
pub const DENY_BITS4: u32 = 24;
pub const DENY_WORDS4: u32 = 262_144;
pub const DENY_NETWORK6: u32 = 40;
pub const DENY_BITS6: u32 = 23;
pub const DENY_WORDS6: u32 = 131_072;
pub const NETWORK_FACTOR: u32 = 0x9e37_79b1;
pub const SLOT_SWAPPED: u8 = 1;
pub const SLOT_VERDICT: u8 = 2;
pub const SLOT_VERDICT_2: u8 = 4;
pub const SLOT_VERDICT_PAST: u8 = 8;
pub const SLOT_VERDICTS: u8 = 14;
pub const SLOT_STREAK_SHIFT: u8 = 4;
pub const MAX_STREAK: u32 = 15;
pub const MAX_AFTER: u32 = 15;
pub const SELECT_PROTOCOL: u32 = 1;
pub const SELECT_SOURCE_PORT: u32 = 2;
pub const SELECT_DESTINATION_PORT: u32 = 4;
pub const SELECT_TCP_FLAGS: u32 = 8;
pub const LIST_FOREVER: u32 = 0xffff_ffff;
pub const ALLOW_PORT_WORDS: u32 = 1024;
pub const EVENTS: u32 = 2048;
pub const EVENT_SWAPPED: u32 = 1;
pub const RECORD_HEADERS: u32 = 192;
pub const RECORD_ROOM: usize = 256;
pub const AGREEMENT_ROWS: usize = 65;
pub const METADATA: u32 = 0x31d7_a2c5;
pub const METADATA_VERSION: u32 = 1;
pub const METADATA_SCORE: u32 = 1;
pub const VERDICTS: u32 = 65_536;
pub const ACT_VERSION: u32 = 5;
pub const INTERFACES: u32 = 1024;
pub const STATIONS: u32 = 16_384;
pub const FIXED: u32 = 4096;
pub const MEMORY: u32 = 65_536;
pub const STEER_BY_COMPANION: u32 = 312;
pub const DENY_PREFIXES: u32 = 4_194_304;
pub const DENY_ORIGINS: usize = 6;
pub const DENY_NAME: usize = 32;
pub const TOLD: u32 = 65_536;
pub const TOLD_PROVEN: u32 = 63;
pub const BAN_KINDS: usize = 4;
pub const BAN_WAYS: usize = 4;
pub const BAN_BUCKETS: u32 = 16_384;
pub const BAN_FREE: u32 = 0;
pub const BAN_BUSY: u32 = 1;
pub const BAN_NETWORK4: u32 = 24;
pub const BAN_NETWORK6: u32 = 40;
pub const BAN_FILTER_BITS: u32 = 23;
pub const BAN_FILTER_WORDS: u32 = 131_072;
pub const HANDSHAKES: u32 = 65_536;
pub const PROOF_BYTES: u32 = 65_536;
pub const MAX_SPREAD: usize = 16;
pub const BROADCASTS: usize = 8;
pub const COPY: u32 = 0x0000_7e50;
pub const COPIES: u32 = 4;
pub const WISH: u32 = 0x3157_ecab;
pub const SOCKETS: u32 = 256;
pub const POOLS: usize = 16;
pub const BACKENDS: usize = 2048;
pub const PLACES: usize = 65_537;
pub const POOL_NAME: usize = 32;
pub const CHECK_PATH: usize = 64;
pub const TUNNELS: usize = 65_536;
pub const SENDERS: u32 = 65_536;
pub const SCORE_MAX: u32 = 255;
pub const MAX_LAST: u32 = 255;
pub const ROOM: usize = 256;

codes! {
    /// `enum ww_status`.
    Status {
        Classified = "classified",
        NotIp = "not_ip",
        MalformedEthernet = "malformed_ethernet",
        MalformedIp = "malformed_ip",
        MalformedTransport = "malformed_transport",
        MalformedTunnel = "malformed_tunnel",
        TooManyExtensions = "too_many_extensions",
        AllowedPrefix = "allowed_prefix",
        AllowedPort = "allowed_port",
        NoPolicy = "no_policy",
        Undecided = "undecided",
        AllowedEssential = "allowed_essential",
        DeniedPrefix = "denied_prefix",
        DeniedPort = "denied_port",
        Banned = "banned",
    }
}

codes! {
    /// `enum ww_verdict`.
    Verdict {
        NotActed = "not-acted",
        Drop = "drop",
        Pass = "pass",
        Bounce = "bounce",
        Redirect = "redirect",
        Proven = "proven",
    }
}

codes! {
    /// `enum ww_action`.
    Action {
        Pass = "pass",
        Drop = "drop",
        Count = "count",
        RateLimit = "rate-limit",
        Act = "act",
    }
}

codes! {
    /// `enum ww_outcome`.
    Outcome {
        Pass = "pass",
        Drop = "drop",
        Limited = "limited",
        WouldDrop = "would-drop",
        WouldLimit = "would-limit",
        Established = "established",
        Acted = "acted",
        WouldAct = "would-act",
        NotActed = "not-acted",
        Ban = "ban",
        WouldBan = "would-ban",
    }
}

codes! {
    /// `enum ww_mode`.
    Mode {
        Observe = "observe",
        Enforce = "enforce",
    }
}

codes! {
    /// `enum ww_trigger`.
    Trigger {
        Every = "every",
        Packets = "packets",
        Interval = "interval",
        FirstN = "first-n",
        Headers = "headers",
    }
}

codes! {
    /// `enum ww_hook`.
    Hook {
        Xdp = "xdp",
        TcIngress = "tc-ingress",
        TcEgress = "tc-egress",
    }
}

codes! {
    /// `enum ww_clock`.
    Clock {
        Coarse = "coarse",
        Fine = "fine",
        Metadata = "metadata",
    }
}

codes! {
    /// `enum ww_lookup`.
    Lookup {
        New = "new",
        Expired = "expired",
        Evicted = "evicted",
        Refused = "refused",
        Hit = "hit",
        Missed = "missed",
    }
}

codes! {
    /// `enum ww_shadow`.
    Shadow {
        None = "none",
        First = "first",
        Second = "second",
    }
}

// `enum ww_rule`
pub const RULE_STREAKS: u32 = 1;
pub const RULE_EVIDENCE: u32 = 2;

// `enum ww_weigh`
pub const WEIGH_SWAPPED: u32 = 1;
pub const WEIGH_VERDICT: u32 = 2;
pub const WEIGH_FIRST: u32 = 4;
pub const WEIGH_BEFORE: u32 = 8;
pub const WEIGH_NOW: u32 = 16;

// `enum ww_allow`
pub const ALLOW_IPV4: u32 = 1;
pub const ALLOW_IPV6: u32 = 2;
pub const ALLOW_PORTS: u32 = 4;
pub const ALLOW_SOURCE_PORTS: u32 = 16;
pub const ALLOW_ESSENTIAL: u32 = 32;
pub const ALLOW_ESTABLISHED: u32 = 64;
pub const ALLOW_UNLESS_DENIED: u32 = 128;
pub const ALLOW_UNLESS_BANNED: u32 = 256;
pub const ALLOW_UNLESS_PORT_DENIED: u32 = 512;
pub const ALLOW_NO_POLICY: u32 = 8;

// `enum ww_described`
pub const DESCRIBED_CLASS: u8 = 1;
pub const DESCRIBED_SCORE: u8 = 2;
pub const DESCRIBED_CHANGED: u8 = 4;
pub const DESCRIBED_BOTH_WAYS: u8 = 8;

// `enum ww_steer_kind`
pub const STEER_REDIRECT: u32 = 1;
pub const STEER_BOUNCE: u32 = 2;
pub const STEER_DSCP: u32 = 4;
pub const STEER_MARK: u32 = 8;
pub const STEER_PRIORITY: u32 = 16;
pub const STEER_QUEUE: u32 = 32;
pub const STEER_CPU: u32 = 64;
pub const STEER_SOCKET: u32 = 128;
pub const STEER_MIRROR: u32 = 256;
pub const STEER_FORWARD: u32 = 512;
pub const STEER_BACKEND: u32 = 1024;
pub const STEER_CHALLENGE: u32 = 2048;
pub const STEER_BRIDGE: u32 = 4096;
pub const STEER_DENY: u32 = 8192;
pub const STEER_CARRIED: u32 = 16_384;
pub const STEER_TOLD: u32 = 32_768;
pub const STEER_DECAPSULATE: u32 = 65_536;
pub const STEER_ENCAPSULATE: u32 = 131_072;
pub const STEER_QFI: u32 = 262_144;
pub const STEER_INNER_DSCP: u32 = 524_288;
pub const STEER_TELL: u32 = 1_048_576;
pub const STEER_METADATA: u32 = 2_097_152;
pub const STEER_VERDICTS: u32 = 4_194_304;
pub const STEER_BAN: u32 = 8_388_608;
pub const STEER_EVIDENCE: u32 = 16_777_216;
pub const STEER_INPUTS: u32 = 33_554_432;

codes! {
    /// `enum ww_each`.
    Each {
        Packet = "packet",
        Flow = "flow",
        Source = "source",
    }
}

codes! {
    /// `enum ww_method`.
    Method {
        Dsr = "dsr",
        IpInIp = "ip-in-ip",
        Gue = "gue",
    }
}

codes! {
    /// `enum ww_check`.
    Check {
        None = "none",
        Tcp = "tcp",
        Http = "http",
    }
}

// `enum ww_backend_flag`
pub const BACKEND_THERE: u16 = 1;
pub const BACKEND_DRAINS: u16 = 2;
pub const BACKEND_DOWN: u16 = 4;

codes! {
    /// `enum ww_tunnel_side`.
    TunnelSide {
        In = "in",
        Out = "out",
    }
}

// `enum ww_tunnel_flag`
pub const TUNNEL_HAS_IN: u8 = 1;
pub const TUNNEL_HAS_OUT: u8 = 2;
pub const TUNNEL_HAS_UE4: u8 = 4;
pub const TUNNEL_HAS_UE6: u8 = 8;
pub const TUNNEL_HAS_QFI: u8 = 16;

codes! {
    /// `enum ww_tunnel_count`.
    TunnelCount {
        TakenOut = "taken-out",
        PutIn = "put-in",
        Written = "written",
        Answered = "answered",
        Other = "other",
        Unknown = "unknown",
        Malformed = "malformed",
        Fragmented = "fragmented",
        Extended = "extended",
        Nested = "nested",
        Foreign = "foreign",
        TooLong = "too-long",
        NoWay = "no-way",
        Unanswered = "unanswered",
    }
}

codes! {
    /// `enum ww_evidence`.
    Evidence {
        None = "none",
        Source = "source",
        Pair = "pair",
        Service = "service",
    }
}

/// `struct ww_config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Config {
    pub abi_version: u32,
    pub clock: u32,
    pub bucket_mask: u32,
    pub shards: u32,
    pub proven_packets: u32,
    pub trace: u32,
    pub bench_flows: u32,
    pub bench_spoof: u32,
    pub idle_timeout_ns: u64,
    pub grace_ns: u64,
    pub hash_seed: [u64; HASH_SEEDS],
    pub jiffy_ns: u64,
    pub jiffy_zero_ns: u64,
    pub verdict: u32,
    pub bench_packets: u32,
    pub shadow: u32,
    pub shared: u32,
    pub ordered: u32,
    pub aggregate_mask: u32,
    pub hook: u32,
    pub acts: u32,
    pub key_teid: u32,
    pub model: u32,
    pub describes: u32,
    pub record: u32,
    pub next: u32,
    pub frags: u32,
    pub denies: u32,
    pub inputs: u32,
    pub meaning: [u8; MEANING_BYTES],
}

const _: () = {
    assert!(size_of::<Config>() == 264);
    assert!(offset_of!(Config, abi_version) == 0);
    assert!(offset_of!(Config, clock) == 4);
    assert!(offset_of!(Config, bucket_mask) == 8);
    assert!(offset_of!(Config, shards) == 12);
    assert!(offset_of!(Config, proven_packets) == 16);
    assert!(offset_of!(Config, trace) == 20);
    assert!(offset_of!(Config, bench_flows) == 24);
    assert!(offset_of!(Config, bench_spoof) == 28);
    assert!(offset_of!(Config, idle_timeout_ns) == 32);
    assert!(offset_of!(Config, grace_ns) == 40);
    assert!(offset_of!(Config, hash_seed) == 48);
    assert!(offset_of!(Config, jiffy_ns) == 152);
    assert!(offset_of!(Config, jiffy_zero_ns) == 160);
    assert!(offset_of!(Config, verdict) == 168);
    assert!(offset_of!(Config, bench_packets) == 172);
    assert!(offset_of!(Config, shadow) == 176);
    assert!(offset_of!(Config, shared) == 180);
    assert!(offset_of!(Config, ordered) == 184);
    assert!(offset_of!(Config, aggregate_mask) == 188);
    assert!(offset_of!(Config, hook) == 192);
    assert!(offset_of!(Config, acts) == 196);
    assert!(offset_of!(Config, key_teid) == 200);
    assert!(offset_of!(Config, model) == 204);
    assert!(offset_of!(Config, describes) == 208);
    assert!(offset_of!(Config, record) == 212);
    assert!(offset_of!(Config, next) == 216);
    assert!(offset_of!(Config, frags) == 220);
    assert!(offset_of!(Config, denies) == 224);
    assert!(offset_of!(Config, inputs) == 228);
    assert!(offset_of!(Config, meaning) == 232);
};

/// `struct ww_key4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Key4 {
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub source_port: [u8; 2],
    pub destination_port: [u8; 2],
    pub protocol: u8,
    pub vlans: [u8; 3],
}

const _: () = {
    assert!(size_of::<Key4>() == 16);
    assert!(offset_of!(Key4, source) == 0);
    assert!(offset_of!(Key4, destination) == 4);
    assert!(offset_of!(Key4, source_port) == 8);
    assert!(offset_of!(Key4, destination_port) == 10);
    assert!(offset_of!(Key4, protocol) == 12);
    assert!(offset_of!(Key4, vlans) == 13);
};

/// `struct ww_key6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Key6 {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub source_port: [u8; 2],
    pub destination_port: [u8; 2],
    pub protocol: u8,
    pub vlans: [u8; 3],
}

const _: () = {
    assert!(size_of::<Key6>() == 40);
    assert!(offset_of!(Key6, source) == 0);
    assert!(offset_of!(Key6, destination) == 16);
    assert!(offset_of!(Key6, source_port) == 32);
    assert!(offset_of!(Key6, destination_port) == 34);
    assert!(offset_of!(Key6, protocol) == 36);
    assert!(offset_of!(Key6, vlans) == 37);
};

/// `struct ww_tunnel_key4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct TunnelKey4 {
    pub key: Key4,
    pub teid: u64,
}

const _: () = {
    assert!(size_of::<TunnelKey4>() == 24);
    assert!(offset_of!(TunnelKey4, key) == 0);
    assert!(offset_of!(TunnelKey4, teid) == 16);
};

/// `struct ww_tunnel_key6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct TunnelKey6 {
    pub key: Key6,
    pub teid: u64,
}

const _: () = {
    assert!(size_of::<TunnelKey6>() == 48);
    assert!(offset_of!(TunnelKey6, key) == 0);
    assert!(offset_of!(TunnelKey6, teid) == 40);
};

/// `struct ww_slot`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Slot {
    pub last_seen_ns: u64,
    pub packets: u32,
    pub class_id: u8,
    pub flags: u8,
    pub generation: u16,
}

const _: () = {
    assert!(size_of::<Slot>() == 16);
    assert!(offset_of!(Slot, last_seen_ns) == 0);
    assert!(offset_of!(Slot, packets) == 8);
    assert!(offset_of!(Slot, class_id) == 12);
    assert!(offset_of!(Slot, flags) == 13);
    assert!(offset_of!(Slot, generation) == 14);
};

/// `struct ww_class_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct ClassPolicy {
    pub action: u32,
    pub after: u32,
    pub interval_ns: u64,
    pub burst_ns: u64,
    pub observe_from_ns: u64,
    pub observe_until_ns: u64,
    pub severity: u32,
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<ClassPolicy>() == 48);
    assert!(offset_of!(ClassPolicy, action) == 0);
    assert!(offset_of!(ClassPolicy, after) == 4);
    assert!(offset_of!(ClassPolicy, interval_ns) == 8);
    assert!(offset_of!(ClassPolicy, burst_ns) == 16);
    assert!(offset_of!(ClassPolicy, observe_from_ns) == 24);
    assert!(offset_of!(ClassPolicy, observe_until_ns) == 32);
    assert!(offset_of!(ClassPolicy, severity) == 40);
    assert!(offset_of!(ClassPolicy, reserved) == 44);
};

/// `struct ww_selector`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Selector {
    pub port: u16,
    pub protocol: u8,
    pub asks: u8,
    pub flags_mask: u8,
    pub flags: u8,
    pub reserved: u16,
}

const _: () = {
    assert!(size_of::<Selector>() == 8);
    assert!(offset_of!(Selector, port) == 0);
    assert!(offset_of!(Selector, protocol) == 2);
    assert!(offset_of!(Selector, asks) == 3);
    assert!(offset_of!(Selector, flags_mask) == 4);
    assert!(offset_of!(Selector, flags) == 5);
    assert!(offset_of!(Selector, reserved) == 6);
};

/// `struct ww_captured`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Captured {
    pub time_ns: u64,
    pub length: u32,
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<Captured>() == 16);
    assert!(offset_of!(Captured, time_ns) == 0);
    assert!(offset_of!(Captured, length) == 8);
    assert!(offset_of!(Captured, reserved) == 12);
};

/// `struct ww_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Policy {
    pub allow: u32,
    pub mode: u32,
    pub enforce_until_ns: u64,
    pub drop_malformed: u32,
    pub trigger: u32,
    pub trigger_first_n: u32,
    pub rules: u32,
    pub trigger_interval_ns: u64,
    pub trigger_packets: [u64; TRIGGER_WORDS],
    pub event_interval_ns: u64,
    pub event_burst_ns: u64,
    pub class_policy: [ClassPolicy; MAX_CLASSES],
    pub selector: [Selector; SELECTORS],
    pub trigger_every: u32,
    pub reserved: u32,
    pub observe_until_ns: u64,
}

const _: () = {
    assert!(size_of::<Policy>() == 3336);
    assert!(offset_of!(Policy, allow) == 0);
    assert!(offset_of!(Policy, mode) == 4);
    assert!(offset_of!(Policy, enforce_until_ns) == 8);
    assert!(offset_of!(Policy, drop_malformed) == 16);
    assert!(offset_of!(Policy, trigger) == 20);
    assert!(offset_of!(Policy, trigger_first_n) == 24);
    assert!(offset_of!(Policy, rules) == 28);
    assert!(offset_of!(Policy, trigger_interval_ns) == 32);
    assert!(offset_of!(Policy, trigger_packets) == 40);
    assert!(offset_of!(Policy, event_interval_ns) == 168);
    assert!(offset_of!(Policy, event_burst_ns) == 176);
    assert!(offset_of!(Policy, class_policy) == 184);
    assert!(offset_of!(Policy, selector) == 3256);
    assert!(offset_of!(Policy, trigger_every) == 3320);
    assert!(offset_of!(Policy, reserved) == 3324);
    assert!(offset_of!(Policy, observe_until_ns) == 3328);
};

/// `struct ww_ends6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Ends6 {
    pub peer: [u64; 2],
    pub own: [u64; 2],
}

const _: () = {
    assert!(size_of::<Ends6>() == 32);
    assert!(offset_of!(Ends6, peer) == 0);
    assert!(offset_of!(Ends6, own) == 16);
};

/// `struct ww_prefix4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Prefix4 {
    pub length: u32,
    pub address: [u8; 4],
}

const _: () = {
    assert!(size_of::<Prefix4>() == 8);
    assert!(offset_of!(Prefix4, length) == 0);
    assert!(offset_of!(Prefix4, address) == 4);
};

/// `struct ww_prefix6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Prefix6 {
    pub length: u32,
    pub address: [u8; 16],
}

const _: () = {
    assert!(size_of::<Prefix6>() == 20);
    assert!(offset_of!(Prefix6, length) == 0);
    assert!(offset_of!(Prefix6, address) == 4);
};

/// `struct ww_allowed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Allowed {
    pub until_s: u32,
    pub length: u32,
    pub policy_until_s: u32,
    pub hand_until_s: u32,
}

const _: () = {
    assert!(size_of::<Allowed>() == 16);
    assert!(offset_of!(Allowed, until_s) == 0);
    assert!(offset_of!(Allowed, length) == 4);
    assert!(offset_of!(Allowed, policy_until_s) == 8);
    assert!(offset_of!(Allowed, hand_until_s) == 12);
};

/// `struct ww_counter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Counter {
    pub packets: u64,
    pub bytes: u64,
}

const _: () = {
    assert!(size_of::<Counter>() == 16);
    assert!(offset_of!(Counter, packets) == 0);
    assert!(offset_of!(Counter, bytes) == 8);
};

/// `struct ww_stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Stats {
    pub status: [Counter; Status::COUNT],
    pub class_outcome: [[Counter; Outcome::COUNT]; MAX_CLASSES],
    pub inferred: u64,
    pub flows_new: u64,
    pub flows_expired: u64,
    pub flows_evicted: u64,
    pub flows_refused: u64,
    pub events_sent: u64,
    pub events_limited: u64,
    pub event_tat_ns: u64,
    pub flows_missed: u64,
    pub aggregates_new: u64,
    pub aggregates_expired: u64,
    pub aggregates_evicted: u64,
    pub aggregates_refused: u64,
    pub aggregates_missed: u64,
    pub said_yes: [u64; MAX_CLASSES],
}

const _: () = {
    assert!(size_of::<Stats>() == 12128);
    assert!(offset_of!(Stats, status) == 0);
    assert!(offset_of!(Stats, class_outcome) == 240);
    assert!(offset_of!(Stats, inferred) == 11504);
    assert!(offset_of!(Stats, flows_new) == 11512);
    assert!(offset_of!(Stats, flows_expired) == 11520);
    assert!(offset_of!(Stats, flows_evicted) == 11528);
    assert!(offset_of!(Stats, flows_refused) == 11536);
    assert!(offset_of!(Stats, events_sent) == 11544);
    assert!(offset_of!(Stats, events_limited) == 11552);
    assert!(offset_of!(Stats, event_tat_ns) == 11560);
    assert!(offset_of!(Stats, flows_missed) == 11568);
    assert!(offset_of!(Stats, aggregates_new) == 11576);
    assert!(offset_of!(Stats, aggregates_expired) == 11584);
    assert!(offset_of!(Stats, aggregates_evicted) == 11592);
    assert!(offset_of!(Stats, aggregates_refused) == 11600);
    assert!(offset_of!(Stats, aggregates_missed) == 11608);
    assert!(offset_of!(Stats, said_yes) == 11616);
};

/// `struct ww_event`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Event {
    pub time_ns: u64,
    pub key: TunnelKey6,
    pub ip_version: u8,
    pub class_id: u8,
    pub action: u8,
    pub outcome: u8,
    pub packets: u32,
    pub length: u32,
    pub sequence: u32,
    pub answers: u64,
    pub changed: u64,
    pub count: u64,
    pub flags: u32,
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<Event>() == 104);
    assert!(offset_of!(Event, time_ns) == 0);
    assert!(offset_of!(Event, key) == 8);
    assert!(offset_of!(Event, ip_version) == 56);
    assert!(offset_of!(Event, class_id) == 57);
    assert!(offset_of!(Event, action) == 58);
    assert!(offset_of!(Event, outcome) == 59);
    assert!(offset_of!(Event, packets) == 60);
    assert!(offset_of!(Event, length) == 64);
    assert!(offset_of!(Event, sequence) == 68);
    assert!(offset_of!(Event, answers) == 72);
    assert!(offset_of!(Event, changed) == 80);
    assert!(offset_of!(Event, count) == 88);
    assert!(offset_of!(Event, flags) == 96);
    assert!(offset_of!(Event, reserved) == 100);
};

/// `struct ww_event_inputs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct EventInputs {
    pub sequence: u32,
    pub inferred: u32,
}

const _: () = {
    assert!(size_of::<EventInputs>() == 8);
    assert!(offset_of!(EventInputs, sequence) == 0);
    assert!(offset_of!(EventInputs, inferred) == 4);
};

/// `struct ww_record`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Record {
    pub time_ns: u64,
    pub packet: u64,
    pub status: u32,
    pub inferred: u32,
    pub length: u32,
    pub headers_length: u32,
    pub headers: [u8; RECORD_ROOM],
}

const _: () = {
    assert!(size_of::<Record>() == 288);
    assert!(offset_of!(Record, time_ns) == 0);
    assert!(offset_of!(Record, packet) == 8);
    assert!(offset_of!(Record, status) == 16);
    assert!(offset_of!(Record, inferred) == 20);
    assert!(offset_of!(Record, length) == 24);
    assert!(offset_of!(Record, headers_length) == 28);
    assert!(offset_of!(Record, headers) == 32);
};

/// `struct ww_record_ring`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct RecordRing {
    pub packets: u64,
    pub written: u64,
    pub lost: u64,
    pub reserved: [u64; 5],
    pub read: u64,
    pub rest: [u64; 7],
}

const _: () = {
    assert!(size_of::<RecordRing>() == 128);
    assert!(offset_of!(RecordRing, packets) == 0);
    assert!(offset_of!(RecordRing, written) == 8);
    assert!(offset_of!(RecordRing, lost) == 16);
    assert!(offset_of!(RecordRing, reserved) == 24);
    assert!(offset_of!(RecordRing, read) == 64);
    assert!(offset_of!(RecordRing, rest) == 72);
};

/// `struct ww_description`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Description {
    pub key: TunnelKey6,
    pub time_ns: u64,
    pub score: i64,
    pub flow_hash: u32,
    pub class_id: u8,
    pub flags: u8,
    pub ip_version: u8,
    pub reserved: u8,
}

const _: () = {
    assert!(size_of::<Description>() == 72);
    assert!(offset_of!(Description, key) == 0);
    assert!(offset_of!(Description, time_ns) == 48);
    assert!(offset_of!(Description, score) == 56);
    assert!(offset_of!(Description, flow_hash) == 64);
    assert!(offset_of!(Description, class_id) == 68);
    assert!(offset_of!(Description, flags) == 69);
    assert!(offset_of!(Description, ip_version) == 70);
    assert!(offset_of!(Description, reserved) == 71);
};

/// `struct ww_scratch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Scratch {
    pub feature: [i64; MAX_FEATURES],
    pub score: [i64; MAX_CLASSES],
    pub status: u32,
    pub inferred: u32,
    pub class_id: u32,
    pub action: u32,
    pub outcome: u32,
    pub refused: u32,
    pub packets: u32,
    pub ip_version: u32,
    pub key: TunnelKey6,
    pub length: u32,
    pub frame_length: u32,
    pub bucket: u32,
    pub way: u32,
    pub seen: Slot,
    pub seen_key: TunnelKey6,
    pub aggregate_key: Key6,
    pub sample: [u32; MAX_SAMPLES],
    pub now_ns: u64,
    pub leaf: u64,
    pub answers: u64,
    pub changed: u64,
    pub selected: u64,
    pub described: Description,
    pub activation: [[u64; MAX_WIDTH]; 2],
}

const _: () = {
    assert!(size_of::<Scratch>() == 4152);
    assert!(offset_of!(Scratch, feature) == 0);
    assert!(offset_of!(Scratch, score) == 1024);
    assert!(offset_of!(Scratch, status) == 1536);
    assert!(offset_of!(Scratch, inferred) == 1540);
    assert!(offset_of!(Scratch, class_id) == 1544);
    assert!(offset_of!(Scratch, action) == 1548);
    assert!(offset_of!(Scratch, outcome) == 1552);
    assert!(offset_of!(Scratch, refused) == 1556);
    assert!(offset_of!(Scratch, packets) == 1560);
    assert!(offset_of!(Scratch, ip_version) == 1564);
    assert!(offset_of!(Scratch, key) == 1568);
    assert!(offset_of!(Scratch, length) == 1616);
    assert!(offset_of!(Scratch, frame_length) == 1620);
    assert!(offset_of!(Scratch, bucket) == 1624);
    assert!(offset_of!(Scratch, way) == 1628);
    assert!(offset_of!(Scratch, seen) == 1632);
    assert!(offset_of!(Scratch, seen_key) == 1648);
    assert!(offset_of!(Scratch, aggregate_key) == 1696);
    assert!(offset_of!(Scratch, sample) == 1736);
    assert!(offset_of!(Scratch, now_ns) == 1992);
    assert!(offset_of!(Scratch, leaf) == 2000);
    assert!(offset_of!(Scratch, answers) == 2008);
    assert!(offset_of!(Scratch, changed) == 2016);
    assert!(offset_of!(Scratch, selected) == 2024);
    assert!(offset_of!(Scratch, described) == 2032);
    assert!(offset_of!(Scratch, activation) == 2104);
};

/// `struct ww_agreement`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Agreement {
    pub packets: [u64; AGREEMENT_ROWS],
    pub now_ns: u64,
    pub class_id: u32,
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<Agreement>() == 536);
    assert!(offset_of!(Agreement, packets) == 0);
    assert!(offset_of!(Agreement, now_ns) == 520);
    assert!(offset_of!(Agreement, class_id) == 528);
    assert!(offset_of!(Agreement, reserved) == 532);
};

/// `struct ww_cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Cpu {
    pub stats: Stats,
    pub scratch: Scratch,
}

const _: () = {
    assert!(size_of::<Cpu>() == 16280);
    assert!(offset_of!(Cpu, stats) == 0);
    assert!(offset_of!(Cpu, scratch) == 12128);
};

/// `struct ww_metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Metadata {
    pub magic: u32,
    pub flow_hash: u32,
    pub time_ns: u64,
    pub score: i64,
    pub model: u32,
    pub class_id: u8,
    pub flags: u8,
    pub version: u16,
}

const _: () = {
    assert!(size_of::<Metadata>() == 32);
    assert!(offset_of!(Metadata, magic) == 0);
    assert!(offset_of!(Metadata, flow_hash) == 4);
    assert!(offset_of!(Metadata, time_ns) == 8);
    assert!(offset_of!(Metadata, score) == 16);
    assert!(offset_of!(Metadata, model) == 24);
    assert!(offset_of!(Metadata, class_id) == 28);
    assert!(offset_of!(Metadata, flags) == 29);
    assert!(offset_of!(Metadata, version) == 30);
};

/// `struct ww_five_tuple`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct FiveTuple {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub source_port: [u8; 2],
    pub destination_port: [u8; 2],
    pub protocol: u8,
    pub ip_version: u8,
    pub reserved: u16,
}

const _: () = {
    assert!(size_of::<FiveTuple>() == 40);
    assert!(offset_of!(FiveTuple, source) == 0);
    assert!(offset_of!(FiveTuple, destination) == 16);
    assert!(offset_of!(FiveTuple, source_port) == 32);
    assert!(offset_of!(FiveTuple, destination_port) == 34);
    assert!(offset_of!(FiveTuple, protocol) == 36);
    assert!(offset_of!(FiveTuple, ip_version) == 37);
    assert!(offset_of!(FiveTuple, reserved) == 38);
};

/// `struct ww_flow_verdict`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct FlowVerdict {
    pub time_ns: u64,
    pub score: i64,
    pub model: u32,
    pub class_id: u8,
    pub flags: u8,
    pub version: u16,
}

const _: () = {
    assert!(size_of::<FlowVerdict>() == 24);
    assert!(offset_of!(FlowVerdict, time_ns) == 0);
    assert!(offset_of!(FlowVerdict, score) == 8);
    assert!(offset_of!(FlowVerdict, model) == 16);
    assert!(offset_of!(FlowVerdict, class_id) == 20);
    assert!(offset_of!(FlowVerdict, flags) == 21);
    assert!(offset_of!(FlowVerdict, version) == 22);
};

/// `struct ww_ends_key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct EndsKey {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub source_port: [u8; 2],
    pub destination_port: [u8; 2],
    pub protocol: u8,
    pub reserved: [u8; 3],
}

const _: () = {
    assert!(size_of::<EndsKey>() == 40);
    assert!(offset_of!(EndsKey, source) == 0);
    assert!(offset_of!(EndsKey, destination) == 16);
    assert!(offset_of!(EndsKey, source_port) == 32);
    assert!(offset_of!(EndsKey, destination_port) == 34);
    assert!(offset_of!(EndsKey, protocol) == 36);
    assert!(offset_of!(EndsKey, reserved) == 37);
};

/// `struct ww_denied`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Denied {
    pub until_s: u32,
    pub length: u32,
    pub origin_until_s: [u32; DENY_ORIGINS],
}

const _: () = {
    assert!(size_of::<Denied>() == 32);
    assert!(offset_of!(Denied, until_s) == 0);
    assert!(offset_of!(Denied, length) == 4);
    assert!(offset_of!(Denied, origin_until_s) == 8);
};

/// `struct ww_deny_origin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct DenyOrigin {
    pub name: [u8; DENY_NAME],
    pub before: u64,
}

const _: () = {
    assert!(size_of::<DenyOrigin>() == 40);
    assert!(offset_of!(DenyOrigin, name) == 0);
    assert!(offset_of!(DenyOrigin, before) == 32);
};

/// `struct ww_told_key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct ToldKey {
    pub key: TunnelKey6,
    pub ip_version: u8,
    pub class_id: u8,
    pub outcome: u8,
    pub reserved: [u8; 5],
}

const _: () = {
    assert!(size_of::<ToldKey>() == 56);
    assert!(offset_of!(ToldKey, key) == 0);
    assert!(offset_of!(ToldKey, ip_version) == 48);
    assert!(offset_of!(ToldKey, class_id) == 49);
    assert!(offset_of!(ToldKey, outcome) == 50);
    assert!(offset_of!(ToldKey, reserved) == 51);
};

/// `struct ww_told`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Told {
    pub told_ns: u64,
    pub packets: u64,
}

const _: () = {
    assert!(size_of::<Told>() == 16);
    assert!(offset_of!(Told, told_ns) == 0);
    assert!(offset_of!(Told, packets) == 8);
};

/// `struct ww_ban_kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct BanKind {
    pub there: u8,
    pub length4: u8,
    pub length6: u8,
    pub pair: u8,
}

const _: () = {
    assert!(size_of::<BanKind>() == 4);
    assert!(offset_of!(BanKind, there) == 0);
    assert!(offset_of!(BanKind, length4) == 1);
    assert!(offset_of!(BanKind, length6) == 2);
    assert!(offset_of!(BanKind, pair) == 3);
};

/// `struct ww_ban_key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct BanKey {
    pub source: [u64; 2],
    pub destination: [u64; 2],
    pub length: u8,
    pub ip_version: u8,
    pub pair: u8,
    pub would: u8,
    pub reserved: [u8; 4],
}

const _: () = {
    assert!(size_of::<BanKey>() == 40);
    assert!(offset_of!(BanKey, source) == 0);
    assert!(offset_of!(BanKey, destination) == 16);
    assert!(offset_of!(BanKey, length) == 32);
    assert!(offset_of!(BanKey, ip_version) == 33);
    assert!(offset_of!(BanKey, pair) == 34);
    assert!(offset_of!(BanKey, would) == 35);
    assert!(offset_of!(BanKey, reserved) == 36);
};

/// `struct ww_ban_bucket`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct BanBucket {
    pub tag: [u32; BAN_WAYS],
    pub until_ns: [u64; BAN_WAYS],
    pub key: [BanKey; BAN_WAYS],
    pub reserved: [u64; 6],
}

const _: () = {
    assert!(size_of::<BanBucket>() == 256);
    assert!(offset_of!(BanBucket, tag) == 0);
    assert!(offset_of!(BanBucket, until_ns) == 16);
    assert!(offset_of!(BanBucket, key) == 48);
    assert!(offset_of!(BanBucket, reserved) == 208);
};

/// `struct ww_handshake`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Handshake {
    pub offered: u64,
    pub proven: u64,
}

const _: () = {
    assert!(size_of::<Handshake>() == 16);
    assert!(offset_of!(Handshake, offered) == 0);
    assert!(offset_of!(Handshake, proven) == 8);
};

/// `struct ww_steer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Steer {
    pub kinds: u32,
    pub ifindex: u32,
    pub mark: u32,
    pub priority: u32,
    pub queue: u16,
    pub dscp: u8,
    pub cpus: u8,
    pub socket: u32,
    pub mirror_ifindex: u32,
    pub mirror_every: u32,
    pub mirror_snap: u32,
    pub pool: u16,
    pub address: [u8; 6],
    pub cpu: [u16; MAX_SPREAD],
    pub qfi: u8,
    pub inner_dscp: u8,
    pub reserved: u16,
    pub own4: [u8; 4],
    pub own6: [u8; 16],
    pub broadcast: [[u8; 4]; BROADCASTS],
    pub ban_ms: u32,
    pub ban_kind: u8,
    pub spoofable: u8,
    pub ban_reserved: [u8; 2],
}

const _: () = {
    assert!(size_of::<Steer>() == 140);
    assert!(offset_of!(Steer, kinds) == 0);
    assert!(offset_of!(Steer, ifindex) == 4);
    assert!(offset_of!(Steer, mark) == 8);
    assert!(offset_of!(Steer, priority) == 12);
    assert!(offset_of!(Steer, queue) == 16);
    assert!(offset_of!(Steer, dscp) == 18);
    assert!(offset_of!(Steer, cpus) == 19);
    assert!(offset_of!(Steer, socket) == 20);
    assert!(offset_of!(Steer, mirror_ifindex) == 24);
    assert!(offset_of!(Steer, mirror_every) == 28);
    assert!(offset_of!(Steer, mirror_snap) == 32);
    assert!(offset_of!(Steer, pool) == 36);
    assert!(offset_of!(Steer, address) == 38);
    assert!(offset_of!(Steer, cpu) == 44);
    assert!(offset_of!(Steer, qfi) == 76);
    assert!(offset_of!(Steer, inner_dscp) == 77);
    assert!(offset_of!(Steer, reserved) == 78);
    assert!(offset_of!(Steer, own4) == 80);
    assert!(offset_of!(Steer, own6) == 84);
    assert!(offset_of!(Steer, broadcast) == 100);
    assert!(offset_of!(Steer, ban_ms) == 132);
    assert!(offset_of!(Steer, ban_kind) == 136);
    assert!(offset_of!(Steer, spoofable) == 137);
    assert!(offset_of!(Steer, ban_reserved) == 138);
};

/// `struct ww_wish`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Wish {
    pub magic: u32,
    pub kinds: u32,
    pub mark: u32,
    pub priority: u32,
    pub queue: u32,
    pub mirror_ifindex: u32,
}

const _: () = {
    assert!(size_of::<Wish>() == 24);
    assert!(offset_of!(Wish, magic) == 0);
    assert!(offset_of!(Wish, kinds) == 4);
    assert!(offset_of!(Wish, mark) == 8);
    assert!(offset_of!(Wish, priority) == 12);
    assert!(offset_of!(Wish, queue) == 16);
    assert!(offset_of!(Wish, mirror_ifindex) == 20);
};

/// `struct ww_memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Memory {
    pub backend: u32,
    pub proven: u32,
}

const _: () = {
    assert!(size_of::<Memory>() == 8);
    assert!(offset_of!(Memory, backend) == 0);
    assert!(offset_of!(Memory, proven) == 4);
};

/// `struct ww_station_key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct StationKey {
    pub bridge: u32,
    pub address: [u8; 6],
    pub reserved: u16,
}

const _: () = {
    assert!(size_of::<StationKey>() == 12);
    assert!(offset_of!(StationKey, bridge) == 0);
    assert!(offset_of!(StationKey, address) == 4);
    assert!(offset_of!(StationKey, reserved) == 10);
};

/// `struct ww_station`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Station {
    pub seen_ns: u64,
    pub ifindex: u32,
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<Station>() == 16);
    assert!(offset_of!(Station, seen_ns) == 0);
    assert!(offset_of!(Station, ifindex) == 8);
    assert!(offset_of!(Station, reserved) == 12);
};

/// `struct ww_pool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Pool {
    pub seed: u64,
    pub table: u32,
    pub ifindex: u32,
    pub method: u16,
    pub check: u16,
    pub port: u16,
    pub mac: [u8; 6],
    pub interval_ms: u32,
    pub timeout_ms: u32,
    pub fall: u16,
    pub rise: u16,
    pub reserved: [u8; 8],
    pub name: [u8; POOL_NAME],
    pub path: [u8; CHECK_PATH],
}

const _: () = {
    assert!(size_of::<Pool>() == 144);
    assert!(offset_of!(Pool, seed) == 0);
    assert!(offset_of!(Pool, table) == 8);
    assert!(offset_of!(Pool, ifindex) == 12);
    assert!(offset_of!(Pool, method) == 16);
    assert!(offset_of!(Pool, check) == 18);
    assert!(offset_of!(Pool, port) == 20);
    assert!(offset_of!(Pool, mac) == 22);
    assert!(offset_of!(Pool, interval_ms) == 28);
    assert!(offset_of!(Pool, timeout_ms) == 32);
    assert!(offset_of!(Pool, fall) == 36);
    assert!(offset_of!(Pool, rise) == 38);
    assert!(offset_of!(Pool, reserved) == 40);
    assert!(offset_of!(Pool, name) == 48);
    assert!(offset_of!(Pool, path) == 80);
};

/// `struct ww_table`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Table {
    pub backend: [u16; PLACES],
}

const _: () = {
    assert!(size_of::<Table>() == 131074);
    assert!(offset_of!(Table, backend) == 0);
};

/// `struct ww_backend`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Backend {
    pub address: [u8; 16],
    pub source: [u8; 16],
    pub mac: [u8; 6],
    pub ip_version: u8,
    pub given: u8,
    pub flags: u16,
    pub pool: u16,
    pub weight: u16,
    pub generation: u16,
}

const _: () = {
    assert!(size_of::<Backend>() == 48);
    assert!(offset_of!(Backend, address) == 0);
    assert!(offset_of!(Backend, source) == 16);
    assert!(offset_of!(Backend, mac) == 32);
    assert!(offset_of!(Backend, ip_version) == 38);
    assert!(offset_of!(Backend, given) == 39);
    assert!(offset_of!(Backend, flags) == 40);
    assert!(offset_of!(Backend, pool) == 42);
    assert!(offset_of!(Backend, weight) == 44);
    assert!(offset_of!(Backend, generation) == 46);
};

/// `struct ww_tunnel_end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct TunnelEnd {
    pub address: [u8; 16],
    pub teid: u32,
    pub ip_version: u8,
    pub side: u8,
    pub reserved: u16,
}

const _: () = {
    assert!(size_of::<TunnelEnd>() == 24);
    assert!(offset_of!(TunnelEnd, address) == 0);
    assert!(offset_of!(TunnelEnd, teid) == 16);
    assert!(offset_of!(TunnelEnd, ip_version) == 20);
    assert!(offset_of!(TunnelEnd, side) == 21);
    assert!(offset_of!(TunnelEnd, reserved) == 22);
};

/// `struct ww_tunnel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Tunnel {
    pub local: [u8; 16],
    pub peer: [u8; 16],
    pub ue6: [u8; 8],
    pub ue4: [u8; 4],
    pub teid: u32,
    pub peer_teid: u32,
    pub ip_version: u8,
    pub flags: u8,
    pub qfi: u8,
    pub reserved: u8,
    pub packets: u64,
    pub bytes: u64,
}

const _: () = {
    assert!(size_of::<Tunnel>() == 72);
    assert!(offset_of!(Tunnel, local) == 0);
    assert!(offset_of!(Tunnel, peer) == 16);
    assert!(offset_of!(Tunnel, ue6) == 32);
    assert!(offset_of!(Tunnel, ue4) == 40);
    assert!(offset_of!(Tunnel, teid) == 44);
    assert!(offset_of!(Tunnel, peer_teid) == 48);
    assert!(offset_of!(Tunnel, ip_version) == 52);
    assert!(offset_of!(Tunnel, flags) == 53);
    assert!(offset_of!(Tunnel, qfi) == 54);
    assert!(offset_of!(Tunnel, reserved) == 55);
    assert!(offset_of!(Tunnel, packets) == 56);
    assert!(offset_of!(Tunnel, bytes) == 64);
};

/// `struct ww_act_config`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct ActConfig {
    pub version: u32,
    pub acts: u32,
    pub hook: u32,
    pub trace: u32,
    pub shards: u32,
    pub model: u32,
    pub frags: u32,
    pub clock: u32,
    pub hash_seed: [u64; HASH_SEEDS],
}

const _: () = {
    assert!(size_of::<ActConfig>() == 136);
    assert!(offset_of!(ActConfig, version) == 0);
    assert!(offset_of!(ActConfig, acts) == 4);
    assert!(offset_of!(ActConfig, hook) == 8);
    assert!(offset_of!(ActConfig, trace) == 12);
    assert!(offset_of!(ActConfig, shards) == 16);
    assert!(offset_of!(ActConfig, model) == 20);
    assert!(offset_of!(ActConfig, frags) == 24);
    assert!(offset_of!(ActConfig, clock) == 28);
    assert!(offset_of!(ActConfig, hash_seed) == 32);
};

/// `struct ww_evidence_rule`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct EvidenceRule {
    pub by: u32,
    pub last: u32,
    pub flows: u32,
    pub threshold: u32,
    pub within_ms: u32,
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<EvidenceRule>() == 24);
    assert!(offset_of!(EvidenceRule, by) == 0);
    assert!(offset_of!(EvidenceRule, last) == 4);
    assert!(offset_of!(EvidenceRule, flows) == 8);
    assert!(offset_of!(EvidenceRule, threshold) == 12);
    assert!(offset_of!(EvidenceRule, within_ms) == 16);
    assert!(offset_of!(EvidenceRule, reserved) == 20);
};

/// `struct ww_sender_key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct SenderKey {
    pub client: [u8; 16],
    pub server: [u8; 16],
    pub port: [u8; 2],
    pub protocol: u8,
    pub by_version: u8,
}

const _: () = {
    assert!(size_of::<SenderKey>() == 36);
    assert!(offset_of!(SenderKey, client) == 0);
    assert!(offset_of!(SenderKey, server) == 16);
    assert!(offset_of!(SenderKey, port) == 32);
    assert!(offset_of!(SenderKey, protocol) == 34);
    assert!(offset_of!(SenderKey, by_version) == 35);
};

/// `struct ww_sender`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Sender {
    pub evidence: u64,
}

const _: () = {
    assert!(size_of::<Sender>() == 8);
    assert!(offset_of!(Sender, evidence) == 0);
};

/// `struct ww_act_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct ActPolicy {
    pub metadata: u32,
    pub verdicts: u32,
    pub steer: [Steer; MAX_CLASSES],
    pub tell_every_ns: u64,
    pub each: u16,
    pub inputs: u16,
    pub ban: [BanKind; BAN_KINDS],
    pub proofs: u8,
    pub wide_bans: u8,
    pub reserved: [u8; 2],
    pub evidence: EvidenceRule,
}

const _: () = {
    assert!(size_of::<ActPolicy>() == 9024);
    assert!(offset_of!(ActPolicy, metadata) == 0);
    assert!(offset_of!(ActPolicy, verdicts) == 4);
    assert!(offset_of!(ActPolicy, steer) == 8);
    assert!(offset_of!(ActPolicy, tell_every_ns) == 8968);
    assert!(offset_of!(ActPolicy, each) == 8976);
    assert!(offset_of!(ActPolicy, inputs) == 8978);
    assert!(offset_of!(ActPolicy, ban) == 8980);
    assert!(offset_of!(ActPolicy, proofs) == 8996);
    assert!(offset_of!(ActPolicy, wide_bans) == 8997);
    assert!(offset_of!(ActPolicy, reserved) == 8998);
    assert!(offset_of!(ActPolicy, evidence) == 9000);
};

/// `struct ww_asked`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct Asked {
    pub ends: Ends6,
    pub ip_version: u32,
    pub proven: u32,
    pub ban: BanKey,
    pub connection: Ends6,
    pub ports: [[u8; 2]; 2],
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<Asked>() == 120);
    assert!(offset_of!(Asked, ends) == 0);
    assert!(offset_of!(Asked, ip_version) == 32);
    assert!(offset_of!(Asked, proven) == 36);
    assert!(offset_of!(Asked, ban) == 40);
    assert!(offset_of!(Asked, connection) == 80);
    assert!(offset_of!(Asked, ports) == 112);
    assert!(offset_of!(Asked, reserved) == 116);
};

/// `struct ww_act_cpu`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct ActCpu {
    pub answer_tat_ns: u64,
    pub bounce_tat_ns: u64,
    pub described: u64,
    pub undescribed: u64,
    pub room: [u64; ROOM],
    pub asked: Asked,
    pub list_tick: u64,
    pub list_boot_s: u64,
    pub denied: [u64; DENY_ORIGINS],
}

const _: () = {
    assert!(size_of::<ActCpu>() == 2264);
    assert!(offset_of!(ActCpu, answer_tat_ns) == 0);
    assert!(offset_of!(ActCpu, bounce_tat_ns) == 8);
    assert!(offset_of!(ActCpu, described) == 16);
    assert!(offset_of!(ActCpu, undescribed) == 24);
    assert!(offset_of!(ActCpu, room) == 32);
    assert!(offset_of!(ActCpu, asked) == 2080);
    assert!(offset_of!(ActCpu, list_tick) == 2200);
    assert!(offset_of!(ActCpu, list_boot_s) == 2208);
    assert!(offset_of!(ActCpu, denied) == 2216);
};
