// SPDX-License-Identifier: Apache-2.0
//! The counters of an attachment: read, summed over CPUs, and compared with the reading before.

use std::time::Instant;

use bytemuck::Zeroable;
use libbpf_rs::MapCore;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::abi::{self, Counter, Outcome, Stats};
use crate::agreement::Agreement;
use crate::attachment::{Attachment, CPU_MAP};
use crate::error::{Error, Result};
use crate::mapped::MappedArray;
use crate::object;
use crate::status;
use crate::units::format_count;

/// One reading.
#[derive(Debug, Clone)]
pub struct Reading {
    pub at: Instant,
    pub stats: Stats,
    /// The map they are from: another one starts again from zero.
    map_id: u32,
}

impl Reading {
    pub fn take(attachment: &Attachment) -> Result<Self> {
        let map = attachment.map(CPU_MAP)?;
        let own = MappedArray::per_cpu(&map)?;
        let mut sum = Stats::zeroed();
        for cpu in 0..own.entries() {
            add(&mut sum, &own.read(cpu).ok_or_else(|| object::other_layout(CPU_MAP))?);
        }
        count_classified(&mut sum);
        let info = map.info().map_err(|error| Error::other(format!("{CPU_MAP}: {error}")))?;
        Ok(Self { at: Instant::now(), stats: sum, map_id: info.info.id })
    }
}

/// The data path leaves this sum to its readers.
pub fn count_classified(stats: &mut Stats) {
    stats.status[abi::Status::Classified as usize] = total(stats.class_outcome.iter().flatten());
}

/// Counters of one more CPU.
pub fn add(sum: &mut Stats, more: &Stats) {
    // All members are u64 counters, but for event_tat_ns, which nobody reads.
    let words = bytemuck::bytes_of_mut(sum);
    let words: &mut [u64] = bytemuck::cast_slice_mut(words);
    let more: &[u64] = bytemuck::cast_slice(bytemuck::bytes_of(more));
    for (word, more) in words.iter_mut().zip(more) {
        *word = word.wrapping_add(*more);
    }
}

#[derive(Debug, Serialize)]
pub struct Report {
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
    pub flows: Flows,
    pub events: Events,
    /// How far a second model on the same packets agrees; null if there is none.
    pub shadow: Option<Agreement>,
}

#[derive(Debug, Serialize)]
pub struct ClassRow {
    pub name: String,
    pub action: String,
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

/// Flows begun, by where their entry came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Flows {
    pub new: u64,
    pub expired: u64,
    pub evicted: u64,
    pub refused: u64,
    /// Packets judged like those of refused flows, as another CPU held the entry for too long (shared tables).
    pub missed: u64,
}

impl From<&Stats> for Flows {
    fn from(stats: &Stats) -> Self {
        Self {
            new: stats.flows_new,
            expired: stats.flows_expired,
            evicted: stats.flows_evicted,
            refused: stats.flows_refused,
            missed: stats.flows_missed,
        }
    }
}

impl Flows {
    /// Those begun after an earlier reading.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            new: self.new - before.new,
            expired: self.expired - before.expired,
            evicted: self.evicted - before.evicted,
            refused: self.refused - before.refused,
            missed: self.missed - before.missed,
        }
    }

    pub fn sum(&self) -> u64 {
        self.new + self.expired + self.evicted + self.refused
    }

    /// For a table of counters: name, value.
    pub fn counters(&self) -> [(&'static str, u64); 5] {
        [
            ("flows new", self.new),
            ("flows expired", self.expired),
            ("flows evicted", self.evicted),
            ("flows refused", self.refused),
            ("flows missed", self.missed),
        ]
    }
}

#[derive(Debug, Serialize)]
pub struct Events {
    pub sent: u64,
    pub limited: u64,
}

