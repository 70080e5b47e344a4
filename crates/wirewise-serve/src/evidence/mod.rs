// SPDX-License-Identifier: Apache-2.0
//! Captures of the packets of alerts. A raw socket on each interface that the service keeps has the latest frames in memory; an alert has
//! those of its flow written, with some that follow. All of it has an end: memory, files, captures at work, and flows in a time, so a flood
//! of alerts costs no more than that, and the data path nothing.

mod capture;
mod latest;
mod selector;
mod shelf;
mod watcher;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use wirewised::error::{Error, Result};
use wirewised::kernel;
use wirewised::reading::events::{Event, moment};
use wirewised::text::units::Nanoseconds;

use crate::config::Place;
use crate::keeper::Board;
use crate::passes::{self, SECOND};
use crate::seldom::Seldom;
use capture::Request;
use selector::Selector;
use shelf::Shelf;
use watcher::Watcher;

/// Captures at work at a time. Each has a buffer.
const AT_WORK: usize = 16;
/// Captures in an `each`, whose flows are remembered.
const FLOWS: usize = 256;
/// How long after an alert the kernel has surely given over the frames before it.
const SETTLE: Duration = Duration::from_millis(100);
/// How soon an interface that the service keeps now is watched.
const LOOK: Duration = Duration::from_millis(200);
/// How long captures may take to end when the service does.
const TO_END: Duration = Duration::from_secs(1);
/// The key of an event that names its capture.
const LINK: &str = "evidence";

/// The `evidence` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Evidence {
    directory: PathBuf,
    /// Frames of the flow before the alert and after it.
    before: usize,
    after: usize,
    /// How long after the alert.
    time: Duration,
    /// Bytes of a frame.
    snap: u32,
    /// On disk.
    most_bytes: u64,
    /// A flow has one capture within this time.
    each: Duration,
    /// Memory for the latest frames of an interface.
    memory_bytes: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    directory: PathBuf,
    before: Option<u64>,
    after: Option<u64>,
    r#for: Option<String>,
    snap: Option<u64>,
    most_bytes: Option<u64>,
    each: Option<String>,
    memory_bytes: Option<u64>,
}

impl TryFrom<Written> for Evidence {
    type Error = String;

    fn try_from(written: Written) -> std::result::Result<Self, String> {
        let said = |key: &str, why: String| format!("`evidence`: `{key}`: {why}");
        let number = |key: &str, given: Option<u64>, usual: u64, least: u64, most: u64| {
            let number = given.unwrap_or(usual);
            let fits = (least..=most).contains(&number);
            fits.then_some(number)
                .ok_or_else(|| said(key, format!("{number} is out of range; {least} to {most}")))
        };
        let time = |key: &str, given: Option<String>, usual: u64, longest: u64| {
            let (usual, longest) = (Nanoseconds(usual * SECOND), Nanoseconds(longest * SECOND));
            let time = passes::period_within(key, given, usual, longest);
            time.map(|time| Duration::from_nanos(time.0)).map_err(|why| format!("`evidence`: {why}"))
        };
        let evidence = Self {
            directory: written.directory,
            before: number("before", written.before, 64, 0, 10_000)? as usize,
            after: number("after", written.after, 64, 0, 10_000)? as usize,
            time: time("for", written.r#for, 10, 600)?,
            snap: number("snap", written.snap, 256, 64, 65_535)? as u32,
            most_bytes: number("most_bytes", written.most_bytes, 100_000_000, 1 << 20, 1 << 50)?,
            each: time("each", written.each, 60, 24 * 3600)?,
            memory_bytes: number("memory_bytes", written.memory_bytes, 16 << 20, 1 << 18, 1 << 30)? as usize,
        };
        let largest = evidence.largest();
        if largest > evidence.most_bytes {
            return Err(said(
                "most_bytes",
                format!(
                    "{} is less than one capture of {} frames of {} bytes may have; write {largest} or more",
                    evidence.most_bytes,
                    evidence.before + evidence.after,
                    evidence.snap
                ),
            ));
        }
        Ok(evidence)
    }
}

/// What became of the packets of alerts.
#[derive(Debug, Default, Clone, Serialize, utoipa::ToSchema)]
pub struct EvidenceHealth {
    pub directory: String,
    /// Captures that are complete.
    pub written: u64,
    /// Alerts of a flow that had a capture within `each`.
    pub covered: u64,
    /// Alerts without a capture: too many at work, or in an `each`, or the alert was too old.
    pub skipped: u64,
    /// Captures that could not be written.
    pub failed: u64,
    /// Captures that went to make room.
    pub removed: u64,
    /// Frames in captures.
    pub frames: u64,
    /// Frames that the raw sockets had no room for, so that captures may lack them.
    pub lost: u64,
    /// What the captures take of the disk.
    pub bytes: u64,
    /// Why the latest capture could not be written, or an interface not be watched; null once that went well.
    pub error: Option<String>,
    /// Interfaces whose latest frames are in memory.
    pub watched: Vec<Place>,
}

/// Says and counts what happens.
pub struct Notes {
    board: Board,
    trouble: Seldom,
    refused: Seldom,
}

impl Notes {
    fn note(&self, change: impl FnOnce(&mut EvidenceHealth)) {
        if let Some(health) = &mut self.board.lock().evidence {
            change(health);
        }
    }

