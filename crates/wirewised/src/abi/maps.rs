// SPDX-License-Identifier: Apache-2.0
//! The table of maps, which is the only list of them: inspection, creation, sharing between programs and the docs read it. An object with a
//! map that has no row here is refused.

use std::mem::size_of;
use std::ops::RangeInclusive;

use crate::abi;

/// What the data path declares as a map, or as a variable in a section of its own, which libbpf makes an array of one element of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    /// A variable's section without its prefix.
    pub name: &'static str,
    pub about: &'static str,
    pub scope: Scope,
    pub kind: Kind,
    /// Bytes.
    pub key: usize,
    pub value: Value,
    /// Elements that an object may declare.
    pub entries: usize,
    pub room: Room,
    pub need: Need,
    /// A new policy changes what the map holds, so that is copied first; the other maps of a policy are written as a whole.
    pub is_changed: bool,
}

/// Which programs have a map in common.
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
    /// Programs under the same policy, and a shadow of one of them.
    AllowList,
    /// Programs under the same policy.
    Policy,
    /// All programs on an interface, one after the other: what others put there, what flows were given, and counters that
    /// mean the same in each.
    Host,
}

/// `enum bpf_map_type`, with the flags that the data path gives maps of the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Hash,
    Array,
    Programs,
    PerfEvents,
    PerCpu,
    LruHash,
    Trie,
    Cpus,
    Sockets,
    Interfaces,
    /// A variable that the program only reads.
    Constants,
    /// One that it writes too.
    Variable,
}

/// Bytes of a value, as an object declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    Exactly(usize),
    /// As much as the model needs.
    UpTo(usize),
    /// A bucket of a table for this version of IP, by the layout in the manifest.
    Bucket(Counted, u8),
    /// An entry for packets whose flow got none.
    Blank,
    /// A row of features. No bundle has such a map.
    Row,
    /// The features of an event.
    Inputs,
}

/// What the entries of a table count by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Flow,
    Source,
    Destination,
    Service,
    Pair,
    ClientPort,
    Hosts,
}

/// How many elements the loader makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Declared,
    /// So many for each CPU.
    PerCpu(usize),
    /// `ww_config.record` for each CPU.
    Records,
    /// The buckets of a flow table, for each CPU unless all share it.
    Buckets,
    /// Those of a table beside the flow table, which all CPUs share.
    Aggregates,
}

/// Which programs have a map; for others it is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Always,
    /// One with a shadow, and the shadow.
    Shadow,
    /// One whose policy has what passes go on.
    Next,
    Record,
    /// One whose policy has a deny list.
    Denies,
    /// One whose events have the features of their packet.
    Inputs,
    /// One whose policy asks for one of these `STEER_*`.
    Steering(u32, Of),
}

/// Which packets need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Captured ones too.
    All,
    /// Captured packets go nowhere.
    Live,
    /// Elsewhere, an interface's index is enough.
    Xdp,
    UserSpace,
}

impl Kind {
    /// The code, and the flags.
    pub fn codes(self) -> (u64, u64) {
        const NO_PREALLOC: u64 = 1;
        const MMAPABLE: u64 = 1 << 10;
        match self {
            Self::Hash => (1, NO_PREALLOC),
            Self::Array | Self::Constants | Self::Variable => (2, MMAPABLE),
            Self::Programs => (3, 0),
            Self::PerfEvents => (4, 0),
            Self::PerCpu => (6, 0),
            Self::LruHash => (9, 0),
            Self::Trie => (11, NO_PREALLOC),
            Self::Cpus => (16, 0),
            Self::Sockets => (17, 0),
            Self::Interfaces => (25, 0),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::Array => "array",
            Self::Programs => "prog_array",
            Self::PerfEvents => "perf_event_array",
            Self::PerCpu => "percpu_array",
            Self::LruHash => "lru_hash",
            Self::Trie => "lpm_trie",
            Self::Cpus => "cpumap",
            Self::Sockets => "xskmap",
            Self::Interfaces => "devmap_hash",
            Self::Constants => "variable, frozen",
            Self::Variable => "variable",
        }
    }
}

