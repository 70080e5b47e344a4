// SPDX-License-Identifier: Apache-2.0
//! Events on standard output, one a line.

use crate::error::{Error, Result};
use crate::reading::events::{Answers, Event, Listener};
use crate::text::output::Lines;
use crate::text::units::thousands;
use crate::views::flow_key::end;
use crate::views::terminal::{self, wrapped};

/// Writes each event.
pub struct Printer {
    lines: Lines,
    json: bool,
}

impl Printer {
    /// json : one object a line, else words for people.
    pub fn new(json: bool) -> Self {
        Self { lines: Lines::new(), json }
    }
}

impl Listener for Printer {
    fn event(&mut self, event: &Event) -> Result<()> {
        let json = || serde_json::to_string(event).map_err(|error| Error::other(format!("JSON: {error}")));
        self.lines.block(&if self.json { json()? } else { wrapped(&describe(event), terminal::width(), 2) })
    }

    fn caught_up(&mut self) -> Result<()> {
        self.lines.flush()
    }
}

/// Says on standard error what was missed.
pub struct GapWarner;

impl Listener for GapWarner {
    fn event(&mut self, _event: &Event) -> Result<()> {
        Ok(())
    }

    fn missed(&mut self, events: u64) -> Result<()> {
        eprintln!("warning: {events} events were overwritten before they were read");
        Ok(())
    }
}

fn describe(event: &Event) -> String {
    let (flow, said) = (&event.flow, &event.wirewise);
    let answers = said.answers.as_ref().map(described).unwrap_or_default();
    let count = said.count.map_or_else(String::new, |count| format!(", one of {}", thousands(count)));
    format!(
        "{}  {:<11} {}{answers}  {} > {} {}  packet {} of its flow, {} bytes{count}",
        event.timestamp,
        said.happened(),
        said.class,
        end((flow.src_ip, flow.src_port)),
        end((flow.dest_ip, flow.dest_port)),
        flow.proto.as_deref().unwrap_or_default(),
        said.packets,
        said.length
    )
}

/// `+` of networks that say yes now, `-` of those that do not any more.
fn described(answers: &Answers) -> String {
    let began = answers.began.iter().map(|name| format!(" +{name}"));
    began.chain(answers.ended.iter().map(|name| format!(" -{name}"))).collect()
}
