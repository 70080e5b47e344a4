// SPDX-License-Identifier: Apache-2.0
//! Until when somebody looks at what runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::ending;
use crate::error::{Error, Result};

/// How soon a key or a signal is noticed.
pub const RESPONSE: Duration = Duration::from_millis(100);

/// Set by SIGINT, SIGTERM and SIGHUP, so that a command ends in order.
#[derive(Debug, Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn on_signals() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // Of `nohup`.
            if signal == libc::SIGHUP && ending::is_ignored(signal) {
                continue;
            }
            signal_hook::flag::register(signal, Arc::clone(&flag))
                .map_err(|error| Error::other(format!("cannot wait for signals: {error}")))?;
        }
        ending::hold().keep();
        Ok(Self(flag))
    }

    /// As a signal does.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps, but not beyond a signal. Returns false when one came.
    pub fn sleep(&self, duration: Duration) -> bool {
        let end = Instant::now() + duration;
        while !self.asked() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(RESPONSE));
        }
        false
    }
}
