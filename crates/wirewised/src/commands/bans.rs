// SPDX-License-Identifier: Apache-2.0
//! `wirewised bans`.

use std::net::IpAddr;

use clap::Subcommand;
use serde_json::json;

use crate::attachment::Attachment;
use crate::attachment::args::{AttachmentArgs, ChangeArgs};
use crate::attachment::lists;
use crate::error::{Error, Result};
use crate::kernel;
use crate::object::bans::Ban;
use crate::text::output;
use crate::text::table;

const EXAMPLES: &str = "\
Examples:
  wirewised bans list                 who is banned, and for how long
  wirewised bans lift 192.0.2.7       let it in again
  wirewised bans lift --all           let all in again
Bans are made by classes with `ban` in the policy, and expire by themselves. To drop an address by hand, use `wirewised deny add ADDRESS
--for 10m`; to keep one from ever being banned, put it into the policy's allow list. docs/policy.md says more.";

/// Show and lift bans: who is dropped for what it sent before.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show who is banned, and for how long
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        which: AttachmentArgs,
    },
    /// End bans before their time
    #[command(group = clap::ArgGroup::new("whose").required(true))]
    Lift {
        /// Those that hold for these addresses, of prefixes and pairs too
        #[arg(value_name = "ADDRESS", group = "whose")]
        addresses: Vec<IpAddr>,

        /// All of them
        #[arg(long, group = "whose")]
        all: bool,

        #[command(flatten)]
        change: ChangeArgs,
    },
}

pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::List { json, which } => list(&which.find()?, *json),
        Command::Lift { addresses, all, change } => {
            let (_lock, ours) = change.find_locked()?;
            lift(&ours, if *all { None } else { Some(addresses) }, change)
        }
    }
}

fn print(bans: &[Ban], now_ns: u64) {
    let head = ["source", "destination", "for", ""].map(str::to_string);
    let row = |ban: &Ban| {
        let left = ban.until_ns.saturating_sub(now_ns).div_ceil(1_000_000_000);
        [
            ban.source.to_string(),
            ban.destination.map_or_else(|| "any".to_string(), |it| it.to_string()),
            format!("{left} s"),
            if ban.would { "observed, nothing is dropped" } else { "" }.to_string(),
        ]
    };
    let rows: Vec<_> = std::iter::once(head).chain(bans.iter().map(row)).collect();
    table::print(&rows, 2);
}

fn list(ours: &Attachment, json: bool) -> Result<()> {
    let now = kernel::monotonic_ns();
    let bans = lists::bans(ours)?.read(now)?;
    if json {
        let bans: Vec<_> = bans.iter().map(|ban| ban.form(now)).collect();
        return output::print_json(&json!({ "interface": ours.interface, "bans": bans }));
    }
    println!("{} banned on {}", bans.len(), ours.interface);
    print(&bans, now);
    Ok(())
}

/// addresses : `None` lifts all.
fn lift(ours: &Attachment, addresses: Option<&Vec<IpAddr>>, change: &ChangeArgs) -> Result<()> {
    let (table, now) = (lists::bans(ours)?, kernel::monotonic_ns());
    let mut bans = table.read(now)?;
    if let Some(addresses) = addresses {
        if let Some(free) = addresses.iter().find(|it| !bans.iter().any(|ban| ban.source.contains(**it))) {
            return Err(Error::input(format!("{free} is not banned; `wirewised bans list` shows who is")));
        }
        bans.retain(|ban| addresses.iter().any(|address| ban.source.contains(*address)));
    }
    if !change.dry_run {
        bans.retain(|ban| table.lift(ban));
    }
    if change.json {
        let bans: Vec<_> = bans.iter().map(|ban| ban.form(now)).collect();
        let lifted = json!({ "interface": ours.interface, "lifted": bans, "dry_run": change.dry_run });
        return output::print_json(&lifted);
    }
    println!("{}: {} lifted{}", ours.interface, bans.len(), change.note());
    print(&bans, now);
    Ok(())
}
