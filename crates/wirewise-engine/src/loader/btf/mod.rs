// SPDX-License-Identifier: Apache-2.0
//! As much of BTF as describes maps and structures (kernel documentation, bpf/btf).

mod code;

use std::collections::BTreeMap;

use crate::limits;

pub use code::{Argument, Function, Line, Shape};

const MAGIC: u16 = 0xeb9f;
const HEADER_BYTES: usize = 24;

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const FLOAT: u32 = 16;
const DECL_TAG: u32 = 17;
const TYPE_TAG: u32 = 18;
const ENUM64: u32 = 19;

/// Types refer to types; a chain longer than this is a circle.
const MAX_DEPTH: u32 = 32;
/// Of a structure, with those inside it.
const MAX_MEMBERS: u32 = 10_000;
/// Bytes of the names of the structures around a member; bounds how deep they lie, too.
const MAX_PREFIX: usize = 256;
/// Bytes of a name (KSYM_NAME_LEN).
const MAX_NAME: usize = 512;
/// Of a section, .BTF or .BTF.ext.
const MAX_BYTES: usize = 4 << 20;
/// Of a map's description: libbpf knows 15.
const MAX_FIELDS: usize = 64;

/// One type; `data` is what follows its three words.
#[derive(Debug)]
struct Type<'a> {
    name: u32,
    info: u32,
    size_or_type: u32,
    data: &'a [u8],
}

impl Type<'_> {
    fn kind(&self) -> u32 {
        self.info >> 24 & 31
    }
}

/// The types of an object, from its section `.BTF`.
#[derive(Debug)]
pub struct Btf<'a> {
    types: Vec<Type<'a>>,
    strings: &'a [u8],
}

/// A map's description: numbers by name (`type`, `max_entries`, `map_flags`, ...), and sizes of the types of key and value
/// (`key_size`, `value_size`).
pub type Definition = BTreeMap<String, u64>;

/// A map of section `.maps`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    /// What it is.
    pub definition: Definition,
    /// Where the types place it in the section; `None`: clang leaves that to the symbol table.
    pub offset: Option<u64>,
}

/// A member of a structure; offset and size in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name; `outer.inner` of a member of a structure inside the structure.
    pub name: String,
    /// From the structure's start.
    pub offset: u64,
    /// Of its type.
    pub size: u64,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word))
}

/// A part of the bytes behind a header, from its offset and length there.
fn part(bytes: &[u8], header: usize, at: usize) -> Option<&[u8]> {
    let start = header.checked_add(word(bytes, at)? as usize)?;
    bytes.get(start..start.checked_add(word(bytes, at + 4)? as usize)?)
}

fn header(bytes: &[u8]) -> Option<usize> {
    let magic = u16::from_le_bytes(*bytes.first_chunk()?);
    (magic == MAGIC).then_some(())?;
    word(bytes, 4).map(|length| length as usize)
}

/// Whether a `.BTF.ext` section asks for CO-RE relocations.
pub fn wants_co_re(bytes: &[u8]) -> bool {
    const CORE_RELO_LENGTH_AT: usize = 28;
    header(bytes).is_some_and(|length| {
        length >= CORE_RELO_LENGTH_AT + 4 && word(bytes, CORE_RELO_LENGTH_AT).is_some_and(|length| length > 0)
    })
}

