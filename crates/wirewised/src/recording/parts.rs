// SPDX-License-Identifier: Apache-2.0
//! The table that rows go to: one file, or a folder with a part for so many rows or so long. A file has its name once it is complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::features::FeatureRows;
use crate::rows::{Batch, Format, TableFile};

/// When a part ends and the next begins.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    pub rows: Option<u64>,
    pub time: Option<Duration>,
}

impl Limits {
    fn is_none(&self) -> bool {
        self.rows.is_none() && self.time.is_none()
    }
}

pub struct Parts {
    output: PathBuf,
    limits: Limits,
    metadata: Vec<(String, String)>,
    table: Option<TableFile<FeatureRows>>,
    begun: Instant,
    /// Of the part that is being written.
    rows: u64,
    /// Of the complete ones.
    bytes: u64,
    done: Vec<String>,
}

impl Parts {
    /// output : a file, or with limits a folder, which is made if it is not there.
    pub fn create(
        output: &Path,
        limits: Limits,
        metadata: Vec<(String, String)>,
        blank: &FeatureRows,
    ) -> Result<Self> {
        if !limits.is_none() {
            fs::create_dir_all(output).map_err(|error| {
                Error::input(format!("{}: no folder for the parts of a table: {error}", output.display()))
            })?;
            let mut there = fs::read_dir(output)
                .map_err(|error| Error::input(format!("{}: cannot be read: {error}", output.display())))?;
            if there.next().is_some() {
                let name = output.display();
                return Err(Error::input(format!(
                    "{name}: is not empty, and its files would be one table with the new parts; name another folder"
                )));
            }
        }
        let mut parts = Self {
            output: output.to_owned(),
            limits,
            metadata,
            table: None,
            begun: Instant::now(),
            rows: 0,
            bytes: 0,
            done: Vec::new(),
        };
        parts.begin(blank)?;
        Ok(parts)
    }

    fn begin(&mut self, blank: &FeatureRows) -> Result<()> {
        let path = self.path();
        self.table = Some(TableFile::create(&path, Format::of(&path)?, blank, &self.metadata)?);
        (self.begun, self.rows) = (Instant::now(), 0);
        Ok(())
    }

    /// Of the part that is being written.
    fn path(&self) -> PathBuf {
        if self.limits.is_none() {
            return self.output.clone();
        }
        self.output.join(format!("part-{:05}.parquet", self.done.len() + 1))
    }

    /// Writes the batch if it is full or its part is; it is empty then.
    pub fn write_full(&mut self, batch: &mut FeatureRows, fresh: impl Fn() -> FeatureRows) -> Result<()> {
        let Some(table) = &mut self.table else { return Ok(()) };
        let waiting = batch.len() as u64;
        let full = self.limits.rows.is_some_and(|rows| self.rows + waiting >= rows)
            || self.limits.time.is_some_and(|time| self.begun.elapsed() >= time);
        if !full {
            table.write_full(batch, &fresh)?;
            if batch.is_empty() {
                self.rows += waiting;
            }
            return Ok(());
        }
        if self.rows + waiting == 0 {
            self.begun = Instant::now();
            return Ok(());
        }
        let last = std::mem::replace(batch, fresh());
        self.end(last, &fresh)?;
        self.begin(batch)
    }

    fn end(&mut self, last: FeatureRows, fresh: impl FnOnce() -> FeatureRows) -> Result<()> {
        let path = self.path();
        if let Some(table) = self.table.take() {
            table.finish(last, fresh)?.commit()?;
            self.bytes += fs::metadata(&path).map_or(0, |file| file.len());
            self.done.push(path.display().to_string());
        }
        Ok(())
    }

    pub fn bytes(&self) -> u64 {
        self.bytes + self.table.as_ref().map_or(0, TableFile::written)
    }

    /// Completes the last part, unless it is empty and there are others. Returns the files.
    pub fn finish(mut self, last: FeatureRows, fresh: impl FnOnce() -> FeatureRows) -> Result<Vec<String>> {
        if self.done.is_empty() || self.rows > 0 || !last.is_empty() {
            self.end(last, fresh)?;
        }
        Ok(self.done)
    }
}
