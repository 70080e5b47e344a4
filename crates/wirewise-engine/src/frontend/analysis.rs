// SPDX-License-Identifier: Apache-2.0
//! Follows what registers and stack slots may hold through all functions of a program, forward to a fixed point.
//!
//! It finds the reads of the context, which the kernel rewrites as well; maps and constants that are known, so that look-ups become
//! addresses and branches on frozen data vanish; and what of the frame needs no memory.

use std::collections::BTreeSet;

use super::cfg::FunctionRange;
use super::decode::Refused;
use super::frame::Frame;
use super::instr::{Instr, Operand};
use super::state::State;
use super::value::{Value, decide};
use crate::limits;
use crate::linked::MapSpec;
use crate::maps::Layout;

/// Visits of a block after which growing bounds are given up.
const WIDEN_AFTER: u32 = 8;
/// Steps that any program may take.
const LEAST_STEPS: usize = 1 << 20;

/// What a program is translated for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub maps: &'a [MapSpec],
    pub places: &'a [Layout],
    pub caged: bool,
    pub cpu: u32,
}

/// What is known at a function's entry, over all its callers.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub args: [Value; 5],
    /// Behind what an argument points at in a caller's frame: offsets that hold the context.
    pub contexts: [BTreeSet<i64>; 5],
    changes: u32,
    reached: bool,
}

pub(super) struct Analysis<'a> {
    pub code: &'a [Instr],
    pub functions: &'a [FunctionRange],
    pub target: Target<'a>,
    /// By function: arguments it reads.
    pub arity: &'a [u8],
    pub entries: Vec<Entry>,
    /// By function and block: what is known at its start; `None`: not reached.
    pub states: Vec<Vec<Option<State>>>,
    dirty: BTreeSet<usize>,
    /// Steps that it may still take.
    left: usize,
    /// The function under way.
    pub function: usize,
    /// How its frame is used; complete after the pass that lowers it.
    pub frame: Frame,
    /// Some function stores a pointer into a frame where it does not follow it: in a caller's frame.
    pub hides_pointers: Option<usize>,
}

pub(super) type Result<T> = std::result::Result<T, (usize, Refused)>;

pub(super) fn unsupported<T>(at: usize, what: impl Into<String>) -> Result<T> {
    Err((at, Refused::Unsupported(what.into())))
}

pub(super) fn malformed<T>(at: usize, why: impl Into<String>) -> Result<T> {
    Err((at, Refused::Malformed(why.into())))
}

impl<'a> Analysis<'a> {
    pub(super) fn new(
        code: &'a [Instr],
        functions: &'a [FunctionRange],
        arity: &'a [u8],
        target: Target<'a>,
    ) -> Self {
        let unknown =
            Entry { args: [Value::UNKNOWN; 5], contexts: Default::default(), changes: 0, reached: false };
        let mut entries = vec![unknown; functions.len()];
        // In the cage the context is memory like any other.
        if !target.caged {
            entries[0].args[0] = Value::Context(0);
        }
        entries[0].reached = true;
        let states = functions.iter().map(|function| vec![None; function.leaders.len()]).collect();
        let dirty = BTreeSet::from([0]);
        Self {
            code,
            functions,
            target,
            arity,
            entries,
            states,
            dirty,
            left: LEAST_STEPS + code.len() * limits::STEPS_PER_INSN,
            function: 0,
            frame: Frame::default(),
            hides_pointers: None,
        }
    }

    /// To the fixed point.
    pub(super) fn run(&mut self) -> Result<()> {
        while let Some(function) = self.dirty.pop_first() {
            self.function = function;
            self.frame = Frame::default();
            self.run_function()?;
        }
        let spills_context =
            || self.states.iter().flatten().flatten().any(|state| state.contexts().next().is_some());
        match self.hides_pointers {
            Some(at) if spills_context() => unsupported(
                at,
                "a pointer into a stack frame stored in a caller's frame, in a program that spills the context",
            ),
            _ => Ok(()),
        }
    }

