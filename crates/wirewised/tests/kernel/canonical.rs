// SPDX-License-Identifier: Apache-2.0
//! What is loaded is the agent's own reading of a program, whatever the file would mean to others.

use libbpf_rs::ObjectBuilder;
use wirewise_engine::Linked;
use wirewised::bundle::Bundle;
use wirewised::bundle::inspection;
use wirewised::bundle::program::{Program, Reference};

use crate::altered::Altered;
use crate::common::bundle;
use crate::fixture::{Place, data_path, object};

/// Small, and with a function of its own, a tail call, and maps of the same kind.
fn small() -> Option<Vec<u8>> {
    object(&["TAIL_CALL"])
}

fn manifest_accepts(bytes: &[u8]) -> Result<Program, String> {
    Bundle::from_bytes(&bundle(bytes)).unwrap().program()
}

fn section(bytes: &[u8], name: &str) -> std::ops::Range<usize> {
    Altered(bytes.to_vec()).section(name)
}

#[test]
fn canonical_object_is_the_same_program() {
    for object in [small(), data_path(), object(&[])].into_iter().flatten() {
        let program = inspection::read(&object).unwrap();
        let canonical = program.encode();
        assert!(canonical.len() < object.len());
        assert_eq!(inspection::read(&canonical).unwrap(), program);
        assert_eq!(inspection::read(&canonical).unwrap().encode(), canonical);
        let (file, own) = (Linked::from_elf(&object).unwrap(), Linked::from_elf(&canonical).unwrap());
        assert_eq!(file.programs(), own.programs());
        assert_eq!(format!("{:?}", file.maps()), format!("{:?}", own.maps()));
    }
}

/// The kernel's byte code and maps of the object, by libbpf.
fn loaded(bytes: &[u8]) -> Result<Linked, libbpf_rs::Error> {
    let object = ObjectBuilder::default().name("wirewise")?.open_memory(bytes)?.load()?;
    Ok(Linked::from_loaded(&object).unwrap())
}

#[test]
fn kernel_and_engine_get_the_same_program_from_it() {
    let Some(object) = data_path() else { return };
    let canonical = inspection::read(&object).unwrap().encode();
    let (file, own) = (loaded(&object).unwrap(), loaded(&canonical).unwrap());
    assert_eq!(file.programs(), own.programs());
    assert_eq!(own.programs(), Linked::from_elf(&canonical).unwrap().programs());
    let maps = |linked: &Linked| linked.maps().iter().map(|map| format!("{map:?}")).collect::<Vec<_>>();
    assert_eq!(maps(&file), maps(&own));
}

/// Every two words of a table exchanged, and single ones moved: what is accepted is what the reading says, and a reading that is
/// another program is not the one compiled again.
#[test]
fn exchanged_fields_are_refused_or_read_as_they_are_loaded() {
    let Some(object) = small() else { return };
    const MOST_LOADS: u32 = 100;
    let may_load = wirewised::kernel::missing_capabilities().is_empty();
    let honest = manifest_accepts(&object).unwrap();
    let (mut accepted, mut other, mut refused) = (0, 0, 0);
    let mut judge = |bytes: &[u8], what: String| match manifest_accepts(bytes) {
        Err(error) => {
            refused += 1;
            assert!(!error.contains('\n') && error.len() < 600, "{what}: {error}");
        }
        Ok(program) => {
            let canonical = program.encode();
            assert_eq!(inspection::read(&canonical).as_ref(), Ok(&program), "{what}");
            let linked = Linked::from_elf(&canonical).unwrap_or_else(|error| panic!("{what}: {error}"));
            let maps: Vec<_> = program.maps.iter().map(|(name, _)| name.as_str()).collect();
            let linked_maps: Vec<_> = linked.maps().iter().map(|map| map.name()).collect();
            assert_eq!(&linked_maps[..maps.len()], maps, "{what}");
            if program == honest {
                accepted += 1;
            } else {
                other += 1;
                if may_load && other <= MOST_LOADS {
                    // The kernel may refuse it; what it takes is what was read.
                    if let Ok(kernel) = loaded(&canonical) {
                        assert_eq!(kernel.programs(), linked.programs(), "{what}");
                    }
                }
            }
        }
    };
    for (name, step) in [(".symtab", 8), (".relxdp", 8), (".BTF", 4), (".BTF.ext", 4)] {
        let range = section(&object, name);
        let words: Vec<usize> = range.step_by(step).filter(|at| at + step <= object.len()).collect();
        let stride = words.len().div_ceil(60);
        let some: Vec<usize> = words.iter().copied().step_by(stride).collect();
        for (index, one) in some.iter().enumerate() {
            for two in some.iter().skip(index + 1).step_by(7) {
                let mut bytes = object.clone();
                for byte in 0..step {
                    bytes.swap(one + byte, two + byte);
                }
                judge(&bytes, format!("{name}: {one} and {two}"));
            }
        }
        for at in words.iter().step_by(stride) {
            for change in [1u8, 0x18, 0x80, 0xff] {
                let mut bytes = object.clone();
                bytes[*at] = bytes[*at].wrapping_add(change);
                judge(&bytes, format!("{name}: {at} by {change}"));
            }
        }
    }
    assert!(refused > 200 && accepted > 200, "{accepted} accepted, {other} are others, {refused} refused");
}

