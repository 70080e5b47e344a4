// SPDX-License-Identifier: Apache-2.0
//! Instructions as they are understood.

/// Index of the frame pointer, the last register.
pub(crate) const FRAME: u8 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Size {
    B,
    H,
    W,
    D,
}

impl Size {
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Size::B => 1,
            Size::H => 2,
            Size::W => 4,
            Size::D => 8,
        }
    }

    pub(crate) fn bits(self) -> u32 {
        self.bytes() * 8
    }

    /// The largest number of this size.
    pub(crate) fn max(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
    Reg(u8),
    Imm(i32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alu {
    Add,
    Sub,
    Mul,
    Div,
    SDiv,
    Mod,
    SMod,
    Or,
    And,
    Xor,
    Lsh,
    Rsh,
    Arsh,
    Mov,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cond {
    Eq,
    Ne,
    Gt,
    Ge,
    Lt,
    Le,
    SGt,
    SGe,
    SLt,
    SLe,
    /// Any bit in common.
    Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    Or,
    And,
    Xor,
    Exchange,
    CompareExchange,
}

/// One instruction. Jump targets are slots of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instr {
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
    /// `wide` false: the upper half becomes zero after the extension to 32 bits.
    MovSx {
        wide: bool,
        dst: u8,
        src: u8,
        from: Size,
    },
    /// Truncation to `size`, with the bytes reversed if `swap`.
    Order {
        dst: u8,
        size: Size,
        swap: bool,
    },
    Number {
        dst: u8,
        value: u64,
    },
    Map {
        dst: u8,
        map: u32,
    },
    MapValue {
        dst: u8,
        map: u32,
        offset: u32,
    },
    Function {
        dst: u8,
        target: usize,
    },
    Load {
        dst: u8,
        base: u8,
        off: i16,
        size: Size,
        signed: bool,
    },
    Store {
        base: u8,
        off: i16,
        size: Size,
        src: Operand,
    },
    Atomic {
        op: AtomicOp,
        fetch: bool,
        base: u8,
        off: i16,
        size: Size,
        src: u8,
    },
    Jump {
        target: usize,
    },
    Branch {
        wide: bool,
        cond: Cond,
        dst: u8,
        src: Operand,
        target: usize,
    },
    Helper {
        id: u32,
    },
    Call {
        target: usize,
    },
    Exit,
    /// The second slot of a number, map or function.
    Rest,
}
