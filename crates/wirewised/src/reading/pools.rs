// SPDX-License-Identifier: Apache-2.0
//! Pools of servers as they are now, and what each server was sent.

use libbpf_rs::{MapCore, MapHandle};
use serde::Serialize;

use crate::abi::maps::BACKEND_COUNTS;
use crate::abi::{self, Check, Method};
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::object::pools::Held;
use crate::object::read_element;
use crate::policy::pools::Mac;

#[derive(Debug, Serialize)]
pub struct Pools {
    pub interface: String,
    pub pools: Vec<PoolState>,
}

#[derive(Debug, Serialize)]
pub struct PoolState {
    pub name: String,
    pub method: Option<Method>,
    /// Where its packets leave; null: by the interface they came by.
    pub interface: Option<String>,
    pub check: Option<Check>,
    pub backends: Vec<BackendState>,
}

#[derive(Debug, Serialize)]
pub struct BackendState {
    pub address: String,
    pub weight: u16,
    pub state: State,
    pub mac: String,
    /// Of the new flows, 0 to 1.
    pub share: f64,
    pub packets: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Up,
    Draining,
    Down,
}

impl State {
    fn of(flags: u16) -> Self {
        if flags & abi::BACKEND_DOWN != 0 {
            Self::Down
        } else if flags & abi::BACKEND_DRAINS != 0 {
            Self::Draining
        } else {
            Self::Up
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Draining => "draining",
            Self::Down => "down",
        }
    }
}

impl Pools {
    /// The pools that a program sends to, each with its backends in the order of their addresses. find : opens its map of this name, if there is one.
    pub fn read(interface: &str, find: impl Fn(&str) -> Result<Option<MapHandle>>) -> Result<Self> {
        let find = |name: &str| find(name).ok().flatten();
        let held = Held::read(find)?.unwrap_or_default();
        let counts = find(BACKEND_COUNTS);
        let mut pools = Vec::new();
        for (number, pool) in held.named() {
            let table = held.table(number);
            let mut members: Vec<_> = held.members(number).collect();
            members.sort_by_key(|(_, backend)| backend.ip());
            let mut backends = Vec::new();
            for (slot, backend) in members {
                let counter =
                    counts.as_ref().map_or(Ok(abi::Counter::default()), |map| counted(map, slot))?;
                let places = table.iter().filter(|place| usize::from(**place) == slot).count();
                backends.push(BackendState {
                    address: backend.ip().to_string(),
                    weight: backend.weight,
                    state: State::of(backend.flags),
                    mac: Mac(backend.mac).to_string(),
                    share: (places as f64 / table.len() as f64 * 1e3).round() / 1e3,
                    packets: counter.packets,
                    bytes: counter.bytes,
                });
            }
            pools.push(PoolState {
                name: pool.text(),
                method: Method::from_code(pool.method.into()),
                interface: netdev::name(pool.ifindex),
                check: Check::from_code(pool.check.into()),
                backends,
            });
        }
        if pools.is_empty() {
            return Err(Error::input(format!(
                "{}: the policy in force has no pools; docs/balancing.md says how to write one",
                interface
            )));
        }
        Ok(Self { interface: interface.to_string(), pools })
    }
}

/// What all CPUs sent to a backend.
fn counted(map: &MapHandle, slot: usize) -> Result<abi::Counter> {
    let mut sum = abi::Counter::default();
    for place in (slot as u32..map.max_entries()).step_by(abi::BACKENDS) {
        let one: abi::Counter = read_element(map, place)?;
        sum.packets += one.packets;
        sum.bytes += one.bytes;
    }
    Ok(sum)
}
