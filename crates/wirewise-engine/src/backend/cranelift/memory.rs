// SPDX-License-Identifier: Apache-2.0
//! Loads, stores, atomics, the context, and elements of arrays.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{AtomicRmwOp, InstBuilder, MemFlagsData, Type, Value, types};

use super::function::{Emitter, FramePlace, integer};
use crate::frontend::FRAME_BYTES;
use crate::frontend::instr::{AtomicOp, Operand, Size};
use crate::frontend::ir::{Array, Field, Place};
use crate::memory::STACK_AT;
use crate::runtime::vm_offset;

/// Neither trap nor aligned: packets are not.
const MEMORY: MemFlagsData = MemFlagsData::new().with_notrap();

/// At a time: a network's code goes through a table, and reads and writes its scratch space.
const ANCHORS: usize = 2;

impl Emitter<'_, '_> {
    /// What the program takes for the address of an offset in the engine's memory.
    pub(super) fn engine_address(&mut self, offset: u64) -> Value {
        if self.settings.caged {
            return self.number(offset as i64);
        }
        self.b.ins().iadd_imm_s(self.base, offset as i64)
    }

    /// A native address and a displacement. The place is no slot.
    fn locate(&mut self, place: Place) -> (Value, i32) {
        match place {
            // The offset is added behind the cut, into the guard at worst: accesses through one register share the rest.
            Place::Reg { base, off } if self.settings.caged => {
                let address = self.reg(base);
                (self.inside_cage(address), off)
            }
            Place::Reg { base, off } => (self.reg(base), off),
            Place::Frame(offset) => match self.frame {
                FramePlace::Native(slot) => (self.b.ins().stack_addr(types::I64, slot, offset as i32), 0),
                FramePlace::Caged { address, .. } => {
                    (address, (FRAME_BYTES as u32 - self.frame_bytes() + offset) as i32)
                }
                FramePlace::First => {
                    (self.base, STACK_AT as i32 + (FRAME_BYTES as u32 - self.frame_bytes() + offset) as i32)
                }
                FramePlace::None => (self.base, 0),
            },
            Place::Memory(offset) => {
                let offset = self.settings.inside(offset);
                if let Some(near) = self.near(offset as i64) {
                    return near;
                }
                match i32::try_from(offset) {
                    Ok(offset) => (self.base, offset),
                    Err(_) => (self.b.ins().iadd_imm_s(self.base, offset as i64), 0),
                }
            }
            Place::Slot(_) => (self.base, 0),
        }
    }

    /// A register that points at most 128 bytes away, and the rest: an access from there is 3 bytes shorter than from `base`, and the code
    /// of a network is as long as its tables, which it reads from end to end. Only in functions that are taken as they are: it is
    /// a subtraction because Cranelift would make an addition part of the access again.
    fn near(&mut self, offset: i64) -> Option<(Value, i32)> {
        let within = |start: i64| i8::try_from(offset - start).is_ok();
        let anchors = self.anchors.as_mut()?;
        if let Some((value, start)) = anchors.found.iter().copied().find(|(_, start)| within(*start)) {
            return Some((value, (offset - start) as i32));
        }
        // One access alone is not worth a register.
        if !within(anchors.missed.replace(offset)?) {
            return None;
        }
        let start = offset - i64::from(i8::MIN) - 8;
        let minus = self.b.ins().iconst(types::I64, -start);
        let value = self.b.ins().isub(self.base, minus);
        let found = &mut self.anchors.as_mut()?.found;
        found.insert(0, (value, start));
        found.truncate(ANCHORS);
        Some((value, (offset - start) as i32))
    }

    /// The native address behind a program's: its low 32 bits, from `base` on.
    fn inside_cage(&mut self, address: Value) -> Value {
        let low = self.b.ins().ireduce(types::I32, address);
        let offset = self.b.ins().uextend(types::I64, low);
        self.b.ins().iadd(self.base, offset)
    }

    pub(super) fn read(&mut self, place: Place, size: Size) -> Value {
        if let Place::Slot(slot) = place {
            let value = self.b.use_var(self.slots[slot]);
            return self.truncate(value, size);
        }
        let (address, offset) = self.locate(place);
        self.b.ins().load(integer(size), MEMORY, address, offset)
    }

    fn write(&mut self, place: Place, size: Size, value: Value) {
        let value = self.truncate(value, size);
        if let Place::Slot(slot) = place {
            let value = self.widen(value);
            self.b.def_var(self.slots[slot], value);
            return;
        }
        let (address, offset) = self.locate(place);
        self.b.ins().store(MEMORY, value, address, offset);
    }

    fn truncate(&mut self, value: Value, size: Size) -> Value {
        let ty: Type = integer(size);
        if self.b.func.dfg.value_type(value) == ty { value } else { self.b.ins().ireduce(ty, value) }
    }

    pub(super) fn load(&mut self, dst: u8, place: Place, size: Size, signed: bool) {
        let value = match (place, size) {
            (Place::Slot(_), _) | (_, Size::D) => {
                let value = self.read(place, size);
                if signed { self.b.ins().sextend(types::I64, value) } else { self.widen(value) }
            }
            _ => self.load_wide(place, size, signed),
        };
        self.set(dst, value);
    }

