// SPDX-License-Identifier: Apache-2.0
//! What monitoring reads. Every number about packets is read from the maps when it is asked for, so that there is one count of each. The
//! number of series depends on interfaces, classes and CPUs of a configuration, never on flows or addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use serde_json::Value;
use wirewised::abi::{Mode, Outcome};
use wirewised::attachment::pins::Root;
use wirewised::attachment::{Attachment, Listing};
use wirewised::error::Result;
use wirewised::kernel::objects;
use wirewised::plane::Plane;
use wirewised::reading::drift::Level;
use wirewised::reading::statistics::Statistics;
use wirewised::reading::status::Status;

use crate::evidence::EvidenceHealth;
use crate::keeper::Board;

/// The content type of what `text` returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

/// One number with its labels.
type Sample<T> = (Labels, T);

/// What one interface says.
struct Reading {
    directory: PathBuf,
    labels: Labels,
    status: Status,
    statistics: Statistics,
    /// In force; `None`: the policy bans nobody.
    bans: Option<usize>,
}

/// All numbers, in the OpenMetrics text format.
pub fn text(root: &Root, board: &Board) -> std::result::Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Readings { root: root.clone(), board: board.clone() }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Readings {
    root: Root,
    board: Board,
}

fn read(attachment: &Attachment) -> Result<Reading> {
    let (status, policy) = (attachment.status()?, attachment.element()?);
    let statistics = attachment.statistics_beside(&status, &policy, &attachment.counters()?, None)?;
    let netns = status.network_namespace.as_ref().and_then(|elsewhere| elsewhere.netns.clone());
    let labels = labels_of(&status.interface, netns.as_deref());
    let bans = policy.bans().then(|| attachment.bans_under(&policy)).transpose()?.map(|bans| bans.len());
    Ok(Reading { directory: attachment.directory.clone(), labels, status, statistics, bans })
}

/// That every number of an interface has.
fn labels_of(interface: &str, netns: Option<&str>) -> Labels {
    vec![("interface", interface.to_string()), ("netns", netns.unwrap_or_default().to_string())]
}

fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_string())]
}

/// A label's value as OpenMetrics writes it; the library writes values as they are. Interfaces and classes may be named anything.
pub fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Writes families of samples.
struct Writer<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Writer<'_> {
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: Vec<Sample<u64>>,
    ) -> fmt::Result {
        self.family(name, help, unit, MetricType::Counter, samples, ConstCounter::new)
    }

    fn seconds(&mut self, name: &str, help: &str, samples: Vec<Sample<f64>>) -> fmt::Result {
        self.family(name, help, Some(Unit::Seconds), MetricType::Counter, samples, |value| {
            ConstCounter::new(value)
        })
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        samples: Vec<Sample<i64>>,
    ) -> fmt::Result {
        self.family(name, help, unit, MetricType::Gauge, samples, ConstGauge::new)
    }

    fn family<T, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        kind: MetricType,
        samples: Vec<Sample<T>>,
        metric: impl Fn(T) -> M,
    ) -> fmt::Result {
        if samples.is_empty() {
            return Ok(());
        }
        let mut family = self.encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (labels, value) in samples {
            let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, escaped(value))).collect();
            metric(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// A sample of each reading, or several.
fn of_each<T>(readings: &[Reading], samples: impl Fn(&Reading) -> Vec<Sample<T>>) -> Vec<Sample<T>> {
    let own = |reading: &Reading| {
        let labelled = samples(reading)
            .into_iter()
            .map(|(more, value)| (reading.labels.iter().cloned().chain(more).collect(), value));
        labelled.collect::<Vec<_>>()
    };
    readings.iter().flat_map(own).collect()
}

/// Packets or bytes of each class by what became of them.
fn of_outcomes(reading: &Reading, what: &str) -> Vec<(Labels, u64)> {
    let plane = reading.status.plane_obtained.or(reading.status.plane_asked).map_or("", Plane::name);
    let mut samples = Vec::new();
    for class in &reading.statistics.classes {
        for outcome in Outcome::ALL {
            let count = class.outcomes.get(outcome.name()).and_then(|count| count[what].as_u64());
            let labels = [
                ("plane", plane),
                ("class", &class.name),
                ("action", &class.action),
                ("outcome", outcome.name()),
            ];
            samples
                .push((labels.map(|(name, value)| (name, value.to_string())).to_vec(), count.unwrap_or(0)));
        }
    }
    samples
}

impl Collector for Readings {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Listing { attachments, unreadable } = Attachment::all(&self.root).unwrap_or_default();
        let attachments: Vec<_> = attachments.into_iter().filter(|it| it.link.is_some()).collect();
        let all = attachments.len() + unreadable.len();
        let readings: Vec<_> = attachments.iter().filter_map(|attachment| read(attachment).ok()).collect();
        let mut writer = Writer { encoder };
        writer.gauges(
            "wirewise_unreadable",
            "Attachments that could not be read",
            None,
            vec![(Vec::new(), (all - readings.len()) as i64)],
        )?;
        of_packets(&mut writer, &readings)?;
        of_tables(&mut writer, &readings)?;
        of_programs(&mut writer, &readings)?;
        of_times(&mut writer, &readings)?;
        of_drift(&mut writer, &readings, &self.board.lock().drift.clone())?;
        self.of_service(&mut writer)
    }
}

