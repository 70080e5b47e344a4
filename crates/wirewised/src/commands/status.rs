// SPDX-License-Identifier: Apache-2.0
//! `wirewised status`.

use serde_json::json;

use crate::attachment::{Attachment, Whereabouts};
use crate::bpffs;
use crate::error::{Error, Kind, Result};
use crate::input;
use crate::pins::{Root, RootArgs};
use crate::status::{self, Status};
use crate::unpinned::{self, Unpinned};

const EXAMPLES: &str = "\
Examples:
  wirewised status                            everything that is attached
  wirewised status --interface eth0           one interface
  wirewised status --check --interface eth0   and the exit code says whether it is attached
  wirewised status --json | jq '.attachments[].mode'
Exit codes with --check: 0 attached; 5 not attached, or not any more; 6 cannot be known from here.";

/// Show what is attached: plane asked for and obtained, mode, bundle, policy, memory, program numbers.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only this interface
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    /// For health checks: end with exit code 5 unless something is attached and none of it gone, with 6 if that cannot be known
    #[arg(long)]
    check: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    root: RootArgs,
}

/// What can be seen from here.
struct Seen {
    root: Root,
    attachments: Vec<Attachment>,
    /// In other network namespaces, though the interface asked for has the same name.
    namesakes: Vec<String>,
    unpinned: Vec<Unpinned>,
    /// Else there are no pins to be seen, whatever is attached.
    bpf_file_system: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let interface = args.interface.as_deref();
    let seen = look(args.root.root()?, interface).map_err(|error| match error.kind() {
        Kind::Missing if args.check => Error::unknown(error),
        _ => error,
    })?;
    let all = seen.attachments.iter().map(status::of).collect::<Result<Vec<_>>>()?;
    let verdict = seen.verdict(interface);
    if args.json {
        input::print_json(&json!({
            "attachments": all, "unpinned": seen.unpinned, "bpf_file_system": seen.bpf_file_system,
        }))?;
    } else {
        all.iter().for_each(Status::print);
        seen.unpinned.iter().for_each(Unpinned::print);
        // Else the verdict says it.
        if all.is_empty() && !args.check && interface.is_none() {
            println!("{}", seen.describe_nothing(None));
        }
    }
    match verdict {
        _ if args.check => verdict,
        // Of an interface that is named, something is expected.
        Err(error) if error.kind() == Kind::Unknown && interface.is_some() => Err(error),
        Err(_) if all.is_empty() && interface.is_some() => Attachment::find(&seen.root, interface).map(drop),
        _ => Ok(()),
    }
}

fn look(root: Root, interface: Option<&str>) -> Result<Seen> {
    let mut all = Attachment::all(&root)?;
    all.retain(|attachment| attachment.link.is_some());
    let mut unpinned = unpinned::find(&all)?;
    unpinned.retain(|unpinned| interface.is_none_or(|name| unpinned.is_on(name)));
    let mut namesakes = Vec::new();
    if let Some(interface) = interface {
        let elsewhere = all.iter().filter(|it| it.whereabouts == Whereabouts::Elsewhere);
        namesakes = elsewhere.filter(|it| it.interface == interface).map(Attachment::describe).collect();
        all = Attachment::of_interface(all, interface);
    }
    let bpf_file_system =
        matches!(bpffs::state(root.path()), bpffs::State::Writable | bpffs::State::NotWritable);
    Ok(Seen { root, attachments: all, namesakes, unpinned, bpf_file_system })
}

impl Seen {
    /// What a health check wants to know. Attached is what is here, and what is elsewhere if no interface is named.
    fn verdict(&self, interface: Option<&str>) -> Result<()> {
        if let Some(gone) = self.attachments.iter().find(|it| it.whereabouts == Whereabouts::Gone) {
            return Err(Error::not_attached(format!(
                "{}: nothing is attached any more: the interface was deleted, or the program taken off it; \
                 `wirewised run` attaches again",
                gone.interface
            )));
        }
        if !self.attachments.is_empty() {
            return Ok(());
        }
        let message = self.describe_nothing(interface);
        Err(if self.bpf_file_system && self.unpinned.is_empty() {
            Error::not_attached(message)
        } else {
            Error::unknown(message)
        })
    }

    /// Why nothing is shown.
    fn describe_nothing(&self, interface: Option<&str>) -> String {
        let root = self.root.path().display();
        let on = interface
            .map_or(String::new(), |interface| format!(" to '{interface}' of this network namespace"));
        if !self.bpf_file_system {
            return format!(
                "cannot know what is attached{on}: {root} is in no BPF file system, where pins would be; \
                 mount the one they are in, or name another with --pin-root"
            );
        }
        if !self.unpinned.is_empty() {
            return format!(
                "no pins under {root} for the program that is attached{on}; name where they are with --pin-root"
            );
        }
        let namesakes = match &self.namesakes[..] {
            [] => String::new(),
            namesakes => format!(", but there is {}", namesakes.join(", ")),
        };
        format!("nothing is attached{on} under {root}{namesakes}")
    }
}
