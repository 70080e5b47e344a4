// SPDX-License-Identifier: Apache-2.0
//! `wirewised serve`: keeps what runs as a configuration wishes, and answers who asks about it. A program of its own beside the agent, so
//! that neither the data path nor the agent's commands carry an asynchronous runtime. For the same reason it is also `wirewised deny sync`,
//! which asks by HTTP.

mod agent;
mod api;
mod bans;
mod carriers;
mod config;
mod confinement;
mod decisions;
mod events;
mod evidence;
mod follower;
mod ipfix;
mod keeper;
mod kept;
mod limits;
mod listen;
mod log;
mod manager;
mod metrics;
mod openapi;
#[cfg(feature = "otlp")]
mod otlp;
mod outputs;
mod page;
mod passes;
mod reader;
mod requests;
mod seldom;
mod survey;
mod sync;
mod talkers;
mod tls;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use clap::Parser;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use wirewised::attachment::pins::{DEFAULT_ROOT, Root};
use wirewised::error::{Error, Result};
use wirewised::kernel::objects;

use crate::agent::Agent;
use crate::api::Service;
use crate::config::{Config, DEFAULT_FILE, Role};
use crate::keeper::{Beside, Board, Event, Keeper, TICK};
use crate::limits::Limits;
use crate::log::LogLevel;
use crate::outputs::Around;

const EXAMPLES: &str = "\
Examples:
  wirewised serve --check                      is the configuration right, and would it be applied?
  wirewised serve                              as /etc/wirewise/wirewised.yaml says, until SIGTERM
  wirewised serve --config lab.yaml --new-token prometheus
      a token that may read, and the line for `tokens` in the configuration
  curl --unix-socket /run/wirewise/control.sock http://localhost/api/v1/state
SIGHUP reads the configuration again: it is applied wholly, or refused with the reason while what runs goes on. Programs stay
attached when the service ends; `wirewised detach` removes one.";

/// Keep bundles running on interfaces as a configuration says, and tell monitoring what they do.
#[derive(Debug, Parser)]
#[command(name = "wirewised serve", bin_name = "wirewised serve", version, after_help = EXAMPLES, max_term_width = 110)]
struct Cli {
    /// The wished state: interfaces, bundles, policies, modes
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    config: PathBuf,

    /// Only read the configuration with the policies and certificates that it names, and say whether they are right
    #[arg(long)]
    check: bool,

    /// Print a new token of this name, and what to write under `tokens`
    #[arg(long, value_name = "NAME", conflicts_with = "check")]
    new_token: Option<String>,

    /// What the new token may do
    #[arg(long, value_enum, default_value_t = RoleArg::Read, requires = "new_token")]
    role: RoleArg,

    /// Where the service notes what it did [default: serve.json beside the control socket]
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// The agent [default: wirewised beside this program]
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,

    /// The least that is logged on standard error
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = LogLevel::Info)]
    log_level: LogLevel,

    /// Print the result as JSON, and an error too
    #[arg(long)]
    json: bool,

    /// Directory in a BPF file system that holds the attachments
    #[arg(long, value_name = "DIR", default_value = DEFAULT_ROOT)]
    pin_root: PathBuf,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum RoleArg {
    /// See what runs
    Read,
    /// Also change it
    Operate,
}

/// The first word with which the agent asks for `deny sync`.
const SYNC: &str = "deny-sync";

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == SYNC) {
        let args = sync::Args::parse_from(std::env::args_os().skip(1));
        return ends(sync::run(&args), args.json, LogLevel::Info);
    }
    let cli = Cli::parse();
    ends(run(&cli), cli.json, cli.log_level)
}

/// Runs to the end. json : whether an error is to be an object.
fn ends(work: impl Future<Output = Result<()>>, json: bool, least: LogLevel) -> ExitCode {
    // A terminal has a person behind it.
    let json = json && !std::io::stderr().is_terminal();
    log::begin(least);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&Error::other(format!("cannot start: {error}")), json),
    };
    match runtime.block_on(work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error, json),
    }
}

fn failed(error: &Error, json: bool) -> ExitCode {
    if json {
        eprintln!(
            "{}",
            json!({"error": {"message": error.to_string(), "exit_code": error.kind().exit_code()}})
        );
    } else {
        eprintln!("error: {error}");
    }
    ExitCode::from(error.kind().exit_code())
}

async fn run(cli: &Cli) -> Result<()> {
    if let Some(name) = &cli.new_token {
        let role = match cli.role {
            RoleArg::Read => Role::Read,
            RoleArg::Operate => Role::Operate,
        };
        let (token, line) = api::new_token(name, role)?;
        if cli.json {
            println!("{}", json!({"token": token, "entry": line}));
        } else {
            println!("token, shown this once: {token}");
            println!("under `tokens` in the configuration: {line}");
        }
        return Ok(());
    }
    let config = Config::read(&cli.config)?;
    let agent = Agent::new(cli.agent.clone().map_or_else(beside, Ok)?, cli.pin_root.clone());
    if cli.check {
        return check(&agent, &config, cli).await;
    }
    serve(cli, config, agent).await
}

