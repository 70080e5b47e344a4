// SPDX-License-Identifier: Apache-2.0
//! Events of every attachment, for whoever wants to hear of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use wirewised::attachment::pins::Root;
use wirewised::attachment::{Attachment, Listing};
use wirewised::error::{Error, Result};
use wirewised::kernel;
use wirewised::reading::events::{Event, Events, Listener};

use crate::config::Place;

/// How often events are looked for, and after how many such rounds attachments are.
const PAUSE: Duration = Duration::from_millis(100);
const LOOK_AGAIN: u32 = 10;

/// How far somebody was told: a new service, or a program in another's place, finds the same events again.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// As events write their time.
    until: String,
    /// Those of this very time, as JSON: the data path's clock may be coarse.
    then: Vec<String>,
}

impl Told {
    /// Whoever knows events up to a time.
    pub fn until(time: &str) -> Self {
        Self::of(time.to_string(), Vec::new())
    }

    /// then : those of this very time.
    pub fn of(until: String, then: Vec<String>) -> Self {
        Self { until, then }
    }

    /// Whether an event, one of those that were kept, was told before.
    fn has(&self, event: &Event, json: &str) -> bool {
        event.timestamp < self.until
            || (event.timestamp == self.until && self.then.iter().any(|it| it == json))
    }

    fn add(&mut self, event: &Event, json: &str) {
        if event.timestamp > self.until {
            self.until.clone_from(&event.timestamp);
            self.then.clear();
        }
        if event.timestamp == self.until {
            self.then.push(json.to_string());
        }
    }
}

/// Who hears of events; each with its JSON.
pub trait Hears {
    fn event(&mut self, place: &Place, event: &Event, json: &str);
    fn missed(&mut self, events: u64);
}

/// An attachment whose events are read.
struct Source {
    place: Place,
    program: Option<u32>,
    events: Events,
    told: Told,
    /// Only what is kept was told so far.
    catches_up: bool,
}

/// Tells of the events of all attachments, those that are kept first, for as long as somebody listens.
pub fn follow(root: &Root, told: &Told, listens: impl Fn() -> bool, hears: &mut dyn Hears) {
    let mut sources: BTreeMap<PathBuf, Source> = BTreeMap::new();
    let mut round = 0u32;
    while listens() {
        if round.is_multiple_of(LOOK_AGAIN) {
            look(root, told, &mut sources);
        }
        round = round.wrapping_add(1);
        for source in sources.values_mut() {
            let Source { place, told, catches_up, .. } = source;
            let mut newer = Newer { hears, place, told, catches_up: *catches_up };
            if source.events.tell(&mut [&mut newer]).is_err() {
                // It is opened again, if it is still there.
                source.program = None;
            }
            source.catches_up = false;
        }
        std::thread::sleep(PAUSE);
    }
}

fn look(root: &Root, told: &Told, sources: &mut BTreeMap<PathBuf, Source>) {
    let Listing { attachments, .. } = Attachment::all(root).unwrap_or_default();
    sources.retain(|directory, _| attachments.iter().any(|it| it.directory == *directory));
    for it in attachments {
        let program = it.link.as_ref().map(|(_, info)| info.program_id);
        let known = sources.get(&it.directory);
        if program.is_none() || known.is_some_and(|source| source.program == program) {
            continue;
        }
        if let Ok(mut events) = it.events() {
            if let Some(host) = kernel::host_name() {
                events = events.with_sensor(&host);
            }
            let told = known.map_or_else(|| told.clone(), |source| source.told.clone());
            let place = Place::of(&it);
            sources.insert(it.directory.clone(), Source { place, program, events, told, catches_up: true });
        }
    }
}

/// Passes on what was not told before.
struct Newer<'a> {
    hears: &'a mut dyn Hears,
    place: &'a Place,
    told: &'a mut Told,
    catches_up: bool,
}

impl Listener for Newer<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        let json = serde_json::to_string(event).map_err(|error| Error::other(format!("JSON: {error}")))?;
        if self.catches_up && self.told.has(event, &json) {
            return Ok(());
        }
        self.told.add(event, &json);
        self.hears.event(self.place, event, &json);
        Ok(())
    }

    fn missed(&mut self, events: u64) -> Result<()> {
        self.hears.missed(events);
        Ok(())
    }
}
