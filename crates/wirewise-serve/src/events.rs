// SPDX-License-Identifier: Apache-2.0
//! Events of every attachment: who wants to hear of them, and the file they are written to.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use wirewised::attachment::pins::Root;
use wirewised::attachment::{Attachment, Listing};
use wirewised::error::{Error, Result};
use wirewised::reading::events::{Event, Events, Listener};

use crate::keeper::Board;

/// How often events are looked for, and after how many such rounds attachments are.
const PAUSE: Duration = Duration::from_millis(100);
const LOOK_AGAIN: u32 = 10;
/// Longer than all events of one time.
const LAST_LINES: u64 = 64 << 10;

/// Where events are written.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Written {
    /// One JSON object a line. Opened again at SIGHUP, as logrotate asks for.
    pub file: PathBuf,
    /// Size at which a new file is begun; the old one becomes `FILE.1`.
    #[serde(default = "hundred_megabytes")]
    pub rotate_bytes: u64,
    /// How many old files stay.
    #[serde(default = "five")]
    pub keep: u32,
}

fn hundred_megabytes() -> u64 {
    100_000_000
}

fn five() -> u32 {
    5
}

impl Written {
    pub fn check(&self) -> Result<()> {
        if self.rotate_bytes < LAST_LINES {
            return Err(Error::input(format!("`events`: `rotate_bytes` must be {LAST_LINES} or more")));
        }
        Ok(())
    }
}

/// How far somebody was told: a new service, or a program in another's place, finds the same events again.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// As events write their time.
    until: String,
    /// Those of this very time, as JSON: the data path's clock may be coarse.
    then: Vec<String>,
}

impl Told {
    /// Whoever knows events up to a time.
    pub fn until(time: &str) -> Self {
        Self { until: time.to_string(), then: Vec::new() }
    }

    /// Whether an event, one of those that were kept, was told before.
    fn has(&self, event: &Event, json: &str) -> bool {
        event.timestamp < self.until
            || (event.timestamp == self.until && self.then.iter().any(|it| it == json))
    }

    fn add(&mut self, event: &Event, json: &str) {
        if event.timestamp > self.until {
            self.until.clone_from(&event.timestamp);
            self.then.clear();
        }
        if event.timestamp == self.until {
            self.then.push(json.to_string());
        }
    }
}

/// Who hears of events; each with its JSON.
pub trait Hears {
    fn event(&mut self, json: &str);
    fn missed(&mut self, events: u64);
    fn caught_up(&mut self) {}
}

/// An attachment whose events are read.
struct Source {
    program: Option<u32>,
    events: Events,
    told: Told,
    /// Only what is kept was told so far.
    catches_up: bool,
}

/// Tells of the events of all attachments, those that are kept first, for as long as somebody listens.
pub fn follow(root: &Root, told: &Told, listens: impl Fn() -> bool, hears: &mut dyn Hears) {
    let mut sources: BTreeMap<PathBuf, Source> = BTreeMap::new();
    let mut round = 0u32;
    while listens() {
        if round.is_multiple_of(LOOK_AGAIN) {
            look(root, told, &mut sources);
        }
        round = round.wrapping_add(1);
        for source in sources.values_mut() {
            let mut newer = Newer { hears, told: &mut source.told, catches_up: source.catches_up };
            if source.events.tell(&mut [&mut newer]).is_err() {
                // It is opened again, if it is still there.
                source.program = None;
            }
            source.catches_up = false;
        }
        hears.caught_up();
        std::thread::sleep(PAUSE);
    }
}

fn look(root: &Root, told: &Told, sources: &mut BTreeMap<PathBuf, Source>) {
    let Listing { attachments, .. } = Attachment::all(root).unwrap_or_default();
    sources.retain(|directory, _| attachments.iter().any(|it| it.directory == *directory));
    for it in attachments {
        let program = it.link.as_ref().map(|(_, info)| info.program_id);
        let known = sources.get(&it.directory);
        if program.is_none() || known.is_some_and(|source| source.program == program) {
            continue;
        }
        if let Ok(events) = it.events() {
            let told = known.map_or_else(|| told.clone(), |source| source.told.clone());
            sources.insert(it.directory.clone(), Source { program, events, told, catches_up: true });
        }
    }
}

