// SPDX-License-Identifier: Apache-2.0
//! Verdicts, one row a flow.

use std::sync::Arc;

use super::Names;
use super::worker::FlowRecord;
use crate::packets::outer::Conversation;
use crate::rows::{Batch, NO_TEXT, Values};

pub struct FlowRows {
    names: Arc<Names>,
    flow: Vec<Option<Conversation>>,
    capture: Vec<u32>,
    first_ns: Vec<i64>,
    last_ns: Vec<i64>,
    packets: Vec<i64>,
    bytes: Vec<i64>,
    dropped: Vec<i64>,
    class: Vec<u32>,
    action: Vec<u32>,
    outcome: Vec<u32>,
    end: Vec<u32>,
}

impl FlowRows {
    pub fn new(names: Arc<Names>) -> Self {
        Self {
            names,
            flow: Vec::new(),
            capture: Vec::new(),
            first_ns: Vec::new(),
            last_ns: Vec::new(),
            packets: Vec::new(),
            bytes: Vec::new(),
            dropped: Vec::new(),
            class: Vec::new(),
            action: Vec::new(),
            outcome: Vec::new(),
            end: Vec::new(),
        }
    }

    pub fn push(&mut self, record: &FlowRecord) {
        let (class, action, outcome) = record.verdict.unwrap_or((NO_TEXT, NO_TEXT, NO_TEXT));
        self.flow.push(record.flow);
        self.capture.push(record.capture);
        self.first_ns.push(record.first_ns as i64);
        self.last_ns.push(record.last_ns as i64);
        self.packets.push(record.packets as i64);
        self.bytes.push(record.bytes as i64);
        self.dropped.push(record.dropped as i64);
        self.class.push(class);
        self.action.push(action);
        self.outcome.push(outcome);
        self.end.push(record.end as u32);
    }
}

impl Batch for FlowRows {
    fn len(&self) -> usize {
        self.flow.len()
    }

    fn columns(&self) -> Vec<(&str, Values<'_>)> {
        vec![
            ("flow", Values::Flow(&self.flow)),
            ("capture", Values::Text(&self.capture, &self.names.captures)),
            ("first_ns", Values::Int64(&self.first_ns)),
            ("last_ns", Values::Int64(&self.last_ns)),
            ("packets", Values::Int64(&self.packets)),
            ("bytes", Values::Int64(&self.bytes)),
            ("dropped", Values::Int64(&self.dropped)),
            ("class", Values::Text(&self.class, &self.names.classes)),
            ("action", Values::Text(&self.action, &self.names.actions)),
            ("outcome", Values::Text(&self.outcome, &self.names.outcomes)),
            ("end", Values::Text(&self.end, &self.names.ends)),
        ]
    }

    fn clear(&mut self) {
        *self = Self::new(Arc::clone(&self.names));
    }
}
