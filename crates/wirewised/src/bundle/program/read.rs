// SPDX-License-Identifier: Apache-2.0
//! Reads an object whose sections, symbols and byte code `inspection.rs` has accepted.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex, SymbolKind};
use wirewise_engine::btf::{self, Btf};

use super::{Data, Function, Line, Lines, Program, Reference, SLOT, Slot, Variable};
use crate::bundle::elf::{Checked, File, Section, Sections, damaged, data, named};
use crate::bundle::emitted::{BTF, BTF_EXT, FUNCTIONS, LICENSE, MAPS, PROGRAMS, SEAMS, data_bytes};

const CALL: u8 = 0x85;
const OWN_FUNCTION: u8 = 1;
/// Places of the code that name something: a program of a million instructions has some thousands.
const MAX_REFERENCES: usize = 1 << 17;
/// Source lines of a section, and bytes of their texts: with more of them the verifier's log goes without.
const MAX_LINES: usize = 1 << 16;
const MAX_LINE_BYTES: usize = 1 << 20;
pub(super) const LICENSE_TEXT: &[u8] = b"Dual BSD/GPL\0";

impl Program {
    pub fn read(file: &File<'_>, sections: &Sections<'_, '_>) -> Checked<Self> {
        if data(&sections[LICENSE])? != LICENSE_TEXT {
            return Err(format!("has another {LICENSE} than wirewise's"));
        }
        let types = Btf::parse(data(&sections[BTF])?).ok_or("has damaged BTF")?;
        types.check_names()?;
        let mut reader =
            Reader { file, places: HashMap::new(), maps: BTreeMap::new(), starts: BTreeMap::new() };
        let maps = reader.read_maps(&types, &sections[MAPS])?;
        let data = reader.read_data(sections)?;
        let functions = reader.read_functions(sections, &types, self::data(&sections[BTF_EXT])?)?;
        let mut program = Self { functions, data, maps };
        reader.refer(&mut program, sections)?;
        program.check_names()?;
        Ok(program)
    }

    /// No two symbols of one name: others find them by it.
    pub(super) fn check_names(&self) -> Checked {
        let functions = self.functions.iter().map(|function| &function.name);
        let maps = self.maps.iter().map(|(name, _)| name);
        let variables = self.data.iter().flat_map(|data| &data.variables).map(|variable| &variable.name);
        let mut names = BTreeSet::new();
        match functions.chain(maps).chain(variables).find(|name| !names.insert(*name)) {
            Some(twice) => Err(format!("holds the name {twice:?} twice")),
            None => Ok(()),
        }
    }
}

struct Reader<'data, 'file> {
    file: &'file File<'data>,
    /// Sections of data, by their number in the file.
    places: HashMap<SectionIndex, usize>,
    /// Maps by their place.
    maps: BTreeMap<u64, usize>,
    /// Functions by section and first byte.
    starts: BTreeMap<(&'static str, u64), usize>,
}

/// Letters, digits and underscores, as C has them.
fn identifier(name: &str) -> Checked<String> {
    let known = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if (1..=64).contains(&name.len()) && name.chars().all(known) {
        Ok(name.to_owned())
    } else {
        Err(format!("holds the name {name:?}"))
    }
}

fn small(number: u64) -> Checked<u32> {
    u32::try_from(number).map_err(|_| "has a section of more than 4 GiB".to_string())
}

/// Whether others may use the symbol; nothing between that and its own file.
fn is_global(symbol: &object::read::elf::ElfSymbol64<'_, '_, LittleEndian>) -> Checked<bool> {
    let raw = symbol.elf_symbol();
    match (raw.st_bind(), raw.st_visibility()) {
        (object::elf::STB_LOCAL, object::elf::STV_DEFAULT) => Ok(false),
        (object::elf::STB_GLOBAL, object::elf::STV_DEFAULT) => Ok(true),
        (object::elf::STB_WEAK, object::elf::STV_DEFAULT) if SEAMS.contains(&named(symbol.name())?) => {
            Ok(true)
        }
        _ => Err(format!("holds {:?} neither global nor local", named(symbol.name())?)),
    }
}

impl<'data, 'file> Reader<'data, 'file> {
    fn read_maps(
        &mut self,
        types: &Btf<'_>,
        section: &Section<'_, '_>,
    ) -> Checked<Vec<(String, btf::Definition)>> {
        let mut described = types.maps()?;
        let mut symbols = BTreeMap::new();
        for symbol in self.file.symbols().filter(|symbol| symbol.section_index() == Some(section.index())) {
            if symbol.kind() == SymbolKind::Section {
                continue;
            }
            let name = named(symbol.name())?;
            if let Some(other) = symbols.insert(symbol.address(), name) {
                return Err(format!("holds the maps {other:?} and {name:?} in one place"));
            }
            if !is_global(&symbol)? || symbol.kind() != SymbolKind::Data {
                return Err(format!("holds the map {name:?} as something else"));
            }
        }
        let mut maps = Vec::new();
        for (place, name) in symbols {
            let mut map =
                described.remove(name).ok_or(format!("holds the map {name:?} without a description"))?;
            if let Some(stated) = map.offset.filter(|stated| *stated != place) {
                return Err(format!(
                    "holds the map {name:?} at {place} by its symbol, and at {stated} by its types"
                ));
            }
            self.maps.insert(place, maps.len());
            // Nothing and zero are the same.
            map.definition.retain(|_, number| *number != 0);
            if let Some((field, number)) = map.definition.iter().find(|(_, n)| u32::try_from(**n).is_err()) {
                return Err(format!("holds the map {name:?} with {field} {number}"));
            }
            maps.push((identifier(name)?, map.definition));
        }
        match described.keys().next() {
            Some(name) => Err(format!("describes the map {name:?}, which has no symbol")),
            None => Ok(maps),
        }
    }

