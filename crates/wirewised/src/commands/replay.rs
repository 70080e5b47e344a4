// SPDX-License-Identifier: Apache-2.0
//! `wirewised replay`: a bundle on captured traffic, in user space.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Map;
use wirewise_capture::{Merge, Reader};

use super::EngineArgs;
use super::trace::{ModeArg, ObservedArgs, without_sockets};
use crate::abi::{self, Mode};
use crate::bundle::Bundle;
use crate::error::Result;
use crate::files::place::OutputPath;
use crate::offline::capture_out::CaptureOut;
use crate::offline::engine_run::Prepared;
use crate::offline::replay::{
    Elsewhere, FlowRows, Names, Outputs, PacketRows, Replay, ReplaySummary, Shards, Totals,
};
use crate::offline::runner;
use crate::offline::runtime::RunSettings;
use crate::policy::{ClassAction, Policy};
use crate::rows::{Format, TableFile};
use crate::text::output;
use crate::text::progress::Progress;
use crate::text::units::Rate;

/// Run a bundle on captures, as the data path would have seen them
///
/// The unmodified program runs in user space, on the captured times; several captures are merged by time. Nothing is attached and no
/// packet is sent. At the end it prints the counters that `stats` shows of an interface. docs/replay.md says more.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wirewised replay day.pcap.zst --bundle forest.wirewise
  wirewised replay a.pcap b.pcapng --bundle forest.wirewise --policy policy.yaml --mode enforce \\
      --passed clean.pcap --dropped attack.pcap --verdicts verdicts.parquet --workers 4")]
pub struct Args {
    /// pcap or pcapng files, also compressed (gzip, zstd, xz, bzip2, lz4); - reads standard input
    #[arg(required = true)]
    captures: Vec<PathBuf>,

    /// Bundle made by `wirewise compile`
    #[arg(long, value_name = "FILE")]
    bundle: PathBuf,

    /// Policy file; without it every class passes
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// Whether the policy's drops happen or are only counted
    #[arg(long, value_enum, default_value_t = ModeArg::Observe)]
    mode: ModeArg,

    #[command(flatten)]
    observed: ObservedArgs,

    /// Threads that run the program; each has flows and flow tables of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,

    /// Write the packets that pass to this capture, with their link types (.pcapng can have several)
    #[arg(long, value_name = "FILE", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath)]
    passed: Option<OutputPath>,

    /// Write the packets that are dropped to this capture
    #[arg(long, value_name = "FILE", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath)]
    dropped: Option<OutputPath>,

    /// Write the packets that go to another interface or back to this capture
    #[arg(long, value_name = "FILE", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath)]
    elsewhere: Option<OutputPath>,

    /// Write the packets that go elsewhere to this folder, a capture for each place: to-eth2.pcapng, bounced.pcapng
    #[arg(long, value_name = "DIR")]
    out_dir: Option<PathBuf>,

    /// Write verdicts to this table: .parquet or .jsonl
    #[arg(long, value_name = "FILE", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath)]
    verdicts: Option<OutputPath>,

    /// What a row of the verdicts is
    #[arg(long, value_enum, default_value_t = Per::Packet, requires = "verdicts")]
    per: Per,

