// SPDX-License-Identifier: Apache-2.0
//! `planes check`: the planes see the packets of a capture at their captured times, and must come to the same.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytemuck::Zeroable;
use serde_json::json;
use wirewise_capture::Reader;
use wirewise_engine::PacketSpan;
use wirewised::abi::Captured;
use wirewised::abi::maps;
use wirewised::error::{Error, Result};
use wirewised::object;
use wirewised::offline::engine_run::{Prepared, Worker};
use wirewised::offline::runtime::{METADATA, Ran, RunSettings, Runtime, RuntimeName};
use wirewised::policy::Policy;
use wirewised::text::output;
use wirewised::{abi, bundle, files};

use crate::Program;
use crate::native::Native;
use crate::packets::LowMemory;

/// The kernel test-runs no larger frame.
const LARGEST_FRAME: usize = 2048;

/// Compare what each plane makes of every packet of a capture
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    program: Program,

    /// Packets to run, at their captured times
    #[arg(long, value_name = "FILE")]
    capture: PathBuf,
}

/// What a plane made of a packet.
type Made = (u32, abi::Scratch);

enum Checked {
    Kernel(Box<Runtime>),
    Engine(Worker),
    Native(Native),
}

pub fn run(args: &Args) -> Result<()> {
    let mut planes = planes(&args.program)?;
    let mut memory = LowMemory::new(METADATA + LARGEST_FRAME)?;
    let mut capture = Reader::open(&args.capture)?;
    let mut returned = BTreeMap::<String, u64>::new();
    let mut classes = BTreeMap::<String, u64>::new();
    let mut packets = 0u64;
    while let Some(packet) = capture.next_packet()? {
        let number = packet.number;
        if packet.frame.len() > LARGEST_FRAME {
            return Err(Error::input(format!("{}: packet {number} is too long", args.capture.display())));
        }
        let (frame, time_ns) = (packet.frame.to_vec(), packet.time_ns);
        let mut first = None;
        for (name, plane) in &mut planes {
            let made = plane.run(&mut memory, &frame, time_ns)?;
            let (of, expected) = first.get_or_insert_with(|| (name.clone(), made));
            if let Some(what) = difference(expected, &made) {
                return Err(Error::other(format!(
                    "{}: packet {number} of {}: plane {name} and plane {of} differ: {what}",
                    args.program.name(),
                    args.capture.display()
                )));
            }
        }
        if let Some((_, (code, scratch))) = first {
            *returned.entry(code.to_string()).or_default() += 1;
            let status = abi::Status::from_code(scratch.status);
            let class = match status {
                Some(abi::Status::Classified) => format!("class {}", scratch.class_id),
                Some(status) => status.to_string(),
                None => format!("status {}", scratch.status),
            };
            *classes.entry(class).or_default() += 1;
        }
        packets += 1;
    }
    let names: Vec<_> = planes.iter().map(|(name, _)| name).collect();
    output::print_json(
        &json!({ "packets": packets, "planes": names, "codes": returned, "verdicts": classes }),
    )
}

fn planes(program: &Program) -> Result<Vec<(String, Checked)>> {
    let name = program.name();
    let bytes = files::read(&program.object, bundle::MAX_BYTES)?;
    let settings = RunSettings {
        hash_seed: object::seed_from(program.seed),
        table_size: Some(program.table_size),
        cpus: 1,
        acts: 0,
    };
    let policy = Policy::all_pass(&[]);
    let element = abi::Element::zeroed();
    let mut kernel = Runtime::new(RuntimeName::Kernel, &name, &bytes, &settings)?;
    kernel.write_policy(&policy, &element)?;
    let mut planes = vec![("kernel".to_owned(), Checked::Kernel(Box::new(kernel)))];
    for (plane, caged) in [("engine", false), ("engine-caged", true)] {
        let mut worker = Prepared::new(&name, &bytes, &settings.in_engine(), caged)?.worker()?;
        worker.write_policy(&policy, &element)?;
        planes.push((plane.to_owned(), Checked::Engine(worker)));
    }
    for (plane, path) in &program.native {
        planes.push((plane.clone(), Checked::Native(Native::load(path)?)));
    }
    Ok(planes)
}

impl Checked {
    fn run(&mut self, memory: &mut LowMemory, frame: &[u8], time_ns: u64) -> Result<Made> {
        let length = METADATA + frame.len();
        let packet = &mut memory.bytes()[..length];
        packet[..METADATA].copy_from_slice(bytemuck::bytes_of(&Captured::of(frame, time_ns)));
        packet[METADATA..].copy_from_slice(frame);
        match self {
            Self::Kernel(plane) => {
                let Ran::Program(fate, scratch) = plane.run(frame, time_ns)? else {
                    return Err(Error::input("the kernel runs no frame shorter than an Ethernet header"));
                };
                Ok((fate as u32, *scratch))
            }
            Self::Engine(worker) => {
                Ok((worker.run(&mut packet[METADATA..], time_ns)?, worker.own()?.scratch))
            }
            Self::Native(native) => {
                native.set(memory, &[PacketSpan { length, metadata: METADATA, ..PacketSpan::default() }]);
                native.run(memory);
                let scratch = native.scratch().ok_or_else(|| object::other_layout(maps::PER_CPU))?;
                Ok((native.codes[0], scratch))
            }
        }
    }
}

/// The first thing in which two planes differ. What a packet without a flow leaves of an earlier one does not count.
fn difference((code, one): &Made, (other_code, other): &Made) -> Option<String> {
    let mut pairs = vec![
        ("XDP code".to_owned(), i64::from(*code), i64::from(*other_code)),
        ("status".to_owned(), one.status.into(), other.status.into()),
    ];
    let has_flow = [abi::Status::Classified, abi::Status::Undecided].map(abi::Status::code);
    if has_flow.contains(&one.status) {
        for (what, read) in [
            ("inferred", (|s| s.inferred) as fn(&abi::Scratch) -> u32),
            ("class", |s| s.class_id),
            ("outcome", |s| s.outcome),
            ("packets of the flow", |s| s.packets),
        ] {
            pairs.push((what.to_owned(), read(one).into(), read(other).into()));
        }
        let features = one.feature.iter().zip(&other.feature).enumerate();
        pairs.extend(features.map(|(index, (a, b))| (format!("feature {index}"), *a, *b)));
    }
    let differing = pairs.into_iter().find(|(_, a, b)| a != b);
    differing.map(|(what, a, b)| format!("{what} is {b}, not {a}"))
}
