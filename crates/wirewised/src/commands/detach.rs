// SPDX-License-Identifier: Apache-2.0
//! `wirewised detach`.

use serde_json::json;

use crate::attachment::args::attached;
use crate::attachment::detach::{Detached, detach};
use crate::attachment::pins::RootArgs;
use crate::error::Result;
use crate::text::output;

const EXAMPLES: &str = "\
Examples:
  wirewised detach --interface eth0 --dry-run    say what would be removed
  wirewised detach --interface eth0              packets pass as if wirewise had never been there
  wirewised detach --interface eth0,eth1         the same for several; also a pattern, such as eth*";

/// Take wirewise off an interface, or several: the program, its maps and its pins. Nothing is left behind.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The interface, or several: eth0,eth1 or eth*
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
    let root = args.root.root()?;
    let names = attached(&root, &args.interface)?;
    // Before the first is detached, so that a wrong name detaches none.
    names.iter().try_for_each(|name| detach(&root, name, true).map(drop))?;
    let done: Vec<_> = names.iter().map(|name| detach(&root, name, args.dry_run)).collect::<Result<_>>()?;
    match &done[..] {
        [one] if args.json => output::print_json(one),
        several if args.json => output::print_json(&json!({ "interfaces": several })),
        all => {
            all.iter().for_each(|done| print(args, done));
            Ok(())
        }
    }
}

fn print(args: &Args, done: &Detached) {
    let what = if args.dry_run { "would detach" } else { "detached" };
    let programs: Vec<_> = done.program_ids.iter().map(u32::to_string).collect();
    println!("{what} program {} from {}; pins {}", programs.join(", "), done.interface, done.pins.join(", "));
    for merging in &done.offloads {
        println!("  {:<12} on again: {}", "offloads", merging.describe());
    }
    if let Some(next) = &done.next {
        println!("  {:<12} {next} is called by nobody {}", "next", if args.dry_run { "then" } else { "now" });
    }
}
