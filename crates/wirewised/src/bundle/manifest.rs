// SPDX-License-Identifier: Apache-2.0
//! `manifest.json`, version 1: what a bundle says of itself.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::abi;
use crate::abi::maps::Counted;
use crate::bundle::names;
use crate::bundle::reference::Reference;
use crate::files::json::{self, Limits};
use crate::harmless::is_harmful;

/// Most of it are histograms: 128 features in 32 bins of 64 classes, a number in a line.
const LIMITS: Limits = Limits { bytes: 8 << 20, depth: 32, elements: 320_000 };

pub const FORMAT: &str = "wirewise-bundle";
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: String,
    pub version: u32,
    pub abi: u32,
    pub name: String,
    pub created: String,
    /// The index is the class id.
    pub classes: Vec<String>,
    /// SHA-256 of every member but the manifest, in hexadecimal.
    pub digests: BTreeMap<String, String>,
    pub feature_names: Vec<String>,
    #[serde(default)]
    pub features: Vec<Feature>,
    pub flow: Flow,
    pub program: Program,
    pub model: Model,
    /// What live flows are compared with; `None`: compiled without a table.
    #[serde(default)]
    pub reference: Option<Reference>,
    pub training: Option<Map<String, Value>>,
    pub fidelity: Option<Map<String, Value>>,
    pub accuracy: Option<Map<String, Value>>,
    pub tools: BTreeMap<String, String>,
}

/// One feature: its value is the integer divided by 2^`fraction_bits`, in `unit`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Feature {
    pub name: String,
    pub spec: String,
    pub unit: String,
    pub fraction_bits: u32,
    pub minimum: i64,
    pub maximum: i64,
}

/// The flow table. Sizes in bytes; `table_size` in entries, of all CPUs together if they share it, else of each.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    pub key: String,
    pub table_size: u32,
    pub sharing: Sharing,
    /// Of a shared table: where in an entry's state its claim lies.
    pub claim: Option<u32>,
    pub idle_timeout_ns: u64,
    pub grace_ns: u64,
    pub proven_packets: u32,
    pub clock: ClockName,
    pub entry4_size: u32,
    pub entry6_size: u32,
    pub layout_digest: String,
    pub state: Vec<StateField>,
    /// What the state gives for people to read; empty in bundles older than this.
    #[serde(default)]
    pub features: Vec<FlowFeature>,
    /// What is kept beside the flows, each in tables of its own that all CPUs share.
    #[serde(default)]
    pub aggregates: Vec<Aggregate>,
}

/// What the name of a flow key ends with if the tunnel is part of it.
const TEID: &str = "+teid";
/// Likewise of VLAN tags, in front of that.
pub const VLAN: &str = "+vlan";

/// A flow key without what it has beside addresses, ports and protocol.
pub fn ends_of_key(key: &str) -> &str {
    let key = key.strip_suffix(TEID).unwrap_or(key);
    key.strip_suffix(VLAN).unwrap_or(key)
}

impl Flow {
    /// Bytes of a bucket of a table; `None`: the program has no such table.
    pub fn bucket_bytes(&self, by: Counted, ip_version: u8) -> Option<u32> {
        let [ipv4, ipv6] = match by {
            Counted::Flow => [self.entry4_size, self.entry6_size],
            by => {
                let aggregate = self.aggregates.iter().find(|aggregate| aggregate.by.counted() == by)?;
                [aggregate.entry4_size, aggregate.entry6_size]
            }
        };
        Some(if ip_version == 4 { ipv4 } else { ipv6 } * abi::WAYS)
    }

    /// The flow key has the TEID of GTP-U.
    pub fn has_teid(&self) -> bool {
        self.key.ends_with(TEID)
    }

    /// The flow key has the ids of VLAN tags.
    pub fn has_vlans(&self) -> bool {
        self.key.contains(VLAN)
    }

    /// Where the state starts in an entry: behind the slot and the key.
    pub fn state_offset(&self, ip_version: u8) -> usize {
        let teid = if self.has_teid() { size_of::<abi::TunnelKey6>() - size_of::<abi::Key6>() } else { 0 };
        state_offset(ip_version) + teid
    }
}

