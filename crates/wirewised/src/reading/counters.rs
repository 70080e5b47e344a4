// SPDX-License-Identifier: Apache-2.0
//! What the data path counts: read, and summed over CPUs.

use std::time::Instant;

use bytemuck::Zeroable;
use libbpf_rs::{MapCore, MapHandle};
use serde::Serialize;

use crate::abi::maps::PER_CPU;
use crate::abi::{self, Counter, Stats};
use crate::error::{Error, Result};
use crate::object::mapped::MappedArray;
use crate::object::other_layout;

/// One reading, summed over CPUs.
#[derive(Debug, Clone)]
pub struct Counters {
    pub at: Instant,
    pub stats: Stats,
    /// The map they are from: another one starts again from zero.
    map_id: u32,
}

impl Counters {
    /// map : `ww_cpu`.
    pub fn read(map: &MapHandle) -> Result<Self> {
        let own = MappedArray::per_cpu(map)?;
        let mut sum = Stats::zeroed();
        for cpu in 0..own.entries() {
            add(&mut sum, &own.read(cpu).ok_or_else(|| other_layout(PER_CPU))?);
        }
        count_classified(&mut sum);
        let info = map.info().map_err(|error| Error::other(format!("{PER_CPU}: {error}")))?;
        Ok(Self { at: Instant::now(), stats: sum, map_id: info.info.id })
    }

    /// Those of several interfaces together, which count on from no other reading.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Stats::zeroed();
        all.into_iter().for_each(|one| add(&mut sum, &one.stats));
        Self { at: Instant::now(), stats: sum, map_id: 0 }
    }

    /// Whether both count on from the same zero.
    pub fn continues(&self, before: &Self) -> bool {
        self.map_id == before.map_id
    }
}

/// The data path leaves this sum to its readers.
pub fn count_classified(stats: &mut Stats) {
    stats.status[abi::Status::Classified as usize] = total(stats.class_outcome.iter().flatten());
}

/// Counters of one more CPU.
pub fn add(sum: &mut Stats, more: &Stats) {
    // All members are u64 counters, except for the times of rate limits, which nobody reads.
    let words = bytemuck::bytes_of_mut(sum);
    let words: &mut [u64] = bytemuck::cast_slice_mut(words);
    let more: &[u64] = bytemuck::cast_slice(bytemuck::bytes_of(more));
    for (word, more) in words.iter_mut().zip(more) {
        *word = word.wrapping_add(*more);
    }
}

pub fn total<'a>(outcomes: impl IntoIterator<Item = &'a Counter>) -> Counter {
    outcomes.into_iter().fold(Counter::default(), |sum, count| Counter {
        packets: sum.packets.wrapping_add(count.packets),
        bytes: sum.bytes.wrapping_add(count.bytes),
    })
}

/// Entries begun in the tables of flows, or of aggregates, by where they came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct FlowCounters {
    pub new: u64,
    pub expired: u64,
    pub evicted: u64,
    pub refused: u64,
    /// Packets judged like those of refused entries, as another CPU held the entry for too long (shared tables).
    pub missed: u64,
}

impl From<&Stats> for FlowCounters {
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

impl FlowCounters {
    /// Of the tables beside the flows'; `None`: the program has none, or nothing met them.
    pub fn of_aggregates(stats: &Stats) -> Option<Self> {
        let counters = Self {
            new: stats.aggregates_new,
            expired: stats.aggregates_expired,
            evicted: stats.aggregates_evicted,
            refused: stats.aggregates_refused,
            missed: stats.aggregates_missed,
        };
        (counters.sum() + counters.missed > 0).then_some(counters)
    }

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

    /// Likewise, of aggregates.
    pub fn counters_of_aggregates(&self) -> [(&'static str, u64); 5] {
        let names = [
            "aggregates new",
            "aggregates expired",
            "aggregates evicted",
            "aggregates refused",
            "aggregates missed",
        ];
        let mut named = self.counters();
        for ((name, _), of_aggregates) in named.iter_mut().zip(names) {
            *name = of_aggregates;
        }
        named
    }
}

#[derive(Debug, Serialize)]
pub struct EventCounters {
    pub sent: u64,
    pub limited: u64,
}

impl From<&Stats> for EventCounters {
    fn from(stats: &Stats) -> Self {
        Self { sent: stats.events_sent, limited: stats.events_limited }
    }
}
