// SPDX-License-Identifier: Apache-2.0
//! Where events go: a file, sockets of collectors, syslog, the journal, an HTTP server; and bans, also to CrowdSec and BGP. Each output has a
//! thread and a queue with an end, so one that does not keep up costs its own events, and neither packets nor the events of the others.

mod bgp;
mod crowdsec;
mod file;
mod journald;
pub mod post;
pub mod receiver;
pub mod records;
mod syslog;
mod webhook;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Queue, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use reqwest::Url;
use serde::Serialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use socket2::Type;
use tokio::runtime::{Builder, Runtime};
use wirewised::abi::Outcome;
use wirewised::attachment::pins::Root;
use wirewised::error::{Error, Result};
use wirewised::policy::Prefix;
use wirewised::reading::events::{self as agent, Event};
use wirewised::text::nearest::choose;

use crate::config::Place;
use crate::events::{Hears, Told, follow};
use crate::evidence::Desk;
use crate::keeper::Board;
use crate::requests;
use crate::seldom::Seldom;
use receiver::{Address, Receiver};
use records::{Kind, Often, Reporter};

/// Events that may wait for an output.
const WAITING: usize = 4096;
/// How soon a receiver that is not there is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long outputs may take for what waits when the service ends.
const TO_END: Duration = Duration::from_secs(1);
/// Each is a thread.
const MOST: usize = 16;
/// Longer than all events of one time.
const LAST_LINES: u64 = 64 << 10;
/// A severity of syslog.
const INFORMATION: u8 = 6;

/// What is sent: an event, or a record of another kind.
struct Sent {
    json: String,
    /// As EVE writes it.
    timestamp: String,
    kind: &'static str,
    host: Option<String>,
    /// As syslog counts it.
    severity: u8,
    event: Option<Event>,
}

impl Sent {
    fn event(event: &Event, json: &str) -> Self {
        Self {
            json: json.to_string(),
            timestamp: event.timestamp.clone(),
            kind: event.event_type,
            host: event.host.clone(),
            severity: severity(event),
            event: Some(event.clone()),
        }
    }

    fn record(kind: Kind, record: &Value) -> Self {
        Self {
            json: record.to_string(),
            timestamp: record["timestamp"].as_str().unwrap_or_default().to_string(),
            kind: kind.name(),
            host: record["host"].as_str().map(str::to_string),
            severity: INFORMATION,
            event: None,
        }
    }
}

/// The `events` of the configuration: one output, or a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outputs(Vec<Output>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Output {
    to: Target,
    /// What it gets beside events.
    records: Vec<Kind>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    File { path: PathBuf, rotate_bytes: u64, keep: u32 },
    UnixStream(PathBuf),
    UnixDatagram(PathBuf),
    Syslog { to: Address, facility: u8 },
    Journald(PathBuf),
    Webhook { url: Url, token_file: Option<PathBuf>, only: Vec<Outcome> },
    Crowdsec(crowdsec::Machine),
    Bgp(bgp::Wish),
}

/// As it is written: flat, so that an unknown key is answered with the one that was meant.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// One JSON object a line. Opened again at SIGHUP, as logrotate asks for.
    file: Option<PathBuf>,
    /// Size at which a new file is begun; the old one becomes `FILE.1`.
    rotate_bytes: Option<u64>,
    /// How many old files stay.
    keep: Option<u32>,
    /// A collector's socket, as in Suricata's `filetype`.
    unix_stream: Option<PathBuf>,
    unix_dgram: Option<PathBuf>,
    /// A socket's path, `udp://ADDRESS:PORT` or `tcp://ADDRESS:PORT`.
    syslog: Option<String>,
    facility: Option<String>,
    /// The journal's socket.
    journald: Option<PathBuf>,
    /// Whose address each event is sent to by HTTP.
    webhook: Option<String>,
    /// A file with the token that its requests carry.
    token_file: Option<PathBuf>,
    /// Outcomes whose events it gets; without it, all events.
    only: Option<Vec<String>>,
    /// What it gets beside events.
    records: Option<Vec<String>>,
    /// CrowdSec's local API, which gets bans as alerts.
    crowdsec: Option<String>,
    /// By which name and password.
    machine: Option<String>,
    password_file: Option<PathBuf>,
    /// Certificates that sign the local API's, beside those that the system trusts.
    ca_file: Option<PathBuf>,
    /// Where gobgpd listens, which announces bans.
    bgp: Option<String>,
    /// As `blackhole` or `flowspec`.
    routes: Option<String>,
    /// How many routes there are at most.
    most: Option<usize>,
    /// Prefixes that are never announced.
    never: Option<Vec<Prefix>>,
}

