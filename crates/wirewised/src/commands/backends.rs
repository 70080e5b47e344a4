// SPDX-License-Identifier: Apache-2.0
//! `wirewised backends`.

use crate::attachment::args::AttachmentArgs;
use crate::attachment::health::{self, Turn};
use crate::error::Result;
use crate::stop::Stop;
use crate::text::output;
use crate::views;

const EXAMPLES: &str = "\
Examples:
  wirewised backends                    pools, their backends, and what each was sent
  wirewised backends --check            check them as the policy says, until Ctrl-C; says who goes down and comes back
  wirewised backends --check --once     check each once, and act on it at once
Nobody checks by itself: a policy's `health` needs a running `wirewised backends --check`, one for each interface. If that
ends, backends stay as they were found last.";

/// Show the pools that a policy sends to, and check whether their backends live.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: AttachmentArgs,

    /// Check the backends of pools with `health`, and take those that fail out of their pool
    #[arg(long)]
    check: bool,

    /// Check each backend once instead of until Ctrl-C; one result is enough
    #[arg(long, requires = "check")]
    once: bool,

    /// Print JSON, with --check one object a line
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    // Before anything is checked: that there are pools.
    let running = args.which.find()?;
    let pools = running.pools()?;
    if !args.check {
        return if args.json { output::print_json(&pools) } else { views::backends::print(&pools) };
    }
    if args.once {
        health::once(&args.which)?.iter().for_each(|turn| tell(turn, args.json));
        return Ok(());
    }
    health::watch(&args.which, &Stop::on_signals()?, |turn| tell(turn, args.json))
}

fn tell(turn: &Turn, json: bool) {
    if json {
        println!("{}", serde_json::to_string(turn).unwrap_or_default());
        return;
    }
    let Turn { time, pool, backend, up, why } = turn;
    let why = why.as_ref().map_or(String::new(), |why| format!(": {why}"));
    println!("{time}  {pool}  {backend} {}{why}", if *up { "is back" } else { "is down" });
}
