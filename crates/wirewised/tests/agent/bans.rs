// SPDX-License-Identifier: Apache-2.0
//! Bans: who sends packets of a class is dropped from then on, unless the address may be somebody else's.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use wirewised::reading::events::moment;

use crate::carrier::{Carrier, wait};
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, RECEIVER, SENDER, bundle, data_path};
use crate::quiet::while_it_lasts;
use crate::steering::outcome;
use crate::wire::{Wire, ethernet, sum};

const SPOOFABLE: &str = "classes: {attack: {ban: {by: source, for: 60s, spoofable: true}}}";
const PROVEN: &str = "classes: {attack: {ban: {by: source, for: 60s}}}";
const PORT: u16 = 8080;
const SYN: u8 = 2;
const ACK: u8 = 16;

fn banned(lab: &Lab) -> u64 {
    let stats = lab.stats();
    let rows = stats["status"].as_array().unwrap();
    rows.iter().find(|row| row["status"] == "banned").unwrap()["packets"].as_u64().unwrap()
}

fn listed(lab: &Lab) -> Vec<Value> {
    lab.json("bans list")["bans"].as_array().unwrap().clone()
}

fn events(lab: &Lab) -> Vec<Value> {
    lab.ok("events --json").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A segment with a payload that the model takes for attack.
fn segment(source: [u8; 4], destination: [u8; 4], flags: u8, numbers: [u32; 2]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0];
    packet[2..4].copy_from_slice(&(40 + ATTACK as u16).to_be_bytes());
    packet.extend([source, destination].concat());
    let check = sum(&packet);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    packet.extend([4000u16.to_be_bytes(), PORT.to_be_bytes()].concat());
    packet.extend(numbers.into_iter().flat_map(u32::to_be_bytes));
    packet.extend([0x50, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
    packet.extend([0; ATTACK]);
    ethernet(0x0800, &packet)
}

#[test]
fn a_banned_source_is_dropped_before_inference_at_every_hook() {
    for plane in ["xdp-native", "xdp-generic --offloads off", "tc-ingress --offloads off"] {
        let Some(lab) = Lab::new() else { return };
        lab.policy(SPOOFABLE);
        let run = format!(
            "run --bundle b.wirewise --interface {INTERFACE} --plane {plane} --policy p.yaml --mode enforce --yes"
        );
        let output = lab.run(&run);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && said.contains("warning: ban: attack: `spoofable: true`"),
            "{said}"
        );
        assert_eq!((lab.send(1000, BENIGN, 2), lab.send(1000, ATTACK, 1)), (2, 0), "{plane}");
        assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1001, ATTACK, 2)), (0, 0), "{plane}");
        let counted = (outcome(&lab, 1, "ban"), outcome(&lab, 1, "drop"), banned(&lab));
        assert_eq!((counted, lab.stats()["inferred"].as_u64()), ((1, 0, 5), Some(3)), "{plane}");
        let bans = listed(&lab);
        assert_eq!((bans.len(), &bans[0]["source"]), (1, &json!(format!("{SENDER}/32"))), "{plane}");
        assert!((50_000..=60_000).contains(&bans[0]["for_ms"].as_u64().unwrap()), "{bans:?}");
        let told = events(&lab);
        let ban = &told.iter().find(|event| event["event_type"] == "ban").unwrap()["ban"];
        let source = format!("{SENDER}/32");
        let expected = json!({
            "source": source, "by": "source", "for_ms": 60_000, "until": ban["until"], "class": "attack"
        });
        assert_eq!(ban, &expected, "{told:?}");

        // A ban outlives the program that made it.
        lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
        lab.ok("swap --bundle c.wirewise");
        assert_eq!(lab.send(1000, BENIGN, 2), 0, "{plane}");
        lab.ok("rollback");
        assert_eq!(lab.send(1000, BENIGN, 2), 0, "{plane}");
        lab.policy(&format!("{SPOOFABLE}\nallow: {{ports: [udp/1000]}}"));
        lab.attach(&format!("--plane {plane} --policy p.yaml"));
        assert_eq!((lab.send(1000, BENIGN, 2), lab.send(1001, BENIGN, 2)), (2, 0), "allow wins: {plane}");

        assert!(lab.ok(&format!("bans lift {SENDER} --dry-run")).contains("1 lifted (dry run"));
        assert_eq!(lab.send(1001, BENIGN, 2), 0, "{plane}");
        assert!(lab.error("bans lift 192.0.2.1", 2).contains("is not banned"));
        assert_eq!(lab.json(&format!("bans lift {SENDER}"))["lifted"].as_array().unwrap().len(), 1);
        assert_eq!((lab.send(1001, BENIGN, 2), listed(&lab).len()), (2, 0), "{plane}");
    }
}

#[test]
fn a_ban_expires_and_is_reported_once() {
    let look = |seconds| {
        let lab = Lab::new()?;
        lab.policy(&format!("classes: {{attack: {{ban: {{by: pair, for: {seconds}s, spoofable: true}}}}}}"));
        lab.attach("--policy p.yaml --mode enforce");
        let arrived = (lab.send(1000, ATTACK, 4), lab.send(1000, BENIGN, 2));
        let listed = listed(&lab);
        Some((lab, arrived, listed))
    };
    let (seconds, Some((lab, arrived, bans))) = while_it_lasts(look) else { return };
    assert_eq!((arrived, &bans[0]["destination"]), ((0, 0), &RECEIVER.into()));
    let told = events(&lab);
    assert_eq!(
        (told.len(), &told[0]["event_type"], &told[0]["wirewise"]["outcome"]),
        (1, &"ban".into(), &"ban".into())
    );
    let ban = &told[0]["ban"];
    assert_eq!((&ban["by"], &ban["destination"]), (&"pair".into(), &RECEIVER.into()));
    let until = moment(ban["until"].as_str().unwrap()).unwrap();
    let lasts = until.duration_since(moment(told[0]["timestamp"].as_str().unwrap()).unwrap());
    assert_eq!(lasts.unwrap(), Duration::from_secs(seconds));
    std::thread::sleep(Duration::from_secs(seconds + 1));
    assert_eq!((lab.send(1000, BENIGN, 2), listed(&lab).len()), (2, 0));
    assert_eq!((lab.send(1000, ATTACK, 2), outcome(&lab, 1, "ban"), banned(&lab)), (0, 2, 6));
    assert_eq!(lab.stats()["events"]["sent"], 2, "an event a ban");
}

