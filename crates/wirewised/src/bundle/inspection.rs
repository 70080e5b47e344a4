// SPDX-License-Identifier: Apache-2.0
//! Whether an object is one that `wirewise compile` emits, by the tables of `emitted.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use object::elf::{SHT_NOBITS, SHT_PROGBITS, SHT_REL};
use object::read::elf::SectionHeader;
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SymbolKind};
use wirewise_engine::btf::{self, Btf, Definition};

use crate::abi::maps::{Map, find};
use crate::abi::{self, MAX_TAIL_CALLS};
use crate::bundle::byte_code;
use crate::bundle::elf::{Checked, File, Sections, damaged, data, named};
use crate::bundle::emitted::{
    BTF, BTF_EXT, CLAIM, CONFIG, ENTRY, FUNCTIONS, MAPS, MODEL, OF_ACTOR, OTHERS, PROGRAMS, REQUIRED,
    data_bytes, tail_call_index, value_bytes,
};
use crate::bundle::manifest::{ClockName, Flow};
use crate::bundle::program::{Program, SLOT};

/// Sections of an object, most of them for debuggers; symbols, of which clang 14 makes one for each place that is jumped to.
const MAX_SECTIONS: usize = 1024;
const MAX_SYMBOLS: usize = 1 << 18;
/// The kernel verifies a million (BPF_COMPLEXITY_LIMIT_INSNS).
const MAX_INSTRUCTIONS: u64 = 1 << 20;

/// Reads the program, and refuses what wirewise does not emit, by its name, and what is not as the manifest says. The error says
/// what the object holds.
pub fn check(bytes: &[u8], flow: &Flow) -> Checked<Program> {
    let file = parse(bytes)?;
    let sections = check_sections(&file, &REQUIRED)?;
    if let Some(actors) = sections.keys().find(|name| find(name).is_some_and(Map::is_of_actor)) {
        return Err(format!("holds the section {actors:?}"));
    }
    let program = read_parts(&file, &sections)?;
    check_maps(&program, flow)?;
    let types = Btf::parse(data(&sections[BTF])?).ok_or("has damaged BTF")?;
    check_state(&types, flow)?;
    check_config(data(&sections[CONFIG])?, flow)?;
    Ok(program)
}

/// It was compiled for what the manifest says of classes, features and flows.
pub fn check_meaning(program: &Program, meaning: &[u8; abi::MEANING_BYTES]) -> Checked {
    let data = program.data.iter().find(|data| data.name == CONFIG);
    let config: Option<abi::Config> =
        data.and_then(|data| bytemuck::try_pod_read_unaligned(&data.bytes).ok());
    match config.is_some_and(|config| config.meaning == *meaning) {
        true => Ok(()),
        false => {
            Err("is compiled for other names of classes, features or state than the manifest gives them"
                .to_string())
        }
    }
}

/// Reads the program; there is no manifest to compare it with.
pub fn read(bytes: &[u8]) -> Checked<Program> {
    let file = parse(bytes)?;
    read_parts(&file, &check_sections(&file, &REQUIRED)?)
}

/// Reads the agent's own actor, which is trusted: it calls what helpers it needs.
pub fn read_actor(bytes: &[u8]) -> Checked<Program> {
    let file = parse(bytes)?;
    Program::read(&file, &check_sections(&file, &OF_ACTOR)?)
}

fn parse(bytes: &[u8]) -> Checked<File<'_>> {
    let file = File::parse(bytes).map_err(|error| format!("is no ELF object of 64 bits: {error}"))?;
    if file.architecture() != object::Architecture::Bpf || file.kind() != object::ObjectKind::Relocatable {
        return Err("is no relocatable object for eBPF".to_string());
    }
    check_size(&file, bytes.len())?;
    Ok(file)
}

/// What is read of a file is no larger than the file.
fn check_size(file: &File<'_>, bytes: usize) -> Checked {
    let (sections, symbols) = (file.sections().count(), file.symbols().count());
    if sections > MAX_SECTIONS {
        return Err(format!("holds {sections} sections, more than {MAX_SECTIONS}"));
    }
    if symbols > MAX_SYMBOLS {
        return Err(format!("holds {symbols} symbols, more than {MAX_SYMBOLS}"));
    }
    let in_file = file.sections().filter_map(|section| section.file_range());
    let sum = in_file.fold(0u64, |sum, (_, size)| sum.saturating_add(size));
    if sum > bytes as u64 {
        return Err("has sections that overlap".to_string());
    }
    Ok(())
}

