// SPDX-License-Identifier: Apache-2.0
//! Makes what runs what the configuration wishes: at the start, when the configuration is read again, when interfaces come and go, and
//! when a process that carries packets ends. Every change is made by one command of the agent, and has one that undoes it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use wirewised::abi::Mode;
use wirewised::error::{Error, Kind, Result};
use wirewised::policy::Prefix;
use wirewised::reading::drift::Level;
use wirewised::text::nearest::choose;

use crate::agent::{Agent, Order};
use crate::carriers::Watched;
use crate::config::{Config, Place, Token, Wish, is_ready_model};
use crate::evidence::EvidenceHealth;
use crate::follower::FollowHealth;
use crate::ipfix::ExportHealth;
use crate::kept::{self, Applied, Fingerprint};
use crate::manager;
use crate::outputs::OutputHealth;
use crate::outputs::records::{self, AUDITS};
use crate::survey::{self, Watch};
use crate::tls;

/// How long a process that carries packets may take until it does.
const TO_START: Duration = Duration::from_secs(60);
/// How often its status is read until then.
const ASKED: Duration = Duration::from_millis(20);
/// How long it may take to end in order.
const TO_END: Duration = Duration::from_secs(10);
/// How long until what failed is tried again, if nothing changes meanwhile.
const RETRY: Duration = Duration::from_secs(30);
/// How soon a deleted network namespace is let go, and a new one seen.
pub const TICK: Duration = Duration::from_secs(1);

/// Why the keeper looks again.
#[derive(Debug)]
pub enum Event {
    Interfaces,
    Tick,
    Ended {
        place: Place,
        process: u32,
    },
    /// The configuration is to be read again. answer : whether it was applied.
    Reload {
        answer: Option<oneshot::Sender<Result<Summary>>>,
    },
    /// An operator's order. It lasts until the configuration is read again.
    Operate {
        place: Place,
        operation: Operation,
        answer: oneshot::Sender<Result<Summary>>,
    },
    Stop,
}

#[derive(Debug, Clone)]
pub enum Operation {
    Mode(Mode),
    /// Sets the mode of the interface for a while.
    ModeFor {
        mode: Mode,
        seconds: u32,
    },
    /// Sets the mode of one class, for a while or until it is changed.
    ClassMode {
        mode: Mode,
        class: String,
        seconds: Option<u32>,
    },
    Rollback,
    /// Another bundle, by its name beside the configuration, or a ready model.
    Swap(String),
    Shadow(String),
    Promote,
    EndShadow,
    Deny {
        prefix: Prefix,
        seconds: u32,
    },
    Allow {
        prefix: Prefix,
        seconds: u32,
    },
    /// What was denied by hand.
    DenyNoLonger(Prefix),
    /// What was allowed by hand.
    AllowNoLonger(Prefix),
    /// Whatever bans hold for it.
    Pardon(IpAddr),
}

/// What applying a configuration changed.
#[derive(Debug, Clone, Default, Serialize, utoipa::ToSchema)]
pub struct Summary {
    /// In words, in the order in which it was done.
    pub changes: Vec<String>,
}

/// The service's own state, for the API and metrics.
#[derive(Debug, Default, Clone, Serialize, utoipa::ToSchema)]
pub struct Health {
    /// Why the configuration that was read last is not in force.
    pub refused: Option<String>,
    pub reloads: u64,
    pub refused_reloads: u64,
    /// Where events go, in the configuration's order.
    pub outputs: Vec<OutputHealth>,
    /// What became of the packets of alerts; null without `evidence`.
    pub evidence: Option<EvidenceHealth>,
    /// Where flows go; null without `ipfix`.
    pub ipfix: Option<ExportHealth>,
    /// Where the numbers of `/metrics` go; null without `otlp`.
    #[cfg(feature = "otlp")]
    pub otlp: Option<crate::otlp::PushHealth>,
    /// How following CrowdSec goes; null where the configuration does not have it.
    pub crowdsec: Option<FollowHealth>,
    pub places: Vec<PlaceHealth>,
    /// Interfaces that the configuration names and that are not there.
    pub missing: Vec<Place>,
    /// Whether a configuration was applied, or refused.
    #[serde(skip)]
    begun: bool,
    /// The verdict and the highest PSI of each attachment that has a verdict, by its directory.
    #[serde(skip)]
    pub drift: BTreeMap<PathBuf, (Level, f64)>,
    /// Whether an output takes audits, and those that none was given yet.
    #[serde(skip)]
    pub audited: bool,
    #[serde(skip)]
    audits: VecDeque<Value>,
}

