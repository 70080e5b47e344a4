// SPDX-License-Identifier: Apache-2.0
//! Random programs of arithmetic, jumps, stack and atomics: the engine, caged and not, against the kernel, and against the C back
//! end. WIREWISE_RANDOM_PROGRAMS sets how many, WIREWISE_RANDOM_SEED which. Sixteen of them, each with registers and packets of its own,
//! are loaded as one, since loading takes most of the time.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use wirewise_engine::insn::Insn;
use wirewise_engine::{Backend, Engine, Linked, LinkedProgram, Options};

use crate::support::{backends, kernel, options};

/// Test cases in one program: each ends in a hash of all registers, mixed into r0's slot, so one load checks many.
const CASES: usize = 16;
const INSNS_A_CASE: u64 = 40;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Numbers at the edges more often than not.
    fn number(&mut self) -> u64 {
        let edges =
            [0, 1, 2, 31, 32, 63, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
        let number = match self.below(4) {
            0 => self.next(),
            1 => self.pick(&edges) << 32 | self.pick(&edges),
            2 => (1u64 << self.below(64)).wrapping_sub(self.below(2)),
            _ => self.pick(&edges),
        };
        if self.below(4) == 0 { number.wrapping_neg() } else { number }
    }
}

fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn { code, dst, src, off, imm }
}

fn load_number(code: &mut Vec<Insn>, dst: u8, number: u64) {
    code.push(insn(0x18, dst, 0, 0, number as u32 as i32));
    code.push(insn(0, 0, 0, 0, (number >> 32) as u32 as i32));
}

/// Packets each program runs on: what it computes with is in them, so that nothing of it is known before it runs.
const PACKETS: usize = 3;
const PACKET_BYTES: u64 = 128;

/// Slots before the first case: the packet's bounds, and what the stack begins with.
const PROLOGUE: usize = 12;

/// Registers the cases compute with; r9 holds the hash, r8 is spare for it, and for the packet.
const REGISTERS: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// One instruction of arithmetic, or none where the chosen one would be refused.
fn arithmetic(random: &mut Random) -> Insn {
    let wide = random.below(2) as u8;
    let class = if wide == 1 { 0x07 } else { 0x04 };
    let (dst, src) = (random.pick(&REGISTERS), random.pick(&REGISTERS));
    let op =
        random.pick(&[0x00u8, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xa0, 0xb0, 0xc0, 0x80, 0xd0]);
    let register = random.below(2) == 1;
    match op {
        0x80 => insn(class | 0x80, dst, 0, 0, 0),
        0xd0 => {
            let form = random.pick(&[0xd4u8, 0xdc, 0xd7]);
            insn(form, dst, 0, 0, random.pick(&[16, 32, 64]))
        }
        0xb0 if register && random.below(2) == 0 => {
            let widths: &[i16] = if wide == 1 { &[8, 16, 32] } else { &[8, 16] };
            insn(class | 0xb8, dst, src, random.pick(widths), 0)
        }
        0x30 | 0x90 => {
            let signed = random.below(2) as i16;
            match register {
                true => insn(class | op | 8, dst, src, signed, 0),
                false => {
                    let divisor = random.number() as i32;
                    insn(class | op, dst, 0, signed, if divisor == 0 { 7 } else { divisor })
                }
            }
        }
        0x60 | 0x70 | 0xc0 if !register => {
            let width = if wide == 1 { 64 } else { 32 };
            insn(class | op, dst, 0, 0, random.below(width) as i32)
        }
        op if register => insn(class | op | 8, dst, src, 0, 0),
        op => insn(class | op, dst, 0, 0, random.number() as i32),
    }
}

/// A store and a load of the same part of the stack, or an atomic operation there.
fn memory(random: &mut Random, code: &mut Vec<Insn>) {
    let (value, into) = (random.pick(&REGISTERS), random.pick(&REGISTERS));
    match random.below(3) {
        0 => {
            let (size, bytes) = random.pick(&[(0x10u8, 1i16), (0x08, 2), (0x00, 4), (0x18, 8)]);
            let off = -16 + bytes * random.below(16 / bytes as u64) as i16;
            code.push(insn(0x63 & !0x18 | size, 10, value, off, 0));
            let signed = random.below(2) == 1 && size != 0x18;
            code.push(insn(if signed { 0x81 } else { 0x61 } & !0x18 | size, into, 10, off, 0));
        }
        1 => {
            let off = -8 * random.below(2) as i16 - 8;
            code.push(insn(0x62 & !0x18 | 0x18, 10, 0, off, random.number() as i32));
            code.push(insn(0x79, into, 10, off, 0));
        }
        _ => {
            let wide = random.below(2) == 1;
            let size = if wide { 0x18 } else { 0x00 };
            let off = if wide { -8 * random.below(2) as i16 - 8 } else { -4 * random.below(4) as i16 - 4 };
            let op = random.pick(&[0x00, 0x40, 0x50, 0xa0, 0x01, 0x41, 0x51, 0xa1, 0xe1, 0xf1]);
            code.push(insn(0xc3 | size, 10, value, off, op));
            // Where it goes on at a place that is known already, the verifier (of 6.18, again) forgets that a 32-bit comparison that
            // holds clears the upper half of r0 as well; on x86-64 it keeps what it was.
            if op == 0xf1 && !wide {
                code.push(insn(0xbc, 0, 0, 0, 0));
            }
            let fetched = match op {
                0xf1 => Some(0),
                op if op & 1 == 1 => Some(value),
                _ => None,
            };
            // The verifier (of 6.18, at least) takes what a fetch from the stack returns for what one of several ways stored there, and
            // then drops branches that are not dead. So the case goes on with something else.
            if let Some(fetched) = fetched {
                code.push(insn(0xaf, 9, fetched, 0, 0));
                code.push(insn(0x79, fetched, 8, random.below(PACKET_BYTES - 7) as i16, 0));
            }
        }
    }
}