fn of_packets(writer: &mut Writer<'_>, readings: &[Reading]) -> fmt::Result {
    writer.counters(
        "wirewise_packets",
        "Packets judged, by class and by what became of them",
        None,
        of_each(readings, |reading| of_outcomes(reading, "packets")),
    )?;
    writer.counters(
        "wirewise_packet_size",
        "Bytes of the packets judged, by class and by what became of them",
        Some(Unit::Bytes),
        of_each(readings, |reading| of_outcomes(reading, "bytes")),
    )?;
    writer.counters(
        "wirewise_status_packets",
        "Packets by why they were or were not classified",
        None,
        of_each(readings, |reading| {
            let rows = reading.statistics.status.iter();
            rows.map(|row| (vec![("status", row.status.name().to_string())], row.packets)).collect()
        }),
    )?;
    writer.counters(
        "wirewise_inferences",
        "Packets on which the model ran",
        None,
        of_each(readings, |reading| vec![(Vec::new(), reading.statistics.inferred)]),
    )?;
    writer.counters(
        "wirewise_events",
        "Events for packets that did not simply pass, sent or suppressed by the limit",
        None,
        of_each(readings, |reading| {
            let events = &reading.statistics.events;
            [("sent", events.sent), ("limited", events.limited)]
                .map(|(fate, count)| (vec![("fate", fate.to_string())], count))
                .to_vec()
        }),
    )?;
    writer.counters(
        "wirewise_denied_packets",
        "Packets that the deny list kept out, by the origin that denies their address longest",
        None,
        of_each(readings, |reading| {
            let rows = reading.statistics.denied.iter();
            rows.map(|row| (label("origin", &row.origin), row.packets)).collect()
        }),
    )?;
    writer.gauges(
        "wirewise_bans",
        "Bans by which packets are dropped now",
        None,
        of_each(readings, |reading| reading.bans.iter().map(|bans| (Vec::new(), *bans as i64)).collect()),
    )?;
    writer.counters(
        "wirewise_shadow_packets",
        "Packets on which a second model agreed with the first or did not",
        None,
        of_each(readings, |reading| {
            let Some(shadow) = &reading.statistics.shadow else { return Vec::new() };
            [("yes", shadow.agree), ("no", shadow.disagree)]
                .map(|(agrees, count)| (vec![("agrees", agrees.to_string())], count))
                .to_vec()
        }),
    )
}