/// As of an entry whose key has no tunnel, such as those of aggregates.
fn state_offset(ip_version: u8) -> usize {
    let key = if ip_version == 4 { size_of::<abi::Key4>() } else { size_of::<abi::Key6>() };
    size_of::<abi::Slot>() + key
}

/// Tables of what is kept of all packets with the same source, service or other end. Sizes as in `Flow`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Aggregate {
    pub by: By,
    pub table_size: u32,
    pub entry4_size: u32,
    pub entry6_size: u32,
    pub layout_digest: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    Source,
    Destination,
    Service,
    Pair,
    ClientPort,
    Hosts,
}

impl By {
    pub fn name(self) -> &'static str {
        match self {
            By::Source => "source",
            By::Destination => "destination",
            By::Service => "service",
            By::Pair => "pair",
            By::ClientPort => "client-port",
            By::Hosts => "hosts",
        }
    }

    fn counted(self) -> Counted {
        match self {
            By::Source => Counted::Source,
            By::Destination => Counted::Destination,
            By::Service => Counted::Service,
            By::Pair => Counted::Pair,
            By::ClientPort => Counted::ClientPort,
            By::Hosts => Counted::Hosts,
        }
    }
}

/// A feature that a flow's state alone gives, as of its last packet: an integer over 2^`fraction_bits`, in `unit`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowFeature {
    pub name: String,
    pub unit: String,
    pub fraction_bits: u32,
    pub how: How,
    /// Name of a variable of the state, `PACKETS` or `INTERVALS`; likewise `samples`.
    pub variable: String,
    pub samples: String,
    #[serde(default)]
    pub shift: u32,
    #[serde(default)]
    pub drop: u32,
}

/// Packets of the flow; the intervals between them, one less.
pub const PACKETS: &str = "packets";
pub const INTERVALS: &str = "intervals";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// The variable as it is.
    Value,
    /// 2^shift - 1 less the variable; 0 without samples.
    Complement,
    /// `(variable << shift) / samples >> drop`; 0 without samples.
    Ratio,
}

impl FlowFeature {
    /// The integer. value : of a variable by its name. `None`: there is no such variable.
    pub fn read(&self, value: impl Fn(&str) -> Option<i128>) -> Option<i64> {
        let (variable, samples) = (value(&self.variable)?, value(&self.samples)?);
        let found = match self.how {
            How::Value => variable,
            _ if samples <= 0 => 0,
            How::Complement => (1 << self.shift) - 1 - variable,
            How::Ratio => ((variable << self.shift) / samples) >> self.drop,
        };
        i64::try_from(found).ok()
    }
}

/// Whether all CPUs share the flow tables, or each has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sharing {
    Shared,
    PerCpu,
}

impl Sharing {
    /// `65536 entries`, `65536 entries a CPU`.
    pub fn entries(self, size: u32) -> String {
        match self {
            Self::Shared => format!("{size} entries"),
            Self::PerCpu => format!("{size} entries a CPU"),
        }
    }

