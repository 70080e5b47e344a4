// SPDX-License-Identifier: Apache-2.0
//! One worker: an engine that runs the packets of its flows, and remembers its flows if a table of them is wanted.

use crate::abi::{self, Fate, Status};
use crate::error::{Error, Result};
use crate::offline::engine_run;
use crate::offline::replay::Names;
use crate::offline::tracker::{End, Tracker};
use crate::packets::outer::Conversation;

/// What a worker gets and gives back; then it is used again.
#[derive(Debug, Default)]
pub struct Share {
    /// One frame after the other.
    pub bytes: Vec<u8>,
    pub packets: Vec<Item>,
    /// One a packet.
    pub results: Vec<Outcome>,
    pub ended: Vec<FlowRecord>,
}

impl Share {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
        self.results.clear();
        self.ended.clear();
    }
}

/// A packet of a share.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    pub start: usize,
    pub end: usize,
    pub time_ns: u64,
    pub capture: u32,
    pub number: u64,
    pub flow: Option<Conversation>,
}

/// What came of a packet.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub fate: Fate,
    pub inferred: bool,
    pub refused: bool,
    pub status: u32,
    /// Class, action and outcome, of a classified packet.
    pub verdict: Option<(u32, u32, u32)>,
    /// Of the flow, with this one.
    pub packets: u32,
}

/// A flow that has ended.
#[derive(Debug, Clone)]
pub struct FlowRecord {
    pub flow: Option<Conversation>,
    pub capture: u32,
    pub first_ns: u64,
    pub last_ns: u64,
    pub packets: u64,
    pub bytes: u64,
    pub dropped: u64,
    /// The latest verdict: class, action, outcome.
    pub verdict: Option<(u32, u32, u32)>,
    pub end: End,
}

pub struct Worker {
    engine: engine_run::Worker,
    flows: Option<Tracker<FlowRecord>>,
    last_ns: u64,
}

impl Worker {
    /// flows : whether to remember flows; idle timeout in ns and entries of the flow tables.
    pub fn new(engine: engine_run::Worker, flows: Option<(u64, usize)>) -> Self {
        let flows = flows.map(|(idle_ns, entries)| Tracker::new(idle_ns, entries));
        Self { engine, flows, last_ns: 0 }
    }

    pub fn run(&mut self, share: &mut Share) -> Result<()> {
        let Share { bytes, packets, results, ended } = share;
        for item in packets.iter() {
            let Some(frame) = bytes.get_mut(item.start..item.end) else { continue };
            let code = self.engine.run(frame, item.time_ns)?;
            let scratch = &self.engine.own()?.scratch;
            let fate = Fate::from_code(code)
                .map_err(|why| Error::other(format!("packet {}: {why}", item.number)))?;
            let outcome = outcome(fate, scratch);
            results.push(outcome);
            self.last_ns = self.last_ns.max(item.time_ns);
            let Some(flows) = &mut self.flows else { continue };
            if outcome.packets == 0 {
                continue;
            }
            let begin = || FlowRecord {
                flow: item.flow,
                capture: item.capture,
                first_ns: item.time_ns,
                last_ns: item.time_ns,
                packets: 0,
                bytes: 0,
                dropped: 0,
                verdict: None,
                end: End::Capture,
            };
            let mut over = |end: End, record: FlowRecord| ended.push(FlowRecord { end, ..record });
            if outcome.refused {
                // It found no place: a flow of this one packet.
                let mut record = begin();
                record.add(item, outcome);
                over(End::Evicted, record);
                continue;
            }
            let key = (scratch.ip_version as u8, bytemuck::cast(scratch.key));
            flows.see(key, outcome.packets, item.time_ns, begin, &mut over).add(item, outcome);
            if flows.wants_sweep() {
                flows.sweep(item.time_ns, &self.engine.live_keys(), &mut over);
            }
        }
        Ok(())
    }

    /// The flows that are left, and the counters.
    pub fn finish(mut self, ended: &mut Vec<FlowRecord>) -> Result<abi::Stats> {
        if let Some(flows) = &mut self.flows {
            let order = |record: &FlowRecord| (record.first_ns, record.flow);
            flows.finish(self.last_ns, order, |end, record| ended.push(FlowRecord { end, ..record }));
        }
        Ok(self.engine.own()?.stats)
    }
}

impl FlowRecord {
    fn add(&mut self, item: &Item, outcome: Outcome) {
        self.last_ns = item.time_ns;
        self.packets += 1;
        self.bytes += (item.end - item.start) as u64;
        self.dropped += u64::from(outcome.fate == Fate::Dropped);
        self.verdict = outcome.verdict.or(self.verdict);
    }
}

#[inline]
fn outcome(fate: Fate, scratch: &abi::Scratch) -> Outcome {
    let classified = scratch.status == Status::Classified.code();
    let in_a_flow = classified || scratch.status == Status::Undecided.code();
    Outcome {
        fate,
        inferred: in_a_flow && scratch.inferred != 0,
        refused: in_a_flow && scratch.refused != 0,
        status: scratch.status,
        verdict: classified.then_some((scratch.class_id, Names::action_of(scratch), scratch.outcome)),
        packets: if in_a_flow { scratch.packets } else { 0 },
    }
}
