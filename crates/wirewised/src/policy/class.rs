// SPDX-License-Identifier: Apache-2.0
//! What a policy asks for one class.

use crate::abi;
use crate::policy::file::{ActionMap, MirrorFile, OneOrMore, RedirectFile};
use crate::policy::forward::{Bridge, Forward};
use crate::policy::pools::Pool;
use crate::policy::steering::{MAX_QUEUE, Mirror, PoolName, Steering};
use crate::policy::tunnels;
use crate::policy::words::{Number, Sampling, Target};
use crate::text::nearest::choose;
use crate::text::units::Rate;

/// What `action` may be.
const ACTIONS: [&str; 7] = ["pass", "drop", "count", "rate-limit", "bounce", "forward", "challenge"];
const STEERING_KEYS: &str = "redirect, mirror, forward, backend, dscp, mark, priority, queue, decapsulate, encapsulate, qfi, inner-dscp";
pub const DEFAULT_BURST: u32 = 20;
/// An Ethernet header.
const MIN_SNAP: u32 = 14;
const MAX_BURST: u32 = 1_000_000;

/// How many may pass in a row (`burst`) and how many in the long run (`rate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub rate: Rate,
    pub burst: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClassAction {
    Pass,
    Drop,
    Count,
    RateLimit(Limit),
    Steer(Box<Steering>),
}

/// What the policy asks for one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassPolicy {
    pub action: ClassAction,
    /// How many verdicts in a row a flow needs for this class, 1 to `abi::MAX_AFTER`; before, it counts as class 0.
    pub after: u32,
}

impl ClassPolicy {
    /// Of a class that the policy does not name.
    pub const PASS: Self = Self { action: ClassAction::Pass, after: 1 };
}

impl std::fmt::Display for ClassPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.after > 1 { write!(f, "{} after {}", self.action, self.after) } else { self.action.fmt(f) }
    }
}

impl ClassAction {
    pub fn code(&self) -> abi::Action {
        match self {
            Self::Pass => abi::Action::Pass,
            Self::Drop => abi::Action::Drop,
            Self::Count => abi::Action::Count,
            Self::RateLimit(_) => abi::Action::RateLimit,
            Self::Steer(_) => abi::Action::Act,
        }
    }

    /// As a policy file calls it: its keys, without what they are given.
    pub fn keys(&self) -> String {
        match self {
            Self::Steer(steering) => abi::keys_of(steering.kinds()),
            action => action.code().name().to_owned(),
        }
    }

    /// Whether its packets go to a pool.
    pub fn goes_to(&self, pool: &str) -> bool {
        matches!(self, Self::Steer(steering) if steering.backend.as_ref().is_some_and(|name| name.name == pool))
    }

    /// Whether packets may be kept from their receiver.
    pub fn takes_away(&self) -> bool {
        match self {
            Self::Steer(steering) => steering.takes_away(),
            other => other.code().may_drop(),
        }
    }
}

impl std::fmt::Display for ClassAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RateLimit(limit) => write!(f, "rate-limit {} burst {}", limit.rate, limit.burst),
            Self::Steer(steering) => steering.fmt(f),
            other => f.pad(other.code().name()),
        }
    }
}

impl Limit {
    /// GCRA: the time one packet costs, and how far ahead of the clock that may get (`burst` packets at once).
    pub fn to_abi(self) -> (u64, u64) {
        let interval = self.rate.interval_ns();
        (interval, interval * u64::from(self.burst - 1))
    }
}

pub fn class_policy(file: ActionMap, pools: &[Pool]) -> std::result::Result<ClassPolicy, String> {
    let (after, most) = (file.after.unwrap_or(1), abi::MAX_AFTER);
    if !(1..=most).contains(&after) {
        return Err(format!("after {after} is out of range; 1 to {most} verdicts in a row"));
    }
    Ok(ClassPolicy { action: class_action(file, pools)?, after })
}

