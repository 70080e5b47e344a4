// SPDX-License-Identifier: Apache-2.0
//! The bytes of a file, unpacked, through one buffer that grows only for a record that is really there.

use std::fs::{File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::packing::{BUFFER, unpacked};

pub(crate) struct Source {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Of `buffer[start]` in the unpacked file.
    offset: u64,
    ended: bool,
    failure: Option<String>,
    taken: Arc<AtomicU64>,
    length: Option<u64>,
}

fn admit(about: &Metadata) -> io::Result<()> {
    let kind = about.file_type();
    if kind.is_file() || kind.is_fifo() {
        return Ok(());
    }
    let name = if kind.is_dir() {
        "a folder"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(io::Error::other(format!("is {name}, not a capture; give a pcap or pcapng file")))
}

/// Counts what is taken from the file as it lies on the disk.
struct Counted<R> {
    input: R,
    taken: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.taken.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Source {
    /// `-` is standard input. A pipe gives what another program writes; a device or a socket is no capture.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Self::new(io::stdin());
        }
        // Opening a device may already do something.
        admit(&std::fs::metadata(path)?)?;
        let file = File::open(path)?;
        let about = file.metadata()?;
        admit(&about)?;
        let mut source = Self::new(file)?;
        source.length = about.is_file().then_some(about.len());
        Ok(source)
    }

    pub fn new(input: impl Read + Send + 'static) -> io::Result<Self> {
        let taken = Arc::new(AtomicU64::new(0));
        let input = unpacked(Box::new(Counted { input, taken: Arc::clone(&taken) }))?;
        Ok(Self {
            input,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            offset: 0,
            ended: false,
            failure: None,
            taken,
            length: None,
        })
    }

    /// What is in the buffer and not consumed.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    #[inline]
    pub fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// Of the next byte, in the unpacked file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the file as it lies on the disk: taken so far, and all if that is known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.taken.load(Ordering::Relaxed), self.length)
    }

    /// Why the input ended early, if it did not end by itself.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Whether `count` bytes are in the buffer, after reading more if need be.
    #[inline]
    pub fn need(&mut self, count: usize) -> bool {
        self.end - self.start >= count || self.fill(count)
    }

    #[cold]
    fn fill(&mut self, count: usize) -> bool {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        while !self.ended && self.end < count {
            if self.end == self.buffer.len() {
                // The count may be a lie, so the buffer follows what comes.
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(more) => self.end += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some(error.to_string());
                    self.ended = true;
                }
            }
        }
        self.end >= count
    }
}
