// SPDX-License-Identifier: Apache-2.0
//! Links an object file in user space, as libbpf does before it asks the kernel: the same order of maps and subprograms, so
//! that both ways give the same byte code.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use object::elf::{R_BPF_64_32, R_BPF_64_64};
use object::{
    Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags, SectionIndex,
    SectionKind, SymbolKind, SymbolSection,
};

use super::btf::{self, Btf, Definition};
use crate::error::Error;
use crate::insn::{self, INSN_BYTES, Insn};
use crate::limits;
use crate::linked::{Linked, LinkedProgram, MapKind, MapSpec};

const EM_BPF: object::Architecture = object::Architecture::Bpf;
fn refuse<T>(why: impl Into<String>) -> Result<T, Error> {
    Err(Error::Object(why.into()))
}

fn damaged(error: object::Error) -> Error {
    Error::Object(format!("damaged: {error}"))
}

/// A name of the object, of at most a name's length.
fn name(name: object::Result<&str>) -> Result<&str, Error> {
    let name = name.map_err(damaged)?;
    if name.len() > limits::NAME_BYTES {
        return refuse(format!(
            "a name in it has {} bytes; at most {} are taken",
            name.len(),
            limits::NAME_BYTES
        ));
    }
    Ok(name)
}

/// Refuses a file that says more than it has bytes for: all that is read from it is then as large as the file at most.
fn check_size(file: &object::File<'_>, bytes: usize) -> Result<(), Error> {
    let sections = file.sections().count();
    if sections > limits::SECTIONS {
        return refuse(format!("it has {sections} sections; at most {} are taken", limits::SECTIONS));
    }
    let symbols = file.symbols().count();
    if symbols > limits::SYMBOLS {
        return refuse(format!("it has {symbols} symbols; at most {} are taken", limits::SYMBOLS));
    }
    let in_file = file.sections().filter_map(|section| section.file_range());
    let sum = in_file.fold(0u64, |sum, (_, size)| sum.saturating_add(size));
    if sum > bytes as u64 {
        return refuse("its sections overlap");
    }
    Ok(())
}

/// A function of the object: a program, or a subprogram in `.text`.
struct Function {
    name: String,
    section: SectionIndex,
    /// First slot in its section.
    start: usize,
    insns: Vec<Insn>,
    /// By slot of the function.
    relocations: BTreeMap<usize, Relocation>,
}

#[derive(Clone)]
enum Relocation {
    Map(usize),
    /// Section data: the map and the symbol's offset in it.
    Data(usize, u64),
    /// A function of `.text`: the symbol's offset in bytes.
    Text(u64),
}

struct Linker<'data> {
    file: object::File<'data>,
    text: Option<SectionIndex>,
    maps: Vec<MapSpec>,
    /// Maps by their symbols' place in `.maps`.
    by_offset: HashMap<u64, usize>,
    maps_section: Option<SectionIndex>,
    /// Maps of global data by section.
    data: HashMap<SectionIndex, usize>,
}

pub(super) fn link(bytes: &[u8]) -> Result<Linked, Error> {
    let file = object::File::parse(bytes).map_err(damaged)?;
    if file.architecture() != EM_BPF || file.kind() != object::ObjectKind::Relocatable {
        return refuse("it is no relocatable ELF file for eBPF (clang --target=bpf -c makes one)");
    }
    if !file.is_little_endian() {
        return refuse("it is for a big-endian machine");
    }
    check_size(&file, bytes.len())?;
    let text = file.section_by_name(".text").map(|section| section.index());
    let mut linker = Linker {
        file,
        text,
        maps: Vec::new(),
        by_offset: HashMap::new(),
        maps_section: None,
        data: HashMap::new(),
    };
    linker.read_maps()?;
    linker.read_data()?;
    let functions = linker.functions()?;
    let is_program = |function: &&Function| Some(function.section) != linker.text || functions.len() == 1;
    let subprograms =
        functions.iter().enumerate().filter(|(_, function)| Some(function.section) == linker.text);
    let subprograms = subprograms.map(|(index, function)| (function.start, index)).collect();
    let (mut programs, mut insns) = (Vec::new(), 0);
    for function in functions.iter().filter(is_program) {
        let section = linker.file.section_by_index(function.section).map_err(damaged)?;
        let section = name(section.name())?.to_owned();
        let program = Program::new(&functions, &subprograms).link(function)?;
        insns += program.len();
        if insns > limits::ALL_INSNS {
            return refuse(format!(
                "its programs, each with the subprograms it calls, have more than {} instructions",
                limits::ALL_INSNS
            ));
        }
        programs.push(LinkedProgram { name: function.name.clone(), section, insns: program });
    }
    if programs.is_empty() {
        return refuse("it holds no program");
    }
    Linked::new(programs, linker.maps)
}

