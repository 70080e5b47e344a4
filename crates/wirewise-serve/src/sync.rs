// SPDX-License-Identifier: Apache-2.0
//! `wirewised deny sync`: the deny list follows the decisions of CrowdSec's local API.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use reqwest::Url;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use wirewised::attachment::args::AttachmentArgs;
use wirewised::attachment::deny::DenyList;
use wirewised::error::{Error, Kind, Result};
use wirewised::object::deny::{Change, Edit};
use wirewised::text::units::{Nanoseconds, thousands};

use crate::decisions::{Followed, Left, LocalApi, ORIGIN, pause};
use crate::requests::is_in_clear;

const EXAMPLES: &str = "\
Examples:
  cscli bouncers add wirewise --output raw > key       a key for this bouncer; the file should be readable by root only
  wirewised deny sync --crowdsec http://127.0.0.1:8080 --key-file key
      deny whom CrowdSec bans, until SIGTERM or Ctrl-C
  wirewised deny sync --crowdsec http://127.0.0.1:8080 --key-file key --dry-run
      only say what would change
The policy has to have a deny list: `deny: {}` in its file is enough. What is denied stays so until it expires when this ends or CrowdSec
does not answer; `wirewised deny remove --origin crowdsec` lets all of them in again. docs/policy.md says more.";

/// Deny whom CrowdSec bans.
#[derive(Debug, Parser)]
#[command(name = "wirewised deny sync", bin_name = "wirewised deny sync", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Args {
    /// The local API, such as http://127.0.0.1:8080
    #[arg(long, value_name = "URL")]
    crowdsec: Url,

    /// A file with the bouncer's key, as `cscli bouncers add wirewise --output raw` prints it
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,

    /// With https: certificates that sign the local API's, beside those that the system trusts
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// How often to ask for changes
    #[arg(long, value_name = "TIME", default_value = "10s")]
    interval: Nanoseconds,

    /// Leave decisions of this origin alone, such as those that `crowdsec` under `events` of the service makes
    #[arg(long, value_name = "ORIGIN")]
    except: Vec<String>,

    /// Ask for all decisions, put them into force, and end
    #[arg(long)]
    once: bool,

    /// Only say what would change, and end
    #[arg(long)]
    dry_run: bool,

    /// Deny them even if you are logged in from there
    #[arg(long)]
    yes: bool,

    /// Print JSON: an object per change
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    which: AttachmentArgs,
}

/// The list, and what is to be on it.
struct Sync<'a> {
    args: &'a Args,
    followed: Followed,
    /// Whether a list was put into force.
    begun: bool,
}

pub async fn run(args: &Args) -> Result<()> {
    let api = LocalApi::new(("--crowdsec", &args.crowdsec), &args.key_file, args.ca_file.as_deref())?;
    let mut sync = Sync { args, followed: Followed::new(api, args.except.clone()), begun: false };
    // What cannot be done at all is an error before CrowdSec is asked.
    sync.on_list(|list| list.plan(ORIGIN, Edit::Add([].into()), true).map(drop))?;
    if is_in_clear(&args.crowdsec) {
        tracing::warn!(
            "{}: without https, others on the way can read the key and change decisions",
            args.crowdsec
        );
    }
    if args.once || args.dry_run {
        return sync.round().await;
    }
    let on = |kind| signal(kind).map_err(|error| Error::other(format!("cannot wait for signals: {error}")));
    let (mut interrupt, mut terminate) = (on(SignalKind::interrupt())?, on(SignalKind::terminate())?);
    tokio::select! {
        ended = sync.rounds() => ended,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }?;
    tracing::info!(
        "ended; what CrowdSec bans stays denied until it expires, or `wirewised deny remove --origin {ORIGIN}`"
    );
    Ok(())
}

impl Sync<'_> {
    async fn rounds(&mut self) -> Result<()> {
        let mut failures = 0;
        loop {
            let wait = match self.round().await {
                // At the start somebody reads it, and nothing is in force yet.
                Err(error) if !self.begun && error.kind() == Kind::Input => return Err(error),
                Err(error) => {
                    let wait = pause(failures);
                    failures += 1;
                    tracing::warn!(
                        "{error}; what is denied stays so until it expires; trying again in {} s",
                        wait.as_secs()
                    );
                    wait
                }
                Ok(()) => {
                    if failures > 0 {
                        tracing::info!(
                            "{}: answers again, and the deny list is as it says",
                            self.args.crowdsec
                        );
                    }
                    failures = 0;
                    Duration::from_nanos(self.args.interval.0)
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Asks once, and brings the list into line; also if nothing changed, as a program may have been attached anew.
    async fn round(&mut self) -> Result<()> {
        let left = self.followed.pull().await?;
        let edit = Edit::Replace(self.followed.bans.prefixes());
        let (interface, change) = self.on_list(|list| {
            let change = list.plan(ORIGIN, edit, self.args.yes)?;
            if !self.args.dry_run && !change.is_empty() {
                list.apply(&change)?;
            }
            Ok(change)
        })?;
        if !self.begun || !change.is_empty() {
            self.tell(&interface, &change, &left);
        }
        self.begun = true;
        Ok(())
    }

    /// What is done with the list of the attachment, and the interface. In a thread of its own, which enters the network namespace of
    /// `--netns`: requests to the local API leave from the one in which this was started.
    fn on_list<T: Send>(&self, act: impl FnOnce(&DenyList<'_>) -> Result<T> + Send) -> Result<(String, T)> {
        let (which, dry_run) = (&self.args.which, self.args.dry_run);
        let work = move || {
            let (_lock, ours) = which.find_locked(dry_run, |_| Ok(()))?;
            let done = act(&DenyList::read(&ours)?)?;
            Ok((ours.interface.clone(), done))
        };
        std::thread::scope(|scope| {
            scope
                .spawn(work)
                .join()
                .unwrap_or_else(|_| Err(Error::other("the deny list: an error of this program")))
        })
    }

    fn tell(&self, interface: &str, change: &Change, left: &Left) {
        let counts = change.counts;
        if self.args.json {
            println!(
                "{}",
                json!({
                    "interface": interface,
                    "origin": ORIGIN,
                    "decisions": self.followed.bans.len(),
                    "changes": counts,
                    "left": left,
                    "dry_run": self.args.dry_run,
                })
            );
            return;
        }
        let count = |count: usize| thousands(count as i128);
        println!(
            "{interface}: {ORIGIN}: {} added, {} changed, {} removed; {} decisions{}{}",
            count(counts.added),
            count(counts.changed),
            count(counts.removed),
            count(self.followed.bans.len()),
            match left.other + left.unreadable {
                0 => String::new(),
                other => format!(", and {} that are no bans of addresses", count(other)),
            },
            if self.args.dry_run { " (dry run: nothing was changed)" } else { "" },
        );
    }
}
