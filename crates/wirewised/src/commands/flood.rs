// SPDX-License-Identifier: Apache-2.0
//! `wirewised flood`: what a flood of spoofed flows does to the flows a program knows.

use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::time::Instant;

use libbpf_rs::MapCore;
use serde::Serialize;

use crate::abi;
use crate::abi::maps;
use crate::commands::verify::What;
use crate::error::{Error, Result};
use crate::kernel;
use crate::object::mapped::MappedArray;
use crate::object::{self, Loaded, Settings};
use crate::offline::runner;
use crate::offline::test_run;
use crate::reading::counters::FlowCounters;
use crate::text::output;
use crate::text::progress::Progress;
use crate::text::units::format_bytes;

/// Packets of one test run.
const BATCH: u32 = 250_000;
/// `ww_bench_rewrite` (bpf/classify/bench.h) gives packet n of the flood the source address n times this, modulo 2^32: all
/// distinct. The established flows have the addresses it would come to last.
const ADDRESS_STEP: u32 = 0x9e37_79b1;
/// `ww_bench_rewrite` leaves frames with another IPv4 identification alone.
const SPOOFED_IDENTIFICATION: [u8; 2] = [0xff, 0xff];
const IDENTIFICATION: usize = 18;
const SOURCE: usize = 26;
const SOURCE_PORT: usize = 34;

/// Flood a program's flow table with spoofed flows, and see which flows it still knows
///
/// In this kernel, without an interface: first come the established flows, then packets that each belong to a new flow. FlowCounters
/// that have proved themselves keep their entry for the grace time, however many others come; ends with exit code 1 if not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: wirewised flood --bundle forest.wirewise --spoofed 1000000")]
pub struct Args {
    #[command(flatten)]
    what: What,

    /// Established flows
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flows: u32,

    /// Packets of each established flow
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    packets: u32,

    /// Packets of the flood, each of a flow of its own
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u32).range(1..=4_000_000_000))]
    spoofed: u32,

    /// Flow-table entries, a power of two
    #[arg(long, value_name = "ENTRIES", default_value_t = 65_536)]
    table_size: u32,

    /// Fill the flow table's hash seed from this number, so that the run can be repeated [default: random]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct FloodReport {
    object: String,
    kernel: String,
    cpu: u32,
    clock: &'static str,
    table_size: u32,
    /// An entry with so many packets is protected ...
    proven_packets: u32,
    /// ... for this long after its last one.
    grace_seconds: f64,
    established: Established,
    spoofed: Spoofed,
    /// From the first established packet to the last spoofed one.
    seconds: f64,
    /// False: it took longer than the protection lasts, so established flows may rightly be gone.
    within_grace: bool,
    /// Entries of the flood's flows, by where they came from.
    flows: FlowCounters,
    memory: Memory,
}

#[derive(Debug, Serialize)]
struct Established {
    asked: u32,
    packets_each: u32,
    /// In the table with all their packets before the flood. Fewer than asked for if more than four met in a bucket.
    before: usize,
    /// Of these, those whose entry is unchanged after it.
    kept: usize,
}

#[derive(Debug, Serialize)]
struct Spoofed {
    packets: u32,
    seconds: f64,
    /// CPU time.
    ns_per_packet: f64,
}

/// Bytes as the kernel accounts them; null if it does not tell.
#[derive(Debug, Serialize)]
struct Memory {
    flow_tables_before: Option<u64>,
    flow_tables_after: Option<u64>,
    all_maps_before: Option<u64>,
    all_maps_after: Option<u64>,
}

