// SPDX-License-Identifier: Apache-2.0
//! The latest frames of an interface, in memory of a fixed size.

use std::collections::VecDeque;

use wirewised::plane::user_space::Seen;

/// Bytes of memory per frame at least, which bounds their number.
const PER_FRAME: usize = 128;

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: usize,
    length: usize,
    wire_length: usize,
    time_ns: u64,
}

pub struct Latest {
    /// The oldest frame is the next behind `end`, going round.
    bytes: Box<[u8]>,
    end: usize,
    entries: VecDeque<Entry>,
}

impl Latest {
    /// bytes : of memory, beside a quarter of it to find frames by.
    pub fn new(bytes: usize) -> Self {
        let entries = VecDeque::with_capacity(bytes / PER_FRAME);
        Self { bytes: vec![0; bytes].into(), end: 0, entries }
    }

    /// Keeps a frame; the oldest make room. One that is longer than the memory, or empty, is not kept.
    pub fn push(&mut self, seen: &Seen<'_>) {
        let length = seen.frame.len();
        if length == 0 || length > self.bytes.len() {
            return;
        }
        if self.end + length > self.bytes.len() {
            // Frames from `end` on are older than those before it.
            self.release(self.end..self.bytes.len());
            self.end = 0;
        }
        let place = self.end..self.end + length;
        self.release(place.clone());
        while self.entries.len() >= (self.bytes.len() / PER_FRAME).max(1) {
            self.entries.pop_front();
        }
        self.bytes[place].copy_from_slice(seen.frame);
        let Seen { time_ns, wire_length, .. } = *seen;
        self.entries.push_back(Entry { start: self.end, length, wire_length, time_ns });
        self.end += length;
    }

    /// Forgets frames that use any of these bytes.
    fn release(&mut self, range: std::ops::Range<usize>) {
        while let Some(oldest) = self.entries.front()
            && oldest.start < range.end
            && range.start < oldest.start + oldest.length
        {
            self.entries.pop_front();
        }
    }

    /// The oldest first.
    pub fn frames(&self) -> impl Iterator<Item = Seen<'_>> {
        self.entries.iter().map(|it| Seen {
            time_ns: it.time_ns,
            wire_length: it.wire_length,
            frame: &self.bytes[it.start..it.start + it.length],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_has_the_newest_frames_whole_and_in_order(
            memory in 1usize..2000,
            lengths in proptest::collection::vec(0usize..300, 0..200),
        ) {
            let mut latest = Latest::new(memory);
            let mut all: Vec<(u64, Vec<u8>)> = Vec::new();
            for (number, length) in (0u64..).zip(lengths) {
                let frame = vec![number as u8; length];
                latest.push(&Seen { time_ns: number, wire_length: length + 7, frame: &frame });
                if (1..=memory).contains(&length) {
                    all.push((number, frame));
                }
                let kept: Vec<_> = latest.frames().map(|seen| (seen.time_ns, seen.frame.to_vec())).collect();
                prop_assert!(all.ends_with(&kept));
                prop_assert!(latest.frames().all(|seen| seen.wire_length == seen.frame.len() + 7));
                let bytes: usize = kept.iter().map(|(_, frame)| frame.len()).sum();
                prop_assert!(bytes <= memory);
                // As many as fit, but for what the end and the place of the newest cost.
                let has_room = kept.len() < all.len() && kept.len() < (memory / PER_FRAME).max(1);
                prop_assert!(!has_room || bytes + 2 * 300 >= memory);
                prop_assert!(all.is_empty() || !kept.is_empty());
            }
        }
    }
}
