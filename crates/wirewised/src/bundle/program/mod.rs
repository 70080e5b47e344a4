// SPDX-License-Identifier: Apache-2.0
//! The program of a bundle as the agent reads it. Kernel and engine get an object that is written from this reading (`encode`),
//! never the file: what was inspected is what runs, and what the reading does not know is in neither.

mod elf;
mod link;
mod read;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

use wirewise_engine::btf::{Argument, Definition, Shape};

pub const SLOT: usize = 8;
pub type Slot = [u8; SLOT];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// By section, and in it by place: they fill it.
    pub functions: Vec<Function>,
    /// In the order of the file.
    pub data: Vec<Data>,
    /// By place.
    pub maps: Vec<(String, Definition)>,
}

/// A program, or a function that programs call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub section: &'static str,
    pub name: String,
    /// Whether the kernel verifies it by itself.
    pub global: bool,
    pub returns: Shape,
    pub arguments: Vec<Argument>,
    /// Without what the references say.
    pub slots: Vec<Slot>,
    pub references: BTreeMap<usize, Reference>,
    /// For the verifier's log.
    lines: Lines,
}

/// What a slot means: by the reading's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    Map(usize),
    /// A section of data, and the byte in it.
    Data(usize, u32),
    Function(usize),
}

/// A section that becomes a map of one element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data {
    pub name: String,
    pub bytes: Vec<u8>,
    /// Global ones, by place; without any, user space cannot map the section.
    pub variables: Vec<Variable>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub offset: u32,
    pub size: u32,
}

/// Where the source was, and how it was laid out, is no difference.
#[derive(Debug, Clone)]
struct Lines(Vec<Line>);

impl PartialEq for Lines {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Lines {}

#[derive(Debug, Clone)]
struct Line {
    slot: usize,
    file: Arc<str>,
    text: Arc<str>,
    position: u32,
}
