// SPDX-License-Identifier: Apache-2.0
//! Byte code to operations, one a slot; refuses what RFC 9669 does not define.

use super::instr::{Alu, AtomicOp, Cond, FRAME, Instr, Operand, Size};
use crate::insn::{self, Insn};

/// Why an instruction is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refused {
    Malformed(String),
    Unsupported(String),
}

type Result<T> = std::result::Result<T, Refused>;

fn malformed<T>(why: impl Into<String>) -> Result<T> {
    Err(Refused::Malformed(why.into()))
}

/// All instructions of a program, or the first that is refused.
pub(crate) fn decode(insns: &[Insn], maps: usize) -> std::result::Result<Vec<Instr>, (usize, Refused)> {
    let mut all = Vec::with_capacity(insns.len());
    let mut at = 0;
    while at < insns.len() {
        let instr = one(insns, at, maps).map_err(|refused| (at, refused))?;
        all.push(instr);
        at += 1;
        if insns[at - 1].code == insn::LD_IMM64 {
            all.push(Instr::Rest);
            at += 1;
        }
    }
    Ok(all)
}

fn one(insns: &[Insn], at: usize, maps: usize) -> Result<Instr> {
    let insn = insns[at];
    if insn.dst > FRAME || insn.src > FRAME {
        return malformed(format!("register {} does not exist", insn.dst.max(insn.src)));
    }
    match insn.code & 7 {
        0x00 => load_number(insns, at, maps),
        0x01 => load(insn),
        0x02 | 0x03 => store(insn),
        0x04 | 0x07 => alu(insn),
        _ => jump(insns, at),
    }
}

/// Fields an instruction does not use must be zero, as the kernel demands.
fn unused(insn: Insn, src: bool, off: bool, imm: bool) -> Result<()> {
    if src && insn.src != 0 || off && insn.off != 0 || imm && insn.imm != 0 {
        return malformed(format!("opcode {:#04x} uses reserved fields", insn.code));
    }
    Ok(())
}

fn unknown<T>(insn: Insn) -> Result<T> {
    malformed(format!("opcode {:#04x} does not exist", insn.code))
}

fn writable(register: u8) -> Result<u8> {
    if register == FRAME { malformed("the frame pointer is read-only") } else { Ok(register) }
}

fn load_number(insns: &[Insn], at: usize, maps: usize) -> Result<Instr> {
    let insn = insns[at];
    if insn.code != insn::LD_IMM64 {
        return match insn.code & 0xe0 {
            0x20 | 0x40 => Err(Refused::Unsupported("legacy packet access (ld_abs, ld_ind)".into())),
            _ => unknown(insn),
        };
    }
    let Some(rest) = insns.get(at + 1) else { return malformed("ld_imm64 lacks its second slot") };
    if rest.code != 0 || rest.dst != 0 || rest.src != 0 || rest.off != 0 || insn.off != 0 {
        return malformed("ld_imm64 uses reserved fields");
    }
    let dst = writable(insn.dst)?;
    let map = || match u32::try_from(insn.imm) {
        Ok(map) if (map as usize) < maps => Ok(map),
        _ => malformed(format!("map {} does not exist", insn.imm)),
    };
    match insn.src {
        insn::PSEUDO_NONE => {
            let value = u64::from(insn.imm as u32) | u64::from(rest.imm as u32) << 32;
            Ok(Instr::Number { dst, value })
        }
        insn::PSEUDO_MAP_IDX if rest.imm == 0 => Ok(Instr::Map { dst, map: map()? }),
        insn::PSEUDO_MAP_IDX_VALUE => Ok(Instr::MapValue { dst, map: map()?, offset: rest.imm as u32 }),
        insn::PSEUDO_FUNC => Ok(Instr::Function { dst, target: target(insns, at, insn.imm.into())? }),
        insn::PSEUDO_MAP_FD | insn::PSEUDO_MAP_VALUE => {
            malformed("a map's descriptor is left in the byte code: it was not linked")
        }
        3 => Err(Refused::Unsupported("a kernel variable (pseudo BTF id)".into())),
        _ => malformed(format!("ld_imm64 with pseudo source {}", insn.src)),
    }
}

