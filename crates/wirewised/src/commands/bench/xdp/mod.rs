// SPDX-License-Identifier: Apache-2.0
//! `wirewised bench xdp`: what hoiland-jorgensen measures of XDP (Figures 3 to 5), of wirewise, over wires of its own.

mod drops;
mod flood;
mod forward;
mod rule;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::Serialize;

use super::planes::Rate;
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::kernel;
use crate::plane::Plane;
use crate::text::output;
use crate::text::table;
use crate::text::units::Nanoseconds;
use crate::wire::{Cpus, Wire};

const LONGEST: u64 = 60_000_000_000;

/// Measure what is dropped, forwarded, and left of a service under a flood
///
/// Makes network namespaces with veth pairs between them, which end with this command. The kernel sends frames of 64 bytes on the first
/// CPU; all of the receiver, and the server that is flooded, has the second one. Needs root; `nft` for the rows of the stack.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wirewised bench xdp --bundle tree.wirewise
  wirewised bench xdp --bundle tree.wirewise --part flood --guard model --rate 1000000,max --json
The bundle's first class is ordinary traffic, the others are the flood: those are dropped, or challenged.")]
pub struct Args {
    /// Bundle to measure
    #[arg(long, value_name = "FILE")]
    bundle: PathBuf,

    /// What to measure; repeat for several [default: all]
    #[arg(long = "part", value_enum, value_name = "PART")]
    parts: Vec<Part>,

    /// Packets a second of the flood, or max: as many as the sender can
    #[arg(long = "rate", value_name = "N|max", value_delimiter = ',', default_values = ["250000", "500000", "1000000", "2000000", "4000000", "max"])]
    rates: Vec<Rate>,

    /// What stands between flood and server; repeat for several [default: all]
    #[arg(long = "guard", value_enum, value_name = "GUARD")]
    guards: Vec<flood::Guard>,

    /// How long each is measured, after a warm-up
    #[arg(long = "seconds", value_name = "TIME", default_value = "2s")]
    time: Nanoseconds,

    /// Only say what would be made and measured
    #[arg(long)]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Part {
    /// Packets a second that are dropped (Figure 3)
    Drop,
    /// Packets a second that are forwarded (Figure 4)
    Forward,
    /// Requests a second that a server answers under a flood (Figure 5)
    Flood,
}

/// What all parts measure with.
struct Bench<'a> {
    wire: &'a Wire,
    bundle: &'a Path,
    classes: &'a [String],
    rates: &'a [Rate],
    guards: &'a [flood::Guard],
    time: Duration,
    /// Of this process, before it was bound to one of them.
    allowed_cpus: &'a [u32],
}

/// Packets a second, of what was offered.
#[derive(Debug, Serialize)]
struct Throughput {
    way: String,
    /// CPUs that received.
    cores: u32,
    offered_per_second: f64,
    per_second: f64,
}

#[derive(Debug, Serialize)]
struct XdpReport {
    kernel: String,
    sender_cpu: u32,
    receiver_cpu: u32,
    drop: Vec<Throughput>,
    forward: Vec<Throughput>,
    flood: Vec<flood::Row>,
    /// What could not be measured here, and why.
    left_out: Vec<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let bundle = Bundle::read(&args.bundle)?;
    if args.time.0 > LONGEST {
        return Err(Error::input(format!("--seconds {}: at most 60s each", args.time)));
    }
    if bundle.manifest.classes.len() < 2 {
        return Err(Error::input(format!(
            "{}: one class only; the first is ordinary traffic, the others are the flood",
            args.bundle.display()
        )));
    }
    let cpus = Cpus::choose()?;
    let parts = chosen(&args.parts);
    let guards = chosen(&args.guards);
    if args.dry_run {
        return tell(args, &parts, &guards, cpus);
    }
    let allowed_cpus = kernel::allowed_cpus()?;
    let wire = Wire::lay(cpus)?;
    wire.give_addresses()?;
    let bench = Bench {
        wire: &wire,
        bundle: &args.bundle,
        classes: &bundle.manifest.classes,
        rates: &args.rates,
        guards: &guards,
        time: Duration::from_nanos(args.time.0),
        allowed_cpus: &allowed_cpus,
    };
    let mut report = XdpReport {
        kernel: kernel::release(),
        sender_cpu: cpus.sender,
        receiver_cpu: cpus.receiver,
        drop: Vec::new(),
        forward: Vec::new(),
        flood: Vec::new(),
        left_out: Vec::new(),
    };
    if !rule::can() {
        report.left_out.push("rules of the stack: there is no `nft` here (Debian: nftables)".to_string());
    }
    if plane("dpdk").is_none() {
        report.left_out.push("dpdk: this agent was built without it (`--features dpdk`)".to_string());
    }
    // The flood comes first: a route that is made for forwarding stays.
    if parts.contains(&Part::Flood) {
        report.flood = flood::measure(&bench)?;
    }
    if parts.contains(&Part::Drop) {
        report.drop = drops::measure(&bench)?;
    }
    if parts.contains(&Part::Forward) {
        report.forward = forward::measure(&bench)?;
    }
    if args.json {
        return output::print_json(&report);
    }
    print(&report);
    Ok(())
}

/// All of them, if none is named.
fn chosen<T: ValueEnum + Clone>(named: &[T]) -> Vec<T> {
    if named.is_empty() { T::value_variants().to_vec() } else { named.to_vec() }
}

/// Of this agent.
fn plane(name: &str) -> Option<Plane> {
    Plane::all().iter().copied().find(|plane| plane.name() == name)
}

/// As they are given.
fn names<T: ValueEnum>(values: &[T]) -> String {
    let values: Vec<_> = values.iter().filter_map(ValueEnum::to_possible_value).collect();
    values.iter().map(PossibleValue::get_name).collect::<Vec<_>>().join(", ")
}

fn tell(args: &Args, parts: &[Part], guards: &[flood::Guard], cpus: Cpus) -> Result<()> {
    let rates: Vec<_> = args.rates.iter().map(Rate::to_string).collect();
    println!(
        "would make network namespaces, veth pairs between them ({} receives), and mounts of its own",
        Wire::name()
    );
    println!("  sender       CPU {}", cpus.sender);
    println!("  receiver     CPU {}", cpus.receiver);
    println!("  bundle       {}", args.bundle.display());
    println!("  parts        {}", names(parts));
    println!("  guards       {}", names(guards));
    println!("  flood        {} packets/s, {} each", rates.join(", "), args.time);
    println!("nothing was changed");
    Ok(())
}

fn print(report: &XdpReport) {
    println!(
        "kernel {}, sender on CPU {}, receiver on CPU {}, frames of 64 bytes",
        report.kernel, report.sender_cpu, report.receiver_cpu
    );
    for (title, rows) in [("dropped/s", &report.drop), ("forwarded/s", &report.forward)] {
        if rows.is_empty() {
            continue;
        }
        let mut lines = vec![["way", "cores", "offered/s", title].map(str::to_string)];
        lines.extend(rows.iter().map(|row| {
            let count = |value: f64| format!("{value:.0}");
            [row.way.clone(), row.cores.to_string(), count(row.offered_per_second), count(row.per_second)]
        }));
        println!();
        table::print(&lines, 1);
    }
    if !report.flood.is_empty() {
        println!();
        flood::print(&report.flood);
    }
    for left_out in &report.left_out {
        println!("left out: {left_out}");
    }
}