#[derive(Debug, Default, Clone, Serialize, utoipa::ToSchema)]
pub struct PlaceHealth {
    #[serde(flatten)]
    pub place: Place,
    pub plane: String,
    pub mode: String,
    pub bundle: String,
    /// Whether the configured bundle runs there.
    pub kept: bool,
    /// Why it does not.
    pub error: Option<String>,
    /// Times the process that carries the packets ended though nobody wished it.
    pub outages: u64,
    pub outage_seconds: f64,
    /// Whether the packets of its alerts are to be written.
    #[serde(skip)]
    pub evidence: bool,
}

/// `Health`, shared with those who show it.
#[derive(Debug, Default, Clone)]
pub struct Board(Arc<Mutex<Health>>);

impl Board {
    pub fn lock(&self) -> MutexGuard<'_, Health> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has outputs told who asked for a change. what : and what came of it.
    pub fn audit(&self, what: Value) {
        let mut health = self.lock();
        if health.audited {
            if health.audits.len() == AUDITS {
                health.audits.pop_front();
                tracing::warn!("audit: outputs do not keep up; the log has what they miss");
            }
            health.audits.push_back(records::audit(what));
        }
    }

    pub fn take_audits(&self) -> VecDeque<Value> {
        std::mem::take(&mut self.lock().audits)
    }

    /// The interfaces on which the service keeps something; `None`: it has not begun to.
    pub fn interfaces(&self) -> Option<BTreeSet<String>> {
        let health = self.lock();
        let names = health.places.iter().map(|place| place.place.interface.clone());
        health.begun.then(|| names.collect())
    }

    pub fn keeps(&self, interface: &str) -> bool {
        self.lock().places.iter().any(|place| place.place.interface == interface)
    }
}

/// One change, with what it needs to be undone.
#[derive(Debug, Clone)]
enum Step {
    Start { new: Applied },
    Change { old: Applied, new: Applied },
    Restart { old: Applied, new: Applied },
    Stop { old: Applied },
}

impl Step {
    fn place(&self) -> &Place {
        match self {
            Self::Start { new } | Self::Change { new, .. } | Self::Restart { new, .. } => &new.place,
            Self::Stop { old } => &old.place,
        }
    }

    fn describe(&self) -> String {
        let place = self.place();
        let what = |applied: &Applied| {
            format!(
                "{} as {}, {}",
                applied.wish.bundle.display(),
                applied.wish.plane,
                applied.wish.mode.name()
            )
        };
        match self {
            Self::Start { new } => format!("{place}: run {}", what(new)),
            Self::Change { new, .. } => format!("{place}: change to {}", what(new)),
            Self::Restart { new, .. } => format!("{place}: replace by {}", what(new)),
            Self::Stop { .. } => format!("{place}: detach"),
        }
    }
}

/// What a configuration changes beside what runs.
#[derive(Debug)]
pub struct Beside {
    pub tokens: Arc<RwLock<Vec<Token>>>,
    pub tls: Option<Arc<tls::Current>>,
    /// What the service was started with.
    pub first: Config,
}

