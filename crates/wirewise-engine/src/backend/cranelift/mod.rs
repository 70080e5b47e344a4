// SPDX-License-Identifier: Apache-2.0
//! The Cranelift back end: native code in memory that is writable first and executable then, never both.

mod alu;
mod calls;
mod function;
mod memory;

use cranelift_codegen::ir::{AbiParam, Signature, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{Context, isa};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_module::{FuncId, Module, default_libcall_names};

use super::{Code, Settings, failed};
use crate::error::Error;
use crate::frontend::ir::{Function, Program};

/// Address space for code: much more than an operation ever takes; only what is used becomes memory.
const BYTES_PER_OP: usize = 256;
const LEAST_BYTES: usize = 1 << 20;

/// The memory of compiled programs.
struct Memory(Option<JITModule>);

// SAFETY: after compiling, nothing but the code's memory is used, which does not change and is not tied to a thread.
unsafe impl Sync for Memory {}
// SAFETY: as for Sync.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(module) = self.0.take() {
            // SAFETY: the engine that owns this code is dropped with it, so none of it runs or is called again.
            unsafe { module.free_memory() };
        }
    }
}

fn target() -> Result<isa::OwnedTargetIsa, Error> {
    let mut flags = settings::builder();
    let chosen = [
        ("opt_level", "speed"),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        ("enable_probestack", "false"),
        ("preserve_frame_pointers", "false"),
        ("unwind_info", "false"),
        ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
    ];
    for (name, value) in chosen {
        flags.set(name, value).map_err(failed)?;
    }
    let builder = cranelift_native::builder().map_err(failed)?;
    builder.finish(settings::Flags::new(flags)).map_err(failed)
}

/// `base`, then the arguments; returns r0.
fn signature(module: &JITModule, arguments: u8) -> Signature {
    let mut signature = module.make_signature();
    signature.params.extend((0..=arguments).map(|_| AbiParam::new(types::I64)));
    signature.returns.push(AbiParam::new(types::I64));
    signature
}

pub(crate) fn compile(programs: &[Program], settings: Settings) -> Result<Code, Error> {
    let functions = programs.iter().flat_map(|program| &program.functions);
    let ops: usize = functions.flat_map(|function| &function.blocks).map(|block| block.ops.len() + 1).sum();
    let arena = ArenaMemoryProvider::new_with_size(LEAST_BYTES + ops * BYTES_PER_OP).map_err(failed)?;
    let mut builder = JITBuilder::with_isa(target()?, default_libcall_names());
    builder.memory_provider(Box::new(arena));
    let mut memory = Memory(None);
    let module = memory.0.insert(JITModule::new(builder));
    let mut context = module.make_context();
    let mut scratch = FunctionBuilderContext::new();
    let mut entries = Vec::with_capacity(programs.len());
    for program in programs {
        let ids = declare(module, program)?;
        for (function, id) in program.functions.iter().zip(&ids) {
            define(module, &mut context, &mut scratch, program, function, (&ids, *id), settings)?;
        }
        entries.extend(ids.first());
    }
    module.finalize_definitions().map_err(failed)?;
    let entries = entries.iter().map(|id| module.get_finalized_function(*id) as usize).collect();
    Ok(Code::new(entries, memory))
}

fn declare(module: &mut JITModule, program: &Program) -> Result<Vec<FuncId>, Error> {
    let declare = |function: &Function| {
        let signature = signature(module, function.args);
        module.declare_anonymous_function(&signature).map_err(failed)
    };
    program.functions.iter().map(declare).collect()
}

fn define(
    module: &mut JITModule,
    context: &mut Context,
    scratch: &mut FunctionBuilderContext,
    program: &Program,
    function: &Function,
    (ids, id): (&[FuncId], FuncId),
    settings: Settings,
) -> Result<(), Error> {
    context.func.signature = signature(module, function.args);
    function::emit(module, &mut context.func, scratch, program, function, ids, settings);
    module.define_function(id, context).map_err(|error| Error::Backend(format!("{error:?}")))?;
    module.clear_context(context);
    Ok(())
}
