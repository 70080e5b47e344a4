// SPDX-License-Identifier: Apache-2.0
//! Checks backends again and again, takes those that fail out of their pool's table, and puts them back when they answer. What to check lies
//! in the maps, beside the pools, so it follows the policy.

mod probe;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytemuck::bytes_of;
use serde::Serialize;

use crate::abi::maps::BACKENDS;
use crate::abi::{self, Check};
use crate::attachment::args::AttachmentArgs;
use crate::attachment::health::probe::{Probe, run_all};
use crate::error::{Error, Result};
use crate::kernel;
use crate::object::pools::{Held, text, turn, write};
use crate::stop::Stop;

/// While no pool has anything to check.
const IDLE: Duration = Duration::from_secs(1);

/// A backend that went down or came back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Turn {
    pub time: String,
    pub pool: String,
    pub backend: IpAddr,
    pub up: bool,
    /// Why it is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Results in a row that differ from what is said of the backend.
type Contrary = BTreeMap<(String, IpAddr), u16>;

/// One check of every backend whose result holds at once. Returns who went down or came back.
pub fn once(which: &AttachmentArgs) -> Result<Vec<Turn>> {
    let held = read(which)?;
    let pools: Vec<_> = checked(&held).map(|(number, _)| number).collect();
    if pools.is_empty() {
        return Err(Error::input(
            "no pool of the policy has a health check; give it one, such as `health: {tcp: 80}`",
        ));
    }
    round(which, &held, &pools, &mut Contrary::new(), true)
}

/// Checks until it is stopped. tell : of who went down or came back.
pub fn watch(which: &AttachmentArgs, stop: &Stop, tell: impl Fn(&Turn)) -> Result<()> {
    let mut due: BTreeMap<String, Instant> = BTreeMap::new();
    let mut contrary = Contrary::new();
    while !stop.asked() {
        let (held, now) = (read(which)?, Instant::now());
        let pools: Vec<_> = checked(&held)
            .filter(|(_, pool)| due.get(&pool.text()).is_none_or(|due| *due <= now))
            .map(|(number, _)| number)
            .collect();
        for turn in round(which, &held, &pools, &mut contrary, false)? {
            tell(&turn);
        }
        for number in pools {
            let pool = &held.pools[number];
            due.insert(pool.text(), now + Duration::from_millis(pool.interval_ms.into()));
        }
        due.retain(|name, _| checked(&held).any(|(_, pool)| pool.text() == *name));
        let next = due.values().min().copied().unwrap_or(now + IDLE);
        stop.sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

fn read(which: &AttachmentArgs) -> Result<Held> {
    let ours = which.find()?;
    ours.require_here()?;
    Ok(Held::read(|name| ours.optional_map(name).ok().flatten())?.unwrap_or_default())
}

/// The pools whose backends are checked.
fn checked(held: &Held) -> impl Iterator<Item = (usize, &abi::Pool)> {
    held.named().filter(|(_, pool)| pool.check != Check::None.code() as u16)
}

/// Checks the backends of some pools.
fn round(
    which: &AttachmentArgs,
    held: &Held,
    pools: &[usize],
    contrary: &mut Contrary,
    at_once: bool,
) -> Result<Vec<Turn>> {
    let asked: Vec<_> = pools
        .iter()
        .flat_map(|number| held.members(*number).map(|(_, backend)| (&held.pools[*number], backend)))
        .collect();
    let probes: Vec<_> = asked.iter().map(|(pool, backend)| probe(pool, backend)).collect();
    let mut turns = Vec::new();
    for ((pool, backend), result) in asked.iter().zip(run_all(&probes)) {
        let who = (pool.text(), backend.ip());
        let was_up = backend.flags & abi::BACKEND_DOWN == 0;
        if was_up == result.is_ok() {
            contrary.remove(&who);
            continue;
        }
        let count = contrary.entry(who.clone()).or_insert(0);
        *count += 1;
        let needed = if at_once {
            1
        } else if was_up {
            pool.fall
        } else {
            pool.rise
        };
        if *count >= needed {
            contrary.remove(&who);
            let (pool, backend) = who;
            turns.push(Turn { time: kernel::now(), pool, backend, up: result.is_ok(), why: result.err() });
        }
    }
    if !turns.is_empty() {
        apply(which, &turns)?;
    }
    Ok(turns)
}

fn probe(pool: &abi::Pool, backend: &abi::Backend) -> Probe {
    Probe {
        check: Check::from_code(pool.check.into()).unwrap_or(Check::Tcp),
        address: backend.ip(),
        port: pool.port,
        path: text(&pool.path),
        timeout: Duration::from_millis(pool.timeout_ms.max(1).into()),
    }
}

/// Writes who is down, under the lock that keeps policies from changing meanwhile.
fn apply(which: &AttachmentArgs, turns: &[Turn]) -> Result<()> {
    let (_lock, ours) = which.find_locked(false, |_| Ok(()))?;
    let find = |name: &str| ours.optional_map(name).ok().flatten();
    let Some(mut held) = Held::read(find)? else { return Ok(()) };
    let mut changed = Vec::new();
    for turn in turns {
        let Some((number, _)) = held.named().find(|(_, pool)| pool.text() == turn.pool) else { continue };
        let slot = held.members(number).find(|(_, backend)| backend.ip() == turn.backend);
        let Some((slot, _)) = slot else { continue };
        let flags = &mut held.backends[slot].flags;
        *flags = if turn.up { *flags & !abi::BACKEND_DOWN } else { *flags | abi::BACKEND_DOWN };
        changed.push((number, slot));
    }
    let mut pools: Vec<_> = changed.iter().map(|(number, _)| *number).collect();
    pools.sort_unstable();
    pools.dedup();
    // First where new flows go; flows of one that is down then find another there.
    for number in pools {
        held.pools[number].table ^= 1;
        turn(&held, number, find)?;
    }
    changed.iter().try_for_each(|(_, slot)| write(BACKENDS, *slot, bytes_of(&held.backends[*slot]), find))
}
