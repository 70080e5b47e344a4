// SPDX-License-Identifier: Apache-2.0
//! `wirewised deny`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use serde_json::json;

use crate::abi;
use crate::attachment::args::{AttachmentArgs, ChangeArgs};
use crate::attachment::deny::DenyList;
use crate::attachment::lists;
use crate::commands::serve;
use crate::error::{Error, Result};
use crate::kernel;
use crate::object::deny::{Edit, Held};
use crate::object::prefixes::{OF_POLICY, Until};
use crate::policy::{Prefix, deny};
use crate::text::output;
use crate::text::table;
use crate::text::units::{Nanoseconds, format_bytes};

/// The origin of prefixes that are given on the command line.
const BY_HAND: &str = "hand";
const EXAMPLES: &str = "\
Examples:
  wirewised deny add 192.0.2.7 2001:db8::/32 --for 10m     drop what these send for ten minutes
  wirewised deny load drop.txt --origin spamhaus           have Spamhaus deny the prefixes of a file, and no others
  wirewised deny remove 192.0.2.7                          let it in again
  wirewised deny remove --origin spamhaus                  and all that this origin denies
  wirewised deny list                                      what is denied, by whom, and for how long
  wirewised deny sync --crowdsec http://127.0.0.1:8080 --key-file key
                                                           deny whom CrowdSec bans, until SIGTERM or Ctrl-C
The policy has to have a deny list: `deny: {}` in its file is enough. Whoever the policy allows is let through all the same, and
in observe mode nothing is dropped. docs/policy.md says more.";

/// Drop what some addresses send before anything is computed: show and change the deny list while traffic flows.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Deny some prefixes, beside those that are denied already
    Add {
        /// Addresses or prefixes of IPv4 or IPv6
        #[arg(required = true, value_name = "PREFIX")]
        prefixes: Vec<Prefix>,

        #[command(flatten)]
        denial: DenialArgs,

        #[command(flatten)]
        edit: EditArgs,
    },
    /// Deny some prefixes no longer
    Remove {
        /// As they were given; without any, all of `--origin`
        #[arg(required_unless_present = "origin", value_name = "PREFIX")]
        prefixes: Vec<Prefix>,

        #[command(flatten)]
        edit: EditArgs,
    },
    /// Have an origin deny the prefixes of a file, and no others
    Load {
        /// One prefix a line; `#` and `;` begin comments
        file: PathBuf,

        #[command(flatten)]
        denial: DenialArgs,

        #[command(flatten)]
        edit: EditArgs,
    },
    /// Follow the decisions of CrowdSec's local API
    #[command(disable_help_flag = true)]
    Sync {
        /// `wirewised deny sync --help` shows them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
        options: Vec<OsString>,
    },
    /// Show what is denied, by whom, and for how long
    List {
        /// Only what this one denies
        #[arg(long, value_name = "NAME")]
        origin: Option<String>,

        /// Print JSON
        #[arg(long)]
        json: bool,

        #[command(flatten)]
        which: AttachmentArgs,
    },
}

#[derive(Debug, clap::Args)]
struct DenialArgs {
    /// How long, such as 10m; without it until they are removed
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Nanoseconds>,

    /// Deny them even if you are logged in from there
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
struct EditArgs {
    /// Who denies them; without it `hand`, or with `load` the name of the file without its extension
    #[arg(long, value_name = "NAME")]
    origin: Option<String>,

    #[command(flatten)]
    change: ChangeArgs,
}

pub fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Add { prefixes, denial, edit } => {
            edit.make(BY_HAND, denial.yes, |_| Ok(Edit::Add(denial.until(prefixes.iter().copied()))))
        }
        Command::Remove { prefixes, edit } => edit.make(BY_HAND, true, |held| match &edit.origin {
            Some(origin) if prefixes.is_empty() => {
                check_known(held, origin)?;
                Ok(Edit::Replace(BTreeMap::new()))
            }
            _ => Ok(Edit::Remove(prefixes.iter().copied().collect())),
        }),
        Command::Load { file, denial, edit } => {
            let prefixes = deny::load(file)?;
            edit.make(&name_of(file), denial.yes, |_| Ok(Edit::Replace(denial.until(prefixes.into_iter()))))
        }
        // It asks by HTTP, which only the service's program can do.
        Command::Sync { options } => {
            let words: Vec<_> = std::iter::once("deny-sync".into()).chain(options.iter().cloned()).collect();
            serve::become_service(&words)
        }
        Command::List { origin, json, which } => list(which, origin.as_deref(), *json),
    }
}

