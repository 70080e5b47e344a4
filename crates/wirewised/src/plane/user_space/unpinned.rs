// SPDX-License-Identifier: Apache-2.0
//! Workers of a program that is pinned nowhere, so only who has started them leads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use wirewise_lane::LaneCounts;

use super::carrier::{cannot_start, refuse_time_namespaces};
use super::worker::{PATIENCE, take_seat};
use super::{Wanted, engines};
use crate::error::{Error, Result};
use crate::object::Loaded;
use crate::plane::Plane;

/// They stop when this is dropped.
pub struct Workers {
    halt: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<LaneCounts>>>,
}

impl Workers {
    /// Opens the plane's lanes, and begins. input : of the program, for errors.
    pub fn start(input: &str, loaded: &Loaded, plane: Plane, wanted: &Wanted<'_>) -> Result<Self> {
        let carried = plane.carried().ok_or_else(|| Error::other(format!("{plane} is the kernel's")))?;
        refuse_time_namespaces(plane)?;
        let lanes = carried.open(wanted)?.lanes;
        let chains = engines::of_loaded(input, loaded, lanes.len())?;
        let mut workers = Self { halt: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        for (number, (mut lane, mut chain)) in lanes.into_iter().zip(chains).enumerate() {
            let halt = Arc::clone(&workers.halt);
            let work = move || {
                take_seat(number)?;
                while !halt.load(Ordering::Acquire) {
                    lane.turn(&mut chain, PATIENCE).map_err(Error::other)?;
                }
                Ok(lane.counts())
            };
            let thread = thread::Builder::new().name(format!("worker-{number}")).spawn(work);
            workers.threads.push(thread.map_err(|error| cannot_start(&error))?);
        }
        Ok(workers)
    }

    /// One has stopped by itself, which it does only for an error.
    pub fn have_failed(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stops them.
    pub fn end(mut self) -> Result<LaneCounts> {
        self.halt.store(true, Ordering::Release);
        let mut all = LaneCounts::default();
        let ended: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        for counts in ended {
            all.add(&counts.unwrap_or_else(|_| Err(Error::other("a worker ended")))?);
        }
        Ok(all)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.halt.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
