// SPDX-License-Identifier: Apache-2.0
//! A notice for what belongs together: all packets of one class with one outcome, from their beginning until they have been away for a while.
//!
//! How many packets there were, the counters of the data path say, whatever the rate of events; who sent them and where to, the events, of which
//! a sketch keeps the heaviest.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use libbpf_rs::MapHandle;
use serde::Serialize;

use crate::abi::{Counter, Outcome, Stats};
use crate::error::Result;
use crate::reading::counters::Counters;
use crate::reading::events::{Alert, Event, Listener, Service, timestamp};
use crate::reading::heavy::Heavy;

/// How often the counters are read.
const TURN: Duration = Duration::from_millis(500);
/// Sources and services that a notice names, and the least share of one of them.
const TOP: usize = 5;
const LEAST_SHARE: f64 = 0.01;

#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two notices while packets keep coming.
    pub update: Duration,
    /// What has been away for so long has ended.
    pub quiet: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    Begin,
    Update,
    End,
}

/// By the names of EVE, as an event.
#[derive(Debug, Serialize)]
pub struct Notice {
    pub timestamp: String,
    pub in_iface: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    pub event_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<Alert>,
    pub wirewise: Sum,
}

#[derive(Debug, Serialize)]
pub struct Sum {
    pub notice: Stage,
    /// The same from the beginning to the end; from 1 on.
    pub id: u64,
    pub class: String,
    pub action: Option<String>,
    pub outcome: Option<Outcome>,
    /// When the first and the last packet came, by events and counters.
    pub begin: String,
    pub last: String,
    pub packets: u64,
    /// Frame lengths; null: some packets are known by their events only, which lack it.
    pub bytes: Option<u64>,
    pub top_sources: Vec<Source>,
    pub top_services: Vec<Target>,
}

/// share : its part of the packets that events report, at least.
#[derive(Debug, PartialEq, Serialize)]
pub struct Source {
    pub ip: IpAddr,
    pub share: f64,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Target {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proto: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    pub share: f64,
}

/// Who gets them.
pub type Hear<'a> = Box<dyn FnMut(&Notice) -> Result<()> + 'a>;

pub struct Notices<'a> {
    grouped: Grouped,
    counters: MapHandle,
    hear: Hear<'a>,
    /// `None`: the events that were kept are still being read.
    read: Option<Instant>,
}

/// What is open, without a clock and without maps.
struct Grouped {
    pace: Pace,
    open: Vec<Open>,
    /// As last read; `None`: not yet.
    stats: Option<Box<Stats>>,
    opened: u64,
}

struct Open {
    id: u64,
    /// Class id, and the code of the outcome.
    what: (usize, usize),
    /// The latest.
    event: Event,
    begin: String,
    last: String,
    /// Packets of before the counters were read, of which events told.
    before: u64,
    /// The counter when it was opened; `None`: it has not been read since.
    base: Option<Counter>,
    now: Counter,
    moved: Instant,
    told: Option<Instant>,
    sources: Heavy<IpAddr>,
    services: Heavy<Service>,
}

impl<'a> Notices<'a> {
    /// counters : the map `ww_cpu`.
    pub fn new(pace: Pace, counters: MapHandle, hear: Hear<'a>) -> Self {
        let grouped = Grouped { pace, open: Vec::new(), stats: None, opened: 0 };
        Self { grouped, counters, hear, read: None }
    }

    /// Tells how what is still open stands.
    pub fn finish(&mut self) -> Result<()> {
        self.turn(Instant::now())?;
        let now = timestamp(SystemTime::now());
        self.grouped.open.iter().try_for_each(|open| (self.hear)(&open.notice(Stage::Update, &now)))
    }

    fn turn(&mut self, now: Instant) -> Result<()> {
        self.read = Some(now);
        let stats = Counters::read(&self.counters)?.stats;
        let notices = self.grouped.turn(stats, now, &timestamp(SystemTime::now()));
        notices.iter().try_for_each(|notice| (self.hear)(notice))
    }
}

impl Listener for Notices<'_> {
    fn event(&mut self, event: &Event) -> Result<()> {
        self.grouped.add(event, Instant::now());
        Ok(())
    }

    fn caught_up(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.read.is_none_or(|read| now - read >= TURN) { self.turn(now) } else { Ok(()) }
    }
}

