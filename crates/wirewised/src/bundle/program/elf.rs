// SPDX-License-Identifier: Apache-2.0
//! Writes a program as an ELF object.

use std::collections::BTreeMap;

use object::elf::{
    EM_BPF, ET_REL, R_BPF_64_32, R_BPF_64_64, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS, SHT_PROGBITS,
    SHT_REL, SHT_STRTAB, SHT_SYMTAB, STB_GLOBAL, STB_LOCAL, STT_FUNC, STT_OBJECT, STT_SECTION,
};

use super::read::LICENSE_TEXT;
use super::{Program, Reference, SLOT};
use crate::bundle::emitted::{BTF, BTF_EXT, FUNCTIONS, LICENSE, MAPS, PROGRAMS};

const HEADER: usize = 64;
const SYMBOL: u64 = 24;
const RELOCATION: u64 = 16;

struct Section {
    name: String,
    kind: u32,
    flags: u32,
    bytes: Vec<u8>,
    /// Where it takes none in the file.
    size: u64,
    link: u32,
    info: u32,
    entry: u64,
}

impl Section {
    fn new(name: &str, kind: u32, flags: u32, bytes: Vec<u8>) -> Self {
        let size = bytes.len() as u64;
        Self { name: name.to_owned(), kind, flags, bytes, size, link: 0, info: 0, entry: 0 }
    }
}

#[derive(Default)]
struct Names(Vec<u8>);

impl Names {
    fn add(&mut self, name: &str) -> u32 {
        if self.0.is_empty() {
            self.0.push(0);
        }
        if name.is_empty() {
            return 0;
        }
        let at = self.0.len() as u32;
        self.0.extend(name.bytes().chain([0]));
        at
    }
}

struct Symbol<'a> {
    name: &'a str,
    bind: u8,
    kind: u8,
    section: u16,
    value: u64,
    size: u64,
}

impl Program {
    /// The object that kernel and engine get.
    pub fn encode(&self) -> Vec<u8> {
        let mut sections = vec![Section::new("", 0, 0, Vec::new())];
        let code = SHF_ALLOC | SHF_EXECINSTR;
        for name in [FUNCTIONS, PROGRAMS] {
            sections.push(Section::new(name, SHT_PROGBITS, code, self.code(name)));
        }
        let (btf, ext) = self.types();
        let places = self.map_places();
        let writable = SHF_ALLOC | SHF_WRITE;
        let map_bytes = vec![0; places[self.maps.len()] as usize];
        sections.push(Section::new(LICENSE, SHT_PROGBITS, writable, LICENSE_TEXT.to_vec()));
        sections.push(Section::new(MAPS, SHT_PROGBITS, writable, map_bytes));
        let maps = sections.len() as u16 - 1;
        let first_data = sections.len() as u16;
        for data in &self.data {
            let flags = if data.name.starts_with(".rodata") { SHF_ALLOC } else { writable };
            sections.push(if data.name == ".bss" {
                let size = data.bytes.len() as u64;
                Section { size, ..Section::new(&data.name, SHT_NOBITS, flags, Vec::new()) }
            } else {
                Section::new(&data.name, SHT_PROGBITS, flags, data.bytes.clone())
            });
        }
        sections.push(Section::new(BTF, SHT_PROGBITS, 0, btf));
        sections.push(Section::new(BTF_EXT, SHT_PROGBITS, 0, ext));
        let mut names = Names::default();
        let symbols = self.symbols(maps, first_data, &places);
        let local = symbols.iter().take_while(|symbol| symbol.bind == STB_LOCAL).count();
        let mut bytes = Vec::new();
        for symbol in &symbols {
            bytes.extend(names.add(symbol.name).to_le_bytes());
            bytes.extend([symbol.bind << 4 | symbol.kind, 0]);
            bytes.extend(symbol.section.to_le_bytes());
            bytes.extend(symbol.value.to_le_bytes());
            bytes.extend(symbol.size.to_le_bytes());
        }
        let symtab = sections.len() as u32;
        let (mut table, strtab) = (Section::new(".symtab", SHT_SYMTAB, 0, bytes), symtab + 3);
        (table.link, table.info, table.entry) = (strtab, local as u32, SYMBOL);
        sections.push(table);
        for (name, info) in [(FUNCTIONS, 1), (PROGRAMS, 2)] {
            let bytes = self.relocations(name, &symbols);
            let mut table = Section::new(&format!(".rel{name}"), SHT_REL, 0, bytes);
            (table.link, table.info, table.entry) = (symtab, info, RELOCATION);
            sections.push(table);
        }
        sections.push(Section::new(".strtab", SHT_STRTAB, 0, Vec::new()));
        file(sections, names)
    }

    fn code(&self, section: &str) -> Vec<u8> {
        let own = || self.functions.iter().filter(|function| function.section == section);
        let mut bytes = Vec::with_capacity(own().map(|function| SLOT * function.slots.len()).sum());
        for function in own() {
            for (at, slot) in function.slots.iter().enumerate() {
                let number = match function.references.get(&at) {
                    Some(Reference::Data(_, byte)) => *byte as i32,
                    // From the instruction behind it, as a relative call.
                    Some(Reference::Function(_)) => -1,
                    Some(Reference::Map(_)) | None => {
                        bytes.extend(slot);
                        continue;
                    }
                };
                bytes.extend(&slot[..4]);
                bytes.extend(number.to_le_bytes());
            }
        }
        bytes
    }

