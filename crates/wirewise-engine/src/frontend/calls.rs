// SPDX-License-Identifier: Apache-2.0
//! Calls: helpers, subprograms, loops over a callback, tail calls.

use super::analysis::{Analysis, Result, malformed, unsupported};
use super::instr::Size;
use super::ir::{Array, Op};
use super::state::State;
use super::value::Value;
use crate::helper::Helper;
use crate::linked::MapKind;

/// The most rounds of `bpf_loop` (BPF_MAX_LOOPS).
pub(crate) const MAX_LOOPS: u64 = 1 << 23;

impl Analysis<'_> {
    pub(super) fn helper(&mut self, at: usize, state: &mut State, id: u32) -> Result<Op> {
        let Some(helper) = Helper::from_id(id) else {
            return unsupported(at, format!("helper {id}, which the engine does not have"));
        };
        let map = helper.map_arg().map(|register| state.reg(register));
        if let Some(Value::Map(map)) = map {
            self.check_map(at, helper, map)?;
        }
        if helper.takes_context() && !self.target.caged && !matches!(state.reg(1), Value::Context(0)) {
            return malformed(at, format!("helper {helper:?} without the context"));
        }
        match helper {
            Helper::MapLookup => self.lookup(at, state, map),
            Helper::Cpu => Ok(self.constant(state, self.target.cpu.into())),
            Helper::Numa => Ok(self.constant(state, 0)),
            // User space has no sockets of the kernel's: none is found.
            Helper::SocketLookup | Helper::SocketRelease => Ok(self.constant(state, 0)),
            Helper::Loop => self.bpf_loop(at, state),
            Helper::TailCall => {
                self.plain(at, state.reg(3))?;
                self.plain(at, state.reg(2))?;
                state.returned(Value::UNKNOWN);
                Ok(Op::TailCall)
            }
            _ => {
                for register in 1 + u8::from(helper.takes_context())..=helper.args() {
                    self.plain(at, state.reg(register))?;
                }
                self.escape(state, helper, map);
                if helper == Helper::CheckMtu {
                    match state.reg(3) {
                        Value::Frame(offset) => state.store(offset, Size::W, Value::UNKNOWN),
                        _ => state.forget_slots(),
                    }
                }
                state.returned(Value::UNKNOWN);
                Ok(Op::Helper { helper })
            }
        }
    }

    fn constant(&self, state: &mut State, value: u64) -> Op {
        state.returned(Value::Number(value));
        Op::Number { dst: 0, value }
    }

    fn check_map(&self, at: usize, helper: Helper, map: u32) -> Result<()> {
        let spec = &self.target.maps[map as usize];
        let fits = match helper {
            Helper::TailCall => spec.kind() == MapKind::ProgArray,
            Helper::RingOutput | Helper::RingReserve | Helper::RingQuery => spec.kind() == MapKind::RingBuf,
            Helper::PerfOutput => spec.kind() == MapKind::PerfEventArray,
            _ => !matches!(spec.kind(), MapKind::ProgArray | MapKind::RingBuf | MapKind::PerfEventArray),
        };
        if fits {
            return Ok(());
        }
        malformed(
            at,
            format!("map {} is {:?}, which helper {helper:?} does not take", spec.name(), spec.kind()),
        )
    }

    /// Frame memory that a helper reads through a pointer has to be memory.
    fn escape(&mut self, state: &State, helper: Helper, map: Option<Value>) {
        let sizes = match (helper, map) {
            (Helper::MapLookup | Helper::MapUpdate | Helper::MapDelete, Some(Value::Map(map))) => {
                let spec = &self.target.maps[map as usize];
                [Some(spec.key_size()), Some(spec.value_size())]
            }
            (Helper::CheckMtu, _) => [None, Some(4)],
            _ => [None, None],
        };
        for register in 1..=helper.args() {
            match (state.reg(register), sizes.get(usize::from(register).wrapping_sub(2))) {
                (Value::Frame(offset), Some(Some(bytes))) => self.frame.escaped(offset, (*bytes).into()),
                (Value::Frame(offset), _) => self.frame.escaped_from(offset),
                (value, _) if value.taint().frame => self.frame.escaped_all(),
                _ => {}
            }
        }
    }

    /// An array's look-up becomes arithmetic, one with a known key an address.
    fn lookup(&mut self, at: usize, state: &mut State, map: Option<Value>) -> Result<Op> {
        self.plain(at, state.reg(1))?;
        self.plain(at, state.reg(2))?;
        let spec_of = |map: u32| &self.target.maps[map as usize];
        let map = match map {
            Some(Value::Map(map)) if spec_of(map).kind().is_array() => map,
            _ => {
                self.escape(state, Helper::MapLookup, map);
                state.returned(Value::UNKNOWN);
                return Ok(Op::Helper { helper: Helper::MapLookup });
            }
        };
        let (entries, place) = (spec_of(map).max_entries(), self.target.places[map as usize]);
        let array = Array { offset: place.offset as u64, stride: place.stride as u64, entries };
        let (key, known) = self.points_at(at, state, 2, Size::W)?;
        Ok(match known {
            Value::Number(index) if index < entries.into() => {
                let offset = index * array.stride;
                state.returned(Value::InMap { map, offset: offset as i64 });
                Op::Address { dst: 0, offset: array.offset + offset }
            }
            Value::Number(_) => self.constant(state, 0),
            known => {
                let in_bounds = known.max() < entries.into();
                state.returned(if in_bounds { Value::Pointer } else { Value::UNKNOWN });
                Op::Element { array, key, in_bounds }
            }
        })
    }

    fn function_at(&self, at: usize, slot: usize) -> Result<usize> {
        match self.functions.iter().position(|function| function.start == slot) {
            Some(function) => Ok(function),
            None => malformed(at, "a call into the middle of a function"),
        }
    }

    /// What a callee may do to this function's frame.
    fn called(&mut self, state: &mut State, passed: &[Value]) {
        if passed.iter().any(|value| value.taint().frame) {
            self.frame.escaped_all();
            // The callee may keep the pointer anywhere.
            state.leaked = true;
        }
        if state.leaked {
            state.forget_slots();
        }
    }

    pub(super) fn call(&mut self, at: usize, state: &mut State, target: usize) -> Result<Op> {
        let function = self.function_at(at, target)?;
        let args = [1, 2, 3, 4, 5].map(|register| state.reg(register));
        // Registers the callee does not read hold leftovers.
        let args = self.read_args(function, args);
        self.enter(at, function, args, state)?;
        self.called(state, &args);
        state.returned(Value::UNKNOWN);
        Ok(Op::Call { function })
    }

    fn read_args(&self, function: usize, mut args: [Value; 5]) -> [Value; 5] {
        args[usize::from(self.arity[function])..].fill(Value::UNKNOWN);
        args
    }

    fn bpf_loop(&mut self, at: usize, state: &mut State) -> Result<Op> {
        let Value::Function(target) = state.reg(2) else {
            return unsupported(at, "bpf_loop with a callback that is not known at the call");
        };
        self.plain(at, state.reg(1))?;
        self.plain(at, state.reg(4))?;
        let function = self.function_at(at, target)?;
        let plain = state.reg(4) == Value::Number(0);
        let data = state.reg(3);
        // The rounds change what the callback finds in the frame.
        self.called(state, &[data]);
        let args = [Value::UpTo(MAX_LOOPS - 1), data, Value::UNKNOWN, Value::UNKNOWN, Value::UNKNOWN];
        let args = self.read_args(function, args);
        self.enter(at, function, args, state)?;
        state.returned(Value::UNKNOWN);
        Ok(Op::Loop { function, plain })
    }
}
