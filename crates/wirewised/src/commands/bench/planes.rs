// SPDX-License-Identifier: Apache-2.0
//! `wirewised bench planes`: packets a second on every plane, over a wire of its own.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::abi::Mode;
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::interface::offloads::Direction;
use crate::kernel;
use crate::plane::Plane;
use crate::text::output;
use crate::text::table;
use crate::text::units::Nanoseconds;
use crate::wire::receiver::{Receiver, all, strictest_mode};
use crate::wire::sender::{self, Traffic};
use crate::wire::steady::{Measuring, Steady};
use crate::wire::{Cpus, Wire};

/// From here on a CPU is taken for busy, and a plane for one that received everything.
const NEARLY_ALL: f64 = 0.97;
const LONGEST: u64 = 60_000_000_000;

/// Measure packets a second on the planes, at several rates
///
/// Makes two network namespaces with a veth pair between them, which end with this command. The kernel sends frames of 64 bytes of 64 flows
/// on the first CPU; all of the receiver has the second one. Needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wirewised bench planes --bundle forest.wirewise
  wirewised bench planes --bundle tree.wirewise --bundle forest.wirewise --no-filter --plane xdp-native --plane af-xdp --json
  wirewised bench planes --bundle forest.wirewise --rate 100000,max --seconds 5s --dry-run")]
pub struct Args {
    /// Bundle to measure; repeat for several
    #[arg(long = "bundle", value_name = "FILE", required_unless_present = "no_filter")]
    bundles: Vec<PathBuf>,

    /// Measure the receiver without a program too: what the kernel takes and throws away
    #[arg(long)]
    no_filter: bool,

    /// Plane to measure; repeat for several [default: all there are for incoming packets]
    #[arg(long = "plane", value_enum, value_name = "PLANE")]
    planes: Vec<Plane>,

    /// Packets a second that are offered, or max: as many as the sender can
    #[arg(long = "rate", value_name = "N|max", value_delimiter = ',', default_values = ["250000", "500000", "1000000", "2000000", "max"])]
    rates: Vec<Rate>,

    /// How long each rate is measured, after a warm-up
    #[arg(long = "seconds", value_name = "TIME", default_value = "1s")]
    time: Nanoseconds,

    /// Let every packet pass, also where the plane could drop it
    #[arg(long)]
    observe: bool,

    /// Only say what would be made and measured
    #[arg(long)]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Packets a second; `None`: as many as go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate(pub Option<u32>);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text.parse() {
            _ if text == "max" => Ok(Self(None)),
            Ok(rate @ 1..=100_000_000) => Ok(Self(Some(rate))),
            _ => Err("write packets a second, 1 to 100000000, or max".to_string()),
        }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(rate) => write!(f, "{rate}"),
            None => f.write_str("max"),
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

#[derive(Debug, Serialize)]
struct PlanesReport {
    kernel: String,
    sender_cpu: u32,
    receiver_cpu: u32,
    frame_bytes: usize,
    flows: i32,
    /// Packets a second that it sends at most, to a receiver without a program.
    sender_most: f64,
    results: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    /// The bundle's name; null: no program is attached.
    program: Option<String>,
    plane: Option<Plane>,
    mode: Option<&'static str>,
    /// Packets a second; null: as many as go.
    rate: Rate,
    #[serde(flatten)]
    steady: Steady,
    offered_per_second: f64,
    received_per_second: f64,
    /// Share of the receiver's CPU.
    busy: f64,
    /// CPU time of the receiver; null: nothing was received.
    ns_per_packet: Option<f64>,
    /// It received all that was offered, so it might do more.
    keeps_up: bool,
}

