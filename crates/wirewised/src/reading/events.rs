// SPDX-License-Identifier: Apache-2.0
//! Events in words. The ring is read once, however many want to hear of it.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytemuck::Zeroable;
use libbpf_rs::MapHandle;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::abi::{self, Key4, Outcome};
use crate::error::Result;
use crate::kernel;
use crate::object::bans::{Ban, Table};
use crate::object::flow_table::{FlowKey, Vlans};
use crate::object::policy_maps;
use crate::policy::Prefix;
use crate::policy::ban::Kind;
use crate::reading::community_id::{community_id, flow_id};
use crate::reading::event_ring::{EventRing, Told};
use crate::reading::meta::Input;
use crate::stop::Stop;

/// How soon a listener hears of a new event.
const PAUSE: Duration = Duration::from_millis(50);

/// As Suricata writes it into its log, EVE: what reads that finds what an event of another type is of.
pub const EVENT_TYPE: &str = "wirewise";
/// The same, with the fields that readers of alerts expect.
pub const ALERT_TYPE: &str = "alert";
/// A packet whose sender is banned from it on.
pub const BAN_TYPE: &str = "ban";

/// In the count of an event.
const PROVEN: u64 = 1 << abi::TOLD_PROVEN;

/// A packet of a class that does not simply pass, by the names that Suricata's EVE log has. What the flow key does not have is `None`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Event {
    /// `2026-03-01T09:35:16.251547+0000`.
    pub timestamp: String,
    /// The same for all packets of a flow.
    pub flow_id: u64,
    pub in_iface: String,
    /// The sensor's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// As `event_type` says.
    pub event_type: &'static str,
    #[serde(flatten)]
    pub flow: Tuple,
    /// `None`: the policy gives the class no severity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<Alert>,
    /// `None`: nobody is banned for this packet, or the policy in force bans nobody for its class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ban: Option<Banned>,
    pub wirewise: Judgement,
    #[serde(skip)]
    pub weight: Weight,
}

/// As EVE has it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Alert {
    /// `allowed` or `blocked`.
    pub action: &'static str,
    /// The class id, from 1 on.
    pub signature_id: u32,
    pub signature: String,
    pub category: &'static str,
    /// 1 is the highest.
    pub severity: u32,
}

/// The ban that began with a packet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Banned {
    /// `None`: the ban was lifted before the event was read, or its place has been given to another one.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub source: Option<Prefix>,
    /// Only a ban by pair has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpAddr>,
    /// As the policy calls it.
    pub by: &'static str,
    pub for_ms: u32,
    /// As `timestamp`, if the ban is not lifted before.
    pub until: String,
    pub class: String,
}

fn as_text<S: Serializer>(prefix: &Option<Prefix>, to: S) -> std::result::Result<S::Ok, S::Error> {
    prefix.map(|prefix| prefix.to_string()).serialize(to)
}

/// What an event adds to sums.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Weight {
    pub class_id: u8,
    /// Packets that it reports.
    pub packets: u64,
    /// Who sent the flow's first packet, and where to, as far as the flow key says.
    pub source: Option<IpAddr>,
    pub service: Option<Service>,
}

/// A protocol, with a port where it has ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service {
    pub protocol: Option<String>,
    pub port: Option<u16>,
}

/// Whose packet it is. Under a key that is the same for both directions the ends stand in the order of the key.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tuple {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dest_ip: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dest_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proto: Option<String>,
    /// Where the flow key has them.
    #[serde(skip_serializing_if = "Vlans::is_none")]
    pub vlan: Vlans,
    /// Of the GTP-U tunnel around it, where the flow key has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub teid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub community_id: Option<String>,
}

/// What wirewise said of the packet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judgement {
    pub class: String,
    /// As the policy calls it.
    pub action: Option<String>,
    pub outcome: Option<Outcome>,
    /// Of the flow so far.
    pub packets: u32,
    /// IP length of the packet, in bytes.
    pub length: u32,
    /// Packets that it reports, if several: this one, and those of its flow or source since its last event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Who sent the flow's first packet, where that is not `src_ip`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The packet proves that address; see `ban` in docs/policy.md. Only a policy that bans, with `events: {each: ...}`, looks for that.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub proven: bool,
    /// Of a bank of networks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
    /// The features that the model read, as the integers that it compares; empty if the policy does not ask for it, or the model did not run on this
    /// packet.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "by_name")]
    pub features: Vec<(String, i64)>,
}

fn by_name<S: Serializer>(features: &[(String, i64)], to: S) -> std::result::Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(features.len()))?;
    for (name, value) in features {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

/// Whose answer is another than before, and which it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answers {
    /// Networks that say yes now, and did not.
    pub began: Vec<String>,
    /// Networks that do not any more.
    pub ended: Vec<String>,
    /// All that say yes.
    pub yes: Vec<String>,
}

