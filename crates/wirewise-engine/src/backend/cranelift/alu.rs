// SPDX-License-Identifier: Apache-2.0
//! Arithmetic and comparisons.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{BlockArg, InstBuilder, InstructionData, Opcode, Value, ValueDef, types};

use super::function::{Emitter, integer};
use crate::frontend::instr::{Alu, Cond, Operand, Size};

impl Emitter<'_, '_> {
    fn narrow(&mut self, value: Value, size: Size) -> Value {
        match size {
            Size::D => value,
            size => self.b.ins().ireduce(integer(size), value),
        }
    }

    pub(super) fn widen(&mut self, value: Value) -> Value {
        if self.b.func.dfg.value_type(value) == types::I64 {
            return value;
        }
        self.b.ins().uextend(types::I64, value)
    }

    fn width(wide: bool) -> Size {
        if wide { Size::D } else { Size::W }
    }

    pub(super) fn alu(&mut self, wide: bool, op: Alu, dst: u8, src: Operand) {
        if let (true, Alu::Add, Operand::Imm(number)) = (wide, op, src) {
            let a = self.reg(dst);
            if let Some(sum) = self.add_to_sum(a, number) {
                return self.set(dst, sum);
            }
        }
        let size = Self::width(wide);
        let b = self.operand(src);
        let b = self.narrow(b, size);
        let result = if op == Alu::Mov {
            b
        } else {
            let a = self.reg(dst);
            let a = self.narrow(a, size);
            self.compute(op, a, b, matches!(src, Operand::Imm(_)))
        };
        let result = self.widen(result);
        self.set(dst, result);
    }

    /// x + a + b as x + (a + b). Of two additions one after the other, both to constants, Cranelift makes one instruction that takes a
    /// number from a register of its own, and keeps x for it; this way it is a short one, and does not wait for the first sum.
    fn add_to_sum(&mut self, sum: Value, number: i32) -> Option<Value> {
        let dfg = &self.b.func.dfg;
        let ValueDef::Result(inst, _) = dfg.value_def(sum) else { return None };
        let InstructionData::Binary { opcode: Opcode::Iadd, args: [x, added] } = dfg.insts[inst] else {
            return None;
        };
        let ValueDef::Result(constant, _) = dfg.value_def(added) else { return None };
        let InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } = dfg.insts[constant] else {
            return None;
        };
        let all = i32::try_from(imm.bits().checked_add(number.into())?).ok()?;
        Some(self.b.ins().iadd_imm_s(x, i64::from(all)))
    }

    fn compute(&mut self, op: Alu, a: Value, b: Value, constant: bool) -> Value {
        let ins = self.b.ins();
        match op {
            Alu::Add => ins.iadd(a, b),
            Alu::Sub => ins.isub(a, b),
            Alu::Mul => ins.imul(a, b),
            Alu::Or => ins.bor(a, b),
            Alu::And => ins.band(a, b),
            Alu::Xor => ins.bxor(a, b),
            // The amount counts modulo the width, in both instruction sets.
            Alu::Lsh => ins.ishl(a, b),
            Alu::Rsh => ins.ushr(a, b),
            Alu::Arsh => ins.sshr(a, b),
            Alu::Mov => b,
            // A constant divisor is not zero: decoding saw to that.
            Alu::Div if constant => ins.udiv(a, b),
            Alu::Mod if constant => ins.urem(a, b),
            Alu::Div | Alu::Mod => self.divide(op, a, b),
            Alu::SDiv | Alu::SMod => self.signed_divide(op, a, b),
        }
    }

    /// x / 0 = 0 and x % 0 = x.
    fn divide(&mut self, op: Alu, a: Value, b: Value) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        let (divided, done) = (self.b.create_block(), self.b.create_block());
        let result = self.b.append_block_param(done, ty);
        let by_zero = if op == Alu::Div { self.b.ins().iconst(ty, 0) } else { a };
        self.b.ins().brif(b, divided, &[], done, &[BlockArg::Value(by_zero)]);
        self.b.switch_to_block(divided);
        let quotient = if op == Alu::Div { self.b.ins().udiv(a, b) } else { self.b.ins().urem(a, b) };
        self.b.ins().jump(done, &[BlockArg::Value(quotient)]);
        self.b.switch_to_block(done);
        result
    }

    /// As `divide`; and x / -1 = -x, x % -1 = 0 for the least number too.
    fn signed_divide(&mut self, op: Alu, a: Value, b: Value) -> Value {
        let ty = self.b.func.dfg.value_type(a);
        let zero = self.b.ins().iconst(ty, 0);
        let one = self.b.ins().iconst(ty, 1);
        let by_zero = self.b.ins().icmp_imm_s(IntCC::Equal, b, 0);
        let by_minus_one = self.b.ins().icmp_imm_s(IntCC::Equal, b, -1);
        let special = self.b.ins().bor(by_zero, by_minus_one);
        let divisor = self.b.ins().select(special, one, b);
        let (result, for_zero, for_minus_one) = if op == Alu::SDiv {
            (self.b.ins().sdiv(a, divisor), zero, self.b.ins().ineg(a))
        } else {
            (self.b.ins().srem(a, divisor), a, zero)
        };
        let result = self.b.ins().select(by_minus_one, for_minus_one, result);
        self.b.ins().select(by_zero, for_zero, result)
    }

    pub(super) fn negate(&mut self, wide: bool, dst: u8) {
        let value = self.reg(dst);
        let value = self.narrow(value, Self::width(wide));
        let result = self.b.ins().ineg(value);
        let result = self.widen(result);
        self.set(dst, result);
    }

    pub(super) fn sign_extend(&mut self, wide: bool, dst: u8, src: u8, from: Size) {
        let value = self.reg(src);
        let value = self.narrow(value, from);
        let result = self.b.ins().sextend(integer(Self::width(wide)), value);
        let result = self.widen(result);
        self.set(dst, result);
    }

    pub(super) fn byte_order(&mut self, dst: u8, size: Size, swap: bool) {
        let value = self.reg(dst);
        let mut value = self.narrow(value, size);
        if swap {
            value = self.b.ins().bswap(value);
        }
        let result = self.widen(value);
        self.set(dst, result);
    }

    pub(super) fn condition(&mut self, wide: bool, cond: Cond, dst: u8, src: Operand) -> Value {
        let size = Self::width(wide);
        let a = self.reg(dst);
        let b = self.operand(src);
        let (a, b) = (self.narrow(a, size), self.narrow(b, size));
        let code = match cond {
            Cond::Eq => IntCC::Equal,
            Cond::Ne => IntCC::NotEqual,
            Cond::Gt => IntCC::UnsignedGreaterThan,
            Cond::Ge => IntCC::UnsignedGreaterThanOrEqual,
            Cond::Lt => IntCC::UnsignedLessThan,
            Cond::Le => IntCC::UnsignedLessThanOrEqual,
            Cond::SGt => IntCC::SignedGreaterThan,
            Cond::SGe => IntCC::SignedGreaterThanOrEqual,
            Cond::SLt => IntCC::SignedLessThan,
            Cond::SLe => IntCC::SignedLessThanOrEqual,
            Cond::Set => {
                let common = self.b.ins().band(a, b);
                return self.b.ins().icmp_imm_s(IntCC::NotEqual, common, 0);
            }
        };
        self.b.ins().icmp(code, a, b)
    }
}