impl Written {
    fn output(self) -> std::result::Result<Output, String> {
        let records = self.records()?;
        let kinds = [
            ("file", self.file.is_some()),
            ("unix_stream", self.unix_stream.is_some()),
            ("unix_dgram", self.unix_dgram.is_some()),
            ("syslog", self.syslog.is_some()),
            ("journald", self.journald.is_some()),
            ("webhook", self.webhook.is_some()),
            ("crowdsec", self.crowdsec.is_some()),
            ("bgp", self.bgp.is_some()),
        ];
        let given: Vec<_> = kinds.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name).collect();
        let [kind] = given[..] else {
            let names = kinds.map(|(name, _)| format!("`{name}`")).join(", ");
            let had = if given.is_empty() { "none".to_string() } else { given.join(" and ") };
            return Err(format!(
                "an output has one of {names}; this one has {had}; several outputs are a list"
            ));
        };
        for (key, is_given, of) in [
            ("rotate_bytes", self.rotate_bytes.is_some(), "file"),
            ("keep", self.keep.is_some(), "file"),
            ("facility", self.facility.is_some(), "syslog"),
            ("token_file", self.token_file.is_some(), "webhook"),
            ("only", self.only.is_some(), "webhook"),
            ("machine", self.machine.is_some(), "crowdsec"),
            ("password_file", self.password_file.is_some(), "crowdsec"),
            ("ca_file", self.ca_file.is_some(), "crowdsec"),
            ("routes", self.routes.is_some(), "bgp"),
            ("most", self.most.is_some(), "bgp"),
            ("never", self.never.is_some(), "bgp"),
        ] {
            if is_given && kind != of {
                return Err(format!("`{key}` is for `{of}`, not for `{kind}`"));
            }
        }
        if self.records.is_some() && ["crowdsec", "bgp"].contains(&kind) {
            return Err(format!("`{kind}` gets bans, and no `records`"));
        }
        let rotate_bytes = self.rotate_bytes.unwrap_or(100_000_000);
        if rotate_bytes < LAST_LINES {
            return Err(format!("`rotate_bytes` must be {LAST_LINES} or more"));
        }
        let facility = self.facility.as_deref().unwrap_or("daemon");
        let facility = syslog::FACILITIES.iter().position(|name| *name == facility).ok_or_else(|| {
            format!("no facility is called '{facility}'; {}", choose(facility, syslog::FACILITIES))
        })?;
        let keep = self.keep.unwrap_or(5);
        let file = self.file.map(|path| Target::File { path, rotate_bytes, keep });
        let syslog = self.syslog.as_deref().map(str::parse).transpose();
        let syslog = syslog.map_err(|why: String| format!("`syslog`: {why}"))?;
        let webhook = self.webhook.as_deref().map(|url| hook(url, self.token_file, self.only)).transpose()?;
        let crowdsec = self.crowdsec.as_deref();
        let crowdsec =
            crowdsec.map(|url| machine(url, self.machine, self.password_file, self.ca_file)).transpose()?;
        let bgp = self.bgp.as_deref();
        let bgp = bgp.map(|to| announced(to, self.routes.as_deref(), self.most, self.never)).transpose()?;
        let to = file
            .or(self.unix_stream.map(Target::UnixStream))
            .or(self.unix_dgram.map(Target::UnixDatagram))
            .or(syslog.map(|to| Target::Syslog { to, facility: facility as u8 }))
            .or(self.journald.map(Target::Journald))
            .or(webhook)
            .or(crowdsec)
            .or(bgp)
            .ok_or_else(|| format!("`{kind}` is empty"))?;
        Ok(Output { to, records })
    }

    fn records(&self) -> std::result::Result<Vec<Kind>, String> {
        let kind = |name: &String| {
            Kind::ALL.iter().copied().find(|kind| kind.name() == name).ok_or_else(|| {
                let names = Kind::ALL.map(Kind::name);
                format!("`records`: '{name}' is unknown; {}", choose(name, &names))
            })
        };
        self.records.iter().flatten().map(kind).collect()
    }
}

