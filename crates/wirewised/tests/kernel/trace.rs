// SPDX-License-Identifier: Apache-2.0
//! `wirewised trace` and `explain`, with the program of the fixture in this kernel.

use crate::fixture::{Place, loadable, object, pcap, udp};
use serde_json::{Value, json};

const POLICY: &[u8] = b"version: 1\nclasses: {attack: drop}\nallow: {prefixes: [10.0.0.9/32]}\n";

/// Short, long, exempt, not IP, too short to run.
fn frames() -> Vec<Vec<u8>> {
    vec![udp(1, 60), udp(1, 300), udp(9, 300), vec![0xff; 60], vec![0xff; 8]]
}

fn place(defines: &[&str]) -> Option<Place> {
    let place = Place::new(&loadable(defines)?);
    place.write("x.pcap", &pcap(&frames()));
    place.write("p.yaml", POLICY);
    Some(place)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn every_packet_gets_a_line_of_what_the_program_made_of_it() {
    for defines in [&[][..], &["TAIL_CALL"]] {
        let Some(place) = place(defines) else { return };
        let text = place.stdout("trace x.pcap --bundle b.wirewise --policy p.yaml --mode enforce --seed 1");
        let expected = [
            json!({"packet": 1, "time_ns": 1_000_000_000u64, "status": "classified", "class": "benign",
                "action": "pass", "outcome": "pass", "passed": true, "packets": 1,
                "features": {"length": 60}, "scores": [1, 0]}),
            json!({"packet": 2, "time_ns": 1_001_000_000u64, "status": "classified", "class": "attack",
                "action": "drop", "outcome": "drop", "passed": false, "packets": 2,
                "features": {"length": 300}, "scores": [0, 1]}),
            json!({"packet": 3, "time_ns": 1_002_000_000u64, "status": "allowed_prefix", "passed": true}),
            json!({"packet": 4, "time_ns": 1_003_000_000u64, "status": "not_ip", "passed": true}),
            json!({"packet": 5, "time_ns": 1_004_000_000u64, "status": "malformed_ethernet", "passed": true}),
        ];
        assert_eq!(lines(&text), expected);
    }
}

#[test]
fn a_trace_to_a_file_says_whether_the_kernel_verified_the_program() {
    let Some(place) = place(&[]) else { return };
    for plane in ["kernel", "engine"] {
        let said =
            place.stdout(&format!("trace x.pcap --bundle b.wirewise --plane {plane} -o t.jsonl --json"));
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&said["engine"], &said["plane"]), (&json!("verified"), &json!(plane)));
    }
}

#[test]
fn observing_drops_nothing_and_no_policy_passes_all() {
    let Some(place) = place(&[]) else { return };
    let observed = lines(&place.stdout("trace x.pcap --bundle b.wirewise --policy p.yaml"));
    assert_eq!((&observed[1]["outcome"], &observed[1]["passed"]), (&json!("would-drop"), &json!(true)));
    let plain = lines(&place.stdout("trace x.pcap --bundle b.wirewise"));
    assert_eq!((&plain[1]["action"], &plain[2]["class"]), (&json!("pass"), &json!("attack")));
}

#[test]
fn enforcement_ends_by_the_captures_clock() {
    let Some(place) = place(&[]) else { return };
    place.write("p.yaml", b"version: 1\nclasses: {attack: drop}\nenforce_for: 2ms\nmalformed: drop\n");
    place.write("x.pcap", &pcap(&[udp(1, 300), vec![0; 8], udp(1, 300), vec![0; 8]]));
    let text = place.stdout("trace x.pcap --bundle b.wirewise --policy p.yaml --mode enforce");
    let passed: Vec<_> = lines(&text).iter().map(|line| line["passed"].as_bool().unwrap()).collect();
    assert_eq!(passed, [false, false, true, true]);
}

