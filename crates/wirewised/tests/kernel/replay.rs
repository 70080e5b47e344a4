// SPDX-License-Identifier: Apache-2.0
//! `wirewised replay`, and `trace` and `explain` in the engine.

use crate::fixture::{Place, data_path, loadable, object, pcap, udp};
use serde_json::{Value, json};

const POLICY: &[u8] = b"version: 1\nclasses: {attack: drop}\nallow: {prefixes: [10.0.0.9/32]}\n";
const RUN: &str = "--bundle b.wirewise --policy p.yaml --mode enforce";

/// Short, long, exempt, not IP, too short for Ethernet.
fn frames() -> Vec<Vec<u8>> {
    vec![udp(1, 60), udp(1, 300), udp(9, 300), vec![0xff; 60], vec![0xff; 8]]
}

fn place(object: Option<Vec<u8>>) -> Option<Place> {
    let place = Place::new(&object?);
    place.write("x.pcap", &pcap(&frames()));
    place.write("p.yaml", POLICY);
    Some(place)
}

fn lines(place: &Place, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(place.path(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn outcome(class: &Value, outcome: &str) -> u64 {
    class["outcomes"][outcome]["packets"].as_u64().unwrap()
}

#[test]
fn kernel_and_engine_trace_the_same_bytes() {
    for defines in [&[][..], &["TAIL_CALL"]] {
        let Some(place) = place(loadable(defines)) else { return };
        for plane in ["kernel", "engine"] {
            place.stdout(&format!(
                "trace x.pcap {RUN} --seed 3 --format raw -o {plane}.raw --plane {plane} \
                --dump-flows {plane}.flows"
            ));
        }
        let read = |name: &str| std::fs::read(place.path(name)).unwrap();
        assert_eq!(read("kernel.raw"), read("engine.raw"), "{defines:?}");
        let flows = |name: &str| {
            let mut flows = lines(&place, name);
            // The kernel's run is on some CPU, the engine's on its own.
            flows.iter_mut().for_each(|flow| flow["cpu"] = json!(0));
            flows
        };
        assert_eq!(flows("kernel.flows"), flows("engine.flows"));
        assert_eq!(flows("engine.flows").len(), 1);
    }
}

#[test]
fn kernel_and_engine_explain_the_same() {
    let Some(place) = place(loadable(&[])) else { return };
    for packet in 1..=5 {
        let explain = |plane: &str| {
            let mut said =
                place.json(&format!("explain x.pcap --packet {packet} {RUN} --plane {plane} --json"));
            assert_eq!(said["plane"], plane);
            said["plane"] = json!("");
            said
        };
        assert_eq!(explain("kernel"), explain("engine"), "packet {packet}");
    }
}

#[test]
fn a_model_of_an_unknown_family_is_run_counted_and_explained_as_far_as_it_is_known() {
    let Some(object) = object(&[]) else { return };
    let Some(place) = place(Some(object.clone())) else { return };
    place.write_unknown_family("u.wirewise", &object, json!({"used_features": [0], "n_outputs": 2}));
    let replay = |bundle: &str| {
        let report = place
            .json(&format!("replay x.pcap --bundle {bundle} --policy p.yaml --mode enforce --caged --json"));
        report["classes"].clone()
    };
    assert_eq!(replay("u.wirewise"), replay("b.wirewise"));

    let explain =
        "explain x.pcap --packet 2 --bundle u.wirewise --policy p.yaml --mode enforce --plane engine";
    let text = place.stdout(explain);
    for part in ["length  300 byte", "does not know models of family rules", "the packet is dropped"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let said = place.json(&format!("{explain} --json"));
    assert_eq!((&said["class"], &said["paths"]), (&json!("attack"), &json!([])));
    assert!(said["not_shown"].as_str().unwrap().contains("family rules"));

    // What the manifest does not state cannot be had from a model that nobody here knows.
    place.write_unknown_family("v.wirewise", &object, json!({}));
    let error = place.error("explain x.pcap --packet 2 --bundle v.wirewise --plane engine", 2);
    assert!(error.contains("v.wirewise: model.json: n_outputs must be a number"), "{error}");
}

#[test]
fn a_replay_counts_and_writes_what_passes_and_what_does_not() {
    // Caged, so that it needs no privilege.
    let Some(place) = place(object(&[])) else { return };
    let report = place.json(&format!(
        "replay x.pcap {RUN} --caged --passed pass.pcap --dropped drop.pcapng --verdicts v.jsonl --json"
    ));
    assert_eq!((&report["plane"], &report["engine"]), (&json!("replay"), &json!("caged")));
    assert_eq!(
        (&report["packets"], &report["passed"], &report["dropped"]),
        (&json!(5), &json!(4), &json!(1))
    );
    let classes = &report["classes"];
    assert_eq!((outcome(&classes[0], "pass"), outcome(&classes[1], "drop")), (1, 1));
    assert_eq!((&classes[1]["action"], &classes[1]["bytes"]), (&json!("drop"), &json!(314)));
    assert_eq!(report["flows"]["new"], 1);
    // The program's captures hold the packets with their times.
    let traced = |capture: &str| {
        let text = place.stdout(&format!("trace {capture} --bundle b.wirewise --plane engine"));
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["time_ns"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        traced("pass.pcap"),
        [1_000_000_000u64, 1_002_000_000, 1_003_000_000, 1_004_000_000].map(Value::from)
    );
    assert_eq!(traced("drop.pcapng"), [1_001_000_000u64].map(Value::from));
    let verdicts = lines(&place, "v.jsonl");
    assert_eq!(
        verdicts[1],
        json!({"time_ns": 1_001_000_000u64, "capture": "x.pcap", "packet": 2, "flow": "17 10.0.0.1|5000 10.0.1.1|53",
            "status": 0, "class": "attack", "action": "drop", "outcome": "drop", "passed": false, "inferred": true,
            "refused": false, "packets_of_flow": 2})
    );
    assert_eq!((&verdicts[3]["class"], &verdicts[3]["status"]), (&Value::Null, &json!(1)));
    let text = place.stdout(&format!("replay x.pcap {RUN}"));
    for part in ["attack", "would drop", "packets dropped  1", "not_ip"] {
        assert!(
            text.split_whitespace().collect::<Vec<_>>().join(" ").contains(&part.replace("  ", " ")),
            "{text}"
        );
    }
}

#[test]
fn captures_are_merged_by_time_and_any_number_of_workers_says_the_same() {
    let Some(place) = place(object(&[])) else { return };
    let many = |shift: u32| {
        (0..3000u32).map(|n| udp((n * 7 + shift) as u8, 60 + (n % 90) as u16)).collect::<Vec<_>>()
    };
    place.write("a.pcap", &pcap(&many(0)));
    place.write("b.pcap", &pcap(&many(3)));
    let mut verdicts = Vec::new();
    for workers in [1, 3] {
        let run = format!("replay a.pcap b.pcap {RUN} --caged --workers {workers} --seed 1 --json");
        let report = place.json(&format!("{run} --verdicts {workers}.jsonl"));
        assert_eq!((&report["packets"], &report["workers"]), (&json!(6000), &json!(workers)));
        let rows = lines(&place, &format!("{workers}.jsonl"));
        let times: Vec<_> = rows.iter().map(|row| row["time_ns"].as_u64().unwrap()).collect();
        assert!(times.is_sorted());
        assert_eq!((&rows[0]["capture"], &rows[1]["capture"]), (&json!("a.pcap"), &json!("b.pcap")));
        let counts = (report["classes"].clone(), report["status"].clone());
        verdicts.push((rows, counts));
    }
    assert_eq!(verdicts[0].1, verdicts[1].1);
    // The fixture keeps one entry for all addresses that share a bucket, so only what is the packet's own is compared.
    let own = |rows: &[Value]| -> Vec<Value> {
        rows.iter().map(|row| json!([row["packet"], row["class"], row["outcome"], row["flow"]])).collect()
    };
    assert_eq!(own(&verdicts[0].0), own(&verdicts[1].0));
}

#[test]
fn flows_have_a_row_each() {
    let Some(place) = place(object(&[])) else { return };
    place.write("x.pcap", &pcap(&[udp(1, 60), udp(2, 60), udp(1, 300), vec![0xff; 60]]));
    place.stdout(&format!("replay x.pcap {RUN} --caged --verdicts f.jsonl --per flow"));
    let flows = lines(&place, "f.jsonl");
    assert_eq!(flows.len(), 2);
    assert_eq!(
        flows[0],
        json!({"flow": "17 10.0.0.1|5000 10.0.1.1|53", "capture": "x.pcap", "first_ns": 1_000_000_000u64,
            "last_ns": 1_002_000_000u64, "packets": 2, "bytes": 74 + 314, "dropped": 1, "class": "attack",
            "action": "drop", "outcome": "drop", "end": "capture"})
    );
}

#[test]
fn a_capture_that_breaks_off_is_processed_as_far_as_it_goes() {
    let Some(place) = place(object(&[])) else { return };
    let whole = std::fs::read(place.path("x.pcap")).unwrap();
    place.write("cut.pcap", &whole[..whole.len() - 3]);
    let run = format!("replay cut.pcap {RUN} --caged --verdicts v.jsonl --passed p.pcap --json");
    let output = place.run(&run);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains(
            "cut.pcap: the capture breaks off inside a record, at byte 850 (24 bytes expected, 21 left)"
        ),
        "{error}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["packets"], lines(&place, "v.jsonl").len()), (&json!(4), 4));
    assert!(place.path("p.pcap").exists());
    // Told to go on, it counts a warning.
    let report = place.json(&format!("{run} --keep-going"));
    assert_eq!((report["packets"].clone(), report["warnings"].as_array().unwrap().len()), (json!(4), 1));
}

#[test]
fn every_cut_ends_with_what_was_read() {
    let Some(place) = place(object(&[])) else { return };
    let whole = pcap(&[udp(1, 60), udp(1, 300)]);
    let ends = [24, 24 + 16 + 74, 24 + 16 + 74 + 16 + 314];
    for length in (0..whole.len()).step_by(13).chain(ends) {
        place.write("cut.pcap", &whole[..length]);
        let output = place.run("replay cut.pcap --bundle b.wirewise --caged --json");
        let packets = ends[1..].iter().filter(|end| **end <= length).count();
        assert_eq!(output.status.code(), Some(if ends.contains(&length) { 0 } else { 2 }), "{length}");
        if length >= 24 {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["packets"], packets, "{length}");
        }
    }
}

#[test]
fn bad_input_is_one_line_and_leaves_no_file() {
    let Some(place) = place(object(&[])) else { return };
    place.write("y.pcap", b"no capture at all, but long enough");
    let before = place.files();
    for (arguments, part) in [
        ("replay nowhere.pcap --bundle b.wirewise", "nowhere.pcap"),
        ("replay y.pcap --bundle b.wirewise --passed p.pcap", "neither a pcap nor a pcapng"),
        ("replay y.pcap --bundle b.wirewise --keep-going", "at byte 0 it has 6e 6f 20 63); leave it out"),
        ("replay x.pcap --bundle x.pcap", "x.pcap"),
        ("replay x.pcap --bundle b.wirewise --verdicts v.csv", ".parquet or .jsonl"),
        ("replay x.pcap --bundle b.wirewise --passed o.pcap --dropped o.pcap", "same file as another output"),
        ("replay x.pcap --bundle b.wirewise --table-size 100", "power of two"),
        ("replay x.pcap --bundle b.wirewise --passed nowhere/p.pcap", "nowhere/p.pcap"),
    ] {
        let error = place.error(arguments, 2);
        assert!(error.contains(part), "{arguments}: {error}");
        assert_eq!(place.files(), before, "{arguments}");
    }
}

#[test]
fn any_number_of_workers_gives_the_result_of_one() {
    let Some(object) = data_path() else { return };
    let place = Place::new(&object);
    // More flows than the table has entries: most are evicted, and come again.
    let frames: Vec<_> = (0..4000u32).map(|n| udp((n * 7919 % 251) as u8, 60 + (n % 200) as u16)).collect();
    place.write("x.pcap", &pcap(&frames));
    let replay = |workers: u32| {
        place.json(&format!(
            "replay x.pcap --bundle b.wirewise --seed 3 --table-size 64 --workers {workers} \
             --verdicts {workers}.jsonl --json"
        ))
    };
    let one = replay(1);
    assert!(one["flows"]["evicted"].as_u64().unwrap() > 500, "{one}");
    for workers in [2, 3, 8] {
        let several = replay(workers);
        assert_eq!(several["workers"], workers);
        for part in ["flows", "classes", "inferred", "passed"] {
            assert_eq!(several[part], one[part], "{workers} workers");
        }
        assert_eq!(lines(&place, &format!("{workers}.jsonl")), lines(&place, "1.jsonl"));
    }
}