fn hook(
    written: &str,
    token_file: Option<PathBuf>,
    only: Option<Vec<String>>,
) -> std::result::Result<Target, String> {
    let said = |why: String| format!("`webhook: {written}`: {why}");
    let url: Url =
        written.parse().map_err(|error| said(format!("{error}; write such as https://HOST/PATH")))?;
    post::check(&url, "token_file", token_file.is_some()).map_err(said)?;
    let outcome = |name: &String| {
        Outcome::ALL.iter().copied().find(|outcome| outcome.name() == name).ok_or_else(|| {
            let names: Vec<_> = Outcome::ALL.iter().map(|outcome| outcome.name()).collect();
            format!("`only`: no outcome is called '{name}'; {}", choose(name, &names))
        })
    };
    let only = only.unwrap_or_default().iter().map(outcome).collect::<std::result::Result<_, _>>()?;
    Ok(Target::Webhook { url, token_file, only })
}

fn machine(
    written: &str,
    name: Option<String>,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
) -> std::result::Result<Target, String> {
    let said = |why: String| format!("`crowdsec: {written}`: {why}");
    let url =
        written.parse().map_err(|error| said(format!("{error}; write such as http://127.0.0.1:8080")))?;
    let (Some(name), Some(password_file)) = (name, password_file) else {
        let why = "needs `machine` and `password_file`; `cscli machines add NAME --password PASSWORD -f /dev/null` makes them";
        return Err(said(why.to_string()));
    };
    let machine = crowdsec::Machine { url, name, password_file, ca_file };
    machine.check().map_err(said)?;
    Ok(Target::Crowdsec(machine))
}

fn announced(
    written: &str,
    routes: Option<&str>,
    most: Option<usize>,
    never: Option<Vec<Prefix>>,
) -> std::result::Result<Target, String> {
    let forms = [("blackhole", bgp::Form::Blackhole), ("flowspec", bgp::Form::Flowspec)];
    let routes = routes.unwrap_or("blackhole");
    let form = forms.iter().find(|(name, _)| *name == routes).map(|(_, form)| *form);
    Ok(Target::Bgp(bgp::Wish {
        target: written.parse().map_err(|why| format!("`bgp`: {why}"))?,
        form: form.ok_or_else(|| {
            format!("`routes`: '{routes}'; {}", choose(routes, &forms.map(|(name, _)| name)))
        })?,
        most: most.unwrap_or(bgp::MOST),
        never: never.unwrap_or_default(),
    }))
}

impl<'de> Deserialize<'de> for Outputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct OneOrMore;
        impl<'de> Visitor<'de> for OneOrMore {
            type Value = Outputs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an output, such as {file: eve.json}, or a list of outputs")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> std::result::Result<Outputs, A::Error> {
                let written = Written::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Outputs(vec![of(written)?]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Outputs, A::Error> {
                let mut outputs = Vec::new();
                while let Some(written) = list.next_element::<Written>()? {
                    outputs.push(of(written)?);
                }
                Ok(Outputs(outputs))
            }
        }
        fn of<E: serde::de::Error>(written: Written) -> std::result::Result<Output, E> {
            written.output().map_err(|why| E::custom(format!("`events`: {why}")))
        }
        deserializer.deserialize_any(OneOrMore)
    }
}

