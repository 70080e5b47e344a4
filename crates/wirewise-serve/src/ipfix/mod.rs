// SPDX-License-Identifier: Apache-2.0
//! Export of flows by IPFIX (RFC 7011). Nothing is remembered of a flow: each pass over the flow tables sends the flows that became idle
//! since the pass before, and those that have lasted for another `active`. The tables are the queue too: while no connection can be made,
//! no pass takes place, and the next one covers the time since the last.

mod message;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::num::NonZeroU32;
use std::sync::mpsc::{Receiver as Queue, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wirewised::attachment::Attachment;
use wirewised::attachment::pins::Root;
use wirewised::error::{Error, Result};
use wirewised::kernel;
use wirewised::reading::flows::FoundFlow;

use crate::config::Place;
use crate::keeper::Board;
use crate::outputs::receiver::{Address, Receiver};
use crate::passes::{self, Reason, Source, Span, Times, since_1970};
use crate::seldom::Seldom;
use message::{Message, Record};

/// For examples in documents (RFC 5612).
const OF_DOCUMENTS: NonZeroU32 = NonZeroU32::new(32473).unwrap();
/// How often templates are sent again in datagrams, one of which may have been lost.
const TEMPLATES_AGAIN: Duration = Duration::from_secs(60);
/// How long the last pass may take when the service ends.
const TO_END: Duration = Duration::from_secs(1);

/// The `ipfix` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Export {
    collector: Address,
    times: Times,
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
        Ok(Self {
            collector,
            times: Times::of(written.idle, written.active).map_err(|why| format!("`ipfix`: {why}"))?,
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

/// own : no other interface uses the same flow tables.
fn record<'a>(of: &Source<'_>, own: bool, found: &FoundFlow<'a>, reason: Reason) -> Record<'a> {
    let FoundFlow { flow, class, .. } = found;
    let mut ends =
        [(flow.key.source, flow.key.source_port), (flow.key.destination, flow.key.destination_port)];
    // Who began stands first.
    if flow.swapped {
        ends.reverse();
    }
    let [(source, source_port), (destination, destination_port)] = ends;
    let (has_source, has_destination, has_ports) = match of.key {
        "source" => (true, false, false),
        "destination" => (false, true, false),
        "source-destination" => (true, true, false),
        _ => (true, true, true),
    };
    let milliseconds = |time_ns: u64| of.epoch_ns.saturating_add(time_ns) / 1_000_000;
    Record {
        source: has_source.then_some(source),
        destination: has_destination.then_some(destination),
        ports: has_ports.then_some([source_port, destination_port]),
        protocol: has_ports.then_some(flow.key.protocol),
        interface: if own { of.index } else { 0 },
        packets: flow.packets.into(),
        octets: flow.bytes(),
        start: flow.first_seen_ns().map(milliseconds),
        end: milliseconds(flow.last_seen_ns),
        reason,
        vlans: of.has_vlans.then(|| flow.key.vlans.ids()),
        teid: flow.key.teid,
        class: flow.class_id.zip(*class),
        score: of.scores.as_ref().and_then(|scores| scores.of(flow)),
    }
}

impl Exporter {
    fn work(&mut self, root: &Root, stopped: &Queue<()>) {
        let mut from_ns = kernel::monotonic_ns();
        loop {
            let ends = stopped.recv_timeout(self.export.times.pause()) != Err(RecvTimeoutError::Timeout);
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
        let mut domains = Vec::new();
        for sharing in &passes::tables(root) {
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
        let times = self.export.times;
        let mut message = self.message(domain);
        times.due(attachment, span, &mut |source, found, reason| {
            self.add(&record(source, own, found, reason), &mut message, domain);
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

fn domain(attachment: &Attachment) -> DomainHealth {
    let place = Place::of(attachment);
    let digest =
        Sha256::digest(format!("{}/{}", place.netns.as_deref().unwrap_or_default(), place.interface));
    let [a, b, c, d, ..]: [u8; 32] = digest.into();
    // 0 would be no domain.
    let domain = u32::from_be_bytes([a, b, c, d]).max(1);
    DomainHealth { place, domain }
}
