// SPDX-License-Identifier: Apache-2.0
//! `wirewised stats`.

use std::time::Duration;

use serde_json::json;

use crate::attachment::args::{AttachmentArgs, keep_finding};
use crate::error::{Error, Result};
use crate::reading::statistics::Statistics;
use crate::stop::Stop;
use crate::text::output;
use crate::text::units::Nanoseconds;
use crate::views::{self, stats, watch};

const EXAMPLES: &str = "\
Examples:
  wirewised stats                              the counters since the program was attached
  wirewised stats --watch                      a live view with rates; q quits
  wirewised stats --watch --json >> stats.jsonl    one object a second
  wirewised stats --interface eth0,eth1        those of several interfaces, apart and summed; also eth*
  wirewised stats --drift                      whether flows look like those the model learned from
In observe mode `would drop` counts what enforce mode would have dropped.";

/// Show packets, bytes and rates of each class, what became of them, and the counters of the flow table.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub which: AttachmentArgs,

    /// Keep showing them, with rates, until q or Ctrl-C
    #[arg(long)]
    watch: bool,

    /// Time between two views
    #[arg(long, value_name = "TIME", default_value = "1s", requires = "watch")]
    interval: Nanoseconds,

    /// Say how far live flows are from those the model learned from, and whether it is out of its depth
    #[arg(long, conflicts_with = "watch")]
    drift: bool,

    /// Print JSON, with --watch one object a line
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let each = args.which.each()?;
    if each.len() > 1 {
        return of_several(args, &each);
    }
    if args.watch {
        let find = keep_finding(&args.which.root()?, &args.which.find()?);
        return watch::watch(find, Duration::from_nanos(args.interval.0), args.json, &Stop::on_signals()?);
    }
    let running = args.which.find()?;
    if args.drift {
        let drift = running.drift()?;
        if args.json {
            return output::print_json(&drift);
        }
        views::drift::print(&drift);
        return Ok(());
    }
    let statistics = running.statistics(&running.counters()?, None)?;
    if args.json {
        return output::print_json(&statistics);
    }
    stats::print(&statistics);
    Ok(())
}

/// Counters of each interface, then their sum.
fn of_several(args: &Args, each: &[AttachmentArgs]) -> Result<()> {
    if args.watch || args.drift {
        let option = if args.watch { "--watch" } else { "--drift" };
        return Err(Error::input(format!(
            "{option} looks at one interface; --interface means {}",
            each.len()
        )));
    }
    let mut all = Vec::new();
    let mut readings = Vec::new();
    for which in each {
        let running = which.find()?;
        let counters = running.counters()?;
        all.push(running.statistics(&counters, None)?);
        readings.push((running, counters));
    }
    let total = Statistics::total(&all, readings.iter().map(|(_, counters)| counters));
    if args.json {
        return output::print_json(&json!({ "interfaces": all, "total": total }));
    }
    for statistics in &all {
        stats::print(statistics);
        println!();
    }
    match &total {
        Some(total) => stats::print(total),
        None => println!("no sum: the interfaces run models of other classes"),
    }
    Ok(())
}
