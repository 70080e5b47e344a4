// SPDX-License-Identifier: Apache-2.0
//! The rings of rows, one a CPU: `ww_records` and `ww_record_rings`, mapped. Neither side ever waits for the other.

use std::mem::offset_of;

use crate::abi;
use crate::abi::maps::{RECORD_RINGS, RECORDS};
use crate::error::{Error, Result};
use crate::object::Loaded;
use crate::object::mapped::MappedArray;

/// Rows that are taken of a CPU at a time: what they take of memory stays in the processor's cache.
const AT_A_TIME: u64 = 1024;

/// What the program counted, all CPUs together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingCounts {
    pub packets: u64,
    pub lost: u64,
}

pub struct Rings {
    rings: MappedArray,
    records: MappedArray,
    /// Of a CPU, a power of two.
    rows: u32,
    /// Words of a row.
    width: usize,
    /// How many were read, by CPU.
    read: Vec<u64>,
    /// Rows that were taken, one behind the other, and where the rows begin, in the order of time.
    taken: Vec<u64>,
    order: Vec<(u64, usize)>,
}

/// What a row of so many features takes.
pub fn row_bytes(features: usize) -> usize {
    size_of::<abi::Record>() + features * size_of::<i64>()
}

impl Rings {
    pub fn new(loaded: &Loaded, features: usize) -> Result<Self> {
        let other = || {
            Error::input(
                "the object has no rows of this feature set to give; compile both anew (`wirewise record`)",
            )
        };
        let (Some(rings), Some(records), Some(config)) =
            (loaded.map(RECORD_RINGS), loaded.map(RECORDS), loaded.config)
        else {
            return Err(other());
        };
        let (rings, records) = (MappedArray::to_write(&rings)?, MappedArray::new(&records)?);
        let is_ours = rings.value_size() == size_of::<abi::RecordRing>()
            && records.value_size() == row_bytes(features)
            && u64::from(records.entries()) == u64::from(rings.entries()) * u64::from(config.record);
        if !is_ours {
            return Err(other());
        }
        let (cpus, width) = (rings.entries() as usize, row_bytes(features) / size_of::<u64>());
        Ok(Self {
            rings,
            records,
            rows: config.record,
            width,
            read: vec![0; cpus],
            taken: Vec::new(),
            order: Vec::new(),
        })
    }

    /// Takes what is there, at most `most` rows and AT_A_TIME of a CPU, and gives their places back. Returns how many.
    pub fn take(&mut self, most: usize) -> usize {
        self.taken.clear();
        self.order.clear();
        for (cpu, read) in (0u32..).zip(&mut self.read) {
            let written = self.rings.load_wide(cpu, offset_of!(abi::RecordRing, written)).unwrap_or(*read);
            let room = (most - self.order.len()) as u64;
            let rows = written.wrapping_sub(*read).min(AT_A_TIME).min(room);
            for _ in 0..rows {
                let place = cpu * self.rows + (*read as u32 & (self.rows - 1));
                let start = self.taken.len();
                self.taken.resize(start + self.width, 0);
                self.records.read_part(place, 0, bytemuck::cast_slice_mut(&mut self.taken[start..]));
                self.order.push((self.taken[start], start));
                *read += 1;
            }
            if rows > 0 {
                self.rings.store(cpu, offset_of!(abi::RecordRing, read), *read);
            }
        }
        if self.read.len() > 1 {
            self.order.sort();
        }
        self.order.len()
    }

    /// Calls for each row that was taken, with its features.
    pub fn each(&self, mut visit: impl FnMut(&abi::Record, &[i64]) -> Result<()>) -> Result<()> {
        const HEAD: usize = size_of::<abi::Record>() / size_of::<u64>();
        for (_, start) in &self.order {
            let (head, features) = self.taken[*start..*start + self.width].split_at(HEAD);
            visit(bytemuck::from_bytes(bytemuck::cast_slice(head)), bytemuck::cast_slice(features))?;
        }
        Ok(())
    }

    pub fn found(&self) -> RingCounts {
        let rings = (0..self.rings.entries()).filter_map(|cpu| self.rings.read::<abi::RecordRing>(cpu));
        rings.fold(RingCounts::default(), |sum, ring| RingCounts {
            packets: sum.packets + ring.packets,
            lost: sum.lost + ring.lost,
        })
    }
}
