// SPDX-License-Identifier: Apache-2.0
//! The types of a program, written anew: maps as numbers, functions as the kernel verifies them, variables as bytes.

use std::collections::HashMap;

use wirewise_engine::btf::Shape;

use super::{Function, Program, SLOT};
use crate::bundle::emitted::{FUNCTIONS, MAPS, PROGRAMS};

const INT: u32 = 1;
const PTR: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const VAR: u32 = 14;
const DATASEC: u32 = 15;
const DECL_TAG: u32 = 17;
const GLOBAL: u32 = 1;
const POINTER_BYTES: u32 = 8;
/// Bytes that a map's description takes in its section, for a field.
pub const FIELD_BYTES: u32 = POINTER_BYTES;

/// Kind, name, count, size or type, and what follows.
type Key = (u32, u32, u32, u32, Vec<u32>);

#[derive(Default)]
struct Writer {
    types: Vec<u32>,
    known: HashMap<Key, u32>,
    strings: Vec<u8>,
    names: HashMap<String, u32>,
}

impl Writer {
    fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        if let Some(known) = self.names.get(name) {
            return *known;
        }
        // The empty name comes first.
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        let at = self.strings.len() as u32;
        self.strings.extend(name.bytes().chain([0]));
        self.names.insert(name.to_owned(), at);
        at
    }

    /// The number of a type, which is new unless an equal one is there.
    fn add(&mut self, kind: u32, name: &str, count: u32, size_or_type: u32, rest: &[u32]) -> u32 {
        let name = self.name(name);
        let next = self.known.len() as u32 + 1;
        let key = (kind, name, count, size_or_type, rest.to_vec());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        self.known.insert(key, next);
        self.types.extend([name, kind << 24 | count, size_or_type]);
        self.types.extend(rest);
        next
    }

    fn number(&mut self, bytes: u32) -> u32 {
        self.add(INT, &format!("u{}", 8 * bytes), 0, bytes, &[8 * bytes])
    }

    fn array(&mut self, element: u32, count: u32) -> u32 {
        let index = self.number(4);
        self.add(ARRAY, "", 0, 0, &[element, index, count])
    }

    fn shape(&mut self, shape: &Shape) -> u32 {
        match shape {
            Shape::Void => 0,
            Shape::Number(bytes) => self.number(*bytes),
            Shape::Pointer(to) => {
                let to = self.shape(to);
                self.add(PTR, "", 0, to, &[])
            }
            Shape::Structure(name, size) => self.add(STRUCT, name, 0, *size, &[]),
            Shape::Array(element, count) => {
                let element = self.shape(element);
                self.array(element, *count)
            }
        }
    }

    fn function(&mut self, function: &Function) -> u32 {
        let mut arguments = Vec::new();
        for (number, argument) in function.arguments.iter().enumerate() {
            let name = self.name(&format!("a{number}"));
            arguments.extend([name, self.shape(&argument.shape)]);
        }
        let returns = self.shape(&function.returns);
        let prototype = self.add(FUNC_PROTO, "", function.arguments.len() as u32, returns, &arguments);
        let id = self.add(FUNC, &function.name, function.global.into(), prototype, &[]);
        for (number, _) in function.arguments.iter().enumerate().filter(|(_, argument)| argument.context) {
            self.add(DECL_TAG, "arg:ctx", 0, id, &[number as u32]);
        }
        id
    }

    /// A structure of pointers to arrays: the array's length is the field's number.
    fn map(&mut self, fields: &[(&str, u32)]) -> u32 {
        let byte = self.number(1);
        let mut members = Vec::new();
        for ((name, number), place) in fields.iter().zip(0..) {
            let array = self.array(byte, *number);
            let pointer = self.add(PTR, "", 0, array, &[]);
            members.extend([self.name(name), pointer, place * 8 * FIELD_BYTES]);
        }
        let count = fields.len() as u32;
        self.add(STRUCT, "", count, count * FIELD_BYTES, &members)
    }

    fn section(&mut self, name: &str, size: u32, variables: &[(&str, u32, u32, u32)]) {
        let mut entries = Vec::new();
        for (variable, kind, offset, size) in variables {
            entries.extend([self.add(VAR, variable, 0, *kind, &[GLOBAL]), *offset, *size]);
        }
        self.add(DATASEC, name, variables.len() as u32, size, &entries);
    }

    fn btf(&self) -> Vec<u8> {
        let types = 4 * self.types.len() as u32;
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types, types, self.strings.len() as u32].iter().chain(&self.types) {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(&self.strings);
        bytes
    }
}

impl Program {
    /// Fields of a map, with their numbers.
    pub(super) fn fields(&self, map: usize) -> Vec<(&str, u32)> {
        let (_, definition) = &self.maps[map];
        definition.iter().map(|(name, number)| (name.as_str(), *number as u32)).collect()
    }

    /// Where each map is in its section, and at the end the section's size.
    pub(super) fn map_places(&self) -> Vec<u32> {
        let mut places = vec![0];
        for map in 0..self.maps.len() {
            places.push(places[map] + FIELD_BYTES * self.fields(map).len() as u32);
        }
        places
    }

    /// Sections .BTF and .BTF.ext.
    pub(super) fn types(&self) -> (Vec<u8>, Vec<u8>) {
        let mut writer = Writer::default();
        let places = self.map_places();
        let mut maps = Vec::new();
        for (map, (name, _)) in self.maps.iter().enumerate() {
            let fields = self.fields(map);
            maps.push((name.as_str(), writer.map(&fields), places[map], places[map + 1] - places[map]));
        }
        writer.section(MAPS, places[self.maps.len()], &maps);
        for data in self.data.iter().filter(|data| !data.variables.is_empty()) {
            let byte = writer.number(1);
            let mut variables = Vec::new();
            for variable in &data.variables {
                let kind = writer.array(byte, variable.size);
                variables.push((variable.name.as_str(), kind, variable.offset, variable.size));
            }
            writer.section(&data.name, data.bytes.len() as u32, &variables);
        }
        let ids: Vec<_> = self.functions.iter().map(|function| writer.function(function)).collect();
        let (mut functions, mut lines) = (vec![8], vec![16]);
        for section in [FUNCTIONS, PROGRAMS] {
            let name = writer.name(section);
            let (mut start, mut own, mut own_lines) = (0, Vec::new(), Vec::new());
            for (function, id) in self.functions.iter().zip(&ids).filter(|(f, _)| f.section == section) {
                own.extend([start, *id]);
                for line in &function.lines.0 {
                    let at = start + (line.slot * SLOT) as u32;
                    own_lines.extend([at, writer.name(&line.file), writer.name(&line.text), line.position]);
                }
                start += (function.slots.len() * SLOT) as u32;
            }
            for (to, own, words) in [(&mut functions, own, 2), (&mut lines, own_lines, 4)] {
                if !own.is_empty() {
                    to.extend([name, (own.len() / words) as u32]);
                    to.extend(own);
                }
            }
        }
        if lines.len() == 1 {
            lines.clear();
        }
        let lengths = [functions.len() as u32 * 4, lines.len() as u32 * 4];
        let header = [32, 0, lengths[0], lengths[0], lengths[1], lengths[0] + lengths[1], 0];
        let words = header.into_iter().chain(functions).chain(lines);
        let ext = [0x9f, 0xeb, 1, 0].into_iter().chain(words.flat_map(u32::to_le_bytes)).collect();
        (writer.btf(), ext)
    }
}
