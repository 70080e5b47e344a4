// SPDX-License-Identifier: Apache-2.0
//! Objects to alter: where their tables are.

use std::ops::Range;

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use wirewised::bundle::Bundle;
use wirewised::bundle::program::Program;

use crate::common::bundle;

/// An object whose tables can be written to.
#[derive(Clone)]
pub struct Altered(pub Vec<u8>);

/// Fields of a section's header, and of a symbol: first byte and length.
pub const NAME: (usize, usize) = (0, 4);
pub const TYPE: (usize, usize) = (4, 4);
pub const FLAGS: (usize, usize) = (8, 8);
pub const ADDRESS: (usize, usize) = (16, 8);
pub const OFFSET: (usize, usize) = (24, 8);
pub const SIZE: (usize, usize) = (32, 8);
pub const LINK: (usize, usize) = (40, 4);
pub const INFO: (usize, usize) = (44, 4);
pub const KIND: (usize, usize) = (4, 1);
pub const VISIBILITY: (usize, usize) = (5, 1);
pub const SECTION: (usize, usize) = (6, 2);
pub const VALUE: (usize, usize) = (8, 8);
pub const LENGTH: (usize, usize) = (16, 8);

impl Altered {
    pub fn number(&self, at: usize, length: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(&self.0[at..at + length]);
        u64::from_le_bytes(bytes)
    }

    pub fn put(&mut self, at: usize, (place, length): (usize, usize), number: u64) {
        self.0[at + place..at + place + length].copy_from_slice(&number.to_le_bytes()[..length]);
    }

    /// Number of a section.
    pub fn index(&self, section: &str) -> usize {
        object::File::parse(&*self.0).unwrap().section_by_name(section).unwrap().index().0
    }

    /// Where a section's header begins.
    pub fn header(&self, section: &str) -> usize {
        self.number(40, 8) as usize + 64 * self.index(section)
    }

    pub fn section(&self, name: &str) -> Range<usize> {
        let header = self.header(name);
        let start = self.number(header + OFFSET.0, 8) as usize;
        start..start + self.number(header + SIZE.0, 8) as usize
    }

    pub fn set(&mut self, section: &str, field: (usize, usize), number: u64) {
        let header = self.header(section);
        self.put(header, field, number);
    }

    /// Other content for a section, at the end of the file.
    pub fn replace(&mut self, section: &str, content: &[u8]) {
        let (header, end) = (self.header(section), self.0.len().next_multiple_of(8));
        self.0.resize(end, 0);
        self.0.extend(content);
        self.put(header, OFFSET, end as u64);
        self.put(header, SIZE, content.len() as u64);
    }

    /// A name of its own at the end of the string table, whose other names share endings.
    pub fn name(&mut self, text: &str) -> u64 {
        let mut names = self.0[self.section(".strtab")].to_vec();
        let place = names.len() as u64;
        names.extend(text.bytes().chain([0]));
        self.replace(".strtab", &names);
        place
    }

    pub fn rename(&mut self, section: &str, text: &str) {
        let name = self.name(text);
        self.set(section, NAME, name);
    }

    /// Number of a symbol.
    pub fn symbol_index(&self, name: &str) -> usize {
        object::File::parse(&*self.0).unwrap().symbol_by_name(name).unwrap().index().0
    }

    /// Where a symbol is.
    pub fn symbol(&self, name: &str) -> usize {
        self.section(".symtab").start + 24 * self.symbol_index(name)
    }

    pub fn set_symbol(&mut self, symbol: &str, field: (usize, usize), number: u64) {
        let at = self.symbol(symbol);
        self.put(at, field, number);
    }

    /// The first instruction of a code, in the section of programs.
    pub fn instruction(&self, code: u8) -> usize {
        let section = self.section("xdp");
        section.clone().step_by(8).find(|at| self.0[*at] == code).unwrap()
    }

    pub fn relocation(&self, number: usize) -> usize {
        self.section(".relxdp").start + 16 * number
    }

    /// The first place of a name among the strings of the types.
    pub fn string(&self, text: &str) -> u64 {
        let strings = &self.0[self.btf().1];
        let text = [b"\0", text.as_bytes(), b"\0"].concat();
        strings.windows(text.len()).position(|part| part == text).unwrap() as u64 + 1
    }

    /// Types and strings.
    pub fn btf(&self) -> (Range<usize>, Range<usize>) {
        let start = self.section(".BTF").start;
        let word = |at: usize| self.number(start + at, 4) as usize;
        let part = |at: usize| start + word(4) + word(at)..start + word(4) + word(at) + word(at + 4);
        (part(8), part(16))
    }

    /// Where the types of a kind are, with their names.
    pub fn types(&self, wanted: u64) -> Vec<(usize, String)> {
        let (types, strings) = self.btf();
        let (mut at, mut found) = (types.start, Vec::new());
        while at < types.end {
            let info = self.number(at + 4, 4);
            let (kind, count) = (info >> 24 & 31, (info & 0xffff) as usize);
            if kind == wanted {
                let name = &self.0[strings.start + self.number(at, 4) as usize..];
                let end = name.iter().position(|byte| *byte == 0).unwrap();
                found.push((at, String::from_utf8(name[..end].to_vec()).unwrap()));
            }
            at += 12
                + match kind {
                    1 | 14 | 17 => 4,
                    3 => 12,
                    4 | 5 | 15 | 19 => 12 * count,
                    6 | 13 => 8 * count,
                    _ => 0,
                };
        }
        found
    }

    pub fn data_section(&self, name: &str) -> usize {
        self.types(15).iter().find(|(_, found)| found == name).unwrap().0
    }

    /// Where the members of a map's structure are.
    pub fn map(&self, name: &str) -> usize {
        let variable = self.types(14).into_iter().find(|(_, found)| found == name).unwrap().0;
        self.type_at(self.number(variable + 8, 4)) + 12
    }

    /// Where a type is.
    pub fn type_at(&self, id: u64) -> usize {
        let all = (1..20).flat_map(|kind| self.types(kind)).map(|(at, _)| at);
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all[id as usize - 1]
    }

    /// Of `.BTF.ext`: where the functions' records, or those of lines, begin behind their size.
    pub fn ext(&self, place: usize) -> usize {
        let start = self.section(".BTF.ext").start;
        start + (self.number(start + 4, 4) + self.number(start + place, 4)) as usize + 4
    }

    pub fn function(&self, name: &str) -> usize {
        self.types(12).into_iter().find(|(_, found)| found == name).unwrap().0
    }

    /// A name of its own among the strings of the types, which are last in their section.
    pub fn btf_name(&mut self, text: &str) -> u64 {
        let (_, strings) = self.btf();
        let section = self.section(".BTF");
        assert_eq!(strings.end, section.end);
        let place = strings.len() as u64;
        let mut content = self.0[section].to_vec();
        content.extend(text.bytes().chain([0]));
        self.replace(".BTF", &content);
        self.put(self.section(".BTF").start, (20, 4), place + text.len() as u64 + 1);
        place
    }

    pub fn name_member(&mut self, map: &str, member: usize, text: &str) {
        let name = self.btf_name(text);
        self.put(self.map(map) + 12 * member, (0, 4), name);
    }

    pub fn read(&self) -> Result<Program, String> {
        Bundle::from_bytes(&bundle(&self.0)).unwrap().program()
    }
}
