// SPDX-License-Identifier: Apache-2.0
//! From operations to native code.

#[cfg(feature = "aot")]
mod c;
mod cranelift;

use std::fmt;

use crate::error::Error;
use crate::frontend::ir::Program;
use crate::limits;
use crate::options::{Backend, ClockSource};

/// What all code of an engine has in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub caged: bool,
    /// Others use maps of this engine at the same time.
    pub shared: bool,
    pub clock: ClockSource,
    /// A program's entry may begin while a function waits.
    pub entries_nest: bool,
    /// A helper may move where the packet begins.
    pub packet_moves: bool,
}

impl Settings {
    /// A place behind `base` that is known now: in the cage cut as what a register holds, so that none lies outside.
    fn inside(&self, offset: u64) -> u64 {
        if self.caged { u64::from(offset as u32) } else { offset }
    }
}

/// Native code of an engine's programs; the memory it lies in goes when this is dropped.
pub(crate) struct Code {
    /// By program: address of `extern "C" fn(base: *mut u8, context: u64) -> u64`.
    pub entries: Vec<usize>,
    /// By program: address of its scout, of the same type; `None` if there is none. Returns an address to fetch, or 0.
    pub scouts: Vec<Option<usize>>,
    _memory: Box<dyn Send + Sync>,
}

impl Code {
    fn new(entries: Vec<usize>, scouts: Vec<Option<usize>>, memory: impl Send + Sync + 'static) -> Self {
        Self { entries, scouts, _memory: Box::new(memory) }
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").field("entries", &self.entries).finish_non_exhaustive()
    }
}

pub(crate) fn compile(backend: Backend, programs: &[Program], settings: Settings) -> Result<Code, Error> {
    if settings.caged {
        check_work(programs)?;
    }
    match backend {
        Backend::Cranelift => cranelift::compile(programs, settings),
        #[cfg(feature = "aot")]
        Backend::Clang => c::compile(programs, settings),
    }
}

/// Refuses what nobody verified and would take long to compile.
fn check_work(programs: &[Program]) -> Result<(), Error> {
    let mut work = 0u64;
    for program in programs {
        for function in &program.functions {
            work = work.saturating_add((function.blocks.len() as u64).saturating_pow(2));
        }
        if work > limits::BLOCKS_SQUARED {
            return Err(failed(format!(
                "up to program {}, the squares of the functions' basic blocks add up to {work}; {} are taken at most, as they would \
                 take long to compile: write functions with fewer branches, or load the object through the kernel",
                program.name,
                limits::BLOCKS_SQUARED
            )));
        }
    }
    Ok(())
}

fn failed(error: impl fmt::Display) -> Error {
    Error::Backend(error.to_string())
}