impl Need {
    pub fn is_met(self, config: &abi::Config) -> bool {
        match self {
            Self::Always => true,
            Self::Shadow => config.shadow != 0,
            Self::Next => config.next != 0,
            Self::Record => config.record != 0,
            Self::Denies => config.denies != 0,
            Self::Inputs => config.inputs != 0,
            Self::Steering(kinds, of) => {
                let carried = config.acts & abi::STEER_CARRIED != 0;
                let captured = config.acts & abi::STEER_TOLD != 0;
                let there = match of {
                    Of::All => true,
                    Of::Live => !captured,
                    Of::Xdp => !captured && !carried && config.hook == abi::Hook::Xdp.code(),
                    Of::UserSpace => !captured && carried,
                };
                there && config.acts & kinds != 0
            }
        }
    }
}

impl Map {
    const fn new(kind: Kind, key: usize, value: Value, entries: usize) -> Self {
        Self {
            name: "",
            about: "",
            scope: Scope::Load,
            kind,
            key,
            value,
            entries,
            room: Room::Declared,
            need: Need::Always,
            is_changed: false,
        }
    }

    const fn array(size: usize, entries: usize) -> Self {
        Self::indexed(Kind::Array, size, entries)
    }

    const fn indexed(kind: Kind, size: usize, entries: usize) -> Self {
        Self::new(kind, 4, Value::Exactly(size), entries)
    }

    const fn table(by: Counted, ip_version: u8) -> Self {
        let room = if matches!(by, Counted::Flow) { Room::Buckets } else { Room::Aggregates };
        Self::new(Kind::Array, 4, Value::Bucket(by, ip_version), 1).room(room)
    }

    const fn variable(kind: Kind, value: Value) -> Self {
        Self::new(kind, 4, value, 1)
    }

    const fn room(self, room: Room) -> Self {
        Self { room, ..self }
    }

    const fn when(self, need: Need) -> Self {
        Self { need, ..self }
    }

    const fn steering(self, kinds: u32, of: Of) -> Self {
        self.when(Need::Steering(kinds, of))
    }

    const fn changed(self) -> Self {
        Self { is_changed: true, ..self }
    }

    /// Whether the actor declares it, which the agent links to a bundle's program; else the bundle does.
    pub fn is_of_actor(&self) -> bool {
        matches!(self.need, Need::Steering(..))
    }

    /// As the object calls it: a variable by its section.
    pub fn in_object(&self) -> String {
        let section = match self.kind {
            Kind::Constants => ".rodata.",
            Kind::Variable => ".data.",
            _ => "",
        };
        format!("{section}{}", self.name)
    }

    pub fn is_variable(&self) -> bool {
        matches!(self.kind, Kind::Constants | Kind::Variable)
    }

    /// Bytes that a section may have which becomes this map.
    pub fn section_bytes(&self) -> RangeInclusive<u64> {
        match self.value {
            Value::UpTo(most) => 0..=most as u64,
            Value::Exactly(size) => size as u64..=size as u64,
            Value::Bucket(..) | Value::Blank | Value::Row | Value::Inputs => {
                unreachable!("{} is not a variable", self.name)
            }
        }
    }
}