#[test]
fn raw_records_have_the_documented_layout() {
    let Some(place) = place(&[]) else { return };
    place.stdout("trace x.pcap --bundle b.wirewise --policy p.yaml --mode enforce --format raw -o x.raw");
    let file = std::fs::read(place.path("x.raw")).unwrap();
    let u32s = |bytes: &[u8]| -> Vec<u32> {
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
    };
    assert_eq!(&file[..8], b"WWTRACE2");
    assert_eq!(u32s(&file[8..16]), [1, 2]);
    let records: Vec<&[u8]> = file[16..].chunks(40 + 4 * 8).collect();
    assert_eq!(records.len(), 5);
    // status, inferred, class, action, outcome, refused, packets, XDP code, and a description (none: flags, hash,
    // score as i64); then feature and scores as i64.
    assert_eq!(u32s(records[0]), [0, 1, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 60, 0, 1, 0, 0, 0]);
    assert_eq!(u32s(records[1]), [0, 1, 1, 1, 1, 0, 2, 1, 0, 0, 0, 0, 300, 0, 0, 0, 1, 0]);
    assert_eq!(u32s(records[2]), [7, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(u32s(records[3]), [1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(u32s(records[4]), [2, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_flow_table_is_dumped_with_its_state() {
    let Some(place) = place(&[]) else { return };
    place.stdout("trace x.pcap --bundle b.wirewise --policy p.yaml --table-size 16 --dump-flows flows.jsonl");
    let flows = lines(&std::fs::read_to_string(place.path("flows.jsonl")).unwrap());
    assert_eq!(
        flows[0],
        json!({"ip_version": 4, "cpu": flows[0]["cpu"], "bucket": 10 & 3, "way": 17 & 3, "source": "10.0.0.1",
            "destination": "10.0.1.1", "source_port": 0, "destination_port": 0, "protocol": 17, "packets": 2,
            "last_seen_ns": 1_001_000_000u64, "class_id": 1, "swapped": false, "state": {"sum_length": 360}, "features": []})
    );
    assert_eq!(flows.len(), 1);
}

#[test]
fn a_truncated_capture_is_an_error_and_leaves_no_file() {
    let Some(place) = place(&[]) else { return };
    let whole = std::fs::read(place.path("x.pcap")).unwrap();
    place.write("cut.pcap", &whole[..whole.len() - 3]);
    let before = place.files();
    let error = place.error("trace cut.pcap --bundle b.wirewise -o out.jsonl", 2);
    assert!(error.contains("cut.pcap: the capture breaks off inside a record, at byte"), "{error}");
    assert!(error.contains("after 4 whole packets"), "{error}");
    assert_eq!(place.files(), before);
    // On standard output stands what could be read.
    let output = place.run("trace cut.pcap --bundle b.wirewise");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(lines(&String::from_utf8(output.stdout).unwrap()).len(), 4);
}

#[test]
fn bad_input_is_one_line_and_exit_code_2() {
    let Some(object) = object(&[]) else { return };
    let place = Place::new(&object);
    place.write("x.pcap", &pcap(&frames()));
    place.write("bad.yaml", b"version: 1\nclasses: {nobody: drop}\n");
    let mut damaged = std::fs::read(place.path("b.wirewise")).unwrap();
    damaged[100] ^= 1;
    place.write("damaged.wirewise", &damaged);
    for (arguments, part) in [
        ("trace nowhere.pcap --bundle b.wirewise", "nowhere.pcap"),
        ("trace b.wirewise --bundle b.wirewise", "neither a pcap nor a pcapng"),
        ("trace x.pcap --bundle x.pcap", "x.pcap"),
        ("trace x.pcap --bundle damaged.wirewise", "damaged.wirewise"),
        ("trace x.pcap --bundle b.wirewise --policy bad.yaml", "nobody"),
        ("trace x.pcap --bundle b.wirewise --table-size 100", "power of two"),
        ("explain x.pcap --packet 1 --bundle damaged.wirewise", "damaged.wirewise"),
    ] {
        let error = place.error(arguments, 2);
        assert!(error.contains(part), "{arguments}: {error}");
    }
}

#[test]
fn an_explanation_has_headers_features_path_and_rule() {
    let Some(place) = place(&[]) else { return };
    let common = "--bundle b.wirewise --policy p.yaml --mode enforce";
    let text = place.stdout(&format!("explain x.pcap --packet 2 {common}"));
    for part in [
        "10.0.0.1 -> 10.0.1.1, protocol 17",
        "UDP        port 5000 -> 53",
        "packet 2 of its flow",
        "length  300 byte",
        "length = 300 > 100",
        "tree 0: votes for attack",
        "rule     attack: drop",
        "the packet is dropped",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let json = place.json(&format!("explain x.pcap --packet 2 {common} --json"));
    assert_eq!(json["features"], json!([{"name": "length", "raw": 300, "value": 300.0, "unit": "byte"}]));
    assert_eq!(json["paths"][0]["steps"][0]["left"], false);
    assert_eq!((&json["class"], &json["rule"]), (&json!("attack"), &json!("attack: drop")));
    assert!(place.stdout(&format!("explain x.pcap --packet 3 {common}")).contains("allow list"));
    let error = place.error(&format!("explain x.pcap --packet 6 {common}"), 2);
    assert!(error.contains("has no packet 6, only 5"), "{error}");
}