fn jump(random: &mut Random, room: i16) -> Insn {
    let class = random.pick(&[0x05u8, 0x06]);
    let op = random.pick(&[0x10u8, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0]);
    let off = 1 + random.below(room as u64) as i16;
    match random.below(2) {
        0 => insn(class | op, random.pick(&REGISTERS), 0, off, random.number() as i32),
        _ => insn(class | op | 8, random.pick(&REGISTERS), random.pick(&REGISTERS), off, 0),
    }
}

/// A program of `CASES` cases, each between two passes over all registers.
fn program(random: &mut Random) -> Vec<Insn> {
    // r8: the packet, if it is long enough, and kept on the stack.
    let mut code = vec![
        insn(0x61, 8, 1, 0, 0),
        insn(0x61, 3, 1, 4, 0),
        insn(0xbf, 2, 8, 0, 0),
        insn(0x07, 2, 0, 0, PACKET_BYTES as i32),
        insn(0xbd, 2, 3, 2, 0),
        insn(0xb7, 0, 0, 0, 0),
        insn(0x95, 0, 0, 0, 0),
        insn(0x7b, 10, 8, -24, 0),
    ];
    load_number(&mut code, 9, random.next());
    for off in [-8, -16] {
        code.push(insn(0x7a, 10, 0, off, random.number() as i32));
    }
    assert_eq!(code.len(), PROLOGUE);
    // One block, so long that the Cranelift back end compiles it another way.
    let jumps = random.below(8) != 0;
    for _ in 0..CASES {
        code.push(insn(0x79, 8, 10, -24, 0));
        for register in REGISTERS {
            match random.below(8) {
                0 => load_number(&mut code, register, random.number()),
                _ => code.push(insn(0x79, register, 8, random.below(PACKET_BYTES - 7) as i16, 0)),
            }
        }
        // A case is straight but for jumps forward, inside it.
        let length = 4 + random.below(INSNS_A_CASE) as usize;
        let mut case = Vec::new();
        while case.len() < length {
            match random.below(8) {
                0 => memory(random, &mut case),
                1 if jumps && length - case.len() > 3 => {
                    let room = (length - case.len() - 2) as i16;
                    case.push(jump(random, room));
                }
                _ => case.push(arithmetic(random)),
            }
        }
        // No jump leads behind the longest case.
        code.append(&mut case);
        for register in REGISTERS {
            code.push(insn(0x27, 9, 0, 0, 0x01000193));
            code.push(insn(0xaf, 9, register, 0, 0));
        }
        code.push(insn(0x79, 8, 10, -8, 0));
        code.push(insn(0xaf, 9, 8, 0, 0));
        code.push(insn(0x79, 8, 10, -16, 0));
        code.push(insn(0x0f, 9, 8, 0, 0));
    }
    // The halves of the hash, as the code is 32 bits.
    code.push(insn(0xbf, 0, 9, 0, 0));
    code.push(insn(0x77, 9, 0, 0, 32));
    code.push(insn(0xac, 0, 9, 0, 0));
    code.push(insn(0x95, 0, 0, 0, 0));
    code
}

fn packet(random: &mut Random) -> Vec<u8> {
    (0..PACKET_BYTES / 8).flat_map(|_| random.number().to_le_bytes()).collect()
}

/// Loads raw byte code as an XDP program; the kernel's reason if it refuses.
fn load(code: &[Insn]) -> Result<OwnedFd, String> {
    let bytes: Vec<u8> = code.iter().flat_map(|insn| insn.to_bytes()).collect();
    // The kernel wants them aligned.
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|slot| u64::from_le_bytes(slot.try_into().unwrap())).collect();
    // SAFETY: the instructions and the licence live until the call returns.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            std::ptr::null(),
            c"GPL".as_ptr(),
            words.as_ptr().cast(),
            code.len() as u64,
            std::ptr::null_mut(),
        )
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    // SAFETY: a new descriptor of ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn run_in_kernel(program: &OwnedFd, packet: &[u8]) -> u32 {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        ..Default::default()
    };
    // SAFETY: the options and the packet live until the call returns.
    let code = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    assert_eq!(code, 0, "the kernel cannot run the program");
    options.retval
}

