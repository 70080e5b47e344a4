// SPDX-License-Identifier: Apache-2.0
//! `wirewised detach`.

use crate::attachment::detach::detach;
use crate::attachment::pins::RootArgs;
use crate::error::Result;
use crate::text::output;

const EXAMPLES: &str = "\
Examples:
  wirewised detach --interface eth0 --dry-run    say what would be removed
  wirewised detach --interface eth0              packets pass as if wirewise had never been there";

/// Take wirewise off an interface: the program, its maps and its pins. Nothing is left behind.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The interface
    #[arg(long, value_name = "NAME")]
    interface: String,

    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    root: RootArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let done = detach(&args.root.root()?, &args.interface, args.dry_run)?;
    if args.json {
        return output::print_json(&done);
    }
    let what = if args.dry_run { "would detach" } else { "detached" };
    let programs: Vec<_> = done.program_ids.iter().map(u32::to_string).collect();
    println!("{what} program {} from {}; pins {}", programs.join(", "), done.interface, done.pins.join(", "));
    for merging in &done.offloads {
        println!("  {:<12} on again: {}", "offloads", merging.describe());
    }
    if let Some(next) = &done.next {
        println!("  {:<12} {next} is called by nobody {}", "next", if args.dry_run { "then" } else { "now" });
    }
    Ok(())
}