fn size(code: u8) -> Size {
    match code & 0x18 {
        0x00 => Size::W,
        0x08 => Size::H,
        0x10 => Size::B,
        _ => Size::D,
    }
}

fn load(insn: Insn) -> Result<Instr> {
    let (size, mode) = (size(insn.code), insn.code & 0xe0);
    unused(insn, false, false, true)?;
    let signed = match (mode, size) {
        (0x60, _) => false,
        (0x80, Size::B | Size::H | Size::W) => true,
        _ => return unknown(insn),
    };
    Ok(Instr::Load { dst: writable(insn.dst)?, base: insn.src, off: insn.off, size, signed })
}

fn store(insn: Insn) -> Result<Instr> {
    let (size, mode, immediate) = (size(insn.code), insn.code & 0xe0, insn.code & 7 == 0x02);
    let Insn { dst: base, off, .. } = insn;
    match mode {
        0x60 if immediate => {
            unused(insn, true, false, false)?;
            Ok(Instr::Store { base, off, size, src: Operand::Imm(insn.imm) })
        }
        0x60 => {
            unused(insn, false, false, true)?;
            Ok(Instr::Store { base, off, size, src: Operand::Reg(insn.src) })
        }
        0xc0 if !immediate => atomic(insn, size),
        0xa0 | 0x20 => Err(Refused::Unsupported("arena memory".into())),
        _ => unknown(insn),
    }
}

fn atomic(insn: Insn, size: Size) -> Result<Instr> {
    const FETCH: i32 = 1;
    if !matches!(size, Size::W | Size::D) {
        return match insn.imm {
            0x100 | 0x110 => Err(Refused::Unsupported("load-acquire and store-release".into())),
            _ => malformed("an atomic operation on less than 4 bytes"),
        };
    }
    let (op, fetch) = match insn.imm {
        0xe1 => (AtomicOp::Exchange, true),
        0xf1 => (AtomicOp::CompareExchange, true),
        0x100 | 0x110 => return Err(Refused::Unsupported("load-acquire and store-release".into())),
        imm => {
            let op = match imm & !FETCH {
                0x00 => AtomicOp::Add,
                0x40 => AtomicOp::Or,
                0x50 => AtomicOp::And,
                0xa0 => AtomicOp::Xor,
                _ => return malformed(format!("atomic operation {imm:#x} does not exist")),
            };
            (op, imm & FETCH != 0)
        }
    };
    if fetch && op != AtomicOp::CompareExchange {
        writable(insn.src)?;
    }
    Ok(Instr::Atomic { op, fetch, base: insn.dst, off: insn.off, size, src: insn.src })
}

fn alu(insn: Insn) -> Result<Instr> {
    let wide = insn.code & 7 == 0x07;
    let register = insn.code & 0x08 != 0;
    let dst = writable(insn.dst)?;
    let src = if register { Operand::Reg(insn.src) } else { Operand::Imm(insn.imm) };
    let plain = |op| {
        unused(insn, !register, true, register)?;
        Ok(Instr::Alu { wide, op, dst, src })
    };
    let signed = |unsigned, signed| {
        unused(insn, !register, false, register)?;
        if src == Operand::Imm(0) {
            return malformed("a division by the constant zero");
        }
        match insn.off {
            0 => Ok(Instr::Alu { wide, op: unsigned, dst, src }),
            1 => Ok(Instr::Alu { wide, op: signed, dst, src }),
            off => malformed(format!("division with offset {off}")),
        }
    };
    match insn.code & 0xf0 {
        0x00 => plain(Alu::Add),
        0x10 => plain(Alu::Sub),
        0x20 => plain(Alu::Mul),
        0x30 => signed(Alu::Div, Alu::SDiv),
        0x40 => plain(Alu::Or),
        0x50 => plain(Alu::And),
        0x60 | 0x70 | 0xc0 => {
            let width = if wide { 64 } else { 32 };
            if !register && !(0..width).contains(&insn.imm) {
                return malformed(format!("a shift by {} of {width} bits", insn.imm));
            }
            plain(match insn.code & 0xf0 {
                0x60 => Alu::Lsh,
                0x70 => Alu::Rsh,
                _ => Alu::Arsh,
            })
        }
        0x80 if !register => {
            unused(insn, true, true, true)?;
            Ok(Instr::Neg { wide, dst })
        }
        0x90 => signed(Alu::Mod, Alu::SMod),
        0xa0 => plain(Alu::Xor),
        0xb0 => move_register(insn, wide, dst, src),
        0xd0 => byte_order(insn, wide, dst),
        _ => unknown(insn),
    }
}