    /// First those of sections, then functions, maps and variables; each in the order of the reading.
    fn symbols(&self, maps: u16, first_data: u16, places: &[u32]) -> Vec<Symbol<'_>> {
        let symbol = |section, kind| Symbol { name: "", bind: STB_LOCAL, kind, section, value: 0, size: 0 };
        let mut symbols = vec![symbol(0, 0)];
        symbols.extend((first_data..).take(self.data.len()).map(|section| symbol(section, STT_SECTION)));
        let mut ends = BTreeMap::new();
        for function in &self.functions {
            let end = ends.entry(function.section).or_insert(0);
            let size = (function.slots.len() * SLOT) as u64;
            let section = if function.section == FUNCTIONS { 1 } else { 2 };
            let bind = if function.global { STB_GLOBAL } else { STB_LOCAL };
            symbols.push(Symbol { name: &function.name, bind, kind: STT_FUNC, section, value: *end, size });
            *end += size;
        }
        let object = |name, section, place: u32, size: u32| Symbol {
            name,
            bind: STB_GLOBAL,
            kind: STT_OBJECT,
            section,
            value: place.into(),
            size: size.into(),
        };
        for ((name, _), place) in self.maps.iter().zip(places.windows(2)) {
            symbols.push(object(name, maps, place[0], place[1] - place[0]));
        }
        for (data, section) in self.data.iter().zip(first_data..) {
            let variables = data.variables.iter();
            symbols.extend(variables.map(|v| object(&v.name, section, v.offset, v.size)));
        }
        // ELF wants local ones first.
        symbols.sort_by_key(|symbol| symbol.bind);
        symbols
    }

    fn relocations(&self, section: &str, symbols: &[Symbol<'_>]) -> Vec<u8> {
        let by_name: BTreeMap<_, _> = symbols.iter().map(|symbol| symbol.name).zip(0u64..).collect();
        let (mut bytes, mut start) = (Vec::new(), 0);
        for function in self.functions.iter().filter(|function| function.section == section) {
            for (at, reference) in &function.references {
                let (symbol, kind) = match reference {
                    Reference::Map(map) => (by_name[self.maps[*map].0.as_str()], R_BPF_64_64),
                    // Sections' symbols follow the empty one.
                    Reference::Data(data, _) => (*data as u64 + 1, R_BPF_64_64),
                    Reference::Function(callee) => {
                        (by_name[self.functions[*callee].name.as_str()], R_BPF_64_32)
                    }
                };
                bytes.extend(((start + at * SLOT) as u64).to_le_bytes());
                bytes.extend((symbol << 32 | u64::from(kind)).to_le_bytes());
            }
            start += function.slots.len() * SLOT;
        }
        bytes
    }
}

/// Header, contents and table of the sections, of which the last is that of names.
fn file(mut sections: Vec<Section>, mut names: Names) -> Vec<u8> {
    let name_places: Vec<_> = sections.iter().map(|section| names.add(&section.name)).collect();
    if let Some(strtab) = sections.last_mut() {
        (strtab.size, strtab.bytes) = (names.0.len() as u64, names.0);
    }
    let contents: usize = sections.iter().map(|section| section.bytes.len() + HEADER + SLOT).sum();
    let mut bytes = Vec::with_capacity(HEADER + contents);
    bytes.resize(HEADER, 0);
    let (mut headers, count) = (Vec::new(), sections.len() as u16);
    for (section, name) in sections.into_iter().zip(name_places) {
        bytes.resize(bytes.len().next_multiple_of(SLOT), 0);
        headers.extend(name.to_le_bytes());
        headers.extend(section.kind.to_le_bytes());
        let place = if section.kind == 0 { 0 } else { bytes.len() as u64 };
        for word in [section.flags.into(), 0, place, section.size] {
            headers.extend(word.to_le_bytes());
        }
        headers.extend(section.link.to_le_bytes());
        headers.extend(section.info.to_le_bytes());
        for word in [if section.kind == 0 { 0 } else { SLOT as u64 }, section.entry] {
            headers.extend(word.to_le_bytes());
        }
        bytes.extend(&section.bytes);
    }
    bytes.resize(bytes.len().next_multiple_of(SLOT), 0);
    let table = bytes.len() as u64;
    bytes.extend(headers);
    let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for half in [ET_REL, EM_BPF] {
        header.extend(half.to_le_bytes());
    }
    header.extend(1u32.to_le_bytes());
    for word in [0, 0, table] {
        header.extend(word.to_le_bytes());
    }
    header.extend(0u32.to_le_bytes());
    for half in [HEADER as u16, 0, 0, HEADER as u16, count, count - 1] {
        header.extend(half.to_le_bytes());
    }
    bytes[..HEADER].copy_from_slice(&header);
    bytes
}