impl Row {
    fn new(at: (Option<&str>, Option<(Plane, Mode)>), rate: Rate, steady: Steady) -> Self {
        Self {
            program: at.0.map(str::to_string),
            plane: at.1.map(|(plane, _)| plane),
            mode: at.1.map(|(_, mode)| mode.name()),
            rate,
            offered_per_second: steady.a_second(steady.sent),
            received_per_second: steady.a_second(steady.received),
            busy: steady.busy(),
            ns_per_packet: steady.ns_per_packet(),
            keeps_up: steady.sent > 0 && steady.received as f64 >= NEARLY_ALL * steady.sent as f64,
            steady,
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let bundles = args.bundles.iter().map(|path| Bundle::read(path)).collect::<Result<Vec<_>>>()?;
    let planes = planes(args)?;
    if args.time.0 > LONGEST {
        return Err(Error::input(format!("--seconds {}: at most 60s a rate", args.time)));
    }
    let cpus = Cpus::choose()?;
    if args.dry_run {
        return tell(args, &bundles, &planes, cpus);
    }
    let wire = Wire::lay(cpus)?;
    let measuring = Measuring::on(&wire, Traffic::Udp)?;
    let time = Duration::from_nanos(args.time.0);
    eprintln!("the sender alone");
    let alone = measuring.at(None, None, time)?;
    let mut report = PlanesReport {
        kernel: kernel::release(),
        sender_cpu: cpus.sender,
        receiver_cpu: cpus.receiver,
        frame_bytes: sender::FRAME.len(),
        flows: sender::FLOWS,
        sender_most: alone.a_second(alone.sent),
        results: Vec::new(),
    };
    if args.no_filter {
        eprintln!("no program");
        for rate in &args.rates {
            let steady = measuring.at(None, rate.0, time)?;
            report.results.push(Row::new((None, None), *rate, steady));
        }
    }
    for (path, bundle) in args.bundles.iter().zip(&bundles) {
        let manifest = &bundle.manifest;
        for plane in &planes {
            eprintln!("{} on {plane}", manifest.name);
            let drops = all(&manifest.classes, &json!("drop"));
            let mode = if args.observe { Mode::Observe } else { strictest_mode(*plane) };
            let receiver = Receiver::start(&wire, *plane, path, &drops, mode, &[])?;
            for rate in &args.rates {
                let steady = measuring.at(Some(&receiver), rate.0, time)?;
                let at = (Some(manifest.name.as_str()), Some((*plane, mode)));
                report.results.push(Row::new(at, *rate, steady));
            }
            receiver.stop()?;
        }
    }
    if args.json {
        return output::print_json(&report);
    }
    print(&report);
    Ok(())
}

fn planes(args: &Args) -> Result<Vec<Plane>> {
    let comes_in = |plane: &Plane| plane.abilities().direction == Direction::Received;
    if let Some(plane) = args.planes.iter().find(|plane| !comes_in(plane)) {
        return Err(Error::input(format!(
            "--plane {plane}: it sees outgoing packets, and those are not measured"
        )));
    }
    let all = Plane::all().iter().copied().filter(comes_in);
    Ok(if args.planes.is_empty() { all.collect() } else { args.planes.clone() })
}

fn tell(args: &Args, bundles: &[Bundle], planes: &[Plane], cpus: Cpus) -> Result<()> {
    let names: Vec<_> = bundles.iter().map(|bundle| bundle.manifest.name.as_str()).collect();
    let planes: Vec<_> = planes.iter().map(|plane| plane.name()).collect();
    let rates: Vec<_> = args.rates.iter().map(Rate::to_string).collect();
    println!(
        "would make two network namespaces, a veth pair ({} receives), and mounts of its own",
        Wire::name()
    );
    println!(
        "  sender       CPU {}, frames of {} bytes of {} flows",
        cpus.sender,
        sender::FRAME.len(),
        sender::FLOWS
    );
    println!("  receiver     CPU {}", cpus.receiver);
    if args.no_filter {
        println!("  without      a program");
    }
    println!("  bundles      {}", names.join(", "));
    println!("  planes       {}", planes.join(", "));
    println!("  packets/s    {}, {} each", rates.join(", "), args.time);
    println!("nothing was changed");
    Ok(())
}

fn print(report: &PlanesReport) {
    println!(
        "kernel {}, sender on CPU {}, receiver on CPU {}, {} bytes a frame, {} flows; the sender alone: {:.0} packets/s",
        report.kernel,
        report.sender_cpu,
        report.receiver_cpu,
        report.frame_bytes,
        report.flows,
        report.sender_most
    );
    let header = [
        "program",
        "plane",
        "mode",
        "rate",
        "offered/s",
        "received/s",
        "user",
        "system",
        "softirq",
        "ns/packet",
        "",
    ];
    let row = |row: &Row| {
        let share = |ns: f64| format!("{:.0} %", 100.0 * ns / (row.steady.seconds * 1e9));
        let cpu = &row.steady.cpu;
        [
            row.program.clone().unwrap_or_else(|| "no program".to_string()),
            row.plane.map_or("-".to_string(), |plane| plane.to_string()),
            row.mode.unwrap_or("-").to_string(),
            row.rate.to_string(),
            format!("{:.0}", row.offered_per_second),
            format!("{:.0}", row.received_per_second),
            share(cpu.user_ns),
            share(cpu.system_ns),
            share(cpu.softirq_ns),
            row.ns_per_packet.map_or("-".to_string(), |ns| format!("{ns:.0}")),
            if row.rate.0.is_none() && row.keeps_up { "all the sender can" } else { "" }.to_string(),
        ]
    };
    let rows: Vec<_> =
        std::iter::once(header.map(str::to_string)).chain(report.results.iter().map(row)).collect();
    table::print(&rows, 3);
}