impl Answers {
    /// names : of the networks. yes, changed : a bit for each.
    fn new(names: &[String], yes: u64, changed: u64) -> Self {
        let those = |bits: u64| {
            let named = names.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
            named.map(|(_, name)| name.clone()).collect()
        };
        Self { began: those(changed & yes), ended: those(changed & !yes), yes: those(yes) }
    }
}

impl Judgement {
    /// The outcome; of an action that is more than passing and dropping, with its name.
    pub fn happened(&self) -> String {
        let outcome = self.outcome.map_or("unknown", Outcome::name);
        match (self.outcome, &self.action) {
            (Some(Outcome::Acted | Outcome::WouldAct | Outcome::NotActed), Some(action)) => {
                format!("{outcome} ({action})")
            }
            _ => outcome.to_owned(),
        }
    }
}

impl From<&FlowKey> for Tuple {
    fn from(key: &FlowKey) -> Self {
        let [(src_ip, src_port), (dest_ip, dest_port)] = key.ends();
        let community_id = community_id(key);
        Self {
            src_ip,
            src_port,
            dest_ip,
            dest_port,
            proto: key.protocol_name(),
            vlan: key.vlans,
            teid: key.teid,
            community_id,
        }
    }
}

/// Who hears of events; an error ends the reading for all.
pub trait Listener {
    fn event(&mut self, event: &Event) -> Result<()>;

    /// So many were overwritten before they were read. Comes before the events behind the gap.
    fn missed(&mut self, _events: u64) -> Result<()> {
        Ok(())
    }

    /// That was all for now.
    fn caught_up(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The events of one program.
pub struct Events {
    ring: EventRing,
    interface: String,
    /// The index is the class id.
    classes: Vec<String>,
    networks: Vec<String>,
    inputs: Vec<Input>,
    /// The classifier's part, and the actor's.
    policy: (MapHandle, Option<MapHandle>),
    bans: Option<MapHandle>,
    sensor: Option<String>,
}

impl Alert {
    /// `None`: the policy gives the class no severity.
    pub fn new(class_id: u8, class: &str, outcome: Option<Outcome>, policy: &abi::Policy) -> Option<Self> {
        let severity = policy.class_policy.get(usize::from(class_id)).map_or(0, |rule| rule.severity);
        (severity != 0).then(|| Self {
            action: if outcome.is_some_and(Outcome::drops) { "blocked" } else { "allowed" },
            signature_id: u32::from(class_id) + 1,
            signature: format!("wirewise {class}"),
            category: "Machine learning on the packet path",
            severity,
        })
    }
}

/// What an event is, by what became of its packet and whether its class raises alerts.
fn event_type(outcome: Option<Outcome>, alert: Option<&Alert>) -> &'static str {
    match (outcome, alert) {
        (Some(Outcome::Ban), _) => BAN_TYPE,
        (_, Some(_)) => ALERT_TYPE,
        (_, None) => EVENT_TYPE,
    }
}

impl Events {
    /// policy : its maps. interface : that packets come in by. class_name : of a class id. networks : of a bank.
    pub fn new(
        ring: EventRing,
        policy: (MapHandle, Option<MapHandle>),
        interface: &str,
        class_name: impl Fn(u8) -> String,
        networks: Vec<String>,
    ) -> Self {
        let classes = (0..=u8::MAX).map(class_name).collect();
        Self {
            ring,
            interface: interface.to_string(),
            classes,
            networks,
            inputs: Vec::new(),
            policy,
            bans: None,
            sensor: None,
        }
    }

    /// Events of bans name whom they are of. bans : the map of those in force.
    pub fn with_bans(self, bans: Option<MapHandle>) -> Self {
        Self { bans, ..self }
    }

    /// Events name what the model read.
    pub fn with_inputs(self, inputs: Vec<Input>) -> Self {
        Self { inputs, ..self }
    }

    /// Events name this sensor.
    pub fn with_sensor(self, name: &str) -> Self {
        Self { sensor: Some(name.to_string()), ..self }
    }

    /// Tells every listener what is new, in the order of time.
    pub fn tell(&mut self, listeners: &mut [&mut dyn Listener]) -> Result<()> {
        let before = self.ring.missed();
        let events = self.ring.read();
        let missed = self.ring.missed() - before;
        if missed > 0 {
            listeners.iter_mut().try_for_each(|listener| listener.missed(missed))?;
        }
        // Each time anew: the wall clock may be set meanwhile.
        let epoch = UNIX_EPOCH + Duration::from_nanos(kernel::monotonic_epoch_ns());
        let policy = match events.is_empty() {
            true => abi::Element::zeroed(),
            false => policy_maps::element_of(&self.policy.0, self.policy.1.as_ref())?,
        };
        // Expired ones too: the events may be older.
        let bans = match &self.bans {
            Some(map) if events.iter().any(|told| bans(&told.event)) => Table::open(map)?.read(0)?,
            _ => Vec::new(),
        };
        for told in &events {
            let event = self.in_words(told, &policy, &bans, epoch);
            listeners.iter_mut().try_for_each(|listener| listener.event(&event))?;
        }
        listeners.iter_mut().try_for_each(|listener| listener.caught_up())
    }

