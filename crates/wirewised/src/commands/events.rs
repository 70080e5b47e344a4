// SPDX-License-Identifier: Apache-2.0
//! `wirewised events`.

use std::time::Duration;

use crate::abi::maps::PER_CPU;
use crate::attachment::args::AttachmentArgs;
use crate::error::Result;
use crate::kernel;
use crate::reading::events::Listener;
use crate::reading::notices::{Notices, Pace};
use crate::stop::Stop;
use crate::text::units::Nanoseconds;
use crate::views::events::{GapWarner, Printer};
use crate::views::notices;

const EXAMPLES: &str = "\
Examples:
  wirewised events                     the newest that are kept, 2048 of each CPU, then ends
  wirewised events --follow            goes on until Ctrl-C
  wirewised events --follow --notices  one notice when a flood begins, one every 10 s, and one at its end
  wirewised events --follow --json | jq 'select(.wirewise.outcome == \"drop\") | .src_ip'
There is an event for a packet whose class is dropped, limited or counted, up to the rate `events` of the policy
(`stats` counts those over it); with `events: {each: flow}` or `source`, for each of these. Reading takes nothing away, so any number
of readers may look.";

/// Show packets of classes whose action is not `pass`, one per line, newest last.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub which: AttachmentArgs,

    /// Wait for more
    #[arg(long, short)]
    follow: bool,

    /// One notice for all packets of a class with the same outcome: how many, since when, the top sources and services
    #[arg(long)]
    notices: bool,

    /// Time between two notices while packets keep coming
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "notices")]
    update: Nanoseconds,

    /// A notice ends when nothing has come for so long
    #[arg(long, value_name = "TIME", default_value = "30s", requires = "notices")]
    quiet: Nanoseconds,

    /// The sensor's name in JSON (`host`); without it the name of this host
    #[arg(long, value_name = "NAME")]
    sensor: Option<String>,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let running = args.which.find()?;
    let stop = Stop::on_signals()?;
    let mut events = running.events()?;
    if let Some(sensor) = args.sensor.clone().or_else(kernel::host_name) {
        events = events.with_sensor(&sensor);
    }
    if !args.notices {
        let listeners: &mut [&mut dyn Listener] = &mut [&mut GapWarner, &mut Printer::new(args.json)];
        return if args.follow { events.follow(&stop, listeners) } else { events.tell(listeners) };
    }
    let pace =
        Pace { update: Duration::from_nanos(args.update.0), quiet: Duration::from_nanos(args.quiet.0) };
    let hear = Box::new(|notice: &_| notices::print(notice, args.json));
    // What is overwritten before it is read is in the counters all the same.
    let mut notices = Notices::new(pace, running.map(PER_CPU)?, hear);
    if !args.follow {
        return events.tell(&mut [&mut notices]);
    }
    events.follow(&stop, &mut [&mut notices])?;
    notices.finish()
}
