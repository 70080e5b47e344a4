// SPDX-License-Identifier: Apache-2.0
//! From what the analysis knows to the operations of each function.

use std::collections::BTreeMap;

use super::analysis::{Analysis, Result};
use super::instr::{Instr, Size};
use super::ir::{Block, End, Function, Op, Place};
use super::step::FRAME_BYTES;
use crate::limits;

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
    fn slots(&self) -> BTreeMap<u32, Size> {
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
    fn bytes(&self, slots: &BTreeMap<u32, Size>) -> u32 {
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

impl Analysis<'_> {
    /// The functions that can be reached, renumbered; the entry stays the first.
    pub(super) fn lower(&mut self) -> Result<Vec<Function>> {
        let reached: Vec<usize> = (0..self.functions.len()).filter(|index| self.reached(*index)).collect();
        let mut functions = Vec::with_capacity(reached.len());
        for index in &reached {
            let mut function = self.lower_function(*index)?;
            for op in function.blocks.iter_mut().flat_map(|block| &mut block.ops) {
                if let Op::Call { function } | Op::Loop { function, .. } = op {
                    *function = reached.partition_point(|known| *known < *function);
                }
            }
            functions.push(function);
        }
        Ok(functions)
    }

    fn lower_function(&mut self, index: usize) -> Result<Function> {
        self.function = index;
        self.frame = Frame::default();
        let range = &self.functions[index];
        let reached: Vec<usize> =
            (0..range.leaders.len()).filter(|block| self.states[index][*block].is_some()).collect();
        let number = |slot: usize| {
            let block = range.block_at(slot);
            reached.partition_point(|known| *known < block)
        };
        let mut blocks = Vec::with_capacity(reached.len());
        for block in &reached {
            let Some(mut state) = self.states[index][*block].clone() else { continue };
            let slots = range.block(*block);
            let mut ops = Vec::with_capacity(slots.len());
            for at in slots.clone() {
                ops.extend(self.step(at, &mut state)?);
            }
            let end = match self.code[slots.end - 1] {
                Instr::Exit => End::Exit,
                Instr::Jump { target } => End::Jump(number(target)),
                branch @ Instr::Branch { wide, cond, dst, src, target } => {
                    match self.decided(branch, &state) {
                        Some(true) => End::Jump(number(target)),
                        Some(false) => End::Jump(number(slots.end)),
                        None => {
                            let (then, otherwise) = (number(target), number(slots.end));
                            End::Branch { wide, cond, dst, src, then, otherwise }
                        }
                    }
                }
                _ => End::Jump(number(slots.end)),
            };
            blocks.push(Block { ops, end });
        }
        let mut promoted = self.frame.slots();
        if blocks.len() * promoted.len() > limits::BLOCK_VARIABLES {
            promoted.clear();
        }
        let frame = self.frame.bytes(&promoted);
        let order: Vec<u32> = promoted.keys().copied().collect();
        for place in blocks.iter_mut().flat_map(|block| &mut block.ops).filter_map(place_of) {
            if let Place::Frame(offset) = place {
                *place = match order.binary_search(offset) {
                    Ok(slot) => Place::Slot(slot),
                    Err(_) => Place::Frame(*offset + frame - FRAME_BYTES as u32),
                };
            }
        }
        // An entry gets the context, whether it reads it or not.
        let args = if index == 0 { 1 } else { self.arity[index] };
        let tail_calls = blocks.iter().flat_map(|block| &block.ops).any(|op| *op == Op::TailCall);
        let mut ops_before = vec![0; blocks.len() + 1];
        for (index, block) in blocks.iter().enumerate() {
            ops_before[index + 1] = ops_before[index] + block.ops.len() + 1;
        }
        let slots = promoted.into_values().collect();
        Ok(Function { args, frame, slots, tail_calls, blocks, ops_before })
    }
}

fn place_of(op: &mut Op) -> Option<&mut Place> {
    match op {
        Op::Load { place, .. } | Op::Store { place, .. } | Op::Atomic { place, .. } => Some(place),
        Op::Element { key, .. } => Some(key),
        _ => None,
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
