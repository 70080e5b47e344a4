// SPDX-License-Identifier: Apache-2.0
//! Verdicts, one row a packet.

use std::sync::Arc;

use super::Names;
use super::worker::{Item, Outcome};
use crate::packets::outer::Conversation;
use crate::rows::{Batch, NO_TEXT, Values};

pub struct PacketRows {
    names: Arc<Names>,
    time_ns: Vec<i64>,
    capture: Vec<u32>,
    packet: Vec<i64>,
    flow: Vec<Option<Conversation>>,
    status: Vec<i32>,
    class: Vec<u32>,
    action: Vec<u32>,
    outcome: Vec<u32>,
    passed: Vec<bool>,
    inferred: Vec<bool>,
    refused: Vec<bool>,
    packets: Vec<i64>,
}

impl PacketRows {
    pub fn new(names: Arc<Names>) -> Self {
        Self {
            names,
            time_ns: Vec::new(),
            capture: Vec::new(),
            packet: Vec::new(),
            flow: Vec::new(),
            status: Vec::new(),
            class: Vec::new(),
            action: Vec::new(),
            outcome: Vec::new(),
            passed: Vec::new(),
            inferred: Vec::new(),
            refused: Vec::new(),
            packets: Vec::new(),
        }
    }

    pub fn push(&mut self, item: &Item, outcome: &Outcome) {
        let (class, action, result) = outcome.verdict.unwrap_or((NO_TEXT, NO_TEXT, NO_TEXT));
        self.time_ns.push(item.time_ns as i64);
        self.capture.push(item.capture);
        self.packet.push(item.number as i64);
        self.flow.push(item.flow);
        self.status.push(outcome.status as i32);
        self.class.push(class);
        self.action.push(action);
        self.outcome.push(result);
        self.passed.push(outcome.fate.passed());
        self.inferred.push(outcome.inferred);
        self.refused.push(outcome.refused);
        self.packets.push(outcome.packets.into());
    }
}

impl Batch for PacketRows {
    fn len(&self) -> usize {
        self.time_ns.len()
    }

    fn columns(&self) -> Vec<(&str, Values<'_>)> {
        vec![
            ("time_ns", Values::Int64(&self.time_ns)),
            ("capture", Values::Text(&self.capture, &self.names.captures)),
            ("packet", Values::Int64(&self.packet)),
            ("flow", Values::Flow(&self.flow)),
            ("status", Values::Int32(&self.status)),
            ("class", Values::Text(&self.class, &self.names.classes)),
            ("action", Values::Text(&self.action, &self.names.actions)),
            ("outcome", Values::Text(&self.outcome, &self.names.outcomes)),
            ("passed", Values::Bool(&self.passed)),
            ("inferred", Values::Bool(&self.inferred)),
            ("refused", Values::Bool(&self.refused)),
            ("packets_of_flow", Values::Int64(&self.packets)),
        ]
    }

    fn clear(&mut self) {
        *self = Self::new(Arc::clone(&self.names));
    }
}
