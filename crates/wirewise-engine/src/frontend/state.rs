// SPDX-License-Identifier: Apache-2.0
//! What is known at one point of a function: registers, and the parts of its frame.

use std::collections::BTreeMap;

use super::instr::{FRAME, Size};
use super::value::{Taint, Value, truncate};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub regs: [Value; 11],
    /// By distance from the frame pointer: what was stored there.
    slots: BTreeMap<i64, (Size, Value)>,
    /// A pointer into the frame lies somewhere in memory: any store may go to the frame.
    pub leaked: bool,
    /// A slot that is no longer followed held one.
    lost: bool,
}

impl State {
    pub(crate) fn at_entry(args: &[Value; 5]) -> Self {
        let mut regs = [Value::UNKNOWN; 11];
        regs[1..6].copy_from_slice(args);
        regs[FRAME as usize] = Value::Frame(0);
        Self { regs, slots: BTreeMap::new(), leaked: false, lost: false }
    }

    pub(crate) fn reg(&self, register: u8) -> Value {
        self.regs[register as usize]
    }

    pub(crate) fn set(&mut self, register: u8, value: Value) {
        self.regs[register as usize] = value;
    }

    /// After a call: r0 has its result, r1 to r5 nothing.
    pub(crate) fn returned(&mut self, result: Value) {
        self.regs[0] = result;
        self.regs[1..6].fill(Value::UNKNOWN);
    }

    fn overlapping(&self, offset: i64, size: Size) -> Vec<i64> {
        let end = offset + i64::from(size.bytes());
        let parts = self.slots.range(offset - 7..end);
        parts.filter(|(at, (size, _))| **at + i64::from(size.bytes()) > offset).map(|(at, _)| *at).collect()
    }

    pub(crate) fn store(&mut self, offset: i64, size: Size, value: Value) {
        for at in self.overlapping(offset, size) {
            self.slots.remove(&at);
        }
        self.slots.insert(offset, (size, truncate(value, size)));
    }

    pub(crate) fn load(&self, offset: i64, size: Size) -> Value {
        match self.slots.get(&offset) {
            Some((stored, value)) if *stored == size => return *value,
            _ => {}
        }
        let parts = self.overlapping(offset, size);
        if parts.iter().any(|at| self.slots[at].1.may_be_context()) {
            return Value::Other(Taint { context: true, ..Taint::default() });
        }
        Value::UpTo(size.max())
    }

    /// How many parts of the frame are followed.
    pub(crate) fn followed(&self) -> usize {
        self.slots.len()
    }

    /// Offsets that hold the context.
    pub(crate) fn contexts(&self) -> impl Iterator<Item = i64> + '_ {
        self.slots.iter().filter(|(_, (_, value))| value.may_be_context()).map(|(at, _)| *at)
    }

    /// Whether the frame may hold pointers into frames.
    pub(crate) fn holds_frame_pointers(&self) -> bool {
        self.lost || self.slots.values().any(|(_, value)| value.points_at_frames())
    }

    /// Something unknown was written into the frame, by a program in which the kernel knows the types of all slots.
    pub(crate) fn forget_slots(&mut self) {
        self.lost = self.holds_frame_pointers();
        self.slots.retain(|_, (_, value)| value.may_be_context());
    }

    /// Takes up what another way to this point knows; true if that changed anything.
    pub(crate) fn merge(&mut self, other: &State, widen: bool) -> bool {
        let before = self.clone();
        let meet = |a: Value, b: Value| if widen { a.widen(b) } else { a.join(b) };
        for (mine, theirs) in self.regs.iter_mut().zip(other.regs) {
            *mine = meet(*mine, theirs);
        }
        self.slots.retain(|at, (size, value)| match other.slots.get(at) {
            Some((other_size, other_value)) if other_size == size => {
                *value = meet(*value, *other_value);
                true
            }
            _ => false,
        });
        self.leaked |= other.leaked;
        self.lost |= other.lost;
        *self != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State::at_entry(&[Value::UNKNOWN; 5])
    }

    #[test]
    fn a_store_replaces_what_it_overlaps() {
        let mut state = state();
        state.store(-8, Size::D, Value::Number(1 << 40));
        state.store(-4, Size::W, Value::Number(7));
        assert_eq!(state.load(-8, Size::D), Value::UNKNOWN);
        assert_eq!(state.load(-4, Size::W), Value::Number(7));
        assert_eq!(state.load(-3, Size::B), Value::UpTo(255));
        state.store(-5, Size::H, Value::UNKNOWN);
        assert_eq!(state.load(-4, Size::W), Value::UpTo(u32::MAX.into()));
    }

    #[test]
    fn a_piece_of_a_context_is_recognised() {
        let mut state = state();
        state.store(-16, Size::D, Value::Context(0));
        assert_eq!(state.load(-16, Size::D), Value::Context(0));
        assert!(state.load(-12, Size::W).may_be_context());
        assert_eq!(state.contexts().collect::<Vec<_>>(), [-16]);
        state.forget_slots();
        assert_eq!(state.load(-16, Size::D), Value::Context(0));
    }

    #[test]
    fn where_ways_meet_only_what_both_know_is_known() {
        let (mut left, mut right) = (state(), state());
        left.store(-8, Size::D, Value::Number(1));
        left.store(-16, Size::D, Value::Number(1));
        right.store(-8, Size::D, Value::Number(2));
        assert!(left.merge(&right, false));
        assert_eq!(left.load(-8, Size::D), Value::UpTo(2));
        assert_eq!(left.load(-16, Size::D), Value::UNKNOWN);
        assert!(!left.merge(&right, false));
    }
}
