// SPDX-License-Identifier: Apache-2.0
//! The Cranelift back end: native code in memory that is writable first and executable then, never both.

mod alu;
mod calls;
mod function;
mod memory;

use cranelift_codegen::Context;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, Signature, types};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetIsa};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_frontend::FunctionBuilderContext;
use cranelift_jit::{ArenaMemoryProvider, JITBuilder, JITModule};
use cranelift_module::{FuncId, Module, ModuleReloc, default_libcall_names};

use super::{Code, Settings, failed};
use crate::error::Error;
use crate::frontend::ir::{End, Function, Program};
use crate::frontend::scout;
use crate::limits;

/// Address space for code: much more than an operation ever takes; only what is used becomes memory.
const BYTES_PER_OP: usize = 256;
const LEAST_BYTES: usize = 1 << 20;

/// Operations from which on a block is taken as it is, in a function with such a block. Cranelift's optimisation computes a value where it is
/// needed and not before: in a long straight line of sums, as networks are, all addends are loaded first and wait on the stack. clang had
/// put them in an order that needs no more registers than there are.
const LONG_BLOCK: usize = 400;
/// Operations, and loops around a block, from which on a function is taken as it is: to optimise them takes time with their square or cube.
const LONG_FUNCTION: usize = 1 << 15;
const DEEP_LOOPS: usize = 32;

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

fn target(opt_level: &str) -> Result<OwnedTargetIsa, Error> {
    let mut flags = settings::builder();
    let chosen = [
        ("opt_level", opt_level),
        ("is_pic", "false"),
        ("use_colocated_libcalls", "false"),
        // A frame is checked below; should it still not fit the stack, the process ends at the stack's guard and not behind it.
        ("enable_probestack", "true"),
        ("probestack_strategy", "inline"),
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
    let optimised = target("speed")?;
    let mut builder = JITBuilder::with_isa(optimised.clone(), default_libcall_names());
    builder.memory_provider(Box::new(arena));
    let mut memory = Memory(None);
    let module = memory.0.insert(JITModule::new(builder));
    let context = module.make_context();
    let mut compiler =
        Compiler { module, context, scratch: FunctionBuilderContext::new(), optimised, settings };
    let mut entries = Vec::with_capacity(programs.len());
    let mut scouts = Vec::with_capacity(programs.len());
    for program in programs {
        let ids = declare(compiler.module, program)?;
        for (function, id) in program.functions.iter().zip(&ids) {
            compiler.compile(program, function, *id, &ids)?;
        }
        entries.extend(ids.first());
        // Only of verified code is it known that a scout stays where it may.
        let scout = program.functions.first().filter(|_| !settings.caged).and_then(scout::of);
        scouts.push(scout.map(|scout| compiler.scout(program, &scout, &ids)).transpose()?);
    }
    module.finalize_definitions().map_err(failed)?;
    let address = |id: &FuncId| module.get_finalized_function(*id) as usize;
    let entries = entries.iter().map(address).collect();
    let scouts = scouts.iter().map(|scout| scout.as_ref().map(address)).collect();
    Ok(Code::new(entries, scouts, memory))
}

struct Compiler<'a> {
    module: &'a mut JITModule,
    context: Context,
    scratch: FunctionBuilderContext,
    optimised: OwnedTargetIsa,
    settings: Settings,
}

impl Compiler<'_> {
    /// ids : of the program's functions.
    fn compile(
        &mut self,
        program: &Program,
        function: &Function,
        id: FuncId,
        ids: &[FuncId],
    ) -> Result<(), Error> {
        let Self { module, context, scratch, optimised, settings } = self;
        context.func.signature = signature(module, function.args);
        function::emit(module, &mut context.func, scratch, program, function, ids, *settings);
        let isa = if taken_as_it_is(function) { target("none")? } else { optimised.clone() };
        define(module, context, id, isa.as_ref(), &program.name)
    }

    fn scout(&mut self, program: &Program, scout: &Function, ids: &[FuncId]) -> Result<FuncId, Error> {
        let signature = signature(self.module, scout.args);
        let id = self.module.declare_anonymous_function(&signature).map_err(failed)?;
        self.compile(program, scout, id, ids)?;
        Ok(id)
    }
}

fn declare(module: &mut JITModule, program: &Program) -> Result<Vec<FuncId>, Error> {
    let declare = |function: &Function| {
        let signature = signature(module, function.args);
        module.declare_anonymous_function(&signature).map_err(failed)
    };
    program.functions.iter().map(declare).collect()
}

fn taken_as_it_is(function: &Function) -> bool {
    let ops: usize = function.blocks.iter().map(|block| block.ops.len()).sum();
    ops >= LONG_FUNCTION
        || function.blocks.iter().any(|block| block.ops.len() >= LONG_BLOCK)
        || depth_of_loops(function) >= DEEP_LOOPS
}

/// The most backward jumps that lead over one block.
fn depth_of_loops(function: &Function) -> usize {
    let mut begin = vec![0; function.blocks.len()];
    let mut end = vec![0; function.blocks.len()];
    for (from, block) in function.blocks.iter().enumerate() {
        let targets = match block.end {
            End::Exit => [None, None],
            End::Jump(to) => [Some(to), None],
            End::Branch { then, otherwise, .. } => [Some(then), Some(otherwise)],
        };
        for to in targets.into_iter().flatten().filter(|to| *to <= from) {
            begin[to] += 1;
            end[from] += 1;
        }
    }
    let (mut now, mut most) = (0, 0);
    for (begin, end) in begin.iter().zip(&end) {
        now += begin;
        most = most.max(now);
        now -= end;
    }
    most
}

/// Compiles a function for `isa`.
fn define(
    module: &mut JITModule,
    context: &mut Context,
    id: FuncId,
    isa: &dyn TargetIsa,
    program: &str,
) -> Result<(), Error> {
    context.compile(isa, &mut ControlPlane::default()).map_err(|error| failed(error.inner))?;
    let Some(code) = context.compiled_code() else { return Err(failed("nothing was compiled")) };
    let frame = code.buffer.frame_layout().map_or(0, |layout| layout.frame_to_fp_offset);
    if frame > limits::NATIVE_FRAME_BYTES {
        return Err(failed(format!(
            "a function of program {program} keeps {frame} bytes of intermediate results, at most {} are taken: write it as several \
             functions",
            limits::NATIVE_FRAME_BYTES
        )));
    }
    let relocations = code.buffer.relocs().iter();
    let relocations: Vec<_> =
        relocations.map(|relocation| ModuleReloc::from_mach_reloc(relocation, &context.func, id)).collect();
    let alignment = code.buffer.alignment.into();
    let defined = module.define_function_bytes(id, alignment, code.buffer.data(), &relocations);
    defined.map_err(|error| Error::Backend(format!("{error:?}")))?;
    module.clear_context(context);
    Ok(())
}