impl Grouped {
    fn add(&mut self, event: &Event, now: Instant) {
        // A bank's events are of answers, not of packets.
        let (Some(outcome), None) = (event.wirewise.outcome, &event.wirewise.answers) else { return };
        let what = (usize::from(event.weight.class_id), outcome as usize);
        let place = self.open.iter().position(|open| open.what == what).unwrap_or_else(|| {
            self.opened += 1;
            let base = self.stats.as_ref().map(|stats| stats.class_outcome[what.0][what.1]);
            self.open.push(Open {
                id: self.opened,
                what,
                event: event.clone(),
                begin: event.timestamp.clone(),
                last: event.timestamp.clone(),
                before: 0,
                base,
                now: base.unwrap_or_default(),
                moved: now,
                told: None,
                sources: Heavy::default(),
                services: Heavy::default(),
            });
            self.open.len() - 1
        });
        let open = &mut self.open[place];
        let packets = event.weight.packets;
        if self.stats.is_none() {
            open.before += packets;
        }
        event.weight.source.iter().for_each(|source| open.sources.add(source, packets));
        event.weight.service.iter().for_each(|service| open.services.add(service, packets));
        open.last = event.timestamp.clone();
        open.moved = now;
        open.event = event.clone();
    }

    /// What is to be told, with the counters as they are now. time : now, for the notices.
    fn turn(&mut self, stats: Stats, now: Instant, time: &str) -> Vec<Notice> {
        let mut notices = Vec::new();
        let pace = self.pace;
        for open in &mut self.open {
            let count = stats.class_outcome[open.what.0][open.what.1];
            open.base.get_or_insert(count);
            // Another program begins from zero.
            if count.packets < open.now.packets {
                open.before = open.packets();
                (open.base, open.now) = (Some(Counter::default()), Counter::default());
            }
            if count.packets > open.now.packets && open.base.is_some_and(|base| count.packets > base.packets)
            {
                open.moved = now;
                open.last = time.to_string();
            }
            open.now = count;
            let stage = match open.told {
                None => Stage::Begin,
                _ if now - open.moved >= pace.quiet => Stage::End,
                Some(told) if now - told >= pace.update && open.moved > told => Stage::Update,
                Some(_) => continue,
            };
            open.told = Some(now);
            notices.push(open.notice(stage, time));
        }
        self.open.retain(|open| now - open.moved < pace.quiet || open.told.is_none_or(|told| told != now));
        self.stats = Some(Box::new(stats));
        notices
    }
}

impl Open {
    fn packets(&self) -> u64 {
        let base = self.base.unwrap_or(self.now);
        self.before + self.now.packets.saturating_sub(base.packets)
    }

