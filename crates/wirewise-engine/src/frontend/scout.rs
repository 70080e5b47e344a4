// SPDX-License-Identifier: Apache-2.0
//! A program's scout: its own code up to where it first touches an element of a large array, which it does not touch but returns the
//! address of, so that somebody may fetch it while other packets are judged.
//!
//! A scout changes nothing but its own frame. What it leaves out is what verified code may not rely on: the verifier knows nothing of what
//! maps and packets hold, nor of what clocks and atomic operations return. So whatever a scout reads instead, its accesses are
//! still those that were verified, and at worst its answer is wrong.

use super::instr::{Alu, AtomicOp, Operand};
use super::ir::{Array, Block, End, Function, Op, Place};

/// Smaller arrays stay in the processor's caches.
const LARGE_BYTES: u64 = 1 << 18;
const REGISTERS: usize = 11;

/// The scout of a program with this entry; `None` if it touches no large array before it calls something. Returns the address or 0.
pub(crate) fn of(entry: &Function) -> Option<Function> {
    let mut scout = Scout { entry, elements: vec![None; entry.blocks.len()], found: false };
    scout.trace();
    let blocks: Vec<Block> = (0..entry.blocks.len()).map(|index| scout.block(index)).collect();
    let mut ops_before = vec![0; blocks.len() + 1];
    for (index, block) in blocks.iter().enumerate() {
        ops_before[index + 1] = ops_before[index] + block.ops.len() + 1;
    }
    let found = scout.found;
    found.then(|| Function { blocks, ops_before, tail_calls: false, slots: entry.slots.clone(), ..*entry })
}

struct Scout<'a> {
    entry: &'a Function,
    /// Where each block begins: which registers, and which slots behind them, may point at an element. `None`: it does not get there.
    elements: Vec<Option<Vec<bool>>>,
    found: bool,
}

/// What becomes of an operation.
enum Step {
    Kept,
    /// Changes what others see: left out, but for a result, which is 0.
    Dropped {
        result: Option<u8>,
    },
    /// Touches an element.
    Found {
        base: u8,
        off: i32,
    },
    /// Calls something, or may write what is not known to be no frame.
    Lost,
}

impl Scout<'_> {
    /// Follows elements to where they are used.
    fn trace(&mut self) {
        self.elements[0] = Some(vec![false; REGISTERS + self.entry.slots.len()]);
        let mut changed = vec![0];
        while let Some(index) = changed.pop() {
            let Some(mut elements) = self.elements[index].clone() else { continue };
            let block = &self.entry.blocks[index];
            if !block.ops.iter().all(|op| pass(op, &mut elements)) {
                continue;
            }
            let targets = match block.end {
                End::Exit => [None, None],
                End::Jump(to) => [Some(to), None],
                End::Branch { then, otherwise, .. } => [Some(then), Some(otherwise)],
            };
            for to in targets.into_iter().flatten() {
                let known = &mut self.elements[to];
                let merged = match known {
                    None => elements.clone(),
                    Some(known) => known.iter().zip(&elements).map(|(a, b)| a | b).collect(),
                };
                if known.as_ref() != Some(&merged) {
                    *known = Some(merged);
                    changed.push(to);
                }
            }
        }
    }

    fn block(&mut self, index: usize) -> Block {
        let block = &self.entry.blocks[index];
        let nothing = Op::Number { dst: 0, value: 0 };
        let mut ops = Vec::new();
        let Some(mut elements) = self.elements[index].clone() else {
            return Block { ops: vec![nothing], end: End::Exit };
        };
        for op in &block.ops {
            match step(op, &elements) {
                Step::Kept => ops.push(op.clone()),
                Step::Dropped { result } => ops.extend(result.map(|dst| Op::Number { dst, value: 0 })),
                Step::Found { base, off } => {
                    self.found = true;
                    ops.push(Op::Alu { wide: true, op: Alu::Mov, dst: 0, src: Operand::Reg(base) });
                    ops.push(Op::Alu { wide: true, op: Alu::Add, dst: 0, src: Operand::Imm(off) });
                    return Block { ops, end: End::Exit };
                }
                Step::Lost => {
                    ops.push(nothing);
                    return Block { ops, end: End::Exit };
                }
            }
            pass(op, &mut elements);
        }
        if block.end == End::Exit {
            ops.push(nothing);
        }
        Block { ops, end: block.end.clone() }
    }
}

fn step(op: &Op, elements: &[bool]) -> Step {
    match *op {
        Op::Load { place: Place::Reg { base, off }, .. }
        | Op::Store { place: Place::Reg { base, off }, .. }
        | Op::Atomic { place: Place::Reg { base, off }, .. }
            if elements[usize::from(base)] =>
        {
            Step::Found { base, off }
        }
        Op::Store { place: Place::Reg { .. }, may_be_frame: true, .. } => Step::Lost,
        Op::Store { place: Place::Reg { .. } | Place::Memory(_), .. } => Step::Dropped { result: None },
        Op::Atomic { place: Place::Reg { .. } | Place::Memory(_), op, fetch, src, .. } => {
            let result = if op == AtomicOp::CompareExchange { 0 } else { src };
            Step::Dropped { result: fetch.then_some(result) }
        }
        Op::Helper { helper } if helper.is_clock() => Step::Dropped { result: Some(0) },
        Op::Helper { .. } | Op::Call { .. } | Op::Loop { .. } | Op::TailCall => Step::Lost,
        _ => Step::Kept,
    }
}

