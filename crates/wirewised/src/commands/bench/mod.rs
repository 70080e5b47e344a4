// SPDX-License-Identifier: Apache-2.0
//! `wirewised bench`: nanoseconds a packet costs, by BPF_PROG_TEST_RUN; and packets a second on the planes.

mod planes;
mod xdp;

use std::path::{Path, PathBuf};

use serde::Serialize;
use wirewise_capture::Reader;

use crate::abi;
use crate::abi::maps;
use crate::bundle;
use crate::error::{Error, Result};
use crate::files;
use crate::kernel;
use crate::object::{self, Loaded, MAX_TABLE_SIZE, Settings};
use crate::offline::runtime::MAX_FRAME;
use crate::offline::test_run::{self, Timed};
use crate::plane::Plane;
use crate::text::output;
use crate::text::table;

/// Entries a flow table gets at least, and for each flow, so that flows do not push each other out.
const SMALLEST_TABLE: u32 = 65_536;
const ENTRIES_A_FLOW: u32 = 2;
const WARM_UP: u32 = 1000;

/// Measure what a packet costs in one or more programs
///
/// In this kernel, without an interface. The programs take turns in many short rounds, so that what disturbs the machine disturbs
/// them alike. The median of the rounds counts; for the ratio to the first program, that of each round's ratio.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Example: wirewised bench --object empty.bpf.o --object program.bpf.o --flows 10000 --json")]
pub struct Args {
    #[command(subcommand)]
    of: Option<Of>,

    /// Compiled eBPF object (.bpf.o), of your own, as whatever it holds is run; repeat to compare several with the first
    #[arg(long = "object", value_name = "FILE", required = true)]
    objects: Vec<PathBuf>,

    /// Time each program as one of this plane; repeat to compare planes
    #[arg(long = "plane", value_enum, value_name = "PLANE", default_values_t = [Plane::XDP_NATIVE])]
    planes: Vec<Plane>,

    /// Flows to spread the packets over, by rewriting the IPv4 source address
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TABLE_SIZE / ENTRIES_A_FLOW)))]
    flows: u32,

    /// Packets of one flow in a row, instead of all flows in turn; no flow comes again
    #[arg(long, value_name = "N", conflicts_with = "flows", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flow_packets: Option<u32>,

    /// Packets of a flow on which the model runs, such as 1,2,4,8; without it every packet
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(abi::MAX_TRIGGER_PACKET)))]
    trigger_packets: Vec<u32>,

    /// Packets a round
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(1000..=1_000_000_000))]
    repeat: u32,

    /// Rounds, each over all objects
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,

    /// All classes are dropped, where otherwise they pass
    #[arg(long)]
    drop: bool,

    /// Run each program on so many CPUs at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    cpus: u32,

    /// On several CPUs, all packets are of one flow, instead of one a CPU
    #[arg(long, requires = "cpus", conflicts_with_all = ["flows", "flow_packets"])]
    one_flow: bool,

    /// Flow-table entries, a power of two; without it twice the flows, at least 65536
    #[arg(long, value_name = "ENTRIES")]
    table_size: Option<u32>,

    /// Capture whose first packet is run, instead of a TCP segment in 64 bytes
    #[arg(long, value_name = "CAPTURE")]
    frame: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Of {
    Planes(planes::Args),
    Xdp(xdp::Args),
}

#[derive(Debug, Serialize)]
struct BenchReport {
    kernel: String,
    cpu: u32,
    cpus: u32,
    frame_bytes: usize,
    flows: u32,
    flow_packets: Option<u32>,
    trigger_packets: Vec<u32>,
    repeat: u32,
    results: Vec<Measured>,
}

#[derive(Debug, Serialize)]
struct Measured {
    object: String,
    plane: Plane,
    /// Median of the rounds.
    ns_per_packet: f64,
    min_ns: f64,
    max_ns: f64,
    /// Median of the kernel's own figures, each rounded down to a nanosecond.
    kernel_ns: f64,
    /// To the first object: median of the rounds' ratios.
    ratio: f64,
    rounds_ns: Vec<f64>,
    load_ms: f64,
    /// Where the program reads the time; null if it is no data path of wirewise.
    clock: Option<&'static str>,
    /// Packets that another CPU kept from their flow's entry, warming up included; null likewise.
    missed: Option<u64>,
}

