// SPDX-License-Identifier: Apache-2.0
//! Objects in which one place is altered: each is refused in one line, or kernel and engine get what was read.

use libbpf_rs::ObjectBuilder;
use wirewise_engine::Linked;
use wirewised::bundle::program::Program;

use crate::altered::{
    ADDRESS, Altered, FLAGS, INFO, KIND, LENGTH, LINK, NAME, OFFSET, SECTION, SIZE, TYPE, VALUE, VISIBILITY,
};
use crate::fixture::object;

enum Outcome {
    /// With this in the message.
    Refused(&'static str),
    /// What was altered means nothing.
    Same,
    /// It is another program, which kernel and engine get as it was read; `verify --rebuild` tells.
    Other,
}
use Outcome::{Other, Refused, Same};

type Alteration = (&'static str, fn(&mut Altered), Outcome);

/// One for each place where the file could mean one thing to a reader, and another to the next.
const ALTERATIONS: &[Alteration] = &[
    // The header.
    ("big-endian", |o| o.put(0, (5, 1), 2), Refused("ELF")),
    ("32 bits", |o| o.put(0, (4, 1), 1), Refused("ELF")),
    ("executable", |o| o.put(0, (16, 2), 2), Refused("no relocatable object")),
    ("another machine", |o| o.put(0, (18, 2), 62), Refused("no relocatable object")),
    ("table of sections elsewhere", |o| o.put(0, (40, 8), 64), Refused("")),
    ("more sections than there are", |o| o.put(0, (60, 2), 0xfeff), Refused("ELF")),
    ("names of sections elsewhere", |o| o.put(0, (62, 2), 3), Refused("")),
    // Sections.
    ("old section of maps", |o| o.rename(".maps", "maps"), Refused("holds the section \"maps\"")),
    ("programs for TC", |o| o.rename("xdp", "tc"), Refused("holds the section \"tc\"")),
    ("programs for fragments", |o| o.rename("xdp", "xdp.frags"), Refused("holds the section")),
    ("programs in place of another", |o| o.rename("xdp", "freplace/ww_main"), Refused("holds the section")),
    ("programs of a map", |o| o.rename("xdp", "xdp/devmap"), Refused("holds the section")),
    (
        "operations of the kernel",
        |o| o.rename(".debug_info", ".struct_ops.link"),
        Refused("holds the section"),
    ),
    ("configuration of the kernel", |o| o.rename(".debug_info", ".kconfig"), Refused("holds the section")),
    ("symbols of the kernel", |o| o.rename(".debug_info", ".ksyms"), Refused("holds the section")),
    ("version", |o| o.rename("license", "version"), Refused("holds the section")),
    ("two sections of programs", |o| o.rename(".debug_info", "xdp"), Refused("section \"xdp\"")),
    ("two sections of maps", |o| o.rename(".debug_info", ".maps"), Refused("section \".maps\" twice")),
    ("two sections of types", |o| o.rename(".debug_info", ".BTF"), Refused("relocations of \".BTF\"")),
    ("two licences", |o| o.rename(".debug_info", "license"), Refused("section \"license\" twice")),
    ("data without bytes", |o| o.set(".data.ww_policy", TYPE, 8), Refused("of another kind")),
    ("code without bytes", |o| o.set("xdp", TYPE, 8), Refused("of another kind")),
    ("zeros with bytes", |o| o.rename(".data.ww_policy", ".bss"), Refused("")),
    ("data that runs", |o| o.set(".data.ww_policy", FLAGS, 7), Refused("of another kind")),
    ("constants that are written", |o| o.set(".rodata.ww_config", FLAGS, 3), Same),
    ("code at an address", |o| o.set("xdp", ADDRESS, 64), Same),
    ("a section beyond the end", |o| o.set(".BTF", OFFSET, 1 << 40), Refused("")),
    ("a section as long as all", |o| o.set(".debug_info", SIZE, u64::MAX), Refused("")),
    (
        "sections that overlap",
        |o| {
            let size = o.section(".BTF.ext").end - o.section(".BTF").start;
            o.set(".BTF", SIZE, size as u64);
            o.set(".debug_info", SIZE, o.0.len() as u64 / 2);
            o.set(".debug_info", OFFSET, 0);
            o.set(".debug_str", SIZE, o.0.len() as u64 / 2);
            o.set(".debug_str", OFFSET, 0);
        },
        Refused("overlap"),
    ),
    (
        "constants that are code too",
        |o| o.set(".rodata.ww_config", OFFSET, o.section("xdp").start as u64),
        // By the version it says, or because the bundle's own constants are code then.
        Refused(""),
    ),
    (
        "another licence",
        |o| {
            let at = o.section("license").start;
            o.0[at] = b'X';
        },
        Refused("another license"),
    ),
    (
        "other constants",
        |o| {
            let end = o.section(".rodata.ww_config").end;
            // In front of `meaning`.
            o.0[end - 40] ^= 1;
        },
        Other,
    ),
    (
        "other data",
        |o| {
            let at = o.section(".data.ww_policy").start;
            o.0[at + 40] ^= 1;
        },
        Other,
    ),
    ("names by the strings of types", |o| o.set(".symtab", LINK, o.index(".BTF") as u64), Refused("")),
    (
        "names that begin one byte on",
        |o| o.set(".strtab", OFFSET, o.section(".strtab").start as u64 + 1),
        Refused(""),
    ),
    // Relocations.
    ("relocations with addends", |o| o.set(".relxdp", TYPE, 4), Refused("holds the section")),
    ("packed relocations", |o| o.set(".relxdp", TYPE, 0x4000_0014), Refused("holds the section")),
    ("relocations of another section", |o| o.set(".relxdp", INFO, o.index(".text") as u64), Refused("holds")),
    ("relocations by other symbols", |o| o.set(".relxdp", LINK, o.index(".BTF") as u64), Other),
    (
        "relocations from two sections",
        |o| {
            o.set(".rel.BTF", INFO, o.index("xdp") as u64);
        },
        Refused("relocations of \"xdp\""),
    ),
    ("a relocation within an instruction", |o| o.put(o.relocation(0), (0, 8), 0x2c), Refused("address of")),
    ("a relocation behind the code", |o| o.put(o.relocation(0), (0, 8), 1 << 40), Refused("address of")),
    (
        "two relocations of one place",
        |o| o.put(o.relocation(1), (0, 8), o.number(o.relocation(0), 8)),
        Refused("twice"),
    ),
    ("a call of data", |o| o.put(o.relocation(0), (8, 4), 10), Refused("address of")),
    ("a relocation without a symbol", |o| o.put(o.relocation(0), (12, 4), 0), Refused("")),
    ("a relocation by a symbol that is not there", |o| o.put(o.relocation(0), (12, 4), 1 << 30), Refused("")),
    (
        "a map and a little more",
        |o| {
            let map = o.number(o.relocation(6), 8) as usize;
            o.put(o.section("xdp").start + map, (4, 4), 8);
        },
        Refused("means something unknown"),
    ),
    (
        "data behind its end",
        |o| o.put(o.instruction(0x18), (4, 4), 1 << 20),
        Refused("means something unknown"),
    ),
    (
        "data before its start",
        |o| o.put(o.instruction(0x18), (4, 4), 0xffff_fff8),
        Refused("means something"),
    ),
    ("other data of the section", |o| o.put(o.instruction(0x18), (4, 4), 8), Other),
    ("an address with an upper half", |o| o.put(o.instruction(0x18), (12, 4), 1), Refused("unknown at byte")),
    // Symbols.
    ("a map from outside", |o| o.set_symbol("ww_limit", SECTION, 0), Refused("from outside")),
    ("a map nowhere", |o| o.set_symbol("ww_limit", SECTION, 0xfff1), Refused("")),
    ("a common map", |o| o.set_symbol("ww_limit", SECTION, 0xfff2), Refused("")),
    ("a map in a section by another table", |o| o.set_symbol("ww_limit", SECTION, 0xffff), Refused("")),
    (
        "a map among constants",
        |o| o.set_symbol("ww_limit", SECTION, o.index("license") as u64),
        Refused("ww_limit"),
    ),
    ("a program among functions", |o| o.set_symbol("ww_main", SECTION, o.index(".text") as u64), Refused("")),
    ("a local map", |o| o.set_symbol("ww_limit", KIND, 0x01), Refused("ww_limit")),
    ("a weak program", |o| o.set_symbol("ww_main", KIND, 0x22), Refused("neither global nor local")),
    ("a hidden map", |o| o.set_symbol("ww_limit", VISIBILITY, 2), Refused("neither global nor local")),
    ("a map that is a function", |o| o.set_symbol("ww_limit", KIND, 0x12), Refused("as something else")),
    ("a program that is data", |o| o.set_symbol("ww_main", KIND, 0x11), Refused("no program ww_main")),
    ("a program by an indirect function", |o| o.set_symbol("ww_main", KIND, 0x1a), Same),
    ("a shorter program", |o| o.set_symbol("ww_main", LENGTH, 8), Refused("")),
    ("a program without an end", |o| o.set_symbol("ww_main", LENGTH, u64::MAX), Refused("")),
    ("a program of no length", |o| o.set_symbol("ww_main", LENGTH, 0), Refused("")),
    ("a program that begins later", |o| o.set_symbol("ww_main", VALUE, 16), Refused("")),
    (
        "two programs of one name",
        |o| {
            let n = o.name("ww_main");
            o.set_symbol("ww_model_1", NAME, n)
        },
        Refused("twice"),
    ),
    (
        "two maps of one name",
        |o| {
            let n = o.name("ww_limit");
            o.set_symbol("ww_events", NAME, n)
        },
        Refused("ww_limit"),
    ),
    (
        "a map with the name of data",
        |o| {
            let n = o.name("ww_cpu");
            o.set_symbol("ww_events", NAME, n)
        },
        Refused("ww_cpu"),
    ),
    ("two maps in one place", |o| o.set_symbol("ww_limit", VALUE, 0), Refused("in one place")),
    ("a map that is longer", |o| o.set_symbol("ww_limit", LENGTH, 400), Same),
    (
        "two maps exchanged by their symbols",
        |o| {
            let [one, two] = ["ww_limit", "ww_allow6"].map(|map| o.number(o.symbol(map) + VALUE.0, 8));
            o.set_symbol("ww_limit", VALUE, two);
            o.set_symbol("ww_allow6", VALUE, one);
        },
        Other,
    ),
    (
        "two programs exchanged by their symbols",
        |o| {
            let fields = [VALUE, LENGTH];
            let all = ["ww_main", "ww_model_1"]
                .map(|name| fields.map(|(at, length)| o.number(o.symbol(name) + at, length)));
            for (name, numbers) in ["ww_model_1", "ww_main"].into_iter().zip(all) {
                for (field, number) in fields.into_iter().zip(numbers) {
                    o.set_symbol(name, field, number);
                }
            }
        },
        Refused("describes another function"),
    ),
    ("data behind its section", |o| o.set_symbol("ww_policy", VALUE, 1 << 20), Refused("ww_policy")),
    ("data that is longer", |o| o.set_symbol("ww_policy", LENGTH, 1 << 20), Refused("outside of its place")),
    // Types.
    ("types of another version", |o| o.put(o.section(".BTF").start, (0, 2), 0x9feb), Refused("damaged BTF")),
    (
        "a map in the types twice",
        |o| {
            let at = o.data_section(".maps");
            o.put(at + 12, (0, 4), o.number(at + 24, 4))
        },
        Refused("stands twice"),
    ),
    (
        "a variable that is a type",
        |o| {
            let at = o.data_section(".maps");
            o.put(at + 12, (0, 4), 1)
        },
        Refused("damaged BTF"),
    ),
    (
        "a circle of types",
        |o| {
            let variable = o.number(o.data_section(".maps") + 12, 4);
            o.put(o.type_at(variable), (8, 4), variable)
        },
        Refused(""),
    ),
    (
        "two sections of maps in the types",
        |o| {
            let name = o.string(".maps");
            o.put(o.data_section(".rodata.ww_config"), (0, 4), name)
        },
        Refused("twice"),
    ),
    (
        "configuration of the kernel in the types",
        |o| {
            let name = o.btf_name(".kconfig");
            o.put(o.data_section(".rodata.ww_config"), (0, 4), name)
        },
        Same,
    ),
    ("a map of other maps", |o| o.name_member("ww_limit", 0, "values"), Refused("\"values\"")),
    ("a map that stays", |o| o.name_member("ww_limit", 2, "pinning"), Refused("\"pinning\"")),
    (
        "a map with a field twice",
        |o| o.name_member("ww_limit", 1, "type"),
        Refused("no readable description"),
    ),
    ("a map with a field that nobody knows", |o| o.name_member("ww_limit", 1, "other"), Refused("\"other\"")),
    (
        "a tag",
        |o| {
            let at = o.types(8)[0].0;
            let info = o.number(at + 4, 4);
            o.put(at, (4, 4), info & 0xffff | 18 << 24)
        },
        Same,
    ),
    (
        "a kind of type that is not C's",
        |o| {
            let at = o.types(8)[0].0;
            o.put(at, (4, 4), 20 << 24)
        },
        Refused("types of kind 20"),
    ),
    (
        "a function that is static by its type",
        |o| {
            let at = o.function("ww_main");
            o.put(at, (4, 4), 12 << 24)
        },
        Refused("another function"),
    ),
    (
        "a function of another name by its type",
        |o| {
            let name = o.string("ww_model_1");
            o.put(o.function("ww_main"), (0, 4), name)
        },
        Refused("another function"),
    ),
    (
        "code for the running kernel",
        |o| {
            let at = o.section(".BTF.ext").start;
            o.put(at, (28, 4), 16)
        },
        Refused("CO-RE"),
    ),
    (
        "two types for one function",
        |o| {
            let at = o.ext(8) + 8;
            o.put(at + 8, (4, 4), o.number(at + 4, 4))
        },
        Refused(""),
    ),
    (
        "two functions at one place",
        |o| {
            let at = o.ext(8) + 8;
            o.put(at + 8, (0, 4), o.number(at, 4))
        },
        Refused("two functions at 0"),
    ),
    (
        "functions of a section that is not there",
        |o| {
            let name = o.string(".maps");
            o.put(o.ext(8), (0, 4), name)
        },
        Refused(""),
    ),
    ("records of no size", |o| o.put(o.ext(8) - 4, (0, 4), 0), Refused("damaged BTF")),
    (
        "lines out of order",
        |o| {
            let at = o.ext(16) + 8;
            o.put(at, (0, 4), 64);
            o.put(at + 16, (0, 4), 8)
        },
        Same,
    ),
    (
        "lines behind the code",
        |o| {
            let at = o.ext(16) + 8;
            o.put(at + 16, (0, 4), u64::from(u32::MAX))
        },
        Same,
    ),
    (
        "lines without texts",
        |o| {
            let at = o.ext(16) + 8;
            o.put(at, (4, 8), u64::MAX)
        },
        Same,
    ),
];

#[test]
fn what_is_altered_is_refused_or_loaded_as_it_was_read() {
    let Some(object) = object(&["TAIL_CALL"]).map(Altered) else { return };
    let may_load = wirewised::kernel::missing_capabilities().is_empty();
    let honest = object.read().unwrap();
    let mut wrong = Vec::new();
    for (what, alter, outcome) in ALTERATIONS {
        let mut altered = object.clone();
        alter(&mut altered);
        assert!(altered.0 != object.0, "{what}: nothing was altered");
        let done = match (altered.read(), outcome) {
            (Err(error), Refused(rule)) => {
                let short = !error.contains('\n') && error.len() < 600;
                if short && error.contains(rule) { Ok(()) } else { Err(format!("another rule: {error}")) }
            }
            (Ok(program), Same | Other) if (program == honest) == matches!(outcome, Same) => {
                is_loaded_as_read(&program, may_load)
            }
            (Ok(program), _) => Err(format!("accepted, the same: {}", program == honest)),
            (Err(error), _) => Err(error),
        };
        wrong.extend(done.err().map(|error| format!("{what}: {error}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_loaded_as_read(program: &Program, may_load: bool) -> Result<(), String> {
    let canonical = program.encode();
    let engine = Linked::from_elf(&canonical).map_err(|error| error.to_string())?;
    let open = || ObjectBuilder::default().name("wirewise")?.open_memory(&canonical);
    let opened = open().map_err(|error| error.to_string())?;
    if may_load && let Ok(loaded) = opened.load() {
        let kernel = Linked::from_loaded(&loaded).map_err(|error| error.to_string())?;
        if kernel.programs() != engine.programs() {
            return Err("the kernel has another program than the engine".to_owned());
        }
    }
    Ok(())
}