    fn notice(&self, stage: Stage, time: &str) -> Notice {
        let base = self.base.unwrap_or(self.now);
        let bytes = self.now.bytes.saturating_sub(base.bytes);
        let sources = self.sources.top(TOP, LEAST_SHARE).into_iter();
        let services = self.services.top(TOP, LEAST_SHARE).into_iter();
        let Event { in_iface, host, event_type, alert, wirewise, .. } = self.event.clone();
        Notice {
            timestamp: time.to_string(),
            in_iface,
            host,
            event_type,
            alert,
            wirewise: Sum {
                notice: stage,
                id: self.id,
                class: wirewise.class,
                action: wirewise.action,
                outcome: wirewise.outcome,
                begin: self.begin.clone(),
                last: self.last.clone(),
                packets: self.packets(),
                bytes: (self.before == 0).then_some(bytes),
                top_sources: sources.map(|(ip, share)| Source { ip, share }).collect(),
                top_services: services
                    .map(|(Service { protocol, port }, share)| Target { proto: protocol, port, share })
                    .collect(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    use crate::object::flow_table::{FlowKey, Vlans};
    use crate::reading::events::{EVENT_TYPE, Judgement, Tuple, Weight};

    const PACE: Pace = Pace { update: Duration::from_secs(10), quiet: Duration::from_secs(30) };

    fn event(second: u64, class_id: u8, source: &str, packets: u64) -> Event {
        let key = FlowKey {
            source: source.parse().unwrap(),
            destination: "10.9.0.2".parse().unwrap(),
            source_port: 1,
            destination_port: 80,
            protocol: 6,
            vlans: Vlans::default(),
            teid: None,
        };
        Event {
            timestamp: format!("second {second}"),
            flow_id: 1,
            in_iface: "eth0".to_string(),
            host: None,
            event_type: EVENT_TYPE,
            flow: Tuple::from(&key),
            alert: None,
            ban: None,
            wirewise: Judgement {
                class: format!("class {class_id}"),
                action: Some("drop".to_string()),
                outcome: Some(Outcome::Drop),
                packets: 1,
                length: 40,
                count: None,
                source: None,
                proven: false,
                answers: None,
                features: Vec::new(),
            },
            weight: Weight {
                class_id,
                packets,
                source: Some(key.source),
                service: Some(Service { protocol: Some("TCP".to_string()), port: Some(80) }),
            },
        }
    }

    /// Packets of class 1 that were dropped, of 100 bytes each.
    fn stats(packets: u64) -> Stats {
        let mut stats = Stats::zeroed();
        stats.class_outcome[1][Outcome::Drop as usize] = Counter { packets, bytes: 100 * packets };
        stats
    }

    fn grouped() -> Grouped {
        Grouped { pace: PACE, open: Vec::new(), stats: None, opened: 0 }
    }

    #[test]
    fn a_flood_is_one_notice_whatever_the_rate_of_events() {
        let (mut grouped, start) = (grouped(), Instant::now());
        let at = |second: u64| start + Duration::from_secs(second);
        assert!(grouped.turn(stats(1_000), at(0), "0").is_empty());
        for source in 1..=4 {
            grouped.add(&event(1, 1, "10.0.0.1", 1), at(1));
            grouped.add(&event(1, 1, &format!("10.0.1.{source}"), 1), at(1));
        }
        let begun = grouped.turn(stats(3_000), at(1), "1");
        let [begin] = &begun[..] else { panic!("{begun:?}") };
        assert_eq!(
            (begin.wirewise.notice, begin.wirewise.packets, begin.wirewise.bytes),
            (Stage::Begin, 2_000, Some(200_000))
        );
        assert_eq!(begin.wirewise.top_sources[0], Source { ip: "10.0.0.1".parse().unwrap(), share: 0.5 });
        assert_eq!(
            begin.wirewise.top_services,
            [Target { proto: Some("TCP".to_string()), port: Some(80), share: 1.0 }]
        );
        assert!(grouped.turn(stats(9_000), at(5), "5").is_empty(), "it is too early for an update");
        let updates = grouped.turn(stats(16_651), at(11), "11");
        assert_eq!(
            (updates.len(), updates[0].wirewise.notice, updates[0].wirewise.packets),
            (1, Stage::Update, 15_651)
        );
        assert!(grouped.turn(stats(16_651), at(25), "25").is_empty(), "nothing is new");
        let ended = grouped.turn(stats(16_651), at(41), "41");
        assert_eq!(
            (ended.len(), ended[0].wirewise.notice, ended[0].wirewise.last.as_str()),
            (1, Stage::End, "11")
        );
        assert_eq!(ended[0].wirewise.begin, "second 1");
        assert!(grouped.turn(stats(16_651), at(42), "42").is_empty());
        grouped.add(&event(50, 1, "10.0.0.1", 1), at(50));
        let again = grouped.turn(stats(16_652), at(50), "50");
        assert_eq!((again[0].wirewise.id, again[0].wirewise.packets), (2, 1));
    }

    #[test]
    fn classes_have_notices_of_their_own() {
        let (mut grouped, now) = (grouped(), Instant::now());
        grouped.turn(stats(0), now, "0");
        grouped.add(&event(1, 1, "10.0.0.1", 1), now);
        grouped.add(&event(1, 2, "10.0.0.1", 1), now);
        let notices = grouped.turn(stats(1), now, "1");
        assert_eq!(
            notices.iter().map(|notice| notice.wirewise.class.as_str()).collect::<Vec<_>>(),
            ["class 1", "class 2"]
        );
    }

    #[test]
    fn what_was_before_the_first_reading_counts_by_its_events() {
        let (mut grouped, now) = (grouped(), Instant::now());
        grouped.add(&event(1, 1, "10.0.0.1", 1), now);
        grouped.add(&event(2, 1, "10.0.0.1", 41), now);
        let notices = grouped.turn(stats(5_000), now, "3");
        assert_eq!((notices[0].wirewise.packets, notices[0].wirewise.bytes), (42, None));
        let later = grouped.turn(stats(5_008), now + PACE.update, "13");
        assert_eq!(later[0].wirewise.packets, 50);
        let restarted = grouped.turn(stats(3), now + 2 * PACE.update, "23");
        assert_eq!(restarted[0].wirewise.packets, 53);
    }
}
