// SPDX-License-Identifier: Apache-2.0
//! Several captures as one, by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::Result;
use crate::reader::{Packet, Reader};

/// Captures merged by time. Packets of one capture keep their order, even where it is not that of their times; of equal
/// times the capture given first goes first.
pub struct Merge {
    readers: Vec<Reader>,
    /// Readers that go to their next packet before anything is chosen.
    moving: Vec<usize>,
    /// Time and index of the readers that stand at a packet which is not yet handed on.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    current: usize,
}

impl Merge {
    pub fn new(readers: Vec<Reader>) -> Self {
        let moving = (0..readers.len()).rev().collect();
        Self { readers, moving, waiting: BinaryHeap::new(), current: 0 }
    }

    /// Goes to the packet with the earliest time; false when every capture has ended. An error is one capture's; calling
    /// again goes on with the others, and with that one if it can.
    pub fn advance(&mut self) -> Result<bool> {
        while let Some(&index) = self.moving.last() {
            let reader = &mut self.readers[index];
            let there = match reader.advance() {
                Ok(there) => there,
                Err(error) => {
                    if !error.is_about_one_packet() {
                        self.moving.pop();
                    }
                    return Err(error);
                }
            };
            let place = (reader.time_ns(), index);
            // Usually the same capture is next again, or the only one.
            if there
                && self.moving.len() == 1
                && self.waiting.peek().is_none_or(|Reverse(first)| place < *first)
            {
                self.current = index;
                return Ok(true);
            }
            self.moving.pop();
            if there {
                self.waiting.push(Reverse(place));
            }
        }
        let Some(Reverse((_, index))) = self.waiting.pop() else { return Ok(false) };
        self.current = index;
        self.moving.push(index);
        Ok(true)
    }

    /// Index of the capture the current packet is from.
    pub fn source(&self) -> usize {
        self.current
    }

    pub fn name(&self, source: usize) -> &str {
        self.readers.get(source).map_or("", Reader::name)
    }

    /// The packet that `advance` went to; there must be a capture.
    pub fn packet(&self) -> Packet<'_> {
        self.readers[self.current].packet()
    }

    /// As `Reader::frame_mut`.
    pub fn frame_mut(&mut self) -> &mut [u8] {
        self.readers[self.current].frame_mut()
    }

    /// Bytes of the files read so far, and all of them where that is known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        self.readers.iter().map(Reader::progress).fold((0, Some(0)), |(done, all), (more, length)| {
            (done + more, all.zip(length).map(|(all, length)| all + length))
        })
    }
}
