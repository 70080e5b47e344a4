// SPDX-License-Identifier: Apache-2.0
//! Flows as a table for people, or as JSON. Neither is ever held whole.

use serde_json::{Map, Value, json};

use crate::error::{Error, Result};
use crate::object::flow_table::{Flow, FlowValue};
use crate::reading::flows::{Flows, FoundFlow};
use crate::text::output::Lines;
use crate::text::table::Columns;
use crate::text::units::format_age;
use crate::views::flow_key::end;
use crate::views::terminal;

/// How to show what is known of a flow beside its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum State {
    /// With names and units, as of its last packet; the packet's own values are not kept
    Features,
    /// The variables of the program
    Raw,
}

/// Columns of words: all.
const LEFT: usize = 5;

/// One object, a flow a line, written as it is found.
pub fn print_json(interface: &str, flows: &Flows) -> Result<()> {
    let mut lines = Lines::new();
    lines.block(&format!("{{\n  \"interface\": {},\n  \"flows\": [", json!(interface)))?;
    let (mut shown, mut before) = (0, String::new());
    flows.each(|found| {
        let text = serde_json::to_string(found).map_err(|error| Error::other(format!("JSON: {error}")))?;
        if shown > 0 {
            lines.block(&format!("{before},"))?;
        }
        shown += 1;
        before = format!("    {text}");
        Ok(())
    })?;
    if shown > 0 {
        lines.block(&before)?;
    }
    lines.block(&format!("  ],\n  \"found\": {}\n}}", flows.count().unwrap_or(shown)))?;
    lines.flush()
}

/// Goes through the flows twice: columns are as wide as what stands in them. Where the terminal is narrower than that, a flow takes
/// several lines, each of which says what it shows.
pub fn print(flows: &Flows, state: Option<State>) -> Result<()> {
    let last = match state {
        None => "",
        Some(State::Features) => "features",
        Some(State::Raw) => "state",
    };
    let header = ["flow", "class", "packets", "last packet", last];
    let header = header.map(str::to_string);
    let mut columns = Columns::default();
    columns.fit(&header);
    flows.each(|found| {
        columns.fit(&row(found, state));
        Ok(())
    })?;
    let width = terminal::width();
    let too_wide = width.is_some_and(|width| columns.width() > width);
    let mut lines = Lines::new();
    if !too_wide {
        lines.line(&columns.line(&header, LEFT))?;
    }
    let mut shown = 0;
    flows.each(|found| {
        shown += 1;
        let row = row(found, state);
        if too_wide {
            lines.block(&terminal::wrapped(&in_words(&row), width, 4))
        } else {
            lines.line(&columns.line(&row, LEFT))
        }
    })?;
    if let Some(count) = flows.count().filter(|count| shown < *count) {
        lines.line(&format!("{} more; --limit 0 shows all", count - shown))?;
    }
    lines.flush()
}

fn row(found: &FoundFlow<'_>, state: Option<State>) -> [String; 5] {
    [
        describe(found.flow),
        found.class.unwrap_or("-").to_string(),
        found.flow.packets.to_string(),
        format!("{} ago", format_age(found.age_ns)),
        match state {
            None => String::new(),
            // A bundle that does not say what its state gives, or an agent of another version that attached it.
            Some(State::Features) if found.features.is_empty() => describe_state(&found.flow.state),
            Some(State::Features) => describe_features(&found.features),
            Some(State::Raw) => describe_state(&found.flow.state),
        },
    ]
}

/// A row where there is no room for columns.
fn in_words([flow, class, packets, age, state]: &[String; 5]) -> String {
    let words = format!("{flow}  {class}, {packets} packets, the last {age}");
    if state.is_empty() { words } else { format!("{words}; {state}") }
}

/// The flow as its first packet had it: who began stands left.
fn describe(flow: &Flow) -> String {
    let key = &flow.key;
    let [from, to] = key.ends().map(end);
    let (from, to) = if flow.swapped { (to, from) } else { (from, to) };
    let vlans = if key.vlans.is_none() { String::new() } else { format!(" vlan {}", key.vlans) };
    let tunnel = key.teid.map(|teid| format!(" teid {teid:#x}")).unwrap_or_default();
    format!("{from} > {to} {}{vlans}{tunnel}", key.protocol_name().unwrap_or_default())
}

fn describe_features(features: &[FlowValue<'_>]) -> String {
    let text = |feature: &FlowValue<'_>| {
        let digits = if feature.value.fract() == 0.0 { 0 } else { 4 };
        format!("{} {:.digits$} {}", feature.name, feature.value, feature.unit)
    };
    features.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn describe_state(state: &Map<String, Value>) -> String {
    let fields: Vec<_> = state.iter().map(|(name, value)| format!("{name}={value}")).collect();
    fields.join(" ")
}