    /// `65536 entries, shared by 2 CPUs`, `65536 entries x 2 CPUs`.
    pub fn describe(self, size: impl std::fmt::Display, cpus: u32) -> String {
        match self {
            Self::Shared => format!("{size} entries, shared by {cpus} CPUs"),
            Self::PerCpu => format!("{size} entries x {cpus} CPUs"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockName {
    Fine,
    Coarse,
}

/// One variable of a flow's state; `offset` in bytes from the start of the state, host byte order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateField {
    pub name: String,
    #[serde(rename = "type")]
    pub kind: StateType,
    pub offset: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StateType {
    U8,
    U16,
    U32,
    U64,
    S32,
    S64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    pub section: String,
    pub entry: String,
    pub tail_calls: Vec<String>,
    pub shape: String,
    pub why: String,
    pub instructions: u64,
    pub object_bytes: u64,
    pub clang: String,
    pub predicted: Map<String, Value>,
    pub verifier: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    pub family: String,
    pub digest: String,
    pub n_features: usize,
    pub n_classes: usize,
    pub summary: String,
    #[serde(default)]
    pub source: String,
    #[serde(default)]
    pub notes: Vec<String>,
    /// Indices of the features that the program computes, ascending; `None` in bundles older than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_features: Option<Vec<usize>>,
    /// How many scores the model gives; `None` in bundles older than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n_outputs: Option<usize>,
    /// Names of a bank's networks, in the order of their scores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub networks: Option<Vec<String>>,
}

impl StateType {
    pub fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 => 2,
            Self::U32 | Self::S32 => 4,
            Self::U64 | Self::S64 => 8,
        }
    }

    /// The value at the start of `bytes`; `None` if they are too few.
    pub fn read(self, bytes: &[u8]) -> Option<i128> {
        let bytes = bytes.get(..self.size())?;
        Some(match self {
            Self::U8 => bytes[0].into(),
            Self::U16 => u16::from_ne_bytes(bytes.try_into().ok()?).into(),
            Self::U32 => u32::from_ne_bytes(bytes.try_into().ok()?).into(),
            Self::U64 => u64::from_ne_bytes(bytes.try_into().ok()?).into(),
            Self::S32 => i32::from_ne_bytes(bytes.try_into().ok()?).into(),
            Self::S64 => i64::from_ne_bytes(bytes.try_into().ok()?).into(),
        })
    }
}

impl Manifest {
    /// How many verdicts in a row its model was set to need before a flow loses packets; the policy asks for them.
    pub fn verdicts_in_a_row(&self) -> u32 {
        let point = self.fidelity.as_ref().and_then(|fidelity| fidelity.get("operating_point"));
        let after = point.and_then(|point| point.get("after")).and_then(Value::as_u64);
        after.and_then(|after| u32::try_from(after).ok()).unwrap_or(1).clamp(1, abi::MAX_AFTER)
    }

    /// SHA-256 of what it says that the program's numbers mean: classes, features, what is kept of flows, networks. It is
    /// compiled into the program, so that no manifest gives its verdicts other names. `meaning` in `wirewise/formats/manifest.py`
    /// makes the same text.
    pub fn meaning(&self) -> [u8; abi::MEANING_BYTES] {
        let mut text = json!({
            "classes": self.classes,
            "feature_names": self.feature_names,
            "features": self.features,
            "flow": self.flow,
            "networks": self.model.networks,
        });
        text.sort_all_objects();
        Sha256::digest(text.to_string()).into()
    }

    /// Reads and checks `manifest.json`. The error is one line without the file's name.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            format: Option<Value>,
            version: Option<Value>,
            abi: Option<Value>,
        }
        json::check(bytes, &LIMITS).map_err(|rule| format!("manifest.json {rule}; compile it again"))?;
        let head: Head = serde_json::from_slice(bytes)
            .map_err(|error| format!("manifest.json is not JSON: {error}; compile it again"))?;
        if head.format != Some(FORMAT.into()) {
            return Err(
                "manifest.json is not one of a wirewise bundle; make one with `wirewise compile`".to_string()
            );
        }
        for (key, found, known) in [("version", head.version, VERSION), ("abi", head.abi, abi::ABI_VERSION)] {
            if found != Some(known.into()) {
                let found = found.map_or("none".to_string(), |value| value.to_string());
                return Err(format!(
                    "bundle {key} {found} is not supported, this wirewised reads {key} {known}; \
                     use the wirewised of the wirewise that wrote it, or compile the model again"
                ));
            }
        }
        let document: Value = serde_json::from_slice(bytes)
            .map_err(|error| format!("manifest.json is not JSON: {error}; compile it again"))?;
        if let Some(text) = harmful(&document) {
            let start: String = text.chars().take(80).collect();
            return Err(format!(
                "manifest.json: {start:?} holds a character that a terminal would obey or hide; compile it again"
            ));
        }
        drop(document);
        let manifest: Self = serde_json::from_slice(bytes)
            .map_err(|error| format!("manifest.json: {error}; compile it again"))?;
        manifest.check().map_err(|rule| format!("manifest.json: {rule}; compile it again"))?;
        Ok(manifest)
    }

