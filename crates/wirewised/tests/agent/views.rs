// SPDX-License-Identifier: Apache-2.0
//! What `stats --watch`, `flows` and `events` show of real packets.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use wirewised::kernel::pin_to_one_cpu;

use crate::lab::{ATTACK, BENIGN, Lab, RECEIVER, SENDER};

#[test]
fn flows_are_listed_with_class_and_state() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    lab.send(1000, BENIGN, 4);
    lab.send(2000, ATTACK, 6);
    let answer = lab.json("flows --sort packets");
    assert_eq!(answer["found"], 2);
    let [first, second] = &answer["flows"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!(
        (&first["packets"], &first["class"], &first["destination_port"]),
        (&6.into(), &"attack".into(), &2000.into())
    );
    assert_eq!((&first["source"], &first["destination"]), (&SENDER.into(), &RECEIVER.into()));
    assert_eq!(first["state"]["sum_length"], 6 * (ATTACK + 28));
    assert_eq!((&second["packets"], &second["class"]), (&4.into(), &"benign".into()));
    assert!(second["age_seconds"].as_f64().unwrap() < 10.0);

    assert_eq!(lab.json("flows --class attack")["found"], 1);
    let text = lab.ok("flows --limit 1 --sort packets --state");
    assert!(text.contains("> 10.9.0.2:2000 udp") && text.contains("sum_length=3168"), "{text}");
    assert!(text.contains("1 more; --limit 0 shows all"), "{text}");
    assert!(
        lab.error("flows --class worm", 2).contains("unknown class 'worm'; the bundle has: benign, attack")
    );
}

#[test]
fn many_flows_are_listed_in_little_memory() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("--flow-table-size 524288");
    pin_to_one_cpu().unwrap();
    lab.spread(200_000);
    // Some find no empty place and take another's.
    let entries = lab.stats()["flows"]["new"].as_u64().unwrap() as usize;
    assert!(entries > 190_000, "{entries}");
    for arguments in
        ["--json --limit 0", "--limit 0 --state", "--json --limit 1000", "--limit 1000 --sort packets"]
    {
        let file = std::fs::File::create(lab.path("flows")).unwrap();
        let flows = lab.command(&format!("flows {arguments}"));
        // The tables alone are more than 100 MiB.
        let mut bounded = Command::new("prlimit");
        bounded.arg(format!("--as={}", 48 << 20)).arg(flows.get_program()).args(flows.get_args());
        assert!(bounded.stdout(file).status().unwrap().success(), "{arguments}");
        let text = std::fs::read_to_string(lab.path("flows")).unwrap();
        let shown = if arguments.contains("1000") { 1000 } else { entries };
        if arguments.contains("--json") {
            let answer: Value = serde_json::from_str(&text).unwrap();
            let flows = answer["flows"].as_array().unwrap();
            assert_eq!((flows.len(), &answer["found"]), (shown, &entries.into()));
            let keys: HashSet<_> =
                flows.iter().map(|flow| (&flow["source_port"], &flow["destination_port"])).collect();
            assert_eq!(keys.len(), shown);
        } else {
            let lines: Vec<_> = text.lines().collect();
            assert_eq!(lines.len(), if shown == entries { 1 + entries } else { 2 + shown });
            let column = lines[0].find("packets").unwrap();
            assert!(lines[1..=shown].iter().all(|line| line[column..].starts_with('1')), "{}", lines[1]);
        }
    }
    let sorted = lab.json("flows --limit 0 --sort newest");
    let times: Vec<_> = sorted["flows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|flow| flow["last_seen_ns"].as_u64().unwrap())
        .collect();
    assert!(times.len() == entries && times.is_sorted_by(|a, b| a >= b));
}

#[test]
fn events_tell_of_what_does_not_simply_pass() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}\nevents: {rate: 1/m, burst: 3}");
    lab.attach("--policy p.yaml");
    lab.send(1000, BENIGN, 4);
    lab.send(2000, ATTACK, 8);
    let lines = lab.ok("events --json");
    let events: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // The limit is one of each CPU, and the packets may come over more than one.
    assert!((3..=6).contains(&events.len()), "{lines}");
    for event in &events {
        assert_eq!((&event["class"], &event["outcome"]), (&"attack".into(), &"would-drop".into()));
        assert_eq!((&event["source"], &event["destination_port"]), (&SENDER.into(), &2000.into()));
        assert_eq!(event["length"], ATTACK + 28);
        assert!(event["time"].as_str().unwrap().starts_with("20"), "{event}");
    }
    let counted = lab.stats()["events"].clone();
    let count = |name: &str| counted[name].as_u64().unwrap();
    assert_eq!((count("sent"), count("limited")), (events.len() as u64, 8 - events.len() as u64));
    // Reading takes nothing away.
    assert_eq!(lab.ok("events --json"), lines);
    assert_eq!(lab.ok("events").lines().count(), events.len());
}

#[test]
fn the_newest_events_are_kept_without_a_reader_and_none_is_lost_with_one() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: count}\nevents: {rate: 1000000/s, burst: 1000000}");
    lab.attach("--policy p.yaml");
    // The packets come over the CPU that sends them.
    pin_to_one_cpu().unwrap();
    let flow = lab.flow(1000);
    for _ in 0..50 {
        flow.send(ATTACK, 100);
    }
    let packet = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        event["packets"].as_u64().unwrap()
    };
    let kept: Vec<_> = lab.ok("events --json").lines().map(packet).collect();
    assert_eq!(kept, (5000 - 2047..=5000).collect::<Vec<_>>());

    let mut child = lab.command("events --follow --json").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| packet(&line.unwrap()));
    assert_eq!(lines.by_ref().take(2048).collect::<Vec<_>>(), kept);
    let sender = std::thread::spawn(move || {
        for _ in 0..40 {
            flow.send(ATTACK, 100);
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let mut followed = Vec::new();
    while followed.last() != Some(&9000) {
        followed.push(lines.next().unwrap());
    }
    assert_eq!(followed, (5001..=9000).collect::<Vec<_>>());
    sender.join().unwrap();
    // SAFETY: the child was not waited for, so the number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert!(child.wait().unwrap().success());
}

#[test]
fn watching_gives_rates_and_ends_with_a_signal() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    let mut child =
        lab.command("stats --watch --interval 200ms --json").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let first = next();
    assert_eq!(first["interval_seconds"], Value::Null);
    assert_eq!(first["classes"][1]["packets_per_second"], Value::Null);
    lab.send(1000, ATTACK, 50);
    let second = next();
    let seconds = second["interval_seconds"].as_f64().unwrap();
    let gained = second["classes"][1]["packets"].as_u64().unwrap() as f64;
    assert!(gained > 0.0, "{second}");
    let rate = second["classes"][1]["packets_per_second"].as_f64().unwrap();
    assert!((rate - gained / seconds).abs() < 1e-6, "{second}");
    let bits = second["classes"][1]["bits_per_second"].as_f64().unwrap();
    assert!((bits - rate * 8.0 * (ATTACK + 42) as f64).abs() < 1e-3, "{second}");
    // SAFETY: the child was not waited for, so the number is its own.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert!(child.wait().unwrap().success());
}
