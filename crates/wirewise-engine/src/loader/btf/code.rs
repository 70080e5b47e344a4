// SPDX-License-Identifier: Apache-2.0
//! Functions and source lines, as `.BTF.ext` connects code with types.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ARRAY, Btf, CONST, DECL_TAG, ENUM, ENUM64, FUNC_PROTO, INT, MAX_BYTES, MAX_DEPTH, PTR, RESTRICT, STRUCT,
    TYPE_TAG, TYPEDEF, Type, VOLATILE, header, part, word,
};
use crate::limits;

/// A section's name, and what `.BTF.ext` has of it.
type Records<'a> = (String, Vec<&'a [u8]>);

/// Sections of code; wirewise's have two.
const MAX_SECTIONS: usize = 256;
/// Of a function: what registers hold.
const MAX_ARGUMENTS: usize = 5;
/// Pointers and arrays in each other, in a function's arguments.
const MAX_SHAPE_DEPTH: u32 = 8;

/// A function as the types describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Whether the kernel verifies it by itself, by its types alone.
    pub global: bool,
    /// What it returns.
    pub returns: Shape,
    /// What it takes.
    pub arguments: Vec<Argument>,
}

/// An argument of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// Its type.
    pub shape: Shape,
    /// Whether it is the context of the program (`arg:ctx`).
    pub context: bool,
}

/// As much of a type as the kernel asks for in a function's arguments and result.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Shape {
    /// `void`.
    Void,
    /// A number of so many bytes.
    Number(u32),
    /// A pointer.
    Pointer(Box<Shape>),
    /// A structure's name and size; its members do not matter.
    Structure(String, u32),
    /// So many of them.
    Array(Box<Shape>, u32),
}

/// A line of the source that some code was made of: where its text is among the strings, and line and column in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// First byte of the code in its section.
    pub at: u32,
    file: u32,
    text: u32,
    /// Line and column.
    pub position: u32,
}

impl<'a> Btf<'a> {
    /// The functions of each section of code, by where they begin in it, as `.BTF.ext` names their types.
    ///
    /// # Errors
    /// Says what cannot be read, or is not one of C's functions.
    pub fn functions(&self, ext: &[u8]) -> Result<BTreeMap<String, BTreeMap<u32, Function>>, String> {
        const FUNC_INFO_AT: usize = 8;
        let contexts = self.contexts()?;
        let mut sections = BTreeMap::new();
        let sections_of_code = self.records(ext, FUNC_INFO_AT).ok_or("damaged BTF")?;
        if sections_of_code.iter().map(|(_, records)| records.len()).sum::<usize>() > limits::FUNCTIONS {
            return Err(format!("describes more than {} functions", limits::FUNCTIONS));
        }
        for (section, records) in sections_of_code {
            let mut functions = BTreeMap::new();
            for record in records {
                let (at, id) = word(record, 0).zip(word(record, 4)).ok_or("damaged BTF")?;
                let function = self.function(id, &contexts).ok_or("a function without readable types")?;
                if functions.insert(at, function).is_some() {
                    return Err(format!("describes two functions at {at} of section {section:?}"));
                }
            }
            if sections.insert(section.clone(), functions).is_some() {
                return Err(format!("describes the functions of section {section:?} twice"));
            }
        }
        Ok(sections)
    }

