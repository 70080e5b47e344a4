// SPDX-License-Identifier: Apache-2.0
//! Byte code nobody checked: refused, or run in the cage to an end of one kind or another.

use proptest::prelude::*;
use wirewise_engine::insn::Insn;
use wirewise_engine::{Engine, Error, Linked, LinkedProgram, MapKind, MapSpec, Options, PacketSpan, Trap};

use crate::support::{backends, frame, options};

fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

const EXIT: Insn = Insn { code: 0x95, dst: 0, src: 0, off: 0, imm: 0 };

fn map(name: &str, kind: MapKind, key_size: u32, value_size: u32, max_entries: u32) -> MapSpec {
    MapSpec::new(name, kind, key_size, value_size, max_entries).unwrap()
}

fn linked(insns: Vec<Insn>) -> Linked {
    let maps = vec![
        map("array", MapKind::Array, 4, 12, 3),
        map(".bss", MapKind::Array, 4, 40, 1),
        map("hash", MapKind::Hash, 8, 5, 4),
        map("lru", MapKind::LruHash, 1, 300, 2),
        map("trie", MapKind::LpmTrie, 8, 4, 4),
        map("tails", MapKind::ProgArray, 4, 4, 2),
        map("ring", MapKind::RingBuf, 0, 0, 4096),
        map("large", MapKind::Array, 4, 1 << 23, 1),
    ];
    let program = LinkedProgram { name: "test".into(), section: "xdp".into(), insns };
    Linked::new(vec![program], maps).unwrap()
}

fn run(insns: Vec<Insn>) -> Vec<Result<u32, Trap>> {
    let engines = backends().into_iter().map(|backend| {
        let options = Options { fuel: 1000, ..options(true, backend) };
        let mut engine = Engine::new(&linked(insns.clone()), options).unwrap();
        let id = engine.program("test").unwrap();
        engine.map_mut("tails").unwrap().set(0, Some(id)).unwrap();
        let first = engine.run_xdp(id, &mut frame(), 0);
        assert_eq!(engine.run_xdp(id, &mut frame(), 0), first, "a trap leaves the engine as good as before");
        first
    });
    engines.collect()
}

fn assert_all(insns: Vec<Insn>, expected: Result<u32, Trap>) {
    for result in run(insns) {
        assert_eq!(result, expected);
    }
}

#[test]
fn endless_loops_run_out_of_fuel() {
    assert_all(vec![insn(0x05, 0, 0, -1, 0), EXIT], Err(Trap::OutOfFuel));
    // bpf_loop over a callback.
    let body = vec![
        insn(0xb7, 1, 0, 0, 5000),
        insn(0x18, 2, 4, 0, 6),
        Insn::default(),
        insn(0xb7, 3, 0, 0, 0),
        insn(0xb7, 4, 0, 0, 0),
        insn(0x85, 0, 0, 0, 181),
        EXIT,
        EXIT,
        insn(0xb7, 0, 0, 0, 0),
        EXIT,
    ];
    assert_all(body, Err(Trap::OutOfFuel));
}

/// The same number of jumps, over more than a unit of fuel pays for.
#[test]
fn long_loops_cost_more_fuel() {
    let counted = |length: usize| {
        let mut body = vec![insn(0xb7, 6, 0, 0, 0), insn(0xb7, 0, 0, 0, 0)];
        body.extend(vec![insn(0x07, 0, 0, 0, 1); length]);
        body.extend([insn(0x07, 6, 0, 0, 1), insn(0x55, 6, 0, -(length as i16) - 2, 300), EXIT]);
        body
    };
    assert_all(counted(10), Ok(3000));
    assert_all(counted(20_000), Err(Trap::OutOfFuel));
}

#[test]
fn copying_costs_fuel() {
    // map_update of an array's large value, with whatever lies on the stack and behind it.
    let body = vec![
        insn(0x62, 10, 0, -4, 0),
        insn(0x18, 1, 5, 0, 7),
        Insn::default(),
        insn(0xbf, 2, 10, 0, 0),
        insn(0x07, 2, 0, 0, -4),
        insn(0xbf, 3, 10, 0, 0),
        insn(0xb7, 4, 0, 0, 0),
        insn(0x85, 0, 0, 0, 2),
        EXIT,
    ];
    assert_all(body, Err(Trap::OutOfFuel));
}

#[test]
fn recursion_ends_at_the_kernels_depth() {
    assert_all(vec![insn(0x85, 0, 1, 0, -1), EXIT], Err(Trap::CallDepth));
}