impl Beside {
    /// Refuses what cannot change while the service runs, and reads what `change` is to put into force.
    fn check(&self, config: &Config) -> Result<Option<Arc<ServerConfig>>> {
        let fixed = |config: &Config| {
            let listen = (config.listen, config.tls.is_some(), config.limits);
            let outside = (config.events.clone(), config.ipfix.clone(), config.crowdsec.clone());
            let outside = (outside, config.evidence.clone(), config.records, config.program_times);
            #[cfg(feature = "otlp")]
            let outside = (outside, config.otlp.clone());
            (listen, config.socket.path.clone(), outside)
        };
        if fixed(config) == fixed(&self.first) {
            if config.needs_admin() && !self.first.needs_admin() {
                return Err(Error::input(
                    "`netns` needs CAP_SYS_ADMIN, which the service gave up at its start because no interface had one; start it again",
                ));
            }
            return config.tls.as_ref().map(tls::Files::read).transpose();
        }
        Err(Error::input(
            "`listen`, whether it has `tls`, `limits`, `socket`, `events`, `records`, `program_times`, `evidence`, `ipfix`, `otlp` and `crowdsec` hold until the service is \
             started again; restart it, or leave them as they were",
        ))
    }

    fn change(&self, config: &Config, encryption: Option<Arc<ServerConfig>>) {
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = config.tokens.clone();
        if let (Some(current), Some(encryption)) = (&self.tls, encryption) {
            current.change(encryption);
        }
    }
}

pub struct Keeper {
    agent: Agent,
    config_file: PathBuf,
    state_file: PathBuf,
    /// A policy by which everything passes.
    empty_policy: tempfile::NamedTempFile,
    config: Option<Config>,
    applied: BTreeMap<Place, Applied>,
    carriers: BTreeMap<Place, Watched>,
    outages: BTreeMap<Place, (u64, Duration)>,
    /// What failed, when, and why.
    failed: BTreeMap<Place, (Instant, String)>,
    watch: Watch,
    tell: UnboundedSender<Event>,
    board: Board,
    beside: Beside,
}

impl Keeper {
    /// state_file : what earlier services of this configuration did.
    pub fn new(
        agent: Agent,
        config_file: PathBuf,
        state_file: PathBuf,
        tell: UnboundedSender<Event>,
        board: Board,
        beside: Beside,
    ) -> Result<Self> {
        let failed = |error: std::io::Error| Error::other(format!("temporary file: {error}"));
        let empty_policy = tempfile::NamedTempFile::new().map_err(failed)?;
        std::fs::write(&empty_policy, "version: 1\n").map_err(failed)?;
        let applied = kept::read(&state_file)?;
        Ok(Self {
            agent,
            config_file,
            state_file,
            empty_policy,
            config: None,
            applied,
            carriers: BTreeMap::new(),
            outages: BTreeMap::new(),
            failed: BTreeMap::new(),
            watch: Watch::new(tell.clone()),
            tell,
            board,
            beside,
        })
    }

    /// Applies the configuration and keeps to it until `Event::Stop`. Programs stay attached after that.
    pub async fn keep(
        mut self,
        first: Config,
        mut events: UnboundedReceiver<Event>,
        ready: impl FnOnce(&Board),
    ) {
        self.adopt_carriers().await;
        let applied = self.apply(first.clone()).await;
        if let Err(error) = &applied {
            tracing::error!("not applied, so what ran before goes on: {error}");
            // It is the one to retry.
            self.config.get_or_insert(first);
        }
        self.note(applied.as_ref().err());
        ready(&self.board);
        while let Some(event) = events.recv().await {
            // `Event::Tick` sees to it that one comes in time.
            manager::progress();
            match event {
                Event::Stop => return,
                Event::Tick => {
                    let namespaces = self.config.as_ref().map(Config::namespaces).unwrap_or_default();
                    let changed = self.watch.follow(&namespaces).unwrap_or(false);
                    let due = self.failed.values().any(|(when, _)| when.elapsed() > RETRY);
                    if changed || due {
                        self.keep_up().await;
                    }
                }
                Event::Interfaces => self.keep_up().await,
                Event::Operate { place, operation, answer } => {
                    let _ = answer.send(self.operate(&place, operation).await);
                }
                Event::Ended { place, process } => self.mend(&place, process).await,
                Event::Reload { answer } => {
                    let result = match Config::read(&self.config_file) {
                        Ok(config) => self.apply(config).await,
                        Err(error) => Err(error),
                    };
                    let mut health = self.board.lock();
                    health.reloads += 1;
                    health.refused_reloads += u64::from(result.is_err());
                    drop(health);
                    match &result {
                        Ok(summary) if summary.changes.is_empty() => {
                            tracing::info!("read again: nothing to change")
                        }
                        Ok(summary) => tracing::info!("read again: {}", summary.changes.join("; ")),
                        Err(error) => tracing::error!("read again, and refused; what runs goes on: {error}"),
                    }
                    self.note(result.as_ref().err());
                    self.board.audit(json!({
                        "change": "reload",
                        "result": if result.is_ok() { "applied" } else { "refused" },
                        "changes": result.as_ref().map_or(&[][..], |summary| &summary.changes),
                        "error": result.as_ref().err().map(Error::to_string),
                    }));
                    if let Some(answer) = answer {
                        let _ = answer.send(result);
                    }
                }
            }
        }
    }

