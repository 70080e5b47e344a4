// SPDX-License-Identifier: Apache-2.0
//! From what the analysis knows to the operations of each function.

use super::analysis::{Analysis, Result};
use super::frame::{FRAME_BYTES, Frame};
use super::instr::Instr;
use super::ir::{Block, End, Function, Op, Place};
use crate::limits;

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
