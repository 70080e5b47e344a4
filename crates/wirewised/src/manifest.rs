// SPDX-License-Identifier: Apache-2.0
//! `manifest.json`, version 1: what a bundle says of itself.

use std::collections::{BTreeMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::abi;
use crate::text::is_harmful;

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
    /// Reads and checks `manifest.json`. The error is one line without the file's name.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Head {
            format: Option<Value>,
            version: Option<Value>,
            abi: Option<Value>,
        }
        let head: Head =
            serde_json::from_slice(bytes).map_err(|error| format!("manifest.json is not JSON: {error}"))?;
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
        let document: Value =
            serde_json::from_slice(bytes).map_err(|error| format!("manifest.json is not JSON: {error}"))?;
        if let Some(text) = harmful(&document) {
            let start: String = text.chars().take(80).collect();
            return Err(format!(
                "manifest.json: {start:?} holds a character that a terminal would obey or hide; compile it again"
            ));
        }
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
        if self.classes.iter().collect::<HashSet<_>>().len() != classes {
            return Err("a class name stands twice".to_string());
        }
        // A person writes them too.
        let shown = self.classes.iter().chain(&self.feature_names).chain([&self.name, &self.program.entry]);
        for name in
            shown.chain(&self.program.tail_calls).chain(self.flow.state.iter().map(|field| &field.name))
        {
            if name.is_empty() || name.len() > 200 {
                return Err(format!("{name:?} cannot be a name"));
            }
        }
        let flow = &self.flow;
        if !flow.table_size.is_power_of_two() || flow.table_size < abi::WAYS {
            return Err(format!(
                "table_size {} is not a power of two of at least {}",
                flow.table_size,
                abi::WAYS
            ));
        }
        let inside = |offset: u32, size: usize| {
            let end = u64::from(offset) + size as u64;
            end + STATE_OFFSET_4 as u64 <= flow.entry4_size.into()
                && end + STATE_OFFSET_6 as u64 <= flow.entry6_size.into()
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

/// Where the state starts in an entry: behind the slot and the key.
pub const STATE_OFFSET_4: usize = size_of::<abi::Slot>() + size_of::<abi::Key4>();
pub const STATE_OFFSET_6: usize = size_of::<abi::Slot>() + size_of::<abi::Key6>();
