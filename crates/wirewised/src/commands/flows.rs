// SPDX-License-Identifier: Apache-2.0
//! `wirewised flows`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use libbpf_rs::MapCore;
use serde_json::{Map, Value, json};

use crate::abi;
use crate::attachment::{Attachment, AttachmentArgs};
use crate::error::{Error, Result};
use crate::flow_table::{Elements, Flow, FlowKey, FlowTable, TABLES};
use crate::input;
use crate::kernel;
use crate::manifest::{ClockName, Flow as LayoutInfo, Sharing};
use crate::mapped::MappedArray;
use crate::table;
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

    /// Which come first
    #[arg(long, value_enum, default_value_t = Sort::Newest)]
    sort: Sort,

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
    if let Some(class) = &args.class {
        check_class(&attachment, class)?;
    }
    let now = kernel::monotonic_ns();
    let (found, flows) = collect(&attachment, args, now)?;
    let class_name = |flow: &Flow| flow.class_id.map(|id| attachment.class_name(id));
    if args.json {
        let object = |flow: &Flow| {
            let mut value = serde_json::to_value(flow).unwrap_or_default();
            value["class"] = json!(class_name(flow));
            value["age_seconds"] = json!(now.saturating_sub(flow.last_seen_ns) as f64 / 1e9);
            value
        };
        let flows: Vec<Value> = flows.iter().map(object).collect();
        return input::print_json(
            &json!({ "interface": attachment.interface, "found": found, "flows": flows }),
        );
    }
    let header = ["flow", "class", "packets", "last packet", if args.state { "state" } else { "" }];
    let header = header.map(str::to_string);
    let row = |flow: &Flow| {
        [
            describe(flow),
            class_name(flow).unwrap_or_else(|| "-".to_string()),
            flow.packets.to_string(),
            format!("{} ago", format_age(now.saturating_sub(flow.last_seen_ns))),
            if args.state { describe_state(&flow.state) } else { String::new() },
        ]
    };
    let rows: Vec<_> = std::iter::once(header).chain(flows.iter().map(row)).collect();
    table::print(&rows, 5);
    if flows.len() < found {
        println!("{} more; --limit 0 shows all", found - flows.len());
    }
    Ok(())
}

fn check_class(attachment: &Attachment, class: &str) -> Result<()> {
    let known: Vec<_> = (0..attachment.classes()).map(|id| attachment.class_name(id as u8)).collect();
    if known.iter().any(|name| name == class) {
        return Ok(());
    }
    Err(Error::input(format!("unknown class '{class}'; the bundle has: {}", known.join(", "))))
}

/// How many flows there are, and the first of them in the order asked for. Never holds more than those.
fn collect(attachment: &Attachment, args: &Args, now: u64) -> Result<(usize, Vec<Flow>)> {
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let verdict = attachment.config()?.map_or(abi::SLOT_VERDICT, |config| config.verdict as u8);
    let shards = attachment.shards()?;
    let mut found = 0;
    let mut first: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut flows = std::collections::HashMap::new();
    for (ip_version, name) in TABLES {
        let Some(map) = attachment.optional_map(name)? else { continue };
        let layout = match &attachment.meta {
            Some(meta) => meta.flow.clone(),
            None => unknown_layout(map.value_size() / abi::WAYS, attachment.sharing()?),
        };
        let elements = Elements::Mapped(MappedArray::new(&map)?);
        let tables = if layout.sharing == Sharing::Shared { 1 } else { shards };
        let table = FlowTable::new(elements, ip_version, &layout, map.max_entries() / tables)?;
        let table = table.with_verdict(verdict);
        for flow in table.flows() {
            let idle = now.saturating_sub(flow.last_seen_ns) > layout.idle_timeout_ns;
            let class = flow.class_id.map(|id| attachment.class_name(id));
            if (idle && !args.all) || (args.class.is_some() && args.class != class) {
                continue;
            }
            let rank = match args.sort {
                Sort::Newest => flow.last_seen_ns,
                Sort::Packets => flow.packets.into(),
            };
            first.push(Reverse((rank, found)));
            flows.insert(found, flow);
            found += 1;
            if first.len() > limit
                && let Some(Reverse((_, last))) = first.pop()
            {
                flows.remove(&last);
            }
        }
    }
    let order = first.into_sorted_vec();
    Ok((found, order.into_iter().filter_map(|Reverse((_, index))| flows.remove(&index)).collect()))
}

/// For entries of which nobody remembers more than their size.
fn unknown_layout(entry_size: u32, sharing: Sharing) -> LayoutInfo {
    LayoutInfo {
        key: String::new(),
        table_size: 0,
        sharing,
        claim: None,
        idle_timeout_ns: u64::MAX,
        grace_ns: 0,
        proven_packets: 0,
        clock: ClockName::Coarse,
        entry4_size: entry_size,
        entry6_size: entry_size,
        layout_digest: String::new(),
        state: Vec::new(),
    }
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
