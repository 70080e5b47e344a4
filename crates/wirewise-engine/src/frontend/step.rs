// SPDX-License-Identifier: Apache-2.0
//! One instruction: what it does to the state, and the operation it becomes.

use super::analysis::{Analysis, Result, malformed, unsupported};
use super::frame::FRAME_BYTES;
use super::instr::{Alu, Instr, Operand, Size};
use super::ir::{Field, Op, Place};
use super::state::State;
use super::value::{Taint, Value, alu, compute, truncate};

const CONTEXT_MISUSED: &str =
    "something else with the context than reading its fields, spilling it or handing it on";

/// Where an access goes, and what is known to lie there.
struct Access {
    place: Place,
    known: Value,
}

fn sign_extend(number: u64, from: Size) -> u64 {
    let shift = 64 - from.bits();
    (((number << shift) as i64) >> shift) as u64
}

impl Analysis<'_> {
    /// Applies an instruction. `None`: it becomes no operation (it ends a block, or is the second slot of one).
    pub(super) fn step(&mut self, at: usize, state: &mut State) -> Result<Option<Op>> {
        let op = match self.code[at] {
            Instr::Alu { wide, op, dst, src } => self.alu(at, state, wide, op, dst, src)?,
            Instr::Neg { wide, dst } => {
                let value = self.plain(at, state.reg(dst))?;
                let negated = match value {
                    Value::Number(number) => Value::Number(compute(wide, Alu::Sub, 0, number)),
                    other if wide => alu(true, Alu::Sub, Value::UNKNOWN, other),
                    _ => Value::UpTo(Size::W.max()),
                };
                Self::result(state, dst, negated, Op::Neg { wide, dst })
            }
            Instr::MovSx { wide, dst, src, from } => {
                let value = match self.plain(at, state.reg(src))? {
                    Value::Number(number) => {
                        let extended = sign_extend(number, from);
                        Value::Number(if wide { extended } else { extended & Size::W.max() })
                    }
                    _ if wide => Value::UNKNOWN,
                    _ => Value::UpTo(Size::W.max()),
                };
                Self::result(state, dst, value, Op::MovSx { wide, dst, src, from })
            }
            Instr::Order { dst, size, swap } => {
                let value = match truncate(self.plain(at, state.reg(dst))?, size) {
                    Value::Number(number) if swap => Value::Number(number.swap_bytes() >> (64 - size.bits())),
                    Value::Number(number) => Value::Number(number),
                    _ => Value::UpTo(size.max()),
                };
                Self::result(state, dst, value, Op::Order { dst, size, swap })
            }
            Instr::Number { dst, value } => {
                Self::result(state, dst, Value::Number(value), Op::Number { dst, value })
            }
            Instr::Map { dst, map } => {
                let handle = crate::runtime::map_handle(map);
                Self::result(state, dst, Value::Map(map), Op::Number { dst, value: handle })
            }
            Instr::MapValue { dst, map, offset } => {
                let spec = &self.target.maps[map as usize];
                if !spec.kind().is_array() || spec.max_entries() != 1 || offset >= spec.value_size() {
                    return malformed(at, format!("map {} has no value at offset {offset}", spec.name()));
                }
                let address = self.target.places[map as usize].offset as u64 + u64::from(offset);
                let value = Value::InMap { map, offset: offset.into() };
                Self::result(state, dst, value, Op::Address { dst, offset: address })
            }
            // Only bpf_loop takes a function, and it must be known there: the number itself is never used.
            Instr::Function { dst, target } => {
                Self::result(state, dst, Value::Function(target), Op::Number { dst, value: 1 })
            }
            Instr::Load { dst, base, off, size, signed } => {
                self.load(at, state, (dst, base, off, size, signed))?
            }
            Instr::Store { base, off, size, src } => {
                let value = Self::operand(state, src);
                let access = self.access(at, state, base, off, size)?;
                self.written(at, state, base, off, size, value)?;
                self.frame.used(access.place, size);
                let target = state.reg(base);
                let may_be_frame =
                    (target.points_at_frames() || state.leaked) && !matches!(target, Value::InMap { .. });
                Op::Store { place: access.place, size, src, may_be_frame }
            }
            Instr::Atomic { op, fetch, base, off, size, src } => {
                self.plain(at, state.reg(src))?;
                let access = self.access(at, state, base, off, size)?;
                self.written(at, state, base, off, size, Value::UNKNOWN)?;
                // The frame keeps it in memory: back ends need one form of atomics only.
                self.frame.pinned(access.place, size);
                if fetch {
                    let result = if op == super::instr::AtomicOp::CompareExchange { 0 } else { src };
                    state.set(result, Value::UpTo(size.max()));
                }
                Op::Atomic { op, fetch, place: access.place, size, src }
            }
            Instr::Helper { id } => self.helper(at, state, id)?,
            Instr::Call { target } => self.call(at, state, target)?,
            Instr::Branch { dst, src, cond, .. } => {
                let null_check =
                    src == Operand::Imm(0) && matches!(cond, super::instr::Cond::Eq | super::instr::Cond::Ne);
                if !(null_check && matches!(state.reg(dst), Value::Context(_))) {
                    self.plain(at, state.reg(dst))?;
                    self.plain(at, Self::operand(state, src))?;
                }
                return Ok(None);
            }
            Instr::Exit => {
                self.plain(at, state.reg(0))?;
                return Ok(None);
            }
            Instr::Jump { .. } | Instr::Rest => return Ok(None),
        };
        Ok(Some(op))
    }

    /// The value, which must not be the context.
    pub(super) fn plain(&self, at: usize, value: Value) -> Result<Value> {
        if value.may_be_context() { unsupported(at, CONTEXT_MISUSED) } else { Ok(value) }
    }

    /// Sets a result; an operation whose result is known becomes that number.
    fn result(state: &mut State, dst: u8, value: Value, op: Op) -> Op {
        state.set(dst, value);
        match value {
            Value::Number(value) => Op::Number { dst, value },
            _ => op,
        }
    }

    fn alu(&self, at: usize, state: &mut State, wide: bool, op: Alu, dst: u8, src: Operand) -> Result<Op> {
        let (a, b) = (state.reg(dst), Self::operand(state, src));
        let value = match (op, a, b) {
            (Alu::Mov, _, _) if wide => b,
            (Alu::Add, Value::Context(_), Value::Number(distance)) if wide => a.plus(distance as i64),
            (Alu::Add, Value::Number(distance), Value::Context(_)) if wide => b.plus(distance as i64),
            (Alu::Sub, Value::Context(_), Value::Number(distance)) if wide => {
                a.plus((distance as i64).wrapping_neg())
            }
            (Alu::Mov, _, _) => truncate(self.plain(at, b)?, Size::W),
            _ => alu(wide, op, self.plain(at, a)?, self.plain(at, b)?),
        };
        Ok(Self::result(state, dst, value, Op::Alu { wide, op, dst, src }))
    }

    /// A load: destination, base, offset, size, sign.
    fn load(
        &mut self,
        at: usize,
        state: &mut State,
        (dst, base, off, size, signed): (u8, u8, i16, Size, bool),
    ) -> Result<Op> {
        if let Value::Context(start) = state.reg(base) {
            let field = match (start.wrapping_add(off.into()), size, signed) {
                (0, Size::W, false) => Field::Data,
                (4, Size::W, false) => Field::DataEnd,
                (8, Size::W, false) => Field::DataMeta,
                (12, Size::W, false) => Field::IngressIfindex,
                (16, Size::W, false) => Field::RxQueueIndex,
                (offset, ..) => {
                    let what = format!("{} bytes of the context at offset {offset}", size.bytes());
                    return unsupported(at, what);
                }
            };
            let value = match field {
                Field::Data | Field::DataEnd | Field::DataMeta => Value::Pointer,
                Field::IngressIfindex | Field::RxQueueIndex => Value::UpTo(Size::W.max()),
            };
            state.set(dst, value);
            return Ok(Op::Context { dst, field });
        }
        let access = self.access(at, state, base, off, size)?;
        self.frame.used(access.place, size);
        let value = match access.known {
            Value::Number(number) if signed => Value::Number(sign_extend(number, size)),
            known if !signed => known,
            _ => Value::UNKNOWN,
        };
        let load = Op::Load { dst, place: access.place, size, signed };
        // As an immediate a longer number takes an instruction of its own, larger than a load.
        if matches!(value, Value::Number(number) if i32::try_from(number as i64).is_err()) {
            state.set(dst, value);
            return Ok(load);
        }
        Ok(Self::result(state, dst, value, load))
    }

    /// Resolves an address; refuses those that are no memory.
    fn access(&mut self, at: usize, state: &State, base: u8, off: i16, size: Size) -> Result<Access> {
        let bytes = i64::from(size.bytes());
        let context = Value::Other(Taint { context: true, ..Taint::default() });
        let anything = Value::UpTo(size.max());
        let register = Place::Reg { base, off: off.into() };
        let (place, known) = match state.reg(base) {
            value if value.may_be_context() => return unsupported(at, CONTEXT_MISUSED),
            Value::Map(_) => return unsupported(at, "a look into a map itself"),
            Value::Function(_) => return malformed(at, "an access to a function's code"),
            Value::Frame(start) => match start.wrapping_add(off.into()) {
                offset if (-FRAME_BYTES..=-bytes).contains(&offset) => {
                    (Place::Frame((offset + FRAME_BYTES) as u32), state.load(offset, size))
                }
                _ if self.target.caged => {
                    self.frame.escaped_all();
                    (register, anything)
                }
                offset => {
                    return malformed(at, format!("an access at {offset} from the frame pointer"));
                }
            },
            Value::InMap { map, offset } => {
                self.map_value(map, offset.wrapping_add(off.into()), size, register)
            }
            Value::Outer { arg, offset } => {
                let slot = offset.wrapping_add(off.into());
                let contexts = &self.entries[self.function].contexts[usize::from(arg)];
                let known = match size {
                    Size::D if contexts.contains(&slot) => Value::Context(0),
                    _ if contexts
                        .range(slot.saturating_sub(7)..slot.saturating_add(bytes))
                        .next()
                        .is_some() =>
                    {
                        context
                    }
                    _ => anything,
                };
                (register, known)
            }
            Value::Other(taint) => {
                if taint.frame {
                    self.frame.escaped_all();
                }
                let reaches =
                    taint.frame && state.contexts().next().is_some() || taint.outer && self.outer_contexts();
                (register, if reaches && size == Size::D { context } else { anything })
            }
            _ => (register, anything),
        };
        Ok(Access { place, known })
    }

    fn map_value(&self, map: u32, offset: i64, size: Size, register: Place) -> (Place, Value) {
        let (spec, place) = (&self.target.maps[map as usize], &self.target.places[map as usize]);
        let anything = Value::UpTo(size.max());
        let bytes = size.bytes() as usize;
        let inside = |length: usize| {
            let start = usize::try_from(offset).ok()?;
            (start <= length && bytes <= length - start).then_some(start)
        };
        let Some(start) = inside(place.bytes) else { return (register, anything) };
        let known = match (spec.initial(), spec.is_read_only()) {
            (Some(initial), true) => match initial.get(start..start + bytes) {
                Some(frozen) => {
                    let mut number = [0; 8];
                    number[..bytes].copy_from_slice(frozen);
                    Value::Number(u64::from_le_bytes(number))
                }
                None => anything,
            },
            _ => anything,
        };
        (Place::Memory((place.offset + start) as u64), known)
    }

    /// What a store changes of what is known.
    fn written(
        &mut self,
        at: usize,
        state: &mut State,
        base: u8,
        off: i16,
        size: Size,
        value: Value,
    ) -> Result<()> {
        let points_at_frames = value.points_at_frames();
        if points_at_frames {
            self.frame.escaped_all();
        }
        match state.reg(base) {
            Value::Frame(start) => {
                let offset = start.wrapping_add(off.into());
                if value.may_be_context() && size != Size::D {
                    return unsupported(at, CONTEXT_MISUSED);
                }
                if (-FRAME_BYTES..0).contains(&offset) {
                    state.store(offset, size, value);
                }
            }
            base => {
                self.plain(at, value)?;
                state.leaked |= points_at_frames;
                if points_at_frames && base.points_at_frames() {
                    self.hides_pointers = Some(at);
                }
                if let Value::Outer { arg, offset } = base {
                    let slot = offset.wrapping_add(off.into());
                    let bytes = i64::from(size.bytes());
                    let contexts = &self.entries[self.function].contexts[usize::from(arg)];
                    let range = slot.saturating_sub(7)..slot.saturating_add(bytes);
                    if contexts.range(range).next().is_some() {
                        return unsupported(at, "a store over a caller's context");
                    }
                }
                let reaches_frame = base.taint().frame || state.leaked;
                if reaches_frame && !matches!(base, Value::InMap { .. }) {
                    state.forget_slots();
                }
            }
        }
        Ok(())
    }

    /// Where a helper or look-up reads `bytes` bytes that a register points at.
    pub(super) fn points_at(
        &mut self,
        at: usize,
        state: &State,
        register: u8,
        size: Size,
    ) -> Result<(Place, Value)> {
        let access = self.access(at, state, register, 0, size)?;
        self.frame.used(access.place, size);
        Ok((access.place, access.known))
    }
}