#[test]
fn tail_calls_end_and_keep_the_stack() {
    let body = vec![
        insn(0x18, 2, 5, 0, 5),
        Insn::default(),
        insn(0xb7, 3, 0, 0, 0),
        insn(0x85, 0, 0, 0, 12),
        insn(0xb7, 0, 0, 0, 9),
        EXIT,
    ];
    assert_all(body, Ok(9));
}

#[test]
fn wild_addresses_touch_nothing_outside() {
    let witness = frame();
    for address in [0u64, 8, 0xffff_ffff, 0x7fff_ffff_ffff, u64::MAX, witness.as_ptr() as u64] {
        let mut body = vec![insn(0x18, 1, 0, 0, address as i32), insn(0, 0, 0, 0, (address >> 32) as i32)];
        for off in [0, -1, i16::MIN, i16::MAX] {
            body.push(insn(0x7a, 1, 0, off, -1));
            body.push(insn(0xdb, 1, 1, off, 1));
            body.push(insn(0x79, 2, 1, off, 0));
        }
        body.extend([insn(0xb7, 0, 0, 0, 1), EXIT]);
        assert_all(body, Ok(1));
    }
    assert_eq!(witness, frame());
    // Beyond the frame, and at its far end.
    let body = vec![insn(0x7a, 10, 0, 0, -1), insn(0x7a, 10, 0, i16::MIN, -1), insn(0xb7, 0, 0, 0, 1), EXIT];
    assert_all(body, Ok(1));
}

#[test]
fn helpers_check_what_they_are_given() {
    // A lookup in a map that is a number out of nowhere, then with a key beyond the cage.
    let body = vec![insn(0xb7, 1, 0, 0, 77), insn(0xbf, 2, 10, 0, 0), insn(0x85, 0, 0, 0, 1), EXIT];
    assert_all(body, Err(Trap::BadArgument));
    let body =
        vec![insn(0x18, 1, 5, 0, 2), Insn::default(), insn(0xb7, 2, 0, 0, -1), insn(0x85, 0, 0, 0, 1), EXIT];
    assert_all(body, Err(Trap::BadArgument));
    let submit = vec![insn(0xb7, 1, 0, 0, 5), insn(0xb7, 2, 0, 0, 0), insn(0x85, 0, 0, 0, 132), EXIT];
    assert_all(submit, Err(Trap::BadArgument));
}

#[test]
fn what_is_not_verified_runs_in_the_cage_only() {
    let code = linked(vec![insn(0xb7, 0, 0, 0, 2), EXIT]);
    let free = Options { caged: Some(false), ..Options::default() };
    assert!(matches!(Engine::new(&code, free), Err(Error::Options(_))));
    assert!(Engine::new(&code, Options::default()).unwrap().is_caged());
}

#[test]
fn packets_that_do_not_fit_are_traps() {
    let mut engine = Engine::new(&linked(vec![insn(0xb7, 0, 0, 0, 2), EXIT]), Options::default()).unwrap();
    let id = engine.program("test").unwrap();
    assert_eq!(engine.run_xdp(id, &mut [0; 10], 11), Err(Trap::Packet));
    assert_eq!(engine.run_xdp(id, &mut vec![0; 2 << 20], 0), Err(Trap::Packet));
    assert_eq!(engine.run_xdp(id, &mut [], 0), Ok(2));
}

#[test]
fn a_batch_ends_at_a_trap_and_keeps_the_codes_before() {
    // The first byte is the code; 9 never ends.
    let body = vec![
        insn(0x61, 1, 1, 0, 0),
        insn(0x71, 0, 1, 0, 0),
        insn(0x55, 0, 0, 1, 9),
        insn(0x05, 0, 0, -1, 0),
        EXIT,
    ];
    let span = |start| PacketSpan { start, length: 1, ..PacketSpan::default() };
    let mut buffer = [2, 9, 7];
    for backend in backends() {
        let options = Options { fuel: 1000, ..options(true, backend) };
        let mut engine = Engine::new(&linked(body.clone()), options).unwrap();
        let id = engine.program("test").unwrap();
        let mut codes = vec![1];
        let mut run = |starts: &[usize]| {
            let spans: Vec<_> = starts.iter().map(|start| span(*start)).collect();
            engine.run_xdp_batch(id, &mut buffer, &spans, &mut codes)
        };
        assert_eq!(run(&[0, 2]), Ok(()));
        assert_eq!(run(&[2, 1, 0]), Err(Trap::OutOfFuel));
        assert_eq!(run(&[0, 3]), Err(Trap::Packet));
        assert_eq!(run(&[usize::MAX]), Err(Trap::Packet));
        assert_eq!(run(&[2]), Ok(()));
        assert_eq!(codes, [1, 2, 7, 7, 2, 7]);
    }
}

