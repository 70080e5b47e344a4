// SPDX-License-Identifier: Apache-2.0
//! `wirewised record`: rows to train on, from live traffic.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::abi::{self, Clock, Mode};
use crate::error::{Error, Result};
use crate::features::{Counts, FeatureRows, Shape, Source};
use crate::files::place::OutputPath;
use crate::interface::{netdev, netns};
use crate::kernel;
use crate::labels::Labels;
use crate::object::{Loaded, Opened, Settings, policy_maps, seed_from};
use crate::plane::tc;
use crate::plane::user_space::{Options, Workers};
use crate::plane::{Joining, Order, Plane};
use crate::policy::{Policy, Trigger};
use crate::recording::{Limits, Live, Parts, Recorder, Rings, row_bytes};
use crate::stop::Stop;
use crate::text::output;
use crate::text::progress::Progress;
use crate::text::table;
use crate::text::units::{Nanoseconds, format_bytes, format_count};

/// With nothing to read; the rings have room for far more.
const PAUSE: Duration = Duration::from_millis(1);
/// How often what costs more is looked at.
const LOOK: Duration = Duration::from_millis(250);
const FEWEST_ROWS: u32 = 64;
/// What ended it.
const GONE: &str = "interface gone";

/// Record the features of live traffic, as a table to train on
///
/// The program without a model runs on the interface, lets every packet pass, and leaves a row of each packet that is asked for. The
/// table is the one that `features` makes of a capture of the same packets; `capture` is the interface, `packet` counts those that the row's
/// CPU saw. Ends with Ctrl-C, SIGTERM or a limit; nothing stays attached, however it ends. `wirewise record -f NAME` compiles
/// the program and calls this.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  wirewise record --interface eth0 -f galvao2026 --label urllc -o urllc.parquet --duration 10m
  wirewised record --interface eth0 --plane af-xdp --object set.bpf.o --feature-set set.json -o table.parquet
  wirewised record --interface eth0 --object set.bpf.o --feature-set set.json -o parts --part-rows 10000000")]
#[command(group = clap::ArgGroup::new("selection").args(["at", "interval"]))]
#[command(group = clap::ArgGroup::new("truth").args(["label", "labels"]))]
pub struct Args {
    /// The interface whose packets are recorded
    #[arg(long, value_name = "NAME")]
    interface: String,

    /// Object that extracts a whole feature set and has no model; it is loaded into the kernel, so give only your own
    #[arg(long, value_name = "FILE")]
    object: PathBuf,

    /// The feature set the object was compiled for, as JSON
    #[arg(short, long, value_name = "FILE")]
    feature_set: PathBuf,

    /// Table to write: .parquet or .jsonl; with --part-rows or --part-every a folder for .parquet files
    #[arg(short, long, value_name = "PATH", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath)]
    output: OutputPath,

    /// Label of every packet
    #[arg(long, value_name = "LABEL")]
    label: Option<String>,

    /// What each packet is: a label file (.yaml) or a list of flows (.csv, or sorted: .flows)
    #[arg(short, long, value_name = "PATH")]
    labels: Option<PathBuf>,

    /// Label of the packets of no flow in a list of flows; without it they have none
    #[arg(long, value_name = "LABEL", requires = "labels")]
    otherwise: Option<String>,

    /// Where
    #[arg(long, value_enum, default_value_t = Plane::XDP_NATIVE)]
    plane: Plane,

    /// With a plane of TC: before or behind the programs of others
    #[arg(long, value_enum, default_value_t = Order::First)]
    order: Order,

    #[command(flatten)]
    user_space: Options,

    /// Rows at these packet numbers of each flow, such as 1,2,4,8
    #[arg(long, value_name = "N,...", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=i64::from(abi::MAX_TRIGGER_PACKET)))]
    at: Option<Vec<u32>>,

    /// A row for the first packet of each flow in every interval of the clock, such as 1s
    #[arg(long, value_name = "DURATION")]
    interval: Option<Nanoseconds>,

    /// End after so many rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rows: Option<u64>,

    /// End after so long, such as 10m
    #[arg(long, value_name = "DURATION")]
    duration: Option<Nanoseconds>,

    /// End once the table has so many megabytes (10^6 bytes); rows wait in memory for their group, so it can become somewhat larger
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    megabytes: Option<u64>,

    /// Begin a new part of the table once one has so many rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    part_rows: Option<u64>,

    /// Begin a new part of the table after so long
    #[arg(long, value_name = "DURATION")]
    part_every: Option<Nanoseconds>,

    /// Memory for rows that wait to be read, of all CPUs together, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65_536))]
    buffer: u64,

    /// Seed of the flow table's hash, for runs that must be repeatable; without it the hash is random
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Flow-table entries, a power of two; without it the feature set's
    #[arg(long, value_name = "ENTRIES")]
    table_size: Option<u32>,