fn of_tables(writer: &mut Writer<'_>, readings: &[Reading]) -> fmt::Result {
    writer.counters(
        "wirewise_flow_entries",
        "Entries begun in the flow tables, by where they came from, and packets that found none",
        None,
        of_each(readings, |reading| {
            let counters = reading.statistics.flows.counters();
            counters.map(|(name, count)| (vec![("origin", last_word(name))], count)).to_vec()
        }),
    )?;
    writer.counters(
        "wirewise_aggregate_entries",
        "The same, of what is kept beside the flows",
        None,
        of_each(readings, |reading| {
            let Some(counters) = &reading.statistics.aggregates else { return Vec::new() };
            let counters = counters.counters();
            counters.map(|(name, count)| (vec![("origin", last_word(name))], count)).to_vec()
        }),
    )?;
    writer.gauges(
        "wirewise_flow_table_capacity",
        "Flows that the tables of an interface have room for, of each IP version",
        None,
        of_each(readings, |reading| {
            let tables = &reading.status.flow_tables;
            let shards = match tables.sharing {
                wirewised::bundle::manifest::Sharing::Shared => 1,
                wirewised::bundle::manifest::Sharing::PerCpu => tables.cpus,
            };
            let capacity = tables.entries.map(|entries| i64::from(entries) * i64::from(shards));
            capacity.map(|capacity| (Vec::new(), capacity)).into_iter().collect()
        }),
    )?;
    writer.gauges(
        "wirewise_flow_table_size",
        "Memory of the flow tables and of what is kept beside them",
        Some(Unit::Bytes),
        of_each(readings, |reading| vec![(Vec::new(), reading.status.flow_tables.bytes as i64)]),
    )
}

/// `evicted` of `flows evicted`.
fn last_word(name: &str) -> String {
    name.rsplit(' ').next().unwrap_or(name).to_string()
}

fn of_programs(writer: &mut Writer<'_>, readings: &[Reading]) -> fmt::Result {
    writer.gauges(
        "wirewise_attached",
        "Whether the interface and the program on it are there",
        None,
        of_each(readings, |reading| vec![(Vec::new(), i64::from(reading.status.attached))]),
    )?;
    writer.gauges(
        "wirewise_enforcing",
        "Whether packets are dropped as the policy says",
        None,
        of_each(readings, |reading| {
            vec![(Vec::new(), i64::from(reading.status.mode == Some(Mode::Enforce)))]
        }),
    )?;
    writer.gauges(
        "wirewise_carrier_answers",
        "Of a plane in user space: whether the process that carries its packets is alive and answers",
        None,
        of_each(readings, |reading| {
            let carrier = reading.status.carrier.as_ref();
            carrier.map(|carrier| (Vec::new(), i64::from(carrier.answers))).into_iter().collect()
        }),
    )?;
    writer.counters(
        "wirewise_carried_packets",
        "Of a plane in user space: what became of packets on their way, by the lane's counters",
        None,
        of_each(readings, |reading| {
            let Some(carrier) = &reading.status.carrier else { return Vec::new() };
            lanes(&serde_json::to_value(&carrier.lanes).unwrap_or_default())
        }),
    )?;
    writer.gauges(
        "wirewise_info",
        "What runs: the labels say it",
        None,
        of_each(readings, |reading| {
            let bundle = reading.status.bundle.as_ref();
            let text = |value: Option<&str>| value.unwrap_or_default().to_string();
            let labels = vec![
                ("bundle", text(bundle.map(|bundle| bundle.name.as_str()))),
                ("digest", text(bundle.map(|bundle| bundle.digest.as_str()))),
                ("model", text(bundle.map(|bundle| bundle.model.as_str()))),
                ("since", text(reading.status.since.as_deref())),
                ("policy_since", text(reading.status.policy.as_ref().map(|policy| policy.changed.as_str()))),
            ];
            vec![(labels, 1)]
        }),
    )
}

