// SPDX-License-Identifier: Apache-2.0
//! Single instructions with the results RFC 9669 gives them, where no kernel is at hand: each program computes from two numbers in
//! the packet.

use wirewise_engine::insn::Insn;
use wirewise_engine::{Backend, Engine, Linked, LinkedProgram, MapKind, MapSpec};

use crate::support::options;

fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

/// `body` computes r0 from r3 and r4; the result goes to the map.
fn run(body: &[Insn], a: u64, b: u64) -> Vec<u64> {
    let mut insns =
        vec![insn(0x61, 2, 1, 0, 0), insn(0x79, 3, 2, 0, 0), insn(0x79, 4, 2, 8, 0), insn(0xbf, 0, 3, 0, 0)];
    insns.extend(body);
    insns.extend([
        insn(0x18, 1, 6, 0, 0),
        Insn::default(),
        insn(0x7b, 1, 0, 0, 0),
        insn(0xb7, 0, 0, 0, 2),
        insn(0x95, 0, 0, 0, 0),
    ]);
    let map = MapSpec::new(".bss", MapKind::Array, 4, 8, 1).unwrap();
    let program = LinkedProgram { name: "test".into(), section: "xdp".into(), insns };
    let linked = Linked::new(vec![program], vec![map]).unwrap();
    // SAFETY: the program reads 16 bytes of a packet that has them, and writes the value of its map.
    let linked = unsafe { linked.assume_verified() };
    let mut packet = [a.to_le_bytes(), b.to_le_bytes()].concat();
    let mut results = Vec::new();
    for caged in [false, true] {
        let mut engine = Engine::new(&linked, options(caged, Backend::Cranelift)).unwrap();
        let id = engine.program("test").unwrap();
        assert_eq!(engine.run_xdp(id, &mut packet, 0), Ok(2));
        let bytes = engine.map(".bss").unwrap().bytes().unwrap();
        results.push(u64::from_le_bytes(bytes.try_into().unwrap()));
    }
    results
}

/// r0 = r3, then r0 op= r4.
fn check(name: &str, code: u8, off: i16, a: u64, b: u64, expected: u64) {
    for result in run(&[insn(code, 0, 4, off, 0)], a, b) {
        assert_eq!(result, expected, "{name} of {a:#x} and {b:#x}");
    }
}

const MIN: u64 = 1 << 63;
const MIN32: u64 = 1 << 31;
const MINUS_1: u64 = u64::MAX;
const MINUS_1_32: u64 = u32::MAX as u64;

#[test]
fn division_and_modulo() {
    check("div64", 0x3f, 0, MINUS_1, 10, MINUS_1 / 10);
    check("div64 by zero", 0x3f, 0, 7, 0, 0);
    check("div32 by zero in the low half", 0x3c, 0, 7, 1 << 32, 0);
    check("mod64 by zero", 0x9f, 0, MINUS_1, 0, MINUS_1);
    check("mod32 by zero truncates", 0x9c, 0, MINUS_1, 0, MINUS_1_32);
    check("mod32", 0x9c, 0, MINUS_1, 16, 15);
    check("sdiv64", 0x3f, 1, -7i64 as u64, 2, -3i64 as u64);
    check("sdiv64 overflow", 0x3f, 1, MIN, MINUS_1, MIN);
    check("sdiv64 by zero", 0x3f, 1, MIN, 0, 0);
    check("sdiv32 overflow", 0x3c, 1, MIN32, MINUS_1_32, MIN32);
    check("sdiv32", 0x3c, 1, -9i32 as u32 as u64, 2, -4i32 as u32 as u64);
    check("smod64", 0x9f, 1, -7i64 as u64, 2, MINUS_1);
    check("smod64 overflow", 0x9f, 1, MIN, MINUS_1, 0);
    check("smod64 by zero", 0x9f, 1, MIN, 0, MIN);
    check("smod32 overflow", 0x9c, 1, MIN32, MINUS_1_32, 0);
    check("smod32 by zero", 0x9c, 1, MIN | MIN32, 0, MIN32);
}

