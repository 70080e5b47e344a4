// SPDX-License-Identifier: Apache-2.0
//! What the data path and user space share: the mirror of `bpf/wirewise/abi.h`, where the meaning of each field
//! stands. `tests/abi.rs` compares every type here with the BTF of a compiled object.
//!
//! Integers are in host byte order; addresses and ports are as in the packet (network byte order).

use bytemuck::{Pod, Zeroable};
use serde::Serialize;

pub const ABI_VERSION: u32 = 11;
pub const MAX_FEATURES: usize = 128;
pub const MAX_CLASSES: usize = 64;
pub const MAX_WIDTH: usize = 128;
pub const WAYS: u32 = 4;
pub const MAX_SAMPLES: usize = 64;
pub const HASH_WORDS: usize = 12;
pub const HASH_SEEDS: usize = HASH_WORDS + 1;
pub const TRIGGER_WORDS: usize = 16;
/// Trigger `packets` can name packets 1 to this of a flow.
pub const MAX_TRIGGER_PACKET: u32 = TRIGGER_WORDS as u32 * 64 - 1;
/// Verdicts in a row that a policy may ask for.
pub const MAX_AFTER: u32 = 15;
pub const ALLOW_PORT_WORDS: u32 = 1024;
/// Interfaces that packets may leave by at XDP: of maps.h.
pub const INTERFACES: u32 = 1024;

pub const SLOT_SWAPPED: u8 = 1;
pub const SLOT_VERDICT: u8 = 2;
pub const SLOT_VERDICT_2: u8 = 4;
pub const SLOT_VERDICT_PAST: u8 = 8;

pub const ALLOW_IPV4: u32 = 1;
pub const ALLOW_IPV6: u32 = 2;
pub const ALLOW_PORTS: u32 = 4;
pub const ALLOW_SOURCE_PORTS: u32 = 16;
pub const ALLOW_ESSENTIAL: u32 = 32;
pub const ALLOW_ESTABLISHED: u32 = 64;

/// What a class may ask for beside passing and dropping: `enum ww_steer_kind`.
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
/// With `STEER_FORWARD`: between ports.
pub const STEER_BRIDGE: u32 = 4096;
/// Those by which a packet does not come to its receiver.
pub const STEER_ELSEWHERE: u32 = STEER_REDIRECT
    | STEER_BOUNCE
    | STEER_SOCKET
    | STEER_FORWARD
    | STEER_CHALLENGE
    | STEER_BACKEND
    | STEER_DECAPSULATE;
/// What only a socket buffer has: XDP hands it over to a program at TC.
pub const STEER_BY_COMPANION: u32 = STEER_MARK | STEER_PRIORITY | STEER_QUEUE | STEER_MIRROR;
/// `WW_COPY` and `WW_COPIES`: the tc_index of a copy.
pub const COPY: i32 = 0x7e50;
pub const COPIES: i32 = 4;
/// Begins a `Wish`.
pub const WISH: u32 = 0x3157_ecab;
/// Of constants only: a plane in user space sends what goes elsewhere.
pub const STEER_CARRIED: u32 = 16384;
/// Of constants only: packets are captured ones, which are changed but go nowhere.
pub const STEER_TOLD: u32 = 32768;
pub const STEER_DECAPSULATE: u32 = 1 << 16;
/// With `STEER_FORWARD`.
pub const STEER_ENCAPSULATE: u32 = 1 << 17;
pub const STEER_QFI: u32 = 1 << 18;
pub const STEER_INNER_DSCP: u32 = 1 << 19;
/// Those by which a packet grows or shrinks at its front.
pub const STEER_THROUGH_TUNNELS: u32 = STEER_DECAPSULATE | STEER_ENCAPSULATE;
/// Each kind with the key of a policy file.
pub const STEERING: [(u32, &str); 16] = [
    (STEER_REDIRECT, "redirect"),
    (STEER_BOUNCE, "bounce"),
    (STEER_DSCP, "dscp"),
    (STEER_MARK, "mark"),
    (STEER_PRIORITY, "priority"),
    (STEER_QUEUE, "queue"),
    (STEER_CPU, "cpu"),
    (STEER_SOCKET, "socket"),
    (STEER_MIRROR, "mirror"),
    (STEER_FORWARD, "forward"),
    (STEER_BACKEND, "backend"),
    (STEER_CHALLENGE, "challenge"),
    (STEER_DECAPSULATE, "decapsulate"),
    (STEER_ENCAPSULATE, "encapsulate"),
    (STEER_QFI, "qfi"),
    (STEER_INNER_DSCP, "inner-dscp"),
];

