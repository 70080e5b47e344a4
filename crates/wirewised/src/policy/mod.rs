// SPDX-License-Identifier: Apache-2.0
//! The policy: which class is dropped, limited or counted, when the model runs, and who is always let through.
//!
//! docs/policy.md describes the file. Reading it needs the classes of a bundle and no privilege; `Policy::to_abi`
//! turns it into the value of the map `ww_policy`.

pub mod act;
pub mod ban;
mod class;
pub mod deny;
pub mod evidence;
mod file;
mod normal;
pub mod pools;
mod selector;
pub mod tunnels;
mod values;
pub mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bytemuck::Zeroable;
use serde::Deserialize;

use crate::abi;
use crate::error::{Error, Result};
use crate::files;
use crate::files::yaml;
use crate::policy::act::forward::Forward;
use crate::policy::act::{ActionMap, Challenge, Encapsulate, Redirect, Steering};
use crate::policy::ban::Ban;
use crate::policy::class::{DEFAULT_BURST, class_policy, limit};
use crate::policy::deny::{Deny, DenyFile};
use crate::policy::evidence::{Evidence, EvidenceFile};
use crate::policy::file::{
    AllowFile, EventsFile, NameOr, PoolFile, SelectorFile, TriggerFile, TriggerParts, TunnelsFile, from_text,
};
use crate::policy::pools::Pool;
use crate::policy::selector::Selector;
use crate::policy::tunnels::Tunnel;
use crate::policy::words::Target;
use crate::text::nearest::{choose, did_you_mean};
use crate::text::units::{Nanoseconds, Rate};

pub use class::{ClassAction, ClassPolicy, Limit};
pub use values::{Port, Prefix, Switch};