/// An object, as a program of a plane.
type Measurable<'a> = (&'a Path, Plane, Loaded);

impl Measured {
    fn new((path, plane, program): &Measurable<'_>, rounds: &[Timed], first: &[Timed]) -> Self {
        let ns: Vec<_> = rounds.iter().map(|round| round.ns).collect();
        let kernel_ns: Vec<_> = rounds.iter().map(|round| f64::from(round.kernel_ns)).collect();
        Self {
            object: path.display().to_string(),
            plane: *plane,
            ns_per_packet: decimals(median(&ns), 1),
            min_ns: decimals(ns.iter().copied().fold(f64::INFINITY, f64::min), 1),
            max_ns: decimals(ns.iter().copied().fold(0.0, f64::max), 1),
            kernel_ns: median(&kernel_ns),
            ratio: decimals(ratio(rounds, first), 3),
            rounds_ns: ns.iter().map(|ns| decimals(*ns, 1)).collect(),
            load_ms: decimals(program.load_time.as_secs_f64() * 1e3, 3),
            clock: program.config.map(|config| config.describe_clock()),
            missed: missed(program),
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    match &args.of {
        Some(Of::Planes(args)) => return planes::run(args),
        Some(Of::Xdp(args)) => return xdp::run(args),
        None => {}
    }
    let frame = match &args.frame {
        Some(path) => first_frame(path)?,
        None => test_run::default_frame(),
    };
    let frames = frames(frame, args)?;
    let (cpu, last) = (frames[0].0, frames[frames.len() - 1].0);
    let table_size = args
        .table_size
        .unwrap_or_else(|| (args.flows * ENTRIES_A_FLOW).next_power_of_two().max(SMALLEST_TABLE));
    if let Some(plane) = args.planes.iter().find(|plane| plane.is_in_user_space()) {
        return Err(Error::input(format!(
            "--plane {plane}: bench has the kernel run the program, and this plane is in user space; `make bench` times the engine"
        )));
    }
    let settings = Settings {
        table_size: Some(table_size),
        bench_flows: match args.flow_packets {
            Some(_) => u32::MAX,
            None if args.flows > 1 => args.flows,
            None => 0,
        },
        bench_packets: args.flow_packets.unwrap_or(0),
        ..Settings::on_cpu(last, object::random_seed()?)
    };
    let policy = test_run::policy(&args.trigger_packets, args.drop);
    let mut programs: Vec<Measurable<'_>> = Vec::new();
    for path in &args.objects {
        for plane in &args.planes {
            let settings = Settings { runs: plane.runs(), ..settings.clone() };
            programs.push((path, *plane, load(path, &settings, &policy)?));
        }
    }
    for (_, _, program) in &programs {
        test_run::run_on_cpus(program, &frames, args.flows.max(WARM_UP))?;
    }
    let mut rounds = vec![Vec::new(); programs.len()];
    for _ in 0..args.rounds {
        for ((_, _, program), rounds) in programs.iter().zip(&mut rounds) {
            rounds.push(mean(&test_run::run_on_cpus(program, &frames, args.repeat)?));
        }
    }
    let measured = programs.iter().zip(&rounds);
    let report = BenchReport {
        kernel: kernel::release(),
        cpu,
        cpus: args.cpus,
        frame_bytes: frames[0].1.len(),
        flows: args.flows,
        flow_packets: args.flow_packets,
        trigger_packets: args.trigger_packets.clone(),
        repeat: args.repeat,
        results: measured.map(|(program, own)| Measured::new(program, own, &rounds[0])).collect(),
    };
    if args.json {
        return output::print_json(&report);
    }
    print(&report);
    Ok(())
}

/// A frame for each CPU: of a flow of its own, if not of one flow all.
fn frames(frame: Vec<u8>, args: &Args) -> Result<Vec<(u32, Vec<u8>)>> {
    /// Last byte of the IPv4 source address.
    const HOST: usize = 29;
    let allowed = kernel::allowed_cpus()?;
    if args.cpus as usize > allowed.len() {
        return Err(Error::missing(format!(
            "--cpus {}: this process may use {} CPUs",
            args.cpus,
            allowed.len()
        )));
    }
    let of_cpu = |(number, cpu): (usize, &u32)| {
        let mut own = frame.clone();
        if let Some(host) = own.get_mut(HOST).filter(|_| !args.one_flow) {
            *host = host.wrapping_add(number as u8);
        }
        (*cpu, own)
    };
    Ok(allowed[..args.cpus as usize].iter().enumerate().map(of_cpu).collect())
}

/// Of CPUs that ran at once.
fn mean(cpus: &[Timed]) -> Timed {
    let number = cpus.len().max(1);
    Timed {
        ns: cpus.iter().map(|cpu| cpu.ns).sum::<f64>() / number as f64,
        kernel_ns: cpus.iter().map(|cpu| cpu.kernel_ns).sum::<u32>() / number as u32,
    }
}

fn missed(program: &Loaded) -> Option<u64> {
    program.config?;
    let own = program.map_array(maps::PER_CPU).ok()?;
    Some(
        (0..own.entries())
            .filter_map(|cpu| own.read::<abi::Cpu>(cpu))
            .map(|cpu| cpu.stats.flows_missed)
            .sum(),
    )
}

fn load(path: &Path, settings: &Settings, policy: &abi::Policy) -> Result<Loaded> {
    let name = path.display().to_string();
    let loaded = test_run::load_with(&name, &files::read(path, bundle::MAX_OBJECT)?, settings, policy)?;
    if settings.bench_flows > 0 && loaded.config.is_none() {
        tracing::info!("{name}: no data path of wirewise, so it sees one flow only");
    }
    Ok(loaded)
}

fn first_frame(path: &Path) -> Result<Vec<u8>> {
    let mut capture = Reader::open(path)?;
    let packet = capture.next_packet()?;
    let packet = packet.ok_or_else(|| Error::input(format!("{}: holds no packet", path.display())))?;
    Ok(packet.frame[..packet.frame.len().min(MAX_FRAME)].to_vec())
}

/// What disturbs a round disturbs both programs of it, so each round's ratio says more than the ratio of two medians.
fn ratio(rounds: &[Timed], first: &[Timed]) -> f64 {
    let ratios: Vec<_> = rounds.iter().zip(first).map(|(round, first)| round.ns / first.ns).collect();
    median(&ratios)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

fn decimals(value: f64, places: i32) -> f64 {
    let scale = 10f64.powi(places);
    (value * scale).round() / scale
}

fn print(report: &BenchReport) {
    println!(
        "kernel {}, {}, {} flows, {} bytes a frame, {} rounds of {} packets",
        report.kernel,
        if report.cpus == 1 { format!("CPU {}", report.cpu) } else { format!("{} CPUs", report.cpus) },
        report.flows,
        report.frame_bytes,
        report.results[0].rounds_ns.len(),
        report.repeat
    );
    let header =
        ["object", "plane", "clock", "ns/packet", "min", "max", "ratio", "load ms"].map(str::to_string);
    let row = |measured: &Measured| {
        let ns = |ns: f64| format!("{ns:.1}");
        [
            measured.object.clone(),
            measured.plane.to_string(),
            measured.clock.unwrap_or("-").to_string(),
            ns(measured.ns_per_packet),
            ns(measured.min_ns),
            ns(measured.max_ns),
            format!("{:.3}", measured.ratio),
            format!("{:.1}", measured.load_ms),
        ]
    };
    let rows: Vec<_> = std::iter::once(header).chain(report.results.iter().map(row)).collect();
    table::print(&rows, 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[7.0]), 7.0);
        assert_eq!(median(&[9.5, 1.0, 5.5]), 5.5);
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), 3.0);
    }

    #[test]
    fn a_slow_round_does_not_change_the_ratio() {
        let rounds = |ns: [f64; 3]| ns.map(|ns| Timed { ns, kernel_ns: ns as u32 });
        // The machine is three times as slow in the second round; in the third only while this program runs.
        let (own, first) = (rounds([20.0, 60.0, 90.0]), rounds([10.0, 30.0, 10.0]));
        assert_eq!(ratio(&own, &first), 2.0);
    }
}