/// A pool by its name.
fn pool(name: &str, pools: &[Pool]) -> std::result::Result<PoolName, String> {
    let Some(number) = pools.iter().position(|pool| pool.name == name) else {
        let names: Vec<_> = pools.iter().map(|pool| pool.name.as_str()).collect();
        return Err(match names.is_empty() {
            true => format!(
                "backend: there is no pool '{name}'; write pools: {{{name}: {{backends: [{{address: 10.0.0.11}}]}}}}"
            ),
            false => format!("backend: unknown pool '{name}'; {}", choose(name, &names)),
        });
    };
    Ok(PoolName { name: name.to_string(), number: number as u16 })
}

/// The interface that `key` names.
fn target(key: &str, name: Option<&String>) -> std::result::Result<Target, String> {
    match name {
        Some(name) if !name.is_empty() && !name.contains(['/', '\0']) => {
            Ok(Target { interface: name.clone(), ifindex: 0 })
        }
        _ => Err(format!("{key} needs an interface: {{{key}: {{interface: eth2}}}}")),
    }
}

fn mirror(file: &MirrorFile) -> std::result::Result<Mirror, String> {
    let snap = file.snap.map(|Number(snap)| snap);
    if snap.is_some_and(|snap| snap < MIN_SNAP) {
        return Err(format!(
            "mirror: snap {} is less than {MIN_SNAP}, an Ethernet header",
            snap.unwrap_or_default()
        ));
    }
    let target = target("mirror", file.interface.as_ref())?;
    Ok(Mirror { target, rate: file.rate.unwrap_or(Sampling { every: 1 }), snap })
}

fn cpus(wanted: &OneOrMore) -> std::result::Result<Vec<u32>, String> {
    let cpus = match wanted {
        OneOrMore::One(cpu) => vec![*cpu],
        OneOrMore::More(cpus) => cpus.clone(),
    };
    let most = abi::MAX_SPREAD;
    if cpus.is_empty() || cpus.len() > most {
        return Err(format!(
            "redirect: cpu: {} CPUs; 1 to {most}: {{redirect: {{cpu: [1, 2]}}}}",
            cpus.len()
        ));
    }
    Ok(cpus)
}

/// Where packets go instead: an interface, CPUs, or the socket of a queue.
type Elsewhere = (Option<Target>, Vec<u32>, Option<u32>);

fn elsewhere(file: &RedirectFile) -> std::result::Result<Elsewhere, String> {
    match (&file.interface, &file.cpu, file.socket) {
        (None, Some(wanted), None) => Ok((None, cpus(wanted)?, None)),
        (None, None, Some(Number(queue))) if queue < abi::SOCKETS => Ok((None, Vec::new(), Some(queue))),
        (None, None, Some(Number(queue))) => {
            Err(format!("redirect: socket: queue {queue} is out of range; 0 to {}", abi::SOCKETS - 1))
        }
        (name, None, None) => Ok((Some(target("redirect", name.as_ref())?), Vec::new(), None)),
        _ => Err("redirect goes to one of interface, cpu and socket".to_string()),
    }
}

