// SPDX-License-Identifier: Apache-2.0
//! An object's ELF file, as far as it is looked into.

use std::collections::BTreeMap;

use object::LittleEndian;
use object::ObjectSection;
use object::read::elf::{ElfFile64, ElfSection64};

/// Bytes of a name, as the kernel has it (KSYM_NAME_LEN).
const MAX_NAME: usize = 512;

pub type File<'data> = ElfFile64<'data, LittleEndian>;
pub type Section<'data, 'file> = ElfSection64<'data, 'file, LittleEndian>;
/// By their names, of which none stands twice.
pub type Sections<'data, 'file> = BTreeMap<&'file str, Section<'data, 'file>>;
pub type Checked<T = ()> = Result<T, String>;

pub fn damaged(error: object::Error) -> String {
    format!("is damaged: {error}")
}

/// A name of the file. Messages quote names, so none may be as long as the file.
pub fn named(name: object::Result<&str>) -> Checked<&str> {
    let name = name.map_err(damaged)?;
    if name.len() > MAX_NAME {
        return Err(format!("holds a name of {} bytes, more than {MAX_NAME}", name.len()));
    }
    Ok(name)
}

pub fn data<'data>(section: &Section<'data, '_>) -> Checked<&'data [u8]> {
    section.data().map_err(damaged)
}
