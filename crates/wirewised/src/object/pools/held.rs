// SPDX-License-Identifier: Apache-2.0
//! What the maps hold of pools and backends.

use std::net::IpAddr;

use bytemuck::Zeroable;
use libbpf_rs::MapCore;

use crate::abi;
use crate::abi::maps::{BACKENDS, POOLS};
use crate::error::Result;
use crate::object::maps::read_element;
use crate::object::pools::maglev::{self, Member};

/// The maps `ww_pools` and `ww_backends`, element by element.
#[derive(Debug, Clone)]
pub struct Held {
    pub pools: Vec<abi::Pool>,
    pub backends: Vec<abi::Backend>,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            pools: vec![abi::Pool::zeroed(); abi::POOLS],
            backends: vec![abi::Backend::zeroed(); abi::BACKENDS],
        }
    }
}

impl Held {
    /// `None`: the program does not balance.
    pub fn read<M: MapCore>(find: impl Fn(&str) -> Option<M>) -> Result<Option<Self>> {
        let (Some(pools), Some(backends)) = (find(POOLS), find(BACKENDS)) else { return Ok(None) };
        Ok(Some(Self { pools: elements(&pools, abi::POOLS)?, backends: elements(&backends, abi::BACKENDS)? }))
    }

    /// The pools there are, each with its number.
    pub fn named(&self) -> impl Iterator<Item = (usize, &abi::Pool)> {
        self.pools.iter().enumerate().filter(|(_, pool)| pool.name[0] != 0)
    }

    /// The backends of a pool, each with its place.
    pub fn members(&self, pool: usize) -> impl Iterator<Item = (usize, &abi::Backend)> {
        let there = move |backend: &abi::Backend| {
            backend.flags & abi::BACKEND_THERE != 0 && usize::from(backend.pool) == pool
        };
        self.backends.iter().enumerate().filter(move |(_, backend)| there(backend))
    }

    /// The table of a pool, with the backends that get flows.
    pub fn table(&self, pool: usize) -> Vec<u16> {
        let out = abi::BACKEND_DRAINS | abi::BACKEND_DOWN;
        let members = self.members(pool).filter(|(_, backend)| backend.flags & out == 0);
        let members = members.map(|(slot, backend)| Member {
            address: backend.ip(),
            weight: backend.weight,
            slot: slot as u16,
        });
        maglev::table(&members.collect::<Vec<_>>())
    }
}

impl abi::Pool {
    pub fn text(&self) -> String {
        text(&self.name)
    }
}

impl abi::Backend {
    pub fn ip(&self) -> IpAddr {
        ip(self.ip_version, &self.address)
    }
}

/// Up to the first zero.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

fn ip(version: u8, bytes: &[u8; 16]) -> IpAddr {
    let [a, b, c, d, ..] = *bytes;
    if version == 4 { IpAddr::from([a, b, c, d]) } else { IpAddr::from(*bytes) }
}

fn elements<T: bytemuck::AnyBitPattern>(map: &impl MapCore, count: usize) -> Result<Vec<T>> {
    (0..count as u32).map(|index| read_element(map, index)).collect()
}
