// SPDX-License-Identifier: Apache-2.0
//! `wirewised verify` with this kernel's verifier.

use std::path::Path;

use test_needs::{Need, skip};

use crate::common::{bundle_with, manifest, members};
use crate::fixture::{Place, clang_version, hostile, loadable, object};

#[test]
fn an_accepted_object_is_described_program_by_program() {
    let Some(object) = loadable(&["TAIL_CALL"]) else { return };
    let place = Place::new(&object);
    for what in ["--object x.bpf.o", "--bundle b.wirewise"] {
        let report = place.json(&format!("verify {what} --json"));
        assert_eq!(report["accepted"], true);
        assert!(report["refusal"].is_null());
        assert!(report["load_ms"].as_f64().unwrap() > 0.0);
        let programs = report["programs"].as_array().unwrap();
        let names: Vec<_> = programs.iter().map(|program| program["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["ww_main", "ww_model_1"]);
        for program in programs {
            for number in ["instructions", "jited_bytes", "verified_instructions"] {
                assert!(program[number].as_u64().unwrap() > 10, "{program}");
            }
        }
    }
    assert!(place.stdout("verify --object x.bpf.o").contains("accepted by kernel"));
}

#[test]
fn a_refusal_shows_the_deciding_lines_and_keeps_the_log() {
    let Some(object) = loadable(&["BROKEN"]) else { return };
    let place = Place::new(&object);
    let error = place.error("verify --object x.bpf.o", 4);
    assert!(error.contains("return *(__u8 *)data;"), "{error}");
    assert!(error.contains("invalid access to packet"), "{error}");

    let output = place.run("verify --object x.bpf.o --json");
    assert_eq!(output.status.code(), Some(4));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["accepted"], false);
    assert_eq!(report["refusal"]["program"], "ww_main");
    let log = std::fs::read_to_string(report["refusal"]["log_file"].as_str().unwrap()).unwrap();
    for line in report["refusal"]["deciding"].as_array().unwrap() {
        assert!(log.contains(line.as_str().unwrap()), "{line}");
    }
}

#[test]
fn what_is_no_object_of_ours_is_bad_input() {
    let Some(object) = object(&["ABI=99"]) else { return };
    let place = Place::new(&object);
    assert!(place.error("verify --object x.bpf.o", 2).contains("version 99"));
    place.write("text.o", b"no ELF file at all");
    assert!(place.error("verify --object text.o", 2).contains("text.o: not an eBPF object"));
    place.write("cut.o", &object[..object.len() / 2]);
    assert!(place.error("verify --object cut.o", 2).contains("cut.o: not an eBPF object"));
    assert!(place.error("verify --object nowhere.o", 2).contains("nowhere.o"));
    assert_eq!(place.run("verify").status.code(), Some(2));
}

#[test]
fn a_missing_capability_is_named() {
    let Some(object) = loadable(&[]) else { return };
    let place = Place::new(&object);
    for (kept, missing) in
        [("cap_bpf,cap_net_admin", "CAP_PERFMON"), ("cap_bpf,cap_perfmon", "CAP_NET_ADMIN")]
    {
        let output = std::process::Command::new("setpriv")
            .args([&format!("--bounding-set=-all,+{}", kept.replace("cap_", "").replace(',', ",+"))])
            .arg(env!("CARGO_BIN_EXE_wirewised"))
            .args(["verify", "--object"])
            .arg(place.path("x.bpf.o"))
            .output();
        let Ok(output) = output else {
            skip(Need::Tools, "no setpriv (util-linux)");
            return;
        };
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(3), "{error}");
        assert!(error.starts_with(&format!("error: missing {missing}:")), "{error}");
    }
}

