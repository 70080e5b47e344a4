// SPDX-License-Identifier: Apache-2.0
//! How far long work has come.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use crate::harmless::harmless;

const INTERVAL: Duration = Duration::from_millis(500);

/// A line on the terminal behind standard error, rewritten about twice a second; nothing elsewhere.
pub struct Progress {
    shown: Option<Instant>,
    active: bool,
}

impl Progress {
    /// wanted : false where what the command prints is progress enough.
    pub fn new(wanted: bool) -> Self {
        Self { shown: None, active: wanted && io::stderr().is_terminal() }
    }

    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if self.active && self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL) {
            self.shown = Some(Instant::now());
            eprint!("\r{} ...", harmless(&text()));
        }
    }

    /// A bar where the whole is known.
    pub fn show_share(&mut self, (done, all): (u64, Option<u64>), text: impl FnOnce() -> String) {
        const WIDTH: usize = 30;
        self.show(|| match all {
            Some(all) if all > 0 => {
                let share = (done as f64 / all as f64).min(1.0);
                let full = (share * WIDTH as f64) as usize;
                let bar = "#".repeat(full) + &"-".repeat(WIDTH - full);
                format!("[{bar}] {:3.0} %  {}", share * 100.0, text())
            }
            _ => text(),
        });
    }

    pub fn clear(&self) {
        if self.shown.is_some() {
            eprint!("\r\x1b[K");
        }
    }
}
