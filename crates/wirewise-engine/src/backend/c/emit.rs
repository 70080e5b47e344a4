// SPDX-License-Identifier: Apache-2.0
//! Operations to C: registers are variables of 64 bits, blocks labels.

use std::fmt::Write;

use crate::backend::Settings;
use crate::error::Trap;
use crate::frontend::instr::{Alu, AtomicOp, Cond, FRAME, Operand, Size};
use crate::frontend::ir::{Array, Block, End, Field, Function, Op, Place, Program};
use crate::frontend::{FRAME_BYTES, MAX_LOOPS};
use crate::helper::Helper;
use crate::memory::{STACK_AT, STACK_BYTES};
use crate::options::ClockSource;
use crate::runtime::{self, JIFFY_NS, TAIL_CALL_FAILED, vm_offset};

const PRELUDE: &str = "
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32; typedef unsigned long long u64;
typedef signed char s8; typedef short s16; typedef int s32; typedef long long s64;
#define MEMORY(type) struct __attribute__((packed, may_alias)) { type value; }
typedef MEMORY(u8) m8; typedef MEMORY(u16) m16; typedef MEMORY(u32) m32; typedef MEMORY(u64) m64;
#define AT(bits, address) (((m##bits *)(address))->value)
static inline u64 div64(u64 a, u64 b) { return b ? a / b : 0; }
static inline u64 mod64(u64 a, u64 b) { return b ? a % b : a; }
static inline u64 div32(u32 a, u32 b) { return b ? a / b : 0; }
static inline u64 mod32(u32 a, u32 b) { return b ? a % b : a; }
static inline u64 sdiv64(s64 a, s64 b) { return b == -1 ? -(u64)a : b ? a / b : 0; }
static inline u64 smod64(s64 a, s64 b) { return b == -1 ? 0 : b ? a % b : a; }
static inline u64 sdiv32(s32 a, s32 b) { return (u32)(b == -1 ? -(u32)a : b ? a / b : 0); }
static inline u64 smod32(s32 a, s32 b) { return (u32)(b == -1 ? 0 : b ? a % b : a); }
";

pub(super) fn function_name(program: usize, function: usize) -> String {
    format!("program_{program}_{function}")
}

/// All programs as one C file.
pub(super) fn source(programs: &[Program], settings: Settings) -> String {
    let mut text = String::from(PRELUDE);
    for (index, program) in programs.iter().enumerate() {
        for (number, function) in program.functions.iter().enumerate() {
            let _ = writeln!(text, "{};", head(index, number, function));
        }
        for (number, function) in program.functions.iter().enumerate() {
            let mut emitter = Emitter { text: &mut text, program, index, function, settings };
            emitter.function(number);
        }
    }
    text
}

fn head(program: usize, number: usize, function: &Function) -> String {
    let linkage = if number == 0 { "" } else { "static __attribute__((noinline)) " };
    let arguments: String = (1..=function.args).map(|register| format!(", u64 r{register}")).collect();
    format!("{linkage}u64 {}(u8 *base{arguments})", function_name(program, number))
}

struct Emitter<'a> {
    text: &'a mut String,
    program: &'a Program,
    index: usize,
    function: &'a Function,
    settings: Settings,
}

fn vm(bits: u32, offset: i32) -> String {
    format!("AT({bits}, base + {offset})")
}

