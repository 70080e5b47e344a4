// SPDX-License-Identifier: Apache-2.0
//! `wirewised stats`.

use std::time::Duration;

use crate::attachment::AttachmentArgs;
use crate::error::Result;
use crate::input;
use crate::stats::{self, Reading};
use crate::units::Nanoseconds;
use crate::watch::{self, Stop};

const EXAMPLES: &str = "\
Examples:
  wirewised stats                              the counters since the program was attached
  wirewised stats --watch                      a live view with rates; q quits
  wirewised stats --watch --json >> stats.jsonl    one object a second
In observe mode `would drop` counts what enforce mode would have dropped.";

/// Show packets, bytes and rates of each class, what became of them, and the counters of the flow table.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: AttachmentArgs,

    /// Show it again and again, with rates, until q or Ctrl-C
    #[arg(long)]
    watch: bool,

    /// Time between two views
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "watch")]
    interval: Nanoseconds,

    /// Print JSON, with --watch one object a line
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let root = args.which.root()?;
    let attachment = args.which.find()?;
    if args.watch {
        let interval = Duration::from_nanos(args.interval.0);
        return watch::watch(&root, &attachment.interface, interval, args.json, &Stop::on_signals()?);
    }
    let report = stats::report(&attachment, &Reading::take(&attachment)?, None)?;
    if args.json {
        return input::print_json(&report);
    }
    report.print();
    Ok(())
}
