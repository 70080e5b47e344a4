// SPDX-License-Identifier: Apache-2.0
//! What the engine takes at most. An object may come from anybody, and a small file can ask for much: every size in it is held against
//! one of these before memory is taken or work is done for it. README.md states them; those of maps' descriptions are in `loader::btf`.

/// Sections of an object.
pub(crate) const SECTIONS: usize = 1024;
/// Symbols of an object; clang 14 names every place that is jumped to.
pub(crate) const SYMBOLS: usize = 1 << 18;
/// Bytes of a name (KSYM_NAME_LEN).
pub(crate) const NAME_BYTES: usize = 512;
/// Programs and subprograms of an object: each is a few bytes in it, and may have long names.
pub(crate) const FUNCTIONS: usize = 4096;
/// Programs, subprograms and callbacks that one program consists of (BPF_MAX_SUBPROGS).
pub(crate) const PROGRAM_FUNCTIONS: usize = 256;
/// Instructions of a program with its subprograms; the kernel verifies no more.
pub(crate) const PROGRAM_INSNS: usize = 1_000_000;
/// Instructions of all programs of an object, each with its own copy of the subprograms it calls.
pub(crate) const ALL_INSNS: usize = 2_000_000;
/// Steps of the analysis for each instruction of a program, which a loop may take it to see again.
pub(crate) const STEPS_PER_INSN: usize = 256;
/// What unverified programs may cost to compile: the squares of their functions' basic blocks, added up, as register allocation takes time
/// with that square. 2^28 take some seconds.
pub(crate) const BLOCKS_SQUARED: u64 = 1 << 30;
/// Basic blocks times variables of a function: each block may take up each variable.
pub(crate) const BLOCK_VARIABLES: usize = 1 << 20;
/// Bytes of native stack a function may take; eight of them are called at most, and a thread has 2 MiB.
pub(crate) const NATIVE_FRAME_BYTES: u32 = 1 << 16;
/// Maps of an object, global data included.
pub(crate) const MAPS: usize = 256;
/// Bytes of a key (MAX_BPF_STACK: a program makes it on its stack).
pub(crate) const KEY_BYTES: u32 = 512;
/// Bytes of a value.
pub(crate) const VALUE_BYTES: u32 = 1 << 30;
/// Bytes that the engine keeps beside the values of all maps: keys, and what finds them.
pub(crate) const KEPT_BYTES: usize = 1 << 28;
/// Bytes of all maps of an engine outside the cage, which has its own end: what a process can map at all.
pub(crate) const MAPPED_BYTES: usize = 1 << 46;
/// Seconds of processor time, and bytes of memory, that the compiler ahead of time takes.
#[cfg(feature = "aot")]
pub(crate) const COMPILE_SECONDS: u64 = 300;
#[cfg(feature = "aot")]
pub(crate) const COMPILE_BYTES: u64 = 8 << 30;
