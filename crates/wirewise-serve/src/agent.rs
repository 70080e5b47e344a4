// SPDX-License-Identifier: Apache-2.0
//! The agent's commands, by which everything is changed: what a person may do, in the same words and with the same checks. Each is a
//! process of its own, so that neither a bundle's memory nor a failure stays in the service.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use serde_json::Value;
use tokio::process::{Child, Command};
use wirewised::abi::Mode;
use wirewised::commands::by_service::COLUMNS;
use wirewised::error::{Error, Kind, Result};
use wirewised::policy::Prefix;

use crate::config::{Place, Wish};
use crate::manager;

/// The agent, and where it is to keep its pins.
#[derive(Debug, Clone)]
pub struct Agent {
    program: PathBuf,
    pin_root: PathBuf,
}

/// The arguments of one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    arguments: Vec<OsString>,
}

impl Order {
    /// command : of one word or two.
    fn new(command: &str, place: &Place) -> Self {
        let mut arguments: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        arguments.extend(["--interface".into(), (&place.interface).into()]);
        if let Some(netns) = &place.netns {
            arguments.extend(["--netns".into(), netns.into()]);
        }
        Self { arguments }
    }

    fn with(mut self, option: &str, value: impl Into<OsString>) -> Self {
        self.arguments.extend([option.into(), value.into()]);
        self
    }

    fn argument(mut self, value: String) -> Self {
        self.arguments.push(value.into());
        self
    }

    fn flag(mut self, option: &str, given: bool) -> Self {
        if given {
            self.arguments.push(option.into());
        }
        self
    }

    /// Attaches what the configuration asks for, or adopts it where it runs.
    pub fn run(place: &Place, wish: &Wish) -> Self {
        let mut order = Self::mode(place, wish, wish.mode);
        if let Some(policy) = &wish.policy {
            order = order.with("--policy", policy);
        }
        if wish.offloads_off {
            order = order.with("--offloads", "off");
        }
        if let Some(to) = &wish.to {
            order = order.with("--to", to);
        }
        if let Some(workers) = wish.workers {
            order = order.with("--workers", workers.to_string());
        }
        if let Some(size) = wish.flow_table_size {
            order = order.with("--flow-table-size", size.to_string());
        }
        order
    }

    /// Like `run`, but replaces our program on another plane.
    pub fn replace(place: &Place, wish: &Wish) -> Self {
        Self::run(place, wish).flag("--replace", true)
    }

    /// Another bundle or policy in one step; flows go on. policy : that of the wish, or one by which everything passes.
    pub fn swap(place: &Place, wish: &Wish, policy: &Path) -> Self {
        Self::new("swap", place)
            .with("--bundle", &wish.bundle)
            .with("--policy", policy)
            .flag("--reset-flows", wish.reset_flows)
            .flag("--yes", true)
    }

    /// Another bundle under the policy in force.
    pub fn replace_model(place: &Place, bundle: &Path) -> Self {
        Self::new("swap", place).with("--bundle", bundle).flag("--yes", true)
    }

    /// Another bundle beside what runs.
    pub fn shadow(place: &Place, bundle: &Path) -> Self {
        Self::replace_model(place, bundle).flag("--shadow", true)
    }

    /// Has the shadow take over.
    pub fn promote(place: &Place) -> Self {
        Self::new("swap", place).flag("--promote", true).flag("--yes", true)
    }

    pub fn end_shadow(place: &Place) -> Self {
        Self::new("swap", place).flag("--no-shadow", true)
    }

    pub fn doctor(place: &Place) -> Self {
        Self::new("doctor", place)
    }

    pub fn rollback(place: &Place) -> Self {
        Self::new("rollback", place)
    }

    /// Sets the mode and keeps the policy.
    pub fn mode(place: &Place, wish: &Wish, mode: Mode) -> Self {
        Self::new("run", place)
            .with("--bundle", &wish.bundle)
            .with("--plane", wish.plane.name())
            .with("--mode", mode.name())
            .flag("--outgoing", wish.outgoing)
            .flag("--yes", true)
    }

    /// Sets the mode of a class, for a number of seconds or until it is changed.
    pub fn class_mode(place: &Place, class: &str, mode: Mode, seconds: Option<u32>) -> Self {
        let order = Self::new("mode", place).argument(mode.name().to_string());
        let order = order.argument(format!("--class={class}"));
        match seconds {
            None => order,
            Some(seconds) => order.with("--for", format!("{seconds}s")),
        }
    }

    /// Sets the mode of the interface for a number of seconds; then the other holds.
    pub fn mode_for(place: &Place, mode: Mode, seconds: u32) -> Self {
        Self::new("mode", place)
            .argument(mode.name().to_string())
            .with("--for", format!("{seconds}s"))
            .flag("--yes", true)
    }