impl<'a> Btf<'a> {
    /// `None` if the section is damaged, or far larger than any that clang makes of a data path.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() <= MAX_BYTES).then_some(())?;
        let header = header(bytes)?;
        (header >= HEADER_BYTES).then_some(())?;
        let mut rest = part(bytes, header, 8)?;
        let strings = part(bytes, header, 16)?;
        let mut types = Vec::new();
        while !rest.is_empty() {
            let (name, info, size_or_type) = (word(rest, 0)?, word(rest, 4)?, word(rest, 8)?);
            let count = (info & 0xffff) as usize;
            let length = match info >> 24 & 31 {
                INT | VAR | DECL_TAG => 4,
                ARRAY => 12,
                STRUCT | UNION | DATASEC | ENUM64 => 12 * count,
                ENUM | FUNC_PROTO => 8 * count,
                _ => 0,
            };
            let data = rest.get(12..12 + length)?;
            types.push(Type { name, info, size_or_type, data });
            rest = &rest[12 + length..];
        }
        Some(Self { types, strings })
    }

    fn get(&self, id: u32) -> Option<&Type<'a>> {
        self.types.get((id as usize).checked_sub(1)?)
    }

    fn string(&self, offset: u32) -> Option<&'a str> {
        let bytes = self.strings.get(offset as usize..)?;
        let end = bytes.iter().take(MAX_NAME).position(|byte| *byte == 0)?;
        std::str::from_utf8(&bytes[..end]).ok()
    }

    /// Through names and qualifiers to the type itself.
    fn resolve(&self, id: u32) -> Option<&Type<'a>> {
        let mut found = self.get(id)?;
        for _ in 0..MAX_DEPTH {
            match found.kind() {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => found = self.get(found.size_or_type)?,
                _ => return Some(found),
            }
        }
        None
    }

    fn size(&self, id: u32, depth: u32) -> Option<u64> {
        let found = self.resolve(id)?;
        match found.kind() {
            INT | STRUCT | UNION | ENUM | ENUM64 | FLOAT => Some(found.size_or_type.into()),
            PTR => Some(8),
            ARRAY if depth < MAX_DEPTH => {
                let element = self.size(word(found.data, 0)?, depth + 1)?;
                element.checked_mul(word(found.data, 8)?.into())
            }
            _ => None,
        }
    }

    /// What a pointer points at.
    fn pointee(&self, id: u32) -> Option<u32> {
        let pointer = self.resolve(id)?;
        (pointer.kind() == PTR).then_some(pointer.size_or_type)
    }

    /// `__uint(name, number)` is a pointer to an array of so many elements.
    fn number(&self, id: u32) -> Option<u64> {
        let array = self.resolve(self.pointee(id)?)?;
        (array.kind() == ARRAY).then(|| word(array.data, 8)).flatten().map(u64::from)
    }

    /// The members of the structure of this name, those of structures in it in their place. `None` if there is no such structure, or
    /// one that cannot be read.
    pub fn structure(&self, name: &str) -> Option<Vec<Member>> {
        let is = |found: &&Type<'a>| found.kind() == STRUCT && self.string(found.name) == Some(name);
        let (mut members, mut left) = (Vec::new(), MAX_MEMBERS);
        self.members(self.types.iter().find(is)?, "", 0, &mut left, &mut members)?;
        Some(members)
    }

    /// prefix, offset : of the structure in the one around it. left : members that may still be looked at, for hostile types hold
    /// each other, or others many times over.
    fn members(
        &self,
        of: &Type<'a>,
        prefix: &str,
        offset: u64,
        left: &mut u32,
        to: &mut Vec<Member>,
    ) -> Option<()> {
        // With the kind flag, a bit field's size stands in the upper byte of the offset.
        let bit_fields = of.info >> 31 != 0;
        for member in of.data.chunks_exact(12) {
            let bits = word(member, 8).filter(|bits| bits % 8 == 0 && !(bit_fields && bits >> 24 != 0))?;
            let (name, id) = (format!("{prefix}{}", self.string(word(member, 0)?)?), word(member, 4)?);
            let offset = offset + u64::from(bits / 8);
            *left = left.checked_sub(1)?;
            match self.resolve(id)? {
                inner if inner.kind() == STRUCT => {
                    (prefix.len() < MAX_PREFIX).then_some(())?;
                    self.members(inner, &format!("{name}."), offset, left, to)?;
                }
                _ => to.push(Member { name, offset, size: self.size(id, 0)? }),
            }
        }
        Some(())
    }

    /// Refuses names that are not printable ASCII, and kinds of types that clang does not make of C.
    ///
    /// # Errors
    /// Names the first.
    pub fn check_names(&self) -> Result<(), String> {
        for found in &self.types {
            let (names, step) = match found.kind() {
                STRUCT | UNION | ENUM64 => (found.data, 12),
                ENUM | FUNC_PROTO => (found.data, 8),
                INT..=ENUM64 => (&[][..], 12),
                kind => return Err(format!("holds types of kind {kind}")),
            };
            let members = names.chunks_exact(step).filter_map(|member| word(member, 0));
            for offset in members.chain([found.name]) {
                let plain = |name: &&str| name.bytes().all(|byte| matches!(byte, b' '..=b'~'));
                if self.string(offset).filter(plain).is_none() {
                    let bytes = self.strings.get(offset as usize..).unwrap_or_default();
                    let name: Vec<_> = bytes.iter().copied().take(64).take_while(|byte| *byte != 0).collect();
                    return Err(format!("holds a type with the name {:?}", String::from_utf8_lossy(&name)));
                }
            }
        }
        Ok(())
    }

    /// The maps of section `.maps`, by name.
    ///
    /// # Errors
    /// Names the map that cannot be read, or that stands twice; or there are too many.
    pub fn maps(&self) -> Result<BTreeMap<String, Map>, String> {
        let is = |found: &&Type<'_>| found.kind() == DATASEC && self.string(found.name) == Some(".maps");
        let mut sections = self.types.iter().filter(is);
        let mut maps = BTreeMap::new();
        let Some(section) = sections.next() else { return Ok(maps) };
        if sections.next().is_some() {
            return Err("describes the section \".maps\" twice".to_owned());
        }
        // libbpf fills in the offsets where there is no size.
        let placed = section.size_or_type != 0;
        for entry in section.data.chunks_exact(12) {
            let variable = word(entry, 0).and_then(|id| self.get(id)).filter(|found| found.kind() == VAR);
            let variable = variable.ok_or("damaged BTF")?;
            let name = self.string(variable.name).ok_or("damaged BTF")?;
            let definition = self.definition(variable.size_or_type);
            let definition = definition.ok_or(format!("map {name} has no readable description"))?;
            let offset = word(entry, 4).filter(|_| placed).map(u64::from);
            if maps.insert(name.to_owned(), Map { definition, offset }).is_some() {
                return Err(format!("map {name} stands twice"));
            }
            if maps.len() > limits::MAPS {
                return Err(format!("more than {} maps", limits::MAPS));
            }
        }
        Ok(maps)
    }

    fn definition(&self, id: u32) -> Option<Definition> {
        let found = self.resolve(id)?;
        (found.kind() == STRUCT && found.data.len() <= 12 * MAX_FIELDS).then_some(())?;
        let mut definition = Definition::new();
        for member in found.data.chunks_exact(12) {
            let (name, id) = (self.string(word(member, 0)?)?, word(member, 4)?);
            let (name, number) = match name {
                "key" | "value" => (format!("{name}_size"), self.size(self.pointee(id)?, 0)?),
                "values" => (name.to_owned(), 1),
                _ => (name.to_owned(), self.number(id)?),
            };
            // Of two, others might take the other one.
            if definition.insert(name, number).is_some() {
                return None;
            }
        }
        Some(definition)
    }
}