    fn read_data(&mut self, sections: &Sections<'_, '_>) -> Checked<Vec<Data>> {
        let mut known: Vec<_> = sections.iter().filter(|(name, _)| data_bytes(name).is_some()).collect();
        known.sort_unstable_by_key(|(_, section)| section.index().0);
        let mut all = Vec::new();
        for (name, section) in known.into_iter().filter(|(_, section)| section.size() > 0) {
            let bytes = match *name {
                ".bss" => vec![0; small(section.size())? as usize],
                _ => data(section)?.to_vec(),
            };
            let mut variables = Vec::new();
            for symbol in self.file.symbols().filter(|s| s.section_index() == Some(section.index())) {
                if symbol.kind() != SymbolKind::Data || !is_global(&symbol)? {
                    continue;
                }
                let name = identifier(named(symbol.name())?)?;
                let (offset, size) = (small(symbol.address())?, small(symbol.size())?);
                variables.push(Variable { name, offset, size });
            }
            variables.sort_unstable_by_key(|variable| variable.offset);
            let mut free = 0;
            for Variable { name: variable, offset, size } in &variables {
                let end =
                    offset.checked_add(*size).filter(|end| *offset >= free && *end as usize <= bytes.len());
                let end = end.filter(|_| *size > 0);
                free =
                    end.ok_or(format!("holds the variable {variable:?} outside of its place in {name:?}"))?;
            }
            self.places.insert(section.index(), all.len());
            all.push(Data { name: (*name).to_owned(), bytes, variables });
        }
        Ok(all)
    }

    fn read_functions(
        &mut self,
        sections: &Sections<'_, '_>,
        types: &Btf<'_>,
        ext: &[u8],
    ) -> Checked<Vec<Function>> {
        let (mut described, lines) = (types.functions(ext)?, types.lines(ext)?);
        let mut texts = Texts::default();
        let mut all = Vec::new();
        for name in [FUNCTIONS, PROGRAMS] {
            let Some(section) = sections.get(name).filter(|section| section.size() > 0) else { continue };
            let (slots, _) = data(section)?.as_chunks::<SLOT>();
            let mut described = described.remove(name).unwrap_or_default();
            let mut symbols: Vec<_> = self
                .file
                .symbols()
                .filter(|s| s.section_index() == Some(section.index()) && s.kind() == SymbolKind::Text)
                .collect();
            symbols.sort_unstable_by_key(|symbol| symbol.address());
            let mut next = 0;
            for symbol in &symbols {
                let function = named(symbol.name())?;
                let global = is_global(symbol)?;
                let code = usize::try_from(symbol.size() / SLOT as u64).ok().and_then(|count| {
                    let whole = symbol.address() == (next * SLOT) as u64
                        && symbol.size().is_multiple_of(SLOT as u64)
                        && count > 0;
                    slots.get(next..next.checked_add(count)?).filter(|_| whole)
                });
                let code =
                    code.ok_or(format!("holds code before or in {function:?} that is no function's"))?;
                let stated = described.remove(&small(symbol.address())?);
                let stated = stated.filter(|stated| stated.name == function && stated.global == global);
                let stated = stated.ok_or(format!("describes another function where {function:?} is"))?;
                self.starts.insert((name, symbol.address()), all.len());
                let first = next;
                next += code.len();
                all.push(Function {
                    section: name,
                    name: identifier(function)?,
                    global,
                    returns: stated.returns,
                    arguments: stated.arguments,
                    slots: code.to_vec(),
                    references: BTreeMap::new(),
                    lines: own_lines(types, lines.get(name), first, next, &mut texts),
                });
            }
            if next != slots.len() || !described.is_empty() {
                return Err(format!("holds code in section {name:?} that is no function's"));
            }
        }
        match described.keys().next() {
            Some(other) => Err(format!("describes functions of section {other:?}")),
            None => Ok(all),
        }
    }

