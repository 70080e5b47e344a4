// SPDX-License-Identifier: Apache-2.0
//! `wirewised tunnels`.

use std::path::PathBuf;

use crate::abi::maps::TUNNELS;
use crate::attachment::args::AttachmentArgs;
use crate::attachment::tunnels::greet;
use crate::error::{Error, Result};
use crate::object::tunnels::{Held, replace};
use crate::policy::tunnels::{self, EndName, Tunnel};
use crate::reading::tunnels::no_tunnels;
use crate::text::output;
use crate::views;

const EXAMPLES: &str = "\
Examples:
  wirewised tunnels                              the tunnels, what each has carried, and why other packets passed
  wirewised tunnels --load tunnels.yaml          have the table hold those of a file, and no others
  wirewised tunnels --add ue=10.45.0.2,local=192.0.2.1,teid=0x100,peer=192.0.2.10,peer-teid=0x200,qfi=9
  wirewised tunnels --remove 10.45.0.2           by who is behind it, or as local/teid: 192.0.2.1/0x100
Packets go on meanwhile: those of tunnels that stay miss nothing. docs/tunnels.md describes the file.";

/// Show the tunnels of GTP-U that packets are taken out of and put into, and change them while traffic flows.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: AttachmentArgs,

    /// Have the table hold the tunnels of a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["add", "remove"])]
    load: Option<PathBuf>,

    /// Add a tunnel, in the place of those with the same ends
    #[arg(long, value_name = "TUNNEL")]
    add: Vec<String>,

    /// Remove the tunnel with this end
    #[arg(long, value_name = "END")]
    remove: Vec<String>,

    /// Only say what would change
    #[arg(long)]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    if args.load.is_none() && args.add.is_empty() && args.remove.is_empty() {
        let tunnels = args.which.find()?.tunnels()?;
        return if args.json { output::print_json(&tunnels) } else { views::tunnels::print(&tunnels) };
    }
    // What is asked for can be read, before anything is looked at.
    let file = args.load.as_deref().map(tunnels::load).transpose()?;
    let add = args.add.iter().map(|text| tunnels::one(text).map_err(|error| refuse("--add", text, &error)));
    let add = add.collect::<Result<Vec<_>>>()?;
    let remove = args.remove.iter().map(|text| text.parse().map_err(|error: String| Error::input(error)));
    let remove = remove.collect::<Result<Vec<EndName>>>()?;
    let (_lock, ours) = args.which.find_locked(args.dry_run, |_| Ok(()))?;
    let map = ours.optional_map(TUNNELS)?.ok_or_else(|| no_tunnels(&ours.interface))?;
    let held = Held::read(&map)?;
    let wanted = match file {
        Some(wanted) => wanted,
        None => changed(&held, &add, &remove)?,
    };
    let changes = if args.dry_run {
        held.changes(&wanted)
    } else {
        greet(&wanted);
        replace(&map, &wanted)?
    };
    if args.json {
        return output::print_json(&changes);
    }
    println!(
        "{}: {} tunnels{}: {} added, {} changed, {} removed",
        &ours.interface,
        wanted.len(),
        if args.dry_run { " (dry run: nothing was changed)" } else { "" },
        changes.added,
        changes.changed,
        changes.removed
    );
    Ok(())
}

/// Some fewer, then some more.
fn changed(held: &Held, add: &[Tunnel], remove: &[EndName]) -> Result<Vec<Tunnel>> {
    if remove.is_empty() {
        return held.with(add);
    }
    let left = held.without(remove)?;
    if add.is_empty() { Ok(left) } else { Held::of(&left).with(add) }
}

fn refuse(option: &str, text: &str, error: &str) -> Error {
    Error::input(format!("{option} '{text}': {error}"))
}