impl Target {
    /// The paths that it names.
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        match self {
            Self::File { path, .. }
            | Self::UnixStream(path)
            | Self::UnixDatagram(path)
            | Self::Syslog { to: Address::Unix(path), .. }
            | Self::Journald(path) => vec![path],
            Self::Webhook { token_file, .. } => token_file.iter_mut().collect(),
            Self::Crowdsec(machine) => {
                machine.ca_file.iter_mut().chain([&mut machine.password_file]).collect()
            }
            Self::Syslog { .. } | Self::Bgp(_) => Vec::new(),
        }
    }

    /// Whether it gets an event.
    fn wants(&self, event: &Event) -> bool {
        match self {
            Self::Crowdsec(_) | Self::Bgp(_) => event.wirewise.outcome == Some(Outcome::Ban),
            Self::Webhook { only, .. } if !only.is_empty() => {
                event.wirewise.outcome.is_some_and(|outcome| only.contains(&outcome))
            }
            _ => true,
        }
    }

    /// Whether it only gets events of interfaces that the service keeps: others hear of them, and act by them.
    fn is_about_own(&self) -> bool {
        matches!(self, Self::Crowdsec(_) | Self::Bgp(_))
    }

    /// Its key in the configuration, and where it leads.
    fn name(&self) -> (&'static str, String) {
        let shown = |path: &Path| path.display().to_string();
        match self {
            Self::File { path, .. } => ("file", shown(path)),
            Self::UnixStream(path) => ("unix_stream", shown(path)),
            Self::UnixDatagram(path) => ("unix_dgram", shown(path)),
            Self::Syslog { to, .. } => ("syslog", to.to_string()),
            Self::Journald(path) => ("journald", shown(path)),
            Self::Webhook { url, .. } => ("webhook", requests::shown(url)),
            Self::Crowdsec(machine) => ("crowdsec", requests::shown(&machine.url)),
            Self::Bgp(wish) => ("bgp", wish.target.to_string()),
        }
    }

    fn open(&self, around: &Around) -> Result<Box<dyn Sink>> {
        let Around { root, board, moved, state, .. } = around;
        let unix = |path: &Path, kind| {
            Receiver::unix(path, kind).map_err(|error| Error::input(format!("{}: {error}", path.display())))
        };
        Ok(match self {
            Self::File { path, rotate_bytes, keep } => {
                Box::new(file::Log::new(path.clone(), *rotate_bytes, *keep, Arc::clone(moved))?)
            }
            Self::UnixStream(path) => Box::new(Lines(unix(path, Type::STREAM)?)),
            Self::UnixDatagram(path) => Box::new(Lines(unix(path, Type::DGRAM)?)),
            Self::Syslog { to, facility } => {
                let receiver = to.receiver().map_err(|error| Error::input(format!("{to}: {error}")))?;
                let counts_octets = receiver.is_stream();
                Box::new(syslog::Syslog::new(receiver, *facility, counts_octets))
            }
            Self::Journald(path) => Box::new(journald::Journal(unix(path, Type::DGRAM)?)),
            Self::Webhook { url, token_file, .. } => {
                Box::new(webhook::Webhook::new(url.clone(), token_file.as_deref())?)
            }
            Self::Crowdsec(machine) => Box::new(crowdsec::Alerts::new(machine.clone(), root.clone())?),
            Self::Bgp(wish) => {
                let file = state.with_extension("bgp.json");
                Box::new(bgp::Announcer::new(wish.clone(), root.clone(), board.clone(), file)?)
            }
        })
    }
}