pub fn run(args: &Args) -> Result<()> {
    let (name, object) = args.what.read()?;
    let cpu = kernel::pin_to_one_cpu()?;
    let settings = Settings {
        table_size: Some(args.table_size),
        bench_flows: u32::MAX,
        bench_spoof: true,
        ..Settings::on_cpu(cpu, runner::hash_seed(args.seed)?)
    };
    let program = test_run::load(&name, &object, &settings)?;
    let config = program
        .config
        .ok_or_else(|| Error::input(format!("{name}: its program is no data path of wirewise")))?;
    let report = flood(args, &name, cpu, &config, &program)?;
    if args.json {
        output::print_json(&report)?;
    } else {
        print(&report);
    }
    let Established { before, kept, .. } = report.established;
    if !report.within_grace {
        tracing::warn!(
            "this took {:.1} s, longer than the grace time of {} s; ask for fewer packets with --spoofed",
            report.seconds,
            report.grace_seconds
        );
    } else if kept < before && args.packets >= config.proven_packets {
        return Err(Error::other(format!(
            "{name}: {} of {before} established flows lost their entry within the grace time",
            before - kept
        )));
    }
    Ok(())
}

fn flood(args: &Args, name: &str, cpu: u32, config: &abi::Config, program: &Loaded) -> Result<FloodReport> {
    let table = program.map_array(maps::FLOWS4)?;
    let memory = (memory(program, is_flow_table), memory(program, |_| true));
    let start = Instant::now();
    establish(program, args.flows, args.packets)?;
    let before = entries(&table, args.packets);
    let counted = flows_begun(program, cpu)?;
    let flood_start = Instant::now();
    let cpu_ns = spoof(program, args.spoofed)?;
    let (seconds, flood_seconds) = (start.elapsed().as_secs_f64(), flood_start.elapsed().as_secs_f64());
    let kept = before.iter().filter(|entry| entry.is_in(&table)).count();
    let flows = flows_begun(program, cpu)?.since(&counted);
    if flows.sum() != u64::from(args.spoofed) {
        return Err(Error::input(format!(
            "{name}: only {} of {} spoofed packets were of a new flow: its flow key does not hold the source address, so \
             there is nothing to flood",
            flows.sum(),
            args.spoofed
        )));
    }
    Ok(FloodReport {
        object: name.to_string(),
        kernel: kernel::release(),
        cpu,
        clock: config.describe_clock(),
        table_size: args.table_size,
        proven_packets: config.proven_packets,
        grace_seconds: config.grace_ns as f64 / 1e9,
        established: Established {
            asked: args.flows,
            packets_each: args.packets,
            before: before.len(),
            kept,
        },
        spoofed: Spoofed {
            packets: args.spoofed,
            seconds: flood_seconds,
            ns_per_packet: cpu_ns / f64::from(args.spoofed),
        },
        seconds,
        within_grace: seconds * 1e9 <= config.grace_ns as f64,
        flows,
        memory: Memory {
            flow_tables_before: memory.0,
            flow_tables_after: self::memory(program, is_flow_table),
            all_maps_before: memory.1,
            all_maps_after: self::memory(program, |_| true),
        },
    })
}

/// The flows take turns, packet by packet.
fn establish(program: &Loaded, flows: u32, packets: u32) -> Result<()> {
    let mut frame = test_run::default_frame();
    for _ in 0..packets {
        for flow in 0..flows {
            let address = (u32::MAX - flow).wrapping_mul(ADDRESS_STEP);
            frame[SOURCE..][..4].copy_from_slice(&address.to_ne_bytes());
            frame[SOURCE_PORT..][..2].copy_from_slice(&(flow as u16 | 1024).to_be_bytes());
            test_run::run(program, &frame, 1)?;
        }
    }
    Ok(())
}

/// The CPU time it took, ns.
fn spoof(program: &Loaded, packets: u32) -> Result<f64> {
    let mut frame = test_run::default_frame();
    frame[IDENTIFICATION..][..2].copy_from_slice(&SPOOFED_IDENTIFICATION);
    let mut progress = Progress::new(true);
    let (mut done, mut cpu_ns) = (0, 0.0);
    while done < packets {
        let batch = BATCH.min(packets - done);
        cpu_ns += test_run::run(program, &frame, batch)?.ns * f64::from(batch);
        done += batch;
        progress.show(|| format!("{done} of {packets} spoofed packets"));
    }
    progress.clear();
    Ok(cpu_ns)
}

