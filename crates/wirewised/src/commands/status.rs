// SPDX-License-Identifier: Apache-2.0
//! `wirewised status`.

use serde_json::json;

use crate::attachment::Attachment;
use crate::error::Result;
use crate::input;
use crate::pins::RootArgs;
use crate::status;

const EXAMPLES: &str = "\
Examples:
  wirewised status                      everything that is attached
  wirewised status --interface eth0     one interface
  wirewised status --json | jq '.attachments[].mode'";

/// Show what is attached: plane asked for and obtained, mode, bundle, policy, memory, program numbers.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this interface
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    root: RootArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let root = args.root.root()?;
    let attachments = match &args.interface {
        Some(interface) => vec![Attachment::find(&root, Some(interface))?],
        None => Attachment::all(&root)?.into_iter().filter(|attachment| attachment.link.is_some()).collect(),
    };
    let all = attachments.iter().map(status::of).collect::<Result<Vec<_>>>()?;
    if args.json {
        return input::print_json(&json!({ "attachments": all }));
    }
    if all.is_empty() {
        println!("nothing is attached under {}", root.path().display());
    }
    all.iter().for_each(status::Status::print);
    Ok(())
}