    fn check(&self) -> Result<(), String> {
        let classes = self.classes.len();
        if !(2..=abi::MAX_CLASSES).contains(&classes) {
            return Err(format!("{classes} classes; 2 to {} are supported", abi::MAX_CLASSES));
        }
        let features = self.feature_names.len();
        if !(1..=abi::MAX_FEATURES).contains(&features) {
            return Err(format!("{features} features; 1 to {} are supported", abi::MAX_FEATURES));
        }
        if (self.model.n_classes, self.model.n_features) != (classes, features) {
            return Err("the model's numbers of classes and features are not those of the lists".to_string());
        }
        let used = self.model.used_features.as_deref().unwrap_or_default();
        if !used.is_sorted_by(|one, next| one < next) || used.last().is_some_and(|last| *last >= features) {
            return Err(format!("used_features are not ascending indices of {features} features"));
        }
        if self.model.n_outputs.is_some_and(|outputs| !(1..=abi::MAX_CLASSES).contains(&outputs)) {
            return Err(format!("n_outputs must be a number from 1 to {}", abi::MAX_CLASSES));
        }
        let networks = self.model.networks.as_deref().unwrap_or_default();
        if self.model.networks.is_some() && self.model.n_outputs != Some(networks.len()) {
            return Err("there is not one score for each of the networks".to_string());
        }
        if self.classes.iter().collect::<HashSet<_>>().len() != classes {
            return Err("a class name stands twice".to_string());
        }
        if let Some(name) = networks.iter().find(|name| !names::is_network_name(name)) {
            return Err(format!("{name:?} is not the name of a network: letters, digits and _ . -"));
        }
        let shown = self.classes.iter().chain([&self.name, &self.program.clang]);
        if let Some(name) =
            shown.chain(self.tools.iter().flat_map(<[_; 2]>::from)).find(|name| !names::is_name(name))
        {
            return Err(format!("{name:?} cannot be a name: use 1 to {} printable characters", names::MAX));
        }
        let identifiers = self.feature_names.iter().chain(self.features.iter().map(|feature| &feature.name));
        let identifiers = identifiers
            .chain([&self.program.entry])
            .chain(&self.program.tail_calls)
            .chain(self.flow.features.iter().map(|feature| &feature.name))
            .map(String::as_str)
            // Of a window, and of what is in it.
            .chain(self.flow.state.iter().flat_map(|field| field.name.split('.')));
        if let Some(name) = identifiers.into_iter().find(|name| !names::is_feature_name(name)) {
            return Err(format!("{name:?} is not the name of a feature: lower-case letters, digits and _"));
        }
        let described = self.features.iter().map(|feature| &feature.name);
        if !self.features.is_empty() && !described.eq(&self.feature_names) {
            return Err("it describes other features than it names".to_string());
        }
        let flow = &self.flow;
        if !flow.table_size.is_power_of_two() || flow.table_size < abi::WAYS {
            return Err(format!(
                "table_size {} is not a power of two of at least {}",
                flow.table_size,
                abi::WAYS
            ));
        }
        for (index, aggregate) in flow.aggregates.iter().enumerate() {
            let Aggregate { by, table_size, entry4_size, entry6_size, .. } = aggregate;
            let name = by.name();
            if flow.aggregates[..index].iter().any(|other| other.by == *by) {
                return Err(format!("the aggregate by {name} stands twice"));
            }
            if !table_size.is_power_of_two() || !(abi::WAYS..=MAX_TABLE_SIZE).contains(table_size) {
                return Err(format!(
                    "the aggregate by {name} has {table_size} entries, not a power of two from {} to {MAX_TABLE_SIZE}",
                    abi::WAYS
                ));
            }
            let claim = size_of::<u32>();
            if (*entry4_size as usize) < state_offset(4) + claim
                || (*entry6_size as usize) < state_offset(6) + claim
                || (*entry4_size).max(*entry6_size) > MAX_AGGREGATE
            {
                return Err(format!("the aggregate by {name} has entries of an impossible size"));
            }
        }
        let inside = |offset: u32, size: usize| {
            let end = u64::from(offset) + size as u64;
            end + flow.state_offset(4) as u64 <= flow.entry4_size.into()
                && end + flow.state_offset(6) as u64 <= flow.entry6_size.into()
        };
        match (flow.sharing, flow.claim) {
            (Sharing::PerCpu, None) => {}
            (Sharing::Shared, Some(claim)) if claim % 4 == 0 && inside(claim, size_of::<u32>()) => {}
            _ => {
                return Err(
                    "a flow table has a claim in its entries if, and only if, it is shared".to_string()
                );
            }
        }
        for feature in &flow.features {
            let known = |name: &str| {
                [PACKETS, INTERVALS].contains(&name) || flow.state.iter().any(|field| field.name == name)
            };
            let FlowFeature { name, variable, samples, .. } = feature;
            if let Some(unknown) = [variable, samples].into_iter().find(|name| !known(name)) {
                return Err(format!(
                    "flow feature {name} is made of {unknown}, which the state does not have"
                ));
            }
            if feature.shift.max(feature.drop).max(feature.fraction_bits) > 63 {
                return Err(format!("flow feature {name} is shifted by more than 63 bits"));
            }
        }
        if let Some(reference) = &self.reference {
            let known = flow.features.iter().map(|feature| feature.name.as_str()).collect();
            reference.check(classes, &known)?;
        }
        match flow.state.iter().find(|field| !inside(field.offset, field.kind.size())) {
            Some(field) => Err(format!("state {} lies outside a flow entry", field.name)),
            None => Ok(()),
        }
    }
}

