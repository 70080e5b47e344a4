// SPDX-License-Identifier: Apache-2.0
//! Packets through the program, and which of them become rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use wirewise_capture::Reader;

use super::rows::{FeatureRows, Row, Shape};
use crate::abi::{self, Status};
use crate::error::{Error, Result};
use crate::files::whole_file::commit_all;
use crate::labels::{Labeller, Seen};
use crate::offline::engine_run::Worker;
use crate::offline::tracker::{End, Tracker};
use crate::packets::outer::Outer;
use crate::rows::TableFile;

/// Which packets become rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Every packet, those without features too.
    EveryPacket,
    /// These packet numbers of every flow: what the policy's trigger `packets` infers.
    At(BTreeSet<u32>),
    /// The first packet of a flow in each interval of the clock, in ns: what the trigger `interval` infers.
    Interval(u64),
    /// The last packet of every flow.
    AtEnd,
}

/// What is known of a flow between its packets.
enum Memory {
    Nothing,
    /// Time of the packet before.
    Previous(Tracker<Option<u64>>),
    /// The latest row and its features.
    Latest(Tracker<(Row, Vec<i64>)>),
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    pub packets: u64,
    pub rows: u64,
    /// Rows by label.
    pub labels: Vec<u64>,
    /// Packets by status; classified: those with features.
    pub statuses: [u64; Status::COUNT],
    /// Packets that could not be handed on (`--keep-going`).
    pub skipped: u64,
}

pub struct Extraction<'a> {
    worker: Worker,
    selection: &'a Selection,
    shape: Arc<Shape>,
    table: TableFile<FeatureRows>,
    rows: FeatureRows,
    idle_ns: u64,
    /// Of both flow tables.
    entries: usize,
    pub counts: Counts,
}

impl Counts {
    /// features : `None` where the packet was not classified.
    #[inline]
    pub fn add(&mut self, rows: &mut FeatureRows, row: &Row, features: Option<&[i64]>) {
        rows.push(row, features);
        self.rows += 1;
        if let Some(count) = self.labels.get_mut(row.label as usize) {
            *count += 1;
        }
    }

    #[inline]
    pub fn count_status(&mut self, status: u32) {
        if let Some(count) = self.statuses.get_mut(status as usize) {
            *count += 1;
        }
    }

    /// Rows of each label that has any.
    pub fn by_label(&self, shape: &Shape) -> Vec<(String, u64)> {
        let used = shape.labels.iter().zip(&self.labels).filter(|(_, count)| **count > 0);
        used.map(|(label, count)| (label.clone(), *count)).collect()
    }

    pub fn by_status(&self) -> Vec<(&'static str, u64)> {
        let statuses = Status::ALL.iter().zip(&self.statuses).filter(|(_, count)| **count > 0);
        statuses.map(|(status, count)| (status.name(), *count)).collect()
    }
}

impl<'a> Extraction<'a> {
    pub fn new(
        worker: Worker,
        config: &abi::Config,
        selection: &'a Selection,
        shape: Arc<Shape>,
        table: TableFile<FeatureRows>,
    ) -> Self {
        let counts = Counts { labels: vec![0; shape.labels.len()], ..Counts::default() };
        let entries = 2 * abi::WAYS as usize * (config.bucket_mask as usize + 1);
        let rows = FeatureRows::new(Arc::clone(&shape));
        Self { worker, selection, rows, shape, table, idle_ns: config.idle_timeout_ns, entries, counts }
    }