fn linked(programs: &[Vec<Insn>]) -> Linked {
    let programs = programs.iter().cloned().enumerate().map(|(index, insns)| LinkedProgram {
        name: format!("random_{index}"),
        section: "xdp".into(),
        insns,
    });
    let linked = Linked::new(programs.collect(), vec![]).unwrap();
    // SAFETY: without the cage only those are run that the kernel has accepted.
    unsafe { linked.assume_verified() }
}

/// Whether kernel and engine give different codes for a packet: both, in that order.
fn differ(code: &[Insn], packet: &[u8], options: &Options) -> Option<(u32, u32)> {
    let expected = run_in_kernel(&load(code).ok()?, packet);
    let mut engine = Engine::new(&linked(&[code.to_vec()]), options.clone()).ok()?;
    let id = engine.program("random_0")?;
    let ours = engine.run_xdp(id, &mut packet.to_vec(), 0).ok()?;
    (ours != expected).then_some((expected, ours))
}

/// Makes as many instructions as possible do nothing while kernel and engine still differ; the rest, to read.
fn shrink(code: &[Insn], packets: &[Vec<u8>], options: &Options) -> String {
    let nothing = insn(0x05, 0, 0, 0, 0);
    let Some(packet) = packets.iter().find(|packet| differ(code, packet, options).is_some()) else {
        return "not seen again".into();
    };
    let mut code = code.to_vec();
    for size in [64, 16, 4, 2, 1] {
        for start in (PROLOGUE..code.len() - 1).step_by(size) {
            let mut tried = code.clone();
            let end = (start + size).min(code.len() - 1);
            tried[start..end].fill(nothing);
            if differ(&tried, packet, options).is_some() {
                code = tried;
            }
        }
    }
    let left = code.iter().enumerate().filter(|(_, insn)| **insn != nothing);
    let mut text: String = left.map(|(at, insn)| format!("{at}: {insn:x?}\n")).collect();
    text += &format!("kernel and engine: {:x?}\npacket: {packet:x?}", differ(&code, packet, options));
    text
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn random_programs_are_the_same_everywhere() {
    let wanted = setting("WIREWISE_RANDOM_PROGRAMS", 10_000);
    let seed = setting("WIREWISE_RANDOM_SEED", 1);
    let compare_with_kernel = kernel();
    let mut random = Random(seed);
    let (mut done, mut refused) = (0, 0);
    while done < wanted {
        // Many programs in one engine: compiling is most of the work.
        let mut batch: Vec<Vec<Insn>> = (0..64).map(|_| program(&mut random)).collect();
        let packets: Vec<Vec<u8>> = (0..PACKETS).map(|_| packet(&mut random)).collect();
        let run_all = |program: OwnedFd| -> Vec<u32> {
            packets.iter().map(|packet| run_in_kernel(&program, packet)).collect()
        };
        let mut expected: Vec<Vec<u32>> = Vec::new();
        if compare_with_kernel {
            // What the kernel refuses must not run as if it were verified.
            let before = batch.len();
            batch.retain(|code| load(code).map(|program| expected.push(run_all(program))).is_ok());
            refused += before - batch.len();
        }
        let mut first: Option<Vec<Vec<u32>>> = None;
        for backend in backends() {
            // The C back end takes a second for what Cranelift does in some milliseconds: it gets every 16th program.
            let share = if backend == Backend::Cranelift { 1 } else { 16 };
            let programs = linked(&batch[..batch.len().div_ceil(share)]);
            for caged in [false, true] {
                if !caged && !compare_with_kernel {
                    continue;
                }
                let mut engine = Engine::new(&programs, options(caged, backend)).unwrap();
                let ids: Vec<_> = engine.programs().map(|(_, id)| id).collect();
                let mut run = |id, packet: &[u8]| engine.run_xdp(id, &mut packet.to_vec(), 0).unwrap();
                let codes: Vec<Vec<u32>> =
                    ids.iter().map(|id| packets.iter().map(|packet| run(*id, packet)).collect()).collect();
                for (index, (code, expected)) in codes.iter().zip(&expected).enumerate() {
                    if code != expected {
                        let least = shrink(&batch[index], &packets, &options(caged, backend));
                        panic!(
                            "seed {seed}, after {done} programs, {backend:?}, caged {caged}: {code:x?} instead of {expected:x?}\n{least}"
                        );
                    }
                }
                match &first {
                    Some(first) => {
                        assert_eq!(codes, first[..codes.len()], "seed {seed}, {backend:?}, caged {caged}")
                    }
                    None => first = Some(codes),
                }
            }
        }
        done += (batch.len() * CASES) as u64;
    }
    let programs = done as usize / CASES;
    assert!(!compare_with_kernel || refused * 10 < programs, "the kernel refused {refused} of {programs}");
}
