// SPDX-License-Identifier: Apache-2.0
//! What outputs get beside events, if they ask for it, with the names that EVE has: numbers now and then, changes of the drift verdict, and
//! who asked the service for a change.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};
use wirewised::attachment::Attachment;
use wirewised::attachment::pins::Root;
use wirewised::error::Result;
use wirewised::kernel;
use wirewised::reading::community_id::flow_id;
use wirewised::reading::drift::{Drift, Level};
use wirewised::reading::events::{Tuple, timestamp};
use wirewised::reading::flows::FoundFlow;
use wirewised::text::units::Nanoseconds;

use super::Fan;
use crate::keeper::Board;
use crate::passes::{self, Reason, Source, Span, Times};

/// How soon an output hears of what was asked.
const PAUSE: Duration = Duration::from_millis(100);
/// Telling drift takes a look at each flow.
const DRIFT: Duration = Duration::from_secs(60);
/// Without an output that takes them, what was asked is not kept; with one that does not keep up, the oldest go.
pub const AUDITS: usize = 1024;

/// The kinds of records, as `records` of an output names them and as their `event_type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Stats,
    Drift,
    Audit,
    Flow,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Stats, Self::Drift, Self::Audit, Self::Flow];

    pub fn name(self) -> &'static str {
        match self {
            Self::Stats => "stats",
            Self::Drift => "drift",
            Self::Audit => "audit",
            Self::Flow => "flow",
        }
    }
}

/// The `records` of the configuration: how often there are some.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct Often {
    stats: Nanoseconds,
    flows: Times,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// From one `stats` to the next.
    stats: Option<String>,
    /// Of `flow`, as for IPFIX.
    idle: Option<String>,
    active: Option<String>,
}

impl TryFrom<Written> for Often {
    type Error = String;

    fn try_from(written: Written) -> std::result::Result<Self, String> {
        let said = |why| format!("`records`: {why}");
        Ok(Self {
            stats: passes::period("stats", written.stats, passes::MINUTE).map_err(said)?,
            flows: Times::of(written.idle, written.active).map_err(said)?,
        })
    }
}

impl Default for Often {
    fn default() -> Self {
        Self { stats: passes::MINUTE, flows: Times::USUAL }
    }
}

/// Makes records until the service ends.
pub struct Reporter {
    pub root: Root,
    pub board: Board,
    pub often: Often,
}

