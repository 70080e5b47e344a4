// SPDX-License-Identifier: Apache-2.0
//! One worker: a lane, a processor, and the engines that judge what the lane brings.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use wirewise_lane::Lane;

use super::engines::{AllowList, Chain};
use super::note::Note;
use crate::error::{Error, Result};
use crate::kernel;

/// How long a worker without packets waits before it looks whether there is anything else to do.
pub const PATIENCE: Duration = Duration::from_millis(20);
/// How often it tells its counts.
const TELL: Duration = Duration::from_millis(50);

/// Where a worker finds what it is to judge by from the next burst on.
pub struct Seat {
    news: AtomicBool,
    next: Mutex<Next>,
}

#[derive(Default)]
struct Next {
    chain: Option<Chain>,
    allow_list: Option<Arc<AllowList>>,
}

impl Seat {
    pub fn new(chain: Chain) -> Self {
        let next = Next { chain: Some(chain), allow_list: None };
        Self { news: AtomicBool::new(true), next: Mutex::new(next) }
    }

    pub fn give(&self, chain: Chain) {
        self.change(|next| *next = Next { chain: Some(chain), allow_list: None });
    }

    pub fn allow(&self, list: Arc<AllowList>) {
        self.change(|next| next.allow_list = Some(list));
    }

    fn change(&self, change: impl FnOnce(&mut Next)) {
        change(&mut self.next.lock().unwrap_or_else(PoisonError::into_inner));
        self.news.store(true, Ordering::Release);
    }

    /// The worker goes by the last change.
    pub fn is_settled(&self) -> bool {
        !self.news.load(Ordering::Acquire)
    }

    fn take(&self, chain: &mut Option<Chain>) -> Result<()> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut new) = next.chain.take() {
            chain.iter().for_each(|before| new.inherit(before));
            *chain = Some(new);
        }
        if let (Some(list), Some(chain)) = (next.allow_list.take(), chain.as_mut()) {
            chain.allow(&list)?;
        }
        self.news.store(false, Ordering::Release);
        Ok(())
    }
}

/// Each worker has a CPU, as far as they go round.
pub fn take_seat(number: usize) -> Result<()> {
    let cpus = kernel::allowed_cpus()?;
    kernel::pin_to(cpus[number % cpus.len()])
}

/// Carries packets until told to halt. number : of the worker, and of the CPU whose counters it uses.
pub fn work(
    number: usize,
    mut lane: Box<dyn Lane>,
    seat: &Seat,
    note: &Note,
    halt: &AtomicBool,
) -> Result<()> {
    take_seat(number)?;
    let mut chain = None;
    let mut told = Instant::now();
    while !halt.load(Ordering::Acquire) {
        if !seat.is_settled() {
            seat.take(&mut chain)?;
        }
        let Some(chain) = &mut chain else { continue };
        lane.turn(chain, PATIENCE).map_err(Error::other)?;
        if told.elapsed() >= TELL {
            note.count(number, lane.counts());
            told = Instant::now();
        }
    }
    note.count(number, lane.counts());
    Ok(())
}