impl Emitter<'_> {
    fn line(&mut self, line: impl AsRef<str>) {
        self.text.push('\t');
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    fn function(&mut self, number: usize) {
        let head = head(self.index, number, self.function);
        let _ = writeln!(self.text, "{head}\n{{");
        let declared = (0..=FRAME).filter(|register| *register == 0 || *register > self.function.args);
        let registers: Vec<String> = declared.map(|register| format!("r{register} = 0")).collect();
        self.line(format!("u64 {};", registers.join(", ")));
        for slot in 0..self.function.slots.len() {
            self.line(format!("u64 slot{slot} = 0;"));
        }
        self.frame();
        for (index, block) in self.function.blocks.iter().enumerate() {
            let _ = writeln!(self.text, "b{index}:;");
            self.block(index, block);
        }
        self.text.push_str("}\n");
    }

    fn frame(&mut self) {
        let frame = self.function.frame;
        if self.settings.caged {
            let limit = STACK_AT + STACK_BYTES;
            self.line(format!("u64 frame = {};", vm(64, vm_offset!(frame))));
            let trap = self.trap(Trap::CallDepth);
            self.line(format!("if (frame + {FRAME_BYTES} > {limit}) {trap}"));
            self.line(format!("{} = r10 = frame + {FRAME_BYTES};", vm(64, vm_offset!(frame))));
        } else if frame > 0 {
            self.line(format!("u8 frame[{frame}] __attribute__((aligned(8)));"));
            self.line(format!("r10 = (u64)frame + {frame};"));
        }
    }

    fn trap(&self, trap: Trap) -> String {
        format!("{{ {} = {}; return 0; }}", vm(32, vm_offset!(trap)), trap.code())
    }

    fn check_trap(&mut self) {
        if self.settings.caged {
            self.line(format!("if ({}) return 0;", vm(32, vm_offset!(trap))));
        }
    }

    fn burn(&self, units: i64) -> String {
        let fuel = vm(64, vm_offset!(fuel));
        format!("if ((s64)({fuel} -= {units}) < 0) {}", self.trap(Trap::OutOfFuel))
    }

    fn leave(&self, result: &str) -> String {
        match self.settings.caged {
            true => format!("{{ {} = frame; return {result}; }}", vm(64, vm_offset!(frame))),
            false => format!("return {result};"),
        }
    }

    fn go(&self, from: usize, to: usize) -> String {
        match self.settings.caged && to <= from {
            true => format!("{{ {} goto b{to}; }}", self.burn(self.function.toll(from, to))),
            false => format!("goto b{to};"),
        }
    }

    fn block(&mut self, index: usize, block: &Block) {
        for op in &block.ops {
            self.op(op);
        }
        match block.end {
            End::Exit => {
                let leave = self.leave("r0");
                self.line(leave);
            }
            End::Jump(to) => {
                let go = self.go(index, to);
                self.line(go);
            }
            End::Branch { wide, cond, dst, src, then, otherwise } => {
                let (then, otherwise) = (self.go(index, then), self.go(index, otherwise));
                self.line(format!("if ({}) {then} else {otherwise}", condition(wide, cond, dst, src)));
            }
        }
    }

    fn op(&mut self, op: &Op) {
        match *op {
            Op::Alu { wide, op, dst, src } => self.line(alu(wide, op, dst, src)),
            Op::Neg { wide: true, dst } => self.line(format!("r{dst} = -r{dst};")),
            Op::Neg { wide: false, dst } => self.line(format!("r{dst} = (u32)-(u32)r{dst};")),
            Op::MovSx { wide, dst, src, from } => {
                let narrow = if wide { "u64" } else { "u32" };
                self.line(format!("r{dst} = ({narrow})(s64)(s{})r{src};", from.bits()));
            }
            Op::Order { dst, size, swap } => {
                let swap = if swap { format!("__builtin_bswap{}", size.bits()) } else { String::new() };
                self.line(format!("r{dst} = {swap}((u{})r{dst});", size.bits()));
            }
            Op::Number { dst, value } => self.line(format!("r{dst} = {value}ULL;")),
            Op::Address { dst, offset } => {
                let address = self.engine_address(offset);
                self.line(format!("r{dst} = {address};"));
            }
            Op::Load { dst, place, size, signed } => {
                let value = self.read(place, size);
                let sign = if signed { format!("(s64)(s{})", size.bits()) } else { String::new() };
                self.line(format!("r{dst} = {sign}{value};"));
            }
            Op::Store { place, size, src, .. } => {
                let place = self.place(place, size);
                self.line(format!("{place} = (u{}){};", size.bits(), operand(src)));
            }
            Op::Atomic { op, fetch, place, size, src } => self.atomic(op, fetch, place, size, src),
            Op::Context { dst, field } => {
                let value = match field {
                    Field::Data => vm(64, vm_offset!(data)),
                    Field::DataEnd => vm(64, vm_offset!(data_end)),
                    Field::DataMeta => vm(64, vm_offset!(data_meta)),
                    Field::IngressIfindex => vm(32, vm_offset!(ingress_ifindex)),
                    Field::RxQueueIndex => vm(32, vm_offset!(rx_queue_index)),
                };
                self.line(format!("r{dst} = {value};"));
            }
            Op::Element { array, key, in_bounds } => self.element(array, key, in_bounds),
            Op::Helper { helper } => self.helper(helper),
            Op::Call { function } => {
                let arguments: Vec<_> = (1..=self.program.functions[function].args)
                    .map(|register| format!("r{register}"))
                    .collect();
                self.call("r0", function, &arguments);
            }
            Op::Loop { function, plain } => self.bpf_loop(function, plain),
            Op::TailCall => self.tail_call(),
        }
    }

    fn engine_address(&self, offset: u64) -> String {
        if self.settings.caged { format!("{offset}ULL") } else { format!("(u64)base + {offset}ULL") }
    }

    /// An lvalue.
    fn place(&self, place: Place, size: Size) -> String {
        let frame_start = FRAME_BYTES as u32 - self.function.frame;
        let address = match place {
            Place::Slot(slot) => return format!("slot{slot}"),
            Place::Reg { base, off } if self.settings.caged => format!("base + (u32)r{base} + {off}LL"),
            Place::Reg { base, off } => format!("r{base} + {off}LL"),
            Place::Frame(offset) if self.settings.caged => format!("base + frame + {}", frame_start + offset),
            Place::Frame(offset) => format!("frame + {offset}"),
            Place::Memory(offset) => format!("base + {}ULL", self.settings.inside(offset)),
        };
        format!("AT({}, {address})", size.bits())
    }

    fn read(&self, place: Place, size: Size) -> String {
        self.place(place, size)
    }

    fn atomic(&mut self, op: AtomicOp, fetch: bool, place: Place, size: Size, src: u8) {
        let bits = size.bits();
        let place = self.place(place, size);
        let after = match op {
            AtomicOp::Add => format!("before + (u{bits})r{src}"),
            AtomicOp::Or => format!("before | (u{bits})r{src}"),
            AtomicOp::And => format!("before & (u{bits})r{src}"),
            AtomicOp::Xor => format!("before ^ (u{bits})r{src}"),
            AtomicOp::Exchange => format!("(u{bits})r{src}"),
            AtomicOp::CompareExchange => format!("before == (u{bits})r0 ? (u{bits})r{src} : before"),
        };
        let result = match (fetch, op) {
            (false, _) => String::new(),
            (true, AtomicOp::CompareExchange) => "r0 = before;".into(),
            (true, _) => format!("r{src} = before;"),
        };
        self.line(format!("{{ u{bits} before = {place}; {place} = {after}; {result} }}"));
    }

    fn element(&mut self, array: Array, key: Place, in_bounds: bool) {
        let key = self.read(key, Size::W);
        let start = self.engine_address(array.offset);
        let check = if in_bounds { String::new() } else { format!("key >= {} ? 0 : ", array.entries) };
        self.line(format!("{{ u64 key = (u32){key}; r0 = {check}{start} + key * {}ULL; }}", array.stride));
    }

    fn helper(&mut self, helper: Helper) {
        if helper.is_clock() && self.settings.clock != ClockSource::Live {
            let divided = if helper == Helper::Jiffies { format!(" / {JIFFY_NS}") } else { String::new() };
            return self.line(format!("r0 = {}{divided};", vm(64, vm_offset!(now))));
        }
        if let Some(which) = runtime::system_clock(helper) {
            let read = libc::clock_gettime as *const () as usize;
            self.line(format!("{{ u64 time[2]; ((int (*)(int, void *)){read}ULL)({which}, time);"));
            return self.line("r0 = time[0] * 1000000000ULL + time[1]; }");
        }
        let Some(address) = runtime::address(helper) else { return };
        let types = ", u64".repeat(helper.args().into());
        let arguments: String = (1..=helper.args()).map(|register| format!(", r{register}")).collect();
        self.line(format!("r0 = ((u64 (*)(u8 *{types})){address}ULL)(base{arguments});"));
        if helper.args() > 0 {
            self.check_trap();
        }
    }

    fn call(&mut self, result: &str, function: usize, arguments: &[String]) {
        if self.settings.caged {
            let burn = self.burn(self.program.functions[function].call_toll());
            self.line(burn);
        }
        let name = function_name(self.index, function);
        let arguments: String = arguments.iter().map(|argument| format!(", {argument}")).collect();
        self.line(format!("{result} = {name}(base{arguments});"));
        self.check_trap();
        if self.program.functions[function].tail_calls {
            let (pending, context) = (vm(64, vm_offset!(pending)), vm(64, vm_offset!(context)));
            self.line(format!("while ({pending}) {{ u64 next = {pending}; {pending} = 0;"));
            self.line(format!("{result} = ((u64 (*)(u8 *, u64))next)(base, {context});"));
            self.check_trap();
            self.line("}");
        }
    }

    fn bpf_loop(&mut self, function: usize, plain: bool) {
        let (count, error) = if plain { ("r1", "(u32)-7") } else { ("(u32)r1", "-7") };
        self.line(format!("{{ u64 count = {count}, round = 0, stop;"));
        self.line(format!("if (r4) r0 = -22; else if (count > {MAX_LOOPS}) r0 = {error}; else {{"));
        self.line("while (round < count) {");
        let zero = || "0".to_owned();
        let all = ["round".to_owned(), "r3".to_owned(), zero(), zero(), zero()];
        let args = usize::from(self.program.functions[function].args);
        self.call("stop", function, &all[..args]);
        self.line("round++; if (stop) break; }");
        self.line("r0 = round; } }");
    }

    fn tail_call(&mut self) {
        let address = runtime::tail_call_address();
        self.line(format!("r0 = ((u64 (*)(u8 *, u64, u64)){address}ULL)(base, r2, r3);"));
        self.check_trap();
        let leave = self.leave("0");
        self.line(format!("if (r0) {leave}"));
        self.line(format!("r0 = {TAIL_CALL_FAILED};"));
    }
}