    /// Enter this network namespace first: a name under /run/netns, or a path such as /proc/PID/ns/net
    #[arg(long, value_name = "NAME|PATH")]
    netns: Option<PathBuf>,

    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Summary {
    interface: String,
    plane: Plane,
    output: Vec<String>,
    packets: u64,
    rows: u64,
    /// Rows that found no room in the buffer.
    lost: u64,
    /// Packets that a plane in user space lost before it saw them: its queue was full.
    missed: u64,
    labels: Map<String, Value>,
    statuses: Map<String, Value>,
    seconds: f64,
    rows_per_second: f64,
    ended_by: &'static str,
}

impl Args {
    fn labels(&self) -> Result<Labels> {
        match (&self.label, &self.labels) {
            (Some(label), _) if label.is_empty() => {
                Err(Error::input("--label: is empty; give a name, or leave it out"))
            }
            (Some(label), _) => Ok(Labels::All(label.clone())),
            (_, Some(path)) if path.is_dir() || path.extension().is_some_and(|suffix| suffix == "json") => {
                Err(Error::input(format!(
                    "{}: a manifest labels captures, not live traffic; give a label file (.yaml) or a list of flows",
                    path.display()
                )))
            }
            (_, Some(path)) => Labels::open(path, self.otherwise.as_deref()),
            _ => Ok(Labels::None),
        }
    }

    fn policy(&self) -> Policy {
        let trigger = match (&self.at, self.interval) {
            (Some(numbers), _) => Trigger::Packets(numbers.iter().copied().collect::<BTreeSet<_>>()),
            (_, Some(interval)) => Trigger::Interval(interval),
            _ => Trigger::Every,
        };
        Policy { trigger, ..Policy::all_pass(&[]) }
    }

    fn parts(&self) -> Limits {
        let time = self.part_every.map(|time| Duration::from_nanos(time.0));
        Limits { rows: self.part_rows, time }
    }

    /// Gives the interface's index; none if it is a device that the kernel has not.
    fn refuse_what_cannot_be(&self) -> Result<Option<u32>> {
        self.user_space.check(self.plane)?;
        self.user_space.check_to(self.plane, &self.interface)?;
        if self.plane.names_device(&self.interface) {
            return Ok(None);
        }
        let ifindex = netdev::index(&self.interface)?;
        if self.plane.is_of_tc() && !tc::is_there(ifindex) {
            return Err(Error::missing(format!(
                "--plane {}: a filter of clsact would outlive a kill, and tcx links need Linux {}; take xdp-generic",
                self.plane,
                tc::SINCE
            )));
        }
        Ok(Some(ifindex))
    }