impl Outputs {
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Makes its paths absolute.
    pub fn relative_to(&mut self, folder: &Path) {
        for path in self.0.iter_mut().flat_map(|output| output.to.paths()) {
            *path = folder.join(&*path);
        }
    }

    /// Origins of decisions that these outputs make at CrowdSec.
    pub fn origins(&self) -> Vec<String> {
        let of = |output: &Output| match &output.to {
            Target::Crowdsec(machine) => Some(machine.origin()),
            _ => None,
        };
        self.0.iter().filter_map(of).collect()
    }

    pub fn check(&self) -> Result<()> {
        let said = |why: String| Err(Error::input(format!("`events`: {why}")));
        if self.0.len() > MOST {
            return said(format!("has {} outputs; {MOST} are possible", self.0.len()));
        }
        if self.0.iter().filter(|output| matches!(output.to, Target::Bgp(_))).count() > 1 {
            return said("has several outputs `bgp`; one is possible".to_string());
        }
        let mut names = std::collections::BTreeSet::new();
        for output in &self.0 {
            let (kind, to) = output.to.name();
            if !names.insert((kind, to.clone())) {
                return said(format!("`{kind}: {to}` is there twice, and would get each event twice"));
            }
            if let Target::UnixStream(path)
            | Target::UnixDatagram(path)
            | Target::Syslog { to: Address::Unix(path), .. }
            | Target::Journald(path) = &output.to
                && let Err(error) = Receiver::unix(path, Type::DGRAM)
            {
                return said(format!("`{kind}: {to}`: {error}; a socket's path has at most 107 characters"));
            }
        }
        Ok(())
    }

    /// How far an earlier service got, by its file. Without a file nobody knows, and events from now on are told: collectors would
    /// otherwise get those that the program keeps at every start.
    fn told(&self) -> Told {
        let file = self.0.iter().find_map(|output| match &output.to {
            Target::File { path, .. } => Some(path),
            _ => None,
        });
        match file {
            Some(path) => file::last(path).unwrap_or_default(),
            None => Told::until(&agent::timestamp(SystemTime::now())),
        }
    }

    /// Opens what must be there, and tells all outputs of events from then on, until `Running::end`.
    pub fn run(&self, mut around: Around, often: Often) -> Result<Running> {
        let board = around.board.clone();
        let told = self.told();
        let ends = Arc::new(AtomicBool::new(false));
        let takes_back = self.0.iter().any(|output| matches!(output.to, Target::Bgp(_)));
        let patience = if takes_back { bgp::TO_END } else { TO_END };
        let (working, ended) = channel();
        board.lock().outputs = self.0.iter().map(|output| OutputHealth::new(output.to.name())).collect();
        let mut fan = Vec::new();
        for (index, output) in self.0.iter().enumerate() {
            let account = Arc::new(Account {
                board: board.clone(),
                index,
                name: output.to.name(),
                trouble: Seldom::default(),
                ends: Arc::clone(&ends),
            });
            let (tell, queue) = sync_channel(WAITING);
            let (sink, working) = (output.to.open(&around)?, working.clone());
            fan.push((output.clone(), tell, Arc::clone(&account)));
            std::thread::spawn(move || work(sink, &queue, &account, working));
        }
        let fan = Fan(Arc::new(fan));
        let mut teller = Teller { fan: fan.clone(), evidence: around.evidence.take() };
        let reporter = Reporter { root: around.root.clone(), board: board.clone(), often };
        let (listens, reports, to) = (Arc::clone(&ends), Arc::clone(&ends), fan.clone());
        board.lock().audited = to.wants(Kind::Audit);
        std::thread::spawn(move || reporter.report(&to, &reports));
        if !fan.0.is_empty() {
            std::thread::spawn(move || {
                follow(&around.root, &told, || !listens.load(Ordering::Relaxed), &mut teller)
            });
        }
        Ok(Running { ends, ended, patience })
    }
}

