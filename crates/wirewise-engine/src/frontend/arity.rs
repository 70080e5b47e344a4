// SPDX-License-Identifier: Apache-2.0
//! How many arguments each function reads: which of r1 to r5 are live at its start.

use super::cfg::FunctionRange;
use super::instr::{Alu, AtomicOp, Instr, Operand};
use crate::helper::Helper;

/// A set of registers, one bit each.
type Registers = u16;

const ARGUMENTS: Registers = 0b11_1110;
/// What a call leaves undefined or defines: r0 to r5.
const CALL_WRITES: Registers = 0b11_1111;

fn bit(register: u8) -> Registers {
    1 << register
}

fn operand(src: Operand) -> Registers {
    match src {
        Operand::Reg(register) => bit(register),
        Operand::Imm(_) => 0,
    }
}

fn arguments(count: u8) -> Registers {
    ARGUMENTS & ((1 << (count + 1)) - 1)
}

/// Registers an instruction reads and writes. known: the arity of a called function, if that is known yet.
fn effects(instr: Instr, known: impl Fn(usize) -> u8) -> (Registers, Registers) {
    match instr {
        Instr::Alu { op: Alu::Mov, dst, src, .. } => (operand(src), bit(dst)),
        Instr::Alu { dst, src, .. } => (bit(dst) | operand(src), bit(dst)),
        Instr::Neg { dst, .. } | Instr::Order { dst, .. } => (bit(dst), bit(dst)),
        Instr::MovSx { dst, src, .. } => (bit(src), bit(dst)),
        Instr::Number { dst, .. }
        | Instr::Map { dst, .. }
        | Instr::MapValue { dst, .. }
        | Instr::Function { dst, .. } => (0, bit(dst)),
        Instr::Load { dst, base, .. } => (bit(base), bit(dst)),
        Instr::Store { base, src, .. } => (bit(base) | operand(src), 0),
        Instr::Atomic { op: AtomicOp::CompareExchange, base, src, .. } => {
            (bit(base) | bit(src) | bit(0), bit(0))
        }
        Instr::Atomic { base, src, .. } => (bit(base) | bit(src), 0),
        Instr::Branch { dst, src, .. } => (bit(dst) | operand(src), 0),
        Instr::Helper { id } => {
            let count = Helper::from_id(id).map_or(5, Helper::args);
            (arguments(count), CALL_WRITES)
        }
        Instr::Call { target } => (arguments(known(target)), CALL_WRITES),
        Instr::Exit => (bit(0), 0),
        Instr::Jump { .. } | Instr::Rest => (0, 0),
    }
}

/// By function. One that calls itself, as only a program that was not verified can, is taken to read all five there.
pub(crate) fn arities(code: &[Instr], functions: &[FunctionRange]) -> Vec<u8> {
    let mut known: Vec<Option<u8>> = vec![None; functions.len()];
    let index = |slot: usize| functions.partition_point(|function| function.start < slot);
    let mut open = vec![false; functions.len()];
    // Callees first, without recursion: a function stays on the stack until all it calls are done or under way.
    for root in 0..functions.len() {
        let mut stack = vec![(root, false)];
        while let Some((function, entered)) = stack.pop() {
            if known[function].is_some() {
                continue;
            }
            let range = &functions[function];
            if entered {
                let arity = |slot: usize| known[index(slot)].unwrap_or(5);
                known[function] = Some(arity_of(code, range, arity));
                continue;
            }
            if open[function] {
                continue;
            }
            open[function] = true;
            stack.push((function, true));
            for instr in &code[range.start..range.end] {
                if let Instr::Call { target } = instr {
                    stack.push((index(*target), false));
                }
            }
        }
    }
    known.into_iter().map(|arity| arity.unwrap_or(5)).collect()
}

fn arity_of(code: &[Instr], range: &FunctionRange, known: impl Fn(usize) -> u8) -> u8 {
    let blocks = range.leaders.len();
    let mut summaries = Vec::with_capacity(blocks);
    for block in 0..blocks {
        let (mut reads, mut writes) = (0, 0);
        for at in range.block(block) {
            let (read, written) = effects(code[at], &known);
            reads |= read & !writes;
            writes |= written;
        }
        summaries.push((reads, writes));
    }
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); blocks];
    let behind: Vec<_> = (0..blocks).map(|block| successors(code, range, block)).collect();
    for (block, behind) in behind.iter().enumerate() {
        for next in behind.iter().flatten() {
            before[*next].push(block);
        }
    }
    // A block is looked at again for each register that turns out to be live behind it, not for each loop it lies in.
    let mut live: Vec<Registers> = vec![0; blocks];
    let mut work: Vec<usize> = (0..blocks).collect();
    while let Some(block) = work.pop() {
        let behind = behind[block].iter().flatten().fold(0, |all, next| all | live[*next]);
        let (reads, writes) = summaries[block];
        let now = reads | behind & !writes;
        if now != live[block] {
            live[block] = now;
            work.extend(&before[block]);
        }
    }
    let arguments = live[0] & ARGUMENTS;
    if arguments == 0 { 0 } else { (Registers::BITS - 1 - arguments.leading_zeros()) as u8 }
}

/// The blocks that may follow a block.
fn successors(code: &[Instr], range: &FunctionRange, block: usize) -> [Option<usize>; 2] {
    let end = range.block(block).end;
    let next = |slot: usize| (slot < range.end).then(|| range.block_at(slot));
    match code[end - 1] {
        Instr::Exit => [None, None],
        Instr::Jump { target } => [next(target), None],
        Instr::Branch { target, .. } => [next(target), next(end)],
        _ => [next(end), None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontend::cfg;

    fn mov(dst: u8, src: u8) -> Instr {
        Instr::Alu { wide: true, op: Alu::Mov, dst, src: Operand::Reg(src) }
    }

    #[test]
    fn only_arguments_that_are_read_count() {
        // f(r1..r3): r0 = r3, or g(r1); g: r0 = 0, r0 += r1
        let code = [
            Instr::Branch {
                wide: true,
                cond: super::super::instr::Cond::Eq,
                dst: 1,
                src: Operand::Imm(0),
                target: 3,
            },
            mov(0, 3),
            Instr::Exit,
            Instr::Call { target: 5 },
            Instr::Exit,
            mov(2, 1),
            mov(0, 2),
            Instr::Exit,
        ];
        let functions = cfg::functions(&code).unwrap();
        assert_eq!(arities(&code, &functions), [3, 1]);
    }

    #[test]
    fn recursion_ends() {
        let code = [Instr::Call { target: 0 }, Instr::Exit];
        let functions = cfg::functions(&code).unwrap();
        assert_eq!(arities(&code, &functions), [5]);
    }
}