impl Linker<'_> {
    fn read_maps(&mut self) -> Result<(), Error> {
        if self.file.section_by_name("maps").is_some() {
            return refuse("its maps are in the old section \"maps\": declare them with SEC(\".maps\")");
        }
        if let Some(section) = self.file.section_by_name(".BTF.ext")
            && btf::wants_co_re(section.data().map_err(damaged)?)
        {
            return refuse(
                "it needs CO-RE relocation, which depends on the running kernel: load it with libbpf",
            );
        }
        let Some(section) = self.file.section_by_name(".maps") else { return Ok(()) };
        let Some(btf_section) = self.file.section_by_name(".BTF") else {
            return refuse("its maps are described in BTF, which it lacks: compile with -g");
        };
        let Some(btf) = Btf::parse(btf_section.data().map_err(damaged)?) else {
            return refuse("damaged BTF");
        };
        let definitions = btf.maps().map_err(Error::Object)?;
        self.maps_section = Some(section.index());
        // libbpf's order: by place in the section.
        let mut symbols: Vec<(u64, &str)> = Vec::new();
        for symbol in self.file.symbols() {
            if symbol.section_index() == self.maps_section && symbol.kind() != SymbolKind::Section {
                symbols.push((symbol.address(), name(symbol.name())?));
            }
        }
        if symbols.len() > limits::MAPS {
            return refuse(format!("it has {} maps; at most {} are taken", symbols.len(), limits::MAPS));
        }
        symbols.sort_unstable();
        let names: BTreeSet<_> = symbols.iter().map(|(_, name)| *name).collect();
        if (symbols.len(), names.len()) != (definitions.len(), definitions.len()) {
            return refuse("its symbols are not the maps that its types describe, each once");
        }
        for (offset, name) in symbols {
            let Some(btf::Map { definition, offset: stated }) = definitions.get(name) else {
                return refuse(format!("map {name} has no description"));
            };
            // libbpf goes by the types where they have places.
            if stated.is_some_and(|stated| stated != offset) {
                return refuse(format!(
                    "map {name} has one place in the types and another in the symbol table"
                ));
            }
            if self.by_offset.insert(offset, self.maps.len()).is_some() {
                return refuse(format!("map {name} is where another one is"));
            }
            self.maps.push(map_spec(name, definition)?);
        }
        Ok(())
    }

    /// Global data: a map a section.
    fn read_data(&mut self) -> Result<(), Error> {
        for section in self.file.sections() {
            let name = name(section.name())?;
            let is = |kind: &str| {
                name.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            let read_only = is(".rodata");
            if section.size() == 0 || !(read_only || is(".data") || is(".bss")) || !allocated(&section) {
                continue;
            }
            let Ok(size) = u32::try_from(section.size()) else {
                return refuse(format!("{name} is too large"));
            };
            let initial = match section.kind() {
                SectionKind::UninitializedData => None,
                _ => Some(section.data().map_err(damaged)?.to_vec()),
            };
            if section.relocations().next().is_some() {
                return refuse(format!("{name} holds addresses, which only the kernel could fill in"));
            }
            self.data.insert(section.index(), self.maps.len());
            let map = MapSpec::new(name, MapKind::Array, 4, size, 1)?;
            self.maps.push(match initial {
                Some(initial) => map.with_initial(initial, read_only)?,
                None => map,
            });
        }
        Ok(())
    }

    fn functions(&self) -> Result<Vec<Function>, Error> {
        let mut symbols: HashMap<SectionIndex, Vec<(u64, u64, &str)>> = HashMap::new();
        for symbol in self.file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
            if let Some(section) = symbol.section_index() {
                let function = (symbol.address(), symbol.size(), name(symbol.name())?);
                symbols.entry(section).or_default().push(function);
            }
        }
        let mut functions = Vec::new();
        for section in self.file.sections() {
            if section.kind() != SectionKind::Text || section.size() == 0 {
                continue;
            }
            let Some(insns) = Insn::parse(section.data().map_err(damaged)?) else {
                return refuse("a code section is no whole number of instructions");
            };
            let mut relocations = self.relocations(&section)?;
            let mut symbols = symbols.remove(&section.index()).unwrap_or_default();
            symbols.sort_unstable();
            let mut free = 0;
            for (address, size, name) in symbols {
                let Some(slots) = slots(address, size).filter(|slots| slots.end <= insns.len()) else {
                    return refuse(format!("function {name} lies outside its section"));
                };
                if slots.start < free {
                    return refuse(format!("function {name} overlaps the one before"));
                }
                free = slots.end;
                let mut own = relocations.split_off(&slots.start);
                relocations = own.split_off(&slots.end);
                functions.push(Function {
                    name: name.to_owned(),
                    section: section.index(),
                    start: slots.start,
                    insns: insns[slots.clone()].to_vec(),
                    relocations: own
                        .into_iter()
                        .map(|(at, relocation)| (at - slots.start, relocation))
                        .collect(),
                });
                if functions.len() > limits::FUNCTIONS {
                    return refuse(format!("it has more than {} functions", limits::FUNCTIONS));
                }
            }
        }
        Ok(functions)
    }

    fn relocations(&self, section: &object::Section<'_, '_>) -> Result<BTreeMap<usize, Relocation>, Error> {
        let mut all = BTreeMap::new();
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(index) = relocation.target() else {
                return refuse("a relocation without a symbol");
            };
            let symbol = self.file.symbol_by_index(index).map_err(damaged)?;
            let name = name(symbol.name())?;
            let code = match relocation.flags() {
                RelocationFlags::Elf { r_type } => r_type,
                _ => 0,
            };
            let SymbolSection::Section(target) = symbol.section() else {
                return refuse(format!(
                    "{name} is extern: kernel variables, kconfig values and kernel functions exist in the kernel only"
                ));
            };
            let known = if Some(target) == self.maps_section && code == R_BPF_64_64 {
                self.by_offset.get(&symbol.address()).map(|map| Relocation::Map(*map))
            } else if let Some(map) = self.data.get(&target).filter(|_| code == R_BPF_64_64) {
                Some(Relocation::Data(*map, symbol.address()))
            } else if Some(target) == self.text && matches!(code, R_BPF_64_32 | R_BPF_64_64) {
                Some(Relocation::Text(symbol.address()))
            } else {
                None
            };
            let Some(known) = known else {
                return refuse(format!(
                    "a relocation of type {code} against {name}, which is no map, data or function"
                ));
            };
            all.insert((offset / INSN_BYTES as u64) as usize, known);
        }
        Ok(all)
    }
}