    #[command(flatten)]
    engine: EngineArgs,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Per {
    Packet,
    Flow,
}

pub fn run(args: &Args) -> Result<()> {
    let bundle = Bundle::read(&args.bundle)?;
    let input_name = args.bundle.display().to_string();
    let classes = &bundle.manifest.classes;
    let mode: Mode = args.mode.into();
    let mut policy = Policy::given(args.policy.as_deref(), classes, mode)?;
    let observed = args.observed.read(classes)?;
    // Nobody listens to events here.
    policy.events.rate = Rate::per_second(0);
    let mut totals = Totals::default();
    totals.warnings.extend(without_sockets(&policy).map(str::to_string));
    let mut captures = open(&args.captures, args.engine.keep_going, &mut totals)?;
    let settings = RunSettings {
        hash_seed: runner::hash_seed(args.engine.seed)?,
        table_size: Some(args.engine.table_size.unwrap_or(bundle.manifest.flow.table_size)),
        cpus: 1,
        acts: policy.steering_kinds(),
    };
    let prepared = Prepared::new(&input_name, &bundle.object, &settings.in_engine(), args.engine.caged)?;
    let (workers, shards) = workers(args, &bundle, &policy, prepared.config());
    let paths: Vec<String> = args.captures.iter().map(|path| path.display().to_string()).collect();
    let names =
        Names::new(paths.clone(), classes.clone(), policy.actions.iter().map(|class| class.action.keys()));
    let outputs = outputs(args, &names, &policy)?;
    let mut replay = Replay {
        prepared: &prepared,
        names,
        workers,
        shards,
        keep_going: args.engine.keep_going,
        outputs,
        totals,
    };
    let start = Instant::now();
    let mut progress = Progress::new(true);
    let (stats, failure) = replay.run(
        &mut captures,
        // `enforce_for` counts from the first packet.
        |engine, first_ns| {
            engine.write_policy(&policy, &observed.apply(policy.to_abi(first_ns, mode), first_ns))
        },
        |totals, share| progress.show_share(share, || format!("{} packets", totals.packets)),
    )?;
    progress.clear();
    let seconds = start.elapsed().as_secs_f64();
    for warning in &replay.totals.warnings {
        eprintln!("warning: {warning}");
    }
    let report = ReplaySummary {
        bundle: bundle.manifest.name.clone(),
        mode,
        captures: paths,
        workers,
        load_ms: prepared.load_ms,
        seconds,
        packets_per_second: replay.totals.packets as f64 / seconds.max(1e-9),
        written: written(args),
        ..ReplaySummary::new(&stats, &policy, &replay.totals, prepared.trust)
    };
    if args.json {
        output::print_json(&report)?
    } else {
        report.print()
    }
    // What could be read is processed and written.
    failure.map_or(Ok(()), Err)
}

fn open(paths: &[PathBuf], keep_going: bool, totals: &mut Totals) -> Result<Merge> {
    let mut readers = Vec::with_capacity(paths.len());
    let mut sources = Vec::with_capacity(paths.len());
    let mut refused = None;
    for (index, path) in paths.iter().enumerate() {
        match Reader::open(path) {
            Ok(reader) => {
                readers.push(reader);
                sources.push(index);
            }
            Err(error) if keep_going => {
                totals.warnings.push(error.to_string());
                refused.get_or_insert(error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    // Going on needs something to go on with.
    if let Some(error) = refused.filter(|_| readers.is_empty()) {
        return Err(error.into());
    }
    totals.sources = sources;
    Ok(Merge::new(readers))
}

/// How many workers, and what their shares are: one where flows, or a rate limit, cannot be shared out.
fn workers(args: &Args, bundle: &Bundle, policy: &Policy, config: &abi::Config) -> (usize, Option<Shards>) {
    let tunnels = bundle.features["decapsulate"].as_array().is_some_and(|tunnels| !tunnels.is_empty());
    let limits = policy.actions.iter().any(|class| matches!(class.action, ClassAction::RateLimit(_)));
    let shards = Shards::new(&bundle.manifest.flow.key, config);
    let aggregates = !bundle.manifest.flow.aggregates.is_empty();
    let why = match (&shards, tunnels, limits) {
        _ if aggregates => Some("it keeps what packets of several flows have in common"),
        _ if policy.bans().next().is_some() => Some("a ban is about all flows of a sender"),
        (None, ..) => Some("its flow key is not known here"),
        (_, true, _) => Some("it looks into tunnels, whose outer headers do not tell the flows apart"),
        (_, _, true) => Some("a rate limit counts the packets of all flows"),
        _ => None,
    };
    let Some(why) = why else { return (usize::from(args.workers), shards) };
    if args.workers > 1 {
        eprintln!("note: one worker runs this bundle: {why}");
    }
    (1, None)
}

fn outputs(args: &Args, names: &Arc<Names>, policy: &Policy) -> Result<Outputs> {
    let mut outputs = Outputs {
        passed: args.passed.as_deref().map(CaptureOut::create).transpose()?,
        dropped: args.dropped.as_deref().map(CaptureOut::create).transpose()?,
        elsewhere: args.elsewhere.as_deref().map(CaptureOut::create).transpose()?,
        ..Outputs::default()
    };
    if let Some(folder) = &args.out_dir {
        outputs.by_place = Some(Elsewhere::create(folder, policy)?);
    }
    if let Some(path) = &args.verdicts {
        let format = Format::of(path)?;
        match args.per {
            Per::Packet => {
                let rows = PacketRows::new(Arc::clone(names));
                outputs.packets = Some((TableFile::create(path, format, &rows, &[])?, rows));
            }
            Per::Flow => {
                let rows = FlowRows::new(Arc::clone(names));
                outputs.flows = Some((TableFile::create(path, format, &rows, &[])?, rows));
            }
        }
    }
    Ok(outputs)
}

fn written(args: &Args) -> Map<String, serde_json::Value> {
    let files = [
        ("passed", args.passed.as_deref()),
        ("dropped", args.dropped.as_deref()),
        ("elsewhere", args.elsewhere.as_deref()),
        ("out-dir", args.out_dir.as_deref()),
        ("verdicts", args.verdicts.as_deref()),
    ];
    let files = files.into_iter().filter_map(|(what, path)| Some((what, path?)));
    files.map(|(what, path)| (what.to_owned(), path.display().to_string().into())).collect()
}
