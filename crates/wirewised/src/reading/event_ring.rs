// SPDX-License-Identifier: Apache-2.0
//! Events as the data path leaves them: of each CPU the newest, over the oldest. Reading takes nothing away.

use std::mem::offset_of;
use std::sync::atomic::{Ordering, fence};

use libbpf_rs::MapCore;

use crate::abi::maps::EVENTS;
use crate::abi::{self, Event, Stats};
use crate::error::Result;
use crate::object::mapped::MappedArray;
use crate::object::other_layout;

pub struct EventRing {
    /// Whose counters say how many events there were.
    cpus: MappedArray,
    events: MappedArray,
    /// Events of each CPU that were read, or that it is too late for.
    past: Vec<u64>,
    missed: u64,
}

/// What lies in an event's place.
enum EventSlot {
    Whole(Event),
    /// It is being written.
    Unfinished,
    /// A newer one.
    Gone,
}

impl EventRing {
    /// The events that are kept come first. cpus, events : the maps `ww_cpu` and `ww_events`.
    pub fn open(cpus: &impl MapCore, events: &impl MapCore) -> Result<Self> {
        let cpus = MappedArray::per_cpu(cpus)?;
        let events = MappedArray::new(events)?;
        if events.value_size() != size_of::<Event>() || events.entries() != cpus.entries() * abi::EVENTS {
            return Err(other_layout(EVENTS));
        }
        let mut ring = Self { cpus, events, past: Vec::new(), missed: 0 };
        ring.past = (0..ring.cpus.entries()).map(|cpu| oldest(ring.sent(cpu))).collect();
        Ok(ring)
    }

    /// Events that were overwritten before they were read, since this ring was opened.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// What is new, in the order of time.
    pub fn read(&mut self) -> Vec<Event> {
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
        found.sort_by_key(|event| event.time_ns);
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
        // The copy is whole if nobody began to write before it ended.
        fence(Ordering::Acquire);
        match event {
            Some(event) if sequence() == Some(number as u32) => EventSlot::Whole(event),
            _ => EventSlot::Gone,
        }
    }
}

/// How many events of a CPU that has sent so many are no longer kept.
fn oldest(sent: u64) -> u64 {
    sent.saturating_sub(abi::EVENTS.into())
}