#[test]
fn unknown_helpers_and_foreign_code_are_refused_by_name() {
    let refused = |insns| Engine::new(&linked(insns), Options::default()).unwrap_err().to_string();
    assert!(refused(vec![insn(0x85, 0, 0, 0, 9999), EXIT]).contains("helper 9999"));
    assert!(refused(vec![insn(0x85, 0, 2, 0, 1), EXIT]).contains("kfunc"));
    assert!(refused(vec![insn(0x18, 1, 1, 0, 3), Insn::default(), EXIT]).contains("not linked"));
    assert!(refused(vec![]).contains("empty"));
    assert!(refused(vec![insn(0xb7, 0, 0, 0, 0)]).contains("neither exit nor a jump"));
}

/// Slots that are more often nearly right than noise.
fn slot() -> impl Strategy<Value = Insn> {
    let codes = prop::sample::select(vec![
        0x07u8, 0x0f, 0x1f, 0x27, 0x3c, 0x3f, 0x95, 0x9f, 0xb7, 0xbf, 0xbc, 0x61, 0x69, 0x71, 0x79, 0x63,
        0x7b, 0x7a, 0xdb, 0xc3, 0x15, 0x1d, 0x25, 0x05, 0x06, 0x85, 0x18, 0x00, 0xdc, 0xd7, 0xcf, 0x46,
    ]);
    let code = prop_oneof![9 => codes, 1 => any::<u8>()];
    let imm = prop_oneof![
        4 => -4i32..12,
        2 => prop::sample::select(vec![1, 2, 3, 5, 8, 12, 118, 130, 131, 132, 133, 134, 181, 16, 32, 64]),
        1 => any::<i32>(),
    ];
    let off = prop_oneof![6 => -8i16..8, 2 => -512i16..0, 1 => any::<i16>()];
    (code, 0u8..12, 0u8..12, off, imm).prop_map(|(code, dst, src, off, imm)| Insn {
        code,
        dst,
        src,
        off,
        imm,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn byte_code_of_any_kind_is_refused_or_ends(mut insns in prop::collection::vec(slot(), 1..40)) {
        insns.push(EXIT);
        let code = linked(insns);
        let options = Options { fuel: 200, ..Options::default() };
        if let Ok(mut engine) = Engine::new(&code, options) {
            let id = engine.program("test").unwrap();
            engine.map_mut("tails").unwrap().set(1, Some(id)).unwrap();
            for _ in 0..2 {
                let _ = engine.run_xdp(id, &mut frame(), 0);
            }
        }
        // As if it were verified: translated, never run.
        // SAFETY: it is never run.
        let trusted = unsafe { code.assume_verified() };
        let _ = Engine::new(&trusted, Options::default());
    }

    #[test]
    fn bytes_of_any_kind_are_no_object(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Linked::from_elf(&bytes).is_err());
    }
}

/// A real object with some bytes changed: linked or refused, and what is linked is translated or refused.
#[test]
fn damaged_objects_do_no_harm() {
    let source = r#"
const volatile __u64 frozen = 5;
__u64 counter;
static __noinline int add(__u64 *sum, __u32 more) { *sum += more; return *sum; }
SEC("xdp") int test(struct xdp_md *ctx) { __u64 sum = frozen; counter++; put(0, sum); return add(&sum, counter); }"#;
    let object = crate::support::compile(source, "v3");
    assert!(Linked::from_elf(&object).is_ok());
    let mut state = 7u64;
    let mut linked = 0;
    for _ in 0..3000 {
        let mut damaged = object.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % damaged.len();
            damaged[at] = (state >> 20) as u8;
        }
        damaged.truncate(if state.is_multiple_of(5) {
            (state >> 40) as usize % object.len()
        } else {
            object.len()
        });
        if let Ok(code) = Linked::from_elf(&damaged) {
            linked += 1;
            let options = Options { fuel: 1000, ..Options::default() };
            if code.maps().iter().all(|map| map.max_entries() < 1 << 20)
                && let Ok(mut engine) = Engine::new(&code, options)
                && let Some(id) = engine.program("test")
            {
                let _ = engine.run_xdp(id, &mut frame(), 0);
            }
        }
    }
    assert!(linked > 100, "{linked}: most damage is in parts that do not matter");
}