#[test]
fn shifts_count_modulo_the_width() {
    check("lsh64", 0x6f, 0, 1, 65, 2);
    check("lsh32", 0x6c, 0, 1, 33, 2);
    check("rsh64", 0x7f, 0, MIN, 63, 1);
    check("rsh32 sees the low half", 0x7c, 0, MIN, 1, 0);
    check("arsh64", 0xcf, 0, MIN, 62, -2i64 as u64);
    check("arsh32 zero-extends", 0xcc, 0, MIN32, 31, MINUS_1_32);
    check("arsh32 by 32 is by 0", 0xcc, 0, MIN32, 32, MIN32);
}

#[test]
fn narrow_results_are_zero_extended() {
    check("add32", 0x0c, 0, MINUS_1_32, 1, 0);
    check("sub32", 0x1c, 0, MIN, 1, MINUS_1_32);
    check("mul32", 0x2c, 0, 1 << 33 | 3, 1 << 34 | 5, 15);
    check("mov32", 0xbc, 0, 0, MINUS_1, MINUS_1_32);
    check("xor32", 0xac, 0, MINUS_1, 0, MINUS_1_32);
    check("mov64 of a signed byte", 0xbf, 8, 0, 0x80, -128i64 as u64);
    check("mov32 of a signed byte", 0xbc, 8, 0, 0x80, -128i32 as u32 as u64);
    check("mov64 of a signed word", 0xbf, 32, 0, MIN32, MIN32.wrapping_neg());
}

#[test]
fn bytes_change_places() {
    let number = 0x0102_0304_0506_0708;
    let cases = [
        (0xdc, 16, 0x0807),
        (0xdc, 32, 0x0807_0605),
        (0xdc, 64, 0x0807_0605_0403_0201),
        (0xd4, 16, 0x0708),
        (0xd4, 32, 0x0506_0708),
        (0xd4, 64, number),
        (0xd7, 16, 0x0807),
        (0xd7, 32, 0x0807_0605),
    ];
    for (code, bits, expected) in cases {
        for result in run(&[insn(code, 0, 0, 0, bits)], number, 0) {
            assert_eq!(result, expected, "{code:#x} {bits}");
        }
    }
}

#[test]
fn every_comparison_in_both_widths() {
    // Opcode, then whether it holds for (-1, 1), (1, -1), (2, 2).
    let cases = [
        (0x10, [false, false, true]),
        (0x20, [true, false, false]),
        (0x30, [true, false, true]),
        (0x40, [true, true, true]),
        (0x50, [true, true, false]),
        (0x60, [false, true, false]),
        (0x70, [false, true, true]),
        (0xa0, [false, true, false]),
        (0xb0, [false, true, true]),
        (0xc0, [true, false, false]),
        (0xd0, [true, false, true]),
    ];
    for (op, expected) in cases {
        for class in [0x05, 0x06] {
            for ((a, b), expected) in [(MINUS_1, 1), (1, MINUS_1), (2, 2)].into_iter().zip(expected) {
                // The upper half must not matter to the narrow ones.
                let a = if class == 0x06 { a ^ 0xabcd << 32 } else { a };
                let by_register =
                    [insn(0xb7, 0, 0, 0, 1), insn(class | op | 8, 3, 4, 1, 0), insn(0xb7, 0, 0, 0, 0)];
                let by_number =
                    [insn(0xb7, 0, 0, 0, 1), insn(class | op, 3, 0, 1, b as i32), insn(0xb7, 0, 0, 0, 0)];
                for body in [by_register, by_number] {
                    for result in run(&body, a, b) {
                        assert_eq!(result == 1, expected, "{:#x} of {a:#x} and {b:#x}", class | op);
                    }
                }
            }
        }
    }
}

#[test]
fn loads_extend_as_they_say() {
    let cases = [
        (0x71, 0x80),
        (0x69, 0x8180),
        (0x61, 0x8382_8180),
        (0x91, -128i64 as u64),
        (0x89, 0xffff_ffff_ffff_8180),
    ];
    for (code, expected) in cases {
        for result in run(&[insn(code, 0, 2, 0, 0)], 0x8786_8584_8382_8180, 0) {
            assert_eq!(result, expected, "{code:#x}");
        }
    }
    for result in run(&[insn(0x81, 0, 2, 4, 0)], 0x8786_8584_8382_8180, 0) {
        assert_eq!(result, 0xffff_ffff_8786_8584);
    }
}