/// A constant with the name of each map, and a row.
macro_rules! maps {
    ($($(#[doc = $about:literal])+ $constant:ident = $name:literal, $scope:ident: $map:expr;)*) => {
        $($(#[doc = $about])+ pub const $constant: &str = $name;)*

        /// Every map. Those of a policy are in the order in which another policy is written: what others lead to comes first.
        pub const MAPS: &[Map] = &[$(
            Map { name: $name, about: concat!($($about),+), scope: Scope::$scope, ..$map }
        ),*];
    };
}

/// All actions.
const ANY: u32 = u32::MAX;
const MEBIBYTE: usize = 1 << 20;

maps! {
    /// constants of this load, which the loader writes
    CONFIG = "ww_config", Load: Map::variable(Kind::Constants, Value::Exactly(size_of::<abi::Config>()));
    /// the same for the actor
    ACT_CONFIG = "ww_act_config", Load: Map::variable(Kind::Constants, Value::Exactly(size_of::<abi::ActConfig>()))
        .steering(ANY, Of::All);
    /// tables of the model
    MODEL_ROWS = "ww_rows", Load: Map::variable(Kind::Constants, Value::UpTo(4 * MEBIBYTE));
    /// weights of the model
    MODEL_WEIGHTS = "ww_weights", Load: Map::variable(Kind::Constants, Value::UpTo(4 * MEBIBYTE));
    /// programs of a model that is split over tail calls
    TAIL_CALLS = "ww_progs", Load: Map::indexed(Kind::Programs, 4, abi::MAX_TAIL_CALLS as usize + 1);
    /// the program to which a shadow hands its packets over
    FIRST = "ww_first", Load: Map::indexed(Kind::Programs, 4, 1).when(Need::Shadow);
    /// the program of somebody else's that packets which pass go on to
    NEXT = "ww_next", Load: Map::indexed(Kind::Programs, 4, 1).when(Need::Next);
    /// an entry for packets whose flow got none
    BLANK = "ww_blank", Bundle: Map::new(Kind::PerCpu, 4, Value::Blank, 1);
    /// answers last reported for a flow, by models that report changes
    ANSWERS = "ww_answers", Bundle: Map::new(Kind::LruHash, size_of::<abi::TunnelKey6>(), Value::Exactly(8), 1 << 12);
    /// packets by the classes that two models gave them
    AGREEMENT = "ww_agreement", Bundle: Map::array(size_of::<abi::Agreement>(), abi::AGREEMENT_ROWS)
        .room(Room::PerCpu(abi::AGREEMENT_ROWS)).when(Need::Shadow);
    /// the class of each flow, for programs of others
    VERDICTS = "ww_verdicts", Classes: Map::new(
        Kind::LruHash,
        size_of::<abi::FiveTuple>(),
        Value::Exactly(size_of::<abi::FlowVerdict>()),
        abi::VERDICTS as usize,
    ).steering(abi::STEER_VERDICTS, Of::Live);
    /// copies on their way to the plane in user space that sends them
    COPIES = "ww_copies", Bundle: Map::indexed(Kind::PerfEvents, 4, 1)
        .steering(abi::STEER_MIRROR, Of::UserSpace);
    /// what the model computed the class of each event from
    EVENT_INPUTS = "ww_event_inputs", Bundle: Map::new(Kind::Array, 4, Value::Inputs, abi::EVENTS as usize)
        .room(Room::PerCpu(abi::EVENTS as usize)).when(Need::Inputs);
    /// rows to train on
    RECORDS = "ww_records", Bundle: Map::new(Kind::Array, 4, Value::Row, 1)
        .room(Room::Records).when(Need::Record);
    /// how far each CPU's ring of rows is written and read
    RECORD_RINGS = "ww_record_rings", Bundle: Map::new(Kind::Array, 4, Value::Row, 1)
        .room(Room::PerCpu(1)).when(Need::Record);
    /// flows over IPv4
    FLOWS4 = "ww_flows4", Table: Map::table(Counted::Flow, 4);
    /// flows over IPv6
    FLOWS6 = "ww_flows6", Table: Map::table(Counted::Flow, 6);
    /// state by source
    SOURCE4 = "ww_source4", Table: Map::table(Counted::Source, 4);
    /// the same for IPv6
    SOURCE6 = "ww_source6", Table: Map::table(Counted::Source, 6);
    /// state by destination
    DESTINATION4 = "ww_destination4", Table: Map::table(Counted::Destination, 4);
    /// the same for IPv6
    DESTINATION6 = "ww_destination6", Table: Map::table(Counted::Destination, 6);
    /// state by service
    SERVICE4 = "ww_service4", Table: Map::table(Counted::Service, 4);
    /// the same for IPv6
    SERVICE6 = "ww_service6", Table: Map::table(Counted::Service, 6);
    /// state by pair of client and service
    PAIR4 = "ww_pair4", Table: Map::table(Counted::Pair, 4);
    /// the same for IPv6
    PAIR6 = "ww_pair6", Table: Map::table(Counted::Pair, 6);
    /// state by client and server's port
    CLIENT_PORT4 = "ww_client_port4", Table: Map::table(Counted::ClientPort, 4);
    /// the same for IPv6
    CLIENT_PORT6 = "ww_client_port6", Table: Map::table(Counted::ClientPort, 6);
    /// state by client and server
    HOSTS4 = "ww_hosts4", Table: Map::table(Counted::Hosts, 4);
    /// the same for IPv6
    HOSTS6 = "ww_hosts6", Table: Map::table(Counted::Hosts, 6);
    /// counters and scratch space, an element for each CPU
    PER_CPU = "ww_cpu", Classes: Map::variable(Kind::Variable, Value::Exactly(size_of::<abi::Cpu>()))
        .room(Room::PerCpu(1));
    /// what happened to packets that do not simply pass
    EVENTS = "ww_events", Classes: Map::array(size_of::<abi::Event>(), abi::EVENTS as usize)
        .room(Room::PerCpu(abi::EVENTS as usize));
    /// the policy's mode, trigger, and what it does with each class
    POLICY = "ww_policy", Policy: Map::variable(Kind::Variable, Value::Exactly(size_of::<abi::Policy>()));
    /// what the actor does with each class
    ACT_POLICY = "ww_act_policy", Policy: Map::variable(Kind::Variable, Value::Exactly(size_of::<abi::ActPolicy>()))
        .steering(ANY, Of::All);
    /// when the rate limit of each class has room again
    LIMIT = "ww_limit", Policy: Map::array(8, abi::MAX_CLASSES);
    /// the allow list's prefixes of IPv4
    ALLOW4 = "ww_allow4", AllowList: Map::new(
        Kind::Trie,
        size_of::<abi::Prefix4>(),
        Value::Exactly(size_of::<abi::Allowed>()),
        abi::ALLOW_PREFIXES as usize,
    ).changed();
    /// those of IPv6
    ALLOW6 = "ww_allow6", AllowList: Map::new(
        Kind::Trie,
        size_of::<abi::Prefix6>(),
        Value::Exactly(size_of::<abi::Allowed>()),
        abi::ALLOW_PREFIXES as usize,
    ).changed();
    /// the allow list's ports, as bits: TCP's, then UDP's, then the same of source ports
    ALLOW_PORTS = "ww_allow_ports", AllowList: Map::array(8, 4 * abi::ALLOW_PORT_WORDS as usize);
    /// networks in which the deny list may have prefixes, as bits
    DENY_FILTER = "ww_deny_filter", AllowList:
        Map::array(8, (abi::DENY_WORDS4 + abi::DENY_WORDS6) as usize).when(Need::Denies);
    /// the deny list's prefixes of IPv4, by who denies them and for how long
    DENY4 = "ww_deny4", AllowList: Map::new(
        Kind::Trie,
        size_of::<abi::Prefix4>(),
        Value::Exactly(size_of::<abi::Denied>()),
        abi::DENY_PREFIXES as usize,
    ).steering(abi::STEER_DENY, Of::All).changed();
    /// those of IPv6
    DENY6 = "ww_deny6", AllowList: Map::new(
        Kind::Trie,
        size_of::<abi::Prefix6>(),
        Value::Exactly(size_of::<abi::Denied>()),
        abi::DENY_PREFIXES as usize,
    ).steering(abi::STEER_DENY, Of::All).changed();
    /// the deny list's ports, as bits: TCP's, then UDP's
    DENY_PORTS = "ww_deny_ports", AllowList: Map::array(8, 2 * abi::ALLOW_PORT_WORDS as usize).when(Need::Denies);
    /// names of those who deny prefixes
    DENY_ORIGINS = "ww_deny_origins", AllowList: Map::array(size_of::<abi::DenyOrigin>(), abi::DENY_ORIGINS)
        .steering(abi::STEER_DENY, Of::All).changed();
    /// flows or sources that events were about
    TOLD = "ww_told_of", Classes: Map::new(
        Kind::LruHash,
        size_of::<abi::ToldKey>(),
        Value::Exactly(size_of::<abi::Told>()),
        abi::TOLD as usize,
    ).steering(abi::STEER_TELL, Of::All);
    /// interfaces that packets leave by, under their indexes
    INTERFACES = "ww_interfaces", Policy: Map::indexed(Kind::Interfaces, 4, abi::INTERFACES as usize)
        .steering(abi::STEER_REDIRECT | abi::STEER_FORWARD | abi::STEER_BACKEND, Of::Xdp);
    /// CPUs that packets go to, each with room in its queue
    CPUS = "ww_cpus", Policy: Map::indexed(Kind::Cpus, 4, 1)
        .room(Room::PerCpu(1)).steering(abi::STEER_CPU, Of::Live);
    /// stations that are behind a port whatever was seen
    FIXED = "ww_fixed", Policy:
        Map::new(Kind::Hash, size_of::<abi::StationKey>(), Value::Exactly(4), abi::FIXED as usize)
        .steering(abi::STEER_BRIDGE, Of::Live);
    /// GTP-U tunnels, by each of their ends
    TUNNELS = "ww_tunnels", Policy: Map::new(
        Kind::Hash,
        size_of::<abi::TunnelEnd>(),
        Value::Exactly(size_of::<abi::Tunnel>()),
        abi::ENDS_OF_A_TUNNEL * abi::TUNNELS,
    ).steering(abi::STEER_THROUGH_TUNNELS, Of::All).changed();
    /// servers of pools
    BACKENDS = "ww_backends", Policy: Map::array(size_of::<abi::Backend>(), abi::BACKENDS)
        .steering(abi::STEER_BACKEND, Of::All).changed();
    /// two tables for each pool, from a packet's hash to a server
    TABLES_OF_POOLS = "ww_tables", Policy: Map::array(size_of::<abi::Table>(), 2 * abi::POOLS)
        .steering(abi::STEER_BACKEND, Of::All).changed();
    /// pools of servers
    POOLS = "ww_pools", Policy: Map::array(size_of::<abi::Pool>(), abi::POOLS)
        .steering(abi::STEER_BACKEND, Of::All).changed();
    /// AF_XDP sockets, by receive queue; their programs put them there
    SOCKETS = "ww_sockets", Host: Map::indexed(Kind::Sockets, 4, abi::SOCKETS as usize)
        .steering(abi::STEER_SOCKET, Of::Live);
    /// flows that were given a server or answered a challenge
    MEMORY = "ww_memory", Host: Map::new(
        Kind::LruHash,
        size_of::<abi::EndsKey>(),
        Value::Exactly(size_of::<abi::Memory>()),
        abi::MEMORY as usize,
    ).steering(abi::STEER_BACKEND | abi::STEER_CHALLENGE, Of::Live);
    /// what became of the flows of each sender
    SENDERS = "ww_senders", Host: Map::new(
        Kind::LruHash,
        size_of::<abi::SenderKey>(),
        Value::Exactly(size_of::<abi::Sender>()),
        abi::SENDERS as usize,
    ).steering(abi::STEER_EVIDENCE, Of::All);
    /// scratch space and limits of the actor, an element for each CPU
    ACT_CPU = "ww_act_cpu", Host: Map::variable(Kind::Variable, Value::Exactly(size_of::<abi::ActCpu>()))
        .room(Room::PerCpu(1)).steering(ANY, Of::All);
    /// stations, and the port behind which each was seen
    STATIONS = "ww_stations", Host: Map::new(
        Kind::LruHash,
        size_of::<abi::StationKey>(),
        Value::Exactly(size_of::<abi::Station>()),
        abi::STATIONS as usize,
    ).steering(abi::STEER_BRIDGE, Of::Live);
    /// who is banned, and for how long
    BANS = "ww_bans", Host: Map::array(size_of::<abi::BanBucket>(), abi::BAN_BUCKETS as usize)
        .steering(abi::STEER_BAN, Of::All);
    /// networks in which somebody was banned, as bits
    BAN_FILTER = "ww_ban_filter", Host: Map::array(8, abi::BAN_FILTER_WORDS as usize)
        .steering(abi::STEER_BAN, Of::All);
    /// handshakes of TCP by which senders prove their addresses
    HANDSHAKES = "ww_handshakes", Host: Map::array(size_of::<abi::Handshake>(), abi::HANDSHAKES as usize)
        .steering(abi::STEER_BAN, Of::All);
    /// what each server was sent
    BACKEND_COUNTS = "ww_backend_counts", Host: Map::array(size_of::<abi::Counter>(), abi::BACKENDS)
        .room(Room::PerCpu(abi::BACKENDS)).steering(abi::STEER_BACKEND, Of::All);
    /// what became of packets of tunnels
    TUNNEL_COUNTS = "ww_tunnel_counts", Host:
        Map::indexed(Kind::PerCpu, size_of::<abi::Counter>(), abi::TunnelCount::COUNT)
        .steering(abi::STEER_THROUGH_TUNNELS | abi::STEER_QFI | abi::STEER_INNER_DSCP, Of::All);
}

/// The name of a map; of a variable's own section, which is a map too, the variable's.
pub fn variable(map: &str) -> &str {
    map.strip_prefix(".data.").or_else(|| map.strip_prefix(".rodata.")).unwrap_or(map)
}

/// A map by its name or that of a variable's section; `None`: it is not one of the data path's.
pub fn find(map: &str) -> Option<&'static Map> {
    MAPS.iter().find(|known| known.name == variable(map))
}

/// A map as an object calls it: a variable by its section.
pub fn in_object(map: &str) -> String {
    find(map).map_or_else(|| map.to_owned(), Map::in_object)
}

/// The maps whose scope is one of those that `wanted` picks.
pub fn of_scopes(wanted: impl Fn(Scope) -> bool) -> impl Iterator<Item = &'static str> {
    MAPS.iter().filter(move |map| wanted(map.scope)).map(|map| map.name)
}

/// The maps that are there for one `STEER_*` alone.
pub fn of_steering(kind: u32) -> impl Iterator<Item = &'static str> {
    MAPS.iter()
        .filter(move |map| matches!(map.need, Need::Steering(kinds, _) if kinds == kind))
        .map(|map| map.name)
}

/// Whether another load of the same bundle uses this map too.
pub fn is_shared_by_loads(map: &str) -> bool {
    find(map).is_some_and(|map| map.scope != Scope::Load)
}

/// The flow tables, or those beside them that count by something else, each with its version of IP.
pub fn tables(wanted: Counted) -> impl Iterator<Item = (u8, &'static str)> {
    MAPS.iter().filter_map(move |map| match map.value {
        Value::Bucket(by, ip_version) if by == wanted => Some((ip_version, map.name)),
        _ => None,
    })
}

pub fn flow_tables() -> impl Iterator<Item = &'static str> {
    tables(Counted::Flow).map(|(_, name)| name)
}

