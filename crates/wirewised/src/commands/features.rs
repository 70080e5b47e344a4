// SPDX-License-Identifier: Apache-2.0
//! `wirewised features`: captures to a table, by the program that will run.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value, json};
use wirewise_capture::Reader;

use super::EngineArgs;
use crate::abi::{self, Mode};
use crate::error::{Error, Result};
use crate::features::{Counts, Extraction, FeatureRows, Selection, Shape, Source};
use crate::files::place::OutputPath;
use crate::labels::{Joined, Labels};
use crate::offline::engine_run::{Prepared, Trust};
use crate::offline::runner;
use crate::offline::runtime::RunSettings;
use crate::policy::Policy;
use crate::reading::counters::FlowCounters;
use crate::rows::{Format, TableFile};
use crate::text::output;
use crate::text::progress::Progress;
use crate::text::table;
use crate::text::units::{Nanoseconds, format_count};

/// Compute the features of captures, as a table to train on
///
/// The packets run through the program itself, in user space, with their captured times: the table holds exactly what a model is given
/// in the data path. Each capture starts with empty flow tables. Columns: time_ns, capture, packet, flow, sender, the features by name,
/// label, status. docs/replay.md says more.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wirewised features day.pcap.zst --bundle forest.wirewise --labels rules.yaml -o day.parquet
  wirewised features *.pcap --object set.bpf.o --feature-set set.json --at 1,2,4,8 -o early.parquet")]
#[command(group = clap::ArgGroup::new("program").required(true).args(["bundle", "object"]))]
#[command(group = clap::ArgGroup::new("selection").args(["at", "interval", "at_end"]))]
pub struct Args {
    /// pcap or pcapng files, also compressed (gzip, zstd, xz, bzip2, lz4); - reads standard input
    #[arg(required = true)]
    captures: Vec<PathBuf>,

    /// Bundle whose program computes the features that its model tests; the others are null
    #[arg(short, long, value_name = "FILE")]
    bundle: Option<PathBuf>,

    /// Object that extracts a whole feature set and has no model; whatever it contains is run, so give only your own; needs --feature-set
    #[arg(long, value_name = "FILE", requires = "feature_set")]
    object: Option<PathBuf>,

    /// The feature set the object was compiled for, as JSON
    #[arg(short, long, value_name = "FILE", requires = "object")]
    feature_set: Option<PathBuf>,

    /// TableFile to write: .parquet or .jsonl
    #[arg(short, long, value_name = "FILE", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath)]
    output: OutputPath,

    /// What each packet is: a label file (.yaml), a list of flows (.csv, or sorted: .flows), or a folder of captures with its manifest.json
    #[arg(short, long, value_name = "PATH")]
    labels: Option<PathBuf>,

    /// Label of the packets of no flow in a list of flows; without it they have none
    #[arg(long, value_name = "LABEL", requires = "labels")]
    otherwise: Option<String>,

    /// Rows at these packet numbers of each flow, such as 1,2,4,8
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    at: Option<Vec<u32>>,

    /// A row for the first packet of each flow in every interval of the clock, such as 1s
    #[arg(long, value_name = "DURATION")]
    interval: Option<Nanoseconds>,

    /// A row for the last packet of each flow: idle timeout, eviction, or the end of the capture
    #[arg(long)]
    at_end: bool,

    #[command(flatten)]
    engine: EngineArgs,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    fn source(&self) -> Result<Source> {
        match (&self.bundle, &self.object, &self.feature_set) {
            (Some(bundle), ..) => Source::from_bundle(bundle),
            (None, Some(object), Some(features)) => Source::from_object(object, features),
            _ => Err(Error::input("give --bundle, or --object with --feature-set")),
        }
    }

    fn selection(&self) -> Selection {
        match (&self.at, self.interval, self.at_end) {
            (Some(numbers), ..) => Selection::At(numbers.iter().copied().collect::<BTreeSet<_>>()),
            (_, Some(interval), _) => Selection::Interval(interval.0),
            (_, _, true) => Selection::AtEnd,
            _ => Selection::EveryPacket,
        }
    }

    fn labels(&self) -> Result<Labels> {
        self.labels.as_deref().map_or(Ok(Labels::None), |path| Labels::open(path, self.otherwise.as_deref()))
    }
}

