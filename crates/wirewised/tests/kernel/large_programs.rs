// SPDX-License-Identifier: Apache-2.0
//! Programs of bundles that are megabytes of the same few bytes: a small file may hold them, and reading them takes little memory.

use std::fs;

use crate::altered::{Altered, INFO, LENGTH, NAME, SIZE};
use crate::common::bundle;
use crate::fixture::{Place, object};
use crate::inputs::{Ended, ended_within};

/// Just under what a member may have.
const MUCH: usize = 15 << 20;
/// Under what types, and what connects them with code, may have.
const TYPES: usize = 3 << 20;
const WIDE: u8 = 0x18;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A section `.BTF.ext` with these parts, functions and lines, each with the size of its records in front.
fn ext(functions: &[u8], lines: &[u8]) -> Vec<u8> {
    let lengths = [functions, lines].map(|part| part.len() as u32);
    let header = [0x0001_eb9f, 32, 0, lengths[0], lengths[0], lengths[1], lengths[0] + lengths[1], 0];
    [&words(&header)[..], functions, lines].concat()
}

/// As many records as take so many bytes.
fn records(bytes: usize, record: impl Fn(u32) -> Vec<u8>) -> (u32, Vec<u8>) {
    let size = record(0).len();
    let count = bytes / size;
    (count as u32, (0..count as u32).flat_map(record).collect())
}

/// Adds a long name to the types, and gives its place.
fn long_name(object: &mut Altered, bytes: usize) -> u32 {
    let name = object.btf_name(&"n".repeat(bytes));
    name as u32
}

fn functions(object: &mut Altered, sections: bool) {
    let name = long_name(object, 500);
    let start = object.ext(8);
    let (section, id) = (object.number(start, 4) as u32, object.number(start + 12, 4) as u32);
    let part = if sections {
        [words(&[8]), records(TYPES, |_| words(&[name, 0])).1].concat()
    } else {
        let (count, all) = records(TYPES, |number| words(&[8 * number, id]));
        [words(&[8, section, count]), all].concat()
    };
    object.replace(".BTF.ext", &ext(&part, &[]));
}

/// Lines of a program of as many instructions, each with texts of its own.
fn lines(object: &mut Altered) {
    const LINES: usize = 1 << 16;
    let name = long_name(object, LINES + 300);
    let start = object.ext(8);
    let (section, id) = (object.number(start, 4) as u32, object.number(start + 12, 4) as u32);
    instructions(object, LINES);
    let (count, all) =
        records(16 * LINES, |number| words(&[8 * number, name + number, name + number, number]));
    let lines = [words(&[16, section, count]), all].concat();
    object.replace(".BTF.ext", &ext(&words(&[8, section, 1, 0, id]), &lines));
}

/// The program is so many instructions.
fn instructions(object: &mut Altered, count: usize) {
    object.replace("xdp", &[0xb7, 0, 0, 0, 0, 0, 0, 0].repeat(count));
    object.set_symbol("ww_main", LENGTH, 8 * count as u64);
    object.replace(".relxdp", &[]);
}

/// The program is so many addresses of the first map.
fn references(object: &mut Altered, count: usize) {
    let symbol = object.symbol_index("ww_limit") as u32;
    let mut wide = [0; 16];
    wide[0] = WIDE;
    object.replace("xdp", &wide.repeat(count));
    object.set_symbol("ww_main", LENGTH, 16 * count as u64);
    let all = (0..count as u32).flat_map(|number| words(&[16 * number, 0, 1, symbol]));
    object.replace(".relxdp", &all.collect::<Vec<_>>());
}

fn symbols(object: &mut Altered) {
    let mut all = object.0[object.section(".symtab")].to_vec();
    let last = all[all.len() - 24..].to_vec();
    all.extend(last.repeat(MUCH / 24));
    object.replace(".symtab", &all);
}

fn sections(object: &mut Altered) {
    let (start, count) = (object.number(40, 8) as usize, object.number(60, 2) as usize);
    let headers = object.0[start..start + 64 * count].to_vec();
    let last = headers[headers.len() - 64..].to_vec();
    let (place, many) = (object.0.len() as u64, MUCH / 64);
    object.0.extend([headers, last.repeat(many)].concat());
    object.put(0, (40, 8), place);
    // More than the header can count: the first section has their number as its size.
    object.put(0, (60, 2), 0);
    object.put(place as usize, SIZE, (count + many) as u64);
    object.put(place as usize, INFO, 0);
}

fn types(object: &mut Altered, bytes: usize) {
    // Pointers to nothing.
    let (_, all) = records(bytes, |_| words(&[0, 2 << 24, 0]));
    let (types, strings) = object.btf();
    let names = object.0[strings].to_vec();
    let types = [&object.0[types], &all[..]].concat();
    let (length, end) = (types.len() as u32, names.len() as u32);
    let header = words(&[0x0001_eb9f, 24, 0, length, length, end]);
    object.replace(".BTF", &[header, types, names].concat());
}

#[test]
fn a_program_of_many_equal_parts_takes_little_memory() {
    let Some(object) = object(&[]).map(Altered) else { return };
    let place = Place::new(&object.0);
    type Change = fn(&mut Altered);
    let cases: &[(&str, Change)] = &[
        ("as it is", |_| {}),
        ("functions", |o| functions(o, false)),
        ("sections of functions", |o| functions(o, true)),
        ("lines", lines),
        ("instructions", |o| instructions(o, MUCH / 8)),
        ("a million instructions", |o| instructions(o, 1_000_000)),
        ("references", |o| references(o, MUCH / 32)),
        ("as many references as there may be", |o| references(o, 1 << 17)),
        ("symbols", symbols),
        ("sections", sections),
        ("large types", |o| types(o, MUCH)),
        ("many types", |o| types(o, TYPES)),
        ("a long name of a section", |o| {
            let name = o.name(&"\u{1}".repeat(MUCH));
            let header = o.header(".debug_info");
            o.put(header, NAME, name);
        }),
        ("a long name of a symbol", |o| {
            let name = o.name(&"\u{1}".repeat(MUCH));
            o.set_symbol("ww_main", NAME, name);
        }),
        ("strings", |o| o.replace(".debug_str", &[b' '; MUCH])),
        ("parameters", |o| {
            o.rename(".debug_str", ".rodata.ww_weights");
            o.replace(".rodata.ww_weights", &[0; 4 << 20]);
        }),
    ];
    for (name, change) in cases {
        let mut altered = object.clone();
        change(&mut altered);
        let bytes = bundle(&altered.0);
        fs::write(place.path("h.wirewise"), &bytes).unwrap();
        let most = (64 << 20) + 10 * bytes.len() as u64;
        println!("{name}: {} bytes", bytes.len());
        let arguments = ["verify", "--no-load", "--bundle", "h.wirewise"];
        let Ended { code, stderr } = ended_within(&place, &arguments, most);
        println!("  {code} {stderr}");
        assert!(code == 0 || code == 2, "{name}: {code}, {stderr}");
        assert_eq!(stderr.lines().count(), usize::from(code == 2), "{name}: {stderr}");
    }
}
