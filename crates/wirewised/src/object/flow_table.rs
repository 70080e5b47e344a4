// SPDX-License-Identifier: Apache-2.0
//! Flows as they lie in the flow tables.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::abi;
use crate::bundle::manifest::{Flow as Layout, FlowFeature, INTERVALS, PACKETS, Sharing, StateField};
use crate::error::{Error, Result};
use crate::object::mapped::MappedArray;

/// With a name in Suricata's log.
const PROTOCOLS: [(u8, &str); 8] = [
    (1, "ICMP"),
    (6, "TCP"),
    (17, "UDP"),
    (33, "DCCP"),
    (47, "GRE"),
    (58, "IPv6-ICMP"),
    (132, "SCTP"),
    (136, "UDPLite"),
];

/// A flow key in words: what it is for a person or JSON. Parts that the feature set's key has not are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct FlowKey {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub source_port: u16,
    pub destination_port: u16,
    pub protocol: u8,
    #[serde(rename = "vlan", skip_serializing_if = "Vlans::is_none")]
    pub vlans: Vlans,
    /// Of the GTP-U tunnel, 0 without one. `None`: the key has no such part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub teid: Option<u32>,
}

impl From<&abi::Key4> for FlowKey {
    fn from(key: &abi::Key4) -> Self {
        Self {
            source: Ipv4Addr::from(key.source).into(),
            destination: Ipv4Addr::from(key.destination).into(),
            source_port: u16::from_be_bytes(key.source_port),
            destination_port: u16::from_be_bytes(key.destination_port),
            protocol: key.protocol,
            vlans: Vlans(key.vlans),
            teid: None,
        }
    }
}

impl From<&abi::Key6> for FlowKey {
    fn from(key: &abi::Key6) -> Self {
        Self {
            source: Ipv6Addr::from(key.source).into(),
            destination: Ipv6Addr::from(key.destination).into(),
            source_port: u16::from_be_bytes(key.source_port),
            destination_port: u16::from_be_bytes(key.destination_port),
            protocol: key.protocol,
            vlans: Vlans(key.vlans),
            teid: None,
        }
    }
}

/// Ids of up to two VLAN tags, as a key has them. Shown as Suricata does: a list, of the outermost first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Vlans(pub [u8; 3]);

impl Vlans {
    /// No tag, or none that names a VLAN; or the flow key has no such part.
    pub fn is_none(&self) -> bool {
        self.0 == [0; 3]
    }

    /// Of the outermost tag, and of the one behind it, 0: none.
    pub fn ids(self) -> [u16; 2] {
        let [low, middle, high] = self.0.map(u16::from);
        [low | (middle & 15) << 8, middle >> 4 | high << 4]
    }

    fn list(self) -> Vec<u16> {
        match self.ids() {
            [0, 0] => Vec::new(),
            [outer, 0] => vec![outer],
            both => both.to_vec(),
        }
    }
}

impl Serialize for Vlans {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.list().serialize(serializer)
    }
}

impl fmt::Display for Vlans {
    /// `7`; of two tags `9.7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids: Vec<_> = self.list().iter().map(u16::to_string).collect();
        f.write_str(&ids.join("."))
    }
}

/// An address and a port; `None`: the key has no such part.
pub type End = (Option<IpAddr>, Option<u16>);

impl FlowKey {
    /// As it lies in an entry. `None`: there is too little of it.
    fn read(bytes: &[u8], ip_version: u8, has_teid: bool) -> Option<Self> {
        let (key, rest) = if ip_version == 4 {
            let (key, rest) = bytes.split_at_checked(size_of::<abi::Key4>())?;
            (Self::from(&bytemuck::pod_read_unaligned::<abi::Key4>(key)), rest)
        } else {
            let (key, rest) = bytes.split_at_checked(size_of::<abi::Key6>())?;
            (Self::from(&bytemuck::pod_read_unaligned::<abi::Key6>(key)), rest)
        };
        let teid =
            if has_teid { Some(bytemuck::pod_read_unaligned(rest.get(..size_of::<u32>())?)) } else { None };
        Some(Self { teid, ..key })
    }

    /// Source and destination.
    pub fn ends(&self) -> [End; 2] {
        let end = |address: IpAddr, port: u16| {
            ((!address.is_unspecified()).then_some(address), (port != 0).then_some(port))
        };
        [end(self.source, self.source_port), end(self.destination, self.destination_port)]
    }

