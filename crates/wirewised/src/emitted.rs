// SPDX-License-Identifier: Apache-2.0
//! What `wirewise compile` emits. The object of a bundle may hold nothing else: a bundle comes from others, and the kernel
//! would do for it what it does for root. Looked at before libbpf sees the object, without it.
//!
//! What new versions of the data path need more of (maps, helpers, sections) is added to the tables here, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use object::elf::{R_BPF_64_32, R_BPF_64_64, SHT_NOBITS, SHT_PROGBITS, SHT_REL};
use object::read::elf::{ElfFile64, ElfSection64, SectionHeader};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SymbolKind,
};
use wirewise_engine::btf::{self, Btf, Definition};

use crate::abi;
use crate::manifest::{ClockName, Flow, STATE_OFFSET_6};

pub const ENTRY: &str = "ww_xdp";
const MODEL: &str = "ww_model_";
/// The kernel's limit for one packet (MAX_TAIL_CALL_CNT).
pub const MAX_TAIL_CALLS: u32 = 33;

const PROGRAMS: &str = "xdp";
const FUNCTIONS: &str = ".text";
const MAPS: &str = ".maps";
const BTF: &str = ".BTF";
const BTF_EXT: &str = ".BTF.ext";
const CONFIG: &str = ".rodata.ww_config";
const REQUIRED: [&str; 5] = [PROGRAMS, MAPS, BTF, CONFIG, "license"];

/// Sections that become maps of one element, and how many bytes they may have. Those of the model have what it needs.
const DATA: [(&str, RangeInclusive<u64>); 7] = [
    (CONFIG, exactly(size_of::<abi::Config>())),
    (".data.ww_policy", exactly(size_of::<abi::Policy>())),
    (".data.ww_cpu", exactly(size_of::<abi::Cpu>())),
    (".rodata.ww_rows", 0..=4 << 20),
    (".rodata.ww_weights", 0..=4 << 20),
    // Tables that clang makes of a `switch`, and the counters of bench.h.
    (".rodata", 0..=4096),
    (".bss", 0..=4096),
];

/// Sections that the kernel never gets, beside those whose name starts with `.debug_`, and relocations.
const OTHERS: [&str; 6] = [BTF, BTF_EXT, "license", ".strtab", ".symtab", ".llvm_addrsig"];

/// Helpers the data path calls: `enum bpf_func_id` of linux/bpf.h.
const HELPERS: [(i32, &str); 7] = [
    (1, "map_lookup_elem"),
    (5, "ktime_get_ns"),
    (8, "get_smp_processor_id"),
    (12, "tail_call"),
    (118, "jiffies64"),
    (125, "ktime_get_boot_ns"),
    (160, "ktime_get_coarse_ns"),
];

/// `enum bpf_map_type`, and BPF_F_* flags.
const ARRAY: u64 = 2;
const PROG_ARRAY: u64 = 3;
const PERCPU_ARRAY: u64 = 6;
const LPM_TRIE: u64 = 11;
/// As in maps.h: more than the old and the new policy file together can name.
const ALLOW_PREFIXES: u64 = 1 << 18;
const NO_PREALLOC: u64 = 1;
const MMAPABLE: u64 = 1 << 10;

/// A map the data path has; `entries`: at most.
struct MapRule {
    name: &'static str,
    kind: u64,
    key: u64,
    value: RangeInclusive<u64>,
    entries: u64,
    flags: u64,
}

const fn exactly(size: usize) -> RangeInclusive<u64> {
    size as u64..=size as u64
}