fn check_known(held: &Held, origin: &str) -> Result<()> {
    let names: Vec<_> = held.origins().map(|(name, _)| name).filter(|name| *name != OF_POLICY).collect();
    if names.contains(&origin) {
        return Ok(());
    }
    let known = if names.is_empty() { "nobody but the policy does".to_string() } else { names.join(", ") };
    Err(Error::input(format!("--origin {origin}: denies nothing here; those who do: {known}")))
}

fn name_of(file: &Path) -> String {
    file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

impl DenialArgs {
    fn until(&self, prefixes: impl Iterator<Item = Prefix>) -> BTreeMap<Prefix, Until> {
        let until = until(self.time);
        prefixes.map(|prefix| (prefix, until)).collect()
    }
}

/// When an entry of a list ends. Counted from now, in whole seconds: none ends sooner than was asked for.
pub(super) fn until(time: Option<Nanoseconds>) -> Until {
    time.map_or(abi::LIST_FOREVER, |time| {
        let seconds = time.0.div_ceil(1_000_000_000) + 1;
        u32::try_from(seconds).unwrap_or(u32::MAX).saturating_add(kernel::boot_s()).min(abi::LIST_FOREVER - 1)
    })
}

/// What a list's column `for` has. left : seconds; `None`: until it is removed.
pub(super) fn words_for(left: Option<u32>) -> String {
    left.map_or("ever".to_string(), |seconds| format!("{seconds} s"))
}

impl EditArgs {
    /// default : the origin, if none is given. sure : see `DenyList::plan`.
    fn make(&self, default: &str, sure: bool, edit: impl FnOnce(&Held) -> Result<Edit>) -> Result<()> {
        let origin = self.origin.as_deref().unwrap_or(default);
        if origin == OF_POLICY {
            return Err(Error::input(format!(
                "--origin {origin}: what the policy denies is in its file; change that, and give it to `wirewised run` again"
            )));
        }
        let (_lock, ours) = self.change.find_locked()?;
        let list = DenyList::read(&ours)?;
        let change = list.plan(origin, edit(&list.held)?, sure)?;
        let memory = change.memory(&list.held);
        if !self.change.dry_run && !change.is_empty() {
            list.apply(&change)?;
        }
        let counts = change.counts;
        if self.change.json {
            return output::print_json(&json!({
                "interface": ours.interface,
                "origin": origin,
                "changes": counts,
                "memory_bytes": memory,
                "dry_run": self.change.dry_run,
            }));
        }
        println!(
            "{}: {origin}: {} added, {} changed, {} removed{}{}",
            ours.interface,
            counts.added,
            counts.changed,
            counts.removed,
            if memory > 0 {
                format!("; at most {} of the kernel's memory", format_bytes(memory))
            } else {
                String::new()
            },
            self.change.note(),
        );
        Ok(())
    }
}

fn list(which: &AttachmentArgs, origin: Option<&str>, json: bool) -> Result<()> {
    let ours = which.find()?;
    let list = DenyList::read(&ours)?;
    let of_origin = |name: &str| origin.is_none_or(|origin| origin == name);
    let entries = list.held.denials(kernel::boot_s()).filter_map(|(prefix, mut who)| {
        who.retain(|(name, _)| of_origin(name));
        (!who.is_empty()).then_some((prefix, who))
    });
    if json {
        let entries: Vec<_> = entries.map(|(prefix, who)| lists::denial(prefix, &who)).collect();
        return output::print_json(&json!({ "interface": ours.interface, "prefixes": entries }));
    }
    let head = ["prefix", "denied by", "for"].map(str::to_string);
    let rows = entries.flat_map(|(prefix, who)| {
        let row = |(name, left): (&str, Option<u32>)| [prefix.to_string(), name.to_string(), words_for(left)];
        who.into_iter().map(row).collect::<Vec<_>>()
    });
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    println!("{} on the deny list of {}", rows.len() - 1, ours.interface);
    table::print(&rows, 2);
    Ok(())
}