    /// Wholly or not at all.
    async fn apply(&mut self, config: Config) -> Result<Summary> {
        let wished = self.targets(&config, true).await?;
        let steps = self.plan(&wished).await;
        let mut refused = Vec::new();
        for step in &steps {
            if let Err(error) = self.try_step(step).await {
                refused.push(format!("{}: {error}", step.place()));
            }
        }
        if !refused.is_empty() {
            return Err(Error::other(refused.join("; ")));
        }
        let encryption = self.beside.check(&config)?;
        let mut done: Vec<&Step> = Vec::new();
        for step in &steps {
            let Err(error) = self.take(step).await else {
                done.push(step);
                continue;
            };
            let mut why = format!("{}: {error}", step.place());
            for step in done.into_iter().rev() {
                if let Err(error) = self.undo(step).await {
                    why += &format!("; and {} could not be brought back: {error}", step.place());
                }
            }
            return Err(Error::other(why));
        }
        self.failed.clear();
        for (place, target) in &wished {
            // What needs no command of the agent.
            if let Some(applied) = self.applied.get_mut(place) {
                applied.wish.evidence = target.wish.evidence;
            }
        }
        self.beside.change(&config, encryption);
        let _ = self.watch.follow(&config.namespaces())?;
        self.config = Some(config);
        Ok(Summary { changes: steps.iter().map(Step::describe).collect() })
    }

    /// Starts what does not run, and stops what is no longer configured, each interface by itself.
    async fn keep_up(&mut self) {
        let Some(config) = self.config.clone() else { return };
        let _ = self.watch.follow(&config.namespaces());
        let wished = self.targets(&config, false).await.unwrap_or_default();
        for step in self.plan(&wished).await {
            // Only a reload changes what runs: a file may be half written, and an operator may have just changed the mode.
            if matches!(step, Step::Change { .. } | Step::Restart { .. }) {
                continue;
            }
            let place = step.place().clone();
            let waits = self.failed.get(&place).is_some_and(|(when, _)| when.elapsed() < RETRY);
            if waits && !matches!(step, Step::Stop { .. }) {
                continue;
            }
            match self.take(&step).await {
                Ok(()) => {
                    tracing::info!("{}", step.describe());
                    self.failed.remove(&place);
                }
                Err(error) => self.failed(&place, &error),
            }
        }
        self.failed.retain(|place, _| wished.contains_key(place));
        self.note_places();
    }

    fn failed(&mut self, place: &Place, error: &Error) {
        let why = error.to_string();
        if self.failed.get(place).is_none_or(|(_, before)| *before != why) {
            tracing::error!("{place}: {why}");
        }
        self.failed.insert(place.clone(), (Instant::now(), why));
    }

    /// The configured state of each place, with the files' present contents. all : fail if one cannot be read; otherwise it is left out.
    async fn targets(&mut self, config: &Config, all: bool) -> Result<BTreeMap<Place, Applied>> {
        let namespaces = config.namespaces();
        let present = tokio::task::spawn_blocking(move || survey::interfaces(&namespaces)).await;
        let present = present.map_err(|error| Error::other(format!("looking for interfaces: {error}")))?;
        let mut targets = BTreeMap::new();
        for (place, wish) in config.wished(&present) {
            match self.fingerprint(&wish).await {
                Ok(fingerprint) => {
                    targets.insert(
                        place.clone(),
                        Applied { place, wish, fingerprint, digest: None, unsure: false },
                    );
                }
                Err(error) if all => return Err(Error::other(format!("{place}: {error}"))),
                // What runs there stays.
                Err(error) => {
                    self.failed(&place, &error);
                    if let Some(applied) = self.applied.get(&place) {
                        targets.insert(place, applied.clone());
                    }
                }
            }
        }
        self.board.lock().missing = config.missing(&present);
        Ok(targets)
    }