    /// As Suricata writes it: a number of three digits where it knows no name. `None`: the key has no protocol.
    pub fn protocol_name(&self) -> Option<String> {
        let named = PROTOCOLS.iter().find(|(number, _)| *number == self.protocol);
        let name = || named.map_or_else(|| format!("{:03}", self.protocol), |(_, name)| name.to_string());
        (self.protocol != 0).then(name)
    }
}

/// The protocol that `FlowKey::protocol_name` names.
pub fn protocol_number(name: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(_, known)| *known == name);
    named.map_or_else(|| name.parse().ok(), |(number, _)| Some(*number))
}

/// An entry in use.
#[derive(Debug, Clone, Serialize)]
pub struct Flow {
    pub ip_version: u8,
    /// `None`: all CPUs share the table.
    pub cpu: Option<u32>,
    /// Bucket of the table or of the CPU's shard, and place in it.
    pub bucket: u32,
    pub way: u32,
    #[serde(flatten)]
    pub key: FlowKey,
    pub packets: u32,
    pub last_seen_ns: u64,
    /// `None`: no verdict yet.
    pub class_id: Option<u8>,
    /// The key is in canonical order, which is not that of the flow's first packet.
    pub swapped: bool,
    /// The generated state, by the names in the bundle's manifest.
    pub state: Map<String, Value>,
    /// What the state gives, as integers, in the order of the manifest; up to the first that cannot be read.
    #[serde(skip)]
    pub features: Vec<i64>,
}

/// A feature as people read it.
#[derive(Debug, Serialize)]
pub struct FlowValue<'a> {
    pub name: &'a str,
    /// `value` in `unit` is this over 2^fraction_bits.
    pub raw: i64,
    pub value: f64,
    pub unit: &'a str,
}

impl Flow {
    /// features : of the layout that the flow was read with.
    pub fn values<'a>(&self, features: &'a [FlowFeature]) -> Vec<FlowValue<'a>> {
        let value = |(feature, &raw): (&'a FlowFeature, &i64)| FlowValue {
            name: &feature.name,
            raw,
            value: raw as f64 / f64::from(feature.fraction_bits).exp2(),
            unit: &feature.unit,
        };
        features.iter().zip(&self.features).map(value).collect()
    }

    /// Bytes of all packets, IP headers included. `None`: the state does not say.
    pub fn bytes(&self) -> Option<u64> {
        let of_one_direction =
            || self.variable("sum_length_forward")?.checked_add(self.variable("sum_length_backward")?);
        self.variable("sum_length").or_else(of_one_direction)
    }

    /// When the first packet came. `None`: the state does not say.
    pub fn first_seen_ns(&self) -> Option<u64> {
        if self.packets == 1 {
            return Some(self.last_seen_ns);
        }
        let before_last = || self.last_seen_ns.checked_sub(self.variable("sum_iat")?.checked_mul(1000)?);
        self.variable("first_seen_ns").or_else(before_last)
    }

    fn variable(&self, name: &str) -> Option<u64> {
        self.state.get(name)?.as_u64()
    }
}

/// An array map, wherever it lies.
pub enum Elements {
    /// A kernel's, as it changes.
    Mapped(MappedArray),
    /// As it was.
    Copied { bytes: Vec<u8>, stride: usize, value_size: usize },
}

impl Elements {
    fn entries(&self) -> u32 {
        match self {
            Self::Mapped(map) => map.entries(),
            Self::Copied { bytes, stride, .. } => (bytes.len() / stride) as u32,
        }
    }

    fn value_size(&self) -> usize {
        match self {
            Self::Mapped(map) => map.value_size(),
            Self::Copied { value_size, .. } => *value_size,
        }
    }

    /// A part of an element, from `offset` on; false if there is no such element. claim : where in the element the word lies that says
    /// whether it is being changed: with one, also false if it never was at rest.
    fn read_part(&self, index: u32, offset: usize, claim: Option<usize>, to: &mut [u8]) -> bool {
        match (self, claim) {
            (Self::Mapped(map), None) => map.read_part(index, offset, to),
            (Self::Mapped(map), Some(claim)) => map.read_whole(index, offset, claim, to),
            (Self::Copied { bytes, stride, .. }, _) => {
                let start = index as usize * stride + offset;
                let element = bytes.get(start..start + to.len());
                element.map(|element| to.copy_from_slice(element)).is_some()
            }
        }
    }
}