/// The slots of a function in its section.
fn slots(address: u64, size: u64) -> Option<Range<usize>> {
    let aligned = [address, size].iter().all(|bytes| bytes.is_multiple_of(INSN_BYTES as u64));
    let end = address.checked_add(size).filter(|_| aligned)?;
    let slot = |at: u64| usize::try_from(at / INSN_BYTES as u64).ok();
    Some(slot(address)?..slot(end)?)
}

fn allocated(section: &object::Section<'_, '_>) -> bool {
    matches!(section.flags(), SectionFlags::Elf { sh_flags } if sh_flags & u64::from(object::elf::SHF_ALLOC) != 0)
}

fn map_spec(name: &str, definition: &Definition) -> Result<MapSpec, Error> {
    let number = |field: &str| {
        let value = definition.get(field).copied().unwrap_or(0);
        u32::try_from(value).map_err(|_| Error::Object(format!("map {name}: {field} is too large")))
    };
    if definition.contains_key("values") {
        return refuse(format!("map {name} has initial values, which the engine does not set"));
    }
    let code = number("type")?;
    let kind = MapKind::from_code(code).ok_or_else(|| Error::Map {
        name: name.to_owned(),
        why: format!("map type {code} (enum bpf_map_type) is not one the engine has"),
    })?;
    let (mut key_size, mut value_size) = (number("key_size")?, number("value_size")?);
    if kind == MapKind::ProgArray {
        (key_size, value_size) = (4, 4);
    }
    MapSpec::new(name, kind, key_size, value_size, number("max_entries")?)
}