    /// The source lines of each section of code.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn lines(&self, ext: &[u8]) -> Result<BTreeMap<String, Vec<Line>>, String> {
        const LINE_INFO_AT: usize = 16;
        let line = |record: &[u8]| {
            let [at, file, text, position] = [0, 4, 8, 12].map(|at| word(record, at));
            Some(Line { at: at?, file: file?, text: text?, position: position? })
        };
        let mut sections = BTreeMap::new();
        for (section, records) in self.records(ext, LINE_INFO_AT).ok_or("damaged BTF")? {
            let lines: Option<Vec<_>> = records.into_iter().map(line).collect();
            if sections.insert(section.clone(), lines.ok_or("damaged BTF")?).is_some() {
                return Err(format!("describes the lines of section {section:?} twice"));
            }
        }
        Ok(sections)
    }

    /// File and text of a line, for people: cut where they are long, and without what a terminal would take for a command.
    pub fn line_texts(&self, line: &Line) -> [String; 2] {
        const MOST: usize = 240;
        [line.file, line.text].map(|offset| {
            let bytes = self.strings.get(offset as usize..).unwrap_or_default();
            let bytes = &bytes
                [..bytes.iter().take(MOST).position(|byte| *byte == 0).unwrap_or(MOST.min(bytes.len()))];
            let shown = |c: char| if c.is_control() { ' ' } else { c };
            String::from_utf8_lossy(bytes).chars().map(shown).collect()
        })
    }

    /// What `.BTF.ext` has of each section, from the offset and length at a place of its header.
    fn records<'b>(&self, ext: &'b [u8], place: usize) -> Option<Vec<Records<'b>>> {
        (ext.len() <= MAX_BYTES).then_some(())?;
        let part = part(ext, header(ext)?, place)?;
        let mut all = Vec::new();
        if part.is_empty() {
            return Some(all);
        }
        let size = word(part, 0)? as usize;
        (8..=256).contains(&size).then_some(())?;
        let mut rest = &part[4..];
        while !rest.is_empty() {
            (all.len() < MAX_SECTIONS).then_some(())?;
            let (name, count) = (self.string(word(rest, 0)?)?, word(rest, 4)? as usize);
            let length = count.checked_mul(size)?;
            let records = rest.get(8..)?.get(..length)?;
            all.push((name.to_owned(), records.chunks_exact(size).collect()));
            rest = &rest[8 + length..];
        }
        Some(all)
    }

    /// Which arguments of which functions are the context.
    fn contexts(&self) -> Result<BTreeSet<(u32, u32)>, String> {
        let mut contexts = BTreeSet::new();
        for tag in self.types.iter().filter(|found| found.kind() == DECL_TAG) {
            match (self.string(tag.name), word(tag.data, 0)) {
                (Some("arg:ctx"), Some(argument)) => contexts.insert((tag.size_or_type, argument)),
                (name, _) => return Err(format!("has the tag {:?}", name.unwrap_or("?"))),
            };
        }
        Ok(contexts)
    }

    fn function(&self, id: u32, contexts: &BTreeSet<(u32, u32)>) -> Option<Function> {
        const FUNC: u32 = 12;
        const GLOBAL: u32 = 1;
        let function = self.get(id).filter(|found| found.kind() == FUNC)?;
        let prototype = self.get(function.size_or_type).filter(|found| found.kind() == FUNC_PROTO)?;
        let mut arguments = Vec::new();
        for (argument, number) in prototype.data.chunks_exact(8).zip(0..) {
            let shape = self.shape(word(argument, 4)?, 0).filter(|shape| *shape != Shape::Void)?;
            arguments.push(Argument { shape, context: contexts.contains(&(id, number)) });
        }
        let linkage = function.info & 0xffff;
        (linkage <= GLOBAL && arguments.len() <= MAX_ARGUMENTS).then_some(())?;
        Some(Function {
            name: self.string(function.name)?.to_owned(),
            global: linkage == GLOBAL,
            returns: self.shape(prototype.size_or_type, 0)?,
            arguments,
        })
    }

    fn shape(&self, id: u32, depth: u32) -> Option<Shape> {
        // Types refer to themselves through pointers, too.
        (depth < MAX_SHAPE_DEPTH).then_some(())?;
        let Some(found) = self.unqualified(id)? else { return Some(Shape::Void) };
        Some(match found.kind() {
            INT | ENUM | ENUM64 if matches!(found.size_or_type, 1 | 2 | 4 | 8) => {
                Shape::Number(found.size_or_type)
            }
            PTR => Shape::Pointer(Box::new(self.shape(found.size_or_type, depth + 1)?)),
            STRUCT => Shape::Structure(self.string(found.name)?.to_owned(), found.size_or_type),
            ARRAY => {
                let element = self.shape(word(found.data, 0)?, depth + 1)?;
                Shape::Array(Box::new(element), word(found.data, 8)?)
            }
            _ => return None,
        })
    }

    /// As `resolve`; `Some(None)` is void.
    fn unqualified(&self, mut id: u32) -> Option<Option<&Type<'a>>> {
        for _ in 0..MAX_DEPTH {
            if id == 0 {
                return Some(None);
            }
            let found = self.get(id)?;
            match found.kind() {
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => id = found.size_or_type,
                _ => return Some(Some(found)),
            }
        }
        None
    }
}
