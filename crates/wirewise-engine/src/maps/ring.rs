// SPDX-License-Identifier: Apache-2.0
//! A ring buffer: records a program reserves, fills and submits; user space drains them in order.
//!
//! Its memory is twice its size, so that a record that begins near the end goes on behind it in one piece. Room is accounted as
//! in the kernel: eight bytes of header a record, lengths rounded up to eight.

use std::collections::VecDeque;

const HEADER: u64 = 8;
/// Of the ring: a record without data.
pub(crate) const LEAST_RECORD: usize = HEADER as usize;
/// What the engine keeps of a record; grows by doubling.
pub(crate) const BYTES_PER_RECORD: usize = 2 * size_of::<Record>();

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Reserved,
    Submitted,
    Discarded,
}

#[derive(Debug)]
struct Record {
    at: u32,
    length: u32,
    state: State,
}

#[derive(Debug)]
pub(crate) struct Ring {
    size: u64,
    produced: u64,
    consumed: u64,
    records: VecDeque<Record>,
    /// Of the records: neither submitted nor discarded.
    reserved: usize,
}

/// What a record takes of the ring.
fn room(length: u64) -> u64 {
    (length + HEADER).next_multiple_of(8)
}

impl Ring {
    pub(crate) fn new(size: u32) -> Self {
        Self { size: size.into(), produced: 0, consumed: 0, records: VecDeque::new(), reserved: 0 }
    }

    /// Offset of `length` new bytes in the ring's memory; `None` if they do not fit now.
    pub(crate) fn reserve(&mut self, length: u64) -> Option<u32> {
        if length > self.size || self.produced + room(length) - self.consumed > self.size - 1 {
            return None;
        }
        let at = (self.produced % self.size + HEADER) as u32;
        self.records.push_back(Record { at, length: length as u32, state: State::Reserved });
        self.produced += room(length);
        self.reserved += 1;
        Some(at)
    }

    /// Submits or discards the record at an offset; false if there is none that is reserved.
    pub(crate) fn finish(&mut self, at: u64, discard: bool) -> bool {
        // The first record begins at `consumed`, and they follow each other around the ring.
        let first = self.consumed % self.size + HEADER;
        let distance = |at: u64| (at + 2 * self.size - first) % self.size;
        let found = self.records.binary_search_by_key(&distance(at), |record| distance(record.at.into()));
        let record = found.ok().and_then(|index| self.records.get_mut(index));
        let Some(record) =
            record.filter(|record| u64::from(record.at) == at && record.state == State::Reserved)
        else {
            return false;
        };
        record.state = if discard { State::Discarded } else { State::Submitted };
        self.reserved -= 1;
        true
    }

    /// Hands out the submitted records in order, as offset and length, up to the first that is still reserved.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(usize, usize)) {
        while let Some(record) = self.records.front() {
            match record.state {
                State::Reserved => return,
                State::Submitted => each(record.at as usize, record.length as usize),
                State::Discarded => {}
            }
            self.consumed += room(record.length.into());
            self.records.pop_front();
        }
    }

    /// Between packets: a caged program may have left a record unfinished; nobody will finish it.
    pub(crate) fn settle(&mut self) {
        for record in self.records.iter_mut().rev() {
            if self.reserved == 0 {
                return;
            }
            if record.state == State::Reserved {
                record.state = State::Discarded;
                self.reserved -= 1;
            }
        }
    }

    /// `bpf_ringbuf_query`.
    pub(crate) fn query(&self, what: u64) -> u64 {
        match what {
            0 => self.produced - self.consumed,
            1 => self.size,
            2 => self.consumed,
            3 => self.produced,
            _ => 0,
        }
    }

    pub(crate) fn pending(&self) -> usize {
        self.records.iter().filter(|record| record.state == State::Submitted).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_in_order_and_discarded_ones_do_not() {
        let mut ring = Ring::new(4096);
        let at: Vec<u32> = [10, 20, 30].map(|length| ring.reserve(length).unwrap()).to_vec();
        assert!(ring.finish(at[2].into(), false) && ring.finish(at[1].into(), true));
        let mut seen = Vec::new();
        ring.drain(|_, length| seen.push(length));
        assert!(seen.is_empty(), "the first is still reserved");
        assert!(ring.finish(at[0].into(), false) && !ring.finish(at[0].into(), false));
        ring.drain(|at, length| seen.extend([at, length]));
        assert_eq!(seen, [at[0] as usize, 10, at[2] as usize, 30]);
    }

    #[test]
    fn a_record_is_found_wherever_the_ring_is() {
        let mut ring = Ring::new(4096);
        for round in 0..100u64 {
            let at: Vec<u64> =
                (0..20).map(|n| ring.reserve((round * 7 + n * 13) % 150).unwrap().into()).collect();
            for at in &at {
                assert!(!ring.finish(at + 1, false) && !ring.finish(at + 4096, false), "round {round}");
            }
            for at in at.iter().rev() {
                assert!(ring.finish(*at, false) && !ring.finish(*at, false), "round {round}");
            }
            let mut count = 0;
            ring.drain(|_, _| count += 1);
            assert_eq!(count, 20);
        }
    }

    #[test]
    fn what_is_left_reserved_is_discarded() {
        let mut ring = Ring::new(4096);
        let first = ring.reserve(8).unwrap();
        let second = ring.reserve(8).unwrap();
        assert!(ring.finish(second.into(), false));
        ring.settle();
        assert!(!ring.finish(first.into(), false));
        let mut seen = Vec::new();
        ring.drain(|at, _| seen.push(at));
        assert_eq!(seen, [second as usize]);
    }

    #[test]
    fn a_full_ring_refuses_and_a_drained_one_goes_on() {
        let mut ring = Ring::new(4096);
        let mut count = 0;
        for _ in 0..3 {
            while let Some(at) = ring.reserve(120) {
                assert!(at as usize + 120 <= 2 * 4096);
                assert!(ring.finish(at.into(), false));
                count += 1;
            }
            ring.drain(|_, _| {});
        }
        assert_eq!(count, 3 * 31, "31 of 128 bytes fit 4095");
        assert_eq!(ring.reserve(5000), None);
    }
}
