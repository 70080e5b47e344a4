// SPDX-License-Identifier: Apache-2.0
//! What a policy asks for one class.

use crate::abi;
use crate::policy::act::{self, ActionMap, Steering};
use crate::policy::ban::{Ban, BanFile};
use crate::policy::pools::Pool;
use crate::text::nearest::choose;
use crate::text::units::Rate;

/// What `action` may be, beside the words of act/.
const ACTIONS: [&str; 4] = ["pass", "drop", "count", "rate-limit"];
pub const DEFAULT_BURST: u32 = 20;
const MAX_BURST: u32 = 1_000_000;
const MAX_SEVERITY: u8 = 3;

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
    /// Only of a class that is dropped or limited.
    pub ban: Option<Ban>,
    /// Severity of its events, 1 (high) to `MAX_SEVERITY`, as in Suricata's rules.
    pub severity: Option<u8>,
}

impl ClassPolicy {
    /// Of a class that the policy does not name.
    pub const PASS: Self = Self { action: ClassAction::Pass, after: 1, ban: None, severity: None };

    /// The rule for people, without `after`.
    pub fn text(&self) -> String {
        self.ban.map_or_else(|| self.action.to_string(), |ban| format!("{}, {ban}", self.action))
    }
}

impl std::fmt::Display for ClassPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.text();
        if self.after > 1 { write!(f, "{text} after {}", self.after) } else { f.pad(&text) }
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
        matches!(self, Self::Steer(steering) if steering.backend.as_ref().is_some_and(|it| it.pool == pool))
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

pub fn class_policy(mut file: ActionMap, pools: &[Pool]) -> std::result::Result<ClassPolicy, String> {
    let ban = file.ban.take().map(BanFile::read).transpose().map_err(|message| format!("ban: {message}"))?;
    let (after, most) = (file.after.unwrap_or(1), abi::MAX_AFTER);
    if !(1..=most).contains(&after) {
        return Err(format!("after {after} is out of range; 1 to {most} verdicts in a row"));
    }
    let severity = file.severity;
    if let Some(severity) = severity.filter(|severity| !(1..=MAX_SEVERITY).contains(severity)) {
        return Err(format!("severity {severity} is out of range; 1 (high) to {MAX_SEVERITY}"));
    }
    let asks_for_more = file.action.is_some() || Steering::read(&file, pools)?.is_some();
    let action = match ban {
        Some(_) if !asks_for_more && file.rate.is_none() && file.burst.is_none() => ClassAction::Drop,
        _ => class_action(file, pools)?,
    };
    if ban.is_some() && !action.code().may_drop() {
        return Err(format!("ban belongs to a class that is dropped or limited, not to '{}'", action.keys()));
    }
    Ok(ClassPolicy { action, after, ban, severity })
}

fn class_action(file: ActionMap, pools: &[Pool]) -> std::result::Result<ClassAction, String> {
    if let Some(asked) = Steering::read(&file, pools)? {
        let other = file.action.as_deref().filter(|action| act::words().all(|word| word != *action));
        let misplaced = other.or(file.rate.map(|_| "rate")).or(file.burst.map(|_| "burst"));
        return match misplaced {
            Some(other) => Err(format!(
                "'{asked}' does not go together with '{other}': a class that is dropped, limited or counted has no other action; leave one out"
            )),
            None => Ok(ClassAction::Steer(Box::new(asked))),
        };
    }
    let ActionMap { action, rate, burst, .. } = file;
    let actions: Vec<_> = ACTIONS.into_iter().chain(act::words()).collect();
    let name = action.ok_or_else(|| {
        format!("needs an action: {}, or one of {}", actions.join(", "), act::keys().join(", "))
    })?;
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
            let known = choose(other, &actions);
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
