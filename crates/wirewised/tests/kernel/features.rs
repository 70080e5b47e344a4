// SPDX-License-Identifier: Apache-2.0
//! `wirewised features`: rows, their selection, their labels, and the files they stand in.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Value, json};

use crate::common::LENGTH;
use crate::fixture::{Place, data_path, loadable, object, pcap, udp};

const LABELS: &[u8] = b"
version: 1
rules:
  - {label: big, src: 10.0.0.1, proto: udp, from: 1ms, until: 2ms}
  - {label: exempt, src: [10.0.0.9, '2001:db8::/32'], dport: [53, 100-200], sport: 5000}
  - {label: never, capture: 'other-*'}
  - {label: raw, any: [{arp_op: 1}, {all: true, until: 3500us}], from: 3ms}
";
const RUN: &str = "--bundle b.wirewise --caged";

fn place() -> Option<Place> {
    let place = Place::new(&object(&[])?);
    place.write("x.pcap", &pcap(&[udp(1, 60), udp(1, 300), udp(9, 300), vec![0xff; 60], vec![0xff; 8]]));
    place.write("rules.yaml", LABELS);
    Some(place)
}

fn rows(place: &Place, arguments: &str) -> Vec<Value> {
    place.stdout(&format!("features {arguments} -o t.jsonl"));
    let text = std::fs::read_to_string(place.path("t.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn column(rows: &[Value], name: &str) -> Vec<Value> {
    rows.iter().map(|row| row[name].clone()).collect()
}

fn as_json(row: &Row) -> Value {
    let value = |field: &Field| match field {
        Field::Null => Value::Null,
        Field::Long(number) => json!(number),
        Field::Int(number) => json!(number),
        Field::Str(text) => json!(text),
        other => panic!("{other:?}"),
    };
    row.get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect()
}

#[test]
fn every_packet_has_a_row_with_features_label_and_status() {
    let Some(place) = place() else { return };
    let rows = rows(&place, &format!("x.pcap {RUN} --labels rules.yaml"));
    assert_eq!(
        rows[1],
        json!({"time_ns": 1_001_000_000u64, "capture": "x.pcap", "packet": 2, "flow": "17 10.0.0.1|5000 10.0.1.1|53", "sender": 1,
            "length": 300, "label": "big", "status": 0})
    );
    assert_eq!(column(&rows, "label"), ["", "big", "exempt", "raw", ""]);
    assert_eq!(column(&rows, "status"), [0, 0, 0, 1, 2]);
    assert_eq!(column(&rows, "length"), [json!(60), json!(300), json!(300), Value::Null, Value::Null]);
    assert_eq!(rows[3]["flow"], "");
}

#[test]
fn parquet_has_the_columns_and_the_feature_set() {
    let Some(place) = place() else { return };
    let expected = rows(&place, &format!("x.pcap x.pcap {RUN} --labels rules.yaml"));
    place.stdout(&format!("features x.pcap x.pcap {RUN} --labels rules.yaml -o t.parquet"));
    let reader = SerializedFileReader::new(std::fs::File::open(place.path("t.parquet")).unwrap()).unwrap();
    let metadata = reader.metadata().file_metadata();
    let keys = metadata.key_value_metadata().unwrap();
    let feature_set = keys.iter().find(|pair| pair.key == "wirewise.feature_set").unwrap();
    let feature_set: Value = serde_json::from_str(feature_set.value.as_deref().unwrap()).unwrap();
    assert_eq!(feature_set, serde_json::from_slice::<Value>(LENGTH).unwrap());
    let names: Vec<_> = metadata.schema().get_fields().iter().map(|field| field.name().to_owned()).collect();
    assert_eq!(names, ["time_ns", "capture", "packet", "flow", "sender", "length", "label", "status"]);
    let found: Vec<Value> = reader.get_row_iter(None).unwrap().map(|row| as_json(&row.unwrap())).collect();
    assert_eq!(found, expected);
    assert_eq!(found.len(), 10);
}

#[test]
fn rows_are_selected_by_packet_number_by_interval_and_at_the_end() {
    // The whole data path: the fixture's flow table knows one flow a protocol.
    let Some(object) = data_path() else { return };
    let place = Place::new(&object);
    // Milliseconds 0 to 7.
    place.write("x.pcap", &pcap(&[1, 1, 2, 1, 2, 1, 1, 2].map(|host| udp(host, 50 + u16::from(host)))));
    for (selection, packets) in [
        ("", vec![1, 2, 3, 4, 5, 6, 7, 8]),
        ("--at 2,4", vec![2, 5, 6]),
        ("--interval 4ms", vec![1, 3, 5, 6]),
        ("--at-end", vec![7, 8]),
    ] {
        let rows = rows(&place, &format!("x.pcap {RUN} {selection}"));
        assert_eq!(column(&rows, "packet"), packets, "{selection}");
    }
}

#[test]
fn labels_come_from_a_list_of_flows() {
    let Some(place) = place() else { return };
    place.write(
        "flows.csv",
        b"src,sport,dst,dport,proto,from,until,label,capture\n\
          # either direction\n\
          10.0.1.1,53,10.0.0.1,5000,udp,,1ms,first,\n\
          10.0.0.1,5000,10.0.1.1,53,17,1.001,1970-01-01T00:00:02Z,second,x.*\n\
          10.0.0.9,5000,10.0.1.1,53,udp,,,other,y.pcap\n",
    );
    let rows = rows(&place, &format!("x.pcap {RUN} --labels flows.csv --otherwise rest"));
    assert_eq!(column(&rows, "label"), ["first", "second", "rest", "rest", "rest"]);
}

#[test]
fn labels_come_from_a_manifest() {
    let Some(place) = place() else { return };
    place.write(
        "manifest.json",
        br#"[{"path": "x.pcap", "link_type": "ETHERNET", "packets": 5, "class": "udp_flood", "label": "mixed",
              "attack_rule": {"src": "10.0.0.1"}, "reply_rule": {"src": ["10.0.0.9"]}, "rest": "benign", "notes": 1}]"#,
    );
    let rows = rows(&place, &format!("x.pcap {RUN} --labels ."));
    assert_eq!(column(&rows, "label"), ["udp-flood", "udp-flood", "", "benign", "benign"]);
    place.write("y.pcap", &pcap(&[]));
    let error = place.error(&format!("features y.pcap {RUN} --labels manifest.json -o t.jsonl"), 2);
    assert!(error.contains("y.pcap: is not in manifest.json"), "{error}");
}