/// A policy file is text that a person writes: more than this is something else.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file, before anything in it is checked against a bundle.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    version: u32,
    classes: Option<BTreeMap<String, NameOr<ActionMap>>>,
    trigger: Option<TriggerFile>,
    allow: Option<AllowFile>,
    deny: Option<DenyFile>,
    evidence: Option<EvidenceFile>,
    #[serde(default, deserialize_with = "from_text")]
    enforce_for: Option<Nanoseconds>,
    malformed: Option<String>,
    essential: Option<String>,
    pools: Option<BTreeMap<String, PoolFile>>,
    tunnels: Option<TunnelsFile>,
    events: Option<EventsFile>,
    metadata: Option<Switch>,
    verdicts: Option<Switch>,
    next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trigger {
    Every,
    /// Packet numbers of a flow, from 1 to `abi::MAX_TRIGGER_PACKET`.
    Packets(BTreeSet<u32>),
    Interval(Nanoseconds),
    FirstN(u32),
    /// Packets that any of these selects, and each packet of a flow whose number `every` divides.
    Headers {
        any: Vec<Selector>,
        every: Option<u32>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The class names of the bundle; the index is the class id.
    pub classes: Vec<String>,
    /// One for each class.
    pub actions: Vec<ClassPolicy>,
    pub trigger: Trigger,
    pub prefixes: BTreeSet<Prefix>,
    pub ports: BTreeSet<Port>,
    pub enforce_for: Option<Nanoseconds>,
    pub drop_malformed: bool,
    /// Who is dropped before anything is computed; `None`: there is no list, and `wirewised deny` can add nothing to it.
    pub deny: Option<Deny>,
    /// What it takes of a sender's other flows before a class counts; `None`: nothing.
    pub evidence: Option<Evidence>,
    /// Source ports of who is always let through.
    pub source_ports: BTreeSet<Port>,
    /// Neighbour discovery, DHCP and path MTU discovery are judged like every packet.
    pub drop_essential: bool,
    /// Packets of the host's own connections, and of those it has accepted, are never dropped.
    pub established: bool,
    pub events: Limit,
    /// What an event is of.
    pub each: abi::Each,
    /// How often a flow or source that goes on has an event.
    pub event_update: Nanoseconds,
    /// Events have the features of their packet.
    pub event_features: bool,
    /// In the order of their names; each has a class that goes there.
    pub pools: Vec<Pool>,
    /// Those that are known from then on; `None`: as before.
    pub tunnels: Option<Vec<Tunnel>>,
    /// Packets that pass have their verdict in front, for programs of others.
    pub metadata: bool,
    /// The map `ww_verdicts` has the class of each flow.
    pub verdicts: bool,
    /// The pin of somebody else's program, to which what passes goes on.
    pub next: Option<PathBuf>,
}

/// How often a flow or source that goes on has an event, unless the policy says it.
const EVENT_UPDATE: Nanoseconds = Nanoseconds(10_000_000_000);

pub const NOTHING_TO_ENFORCE: &str = "--mode enforce needs --policy FILE: without a policy every class passes and there is \
                                      nothing to enforce (such as `version: 1` and `classes: {NAME: drop}`)";

impl Policy {
    /// Reads the policy of a command on captures; in observe mode it may be left out.
    pub fn given(path: Option<&Path>, classes: &[String], mode: abi::Mode) -> Result<Self> {
        match path {
            Some(path) => Self::load(path, classes),
            None if mode == abi::Mode::Enforce => Err(Error::input(NOTHING_TO_ENFORCE)),
            None => Ok(Self::all_pass(classes)),
        }
    }

    /// What holds when no policy file is given: every class passes, every packet is inferred, nobody is exempt.
    pub fn all_pass(classes: &[String]) -> Self {
        Self {
            classes: classes.to_vec(),
            actions: vec![ClassPolicy::PASS; classes.len()],
            trigger: Trigger::Every,
            prefixes: BTreeSet::new(),
            ports: BTreeSet::new(),
            deny: None,
            evidence: None,
            enforce_for: None,
            drop_malformed: false,
            source_ports: BTreeSet::new(),
            drop_essential: false,
            established: false,
            events: Limit { rate: Rate::per_second(100), burst: DEFAULT_BURST },
            each: abi::Each::Packet,
            event_update: EVENT_UPDATE,
            event_features: false,
            pools: Vec::new(),
            tunnels: None,
            metadata: false,
            verdicts: false,
            next: None,
        }
    }

    pub fn load(path: &Path, classes: &[String]) -> Result<Self> {
        let name = path.display();
        let bytes = files::read(path, MAX_FILE_BYTES)?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            Error::input(format_args!("{name}: not UTF-8 text (byte {})", error.valid_up_to()))
        })?;
        Self::parse_in(text, classes, path.parent())
            .map_err(|message| Error::input(format_args!("{name}: {message}")))
    }

    /// Reads the text of a policy file. The error names the rule that was broken, without the file's name.
    pub fn parse(text: &str, classes: &[String]) -> std::result::Result<Self, String> {
        Self::parse_in(text, classes, None)
    }

    /// folder : where files that it names are looked for.
    fn parse_in(text: &str, classes: &[String], folder: Option<&Path>) -> std::result::Result<Self, String> {
        let file: PolicyFile = yaml::from_yaml(text)?;
        if file.version != 1 {
            return Err(format!("version {} is not supported; this wirewised reads version 1", file.version));
        }
        let allow = file.allow.unwrap_or_default();
        let event_features = file.events.as_ref().and_then(|file| file.features).unwrap_or_default().0;
        let (events, each, event_update) = events(file.events)?;
        let pools = pools::pools(file.pools)?;
        let actions = class_actions(file.classes.unwrap_or_default(), classes, &pools)?;
        ban::check(&bans_of(&actions))?;
        let idle = |pool: &&Pool| !actions.iter().any(|class| class.action.goes_to(&pool.name));
        if let Some(idle) = pools.iter().find(idle) {
            return Err(format!(
                "pools: {}: no class goes there; give one `backend: {}`, or leave the pool out",
                idle.name, idle.name
            ));
        }
        let tunnels = tunnels::of_policy(file.tunnels, folder)?;
        let goes_through = |class: &ClassPolicy| matches!(&class.action, ClassAction::Steer(it) if it.kinds() & abi::STEER_THROUGH_TUNNELS != 0);
        if tunnels.is_some() && !actions.iter().any(goes_through) {
            return Err(
                "tunnels: no class goes through them; give one `decapsulate: gtp-u` or `encapsulate: gtp-u`, or leave them out"
                    .to_string(),
            );
        }
        Ok(Self {
            classes: classes.to_vec(),
            actions,
            pools,
            tunnels,
            trigger: trigger(file.trigger)?,
            prefixes: allow.prefixes.unwrap_or_default().into_iter().collect(),
            ports: allow.ports.unwrap_or_default().into_iter().collect(),
            deny: file.deny.map(|file| deny::of_policy(file, folder)).transpose()?,
            evidence: file.evidence.map(evidence::of_policy).transpose()?,
            enforce_for: file.enforce_for,
            drop_malformed: drops("malformed", file.malformed)?,
            source_ports: allow.source_ports.unwrap_or_default().into_iter().collect(),
            drop_essential: drops("essential", file.essential)?,
            established: allow.established.unwrap_or_default().0,
            events,
            each,
            event_update,
            event_features,
            metadata: file.metadata.unwrap_or_default().0,
            verdicts: file.verdicts.unwrap_or_default().0,
            next: file.next.map(next).transpose()?,
        })
    }

    /// Refuses evidence by something that is not in the flow key. key : of the bundle's feature set.
    pub fn check_key(&self, key: &str) -> Result<()> {
        match self.evidence.and_then(|evidence| Some((evidence.by(), evidence.lacks(key)?))) {
            Some((by, lacking)) => Err(Error::input(format!(
                "policy: evidence: by: {by} needs {lacking} in the flow key, and the bundle's is {key}; choose another `by`, or leave `evidence` out"
            ))),
            None => Ok(()),
        }
    }

    /// The values of the maps `ww_policy` and `ww_act_policy`.
    ///
    /// now_ns : CLOCK_BOOTTIME, or the captured time; `enforce_for` starts there.
    pub fn to_abi(&self, now_ns: u64, mode: abi::Mode) -> abi::Element {
        let abi::Element { mut policy, mut act } = abi::Element::zeroed();
        policy.mode = mode.code();
        if let Some(duration) = self.enforce_for {
            policy.enforce_until_ns = now_ns.saturating_add(duration.0);
        }
        policy.allow = self.allow_bits();
        policy.drop_malformed = self.drop_malformed.into();
        match &self.trigger {
            Trigger::Every => policy.trigger = abi::Trigger::Every.code(),
            Trigger::Packets(packets) => {
                policy.trigger = abi::Trigger::Packets.code();
                for packet in packets {
                    policy.trigger_packets[*packet as usize / 64] |= 1 << (packet % 64);
                }
            }
            Trigger::Interval(interval) => {
                policy.trigger = abi::Trigger::Interval.code();
                policy.trigger_interval_ns = interval.0;
            }
            Trigger::FirstN(n) => {
                policy.trigger = abi::Trigger::FirstN.code();
                policy.trigger_first_n = *n;
            }
            Trigger::Headers { any, every } => {
                policy.trigger = abi::Trigger::Headers.code();
                policy.trigger_every = every.unwrap_or(0);
                policy.selector.iter_mut().zip(any).for_each(|(element, it)| *element = it.to_abi());
            }
        }
        (policy.event_interval_ns, policy.event_burst_ns) = self.events.to_abi();
        (act.each, act.tell_every_ns) = (self.each.code() as u16, self.event_update.0);
        act.inputs = self.event_features.into();
        let elements = policy.class_policy.iter_mut().zip(&mut act.steer);
        for ((element, steer), class) in elements.zip(&self.actions) {
            element.action = class.action.code().code();
            element.after = class.after;
            element.severity = class.severity.map_or(0, u32::from);
            match &class.action {
                ClassAction::RateLimit(limit) => (element.interval_ns, element.burst_ns) = limit.to_abi(),
                ClassAction::Steer(steering) => *steer = steering.to_abi(),
                ClassAction::Pass | ClassAction::Drop | ClassAction::Count => {}
            }
        }
        (act.metadata, act.verdicts) = (self.metadata.into(), self.verdicts.into());
        ban::write(&bans_of(&self.actions), &mut act);
        if self.actions.iter().any(|class| class.after > 1) {
            policy.rules |= abi::RULE_STREAKS;
        }
        if let Some(evidence) = self.evidence {
            policy.rules |= abi::RULE_EVIDENCE;
            act.evidence = evidence.to_abi();
        }
        abi::Element { policy, act }
    }

    fn allow_bits(&self) -> u32 {
        let mut bits = 0;
        for prefix in &self.prefixes {
            bits |= if prefix.address.is_ipv4() { abi::ALLOW_IPV4 } else { abi::ALLOW_IPV6 };
        }
        if !self.ports.is_empty() {
            bits |= abi::ALLOW_PORTS;
        }
        if !self.source_ports.is_empty() {
            bits |= abi::ALLOW_SOURCE_PORTS;
        }
        // Where packets come to their receivers the data path need not look for these two.
        if self.takes_away() && !self.drop_essential {
            bits |= abi::ALLOW_ESSENTIAL;
        }
        if self.may_drop() && self.established {
            bits |= abi::ALLOW_ESTABLISHED;
        }
        if self.deny.is_some() {
            bits |= abi::ALLOW_UNLESS_DENIED;
        }
        if self.deny.as_ref().is_some_and(|deny| !deny.ports.is_empty()) {
            bits |= abi::ALLOW_UNLESS_PORT_DENIED;
        }
        if self.bans().next().is_some() {
            bits |= abi::ALLOW_UNLESS_BANNED;
        }
        bits
    }

    /// The map `ww_allow_ports`: TCP's words, then UDP's; then the same of source ports.
    pub fn port_words(&self) -> Vec<u64> {
        [port_words(&self.ports), port_words(&self.source_ports)].concat()
    }

    /// The map `ww_deny_ports`.
    pub fn denied_port_words(&self) -> Vec<u64> {
        port_words(self.deny.iter().flat_map(|deny| &deny.ports))
    }

    /// Whether packets may be dropped, or sent elsewhere, other than malformed ones.
    fn takes_away(&self) -> bool {
        self.may_drop() || self.steering().any(|(_, steering)| steering.takes_away())
    }

    /// The classes that are steered, by name.
    pub fn steering(&self) -> impl Iterator<Item = (&str, &Steering)> {
        self.classes.iter().zip(&self.actions).filter_map(|(class, policy)| match &policy.action {
            ClassAction::Steer(steering) => Some((class.as_str(), &**steering)),
            _ => None,
        })
    }

    /// As much of it as a plane can do that steers by these `abi::STEER_*` bits; classes that ask for more pass.
    pub fn limited_to(&self, steers: u32) -> Self {
        let mut policy = self.clone();
        for class in &mut policy.actions {
            if matches!(&class.action, ClassAction::Steer(steering) if steering.kinds() & !steers != 0) {
                *class = ClassPolicy::PASS;
            }
        }
        policy.tunnels = None;
        policy.metadata &= steers & abi::STEER_METADATA != 0;
        policy.verdicts &= steers & abi::STEER_VERDICTS != 0;
        policy.next = None;
        policy
    }

    /// The classes with bans, by name.
    pub fn bans(&self) -> impl Iterator<Item = (&str, Ban)> {
        self.classes
            .iter()
            .zip(&self.actions)
            .filter_map(|(class, policy)| Some((class.as_str(), policy.ban?)))
    }

    /// What all classes need, a deny list, bans, evidence, events that are not of packets or have features, and what applies to every packet: `abi::STEER_*` bits.
    pub fn steering_kinds(&self) -> u32 {
        let denies = if self.deny.is_some() { abi::STEER_DENY } else { 0 };
        let tells = if self.each == abi::Each::Packet { 0 } else { abi::STEER_TELL };
        let inputs = if self.event_features { abi::STEER_INPUTS } else { 0 };
        let bans = if self.bans().next().is_some() { abi::STEER_BAN } else { 0 };
        let weighs = if self.evidence.is_some() { abi::STEER_EVIDENCE } else { 0 };
        let of_none = denies | bans | weighs | tells | inputs | self.describes();
        self.steering().fold(of_none, |kinds, (_, steering)| kinds | steering.kinds())
    }

    /// What applies to every packet: `abi::STEER_*` bits.
    pub fn describes(&self) -> u32 {
        let metadata = if self.metadata { abi::STEER_METADATA } else { 0 };
        metadata | if self.verdicts { abi::STEER_VERDICTS } else { 0 }
    }

    /// Whether a host has to be asked if it can do what the policy says.
    pub fn goes_beyond_verdicts(&self) -> bool {
        self.steering_kinds() != 0 || self.next.is_some()
    }

    /// The interfaces that packets go to, or copies of them, to be looked up; each with the key that names it.
    pub fn targets_mut(&mut self) -> impl Iterator<Item = (&'static str, &mut Target)> {
        self.steering_mut().flat_map(|steering| {
            let mirror = steering.mirror.as_mut().map(|mirror| ("mirror", &mut mirror.target));
            let redirect = steering.redirect.as_mut().and_then(Redirect::interface_mut);
            redirect.map(|target| ("redirect", target)).into_iter().chain(mirror)
        })
    }

    /// Of the classes that are forwarded, what is to be looked up.
    pub fn forwards_mut(&mut self) -> impl Iterator<Item = &mut Forward> {
        self.steering_mut().filter_map(|steering| steering.forward.as_mut())
    }

    /// The classes whose packets go into tunnels.
    pub fn encapsulating_mut(&mut self) -> impl Iterator<Item = &mut Encapsulate> {
        self.steering_mut().filter_map(|steering| steering.encapsulate.as_mut())
    }

    /// The classes whose packets are challenged.
    pub fn challenging_mut(&mut self) -> impl Iterator<Item = &mut Challenge> {
        self.steering_mut().filter_map(|steering| steering.challenge.as_mut())
    }

    /// The interfaces that forwarded packets may leave by at XDP.
    pub fn ways(&self) -> impl Iterator<Item = u32> {
        let forwards = self.steering().filter_map(|(_, steering)| steering.forward.as_ref());
        forwards.flat_map(|forward| forward.ways.iter().copied())
    }

    /// Stations whose port is certain, as in the map `ww_fixed`.
    pub fn stations(&self) -> BTreeMap<Vec<u8>, u32> {
        let bridges = self.steering().filter_map(|(_, steering)| steering.forward.as_ref()?.bridge.as_ref());
        let stations = bridges.flat_map(|bridge| bridge.stations().map(|station| (bridge.id(), station)));
        stations
            .map(|(bridge, (address, port))| {
                let key = abi::StationKey { bridge, address: address.0, reserved: 0 };
                (bytemuck::bytes_of(&key).to_vec(), port)
            })
            .collect()
    }

    fn steering_mut(&mut self) -> impl Iterator<Item = &mut Steering> {
        self.actions.iter_mut().filter_map(|class| match &mut class.action {
            ClassAction::Steer(steering) => Some(&mut **steering),
            _ => None,
        })
    }

    /// Whether packets may be dropped, other than malformed ones.
    fn may_drop(&self) -> bool {
        self.deny.is_some() || self.actions.iter().any(|class| class.action.code().may_drop())
    }

    /// The classes whose packets may be dropped, or sent elsewhere, after fewer verdicts in a row.
    pub fn acts_before(&self, after: u32) -> Vec<&str> {
        let hasty = |class: &ClassPolicy| class.action.takes_away() && class.after < after;
        let classes = self.classes.iter().zip(&self.actions).filter(|(_, class)| hasty(class));
        classes.map(|(name, _)| name.as_str()).collect()
    }

    /// Whether every packet passes as it is, in any mode. Events, evidence and the map of verdicts change no packet.
    pub fn does_nothing(&self) -> bool {
        let steers = self.steering().next().is_some() || self.metadata || self.next.is_some();
        !self.drop_malformed && !self.may_drop() && !steers
    }
}