fn move_register(insn: Insn, wide: bool, dst: u8, src: Operand) -> Result<Instr> {
    if insn.off == 0 {
        let register = matches!(src, Operand::Reg(_));
        unused(insn, !register, true, register)?;
        return Ok(Instr::Alu { wide, op: Alu::Mov, dst, src });
    }
    let (Operand::Reg(src), 0) = (src, insn.imm) else { return malformed("a move uses reserved fields") };
    let from = match insn.off {
        8 => Size::B,
        16 => Size::H,
        32 if wide => Size::W,
        1 => return Err(Refused::Unsupported("arena address casts".into())),
        off => return malformed(format!("a sign-extending move of {off} bits")),
    };
    Ok(Instr::MovSx { wide, dst, src, from })
}

fn byte_order(insn: Insn, wide: bool, dst: u8) -> Result<Instr> {
    unused(insn, true, true, false)?;
    let size = match insn.imm {
        16 => Size::H,
        32 => Size::W,
        64 => Size::D,
        bits => return malformed(format!("a byte swap of {bits} bits")),
    };
    let big_endian = insn.code & 0x08 != 0;
    match (wide, big_endian) {
        // The unconditional swap.
        (true, false) => Ok(Instr::Order { dst, size, swap: true }),
        (true, true) => unknown(insn),
        // The machine is little-endian: to little-endian only truncates.
        (false, swap) => Ok(Instr::Order { dst, size, swap }),
    }
}

fn target(insns: &[Insn], at: usize, distance: i64) -> Result<usize> {
    match usize::try_from(at as i64 + 1 + distance) {
        Ok(target) if target < insns.len() => Ok(target),
        _ => malformed("a jump or call out of the program"),
    }
}

fn jump(insns: &[Insn], at: usize) -> Result<Instr> {
    let insn = insns[at];
    let wide = insn.code & 7 == 0x05;
    let register = insn.code & 0x08 != 0;
    let cond = match insn.code & 0xf0 {
        0x00 if !register => {
            if insn.dst != 0 {
                return malformed("a jump uses reserved fields");
            }
            let distance = if wide { i64::from(insn.off) } else { insn.imm.into() };
            unused(insn, true, !wide, wide)?;
            return Ok(Instr::Jump { target: target(insns, at, distance)? });
        }
        0x80 if insn.code == insn::CALL => return call(insns, at),
        0x90 if insn.code == insn::EXIT => {
            unused(insn, true, true, true)?;
            return if insn.dst == 0 { Ok(Instr::Exit) } else { malformed("exit uses reserved fields") };
        }
        0x10 => Cond::Eq,
        0x20 => Cond::Gt,
        0x30 => Cond::Ge,
        0x40 => Cond::Set,
        0x50 => Cond::Ne,
        0x60 => Cond::SGt,
        0x70 => Cond::SGe,
        0xa0 => Cond::Lt,
        0xb0 => Cond::Le,
        0xc0 => Cond::SLt,
        0xd0 => Cond::SLe,
        0xe0 => return Err(Refused::Unsupported("may_goto".into())),
        _ => return unknown(insn),
    };
    unused(insn, !register, false, register)?;
    let src = if register { Operand::Reg(insn.src) } else { Operand::Imm(insn.imm) };
    Ok(Instr::Branch { wide, cond, dst: insn.dst, src, target: target(insns, at, insn.off.into())? })
}