/// Of GTP-U, in one table; each has up to three ends.
pub const TUNNELS: usize = 65_536;
pub const ENDS_OF_A_TUNNEL: usize = 3;
/// What is so of a tunnel: `enum ww_tunnel_flag`.
pub const TUNNEL_HAS_IN: u8 = 1;
pub const TUNNEL_HAS_OUT: u8 = 2;
pub const TUNNEL_HAS_UE4: u8 = 4;
pub const TUNNEL_HAS_UE6: u8 = 8;
pub const TUNNEL_HAS_QFI: u8 = 16;
/// Of a host's IPv4 networks, that a challenge knows of.
pub const BROADCASTS: usize = 8;
/// `enum ww_tunnel_side`.
pub const TUNNEL_IN: u8 = 0;
pub const TUNNEL_OUT: u8 = 1;
/// `enum ww_tunnel_count`, in words: what was done first, then why packets passed.
pub const TUNNEL_COUNTS: [&str; 14] = [
    "taken-out",
    "put-in",
    "written",
    "answered",
    "other",
    "unknown",
    "malformed",
    "fragmented",
    "extended",
    "nested",
    "foreign",
    "too-long",
    "no-way",
    "unanswered",
];

/// Pools of the old and of the new policy together, and backends of all of them.
pub const POOLS: usize = 16;
pub const BACKENDS: usize = 2048;
/// Of a pool's table.
pub const PLACES: usize = 65_537;
pub const POOL_NAME: usize = 32;
pub const CHECK_PATH: usize = 64;
/// What is so of a backend: `enum ww_backend_flag`.
pub const BACKEND_THERE: u16 = 1;
pub const BACKEND_DRAINS: u16 = 2;
pub const BACKEND_DOWN: u16 = 4;

/// What becomes of a packet, by the code that its program returns to the hook (XDP).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Dropped = 1,
    Passed = 2,
    /// Back to who sent it.
    Bounced = 3,
    /// To another interface.
    Redirected = 4,
}

impl Fate {
    /// Any other code is no verdict: XDP_ABORTED, and what the data path has no use for.
    pub fn from_code(code: u32) -> Result<Self, String> {
        let all = [Self::Dropped, Self::Passed, Self::Bounced, Self::Redirected];
        all.into_iter().find(|fate| *fate as u32 == code).ok_or_else(|| {
            format!("the program returned {code}, which is no verdict: 1 drops a packet, 2 passes it, 3 and 4 send it elsewhere")
        })
    }

    /// The same, of a program of TC: TC_ACT_UNSPEC, which goes on to the next program, TC_ACT_SHOT and TC_ACT_REDIRECT, which is also
    /// of packets that bounce.
    pub fn from_tc(code: u32) -> Result<Self, String> {
        match code.cast_signed() {
            -1 => Ok(Self::Passed),
            2 => Ok(Self::Dropped),
            7 => Ok(Self::Redirected),
            code => Err(format!(
                "the program returned {code}, which is no verdict: -1 passes a packet, 2 drops it, 7 sends it elsewhere"
            )),
        }
    }

    pub fn passed(self) -> bool {
        self == Self::Passed
    }
}

/// An enum of `abi.h`: codes from 0 on, each with the name that options, JSON and tables use.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
        #[repr(u32)]
        pub enum $name {
            $(#[serde(rename = $text)] $variant),+
        }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            pub const COUNT: usize = Self::ALL.len();

            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text),+
                }
            }

            /// The value of a code the kernel wrote; `None` if it is none of ours.
            pub fn from_code(code: u32) -> Option<$name> {
                Self::ALL.get(code as usize).copied()
            }

            pub fn code(self) -> u32 {
                self as u32
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

codes! {
    /// Why a packet was or was not classified.
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
    }
}