    async fn fingerprint(&self, wish: &Wish) -> Result<Fingerprint> {
        let policy = match &wish.policy {
            Some(policy) => Some(self.agent.policy(policy, &wish.bundle).await?),
            None => None,
        };
        let bundle = wish.bundle.clone();
        let made = tokio::task::spawn_blocking(move || Fingerprint::of(&bundle, policy.as_ref())).await;
        made.map_err(|error| Error::other(format!("reading {}: {error}", wish.bundle.display())))?
    }

    async fn plan(&self, wished: &BTreeMap<Place, Applied>) -> Vec<Step> {
        let mut steps = Vec::new();
        for (place, old) in &self.applied {
            // A namespace that is gone took the interface and the program with it.
            if !wished.contains_key(place) && survey::exists(place.netns.as_deref()) {
                steps.push(Step::Stop { old: old.clone() });
            }
        }
        for (place, new) in wished {
            let new = new.clone();
            let Some(mut old) = self.applied.get(place).cloned() else {
                steps.push(Step::Start { new });
                continue;
            };
            let Some((mode, digest)) = self.state_of(place).await else {
                steps.push(Step::Start { new });
                continue;
            };
            old.wish.mode = mode;
            old.unsure |= old.digest.is_some() && digest != old.digest;
            if !old.wish.is_like(&new.wish) {
                steps.push(Step::Restart { old, new });
            } else if !old.holds(&new) || mode != new.wish.mode {
                steps.push(Step::Change { old, new });
            }
        }
        steps
    }

    /// The mode that was asked for where a program runs, and the digest of its bundle, whoever asked; `None`: none runs.
    async fn state_of(&self, place: &Place) -> Option<(Mode, Option<String>)> {
        let said = self.agent.does(&Order::check(place)).await.ok()?;
        let found = &said["attachments"][0];
        // Where the policy's time of enforcement is over, it was asked for all the same.
        let is_over =
            found["mode_as_asked"] == Value::Bool(false) && !found["policy"]["enforce_for_ns"].is_null();
        let enforces = found["mode"] == Mode::Enforce.name() || is_over;
        let mode = if enforces { Mode::Enforce } else { Mode::Observe };
        Some((mode, found["bundle"]["digest"].as_str().map(str::to_string)))
    }

    /// Whether a step would succeed, as far as the agent can know before.
    async fn try_step(&self, step: &Step) -> Result<()> {
        let order = match step {
            Step::Start { new } => Order::run(&new.place, &new.wish),
            Step::Restart { new, .. } => Order::replace(&new.place, &new.wish),
            Step::Change { old, new } if !old.holds(new) => self.swap(new),
            Step::Change { new, .. } => Order::mode(&new.place, &new.wish, new.wish.mode),
            Step::Stop { .. } => return Ok(()),
        };
        self.agent.does(&order.dry()).await.map(|_| ())
    }

    fn swap(&self, new: &Applied) -> Order {
        let policy = new.wish.policy.as_deref().unwrap_or(self.empty_policy.path());
        Order::swap(&new.place, &new.wish, policy)
    }

