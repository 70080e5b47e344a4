// SPDX-License-Identifier: Apache-2.0
//! Events as the data path leaves them: of each CPU the newest, over the oldest. Reading takes nothing away.

use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

use libbpf_rs::MapCore;

use crate::abi::maps::{EVENT_INPUTS, EVENTS};
use crate::abi::{self, Event, EventInputs, Stats};
use crate::error::Result;
use crate::object::mapped::MappedArray;
use crate::object::other_layout;

pub struct EventRing {
    /// Whose counters say how many events there were.
    cpus: MappedArray,
    events: MappedArray,
    /// `None`: the policy does not ask for features.
    inputs: Option<MappedArray>,
    /// Events of each CPU that were read, or that it is too late for.
    past: Vec<u64>,
    missed: u64,
}

/// An event with its features.
pub struct Told {
    pub event: Event,
    /// The whole feature set; empty if the program does not keep them, or the model did not run on this packet.
    pub features: Vec<i64>,
}

/// What lies in an event's place.
enum EventSlot {
    Whole(Told),
    /// It is being written.
    Unfinished,
    /// A newer one.
    Gone,
}

impl EventRing {
    /// The events that are kept come first. cpus, events, inputs : the maps `ww_cpu`, `ww_events` and, if there is one, `ww_event_inputs`.
    pub fn open(cpus: &impl MapCore, events: &impl MapCore, inputs: Option<&impl MapCore>) -> Result<Self> {
        let cpus = MappedArray::per_cpu(cpus)?;
        let events = MappedArray::new(events)?;
        if events.value_size() != size_of::<Event>() || events.entries() != cpus.entries() * abi::EVENTS {
            return Err(other_layout(EVENTS));
        }
        let inputs = inputs.map(MappedArray::new).transpose()?;
        if inputs.as_ref().is_some_and(|inputs| {
            inputs.entries() != events.entries() || inputs.value_size() < size_of::<EventInputs>()
        }) {
            return Err(other_layout(EVENT_INPUTS));
        }
        let mut ring = Self { cpus, events, inputs, past: Vec::new(), missed: 0 };
        ring.past = (0..ring.cpus.entries()).map(|cpu| oldest(ring.sent(cpu))).collect();
        Ok(ring)
    }

    /// Events that were overwritten before they were read, since this ring was opened.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// What is new, in the order of time.
    pub fn read(&mut self) -> Vec<Told> {
        let mut found = Vec::new();
        for cpu in 0..self.cpus.entries() {
            let sent = self.sent(cpu);
            let mut past = self.past[cpu as usize];
            self.missed += oldest(sent).saturating_sub(past);
            past = past.max(oldest(sent));
            while past < sent {
                match self.event(cpu, past + 1) {
                    EventSlot::Whole(event) => found.push(event),
                    // Only the newest can be: another one is being overwritten.
                    EventSlot::Unfinished if past + 1 == sent => break,
                    _ => self.missed += 1,
                }
                past += 1;
            }
            self.past[cpu as usize] = past;
        }
        found.sort_by_key(|told| told.event.time_ns);
        found
    }

    fn sent(&self, cpu: u32) -> u64 {
        self.cpus.read::<Stats>(cpu).map_or(0, |stats| stats.events_sent)
    }

    /// The `number`-th event of a CPU, from 1 on.
    fn event(&self, cpu: u32, number: u64) -> EventSlot {
        let index = cpu * abi::EVENTS + ((number - 1) % u64::from(abi::EVENTS)) as u32;
        let sequence = || self.events.load(index, offset_of!(Event, sequence));
        match sequence() {
            Some(found) if found == number as u32 => {}
            Some(0) => return EventSlot::Unfinished,
            _ => return EventSlot::Gone,
        }
        let event = self.events.read::<Event>(index);
        let features = self.features(index, number as u32);
        // The copy is whole if nobody began to write before it ended.
        fence(Ordering::Acquire);
        match event {
            Some(event) if sequence() == Some(number as u32) => EventSlot::Whole(Told { event, features }),
            _ => EventSlot::Gone,
        }
    }

    /// Those beside an event; none if they are of another one, such as the one before a swap.
    fn features(&self, index: u32, sequence: u32) -> Vec<i64> {
        let Some(inputs) = &self.inputs else { return Vec::new() };
        let head = inputs.read::<EventInputs>(index);
        if !head.is_some_and(|head| head.sequence == sequence && head.inferred != 0) {
            return Vec::new();
        }
        let start = size_of::<EventInputs>();
        let mut features = vec![0i64; (inputs.value_size() - start) / size_of::<i64>()];
        inputs.read_part(index, start, bytemuck::cast_slice_mut(&mut features));
        features
    }
}

/// How many events of a CPU that has sent so many are no longer kept.
fn oldest(sent: u64) -> u64 {
    sent.saturating_sub(abi::EVENTS.into())
}
