// SPDX-License-Identifier: Apache-2.0
//! A function's stack frame: which parts of it need memory.

use std::collections::BTreeMap;

use super::instr::Size;
use super::ir::Place;

/// Bytes of a stack frame.
pub(crate) const FRAME_BYTES: i64 = 512;

/// How a function's frame is used. Offsets count from the start of the 512 bytes.
#[derive(Debug, Clone, Default)]
pub(super) struct Frame {
    accesses: BTreeMap<u32, Vec<Size>>,
    /// Ranges that something may point into.
    memory: Vec<(i64, i64)>,
    all: bool,
}

impl Frame {
    /// A load or store of all of a part.
    pub(super) fn used(&mut self, place: Place, size: Size) {
        if let Place::Frame(offset) = place {
            let sizes = self.accesses.entry(offset).or_default();
            if !sizes.contains(&size) {
                sizes.push(size);
            }
        }
    }

    /// An access that needs the part to be memory.
    pub(super) fn pinned(&mut self, place: Place, size: Size) {
        if let Place::Frame(offset) = place {
            self.memory.push((offset.into(), i64::from(offset) + i64::from(size.bytes())));
        }
    }

    /// A pointer at `offset` from the frame pointer to `bytes` bytes leaves the function's own accesses.
    pub(super) fn escaped(&mut self, offset: i64, bytes: i64) {
        let start = offset.saturating_add(FRAME_BYTES);
        self.memory.push((start, start.saturating_add(bytes)));
    }

    pub(super) fn escaped_from(&mut self, offset: i64) {
        self.memory.push((offset.saturating_add(FRAME_BYTES), FRAME_BYTES));
    }

    pub(super) fn escaped_all(&mut self) {
        self.all = true;
    }

    /// The parts that need no memory: always read and written whole, and nothing points at them.
    pub(super) fn slots(&self) -> BTreeMap<u32, Size> {
        let mut slots = BTreeMap::new();
        if self.all {
            return slots;
        }
        let end = |offset: u32, size: &Size| offset + size.bytes();
        for (offset, sizes) in &self.accesses {
            let [size] = sizes.as_slice() else { continue };
            let (start, stop) = (i64::from(*offset), i64::from(end(*offset, size)));
            let pointed_at = self.memory.iter().any(|(from, to)| *from < stop && start < *to);
            let shared = self.accesses.range(offset.saturating_sub(7)..stop as u32).any(|(other, sizes)| {
                other != offset && sizes.iter().any(|size| end(*other, size) > *offset)
            });
            if !pointed_at && !shared {
                slots.insert(*offset, *size);
            }
        }
        slots
    }

    /// Bytes of memory the frame needs.
    pub(super) fn bytes(&self, slots: &BTreeMap<u32, Size>) -> u32 {
        if self.all {
            return FRAME_BYTES as u32;
        }
        let accessed =
            self.accesses.keys().filter(|offset| !slots.contains_key(offset)).map(|at| i64::from(*at));
        let lowest = accessed.chain(self.memory.iter().map(|(from, _)| *from)).min();
        let bytes = FRAME_BYTES - lowest.unwrap_or(FRAME_BYTES).clamp(0, FRAME_BYTES);
        (bytes as u32).next_multiple_of(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_nothing_points_at_need_no_memory() {
        let mut frame = Frame::default();
        frame.used(Place::Frame(504), Size::D);
        frame.used(Place::Frame(500), Size::W);
        frame.used(Place::Frame(488), Size::D);
        frame.used(Place::Frame(492), Size::W);
        frame.used(Place::Frame(480), Size::D);
        frame.escaped(480 - FRAME_BYTES, 4);
        let slots = frame.slots();
        assert_eq!(slots.into_iter().collect::<Vec<_>>(), [(500, Size::W), (504, Size::D)]);
        assert_eq!(frame.bytes(&frame.slots()), 32);
        frame.escaped_all();
        assert_eq!((frame.slots().len(), frame.bytes(&BTreeMap::new())), (0, 512));
    }
}
