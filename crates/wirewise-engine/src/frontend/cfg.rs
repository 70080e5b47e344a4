// SPDX-License-Identifier: Apache-2.0
//! Functions of a program and their basic blocks.

use std::collections::BTreeSet;

use super::decode::Refused;
use super::instr::Instr;
use crate::limits;

/// A function: the slots from its start to the next function's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FunctionRange {
    pub start: usize,
    pub end: usize,
    /// First slots of the basic blocks, in order; the first is `start`.
    pub leaders: Vec<usize>,
}

impl FunctionRange {
    /// Index of the block that begins at a slot.
    pub(crate) fn block_at(&self, slot: usize) -> usize {
        self.leaders.partition_point(|leader| *leader < slot)
    }

    /// The slots of a block.
    pub(crate) fn block(&self, index: usize) -> std::ops::Range<usize> {
        self.leaders[index]..self.leaders.get(index + 1).copied().unwrap_or(self.end)
    }
}

/// Splits a program into functions. The first is the entry; jumps stay in their function, no way falls out of it.
pub(crate) fn functions(code: &[Instr]) -> Result<Vec<FunctionRange>, (usize, Refused)> {
    let refuse = |at: usize, why: &str| Err((at, Refused::Malformed(why.into())));
    if code.is_empty() {
        return refuse(0, "the program is empty");
    }
    let called = code.iter().filter_map(|instr| match instr {
        Instr::Call { target } | Instr::Function { target, .. } => Some(*target),
        _ => None,
    });
    let starts: BTreeSet<usize> = std::iter::once(0).chain(called).collect();
    if let Some(start) = starts.iter().nth(limits::PROGRAM_FUNCTIONS) {
        return refuse(*start, &format!("more than {} functions in a program", limits::PROGRAM_FUNCTIONS));
    }
    let ends = starts.iter().skip(1).copied().chain([code.len()]);
    let mut all = Vec::with_capacity(starts.len());
    for (start, end) in starts.iter().copied().zip(ends) {
        if code[start] == Instr::Rest {
            return refuse(start, "a call into the middle of an instruction");
        }
        let mut leaders = BTreeSet::from([start]);
        for (at, instr) in code.iter().enumerate().take(end).skip(start) {
            let target = match instr {
                Instr::Jump { target } | Instr::Branch { target, .. } => *target,
                Instr::Exit => at,
                _ => continue,
            };
            if !(start..end).contains(&target) {
                return refuse(at, "a jump out of its function");
            }
            if code[target] == Instr::Rest {
                return refuse(at, "a jump into the middle of an instruction");
            }
            if *instr != Instr::Exit {
                leaders.insert(target);
            }
            if at + 1 < end {
                leaders.insert(at + 1);
            }
        }
        if !matches!(code[end - 1], Instr::Exit | Instr::Jump { .. }) {
            return refuse(end - 1, "the function's last instruction is neither exit nor a jump");
        }
        all.push(FunctionRange { start, end, leaders: leaders.into_iter().collect() });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontend::instr::{Cond, Operand};

    fn branch(target: usize) -> Instr {
        Instr::Branch { wide: true, cond: Cond::Eq, dst: 1, src: Operand::Imm(0), target }
    }

    #[test]
    fn blocks_begin_where_jumps_lead() {
        let code = [branch(2), Instr::Helper { id: 5 }, Instr::Call { target: 4 }, Instr::Exit, Instr::Exit];
        let functions = functions(&code).unwrap();
        assert_eq!(functions[0], FunctionRange { start: 0, end: 4, leaders: vec![0, 1, 2] });
        assert_eq!(functions[1], FunctionRange { start: 4, end: 5, leaders: vec![4] });
        assert_eq!((functions[0].block_at(2), functions[0].block(2)), (2, 2..4));
    }

    #[test]
    fn what_leaves_its_function_is_refused() {
        let number = Instr::Number { dst: 1, value: 0 };
        let cases: [&[Instr]; 5] = [
            &[],
            &[number, Instr::Rest],
            &[branch(2), number, Instr::Rest, Instr::Exit],
            &[Instr::Call { target: 3 }, branch(3), Instr::Exit, Instr::Exit],
            &[Instr::Call { target: 1 }, branch(1)],
        ];
        for code in cases {
            assert!(functions(code).is_err(), "{code:?}");
        }
    }
}
