// SPDX-License-Identifier: Apache-2.0
//! Prefixes in LPM tries that hold until a time: what the lists of who is allowed and who is denied have in common.

use bytemuck::{AnyBitPattern, try_pod_read_unaligned};
use libbpf_rs::MapCore;

use crate::abi;
use crate::error::Result;
use crate::object::maps::{self, other_layout};
use crate::policy::Prefix;

/// The origin of what the policy itself allows or denies.
pub const OF_POLICY: &str = "policy";

/// When a prefix is no longer on a list, in seconds of CLOCK_BOOTTIME, or `abi::LIST_FOREVER`; 0: it is not.
pub type Until = u32;

/// Prefixes of the origin whose edit it is, and those of others that had expired.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    pub added: usize,
    pub changed: usize,
    pub removed: usize,
    pub expired: usize,
}

impl Counts {
    /// Of one prefix, what an edit makes of its time.
    pub fn count(&mut self, before: Until, until: Until) {
        match (before, until) {
            (before, until) if before == until => {}
            (0, _) => self.added += 1,
            (_, 0) => self.removed += 1,
            _ => self.changed += 1,
        }
    }
}

/// The seconds that are left, `Some(None)`: until it is removed; `None`: none. now_s : CLOCK_BOOTTIME.
pub fn left(until: Until, now_s: u32) -> Option<Option<u32>> {
    match until {
        abi::LIST_FOREVER => Some(None),
        until => until.checked_sub(now_s).filter(|left| *left > 0).map(Some),
    }
}

/// All that a trie holds. name : of the map, for errors.
pub fn elements<T: AnyBitPattern>(map: &impl MapCore, name: &str) -> Result<Vec<(Prefix, T)>> {
    let element = |(key, value): (Vec<u8>, Vec<u8>)| prefix_of(&key).zip(try_pod_read_unaligned(&value).ok());
    maps::read_all(map)?.map(|it| element(it).ok_or_else(|| other_layout(name))).collect()
}

/// The prefix that is a key of a trie; `None`: not such a key.
fn prefix_of(key: &[u8]) -> Option<Prefix> {
    if let Ok(abi::Prefix4 { length, address }) = try_pod_read_unaligned(key) {
        return Some(Prefix { address: address.into(), length: length.try_into().ok()? });
    }
    let abi::Prefix6 { length, address } = try_pod_read_unaligned(key).ok()?;
    Some(Prefix { address: address.into(), length: length.try_into().ok()? })
}
