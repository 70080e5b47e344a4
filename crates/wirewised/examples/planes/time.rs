// SPDX-License-Identifier: Apache-2.0
//! `planes time`: the planes take turns on the same packets, in many rounds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wirewise_engine::{Engine, Linked, Options, ProgramId};
use wirewised::abi::maps;
use wirewised::error::{Error, Result};
use wirewised::object::mapped::MappedArray;
use wirewised::object::{self, Loaded, Settings};
use wirewised::offline::test_run;
use wirewised::text::output;
use wirewised::{abi, bundle, files, kernel};

use crate::latencies::Latencies;
use crate::native::Native;
use crate::packets::Packets;
use crate::{Program, failed};

/// What bench/empty.bpf.c has instead of `ww_cpu`: `struct ww_stats` for each CPU.
const EMPTY_COUNTERS: &str = "ww_stats";
/// In one call of a plane, so that the call itself costs nothing.
const LEAST_PACKETS: usize = 1024;

/// Nanoseconds a packet, each plane in turn
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    program: Program,

    /// Flows to spread the packets over, which lie in memory, one a flow
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flows: u32,

    /// Packets of one flow in a row, instead of all flows in turn; no flow comes again
    #[arg(long, value_name = "N", conflicts_with = "flows", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flow_packets: Option<u32>,

    /// The packet of a flow on which the model runs; without it every packet
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(abi::MAX_TRIGGER_PACKET)))]
    trigger_packet: Option<u32>,

    /// Time packets by themselves too, as many in each round
    #[arg(long, value_name = "N", default_value_t = 0)]
    alone: u32,

    /// Packets a round
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..))]
    repeat: u32,

    /// Rounds, each over all planes
    #[arg(long, value_name = "N", default_value_t = 15)]
    rounds: u32,
}

/// A plane, what it took in each round, and how many packets it got.
struct Timed {
    name: String,
    plane: Runtime,
    rounds_ns: Vec<f64>,
    latencies: Latencies,
    fed: u64,
    compile_ms: Option<f64>,
}

enum Runtime {
    /// Runs one frame over and over, and rewrites its address itself where there are several flows.
    Kernel(Box<KernelRun>),
    Engine(Box<EngineRun>),
    Native(Native),
}

struct KernelRun {
    loaded: Loaded,
    counters: MappedArray,
    cpu: u32,
    frame: Vec<u8>,
}

struct EngineRun {
    engine: Engine,
    entry: ProgramId,
    cpu: u32,
    codes: Vec<u32>,
}

pub fn run(args: &Args) -> Result<()> {
    let frame = test_run::default_frame();
    let mut packets = Packets::of_flows(&frame, args.flows, LEAST_PACKETS)?;
    let mut planes = planes(args, frame)?;
    for timed in &mut planes {
        if let Runtime::Native(native) = &mut timed.plane {
            native.set(&packets.memory, &packets.spans);
        }
        timed.round(&mut packets, 1)?; // warm: every flow is known
    }
    let calls = u64::from(args.repeat).div_ceil(packets.spans.len() as u64);
    for _ in 0..args.rounds {
        for timed in &mut planes {
            let ns = timed.round(&mut packets, calls)?;
            timed.rounds_ns.push(ns);
            for number in 0..args.alone as usize {
                timed.alone(&mut packets, number)?;
            }
        }
    }
    let results = planes.iter_mut().map(Timed::report).collect::<Result<Vec<_>>>()?;
    output::print_json(
        &json!({ "flows": args.flows, "packets_a_round": calls * packets.spans.len() as u64, "results": results }),
    )
}