/// Time that the kernel spends in programs, which it counts while somebody asks it to: `program_times` of the configuration.
fn of_times(writer: &mut Writer<'_>, readings: &[Reading]) -> fmt::Result {
    let times: Vec<_> = readings
        .iter()
        .filter_map(|reading| {
            let (time_ns, runs) = objects::program_times(reading.status.program_id?)?;
            (runs > 0).then(|| (reading.labels.clone(), time_ns, runs))
        })
        .collect();
    writer.seconds(
        "wirewise_program_time",
        "Time in the program, of the runs below",
        times.iter().map(|(labels, time_ns, _)| (labels.clone(), *time_ns as f64 / 1e9)).collect(),
    )?;
    writer.counters(
        "wirewise_program_runs",
        "Runs of the program while the kernel measured them",
        None,
        times.into_iter().map(|(labels, _, runs)| (labels, runs)).collect(),
    )
}

/// drift : as it was last told, by directory.
fn of_drift(
    writer: &mut Writer<'_>,
    readings: &[Reading],
    drift: &BTreeMap<PathBuf, (Level, f64)>,
) -> fmt::Result {
    let known: Vec<_> = readings
        .iter()
        .filter_map(|reading| Some((reading.labels.clone(), drift.get(&reading.directory)?)))
        .collect();
    writer.gauges(
        "wirewise_drift_level",
        "How far live flows are from training: 0 like it, 1 to be watched, 2 out of depth",
        None,
        known.iter().map(|(labels, (level, _))| (labels.clone(), *level as i64)).collect(),
    )?;
    writer.family(
        "wirewise_drift_psi",
        "Population stability index of the feature that is farthest from training",
        None,
        MetricType::Gauge,
        known.iter().map(|(labels, (_, psi))| (labels.clone(), *psi)).collect(),
        ConstGauge::new,
    )
}

/// The counters of all lanes together, by their names.
fn lanes(lanes: &Value) -> Vec<(Labels, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for lane in lanes.as_array().into_iter().flatten() {
        for (name, count) in lane.as_object().into_iter().flatten() {
            let Some(count) = count.as_u64() else { continue };
            match sums.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += count,
                None => sums.push((name.clone(), count)),
            }
        }
    }
    sums.into_iter().map(|(name, sum)| (vec![("counter", name)], sum)).collect()
}

