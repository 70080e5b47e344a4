// SPDX-License-Identifier: Apache-2.0
//! The file, with one JSON object per line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;
use wirewised::error::{Error, Result};

use super::records::Kind;
use super::{LAST_LINES, Sent, Sink};
use crate::events::Told;
use crate::evidence;

/// What cannot be written is lost: a disk that is full stays so for long.
pub struct Log {
    path: PathBuf,
    rotate_bytes: u64,
    keep: u32,
    file: Option<(BufWriter<File>, u64)>,
    moved: Arc<AtomicU64>,
    /// What it said when the file was opened.
    followed: u64,
}

impl Log {
    pub fn new(path: PathBuf, rotate_bytes: u64, keep: u32, moved: Arc<AtomicU64>) -> Result<Self> {
        let file = open(&path).map_err(|error| Error::missing(format!("{}: {error}", path.display())))?;
        let followed = moved.load(Ordering::Relaxed);
        Ok(Self { path, rotate_bytes, keep, file: Some(file), moved, followed })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let moved = self.moved.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.followed, moved) != moved {
            self.flush()?;
            self.file = None;
        }
        if self.file.as_ref().is_some_and(|(_, size)| size + line.len() as u64 > self.rotate_bytes) {
            self.flush()?;
            self.file = None;
            rotate(&self.path, self.keep)?;
        }
        if self.file.is_none() {
            self.file = Some(open(&self.path)?);
        }
        let Some((file, size)) = &mut self.file else { return Ok(()) };
        file.write_all(line.as_bytes())?;
        *size += line.len() as u64;
        Ok(())
    }
}

impl Sink for Log {
    fn send(&mut self, sent: &Sent) -> io::Result<()> {
        let written = self.write(&format!("{}\n", sent.json));
        if written.is_err() {
            self.file = None;
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.file.as_mut().map_or(Ok(()), |(file, _)| file.flush());
        if flushed.is_err() {
            self.file = None;
        }
        flushed
    }

    fn may_pass(&self, _error: &io::Error) -> bool {
        false
    }
}

fn open(path: &Path) -> io::Result<(BufWriter<File>, u64)> {
    let file = OpenOptions::new().create(true).append(true).mode(0o640).open(path)?;
    let size = file.metadata()?.len();
    Ok((BufWriter::new(file), size))
}

/// `FILE` becomes `FILE.1`, that `FILE.2` and so on; the oldest goes.
fn rotate(path: &Path, keep: u32) -> io::Result<()> {
    let numbered = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for number in (1..keep).rev() {
        match std::fs::rename(numbered(number), numbered(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    match keep {
        0 => std::fs::remove_file(path),
        _ => std::fs::rename(path, numbered(1)),
    }
}

/// What the end of a file says.
pub fn last(path: &Path) -> Option<Told> {
    let mut file = File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(LAST_LINES))).ok()?;
    let mut end = Vec::new();
    file.take(LAST_LINES).read_to_end(&mut end).ok()?;
    let end = String::from_utf8_lossy(&end);
    let time = |line: &str| {
        let object: Value = serde_json::from_str(line).ok()?;
        let is_record = Kind::ALL.iter().any(|kind| object["event_type"] == kind.name());
        Some((object["timestamp"].as_str()?.to_string(), !is_record))
    };
    let mut until = None;
    let mut then = Vec::new();
    for line in end.lines().rev() {
        let Some((time, is_event)) = time(line) else { break };
        if !is_event {
            // An event of this time may still have been on its way.
            continue;
        }
        let until = until.get_or_insert_with(|| time.clone());
        if time != *until {
            break;
        }
        then.push(evidence::without_link(line));
    }
    // Nothing but records: the oldest of them comes after events that nobody knows any more.
    let oldest = || end.lines().find_map(time).map(|(time, _)| time);
    Some(Told::of(until.or_else(oldest)?, then))
}
