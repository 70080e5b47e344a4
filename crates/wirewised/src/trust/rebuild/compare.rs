// SPDX-License-Identifier: Apache-2.0
//! What of an object decides what it does: code, data, maps. Not where its source lines were, nor how its types are described
//! beyond the maps.

use std::collections::BTreeMap;

use object::read::elf::{ElfFile64, SectionHeader};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SymbolKind,
};
use wirewise_engine::btf::{Btf, Definition};

const INSTRUCTION: usize = 8;

/// Which name, place in its section, and section a relocation means; and its type.
type Relocations = BTreeMap<u64, (String, u64, String, u32)>;

/// A section that is loaded: its bytes, or how many zeros it is.
#[derive(Debug, PartialEq, Eq)]
struct Loaded {
    bytes: Vec<u8>,
    size: u64,
    code: bool,
}

#[derive(Debug)]
pub struct Content {
    sections: BTreeMap<String, Loaded>,
    /// By section and place.
    functions: BTreeMap<(String, u64), (String, u64)>,
    relocations: BTreeMap<String, Relocations>,
    maps: BTreeMap<String, Definition>,
}

impl Content {
    pub fn of(bytes: &[u8]) -> Result<Self, String> {
        Self::read(bytes).map_err(|error| format!("is damaged: {error}"))
    }

    fn read(bytes: &[u8]) -> Result<Self, Box<dyn std::error::Error>> {
        let file = ElfFile64::<LittleEndian>::parse(bytes)?;
        let mut content = Self {
            sections: BTreeMap::new(),
            functions: BTreeMap::new(),
            relocations: BTreeMap::new(),
            maps: BTreeMap::new(),
        };
        for section in file.sections() {
            let name = section.name()?.to_string();
            let flags = section.elf_section_header().sh_flags(LittleEndian);
            if flags & u64::from(object::elf::SHF_ALLOC) == 0 || section.size() == 0 {
                continue;
            }
            let code = flags & u64::from(object::elf::SHF_EXECINSTR) != 0;
            let mut relocations = Relocations::new();
            for (offset, relocation) in section.relocations() {
                let RelocationTarget::Symbol(index) = relocation.target() else { continue };
                let symbol = file.symbol_by_index(index)?;
                let place = symbol.section_index().map(|index| file.section_by_index(index)).transpose()?;
                let place = place.map(|place| place.name().map(str::to_string)).transpose()?;
                let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
                let target =
                    (symbol.name()?.to_string(), symbol.address(), place.unwrap_or_default(), r_type);
                relocations.insert(offset, target);
            }
            content.relocations.insert(name.clone(), relocations);
            let loaded = Loaded { bytes: section.data()?.to_vec(), size: section.size(), code };
            content.sections.insert(name, loaded);
        }
        for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text) {
            let Some(section) = symbol.section_index() else { continue };
            let section = file.section_by_index(section)?.name()?.to_string();
            let function = (symbol.name()?.to_string(), symbol.size());
            content.functions.insert((section, symbol.address()), function);
        }
        if let Some(types) = file.section_by_name(".BTF") {
            content.maps = Btf::parse(types.data()?).ok_or("BTF")?.maps()?;
        }
        Ok(content)
    }

    /// The first thing in which they differ, with the number of instructions that are the same before it.
    pub fn difference(&self, other: &Self) -> Option<(usize, String)> {
        let mut same = 0;
        for (name, section) in self.sections.iter().filter(|(_, section)| section.code) {
            let Some(theirs) = other.sections.get(name) else {
                return Some((same, format!("there is code in section {name} in the bundle only")));
            };
            let (one, _) = section.bytes.as_chunks::<INSTRUCTION>();
            let (two, _) = theirs.bytes.as_chunks::<INSTRUCTION>();
            let relocation = |of: &Self, at: usize| {
                of.relocations.get(name).and_then(|all| all.get(&((at * INSTRUCTION) as u64))).cloned()
            };
            for at in 0..one.len().max(two.len()) {
                let equal = one.get(at) == two.get(at) && relocation(self, at) == relocation(other, at);
                if !equal {
                    let text = format!(
                        "{} is {} in the bundle and {} compiled again",
                        self.place(name, at),
                        describe(one.get(at), relocation(self, at)),
                        describe(two.get(at), relocation(other, at)),
                    );
                    return Some((same + at, text));
                }
            }
            same += one.len();
        }
        if self.functions != other.functions {
            return Some((same, "the functions have other names or borders".to_string()));
        }
        let names = self.sections.keys().chain(other.sections.keys());
        let differs = |name: &&String| {
            self.sections.get(*name) != other.sections.get(*name)
                || self.relocations.get(*name) != other.relocations.get(*name)
        };
        if let Some(name) = names.into_iter().find(differs) {
            return Some((same, format!("section {name} holds something else")));
        }
        let maps = self.maps.keys().chain(other.maps.keys());
        let map = maps.into_iter().find(|name| self.maps.get(*name) != other.maps.get(*name));
        map.map(|name| (same, format!("the map {name} is described differently")))
    }

    /// `instruction 17 of ww_xdp`.
    fn place(&self, section: &str, at: usize) -> String {
        let offset = (at * INSTRUCTION) as u64;
        let before = self.functions.range(..=(section.to_string(), offset)).next_back();
        match before.filter(|((of, _), _)| of == section) {
            Some(((_, start), (name, _))) => {
                format!("instruction {} of {name}", (offset - start) / INSTRUCTION as u64)
            }
            None => format!("instruction {at} of section {section}"),
        }
    }
}

fn describe(
    instruction: Option<&[u8; INSTRUCTION]>,
    relocation: Option<(String, u64, String, u32)>,
) -> String {
    let Some(bytes) = instruction else { return "missing".to_string() };
    let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    match relocation {
        Some((name, ..)) => format!("{} ({name:?})", bytes.join(" ")),
        None => bytes.join(" "),
    }
}