    pub fn detach(place: &Place) -> Self {
        Self::new("detach", place)
    }

    /// Drops what a prefix sends, for a number of seconds.
    pub fn deny(place: &Place, prefix: &Prefix, seconds: u32) -> Self {
        Self::new("deny add", place).with("--for", format!("{seconds}s")).argument(prefix.to_string())
    }

    /// Lets a prefix in again that was denied by hand.
    pub fn deny_no_longer(place: &Place, prefix: &Prefix) -> Self {
        Self::new("deny remove", place).argument(prefix.to_string())
    }

    /// Lets through whatever a prefix sends, for a number of seconds.
    pub fn allow(place: &Place, prefix: &Prefix, seconds: u32) -> Self {
        Self::new("allow add", place).with("--for", format!("{seconds}s")).argument(prefix.to_string())
    }

    /// Ends that.
    pub fn allow_no_longer(place: &Place, prefix: &Prefix) -> Self {
        Self::new("allow remove", place).argument(prefix.to_string())
    }

    /// Ends the bans that hold for an address.
    pub fn pardon(place: &Place, address: IpAddr) -> Self {
        Self::new("bans lift", place).argument(address.to_string())
    }

    /// Succeeds where a program runs and answers, and says what does.
    pub fn check(place: &Place) -> Self {
        Self::new("status", place).flag("--check", true)
    }

    pub fn dry(&self) -> Self {
        self.clone().flag("--dry-run", true)
    }
}

impl Agent {
    /// pin_root : of all attachments.
    pub fn new(program: PathBuf, pin_root: PathBuf) -> Self {
        Self { program, pin_root }
    }

    fn command(&self, order: &Order) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&order.arguments).arg("--pin-root").arg(&self.pin_root).stdin(Stdio::null());
        command
    }

    /// Does it, and says what it printed. The error is the agent's own.
    pub async fn does(&self, order: &Order) -> Result<Value> {
        self.asks(self.command(order).arg("--json")).await
    }

    /// What a command says that also fails because of what it found.
    pub async fn finds(&self, order: &Order) -> Result<Value> {
        let mut command = self.command(order);
        let output = command.arg("--json").kill_on_drop(true).output().await;
        let output = output.map_err(|error| self.not_started(&error))?;
        serde_json::from_slice(&output.stdout).map_err(|_| said(&output.stderr, output.status))
    }

    /// What a policy file means for a bundle, with all the files that it names.
    pub async fn policy(&self, policy: &Path, bundle: &Path) -> Result<Value> {
        let mut command = Command::new(&self.program);
        command.arg("policy").arg(policy).arg("--bundle").arg(bundle).arg("--json").stdin(Stdio::null());
        self.asks(&mut command).await
    }

    async fn asks(&self, command: &mut Command) -> Result<Value> {
        let output = command.output().await.map_err(|error| self.not_started(&error))?;
        // Many changes take as long as all of their commands together.
        manager::progress();
        if !output.status.success() {
            return Err(said(&output.stderr, output.status));
        }
        // `detach` and others may have nothing to say.
        Ok(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
    }

    /// Starts a command whose output a peer reads. It is killed when it is dropped. columns : the width of the peer's terminal.
    pub fn reads(&self, words: &[String], columns: Option<u16>) -> Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--pin-root").arg(&self.pin_root).stdin(Stdio::null());
        if let Some(columns) = columns {
            command.env(COLUMNS, columns.to_string());
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().map_err(|error| self.not_started(&error))
    }

    /// Starts what carries packets in user space. It goes on if the service ends.
    pub fn starts(&self, order: &Order) -> Result<Child> {
        let mut command = self.command(order);
        command.stdout(Stdio::null()).process_group(0);
        command.spawn().map_err(|error| self.not_started(&error))
    }

    fn not_started(&self, error: &std::io::Error) -> Error {
        Error::missing(format!("{}: {error}; name the agent with --agent", self.program.display()))
    }
}

/// The message of a command that failed.
fn said(stderr: &[u8], status: ExitStatus) -> Error {
    let text = String::from_utf8_lossy(stderr);
    let told = text.lines().rev().find_map(|line| {
        let value: Value = serde_json::from_str(line).ok()?;
        Some(value["error"]["message"].as_str()?.to_string())
    });
    let last = || text.lines().last().map(str::to_string);
    let message =
        told.or_else(last).unwrap_or_else(|| format!("the agent ended with {status} and said nothing"));
    Error::new(Kind::of_exit_code(status.code()), message)
}