/// libbpf takes the offsets as they are, where the section has a size.
#[test]
fn maps_exchanged_in_the_types_are_refused() {
    let Some(mut object) = object(&[]).map(Altered) else { return };
    let maps = object.data_section(".maps");
    let (size, count) = (object.section(".maps").len(), object.number(maps + 4, 2) as usize);
    object.put(maps, (8, 4), size as u64);
    for entry in 0..count {
        // All are 40 bytes; the first two change places.
        let place = 40 * [1, 0].get(entry).copied().unwrap_or(entry);
        object.put(maps + 12 + 12 * entry, (4, 4), place as u64);
    }
    let object = object.0;
    let place = Place::new(&object);
    for command in [
        "verify --bundle b.wirewise --no-load",
        "verify --bundle b.wirewise",
        "replay --bundle b.wirewise x.pcap --caged",
    ] {
        let error = place.error(command, 2);
        assert!(error.contains("by its symbol, and at") && error.lines().count() == 1, "{command}: {error}");
    }
    assert!(Linked::from_elf(&object).is_err());
}

#[test]
fn names_that_are_not_text_end_in_one_line() {
    let Some(object) = object(&[]) else { return };
    for (name, within) in [
        (&b"\0.data.ww_cpu\0"[..], ".BTF"),
        (b"\0ww_limit\0", ".BTF"),
        (b"\0ww_limit\0", ".strtab"),
        (b"\0ww_main\0", ".strtab"),
        (b"\0ww_cpu\0", ".strtab"),
        (b"\0.maps\0", ".strtab"),
    ] {
        let mut bytes = object.clone();
        let range = section(&bytes, within);
        let Some(at) = bytes[range.clone()].windows(name.len()).position(|part| part == name) else {
            continue;
        };
        bytes[range.start + at + 3] = 0xf1;
        let place = Place::new(&bytes);
        for command in ["verify --bundle b.wirewise", "verify --object x.bpf.o", "flood --object x.bpf.o"] {
            let output = place.run(command);
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(matches!(output.status.code(), Some(0..=4)), "{name:?} in {within}: {command}: {stderr}");
            assert!(!stderr.contains("panicked"), "{name:?} in {within}: {command}: {stderr}");
        }
        place.error("verify --bundle b.wirewise", 2);
    }
}

/// Two relocations exchange their maps: that is another program, for the reader as for the kernel.
#[test]
fn another_map_in_a_relocation_is_another_program() {
    let Some(object) = object(&[]) else { return };
    let honest = inspection::read(&object).unwrap();
    let maps = |program: &Program| {
        let all = program.functions.iter().flat_map(|function| function.references.values().copied());
        all.filter(|reference| matches!(reference, Reference::Map(_))).collect::<Vec<_>>()
    };
    let range = section(&object, ".relxdp");
    let mut seen = 0;
    for one in range.clone().step_by(16) {
        for two in range.clone().step_by(16).filter(|two| *two > one) {
            let mut bytes = object.clone();
            for byte in 8..16 {
                bytes.swap(one + byte, two + byte);
            }
            if let Ok(program) = inspection::read(&bytes)
                && bytes != object
            {
                assert!(program != honest || maps(&program) == maps(&honest));
                seen += 1;
            }
        }
    }
    assert!(seen > 0);
}