/// Passes on what was not told before.
struct Newer<'a> {
    hears: &'a mut dyn Hears,
    told: &'a mut Told,
    catches_up: bool,
}

impl Listener for Newer<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        let json = serde_json::to_string(event).map_err(|error| Error::other(format!("JSON: {error}")))?;
        if self.catches_up && self.told.has(event, &json) {
            return Ok(());
        }
        self.told.add(event, &json);
        self.hears.event(&json);
        Ok(())
    }

    fn missed(&mut self, events: u64) -> Result<()> {
        self.hears.missed(events);
        Ok(())
    }
}

/// Writes events to a file. What cannot be written is counted, and waits for nobody: packets least of all.
pub struct Writer {
    what: Written,
    file: Option<(BufWriter<File>, u64)>,
    board: Board,
    reopen: Arc<AtomicBool>,
    complained: bool,
}

impl Writer {
    /// reopen : set from outside when somebody has moved the file.
    pub fn new(what: Written, board: Board, reopen: Arc<AtomicBool>) -> Result<Self> {
        let file =
            open(&what.file).map_err(|error| Error::missing(format!("{}: {error}", what.file.display())))?;
        Ok(Self { what, file: Some(file), board, reopen, complained: false })
    }

    /// How far an earlier service got.
    pub fn told(&self) -> Told {
        last(&self.what.file).unwrap_or_default()
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.reopen.swap(false, Ordering::Relaxed) {
            self.file = None;
        }
        if self.file.as_ref().is_some_and(|(_, size)| size + line.len() as u64 > self.what.rotate_bytes) {
            if let Some((mut file, _)) = self.file.take() {
                file.flush()?;
            }
            rotate(&self.what)?;
        }
        if self.file.is_none() {
            self.file = Some(open(&self.what.file)?);
        }
        let Some((file, size)) = &mut self.file else { return Ok(()) };
        file.write_all(line.as_bytes())?;
        *size += line.len() as u64;
        Ok(())
    }

    fn note(&mut self, result: io::Result<()>, events: u64) {
        let mut health = self.board.lock();
        match result {
            Ok(()) => {
                health.events_written += events;
                self.complained = false;
            }
            Err(error) => {
                health.events_lost += events;
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::error!("{}: events are lost: {error}", self.what.file.display());
                }
                self.file = None;
            }
        }
    }
}

impl Hears for Writer {
    fn event(&mut self, json: &str) {
        let written = self.write(&format!("{json}\n"));
        self.note(written, 1);
    }

    fn missed(&mut self, events: u64) {
        self.board.lock().events_lost += events;
    }

    fn caught_up(&mut self) {
        let flushed = self.file.as_mut().map_or(Ok(()), |(file, _)| file.flush());
        self.note(flushed, 0);
    }
}

fn open(path: &Path) -> io::Result<(BufWriter<File>, u64)> {
    let file = OpenOptions::new().create(true).append(true).mode(0o640).open(path)?;
    let size = file.metadata()?.len();
    Ok((BufWriter::new(file), size))
}

/// `FILE` becomes `FILE.1`, that `FILE.2` and so on; the oldest goes.
fn rotate(what: &Written) -> io::Result<()> {
    let numbered = |number: u32| {
        let mut name = what.file.clone().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for number in (1..what.keep).rev() {
        match std::fs::rename(numbered(number), numbered(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match what.keep {
        0 => std::fs::remove_file(&what.file),
        _ => std::fs::rename(&what.file, numbered(1)),
    }
}

/// What the end of a file says.
fn last(path: &Path) -> Option<Told> {
    let mut file = File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(LAST_LINES))).ok()?;
    let mut end = Vec::new();
    file.take(LAST_LINES).read_to_end(&mut end).ok()?;
    let end = String::from_utf8_lossy(&end);
    let time = |line: &str| {
        let event: Value = serde_json::from_str(line).ok()?;
        Some(event["timestamp"].as_str()?.to_string())
    };
    let until = time(end.lines().last()?)?;
    let then = end.lines().rev().take_while(|line| time(line).as_ref() == Some(&until)).map(str::to_string);
    Some(Told { then: then.collect(), until })
}