fn map_rules(flow: &Flow) -> Vec<MapRule> {
    let bucket = |entry: u32| exactly(entry as usize * abi::WAYS as usize);
    let blank = STATE_OFFSET_6 as u64..=flow.entry6_size.into();
    let (prefix4, prefix6) = (size_of::<abi::Prefix4>() as u64, size_of::<abi::Prefix6>() as u64);
    let rule = |name, kind, key, value, entries, flags| MapRule { name, kind, key, value, entries, flags };
    vec![
        rule("ww_flows4", ARRAY, 4, bucket(flow.entry4_size), 1, MMAPABLE),
        rule("ww_flows6", ARRAY, 4, bucket(flow.entry6_size), 1, MMAPABLE),
        rule("ww_limit", ARRAY, 4, exactly(8), abi::MAX_CLASSES as u64, 0),
        rule("ww_allow4", LPM_TRIE, prefix4, exactly(4), ALLOW_PREFIXES, NO_PREALLOC),
        rule("ww_allow6", LPM_TRIE, prefix6, exactly(4), ALLOW_PREFIXES, NO_PREALLOC),
        rule("ww_allow_ports", ARRAY, 4, exactly(8), 4 * u64::from(abi::ALLOW_PORT_WORDS), 0),
        rule("ww_blank", PERCPU_ARRAY, 4, blank, 1, 0),
        rule(
            "ww_agreement",
            ARRAY,
            4,
            exactly(size_of::<abi::Agreement>()),
            abi::AGREEMENT_ROWS as u64,
            MMAPABLE,
        ),
        rule("ww_first", PROG_ARRAY, 4, exactly(4), 1, 0),
        rule("ww_progs", PROG_ARRAY, 4, exactly(4), u64::from(MAX_TAIL_CALLS) + 1, 0),
        rule("ww_events", ARRAY, 4, exactly(size_of::<abi::Event>()), u64::from(abi::EVENTS), MMAPABLE),
    ]
}

/// The last word of the state, where CPUs share the flow tables (bpf/wirewise/claim.h).
const CLAIM: &str = "claim";

type File<'data> = ElfFile64<'data, LittleEndian>;
type Section<'data, 'file> = ElfSection64<'data, 'file, LittleEndian>;
type Checked<T = ()> = Result<T, String>;

/// Where a program stands in the array of tail calls: `ww_model_<i>` at i. `None`: it is no part of a split model.
pub fn tail_call_index(program: &str) -> Option<u32> {
    program.strip_prefix(MODEL)?.parse().ok()
}

pub fn tail_call_name(index: u32) -> String {
    format!("{MODEL}{index}")
}

/// Refuses what wirewise does not emit, by its name, and what is not as the manifest says. The error says what the object holds.
pub fn check(bytes: &[u8], flow: &Flow) -> Checked {
    let file = File::parse(bytes).map_err(|error| format!("is no ELF object of 64 bits: {error}"))?;
    if file.architecture() != object::Architecture::Bpf || file.kind() != object::ObjectKind::Relocatable {
        return Err("is no relocatable object for eBPF".to_string());
    }
    let sections = check_sections(&file)?;
    check_symbols(&file)?;
    for name in [PROGRAMS, FUNCTIONS] {
        if let Some(section) = sections.get(name) {
            check_code(&file, section, name)?;
        }
    }
    check_types(&file, &sections, flow)?;
    check_config(data(&sections[CONFIG])?, flow)
}

fn damaged(error: object::Error) -> String {
    format!("is damaged: {error}")
}

fn data<'data>(section: &Section<'data, '_>) -> Checked<&'data [u8]> {
    section.data().map_err(damaged)
}