    fn say(&self, error: &Error) {
        self.note(|health| health.error = Some(error.to_string()));
        if self.trouble.is_due() {
            tracing::error!("evidence: {error}");
        }
    }

    fn failed(&self, error: &Error) {
        self.note(|health| health.failed += 1);
        self.say(error);
    }

    fn skipped(&self, why: &str) {
        self.note(|health| health.skipped += 1);
        if self.refused.is_due() {
            tracing::warn!("evidence: alerts have no capture: {why}");
        }
    }

    fn written(&self, shelf: &Mutex<Shelf>, frames: u64, removed: u64) {
        let bytes = lock(shelf).bytes();
        self.note(|health| {
            health.written += 1;
            health.frames += frames;
            health.removed += removed;
            health.bytes = bytes;
            health.error = None;
        });
    }

    fn lost(&self, frames: u64) {
        self.note(|health| health.lost += frames);
    }

    fn watches(&self, place: &Place, does: bool) {
        self.note(|health| {
            health.watched.retain(|it| it != place);
            if does {
                health.watched.push(place.clone());
                health.error = None;
            }
        });
    }
}

/// Who can be asked for a capture.
type Watchers = Arc<Mutex<BTreeMap<Place, SyncSender<Request>>>>;

/// Takes alerts, and waits for nobody.
pub struct Desk {
    wish: Evidence,
    notes: Arc<Notes>,
    watchers: Watchers,
    /// When flows last had a capture.
    recent: HashMap<(Place, u64), Instant>,
    slots: Arc<()>,
    number: u64,
}

/// Captures at work.
pub struct Running {
    stop: Sender<()>,
    /// Closed by the last thread that ends.
    ended: Receiver<()>,
}

impl Evidence {
    pub fn relative_to(&mut self, folder: &Path) {
        self.directory = folder.join(&self.directory);
    }

    /// What a capture may have at most, with a VLAN tag in each frame.
    fn largest(&self) -> u64 {
        let frames = (self.before + self.after) as u64;
        (24 + frames * (16 + u64::from(self.snap) + 4)).next_multiple_of(4096)
    }

    /// Watches what the service keeps, until `Running::end`.
    pub fn run(&self, board: &Board) -> Result<(Running, Desk)> {
        let shelf = Shelf::open(&self.directory, self.most_bytes).map_err(|error| {
            Error::missing(format!(
                "`evidence`: `directory: {}`: {error}; it has to be a directory in which the service may write",
                self.directory.display()
            ))
        })?;
        board.lock().evidence = Some(EvidenceHealth {
            directory: shelf.directory().display().to_string(),
            bytes: shelf.bytes(),
            ..EvidenceHealth::default()
        });
        let notes =
            Arc::new(Notes { board: board.clone(), trouble: Seldom::default(), refused: Seldom::default() });
        let watchers = Watchers::default();
        let (stop, stopped) = channel();
        let (working, ended) = channel();
        let supervisor = Supervisor {
            wish: self.clone(),
            notes: Arc::clone(&notes),
            shelf: Arc::new(Mutex::new(shelf)),
            watchers: Arc::clone(&watchers),
        };
        std::thread::spawn(move || supervisor.work(&stopped, &working));
        let desk = Desk {
            wish: self.clone(),
            notes,
            watchers,
            recent: HashMap::new(),
            slots: Arc::default(),
            number: 0,
        };
        Ok((Running { stop, ended }, desk))
    }
}

impl Running {
    /// Has captures at work end with what they have.
    pub fn end(self) {
        drop(self.stop);
        if self.ended.recv_timeout(TO_END) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the service ends before all captures are written");
        }
    }
}