#[test]
fn nobody_is_dropped_for_what_was_observed() {
    let Some(lab) = Lab::new() else { return };
    lab.policy(SPOOFABLE);
    lab.attach("--policy p.yaml");
    assert_eq!((lab.send(1000, ATTACK, 3), lab.send(1000, BENIGN, 3)), (3, 3));
    let counted = (outcome(&lab, 1, "would-ban"), outcome(&lab, 1, "would-drop"), banned(&lab));
    assert_eq!(counted, (1, 2, 0));
    assert_eq!(listed(&lab)[0]["would"], true);
    assert!(events(&lab).iter().all(|event| event["event_type"] == "wirewise" && event.get("ban").is_none()));
    lab.attach("--mode enforce");
    assert_eq!((lab.send(1000, BENIGN, 2), lab.send(1000, ATTACK, 1), lab.send(1000, BENIGN, 2)), (2, 0, 0));
}

#[test]
fn who_completed_a_handshake_is_banned_and_who_is_forged_is_not() {
    for plane in ["xdp-generic", "tc-ingress"] {
        let Some(lab) = Lab::new() else { return };
        lab.policy(&format!("{PROVEN}\nevents: {{each: flow, rate: 1000/s, burst: 1000}}"));
        let run = format!(
            "run --bundle b.wirewise --interface {INTERFACE} --plane {plane} --policy p.yaml --mode enforce --offloads off --yes"
        );
        assert!(lab.error(&run, 2).contains("add --outgoing"));
        lab.ok(&format!("{run} --outgoing"));
        let listener = lab.enter(|| TcpListener::bind((RECEIVER, PORT)).unwrap());

        // Floods of forged SYNs, ACKs, SYN-ACKs of both sides, and UDP.
        let wire = lab.enter_sender(|| Wire::open("ww1"));
        let (victim, own) = ([10, 9, 0, 1], [10, 9, 0, 2]);
        let forged = |numbers: [u32; 2]| {
            [SYN, ACK, SYN | ACK].map(|flags| segment(victim, own, flags, numbers)).into_iter()
        };
        let mut frames: Vec<_> = (0..20).flat_map(|at| forged([at, at + 1])).collect();
        // A forged SYN-ACK with this host's address proves nothing.
        let mut answer = segment(own, victim, SYN | ACK, [7, 2]);
        answer[34..38].rotate_left(2);
        frames.extend([answer, segment(victim, own, ACK, [2, 8])]);
        wire.send(&frames);
        wait("all are counted", || outcome(&lab, 1, "drop") >= frames.len() as u64);
        assert_eq!(lab.send(1000, ATTACK, 3), 0);
        assert_eq!((outcome(&lab, 1, "ban"), banned(&lab), listed(&lab).len()), (0, 0, 0), "{plane}");
        let proven =
            |lab: &Lab| events(lab).iter().filter(|event| event["wirewise"]["proven"] == true).count();
        assert_eq!((proven(&lab), events(&lab).is_empty()), (0, false), "{plane}");
        assert_eq!(lab.send(1000, BENIGN, 3), 3, "{plane}");

        let mut client = lab.enter_sender(|| TcpStream::connect((RECEIVER, PORT)).unwrap());
        let _server = listener.accept().unwrap();
        // Others who speak in its name still do not have it banned: they do not know its numbers.
        wire.send(&[segment(victim, own, ACK, [1, 1])]);
        assert_eq!((lab.send(1000, ATTACK, 1), outcome(&lab, 1, "ban")), (0, 0), "{plane}");
        client.write_all(&[0; ATTACK]).unwrap();
        wait("it is banned", || outcome(&lab, 1, "ban") == 1);
        assert_eq!((lab.send(1000, BENIGN, 3), listed(&lab).len(), proven(&lab)), (0, 1, 1), "{plane}");
    }
}

#[test]
fn workers_in_user_space_share_bans_with_the_agent() {
    let Some(lab) = Lab::new() else { return };
    lab.policy(PROVEN);
    assert!(
        lab.error(
            &format!(
                "run --bundle b.wirewise --interface {INTERFACE} --plane af-packet --policy p.yaml --yes"
            ),
            2
        )
        .contains("spoofable")
    );
    lab.policy(SPOOFABLE);
    let _carrier = Carrier::start(&lab, "--policy p.yaml --workers 2");
    lab.send(1000, ATTACK, 4);
    wait("all are counted", || outcome(&lab, 1, "would-ban") + outcome(&lab, 1, "would-drop") == 4);
    assert_eq!((outcome(&lab, 1, "would-ban"), listed(&lab).len()), (1, 1));
    assert!(lab.ok("bans lift --all").contains("1 lifted"));
    lab.send(1000, ATTACK, 1);
    wait("it is counted", || outcome(&lab, 1, "would-ban") == 2);
}

#[test]
fn a_policy_without_bans_has_none_to_lift() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml");
    assert!(lab.error("bans list", 2).contains("give a class `ban: {by: source, for: 60s}`"));
}
