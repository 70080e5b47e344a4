// SPDX-License-Identifier: Apache-2.0
//! What stands at the receiving end: nothing, or a bundle on a plane, started as a user would, with `wirewised run`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::Wire;
use super::cpu_time::{Watched, threads_called};
use crate::abi::{Mode, Status};
use crate::attachment::Attachment;
use crate::attachment::detach::detach;
use crate::attachment::pins::Root;
use crate::ending;
use crate::error::{Error, Kind, Result};
use crate::plane::{Drops, Plane};

const PATIENCE: Duration = Duration::from_secs(30);

/// Observe where the plane cannot drop, or may see merged packets: live frames need GRO on at the receiving end, and then `run` does not
/// enforce there.
pub fn strictest_mode(plane: Plane) -> Mode {
    let abilities = plane.abilities();
    match abilities.drops == Drops::Always && !abilities.sees_merged {
        true => Mode::Enforce,
        false => Mode::Observe,
    }
}

/// A bundle at work.
pub struct Receiver {
    attachment: Attachment,
    root: Root,
    agent: Agent,
    /// Of the plane's own CPU time.
    pub watched: Watched,
}

impl Receiver {
    /// classes : what the policy asks for each. options : more of `run`. Returns when packets are judged.
    pub fn start(
        wire: &Wire,
        plane: Plane,
        bundle: &Path,
        classes: &Map<String, Value>,
        mode: Mode,
        options: &[&str],
    ) -> Result<Self> {
        let failed = |error: &io::Error| Error::other(format!("the agent cannot be started: {error}"));
        let policy = policy(classes).map_err(|error| failed(&error))?;
        let parent = std::process::id();
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["run", "--yes", "--json", "--interface", &wire.interface, "--plane", plane.name()])
            .args(["--mode", mode.name(), "--bundle"])
            .arg(bundle)
            .arg("--policy")
            .arg(format!("/proc/{parent}/fd/{}", policy.as_raw_fd()))
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: between fork and exec it only makes system calls, which are async-signal-safe.
        unsafe { command.pre_exec(move || ending::end_with(parent)) };
        let mut agent = Agent(command.spawn().map_err(|error| failed(&error))?);
        // Its report comes when packets are judged.
        let mut said = String::new();
        if let Some(stdout) = &mut agent.0.stdout {
            BufReader::new(stdout).read_line(&mut said).map_err(|error| failed(&error))?;
        }
        if said.is_empty() {
            return Err(agent.reason(plane, bundle));
        }
        let in_user_space = plane.is_in_user_space();
        if !in_user_space {
            agent.0.wait().map_err(|error| failed(&error))?;
        }
        let root = Root::usual();
        let attachment = Attachment::find(&root, Some(&wire.interface))?;
        let watched = watched(wire, in_user_space.then(|| agent.0.id()))?;
        Ok(Self { attachment, root, agent, watched })
    }

    /// Packets that the program has judged; of one without a model, those whose features it has computed.
    pub fn judged(&self) -> Result<u64> {
        let stats = self.attachment.counters()?.stats;
        Ok([Status::Classified, Status::Undecided].iter().map(|it| stats.status[*it as usize].packets).sum())
    }

    pub fn stop(mut self) -> Result<()> {
        detach(&self.root, &self.attachment.interface, false)?;
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            match self.agent.0.try_wait() {
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Ok(Some(_)) => return Ok(()),
                Err(error) => return Err(Error::other(format!("the agent is lost: {error}"))),
            }
        }
        Err(Error::other(format!("the agent does not end within {} s", PATIENCE.as_secs())))
    }
}

/// What receives at the end of `wire`, with the agent that carries packets if one does.
pub fn watched(wire: &Wire, process: Option<u32>) -> Result<Watched> {
    let mut softirq = wire.poll_in_threads()?;
    let name = format!("ksoftirqd/{}\n", wire.cpus.receiver);
    softirq.extend(threads_called(&name));
    Ok(Watched { softirq, process })
}

/// Killed with the guard, if it still carries packets.
struct Agent(Child);

impl Agent {
    /// Why it did not start.
    fn reason(&mut self, plane: Plane, bundle: &Path) -> Error {
        let mut said = String::new();
        if let Some(stderr) = &mut self.0.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        let code = self.0.wait().ok().and_then(|status| status.code());
        let told = said.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
        let told = told.as_ref().and_then(|told| told["error"]["message"].as_str());
        let why = told.unwrap_or_else(|| said.trim());
        let message = format!("{} on {plane}: {why}", bundle.display());
        let is = |kind: Kind| code == Some(i32::from(kind.exit_code()));
        match () {
            () if is(Kind::Input) => Error::input(message),
            () if is(Kind::Missing) => Error::missing(message),
            () if is(Kind::Refused) => Error::refused(message),
            () => Error::other(message),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The same for each class.
pub fn all(classes: &[String], action: &Value) -> Map<String, Value> {
    classes.iter().map(|class| (class.clone(), action.clone())).collect()
}

/// A file without a name.
fn policy(classes: &Map<String, Value>) -> io::Result<File> {
    // SAFETY: the name is a C string; a new descriptor is returned, or -1.
    let descriptor = unsafe { libc::memfd_create(c"policy".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else owns it.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(json!({ "version": 1, "classes": classes }).to_string().as_bytes())?;
    Ok(file)
}