    /// Replaces what relocations and relative calls mean by references.
    fn refer(&self, program: &mut Program, sections: &Sections<'_, '_>) -> Checked {
        let mut targets: BTreeMap<(&'static str, u64), (SectionIndex, u64)> = BTreeMap::new();
        for name in [FUNCTIONS, PROGRAMS] {
            for (offset, relocation) in sections.get(name).iter().flat_map(|section| section.relocations()) {
                let RelocationTarget::Symbol(symbol) = relocation.target() else {
                    return Err(format!("a relocation in section {name:?} has no symbol"));
                };
                let symbol = self.file.symbol_by_index(symbol).map_err(damaged)?;
                let section = symbol.section_index().ok_or("needs a symbol from outside (extern)")?;
                if targets.insert((name, offset), (section, symbol.address())).is_some() {
                    return Err(format!("relocates byte {offset} of section {name:?} twice"));
                }
                if targets.len() > MAX_REFERENCES {
                    return Err(format!("has more than {MAX_REFERENCES} relocations of its code"));
                }
            }
        }
        let text = sections.get(FUNCTIONS).map(|section| section.index());
        let maps = sections[MAPS].index();
        let starts = self.starts.iter().map(|(&(section, start), &index)| (index, section, start));
        for (index, section, start) in starts {
            let mut at = 0;
            while let Some(&slot) = program.functions[index].slots.get(at) {
                let here = start + (at * SLOT) as u64;
                let target = targets.remove(&(section, here));
                let wrong = || format!("section {section:?} means something unknown at byte {here}");
                let wide = slot[0] == 0x18;
                let own_call = slot[0] == CALL && slot[1] >> 4 == OWN_FUNCTION;
                let reference = match target {
                    Some((place, address)) if own_call && Some(place) == text => {
                        Some(self.callee(i128::from(address) + 8 * (i128::from(immediate(slot)) + 1)))
                    }
                    None if own_call && section == FUNCTIONS => {
                        Some(self.callee(i128::from(here) + 8 * (i128::from(immediate(slot)) + 1)))
                    }
                    Some((place, address)) if wide && place == maps && immediate(slot) == 0 => {
                        Some(self.maps.get(&address).map(|map| Reference::Map(*map)))
                    }
                    Some((place, address)) if wide => Some(self.places.get(&place).and_then(|&data| {
                        let byte = i64::try_from(address).ok()?.checked_add(immediate(slot).into())?;
                        let size = program.data[data].bytes.len();
                        let byte = u32::try_from(byte).ok().filter(|byte| (*byte as usize) < size)?;
                        Some(Reference::Data(data, byte))
                    })),
                    None if !own_call => None,
                    _ => return Err(wrong()),
                };
                let function = &mut program.functions[index];
                if let Some(reference) = reference {
                    function.references.insert(at, reference.ok_or_else(wrong)?);
                    // What a reference says is said once.
                    function.slots[at][4..].fill(0);
                    if wide {
                        let second = function.slots.get_mut(at + 1).ok_or_else(wrong)?;
                        if second[4..] != [0; 4] {
                            return Err(wrong());
                        }
                    }
                }
                at += if wide { 2 } else { 1 };
            }
            if at != program.functions[index].slots.len() {
                return Err(format!("holds half an instruction in {:?}", program.functions[index].name));
            }
        }
        match targets.keys().next() {
            Some((section, offset)) => {
                Err(format!("section {section:?} is relocated at {offset}, where no instruction is"))
            }
            None => Ok(()),
        }
    }

    fn callee(&self, byte: i128) -> Option<Reference> {
        let start = u64::try_from(byte).ok()?;
        self.starts.get(&(FUNCTIONS, start)).map(|function| Reference::Function(*function))
    }
}

fn immediate(slot: Slot) -> i32 {
    let [_, _, _, _, a, b, c, d] = slot;
    i32::from_le_bytes([a, b, c, d])
}

/// Texts of source lines, each once.
#[derive(Default)]
struct Texts {
    known: HashSet<Arc<str>>,
    bytes: usize,
}

impl Texts {
    /// `None`: there are too many.
    fn keep(&mut self, text: &str) -> Option<Arc<str>> {
        if let Some(known) = self.known.get(text) {
            return Some(Arc::clone(known));
        }
        self.bytes += text.len();
        let text = (self.bytes <= MAX_LINE_BYTES).then(|| Arc::from(text))?;
        self.known.insert(Arc::clone(&text));
        Some(text)
    }
}

/// The lines of slots `first..end` of a section, from the function's first slot.
fn own_lines(
    types: &Btf<'_>,
    lines: Option<&Vec<btf::Line>>,
    first: usize,
    end: usize,
    texts: &mut Texts,
) -> Lines {
    let lines = lines.filter(|lines| lines.len() <= MAX_LINES);
    let own = lines.into_iter().flatten().filter_map(|line| {
        let slot = (line.at as usize / SLOT).checked_sub(first).filter(|slot| first + slot < end)?;
        let [file, text] = types.line_texts(line);
        Some(Line { slot, file: texts.keep(&file)?, text: texts.keep(&text)?, position: line.position })
    });
    let mut own: Vec<_> = own.collect();
    // The kernel wants them in order, and one a slot.
    own.sort_by_key(|line| line.slot);
    own.dedup_by_key(|line| line.slot);
    Lines(own)
}