/// The sections by their names, of which none stands twice.
fn check_sections<'data, 'file>(
    file: &'file File<'data>,
) -> Checked<BTreeMap<&'file str, Section<'data, 'file>>> {
    let mut sections = BTreeMap::new();
    for section in file.sections() {
        let name = section.name().map_err(damaged)?;
        let header = section.elf_section_header();
        let (kind, size) = (header.sh_type(LittleEndian), section.size());
        let code = name == PROGRAMS || name == FUNCTIONS;
        let executable =
            header.sh_flags(LittleEndian) & u64::from(object::elf::SHF_EXECINSTR) != 0 || name == PROGRAMS;
        if let Some((_, allowed)) = DATA.iter().find(|(known, _)| *known == name) {
            if !allowed.contains(&size) {
                let (least, most) = (allowed.start(), allowed.end());
                return Err(format!("section {name:?} has {size} bytes, not {least} to {most}"));
            }
        } else if kind == SHT_REL {
            check_relocation_section(file, name, header.sh_info(LittleEndian))?;
        } else if !code && name != MAPS && !OTHERS.contains(&name) && !name.starts_with(".debug_") {
            return Err(format!("holds the section {name:?}"));
        }
        let is_data = DATA.iter().any(|(known, _)| *known == name);
        let wrong_kind = ((code || name == MAPS || is_data) && ![SHT_PROGBITS, SHT_NOBITS].contains(&kind))
            || (code && kind != SHT_PROGBITS);
        if wrong_kind || (executable && !code) {
            return Err(format!("section {name:?} is of another kind than wirewise's"));
        }
        if sections.insert(name, section).is_some() {
            return Err(format!("holds the section {name:?} twice"));
        }
    }
    match REQUIRED.iter().find(|name| !sections.contains_key(*name)) {
        Some(missing) => Err(format!("has no section {missing:?}")),
        None => Ok(sections),
    }
}

/// Relocations change code, and what describes it; data and maps have none.
fn check_relocation_section(file: &File<'_>, name: &str, target: u32) -> Checked {
    let target = file.section_by_index(object::SectionIndex(target as usize)).map_err(damaged)?;
    let target = target.name().map_err(damaged)?;
    let allowed = [PROGRAMS, FUNCTIONS, BTF, BTF_EXT].contains(&target) || target.starts_with(".debug_");
    if allowed && name.strip_prefix(".rel") == Some(target) {
        Ok(())
    } else {
        Err(format!("holds the section {name:?}, relocations of {target:?}"))
    }
}

