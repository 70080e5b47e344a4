// SPDX-License-Identifier: Apache-2.0
//! What the back ends translate: functions of basic blocks over the eleven registers, with everything resolved that can be before the
//! program runs.

use super::instr::{Alu, AtomicOp, Cond, Operand, Size};
use crate::helper::Helper;

/// A program; the first function is its entry, which gets the context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub name: String,
    pub functions: Vec<Function>,
}

impl Program {
    /// Whether an entry, this program's or another's, may begin while a function of this one waits.
    pub fn enters_in_a_call(&self) -> bool {
        let mut ops =
            self.functions.iter().flat_map(|function| &function.blocks).flat_map(|block| &block.ops);
        ops.any(|op| matches!(op, Op::Call { function: 0 } | Op::Loop { function: 0, .. }))
            || self.functions.iter().skip(1).any(|function| function.tail_calls)
    }

    /// Whether the packet may begin elsewhere after a while.
    pub fn moves_packet(&self) -> bool {
        let mut ops =
            self.functions.iter().flat_map(|function| &function.blocks).flat_map(|block| &block.ops);
        ops.any(|op| matches!(op, Op::Helper { helper: Helper::AdjustHead }))
    }
}

/// Operations that one unit of fuel pays for, of a jump back or a call.
const OPS_PER_FUEL: usize = 4096;

impl Function {
    /// Caged: what a jump back to a block costs, and so how long one packet may take whatever lies between.
    pub fn toll(&self, from: BlockId, to: BlockId) -> i64 {
        (1 + (self.ops_before[from + 1] - self.ops_before[to]) / OPS_PER_FUEL) as i64
    }

    /// Caged: what a call costs.
    pub fn call_toll(&self) -> i64 {
        (1 + self.ops_before[self.blocks.len()] / OPS_PER_FUEL) as i64
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    /// Arguments it reads, from r1 on.
    pub args: u8,
    /// Bytes of its stack frame.
    pub frame: u32,
    /// Sizes of the frame's parts that nothing points at: they need no memory.
    pub slots: Vec<Size>,
    /// A tail call may be pending when it returns.
    pub tail_calls: bool,
    /// Only what can be reached; the first is where it begins.
    pub blocks: Vec<Block>,
    /// Before each block, and in all.
    pub ops_before: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub ops: Vec<Op>,
    pub end: End,
}

/// Index of a block of the same function. A jump to the same or an earlier one is a backward jump.
pub(crate) type BlockId = usize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Jump(BlockId),
    Branch { wide: bool, cond: Cond, dst: u8, src: Operand, then: BlockId, otherwise: BlockId },
    Exit,
}

/// Where an access goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Wherever the register points.
    Reg { base: u8, off: i32 },
    /// This function's frame, bytes behind its start; inside it.
    Frame(u32),
    /// A slot of the frame, all of it.
    Slot(usize),
    /// The engine's memory, behind `base`; inside a map's values.
    Memory(u64),
}

/// Fields of the context that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Data,
    DataEnd,
    DataMeta,
    IngressIfindex,
    RxQueueIndex,
}

/// An array's place and shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Array {
    pub offset: u64,
    pub stride: u64,
    pub entries: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Op {
    Alu {
        wide: bool,
        op: Alu,
        dst: u8,
        src: Operand,
    },
    Neg {
        wide: bool,
        dst: u8,
    },
    MovSx {
        wide: bool,
        dst: u8,
        src: u8,
        from: Size,
    },
    Order {
        dst: u8,
        size: Size,
        swap: bool,
    },
    Number {
        dst: u8,
        value: u64,
    },
    /// Address of the engine's memory.
    Address {
        dst: u8,
        offset: u64,
    },
    Load {
        dst: u8,
        place: Place,
        size: Size,
        signed: bool,
    },
    /// may_be_frame: nothing shows that a register does not point into a frame.
    Store {
        place: Place,
        size: Size,
        src: Operand,
        may_be_frame: bool,
    },
    Atomic {
        op: AtomicOp,
        fetch: bool,
        place: Place,
        size: Size,
        src: u8,
    },
    Context {
        dst: u8,
        field: Field,
    },
    /// r0 becomes the address of an array's element, or 0 beyond its end.
    Element {
        array: Array,
        key: Place,
        in_bounds: bool,
    },
    Helper {
        helper: Helper,
    },
    /// A subprogram.
    Call {
        function: usize,
    },
    /// `bpf_loop` over a subprogram. plain: the flags are known to be 0; the kernel then inlines the call, which has all
    /// 64 bits of the count, and a zero-extended error.
    Loop {
        function: usize,
        plain: bool,
    },
    /// `bpf_tail_call`: leaves the function, or r0 becomes an error.
    TailCall,
}
