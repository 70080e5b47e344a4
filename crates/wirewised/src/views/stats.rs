// SPDX-License-Identifier: Apache-2.0
//! Counters as tables.

use std::borrow::Cow;

use crate::abi::{self, Outcome};
use crate::reading::counters::FlowCounters;
use crate::reading::statistics::{ClassRow, NetworkRow, Statistics, StatusRow};
use crate::reading::status::describe_action;
use crate::views::agreement;
use crate::views::fit::{Cell, Column, Need, Table};
use crate::views::terminal;

/// Classes as a table. rates : with packets and bits a second, where packets still come.
pub fn class_table<'a>(classes: impl IntoIterator<Item = &'a ClassRow>, rates: bool) -> Table {
    // Beside rates there is no room for what passed; what did not is shown as soon as it occurs.
    let outcomes: Vec<_> =
        Outcome::ALL.iter().filter(|outcome| !rates || **outcome != Outcome::Pass).collect();
    let need = |outcome: Outcome| match outcome {
        Outcome::Pass => Need::Room(6),
        other => Need::Occurrence(other.code() as u8),
    };
    let mut columns: Vec<(Cow<'static, str>, Need)> = vec![
        ("class".into(), Need::Always),
        ("action".into(), Need::Room(7)),
        ("packets".into(), Need::Always),
        ("bytes".into(), Need::Room(9)),
    ];
    if rates {
        columns.extend([("packet/s".into(), Need::Room(6)), ("bit/s".into(), Need::Room(8))]);
    }
    columns.extend(outcomes.iter().map(|outcome| (outcome.title().into(), need(**outcome))));
    let row = |row: &ClassRow| {
        let mut cells = vec![
            Cell::words(&row.name),
            Cell::words(describe_action(&row.action, row.asked.as_ref())),
            Cell::count(row.packets),
            Cell::count(row.bytes),
        ];
        if rates {
            cells.extend([Cell::rate(row.packets_per_second), Cell::rate(row.bits_per_second)]);
        }
        cells.extend(outcomes.iter().map(|outcome| Cell::count(row.packets_of(**outcome))));
        cells
    };
    let columns = columns.into_iter().map(|(name, need)| Column { name, need }).collect();
    Table { columns, left: 2, rows: classes.into_iter().map(row).collect() }
}

/// Counters as a table of names and values.
pub fn counter_table(counters: &[(&'static str, u64)]) -> Table {
    let columns = ["", ""].map(|name| Column { name: name.into(), need: Need::Always }).to_vec();
    let rows = counters.iter().map(|(name, value)| vec![Cell::words(*name), Cell::count(*value)]).collect();
    Table { columns, left: 1, rows }
}

/// How often each network of a bank said yes.
fn network_table(statistics: &Statistics) -> Table {
    let columns = ["network", "yes", "of"].map(|name| Column { name: name.into(), need: Need::Always });
    let row = |row: &NetworkRow| {
        vec![Cell::words(&row.name), Cell::count(row.yes), Cell::count(statistics.inferred)]
    };
    Table { columns: columns.to_vec(), left: 1, rows: statistics.networks.iter().map(row).collect() }
}

/// The other counters, without the reasons that never occurred: name, value.
pub fn counters(statistics: &Statistics) -> Vec<(&'static str, u64)> {
    let mut counters = vec![("inferred", statistics.inferred)];
    counters.extend(occurred(&statistics.status));
    counters.extend(statistics.flows.counters());
    counters.extend(statistics.aggregates.iter().flat_map(FlowCounters::counters_of_aggregates));
    let events = &statistics.events;
    counters.extend([("events sent", events.sent), ("events limited", events.limited)]);
    if let Some(metadata) = &statistics.metadata {
        counters.extend([("metadata written", metadata.written), ("metadata, no room", metadata.no_room)]);
    }
    if let Some(shadow) = &statistics.shadow {
        counters.extend([("shadow agrees", shadow.agree), ("shadow disagrees", shadow.disagree)]);
    }
    counters
}

/// Why packets were or were not classified, as far as it occurred.
pub fn occurred(status: &[StatusRow]) -> impl Iterator<Item = (&'static str, u64)> {
    let occurred = status.iter().filter(|row| row.packets > 0 || row.status == abi::Status::Classified);
    occurred.map(|row| (row.status.name(), row.packets))
}

pub fn title(statistics: &Statistics) -> String {
    let bundle = statistics.bundle.as_deref().unwrap_or("unknown bundle");
    format!("{}  {bundle}  mode {}", statistics.interface, statistics.mode)
}

pub fn print(statistics: &Statistics) {
    terminal::print_wrapped(&format!("{}  {}", title(statistics), statistics.time), 2);
    class_table(&statistics.classes, true).print();
    println!();
    counter_table(&counters(statistics)).print_rows();
    if !statistics.networks.is_empty() {
        println!();
        network_table(statistics).print();
    }
    if let Some(shadow) = &statistics.shadow {
        println!();
        agreement::print(shadow);
    }
}