/// What outputs know of the service.
pub struct Around {
    /// The attachments whose events they get.
    pub root: Root,
    pub board: Board,
    /// How often somebody said that files were moved.
    pub moved: Arc<AtomicU64>,
    /// Where the service notes what it did; theirs is beside it.
    pub state: PathBuf,
    /// Who has packets of alerts written.
    pub evidence: Option<Desk>,
}

/// Outputs at work.
pub struct Running {
    ends: Arc<AtomicBool>,
    patience: Duration,
    /// Closed by the last thread that ends.
    ended: Queue<()>,
}

impl Running {
    /// Lets outputs have what waits for them, for a moment.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        if self.ended.recv_timeout(self.patience) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("the service ends before all outputs have all events");
        }
    }
}

/// What became of the events of an output.
#[derive(Debug, Default, Clone, Serialize, utoipa::ToSchema)]
pub struct OutputHealth {
    /// Its key in the configuration.
    pub output: String,
    pub to: String,
    /// Handed to the kernel.
    pub written: u64,
    /// Overwritten before they were read, without room while an output did not keep up, or refused.
    pub lost: u64,
    /// Why the latest could not be handed over; null once one was.
    pub error: Option<String>,
    /// For `bgp`.
    pub routes: Option<Routes>,
}

/// What became of the bans in force.
#[derive(Debug, Default, Clone, Copy, Serialize, utoipa::ToSchema)]
pub struct Routes {
    /// Routes that gobgpd has.
    pub announced: u64,
    /// Bans without a route: beyond `most`, of allowed addresses, or too wide.
    pub refused: u64,
}

impl OutputHealth {
    fn new((output, to): (&str, String)) -> Self {
        Self { output: output.to_string(), to, ..Self::default() }
    }
}

struct Account {
    board: Board,
    index: usize,
    name: (&'static str, String),
    trouble: Seldom,
    ends: Arc<AtomicBool>,
}

impl Account {
    fn note(&self, change: impl FnOnce(&mut OutputHealth)) {
        if let Some(health) = self.board.lock().outputs.get_mut(self.index) {
            change(health);
        }
    }

    fn written(&self) {
        self.note(|health| {
            health.written += 1;
            health.error = None;
        });
    }

    fn give(&self, queue: &SyncSender<Arc<Sent>>, sent: &Arc<Sent>) {
        if queue.try_send(Arc::clone(sent)).is_err() {
            self.lost(1, "it does not keep up");
        }
    }

    fn lost(&self, events: u64, why: &str) {
        self.note(|health| health.lost += events);
        self.say(&format!("events are lost: {why}"));
    }

    fn fails(&self, error: &io::Error) {
        self.note(|health| health.error = Some(error.to_string()));
        self.say(&format!("{error}; {WAITING} events may wait for it"));
    }

    /// Waits, and no longer than until the service ends.
    fn rest(&self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time && !self.ends.load(Ordering::Relaxed) {
            std::thread::sleep(RETRY.min(time));
        }
    }

    fn say(&self, what: &str) {
        if self.trouble.is_due() {
            let (kind, to) = &self.name;
            tracing::error!("events: {kind} {to}: {what}");
        }
    }
}

/// Passes events on to the queue of each output, and waits for none.
#[derive(Clone)]
struct Fan(Arc<Vec<Queued>>);

type Queued = (Output, SyncSender<Arc<Sent>>, Arc<Account>);

impl Fan {
    /// Whether an output takes records of a kind.
    fn wants(&self, kind: Kind) -> bool {
        self.0.iter().any(|(output, ..)| output.records.contains(&kind))
    }