/// Has a thread at each interface that the service keeps.
struct Supervisor {
    wish: Evidence,
    notes: Arc<Notes>,
    shelf: Arc<Mutex<Shelf>>,
    watchers: Watchers,
}

impl Supervisor {
    fn work(&self, stopped: &Receiver<()>, working: &Sender<()>) {
        while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            let places = self.notes.board.lock().places.clone();
            let kept: Vec<_> = places.into_iter().filter(|it| it.kept && it.evidence).collect();
            let mut watchers = lock(&self.watchers);
            watchers.retain(|place, _| kept.iter().any(|it| it.place == *place));
            for it in kept {
                if watchers.contains_key(&it.place) {
                    continue;
                }
                let (tell, requests) = sync_channel(AT_WORK);
                let watcher = Watcher {
                    place: it.place.clone(),
                    wish: self.wish.clone(),
                    notes: Arc::clone(&self.notes),
                    shelf: Arc::clone(&self.shelf),
                };
                let working = working.clone();
                std::thread::spawn(move || {
                    watcher.work(&requests);
                    drop(working);
                });
                watchers.insert(it.place, tell);
            }
        }
        // Whom nobody can ask any more ends.
        lock(&self.watchers).clear();
    }
}

impl Desk {
    /// The JSON of an alert with the name of its capture, which is complete later; `None`: it gets none.
    pub fn link(&mut self, place: &Place, event: &Event) -> Option<String> {
        let file = self.ask(place, event)?;
        let link = Link { file: file.display().to_string() };
        serde_json::to_string(&Linked { event, evidence: link }).ok()
    }

    fn ask(&mut self, place: &Place, event: &Event) -> Option<PathBuf> {
        event.alert.as_ref()?;
        let watchers = lock(&self.watchers);
        let watcher = watchers.get(place)?;
        let key = (place.clone(), event.flow_id);
        if self.recent.get(&key).is_some_and(|when| when.elapsed() < self.wish.each) {
            self.notes.note(|health| health.covered += 1);
            return None;
        }
        if self.recent.len() >= FLOWS {
            self.recent.retain(|_, when| when.elapsed() < self.wish.each);
        }
        let skip = |why: &str| {
            self.notes.skipped(why);
            None
        };
        if self.recent.len() >= FLOWS {
            return skip(&format!("{FLOWS} flows have one within `each`"));
        }
        // One reference is the desk's.
        if Arc::strong_count(&self.slots) > AT_WORK {
            return skip(&format!("{AT_WORK} are at work"));
        }
        let time = moment(&event.timestamp)?;
        if time.elapsed().is_ok_and(|age| age > self.wish.time) {
            return skip("the alert is older than `for`");
        }
        let digits = event.timestamp.split('+').next().unwrap_or_default().replace(['-', ':'], "");
        let Place { netns, interface } = place;
        let name = netns.as_ref().map_or_else(|| interface.clone(), |netns| format!("{netns}.{interface}"));
        let file = Shelf::place(&self.wish.directory, &digits, &name, self.number);
        let request = Request {
            file: file.clone(),
            selector: Selector::of(&event.flow),
            // The data path's clock stands still between ticks.
            time_ns: time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
                + kernel::tick_ns(),
            before: self.wish.before,
            after: self.wish.after,
            settled: Instant::now() + SETTLE,
            until: Instant::now() + self.wish.time,
            slot: Arc::clone(&self.slots),
        };
        if watcher.try_send(request).is_err() {
            return skip("writing does not keep up");
        }
        self.number += 1;
        self.recent.insert(key, Instant::now());
        Some(file)
    }
}

#[derive(Serialize)]
struct Linked<'a> {
    #[serde(flatten)]
    event: &'a Event,
    /// `LINK`.
    evidence: Link,
}

#[derive(Serialize)]
struct Link {
    file: String,
}

/// The JSON of an event as it was before it was linked.
pub fn without_link(json: &str) -> String {
    if let Ok(Value::Object(mut event)) = serde_json::from_str(json)
        && event.shift_remove(LINK).is_some()
    {
        return Value::Object(event).to_string();
    }
    json.to_string()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
