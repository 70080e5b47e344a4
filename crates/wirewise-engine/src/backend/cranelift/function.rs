// SPDX-License-Identifier: Apache-2.0
//! One function: its frame, blocks and ways between them.

use cranelift_codegen::ir::{
    self as clif, AbiParam, Block, InstBuilder, MemFlagsData, SigRef, Signature, StackSlot, StackSlotData,
    StackSlotKind, Type, Value, types,
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use cranelift_jit::JITModule;
use cranelift_module::{FuncId, Module};

use crate::backend::Settings;
use crate::error::Trap;
use crate::frontend::FRAME_BYTES;
use crate::frontend::instr::{FRAME, Operand, Size};
use crate::frontend::ir::{End, Function, Op, Program};
use crate::memory::{STACK_AT, STACK_BYTES};
use crate::runtime::vm_offset;

/// Registers that point into the engine's memory, in the block under translation.
#[derive(Default)]
pub(super) struct Anchors {
    /// The latest first, with the offset from `base`.
    pub(super) found: Vec<(Value, i64)>,
    /// The last access that was near none of them.
    pub(super) missed: Option<i64>,
}

/// A function under translation.
pub(super) struct Emitter<'a, 'b> {
    pub b: FunctionBuilder<'b>,
    pub module: &'a mut JITModule,
    pub program: &'a Program,
    pub ids: &'a [FuncId],
    pub settings: Settings,
    function: &'a Function,
    regs: [Variable; 11],
    pub slots: Vec<Variable>,
    /// Where the engine's memory begins: the first argument.
    pub base: Value,
    blocks: Vec<Block>,
    pub frame: FramePlace,
    /// Nothing else has a frame when the function begins.
    first_frame: bool,
    /// Caged: where a trap leaves the function, and blocks that note one.
    trapped: Option<Block>,
    traps: Vec<(Trap, Block)>,
    /// Where clocks write the time, of a function that reads one.
    pub time: Option<StackSlot>,
    /// Of a function that Cranelift takes as it is.
    pub anchors: Option<Anchors>,
}

/// Where the stack frame lies.
#[derive(Clone, Copy)]
pub(super) enum FramePlace {
    None,
    Native(StackSlot),
    /// In the cage, at the start of its stack.
    First,
    /// In the cage: its offset there, and its native address.
    Caged {
        offset: Value,
        address: Value,
    },
}

pub(super) fn emit(
    module: &mut JITModule,
    func: &mut clif::Function,
    scratch: &mut FunctionBuilderContext,
    program: &Program,
    function: &Function,
    ids: &[FuncId],
    settings: Settings,
) {
    let as_it_is = super::taken_as_it_is(function);
    let frontend_config = module.target_config();
    let mut b = FunctionBuilder::new(func, scratch);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let regs = [(); 11].map(|()| b.declare_var(types::I64));
    let slots = function.slots.iter().map(|_| b.declare_var(types::I64)).collect();
    let blocks = function.blocks.iter().map(|_| b.create_block()).collect();
    let params = b.block_params(entry).to_vec();
    for (register, value) in params.iter().enumerate().skip(1) {
        b.def_var(regs[register], *value);
    }
    let mut emitter = Emitter {
        b,
        module,
        program,
        ids,
        settings,
        function,
        regs,
        slots,
        base: params[0],
        blocks,
        frame: FramePlace::None,
        first_frame: !settings.entries_nest && std::ptr::eq(function, &raw const program.functions[0]),
        trapped: None,
        traps: Vec::new(),
        time: None,
        anchors: None,
    };
    emitter.prologue();
    for (index, block) in function.blocks.iter().enumerate() {
        emitter.b.switch_to_block(emitter.blocks[index]);
        emitter.anchors = as_it_is.then(Anchors::default);
        for op in &block.ops {
            emitter.op(op);
        }
        emitter.end(index, &block.end);
    }
    emitter.trap_exits();
    emitter.b.seal_all_blocks();
    emitter.b.finalize(frontend_config);
}

impl Emitter<'_, '_> {
    pub(super) fn reg(&mut self, register: u8) -> Value {
        self.b.use_var(self.regs[register as usize])
    }

    pub(super) fn set(&mut self, register: u8, value: Value) {
        self.b.def_var(self.regs[register as usize], value);
    }

    pub(super) fn frame_bytes(&self) -> u32 {
        self.function.frame
    }

    pub(super) fn number(&mut self, number: i64) -> Value {
        self.b.ins().iconst(types::I64, number)
    }

    pub(super) fn operand(&mut self, src: Operand) -> Value {
        match src {
            Operand::Reg(register) => self.reg(register),
            Operand::Imm(number) => self.number(number.into()),
        }
    }

    /// A field of `Vm`.
    pub(super) fn vm_load(&mut self, ty: Type, offset: i32) -> Value {
        self.b.ins().load(ty, MemFlagsData::trusted(), self.base, offset)
    }

    pub(super) fn vm_store(&mut self, value: Value, offset: i32) {
        self.b.ins().store(MemFlagsData::trusted(), value, self.base, offset);
    }

    fn prologue(&mut self) {
        if self.settings.caged {
            self.caged_prologue();
        } else if self.function.frame > 0 {
            let size = self.function.frame;
            let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, size, 3);
            let slot = self.b.create_sized_stack_slot(slot);
            let top = self.b.ins().stack_addr(types::I64, slot, size as i32);
            self.set(FRAME, top);
            self.frame = FramePlace::Native(slot);
        }
        let first = self.blocks[0];
        self.b.ins().jump(first, &[]);
    }

    /// Takes a frame of the cage's stack.
    fn caged_prologue(&mut self) {
        if self.first_frame {
            let end = self.number((STACK_AT as i64) + FRAME_BYTES);
            self.vm_store(end, vm_offset!(frame));
            self.set(FRAME, end);
            self.frame = FramePlace::First;
            return;
        }
        let offset = self.vm_load(types::I64, vm_offset!(frame));
        let end = self.b.ins().iadd_imm_s(offset, FRAME_BYTES);
        let limit = (STACK_AT + STACK_BYTES) as i64;
        let too_deep = self.b.ins().icmp_imm_s(clif::condcodes::IntCC::UnsignedGreaterThan, end, limit);
        let trap = self.trap_block(Trap::CallDepth);
        let fine = self.b.create_block();
        self.b.ins().brif(too_deep, trap, &[], fine, &[]);
        self.b.switch_to_block(fine);
        self.vm_store(end, vm_offset!(frame));
        self.set(FRAME, end);
        let address = self.b.ins().iadd(self.base, offset);
        self.frame = FramePlace::Caged { offset, address };
    }

    /// Takes fuel; only caged.
    pub(super) fn burn(&mut self, units: i64) {
        let fuel = self.vm_load(types::I64, vm_offset!(fuel));
        let left = self.b.ins().iadd_imm_s(fuel, -units);
        self.vm_store(left, vm_offset!(fuel));
        let trap = self.trap_block(Trap::OutOfFuel);
        let fine = self.b.create_block();
        let empty = self.b.ins().icmp_imm_s(clif::condcodes::IntCC::SignedLessThan, left, 0);
        self.b.ins().brif(empty, trap, &[], fine, &[]);
        self.b.switch_to_block(fine);
    }

    /// Caged: a block, out of the way, that notes the trap and leaves.
    fn trap_block(&mut self, trap: Trap) -> Block {
        if let Some((_, block)) = self.traps.iter().find(|(known, _)| *known == trap) {
            return *block;
        }
        let block = self.b.create_block();
        self.traps.push((trap, block));
        block
    }

    fn trapped(&mut self) -> Block {
        let Self { b, trapped, .. } = self;
        *trapped.get_or_insert_with(|| b.create_block())
    }

    fn trap_exits(&mut self) {
        for (trap, block) in std::mem::take(&mut self.traps) {
            self.b.set_cold_block(block);
            self.b.switch_to_block(block);
            let code = self.b.ins().iconst(types::I32, i64::from(trap.code()));
            self.vm_store(code, vm_offset!(trap));
            let leave = self.trapped();
            self.b.ins().jump(leave, &[]);
        }
        let Some(block) = self.trapped else { return };
        self.b.set_cold_block(block);
        self.b.switch_to_block(block);
        let zero = self.number(0);
        self.b.ins().return_(&[zero]);
    }

    /// Caged: leaves the function if what was called trapped.
    pub(super) fn check_trap(&mut self) {
        if !self.settings.caged {
            return;
        }
        let trap = self.vm_load(types::I32, vm_offset!(trap));
        let leave = self.trapped();
        let fine = self.b.create_block();
        self.b.ins().brif(trap, leave, &[], fine, &[]);
        self.b.switch_to_block(fine);
    }

    pub(super) fn leave(&mut self, result: Value) {
        if let FramePlace::Caged { offset, .. } = self.frame {
            self.vm_store(offset, vm_offset!(frame));
        }
        self.b.ins().return_(&[result]);
    }

    fn op(&mut self, op: &Op) {
        match *op {
            Op::Alu { wide, op, dst, src } => self.alu(wide, op, dst, src),
            Op::Neg { wide, dst } => self.negate(wide, dst),
            Op::MovSx { wide, dst, src, from } => self.sign_extend(wide, dst, src, from),
            Op::Order { dst, size, swap } => self.byte_order(dst, size, swap),
            Op::Number { dst, value } => {
                let value = self.number(value as i64);
                self.set(dst, value);
            }
            Op::Address { dst, offset } => {
                let address = self.engine_address(offset);
                self.set(dst, address);
            }
            Op::Load { dst, place, size, signed } => self.load(dst, place, size, signed),
            Op::Store { place, size, src, .. } => self.store(place, size, src),
            Op::Atomic { op, fetch, place, size, src } => self.atomic(op, fetch, place, size, src),
            Op::Context { dst, field } => self.context(dst, field),
            Op::Element { array, key, in_bounds } => self.element(array, key, in_bounds),
            Op::Helper { helper } => self.helper(helper),
            Op::Call { function } => self.call(function),
            Op::Loop { function, plain } => self.bpf_loop(function, plain),
            Op::TailCall => self.tail_call(),
        }
    }

    /// The way to a block. Caged, a backward one leads through a block that costs fuel, still to be filled.
    fn way(&mut self, from: usize, to: usize, tolls: &mut Vec<(Block, Block, i64)>) -> Block {
        let target = self.blocks[to];
        if !self.settings.caged || to > from {
            return target;
        }
        let toll = self.b.create_block();
        tolls.push((toll, target, self.function.toll(from, to)));
        toll
    }

    fn end(&mut self, index: usize, end: &End) {
        let mut tolls = Vec::new();
        match *end {
            End::Exit => {
                let result = self.reg(0);
                self.leave(result);
            }
            End::Jump(to) => {
                let to = self.way(index, to, &mut tolls);
                self.b.ins().jump(to, &[]);
            }
            End::Branch { wide, cond, dst, src, then, otherwise } => {
                let taken = self.condition(wide, cond, dst, src);
                let then = self.way(index, then, &mut tolls);
                let otherwise = self.way(index, otherwise, &mut tolls);
                self.b.ins().brif(taken, then, &[], otherwise, &[]);
            }
        }
        for (toll, target, units) in tolls {
            self.b.switch_to_block(toll);
            self.burn(units);
            self.b.ins().jump(target, &[]);
        }
    }

    /// The signature of a helper with so many arguments.
    pub(super) fn helper_signature(&mut self, arguments: u8) -> SigRef {
        let mut signature = Signature::new(self.module.target_config().default_call_conv);
        signature.params.extend((0..=arguments).map(|_| AbiParam::new(types::I64)));
        signature.returns.push(AbiParam::new(types::I64));
        self.b.import_signature(signature)
    }
}

pub(super) fn integer(size: Size) -> Type {
    match size {
        Size::B => types::I8,
        Size::H => types::I16,
        Size::W => types::I32,
        Size::D => types::I64,
    }
}
