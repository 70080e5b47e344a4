// SPDX-License-Identifier: Apache-2.0
//! `wirewised verify` with this kernel's verifier.

use crate::fixture::{Place, loadable, object};

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
        assert_eq!(names, ["ww_xdp", "ww_model_1"]);
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
    assert_eq!(report["refusal"]["program"], "ww_xdp");
    let log = std::fs::read_to_string(report["refusal"]["log_file"].as_str().unwrap()).unwrap();
    for line in report["refusal"]["deciding"].as_array().unwrap() {
        assert!(log.contains(line.as_str().unwrap()), "{line}");
    }
}

#[test]
fn what_is_no_object_of_ours_is_bad_input() {
    let Some(object) = object(&["ABI=9"]) else { return };
    let place = Place::new(&object);
    assert!(place.error("verify --object x.bpf.o", 2).contains("version 9"));
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
            eprintln!("SKIPPED: no setpriv (util-linux)");
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
        eprintln!("SKIPPED: no setpriv (util-linux)");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
