// SPDX-License-Identifier: Apache-2.0
//! `wirewised verify`: whether this kernel's verifier accepts an object.

use std::path::PathBuf;

use serde::Serialize;

use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::input;
use crate::kernel;
use crate::object::{Opened, ProgramInfo, Settings};
use crate::verifier::Refusal;

/// Ask this kernel's verifier whether it accepts a program
///
/// Loads it, attaches nothing, and unloads it again.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: What,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A program, as an option names it.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct What {
    /// Compiled eBPF object (.bpf.o)
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,

    /// Bundle, whose program is taken
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Report {
    accepted: bool,
    kernel: String,
    programs: Vec<ProgramInfo>,
    load_ms: Option<f64>,
    refusal: Option<Refusal>,
}

pub fn run(args: &Args) -> Result<()> {
    let (name, object) = args.what.read()?;
    let mut opened = Opened::open(&name, &object)?;
    opened.prepare(&Settings::live()?)?;
    let report = match opened.try_load()? {
        Ok(loaded) => Report {
            accepted: true,
            kernel: kernel::release(),
            programs: loaded.programs()?,
            load_ms: Some((loaded.load_time.as_secs_f64() * 1e6).round() / 1e3),
            refusal: None,
        },
        Err(refusal) => Report {
            accepted: false,
            kernel: kernel::release(),
            programs: Vec::new(),
            load_ms: None,
            refusal: Some(refusal),
        },
    };
    if args.json {
        input::print_json(&report)?;
    } else if report.accepted {
        print(&name, &report);
    }
    report.refusal.map_or(Ok(()), |refusal| Err(refusal.into_error(&name)))
}

impl What {
    /// What errors call it, and the object.
    pub fn read(&self) -> Result<(String, Vec<u8>)> {
        match (&self.object, &self.bundle) {
            (Some(path), _) => Ok((path.display().to_string(), input::read(path)?)),
            (None, Some(path)) => Ok((path.display().to_string(), Bundle::read(path)?.object)),
            (None, None) => Err(Error::input("give --object or --bundle")),
        }
    }
}

fn print(name: &str, report: &Report) {
    println!(
        "{name}: accepted by kernel {}, loaded in {:.1} ms",
        report.kernel,
        report.load_ms.unwrap_or(0.0)
    );
    println!("{:<16} {:>12} {:>12} {:>10}", "program", "instructions", "verified", "JIT bytes");
    for program in &report.programs {
        println!(
            "{:<16} {:>12} {:>12} {:>10}",
            program.name, program.instructions, program.verified_instructions, program.jited_bytes
        );
    }
}