impl Readings {
    fn of_service(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let health = self.board.lock().clone();
        let none = Labels::new;
        writer.gauges(
            "wirewise_serve_config_applied",
            "Whether the configuration that was read last is in force",
            None,
            vec![(none(), i64::from(health.refused.is_none()))],
        )?;
        writer.counters(
            "wirewise_serve_reloads",
            "Times that the configuration was read again",
            None,
            vec![
                (label("result", "applied"), health.reloads - health.refused_reloads),
                (label("result", "refused"), health.refused_reloads),
            ],
        )?;
        writer.counters(
            "wirewise_serve_events",
            "Events for each output of the configuration: written, or lost",
            None,
            health
                .outputs
                .iter()
                .flat_map(|it| {
                    let labels = |fate: &str| {
                        [("output", it.output.as_str()), ("to", it.to.as_str()), ("fate", fate)]
                            .map(|(name, value)| (name, value.to_string()))
                            .to_vec()
                    };
                    [(labels("written"), it.written), (labels("lost"), it.lost)]
                })
                .collect(),
        )?;
        writer.counters(
            "wirewise_serve_ipfix_records",
            "Records of flows for the IPFIX collector: written, or lost",
            None,
            health
                .ipfix
                .iter()
                .flat_map(|it| [(label("fate", "written"), it.written), (label("fate", "lost"), it.lost)])
                .collect(),
        )?;
        #[cfg(feature = "otlp")]
        writer.counters(
            "wirewise_serve_otlp_exports",
            "Exports of these numbers by OTLP: taken by the collector, or failed",
            None,
            health
                .otlp
                .iter()
                .flat_map(|it| [(label("result", "taken"), it.taken), (label("result", "failed"), it.failed)])
                .collect(),
        )?;
        let evidence: Vec<_> = health.evidence.iter().collect();
        let fates = |it: &EvidenceHealth| {
            [("written", it.written), ("covered", it.covered), ("skipped", it.skipped), ("failed", it.failed)]
        };
        writer.counters(
            "wirewise_serve_evidence_alerts",
            "Alerts by what became of their capture: written, covered by an earlier one of the flow, skipped for a limit, or failed",
            None,
            evidence.iter().flat_map(|it| fates(it).map(|(fate, count)| (label("fate", fate), count))).collect(),
        )?;
        writer.counters(
            "wirewise_serve_evidence_lost_frames",
            "Frames that captures may lack, because raw sockets had no room for them",
            None,
            evidence.iter().map(|it| (none(), it.lost)).collect(),
        )?;
        writer.gauges(
            "wirewise_serve_evidence_size",
            "What captures of alerts take of the disk",
            Some(Unit::Bytes),
            evidence.iter().map(|it| (none(), it.bytes as i64)).collect(),
        )?;
        let routes = health.outputs.iter().filter_map(|it| Some((it, it.routes?)));
        writer.gauges(
            "wirewise_serve_bgp_routes",
            "Bans in force by whether BGP has a route for them",
            None,
            routes
                .flat_map(|(it, routes)| {
                    let labels = |state: &str| vec![("to", it.to.clone()), ("state", state.to_string())];
                    [
                        (labels("announced"), routes.announced as i64),
                        (labels("refused"), routes.refused as i64),
                    ]
                })
                .collect(),
        )?;
        let crowdsec: Vec<_> = health.crowdsec.iter().collect();
        writer.gauges(
            "wirewise_serve_crowdsec_decisions",
            "Bans that CrowdSec has decided and that deny lists follow",
            None,
            crowdsec.iter().map(|it| (none(), it.decisions as i64)).collect(),
        )?;
        writer.gauges(
            "wirewise_serve_crowdsec_follows",
            "Whether CrowdSec answered last and every deny list is as it says",
            None,
            crowdsec
                .iter()
                .map(|it| (none(), i64::from(it.pulled.is_some() && it.error.is_none())))
                .collect(),
        )?;
        writer.counters(
            "wirewise_serve_crowdsec_failures",
            "Times that CrowdSec did not answer or a deny list could not be changed",
            None,
            crowdsec.iter().map(|it| (none(), it.failures)).collect(),
        )?;
        let labels = |place: &crate::keeper::PlaceHealth| {
            labels_of(&place.place.interface, place.place.netns.as_deref())
        };
        writer.gauges(
            "wirewise_serve_kept",
            "Whether what the configuration wishes for an interface runs there",
            None,
            health.places.iter().map(|place| (labels(place), i64::from(place.kept))).collect(),
        )?;
        writer.gauges(
            "wirewise_serve_missing",
            "Interfaces that the configuration names and that are not there",
            None,
            vec![(none(), health.missing.len() as i64)],
        )?;
        writer.counters(
            "wirewise_serve_outages",
            "Times that a process which carries packets ended though nobody wished it",
            None,
            health.places.iter().map(|place| (labels(place), place.outages)).collect(),
        )?;
        writer.seconds(
            "wirewise_serve_outage",
            "How long no process carried packets after such an end",
            health.places.iter().map(|place| (labels(place), place.outage_seconds)).collect(),
        )?;
        let own = Process::read();
        writer.seconds("process_cpu", "Processor time of the service", vec![(none(), own.cpu_seconds)])?;
        writer.gauges(
            "process_resident_memory",
            "Memory of the service",
            Some(Unit::Bytes),
            vec![(none(), own.memory)],
        )?;
        writer.gauges(
            "process_open_fds",
            "Open file descriptors of the service",
            None,
            vec![(none(), own.descriptors)],
        )
    }
}

/// This process, by the kernel's accounts.
struct Process {
    cpu_seconds: f64,
    memory: i64,
    descriptors: i64,
}

impl Process {
    fn read() -> Self {
        // SAFETY: zeroes are a valid value, and the call fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<i64>().ok()).unwrap_or(0);
        // SAFETY: takes a number only.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let descriptors = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as i64);
        Self {
            cpu_seconds: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            memory: pages * page,
            descriptors,
        }
    }
}
