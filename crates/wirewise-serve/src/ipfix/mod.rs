// SPDX-License-Identifier: Apache-2.0
//! Export of flows by IPFIX (RFC 7011). Nothing is remembered of a flow: each pass over the flow tables sends the flows that became idle
//! since the pass before, and those that have lasted for another `active`. The tables are the queue too: while no connection can be made,
//! no pass takes place, and the next one covers the time since the last.

mod message;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io;
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver as Queue, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wirewised::attachment::pins::Root;
use wirewised::attachment::{Attachment, Listing, Whereabouts};
use wirewised::bundle::manifest::ends_of_key;
use wirewised::error::{Error, Result};
use wirewised::kernel;
use wirewised::object::flow_table::Flow;
use wirewised::plane::Port;
use wirewised::reading::flow_listing::Idle;
use wirewised::reading::flows::{FoundFlow, Wanted};
use wirewised::reading::scores::Scores;
use wirewised::text::units::Nanoseconds;

use crate::config::Place;
use crate::keeper::Board;
use crate::outputs::receiver::{Address, Receiver};
use crate::seldom::Seldom;
use message::{Message, Reason, Record};

const SECOND: u64 = 1_000_000_000;
/// Of `idle` and `active`.
const SHORTEST: Nanoseconds = Nanoseconds(SECOND);
const LONGEST: Nanoseconds = Nanoseconds(24 * 3600 * SECOND);
/// For examples in documents (RFC 5612).
const OF_DOCUMENTS: NonZeroU32 = NonZeroU32::new(32473).unwrap();
/// How often templates are sent again in datagrams, one of which may have been lost.
const TEMPLATES_AGAIN: Duration = Duration::from_secs(60);
/// The longest time between passes.
const PASS: Duration = Duration::from_secs(10);
/// How long the last pass may take when the service ends.
const TO_END: Duration = Duration::from_secs(1);

/// The `ipfix` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Export {
    collector: Address,
    idle: Nanoseconds,
    active: Nanoseconds,
    enterprise: NonZeroU32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// `udp://ADDRESS:PORT` or `tcp://ADDRESS:PORT`.
    collector: String,
    /// Time without packets until a flow is over.
    idle: Option<String>,
    /// How often a flow that lasts is sent.
    active: Option<String>,
    /// Private enterprise number of our own elements.
    enterprise: Option<NonZeroU32>,
}

impl TryFrom<Written> for Export {
    type Error = String;

    fn try_from(written: Written) -> std::result::Result<Self, String> {
        let said = |key: &str, why: String| format!("`ipfix`: `{key}`: {why}");
        let collector = written.collector.parse().map_err(|why| said("collector", why))?;
        if let Address::Unix(path) = &collector {
            let path = path.display();
            return Err(said(
                "collector",
                format!("'{path}': write udp://ADDRESS:PORT or tcp://ADDRESS:PORT"),
            ));
        }
        let time = |key: &str, given: Option<String>, usual: u64| {
            let time = given.map_or(Ok(Nanoseconds(usual * SECOND)), |text| text.parse());
            let time: Nanoseconds = time.map_err(|why| said(key, why))?;
            if time < SHORTEST || time > LONGEST {
                return Err(said(key, format!("{time} is out of range; {SHORTEST} to {LONGEST}")));
            }
            Ok(time)
        };
        Ok(Self {
            collector,
            idle: time("idle", written.idle, 30)?,
            active: time("active", written.active, 300)?,
            enterprise: written.enterprise.unwrap_or(OF_DOCUMENTS),
        })
    }
}

/// What became of the records.
#[derive(Debug, Default, Clone, Serialize, utoipa::ToSchema)]
pub struct ExportHealth {
    pub collector: String,
    /// Handed to the kernel.
    pub written: u64,
    /// Refused by the kernel, or by a collector that hung up meanwhile.
    pub lost: u64,
    /// Why the latest could not be handed over; null once one was.
    pub error: Option<String>,
    /// Passes over the flow tables. Each sends what became idle, or lasted for another `active`, since the pass before.
    pub passes: u64,
    /// Whose flows are exported.
    pub domains: Vec<DomainHealth>,
}

#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct DomainHealth {
    #[serde(flatten)]
    pub place: Place,
    /// Observation domain, by which a collector tells interfaces apart. It depends on the place's names alone.
    pub domain: u32,
}

/// An export at work.
pub struct Running {
    stop: Sender<()>,
    /// Closed by the thread when it ends.
    ended: Queue<()>,
}

