// SPDX-License-Identifier: Apache-2.0
//! What is known of a register or stack slot at one point of a program.

use super::instr::{Alu, Cond, Size};

/// What a number or pointer of unknown value may still be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taint {
    /// The context.
    pub context: bool,
    /// A pointer into this function's frame.
    pub frame: bool,
    /// A pointer into a caller's frame.
    pub outer: bool,
}

impl Taint {
    fn join(self, other: Self) -> Self {
        Self {
            context: self.context | other.context,
            frame: self.frame | other.frame,
            outer: self.outer | other.outer,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// A number from 0 to this one.
    UpTo(u64),
    Number(u64),
    /// The context, and how far behind its start.
    Context(i64),
    Map(u32),
    /// Into the memory of a map with one block of values.
    InMap {
        map: u32,
        offset: i64,
    },
    Function(usize),
    /// Into this function's frame: distance from the frame pointer.
    Frame(i64),
    /// Into the frame of a caller: distance from what argument `arg` pointed at.
    Outer {
        arg: u8,
        offset: i64,
    },
    /// A pointer that is not null.
    Pointer,
    Other(Taint),
}

impl Value {
    pub(crate) const UNKNOWN: Value = Value::UpTo(u64::MAX);

    pub(crate) fn taint(self) -> Taint {
        match self {
            Value::Other(taint) => taint,
            Value::Context(_) => Taint { context: true, ..Taint::default() },
            Value::Frame(_) => Taint { frame: true, ..Taint::default() },
            Value::Outer { .. } => Taint { outer: true, ..Taint::default() },
            _ => Taint::default(),
        }
    }

    /// The value may be the context.
    pub(crate) fn may_be_context(self) -> bool {
        self.taint().context
    }

    /// The value may point into a stack frame.
    pub(crate) fn points_at_frames(self) -> bool {
        self.taint().frame || self.taint().outer
    }

    /// The largest number it can be.
    pub(crate) fn max(self) -> u64 {
        match self {
            Value::Number(number) => number,
            Value::UpTo(max) => max,
            _ => u64::MAX,
        }
    }

    fn never_null(self) -> bool {
        matches!(
            self,
            Value::Context(_)
                | Value::Map(_)
                | Value::InMap { .. }
                | Value::Function(_)
                | Value::Frame(_)
                | Value::Outer { .. }
                | Value::Pointer
        )
    }

    /// What holds where two ways meet.
    pub(crate) fn join(self, other: Self) -> Self {
        use Value::*;
        match (self, other) {
            (a, b) if a == b => a,
            (Number(_) | UpTo(_), Number(_) | UpTo(_)) => UpTo(self.max().max(other.max())),
            (InMap { .. } | Pointer, InMap { .. } | Pointer) => Pointer,
            (a, b) => match a.taint().join(b.taint()) {
                none if none == Taint::default() => Self::UNKNOWN,
                taint => Other(taint),
            },
        }
    }

    /// As `join`, for loops: a bound that grew is given up.
    pub(crate) fn widen(self, other: Self) -> Self {
        match (self, self.join(other)) {
            (before, UpTo(_)) if before != self.join(other) => Self::UNKNOWN,
            (_, joined) => joined,
        }
    }

    /// The value plus a constant.
    pub(crate) fn plus(self, distance: i64) -> Self {
        use Value::*;
        match self {
            Number(number) => Number(number.wrapping_add_signed(distance)),
            UpTo(max) => {
                max.checked_add_signed(distance).filter(|_| distance >= 0).map_or(Self::UNKNOWN, UpTo)
            }
            Context(offset) => Context(offset.wrapping_add(distance)),
            InMap { map, offset } => InMap { map, offset: offset.wrapping_add(distance) },
            Frame(offset) => Frame(offset.wrapping_add(distance)),
            Outer { arg, offset } => Outer { arg, offset: offset.wrapping_add(distance) },
            Other(taint) => Other(taint),
            Map(_) | Function(_) | Pointer => Self::UNKNOWN,
        }
    }
}

use Value::UpTo;

/// What an operation makes of two values, neither of them the context.
pub(crate) fn alu(wide: bool, op: Alu, a: Value, b: Value) -> Value {
    if op == Alu::Mov {
        return if wide { b } else { truncate(b, Size::W) };
    }
    if let (Value::Number(x), Value::Number(y)) = (a, b) {
        return Value::Number(compute(wide, op, x, y));
    }
    if wide {
        match (op, a, b) {
            (Alu::Add, pointer, Value::Number(distance)) | (Alu::Add, Value::Number(distance), pointer) => {
                return pointer.plus(distance as i64);
            }
            (Alu::Sub, pointer, Value::Number(distance)) => {
                return pointer.plus((distance as i64).wrapping_neg());
            }
            _ => {}
        }
    }
    let taint = a.taint().join(b.taint());
    if taint != Taint::default() {
        return Value::Other(taint);
    }
    let (a, b) = if wide { (a, b) } else { (truncate(a, Size::W), truncate(b, Size::W)) };
    let width = if wide { Size::D } else { Size::W };
    let bound = match (op, b) {
        (Alu::And, _) => a.max().min(b.max()),
        (Alu::Or | Alu::Xor, _) => bits_up_to(a.max() | b.max()),
        (Alu::Add, _) => a.max().saturating_add(b.max()),
        (Alu::Mul, _) => a.max().saturating_mul(b.max()),
        (Alu::Rsh, Value::Number(shift)) => a.max() >> (shift & (u64::from(width.bits()) - 1)),
        (Alu::Rsh | Alu::Div, _) => a.max(),
        (Alu::Mod, Value::Number(divisor)) if divisor != 0 => a.max().min(divisor - 1),
        (Alu::Mod, _) => a.max(),
        (Alu::Lsh, Value::Number(shift)) => {
            let shift = (shift & (u64::from(width.bits()) - 1)) as u32;
            a.max().checked_shl(shift).filter(|shifted| shifted >> shift == a.max()).unwrap_or(u64::MAX)
        }
        _ => u64::MAX,
    };
    Value::UpTo(if bound > width.max() { width.max() } else { bound })
}

/// All ones up to the highest bit.
fn bits_up_to(number: u64) -> u64 {
    if number == 0 { 0 } else { u64::MAX >> number.leading_zeros() }
}

/// The low bits alone.
pub(crate) fn truncate(value: Value, size: Size) -> Value {
    match value {
        Value::Number(number) => Value::Number(number & size.max()),
        _ if size == Size::D => value,
        _ => Value::UpTo(value.max().min(size.max())),
    }
}

/// The operation itself, as RFC 9669 defines it.
pub(crate) fn compute(wide: bool, op: Alu, a: u64, b: u64) -> u64 {
    if !wide {
        return u64::from(compute32(op, a as u32, b as u32));
    }
    let (signed, divisor) = (a as i64, b as i64);
    match op {
        Alu::Add => a.wrapping_add(b),
        Alu::Sub => a.wrapping_sub(b),
        Alu::Mul => a.wrapping_mul(b),
        Alu::Div => a.checked_div(b).unwrap_or(0),
        Alu::Mod => a.checked_rem(b).unwrap_or(a),
        Alu::SDiv if b == 0 => 0,
        Alu::SDiv => signed.wrapping_div(divisor) as u64,
        Alu::SMod if b == 0 => a,
        Alu::SMod => signed.wrapping_rem(divisor) as u64,
        Alu::Or => a | b,
        Alu::And => a & b,
        Alu::Xor => a ^ b,
        Alu::Lsh => a.wrapping_shl(b as u32),
        Alu::Rsh => a.wrapping_shr(b as u32),
        Alu::Arsh => signed.wrapping_shr(b as u32) as u64,
        Alu::Mov => b,
    }
}

fn compute32(op: Alu, a: u32, b: u32) -> u32 {
    let (signed, divisor) = (a as i32, b as i32);
    match op {
        Alu::Add => a.wrapping_add(b),
        Alu::Sub => a.wrapping_sub(b),
        Alu::Mul => a.wrapping_mul(b),
        Alu::Div => a.checked_div(b).unwrap_or(0),
        Alu::Mod => a.checked_rem(b).unwrap_or(a),
        Alu::SDiv if b == 0 => 0,
        Alu::SDiv => signed.wrapping_div(divisor) as u32,
        Alu::SMod if b == 0 => a,
        Alu::SMod => signed.wrapping_rem(divisor) as u32,
        Alu::Or => a | b,
        Alu::And => a & b,
        Alu::Xor => a ^ b,
        Alu::Lsh => a.wrapping_shl(b),
        Alu::Rsh => a.wrapping_shr(b),
        Alu::Arsh => signed.wrapping_shr(b) as u32,
        Alu::Mov => b,
    }
}

/// Which way a branch goes, where that is known.
pub(crate) fn decide(wide: bool, cond: Cond, a: Value, b: Value) -> Option<bool> {
    let (a, b) = if wide { (a, b) } else { (truncate(a, Size::W), truncate(b, Size::W)) };
    match (a, b, cond) {
        (Value::Number(a), Value::Number(b), _) => Some(compare(wide, cond, a, b)),
        (pointer, Value::Number(0), Cond::Eq) if wide && pointer.never_null() => Some(false),
        (pointer, Value::Number(0), Cond::Ne) if wide && pointer.never_null() => Some(true),
        (_, Value::Number(b), Cond::Gt) if a.max() <= b => Some(false),
        (_, Value::Number(b), Cond::Ge | Cond::Eq) if a.max() < b => Some(false),
        (_, Value::Number(b), Cond::Le) if a.max() <= b => Some(true),
        (_, Value::Number(b), Cond::Lt | Cond::Ne) if a.max() < b => Some(true),
        _ => None,
    }
}

fn compare(wide: bool, cond: Cond, a: u64, b: u64) -> bool {
    let (sa, sb) = if wide { (a as i64, b as i64) } else { ((a as i32).into(), (b as i32).into()) };
    match cond {
        Cond::Eq => a == b,
        Cond::Ne => a != b,
        Cond::Gt => a > b,
        Cond::Ge => a >= b,
        Cond::Lt => a < b,
        Cond::Le => a <= b,
        Cond::SGt => sa > sb,
        Cond::SGe => sa >= sb,
        Cond::SLt => sa < sb,
        Cond::SLe => sa <= sb,
        Cond::Set => a & b != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_by_zero_is_that_of_the_instruction_set() {
        assert_eq!(compute(true, Alu::Div, 7, 0), 0);
        assert_eq!(compute(true, Alu::Mod, 7, 0), 7);
        assert_eq!(compute(false, Alu::Mod, u64::MAX, 1 << 32), u32::MAX.into());
        assert_eq!(compute(true, Alu::SDiv, i64::MIN as u64, u64::MAX), i64::MIN as u64);
        assert_eq!(compute(true, Alu::SMod, i64::MIN as u64, u64::MAX), 0);
        assert_eq!(compute(false, Alu::SDiv, 0x8000_0000, 0xffff_ffff), 0x8000_0000);
    }

    #[test]
    fn bounds_hold_for_every_number_below_them() {
        let ops = [
            Alu::Add,
            Alu::Sub,
            Alu::Mul,
            Alu::Div,
            Alu::SDiv,
            Alu::Mod,
            Alu::SMod,
            Alu::Or,
            Alu::And,
            Alu::Xor,
            Alu::Lsh,
            Alu::Rsh,
            Alu::Arsh,
            Alu::Mov,
        ];
        let numbers = [0, 1, 2, 3, 31, 32, 63, 64, 255, 0x7fff_ffff, 0xffff_ffff, 1 << 32, 1 << 63, u64::MAX];
        for op in ops {
            for wide in [false, true] {
                for a in numbers {
                    for b in numbers {
                        let result = compute(wide, op, a, b);
                        for (x, y) in [
                            (Value::UpTo(a), Value::UpTo(b)),
                            (Value::UpTo(a), Value::Number(b)),
                            (Value::Number(a), Value::UpTo(b)),
                        ] {
                            let bound = alu(wide, op, x, y).max();
                            assert!(result <= bound, "{op:?} {wide} {x:?} {y:?}: {result} > {bound}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn joins_keep_what_may_be_a_context() {
        let mixed = Value::Context(0).join(Value::Number(1));
        assert!(mixed.may_be_context());
        assert!(alu(true, Alu::Add, mixed, Value::Number(4)).may_be_context());
        assert_eq!(Value::Number(1).join(Value::Number(4)), Value::UpTo(4));
        assert_eq!(Value::UpTo(4).widen(Value::Number(5)), Value::UNKNOWN);
        assert_eq!(Value::UpTo(4).widen(Value::Number(3)), Value::UpTo(4));
    }

    #[test]
    fn branches_are_decided_only_where_they_are_known() {
        let up_to = Value::UpTo(7);
        assert_eq!(decide(true, Cond::Gt, up_to, Value::Number(7)), Some(false));
        assert_eq!(decide(true, Cond::Gt, up_to, Value::Number(6)), None);
        assert_eq!(decide(true, Cond::Eq, Value::Pointer, Value::Number(0)), Some(false));
        assert_eq!(decide(false, Cond::Eq, Value::Pointer, Value::Number(0)), None);
        assert_eq!(decide(false, Cond::SLt, Value::Number(0xffff_ffff), Value::Number(0)), Some(true));
    }
}