/// Carries what points at elements over an operation; false if the scout ends there.
fn pass(op: &Op, elements: &mut [bool]) -> bool {
    let (dst, points) = match *op {
        Op::Alu { op, dst, src, .. } => {
            let from = matches!(src, Operand::Reg(src) if elements[usize::from(src)]);
            (usize::from(dst), from || op != Alu::Mov && elements[usize::from(dst)])
        }
        Op::MovSx { dst, src, .. } => (usize::from(dst), elements[usize::from(src)]),
        Op::Load { dst, place: Place::Slot(slot), .. } => (usize::from(dst), elements[REGISTERS + slot]),
        Op::Store { place: Place::Slot(slot), src, .. } => {
            (REGISTERS + slot, matches!(src, Operand::Reg(src) if elements[usize::from(src)]))
        }
        Op::Number { dst, .. } | Op::Address { dst, .. } | Op::Context { dst, .. } | Op::Load { dst, .. } => {
            (usize::from(dst), false)
        }
        Op::Element { array, .. } => (0, is_large(array)),
        _ => match step(op, elements) {
            Step::Dropped { result: Some(dst) } => (usize::from(dst), false),
            step => return matches!(step, Step::Kept | Step::Dropped { .. }),
        },
    };
    let goes_on = matches!(step(op, elements), Step::Kept | Step::Dropped { .. });
    elements[dst] = points;
    goes_on
}

fn is_large(array: Array) -> bool {
    array.stride * u64::from(array.entries) >= LARGE_BYTES
}

#[cfg(test)]
mod tests {
    use super::super::instr::Size;
    use super::*;

    const LARGE: Array = Array { offset: 0, stride: 256, entries: 4096 };
    const STORE: Op = Op::Store {
        place: Place::Reg { base: 2, off: 0 },
        size: Size::D,
        src: Operand::Imm(1),
        may_be_frame: false,
    };
    const LOOK_UP: Op = Op::Element { array: LARGE, key: Place::Frame(0), in_bounds: false };

    fn entry(blocks: Vec<Block>) -> Function {
        let ops_before = vec![0; blocks.len() + 1];
        Function { args: 1, frame: 8, slots: vec![Size::D], tail_calls: false, blocks, ops_before }
    }

    fn mov(dst: u8, src: u8) -> Op {
        Op::Alu { wide: true, op: Alu::Mov, dst, src: Operand::Reg(src) }
    }

    fn load(base: u8) -> Op {
        Op::Load { dst: 1, place: Place::Reg { base, off: 24 }, size: Size::D, signed: false }
    }

    #[test]
    fn a_scout_ends_where_the_element_is_touched_and_stores_nothing() {
        let keep =
            Op::Store { place: Place::Slot(0), size: Size::D, src: Operand::Reg(3), may_be_frame: true };
        let get = Op::Load { dst: 4, place: Place::Slot(0), size: Size::D, signed: false };
        let first = Block { ops: vec![STORE, LOOK_UP, mov(3, 0), keep.clone()], end: End::Jump(1) };
        let second = Block { ops: vec![load(2), get.clone(), load(4), STORE], end: End::Exit };
        let scout = of(&entry(vec![first, second])).unwrap();
        assert_eq!(scout.blocks[0].ops, [LOOK_UP, mov(3, 0), keep]);
        let add = Op::Alu { wide: true, op: Alu::Add, dst: 0, src: Operand::Imm(24) };
        assert_eq!(scout.blocks[1], Block { ops: vec![load(2), get, mov(0, 4), add], end: End::Exit });
    }

    #[test]
    fn a_scout_goes_no_further_than_calls_and_stores_that_may_be_to_a_frame() {
        let Op::Store { place, size, src, .. } = STORE else { unreachable!() };
        let wild = Op::Store { place, size, src, may_be_frame: true };
        for op in [Op::Call { function: 1 }, Op::TailCall, wild] {
            assert_eq!(of(&entry(vec![Block { ops: vec![op, LOOK_UP, load(0)], end: End::Exit }])), None);
        }
    }

    #[test]
    fn what_atomic_operations_return_is_0_in_a_scout() {
        let add =
            |fetch| Op::Atomic { op: AtomicOp::Add, fetch, place: Place::Memory(8), size: Size::D, src: 5 };
        let ops = vec![add(true), add(false), LOOK_UP, load(0)];
        let scout = of(&entry(vec![Block { ops, end: End::Exit }])).unwrap();
        assert_eq!(scout.blocks[0].ops[..2], [Op::Number { dst: 5, value: 0 }, LOOK_UP]);
    }

    #[test]
    fn small_arrays_need_no_scout() {
        let small =
            Op::Element { array: Array { entries: 16, ..LARGE }, key: Place::Frame(0), in_bounds: true };
        assert_eq!(of(&entry(vec![Block { ops: vec![small, load(0)], end: End::Exit }])), None);
    }
}