    /// As `tell`, again and again.
    pub fn follow(&mut self, stop: &Stop, listeners: &mut [&mut dyn Listener]) -> Result<()> {
        loop {
            self.tell(listeners)?;
            if !stop.sleep(PAUSE) {
                return Ok(());
            }
        }
    }

    fn in_words(&self, told: &Told, policy: &abi::Element, bans: &[Ban], epoch: SystemTime) -> Event {
        let event = &told.event;
        let key = key(event);
        let (flow, weight) = (Tuple::from(&key), Weight::new(event, &key));
        let class = &self.classes[usize::from(event.class_id)];
        let outcome = Outcome::from_code(event.outcome.into());
        let alert = Alert::new(event.class_id, class, outcome, &policy.policy);
        Event {
            timestamp: timestamp(epoch + Duration::from_nanos(event.time_ns)),
            flow_id: flow_id(&key),
            in_iface: self.interface.clone(),
            host: self.sensor.clone(),
            event_type: event_type(outcome, alert.as_ref()),
            alert,
            ban: Banned::new(event, &key, class, &policy.act, bans, epoch),
            wirewise: Judgement {
                class: class.clone(),
                action: policy.action(event.class_id.into(), event.action.into()),
                outcome,
                packets: event.packets,
                length: event.length,
                count: Some(weight.packets).filter(|count| *count > 1),
                source: weight.source.filter(|source| flow.src_ip != Some(*source)),
                proven: event.count & PROVEN != 0,
                answers: (!self.networks.is_empty())
                    .then(|| Answers::new(&self.networks, event.answers, event.changed)),
                features: self
                    .inputs
                    .iter()
                    .filter_map(|input| Some((input.name.clone(), *told.features.get(input.place)?)))
                    .collect(),
            },
            flow,
            weight,
        }
    }
}

fn bans(event: &abi::Event) -> bool {
    Outcome::from_code(event.outcome.into()) == Some(Outcome::Ban)
}

impl Banned {
    /// all : bans that may have begun with this event. epoch : when `time_ns` was zero.
    fn new(
        event: &abi::Event,
        key: &FlowKey,
        class: &str,
        policy: &abi::ActPolicy,
        all: &[Ban],
        epoch: SystemTime,
    ) -> Option<Self> {
        let steer = policy.steer.get(usize::from(event.class_id)).filter(|steer| steer.ban_ms != 0)?;
        let kind = policy.ban.get(usize::from(steer.ban_kind)).filter(|_| bans(event))?;
        let until_ns = event.time_ns.saturating_add(u64::from(steer.ban_ms) * 1_000_000);
        let ends = key.ends().map(|(address, _)| address);
        // A key of both directions does not say which end sent the packet, and others have one end only. The data path knew both.
        let fits = |ban: &&Ban| {
            let of = |end: Option<IpAddr>| end.is_some_and(|end| ban.source.contains(end));
            let to =
                |end: Option<IpAddr>| ban.destination.is_none() || end.is_none() || ban.destination == end;
            !ban.would && (of(ends[0]) && to(ends[1]) || of(ends[1]) && to(ends[0]))
        };
        let ban = all.iter().filter(fits).min_by_key(|ban| ban.until_ns.abs_diff(until_ns));
        Some(Self {
            source: ban.map(|ban| ban.source),
            destination: ban.and_then(|ban| ban.destination),
            by: Kind::from(kind).by(),
            for_ms: steer.ban_ms,
            until: timestamp(epoch + Duration::from_nanos(until_ns)),
            class: class.to_string(),
        })
    }
}

impl Weight {
    fn new(event: &abi::Event, key: &FlowKey) -> Self {
        let [first, second] = key.ends();
        let swapped = event.flags & abi::EVENT_SWAPPED != 0;
        let (source, destination) = if swapped { (second, first) } else { (first, second) };
        let service = Service { protocol: key.protocol_name(), port: destination.1 };
        Self {
            class_id: event.class_id,
            packets: event.count & !PROVEN,
            source: source.0,
            service: (service.protocol.is_some() || service.port.is_some()).then_some(service),
        }
    }
}

/// With microseconds and the time zone as digits.
pub fn timestamp(time: SystemTime) -> String {
    format!("{}+0000", humantime::format_rfc3339_micros(time).to_string().trim_end_matches('Z'))
}

/// The time that `timestamp` wrote.
pub fn moment(timestamp: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(&format!("{}Z", timestamp.strip_suffix("+0000")?)).ok()
}

fn key(event: &abi::Event) -> FlowKey {
    // 0 too where the key has no tunnel.
    let teid = Some(event.key.teid as u32).filter(|teid| *teid != 0);
    let key = &event.key.key;
    if event.ip_version != 4 {
        return FlowKey { teid, ..FlowKey::from(key) };
    }
    let first = |address: [u8; 16]| [address[0], address[1], address[2], address[3]];
    let short = FlowKey::from(&Key4 {
        source: first(key.source),
        destination: first(key.destination),
        source_port: key.source_port,
        destination_port: key.destination_port,
        protocol: key.protocol,
        vlans: key.vlans,
    });
    FlowKey { teid, ..short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_formats_are_those_of_eve() {
        let key = FlowKey {
            source: "66.35.250.204".parse().unwrap(),
            destination: "128.232.110.120".parse().unwrap(),
            source_port: 80,
            destination_port: 34855,
            protocol: 6,
            vlans: Vlans([9, 0x70, 0]),
            teid: None,
        };
        let wirewise = Judgement {
            class: "attack".to_string(),
            action: Some("drop".to_string()),
            outcome: Some(Outcome::Drop),
            packets: 3,
            length: 40,
            count: None,
            source: None,
            proven: false,
            answers: None,
            features: Vec::new(),
        };
        let event = Event {
            timestamp: timestamp(UNIX_EPOCH + Duration::new(1_071_580_904, 891_921_999)),
            flow_id: 5,
            in_iface: "eth0".to_string(),
            host: None,
            event_type: EVENT_TYPE,
            flow: Tuple::from(&key),
            alert: None,
            ban: None,
            wirewise,
            weight: Weight::default(),
        };
        let expected = concat!(
            r#"{"timestamp":"2003-12-16T13:21:44.891921+0000","flow_id":5,"in_iface":"eth0","event_type":"wirewise","#,
            r#""src_ip":"66.35.250.204","src_port":80,"dest_ip":"128.232.110.120","dest_port":34855,"proto":"TCP","vlan":[9,7],"#,
            r#""community_id":"1:LQU9qZlK+B5F3KDmev6m5PMibrg=","#,
            r#""wirewise":{"class":"attack","action":"drop","outcome":"drop","packets":3,"length":40}}"#
        );
        assert_eq!(serde_json::to_string(&event).unwrap(), expected);
    }

    #[test]
    fn a_timestamp_is_read_as_it_was_written() {
        let time = UNIX_EPOCH + Duration::new(1_071_580_904, 891_921_000);
        assert_eq!(moment(&timestamp(time)), Some(time));
        assert_eq!(moment("2003-12-16T13:21:44.891921Z"), None);
    }

    #[test]
    fn what_was_done_is_named() {
        let judged = |outcome, action: &str| Judgement {
            class: "attack".to_string(),
            action: Some(action.to_string()),
            outcome,
            packets: 3,
            length: 40,
            count: None,
            source: None,
            proven: false,
            answers: None,
            features: Vec::new(),
        };
        assert_eq!(judged(Some(Outcome::Acted), "dscp, mirror").happened(), "acted (dscp, mirror)");
        assert_eq!(judged(Some(Outcome::NotActed), "challenge").happened(), "not-acted (challenge)");
        assert_eq!(judged(Some(Outcome::WouldDrop), "drop").happened(), "would-drop");
        assert_eq!(judged(None, "drop").happened(), "unknown");
    }

    #[test]
    fn answers_of_a_bank_have_its_names() {
        let names = ["a", "b", "c"].map(str::to_string);
        let answers = Answers::new(&names, 0b1101, 0b0011);
        assert_eq!((answers.began, answers.ended), (vec!["a".to_string()], vec!["b".to_string()]));
        assert_eq!(answers.yes, ["a", "c"]);
    }

    #[test]
    fn what_the_key_has_not_is_left_out() {
        let key = FlowKey {
            source: "10.0.0.1".parse().unwrap(),
            destination: "0.0.0.0".parse().unwrap(),
            source_port: 0,
            destination_port: 0,
            protocol: 0,
            vlans: Vlans::default(),
            teid: None,
        };
        assert_eq!(serde_json::to_string(&Tuple::from(&key)).unwrap(), r#"{"src_ip":"10.0.0.1"}"#);
        let name = |protocol| FlowKey { protocol, ..key }.protocol_name();
        assert_eq!(
            [name(0), name(1), name(58), name(50)].map(Option::unwrap_or_default),
            ["", "ICMP", "IPv6-ICMP", "050"]
        );
    }
}