/// One table.
pub struct FlowTable<'a> {
    map: Elements,
    ip_version: u8,
    layout: &'a Layout,
    entry_size: usize,
    /// Buckets of the table or of a CPU's shard.
    buckets: u32,
    /// Marks an entry with a verdict of this program.
    verdict: u8,
    /// Buckets in front of the elements.
    first: u32,
}

impl<'a> FlowTable<'a> {
    /// buckets : of a shared table, or of a CPU's shard.
    pub fn new(map: Elements, ip_version: u8, layout: &'a Layout, buckets: u32) -> Result<Self> {
        let entry_size = if ip_version == 4 { layout.entry4_size } else { layout.entry6_size } as usize;
        if map.value_size() != entry_size * abi::WAYS as usize || buckets == 0 {
            return Err(Error::input(format!(
                "the bundle says an entry of the IPv{ip_version} flow table has {entry_size} bytes, but the program's \
                 have {}: compile the model again",
                map.value_size() / abi::WAYS as usize
            )));
        }
        Ok(Self { map, ip_version, layout, entry_size, buckets, verdict: abi::SLOT_VERDICT, first: 0 })
    }

    /// verdict : as in the program's `ww_config`.
    pub fn with_verdict(self, verdict: u8) -> Self {
        Self { verdict, ..self }
    }

    /// For elements that are a part of a map, from bucket `first` on.
    pub fn beginning_at(self, first: u32) -> Self {
        Self { first, ..self }
    }

    /// Every entry in use, in the order of the table.
    pub fn flows(&self) -> impl Iterator<Item = Flow> + '_ {
        self.flows_since(0)
    }

    /// As `flows`, of entries whose last packet came then or later; of others little more than that time is read.
    pub fn flows_since(&self, time_ns: u64) -> impl Iterator<Item = Flow> + '_ {
        let mut entry = vec![0; self.entry_size];
        (0..self.map.entries() * abi::WAYS)
            .filter_map(move |index| self.read(index / abi::WAYS, index % abi::WAYS, time_ns, &mut entry))
    }

    /// The flow at a place of the map; `None`: there is none.
    pub fn at(&self, bucket: u32, way: u32) -> Option<Flow> {
        self.read(bucket.checked_sub(self.first)?, way, 0, &mut vec![0; self.entry_size])
    }

    fn read(&self, bucket: u32, way: u32, since_ns: u64, entry: &mut [u8]) -> Option<Flow> {
        let state = self.layout.state_offset(self.ip_version);
        let offset = way as usize * self.entry_size;
        let claim = self.layout.claim.map(|claim| offset + state + claim as usize);
        if !self.map.read_part(bucket, offset, claim, entry) {
            return None;
        }
        self.flow(entry, bucket, way, since_ns)
    }

    fn flow(&self, entry: &[u8], bucket: u32, way: u32, since_ns: u64) -> Option<Flow> {
        let (slot, key) = entry.split_at_checked(size_of::<abi::Slot>())?;
        let slot: abi::Slot = bytemuck::pod_read_unaligned(slot);
        if slot.packets == 0 || slot.last_seen_ns < since_ns {
            return None;
        }
        let key = FlowKey::read(key, self.ip_version, self.layout.has_teid())?;
        let state = entry.get(self.layout.state_offset(self.ip_version)..)?;
        let read = |field: &StateField| field.kind.read(state.get(field.offset as usize..)?);
        let packets = i128::from(slot.packets);
        let variable = |name: &str| match name {
            PACKETS => Some(packets),
            INTERVALS => Some(packets - 1),
            name => self.layout.state.iter().find(|field| field.name == name).and_then(read),
        };
        let features = self.layout.features.iter().map_while(|feature| feature.read(variable)).collect();
        let state = self.layout.state.iter().filter_map(|field| {
            let value = read(field)?;
            let number = i64::try_from(value).map(Value::from).unwrap_or_else(|_| Value::from(value as u64));
            Some((field.name.clone(), number))
        });
        Some(Flow {
            ip_version: self.ip_version,
            cpu: (self.layout.sharing == Sharing::PerCpu).then_some((self.first + bucket) / self.buckets),
            bucket: (self.first + bucket) % self.buckets,
            way,
            key,
            packets: slot.packets,
            last_seen_ns: slot.last_seen_ns,
            class_id: (slot.flags & self.verdict != 0).then_some(slot.class_id),
            swapped: slot.flags & abi::SLOT_SWAPPED != 0,
            state: state.collect(),
            features,
        })
    }
}