/// An entry of the flow table as it was: slot, key and state.
struct Entry {
    bucket: u32,
    way: usize,
    bytes: Vec<u8>,
}

impl Entry {
    fn is_in(&self, table: &MappedArray) -> bool {
        let mut bucket = vec![0; table.value_size()];
        table.read_part(self.bucket, 0, &mut bucket)
            && bucket.chunks_exact(self.bytes.len()).nth(self.way) == Some(&self.bytes[..])
    }
}

/// The entries of flows with exactly so many packets.
fn entries(table: &MappedArray, packets: u32) -> Vec<Entry> {
    let mut bytes = vec![0; table.value_size()];
    let mut found = Vec::new();
    for bucket in 0..table.entries() {
        table.read_part(bucket, 0, &mut bytes);
        for (way, entry) in bytes.chunks_exact(table.value_size() / abi::WAYS as usize).enumerate() {
            let slot: abi::Slot = bytemuck::pod_read_unaligned(&entry[..size_of::<abi::Slot>()]);
            if slot.packets == packets {
                found.push(Entry { bucket, way, bytes: entry.to_vec() });
            }
        }
    }
    found
}

fn flows_begun(program: &Loaded, cpu: u32) -> Result<FlowCounters> {
    let stats: Option<abi::Stats> = program.map_array(maps::PER_CPU)?.read(cpu);
    let stats = stats.ok_or_else(|| object::other_layout(maps::PER_CPU))?;
    Ok(FlowCounters::from(&stats))
}

fn is_flow_table(name: &str) -> bool {
    name.starts_with("ww_flows")
}

/// What the kernel accounts for the program's maps of these names.
fn memory(program: &Loaded, of: impl Fn(&str) -> bool) -> Option<u64> {
    let maps = program.maps().filter(|map| of(&map.name().to_string_lossy()));
    maps.map(|map| {
        let path = Path::new("/proc/self/fdinfo").join(map.as_fd().as_raw_fd().to_string());
        let text = std::fs::read_to_string(path).ok()?;
        text.lines().find_map(|line| line.strip_prefix("memlock:"))?.trim().parse::<u64>().ok()
    })
    .sum()
}

fn print(report: &FloodReport) {
    let FloodReport { established, spoofed, flows, memory, .. } = report;
    let row = |name: &str, value: &str| println!("  {name:<12} {value}");
    let bytes = |bytes: Option<u64>| bytes.map_or("unknown".to_string(), format_bytes);
    println!("{}, kernel {}, CPU {}", report.object, report.kernel, report.cpu);
    row("flow table", &format!("{} entries, clock {}", report.table_size, report.clock));
    row("protection", &format!("from packet {} on, for {} s", report.proven_packets, report.grace_seconds));
    row("established", &format!("{} flows of {} packets", established.before, established.packets_each));
    row(
        "flood",
        &format!(
            "{} packets, each of a new flow, in {:.1} s ({:.0} ns of CPU each)",
            spoofed.packets, spoofed.seconds, spoofed.ns_per_packet
        ),
    );
    row(
        "kept",
        &format!(
            "{} of {} established flows, {:.1} s after the first",
            established.kept, established.before, report.seconds
        ),
    );
    row(
        "its flows",
        &format!(
            "{} new, {} expired, {} evicted, {} refused",
            flows.new, flows.expired, flows.evicted, flows.refused
        ),
    );
    row(
        "memory",
        &format!(
            "flow tables {} before, {} after; all maps {} before, {} after",
            bytes(memory.flow_tables_before),
            bytes(memory.flow_tables_after),
            bytes(memory.all_maps_before),
            bytes(memory.all_maps_after)
        ),
    );
}
