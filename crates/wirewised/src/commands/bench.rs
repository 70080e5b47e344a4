// SPDX-License-Identifier: Apache-2.0
//! `wirewised bench`: nanoseconds a packet costs, by BPF_PROG_TEST_RUN.

use std::path::{Path, PathBuf};

use bytemuck::Zeroable;
use libbpf_rs::{MapCore, MapFlags, ProgramInput};
use serde::Serialize;

use crate::abi;
use crate::capture::Capture;
use crate::error::{Error, Result};
use crate::input;
use crate::kernel;
use crate::object::{self, Loaded, MAX_TABLE_SIZE, Opened, Settings};

/// Entries a flow table gets at least, and for each flow, so that flows do not push each other out.
const SMALLEST_TABLE: u32 = 65_536;
const ENTRIES_A_FLOW: u32 = 2;
const WARM_UP: u32 = 1000;

/// Measure what a packet costs in one or more programs
///
/// In this kernel, without an interface. The programs take turns, round by round, so that what disturbs the machine disturbs
/// them alike; the median of the rounds counts.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: wirewised bench --object empty.bpf.o --object program.bpf.o --flows 10000 --json")]
pub struct Args {
    /// Compiled eBPF object (.bpf.o); repeat to compare several with the first
    #[arg(long = "object", value_name = "FILE", required = true)]
    objects: Vec<PathBuf>,

    /// Flows to spread the packets over, by rewriting the IPv4 source address
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TABLE_SIZE / ENTRIES_A_FLOW)))]
    flows: u32,

    /// Packets a round
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1000..=1_000_000_000))]
    repeat: u32,

    /// Rounds, each over all objects
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,

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

#[derive(Debug, Serialize)]
struct Report {
    kernel: String,
    cpu: u32,
    frame_bytes: usize,
    flows: u32,
    repeat: u32,
    results: Vec<Measured>,
}

#[derive(Debug, Serialize)]
struct Measured {
    object: String,
    /// Median of the rounds.
    ns_per_packet: f64,
    min_ns: u32,
    max_ns: u32,
    /// To the first object.
    ratio: f64,
    rounds_ns: Vec<u32>,
    load_ms: f64,
}

pub fn run(args: &Args) -> Result<()> {
    let frame = match &args.frame {
        Some(path) => first_frame(path)?,
        None => default_frame(),
    };
    let cpu = kernel::pin_to_one_cpu()?;
    let table_size = args
        .table_size
        .unwrap_or_else(|| (args.flows * ENTRIES_A_FLOW).next_power_of_two().max(SMALLEST_TABLE));
    let settings = Settings {
        table_size: Some(table_size),
        bench_flows: if args.flows > 1 { args.flows } else { 0 },
        ..Settings::on_cpu(cpu, object::random_seed()?)
    };
    let programs = args.objects.iter().map(|path| load(path, &settings)).collect::<Result<Vec<_>>>()?;
    for program in &programs {
        test_run(program, &frame, args.flows.max(WARM_UP))?;
    }
    let mut rounds = vec![Vec::new(); programs.len()];
    for _ in 0..args.rounds {
        for (program, rounds) in programs.iter().zip(&mut rounds) {
            rounds.push(test_run(program, &frame, args.repeat)?);
        }
    }
    let first = median(&rounds[0]);
    let measured = args.objects.iter().zip(&programs).zip(rounds).map(|((path, program), rounds)| Measured {
        object: path.display().to_string(),
        ns_per_packet: median(&rounds),
        min_ns: rounds.iter().copied().min().unwrap_or(0),
        max_ns: rounds.iter().copied().max().unwrap_or(0),
        ratio: (median(&rounds) / first * 1e3).round() / 1e3,
        rounds_ns: rounds,
        load_ms: (program.load_time.as_secs_f64() * 1e6).round() / 1e3,
    });
    let report = Report {
        kernel: kernel::release(),
        cpu,
        frame_bytes: frame.len(),
        flows: args.flows,
        repeat: args.repeat,
        results: measured.collect(),
    };
    if args.json {
        return input::print_json(&report);
    }
    print(&report);
    Ok(())
}

