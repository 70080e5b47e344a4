// SPDX-License-Identifier: Apache-2.0
//! `wirewised detach`.

use std::os::fd::AsFd;

use serde::Serialize;

use crate::attachment::Attachment;
use crate::error::{Error, Result};
use crate::input;
use crate::offloads::{self, Merging};
use crate::pins::{Root, RootArgs};
use crate::succession::Places;
use crate::xdp;

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
        return input::print_json(&done);
    }
    let what = if args.dry_run { "would detach" } else { "detached" };
    let programs: Vec<_> = done.program_ids.iter().map(u32::to_string).collect();
    println!("{what} program {} from {}; pins {}", programs.join(", "), done.interface, done.pins.join(", "));
    for merging in &done.offloads {
        println!("  {:<12} on again: {}", "offloads", merging.describe());
    }
    Ok(())
}

/// What was removed, or would be.
#[derive(Debug, Serialize)]
pub struct Detached {
    interface: String,
    dry_run: bool,
    program_ids: Vec<u32>,
    pins: Vec<String>,
    /// What is switched on again.
    offloads: Vec<Merging>,
}

pub fn detach(root: &Root, interface: &str, dry_run: bool) -> Result<Detached> {
    // Taking the lock makes the directory, which a failing command must not.
    let _lock = if root.directories()?.is_empty() { None } else { Some(root.lock()?) };
    // What an agent that was killed half-way left is removed too.
    let found = Attachment::of_interface(Attachment::all(root)?, interface);
    if found.is_empty() {
        let gone = || Error::other("it went away meanwhile");
        return Err(Attachment::find(root, Some(interface)).err().unwrap_or_else(gone));
    }
    let done = Detached {
        interface: interface.to_string(),
        dry_run,
        program_ids: found.iter().filter_map(|found| Some(found.link.as_ref()?.1.program_id)).collect(),
        pins: found.iter().map(|found| found.directory.display().to_string()).collect(),
        offloads: found
            .iter()
            .flat_map(|found| offloads::read(&Places::of(&found.directory).offloads))
            .collect(),
    };
    for Attachment { directory, link, .. } in found.into_iter().filter(|_| !dry_run) {
        // Removing a pin alone detaches some time later.
        let detached = link.map_or(Ok(()), |(link, _)| xdp::detach_link(link.as_fd()));
        detached
            .and_then(|()| Places::of(&directory).remove())
            .map_err(|error| Error::other(format!("{}: cannot be removed: {error}", directory.display())))?;
    }
    Ok(done)
}