fn operand(src: Operand) -> String {
    match src {
        Operand::Reg(register) => format!("r{register}"),
        Operand::Imm(number) => format!("{}ULL", i64::from(number) as u64),
    }
}

fn alu(wide: bool, op: Alu, dst: u8, src: Operand) -> String {
    let bits = if wide { 64 } else { 32 };
    let (a, b) = (format!("(u{bits})r{dst}"), format!("(u{bits}){}", operand(src)));
    let shift = format!("({b} & {})", bits - 1);
    let result = match op {
        Alu::Add => format!("{a} + {b}"),
        Alu::Sub => format!("{a} - {b}"),
        Alu::Mul => format!("{a} * {b}"),
        Alu::Or => format!("{a} | {b}"),
        Alu::And => format!("{a} & {b}"),
        Alu::Xor => format!("{a} ^ {b}"),
        Alu::Lsh => format!("{a} << {shift}"),
        Alu::Rsh => format!("{a} >> {shift}"),
        Alu::Arsh => format!("(u{bits})((s{bits})r{dst} >> {shift})"),
        Alu::Mov => b,
        Alu::Div => format!("div{bits}({a}, {b})"),
        Alu::Mod => format!("mod{bits}({a}, {b})"),
        Alu::SDiv => format!("sdiv{bits}({a}, {b})"),
        Alu::SMod => format!("smod{bits}({a}, {b})"),
    };
    format!("r{dst} = (u{bits})({result});")
}

fn condition(wide: bool, cond: Cond, dst: u8, src: Operand) -> String {
    let bits = if wide { 64 } else { 32 };
    let (sign, operator) = match cond {
        Cond::Eq => ('u', "=="),
        Cond::Ne => ('u', "!="),
        Cond::Gt => ('u', ">"),
        Cond::Ge => ('u', ">="),
        Cond::Lt => ('u', "<"),
        Cond::Le => ('u', "<="),
        Cond::SGt => ('s', ">"),
        Cond::SGe => ('s', ">="),
        Cond::SLt => ('s', "<"),
        Cond::SLe => ('s', "<="),
        Cond::Set => ('u', "&"),
    };
    format!("({sign}{bits})r{dst} {operator} ({sign}{bits}){}", operand(src))
}