/// One program under way: its own code, and that of subprograms in the order they are first met.
struct Program<'a> {
    functions: &'a [Function],
    /// The functions of `.text`, by their first slot there.
    subprograms: &'a HashMap<usize, usize>,
    insns: Vec<Insn>,
    /// Where a function's code begins, by function.
    placed: HashMap<usize, usize>,
}

impl<'a> Program<'a> {
    fn new(functions: &'a [Function], subprograms: &'a HashMap<usize, usize>) -> Self {
        Self { functions, subprograms, insns: Vec::new(), placed: HashMap::new() }
    }

    fn link(mut self, entry: &Function) -> Result<Vec<Insn>, Error> {
        self.insns = resolve(entry)?;
        // Depth first, as libbpf: a function is scanned as soon as it is appended, then its caller goes on. On a stack of our own, as
        // the object decides how deep it goes.
        let mut stack: Vec<(&Function, usize, usize)> = vec![(entry, 0, 0)];
        while let Some((function, start, at)) = stack.pop() {
            let Some(insn) = function.insns.get(at) else { continue };
            let wide = insn.code == insn::LD_IMM64;
            let next = at + if wide { 2 } else { 1 };
            let relocation = function.relocations.get(&at);
            let call = insn.code == insn::CALL && insn.src == insn::PSEUDO_CALL;
            let address = match relocation {
                Some(Relocation::Text(offset)) if call => {
                    Some((i128::from(*offset) / INSN_BYTES as i128) + i128::from(insn.imm) + 1)
                }
                Some(Relocation::Text(offset)) if wide => {
                    Some((i128::from(*offset) + i128::from(insn.imm)) / INSN_BYTES as i128)
                }
                None if call => Some((function.start + at) as i128 + i128::from(insn.imm) + 1),
                _ => None,
            };
            let Some(slot) = address else {
                stack.push((function, start, next));
                continue;
            };
            let callee = usize::try_from(slot).ok().and_then(|slot| self.subprograms.get(&slot).copied());
            let Some(callee) = callee else {
                return refuse(format!("{}: a call to something that is no function", function.name));
            };
            let (placed, first) = match self.placed.get(&callee) {
                Some(placed) => (*placed, false),
                None => (self.insns.len(), true),
            };
            if first {
                self.insns.extend(resolve(&self.functions[callee])?);
                self.placed.insert(callee, placed);
                if self.insns.len() > limits::PROGRAM_INSNS {
                    return refuse(format!(
                        "{} is longer than {} instructions",
                        entry.name,
                        limits::PROGRAM_INSNS
                    ));
                }
            }
            let here = start + at;
            self.insns[here].imm = (placed as i64 - here as i64 - 1) as i32;
            if wide {
                self.insns[here].src = insn::PSEUDO_FUNC;
            }
            stack.push((function, start, next));
            if first {
                stack.push((&self.functions[callee], placed, 0));
            }
        }
        Ok(self.insns)
    }
}

/// A function's code with its maps and data filled in; calls are not.
fn resolve(function: &Function) -> Result<Vec<Insn>, Error> {
    let mut insns = function.insns.clone();
    for (at, relocation) in &function.relocations {
        let (map, src, offset) = match relocation {
            Relocation::Map(map) => (*map, insn::PSEUDO_MAP_IDX, None),
            Relocation::Data(map, offset) => (*map, insn::PSEUDO_MAP_IDX_VALUE, Some(*offset)),
            Relocation::Text(_) => continue,
        };
        let wide = insns[*at].code == insn::LD_IMM64;
        let Some([first, second]) = insns.get_mut(*at..*at + 2).filter(|_| wide) else {
            return refuse(format!("{}: a map in an instruction other than ld_imm64", function.name));
        };
        second.imm = offset.map_or(0, |offset| first.imm.wrapping_add(offset as i32));
        first.src = src;
        first.imm = map as i32;
    }
    Ok(insns)
}
