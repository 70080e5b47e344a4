// SPDX-License-Identifier: Apache-2.0
//! What a shell may put where the cursor is: names of interfaces, bundles, classes of what is attached.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgMatches, Command, FromArgMatches};
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};

use crate::attachment::args::AttachmentArgs;
use crate::error::{Error, Result};
use crate::interface::netdev;

/// Tells this program that a shell asks, and which. The shell's script sets it, for that one call.
const VARIABLE: &str = "_WIREWISED_COMPLETE";
const NAME: &str = "wirewised";
const BUNDLE_SUFFIX: &str = "wirewise";

/// Answers a shell that asks, and ends; otherwise does nothing. command : the whole command line.
pub fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(|| with_all_values(command)).var(VARIABLE).complete();
}

/// What a shell runs once, so that it asks.
pub fn script(shell: &str) -> Result<String> {
    let shells = Shells::builtins();
    let completer = shells.completer(shell);
    let completer = completer.ok_or_else(|| Error::input(format!("{shell}: not a shell that is known")))?;
    let mut script = Vec::new();
    completer
        .write_registration(VARIABLE, NAME, NAME, NAME, &mut script)
        .map_err(|error| Error::other(format!("completions: {error}")))?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Arguments know their values by what they are called: one name has one meaning in every command.
fn with_all_values(command: fn() -> Command) -> Command {
    let with_own = move |one: Command| one.mut_args(|arg| with_values(arg, command));
    command().mut_subcommands(|one| with_own(one).mut_subcommands(with_own))
}

fn with_values(arg: Arg, command: fn() -> Command) -> Arg {
    match arg.get_id().as_str() {
        "interface" => arg.add(ArgValueCandidates::new(|| candidates(netdev::names()))),
        "class" => arg.add(ArgValueCandidates::new(move || candidates(classes(command())))),
        "bundle" | "bundles" | "running" => arg.add(ArgValueCompleter::new(bundles)),
        _ => arg,
    }
}

fn candidates(names: Vec<String>) -> Vec<CompletionCandidate> {
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// Bundles, and folders on the way to them.
fn bundles(current: &OsStr) -> Vec<CompletionCandidate> {
    let is_bundle = |path: &std::path::Path| path.extension() == Some(OsStr::new(BUNDLE_SUFFIX));
    PathCompleter::file().filter(is_bundle).complete(current)
}

/// Of the attachment that the words so far choose; none where it cannot be read: a shell has no place for errors.
fn classes(command: Command) -> Vec<String> {
    let words: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").skip(1).collect();
    let matches = command.ignore_errors(true).try_get_matches_from(words).ok();
    let given = matches.as_ref().and_then(ArgMatches::subcommand);
    let which = given.and_then(|(_, given)| AttachmentArgs::from_arg_matches(given).ok());
    let running = which.and_then(|which| which.find().ok());
    running.map_or_else(Vec::new, |running| running.class_names())
}