fn call(insns: &[Insn], at: usize) -> Result<Instr> {
    let insn = insns[at];
    if insn.dst != 0 || insn.off != 0 && insn.src != 2 {
        return malformed("a call uses reserved fields");
    }
    match insn.src {
        0 => Ok(Instr::Helper { id: insn.imm as u32 }),
        insn::PSEUDO_CALL => Ok(Instr::Call { target: target(insns, at, insn.imm.into())? }),
        2 => Err(Refused::Unsupported("a kernel function (kfunc)".into())),
        source => malformed(format!("a call with pseudo source {source}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
        Insn { code, dst, src, off, imm }
    }

    fn first(insns: &[Insn]) -> std::result::Result<Instr, Refused> {
        decode(insns, 1).map(|all| all[0]).map_err(|(_, refused)| refused)
    }

    #[test]
    fn instructions_are_read_as_defined() {
        let alu = |wide, op, src| Instr::Alu { wide, op, dst: 1, src };
        let cases = [
            (insn(0x07, 1, 0, 0, -1), alu(true, Alu::Add, Operand::Imm(-1))),
            (insn(0x3c, 1, 2, 1, 0), alu(false, Alu::SDiv, Operand::Reg(2))),
            (insn(0xbf, 1, 2, 8, 0), Instr::MovSx { wide: true, dst: 1, src: 2, from: Size::B }),
            (insn(0xdc, 1, 0, 0, 16), Instr::Order { dst: 1, size: Size::H, swap: true }),
            (insn(0xd4, 1, 0, 0, 32), Instr::Order { dst: 1, size: Size::W, swap: false }),
            (insn(0x81, 1, 2, 4, 0), Instr::Load { dst: 1, base: 2, off: 4, size: Size::W, signed: true }),
            (insn(0x06, 0, 0, 0, -1), Instr::Jump { target: 0 }),
            (
                insn(0xdb, 1, 2, -8, 0xf1),
                Instr::Atomic {
                    op: AtomicOp::CompareExchange,
                    fetch: true,
                    base: 1,
                    off: -8,
                    size: Size::D,
                    src: 2,
                },
            ),
        ];
        for (insn, instr) in cases {
            assert_eq!(first(&[insn]), Ok(instr), "{insn:?}");
        }
    }

    #[test]
    fn what_is_not_defined_is_malformed() {
        let cases = [
            insn(0xff, 0, 0, 0, 0),
            insn(0x07, 11, 0, 0, 0),
            insn(0x07, 10, 0, 0, 0),
            insn(0x07, 1, 1, 0, 0),
            insn(0x37, 1, 0, 2, 1),
            insn(0x67, 1, 0, 0, 64),
            insn(0x64, 1, 0, 0, 32),
            insn(0xd7, 1, 0, 0, 8),
            insn(0x99, 1, 1, 0, 0),
            insn(0xd3, 1, 1, 0, 0),
            insn(0xdb, 1, 1, 0, 2),
            insn(0x05, 0, 0, 1, 0),
            insn(0x05, 0, 0, -2, 0),
            insn(0x18, 1, 0, 0, 0),
            insn(0x85, 0, 3, 0, 0),
            insn(0xbc, 1, 2, 32, 0),
        ];
        for insn in cases {
            assert!(matches!(first(&[insn]), Err(Refused::Malformed(_))), "{insn:?}");
        }
    }

    #[test]
    fn unlinked_and_foreign_references_are_refused() {
        let wide = |src, imm| [insn(0x18, 1, src, 0, imm), Insn::default()];
        assert_eq!(first(&wide(5, 0)), Ok(Instr::Map { dst: 1, map: 0 }));
        assert!(matches!(first(&wide(5, 1)), Err(Refused::Malformed(_))), "there is one map");
        assert!(matches!(first(&wide(1, 3)), Err(Refused::Malformed(_))));
        assert!(matches!(first(&wide(3, 3)), Err(Refused::Unsupported(_))));
        assert!(matches!(first(&[insn(0x85, 0, 2, 0, 7)]), Err(Refused::Unsupported(_))));
        assert!(matches!(first(&[insn(0xa3, 1, 2, 0, 0)]), Err(Refused::Unsupported(_))));
        assert!(matches!(first(&[insn(0x20, 0, 0, 0, 0)]), Err(Refused::Unsupported(_))));
    }
}
