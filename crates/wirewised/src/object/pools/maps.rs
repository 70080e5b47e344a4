// SPDX-License-Identifier: Apache-2.0
//! Writes pools, tables and backends while packets pass: a flow has a backend at every moment. What is new comes first, then each pool
//! turns to its other table; who is gone goes last, when no table and no class leads there.

use bytemuck::bytes_of;
use libbpf_rs::MapCore;

use crate::abi;
use crate::abi::maps::{BACKEND_COUNTS, BACKENDS, POOLS, TABLES_OF_POOLS};
use crate::error::{Error, Result};
use crate::object::maps::{no_map, update};
use crate::object::pools::held::Held;
use crate::object::pools::places::{Placement, place};
use crate::policy::pools::Pool;

/// A policy's pools on their way into the maps.
pub struct Change(Option<Placement>);

impl Change {
    /// Makes everything ready for the policy's element, in which it numbers the pools as they lie in the maps.
    pub fn begin<M: MapCore>(
        pools: &[Pool],
        element: &mut abi::Element,
        find: impl Fn(&str) -> Option<M>,
    ) -> Result<Self> {
        let Some(held) = Held::read(&find)? else {
            return if pools.is_empty() { Ok(Self(None)) } else { Err(no_map(POOLS)) };
        };
        let placed = place(pools, &held, new_generation()?);
        for steer in element.act.steer.iter_mut().filter(|steer| steer.kinds & abi::STEER_BACKEND != 0) {
            steer.pool = placed.numbers.get(usize::from(steer.pool)).copied().unwrap_or(steer.pool);
        }
        let wanted = &placed.wanted;
        for slot in (0..wanted.backends.len()).filter(|slot| !placed.stale_backends.contains(slot)) {
            if placed.fresh.contains(&slot) {
                forget_counts(slot, &find)?;
            }
            if placed.fresh.contains(&slot) || wanted.backends[slot] != held.backends[slot] {
                write(BACKENDS, slot, bytes_of(&wanted.backends[slot]), &find)?;
            }
        }
        for number in placed.numbers.iter().map(|number| usize::from(*number)) {
            turn(wanted, number, &find)?;
        }
        Ok(Self(Some(placed)))
    }

    /// Takes out who is gone.
    pub fn finish<M: MapCore>(&self, find: impl Fn(&str) -> Option<M>) -> Result<()> {
        let Some(placed) = &self.0 else { return Ok(()) };
        for number in &placed.stale_pools {
            write(POOLS, *number, bytes_of(&placed.wanted.pools[*number]), &find)?;
        }
        for slot in &placed.stale_backends {
            write(BACKENDS, *slot, bytes_of(&placed.wanted.backends[*slot]), &find)?;
        }
        Ok(())
    }
}

/// Writes the table that a pool names, which is not the one in use, and then the pool.
pub fn turn<M: MapCore>(wanted: &Held, number: usize, find: impl Fn(&str) -> Option<M>) -> Result<()> {
    let pool = &wanted.pools[number];
    let table = wanted.table(number);
    write(TABLES_OF_POOLS, 2 * number + pool.table as usize, bytemuck::cast_slice(&table), &find)?;
    write(POOLS, number, bytes_of(pool), &find)
}

pub fn write<M: MapCore>(
    name: &str,
    index: usize,
    value: &[u8],
    find: impl Fn(&str) -> Option<M>,
) -> Result<()> {
    let map = find(name).ok_or_else(|| no_map(name))?;
    update(&map, bytes_of(&(index as u32)), value)
}

fn forget_counts<M: MapCore>(slot: usize, find: impl Fn(&str) -> Option<M>) -> Result<()> {
    let map = find(BACKEND_COUNTS).ok_or_else(|| no_map(BACKEND_COUNTS))?;
    let zero = abi::Counter::default();
    let mut places = (slot as u32..map.max_entries()).step_by(abi::BACKENDS);
    places.try_for_each(|place| update(&map, bytes_of(&place), bytes_of(&zero)))
}

/// At random, as a program that comes back after another one may know other backends in the same places.
fn new_generation() -> Result<u16> {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).map_err(|error| Error::other(format!("no random numbers: {error}")))?;
    Ok(u16::from_ne_bytes(bytes))
}
