// SPDX-License-Identifier: Apache-2.0
//! Calls: helpers, subprograms, loops over a callback, tail calls.

use std::mem::offset_of;

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{
    AbiParam, BlockArg, InstBuilder, MemFlagsData, Signature, StackSlotData, StackSlotKind, Value, types,
};
use cranelift_module::Module;

use super::function::Emitter;
use crate::frontend::MAX_LOOPS;
use crate::helper::Helper;
use crate::options::ClockSource;
use crate::runtime::{self, JIFFY_NS, TAIL_CALL_FAILED, vm_offset};
use crate::vdso;

const EINVAL: i64 = -22;
const E2BIG: i64 = -7;

impl Emitter<'_, '_> {
    fn call_native(&mut self, address: usize, arguments: &[Value]) -> Value {
        let signature = self.helper_signature(arguments.len() as u8);
        let callee = self.number(address as i64);
        let mut all = vec![self.base];
        all.extend(arguments);
        let call = self.b.ins().call_indirect(signature, callee, &all);
        self.b.inst_results(call)[0]
    }

    pub(super) fn helper(&mut self, helper: Helper) {
        if helper.is_clock() && self.settings.clock != ClockSource::Live {
            let mut now = self.vm_load(types::I64, vm_offset!(now));
            if helper == Helper::Jiffies {
                now = self.b.ins().udiv_imm_u(now, JIFFY_NS as i64);
            }
            return self.set(0, now);
        }
        if let Some(which) = runtime::system_clock(helper) {
            let now = self.read_clock(which);
            return self.set(0, now);
        }
        let Some(address) = runtime::address(helper) else { return };
        let arguments: Vec<Value> = (1..=helper.args()).map(|register| self.reg(register)).collect();
        let result = self.call_native(address, &arguments);
        self.set(0, result);
        if !arguments.is_empty() {
            self.check_trap();
        }
    }

    /// Nanoseconds of a clock of the system, which is called without a helper between: it is much of a short program.
    fn read_clock(&mut self, which: libc::clockid_t) -> Value {
        let Self { time, b, .. } = self;
        let slot = *time.get_or_insert_with(|| {
            let bytes = size_of::<libc::timespec>() as u32;
            b.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 3))
        });
        let mut signature = Signature::new(self.module.target_config().default_call_conv);
        signature.params = vec![AbiParam::new(types::I32), AbiParam::new(types::I64)];
        signature.returns = vec![AbiParam::new(types::I32)];
        let signature = self.b.import_signature(signature);
        let which = self.b.ins().iconst(types::I32, i64::from(which));
        let time = self.b.ins().stack_addr(types::I64, slot, 0);
        let part = MemFlagsData::trusted();
        let callee = self.number(vdso::clock_gettime() as i64);
        self.b.ins().call_indirect(signature, callee, &[which, time]);
        let seconds = self.b.ins().load(types::I64, part, time, offset_of!(libc::timespec, tv_sec) as i32);
        let rest = self.b.ins().load(types::I64, part, time, offset_of!(libc::timespec, tv_nsec) as i32);
        let seconds = self.b.ins().imul_imm_s(seconds, 1_000_000_000);
        self.b.ins().iadd(seconds, rest)
    }

    /// Calls a function of this program, and what it tail-calls.
    fn call_function(&mut self, function: usize, arguments: &[Value]) -> Value {
        if self.settings.caged {
            self.burn(self.program.functions[function].call_toll());
        }
        let callee = self.module.declare_func_in_func(self.ids[function], self.b.func);
        let mut all = vec![self.base];
        all.extend(arguments);
        let call = self.b.ins().call(callee, &all);
        let result = self.b.inst_results(call)[0];
        if !self.program.functions[function].tail_calls {
            self.check_trap();
            return result;
        }
        self.follow_tail_calls(result)
    }

    /// The native stack does not grow: each program returns before the next begins.
    fn follow_tail_calls(&mut self, result: Value) -> Value {
        let (head, body, done) = (self.b.create_block(), self.b.create_block(), self.b.create_block());
        let so_far = self.b.append_block_param(head, types::I64);
        self.b.ins().jump(head, &[BlockArg::Value(result)]);
        self.b.switch_to_block(head);
        self.check_trap();
        let pending = self.vm_load(types::I64, vm_offset!(pending));
        self.b.ins().brif(pending, body, &[], done, &[]);
        self.b.switch_to_block(body);
        let none = self.number(0);
        self.vm_store(none, vm_offset!(pending));
        let context = self.vm_load(types::I64, vm_offset!(context));
        let signature = self.helper_signature(1);
        let call = self.b.ins().call_indirect(signature, pending, &[self.base, context]);
        let result = self.b.inst_results(call)[0];
        self.b.ins().jump(head, &[BlockArg::Value(result)]);
        self.b.switch_to_block(done);
        so_far
    }

    fn arguments(&mut self, function: usize) -> Vec<Value> {
        (1..=self.program.functions[function].args).map(|register| self.reg(register)).collect()
    }

    pub(super) fn call(&mut self, function: usize) {
        let arguments = self.arguments(function);
        let result = self.call_function(function, &arguments);
        self.set(0, result);
    }

    pub(super) fn bpf_loop(&mut self, function: usize, plain: bool) {
        let (mut rounds, data, flags) = (self.reg(1), self.reg(3), self.reg(4));
        if !plain {
            let low = self.b.ins().ireduce(types::I32, rounds);
            rounds = self.b.ins().uextend(types::I64, low);
        }
        let [check, head, body, again, done] = [(); 5].map(|()| self.b.create_block());
        let round = self.b.append_block_param(head, types::I64);
        let result = self.b.append_block_param(done, types::I64);
        let (invalid, too_big, zero) = (
            self.number(EINVAL),
            self.number(if plain { i64::from(E2BIG as u32) } else { E2BIG }),
            self.number(0),
        );
        self.b.ins().brif(flags, done, &[BlockArg::Value(invalid)], check, &[]);
        self.b.switch_to_block(check);
        let too_many = self.b.ins().icmp_imm_s(IntCC::UnsignedGreaterThan, rounds, MAX_LOOPS as i64);
        self.b.ins().brif(too_many, done, &[BlockArg::Value(too_big)], head, &[BlockArg::Value(zero)]);
        self.b.switch_to_block(head);
        let more = self.b.ins().icmp(IntCC::UnsignedLessThan, round, rounds);
        self.b.ins().brif(more, body, &[], done, &[BlockArg::Value(round)]);
        self.b.switch_to_block(body);
        let args = usize::from(self.program.functions[function].args);
        let arguments = [round, data, zero, zero, zero];
        let stop = self.call_function(function, &arguments[..args]);
        let next = self.b.ins().iadd_imm_s(round, 1);
        self.b.ins().brif(stop, done, &[BlockArg::Value(next)], again, &[]);
        self.b.switch_to_block(again);
        self.b.ins().jump(head, &[BlockArg::Value(next)]);
        self.b.switch_to_block(done);
        self.set(0, result);
    }

    /// Leaves the function, so that its caller goes on with the other program.
    pub(super) fn tail_call(&mut self) {
        let (map, index) = (self.reg(2), self.reg(3));
        let pending = self.call_native(runtime::tail_call_address(), &[map, index]);
        self.check_trap();
        let (leave, stay) = (self.b.create_block(), self.b.create_block());
        self.b.ins().brif(pending, leave, &[], stay, &[]);
        self.b.switch_to_block(leave);
        let zero = self.number(0);
        self.leave(zero);
        self.b.switch_to_block(stay);
        let failed = self.number(TAIL_CALL_FAILED);
        self.set(0, failed);
    }
}
