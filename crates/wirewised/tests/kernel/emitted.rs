// SPDX-License-Identifier: Apache-2.0
//! Bundles with programs that wirewise would never make.

use std::path::Path;

use object::{Object, ObjectSection};
use proptest::prelude::*;
use wirewised::bundle::Bundle;

use crate::common::bundle;
use crate::fixture::{Place, hostile, object};

#[test]
fn what_wirewise_does_not_emit_is_refused_by_name() {
    for (define, found) in [
        ("PINNED=ww_pinned", "holds the map \"ww_pinned\""),
        ("PINNED=ww_progs", "map ww_progs has \"pinning\""),
        ("OTHER_TYPE", "map ww_progs has type 1, "),
        ("KPROBE", "holds the section \"kprobe/do_nanosleep\""),
        ("PROGRAM", "holds the program \"other\" in section \"xdp\""),
        ("KCONFIG", "needs \"CONFIG_HZ\" from outside"),
        ("KFUNC", "needs \"bpf_rcu_read_lock\" from outside"),
        ("HELPER", "calls helper 42 (enum bpf_func_id)"),
        ("DATA", "holds the section \".data.other\""),
        ("STRUCT_OPS", "holds the section \".struct_ops\""),
        ("ADDRESS", "takes the address of"),
    ] {
        let Some(object) = hostile(&[define]) else { return };
        let place = Place::new(&object);
        for command in
            ["verify --bundle b.wirewise", "flood --bundle b.wirewise", "replay --bundle b.wirewise x.pcap"]
        {
            let error = place.error(command, 2);
            assert!(
                error.contains("b.wirewise: program.bpf.o ") && error.contains(found),
                "{define}: {error}"
            );
        }
        assert!(!Path::new("/sys/fs/bpf/ww_pinned").exists() && !Path::new("/sys/fs/bpf/ww_progs").exists());
    }
}

#[test]
fn the_data_path_alone_is_accepted() {
    let Some(object) = hostile(&[]) else { return };
    Bundle::from_bytes(&bundle(&object)).unwrap().check_program().unwrap();
}

/// The refusal of the small data path with one byte changed in a section; `change` gets the section's content.
fn changed(object: &[u8], section: &str, change: impl FnOnce(&mut [u8])) -> String {
    let mut object = object.to_vec();
    let file = object::File::parse(&*object).unwrap();
    let (start, size) = file.section_by_name(section).unwrap().file_range().unwrap();
    change(&mut object[start as usize..(start + size) as usize]);
    Bundle::from_bytes(&bundle(&object)).unwrap().check_program().unwrap_err()
}

#[test]
fn numbers_that_mean_things_of_the_kernel_are_refused() {
    let Some(object) = object(&[]) else { return };
    let slot =
        |code: &mut [u8], wanted: u8| code.chunks_exact(8).position(|slot| slot[0] == wanted).unwrap() * 8;
    let error = changed(&object, "xdp", |code| {
        let at = slot(code, 0x18);
        code[at + 1] |= 0x10;
    });
    assert!(error.contains("names a descriptor or number of the kernel's"), "{error}");
    let error = changed(&object, "xdp", |code| {
        let at = slot(code, 0x85);
        code[at + 1] = 0x20;
    });
    assert!(error.contains("calls a function of the kernel"), "{error}");
    let error = changed(&object, "xdp", |code| {
        let at = slot(code, 0x18);
        code[at + 8] = 0x85;
    });
    assert!(error.contains("has no second half"), "{error}");
}

/// libbpf and the engine copy each function: many names for the same long one would fill the memory.
#[test]
fn functions_in_one_place_are_refused() {
    const FUNC: u8 = 2;
    let Some(object) = hostile(&[]) else { return };
    let error = changed(&object, ".symtab", |symbols| {
        for symbol in symbols.as_chunks_mut::<24>().0.iter_mut().filter(|symbol| symbol[4] & 15 == FUNC) {
            symbol[8..16].fill(0);
        }
    });
    assert!(error.contains("in one place"), "{error}");
}

#[test]
fn what_the_manifest_says_of_the_program_must_be_so() {
    let Some(object) = object(&[]) else { return };
    for (pointer, value, expected) in [
        ("/flow/entry4_size", serde_json::json!(128), "map ww_flows4 has type 2"),
        ("/flow/table_size", serde_json::json!(2048), "flow-table entries 1024, and the manifest says 2048"),
        ("/flow/idle_timeout_ns", serde_json::json!(1), "idle_timeout_ns 3600000000000"),
        ("/flow/clock", serde_json::json!("fine"), "compiled for clock 0"),
        ("/flow/state/0/name", serde_json::json!("other"), "other state of a flow"),
        ("/flow/state/0/type", serde_json::json!("u32"), "other state of a flow"),
        ("/flow/state", serde_json::json!([]), "other state of a flow"),
    ] {
        let members = crate::common::members(&object);
        let mut manifest = crate::common::manifest(&members);
        *manifest.pointer_mut(pointer).unwrap() = value;
        let bundle = Bundle::from_bytes(&crate::common::bundle_with(&manifest, &members)).unwrap();
        let error = bundle.check_program().unwrap_err();
        assert!(error.contains(expected), "{pointer}: {error}");
    }
}

#[test]
fn no_manifest_gives_its_numbers_other_names() {
    use crate::common::{bundle_as_is, manifest, members, set_meaning, sha256};
    use serde_json::json;

    let Some(mut object) = object(&[]) else { return };
    let plain = manifest(&members(&object));
    let meaning =
        wirewised::bundle::manifest::Manifest::parse(plain.to_string().as_bytes()).unwrap().meaning();
    set_meaning(&mut object, &meaning);
    let members = members(&object);
    let place = crate::fixture::Place::new(&object);
    let verify = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut manifest = manifest(&members);
        change(&mut manifest);
        assert_eq!(manifest["digests"]["program.bpf.o"], sha256(&object));
        place.write("named.wirewise", &bundle_as_is(&manifest, &members));
        place.run("verify --no-load --bundle named.wirewise")
    };
    assert!(verify(&|_| ()).status.success());
    assert!(verify(&|manifest| manifest["created"] = "today".into()).status.success());
    for (pointer, value) in [
        ("/classes", json!(["attack", "benign"])),
        ("/classes/1", json!("other")),
        ("/features/0/unit", json!("seconds")),
        ("/features/0/fraction_bits", json!(8)),
        (
            "/flow/features",
            json!([{"name": "total", "unit": "bytes", "fraction_bits": 0, "how": "value",
            "variable": "sum_length", "samples": "packets"}]),
        ),
    ] {
        let output = verify(&|manifest| match manifest.pointer_mut(pointer) {
            Some(place) => *place = value.clone(),
            None => manifest["flow"]["features"] = value.clone(),
        });
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("is compiled for other names of classes"), "{pointer}: {error}");
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{pointer}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_damage_panics(places in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        static OBJECT: std::sync::OnceLock<Option<Vec<u8>>> = std::sync::OnceLock::new();
        if let Some(object) = OBJECT.get_or_init(|| object(&[])) {
            let mut bytes = object.clone();
            for (place, value) in places {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            let manifest = crate::common::manifest(&crate::common::members(object));
            let flow = serde_json::from_value(manifest["flow"].clone()).unwrap();
            if let Err(message) = wirewised::bundle::inspection::check(&bytes, &flow) {
                prop_assert!(!message.is_empty() && !message.contains('\n'));
            }
        }
    }
}