codes! {
    /// What the policy asks for a class.
    Action {
        Pass = "pass",
        Drop = "drop",
        Count = "count",
        RateLimit = "rate-limit",
        Steer = "steer",
    }
}

impl Action {
    /// Whether a packet of the class may be dropped.
    pub fn may_drop(self) -> bool {
        match self {
            Self::Drop | Self::RateLimit => true,
            Self::Pass | Self::Count | Self::Steer => false,
        }
    }
}

codes! {
    /// What became of a classified packet; `would-...`: it passed because the mode is observe; `established`: in either, as part of a
    /// connection of the host; `unsteered`: it passed because what the policy asks for could not be done.
    Outcome {
        Pass = "pass",
        Drop = "drop",
        Limited = "limited",
        WouldDrop = "would-drop",
        WouldLimit = "would-limit",
        Established = "established",
        Steered = "steered",
        WouldSteer = "would-steer",
        Unsteered = "unsteered",
    }
}

impl Outcome {
    /// Above a column of packets.
    pub fn title(self) -> String {
        self.name().replace('-', " ")
    }
}

codes! {
    /// Whether the policy's actions are taken, or only counted.
    Mode {
        Observe = "observe",
        Enforce = "enforce",
    }
}

codes! {
    /// Two models on the same packets.
    Shadow {
        None = "none",
        First = "first",
        Second = "second",
    }
}

codes! {
    /// When a flow's packet is inferred.
    Trigger {
        Every = "every",
        Packets = "packets",
        Interval = "interval",
        FirstN = "first-n",
    }
}

codes! {
    /// What the program is attached to.
    Hook {
        Xdp = "xdp",
        TcIngress = "tc-ingress",
        TcEgress = "tc-egress",
    }
}

codes! {
    /// How a packet gets to a backend.
    Method {
        Dsr = "dsr",
        IpInIp = "ip-in-ip",
        Gue = "gue",
    }
}

codes! {
    /// How a backend is asked whether it lives.
    Check {
        None = "none",
        Tcp = "tcp",
        Http = "http",
    }
}

codes! {
    /// Where the data path reads the time.
    Clock {
        Coarse = "coarse",
        Fine = "fine",
        Metadata = "metadata",
    }
}

/// `struct ww_config`, the map `.rodata.ww_config`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
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
    pub steer: u32,
    /// 1: the flow key has the tunnel, as in `TunnelKey4`.
    pub key_teid: u32,
    /// Rows of a CPU in `ww_records`, a power of two; 0: nothing is recorded.
    pub record: u32,
}

impl Config {
    /// Where the data path reads the time, in words.
    pub fn describe_clock(&self) -> &'static str {
        match Clock::from_code(self.clock) {
            Some(Clock::Coarse) if self.jiffy_ns != 0 => "coarse (jiffies)",
            Some(Clock::Coarse) => "coarse (helper)",
            Some(clock) => clock.name(),
            None => "unknown",
        }
    }
}

/// `struct ww_key4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Key4 {
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub source_port: [u8; 2],
    pub destination_port: [u8; 2],
    pub protocol: u8,
    pub reserved: [u8; 3],
}

/// `struct ww_key6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Key6 {
    pub source: [u8; 16],
    pub destination: [u8; 16],
    pub source_port: [u8; 2],
    pub destination_port: [u8; 2],
    pub protocol: u8,
    pub reserved: [u8; 3],
}

/// `struct ww_tunnel_key4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct TunnelKey4 {
    pub key: Key4,
    pub teid: u64,
}

/// `struct ww_tunnel_key6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct TunnelKey6 {
    pub key: Key6,
    pub teid: u64,
}

impl From<Key4> for Key6 {
    /// The form of events and traces: an IPv4 address lies in the first four bytes.
    fn from(key: Key4) -> Self {
        let mut long = Self { source_port: key.source_port, protocol: key.protocol, ..Self::zeroed() };
        long.destination_port = key.destination_port;
        long.source[..4].copy_from_slice(&key.source);
        long.destination[..4].copy_from_slice(&key.destination);
        long
    }
}

/// `struct ww_slot`, the head of a flow-table entry.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Slot {
    pub last_seen_ns: u64,
    pub packets: u32,
    pub class_id: u8,
    pub flags: u8,
    pub generation: u16,
}

