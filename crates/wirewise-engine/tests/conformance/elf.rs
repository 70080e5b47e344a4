// SPDX-License-Identifier: Apache-2.0
//! Writes eBPF objects byte by byte: a test, or the fuzzer, says itself what stands in every header.

use wirewise_engine::insn::Insn;

pub const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const NOBITS: u32 = 8;
const REL: u32 = 9;

pub const WRITE: u64 = 1;
pub const ALLOC: u64 = 2;
pub const EXEC: u64 = 4;

/// Types of symbols.
pub const OBJECT: u8 = 1;
pub const FUNC: u8 = 2;

const HEADER_BYTES: usize = 64;

/// What a section says lies in it.
pub enum Content {
    Bytes(Vec<u8>),
    /// Nothing in the file: so many zeros.
    Zeros(u64),
    /// The bytes of another section.
    SameAs(u16),
}

struct Section {
    name: String,
    kind: u32,
    flags: u64,
    content: Content,
    link: u32,
    info: u32,
    entry_size: u64,
}

#[derive(Default)]
pub struct Elf {
    sections: Vec<Section>,
    symbols: Vec<u8>,
    names: Vec<u8>,
}

impl Elf {
    /// Numbers from 1 on.
    pub fn section(&mut self, name: &str, kind: u32, flags: u64, content: Content) -> u16 {
        let kind = if matches!(content, Content::Zeros(_)) { NOBITS } else { kind };
        let name = name.to_owned();
        self.sections.push(Section { name, kind, flags, content, link: 0, info: 0, entry_size: 0 });
        self.sections.len() as u16
    }

    /// Numbers from 1 on.
    pub fn symbol(&mut self, name: &str, kind: u8, section: u16, value: u64, size: u64) -> u32 {
        const GLOBAL: u8 = 1 << 4;
        let at = add_name(&mut self.names, name);
        self.symbols.extend(at.to_le_bytes());
        self.symbols.extend([GLOBAL | kind, 0]);
        self.symbols.extend(section.to_le_bytes());
        self.symbols.extend(value.to_le_bytes());
        self.symbols.extend(size.to_le_bytes());
        (self.symbols.len() / 24) as u32
    }

    /// A function's code in a section of its own.
    pub fn program(&mut self, section: &str, name: &str, code: &[Insn]) -> u16 {
        let bytes: Vec<u8> = code.iter().flat_map(|insn| insn.to_bytes()).collect();
        let size = bytes.len() as u64;
        let section = self.section(section, PROGBITS, ALLOC | EXEC, Content::Bytes(bytes));
        self.symbol(name, FUNC, section, 0, size);
        section
    }

    /// Places in a section that name symbols: offset, symbol, type.
    pub fn relocations(&mut self, of: u16, all: &[(u64, u32, u32)]) {
        let entry = |(at, symbol, kind): &(u64, u32, u32)| {
            let info = u64::from(*symbol) << 32 | u64::from(*kind);
            [at.to_le_bytes(), info.to_le_bytes()].concat()
        };
        let bytes = all.iter().flat_map(entry).collect();
        self.section(".rel", REL, 0, Content::Bytes(bytes));
        if let Some(section) = self.sections.last_mut() {
            (section.info, section.entry_size) = (of.into(), 16);
        }
    }

    /// Maps in the order given, and their types.
    pub fn maps(&mut self, maps: &[MapIs]) {
        let mut types = Types::default();
        let bytes = 8 * maps.len();
        let section = self.section(".maps", PROGBITS, ALLOC | WRITE, Content::Bytes(vec![0; bytes]));
        for (index, map) in maps.iter().enumerate() {
            self.symbol(map.name, OBJECT, section, 8 * index as u64, 8);
            types.map(map);
        }
        let btf = types.finish();
        self.section(".BTF", PROGBITS, 0, Content::Bytes(btf));
    }