/// Reads policies and certificates that the configuration names; nothing is attached or loaded.
async fn check(agent: &Agent, config: &Config, cli: &Cli) -> Result<()> {
    for wish in &config.interfaces {
        if let Some(policy) = &wish.policy {
            agent.policy(policy, &wish.bundle).await?;
        }
    }
    if let Some(tls) = &config.tls {
        tls.read()?;
    }
    let (file, count, outputs) = (cli.config.display(), config.interfaces.len(), config.events.count());
    if cli.json {
        println!("{}", json!({"config": file.to_string(), "interfaces": count, "outputs": outputs}));
    } else {
        println!("{file}: right, with {count} entries under `interfaces` and {outputs} under `events`");
    }
    Ok(())
}

/// The agent that was installed with this program.
fn beside() -> Result<PathBuf> {
    let own = std::env::current_exe()
        .map_err(|error| Error::other(format!("this program's own place: {error}")))?;
    let agent = own.with_file_name("wirewised");
    if agent.exists() {
        return Ok(agent);
    }
    Err(Error::missing(format!("{} is not there; name the agent with --agent", agent.display())))
}

async fn serve(cli: &Cli, config: Config, agent: Agent) -> Result<()> {
    let tls = config.tls.as_ref().map(tls::Files::read).transpose()?;
    let tls = tls.map(|config| Arc::new(tls::Current::new(config)));
    let socket = config.socket.path.clone();
    let manager::Sockets { control, listen } = manager::sockets(&socket, config.listen)?;
    let is_ours = control.is_none();
    let local = control.map_or_else(|| listen::control_socket(&config.socket), Ok)?;
    let by_tcp = match config.listen {
        Some(_) if listen.is_some() => listen,
        Some(address) => Some(
            TcpListener::bind(address)
                .await
                .map_err(|error| Error::missing(format!("`listen: {address}`: {error}")))?,
        ),
        None => None,
    };
    confinement::begin(&config);
    let _measured = config.program_times.then(objects::measure_programs).transpose().map_err(|error| {
        Error::other(format!("`program_times`: the kernel does not measure programs: {error}"))
    })?;
    let crowdsec = config.crowdsec.as_ref().map(|source| source.open(config.events.origins())).transpose()?;
    let (tell, events) = mpsc::unbounded_channel();
    let board = Board::default();
    let state = cli.state.clone().unwrap_or_else(|| socket.with_file_name("serve.json"));
    let tokens = Arc::new(RwLock::new(config.tokens.clone()));
    let keeper = Keeper::new(
        agent.clone(),
        cli.config.clone(),
        state.clone(),
        tell.clone(),
        board.clone(),
        Beside { tokens: Arc::clone(&tokens), tls: tls.clone(), first: config.clone() },
    )?;
    let service =
        Service { root: Root::at(&cli.pin_root), agent, board: board.clone(), tell: tell.clone(), tokens };
    tokio::spawn(listen::answer_locally(local, service.clone()));
    if let Some(listener) = by_tcp {
        tokio::spawn(listen::answer_by_tcp(listener, service, tls, Arc::new(Limits::new(config.limits))));
    }
    let moved = Arc::new(AtomicU64::default());
    let root = Root::at(&cli.pin_root);
    let (evidence, desk) = config.evidence.as_ref().map(|wish| wish.run(&board)).transpose()?.unzip();
    let around =
        Around { root: root.clone(), board: board.clone(), moved: Arc::clone(&moved), state, evidence: desk };
    let outputs = config.events.run(around, config.records)?;
    if let (Some(source), Some(followed)) = (config.crowdsec.clone(), crowdsec) {
        tokio::spawn(source.follow(followed, root.clone(), board.clone()));
    }
    #[cfg(feature = "otlp")]
    let _pushing =
        config.otlp.as_ref().map(|export| export.run(Root::at(&cli.pin_root), &board)).transpose()?;
    let export = config.ipfix.as_ref().map(|export| export.run(root, &board)).transpose()?;
    tokio::spawn(signals(tell.clone(), moved)?);
    tokio::spawn(ticks(tell));
    keeper
        .keep(config, events, |board| {
            let refused = board.lock().refused.clone();
            let status = refused
                .map_or("as the configuration wishes".to_string(), |why| format!("not applied: {why}"));
            manager::ready(&status);
        })
        .await;
    manager::stopping();
    outputs.end();
    if let Some(evidence) = evidence {
        evidence.end();
    }
    if let Some(export) = export {
        export.end();
    }
    if is_ours {
        let _ = std::fs::remove_file(&socket);
    }
    Ok(())
}

/// What signals ask for.
fn signals(tell: mpsc::UnboundedSender<Event>, moved: Arc<AtomicU64>) -> Result<impl Future<Output = ()>> {
    let on = |kind| signal(kind).map_err(|error| Error::other(format!("cannot wait for signals: {error}")));
    let (mut interrupt, mut terminate) = (on(SignalKind::interrupt())?, on(SignalKind::terminate())?);
    let mut hang_up = on(SignalKind::hangup())?;
    Ok(async move {
        loop {
            let event = tokio::select! {
                _ = interrupt.recv() => Event::Stop,
                _ = terminate.recv() => Event::Stop,
                _ = hang_up.recv() => {
                    moved.fetch_add(1, Ordering::Relaxed);
                    Event::Reload { answer: None }
                }
            };
            if tell.send(event).is_err() {
                return;
            }
        }
    })
}

async fn ticks(tell: mpsc::UnboundedSender<Event>) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        if tell.send(Event::Tick).is_err() {
            return;
        }
    }
}