    /// One capture, with empty flow tables at its start. An error of the capture comes behind the rows of what could be read.
    ///
    /// skip : go on behind packets that cannot be handed on. show : told now and then how far the capture is.
    pub fn run(
        &mut self,
        capture: &mut Reader,
        index: u32,
        labeller: &mut Labeller<'_>,
        skip: bool,
        mut show: impl FnMut(&Counts, (u64, Option<u64>)),
    ) -> Result<()> {
        // New tables are empty, and take memory only where a flow comes to lie.
        if self.counts.packets > 0 {
            self.worker.clear_flows();
        }
        let mut memory = match self.selection {
            Selection::EveryPacket | Selection::At(_) => Memory::Nothing,
            Selection::Interval(_) => Memory::Previous(Tracker::new(self.idle_ns, self.entries)),
            Selection::AtEnd => Memory::Latest(Tracker::new(self.idle_ns, self.entries)),
        };
        let mut last_ns = 0;
        let read = loop {
            match capture.advance() {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) if skip && error.is_about_one_packet() => {
                    self.counts.skipped += 1;
                    continue;
                }
                Err(error) => break Err(Error::from(error)),
            }
            last_ns = capture.time_ns();
            self.packet(capture, index, labeller, &mut memory)?;
            if self.counts.packets.is_multiple_of(1 << 14) {
                show(&self.counts, capture.progress());
            }
        };
        if let Memory::Latest(tracker) = &mut memory {
            let (rows, counts) = (&mut self.rows, &mut self.counts);
            tracker.finish(
                last_ns,
                |(row, _)| row.packet,
                |_, (row, features)| {
                    counts.add(rows, &row, Some(&features));
                },
            );
        }
        read
    }

    #[inline]
    fn packet(
        &mut self,
        capture: &mut Reader,
        index: u32,
        labeller: &mut Labeller<'_>,
        memory: &mut Memory,
    ) -> Result<()> {
        let packet = capture.packet();
        let outer = Outer::parse(packet.frame);
        let seen = Seen { time_ns: packet.time_ns, frame: packet.frame, outer: outer.as_ref() };
        let mut row = Row {
            time_ns: packet.time_ns,
            capture: index,
            packet: packet.number,
            flow: outer.map(|outer| outer.conversation()),
            sender: outer.map_or(0, |outer| 1 + i32::from(outer.swapped())),
            label: labeller.label(&seen)?,
            status: Status::Classified.code(),
        };
        self.worker.run(capture.frame_mut(), row.time_ns)?;
        let scratch = &self.worker.own()?.scratch;
        // An object without a model decides nothing, but its features are there.
        let classified = scratch.inferred != 0 && matches!(scratch.status, CLASSIFIED | UNDECIDED);
        if !classified {
            row.status = scratch.status;
        }
        self.counts.packets += 1;
        self.counts.count_status(row.status);
        let features = classified.then_some(&scratch.feature[..]);
        match (self.selection, memory) {
            (Selection::EveryPacket, _) => self.counts.add(&mut self.rows, &row, features),
            (Selection::At(numbers), _) if classified && numbers.contains(&scratch.packets) => {
                self.counts.add(&mut self.rows, &row, features);
            }
            (Selection::Interval(interval), Memory::Previous(tracker)) if classified => {
                let first = scratch.packets == 1;
                let mut previous = None;
                if !first || scratch.refused == 0 {
                    let key = (scratch.ip_version as u8, bytemuck::cast(scratch.key));
                    let known = tracker.see(key, scratch.packets, row.time_ns, || None, |_, _| {});
                    previous = known.replace(row.time_ns);
                }
                if first || previous.is_none_or(|previous| row.time_ns / interval != previous / interval) {
                    self.counts.add(&mut self.rows, &row, features);
                }
                if tracker.wants_sweep() {
                    tracker.sweep(row.time_ns, &self.worker.live_keys(), |_, _| {});
                }
            }
            // A packet that found no place is of no flow that could end.
            (Selection::AtEnd, Memory::Latest(tracker)) if classified && scratch.refused == 0 => {
                let (rows, counts) = (&mut self.rows, &mut self.counts);
                let key = (scratch.ip_version as u8, bytemuck::cast(scratch.key));
                let width = self.shape.features.len();
                let mut ended = |_: End, (row, features): (Row, Vec<i64>)| {
                    counts.add(rows, &row, Some(&features));
                };
                let begin = || (row, vec![0; width]);
                let latest = tracker.see(key, scratch.packets, row.time_ns, begin, &mut ended);
                latest.0 = row;
                latest.1.copy_from_slice(&scratch.feature[..width]);
                if tracker.wants_sweep() {
                    tracker.sweep(row.time_ns, &self.worker.live_keys(), &mut ended);
                }
            }
            _ => {}
        }
        let shape = &self.shape;
        self.table.write_full(&mut self.rows, || FeatureRows::new(Arc::clone(shape)))
    }

    /// The program's own counters.
    pub fn stats(&self) -> Result<abi::Stats> {
        Ok(self.worker.own()?.stats)
    }

    /// Completes the table, the last of the command's work.
    pub fn finish(self) -> Result<Counts> {
        let shape = self.shape;
        commit_all([self.table.finish(self.rows, || FeatureRows::new(shape))?])?;
        Ok(self.counts)
    }
}

const CLASSIFIED: u32 = Status::Classified as u32;
const UNDECIDED: u32 = Status::Undecided as u32;
