// SPDX-License-Identifier: Apache-2.0
//! Small files that ask for much: refused in one line, with little memory and time, by both loaders' common rules.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use wirewise_engine::insn::Insn;
use wirewise_engine::{ClockSource, Engine, Linked, LinkedProgram, MapKind, MapSpec, Options, Trap};

use crate::elf::{ALLOC, Content, EXEC, Elf, FUNC, MapIs, OBJECT, PROGBITS, Types, WRITE};
use crate::support::{backends, frame, options};

/// Counts what the running test has taken.
struct Counted;

thread_local! {
    static TAKEN: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    let _ = TAKEN.try_with(|taken| {
        taken.set(taken.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(taken.get())));
    });
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// The most memory that `what` held at a time.
fn memory<T>(what: impl FnOnce() -> T) -> (T, usize) {
    let before = TAKEN.get();
    MOST.set(before);
    let result = what();
    (result, (MOST.get() - before) as usize)
}

/// Seconds of processor time that `what` took.
fn seconds<T>(what: impl FnOnce() -> T) -> (T, f64) {
    let now = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    let before = now();
    let result = what();
    (result, now() - before)
}

fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

const NOTHING: Insn = Insn { code: 0xb7, dst: 0, src: 0, off: 0, imm: 0 };
const EXIT: Insn = Insn { code: 0x95, dst: 0, src: 0, off: 0, imm: 0 };

fn bytes(code: &[Insn]) -> Vec<u8> {
    code.iter().flat_map(|insn| insn.to_bytes()).collect()
}

/// Linked and made into an engine, or refused: in one line that says `why`, with no more than `most` bytes.
fn assert_refused(object: &[u8], most: usize, why: &str) {
    for backend in backends() {
        let run = || Engine::new(&Linked::from_elf(object)?, options(true, backend)).map(drop);
        let (result, taken) = memory(run);
        let line = result.expect_err("it runs").to_string();
        assert!(line.contains(why) && !line.contains('\n'), "{line}");
        assert!(taken < most, "{taken} bytes for a file of {}", object.len());
    }
}

/// An array of so many entries.
fn array(name: &str, value_size: u32, max_entries: u32) -> MapIs<'_> {
    MapIs { name, kind: 2, key_size: 4, value_size, max_entries }
}

