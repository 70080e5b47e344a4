// SPDX-License-Identifier: Apache-2.0
//! `wirewised mode`.

use serde_json::json;

use super::trace::ModeArg;
use crate::abi::Mode;
use crate::attachment::args::ChangeArgs;
use crate::attachment::{Attachment, policy_change};
use crate::error::{Error, Result};
use crate::reading::status::Status;
use crate::text::nearest::choose;
use crate::text::output;
use crate::text::shell::quoted;
use crate::text::units::Nanoseconds;

const EXAMPLES: &str = "\
Examples:
  wirewised mode --class scan observe --for 1h     only count what would happen to this class, for an hour
  wirewised mode --class scan enforce              end that
  wirewised mode --class scan enforce --for 10m    enforce it for ten minutes, then observe it
The program itself goes by the time, whether or not an agent runs. A class enforces only while the whole policy does, which
`run --mode` decides; modes of classes stay when the policy changes, and `status` shows them.";

/// Observe or enforce some classes of the policy, at once or for a while.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What these classes do from now on
    #[arg(value_enum, value_name = "MODE")]
    mode: ModeArg,

    /// The class; again for each further one
    #[arg(long = "class", required = true, value_name = "NAME")]
    classes: Vec<String>,

    /// How long, such as 1h; afterwards the other mode holds again
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Nanoseconds>,

    #[command(flatten)]
    change: ChangeArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let (_lock, ours) = args.change.find_locked()?;
    let mode = Mode::from(args.mode);
    let classes = numbers(&args.classes, &ours.class_names())?;
    if !args.change.dry_run {
        policy_change::change_classes(&ours, &classes, mode, args.time.map(|time| time.0))?;
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

fn report(args: &Args, mode: Mode, ours: &Attachment, status: &Status, classes: &[usize]) {
    let interface = &ours.interface;
    for class in classes.iter().map(|class| &status.classes[*class]) {
        match args.change.dry_run {
            true => println!("{interface}: {} would {mode} (dry run: nothing was changed)", class.name),
            false => println!("{interface}: {}: {}", class.name, class.describe()),
        }
    }
    if mode == Mode::Enforce && status.mode != Some(Mode::Enforce) {
        let (bundle, interface) = (status.bundle.as_ref(), quoted(interface));
        let file = bundle.map_or("FILE".to_string(), |bundle| quoted(&bundle.file).to_string());
        eprintln!(
            "note: the policy as a whole is in mode {}, so no class is enforced until \
             `wirewised run --bundle {file} --interface {interface} --mode enforce`",
            status.describe_mode()
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