    fn record(&self, kind: Kind, record: &Value) {
        let sent = Arc::new(Sent::record(kind, record));
        for (_, tell, account) in self.0.iter().filter(|(output, ..)| output.records.contains(&kind)) {
            account.give(tell, &sent);
        }
    }
}

/// Passes on events, alerts with the names of their captures.
struct Teller {
    fan: Fan,
    evidence: Option<Desk>,
}

impl Hears for Teller {
    fn event(&mut self, place: &Place, event: &Event, json: &str) {
        let linked = self.evidence.as_mut().and_then(|desk| desk.link(place, event));
        let sent = Arc::new(Sent::event(event, linked.as_deref().unwrap_or(json)));
        for (Output { to, .. }, tell, account) in
            self.fan.0.iter().filter(|(output, ..)| output.to.wants(event))
        {
            if to.is_about_own() && !account.board.keeps(&event.in_iface) {
                continue;
            }
            account.give(tell, &sent);
        }
    }

    fn missed(&mut self, events: u64) {
        for (.., account) in self.fan.0.iter() {
            account.lost(events, "they were overwritten before they were read");
        }
    }
}

/// Takes events. An error that may pass leaves the event to be sent again.
trait Sink: Send {
    fn send(&mut self, sent: &Sent) -> io::Result<()>;

    /// No more events wait.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Whether the event that was refused may still be taken later.
    fn may_pass(&self, error: &io::Error) -> bool;

    /// How soon to flush again although no event came; `None`: only after events.
    fn pulse(&self) -> Option<Duration> {
        None
    }

    fn routes(&self) -> Option<Routes> {
        None
    }

    /// The service ends.
    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// How long to wait before that. tries : that came before the last.
    fn pause(&self, _tries: u32) -> Duration {
        RETRY
    }
}

/// Gives a sink what its queue has, until nobody fills it any more.
fn work(mut sink: Box<dyn Sink>, queue: &Queue<Arc<Sent>>, account: &Account, working: Sender<()>) {
    loop {
        let first = match sink.pulse() {
            None => queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(pulse) => queue.recv_timeout(pulse),
        };
        if matches!(first, Err(RecvTimeoutError::Disconnected)) {
            break;
        }
        let mut next = first.ok();
        while let Some(sent) = next {
            hand_over(&mut *sink, &sent, account);
            next = queue.try_recv().ok();
        }
        match sink.flush() {
            Err(error) => account.fails(&error),
            // What has a pulse does its work there.
            Ok(()) if sink.pulse().is_some() => account.note(|health| health.error = None),
            Ok(()) => {}
        }
        account.note(|health| health.routes = sink.routes());
    }
    if let Err(error) = sink.end() {
        account.fails(&error);
    }
    drop(working);
}

fn hand_over(sink: &mut dyn Sink, sent: &Sent, account: &Account) {
    for tries in 0.. {
        match sink.send(sent) {
            Ok(()) => return account.written(),
            Err(error) if sink.may_pass(&error) && !account.ends.load(Ordering::Relaxed) => {
                account.fails(&error);
                account.rest(sink.pause(tries));
            }
            Err(error) => {
                account.note(|health| health.error = Some(error.to_string()));
                return account.lost(1, &error.to_string());
            }
        }
    }
}

/// For an output whose thread runs what is asynchronous.
fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().map_err(|error| Error::other(&error))
}

/// The JSON as it is, a line each where the socket has no messages.
struct Lines(Receiver);

impl Sink for Lines {
    fn send(&mut self, sent: &Sent) -> io::Result<()> {
        let end = if self.0.is_stream() { "\n" } else { "" };
        self.0.send(format!("{}{end}", sent.json).as_bytes())
    }

    fn may_pass(&self, error: &io::Error) -> bool {
        receiver::may_pass(error)
    }
}

/// As syslog and the journal count, from the severity of EVE's alerts; other events are information.
fn severity(event: &Event) -> u8 {
    match event.alert.as_ref().map(|alert| alert.severity) {
        Some(1) => 2,
        Some(2) => 3,
        Some(_) => 4,
        None => INFORMATION,
    }
}
