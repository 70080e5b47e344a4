// SPDX-License-Identifier: Apache-2.0
//! What would fill the log if it were said each time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often trouble of one kind is logged.
const EACH: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Whether it may be said again.
    pub fn is_due(&self) -> bool {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = said.is_none_or(|when| when.elapsed() > EACH);
        if due {
            *said = Some(Instant::now());
        }
        due
    }
}
