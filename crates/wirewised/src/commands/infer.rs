// SPDX-License-Identifier: Apache-2.0
//! `wirewised infer`: a bundle's model on rows of features, in batches.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::bundle::{Bundle, MODEL};
use crate::error::{Error, Result};
use crate::files::place::OutputPath;
use crate::files::whole_file::commit_all;
use crate::files::{Input, json};
use crate::inference::rows::Rows;
use crate::inference::{Executor, Verdicts};
use crate::rows::{Batch, Format, TableFile, Values};
use crate::text::output;
use crate::text::table;
use crate::text::units::{format_count, thousands};

/// Judge rows of features in batches, without packets
///
/// For features that something else has gathered: a network card, a collector, a table. Binary networks only; `wirewise evaluate` judges tables
/// by any model. docs/networks.md says more.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wirewised infer rows.npy --bundle bnn.wirewise -o verdicts.parquet
  collector --csv | wirewised infer - --bundle bnn.wirewise -o verdicts.jsonl")]
pub struct Args {
    /// Rows: a NumPy array of int64 with a column for each feature of the bundle (.npy), or CSV with names; - reads standard input
    rows: PathBuf,

    /// Bundle made by `wirewise compile`
    #[arg(short, long, value_name = "FILE")]
    bundle: PathBuf,

    /// Write class and scores of each row to this table: .parquet or .jsonl
    #[arg(short, long, value_name = "FILE", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath)]
    output: Option<OutputPath>,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Summary {
    bundle: String,
    rows: u64,
    classes: Map<String, Value>,
    /// Reading and writing included.
    seconds: f64,
    /// Of the network alone.
    inference_seconds: f64,
    inferences_per_second: f64,
    instructions: &'static str,
    output: Option<String>,
}

pub fn run(args: &Args) -> Result<()> {
    let bundle = Bundle::read(&args.bundle)?;
    let executor = executor(&bundle).map_err(|rule| {
        Error::input(format!(
            "{}: {MODEL}: {rule}; `wirewise evaluate` judges tables by any model",
            args.bundle.display()
        ))
    })?;
    let names = &bundle.manifest.feature_names;
    let needed: Vec<bool> = (0..names.len()).map(|feature| executor.reads(feature)).collect();
    let refuse = |rule: String| Error::input(format!("{}: {rule}", args.rows.display()));
    let mut source = Rows::open(open(&args.rows)?, names, &needed).map_err(refuse)?;
    let shape = Arc::new(Shape::new(&bundle.manifest.classes, executor.n_outputs()));
    let mut batch = VerdictRows::new(Arc::clone(&shape));
    let fresh = || VerdictRows::new(Arc::clone(&shape));
    let mut table = args
        .output
        .as_deref()
        .map(|path| TableFile::create(path, Format::of(path)?, &batch, &[]))
        .transpose()?;

    let (mut rows, mut verdicts) = (Vec::new(), Verdicts::default());
    let mut counts = vec![0u64; executor.n_classes()];
    let (start, mut inferring) = (Instant::now(), Duration::ZERO);
    loop {
        source.next(&mut rows).map_err(refuse)?;
        if rows.is_empty() {
            break;
        }
        let judged = Instant::now();
        executor.judge(&rows, &mut verdicts);
        inferring += judged.elapsed();
        verdicts.classes.iter().for_each(|class| counts[*class as usize] += 1);
        if let Some(table) = &mut table {
            batch.append(&verdicts);
            table.write_full(&mut batch, fresh)?;
        }
    }
    if let Some(table) = table {
        commit_all([table.finish(batch, fresh)?])?;
    }
    let rows: u64 = counts.iter().sum();
    let summary = Summary {
        bundle: bundle.manifest.name.clone(),
        rows,
        classes: bundle.manifest.classes.iter().cloned().zip(counts.into_iter().map(Value::from)).collect(),
        seconds: start.elapsed().as_secs_f64(),
        inference_seconds: inferring.as_secs_f64(),
        inferences_per_second: rows as f64 / inferring.as_secs_f64().max(1e-9),
        instructions: executor.instructions().name(),
        output: args.output.as_ref().map(|path| path.display().to_string()),
    };
    if args.json {
        return output::print_json(&summary);
    }
    print(&summary);
    Ok(())
}

/// Many times what the largest network has that infer knows; what it does not know is refused by its family all the same.
const NETWORK: json::Limits = json::Limits { bytes: 64 << 20, depth: 16, elements: 1 << 22 };

/// Of a bundle whose model fits its manifest.
fn executor(bundle: &Bundle) -> std::result::Result<Executor, String> {
    let ir: Value = json::from_slice(&bundle.model, &NETWORK)?;
    let executor = Executor::parse(&ir)?;
    let (features, classes) = (bundle.manifest.feature_names.len(), bundle.manifest.classes.len());
    if (executor.n_features(), executor.n_classes()) != (features, classes) {
        return Err(format!(
            "has {} features and {} classes, and the manifest {features} and {classes}",
            executor.n_features(),
            executor.n_classes()
        ));
    }
    Ok(executor)
}

fn open(path: &Path) -> Result<Box<dyn Read + Send>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(Input::FileOrPipe.open(path)?))
}

fn print(summary: &Summary) {
    let mut rows = vec![["class".to_owned(), "rows".to_owned()]];
    rows.extend(summary.classes.iter().map(|(class, count)| [class.clone(), count.to_string()]));
    table::print(&rows, 1);
    println!();
    println!(
        "{} rows in {:.2} s; the network alone took {:.3} s ({} inferences/s, {})",
        thousands(summary.rows),
        summary.seconds,
        summary.inference_seconds,
        format_count(summary.inferences_per_second),
        summary.instructions
    );
    if let Some(output) = &summary.output {
        println!("written to {output}");
    }
}

/// What all batches of a table have in common.
struct Shape {
    classes: Vec<String>,
    /// Of the columns with scores.
    scores: Vec<String>,
}

impl Shape {
    fn new(classes: &[String], outputs: usize) -> Self {
        let scores = classes[..outputs].iter().map(|class| format!("score_{class}")).collect();
        Self { classes: classes.to_vec(), scores }
    }
}

struct VerdictRows {
    shape: Arc<Shape>,
    classes: Vec<u32>,
    scores: Vec<Vec<i64>>,
}

impl VerdictRows {
    fn new(shape: Arc<Shape>) -> Self {
        Self { classes: Vec::new(), scores: vec![Vec::new(); shape.scores.len()], shape }
    }

    fn append(&mut self, verdicts: &Verdicts) {
        self.classes.extend_from_slice(&verdicts.classes);
        for (own, scores) in self.scores.iter_mut().zip(&verdicts.scores) {
            own.extend_from_slice(scores);
        }
    }
}

impl Batch for VerdictRows {
    fn len(&self) -> usize {
        self.classes.len()
    }

    fn columns(&self) -> Vec<(&str, Values<'_>)> {
        let mut columns = vec![("class", Values::Text(&self.classes, &self.shape.classes))];
        let scores = self.shape.scores.iter().zip(&self.scores);
        columns.extend(scores.map(|(name, scores)| (name.as_str(), Values::Int64(scores))));
        columns
    }

    fn clear(&mut self) {
        self.classes.clear();
        self.scores.iter_mut().for_each(Vec::clear);
    }
}
