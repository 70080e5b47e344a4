// SPDX-License-Identifier: Apache-2.0
//! Counters with the names of what they count, and rates.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::abi::{self, Counter, Outcome, Stats};
use crate::kernel;
use crate::reading::agreement::Agreement;
use crate::reading::counters::{Counters, EventCounters, FlowCounters, total};
use crate::reading::status::{AskedMode, Status};

#[derive(Debug, Serialize)]
pub struct Statistics {
    pub interface: String,
    pub time: String,
    /// False: the interface or the link is gone, and these counters with nobody to count on.
    pub attached: bool,
    pub mode: String,
    pub bundle: Option<String>,
    /// Since the reading before; null in the first.
    pub interval_seconds: Option<f64>,
    pub classes: Vec<ClassRow>,
    /// Packets and bytes by `ww_status`.
    pub status: Vec<StatusRow>,
    /// Packets on which the model ran.
    pub inferred: u64,
    pub flows: FlowCounters,
    /// Of what is kept beside the flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregates: Option<FlowCounters>,
    pub events: EventCounters,
    /// Of a bank: packets to which each network said yes, of `inferred`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkRow>,
    /// Packets with their verdict in front; absent: the policy does not ask for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<MetadataCounters>,
    /// Packets that the deny list kept out, by origin: of an address that several deny, the one that denies it longest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<DeniedRow>,
    /// How far a second model on the same packets agrees; null if there is none.
    pub shadow: Option<Agreement>,
}

/// Counters of `metadata` in a policy.
#[derive(Debug, Default, Serialize)]
pub struct MetadataCounters {
    pub written: u64,
    /// Packets that passed without it, because the driver has no room.
    pub no_room: u64,
}

#[derive(Debug, Serialize)]
pub struct DeniedRow {
    pub origin: String,
    pub packets: u64,
}

#[derive(Debug, Serialize)]
pub struct NetworkRow {
    pub name: String,
    pub yes: u64,
}

#[derive(Debug, Serialize)]
pub struct ClassRow {
    pub name: String,
    pub action: String,
    /// What `wirewised mode` asked for it, while that lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedMode>,
    pub packets: u64,
    pub bytes: u64,
    pub packets_per_second: Option<f64>,
    pub bits_per_second: Option<f64>,
    /// Packets and bytes by outcome.
    pub outcomes: Map<String, Value>,
}

#[derive(Debug, Serialize)]
pub struct StatusRow {
    pub status: abi::Status,
    pub packets: u64,
    pub bytes: u64,
    pub packets_per_second: Option<f64>,
}

impl Statistics {
    /// before : an earlier reading, for rates.
    /// networks : of a bank.
    pub fn new(status: &Status, now: &Counters, before: Option<&Counters>, networks: &[String]) -> Self {
        let before = before.filter(|before| now.continues(before));
        let seconds =
            before.map(|before| now.at.duration_since(before.at).as_secs_f64()).filter(|s| *s > 0.0);
        let rate = |now: u64, before: Option<u64>| Some(now.saturating_sub(before?) as f64 / seconds?);
        let stats = &now.stats;
        let old = before.map(|before| &before.stats);
        let mode = status.describe_mode();
        let names = status.classes.iter();
        let names = names.map(|class| (class.name.clone(), class.action.clone(), class.asked));
        let classes = class_rows(stats, names, |id, count| {
            let old = old.map(|old| total(&old.class_outcome[id]));
            (
                rate(count.packets, old.map(|old| old.packets)),
                rate(count.bytes, old.map(|old| old.bytes)).map(|bytes| bytes * 8.0),
            )
        });
        let statuses =
            status_rows(stats, |index, packets| rate(packets, old.map(|old| old.status[index].packets)));
        Self {
            interface: status.interface.clone(),
            time: kernel::now(),
            attached: status.attached,
            mode,
            bundle: status.bundle.as_ref().map(|bundle| bundle.name.clone()),
            interval_seconds: seconds,
            classes,
            status: statuses,
            inferred: stats.inferred,
            flows: stats.into(),
            aggregates: FlowCounters::of_aggregates(stats),
            events: stats.into(),
            networks: networks
                .iter()
                .zip(stats.said_yes)
                .map(|(name, yes)| NetworkRow { name: name.clone(), yes })
                .collect(),
            metadata: None,
            denied: Vec::new(),
            shadow: status.shadow.clone(),
        }
    }
}

