// SPDX-License-Identifier: Apache-2.0
//! `wirewised events`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::abi::{Action, Event, Key4, Outcome};
use crate::attachment::{Attachment, AttachmentArgs};
use crate::commands::flows::{end, protocol_name};
use crate::error::{Error, Result};
use crate::event_ring::EventRing;
use crate::flow_table::FlowKey;
use crate::kernel;
use crate::output::Lines;
use crate::watch::Stop;

const EXAMPLES: &str = "\
Examples:
  wirewised events                     the newest that are kept, 2048 of each CPU, then ends
  wirewised events --follow            goes on until Ctrl-C
  wirewised events --follow --json | jq 'select(.outcome == \"drop\") | .source'
There is an event for a packet whose class is dropped, limited or counted, up to the rate `events` of the policy
(`stats` counts those over it). Reading takes nothing away, so any number of readers may look.";

/// Show packets of classes that do not simply pass, one a line, newest last.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: AttachmentArgs,

    /// Wait for more
    #[arg(long, short)]
    follow: bool,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Line {
    time: String,
    class: String,
    action: Option<Action>,
    outcome: Option<Outcome>,
    #[serde(flatten)]
    key: FlowKey,
    /// Of the flow so far.
    packets: u32,
    /// IP length of the packet.
    length: u32,
}

/// How soon a new event is shown.
const PAUSE: Duration = Duration::from_millis(50);

pub fn run(args: &Args) -> Result<()> {
    let attachment = args.which.find()?;
    let stop = Stop::on_signals()?;
    let mut ring = EventRing::open(&attachment)?;
    let mut lines = Lines::new();
    loop {
        let missed = ring.missed();
        let events = ring.read();
        if ring.missed() > missed {
            eprintln!("warning: {} events were overwritten before they were read", ring.missed() - missed);
        }
        // Each time anew: the wall clock may be set meanwhile.
        let epoch = monotonic_epoch();
        for event in &events {
            let line = line(&attachment, event, epoch);
            let json =
                || serde_json::to_string(&line).map_err(|error| Error::other(format!("JSON: {error}")));
            lines.line(&if args.json { json()? } else { line.describe() })?;
        }
        lines.flush()?;
        if !args.follow || !stop.sleep(PAUSE) {
            return Ok(());
        }
    }
}

fn line(attachment: &Attachment, event: &Event, epoch: SystemTime) -> Line {
    let key = if event.ip_version == 4 {
        let first = |address: [u8; 16]| [address[0], address[1], address[2], address[3]];
        FlowKey::from(&Key4 {
            source: first(event.key.source),
            destination: first(event.key.destination),
            source_port: event.key.source_port,
            destination_port: event.key.destination_port,
            protocol: event.key.protocol,
            reserved: event.key.reserved,
        })
    } else {
        FlowKey::from(&event.key)
    };
    Line {
        time: humantime::format_rfc3339_millis(epoch + Duration::from_nanos(event.time_ns)).to_string(),
        class: attachment.class_name(event.class_id),
        action: Action::from_code(event.action.into()),
        outcome: Outcome::from_code(event.outcome.into()),
        key,
        packets: event.packets,
        length: event.length,
    }
}

/// When CLOCK_MONOTONIC, which events carry, was zero.
fn monotonic_epoch() -> SystemTime {
    SystemTime::now().checked_sub(Duration::from_nanos(kernel::monotonic_ns())).unwrap_or(UNIX_EPOCH)
}

impl Line {
    fn describe(&self) -> String {
        let key = &self.key;
        let outcome = self.outcome.map_or("unknown", Outcome::name);
        format!(
            "{}  {:<11} {}  {} > {} {}  packet {} of its flow, {} bytes",
            self.time,
            outcome,
            self.class,
            end(key.source, key.source_port),
            end(key.destination, key.destination_port),
            protocol_name(key),
            self.packets,
            self.length
        )
    }
}