pub fn run(args: &Args) -> Result<()> {
    let (source, selection, labels) = (args.source()?, args.selection(), args.labels()?);
    let shape = Arc::new(Shape {
        features: source.names.clone(),
        computed: source.computed.clone(),
        captures: args.captures.iter().map(|path| path.display().to_string()).collect(),
        labels: labels.names(),
    });
    let settings = RunSettings {
        hash_seed: runner::hash_seed(args.engine.seed)?,
        table_size: args.engine.table_size.or(source.table_size),
        cpus: 1,
        acts: 0,
    };
    // What cannot be opened or labelled is said before hours of work.
    let mut refused = Vec::new();
    for path in &args.captures {
        labels.of_capture(path)?;
        if path.as_os_str() != "-" {
            refused.extend(Reader::open(path).err());
        }
    }
    // Going on needs something to go on with.
    if !refused.is_empty() && (!args.engine.keep_going || refused.len() == args.captures.len()) {
        return Err(refused.swap_remove(0).into());
    }
    let prepared = Prepared::new(&source.input, &source.object, &settings.in_engine(), args.engine.caged)?;
    let mut worker = prepared.worker()?;
    let policy = Policy::all_pass(&source.classes);
    worker.write_policy(&policy, &policy.to_abi(0, Mode::Observe))?;
    let metadata = [("wirewise.feature_set".to_owned(), source.feature_set.to_string())];
    let blank = FeatureRows::new(Arc::clone(&shape));
    let rows = TableFile::create(&args.output, Format::of(&args.output)?, &blank, &metadata)?;
    let mut extraction = Extraction::new(worker, prepared.config(), &selection, Arc::clone(&shape), rows);

    let start = Instant::now();
    let mut warnings = Vec::new();
    let mut joined = Vec::new();
    let mut failure = None;
    let mut progress = Progress::new(true);
    for (index, path) in (0u32..).zip(&args.captures) {
        let mut labeller = labels.of_capture(path)?;
        let result = Reader::open(path).map_err(Error::from).and_then(|mut capture| {
            extraction.run(&mut capture, index, &mut labeller, args.engine.keep_going, |counts, share| {
                progress.show_share(share, || format!("{} packets  {}", counts.packets, path.display()));
            })
        });
        joined.extend(labeller.joined().map(|joined| (path.display().to_string(), joined)));
        match result {
            Ok(()) => {}
            Err(error) if args.engine.keep_going && error.kind() == crate::error::Kind::Input => {
                warnings.push(error.to_string());
            }
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    progress.clear();
    let stats = extraction.stats()?;
    let counts = extraction.finish()?;
    let seconds = start.elapsed().as_secs_f64();
    for warning in &warnings {
        eprintln!("warning: {warning}");
    }
    if args.json {
        output::print_json(&summary(
            args, &source, &shape, &counts, &stats, &prepared, seconds, &warnings, &joined,
        ))?;
    } else {
        print(args, &source, &shape, &counts, &stats, prepared.trust, seconds);
        print_joined(&joined);
    }
    // The table holds what could be read.
    failure.map_or(Ok(()), Err)
}

/// How the labels fitted the captures: a list that fits nowhere is not to go unnoticed.
fn print_joined(joined: &[(String, Joined)]) {
    for (capture, joined) in joined {
        println!(
            "{capture}: {} of {} flows listed for its time have packets; {} IP packets are of no listed flow, {} of several that differ",
            joined.matched, joined.listed, joined.unmatched_packets, joined.ambiguous_packets
        );
    }
}

#[allow(clippy::too_many_arguments, reason = "the parts of one report")]
fn summary(
    args: &Args,
    source: &Source,
    shape: &Shape,
    counts: &Counts,
    stats: &abi::Stats,
    prepared: &Prepared,
    seconds: f64,
    warnings: &[String],
    joined: &[(String, Joined)],
) -> Value {
    let labels: Map<String, Value> =
        counts.by_label(shape).into_iter().map(|(label, count)| (label, count.into())).collect();
    let statuses: Map<String, Value> =
        counts.by_status().into_iter().map(|(status, count)| (status.to_owned(), count.into())).collect();
    json!({
        "output": args.output.display().to_string(),
        "packets": counts.packets,
        "rows": counts.rows,
        "labels": labels,
        "statuses": statuses,
        "flows": FlowCounters::from(stats),
        "aggregates": FlowCounters::of_aggregates(stats),
        "features": source.names,
        "not_computed": source.not_computed(),
        "engine": prepared.trust,
        "load_ms": prepared.load_ms,
        "seconds": seconds,
        "packets_per_second": counts.packets as f64 / seconds.max(1e-9),
        "skipped_packets": counts.skipped,
        "warnings": warnings,
        "joined": joined.iter().map(|(capture, joined)| json!({"capture": capture, "flows": joined})).collect::<Vec<_>>(),
    })
}

fn print(
    args: &Args,
    source: &Source,
    shape: &Shape,
    counts: &Counts,
    stats: &abi::Stats,
    trust: Trust,
    seconds: f64,
) {
    let name = |label: String| if label.is_empty() { "(unlabelled)".to_owned() } else { label };
    let mut rows = vec![["label".to_owned(), "rows".to_owned()]];
    rows.extend(counts.by_label(shape).into_iter().map(|(label, count)| [name(label), count.to_string()]));
    table::print(&rows, 1);
    println!();
    let mut rows: Vec<[String; 2]> = counts
        .by_status()
        .into_iter()
        .map(|(status, count)| [status.to_owned(), count.to_string()])
        .collect();
    let skipped = [("packets skipped", counts.skipped)];
    rows.extend(
        FlowCounters::from(stats)
            .counters()
            .into_iter()
            .chain(skipped)
            .map(|(what, count)| [what.to_owned(), count.to_string()]),
    );
    table::print(&rows, 1);
    let rate = format_count(counts.packets as f64 / seconds.max(1e-9));
    println!();
    println!(
        "{} rows of {} packets in {seconds:.2} s ({rate} packets/s, program {}), written to {}",
        counts.rows,
        counts.packets,
        trust.name(),
        args.output.display()
    );
    if source.not_computed() > 0 {
        println!(
            "{} of {} features are null: the bundle's model does not test them, so its program does not compute them \
             (--object: a program for the whole set)",
            source.not_computed(),
            source.names.len()
        );
    }
}
