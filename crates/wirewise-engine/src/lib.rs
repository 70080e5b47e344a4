// SPDX-License-Identifier: Apache-2.0
#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("wirewise-engine runs on 64-bit little-endian Linux");

mod backend;
mod batch;
mod engine;
mod error;
mod frontend;
mod helper;
mod ids;
pub mod insn;
mod limits;
mod linked;
mod loader;
mod lookout;
mod maps;
mod memory;
mod options;
mod outlet;
mod runtime;
mod vdso;

pub use engine::Engine;
pub use error::{Error, MapError, Trap};
pub use ids::{MapId, ProgramId};
pub use linked::{Linked, LinkedProgram, MapKind, MapSpec, Trust};
pub use loader::btf;
pub use lookout::PacketSpan;
pub use maps::{Map, MapMut};
pub use options::{Backend, ClockSource, Options};
pub use outlet::{Output, Steered};
pub use runtime::JIFFY_NS;
