// SPDX-License-Identifier: Apache-2.0
//! `wirewised doctor`.

use serde_json::json;

use crate::attachment::doctor;
use crate::attachment::doctor::finding::{Finding, Level};
use crate::attachment::pins::RootArgs;
use crate::error::{Error, Result};
use crate::plane::Plane;
use crate::text::output;

const EXAMPLES: &str = "\
Examples:
  wirewised doctor                       kernel, privileges, BPF file system
  wirewised doctor --interface eth0      and the driver, MTU, offloads, queues, other programs
`run` does the same checks before it attaches anything. Exit code 3: something `run` would fail on.";

/// Check whether this machine and interface can run wirewise; each finding comes with its remedy.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Look at this interface too
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    /// The plane that is wanted
    #[arg(long, value_enum, default_value_t = Plane::XDP_NATIVE, requires = "interface")]
    plane: Plane,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    root: RootArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let root = args.root.root()?;
    let mut findings = doctor::check_machine(&root);
    if let Some(interface) = &args.interface {
        findings.extend(doctor::check_interface(interface, args.plane, &root, None));
    }
    let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
    if args.json {
        output::print_json(&json!({ "ready": errors == 0, "findings": findings }))?;
    } else {
        findings.iter().for_each(print);
    }
    match errors {
        0 => Ok(()),
        1 => Err(Error::missing("1 finding would keep `run` from working; its remedy stands above")),
        _ => Err(Error::missing(format!(
            "{errors} findings would keep `run` from working; their remedies stand above"
        ))),
    }
}

fn print(finding: &Finding) {
    let sign = match finding.level {
        Level::Ok => "ok     ",
        Level::Note => "note   ",
        Level::Warning => "warning",
        Level::Error => "ERROR  ",
    };
    println!("{sign}  {:<13}  {}", finding.check, finding.found);
    if let Some(remedy) = &finding.remedy {
        println!("{:24}  -> {remedy}", "");
    }
}