/// Functions, variables and maps, each once and in its place; nothing from outside.
fn check_symbols(file: &File<'_>) -> Checked {
    let (mut names, mut chain) = (BTreeSet::new(), BTreeSet::new());
    for symbol in file.symbols() {
        let name = symbol.name().map_err(damaged)?;
        if matches!(symbol.kind(), SymbolKind::Section | SymbolKind::File) {
            continue;
        }
        let Some(index) = symbol.section_index() else {
            return Err(format!("needs {name:?} from outside (extern)"));
        };
        let section = file.section_by_index(index).map_err(damaged)?;
        let place = section.name().map_err(damaged)?;
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
    if !names.contains(ENTRY) {
        return Err(format!("has no program {ENTRY}"));
    }
    let last = chain.last().copied().unwrap_or(0);
    if last > MAX_TAIL_CALLS || chain.len() != last as usize {
        return Err(format!("has no chain of programs {MODEL}1, {MODEL}2, ... of at most {MAX_TAIL_CALLS}"));
    }
    Ok(())
}

/// One slot of byte code.
struct Slot {
    code: u8,
    source: u8,
    immediate: i32,
}

/// Calls of known helpers and own functions; addresses of own maps and data only.
fn check_code(file: &File<'_>, section: &Section<'_, '_>, name: &str) -> Checked {
    const WIDE: u8 = 0x18;
    const CALL: u8 = 0x85;
    const CALL_REGISTER: u8 = 0x8d;
    const OWN_FUNCTION: u8 = 1;
    let (slots, rest) = data(section)?.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(format!("section {name:?} is no whole number of instructions"));
    }
    let slot = |at: usize| {
        slots.get(at).map(|&[code, registers, _, _, a, b, c, d]| Slot {
            code,
            source: registers >> 4,
            immediate: i32::from_le_bytes([a, b, c, d]),
        })
    };
    let mut at = 0;
    while let Some(Slot { code, source, immediate }) = slot(at) {
        let number = at;
        let place = || format!("instruction {number} of section {name:?}");
        match (code, source) {
            (CALL, 0) if !HELPERS.iter().any(|(number, _)| *number == immediate) => {
                return Err(format!("{} calls helper {immediate} (enum bpf_func_id)", place()));
            }
            (CALL, 0 | OWN_FUNCTION) => {}
            (CALL | CALL_REGISTER, _) => {
                return Err(format!("{} calls a function of the kernel, or an unknown one", place()));
            }
            (WIDE, 0) => {
                at += 1;
                // Code there would run if somebody took the second half for an instruction.
                if slots.get(at).is_none_or(|second| second[..4] != [0; 4]) {
                    return Err(format!("{} has no second half", place()));
                }
            }
            (WIDE, _) => return Err(format!("{} names a descriptor or number of the kernel's", place())),
            (0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50, _) => {
                return Err(format!("{} reads the packet as classic BPF does", place()));
            }
            _ => {}
        }
        at += 1;
    }
    for (offset, relocation) in section.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else {
            return Err(format!("a relocation in section {name:?} has no symbol"));
        };
        let symbol = file.symbol_by_index(index).map_err(damaged)?;
        let of = symbol.name().map_err(damaged)?;
        let Some(target) = symbol.section_index() else {
            return Err(format!("needs {of:?} from outside (extern)"));
        };
        let target = file.section_by_index(target).map_err(damaged)?;
        let target = target.name().map_err(damaged)?;
        let code = usize::try_from(offset).ok().filter(|offset| offset % 8 == 0).and_then(|o| slot(o / 8));
        let memory = target == MAPS || DATA.iter().any(|(known, _)| *known == target);
        let allowed = match (relocation.flags(), code.map(|slot| slot.code)) {
            (RelocationFlags::Elf { r_type: R_BPF_64_64 }, Some(WIDE)) => memory,
            (RelocationFlags::Elf { r_type: R_BPF_64_32 }, Some(CALL)) => target == FUNCTIONS,
            _ => false,
        };
        if !allowed {
            return Err(format!("section {name:?} takes the address of {of:?} in section {target:?}"));
        }
    }
    Ok(())
}

/// Maps and the state of a flow, as the object's own types describe them.
fn check_types(file: &File<'_>, sections: &BTreeMap<&str, Section<'_, '_>>, flow: &Flow) -> Checked {
    if let Some(section) = sections.get(BTF_EXT)
        && btf::wants_co_re(data(section)?)
    {
        return Err("wants code changed for the running kernel (CO-RE)".to_string());
    }
    let types = Btf::parse(data(&sections[BTF])?).ok_or("has damaged BTF")?;
    let maps = types.maps()?;
    let rules = map_rules(flow);
    for (name, definition) in &maps {
        let Some(rule) = rules.iter().find(|rule| rule.name == name) else {
            return Err(format!("holds the map {name:?}"));
        };
        check_map(rule, definition)?;
    }
    let place = sections[MAPS].index();
    for symbol in file.symbols().filter(|symbol| symbol.section_index() == Some(place)) {
        let name = symbol.name().map_err(damaged)?;
        if symbol.kind() != SymbolKind::Section && !maps.contains_key(name) {
            return Err(format!("holds the map {name:?} without a description"));
        }
    }
    check_state(&types, flow)
}

fn check_map(rule: &MapRule, definition: &Definition) -> Checked {
    const FIELDS: [&str; 5] = ["type", "key_size", "value_size", "max_entries", "map_flags"];
    let name = rule.name;
    if let Some(field) = definition.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        return Err(format!("map {name} has {field:?}"));
    }
    let [kind, key, value, entries, flags] = FIELDS.map(|field| definition.get(field).copied().unwrap_or(0));
    if (kind, key, flags) != (rule.kind, rule.key, rule.flags)
        || !rule.value.contains(&value)
        || entries > rule.entries
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
    Ok(())
}