    /// Takes a step and writes down what runs then.
    async fn take(&mut self, step: &Step) -> Result<()> {
        // Whoever comes after a death in the middle knows that it cannot know.
        if let Some(applied) = self.applied.get(step.place()) {
            let unsure = Applied { unsure: true, ..applied.clone() };
            let mut all = self.applied.clone();
            all.insert(unsure.place.clone(), unsure);
            kept::write(&self.state_file, &all)?;
        }
        match step {
            Step::Start { new } => self.start(new).await?,
            Step::Stop { old } => self.stop(old).await?,
            Step::Change { old, new } => self.change(old, new).await?,
            Step::Restart { old, new } if !old.wish.is_carried() && !new.wish.is_carried() => {
                self.agent.does(&Order::replace(&new.place, &new.wish)).await?;
            }
            Step::Restart { old, new } => {
                self.stop(old).await?;
                if let Err(error) = self.start(new).await {
                    self.start(old).await.map_err(|worse| {
                        Error::other(format!(
                            "{error}; and what ran before could not be started again: {worse}"
                        ))
                    })?;
                    return Err(error);
                }
            }
        }
        match step {
            Step::Stop { old } => self.applied.remove(&old.place),
            Step::Start { new } | Step::Change { new, .. } | Step::Restart { new, .. } => {
                let digest = self.state_of(&new.place).await.and_then(|(_, digest)| digest);
                self.applied.insert(new.place.clone(), Applied { digest, ..new.clone() })
            }
        };
        kept::write(&self.state_file, &self.applied)
    }

    /// Takes back a step that was taken.
    async fn undo(&mut self, step: &Step) -> Result<()> {
        let back = match step {
            Step::Start { new } => Step::Stop { old: new.clone() },
            Step::Stop { old } => Step::Start { new: old.clone() },
            Step::Restart { old, new } => Step::Restart { old: new.clone(), new: old.clone() },
            Step::Change { old, new } => {
                self.set_mode(new, old, Mode::Observe).await?;
                if !old.holds(new) {
                    self.agent.does(&Order::rollback(&old.place)).await?;
                }
                self.set_mode(new, old, Mode::Enforce).await?;
                self.applied.insert(old.place.clone(), old.clone());
                return kept::write(&self.state_file, &self.applied);
            }
        };
        self.take(&back).await
    }

    /// Runs a program where none runs. Where a process was watched until now, it has ended, whether or not that was told yet.
    async fn start(&mut self, new: &Applied) -> Result<()> {
        let begun = Instant::now();
        let order = Order::run(&new.place, &new.wish);
        let carrier = if new.wish.is_carried() {
            let process = self.start_carrier(new, &order).await?;
            Some(Watched::new(process, &new.place, self.tell.clone())?)
        } else {
            self.agent.does(&order).await?;
            None
        };
        if let Some(ended) = self.carriers.remove(&new.place) {
            let lasted = self.count_outage(&new.place, begun);
            let process = ended.process;
            tracing::warn!(
                "{}: carried again, no longer by process {process}, after {lasted:.3} s",
                new.place
            );
        }
        self.carriers.extend(carrier.map(|carrier| (new.place.clone(), carrier)));
        Ok(())
    }

