// SPDX-License-Identifier: Apache-2.0
//! From operations to native code.

#[cfg(feature = "aot")]
mod c;
mod cranelift;

use std::fmt::Debug;

use crate::error::Error;
use crate::frontend::ir::Program;
use crate::options::{Backend, ClockSource};

/// What all code of an engine has in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub caged: bool,
    pub clock: ClockSource,
}

/// Native code of an engine's programs; the memory it lies in goes when this is dropped.
pub(crate) trait Code: Debug + Send + Sync {
    /// By program: address of `extern "C" fn(base: *mut u8, context: u64) -> u64`.
    fn entries(&self) -> &[usize];
}

pub(crate) fn compile(
    backend: Backend,
    programs: &[Program],
    settings: Settings,
) -> Result<Box<dyn Code>, Error> {
    match backend {
        Backend::Cranelift => Ok(Box::new(cranelift::compile(programs, settings)?)),
        #[cfg(feature = "aot")]
        Backend::Clang => Ok(Box::new(c::compile(programs, settings)?)),
    }
}