    /// Begins to bring packets to the program.
    fn attach(&self, loaded: &Loaded) -> Result<Live> {
        if !self.plane.is_in_user_space() {
            let joining = Joining { order: self.order, ..Joining::default() };
            return Live::in_kernel(self.plane, &self.interface, joining, loaded);
        }
        let (name, arguments) = self.plane.parts(&self.interface);
        let shards = loaded.config.map_or(1, |config| config.shards);
        let wanted = self.user_space.wanted(name, arguments, shards);
        Workers::start(&self.object.display().to_string(), loaded, self.plane, &wanted).map(Live::Workers)
    }
}

pub fn run(args: &Args) -> Result<()> {
    kernel::require()?;
    args.netns.as_deref().map_or(Ok(()), netns::enter)?;
    let ifindex = args.refuse_what_cannot_be()?;
    let (source, labels) = (Source::from_object(&args.object, &args.feature_set)?, args.labels()?);
    let shape = Arc::new(Shape {
        features: source.names.clone(),
        computed: source.computed.clone(),
        captures: vec![args.interface.clone()],
        labels: labels.names(),
    });
    let loaded = load(args, &source)?;
    let rings = Rings::new(&loaded, source.names.len())?;
    let metadata = vec![("wirewise.feature_set".to_owned(), source.feature_set.to_string())];
    let blank = FeatureRows::new(Arc::clone(&shape));
    let parts = Parts::create(&args.output, args.parts(), metadata, &blank)?;
    let labeller = labels.of_capture(args.interface.as_ref())?;
    let mut recorder = Recorder::new(rings, Arc::clone(&shape), parts, labeller);

    let stop = Stop::on_signals()?;
    let start = Instant::now();
    let attached = args.attach(&loaded)?;
    eprintln!("recording {} ({}); Ctrl-C ends it", args.interface, args.plane);
    let ended_by = follow(args, ifindex, &attached, &mut recorder, &stop, start)?;
    let missed = attached.end(ended_by == GONE)?;
    while recorder.take(args.rows.unwrap_or(u64::MAX))? > 0 {}
    let seconds = start.elapsed().as_secs_f64();
    let found = recorder.found();
    let (counts, files) = recorder.finish()?;
    let summary = Summary {
        interface: args.interface.clone(),
        plane: args.plane,
        output: files,
        packets: found.packets,
        rows: counts.rows,
        lost: found.lost,
        missed,
        labels: counts.by_label(&shape).into_iter().map(|(label, rows)| (label, rows.into())).collect(),
        statuses: counts.by_status().into_iter().map(|(status, rows)| (status.into(), rows.into())).collect(),
        seconds,
        rows_per_second: counts.rows as f64 / seconds.max(1e-9),
        ended_by,
    };
    if args.json {
        output::print_json(&summary)?
    } else {
        print(&summary, &counts, &shape)
    }
    Ok(())
}

fn load(args: &Args, source: &Source) -> Result<Loaded> {
    let settings = Settings {
        table_size: args.table_size.or(source.table_size),
        clock: Some(Clock::Fine),
        ..Settings::live(args.plane.runs())?
    };
    let room = args.buffer * 1_000_000 / (u64::from(settings.shards) * row_bytes(source.names.len()) as u64);
    if room < u64::from(FEWEST_ROWS) {
        return Err(Error::input(format!(
            "--buffer {}: is too little for {} CPUs and rows of {} bytes; give more",
            args.buffer,
            settings.shards,
            row_bytes(source.names.len())
        )));
    }
    let settings = Settings {
        // A power of two, rounded down; map keys have 32 bits.
        record: 1 << room.ilog2().min(24),
        hash_seed: args.seed.map_or(settings.hash_seed, seed_from),
        ..settings
    };
    let mut opened = Opened::open(&source.input, &source.object)?;
    if opened.config().is_none() {
        return Err(crate::object::no_data_path(&source.input));
    }
    opened.prepare(&settings)?;
    let loaded = opened.load()?;
    let policy = args.policy();
    policy_maps::write(&policy, &policy.to_abi(0, Mode::Observe), |name| loaded.map(name), || Ok(()))?;
    Ok(loaded)
}

/// Until something ends it; says what.
fn follow(
    args: &Args,
    ifindex: Option<u32>,
    attached: &Live,
    recorder: &mut Recorder<'_>,
    stop: &Stop,
    start: Instant,
) -> Result<&'static str> {
    let most = args.rows.unwrap_or(u64::MAX);
    let mut progress = Progress::new(true);
    let mut looked = Instant::now();
    let (mut rows, mut rate) = (0, 0.0);
    let ended_by = loop {
        let taken = recorder.take(most)?;
        if recorder.counts.rows >= most {
            break "rows";
        }
        if stop.asked() {
            break "signal";
        }
        if args.duration.is_some_and(|duration| start.elapsed() >= Duration::from_nanos(duration.0)) {
            break "duration";
        }
        let since = looked.elapsed();
        if since >= LOOK {
            if args.megabytes.is_some_and(|most| recorder.bytes() >= most * 1_000_000) {
                break "megabytes";
            }
            if ifindex.is_some() && netdev::index(&args.interface).ok() != ifindex {
                break GONE;
            }
            if attached.has_failed() {
                break "error";
            }
            rate = (recorder.counts.rows - rows) as f64 / since.as_secs_f64();
            (rows, looked) = (recorder.counts.rows, Instant::now());
        }
        progress.show(|| {
            let lost = recorder.found().lost;
            let bytes = format_bytes(recorder.bytes());
            format!(
                "{rows} rows  {}/s  {lost} lost  {bytes}  {:.0} s",
                format_count(rate),
                start.elapsed().as_secs_f64()
            )
        });
        if taken == 0 {
            std::thread::sleep(PAUSE);
        }
    };
    progress.clear();
    Ok(ended_by)
}

fn print(summary: &Summary, counts: &Counts, shape: &Shape) {
    let name = |label: String| if label.is_empty() { "(unlabelled)".to_owned() } else { label };
    let mut rows = vec![["label".to_owned(), "rows".to_owned()]];
    rows.extend(counts.by_label(shape).into_iter().map(|(label, count)| [name(label), count.to_string()]));
    table::print(&rows, 1);
    println!();
    let statuses = counts.by_status().into_iter().map(|(what, rows)| [what.to_owned(), rows.to_string()]);
    let lost = [("rows lost", summary.lost), ("packets missed", summary.missed)];
    let lost = lost.into_iter().take(if summary.plane.is_in_user_space() { 2 } else { 1 });
    let lost = lost.map(|(what, number)| [what.to_owned(), number.to_string()]);
    let rows: Vec<_> = statuses.chain(lost).collect();
    table::print(&rows, 1);
    let files = match summary.output.as_slice() {
        [only] => only.clone(),
        [first, .., last] => format!("{} files, {first} to {last}", summary.output.len()),
        [] => "nothing".to_owned(),
    };
    println!();
    println!(
        "{} rows of {} packets on {} in {:.2} s ({} rows/s, ended by {}), written to {files}",
        summary.rows,
        summary.packets,
        summary.interface,
        summary.seconds,
        format_count(summary.rows_per_second),
        summary.ended_by
    );
    if summary.lost > 0 {
        eprintln!(
            "warning: {} rows found no room in the buffer and are not in the table; give --buffer more, or record less with --at or --interval",
            summary.lost
        );
    }
    if summary.missed > 0 {
        eprintln!(
            "warning: {} packets came faster than {} takes them, so no flow knows them; take more --workers, or a plane in the kernel",
            summary.missed, summary.plane
        );
    }
}
