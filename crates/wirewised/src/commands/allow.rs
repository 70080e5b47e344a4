// SPDX-License-Identifier: Apache-2.0
//! `wirewised allow`.

use clap::Subcommand;
use serde_json::json;

use crate::attachment::allow::AllowList;
use crate::attachment::args::{AttachmentArgs, ChangeArgs};
use crate::attachment::lists;
use crate::commands::deny::{until, words_for};
use crate::error::Result;
use crate::kernel;
use crate::object::allow::Edit;
use crate::policy::Prefix;
use crate::text::output;
use crate::text::table;
use crate::text::units::Nanoseconds;

const EXAMPLES: &str = "\
Examples:
  wirewised allow add 192.0.2.7 2001:db8::/32 --for 10m     let these through for ten minutes, whatever they send
  wirewised allow remove 192.0.2.7                          end that
  wirewised allow list                                      who is allowed, by whom, and for how long
Packets of an allowed prefix pass before the deny list, bans and the model, as those of the policy's `allow` do. The program itself goes by the
time, whether or not an agent runs. docs/policy.md says more.";

/// Let some addresses through, whatever they send: show and change the allow list while traffic flows.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Allow some prefixes, beside those that are allowed already
    Add {
        /// Addresses or prefixes of IPv4 or IPv6
        #[arg(required = true, value_name = "PREFIX")]
        prefixes: Vec<Prefix>,

        /// How long, such as 10m; without it until they are removed
        #[arg(long = "for", value_name = "TIME")]
        time: Option<Nanoseconds>,

        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Allow some prefixes no longer
    Remove {
        /// As they were given
        #[arg(required = true, value_name = "PREFIX")]
        prefixes: Vec<Prefix>,

        #[command(flatten)]
        change: ChangeArgs,
    },
    /// Show who is allowed, by whom, and for how long
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        which: AttachmentArgs,
    },
}

pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Add { prefixes, time, change } => {
            let until = until(*time);
            make(change, Edit::Add(prefixes.iter().map(|prefix| (*prefix, until)).collect()))
        }
        Command::Remove { prefixes, change } => {
            make(change, Edit::Remove(prefixes.iter().copied().collect()))
        }
        Command::List { json, which } => list(which, *json),
    }
}

fn make(args: &ChangeArgs, edit: Edit) -> Result<()> {
    let (_lock, ours) = args.find_locked()?;
    let list = AllowList::read(&ours)?;
    let change = list.plan(edit)?;
    if !args.dry_run && !change.is_empty() {
        list.apply(&change)?;
    }
    let counts = change.counts;
    if args.json {
        return output::print_json(&json!({
            "interface": ours.interface,
            "changes": counts,
            "dry_run": args.dry_run,
        }));
    }
    println!(
        "{}: {} added, {} changed, {} removed{}",
        ours.interface,
        counts.added,
        counts.changed,
        counts.removed,
        args.note(),
    );
    Ok(())
}

fn list(which: &AttachmentArgs, json: bool) -> Result<()> {
    let ours = which.find()?;
    let list = AllowList::read(&ours)?;
    let entries = list.held.allowances(kernel::boot_s());
    if json {
        let entries: Vec<_> = entries.map(|(prefix, who)| lists::allowance(prefix, &who)).collect();
        return output::print_json(&json!({ "interface": ours.interface, "prefixes": entries }));
    }
    let head = ["prefix", "allowed by", "for"].map(str::to_string);
    let rows = entries.flat_map(|(prefix, who)| {
        who.into_iter()
            .map(|(name, left)| [prefix.to_string(), name.to_string(), words_for(left)])
            .collect::<Vec<_>>()
    });
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    println!("{} on the allow list of {}", rows.len() - 1, ours.interface);
    table::print(&rows, 2);
    Ok(())
}
