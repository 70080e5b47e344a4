// SPDX-License-Identifier: Apache-2.0
//! `wirewised mode`.

use serde_json::json;

use super::trace::ModeArg;
use crate::abi::Mode;
use crate::attachment::args::ChangeArgs;
use crate::attachment::lockout;
use crate::attachment::{Attachment, policy_change};
use crate::commands::run;
use crate::error::{Error, Result};
use crate::reading::status::Status;
use crate::text::nearest::choose;
use crate::text::output;
use crate::text::shell::quoted;
use crate::text::units::Nanoseconds;

const EXAMPLES: &str = "\
Examples:
  wirewised mode observe --for 1h                  only count what would happen, for an hour, then enforce again
  wirewised mode enforce --for 10m                 enforce for ten minutes, then observe
  wirewised mode --class scan observe --for 1h     only count what would happen to this class, for an hour
  wirewised mode --class scan enforce              end that
The program itself goes by the time, whether or not an agent runs. A class enforces only while the whole policy does; modes of classes stay
when the policy changes, and `status` shows both.";

/// Observe or enforce the policy or some of its classes, from now on or for a while.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What the policy does from now on, or these classes do
    #[arg(value_enum, value_name = "MODE")]
    mode: ModeArg,

    /// Only this class; again for each further one
    #[arg(long = "class", value_name = "NAME")]
    classes: Vec<String>,

    /// How long, such as 1h; afterwards the other mode holds again
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Nanoseconds>,

    /// Enforce even if the policy's allow list is empty, without asking, and though nothing says what a ready model drops here
    #[arg(long, conflicts_with = "classes")]
    yes: bool,

    #[command(flatten)]
    change: ChangeArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let (_lock, ours) = args.change.find_locked()?;
    let mode = Mode::from(args.mode);
    let classes = numbers(&args.classes, &ours.class_names())?;
    let time = args.time.map(|time| time.0);
    if classes.is_empty() && mode == Mode::Enforce {
        check(args, &ours)?;
    }
    let timed = time.filter(|_| classes.is_empty());
    let timed = timed.map(|time| policy_change::with_mode_for(&ours, mode, time)).transpose()?;
    match timed {
        _ if args.change.dry_run => {}
        Some(policy) => policy_change::write_mode(&ours, policy)?,
        None if classes.is_empty() => policy_change::change(&ours, None, Some(mode))?,
        None => policy_change::change_classes(&ours, &classes, mode, time)?,
    }
    let status = Attachment::open(&ours.directory)?.status()?;
    if args.change.json {
        return output::print_json(&json!({
            "interface": ours.interface,
            "changed": args.classes,
            "asked": mode,
            "for_seconds": args.time.map(|time| time.0 as f64 / 1e9),
            "mode": status.mode,
            "classes": status.classes,
            "dry_run": args.change.dry_run,
        }));
    }
    report(args, mode, &ours, &status, &classes);
    Ok(())
}

/// As `run --mode enforce` does.
fn check(args: &Args, ours: &Attachment) -> Result<()> {
    if !run::threatens(ours, &args.change.which.root()?, args.yes)? {
        return Ok(());
    }
    if args.change.dry_run {
        eprintln!("warning: lock-out: {}; {}", lockout::RISK, lockout::WAYS_OUT_OF_MODE);
        return Ok(());
    }
    lockout::confirm(args.change.json, lockout::WAYS_OUT_OF_MODE)
}

fn report(args: &Args, mode: Mode, ours: &Attachment, status: &Status, classes: &[usize]) {
    let interface = &ours.interface;
    if classes.is_empty() {
        return match args.change.dry_run {
            true => println!("{interface} would {mode} (dry run: nothing was changed)"),
            false => println!("{interface}: {}", status.describe_mode()),
        };
    }
    for class in classes.iter().map(|class| &status.classes[*class]) {
        match args.change.dry_run {
            true => println!("{interface}: {} would {mode} (dry run: nothing was changed)", class.name),
            false => println!("{interface}: {}: {}", class.name, class.describe()),
        }
    }
    if mode == Mode::Enforce && status.mode != Some(Mode::Enforce) {
        eprintln!(
            "note: the policy as a whole is in mode {}, so no class is enforced until \
             `wirewised mode enforce --interface {}`",
            status.describe_mode(),
            quoted(interface)
        );
    }
}

/// Class ids by their names.
fn numbers(names: &[String], known: &[String]) -> Result<Vec<usize>> {
    let number = |name: &String| {
        known.iter().position(|known| known == name).ok_or_else(|| {
            Error::input(format!("--class {name}: the bundle has no such class; {}", choose(name, known)))
        })
    };
    names.iter().map(number).collect()
}
