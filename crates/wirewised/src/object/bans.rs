// SPDX-License-Identifier: Apache-2.0
//! Who is banned, in the map that the data path writes (bpf/act/ban.h).

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libbpf_rs::MapCore;
use serde_json::{Value, json};

use crate::abi::maps::BANS;
use crate::abi::{self, BanBucket, BanKey};
use crate::error::Result;
use crate::object::mapped::MappedArray;
use crate::object::maps::other_layout;
use crate::policy::Prefix;

/// A ban that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ban {
    pub source: Prefix,
    /// `None`: whatever the source sends.
    pub destination: Option<IpAddr>,
    /// Made in observe mode: nothing is dropped for it.
    pub would: bool,
    pub until_ns: u64,
    place: Place,
}

/// Where it is in the map, and its tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    bucket: u32,
    way: usize,
    tag: u32,
}

impl Ban {
    /// As JSON. now_ns : CLOCK_MONOTONIC.
    pub fn form(&self, now_ns: u64) -> Value {
        json!({
            "source": self.source.to_string(),
            "destination": self.destination,
            "for_ms": self.until_ns.saturating_sub(now_ns) / 1_000_000,
            "would": self.would,
        })
    }
}

/// The map, to be read and written while packets pass.
pub struct Table(MappedArray);

impl Table {
    /// map : `ww_bans`.
    pub fn open(map: &impl MapCore) -> Result<Self> {
        MappedArray::to_write(map).map(Self)
    }

    /// Those that hold at a time of CLOCK_MONOTONIC, by source.
    pub fn read(&self, now_ns: u64) -> Result<Vec<Ban>> {
        let mut bans = Vec::new();
        for bucket in 0..self.0.entries() {
            let element: BanBucket = self.0.read(bucket).ok_or_else(|| other_layout(BANS))?;
            for (way, tag) in element.tag.into_iter().enumerate() {
                let place = Place { bucket, way, tag };
                // One that is being written, or was while it was read, is for the next reading.
                let stays = self.0.load(bucket, place.offset()) == Some(tag);
                if tag != abi::BAN_FREE && tag != abi::BAN_BUSY && stays && element.until_ns[way] > now_ns {
                    bans.extend(ban(&element.key[way], element.until_ns[way], place));
                }
            }
        }
        bans.sort();
        Ok(bans)
    }

    /// Ends a ban, unless its place has been given to another one.
    pub fn lift(&self, ban: &Ban) -> bool {
        self.0.replace(ban.place.bucket, ban.place.offset(), ban.place.tag, abi::BAN_FREE)
    }
}

impl Place {
    fn offset(self) -> usize {
        offset_of!(BanBucket, tag) + size_of::<u32>() * self.way
    }
}

/// `None`: a key that the data path does not write.
fn ban(key: &BanKey, until_ns: u64, place: Place) -> Option<Ban> {
    let address = |words: &[u64; 2]| {
        let bytes: [u8; 16] = bytemuck::cast(*words);
        match key.ip_version {
            4 => Some(IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))),
            6 => Some(IpAddr::V6(Ipv6Addr::from(bytes))),
            _ => None,
        }
    };
    let source = Prefix { address: address(&key.source)?, length: key.length };
    let destination = if key.pair != 0 { Some(address(&key.destination)?) } else { None };
    Some(Ban { source, destination, would: key.would != 0, until_ns, place })
}
