// SPDX-License-Identifier: Apache-2.0
//! `wirewised status`.

use serde_json::json;

use crate::attachment::Attachment;
use crate::attachment::args::attached;
use crate::attachment::overview::Overview;
use crate::attachment::pins::{Root, RootArgs};
use crate::attachment::succession;
use crate::error::{Error, Kind, Result};
use crate::text::output;
use crate::views::status;

const EXAMPLES: &str = "\
Examples:
  wirewised status                            everything that is attached
  wirewised status --interface eth0           one interface; several: eth0,eth1 or eth*
  wirewised status --check --interface eth0   and the exit code says whether it is attached
  wirewised status --json | jq '.attachments[].mode'
Exit codes with --check: 0 attached; 5 not attached, no longer attached, or its packets are to be carried by a process that does not answer or has not yet begun; 6 cannot be known from here; 7 cannot be read.";

/// Show what is attached: plane asked for and obtained, mode, bundle, policy, memory, program numbers.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this interface, or these: eth0,eth1 or eth*
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    /// For health checks: end with exit code 5 unless something is attached and nothing is gone, silent or has yet to begin, with 6 if that cannot
    /// be known, with 7 if something attached cannot be read
    #[arg(long)]
    check: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub root: RootArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let root = args.root.root()?;
    let names = match &args.interface {
        Some(text) => attached(&root, text)?,
        None => Vec::new(),
    };
    if names.len() > 1 {
        return of_several(args, &root, &names);
    }
    let interface = names.first().map(String::as_str);
    if let Err(error) = succession::finish_policies(&root) {
        tracing::warn!("a policy is half written: {error}");
    }
    let mut seen = Overview::of(root, interface).map_err(|error| match error.kind() {
        Kind::Missing if args.check => Error::unknown(error),
        _ => error,
    })?;
    let all = seen.statuses();
    let verdict = seen.verdict(interface);
    if args.json {
        output::print_json(&json!({
            "attachments": all, "unreadable": status::unreadable(&seen.unreadable), "unpinned": seen.unpinned, "bpf_file_system": seen.bpf_file_system,
        }))?;
    } else {
        all.iter().for_each(status::print);
        seen.unreadable.iter().for_each(status::print_unreadable);
        seen.unpinned.iter().for_each(status::print_unpinned);
        // Else the verdict says it.
        if all.is_empty() && seen.unreadable.is_empty() && !args.check && interface.is_none() {
            println!("{}", seen.describe_nothing(None));
        }
    }
    match verdict {
        _ if args.check => verdict,
        // Of an interface that is named, something is expected.
        Err(error) if error.kind() == Kind::Unknown && interface.is_some() => Err(error),
        Err(error) if error.kind() == Kind::Unreadable => {
            if interface.is_some() {
                Err(Error::other(error))
            } else {
                Ok(())
            }
        }
        Err(_) if all.is_empty() && interface.is_some() => Attachment::find(&seen.root, interface).map(drop),
        _ => Ok(()),
    }
}

/// Each interface, as if it were named alone; the first that is not attached is the result.
fn of_several(args: &Args, root: &Root, names: &[String]) -> Result<()> {
    if let Err(error) = succession::finish_policies(root) {
        tracing::warn!("a policy is half written: {error}");
    }
    let (mut all, mut unreadable, mut unpinned, mut verdict) = (Vec::new(), Vec::new(), Vec::new(), Ok(()));
    let mut bpf_file_system = false;
    for name in names {
        let mut seen = Overview::of(root.clone(), Some(name))?;
        all.extend(seen.statuses());
        verdict = verdict.and(seen.verdict(Some(name)));
        unreadable.extend(seen.unreadable);
        unpinned.extend(seen.unpinned);
        bpf_file_system |= seen.bpf_file_system;
    }
    if args.json {
        output::print_json(&json!({
            "attachments": all, "unreadable": status::unreadable(&unreadable), "unpinned": unpinned, "bpf_file_system": bpf_file_system,
        }))?;
    } else {
        all.iter().for_each(status::print);
        unreadable.iter().for_each(status::print_unreadable);
        unpinned.iter().for_each(status::print_unpinned);
    }
    match verdict {
        Err(error) if !args.check => Err(Error::other(error)),
        verdict => verdict,
    }
}