impl Running {
    /// Has the flows that became idle sent, for a moment.
    pub fn end(self) {
        drop(self.stop);
        if self.ended.recv_timeout(TO_END) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the service ends before the collector has all flows");
        }
    }
}

impl Export {
    /// Exports flows that become idle from now on, until `Running::end`.
    pub fn run(&self, root: Root, board: &Board) -> Result<Running> {
        let to = self.collector.to_string();
        let receiver = self.collector.receiver().map_err(|error| Error::input(format!("{to}: {error}")))?;
        board.lock().ipfix = Some(ExportHealth { collector: to, ..ExportHealth::default() });
        let mut exporter = Exporter {
            export: self.clone(),
            receiver,
            session: Session::default(),
            hung_up: false,
            board: board.clone(),
            collector_trouble: Seldom::default(),
            table_trouble: Seldom::default(),
        };
        let (stop, stopped) = channel();
        let (working, ended) = channel();
        std::thread::spawn(move || {
            exporter.work(&root, &stopped);
            drop::<Sender<()>>(working);
        });
        Ok(Running { stop, ended })
    }

    /// Between passes: short beside what they measure.
    fn pause(&self) -> Duration {
        Duration::from_nanos(self.idle.min(self.active).0 / 6).clamp(Duration::from_secs(1), PASS)
    }
}

/// The time that a pass covers, on the clock of the flow tables; the end is not part of it.
#[derive(Debug, Clone, Copy)]
struct Span {
    from_ns: u64,
    to_ns: u64,
}

impl Span {
    fn has(self, time_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&time_ns)
    }

    /// Why a flow is to be sent, if it is. idle_ns, active_ns : as in `Export`.
    fn due(self, flow: &Flow, idle_ns: u64, active_ns: u64) -> Option<Reason> {
        let over = flow.last_seen_ns.saturating_add(idle_ns);
        if over < self.to_ns {
            return self.has(over).then_some(Reason::Idle);
        }
        // If nobody knows when it began, its key says which of the times that far apart count.
        let by_key = || BuildHasherDefault::<DefaultHasher>::new().hash_one(flow.key) % active_ns;
        let began = flow.first_seen_ns().unwrap_or_else(by_key);
        let lasted = self.to_ns.checked_sub(began)?;
        let mark = began + lasted / active_ns * active_ns;
        let is_fresh = flow.last_seen_ns > mark.saturating_sub(active_ns);
        (mark > began && self.has(mark) && is_fresh).then_some(Reason::Active)
    }
}

/// What the collector knows over one connection. Another connection, for UDP another socket, begins anew.
#[derive(Default)]
struct Session {
    /// Records sent, of each domain.
    sequence: BTreeMap<u32, u32>,
    /// When each template of a domain was last sent.
    templates: BTreeMap<(u32, u16), Instant>,
}

struct Exporter {
    export: Export,
    receiver: Receiver,
    session: Session,
    /// Since when in this pass nobody is there: the rest of it is lost.
    hung_up: bool,
    board: Board,
    collector_trouble: Seldom,
    table_trouble: Seldom,
}

/// What the records of an attachment's flows have in common.
struct Source<'a> {
    interface: u32,
    /// What the flow key has.
    key: &'a str,
    has_vlans: bool,
    scores: Option<Scores>,
    /// When the clock of the flow tables was 0, in ns since 1970.
    epoch_ns: u64,
}

impl Source<'_> {
    fn record<'a>(&self, found: &FoundFlow<'a>, reason: Reason) -> Record<'a> {
        let FoundFlow { flow, class, .. } = found;
        let mut ends =
            [(flow.key.source, flow.key.source_port), (flow.key.destination, flow.key.destination_port)];
        // Who began stands first.
        if flow.swapped {
            ends.reverse();
        }
        let [(source, source_port), (destination, destination_port)] = ends;
        let (has_source, has_destination, has_ports) = match self.key {
            "source" => (true, false, false),
            "destination" => (false, true, false),
            "source-destination" => (true, true, false),
            _ => (true, true, true),
        };
        let milliseconds = |time_ns: u64| self.epoch_ns.saturating_add(time_ns) / 1_000_000;
        Record {
            source: has_source.then_some(source),
            destination: has_destination.then_some(destination),
            ports: has_ports.then_some([source_port, destination_port]),
            protocol: has_ports.then_some(flow.key.protocol),
            interface: self.interface,
            packets: flow.packets.into(),
            octets: flow.bytes(),
            start: flow.first_seen_ns().map(milliseconds),
            end: milliseconds(flow.last_seen_ns),
            reason,
            vlans: self.has_vlans.then(|| flow.key.vlans.ids()),
            teid: flow.key.teid,
            class: flow.class_id.zip(*class),
            score: self.scores.as_ref().and_then(|scores| scores.of(flow)),
        }
    }
}