#[test]
fn the_summary_counts_rows_labels_and_statuses() {
    let Some(object) = loadable(&[]) else { return };
    let place = Place::new(&object);
    place.write("x.pcap", &pcap(&[udp(1, 60), udp(1, 300), vec![0xff; 60]]));
    place.write("rules.yaml", b"version: 1\notherwise: benign\n");
    let summary = place.json("features x.pcap --bundle b.wirewise -l rules.yaml -o t.parquet --json");
    assert_eq!(summary["engine"], "verified");
    assert_eq!((&summary["rows"], &summary["labels"]), (&json!(3), &json!({"benign": 3})));
    assert_eq!(summary["statuses"], json!({"classified": 2, "not_ip": 1}));
}

#[test]
fn a_capture_that_breaks_off_leaves_the_rows_before() {
    let Some(place) = place() else { return };
    let whole = std::fs::read(place.path("x.pcap")).unwrap();
    place.write("cut.pcap", &whole[..whole.len() - 3]);
    let run = format!("features cut.pcap x.pcap {RUN} -o t.jsonl");
    let output = place.run(&run);
    assert_eq!(output.status.code(), Some(2));
    let count = || std::fs::read_to_string(place.path("t.jsonl")).unwrap().lines().count();
    assert_eq!(count(), 4);
    let summary = place.json(&format!("{run} --keep-going --json"));
    assert_eq!((summary["warnings"].as_array().unwrap().len(), count()), (1, 9));
}

#[test]
fn bad_input_is_one_line_and_leaves_no_file() {
    let Some(place) = place() else { return };
    place.write("bad.yaml", b"version: 1\nrules: [{label: a, sport: 99999}]\n");
    place.write("nolabel.yaml", b"version: 1\nrules: [{src: 10.0.0.1}]\n");
    place.write("bad.csv", b"src,dst,proto,label\n10.0.0.1,nobody,tcp,x\n");
    place.write("bad.json", b"{}");
    let before = place.files();
    for (arguments, part) in [
        ("x.pcap --bundle b.wirewise --labels bad.yaml -o t.parquet", "'99999' is no port"),
        ("x.pcap --bundle b.wirewise --labels nolabel.yaml -o t.parquet", "rule 1 has no label"),
        ("x.pcap --bundle b.wirewise --labels bad.csv -o t.parquet", "bad.csv"),
        ("x.pcap --bundle b.wirewise --labels . -o t.parquet", "manifest.json"),
        ("x.pcap --bundle b.wirewise -o t.csv", ".parquet or .jsonl"),
        ("nowhere.pcap --bundle b.wirewise -o t.parquet", "nowhere.pcap"),
        ("bad.csv bad.json --bundle b.wirewise -o t.parquet --keep-going", "bad.csv: neither a pcap"),
        ("x.pcap --object x.bpf.o --feature-set bad.json -o t.parquet", "has no list `features`"),
    ] {
        let error = place.error(&format!("features {arguments}"), 2);
        assert!(error.contains(part), "{arguments}: {error}");
        assert_eq!(place.files(), before, "{arguments}");
    }
}