    /// Of less than 64 bits, extended by the load itself.
    fn load_wide(&mut self, place: Place, size: Size, signed: bool) -> Value {
        let (address, offset) = self.locate(place);
        let ins = self.b.ins();
        match (size, signed) {
            (Size::B, false) => ins.uload8(types::I64, MEMORY, address, offset),
            (Size::B, true) => ins.sload8(types::I64, MEMORY, address, offset),
            (Size::H, false) => ins.uload16(types::I64, MEMORY, address, offset),
            (Size::H, true) => ins.sload16(types::I64, MEMORY, address, offset),
            (_, false) => ins.uload32(MEMORY, address, offset),
            (_, true) => ins.sload32(MEMORY, address, offset),
        }
    }

    pub(super) fn store(&mut self, place: Place, size: Size, src: Operand) {
        let value = self.operand(src);
        self.write(place, size, value);
    }

    pub(super) fn atomic(&mut self, op: AtomicOp, fetch: bool, place: Place, size: Size, src: u8) {
        let before = if self.settings.shared {
            self.atomic_among_others(op, place, size, src)
        } else {
            self.atomic_alone(op, place, size, src)
        };
        if fetch {
            let before = self.widen(before);
            self.set(if op == AtomicOp::CompareExchange { 0 } else { src }, before);
        }
    }

    /// The processor's own. Returns what was there before.
    fn atomic_among_others(&mut self, op: AtomicOp, place: Place, size: Size, src: u8) -> Value {
        let (mut address, offset) = self.locate(place);
        if offset != 0 {
            address = self.b.ins().iadd_imm_s(address, i64::from(offset));
        }
        let operand = self.reg(src);
        let operand = self.truncate(operand, size);
        let op = match op {
            AtomicOp::Add => AtomicRmwOp::Add,
            AtomicOp::Or => AtomicRmwOp::Or,
            AtomicOp::And => AtomicRmwOp::And,
            AtomicOp::Xor => AtomicRmwOp::Xor,
            AtomicOp::Exchange => AtomicRmwOp::Xchg,
            AtomicOp::CompareExchange => {
                let expected = self.reg(0);
                let expected = self.truncate(expected, size);
                return self.b.ins().atomic_cas(MEMORY, address, expected, operand);
            }
        };
        self.b.ins().atomic_rmw(integer(size), MEMORY, op, address, operand)
    }

    /// Plain loads and stores: nobody else sees this worker's memory while its program runs. Returns what was there before.
    fn atomic_alone(&mut self, op: AtomicOp, place: Place, size: Size, src: u8) -> Value {
        let (address, offset) = self.locate(place);
        let before = self.b.ins().load(integer(size), MEMORY, address, offset);
        let operand = self.reg(src);
        let operand = self.truncate(operand, size);
        let after = match op {
            AtomicOp::Add => self.b.ins().iadd(before, operand),
            AtomicOp::Or => self.b.ins().bor(before, operand),
            AtomicOp::And => self.b.ins().band(before, operand),
            AtomicOp::Xor => self.b.ins().bxor(before, operand),
            AtomicOp::Exchange => operand,
            AtomicOp::CompareExchange => {
                let expected = self.reg(0);
                let expected = self.truncate(expected, size);
                let same = self.b.ins().icmp(IntCC::Equal, before, expected);
                self.b.ins().select(same, operand, before)
            }
        };
        self.b.ins().store(MEMORY, after, address, offset);
        before
    }

    pub(super) fn context(&mut self, dst: u8, field: Field) {
        let (ty, offset) = match field {
            Field::Data => (types::I64, vm_offset!(data)),
            Field::DataEnd => (types::I64, vm_offset!(data_end)),
            Field::DataMeta => (types::I64, vm_offset!(data_meta)),
            Field::IngressIfindex => (types::I32, vm_offset!(ingress_ifindex)),
            Field::RxQueueIndex => (types::I32, vm_offset!(rx_queue_index)),
        };
        // It does not change while a packet is under way, if no helper moves that.
        let flags = match self.settings.packet_moves {
            true => MemFlagsData::trusted(),
            false => MemFlagsData::trusted().with_readonly().with_can_move(),
        };
        let value = self.b.ins().load(ty, flags, self.base, offset);
        let value = self.widen(value);
        self.set(dst, value);
    }

    pub(super) fn element(&mut self, array: Array, key: Place, in_bounds: bool) {
        let key = self.read(key, Size::W);
        let key = self.widen(key);
        let distance = self.b.ins().imul_imm_u(key, array.stride as i64);
        let start = self.engine_address(array.offset);
        let mut address = self.b.ins().iadd(start, distance);
        if !in_bounds {
            let inside = self.b.ins().icmp_imm_u(IntCC::UnsignedLessThan, key, i64::from(array.entries));
            let null = self.number(0);
            address = self.b.ins().select(inside, address, null);
        }
        self.set(0, address);
    }
}