impl Statistics {
    /// The sum of several interfaces; `None` if their classes differ. all : their own statistics, without rates.
    pub fn total<'a>(all: &[Self], counters: impl IntoIterator<Item = &'a Counters>) -> Option<Self> {
        let first = all.first()?;
        let names = |of: &Self| of.classes.iter().map(|class| class.name.clone()).collect::<Vec<_>>();
        if all.iter().any(|other| names(other) != names(first)) {
            return None;
        }
        let same = |what: fn(&Self) -> Option<String>, mixed: &str| {
            let one = what(first);
            if all.iter().all(|other| what(other) == one) { one } else { Some(mixed.to_string()) }
        };
        let stats = Counters::sum(counters).stats;
        let classes = first.classes.iter().enumerate().map(|(id, class)| {
            let differs = all.iter().any(|other| other.classes[id].action != class.action);
            (class.name.clone(), if differs { "(differs)".to_string() } else { class.action.clone() }, None)
        });
        let metadata = all.iter().filter_map(|one| one.metadata.as_ref()).fold(None, |sum, one| {
            let sum: MetadataCounters = sum.unwrap_or_default();
            let (written, no_room) = (sum.written + one.written, sum.no_room + one.no_room);
            Some(MetadataCounters { written, no_room })
        });
        let mut denied = BTreeMap::new();
        for row in all.iter().flat_map(|one| &one.denied) {
            *denied.entry(row.origin.clone()).or_default() += row.packets;
        }
        let network =
            |(id, row): (usize, &NetworkRow)| NetworkRow { name: row.name.clone(), yes: stats.said_yes[id] };
        Some(Self {
            interface: all.iter().map(|one| one.interface.as_str()).collect::<Vec<_>>().join(", "),
            time: kernel::now(),
            attached: all.iter().all(|one| one.attached),
            mode: same(|one| Some(one.mode.clone()), "(differs)").unwrap_or_default(),
            bundle: same(|one| one.bundle.clone(), "(differs)"),
            interval_seconds: None,
            classes: class_rows(&stats, classes, |_, _| (None, None)),
            status: status_rows(&stats, |_, _| None),
            inferred: stats.inferred,
            flows: (&stats).into(),
            aggregates: FlowCounters::of_aggregates(&stats),
            events: (&stats).into(),
            networks: first.networks.iter().enumerate().map(network).collect(),
            metadata,
            denied: denied.into_iter().map(|(origin, packets)| DeniedRow { origin, packets }).collect(),
            shadow: None,
        })
    }
}

/// classes : name, action, and its own mode, by class id. rates : packets and bits per second of a class.
pub fn class_rows(
    stats: &Stats,
    classes: impl Iterator<Item = (String, String, Option<AskedMode>)>,
    rates: impl Fn(usize, Counter) -> (Option<f64>, Option<f64>),
) -> Vec<ClassRow> {
    let row = |(id, (name, action, asked)): (usize, (String, String, Option<AskedMode>))| {
        let total = total(&stats.class_outcome[id]);
        let (packets_per_second, bits_per_second) = rates(id, total);
        let outcomes = Outcome::ALL.iter().zip(&stats.class_outcome[id]).map(|(outcome, count)| {
            (outcome.to_string(), json!({"packets": count.packets, "bytes": count.bytes}))
        });
        let outcomes = outcomes.collect();
        ClassRow {
            name,
            action,
            asked,
            packets: total.packets,
            bytes: total.bytes,
            packets_per_second,
            bits_per_second,
            outcomes,
        }
    };
    classes.enumerate().map(row).collect()
}

pub fn status_rows(stats: &Stats, rate: impl Fn(usize, u64) -> Option<f64>) -> Vec<StatusRow> {
    let row = |(index, status): (usize, &abi::Status)| {
        let Counter { packets, bytes } = stats.status[index];
        StatusRow { status: *status, packets, bytes, packets_per_second: rate(index, packets) }
    };
    abi::Status::ALL.iter().enumerate().map(row).collect()
}

impl ClassRow {
    pub fn packets_of(&self, outcome: Outcome) -> u64 {
        self.outcomes.get(outcome.name()).and_then(|count| count["packets"].as_u64()).unwrap_or(0)
    }

    /// Whether something happened to its packets, or would have.
    pub fn is_acted_on(&self) -> bool {
        Outcome::ALL.iter().any(|outcome| *outcome != Outcome::Pass && self.packets_of(*outcome) > 0)
    }
}
