// SPDX-License-Identifier: Apache-2.0
//! `wirewised rollback`.

use serde_json::{Value, json};

use crate::abi::maps::{PER_CPU, POLICY};
use crate::attachment::Attachment;
use crate::attachment::args::AttachmentArgs;
use crate::attachment::swap;
use crate::error::Result;
use crate::text::output;

const EXAMPLES: &str = "\
Examples:
  wirewised rollback --dry-run
  wirewised rollback                     what ran before the last swap runs again
  wirewised rollback                     and once more: the rollback itself is undone";

/// Go back to what ran before the last swap, under load and in one step.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: AttachmentArgs,

    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let each = args.which.each()?;
    // Before the first goes back, so that one that cannot keeps all others from it.
    for which in &each {
        let ours = which.find()?;
        ours.require_here()?;
        swap::previous(&ours)?;
    }
    let told = each.iter().map(|which| run_on(args, which)).collect::<Result<Vec<_>>>()?;
    match &told.into_iter().flatten().collect::<Vec<_>>()[..] {
        _ if !args.json => Ok(()),
        [one] => output::print_json(one),
        several => output::print_json(&json!({ "interfaces": several })),
    }
}

fn run_on(args: &Args, which: &AttachmentArgs) -> Result<Option<Value>> {
    let (lock, ours) = which.find_locked(args.dry_run, |_| Ok(()))?;
    let (previous, meta) = swap::previous(&ours)?;
    let shares = |map: &str| ours.shares(&previous, map);
    let flows = if ours.shares_flows(&previous) { "kept" } else { "as it left them" };
    let counters = if shares(PER_CPU) { "kept" } else { "as it left them" };
    let policy = if shares(POLICY) { "kept" } else { "the one it had" };
    let from = ours.meta.as_ref().map(|meta| meta.bundle.clone());
    let attachment = if args.dry_run { None } else { Some(swap::rollback(&ours)?) };
    drop(lock);
    let status = attachment.as_ref().map(Attachment::status).transpose()?;
    let action = if args.dry_run { "would roll back" } else { "rolled back" };
    if args.json {
        return Ok(Some(json!({
            "action": action, "dry_run": args.dry_run, "interface": ours.interface, "from": from, "to": meta.bundle,
            "flows": flows, "counters": counters, "policy": policy, "status": status,
        })));
    }
    let name = from.map_or("unknown".to_string(), |bundle| bundle.name);
    println!("{action} on {}: {} instead of {name}", ours.interface, meta.bundle.name);
    for (name, value) in [("flows", flows), ("counters", counters), ("policy", policy)] {
        println!("  {name:<12} {value}");
    }
    if let Some(status) = status {
        println!("  {:<12} {}", "mode", status.describe_mode());
    } else {
        println!("nothing was changed");
    }
    Ok(None)
}