fn load(path: &Path, settings: &Settings) -> Result<Loaded> {
    let name = path.display().to_string();
    let mut opened = Opened::open(&name, &input::read(path)?)?;
    if settings.bench_flows > 0 && opened.config().is_none() {
        tracing::info!("{name}: no data path of wirewise, so it sees one flow only");
    }
    opened.prepare(settings)?;
    let loaded = opened.load()?;
    if let Some(map) = loaded.map("ww_policy") {
        let policy = pass_all();
        map.update(&0u32.to_ne_bytes(), bytemuck::bytes_of(&policy), MapFlags::ANY)
            .map_err(|error| Error::other(format!("{name}: cannot write the policy: {error}")))?;
    }
    Ok(loaded)
}

/// Every class passes, every packet is inferred, no events.
fn pass_all() -> abi::Policy {
    abi::Policy { version: 1, ..abi::Policy::zeroed() }
}

/// Nanoseconds a packet, as the kernel averages them over `repeat` runs.
fn test_run(program: &Loaded, frame: &[u8], repeat: u32) -> Result<u32> {
    let input = ProgramInput { data_in: Some(frame), repeat, ..ProgramInput::default() };
    let output = program.entry()?.test_run(input).map_err(|error| {
        Error::missing(format!("the kernel cannot test-run a frame of {} bytes: {error}", frame.len()))
    })?;
    Ok(output.duration.as_nanos() as u32)
}

fn first_frame(path: &Path) -> Result<Vec<u8>> {
    let mut capture = Capture::open(path)?;
    let packet = capture.next_packet()?;
    let packet = packet.ok_or_else(|| Error::input(format!("{}: holds no packet", path.display())))?;
    Ok(packet.frame.to_vec())
}

/// Ethernet, IPv4 and TCP (an ACK from 10.0.0.1:40000 to 10.0.0.2:443) with ten bytes of payload: 64 bytes.
fn default_frame() -> Vec<u8> {
    const HEADERS: [u8; 54] = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, // Ethernet: addresses, IPv4
        0x45, 0, 0, 50, 0, 1, 0x40, 0, 64, 6, 0x26, 0xc3, // IPv4: 50 bytes, TTL 64, TCP
        10, 0, 0, 1, 10, 0, 0, 2, // addresses
        0x9c, 0x40, 0x01, 0xbb, 0, 0, 0, 1, 0, 0, 0, 1, // TCP: ports, sequence, acknowledgement
        0x50, 0x10, 0x20, 0, 0, 0, 0, 0, // data offset 5, ACK, window 8192
    ];
    let mut frame = HEADERS.to_vec();
    frame.resize(64, 0);
    frame
}

fn median(rounds: &[u32]) -> f64 {
    let mut sorted = rounds.to_vec();
    sorted.sort_unstable();
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        f64::from(sorted[middle])
    } else {
        f64::from(sorted[middle - 1] + sorted[middle]) / 2.0
    }
}

fn print(report: &Report) {
    println!(
        "kernel {}, CPU {}, {} flows, {} bytes a frame, {} rounds of {} packets",
        report.kernel,
        report.cpu,
        report.flows,
        report.frame_bytes,
        report.results[0].rounds_ns.len(),
        report.repeat
    );
    println!("{:>10} {:>6} {:>6} {:>7} {:>9}  object", "ns/packet", "min", "max", "ratio", "load ms");
    for measured in &report.results {
        println!(
            "{:>10.1} {:>6} {:>6} {:>7.2} {:>9.1}  {}",
            measured.ns_per_packet,
            measured.min_ns,
            measured.max_ns,
            measured.ratio,
            measured.load_ms,
            measured.object
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[7]), 7.0);
        assert_eq!(median(&[9, 1, 5]), 5.0);
        assert_eq!(median(&[4, 1, 2, 9]), 3.0);
    }

    #[test]
    fn the_default_frame_is_what_its_comment_says() {
        let frame = default_frame();
        assert_eq!(frame.len(), 64);
        let header = &frame[14..34];
        assert_eq!(usize::from(header[3]) + 14, frame.len());
        let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff, "IPv4 header checksum");
    }
}
