// SPDX-License-Identifier: Apache-2.0
//! `planes batches`: a model on rows in memory, a batch a call, for several sizes of a batch: how many inferences a second, and how long a
//! batch takes.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::{Value, json};
use wirewised::error::{Error, Result};
use wirewised::inference::rows::Rows;
use wirewised::inference::{Executor, Instructions, Verdicts};
use wirewised::text::output;
use wirewised::{bundle, files, kernel};

use crate::latencies::Latencies;

/// Inferences a second and latency of batches, by each set of instructions of this processor
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The model, as in a bundle (model.json)
    #[arg(long, value_name = "FILE")]
    model: PathBuf,

    /// Rows of its features, as a NumPy array
    #[arg(long, value_name = "FILE")]
    rows: PathBuf,

    /// Rows in a batch
    #[arg(long, value_name = "N,...", value_delimiter = ',', required = true, value_parser = clap::value_parser!(u32).range(1..))]
    sizes: Vec<u32>,

    /// Rows a round
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    repeat: u32,

    /// Rounds, each over all sizes and sets of instructions
    #[arg(long, value_name = "N", default_value_t = 15)]
    rounds: u32,
}

struct Timed {
    executor: Executor,
    size: usize,
    rounds_ns: Vec<f64>,
    latencies: Latencies,
}

pub fn run(args: &Args) -> Result<()> {
    kernel::pin_to_one_cpu()?;
    let ir: Value = serde_json::from_slice(&files::read(&args.model, bundle::MAX_BYTES)?)
        .map_err(|error| Error::input(format!("{}: is not JSON: {error}", args.model.display())))?;
    let mut all = Vec::new();
    for instructions in Instructions::all() {
        for size in &args.sizes {
            let executor = Executor::with(&ir, instructions)
                .map_err(|rule| Error::input(format!("{}: {rule}", args.model.display())))?;
            let timed = Timed {
                executor,
                size: *size as usize,
                rounds_ns: Vec::new(),
                latencies: Latencies::default(),
            };
            all.push(timed);
        }
    }
    let width = all[0].executor.n_features();
    let rows = read(args, width)?;
    for timed in &mut all {
        timed.round(&rows, width, args.repeat as usize / 10)?; // warm
        timed.latencies = Latencies::default();
    }
    for _ in 0..args.rounds {
        for timed in &mut all {
            let ns = timed.round(&rows, width, args.repeat as usize)?;
            timed.rounds_ns.push(ns);
        }
    }
    let results: Vec<_> = all.iter_mut().map(Timed::report).collect();
    output::print_json(&json!({ "rows": rows.len() / width, "results": results }))
}

fn read(args: &Args, width: usize) -> Result<Vec<i64>> {
    let refuse = |rule: String| Error::input(format!("{}: {rule}", args.rows.display()));
    let file = std::fs::File::open(&args.rows).map_err(|error| files::cannot_read(&args.rows, &error))?;
    let names = vec![String::new(); width];
    let mut source = Rows::open(Box::new(file), &names, &vec![true; width]).map_err(refuse)?;
    let (mut rows, mut chunk) = (Vec::new(), Vec::new());
    loop {
        source.next(&mut chunk).map_err(refuse)?;
        if chunk.is_empty() {
            return Ok(rows);
        }
        rows.extend_from_slice(&chunk);
    }
}

impl Timed {
    /// Nanoseconds a row, of time on the CPU.
    fn round(&mut self, rows: &[i64], width: usize, repeat: usize) -> Result<f64> {
        let mut verdicts = Verdicts::default();
        let mut batches = rows.chunks_exact(self.size * width).cycle();
        let calls = repeat.div_ceil(self.size);
        let mut judge = |latencies: Option<&mut Latencies>| -> Result<()> {
            let batch = batches.next().ok_or_else(|| Error::input("fewer rows than a batch has"))?;
            let start = latencies.is_some().then(Instant::now);
            self.executor.judge(black_box(batch), &mut verdicts);
            black_box(&verdicts);
            if let (Some(start), Some(latencies)) = (start, latencies) {
                latencies.add(start.elapsed());
            }
            Ok(())
        };
        // Throughput without the clock, then latency with it.
        let start = kernel::thread_cpu_ns();
        for _ in 0..calls {
            judge(None)?;
        }
        let ns = (kernel::thread_cpu_ns() - start) as f64;
        for _ in 0..calls.min(Latencies::A_ROUND) {
            judge(Some(&mut self.latencies))?;
        }
        Ok(ns / (calls * self.size) as f64)
    }

    fn report(&mut self) -> Value {
        json!({
            "instructions": self.executor.instructions().name(),
            "batch": self.size,
            "rounds_ns": self.rounds_ns,
            "latency": self.latencies.report(),
        })
    }
}
