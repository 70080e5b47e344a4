// SPDX-License-Identifier: Apache-2.0
//! Events for each flow or source, alerts, and notices that group them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::carrier::Carrier;
use crate::lab::{ATTACK, BENIGN, Lab};
use crate::quiet::while_it_lasts;

fn events(lab: &Lab) -> Vec<Value> {
    lab.ok("events --json").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// How many packets each reports.
fn counts(lab: &Lab) -> Vec<u64> {
    events(lab).iter().map(|event| event["wirewise"]["count"].as_u64().unwrap_or(1)).collect()
}

#[test]
fn a_flow_has_one_event_and_then_one_for_each_update() {
    for plane in ["xdp-native", "tc-ingress --offloads off"] {
        let look = |seconds| {
            let lab = Lab::new()?;
            lab.policy("classes: {attack: drop}");
            lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
            let flow = lab.flow(1000);
            flow.send(ATTACK, 3);
            let each_packet = counts(&lab);
            lab.policy(&format!("classes: {{attack: drop}}\nevents: {{each: flow, update: {seconds}s}}"));
            lab.attach("--policy p.yaml");
            flow.send(ATTACK, 40);
            let each_flow = counts(&lab);
            lab.flow(1001).send(ATTACK, 5);
            let both = counts(&lab).len();
            Some((lab, flow, each_packet, each_flow, both))
        };
        let (seconds, Some((lab, flow, each_packet, each_flow, both))) = while_it_lasts(look) else { return };
        assert_eq!(each_packet, [1, 1, 1], "each packet has one: {plane}");
        assert_eq!((each_flow, both), (vec![1, 1, 1, 1], 5), "{plane}");
        std::thread::sleep(Duration::from_secs(seconds + 1));
        flow.send(ATTACK, 2);
        assert_eq!(counts(&lab), [1, 1, 1, 1, 1, 40], "{plane}");
        assert_eq!(flow.send(BENIGN, 2), 2);
        assert_eq!(counts(&lab).len(), 6, "{plane}");
        let stats = lab.stats();
        assert_eq!((&stats["events"]["sent"], &stats["events"]["limited"]), (&6.into(), &0.into()));
        assert_eq!(stats["classes"][1]["outcomes"]["drop"]["packets"], 50);
        lab.policy("classes: {attack: drop}");
        lab.attach("--policy p.yaml");
        flow.send(ATTACK, 3);
        assert_eq!(counts(&lab).len(), 9, "{plane}");
    }
}

#[test]
fn a_source_has_one_event_whatever_its_flows() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: count}\nevents: {each: source}");
    lab.attach("--policy p.yaml");
    for port in 1000..1006 {
        lab.send(port, ATTACK, 2);
    }
    assert_eq!(counts(&lab), [1]);
    lab.ok("run --bundle b.wirewise --interface ww0 --mode enforce --yes");
    lab.send(1000, ATTACK, 2);
    assert_eq!(counts(&lab), [1], "the outcome of a class that is counted is the same");
}

#[test]
fn workers_in_user_space_tell_of_flows_too() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}\nevents: {each: flow}");
    let _carrier = Carrier::of(&lab, "af-xdp", "--policy p.yaml --mode enforce");
    for port in [1000, 1001] {
        lab.send(port, ATTACK, 20);
    }
    assert_eq!(counts(&lab), [1, 1]);
}

#[test]
fn a_class_with_a_severity_raises_alerts() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: {action: drop, severity: 2}, benign: count}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.send(1000, ATTACK, 1);
    lab.send(1000, BENIGN, 1);
    let text = lab.ok("events --json --sensor probe-7");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [alert, plain] = &lines[..] else { panic!("{text}") };
    assert_eq!((&alert["event_type"], &alert["host"]), (&"alert".into(), &"probe-7".into()));
    assert_eq!((&alert["alert"]["severity"], &alert["alert"]["action"]), (&2.into(), &"blocked".into()));
    assert_eq!(alert["alert"]["signature"], "wirewise attack");
    assert_eq!((&plain["event_type"], plain.get("alert")), (&"wirewise".into(), None));
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(events(&lab)[0]["host"], name.trim());
}

/// `events --follow`, line by line.
struct Follower(Child, BufReader<std::process::ChildStdout>);

impl Follower {
    fn start(lab: &Lab, arguments: &str) -> Self {
        let mut child = lab.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self(child, lines)
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_flood_is_one_notice_from_its_begin_to_its_end() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: {action: drop, severity: 1}}\nevents: {rate: 5/s, burst: 2}");
    lab.attach("--policy p.yaml --mode enforce");
    let mut follower =
        Follower::start(&lab, "events --follow --notices --json --update 1s --quiet 3s --sensor probe");
    // The first tells that it is reading.
    let flow = lab.flow(1000);
    flow.send(ATTACK, 1);
    let begin = follower.next();
    assert_eq!((&begin["wirewise"]["notice"], &begin["event_type"]), (&"begin".into(), &"alert".into()));
    flow.send(ATTACK, 499);
    let mut updates = 0;
    let end = loop {
        let notice = follower.next();
        assert_eq!(notice["wirewise"]["id"], begin["wirewise"]["id"]);
        match notice["wirewise"]["notice"].as_str().unwrap() {
            "update" => updates += 1,
            "end" => break notice,
            other => panic!("{other}"),
        }
    };
    assert!(updates >= 1);
    let said = &end["wirewise"];
    assert_eq!(
        (&said["packets"], &said["outcome"], &said["class"]),
        (&500.into(), &"drop".into(), &"attack".into())
    );
    assert_eq!(said["top_sources"], serde_json::json!([{"ip": "10.9.0.1", "share": 1.0}]));
    assert_eq!(said["top_services"], serde_json::json!([{"proto": "UDP", "port": 1000, "share": 1.0}]));
    assert_eq!((&end["host"], &said["begin"]), (&"probe".into(), &begin["wirewise"]["begin"]));
    assert!(lab.stats()["events"]["limited"].as_u64().unwrap() > 400, "events alone would report few");
    let text = lab.ok("events --notices");
    assert!(text.contains("attack") && text.contains("from 10.9.0.1 100 %; to UDP/1000 100 %"), "{text}");
}
