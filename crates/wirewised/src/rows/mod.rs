// SPDX-License-Identifier: Apache-2.0
//! Tables out: rows gathered in columns, written batch by batch in a thread of their own, as Parquet or JSON lines.

mod json_lines;
mod parquet_file;

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};
use crate::files::place::Destination;
use crate::files::whole_file::WholeFile;
use crate::packets::outer::Conversation;

/// Rows of a batch, a page of Parquet: few enough that the batches on their way stay in the processor's cache.
pub const BATCH: usize = 1 << 13;
/// In a `Text` column: no value.
pub const NO_TEXT: u32 = u32::MAX;

/// The values of one column of a batch.
#[derive(Debug, Clone, Copy)]
pub enum Values<'a> {
    Int64(&'a [i64]),
    Int32(&'a [i32]),
    Bool(&'a [bool]),
    /// Indices into the texts.
    Text(&'a [u32], &'a [String]),
    /// The text of a conversation; "" for none.
    Flow(&'a [Option<Conversation>]),
    /// The values where `present` holds; null elsewhere.
    Optional {
        values: &'a [i64],
        present: &'a [bool],
    },
    /// Null in every row: a column of whole numbers.
    Missing,
}

/// Rows that are gathered. The columns are the same for all batches of a table.
pub trait Batch: Send + 'static {
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Makes the columns complete; told before they are asked for.
    fn settle(&mut self) {}
    /// Names and values.
    fn columns(&self) -> Vec<(&str, Values<'_>)>;
    fn clear(&mut self);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Parquet,
    JsonLines,
}

impl Format {
    /// By the file's name.
    pub fn of(path: &Path) -> Result<Self> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => Ok(Self::Parquet),
            Some("jsonl" | "ndjson") => Ok(Self::JsonLines),
            // A device or a pipe, such as `/dev/stdout`.
            None if Destination::of(path)?.is_stream() => Ok(Self::JsonLines),
            _ => Err(Error::input(format!("{}: name the file .parquet or .jsonl", path.display()))),
        }
    }
}

trait Sink<B>: Send {
    fn write(&mut self, batch: &B) -> std::result::Result<(), String>;
    fn finish(&mut self) -> std::result::Result<(), String>;
}

/// A table that is being written. Until it is finished and committed there is no file.
pub struct TableFile<B> {
    file: WholeFile,
    sender: Option<SyncSender<B>>,
    emptied: Receiver<B>,
    thread: Option<JoinHandle<std::result::Result<(), String>>>,
}

impl<B: Batch> TableFile<B> {
    /// blank : an empty batch, which shows the columns. metadata : key and value, for Parquet.
    pub fn create(path: &Path, format: Format, blank: &B, metadata: &[(String, String)]) -> Result<Self> {
        let file = WholeFile::create(path)?;
        let out = file.file()?;
        let mut sink: Box<dyn Sink<B>> = match format {
            Format::JsonLines => Box::new(json_lines::JsonLines::new(out)),
            Format::Parquet => {
                let writer = parquet_file::ParquetFile::new(out, blank, metadata);
                Box::new(writer.map_err(|error| crate::files::place::cannot_write(path, &error))?)
            }
        };
        // One batch is written while the next one fills.
        let (sender, batches) = sync_channel::<B>(1);
        let (give_back, emptied) = sync_channel::<B>(4);
        let thread = thread::Builder::new().name("table".to_owned()).spawn(move || {
            for mut batch in batches {
                batch.settle();
                sink.write(&batch)?;
                batch.clear();
                // Nobody needs it any more if the other end is gone.
                let _ = give_back.try_send(batch);
            }
            sink.finish()
        });
        let thread = thread.map_err(|error| Error::other(format!("cannot start a thread: {error}")))?;
        Ok(Self { file, sender: Some(sender), emptied, thread: Some(thread) })
    }

    /// Writes the batch if it is full; it is empty then.
    #[inline]
    pub fn write_full(&mut self, batch: &mut B, fresh: impl FnOnce() -> B) -> Result<()> {
        if batch.len() < BATCH { Ok(()) } else { self.write(batch, fresh) }
    }

    pub fn write(&mut self, batch: &mut B, fresh: impl FnOnce() -> B) -> Result<()> {
        let next = self.emptied.try_recv().unwrap_or_else(|_| fresh());
        let full = std::mem::replace(batch, next);
        match self.sender.as_ref().map(|sender| sender.send(full)) {
            Some(Ok(())) => Ok(()),
            _ => Err(self.failure()),
        }
    }

    /// The whole file, with the rows of a last batch, to commit.
    pub fn finish(mut self, mut last: B, fresh: impl FnOnce() -> B) -> Result<WholeFile> {
        if !last.is_empty() {
            self.write(&mut last, fresh)?;
        }
        self.join()?;
        Ok(self.file)
    }

    /// Bytes in the file so far.
    pub fn written(&self) -> u64 {
        self.file.file().ok().and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.len())
    }

    fn failure(&mut self) -> Error {
        match self.join() {
            Err(error) => error,
            Ok(()) => Error::other(format!("{}: cannot be written on", self.file.path().display())),
        }
    }

    fn join(&mut self) -> Result<()> {
        self.sender = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let written = thread.join().unwrap_or_else(|_| Err("the writer stopped".to_owned()));
        written.map_err(|error| crate::files::place::cannot_write(self.file.path(), &error))
    }
}