/// By class id.
fn bans_of(actions: &[ClassPolicy]) -> Vec<Option<Ban>> {
    actions.iter().map(|class| class.ban).collect()
}

/// Ports as bits: words of TCP, then of UDP.
fn port_words<'a>(ports: impl IntoIterator<Item = &'a Port>) -> Vec<u64> {
    let all = abi::ALLOW_PORT_WORDS as usize;
    let mut words = vec![0; 2 * all];
    for rule in ports {
        let (word, bit) = (usize::from(rule.port) / 64, 1u64 << (rule.port % 64));
        if rule.tcp {
            words[word] |= bit;
        }
        if rule.udp {
            words[all + word] |= bit;
        }
    }
    words
}

fn drops(key: &str, choice: Option<String>) -> std::result::Result<bool, String> {
    match choice.as_deref() {
        None | Some("pass") => Ok(false),
        Some("drop") => Ok(true),
        Some(other) => Err(format!("{key}: unknown choice '{other}'; {}", choose(other, &["pass", "drop"]))),
    }
}

fn class_actions(
    file: BTreeMap<String, NameOr<ActionMap>>,
    classes: &[String],
    pools: &[Pool],
) -> std::result::Result<Vec<ClassPolicy>, String> {
    let mut actions = vec![ClassPolicy::PASS; classes.len()];
    for (name, action) in file {
        let Some(class_id) = classes.iter().position(|class| *class == name) else {
            let (meant, all) = (did_you_mean(&name, classes), classes.join(", "));
            return Err(format!("classes: unknown class '{name}'; {meant}the bundle has: {all}"));
        };
        let class =
            class_policy(action.mapping(), pools).map_err(|message| format!("classes: {name}: {message}"))?;
        if class_id == 0 && class.after > 1 {
            return Err(format!(
                "classes: {name}: after: this is the class that flows count as until another has enough verdicts in a row; \
                 give `after` to the other classes"
            ));
        }
        actions[class_id] = class;
    }
    Ok(actions)
}