impl Reporter {
    pub(super) fn report(&self, to: &Fan, ends: &AtomicBool) {
        let begun = Instant::now();
        let (mut stats_due, mut drift_due) = (begun, begun);
        let mut levels = BTreeMap::new();
        let (mut flows_due, mut from_ns) = (begun + self.often.flows.pause(), kernel::monotonic_ns());
        loop {
            // Looked at before the rest, so that a request of the last moment is recorded too.
            let last = ends.load(Ordering::Relaxed);
            for audit in self.board.take_audits() {
                to.record(Kind::Audit, &audit);
            }
            let now = Instant::now();
            if to.wants(Kind::Flow) && (last || now >= flows_due) {
                flows_due = now + self.often.flows.pause();
                let span = Span { from_ns, to_ns: kernel::monotonic_ns() };
                self.flows(to, span);
                from_ns = span.to_ns;
            }
            if last {
                return;
            }
            if now >= drift_due {
                drift_due = now + DRIFT;
                self.drift(to, &mut levels);
            }
            if to.wants(Kind::Stats) && now >= stats_due {
                stats_due = now + Duration::from_nanos(self.often.stats.0);
                self.each(|it| numbers(it).map(|stats| to.record(Kind::Stats, &stats)));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Does something with each attachment. Those that are detached meanwhile have nothing to say.
    fn each(&self, mut work: impl FnMut(&Attachment) -> Result<()>) {
        let listing = Attachment::all(&self.root).unwrap_or_default();
        for attachment in listing.attachments.iter().filter(|it| it.link.is_some()) {
            if let Err(error) = work(attachment) {
                tracing::debug!("records: {}: {error}", attachment.interface);
            }
        }
    }

    /// Flows that are over, and those that last.
    fn flows(&self, to: &Fan, span: Span) {
        for sharing in passes::tables(&self.root) {
            let attachment = &sharing[0];
            let told = self.often.flows.due(attachment, span, &mut |source, found, reason| {
                to.record(Kind::Flow, &of_flow(attachment, source, found, reason));
            });
            if let Err(error) = told {
                tracing::debug!("records: {}: {error}", attachment.interface);
            }
        }
    }

    /// Has `/metrics` know the latest, and outputs every change of a verdict.
    fn drift(&self, to: &Fan, levels: &mut BTreeMap<PathBuf, Option<Level>>) {
        let mut known = BTreeMap::new();
        let mut there = BTreeMap::new();
        self.each(|it| {
            let drift = it.drift()?;
            let before = levels.get(&it.directory).copied().flatten();
            if drift.verdict.is_some() && drift.verdict != before {
                to.record(Kind::Drift, &of_drift(it, &drift, before));
            }
            there.insert(it.directory.clone(), drift.verdict.or(before));
            if let (Some(level), Some(compared)) = (drift.verdict, &drift.compared) {
                let worst = compared.features.iter().map(|feature| feature.psi).fold(0.0, f64::max);
                known.insert(it.directory.clone(), (level, worst));
            }
            Ok(())
        });
        *levels = there;
        self.board.lock().drift = known;
    }
}

/// What all records begin with.
fn record(kind: Kind, attachment: Option<&Attachment>) -> Value {
    let mut record = json!({ "timestamp": timestamp(SystemTime::now()), "event_type": kind.name() });
    if let Some(attachment) = attachment {
        record["in_iface"] = attachment.interface.clone().into();
        if let Some(netns) = attachment.namespace() {
            record["netns"] = netns.name.into();
        }
    }
    if let Some(host) = kernel::host_name() {
        record["host"] = host.into();
    }
    record
}

/// As `wirewised stats --json` says it.
fn numbers(attachment: &Attachment) -> Result<Value> {
    let statistics = attachment.statistics(&attachment.counters()?, None)?;
    let mut stats = record(Kind::Stats, Some(attachment));
    stats["stats"] = json!(statistics);
    Ok(stats)
}

/// before : the verdict until now.
fn of_drift(attachment: &Attachment, drift: &Drift, before: Option<Level>) -> Value {
    let mut told = record(Kind::Drift, Some(attachment));
    let features = drift.compared.iter().flat_map(|compared| &compared.features);
    let features: Vec<_> = features
        .filter(|feature| feature.level != Level::LikeTraining)
        .map(|it| json!({ "name": it.name, "level": it.level, "psi": it.psi, "outside": it.outside }))
        .collect();
    told["drift"] = json!({
        "bundle": drift.bundle, "verdict": drift.verdict, "before": before,
        "flows": drift.compared.as_ref().map(|compared| compared.flows), "features": features,
    });
    told
}

/// With the names of EVE: who sent the first packet is the source.
fn of_flow(attachment: &Attachment, source: &Source<'_>, found: &FoundFlow<'_>, reason: Reason) -> Value {
    let flow = found.flow;
    let mut ends = Tuple::from(&flow.key);
    if flow.swapped {
        (ends.src_ip, ends.dest_ip) = (ends.dest_ip, ends.src_ip);
        (ends.src_port, ends.dest_port) = (ends.dest_port, ends.src_port);
    }
    let time =
        |time_ns: u64| timestamp(UNIX_EPOCH + Duration::from_nanos(source.epoch_ns.saturating_add(time_ns)));
    let mut told = record(Kind::Flow, None);
    told["in_iface"] = attachment.interface.clone().into();
    told["flow_id"] = flow_id(&flow.key).into();
    if let (Value::Object(told), Value::Object(ends)) = (&mut told, json!(ends)) {
        told.extend(ends);
    }
    told["flow"] = json!({
        "pkts": flow.packets,
        "bytes": flow.bytes(),
        "start": flow.first_seen_ns().map(time),
        "end": time(flow.last_seen_ns),
        "reason": match reason { Reason::Idle => "timeout", Reason::Active => "active" },
    });
    told["wirewise"] = json!({
        "class": found.class, "score": source.scores.as_ref().and_then(|scores| scores.of(flow)),
    });
    told
}

/// Somebody asked for a change. what : says by whom, what, and what came of it.
pub fn audit(what: Value) -> Value {
    let mut audit = record(Kind::Audit, None);
    audit["audit"] = what;
    audit
}
