// SPDX-License-Identifier: Apache-2.0
//! `wirewised trace`: what a bundle's program makes of each packet of a capture.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;
use wirewise_capture::{LinkType, Packet, Reader};

use crate::abi::{Fate, Mode};
use crate::bundle;
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::files;
use crate::files::place::OutputPath;
use crate::files::whole_file;
use crate::offline::capture_out::CaptureOut;
use crate::offline::runner::{self, Observed, RunOptions, Runner};
use crate::offline::runtime::RuntimeName;
use crate::offline::trace_output::{Format, Writer};
use crate::policy::Policy;
use crate::text::nearest::choose;
use crate::text::output;
use crate::text::progress::Progress;
use crate::text::units::Nanoseconds;

const PROGRESS_EVERY: u64 = 1 << 14;

/// Run a capture through a bundle's program, packet by packet
///
/// Every packet of a capture goes through the program, with the captured times, and a line says what came of it. The program runs in
/// this kernel, or without privilege in the engine; both say the same. Nothing is attached to an interface and no packet
/// leaves.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: wirewised trace attack.pcap --bundle forest.wirewise --policy policy.yaml --mode enforce | head")]
pub struct Args {
    /// pcap or pcapng file, also compressed (gzip, zstd, xz, bzip2, lz4); - reads standard input
    capture: PathBuf,

    #[command(flatten)]
    run: RunArgs,

    /// Run this compiled eBPF object in the place of the bundle's program; whatever it holds: only for objects of your own
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,

    /// Write to this file instead of standard output; it appears when the whole capture was run
    #[arg(short, long, value_name = "FILE", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath)]
    output: Option<OutputPath>,

    #[arg(long, value_enum, default_value_t = Format::Jsonl)]
    format: Format,

    /// With -o: print what was done as JSON. (Without, what is printed is JSON anyway, an object a packet.)
    #[arg(long)]
    json: bool,

    /// Write the packets that are not dropped to this capture, as the program leaves them
    #[arg(long, value_name = "FILE", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath)]
    write_packets: Option<OutputPath>,

    /// At the end, write the flow table to this file, one JSON object a flow
    #[arg(long, value_name = "FILE", value_parser = OutputPath::parser(),
          value_hint = clap::ValueHint::FilePath)]
    dump_flows: Option<OutputPath>,
}

/// What a run of captured packets needs, here and for `explain`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Bundle made by `wirewise compile`
    #[arg(short, long, value_name = "FILE")]
    pub bundle: PathBuf,

    /// Policy file; without it every class passes
    #[arg(short, long, value_name = "FILE")]
    pub policy: Option<PathBuf>,

    /// Whether the policy's drops happen or are only counted
    #[arg(long, value_enum, default_value_t = ModeArg::Observe)]
    pub mode: ModeArg,

    #[command(flatten)]
    pub observed: ObservedArgs,

    /// Seed of the flow table's hash, for runs that must be repeatable; without it the hash is random
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Entries of the flow table, a power of two; without it the bundle's
    #[arg(long, value_name = "ENTRIES")]
    pub table_size: Option<u32>,

    /// Where the program runs; by default in the kernel if this process may load programs, otherwise in the engine
    #[arg(long, value_enum)]
    pub plane: Option<RuntimeName>,

    /// In the kernel, run each packet on one of this many CPUs, chosen at random, one packet after the other
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub cpus: u32,
}

/// Classes that observe although the policy is enforced, as `wirewised mode` has them do.
#[derive(Debug, clap::Args)]
pub struct ObservedArgs {
    /// In enforce mode, only observe this class; with a time (`scan=10s`), for so long from the first packet. Again for each further class
    #[arg(long = "observe", value_name = "CLASS[=TIME]")]
    classes: Vec<String>,
}

