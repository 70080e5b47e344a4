// SPDX-License-Identifier: Apache-2.0
//! How long single calls take, on the wall clock: what somebody waits who asks.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[derive(Debug, Default)]
pub struct Latencies(Vec<u64>);

impl Latencies {
    /// Calls of a round that are timed, at most.
    pub const A_ROUND: usize = 5_000;

    pub fn add(&mut self, took: Duration) {
        self.0.push(took.as_nanos() as u64);
    }

    /// Median, 95 and 99 %, and what the clock itself takes of each.
    pub fn report(&mut self) -> Value {
        self.0.sort_unstable();
        let at = |share: f64| self.0.get((self.0.len() as f64 * share) as usize).copied();
        json!({
            "calls": self.0.len(), "median_ns": at(0.5), "p95_ns": at(0.95), "p99_ns": at(0.99), "clock_ns": clock_ns(),
        })
    }
}

fn clock_ns() -> u64 {
    let mut taken: Vec<_> = (0..1001).map(|_| Instant::now().elapsed().as_nanos() as u64).collect();
    taken.sort_unstable();
    taken[taken.len() / 2]
}