pub fn report(attachment: &Attachment, now: &Reading, before: Option<&Reading>) -> Result<Report> {
    let before = before.filter(|before| before.map_id == now.map_id);
    let seconds = before.map(|before| now.at.duration_since(before.at).as_secs_f64()).filter(|s| *s > 0.0);
    let rate = |now: u64, before: Option<u64>| Some(now.saturating_sub(before?) as f64 / seconds?);
    let stats = &now.stats;
    let old = before.map(|before| &before.stats);
    let names = status::classes(attachment)?.into_iter().map(|class| (class.name, class.action));
    let classes = class_rows(stats, names, |id, count| {
        let old = old.map(|old| total(&old.class_outcome[id]));
        (
            rate(count.packets, old.map(|old| old.packets)),
            rate(count.bytes, old.map(|old| old.bytes)).map(|bytes| bytes * 8.0),
        )
    });
    let statuses =
        status_rows(stats, |index, packets| rate(packets, old.map(|old| old.status[index].packets)));
    let status = status::of(attachment)?;
    Ok(Report {
        interface: attachment.interface.clone(),
        time: crate::meta::now(),
        attached: status.attached,
        mode: status.describe_mode(),
        bundle: attachment.meta.as_ref().map(|meta| meta.bundle.name.clone()),
        interval_seconds: seconds,
        classes,
        status: statuses,
        inferred: stats.inferred,
        flows: stats.into(),
        events: Events { sent: stats.events_sent, limited: stats.events_limited },
        shadow: Agreement::read(attachment)?,
    })
}

/// classes : name and action, by class id. rates : packets and bits a second of a class.
pub fn class_rows(
    stats: &Stats,
    classes: impl Iterator<Item = (String, String)>,
    rates: impl Fn(usize, Counter) -> (Option<f64>, Option<f64>),
) -> Vec<ClassRow> {
    let row = |(id, (name, action)): (usize, (String, String))| {
        let total = total(&stats.class_outcome[id]);
        let (packets_per_second, bits_per_second) = rates(id, total);
        let outcomes = Outcome::ALL.iter().zip(&stats.class_outcome[id]).map(|(outcome, count)| {
            (outcome.to_string(), json!({"packets": count.packets, "bytes": count.bytes}))
        });
        let outcomes = outcomes.collect();
        ClassRow {
            name,
            action,
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

fn total<'a>(outcomes: impl IntoIterator<Item = &'a Counter>) -> Counter {
    outcomes.into_iter().fold(Counter::default(), |sum, count| Counter {
        packets: sum.packets.wrapping_add(count.packets),
        bytes: sum.bytes.wrapping_add(count.bytes),
    })
}

impl Report {
    pub const CLASS_HEADER: [&str; 10] = [
        "class",
        "action",
        "packets",
        "bytes",
        "packet/s",
        "bit/s",
        "drop",
        "limited",
        "would drop",
        "would limit",
    ];

    /// The classes as the cells of a table.
    pub fn class_cells(&self) -> Vec<[String; 10]> {
        let rate = |rate: Option<f64>| rate.map_or("-".to_string(), format_count);
        let cells = |row: &ClassRow| {
            let outcome = |outcome: Outcome| row.outcomes[outcome.name()]["packets"].to_string();
            [
                row.name.clone(),
                row.action.clone(),
                row.packets.to_string(),
                row.bytes.to_string(),
                rate(row.packets_per_second),
                rate(row.bits_per_second),
                outcome(Outcome::Drop),
                outcome(Outcome::Limited),
                outcome(Outcome::WouldDrop),
                outcome(Outcome::WouldLimit),
            ]
        };
        self.classes.iter().map(cells).collect()
    }

    /// The other counters, without the reasons that never occurred: name, value.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut counters = vec![("inferred", self.inferred)];
        let occurred =
            self.status.iter().filter(|row| row.packets > 0 || row.status == abi::Status::Classified);
        counters.extend(occurred.map(|row| (row.status.name(), row.packets)));
        counters.extend(self.flows.counters());
        counters.extend([("events sent", self.events.sent), ("events limited", self.events.limited)]);
        if let Some(shadow) = &self.shadow {
            counters.extend([("shadow agrees", shadow.agree), ("shadow disagrees", shadow.disagree)]);
        }
        counters
    }

    pub fn title(&self) -> String {
        let bundle = self.bundle.as_deref().unwrap_or("unknown bundle");
        format!("{}  {bundle}  mode {}", self.interface, self.mode)
    }

    pub fn print(&self) {
        println!("{}  {}", self.title(), self.time);
        let header = Self::CLASS_HEADER.map(str::to_string);
        let rows: Vec<_> = std::iter::once(header).chain(self.class_cells()).collect();
        crate::table::print(&rows, 2);
        let counters: Vec<_> =
            self.counters().into_iter().map(|(name, value)| [name.to_string(), value.to_string()]).collect();
        println!();
        crate::table::print(&counters, 1);
        if let Some(shadow) = &self.shadow {
            println!();
            shadow.print();
        }
    }
}