fn planes(args: &Args, frame: Vec<u8>) -> Result<Vec<Timed>> {
    let name = args.program.name();
    let cpu = kernel::pin_to_one_cpu()?;
    let settings = Settings {
        table_size: Some(args.program.table_size),
        bench_flows: match args.flow_packets {
            Some(_) => u32::MAX,
            None if args.flows > 1 => args.flows,
            None => 0,
        },
        bench_packets: args.flow_packets.unwrap_or(0),
        ..Settings::on_cpu(cpu, object::seed_from(args.program.seed))
    };
    let policy = test_run::policy(args.trigger_packet.as_slice(), false);
    let object = files::read(&args.program.object, bundle::MAX_BYTES)?;
    let loaded = test_run::load_with(&name, &object, &settings, &policy)?;
    let linked = in_user_space(&name, &loaded, args.flow_packets.is_some())?;
    let mut planes = Vec::new();
    for (plane, caged) in [("engine", false), ("engine-caged", true)] {
        let mut run = EngineRun::new(&name, &linked, cpu, caged)?;
        run.0.write_policy(&name, &policy)?;
        planes.push(Timed::new(plane, Runtime::Engine(Box::new(run.0)), Some(run.1)));
    }
    for (plane, path) in &args.program.native {
        planes.push(Timed::new(plane, Runtime::Native(Native::load(path)?), None));
    }
    let load_ms = loaded.load_time.as_secs_f64() * 1e3;
    let kernel = KernelRun { counters: counters(&loaded)?, loaded, cpu, frame };
    planes.insert(0, Timed::new("kernel", Runtime::Kernel(Box::new(kernel)), Some(load_ms)));
    Ok(planes)
}

/// The byte code that the kernel verified, with the constants that are true in user space: there are no jiffies, and the packets lie in
/// memory, so nothing rewrites their addresses unless no flow is to come again. rewritten : it is not.
fn in_user_space(name: &str, loaded: &Loaded, rewritten: bool) -> Result<Linked> {
    let linked = Linked::from_loaded(&loaded.object).map_err(|error| refused(name, &error))?;
    let Some(config) = loaded.config else { return Ok(linked) };
    let bench_flows = if rewritten { config.bench_flows } else { 0 };
    let config = abi::Config { bench_flows, jiffy_ns: 0, jiffy_zero_ns: 0, ..config };
    let mut linked = linked.distrusted();
    linked
        .set_initial(&maps::in_object(maps::CONFIG), bytemuck::bytes_of(&config).to_vec())
        .map_err(|error| refused(name, &error))?;
    // SAFETY: our own object, which the kernel accepts with these constants too: they choose what a load for live traffic has.
    Ok(unsafe { linked.assume_verified() })
}

fn refused(name: &str, error: &wirewise_engine::Error) -> Error {
    Error::input(format!("{name}: the engine cannot run it: {error}"))
}

fn counters(loaded: &Loaded) -> Result<MappedArray> {
    loaded.map_array(if loaded.map(maps::PER_CPU).is_some() { maps::PER_CPU } else { EMPTY_COUNTERS })
}

impl EngineRun {
    /// With the milliseconds that its translation took.
    fn new(name: &str, linked: &Linked, cpu: u32, caged: bool) -> Result<(Self, f64)> {
        let start = kernel::monotonic_ns();
        let options = Options { caged: Some(caged), cpu, cpus: cpu + 1, ..Options::default() };
        let engine = Engine::new(linked, options).map_err(|error| refused(name, &error))?;
        let compile_ms = (kernel::monotonic_ns() - start) as f64 / 1e6;
        let entry = engine.program(object::ENTRY);
        let entry =
            entry.ok_or_else(|| Error::input(format!("{name}: holds no program {}", object::ENTRY)))?;
        let mut run = Self { engine, entry, cpu, codes: Vec::new() };
        run.fill_tail_calls(linked)?;
        Ok((run, compile_ms))
    }

    fn fill_tail_calls(&mut self, linked: &Linked) -> Result<()> {
        let programs = linked.programs().iter().map(|program| program.name.as_str());
        let parts =
            programs.filter_map(|name| Some((object::tail_call_index(name)?, self.engine.program(name)?)));
        let parts: Vec<_> = parts.collect();
        let Some(mut map) = self.engine.map_mut(maps::TAIL_CALLS) else { return Ok(()) };
        for (index, program) in parts {
            map.set(index, Some(program))
                .map_err(|error| Error::other(format!("cannot fill {}: {error}", maps::TAIL_CALLS)))?;
        }
        Ok(())
    }

    fn write_policy(&mut self, name: &str, policy: &abi::Policy) -> Result<()> {
        // A variable's own section is a map too.
        let section = maps::in_object(maps::POLICY);
        let Some(mut map) = self.engine.map_mut(&section) else { return Ok(()) };
        let written = map.update(&0u32.to_ne_bytes(), bytemuck::bytes_of(policy), 0);
        written.map_err(|error| Error::other(format!("{name}: cannot write the policy: {error}")))
    }

