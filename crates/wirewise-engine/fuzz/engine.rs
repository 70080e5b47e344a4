// SPDX-License-Identifier: Apache-2.0
//! The whole engine: draws an object (maps of sizes at the edges, data, code), links it, and runs it caged. Whatever it holds, it is refused
//! or runs to an end of one kind or another, and changes nothing but its packet and the memory of its cage.
#![no_main]
#![allow(clippy::expect_used, clippy::panic, reason = "a finding ends the process")]

mod code;
#[path = "../tests/conformance/elf.rs"]
mod elf;

use elf::{ALLOC, Content, EXEC, Elf, FUNC, MapIs, PROGBITS, WRITE};
use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use wirewise_engine::{ClockSource, Engine, Linked, Options};

const CAGE_BYTES: u128 = 1 << 32;
/// In front of and behind the packet's buffer.
const CANARY: [u8; 64] = [0xc5; 64];
const MAP_NAMES: [&str; 10] = ["m0", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9"];

fuzz_target!(|data: &[u8]| {
    let mut input = Unstructured::new(data);
    if let Ok(object) = draw_object(&mut input) {
        run(&object);
    }
});

/// A size: mostly one that an ordinary map has, else one where arithmetic goes wrong.
pub fn size(input: &mut Unstructured<'_>) -> Result<u32> {
    const EDGES: [u32; 16] = [
        0,
        1,
        1 << 16,
        1 << 20,
        (1 << 29) - 1,
        1 << 29,
        (1 << 30) - 8,
        (1 << 30) - 1,
        1 << 30,
        (1 << 30) + 1,
        (1 << 31) - 1,
        1 << 31,
        (1 << 31) + 1,
        u32::MAX - 63,
        u32::MAX - 1,
        u32::MAX,
    ];
    Ok(match input.int_in_range(0..=3)? {
        0 => *input.choose(&EDGES)?,
        1 => input.int_in_range(1..=300)?,
        _ => input.int_in_range(1..=16)?,
    })
}

fn draw_map<'a>(input: &mut Unstructured<'_>, name: &'a str) -> Result<MapIs<'a>> {
    let kind = *input.choose(&[2, 2, 2, 1, 9, 6, 3, 11, 27, 5, 10, 14])?;
    let (key_size, value_size, max_entries) = match kind {
        2 | 6 => (4, size(input)?, size(input)?),
        3 => (4, 4, size(input)?),
        27 => (0, 0, 1 << input.int_in_range(0..=31)?),
        11 => (input.int_in_range(4..=260)?, size(input)?, size(input)?),
        _ => (size(input)?, size(input)?, size(input)?),
    };
    Ok(MapIs { name, kind, key_size, value_size, max_entries })
}

/// Adds arrays until all maps together take 2^32 or 2^64 bytes and a little more, if the names suffice: for whoever counts with
/// so many bits they take the little.
fn wrap_around(input: &mut Unstructured<'_>, maps: &mut Vec<MapIs<'_>>) -> Result<()> {
    const VALUE_SIZE: u32 = 1 << 30;
    let end = 1u128 << *input.choose(&[32, 64])?;
    let bytes =
        |map: &MapIs<'_>| u128::from(map.value_size).next_multiple_of(8) * u128::from(map.max_entries);
    let sum: u128 = maps.iter().map(bytes).sum();
    let mut left = (end - sum % end).div_ceil(VALUE_SIZE.into());
    for name in &MAP_NAMES[maps.len()..] {
        let max_entries = left.min(u32::MAX.into()) as u32;
        maps.push(MapIs { name, kind: 2, key_size: 4, value_size: VALUE_SIZE, max_entries });
        left -= u128::from(max_entries);
    }
    // Those that were not needed have no entries, which would be a reason of its own to refuse them.
    maps.retain(|map| map.max_entries != 0);
    Ok(())
}

fn draw_object(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut elf = Elf::default();
    let mut maps = Vec::new();
    for name in &MAP_NAMES[..input.int_in_range(0..=6)?] {
        maps.push(draw_map(input, name)?);
    }
    if input.ratio(1, 8)? {
        wrap_around(input, &mut maps)?;
    }
    if input.ratio(1, 4)? {
        elf.section(".bss", PROGBITS, ALLOC | WRITE, Content::Zeros(size(input)?.into()));
    }
    for (name, flags) in [(".data.d", ALLOC | WRITE), (".rodata.r", ALLOC)] {
        if input.ratio(1, 3)? {
            let bytes = vec![0x5a; input.int_in_range(1..=64)?];
            let section = elf.section(name, PROGBITS, flags, Content::Bytes(bytes));
            if input.ratio(1, 16)? {
                elf.section(".rodata.same", PROGBITS, ALLOC, Content::SameAs(section));
            }
        }
    }
    let programs = input.int_in_range(1..=2)?;
    for program in 0..programs {
        let name = format!("p{program}");
        elf.program("xdp", &name, &code::draw(input, &maps)?);
    }
    if input.ratio(1, 4)? {
        let subprogram = code::draw(input, &maps)?;
        let bytes: Vec<u8> = subprogram.iter().flat_map(|insn| insn.to_bytes()).collect();
        let length = bytes.len() as u64;
        let text = elf.section(".text", PROGBITS, ALLOC | EXEC, Content::Bytes(bytes));
        let function = elf.symbol("f", FUNC, text, 0, length);
        let call = [code::CALL_NEXT, code::EXIT];
        let section = elf.program("xdp", "caller", &call);
        elf.relocations(section, &[(0, function, 10)]);
    }
    if !maps.is_empty() {
        elf.maps(&maps);
    }
    let mut object = elf.finish();
    if input.ratio(1, 8)? {
        for _ in 0..input.int_in_range(1..=4)? {
            let at = input.choose_index(object.len())?;
            object[at] = input.arbitrary()?;
        }
    }
    Ok(object)
}

/// What the maps' descriptions ask for, counted without an end.
fn bytes(linked: &Linked) -> u128 {
    let of = |map: &wirewise_engine::MapSpec| u128::from(map.value_size()) * u128::from(map.max_entries());
    linked.maps().iter().map(of).sum()
}

fn run(object: &[u8]) {
    let Ok(linked) = Linked::from_elf(object) else { return };
    let options = Options { fuel: 300, clock: ClockSource::Manual, ..Options::default() };
    let Ok(mut engine) = Engine::new(&linked, options) else { return };
    assert!(engine.is_caged() && bytes(&linked) <= CAGE_BYTES, "maps of {} bytes", bytes(&linked));
    let programs: Vec<_> = engine.programs().map(|(_, id)| id).collect();
    for name in MAP_NAMES {
        if let (Some(mut map), Some(first)) = (engine.map_mut(name), programs.first()) {
            let _ = map.set(0, Some(*first));
        }
    }
    for program in programs {
        for length in [0, 60, 200] {
            let mut buffer = [&CANARY[..], &vec![0xff; length], &CANARY].concat();
            let packet = &mut buffer[CANARY.len()..CANARY.len() + length];
            let _ = engine.run_xdp(program, packet, length / 20);
            assert!(buffer.starts_with(&CANARY) && buffer.ends_with(&CANARY), "written around the packet");
            engine.assert_whole();
        }
    }
}