    pub fn finish(mut self) -> Vec<u8> {
        let strings = self.sections.len() as u16 + 2;
        let symbols = [vec![0; 24], std::mem::take(&mut self.symbols)].concat();
        let symbols = self.section(".symtab", SYMTAB, 0, Content::Bytes(symbols));
        if let Some(section) = self.sections.last_mut() {
            (section.link, section.info, section.entry_size) = (strings.into(), 1, 24);
        }
        let mut names = std::mem::take(&mut self.names);
        let at: Vec<u32> = self.sections.iter().map(|section| add_name(&mut names, &section.name)).collect();
        let own_name = add_name(&mut names, ".strtab");
        self.section(".strtab", STRTAB, 0, Content::Bytes(names));
        let (mut body, mut places) = (Vec::new(), Vec::new());
        for section in &self.sections {
            let place = match &section.content {
                Content::Bytes(bytes) => {
                    let place = (HEADER_BYTES + body.len(), bytes.len() as u64);
                    body.extend(bytes);
                    body.resize(body.len().next_multiple_of(8), 0);
                    place
                }
                Content::Zeros(size) => (HEADER_BYTES + body.len(), *size),
                Content::SameAs(other) => places[usize::from(*other) - 1],
            };
            places.push(place);
        }
        let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let (relocatable, bpf) = (1u16, 247u16);
        file.extend([relocatable.to_le_bytes(), bpf.to_le_bytes(), [1, 0], [0, 0]].concat());
        file.extend([0; 16]);
        file.extend(((HEADER_BYTES + body.len()) as u64).to_le_bytes());
        let counts = [0, 0, 64, 0, 0, 64, self.sections.len() as u16 + 1, strings];
        file.extend(counts.into_iter().flat_map(u16::to_le_bytes));
        file.extend(body);
        file.extend([0; 64]);
        let names = at.into_iter().chain([own_name]);
        for ((section, (offset, size)), name) in self.sections.iter().zip(places).zip(names) {
            let link = if section.kind == REL { symbols.into() } else { section.link };
            file.extend([name.to_le_bytes(), section.kind.to_le_bytes()].concat());
            let words = [section.flags, 0, offset as u64, size];
            file.extend(words.into_iter().flat_map(u64::to_le_bytes));
            file.extend([link.to_le_bytes(), section.info.to_le_bytes()].concat());
            file.extend([8u64, section.entry_size].into_iter().flat_map(u64::to_le_bytes));
        }
        file
    }
}

fn add_name(names: &mut Vec<u8>, name: &str) -> u32 {
    if names.is_empty() {
        names.push(0);
    }
    let at = names.len() as u32;
    names.extend(name.as_bytes());
    names.push(0);
    at
}

/// A map to describe.
#[derive(Debug, Clone, Copy)]
pub struct MapIs<'a> {
    pub name: &'a str,
    /// `enum bpf_map_type`.
    pub kind: u32,
    pub key_size: u32,
    pub value_size: u32,
    pub max_entries: u32,
}

/// BTF.
#[derive(Default)]
pub struct Types {
    types: Vec<u8>,
    count: u32,
    strings: Vec<u8>,
    variables: Vec<u32>,
}

impl Types {
    pub fn add(&mut self, name: &str, kind: u32, length: u32, size_or_type: u32, data: &[u32]) -> u32 {
        let name = if name.is_empty() { 0 } else { add_name(&mut self.strings, name) };
        let words = [name, kind << 24 | length, size_or_type];
        self.types.extend(words.iter().chain(data).flat_map(|word| word.to_le_bytes()));
        self.count += 1;
        self.count
    }

    /// `__uint(name, number)`: name and type of a member.
    pub fn number(&mut self, name: &str, number: u32) -> [u32; 2] {
        let int = self.add("int", 1, 0, 4, &[32]);
        let array = self.add("", 3, 0, 0, &[int, int, number]);
        let pointer = self.add("", 2, 0, array, &[]);
        [add_name(&mut self.strings, name), pointer]
    }

    /// A variable of section `.maps`, of a structure with these members.
    pub fn variable(&mut self, name: &str, structure: u32) {
        let variable = self.add(name, 14, 0, structure, &[1]);
        self.variables.push(variable);
    }

    pub fn structure(&mut self, members: &[[u32; 2]]) -> u32 {
        let data: Vec<u32> = members.iter().flat_map(|[name, of]| [*name, *of, 0]).collect();
        self.add("", 4, members.len() as u32, 8 * members.len() as u32, &data)
    }

    pub fn map(&mut self, map: &MapIs) {
        let fields = [
            ("type", map.kind),
            ("key_size", map.key_size),
            ("value_size", map.value_size),
            ("max_entries", map.max_entries),
        ];
        let members = fields.map(|(name, number)| self.number(name, number));
        let structure = self.structure(&members);
        self.variable(map.name, structure);
    }

    pub fn finish(mut self) -> Vec<u8> {
        let variables = std::mem::take(&mut self.variables);
        let data: Vec<u32> = variables.iter().flat_map(|variable| [*variable, 0, 8]).collect();
        self.add(".maps", 15, variables.len() as u32, 0, &data);
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        bytes.extend([24, 0, types, types, strings].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(self.types);
        bytes.extend(self.strings);
        bytes
    }
}
