// SPDX-License-Identifier: Apache-2.0
//! `wirewised flood` with the data path in this kernel.

use serde_json::json;

use crate::fixture::{Place, data_path, loadable};

#[test]
fn a_flood_leaves_established_flows_alone() {
    let Some(object) = data_path() else { return };
    let place = Place::new(&object);
    let flood = "flood --object x.bpf.o --seed 7 --spoofed 200000";
    let report = place.json(&format!("{flood} --json"));
    assert_eq!(
        report["established"],
        json!({"asked": 2000, "packets_each": 6, "before": 2000, "kept": 2000}),
        "{report}"
    );
    assert_eq!(report["within_grace"], true, "{report}");
    let flows = |name: &str| report["flows"][name].as_u64().unwrap();
    // Of 16,384 buckets some tens get fewer than four of so many flows.
    assert!((65_536 - 2_000 - 150..=65_536 - 2_000).contains(&flows("new")), "{report}");
    assert_eq!(flows("new") + flows("evicted") + flows("refused"), 200_000);
    assert_eq!((flows("expired"), flows("missed")), (0, 0));
    // 2^14 buckets of four entries of 64 bytes, and as many of IPv6.
    let memory = &report["memory"];
    assert!(memory["flow_tables_before"].as_u64().unwrap() >= 65_536 * (64 + 64), "{memory}");
    for map in ["flow_tables", "all_maps"] {
        assert_eq!(memory[format!("{map}_before")], memory[format!("{map}_after")]);
    }
    assert!(place.stdout(flood).contains("2000 of 2000 established flows"));

    // The flood is one: flows that have not proved themselves are gone after it.
    let report = place.json(&format!("{flood} --packets 1 --json"));
    assert!(report["established"]["kept"].as_u64().unwrap() < 100, "{report}");
}

#[test]
fn what_cannot_be_flooded_is_refused() {
    let Some(object) = loadable(&[]) else { return };
    let place = Place::new(&object);
    assert!(place.error("flood --object nowhere.o", 2).contains("nowhere.o"));
    // The small data path knows no spoofing: every packet of the flood is of one flow.
    let error = place.error("flood --object x.bpf.o --flows 10 --spoofed 1000", 2);
    assert!(error.contains("there is nothing to flood"), "{error}");
}
