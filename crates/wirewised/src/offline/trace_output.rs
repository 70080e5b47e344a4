// SPDX-License-Identifier: Apache-2.0
//! The formats of `wirewised trace`.

use std::io::{self, Write};

use bytemuck::Zeroable;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use wirewise_capture::Packet;

use crate::abi::{self, Description, Outcome, Status};
use crate::bundle::Bundle;
use crate::offline::runner::{Observation, Verdict};
use crate::policy::Policy;

const RAW_MAGIC: &[u8; 8] = b"WWTRACE2";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object a packet
    Jsonl,
    /// Fixed-size binary records, for programs
    Raw,
}

/// Writes observations in one format.
pub enum Writer<'a, W: Write> {
    Jsonl { bundle: &'a Bundle, policy: &'a Policy, out: W },
    Raw { n_features: usize, n_scores: usize, out: W },
}

impl<'a, W: Write> Writer<'a, W> {
    pub fn new(
        format: Format,
        (bundle, policy): (&'a Bundle, &'a Policy),
        (n_features, n_scores): (usize, usize),
        mut out: W,
    ) -> io::Result<Self> {
        Ok(match format {
            Format::Jsonl => Self::Jsonl { bundle, policy, out },
            Format::Raw => {
                out.write_all(RAW_MAGIC)?;
                out.write_all(&(n_features as u32).to_le_bytes())?;
                out.write_all(&(n_scores as u32).to_le_bytes())?;
                Self::Raw { n_features, n_scores, out }
            }
        })
    }

    pub fn write(&mut self, packet: &Packet<'_>, observation: &Observation) -> io::Result<()> {
        match self {
            Self::Jsonl { bundle, policy, out } => {
                serde_json::to_writer(&mut *out, &line(packet, observation, bundle, policy))?;
                out.write_all(b"\n")
            }
            Self::Raw { n_features, n_scores, out } => write_raw(out, observation, *n_features, *n_scores),
        }
    }

    pub fn finish(self) -> io::Result<W> {
        let (Self::Jsonl { mut out, .. } | Self::Raw { mut out, .. }) = self;
        out.flush()?;
        Ok(out)
    }
}

/// Ten u32 and the score of `metadata`, then the features and scores as i64: zero where the model did not run.
fn write_raw(
    out: &mut impl Write,
    observation: &Observation,
    n_features: usize,
    n_scores: usize,
) -> io::Result<()> {
    let (verdict, described) = (observation.verdict, normal(observation.described()));
    let head = [
        observation.status.code(),
        observation.inferred.into(),
        verdict.map_or(0, |verdict| verdict.class_id),
        verdict.map_or(0, |verdict| verdict.action.code()),
        verdict.map_or(0, |verdict| verdict.outcome.code()),
        observation.refused.into(),
        observation.packets,
        observation.fate as u32,
        described.flags.into(),
        described.flow_hash,
    ];
    for number in head {
        out.write_all(&number.to_le_bytes())?;
    }
    out.write_all(&described.score.to_le_bytes())?;
    for (values, count) in [(observation.features(), n_features), (observation.scores(), n_scores)] {
        for index in 0..count {
            out.write_all(&values.get(index).unwrap_or(&0).to_le_bytes())?;
        }
    }
    Ok(())
}

#[derive(Debug, Serialize)]
pub struct Line<'a> {
    packet: u64,
    time_ns: u64,
    status: Status,
    /// Absent: the packet was not classified.
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
    passed: bool,
    /// Of the flow so far, with this one; absent if the packet came to no flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    refused: bool,
    /// Absent: the model did not run on this packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    features: Option<Named<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scores: Option<&'a [i64]>,
    /// Absent: the policy does not ask for it, or the packet was not classified.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata>,
}

/// A packet as other programs see it: its `struct ww_metadata`, and whether `ww_verdicts` gets the flow.
#[derive(Debug, Serialize)]
struct Metadata {
    flow_hash: u32,
    /// Null: the model did not run on this packet, or gives none.
    score: Option<i64>,
    /// The flow counts as another class from this packet on.
    changed: bool,
}

/// Without what means nothing.
fn normal(described: Description) -> Description {
    match described.flags {
        flags if flags & abi::DESCRIBED_CLASS == 0 => Description::zeroed(),
        flags if flags & abi::DESCRIBED_SCORE == 0 => Description { score: 0, ..described },
        _ => described,
    }
}

fn metadata(described: Description) -> Option<Metadata> {
    let has = |flag| described.flags & flag != 0;
    has(abi::DESCRIBED_CLASS).then(|| Metadata {
        flow_hash: described.flow_hash,
        score: has(abi::DESCRIBED_SCORE).then_some(described.score),
        changed: has(abi::DESCRIBED_CHANGED),
    })
}

/// What JSON says of one packet.
pub fn line<'a>(
    packet: &Packet<'_>,
    observation: &'a Observation,
    bundle: &'a Bundle,
    policy: &Policy,
) -> Line<'a> {
    let verdict = observation.verdict;
    let inferred = observation.inferred;
    Line {
        packet: packet.number,
        time_ns: packet.time_ns,
        status: observation.status,
        class: verdict.map(|verdict| class_name(bundle, verdict.class_id)),
        action: verdict.map(|verdict| action(policy, verdict)),
        outcome: verdict.map(|verdict| verdict.outcome),
        passed: observation.fate.passed(),
        packets: (observation.packets > 0).then_some(observation.packets),
        refused: observation.refused,
        features: inferred
            .then(|| Named { names: &bundle.manifest.feature_names, values: observation.features() }),
        scores: inferred.then(|| observation.scores()),
        metadata: metadata(observation.described()),
    }
}

/// As the policy calls it.
fn action(policy: &Policy, verdict: Verdict) -> String {
    let class = policy.actions.get(verdict.class_id as usize);
    class.map_or_else(|| verdict.action.name().to_owned(), |class| class.action.keys())
}

pub fn class_name(bundle: &Bundle, class_id: u32) -> &str {
    bundle.manifest.classes.get(class_id as usize).map_or("(none of the bundle's classes)", String::as_str)
}

/// Values under their names, as a JSON object.
#[derive(Debug)]
struct Named<'a> {
    names: &'a [String],
    values: &'a [i64],
}

impl Serialize for Named<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.names.len()))?;
        for (name, value) in self.names.iter().zip(self.values) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
