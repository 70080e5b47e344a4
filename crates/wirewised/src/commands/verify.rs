// SPDX-License-Identifier: Apache-2.0
//! `wirewised verify`: whether this kernel's verifier accepts an object.

use std::path::PathBuf;

use serde::Serialize;

use crate::bundle;
use crate::bundle::Bundle;
use crate::bundle::signature::{self, Signer};
use crate::error::{Error, Result};
use crate::files;
use crate::kernel;
use crate::object::verifier::Refusal;
use crate::object::{Opened, ProgramInfo, Settings};
use crate::plane::Plane;
use crate::text::output;
use crate::trust::keys::TrustArgs;
use crate::trust::rebuild::{self, Rebuilt};

const EXAMPLES: &str = "\
Examples:
  wirewised verify --bundle model.wirewise
  wirewised verify --bundle model.wirewise --require-signature --no-load
      what can be told without privilege: digests, who signed it, and that it holds nothing but a program of wirewise's
  wirewised verify --bundle model.wirewise --rebuild
      and that its program is what its sources give, instruction for instruction (needs clang, of the version that made it)";

/// Ask this kernel's verifier whether it accepts a program
///
/// Loads the program and unloads it again; nothing is attached. For a bundle it also says who signed it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    what: What,

    #[command(flatten)]
    trust: TrustArgs,

    /// Compile the bundle's sources again and compare the program with the one in it, instruction for instruction
    #[arg(long, conflicts_with = "object")]
    rebuild: bool,

    /// As a program of this plane
    #[arg(long, value_enum, default_value_t = Plane::XDP_NATIVE)]
    plane: Plane,

    /// Do not ask the kernel: check the bundle only, which needs no privilege
    #[arg(long, conflicts_with = "object")]
    no_load: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A program, as an option names it.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct What {
    /// Compiled eBPF object (.bpf.o); whatever it contains is loaded, so give only objects of your own
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,

    /// Bundle whose program is checked; refused if it contains anything that wirewise does not generate
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct VerifyReport {
    /// Null: the kernel was not asked.
    accepted: Option<bool>,
    kernel: String,
    programs: Vec<ProgramInfo>,
    load_ms: Option<f64>,
    refusal: Option<Refusal>,
    /// Of a bundle; null: not signed.
    signature: Option<Signer>,
    rebuild: Option<Rebuilt>,
}

pub fn run(args: &Args) -> Result<()> {
    let bundle = args.what.bundle.as_deref().map(|path| args.trust.read(path)).transpose()?;
    let (name, object) = match &bundle {
        Some(bundle) => (args.what.name(), bundle.object.clone()),
        None => args.what.read()?,
    };
    let rebuilt = bundle.as_ref().filter(|_| args.rebuild).map(|bundle| rebuild::rebuild(&name, bundle));
    let mut report = VerifyReport {
        accepted: None,
        kernel: kernel::release(),
        programs: Vec::new(),
        load_ms: None,
        refusal: None,
        signature: bundle.as_ref().and_then(|bundle| bundle.signer.clone()),
        rebuild: rebuilt.transpose()?,
    };
    // What its sources do not give is not for the kernel.
    let as_stated = report.rebuild.as_ref().is_none_or(|rebuilt| rebuilt.same);
    if !args.no_load && as_stated {
        load(&name, &object, args.plane, &mut report)?;
    }
    if args.json {
        output::print_json(&report)?;
    } else {
        print(&name, &report, bundle.is_some());
    }
    if let Some(Rebuilt { clang, difference: Some(difference), .. }) = &report.rebuild {
        return Err(Error::input(format!(
            "{name}: its program is not what its sources give with clang {clang}: {difference}; was it clang {}? If so, do not run it",
            bundle.map(|bundle| bundle.manifest.program.clang).unwrap_or_default()
        )));
    }
    report.refusal.map_or(Ok(()), |refusal| Err(refusal.into_error(&name)))
}

fn load(name: &str, object: &[u8], plane: Plane, report: &mut VerifyReport) -> Result<()> {
    let mut opened = Opened::open(name, object)?;
    opened.prepare(&Settings::live(plane.runs())?)?;
    match opened.try_load()? {
        Ok(loaded) => {
            report.programs = loaded.programs()?;
            report.load_ms = Some((loaded.load_time.as_secs_f64() * 1e6).round() / 1e3);
        }
        Err(refusal) => report.refusal = Some(refusal),
    }
    report.accepted = Some(report.refusal.is_none());
    Ok(())
}

impl What {
    /// What errors call it, and the object.
    pub fn read(&self) -> Result<(String, Vec<u8>)> {
        let object = match (&self.object, &self.bundle) {
            (Some(path), _) => files::read(path, bundle::MAX_OBJECT)?,
            (None, Some(path)) => Bundle::read(path)?.object,
            (None, None) => return Err(Error::input("give --object or --bundle")),
        };
        Ok((self.name(), object))
    }

    fn name(&self) -> String {
        let path = self.object.as_ref().or(self.bundle.as_ref());
        path.map_or_else(String::new, |path| path.display().to_string())
    }
}

fn print(name: &str, report: &VerifyReport, is_bundle: bool) {
    if is_bundle {
        println!("{name}: signed {}", signature::describe(report.signature.as_ref()));
    }
    if let Some(Rebuilt { same: true, clang, .. }) = &report.rebuild {
        println!("{name}: its sources give the same program, instruction for instruction (clang {clang})");
    }
    if report.accepted != Some(true) {
        return;
    }
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
