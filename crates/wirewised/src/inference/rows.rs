// SPDX-License-Identifier: Apache-2.0
//! Rows of features from a file or a pipe: a NumPy array (.npy), or CSV with names. Which of the two it is, its first bytes say.

use std::io::{BufRead, BufReader, Read};

mod csv_text;
mod npy;

/// What is read of a source at once: as much as stays in a processor's cache.
pub const CHUNK: usize = 4096;
/// Longest line of CSV: of the largest feature set, with long names.
const BUFFER: usize = 1 << 16;

/// A source of rows, read chunk by chunk.
pub enum Rows {
    Npy(npy::Npy),
    Csv(csv_text::Csv),
}

pub type Source = BufReader<Box<dyn Read + Send>>;

impl Rows {
    /// names : of the features, in the order in which they are wanted. needed : whether CSV must have a feature; those that it
    /// need not are 0 where it has none. The error is one line without the source's name.
    pub fn open(source: Box<dyn Read + Send>, names: &[String], needed: &[bool]) -> Result<Self, String> {
        let mut source = BufReader::with_capacity(BUFFER, source);
        let start = source.fill_buf().map_err(|error| format!("cannot be read: {error}"))?;
        if start.starts_with(npy::MAGIC) {
            return npy::Npy::open(source, names.len()).map(Self::Npy);
        }
        csv_text::Csv::open(source, names, needed).map(Self::Csv)
    }

    /// Replaces `rows` by the next ones, row by row; there are none at the end.
    pub fn next(&mut self, rows: &mut Vec<i64>) -> Result<(), String> {
        match self {
            Self::Npy(npy) => npy.next(rows),
            Self::Csv(csv) => csv.next(rows),
        }
    }
}
