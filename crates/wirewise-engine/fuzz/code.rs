// SPDX-License-Identifier: Apache-2.0
//! Code that is more often nearly right than noise: what uses the maps with keys, values and addresses of any size.

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use wirewise_engine::insn::{
    CALL, Insn, LD_IMM64, PSEUDO_CALL, PSEUDO_FUNC, PSEUDO_MAP_IDX, PSEUDO_MAP_IDX_VALUE,
};

use crate::elf::MapIs;
use crate::size;

const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

pub const EXIT: Insn = insn(0x95, 0, 0, 0, 0);
/// A call whose target is a relocation's.
pub const CALL_NEXT: Insn = insn(CALL, 0, PSEUDO_CALL, 0, -1);

/// Registers that keep what a look-up gave.
const KEPT: [u8; 4] = [6, 7, 8, 9];
/// Where keys and values stand on the stack.
const KEY: i32 = -64;
const VALUE: i32 = -512;

fn wide(dst: u8, src: u8, low: u32, high: u32) -> [Insn; 2] {
    [insn(LD_IMM64, dst, src, 0, low as i32), insn(0, 0, 0, 0, high as i32)]
}

fn helper(id: i32) -> Insn {
    insn(CALL, 0, 0, 0, id)
}

/// `register = frame pointer + offset`.
fn frame(register: u8, offset: i32) -> [Insn; 2] {
    [insn(0xbf, register, 10, 0, 0), insn(0x07, register, 0, 0, offset)]
}

/// A program: some pieces, then its end.
pub fn draw(input: &mut Unstructured<'_>, maps: &[MapIs<'_>]) -> Result<Vec<Insn>> {
    let mut code = Vec::new();
    // r6 to r9 begin as the packet.
    for register in KEPT {
        code.push(insn(0x61, register, 1, 0, 0));
    }
    code.push(insn(0x7b, 10, 1, -8, 0));
    for _ in 0..input.int_in_range(1..=12)? {
        piece(input, maps, &mut code)?;
    }
    code.extend([insn(0xb7, 0, 0, 0, 2), EXIT]);
    Ok(code)
}

fn key(input: &mut Unstructured<'_>, code: &mut Vec<Insn>) -> Result<()> {
    if input.ratio(2, 3)? {
        code.push(insn(0x62, 10, 0, KEY as i16, size(input)? as i32));
    } else {
        code.extend([
            insn(0x61, 3, *input.choose(&KEPT)?, input.int_in_range(0..=64)?, 0),
            insn(0x63, 10, 3, KEY as i16, 0),
        ]);
    }
    code.extend(frame(2, KEY));
    Ok(())
}

fn piece(input: &mut Unstructured<'_>, maps: &[MapIs<'_>], code: &mut Vec<Insn>) -> Result<()> {
    let map = input.int_in_range(0..=maps.len() as u32)?;
    let map_into = |register| wide(register, PSEUDO_MAP_IDX, map, 0);
    let kept = *input.choose(&KEPT)?;
    match input.int_in_range(0..=12)? {
        0..=2 => {
            key(input, code)?;
            code.extend(map_into(1));
            code.push(helper(1));
            if input.ratio(1, 2)? {
                code.push(insn(0x15, 0, 0, 1, 0));
            }
            access(input, 0, code)?;
            code.push(insn(0xbf, kept, 0, 0, 0));
        }
        3 => {
            key(input, code)?;
            code.extend(map_into(1));
            code.extend(frame(3, VALUE));
            code.push(insn(0xb7, 4, 0, 0, input.int_in_range(0..=3)?));
            code.push(helper(*input.choose(&[2, 2, 3])?));
        }
        4 => {
            code.extend(wide(kept, PSEUDO_MAP_IDX_VALUE, map, size(input)?));
            access(input, kept, code)?;
        }
        5 => ring(input, map, code)?,
        6 | 7 => access(input, kept, code)?,
        8 => {
            let address = [size(input)?, size(input)?];
            code.extend(wide(kept, 0, address[0], address[1]));
            access(input, kept, code)?;
        }
        9 => {
            let operation =
                *input.choose(&[0x07, 0x17, 0x27, 0x47, 0x57, 0x77, 0x67, 0xc7, 0xb7, 0x04, 0x14, 0x37])?;
            code.push(insn(operation, kept, 0, 0, input.int_in_range(1..=31)?));
            code.push(insn(
                *input.choose(&[0x0f, 0x1f, 0x2f, 0x3f, 0x5f, 0xbf, 0xbc])?,
                kept,
                *input.choose(&KEPT)?,
                0,
                0,
            ));
        }
        10 => {
            let back = input.int_in_range(0..=code.len().min(40))? as i16;
            code.push(insn(*input.choose(&[0x55, 0x25, 0xa5, 0x1d])?, kept, 0, -back, 0));
        }
        11 => match input.int_in_range(0..=2)? {
            0 => {
                code.extend([insn(0x79, 1, 10, -8, 0)]);
                code.extend(map_into(2));
                code.extend([insn(0xb7, 3, 0, 0, size(input)? as i32), helper(12)]);
            }
            1 => {
                code.push(insn(0xb7, 1, 0, 0, size(input)? as i32));
                code.extend(wide(2, PSEUDO_FUNC, u32::MAX - code.len() as u32, 0));
                code.extend([insn(0xb7, 3, 0, 0, 0), insn(0xb7, 4, 0, 0, 0), helper(181)]);
            }
            _ => code.push(insn(CALL, 0, PSEUDO_CALL, 0, -(code.len() as i32) - 1)),
        },
        _ => code.push(Insn::from_bytes(input.arbitrary()?)),
    }
    Ok(())
}

/// A load, a store, or an atomic operation somewhere around a register.
fn access(input: &mut Unstructured<'_>, register: u8, code: &mut Vec<Insn>) -> Result<()> {
    let off = *input.choose(&[0, 0, 0, 8, -8, 255, i16::MAX, i16::MIN, 4096])?;
    let width = *input.choose(&[0x00, 0x08, 0x10, 0x18])?;
    code.push(match input.int_in_range(0..=3)? {
        0 => insn(0x61 & !0x18 | width, *input.choose(&KEPT)?, register, off, 0),
        1 => insn(0x62 & !0x18 | width, register, 0, off, -1),
        2 => insn(0x63 & !0x18 | width, register, *input.choose(&KEPT)?, off, 0),
        _ => insn(0xdb, register, *input.choose(&KEPT)?, off, *input.choose(&[0, 1, 0x40, 0xe1, 0xf1])?),
    });
    Ok(())
}

fn ring(input: &mut Unstructured<'_>, map: u32, code: &mut Vec<Insn>) -> Result<()> {
    code.extend(wide(1, PSEUDO_MAP_IDX, map, 0));
    if input.ratio(1, 2)? {
        code.extend([insn(0xb4, 2, 0, 0, size(input)? as i32), insn(0xb7, 3, 0, 0, 0), helper(131)]);
        code.push(insn(0x15, 0, 0, 4, 0));
        access(input, 0, code)?;
        code.extend([insn(0xbf, 1, 0, 0, 0), insn(0xb7, 2, 0, 0, 0), helper(*input.choose(&[132, 133])?)]);
    } else {
        code.extend(frame(2, VALUE));
        code.extend([insn(0xb4, 3, 0, 0, size(input)? as i32), insn(0xb7, 4, 0, 0, 0), helper(130)]);
    }
    Ok(())
}
