// SPDX-License-Identifier: Apache-2.0
//! From byte code to what the back ends translate.

mod analysis;
mod arity;
mod calls;
mod cfg;
mod decode;
mod frame;
pub(crate) mod instr;
pub(crate) mod ir;
mod lower;
pub(crate) mod scout;
mod state;
mod step;
mod value;

pub(crate) use analysis::Target;
pub(crate) use calls::MAX_LOOPS;
pub(crate) use frame::FRAME_BYTES;

use self::analysis::Analysis;
use self::decode::Refused;
use crate::error::Error;
use crate::limits;
use crate::linked::LinkedProgram;

/// Checks a program and resolves what is known before it runs.
pub(crate) fn translate(program: &LinkedProgram, target: Target<'_>) -> Result<ir::Program, Error> {
    let refused = |(at, refused)| {
        let program = program.name.clone();
        match refused {
            Refused::Malformed(why) => Error::Malformed { program, at, why },
            Refused::Unsupported(what) => Error::Unsupported { program, at, what },
        }
    };
    const MOST: usize = limits::PROGRAM_INSNS;
    if program.insns.len() > MOST {
        return Err(refused((MOST, Refused::Malformed(format!("more than {MOST} instructions")))));
    }
    let code = decode::decode(&program.insns, target.maps.len()).map_err(refused)?;
    let ranges = cfg::functions(&code).map_err(refused)?;
    let arity = arity::arities(&code, &ranges);
    let mut analysis = Analysis::new(&code, &ranges, &arity, target);
    analysis.run().map_err(refused)?;
    let functions = analysis.lower().map_err(refused)?;
    Ok(ir::Program { name: program.name.clone(), functions })
}