/// `struct ww_class_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ClassPolicy {
    pub action: u32,
    pub after: u32,
    pub interval_ns: u64,
    pub burst_ns: u64,
}

/// `struct ww_steer`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
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
}

/// `struct ww_tunnel_end`, key of the map `ww_tunnels`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Pod, Zeroable)]
#[repr(C)]
pub struct TunnelEnd {
    pub address: [u8; 16],
    pub teid: u32,
    pub ip_version: u8,
    pub side: u8,
    pub reserved: u16,
}

/// `struct ww_tunnel`, its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
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

/// `struct ww_wish`, in front of a packet on its way from XDP to the companion at TC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Wish {
    pub magic: u32,
    pub kinds: u32,
    pub mark: u32,
    pub priority: u32,
    pub queue: u32,
    pub mirror_ifindex: u32,
}

/// CPUs that a class's packets go to at most.
pub const MAX_SPREAD: usize = 16;
/// Elements of `ww_sockets`, one a receive queue.
pub const SOCKETS: u32 = 256;

/// `struct ww_memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Memory {
    pub backend: u32,
    pub proven: u32,
}

/// `struct ww_station_key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct StationKey {
    pub bridge: u32,
    pub address: [u8; 6],
    pub reserved: u16,
}

/// `struct ww_station`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Station {
    pub seen_ns: u64,
    pub ifindex: u32,
    pub reserved: u32,
}

/// `struct ww_pool`, an element of the map `ww_pools`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
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

/// `struct ww_table`, an element of the map `ww_tables`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Table {
    pub backend: [u16; PLACES],
}

/// `struct ww_backend`, an element of the map `ww_backends`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
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

/// `struct ww_policy`, the one element of the map `ww_policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Policy {
    pub allow: u32,
    pub mode: u32,
    pub enforce_until_ns: u64,
    pub drop_malformed: u32,
    pub trigger: u32,
    pub trigger_first_n: u32,
    pub streaks: u32,
    pub trigger_interval_ns: u64,
    pub trigger_packets: [u64; TRIGGER_WORDS],
    pub event_interval_ns: u64,
    pub event_burst_ns: u64,
    pub class_policy: [ClassPolicy; MAX_CLASSES],
    pub steer: [Steer; MAX_CLASSES],
}

impl Policy {
    /// What the policy asks of a program beside passing and dropping: `STEER_*` bits.
    pub fn steering(&self) -> u32 {
        self.steered().fold(0, |kinds, (_, steer)| kinds | steer.kinds)
    }

    /// The classes that are steered, each with its number.
    pub fn steered(&self) -> impl Iterator<Item = (usize, &Steer)> {
        let rules = self.class_policy.iter().zip(&self.steer).enumerate();
        rules
            .filter(|(_, (rule, _))| rule.action == Action::Steer.code())
            .map(|(class, (_, steer))| (class, steer))
    }

    /// Whether packets of a class may be kept from their receiver: dropped, or sent elsewhere.
    pub fn takes_away(&self, class: usize) -> bool {
        let action = Action::from_code(self.class_policy[class].action);
        let elsewhere = self.steer[class].kinds & STEER_ELSEWHERE != 0;
        action.is_some_and(|action| action.may_drop() || action == Action::Steer && elsewhere)
    }
}

/// `struct ww_prefix4`, key of `ww_allow4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Prefix4 {
    pub length: u32,
    pub address: [u8; 4],
}

/// `struct ww_prefix6`, key of `ww_allow6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Prefix6 {
    pub length: u32,
    pub address: [u8; 16],
}

/// `struct ww_counter`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Counter {
    pub packets: u64,
    pub bytes: u64,
}

/// `struct ww_stats`: what one CPU counts.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
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
    /// Of a bank: packets to which each network said yes.
    pub said_yes: [u64; MAX_CLASSES],
    pub answer_tat_ns: u64,
    pub bounce_tat_ns: u64,
}

/// Events of a CPU in `ww_events`.
pub const EVENTS: u32 = 2048;