/// The first string, or key, that is not for terminals.
fn harmful(value: &Value) -> Option<&str> {
    let of = |text: &'_ str| text.chars().any(is_harmful);
    match value {
        Value::String(text) => of(text).then_some(text),
        Value::Array(values) => values.iter().find_map(harmful),
        Value::Object(fields) => {
            fields.iter().find_map(|(key, value)| if of(key) { Some(key.as_str()) } else { harmful(value) })
        }
        _ => None,
    }
}

/// As the feature sets of `wirewise` allow.
const MAX_TABLE_SIZE: u32 = 1 << 24;
/// Bytes of an entry: far more than all features together need.
const MAX_AGGREGATE: u32 = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn feature(how: How, shift: u32, drop: u32) -> FlowFeature {
        FlowFeature {
            name: "mine".to_string(),
            unit: "bytes".to_string(),
            fraction_bits: 0,
            how,
            variable: "sum".to_string(),
            samples: PACKETS.to_string(),
            shift,
            drop,
        }
    }

    #[test]
    fn a_flow_feature_is_computed_as_it_says() {
        let read = |feature: &FlowFeature, sum: i128, packets: i128| {
            feature.read(|name| Some(if name == PACKETS { packets } else { sum }))
        };
        assert_eq!(read(&feature(How::Value, 0, 0), 7, 0), Some(7));
        assert_eq!(read(&feature(How::Complement, 32, 0), 0xffff_ffff - 40, 2), Some(40));
        assert_eq!(read(&feature(How::Complement, 8, 0), 0xff - 40, 2), Some(40));
        assert_eq!(read(&feature(How::Complement, 32, 0), 0, 0), Some(0));
        assert_eq!(read(&feature(How::Ratio, 16, 0), 7, 2), Some(7 << 15));
        assert_eq!(read(&feature(How::Ratio, 16, 0), (1 << 47) - 1, 1), Some(((1 << 47) - 1) << 16));
        assert_eq!(read(&feature(How::Ratio, 0, 8), 1024, 2), Some(2));
        assert_eq!(read(&feature(How::Ratio, 0, 8), 1024, 0), Some(0));
        // Intervals of a flow that another version counted no packet of.
        assert_eq!(read(&feature(How::Ratio, 0, 0), 5, -1), Some(0));
        assert_eq!(feature(How::Value, 0, 0).read(|_| None), None);
        assert_eq!(read(&feature(How::Value, 0, 0), i128::MAX, 1), None, "no bundle makes it wrap");
    }
}