    fn stats(&self) -> Result<abi::Stats> {
        let own = self.engine.map(&maps::in_object(maps::PER_CPU)).and_then(|map| map.bytes());
        let own = own.and_then(|bytes| bytes.chunks_exact(size_of::<abi::Cpu>()).nth(self.cpu as usize));
        let element = own.or_else(|| self.engine.map(EMPTY_COUNTERS)?.lookup(&self.cpu.to_ne_bytes()));
        let stats = element.and_then(|bytes| bytes.get(..size_of::<abi::Stats>()));
        stats.map(bytemuck::pod_read_unaligned).ok_or_else(|| object::other_layout(maps::PER_CPU))
    }
}

impl Timed {
    fn new(name: &str, plane: Runtime, compile_ms: Option<f64>) -> Self {
        Self {
            name: name.to_owned(),
            plane,
            rounds_ns: Vec::new(),
            latencies: Latencies::default(),
            fed: 0,
            compile_ms,
        }
    }

    /// Runs all packets `calls` times; nanoseconds a packet, of time on the CPU.
    fn round(&mut self, packets: &mut Packets, calls: u64) -> Result<f64> {
        let count = calls * packets.spans.len() as u64;
        self.fed += count;
        let start = kernel::thread_cpu_ns();
        match &mut self.plane {
            Runtime::Kernel(run) => {
                let repeat = u32::try_from(count).map_err(|_| Error::input("too many packets a round"))?;
                return test_run::run(&run.loaded, &run.frame, repeat).map(|timed| timed.ns);
            }
            Runtime::Engine(run) => {
                for _ in 0..calls {
                    run.codes.clear();
                    let memory = packets.memory.bytes();
                    let done = run.engine.run_xdp_batch(run.entry, memory, &packets.spans, &mut run.codes);
                    done.map_err(failed(&self.name))?;
                }
            }
            Runtime::Native(native) => {
                for _ in 0..calls {
                    native.run(&mut packets.memory);
                }
            }
        }
        Ok((kernel::thread_cpu_ns() - start) as f64 / count as f64)
    }

    /// Runs one packet. In the kernel it is timed by the kernel, elsewhere by the clock that user space has.
    fn alone(&mut self, packets: &mut Packets, number: usize) -> Result<()> {
        let span = packets.spans[number % packets.spans.len()];
        match &mut self.plane {
            Runtime::Kernel(run) => {
                let timed = test_run::run(&run.loaded, &run.frame, 1)?;
                self.latencies.add(Duration::from_nanos(timed.kernel_ns.into()));
            }
            Runtime::Engine(run) => {
                run.codes.clear();
                let memory = packets.memory.bytes();
                let start = Instant::now();
                let done = run.engine.run_xdp_batch(run.entry, memory, &[span], &mut run.codes);
                self.latencies.add(start.elapsed());
                done.map_err(failed(&self.name))?;
            }
            Runtime::Native(_) => return Ok(()),
        }
        self.fed += 1;
        Ok(())
    }

    /// Refuses to report a plane that did not count every packet it was given.
    fn report(&mut self) -> Result<Value> {
        let (stats, codes) = match &self.plane {
            Runtime::Kernel(run) => {
                let stats = run.counters.read::<abi::Stats>(run.cpu);
                (stats.ok_or_else(|| object::other_layout(maps::PER_CPU))?, None)
            }
            Runtime::Engine(run) => (run.stats()?, Some(&run.codes)),
            Runtime::Native(native) => (native.stats(), Some(&native.codes)),
        };
        let outcomes = stats.class_outcome.iter().flatten();
        let counted: u64 = stats.status.iter().chain(outcomes).map(|counter| counter.packets).sum();
        if counted != self.fed {
            return Err(Error::other(format!(
                "plane {}: its program counted {counted} packets of {} that it was given",
                self.name, self.fed
            )));
        }
        let mut returned = BTreeMap::<String, u64>::new();
        for code in codes.into_iter().flatten() {
            *returned.entry(code.to_string()).or_default() += 1;
        }
        Ok(json!({
            "plane": self.name,
            "rounds_ns": self.rounds_ns,
            "latency": self.latencies.report(),
            "compile_ms": self.compile_ms,
            "packets": counted,
            "inferred": stats.inferred,
            "flows_new": stats.flows_new,
            "codes": returned,
        }))
    }
}