fn trigger(file: Option<TriggerFile>) -> std::result::Result<Trigger, String> {
    const FORMS: &str =
        "every, {packets: [1, 2, 4]}, {interval: 100ms}, {first-n: 8} or {any: [{port: 53}], every: 10}";
    let Some(file) = file else { return Ok(Trigger::Every) };
    let TriggerParts { name, packets, interval, first_n, any, every } = file.parts();
    match (name, packets, interval, first_n, any, every) {
        (Some(name), None, None, None, None, None) if name == "every" => Ok(Trigger::Every),
        (None, Some(packets), None, None, None, None) => {
            let last = abi::MAX_TRIGGER_PACKET;
            if let Some(wrong) = packets.iter().find(|packet| !(1..=last).contains(*packet)) {
                return Err(format!(
                    "trigger: packets: {wrong} is out of range; packets of a flow are 1 to {last}"
                ));
            }
            if packets.is_empty() {
                return Err("trigger: packets: the list is empty, so the model would never run".to_string());
            }
            Ok(Trigger::Packets(packets.into_iter().collect()))
        }
        (None, None, Some(interval), None, None, None) => Ok(Trigger::Interval(interval)),
        (None, None, None, Some(0), None, None) => {
            Err("trigger: first-n: 0, so the model would never run".to_string())
        }
        (None, None, None, Some(n), None, None) => Ok(Trigger::FirstN(n)),
        (None, None, None, None, None, Some(0)) | (None, None, None, None, Some(_), Some(0)) => {
            Err("trigger: every: 0 names no packet; leave it out, or write 1 or more".to_string())
        }
        (None, None, None, None, any, every) if any.is_some() || every.is_some() => {
            headers(any.unwrap_or_default(), every)
        }
        (Some(name), ..) => Err(format!("trigger: unknown trigger '{name}'; write {FORMS}")),
        _ => Err(format!("trigger: needs exactly one of its forms: {FORMS}")),
    }
}