fn object_with(maps: &[MapIs<'_>], code: &[Insn]) -> Vec<u8> {
    let mut elf = Elf::default();
    elf.program("xdp", "test", code);
    elf.maps(maps);
    elf.finish()
}

/// Looks a key up in a map, by its number; r0 is the value's address.
fn look_up(map: i32, key: i32) -> [Insn; 6] {
    [
        insn(0x62, 10, 0, -4, key),
        insn(0x18, 1, 5, 0, map),
        Insn::default(),
        insn(0xbf, 2, 10, 0, 0),
        insn(0x07, 2, 0, 0, -4),
        insn(0x85, 0, 0, 0, 1),
    ]
}

#[test]
fn an_object_made_here_runs() {
    // ++array[2], which lies where its look-up says.
    let code = [
        &look_up(0, 2)[..],
        &[
            insn(0x15, 0, 0, 2, 0),
            insn(0xb7, 1, 0, 0, 1),
            insn(0xdb, 0, 1, 0, 0),
            insn(0xb7, 0, 0, 0, 2),
            EXIT,
        ],
    ]
    .concat();
    let linked = Linked::from_elf(&object_with(&[array("array", 8, 3)], &code)).unwrap();
    let mut engine = Engine::new(&linked, Options::default()).unwrap();
    let id = engine.program("test").unwrap();
    assert_eq!(engine.run_xdp(id, &mut frame(), 0), Ok(2));
    assert_eq!(engine.map("array").unwrap().lookup(&2u32.to_ne_bytes()), Some(&1u64.to_ne_bytes()[..]));
}

/// Four arrays, a small one and one more: together 2^64 bytes and some. The last lay before the first then, over the engine's own
/// state, and a look-up with a known index wrote there.
#[test]
fn maps_that_wrap_around_are_refused() {
    let huge = ["a", "b", "c", "d"].map(|name| array(name, 1 << 30, u32::MAX));
    let maps = [&huge[..], &[array("small", 8, 1), array("last", 1 << 30, 4)]].concat();
    let code =
        [&look_up(5, 3)[..], &[insn(0x15, 0, 0, 1, 0), insn(0x7a, 0, 0, 0, 77), NOTHING, EXIT]].concat();
    assert_refused(&object_with(&maps, &code), 1 << 20, "map a: 4294967295 entries");
}

#[test]
fn maps_of_every_size_at_the_edges_fit_the_cage_or_are_refused() {
    let edges = [1, 2, 3, 1 << 12, 1 << 16, 1 << 29, 1 << 30, 1 << 31, u32::MAX - 64, u32::MAX - 1, u32::MAX];
    for kind in [1, 2, 3, 6, 9, 11, 27] {
        for entries in edges {
            for size in [1, 8, 9, (1 << 30) - 1, 1 << 30, u32::MAX] {
                let (key_size, value_size) = match kind {
                    3 => (4, 4),
                    11 => (8, size),
                    27 => (0, 0),
                    _ => (4, size),
                };
                let map = MapIs { name: "m", kind, key_size, value_size, max_entries: entries };
                let maps = [map, MapIs { name: "n", ..map }];
                let Ok(linked) = Linked::from_elf(&object_with(&maps, &[NOTHING, EXIT])) else { continue };
                let (engine, taken) = memory(|| Engine::new(&linked, Options::default()));
                assert!(taken < 1 << 24, "{map:?}: {taken} bytes");
                let all = 2 * u128::from(value_size) * u128::from(entries);
                assert!(engine.is_err() || all <= 1 << 32, "{map:?}");
            }
        }
    }
}

#[test]
fn symbols_that_share_their_code_are_refused() {
    let mut elf = Elf::default();
    let code = vec![NOTHING; 10_000];
    let section = elf.section("xdp", PROGBITS, ALLOC | EXEC, Content::Bytes(bytes(&code)));
    for number in 0..2000 {
        elf.symbol(&format!("f{number}"), FUNC, section, 0, 80_000);
    }
    assert_refused(&elf.finish(), 1 << 22, "overlap");
}

#[test]
fn sections_that_share_their_bytes_are_refused() {
    let mut elf = Elf::default();
    elf.program("xdp", "test", &[NOTHING, EXIT]);
    let first = elf.section(".rodata.first", PROGBITS, ALLOC, Content::Bytes(vec![7; 100_000]));
    for number in 0..400 {
        elf.section(&format!(".rodata.{number}"), PROGBITS, ALLOC, Content::SameAs(first));
    }
    assert_refused(&elf.finish(), 1 << 22, "overlap");
}

#[test]
fn programs_that_copy_a_long_subprogram_are_refused() {
    let mut elf = Elf::default();
    let mut long = vec![NOTHING; 99_999];
    long.push(EXIT);
    let text = elf.section(".text", PROGBITS, ALLOC | EXEC, Content::Bytes(bytes(&long)));
    let function = elf.symbol("long", FUNC, text, 0, 800_000);
    for number in 0..50 {
        let call = [insn(0x85, 0, 1, 0, -1), EXIT];
        let section = elf.program("xdp", &format!("p{number}"), &call);
        elf.relocations(section, &[(0, function, 10)]);
    }
    assert_refused(&elf.finish(), 1 << 26, "more than 2000000 instructions");
}

#[test]
fn descriptions_with_many_members_are_refused() {
    let (mut elf, mut types) = (Elf::default(), Types::default());
    elf.program("xdp", "test", &[NOTHING, EXIT]);
    let members: Vec<_> = (0..2000).map(|number| types.number(&format!("m{number}"), 1)).collect();
    let structure = types.structure(&members);
    let section = elf.section(".maps", PROGBITS, ALLOC | WRITE, Content::Bytes(vec![0; 800]));
    for number in 0..100 {
        types.variable(&format!("map{number}"), structure);
        elf.symbol(&format!("map{number}"), OBJECT, section, 8 * number, 8);
    }
    let btf = types.finish();
    elf.section(".BTF", PROGBITS, 0, Content::Bytes(btf));
    assert_refused(&elf.finish(), 1 << 23, "map map0 has no readable description");
}

#[test]
fn too_many_maps_sections_symbols_and_functions_are_refused() {
    let names: Vec<String> = (0..300).map(|number| format!("m{number}")).collect();
    let maps: Vec<_> = names.iter().map(|name| array(name, 8, 1)).collect();
    assert_refused(&object_with(&maps, &[NOTHING, EXIT]), 1 << 22, "more than 256 maps");

    let mut sections = Elf::default();
    for number in 0..2000 {
        sections.section(&format!("s{number}"), PROGBITS, 0, Content::Zeros(1));
    }
    assert_refused(&sections.finish(), 1 << 22, "2002 sections; at most 1024");

    let mut symbols = Elf::default();
    let section = symbols.program("xdp", "test", &[NOTHING, EXIT]);
    for _ in 0..300_000 {
        symbols.symbol("", 0, section, 0, 0);
    }
    assert_refused(&symbols.finish(), 1 << 22, "symbols; at most 262144");

    let mut functions = Elf::default();
    let text = functions.section(".text", PROGBITS, ALLOC | EXEC, Content::Bytes(bytes(&[EXIT; 5000])));
    for number in 0..5000 {
        functions.symbol("f", FUNC, text, 8 * number, 8);
    }
    assert_refused(&functions.finish(), 1 << 22, "more than 4096 functions");

    let mut calls = vec![insn(0x85, 0, 1, 0, 300); 300];
    calls.push(EXIT);
    calls.extend([EXIT; 300]);
    let refused = engine_of(calls, Options::default()).expect_err("it runs").to_string();
    assert!(refused.contains("more than 256 functions in a program"), "{refused}");
}

#[test]
fn long_names_are_refused() {
    let mut elf = Elf::default();
    elf.program("xdp", &"long".repeat(1000), &[NOTHING, EXIT]);
    assert_refused(&elf.finish(), 1 << 22, "4000 bytes; at most 512");
}

/// Keys lie outside the cage.
#[test]
fn tables_with_too_much_beside_their_values_are_refused() {
    let map = |kind, key_size, value_size, max_entries| MapIs {
        name: "m",
        kind,
        key_size,
        value_size,
        max_entries,
    };
    for map in
        [map(1, 512, 8, 1 << 20), map(9, 4, 8, 1 << 23), map(11, 260, 8, 1 << 20), map(3, 4, 4, u32::MAX)]
    {
        assert_refused(&object_with(&[map], &[NOTHING, EXIT]), 1 << 20, "too large");
    }
    assert_refused(&object_with(&[map(1, 4096, 8, 1)], &[NOTHING, EXIT]), 1 << 20, "a key of 4096 bytes");
}

fn engine_of(code: Vec<Insn>, options: Options) -> Result<Engine, wirewise_engine::Error> {
    let program = LinkedProgram { name: "test".into(), section: "xdp".into(), insns: code };
    Engine::new(&Linked::new(vec![program], vec![])?, options)
}

/// A look-up in a trie tries a prefix of each length that there is, up to 2048 of them, and a program may look up for ever.
#[test]
fn looking_prefixes_up_for_ever_ends_soon() {
    let trie = MapSpec::new("trie", MapKind::LpmTrie, 260, 8, 4096).unwrap();
    let code = vec![
        insn(0x62, 10, 0, -264, 2048),
        insn(0x18, 1, 5, 0, 0),
        Insn::default(),
        insn(0xbf, 2, 10, 0, 0),
        insn(0x07, 2, 0, 0, -264),
        insn(0x85, 0, 0, 0, 1),
        insn(0x05, 0, 0, -6, 0),
    ];
    let program = LinkedProgram { name: "test".into(), section: "xdp".into(), insns: code };
    for backend in backends() {
        let linked = Linked::new(vec![program.clone()], vec![trie.clone()]).unwrap();
        let mut engine = Engine::new(&linked, options(true, backend)).unwrap();
        for length in 1..=2048u32 {
            let key = [&length.to_ne_bytes()[..], &[0xff; 256]].concat();
            engine.map_mut("trie").unwrap().update(&key, &[0; 8], 0).unwrap();
        }
        let id = engine.program("test").unwrap();
        let (result, time) = seconds(|| engine.run_xdp(id, &mut frame(), 0));
        assert_eq!(result, Err(Trap::OutOfFuel));
        assert!(time < 5.0, "{time} s");
    }
}

/// So many loops around each other.
fn nest(loops: usize) -> Vec<Insn> {
    let mut code = vec![NOTHING];
    code.extend(vec![insn(0x07, 0, 0, 0, 1); loops]);
    code.extend((0..loops).map(|number| insn(0x55, 0, 0, -(2 * number as i16 + 2), 7)));
    code.push(EXIT);
    code
}

/// Twice the loops took eight times as long.
#[test]
fn nested_loops_compile_in_the_time_of_others() {
    let time = |loops| seconds(|| engine_of(nest(loops), Options::default()).unwrap()).1;
    let (short, long) = (time(1000).min(time(1000)), time(4000));
    assert!(long < 20.0 * short, "{short} s for 1000 loops, {long} s for 4000");
}

/// As many branches as a function can have, in as many functions as a program can.
#[test]
fn programs_that_take_long_to_compile_are_refused() {
    let mut code = vec![NOTHING];
    code.extend((0..40_000).flat_map(|number| [insn(0x55, 0, 0, 1, number), insn(0x07, 0, 0, 0, 3)]));
    code.push(EXIT);
    let (result, time) = seconds(|| engine_of(code, Options::default()));
    let line = result.expect_err("it compiles").to_string();
    assert!(line.contains("basic blocks") && time < 5.0, "{time} s: {line}");
}

/// Each read of the clock took its own place on the native stack, and so many of them more than there is.
#[test]
fn the_native_stack_does_not_grow_with_the_program() {
    let mut code = vec![insn(0x85, 0, 0, 0, 5); 40_000];
    code.extend([NOTHING, EXIT]);
    let mut engine = engine_of(code, Options { clock: ClockSource::Live, ..Options::default() }).unwrap();
    let id = engine.program("test").unwrap();
    let run = move || engine.run_xdp(id, &mut frame(), 0);
    let thread = std::thread::Builder::new().stack_size(1 << 18).spawn(run).unwrap();
    assert_eq!(thread.join().unwrap(), Ok(0));
}
