// SPDX-License-Identifier: Apache-2.0
//! The instructions of an object, and what they may call and name.

use object::elf::{R_BPF_64_32, R_BPF_64_64};
use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget};

use crate::bundle::elf::{Checked, File, Section, damaged, data, named};
use crate::bundle::emitted::{FUNCTIONS, HELPERS, MAPS, data_bytes};

/// One slot of byte code.
struct Slot {
    code: u8,
    source: u8,
    immediate: i32,
}

/// Calls of known helpers and own functions; addresses of own maps and data only.
pub fn check(file: &File<'_>, section: &Section<'_, '_>, name: &str) -> Checked {
    const WIDE: u8 = 0x18;
    const CALL: u8 = 0x85;
    const CALL_REGISTER: u8 = 0x8d;
    const OWN_FUNCTION: u8 = 1;
    let (slots, rest) = data(section)?.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(format!("section {name:?} is no whole number of instructions"));
    }
    let slot = |at: usize| {
        slots.get(at).map(|&[code, registers, _, _, a, b, c, d]| Slot {
            code,
            source: registers >> 4,
            immediate: i32::from_le_bytes([a, b, c, d]),
        })
    };
    let mut at = 0;
    while let Some(Slot { code, source, immediate }) = slot(at) {
        let number = at;
        let place = || format!("instruction {number} of section {name:?}");
        match (code, source) {
            (CALL, 0) if !HELPERS.iter().any(|(number, _)| *number == immediate) => {
                return Err(format!("{} calls helper {immediate} (enum bpf_func_id)", place()));
            }
            (CALL, 0 | OWN_FUNCTION) => {}
            (CALL | CALL_REGISTER, _) => {
                return Err(format!("{} calls a function of the kernel, or an unknown one", place()));
            }
            (WIDE, 0) => {
                at += 1;
                // Code there would run if somebody took the second half for an instruction.
                if slots.get(at).is_none_or(|second| second[..4] != [0; 4]) {
                    return Err(format!("{} has no second half", place()));
                }
            }
            (WIDE, _) => return Err(format!("{} names a descriptor or number of the kernel's", place())),
            (0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50, _) => {
                return Err(format!("{} reads the packet as classic BPF does", place()));
            }
            _ => {}
        }
        at += 1;
    }
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return Err(format!("a relocation in section {name:?} has no symbol"));
        };
        let symbol = file.symbol_by_index(index).map_err(damaged)?;
        let of = named(symbol.name())?;
        let Some(target) = symbol.section_index() else {
            return Err(format!("needs {of:?} from outside (extern)"));
        };
        let target = file.section_by_index(target).map_err(damaged)?;
        let target = named(target.name())?;
        let code = usize::try_from(offset).ok().filter(|offset| offset % 8 == 0).and_then(|o| slot(o / 8));
        let memory = target == MAPS || data_bytes(target).is_some();
        let allowed = match (relocation.flags(), code.map(|slot| slot.code)) {
            (RelocationFlags::Elf { r_type: R_BPF_64_64 }, Some(WIDE)) => memory,
            (RelocationFlags::Elf { r_type: R_BPF_64_32 }, Some(CALL)) => target == FUNCTIONS,
            _ => false,
        };
        if !allowed {
            return Err(format!("section {name:?} takes the address of {of:?} in section {target:?}"));
        }
    }
    Ok(())
}
