// SPDX-License-Identifier: Apache-2.0
//! An agent that carries packets itself, and waiting for what it does.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::lab::{INTERFACE, Lab};
use crate::quiet::PATIENCE;

/// An agent that carries packets; killed with the guard.
pub struct Carrier(Child);

impl Carrier {
    /// Begins, and waits until packets are carried.
    pub fn start(lab: &Lab, arguments: &str) -> Self {
        Self::of(lab, "af-packet", arguments)
    }

    pub fn of(lab: &Lab, plane: &str, arguments: &str) -> Self {
        Self::on(lab, plane, INTERFACE, arguments)
    }

    /// Elsewhere than on the interface under test.
    pub fn on(lab: &Lab, plane: &str, interface: &str, arguments: &str) -> Self {
        let mut command = lab.command(&format!(
            "run --bundle b.wirewise --interface {interface} --plane {plane} {arguments} --yes --json"
        ));
        let mut carrier = Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        wait("the agent carries packets", || {
            if carrier.0.try_wait().unwrap().is_some() {
                let mut said = String::new();
                carrier.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("the agent ended: {said}");
            }
            let status = lab.run("status --json");
            let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            let ours = &status["attachments"][0]["carrier"];
            ours["process"] == carrier.0.id() && ours["has_begun"] == true
        });
        carrier
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the child was not waited for, so the number is its own.
        assert_eq!(unsafe { libc::kill(self.0.id() as i32, signal) }, 0);
    }

    /// Waits for its end; returns the exit code and what it said.
    pub fn end(mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        while self.0.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.0.wait().unwrap().code(), said)
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Of a class.
pub fn packets(lab: &Lab, class: usize) -> u64 {
    lab.stats()["classes"][class]["packets"].as_u64().unwrap()
}