fn read_parts(file: &File<'_>, sections: &Sections<'_, '_>) -> Checked<Program> {
    check_symbols(file)?;
    let code = [PROGRAMS, FUNCTIONS].iter().filter_map(|name| sections.get(name));
    let instructions = code.map(|section| section.size() / SLOT as u64).sum::<u64>();
    if instructions > MAX_INSTRUCTIONS {
        return Err(format!("holds {instructions} instructions, more than {MAX_INSTRUCTIONS}"));
    }
    for name in [PROGRAMS, FUNCTIONS] {
        if let Some(section) = sections.get(name) {
            byte_code::check(file, section, name)?;
        }
    }
    if btf::wants_co_re(data(&sections[BTF_EXT])?) {
        return Err("wants code changed for the running kernel (CO-RE)".to_string());
    }
    Program::read(file, sections)
}

/// The sections by their names, of which none stands twice.
fn check_sections<'data, 'file>(
    file: &'file File<'data>,
    required: &[&str],
) -> Checked<Sections<'data, 'file>> {
    let mut sections = BTreeMap::new();
    for section in file.sections() {
        let name = named(section.name())?;
        let header = section.elf_section_header();
        let (kind, size) = (header.sh_type(LittleEndian), section.size());
        let code = name == PROGRAMS || name == FUNCTIONS;
        let executable =
            header.sh_flags(LittleEndian) & u64::from(object::elf::SHF_EXECINSTR) != 0 || name == PROGRAMS;
        let data = data_bytes(name);
        if let Some(allowed) = &data {
            if !allowed.contains(&size) {
                let (least, most) = (allowed.start(), allowed.end());
                return Err(format!("section {name:?} has {size} bytes, not {least} to {most}"));
            }
        } else if kind == SHT_REL {
            check_relocation_section(file, name, header.sh_info(LittleEndian))?;
        } else if !code && name != MAPS && !OTHERS.contains(&name) && !name.starts_with(".debug_") {
            return Err(format!("holds the section {name:?}"));
        }
        let is_data = data.is_some();
        let wrong_kind = ((code || name == MAPS || is_data) && ![SHT_PROGBITS, SHT_NOBITS].contains(&kind))
            || (code && kind != SHT_PROGBITS)
            || (is_data && (kind == SHT_NOBITS) != (name == ".bss"));
        if wrong_kind || (executable && !code) {
            return Err(format!("section {name:?} is of another kind than wirewise's"));
        }
        if sections.insert(name, section).is_some() {
            return Err(format!("holds the section {name:?} twice"));
        }
    }
    match required.iter().find(|name| !sections.contains_key(*name)) {
        Some(missing) => Err(format!("has no section {missing:?}")),
        None => Ok(sections),
    }
}

/// Relocations change code, and what describes it; data and maps have none.
fn check_relocation_section(file: &File<'_>, name: &str, target: u32) -> Checked {
    let target = file.section_by_index(object::SectionIndex(target as usize)).map_err(damaged)?;
    let target = named(target.name())?;
    let allowed = [PROGRAMS, FUNCTIONS, BTF, BTF_EXT].contains(&target) || target.starts_with(".debug_");
    if allowed && name.strip_prefix(".rel") == Some(target) {
        Ok(())
    } else {
        Err(format!("holds the section {name:?}, relocations of {target:?}"))
    }
}

/// Functions, variables and maps, each once and in its place; nothing from outside.
fn check_symbols(file: &File<'_>) -> Checked {
    let (mut names, mut chain, mut functions) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for symbol in file.symbols() {
        let name = named(symbol.name())?;
        if matches!(symbol.kind(), SymbolKind::Section | SymbolKind::File) {
            continue;
        }
        let Some(index) = symbol.section_index() else {
            return Err(format!("needs {name:?} from outside (extern)"));
        };
        let section = file.section_by_index(index).map_err(damaged)?;
        let place = named(section.name())?;
        if place != PROGRAMS && place != FUNCTIONS {
            continue;
        }
        // clang leaves names of places to jump to, too.
        if symbol.kind() != SymbolKind::Text {
            continue;
        }
        if !names.insert(name) {
            return Err(format!("holds the function {name:?} twice"));
        }
        functions.push((index.0, symbol.address(), symbol.size(), name));
        if place == FUNCTIONS && name.starts_with("ww_") {
            continue;
        }
        match tail_call_index(name) {
            _ if place == PROGRAMS && name == ENTRY => {}
            Some(number) if place == PROGRAMS => {
                chain.insert(number);
            }
            _ => return Err(format!("holds the program {name:?} in section {place:?}")),
        }
    }
    // Each function is copied: by libbpf, and by the engine.
    functions.sort_unstable();
    for pair in functions.windows(2) {
        let [(place, start, size, name), (next_place, next, _, other)] = pair else { continue };
        if place == next_place && start.checked_add(*size).is_none_or(|end| end > *next) {
            return Err(format!("holds the functions {name:?} and {other:?} in one place"));
        }
    }
    if !names.contains(ENTRY) {
        return Err(format!("has no program {ENTRY}"));
    }
    let last = chain.last().copied().unwrap_or(0);
    if last > MAX_TAIL_CALLS || chain.len() != last as usize {
        return Err(format!("has no chain of programs {MODEL}1, {MODEL}2, ... of at most {MAX_TAIL_CALLS}"));
    }
    Ok(())
}

