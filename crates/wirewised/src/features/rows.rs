// SPDX-License-Identifier: Apache-2.0
//! Rows of a feature table, with the columns of the toolkit's.

use std::sync::Arc;

use crate::labels::LabelId;
use crate::packets::outer::Conversation;
use crate::rows::{BATCH, Batch, Values};

/// Rows whose features go to their columns together: few enough that they stay in the first-level cache meanwhile.
const TILE: usize = 64;

/// What all batches of a table share.
#[derive(Debug)]
pub struct Shape {
    pub features: Vec<String>,
    pub computed: Vec<bool>,
    pub captures: Vec<String>,
    pub labels: Vec<String>,
}

pub struct FeatureRows {
    shape: Arc<Shape>,
    time_ns: Vec<i64>,
    capture: Vec<u32>,
    packet: Vec<i64>,
    flow: Vec<Option<Conversation>>,
    sender: Vec<i32>,
    /// Features row by row until `settle`: each packet writes to one place and not to as many as there are features.
    by_row: Vec<i64>,
    /// One list a feature, with zeros where there is none.
    features: Vec<Vec<i64>>,
    /// True where the packet was classified, so that it has features.
    present: Vec<bool>,
    label: Vec<LabelId>,
    status: Vec<i32>,
}

/// A row without its features.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub time_ns: u64,
    pub capture: u32,
    /// 1 is the capture's first.
    pub packet: u64,
    pub flow: Option<Conversation>,
    /// Which of the conversation's ends sent it, 1 or 2; 0 without.
    pub sender: i32,
    pub label: LabelId,
    pub status: u32,
}

impl FeatureRows {
    pub fn new(shape: Arc<Shape>) -> Self {
        Self {
            time_ns: Vec::with_capacity(BATCH),
            capture: Vec::with_capacity(BATCH),
            packet: Vec::with_capacity(BATCH),
            flow: Vec::with_capacity(BATCH),
            sender: Vec::with_capacity(BATCH),
            by_row: Vec::with_capacity(BATCH * shape.features.len()),
            features: shape.features.iter().map(|_| Vec::with_capacity(BATCH)).collect(),
            present: Vec::with_capacity(BATCH),
            label: Vec::with_capacity(BATCH),
            status: Vec::with_capacity(BATCH),
            shape,
        }
    }

    /// features : `None` where the packet was not classified.
    #[inline]
    pub fn push(&mut self, row: &Row, features: Option<&[i64]>) {
        self.time_ns.push(row.time_ns as i64);
        self.capture.push(row.capture);
        self.packet.push(row.packet as i64);
        self.flow.push(row.flow);
        self.sender.push(row.sender);
        self.label.push(row.label);
        self.status.push(row.status as i32);
        let width = self.features.len();
        match features.and_then(|features| features.get(..width)) {
            Some(features) => self.by_row.extend_from_slice(features),
            None => self.by_row.resize(self.by_row.len() + width, 0),
        }
        self.present.push(features.is_some());
    }
}

impl Batch for FeatureRows {
    fn len(&self) -> usize {
        self.time_ns.len()
    }

    fn settle(&mut self) {
        let width = self.features.len();
        for tile in self.by_row.chunks(TILE * width.max(1)) {
            for (index, list) in self.features.iter_mut().enumerate() {
                list.extend(tile.iter().skip(index).step_by(width));
            }
        }
        self.by_row.clear();
    }

    fn columns(&self) -> Vec<(&str, Values<'_>)> {
        let mut columns = vec![
            ("time_ns", Values::Int64(&self.time_ns)),
            ("capture", Values::Text(&self.capture, &self.shape.captures)),
            ("packet", Values::Int64(&self.packet)),
            ("flow", Values::Flow(&self.flow)),
            ("sender", Values::Int32(&self.sender)),
        ];
        let named = self.shape.features.iter().zip(&self.shape.computed).zip(&self.features);
        columns.extend(named.map(|((name, computed), values)| {
            let optional = Values::Optional { values, present: &self.present };
            (name.as_str(), if *computed { optional } else { Values::Missing })
        }));
        columns.push(("label", Values::Text(&self.label, &self.shape.labels)));
        columns.push(("status", Values::Int32(&self.status)));
        columns
    }

    fn clear(&mut self) {
        self.time_ns.clear();
        self.capture.clear();
        self.packet.clear();
        self.flow.clear();
        self.sender.clear();
        self.by_row.clear();
        self.features.iter_mut().for_each(Vec::clear);
        self.present.clear();
        self.label.clear();
        self.status.clear();
    }
}
