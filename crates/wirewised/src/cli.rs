// SPDX-License-Identifier: Apache-2.0
//! The command line: which commands there are, and how an error leaves the process.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use serde_json::json;

use crate::attachment::pins::RootArgs;
use crate::commands::{self, by_service};
use crate::completing;
use crate::ending;
use crate::error::{Error, Kind, Result};
use crate::files::place;
use crate::kernel::libbpf_log;
use crate::text::output;

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 bad input or usage, 3 a privilege or kernel feature is missing, \
4 refused by the kernel verifier; of `status --check` also 5 not attached, 6 cannot be known. With --json, an error is an \
object on standard error (text on a terminal): {\"error\": {\"message\": ..., \"exit_code\": N}}.";

/// Run wirewise bundles on the packet path: machine learning in XDP, without a compiler or Python on this machine.
#[derive(Debug, Parser)]
#[command(name = "wirewised", version, after_help = EXIT_CODES, max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Show what libbpf does (twice: everything it says) on standard error
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(commands::run::Args),
    Status(commands::status::Args),
    Stats(commands::stats::Args),
    Serve(commands::serve::Args),
    Flows(commands::flows::Args),
    Events(commands::events::Args),
    Backends(commands::backends::Args),
    Allow(commands::allow::Args),
    Deny(commands::deny::Args),
    Bans(commands::bans::Args),
    Mode(commands::mode::Args),
    Tunnels(commands::tunnels::Args),
    Swap(commands::swap::Args),
    Rollback(commands::rollback::Args),
    Detach(commands::detach::Args),
    Doctor(commands::doctor::Args),
    Planes(commands::planes::Args),
    Policy(commands::policy::Args),
    Verify(commands::verify::Args),
    Keygen(commands::keygen::Args),
    Sign(commands::sign::Args),
    Trace(commands::trace::Args),
    Explain(commands::explain::Args),
    Replay(commands::replay::Args),
    Features(commands::features::Args),
    Infer(commands::infer::Args),
    Record(commands::record::Args),
    Bench(commands::bench::Args),
    Flood(commands::flood::Args),
    Receive(commands::receive::Args),
    Completions(commands::completions::Args),
    #[command(hide = true)]
    Man(commands::man::Args),
}

impl Command {
    fn run(&self) -> Result<()> {
        match self {
            Command::Run(args) => commands::run::run(args),
            Command::Status(args) => commands::status::run(args),
            Command::Stats(args) => commands::stats::run(args),
            Command::Serve(args) => commands::serve::run(args),
            Command::Flows(args) => commands::flows::run(args),
            Command::Events(args) => commands::events::run(args),
            Command::Backends(args) => commands::backends::run(args),
            Command::Allow(args) => commands::allow::run(args),
            Command::Deny(args) => commands::deny::run(args),
            Command::Bans(args) => commands::bans::run(args),
            Command::Mode(args) => commands::mode::run(args),
            Command::Tunnels(args) => commands::tunnels::run(args),
            Command::Swap(args) => commands::swap::run(args),
            Command::Rollback(args) => commands::rollback::run(args),
            Command::Detach(args) => commands::detach::run(args),
            Command::Doctor(args) => commands::doctor::run(args),
            Command::Planes(args) => commands::planes::run(args),
            Command::Policy(args) => commands::policy::run(args),
            Command::Verify(args) => commands::verify::run(args),
            Command::Keygen(args) => commands::keygen::run(args),
            Command::Sign(args) => commands::sign::run(args),
            Command::Trace(args) => commands::trace::run(args),
            Command::Explain(args) => commands::explain::run(args),
            Command::Replay(args) => commands::replay::run(args),
            Command::Features(args) => commands::features::run(args),
            Command::Infer(args) => commands::infer::run(args),
            Command::Record(args) => commands::record::run(args),
            Command::Bench(args) => commands::bench::run(args),
            Command::Flood(args) => commands::flood::run(args),
            Command::Receive(args) => commands::receive::run(args),
            Command::Completions(args) => commands::completions::run(args),
            Command::Man(args) => commands::man::run(args, Cli::command()),
        }
    }
}

impl Command {
    /// The options of a command that only reads, which the service can run for others.
    fn reads(&self) -> Option<&RootArgs> {
        match self {
            Command::Status(args) => Some(&args.root),
            Command::Stats(args) => Some(args.which.root_args()),
            Command::Flows(args) => Some(args.which.root_args()),
            Command::Events(args) => Some(args.which.root_args()),
            _ => None,
        }
    }
}

/// Whether the service may run a command for somebody who may only read. words : those after the program's name.
pub fn check_by_service(words: &[String]) -> Result<()> {
    let words = std::iter::once("wirewised").chain(words.iter().map(String::as_str));
    let cli = Cli::try_parse_from(words).map_err(|error| usage(&error))?;
    let root = cli.command.reads().ok_or_else(|| {
        Error::input("the service runs status, stats, flows and events for others, and nothing else")
    })?;
    root.check_by_service()
}

/// Parses the command line and runs it. Every error ends here, as one line on standard error and an exit code.
pub fn main() -> ExitCode {
    restore_sigpipe();
    completing::answer(Cli::command);
    // Also of a command line that cannot be read. A terminal has a person behind it.
    let json = std::env::args_os().any(|argument| argument == "--json") && !io::stderr().is_terminal();
    ending::follow_parent();
    if let Err(error) = ending::init(json) {
        return failed(&error, json);
    }
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        Ok((cli, matches))
    });
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) if error.use_stderr() && json => return failed(&usage(&error), json),
        Err(error) => {
            return match error.print() {
                Err(written) => failed(&Error::other(format!("standard output: {written}")), json),
                Ok(()) if error.use_stderr() => ExitCode::from(Kind::Input.exit_code()),
                Ok(()) => ExitCode::SUCCESS,
            };
        }
    };
    let level = match cli.verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        _ => tracing::Level::DEBUG,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .without_time()
        .log_internal_errors(false)
        .init();
    libbpf_log::init();
    if cli.command.reads().is_some_and(RootArgs::are_denied)
        && let Some(answer) = by_service::ask(&std::env::args_os().skip(1).collect::<Vec<_>>())
    {
        return answer.unwrap_or_else(|error| failed(&error, json));
    }
    match place::check_arguments(&matches).and_then(|()| cli.command.run()).and_then(|()| output::check()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, json),
    }
}

/// Says what went wrong: a line for people, or an object.
fn failed(error: &Error, json: bool) -> ExitCode {
    let exit_code = error.kind().exit_code();
    if json {
        eprintln!("{}", json!({ "error": { "message": error.to_string(), "exit_code": exit_code } }));
    } else {
        eprintln!("error: {error}");
    }
    ExitCode::from(exit_code)
}

/// What clap says, without the hints that follow.
fn usage(error: &clap::Error) -> Error {
    let text = error.to_string();
    let rule = text.split("\n\n").next().unwrap_or_default();
    Error::input(rule.trim_start_matches("error: "))
}

/// Rust ignores SIGPIPE, and then `wirewised ... | head` ends in a panic of `println!`.
fn restore_sigpipe() {
    // SAFETY: no other thread runs yet, and SIG_DFL installs no handler of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}