fn check_maps(program: &Program, flow: &Flow) -> Checked {
    for (name, definition) in &program.maps {
        let map = find(name).filter(|map| map.in_object() == *name && !map.is_of_actor());
        let Some((map, value)) = map.and_then(|map| Some((map, value_bytes(map, flow)?))) else {
            return Err(format!("holds the map {name:?}"));
        };
        check_map(map, value, definition)?;
    }
    Ok(())
}

fn check_map(map: &Map, values: RangeInclusive<u64>, definition: &Definition) -> Checked {
    const FIELDS: [&str; 5] = ["type", "key_size", "value_size", "max_entries", "map_flags"];
    let name = map.name;
    if let Some(field) = definition.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(format!("map {name} has {field:?}"));
    }
    let [kind, key, value, entries, flags] = FIELDS.map(|field| definition.get(field).copied().unwrap_or(0));
    if (kind, flags) != map.kind.codes()
        || key != map.key as u64
        || !values.contains(&value)
        || entries > map.entries as u64
    {
        return Err(format!(
            "map {name} has type {kind}, keys of {key} bytes, values of {value}, {entries} entries, flags {flags}: that is not \
             wirewise's, or not what the manifest says"
        ));
    }
    Ok(())
}

/// Each variable of the manifest's state is where it says, and there is no other.
fn check_state(types: &Btf<'_>, flow: &Flow) -> Checked {
    let members = types.structure("ww_state").ok_or("has no readable struct ww_state")?;
    let mut found: Vec<_> =
        members.iter().map(|member| (member.offset, member.size, member.name.as_str())).collect();
    let stated = flow.state.iter().map(|f| (u64::from(f.offset), f.kind.size() as u64, f.name.as_str()));
    let claim = flow.claim.map(|offset| (u64::from(offset), size_of::<u32>() as u64, CLAIM));
    let mut stated: Vec<_> = stated.chain(claim).collect();
    found.sort_unstable();
    stated.sort_unstable();
    let difference = stated.iter().find(|field| !found.contains(field));
    let difference = difference.or_else(|| found.iter().find(|member| !stated.contains(member)));
    match difference {
        Some((offset, size, name)) => Err(format!(
            "keeps other state of a flow than the manifest says: {name:?}, {size} bytes at {offset}, is in one of them only"
        )),
        None => Ok(()),
    }
}

/// The compiled defaults are those of the manifest.
fn check_config(bytes: &[u8], flow: &Flow) -> Checked {
    let config: abi::Config =
        bytemuck::try_pod_read_unaligned(bytes).map_err(|_| format!("has a damaged section {CONFIG:?}"))?;
    if config.abi_version != abi::ABI_VERSION {
        return Err(format!(
            "is made for version {} of the data path's interface, not {}",
            config.abi_version,
            abi::ABI_VERSION
        ));
    }
    let clock = match flow.clock {
        ClockName::Fine => abi::Clock::Fine,
        ClockName::Coarse => abi::Clock::Coarse,
    };
    let table_size = (u64::from(config.bucket_mask) + 1) * u64::from(abi::WAYS);
    for (what, compiled, stated) in [
        ("flow-table entries", table_size, flow.table_size.into()),
        ("idle_timeout_ns", config.idle_timeout_ns, flow.idle_timeout_ns),
        ("grace_ns", config.grace_ns, flow.grace_ns),
        ("proven_packets", config.proven_packets.into(), flow.proven_packets.into()),
        ("clock", config.clock.into(), clock.code().into()),
    ] {
        if compiled != stated {
            return Err(format!("is compiled for {what} {compiled}, and the manifest says {stated}"));
        }
    }
    let compiled = (u64::from(config.aggregate_mask) + 1) * u64::from(abi::WAYS);
    match flow.aggregates.iter().find(|aggregate| u64::from(aggregate.table_size) != compiled) {
        Some(aggregate) => Err(format!(
            "is compiled for {compiled} entries by {}, and the manifest says {}",
            aggregate.by.name(),
            aggregate.table_size
        )),
        None => Ok(()),
    }
}