fn steering(file: &ActionMap, pools: &[Pool]) -> std::result::Result<Option<Steering>, String> {
    let redirect = file.redirect.as_ref().map(elsewhere).transpose()?;
    let action = file.action.as_deref();
    let [bounces, forwards, challenge] = ["bounce", "forward", "challenge"].map(|name| action == Some(name));
    let bridge = file.forward.as_ref().map(Bridge::parse).transpose()?;
    if bridge.is_some() && (forwards || bounces || redirect.is_some()) {
        return Err(
            "a packet goes either between ports, or elsewhere: give forward without redirect, bounce or `action: forward`"
                .to_string(),
        );
    }
    if file.backend.is_some() && (bounces || forwards || bridge.is_some() || redirect.is_some()) {
        return Err("a packet goes to a backend or elsewhere: give backend, redirect or the action bounce"
            .to_string());
    }
    if forwards && redirect.is_some() {
        return Err(
            "a packet goes either where the routes say or to one interface: give the action forward or redirect"
                .to_string(),
        );
    }
    if bounces && redirect.is_some() {
        return Err(
            "a packet cannot go elsewhere and back to its sender: give redirect or the action bounce"
                .to_string(),
        );
    }
    let (redirect, cpus, socket) = redirect.unwrap_or_default();
    let queue = file.queue.map(|Number(queue)| match u16::try_from(queue) {
        Ok(queue) if u32::from(queue) <= MAX_QUEUE => Ok(queue),
        _ => Err(format!("queue {queue} is out of range; 0 to {MAX_QUEUE}")),
    });
    let mut steering = Steering {
        redirect,
        cpus,
        socket,
        mirror: file.mirror.as_ref().map(mirror).transpose()?,
        bounce: bounces,
        forward: (forwards || bridge.is_some()).then(|| Forward { bridge, ..Forward::default() }),
        challenge,
        dscp: file.dscp,
        mark: file.mark.map(|Number(mark)| mark),
        priority: file.priority.map(|Number(priority)| priority),
        queue: queue.transpose()?,
        backend: file.backend.as_ref().map(|name| pool(name, pools)).transpose()?,
        ..Steering::default()
    };
    tunnels::of_class(file, &mut steering, forwards)?;
    if challenge && steering.kinds() != abi::STEER_CHALLENGE {
        return Err(
            "challenge stands alone: who answers it passes as it came; give the class nothing else, or another action"
                .to_string(),
        );
    }
    Ok((steering != Steering::default()).then_some(steering))
}

fn class_action(file: ActionMap, pools: &[Pool]) -> std::result::Result<ClassAction, String> {
    if let Some(asked) = steering(&file, pools)? {
        let misplaced = match file.action.as_deref() {
            None | Some("bounce" | "forward" | "challenge") => {
                file.rate.map(|_| "rate").or(file.burst.map(|_| "burst"))
            }
            Some(action) => Some(action),
        };
        return match misplaced {
            Some(other) => Err(format!(
                "'{asked}' does not go together with '{other}': a class that is dropped, limited or counted has no other action; leave one out"
            )),
            None => Ok(ClassAction::Steer(Box::new(asked))),
        };
    }
    let ActionMap { action, rate, burst, .. } = file;
    let name = action
        .ok_or_else(|| format!("needs an action: {}, or one of {STEERING_KEYS}", ACTIONS.join(", ")))?;
    if name != "rate-limit" && (rate.is_some() || burst.is_some()) {
        return Err(format!("rate and burst belong to the action rate-limit, not to '{name}'"));
    }
    match (name.as_str(), rate) {
        ("pass", _) => Ok(ClassAction::Pass),
        ("drop", _) => Ok(ClassAction::Drop),
        ("count", _) => Ok(ClassAction::Count),
        ("rate-limit", Some(rate)) if rate.count > 0 => Ok(ClassAction::RateLimit(limit(rate, burst)?)),
        ("rate-limit", Some(_)) => Err("rate 0 lets nothing through; use the action drop".to_string()),
        ("rate-limit", None) => {
            Err("rate-limit needs a rate: {action: rate-limit, rate: 100/s, burst: 20}".to_string())
        }
        (other, _) => {
            let known = choose(other, &ACTIONS);
            Err(format!("unknown action '{other}'; {known}"))
        }
    }
}

pub fn limit(rate: Rate, burst: Option<u32>) -> std::result::Result<Limit, String> {
    let burst = burst.unwrap_or(DEFAULT_BURST);
    if !(1..=MAX_BURST).contains(&burst) {
        return Err(format!("burst {burst} is out of range; 1 to {MAX_BURST}"));
    }
    Ok(Limit { rate, burst })
}