impl Exporter {
    fn work(&mut self, root: &Root, stopped: &Queue<()>) {
        let mut from_ns = kernel::monotonic_ns();
        loop {
            let ends = stopped.recv_timeout(self.export.pause()) != Err(RecvTimeoutError::Timeout);
            let span = Span { from_ns, to_ns: kernel::monotonic_ns() };
            match self.receiver.connect() {
                Ok(is_new) => {
                    if is_new {
                        self.session = Session::default();
                    }
                    self.pass(root, span);
                    from_ns = span.to_ns;
                }
                Err(error) => self.fails(&error, "flows wait in the flow tables"),
            }
            if ends {
                return;
            }
        }
    }

    fn pass(&mut self, root: &Root, span: Span) {
        self.hung_up = false;
        let Listing { attachments, .. } = Attachment::all(root).unwrap_or_default();
        let mut tables = BTreeMap::<_, Vec<_>>::new();
        for attachment in attachments.into_iter().filter(|it| it.link.is_some()) {
            // Whoever is detached meanwhile has none.
            if let Some(table) = attachment.flow_table_id() {
                tables.entry(table).or_default().push(attachment);
            }
        }
        let mut domains = Vec::new();
        for sharing in tables.values() {
            let (domain, own) = (domain(&sharing[0]), sharing.len() == 1);
            if let Err(error) = self.flows(&sharing[0], domain.domain, own, span) {
                self.say(&self.table_trouble, &error.to_string());
            }
            domains.push(domain);
        }
        let known: BTreeSet<_> = domains.iter().map(|it| it.domain).collect();
        self.session.templates.retain(|(domain, _), _| known.contains(domain));
        self.note(|health| {
            health.passes += 1;
            health.domains = domains;
        });
    }

    /// own : no other interface uses the same flow tables.
    fn flows(&mut self, attachment: &Attachment, domain: u32, own: bool, span: Span) -> Result<()> {
        let layout = attachment.meta.as_ref().map(|meta| &meta.flow);
        // What was idle for longer may be another flow already.
        let idle_ns = layout.map_or(u64::MAX, |layout| layout.idle_timeout_ns).min(self.export.idle.0);
        let port = attachment.link.as_ref().and_then(|(_, info)| info.port);
        let source = Source {
            interface: match port {
                Some(Port::Interface(index)) if own => index,
                _ => 0,
            },
            key: layout.map_or("", |layout| ends_of_key(&layout.key)),
            has_vlans: layout.is_some_and(|layout| layout.has_vlans()),
            scores: attachment.scores()?,
            epoch_ns: since_1970().as_nanos() as u64 - kernel::monotonic_ns(),
        };
        let mut message = self.message(domain);
        let idle = Idle::Since(span.from_ns.saturating_sub(idle_ns));
        attachment.flows(&Wanted { idle, ..Wanted::default() })?.each(|found| {
            if let Some(reason) = span.due(found.flow, idle_ns, self.export.active.0) {
                self.add(&source.record(found, reason), &mut message, domain);
            }
            Ok(())
        })?;
        self.send(&mut message, domain);
        Ok(())
    }

    fn message(&self, domain: u32) -> Message {
        Message::new(self.export.enterprise.get(), domain)
    }

    fn add(&mut self, record: &Record<'_>, message: &mut Message, domain: u32) {
        if self.put(record, message, domain) {
            return;
        }
        self.send(message, domain);
        if !self.put(record, message, domain) {
            self.note(|health| health.lost += 1);
        }
    }

    /// Returns whether the message had room, and somebody is there to whom it can go.
    fn put(&mut self, record: &Record<'_>, message: &mut Message, domain: u32) -> bool {
        let template = (domain, record.template());
        let told = self.session.templates.get(&template);
        let again = |when: &Instant| !self.receiver.is_stream() && when.elapsed() > TEMPLATES_AGAIN;
        let with_template = told.is_none_or(again);
        if self.hung_up || !message.add(record, with_template) {
            return false;
        }
        if with_template {
            self.session.templates.insert(template, Instant::now());
        }
        true
    }

