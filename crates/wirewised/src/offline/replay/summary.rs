// SPDX-License-Identifier: Apache-2.0
//! What a replay says at its end.

use serde::Serialize;
use serde_json::{Map, Value};

use super::Totals;
use crate::abi::{self, Mode};
use crate::offline::engine_run::Trust;
use crate::policy::Policy;
use crate::reading::counters::FlowCounters;
use crate::reading::statistics::{ClassRow, StatusRow, class_rows, status_rows};
use crate::text::units::{format_count, thousands};
use crate::views::stats;

#[derive(Debug, Serialize)]
pub struct ReplaySummary {
    pub plane: &'static str,
    pub bundle: String,
    pub mode: Mode,
    pub captures: Vec<String>,
    pub workers: usize,
    pub engine: Trust,
    pub load_ms: f64,
    pub packets: u64,
    pub passed: u64,
    pub dropped: u64,
    /// To another interface, or back.
    pub elsewhere: u64,
    /// Packets that could not be handed on.
    pub skipped: u64,
    /// Of the captures.
    pub first_ns: u64,
    pub last_ns: u64,
    /// Of the run.
    pub seconds: f64,
    pub packets_per_second: f64,
    pub classes: Vec<ClassRow>,
    pub status: Vec<StatusRow>,
    /// Packets on which the model ran.
    pub inferred: u64,
    pub flows: FlowCounters,
    /// Of what is kept beside the flows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregates: Option<FlowCounters>,
    pub written: Map<String, Value>,
    pub warnings: Vec<String>,
}

impl ReplaySummary {
    /// Classes, statuses and flows from the counters; the rest is the caller's to fill.
    pub fn new(stats: &abi::Stats, policy: &Policy, totals: &Totals, trust: Trust) -> Self {
        let classes = policy.classes.iter().zip(&policy.actions);
        let classes = classes.map(|(class, action)| (class.clone(), action.to_string(), None));
        Self {
            plane: "replay",
            bundle: String::new(),
            mode: Mode::Observe,
            captures: Vec::new(),
            workers: 1,
            engine: trust,
            load_ms: 0.0,
            packets: totals.packets,
            passed: totals.passed,
            dropped: totals.dropped,
            elsewhere: totals.elsewhere,
            skipped: totals.skipped,
            first_ns: totals.first_ns,
            last_ns: totals.last_ns,
            seconds: 0.0,
            packets_per_second: 0.0,
            classes: class_rows(stats, classes, |_, _| (None, None)),
            status: status_rows(stats, |_, _| None),
            inferred: stats.inferred,
            flows: stats.into(),
            aggregates: FlowCounters::of_aggregates(stats),
            written: Map::new(),
            warnings: totals.warnings.clone(),
        }
    }

    pub fn print(&self) {
        let span = self.last_ns.saturating_sub(self.first_ns) as f64 / 1e9;
        println!(
            "replay  {}  mode {}  {} packets over {span:.3} s of captured time",
            self.bundle,
            self.mode,
            thousands(self.packets)
        );
        stats::class_table(&self.classes, false).print();
        println!();
        let mut counters: Vec<(&'static str, u64)> = vec![("inferred", self.inferred)];
        counters.extend(stats::occurred(&self.status));
        counters.extend(self.flows.counters());
        counters.extend(self.aggregates.iter().flat_map(FlowCounters::counters_of_aggregates));
        counters.extend([("packets passed", self.passed), ("packets dropped", self.dropped)]);
        if self.elsewhere > 0 {
            counters.push(("packets sent elsewhere", self.elsewhere));
        }
        if self.skipped > 0 {
            counters.push(("packets skipped", self.skipped));
        }
        stats::counter_table(&counters).print_rows();
        println!();
        println!(
            "{:.2} s, {}packets/s, {} worker{}, program {} ({:.0} ms)",
            self.seconds,
            format_count(self.packets_per_second) + " ",
            self.workers,
            if self.workers == 1 { "" } else { "s" },
            self.engine.name(),
            self.load_ms
        );
        for (what, path) in &self.written {
            println!("{what} written to {}", path.as_str().unwrap_or_default());
        }
    }
}
