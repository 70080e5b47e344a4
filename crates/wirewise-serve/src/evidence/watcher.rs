// SPDX-License-Identifier: Apache-2.0
//! The thread of an interface: takes its frames, keeps the latest, and fills captures.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use wirewised::error::{Error, Result};
use wirewised::plane::user_space::Tap;

use super::capture::{Capture, Request};
use super::latest::Latest;
use super::shelf::Shelf;
use super::{Evidence, Notes};
use crate::config::Place;
use crate::survey;

/// How long it waits for frames before it looks for requests.
const PATIENCE: Duration = Duration::from_millis(50);
/// How soon an interface that is down, or not there, is tried again, and losses are counted.
const AGAIN: Duration = Duration::from_secs(1);

pub struct Watcher {
    pub place: Place,
    pub wish: Evidence,
    pub notes: Arc<Notes>,
    pub shelf: Arc<Mutex<Shelf>>,
}

impl Watcher {
    /// Until nobody can ask any more; captures at work end with what they have.
    pub fn work(&self, requests: &Receiver<Request>) {
        let mut latest = Latest::new(self.wish.memory_bytes);
        let mut waiting: Vec<Request> = Vec::new();
        let mut captures: Vec<Capture> = Vec::new();
        let mut tap: Option<Tap> = None;
        let mut looked: Option<Instant> = None;
        loop {
            let asked = loop {
                match requests.try_recv() {
                    Ok(request) => waiting.push(request),
                    Err(why) => break why,
                }
            };
            let ends = asked == TryRecvError::Disconnected;
            if ends && let Some(settled) = waiting.iter().map(|it| it.settled).max() {
                std::thread::sleep(settled.saturating_duration_since(Instant::now()));
            }
            if looked.is_none_or(|when| when.elapsed() > AGAIN) {
                looked = Some(Instant::now());
                match &tap {
                    Some(tap) => self.notes.lost(tap.lost()),
                    None => tap = self.open(),
                }
            }
            let due = Instant::now();
            let mut failed = Vec::new();
            let more = tap.as_mut().is_some_and(|tap| {
                tap.each(|seen| {
                    latest.push(&seen);
                    captures.retain_mut(|capture| {
                        capture.follow(&seen).map_err(|error| failed.push(error)).is_ok()
                    });
                })
            });
            // Those that came before an alert are in memory once all is visited that the kernel had given over by then.
            for request in
                waiting.extract_if(.., |it| ends || it.settled <= due && (!more || it.until <= due))
            {
                match Capture::begin(request, &latest) {
                    Ok(capture) => captures.push(capture),
                    Err(error) => failed.push(error),
                }
            }
            failed.iter().for_each(|error| self.notes.failed(error));
            for capture in captures.extract_if(.., |capture| ends || capture.is_complete()) {
                self.finish(capture);
            }
            if ends {
                return self.notes.watches(&self.place, false);
            }
            if more {
                continue;
            }
            match &tap {
                None => std::thread::sleep(PATIENCE),
                Some(open) => {
                    if let Err(error) = open.wait(PATIENCE) {
                        self.notes.say(&error);
                        self.notes.watches(&self.place, false);
                        tap = None;
                    }
                }
            }
        }
    }

    fn finish(&self, capture: Capture) {
        match capture.finish(&self.shelf) {
            Ok((frames, removed)) => self.notes.written(&self.shelf, frames, removed),
            Err(error) => self.notes.failed(&error),
        }
    }

    fn open(&self) -> Option<Tap> {
        let Place { netns, interface } = &self.place;
        let opened: Result<Tap> = survey::within(netns.as_deref(), || Tap::open(interface, self.wish.snap))
            .unwrap_or_else(|| {
                Err(Error::missing(format!("{}: the network namespace cannot be entered", self.place)))
            });
        match opened {
            Ok(tap) => {
                self.notes.watches(&self.place, true);
                Some(tap)
            }
            Err(error) => {
                self.notes.say(&error);
                None
            }
        }
    }
}