    /// Returns the process once it carries packets.
    async fn start_carrier(&self, new: &Applied, order: &Order) -> Result<u32> {
        let mut child = self.agent.starts(order)?;
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(|error| Error::other(error.to_string()))? {
                return Err(Error::other(format!(
                    "the process that was to carry its packets ended with {status}"
                )));
            }
            if let Some(process) = self.carrier(&new.place).await {
                return Ok(process);
            }
            if begun.elapsed() > TO_START {
                let _ = child.kill().await;
                return Err(Error::other("the process that was to carry its packets did not begin to"));
            }
            tokio::time::sleep(ASKED).await;
        }
    }

    /// Returns how many seconds it lasted, until now.
    fn count_outage(&mut self, place: &Place, since: Instant) -> f64 {
        let lasted = since.elapsed();
        let (count, total) = self.outages.entry(place.clone()).or_default();
        *count += 1;
        *total += lasted;
        lasted.as_secs_f64()
    }

    /// The process that carries the packets of a place, and answers.
    async fn carrier(&self, place: &Place) -> Option<u32> {
        let said = self.agent.does(&Order::check(place)).await.ok()?;
        let carrier = &said["attachments"][0]["carrier"];
        let process = carrier["process"].as_u64()?;
        (carrier["answers"] == Value::Bool(true)).then_some(process as u32)
    }

    /// Those that an earlier service started.
    async fn adopt_carriers(&mut self) {
        let places: Vec<_> =
            self.applied.values().filter(|it| it.wish.is_carried()).map(|it| it.place.clone()).collect();
        for place in places {
            let Some(process) = self.carrier(&place).await else { continue };
            match Watched::new(process, &place, self.tell.clone()) {
                Ok(carrier) => _ = self.carriers.insert(place, carrier),
                Err(error) => tracing::error!("{place}: {error}"),
            }
        }
    }

    async fn stop(&mut self, old: &Applied) -> Result<()> {
        if let Some(carrier) = self.carriers.remove(&old.place) {
            carrier.signal(libc::SIGTERM);
            let begun = Instant::now();
            while Path::new(&format!("/proc/{}", carrier.process)).exists() && begun.elapsed() < TO_END {
                tokio::time::sleep(ASKED).await;
            }
        }
        let Err(error) = self.agent.does(&Order::detach(&old.place)).await else { return Ok(()) };
        // With the process that carried its packets, or with the interface, nothing may be left to detach.
        match self.agent.does(&Order::check(&old.place)).await {
            Err(state) if state.kind() == Kind::NotAttached => Ok(()),
            _ => Err(error),
        }
    }

    /// In an order in which nothing is enforced that was not checked: to observe first, to enforce last.
    async fn change(&mut self, old: &Applied, new: &Applied) -> Result<()> {
        self.set_mode(old, new, Mode::Observe).await?;
        if !old.holds(new)
            && let Err(error) = self.agent.does(&self.swap(new)).await
        {
            self.set_mode(new, old, Mode::Enforce).await?;
            return Err(error);
        }
        if let Err(error) = self.set_mode(old, new, Mode::Enforce).await {
            if !old.holds(new) {
                self.agent.does(&Order::rollback(&old.place)).await?;
            }
            return Err(error);
        }
        Ok(())
    }

    /// Sets the mode of `to`, if it is `only` and differs from that of `from`.
    async fn set_mode(&self, from: &Applied, to: &Applied, only: Mode) -> Result<()> {
        if from.wish.mode == to.wish.mode || to.wish.mode != only {
            return Ok(());
        }
        // Of the two bundles, the one that runs then.
        let runs = if only == Mode::Observe { from } else { to };
        self.agent.does(&Order::mode(&runs.place, &runs.wish, only)).await.map(|_| ())
    }

    async fn operate(&self, place: &Place, operation: Operation) -> Result<Summary> {
        let applied = self.applied.get(place);
        let applied =
            applied.ok_or_else(|| Error::input(format!("{place}: the service keeps nothing there")))?;
        let (order, change) = match operation {
            Operation::Mode(mode) => {
                (Order::mode(place, &applied.wish, mode), format!("{place}: mode {}", mode.name()))
            }
            Operation::ModeFor { mode, seconds } => {
                let change = format!("{place}: mode {} for {seconds} s", mode.name());
                (Order::mode_for(place, mode, seconds), change)
            }
            Operation::ClassMode { mode, class, seconds } => {
                self.class_mode(place, mode, class, seconds).await?
            }
            Operation::Rollback => (Order::rollback(place), format!("{place}: back to what ran before")),
            Operation::Swap(bundle) => {
                let order = Order::replace_model(place, &self.bundle(&bundle)?);
                (order, format!("{place}: swapped for {bundle}"))
            }
            Operation::Shadow(bundle) => {
                let order = Order::shadow(place, &self.bundle(&bundle)?);
                (order, format!("{place}: {bundle} as a shadow"))
            }
            Operation::Promote => (Order::promote(place), format!("{place}: the shadow has taken over")),
            Operation::EndShadow => (Order::end_shadow(place), format!("{place}: no shadow any more")),
            Operation::Deny { prefix, seconds } => {
                (Order::deny(place, &prefix, seconds), format!("{place}: {prefix} denied for {seconds} s"))
            }
            Operation::Allow { prefix, seconds } => {
                (Order::allow(place, &prefix, seconds), format!("{place}: {prefix} allowed for {seconds} s"))
            }
            Operation::DenyNoLonger(prefix) => {
                (Order::deny_no_longer(place, &prefix), format!("{place}: {prefix} no longer denied"))
            }
            Operation::AllowNoLonger(prefix) => {
                (Order::allow_no_longer(place, &prefix), format!("{place}: {prefix} no longer allowed"))
            }
            Operation::Pardon(address) => {
                (Order::pardon(place, address), format!("{place}: {address} no longer banned"))
            }
        };
        self.agent.does(&order).await?;
        tracing::info!("{change}");
        Ok(Summary { changes: vec![change] })
    }

    /// A bundle that an operator names. Files elsewhere are not for those who ask from afar.
    fn bundle(&self, name: &str) -> Result<PathBuf> {
        if is_ready_model(Path::new(name)) {
            return Ok(name.into());
        }
        let is_plain = Path::new(name).file_name() == Some(name.as_ref());
        let folder = self.config_file.parent().filter(|_| is_plain).ok_or_else(|| {
            Error::input(format!(
                "`bundle` is the name of a file beside the configuration, or a ready model such as @flood, not '{name}'"
            ))
        })?;
        Ok(folder.join(name))
    }

    /// The order that sets the mode of a class, and what it changes in words.
    async fn class_mode(
        &self,
        place: &Place,
        mode: Mode,
        class: String,
        seconds: Option<u32>,
    ) -> Result<(Order, String)> {
        let status = self.agent.does(&Order::check(place)).await?;
        let status = &status["attachments"][0];
        let classes = status["classes"].as_array().into_iter().flatten();
        let known: Vec<String> =
            classes.filter_map(|class| class["name"].as_str()).map(str::to_string).collect();
        if !known.contains(&class) {
            let text = format!("{place}: the bundle has no class {class:?}; {}", choose(&class, &known));
            return Err(Error::input(text));
        }
        let time = seconds.map_or(String::new(), |seconds| format!(" for {seconds} s"));
        let bound = if mode == Mode::Enforce && status["mode"] != Mode::Enforce.name() {
            "; nothing is enforced while the interface as a whole observes"
        } else {
            ""
        };
        let change = format!("{place}: {class}: mode {}{time}{bound}", mode.name());
        Ok((Order::class_mode(place, &class, mode, seconds), change))
    }

    /// A process that carried packets has ended.
    async fn mend(&mut self, place: &Place, process: u32) {
        let since = Instant::now();
        // Another may carry them since, if something else made the keeper look first.
        if self.carriers.get(place).is_none_or(|carrier| carrier.process != process) {
            return;
        }
        let Some(applied) = self.applied.get(place).cloned() else { return };
        tracing::error!("{place}: process {process}, which carried its packets, has ended; starting another");
        if let Err(error) = self.start(&applied).await {
            self.carriers.remove(place);
            self.count_outage(place, since);
            self.failed(place, &error);
        }
        self.note_places();
    }

    fn note(&self, refused: Option<&Error>) {
        self.board.lock().refused = refused.map(Error::to_string);
        self.note_places();
    }

    fn note_places(&self) {
        let mut places: BTreeMap<&Place, PlaceHealth> = BTreeMap::new();
        for (place, applied) in &self.applied {
            places.insert(
                place,
                PlaceHealth {
                    place: place.clone(),
                    plane: applied.wish.plane.name().to_string(),
                    mode: applied.wish.mode.name().to_string(),
                    bundle: applied.wish.bundle.display().to_string(),
                    kept: true,
                    evidence: applied.wish.evidence,
                    ..PlaceHealth::default()
                },
            );
        }
        for (place, (_, why)) in &self.failed {
            let entry = places
                .entry(place)
                .or_insert_with(|| PlaceHealth { place: place.clone(), ..PlaceHealth::default() });
            entry.kept = false;
            entry.error = Some(why.clone());
        }
        for (place, (count, total)) in &self.outages {
            if let Some(entry) = places.get_mut(place) {
                entry.outages = *count;
                entry.outage_seconds = total.as_secs_f64();
            }
        }
        let mut health = self.board.lock();
        health.places = places.into_values().collect();
        health.begun = true;
    }
}
