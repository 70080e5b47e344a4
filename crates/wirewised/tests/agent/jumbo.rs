// SPDX-License-Identifier: Apache-2.0
//! Frames that are larger than a driver's buffer, at native XDP.

use serde_json::{Value, json};

use crate::lab::{BENIGN, INTERFACE, Lab, bundle, variant};
use crate::next::Foreign;

/// Bytes of UDP data, and of the frame.
const LARGE: usize = 8000;
const FRAME: u64 = LARGE as u64 + 8 + 20 + 14;

fn jumbo() -> Option<Lab> {
    let lab = Lab::new()?;
    lab.sender_sh("ip link set ww1 mtu 9000");
    lab.sh(&format!("ip link set {INTERFACE} mtu 9000"));
    Some(lab)
}

fn attack(lab: &Lab) -> Value {
    lab.json("stats --interface ww0")["classes"][1].clone()
}

#[test]
fn frames_in_several_buffers_are_judged_by_their_whole_length() {
    let Some(lab) = jumbo() else { return };
    let report = lab.json(&format!("doctor --interface {INTERFACE}"));
    let findings = report["findings"].as_array().unwrap();
    let mtu = findings.iter().find(|finding| finding["check"] == "mtu").unwrap();
    assert_eq!(mtu["level"], "ok", "{mtu}");
    lab.policy("classes: {attack: count}");
    lab.attach("--policy p.yaml --mode enforce");
    assert_eq!(lab.status()["plane_obtained"], "xdp-native");
    assert_eq!((lab.send(1000, LARGE, 3), lab.send(1000, BENIGN, 2)), (3, 2));
    let found = attack(&lab);
    assert_eq!((&found["packets"], &found["bytes"]), (&json!(3), &json!(3 * FRAME)));
    lab.policy("classes: {attack: drop}");
    lab.json(&format!(
        "run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --mode enforce --yes"
    ));
    assert_eq!((lab.send(1000, LARGE, 3), lab.send(1000, BENIGN, 2)), (0, 2));
    // What takes over runs on the same driver.
    lab.write("new.wirewise", &bundle("second", &variant("BORDER=9000")));
    lab.json("swap --bundle new.wirewise");
    assert_eq!(lab.send(1000, LARGE, 3), 3);
    lab.json("rollback");
    assert_eq!(lab.send(1000, LARGE, 3), 0);
    lab.json("swap --shadow --bundle new.wirewise");
    assert_eq!((lab.send(1000, LARGE, 3), lab.send(1000, BENIGN, 1)), (0, 1));
    assert_eq!(lab.stats()["shadow"]["disagree"], 3);
    lab.ok("detach --interface ww0");
    lab.assert_untouched();
}

#[test]
fn what_packets_go_on_to_is_loaded_for_several_buffers_too() {
    let Some(lab) = jumbo() else { return };
    let one_buffer = Foreign::new(&lab, "one-buffer", &[]);
    lab.policy(&format!("next: {}", one_buffer.pin.display()));
    let error = lab.error(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml"), 2);
    assert!(error.contains("for multi-buffer (xdp.frags), as this interface's MTU asks for"), "{error}");
    lab.assert_untouched();
}

#[test]
fn a_large_frame_comes_back_whole() {
    let Some(lab) = jumbo() else { return };
    lab.policy("classes: {attack: bounce}");
    // veth takes frames of XDP at its other end only where there is a program too.
    lab.json(&format!("run --bundle b.wirewise --netns {} --interface ww1", lab.namespaces()[0]));
    lab.attach("--policy p.yaml --mode enforce");
    let before = lab.received();
    assert_eq!(lab.send(1000, LARGE, 4), 0);
    assert_eq!(lab.received() - before, 4);
    assert_eq!(attack(&lab)["outcomes"]["acted"]["packets"], 4);
    let back =
        lab.json(&format!("stats --netns {} --interface ww1", lab.namespaces()[0]))["classes"][1].clone();
    assert_eq!((&back["packets"], &back["bytes"]), (&json!(4), &json!(4 * FRAME)));
    lab.ok(&format!("detach --netns {} --interface ww1", lab.namespaces()[0]));
    lab.ok("detach --interface ww0");
    lab.assert_untouched();
}