fn next(path: String) -> std::result::Result<PathBuf, String> {
    if path.starts_with('/') && !path.contains('\0') {
        return Ok(path.into());
    }
    Err(format!(
        "next: '{path}' is not a full path; give that of a pinned program, such as /sys/fs/bpf/firewall"
    ))
}

/// A trigger by headers.
fn headers(any: Vec<SelectorFile>, every: Option<u32>) -> std::result::Result<Trigger, String> {
    if any.is_empty() && every.is_none() {
        return Err("trigger: any: the list is empty, so the model would never run".to_string());
    }
    if any.len() > abi::SELECTORS {
        return Err(format!("trigger: any: {} selectors; at most {} fit", any.len(), abi::SELECTORS));
    }
    let selectors = any.into_iter().zip(1..).map(|(file, number)| Selector::read(file, number));
    Ok(Trigger::Headers { any: selectors.collect::<std::result::Result<_, _>>()?, every })
}

/// Their rate, what each is of, and how often what goes on has another.
fn events(file: Option<EventsFile>) -> std::result::Result<(Limit, abi::Each, Nanoseconds), String> {
    let file = file.unwrap_or_default();
    let limit = limit(file.rate.unwrap_or(Rate::per_second(100)), file.burst)
        .map_err(|message| format!("events: {message}"))?;
    let name = file.each.as_deref().unwrap_or(abi::Each::Packet.name());
    let each = abi::Each::ALL.iter().copied().find(|each| each.name() == name).ok_or_else(|| {
        let known: Vec<_> = abi::Each::ALL.iter().map(|each| each.name()).collect();
        format!("events: each: unknown choice '{name}'; {}", choose(name, &known))
    })?;
    match file.update {
        Some(_) if each == abi::Each::Packet => {
            Err("events: update: every packet has an event; it belongs to `each: flow` or `each: source`"
                .to_string())
        }
        update => Ok((limit, each, update.unwrap_or(EVENT_UPDATE))),
    }
}
