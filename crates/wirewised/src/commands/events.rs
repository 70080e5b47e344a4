// SPDX-License-Identifier: Apache-2.0
//! `wirewised events`.

use crate::attachment::args::AttachmentArgs;
use crate::error::Result;
use crate::reading::events::Listener;
use crate::stop::Stop;
use crate::views::events::{GapWarner, Printer};

const EXAMPLES: &str = "\
Examples:
  wirewised events                     the newest that are kept, 2048 of each CPU, then ends
  wirewised events --follow            goes on until Ctrl-C
  wirewised events --follow --json | jq 'select(.wirewise.outcome == \"drop\") | .src_ip'
There is an event for a packet whose class is dropped, limited or counted, up to the rate `events` of the policy
(`stats` counts those over it). Reading takes nothing away, so any number of readers may look.";

/// Show packets of classes whose action is not `pass`, one per line, newest last.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    which: AttachmentArgs,

    /// Wait for more
    #[arg(long, short)]
    follow: bool,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let running = args.which.find()?;
    let stop = Stop::on_signals()?;
    let mut events = running.events()?;
    let listeners: &mut [&mut dyn Listener] = &mut [&mut GapWarner, &mut Printer::new(args.json)];
    if args.follow { events.follow(&stop, listeners) } else { events.tell(listeners) }
}
