// SPDX-License-Identifier: Apache-2.0
//! `wirewised flows`.

use crate::attachment::args::AttachmentArgs;
use crate::error::Result;
use crate::reading::flow_listing::Idle;
use crate::reading::flows::{Sort, Wanted};
use crate::views;
use crate::views::flows::State;

const EXAMPLES: &str = "\
Examples:
  wirewised flows                          the 20 flows with the newest packets
  wirewised flows --sort packets --limit 5
  wirewised flows --class attack --state   with their features, as of their last packets";

/// List the flows the program keeps: key, packets, age, class, state.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    pub which: AttachmentArgs,

    /// Show at most this many flows; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,

    /// Which come first [default: newest; with --limit 0 the order of the table, which needs no memory]
    #[arg(long, value_enum)]
    sort: Option<Sort>,

    /// Only flows whose last verdict is this class
    #[arg(long, value_name = "NAME")]
    class: Option<String>,

    /// Also show what is known of each flow: its features, or the raw state they are computed from (JSON always has both)
    #[arg(long, value_enum, value_name = "AS", num_args = 0..=1, default_missing_value = "features")]
    state: Option<State>,

    /// Also show entries that are past the idle timeout and may be reused for the next new flow
    #[arg(long)]
    all: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let running = args.which.find()?;
    let idle = if args.all { Idle::Since(0) } else { Idle::Timeout };
    let wanted = Wanted { limit: args.limit, sort: args.sort, class: args.class.clone(), idle };
    let flows = running.flows(&wanted)?;
    if args.json {
        views::flows::print_json(&running.interface, &flows)
    } else {
        views::flows::print(&flows, args.state)
    }
}