/// For the docs, as Markdown.
pub fn document() -> String {
    let steering = |kinds: u32| {
        let names = abi::STEERING.iter().filter(|(kind, _)| kinds & kind != 0);
        let names = names.map(|(_, name)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        match kinds {
            ANY => "any action".to_owned(),
            // A way to forward.
            abi::STEER_BRIDGE => "`forward` between ports".to_owned(),
            abi::STEER_DENY => "a deny list".to_owned(),
            abi::STEER_TELL => "`events: {each}`".to_owned(),
            abi::STEER_VERDICTS => "`verdicts`".to_owned(),
            abi::STEER_BAN => "a ban".to_owned(),
            abi::STEER_EVIDENCE => "`evidence`".to_owned(),
            _ => names,
        }
    };
    let row = |map: &Map| {
        let value = match map.value {
            Value::Exactly(size) => size.to_string(),
            Value::UpTo(most) => format!("up to {most}"),
            Value::Bucket(..) => format!("{} entries", abi::WAYS),
            Value::Blank => "an entry".to_owned(),
            Value::Row => "a row".to_owned(),
            Value::Inputs => "8 and 8 per feature".to_owned(),
        };
        let entries = match map.room {
            Room::Declared => map.entries.to_string(),
            Room::PerCpu(count) => format!("{count} per CPU"),
            Room::Records => "by `--buffer`".to_owned(),
            Room::Buckets | Room::Aggregates => "by table size".to_owned(),
        };
        let need = match map.need {
            Need::Always => String::new(),
            Need::Shadow => "a shadow".to_owned(),
            Need::Next => "`next`".to_owned(),
            Need::Record => "`record`".to_owned(),
            Need::Denies => "a deny list".to_owned(),
            Need::Inputs => "`events: {features}`".to_owned(),
            Need::Steering(kinds, of) => {
                let of = match of {
                    Of::All => "",
                    Of::Live => ", live",
                    Of::Xdp => ", at XDP",
                    Of::UserSpace => ", in user space",
                };
                format!("{}{of}", steering(kinds))
            }
        };
        let scope = match map.scope {
            Scope::Load => "load",
            Scope::Bundle => "bundle",
            Scope::Table => "table",
            Scope::Classes => "classes",
            Scope::AllowList => "allow list",
            Scope::Policy => "policy",
            Scope::Host => "host",
        };
        format!(
            "| `{}` |{} | {} | {} | {value} | {entries} | {scope} | {need} |\n",
            map.name,
            map.about,
            map.kind.name(),
            map.key
        )
    };
    let head = "| map | holds | type | key | value | elements | scope | made for |\n\
                | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    head.to_owned() + &MAPS.iter().map(row).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// What the sources in a folder call their maps, and their variables in sections of their own.
    fn declared(folder: &str, extension: &str, names: &mut BTreeSet<String>) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
        for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            if file.extension().is_none_or(|own| own != extension) {
                continue;
            }
            let text = fs::read_to_string(&file).unwrap();
            for line in text.lines().filter(|line| !line.starts_with("#define")) {
                if let Some(arguments) = line.trim_start().strip_prefix("WW_MAP(") {
                    names.extend(arguments.split(',').next().map(str::to_owned));
                }
                for (at, _) in line.match_indices("SEC(\".") {
                    let section = line[at + 5..].split('"').next().unwrap();
                    let before = line[..at].trim_end().rsplit([' ', '}']).next().unwrap();
                    let name = if section == ".maps" { before } else { variable(section) };
                    if name.starts_with("ww_") {
                        names.insert(name.to_owned());
                    }
                }
            }
        }
    }

    #[test]
    fn the_table_has_every_map_that_the_data_path_declares() {
        let mut names = BTreeSet::new();
        for folder in ["bpf/classify", "bpf/act"] {
            declared(folder, "h", &mut names);
        }
        declared("python/wirewise/targets/ebpf", "py", &mut names);
        let rows: BTreeSet<_> = MAPS.iter().map(|map| map.name.to_owned()).collect();
        assert_eq!(rows.len(), MAPS.len(), "a map has two rows");
        assert_eq!(rows, names);
    }

    #[test]
    fn a_map_is_found_by_its_name_and_by_its_section() {
        for map in MAPS {
            assert_eq!(find(map.name), Some(map));
            assert_eq!(find(&map.in_object()), Some(map));
        }
        assert_eq!((find("ww_none"), find(".bss")), (None, None));
        let names = |flows| tables(flows).collect::<Vec<_>>();
        assert_eq!(names(Counted::Flow), [(4, FLOWS4), (6, FLOWS6)]);
        assert_eq!(names(Counted::Service), [(4, SERVICE4), (6, SERVICE6)]);
    }
}