#[test]
fn three_capabilities_are_enough() {
    let Some(object) = loadable(&["TAIL_CALL"]) else { return };
    let place = Place::new(&object);
    let output = std::process::Command::new("setpriv")
        .arg("--bounding-set=-all,+bpf,+net_admin,+perfmon")
        .arg(env!("CARGO_BIN_EXE_wirewised"))
        .args(["verify", "--object"])
        .arg(place.path("x.bpf.o"))
        .output();
    let Ok(output) = output else {
        skip(Need::Tools, "no setpriv (util-linux)");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A bundle that holds what its object was compiled from.
fn with_sources(
    object: &[u8],
    change: impl Fn(&mut std::collections::BTreeMap<String, Vec<u8>>),
) -> Option<Place> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = Place::new(object);
    let mut members = members(object);
    for (name, path) in [
        ("main.bpf.c", "../../bpf/main.bpf.c"),
        ("ww_feature_set.h", "tests/fixtures/datapath/ww_feature_set.h"),
        ("ww_model.h", "tests/fixtures/datapath/ww_model.h"),
    ] {
        members.insert(format!("sources/{name}"), std::fs::read(here.join(path)).unwrap());
    }
    change(&mut members);
    let mut manifest = manifest(&members);
    manifest["program"]["clang"] = clang_version()?.into();
    place.write("b.wirewise", &bundle_with(&manifest, &members));
    Some(place)
}

const REBUILD: &str = "verify --bundle b.wirewise --no-load --rebuild";

#[test]
fn sources_that_give_the_program_are_told_from_others() {
    let Some(object) = hostile(&[]) else { return };
    let place = with_sources(&object, |_| ()).unwrap();
    assert!(place.stdout(REBUILD).contains("the same program, instruction for instruction"));
    assert_eq!(place.json(&format!("{REBUILD} --json"))["rebuild"]["same"], true);
    // Where the stacks of IPv4 and IPv6 do not fit together, the compiler driver gives each a function.
    let split = with_sources(&hostile(&["WW_SPLIT=1"]).unwrap(), |_| ()).unwrap();
    split.stdout(REBUILD);

    let place = with_sources(&hostile(&["BORDER=200"]).unwrap(), |_| ()).unwrap();
    let error = place.error(REBUILD, 2);
    assert!(error.contains("is not what its sources give") && error.contains(": instruction "), "{error}");

    let place = with_sources(&object, |members| {
        members.insert("sources/main.bpf.c".to_owned(), b"int x;".to_vec());
    });
    assert!(place.unwrap().error(REBUILD, 2).contains("with another data path than that of this wirewised"));
}

#[test]
fn hostile_sources_are_not_compiled() {
    let Some(object) = hostile(&[]) else { return };
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(secret.path(), "a_secret of_root").unwrap();
    let path = secret.path().display();
    for (text, what) in [
        (format!("#include \"{path}\"\n"), "includes"),
        (format!("static char x[] = {{\n#embed \"{path}\"\n}};\n"), "#embed"),
        (format!("asm(\".section .rodata\\n.incbin \\\"{path}\\\"\\n.text\");\n"), "holds \\"),
        (format!("asm(\".incbin '{path}'\");\n"), "holds asm"),
        (format!("__asm__(\".include '{path}'\");\n"), "__asm__"),
        ("#define XDP_PASS XDP_DROP\n".to_owned(), "defines XDP_PASS"),
        ("/* */ #pragma once\n".to_owned(), "#pragma"),
    ] {
        for header in ["ww_feature_set.h", "ww_model.h"] {
            let place = with_sources(&object, |members| {
                members.get_mut(&format!("sources/{header}")).unwrap().extend(text.as_bytes());
            });
            let error = place.unwrap().error(REBUILD, 2);
            assert!(error.contains(&format!("sources/{header}: ")) && error.contains(what), "{error}");
            assert!(!error.contains("a_secret"), "{error}");
        }
    }
    let place = with_sources(&object, |members| {
        members.insert("sources/evil.h".to_owned(), b"".to_vec());
    });
    assert!(place.unwrap().error(REBUILD, 2).contains("\"evil.h\", which wirewise does not write"));
}

#[test]
fn the_compiler_that_is_missing_is_named() {
    let Some(object) = object(&[]) else { return };
    let place = with_sources(&object, |_| ()).unwrap();
    let members = members(&object);
    let mut all = members.clone();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    all.insert("sources/main.bpf.c".to_owned(), std::fs::read(here.join("../../bpf/main.bpf.c")).unwrap());
    all.insert("sources/ww_model.h".to_owned(), Vec::new());
    all.insert("sources/ww_feature_set.h".to_owned(), Vec::new());
    let mut manifest = manifest(&all);
    manifest["program"]["clang"] = "7.0.1".into();
    place.write("b.wirewise", &bundle_with(&manifest, &all));
    assert!(place.error(REBUILD, 3).contains("compiled by clang 7.0.1, and there is no clang 7 here"));
}