impl ObservedArgs {
    pub fn read(&self, classes: &[String]) -> Result<Observed> {
        let read = |text: &String| {
            // A class may have the sign in its name.
            let whole = classes.iter().position(|class| class == text).map(|class| (class, None));
            let (name, time) =
                text.rsplit_once('=').map_or((text.as_str(), None), |(name, time)| (name, Some(time)));
            let timed = || {
                let class = classes.iter().position(|class| class == name).ok_or_else(|| {
                    Error::input(format!(
                        "--observe {text}: the bundle has no class '{name}'; {}",
                        choose(name, classes)
                    ))
                })?;
                let time = time.map(str::parse::<Nanoseconds>).transpose();
                Ok((class, time.map_err(|error| Error::input(format!("--observe {text}: {error}")))?))
            };
            whole.map_or_else(timed, Ok)
        };
        self.classes.iter().map(read).collect::<Result<_>>().map(Observed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ModeArg {
    /// Every packet passes; what would have been dropped is counted
    Observe,
    /// Packets are dropped as the policy says
    Enforce,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Self {
        match mode {
            ModeArg::Observe => Self::Observe,
            ModeArg::Enforce => Self::Enforce,
        }
    }
}

impl RunArgs {
    /// The bundle's name in errors.
    pub fn name(&self) -> String {
        self.bundle.display().to_string()
    }

    pub fn options(&self, bundle: &Bundle) -> Result<RunOptions> {
        let classes = &bundle.manifest.classes;
        let policy = Policy::given(self.policy.as_deref(), classes, self.mode.into())?;
        if let Some(warning) = without_sockets(&policy) {
            eprintln!("warning: {warning}");
        }
        let hash_seed = runner::hash_seed(self.seed)?;
        Ok(RunOptions {
            policy,
            mode: self.mode.into(),
            observed: self.observed.read(classes)?,
            hash_seed,
            table_size: self.table_size,
            cpus: self.cpus,
        })
    }
}

/// What of a policy does nothing for captured packets, in the engine and in the kernel: they are of no connection of this host.
pub fn without_sockets(policy: &Policy) -> Option<&'static str> {
    policy.established.then_some(
        "policy: `established: true` has no effect on captured packets, which belong to no socket of this host: some that are \
         dropped here would pass on an interface",
    )
}

pub fn run(args: &Args) -> Result<()> {
    if args.output.is_none() && args.format == Format::Raw && io::stdout().is_terminal() {
        return Err(Error::input("raw records are not for a terminal: give -o FILE, or --format jsonl"));
    }
    if args.output.is_none() && args.format == Format::Raw && args.json {
        return Err(Error::input("raw records are no JSON: give -o FILE, or leave out --format raw"));
    }
    let mut bundle = Bundle::read(&args.run.bundle)?;
    if let Some(path) = &args.object {
        bundle.object = files::read(path, bundle::MAX_OBJECT)?;
    }
    let options = args.run.options(&bundle)?;
    let policy = options.policy.clone();
    let mut capture = Reader::open(&args.capture)?;
    let plane = RuntimeName::choose(args.run.plane);
    let mut runner = Runner::new(&args.run.name(), &bundle, plane, options)?;
    let start = Instant::now();
    let mut left = args.write_packets.as_deref().map(CaptureOut::create).transpose()?;
    let mut run = |out: &mut dyn Write| {
        run_all(args.format, (&bundle, &policy), &mut runner, &mut capture, &mut left, out)
    };
    let mut files = Vec::new();
    let packets = match &args.output {
        None => run(&mut io::stdout().lock())?,
        Some(path) => {
            let (packets, file) = whole_file::write(path, |mut file| run(&mut file))?;
            files.push(file);
            packets
        }
    };
    if let Some(left) = left {
        files.push(left.finish()?);
    }
    let seconds = start.elapsed().as_secs_f64();
    if let Some(path) = &args.dump_flows {
        files.push(whole_file::write(path, |file| dump_flows(&runner, file))?.1);
    }
    whole_file::commit_all(files)?;
    if args.output.is_some() {
        let rate = packets as f64 / seconds.max(1e-9);
        let load_ms = runner.load_time().as_secs_f64() * 1e3;
        if args.json {
            return output::print_json(&json!({
                "bundle": bundle.manifest.name, "capture": args.capture, "plane": plane, "mode": Mode::from(args.run.mode),
                "packets": packets, "seconds": seconds, "packets_per_second": rate, "load_ms": load_ms, "engine": runner.trust(),
                "written": args.output, "packets_written": args.write_packets, "flows_written": args.dump_flows,
            }));
        }
        eprintln!(
            "{packets} packets in {seconds:.2} s ({rate:.0} packets/s, program {}), loaded in {load_ms:.1} ms",
            runner.trust().name()
        );
    }
    Ok(())
}

/// Number of packets. What came of whole packets is written even if the capture then breaks off.
fn run_all(
    format: Format,
    (bundle, policy): (&Bundle, &Policy),
    runner: &mut Runner<'_>,
    capture: &mut Reader,
    left: &mut Option<CaptureOut>,
    out: impl Write,
) -> Result<u64> {
    let shape = (runner.n_features(), runner.n_scores());
    let mut writer = Writer::new(format, (bundle, policy), shape, BufWriter::with_capacity(1 << 16, out))
        .map_err(output)?;
    // Results on the same terminal are progress enough.
    let mut progress = Progress::new(!io::stdout().is_terminal());
    let mut packets = 0;
    let read = loop {
        let packet = match capture.next_packet() {
            Ok(Some(packet)) => packet,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error.into()),
        };
        let observation = runner.run(&packet)?;
        writer.write(&packet, &observation).map_err(output)?;
        if let Some(left) = left.as_mut().filter(|_| observation.fate != Fate::Dropped) {
            let frame = runner.frame(&packet);
            // It may have grown or shrunk.
            let grown = frame.len() as i64 - packet.frame.len() as i64;
            let wire_length = u32::try_from(i64::from(packet.wire_length) + grown).unwrap_or_default();
            left.write(&Packet { original: &frame, link: LinkType::ETHERNET, wire_length, ..packet })?;
        }
        packets = packet.number;
        if packets.is_multiple_of(PROGRESS_EVERY) {
            progress.show(|| format!("{packets} packets"));
        }
    };
    progress.clear();
    writer.finish().map_err(output)?;
    read.map(|()| packets)
}

fn dump_flows(runner: &Runner<'_>, out: impl Write) -> Result<()> {
    let mut out = BufWriter::new(out);
    for table in runner.flow_tables()? {
        for flow in table.flows() {
            let mut line = json!(&flow);
            line["features"] = json!(flow.values(&runner.layout().features));
            serde_json::to_writer(&mut out, &line).map_err(|error| output(error.into()))?;
            out.write_all(b"\n").map_err(output)?;
        }
    }
    out.flush().map_err(output)
}

fn output(error: io::Error) -> Error {
    Error::other(format!("cannot write: {error}"))
}