/// `struct ww_event`, an element of the map `ww_events`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
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
    /// Number of the event on its CPU, from 1 on, modulo 2^32; 0 while it is being written.
    pub sequence: u32,
    /// Of a bank: a bit for each network, 1: yes.
    pub answers: u64,
    /// And for each whose answer was another before.
    pub changed: u64,
}

pub const RECORD_HEADERS: usize = 192;
pub const RECORD_ROOM: usize = 256;

/// `struct ww_record`: of a packet, in the map `ww_records`; its features follow.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
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

/// `struct ww_record_ring`, an element of the map `ww_record_rings`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct RecordRing {
    pub packets: u64,
    pub written: u64,
    pub lost: u64,
    pub reserved: [u64; 5],
    pub read: u64,
    pub rest: [u64; 7],
}

/// `struct ww_scratch`: features and, if the program traces, what happened to the last packet of one CPU.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
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
    pub activation: [[u64; MAX_WIDTH]; 2],
}

/// Rows and columns of agreement: each class, and none.
pub const AGREEMENT_ROWS: usize = MAX_CLASSES + 1;

/// `struct ww_agreement`, an element of the map `ww_agreement`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Agreement {
    pub packets: [u64; AGREEMENT_ROWS],
    pub now_ns: u64,
    pub class_id: u32,
    pub reserved: u32,
}

/// `struct ww_cpu`, an element of the map `ww_cpu`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Cpu {
    pub stats: Stats,
    pub scratch: Scratch,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// The offsets as `abi.h` implies them, for machines without clang, where tests/abi.rs cannot run.
    #[test]
    fn sizes_and_offsets_are_those_of_abi_h() {
        assert_eq!(size_of::<Config>(), 208);
        assert_eq!(offset_of!(Config, hash_seed), 48);
        assert_eq!((size_of::<Key4>(), size_of::<Key6>(), size_of::<Slot>()), (16, 40, 16));
        assert_eq!((size_of::<TunnelKey4>(), size_of::<TunnelKey6>()), (24, 48));
        assert_eq!(offset_of!(Policy, trigger_packets), 40);
        assert_eq!(offset_of!(Policy, class_policy), 184);
        assert_eq!(size_of::<Policy>(), 184 + 64 * (24 + size_of::<Steer>()));
        assert_eq!((size_of::<Steer>(), offset_of!(Steer, address)), (132, 38));
        assert_eq!((size_of::<StationKey>(), size_of::<Station>()), (12, 16));
        assert_eq!((size_of::<Prefix4>(), size_of::<Prefix6>()), (8, 20));
        assert_eq!(offset_of!(Stats, class_outcome), 12 * 16);
        assert_eq!(size_of::<Stats>(), 12 * 16 + 64 * 9 * 16 + 14 * 8 + 64 * 8);
        assert_eq!((size_of::<Event>(), offset_of!(Event, packets)), (88, 60));
        assert_eq!(offset_of!(Scratch, status), (128 + 64) * 8);
        assert_eq!(offset_of!(Scratch, now_ns), 192 * 8 + 8 * 4 + 48 + 4 * 4 + 16 + 48 + 40 + 64 * 4);
        assert_eq!(size_of::<Scratch>(), offset_of!(Scratch, now_ns) + 4 * 8 + 2 * 128 * 8);
    }

    #[test]
    fn codes_and_names_go_both_ways() {
        assert_eq!(Status::from_code(9), Some(Status::NoPolicy));
        assert_eq!(Status::from_code(11), Some(Status::AllowedEssential));
        assert_eq!(Status::from_code(12), None);
        assert_eq!(Outcome::WouldLimit.code(), 4);
        assert_eq!(Action::RateLimit.to_string(), "rate-limit");
        assert_eq!(serde_json::to_string(&Mode::Enforce).unwrap(), "\"enforce\"");
    }

    #[test]
    fn a_code_that_is_no_verdict_is_no_fate() {
        assert_eq!((Fate::from_code(1), Fate::from_code(2)), (Ok(Fate::Dropped), Ok(Fate::Passed)));
        assert_eq!((Fate::from_code(3), Fate::from_code(4)), (Ok(Fate::Bounced), Ok(Fate::Redirected)));
        for code in [0, 5, u32::MAX] {
            assert!(Fate::from_code(code).unwrap_err().contains(&format!("returned {code},")));
        }
    }
}
