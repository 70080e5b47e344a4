// SPDX-License-Identifier: Apache-2.0
//! `wirewised flows`.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::attachment::{Attachment, AttachmentArgs};
use crate::error::{Error, Result};
use crate::flow_listing::{Listing, Place};
use crate::flow_table::{Flow, FlowKey};
use crate::kernel;
use crate::output::Lines;
use crate::table::Columns;
use crate::units::format_age;

const EXAMPLES: &str = "\
Examples:
  wirewised flows                          the 20 flows with the newest packets
  wirewised flows --sort packets --limit 5
  wirewised flows --class attack --state   with the state the features are computed from";

/// List the flows the program keeps: key, packets, age, class, state.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: AttachmentArgs,

    /// At most so many flows; 0: all
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,

    /// Which come first [default: newest; with --limit 0 the order of the table, which needs no memory]
    #[arg(long, value_enum)]
    sort: Option<Sort>,

    /// Only flows whose last verdict is this class
    #[arg(long, value_name = "NAME")]
    class: Option<String>,

    /// Also show the state that the features are computed from (JSON always has it)
    #[arg(long)]
    state: bool,

    /// Also entries idle for longer than the idle timeout, which the next new flow may take
    #[arg(long)]
    all: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Sort {
    /// Flows with the newest packet
    Newest,
    /// Flows with the most packets
    Packets,
}

pub fn run(args: &Args) -> Result<()> {
    let attachment = args.which.find()?;
    let now = kernel::monotonic_ns();
    let class_id = args.class.as_ref().map(|class| class_id(&attachment, class)).transpose()?;
    let flows = Flows::open(&attachment, args, now, class_id)?;
    let view =
        View { now, names: (0..attachment.classes()).map(|id| attachment.class_name(id as u8)).collect() };
    if args.json {
        print_json(&attachment.interface, &flows, &view)
    } else {
        print(&flows, &view, args.state)
    }
}

/// The flows that were asked for, to be gone through any number of times.
struct Flows {
    listing: Listing,
    /// `None`: all, in the order of the tables.
    chosen: Option<(usize, Vec<Place>)>,
}

impl Flows {
    fn open(attachment: &Attachment, args: &Args, now: u64, class_id: Option<u8>) -> Result<Self> {
        let listing = Listing::open(attachment, now, args.all, class_id)?;
        let limit = if args.limit == 0 { usize::MAX } else { args.limit };
        let rank = |flow: &Flow| match args.sort {
            Some(Sort::Packets) => flow.packets.into(),
            _ => flow.last_seen_ns,
        };
        let sorted = args.limit != 0 || args.sort.is_some();
        let chosen = sorted.then(|| listing.first(limit, rank)).transpose()?;
        Ok(Self { listing, chosen })
    }

    fn each(&self, mut visit: impl FnMut(&Flow) -> Result<()>) -> Result<()> {
        match &self.chosen {
            None => self.listing.each(visit),
            Some((_, places)) => places
                .iter()
                .try_for_each(|place| self.listing.at(place)?.map_or(Ok(()), |flow| visit(&flow))),
        }
    }
}

/// What makes a flow an output.
struct View {
    now: u64,
    /// Of the classes.
    names: Vec<String>,
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    flow: &'a Flow,
    class: Option<&'a str>,
    age_seconds: f64,
}

impl View {
    fn class<'a>(&'a self, flow: &Flow) -> Option<&'a str> {
        flow.class_id.map(|id| self.names.get(usize::from(id)).map_or("unknown", String::as_str))
    }

    fn age(&self, flow: &Flow) -> u64 {
        self.now.saturating_sub(flow.last_seen_ns)
    }

    fn row(&self, flow: &Flow, state: bool) -> [String; 5] {
        [
            describe(flow),
            self.class(flow).unwrap_or("-").to_string(),
            flow.packets.to_string(),
            format!("{} ago", format_age(self.age(flow))),
            if state { describe_state(&flow.state) } else { String::new() },
        ]
    }
}

/// One object, a flow a line, written as it is found.
fn print_json(interface: &str, flows: &Flows, view: &View) -> Result<()> {
    let mut lines = Lines::new();
    lines.line(&format!("{{\n  \"interface\": {},\n  \"flows\": [", json!(interface)))?;
    let (mut shown, mut before) = (0, String::new());
    flows.each(|flow| {
        let line = Line { flow, class: view.class(flow), age_seconds: view.age(flow) as f64 / 1e9 };
        let text = serde_json::to_string(&line).map_err(|error| Error::other(format!("JSON: {error}")))?;
        if shown > 0 {
            lines.line(&format!("{before},"))?;
        }
        shown += 1;
        before = format!("    {text}");
        Ok(())
    })?;
    if shown > 0 {
        lines.line(&before)?;
    }
    let found = flows.chosen.as_ref().map_or(shown, |(found, _)| *found);
    lines.line(&format!("  ],\n  \"found\": {found}\n}}"))?;
    lines.flush()
}

/// Goes through the flows twice: columns are as wide as what stands in them.
fn print(flows: &Flows, view: &View, state: bool) -> Result<()> {
    let header = ["flow", "class", "packets", "last packet", if state { "state" } else { "" }];
    let header = header.map(str::to_string);
    let mut columns = Columns::default();
    columns.fit(&header);
    flows.each(|flow| {
        columns.fit(&view.row(flow, state));
        Ok(())
    })?;
    let mut lines = Lines::new();
    lines.line(&columns.line(&header, 5))?;
    let mut shown = 0;
    flows.each(|flow| {
        shown += 1;
        lines.line(&columns.line(&view.row(flow, state), 5))
    })?;
    if let Some((found, _)) = flows.chosen.as_ref().filter(|(found, _)| shown < *found) {
        lines.line(&format!("{} more; --limit 0 shows all", found - shown))?;
    }
    lines.flush()
}

fn class_id(attachment: &Attachment, class: &str) -> Result<u8> {
    let known: Vec<_> = (0..attachment.classes()).map(|id| attachment.class_name(id as u8)).collect();
    let id = known.iter().position(|name| name == class);
    id.map(|id| id as u8)
        .ok_or_else(|| Error::input(format!("unknown class '{class}'; the bundle has: {}", known.join(", "))))
}

/// The flow as its first packet had it: who began stands left.
fn describe(flow: &Flow) -> String {
    let key = &flow.key;
    let ends = [end(key.source, key.source_port), end(key.destination, key.destination_port)];
    let [from, to] = ends;
    let (from, to) = if flow.swapped { (to, from) } else { (from, to) };
    format!("{from} > {to} {}", protocol_name(key))
}

/// An address with its port; `*` for what the flow key has not.
pub fn end(address: std::net::IpAddr, port: u16) -> String {
    let text = match address {
        address if address.is_unspecified() => "*".to_string(),
        std::net::IpAddr::V6(address) if port != 0 => format!("[{address}]"),
        address => address.to_string(),
    };
    if port == 0 { text } else { format!("{text}:{port}") }
}

/// Assigned protocol numbers (IANA) of what the parser knows.
pub fn protocol_name(key: &FlowKey) -> String {
    let name = match key.protocol {
        0 => "",
        1 => "icmp",
        6 => "tcp",
        17 => "udp",
        33 => "dccp",
        58 => "icmpv6",
        132 => "sctp",
        136 => "udplite",
        number => return format!("protocol {number}"),
    };
    name.to_string()
}

fn describe_state(state: &Map<String, Value>) -> String {
    let fields: Vec<_> = state.iter().map(|(name, value)| format!("{name}={value}")).collect();
    fields.join(" ")
}
