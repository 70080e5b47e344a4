// SPDX-License-Identifier: Apache-2.0
//! `planes workers`: one engine and then several, each on a CPU of its own, on the maps that they share: packets a second of them all.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Barrier;
use std::thread;

use libbpf_rs::MapCore;
use serde_json::json;
use wirewise_engine::{Engine, Linked, MapKind, Options, ProgramId};
use wirewised::abi::maps;
use wirewised::error::{Error, Result};
use wirewised::object::{self, Loaded, Settings};
use wirewised::offline::test_run;
use wirewised::text::output;
use wirewised::{bundle, files, kernel};

use crate::packets::Packets;
use crate::{Program, failed};

/// Packets that a plane in user space receives at once.
const BURST: usize = 64;
/// Packets of a worker, at least, before they come again.
const LEAST_PACKETS: usize = 1024;

/// Packets a second of one worker and of several on shared maps, each with flows of its own
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    program: Program,

    /// Workers, each on a CPU of its own
    #[arg(long, value_name = "N", default_value_t = 2)]
    workers: u32,

    /// Flows of all workers together
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    flows: u32,

    /// Packets of a worker in a round
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    repeat: u64,

    /// Rounds, each with one worker and with all
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: u32,
}

struct Worker {
    cpu: u32,
    engine: Engine,
    entry: ProgramId,
    packets: Packets,
    codes: Vec<u32>,
}

pub fn run(args: &Args) -> Result<()> {
    let name = args.program.name();
    let cpus = kernel::allowed_cpus()?;
    let used = cpus.get(..args.workers as usize).filter(|used| !used.is_empty());
    let used = used.ok_or_else(|| {
        Error::input(format!("--workers {}: this process may use {} CPUs", args.workers, cpus.len()))
    })?;
    let last = used.iter().copied().max().unwrap_or_default();
    let settings = Settings {
        table_size: Some(args.program.table_size),
        ..Settings::on_cpu(last, object::seed_from(args.program.seed))
    };
    let loaded = test_run::load(&name, &files::read(&args.program.object, bundle::MAX_BYTES)?, &settings)?;
    let linked = Linked::from_loaded(&loaded.object)
        .map_err(|error| Error::input(format!("{name}: the engine cannot run it: {error}")))?;
    let share = args.flows.div_ceil(args.workers);
    let mut workers = Vec::new();
    for (number, cpu) in (0..).zip(used) {
        let packets = Packets::from_flow(&test_run::default_frame(), number * share, share, LEAST_PACKETS)?;
        workers.push(Worker::new(*cpu, last + 1, &name, &loaded, &linked, packets)?);
    }
    together(&mut workers, 1)?; // warm: every flow is known
    let (mut one, mut several) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        one.push(together(&mut workers[..1], args.repeat)?);
        several.push(together(&mut workers, args.repeat)?);
    }
    output::print_json(&json!({
        "flows": args.flows, "workers": used.len(), "burst": BURST,
        "one_rounds_mpps": one, "several_rounds_mpps": several,
    }))
}

/// Millions of packets a second that they judge together. repeat : packets of each, at least.
fn together(workers: &mut [Worker], repeat: u64) -> Result<f64> {
    let ready = Barrier::new(workers.len());
    let judged = thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let ready = &ready;
                scope.spawn(move || worker.work(ready, repeat))
            })
            .collect();
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Error::other("a worker ended before its packets did")))
        });
        ended.collect::<Result<Vec<f64>>>()
    })?;
    Ok(judged.iter().sum())
}

impl Worker {
    fn new(
        cpu: u32,
        cpus: u32,
        name: &str,
        loaded: &Loaded,
        linked: &Linked,
        packets: Packets,
    ) -> Result<Self> {
        let maps: Vec<_> = loaded.maps().collect();
        let shared: Vec<(&str, BorrowedFd<'_>)> = linked
            .maps()
            .iter()
            .filter(|map| map.kind() == MapKind::Array && !map.is_read_only())
            .filter_map(|map| {
                let there = maps.iter().find(|other| {
                    maps::variable(&other.name().to_string_lossy()) == maps::variable(map.name())
                })?;
                Some((map.name(), there.as_fd()))
            })
            .collect();
        let options = Options { cpu, cpus, ..Options::default() };
        let engine = Engine::sharing(linked, options, &shared)
            .map_err(|error| Error::input(format!("{name}: the engine cannot run it: {error}")))?;
        let entry = engine.program(object::ENTRY);
        let entry =
            entry.ok_or_else(|| Error::input(format!("{name}: holds no program {}", object::ENTRY)))?;
        Ok(Self { cpu, engine, entry, packets, codes: Vec::new() })
    }

    /// Millions of packets a second of time on the CPU.
    fn work(&mut self, ready: &Barrier, repeat: u64) -> Result<f64> {
        let pinned = kernel::pin_to(self.cpu);
        ready.wait();
        pinned?;
        let (start, mut judged) = (kernel::thread_cpu_ns(), 0);
        while judged < repeat {
            for burst in self.packets.spans.chunks(BURST) {
                self.codes.clear();
                let memory = self.packets.memory.bytes();
                let done = self.engine.run_xdp_batch(self.entry, memory, burst, &mut self.codes);
                done.map_err(failed("a worker"))?;
            }
            judged += self.packets.spans.len() as u64;
        }
        Ok(judged as f64 * 1e3 / (kernel::thread_cpu_ns() - start) as f64)
    }
}
