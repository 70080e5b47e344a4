// SPDX-License-Identifier: Apache-2.0
//! Rows to train on, from live traffic: the program without a model leaves a packet's features and headers in a ring of its CPU
//! (bpf/classify/record.h), and the agent makes the table of them that `wirewised features` makes of captures.

mod live;
mod parts;
mod rings;

use std::sync::Arc;

pub use live::Live;
pub use parts::{Limits, Parts};
pub use rings::{RingCounts, Rings, row_bytes};

use crate::abi::{self, Status};
use crate::error::Result;
use crate::features::{Counts, FeatureRows, Row, Shape};
use crate::kernel;
use crate::labels::{Labeller, Seen};
use crate::packets::outer::Outer;

/// Takes rows out of the rings and puts them into a table.
pub struct Recorder<'a> {
    rings: Rings,
    rows: FeatureRows,
    shape: Arc<Shape>,
    parts: Parts,
    labeller: Labeller<'a>,
    /// From the clock of the data path to that of the wall, once: so times differ as they do there.
    epoch_ns: u64,
    pub counts: Counts,
}

impl<'a> Recorder<'a> {
    pub fn new(rings: Rings, shape: Arc<Shape>, parts: Parts, labeller: Labeller<'a>) -> Self {
        Self {
            rings,
            rows: FeatureRows::new(Arc::clone(&shape)),
            counts: Counts { labels: vec![0; shape.labels.len()], ..Counts::default() },
            shape,
            parts,
            labeller,
            epoch_ns: kernel::monotonic_epoch_ns(),
        }
    }

    /// Takes what is there now, of several CPUs in the order of time, and says how many rows that were; 0 once there are `most` in all.
    pub fn take(&mut self, most: u64) -> Result<usize> {
        let room = most.saturating_sub(self.counts.rows);
        let found = self.rings.take(usize::try_from(room).unwrap_or(usize::MAX));
        let Self { rings, rows, counts, labeller, .. } = self;
        rings.each(|record, features| add(rows, counts, labeller, self.epoch_ns, record, features))?;
        let shape = &self.shape;
        self.parts.write_full(&mut self.rows, || FeatureRows::new(Arc::clone(shape)))?;
        Ok(found)
    }

    /// Packets that the program saw, and rows that found no room.
    pub fn found(&self) -> RingCounts {
        self.rings.found()
    }

    /// Bytes of the table so far, without what waits in memory.
    pub fn bytes(&self) -> u64 {
        self.parts.bytes()
    }

    /// Completes the table. Returns its files.
    pub fn finish(self) -> Result<(Counts, Vec<String>)> {
        let shape = self.shape;
        Ok((self.counts, self.parts.finish(self.rows, || FeatureRows::new(shape))?))
    }
}

fn add(
    rows: &mut FeatureRows,
    counts: &mut Counts,
    labeller: &mut Labeller<'_>,
    epoch_ns: u64,
    record: &abi::Record,
    features: &[i64],
) -> Result<()> {
    let frame = record.headers.get(..record.headers_length as usize).unwrap_or_default();
    // A tag that a card keeps beside a frame is not among its bytes: without it, a third one may look like the second.
    let is_ip = record.inferred != 0 || record.status != Status::NotIp.code();
    let outer = if is_ip { Outer::parse(frame) } else { None };
    let time_ns = epoch_ns.wrapping_add(record.time_ns);
    let row = Row {
        time_ns,
        capture: 0,
        packet: record.packet,
        flow: outer.map(|outer| outer.conversation()),
        sender: outer.map_or(0, |outer| 1 + i32::from(outer.swapped())),
        label: labeller.label(&Seen { time_ns, frame, outer: outer.as_ref() })?,
        status: if record.inferred == 0 { record.status } else { Status::Classified.code() },
    };
    counts.count_status(row.status);
    counts.add(rows, &row, (record.inferred != 0).then_some(features));
    Ok(())
}