    fn run_function(&mut self) -> Result<()> {
        let range = &self.functions[self.function];
        let mut visits = vec![0; range.leaders.len()];
        let entry = State::at_entry(&self.entries[self.function].args);
        self.reach(0, &entry, true);
        // All over again: what callers' frames hold is not part of the states, and may have changed.
        let reached = |block: &usize| self.states[self.function][*block].is_some();
        let mut work: BTreeSet<usize> = (0..range.leaders.len()).filter(reached).collect();
        while let Some(block) = work.pop_first() {
            visits[block] += 1;
            let Some(mut state) = self.states[self.function][block].clone() else { continue };
            let (slots, at) = (range.block(block), range.leaders[block]);
            self.left = match self.left.checked_sub(slots.len() + state.followed()) {
                Some(left) => left,
                None => {
                    return unsupported(
                        at,
                        "loops that take too many steps to analyse: write them with fewer branches",
                    );
                }
            };
            for at in slots {
                self.step(at, &mut state)?;
            }
            for next in self.successors(block, &state) {
                if self.reach(next, &state, visits[next] > WIDEN_AFTER) {
                    work.insert(next);
                }
            }
        }
        Ok(())
    }

    fn reach(&mut self, block: usize, state: &State, widen: bool) -> bool {
        match &mut self.states[self.function][block] {
            Some(known) => known.merge(state, widen),
            unknown => {
                *unknown = Some(state.clone());
                true
            }
        }
    }

    pub(super) fn operand(state: &State, src: Operand) -> Value {
        match src {
            Operand::Reg(register) => state.reg(register),
            Operand::Imm(number) => Value::Number(i64::from(number) as u64),
        }
    }

    /// Which way the branch that ends a block goes, where that is known.
    pub(super) fn decided(&self, instr: Instr, state: &State) -> Option<bool> {
        let Instr::Branch { wide, cond, dst, src, .. } = instr else { return None };
        decide(wide, cond, state.reg(dst), Self::operand(state, src))
    }

    fn successors(&self, block: usize, state: &State) -> Vec<usize> {
        let range = &self.functions[self.function];
        let slots = range.block(block);
        let next = |slot| range.block_at(slot);
        match self.code[slots.end - 1] {
            Instr::Exit => vec![],
            Instr::Jump { target } => vec![next(target)],
            branch @ Instr::Branch { target, .. } => match self.decided(branch, state) {
                Some(true) => vec![next(target)],
                Some(false) => vec![next(slots.end)],
                None => vec![next(slots.end), next(target)],
            },
            _ => vec![next(slots.end)],
        }
    }

    /// A call with these arguments: the callee is analysed (again) if it learns of new ones.
    pub(super) fn enter(
        &mut self,
        at: usize,
        function: usize,
        args: [Value; 5],
        state: &State,
    ) -> Result<()> {
        let points_at_frames = args.iter().any(|value| value.points_at_frames());
        let holds_context = state.contexts().next().is_some();
        if points_at_frames && holds_context && state.holds_frame_pointers() {
            return unsupported(at, "the context in memory that a subprogram may reach in more than one way");
        }
        let mut passed = args;
        let mut contexts: [BTreeSet<i64>; 5] = Default::default();
        for (arg, value) in passed.iter_mut().enumerate() {
            *value = match *value {
                Value::Frame(offset) => {
                    contexts[arg] = state.contexts().map(|slot| slot.wrapping_sub(offset)).collect();
                    Value::Outer { arg: arg as u8, offset: 0 }
                }
                Value::Outer { arg: outer, offset } => {
                    let known = &self.entries[self.function].contexts[usize::from(outer)];
                    contexts[arg] = known.iter().map(|slot| slot.wrapping_sub(offset)).collect();
                    Value::Outer { arg: arg as u8, offset: 0 }
                }
                other @ Value::Other(taint) if other.points_at_frames() => {
                    if holds_context || self.outer_contexts() {
                        return unsupported(at, "the context in memory reached by a computed address");
                    }
                    Value::Other(super::value::Taint { frame: false, outer: true, ..taint })
                }
                other => other,
            };
        }
        let entry = &mut self.entries[function];
        let first = !entry.reached;
        let mut changed = first;
        for arg in 0..5 {
            let before = entry.args[arg];
            let widen = entry.changes > WIDEN_AFTER;
            entry.args[arg] = match first {
                true => passed[arg],
                false if widen => before.widen(passed[arg]),
                false => before.join(passed[arg]),
            };
            let known = entry.contexts[arg].len();
            entry.contexts[arg].extend(&contexts[arg]);
            changed |= before != entry.args[arg] || known != entry.contexts[arg].len();
        }
        entry.reached = true;
        entry.changes += u32::from(changed);
        if changed {
            self.dirty.insert(function);
        }
        Ok(())
    }

    pub(super) fn outer_contexts(&self) -> bool {
        self.entries[self.function].contexts.iter().any(|contexts| !contexts.is_empty())
    }

    pub(super) fn reached(&self, function: usize) -> bool {
        self.entries[function].reached
    }
}