    /// Leaves an empty message.
    fn send(&mut self, message: &mut Message, domain: u32) {
        let full = std::mem::replace(message, self.message(domain));
        let records = full.records();
        if records == 0 {
            return;
        }
        let sequence = self.session.sequence.entry(domain).or_default();
        // The header's times and numbers have 32 bits, and begin again after that.
        let bytes = full.finish(since_1970().as_secs() as u32, *sequence);
        match self.receiver.send_on(&bytes) {
            Ok(()) => {
                *sequence = sequence.wrapping_add(records);
                self.note(|health| {
                    health.written += u64::from(records);
                    health.error = None;
                });
            }
            Err(error) => {
                self.note(|health| health.lost += u64::from(records));
                self.fails(&error, "flows are lost");
                self.session = Session::default();
                self.hung_up = self.receiver.is_stream() || self.receiver.connect().is_err();
            }
        }
    }

    fn note(&self, change: impl FnOnce(&mut ExportHealth)) {
        if let Some(health) = &mut self.board.lock().ipfix {
            change(health);
        }
    }

    fn fails(&self, error: &io::Error, so: &str) {
        self.note(|health| health.error = Some(error.to_string()));
        self.say(&self.collector_trouble, &format!("{error}; {so}"));
    }

    fn say(&self, trouble: &Seldom, what: &str) {
        if trouble.is_due() {
            tracing::error!("ipfix: {}: {what}", self.export.collector);
        }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn domain(attachment: &Attachment) -> DomainHealth {
    let netns = (attachment.whereabouts == Whereabouts::Elsewhere).then(|| {
        let directory =
            || attachment.directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        attachment.namespace().map_or_else(directory, |other| other.name)
    });
    let place = Place { netns, interface: attachment.interface.clone() };
    let digest =
        Sha256::digest(format!("{}/{}", place.netns.as_deref().unwrap_or_default(), place.interface));
    let [a, b, c, d, ..]: [u8; 32] = digest.into();
    // 0 would be no domain.
    let domain = u32::from_be_bytes([a, b, c, d]).max(1);
    DomainHealth { place, domain }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIVE: u64 = 300;
    const IDLE: u64 = 60;

    fn flow(packets: u32, first_seen_ns: Option<u64>, last_seen_ns: u64) -> Flow {
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let key = wirewised::object::flow_table::FlowKey {
            source: address,
            destination: address,
            source_port: 1,
            destination_port: 2,
            protocol: 17,
            vlans: Default::default(),
            teid: None,
        };
        let state = first_seen_ns.map(|time| ("first_seen_ns".to_string(), time.into()));
        Flow {
            ip_version: 4,
            cpu: None,
            bucket: 0,
            way: 0,
            key,
            packets,
            last_seen_ns,
            class_id: None,
            swapped: false,
            state: state.into_iter().collect(),
            features: Vec::new(),
        }
    }

    /// When a flow is sent by passes every 10, whose packets come at these times.
    fn sent(knows_start: bool, packets: &[u64]) -> Vec<(u64, Reason)> {
        let due = |now: u64| {
            let until: Vec<_> = packets.iter().filter(|time| **time < now).collect();
            let last = **until.last()?;
            let flow = flow(until.len() as u32, knows_start.then_some(packets[0]), last);
            let span = Span { from_ns: now - 10, to_ns: now };
            Some((now, span.due(&flow, IDLE, ACTIVE)?))
        };
        (1000..4000).step_by(10).filter_map(due).collect()
    }

    #[test]
    fn a_flow_is_sent_once_when_it_is_over_and_at_each_mark_while_it_lasts() {
        use Reason::{Active, Idle};
        assert_eq!(sent(true, &[1003]), [(1070, Idle)]);
        assert_eq!(sent(true, &[1000]), [(1070, Idle)]);
        assert_eq!(sent(true, &[1003, 1030, 1071]), [(1140, Idle)]);
        let long: Vec<_> = (1003..=2003).step_by(50).collect();
        assert_eq!(sent(true, &long), [(1310, Active), (1610, Active), (1910, Active), (2070, Idle)]);
        // A packet that comes after the flow was over, before its place went to another.
        assert_eq!(sent(true, &[1003, 1200]), [(1070, Idle), (1270, Idle)]);
    }

    #[test]
    fn a_flow_whose_begin_nobody_knows_is_sent_as_often() {
        assert_eq!(sent(false, &[1003]), [(1070, Reason::Idle)]);
        let long: Vec<_> = (1003..=2803).step_by(50).collect();
        let times = sent(false, &long);
        assert_eq!(times.last(), Some(&(2870, Reason::Idle)));
        let active: Vec<_> = times.iter().filter(|(_, reason)| *reason == Reason::Active).collect();
        assert_eq!(active.len(), 6);
        assert!(active.windows(2).all(|two| two[1].0 - two[0].0 == ACTIVE), "{active:?}");
    }
}
