// SPDX-License-Identifier: Apache-2.0
//! Observe or enforce by class, while packets pass.

use std::time::Duration;

use serde_json::Value;

use crate::carrier::{Carrier, wait};
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, bundle_of_classes, data_path};
use crate::quiet::while_it_lasts;

fn class(lab: &Lab, name: &str) -> Value {
    let status = lab.json(&format!("status --interface {INTERFACE}"));
    let classes = status["attachments"][0]["classes"].as_array().unwrap();
    classes.iter().find(|class| class["name"] == name).unwrap().clone()
}

fn outcome(lab: &Lab, outcome: &str) -> u64 {
    let stats = lab.stats();
    let attack = stats["classes"].as_array().unwrap().iter().find(|row| row["name"] == "attack").unwrap();
    attack["outcomes"][outcome]["packets"].as_u64().unwrap()
}

#[test]
fn a_class_observes_and_enforces_again_at_every_hook() {
    for plane in ["xdp-native", "xdp-generic --offloads off", "tc-ingress --offloads off"] {
        let Some(lab) = Lab::new() else { return };
        lab.policy("classes: {attack: drop, benign: {action: rate-limit, rate: 1/m, burst: 1}}");
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        assert_eq!(lab.send(1000, ATTACK, 3), 0, "{plane}");
        lab.ok("mode --class attack observe");
        assert_eq!(lab.send(1000, ATTACK, 3), 3, "{plane}");
        assert_eq!((outcome(&lab, "drop"), outcome(&lab, "would-drop")), (3, 3), "{plane}");
        assert_eq!(lab.send(1001, BENIGN, 3), 1, "the rest is enforced still: {plane}");
        let found = class(&lab, "attack");
        assert_eq!(
            (found["mode"].as_str(), found["asked"]["mode"].as_str()),
            (Some("observe"), Some("observe"))
        );
        assert!(found["asked"]["remaining_seconds"].is_null());
        assert!(lab.ok("status").contains("attack: drop (observe)"));
        assert!(lab.ok("stats").contains("drop (observe)"));
        lab.ok("mode --class attack enforce");
        assert_eq!(lab.send(1000, ATTACK, 3), 0, "{plane}");
        assert!(class(&lab, "attack")["asked"].is_null());
    }
}

#[test]
fn the_program_ends_the_mode_of_a_class_by_itself() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml --mode enforce");
    let (seconds, (said, asked, arrived)) = while_it_lasts(|seconds| {
        let said = lab.json(&format!("mode --class attack observe --for {seconds}s"));
        (said, class(&lab, "attack")["asked"].clone(), lab.send(1000, ATTACK, 2))
    });
    let whole = seconds as f64;
    assert_eq!((said["for_seconds"].as_f64(), said["asked"].as_str()), (Some(whole), Some("observe")));
    let left = asked["remaining_seconds"].as_f64().unwrap();
    assert!((0.0..=whole).contains(&left), "{left}");
    assert_eq!(arrived, 2);
    std::thread::sleep(Duration::from_secs(seconds + 1));
    assert_eq!(lab.send(1000, ATTACK, 2), 0);
    assert!(class(&lab, "attack")["asked"].is_null());
    let (seconds, arrived) = while_it_lasts(|seconds| {
        lab.ok(&format!("mode --class attack enforce --for {seconds}s"));
        lab.send(1000, ATTACK, 2)
    });
    assert_eq!(arrived, 0);
    std::thread::sleep(Duration::from_secs(seconds + 1));
    assert_eq!(lab.send(1000, ATTACK, 2), 2);
    assert_eq!(class(&lab, "attack")["mode"], "observe");
}

#[test]
fn the_program_ends_the_mode_of_the_whole_by_itself() {
    for plane in ["xdp-native", "tc-ingress --offloads off"] {
        let Some(lab) = Lab::new() else { return };
        lab.policy("classes: {attack: drop}\nallow: {prefixes: [192.0.2.7]}");
        lab.attach(&format!("--plane {plane} --policy p.yaml"));
        assert!(lab.error("mode observe --for 1h", 2).contains("nothing to return to"));
        let (_, (said, arrived)) = while_it_lasts(|seconds| {
            let said = lab.json(&format!("mode enforce --for {seconds}s"));
            (said, lab.send(1000, ATTACK, 2))
        });
        assert_eq!((said["mode"].as_str(), arrived), (Some("enforce"), 0), "{plane}");
        wait("it observes again", || lab.send(1000, ATTACK, 1) == 1);
        let status = lab.status();
        assert_eq!((&status["mode"], &status["mode_as_asked"]), (&"observe".into(), &false.into()));
        lab.ok("mode enforce");
        assert_eq!((lab.send(1000, ATTACK, 2), lab.status()["mode"].as_str()), (0, Some("enforce")));
        let (_, (status, arrived)) = while_it_lasts(|seconds| {
            lab.ok(&format!("mode observe --for {seconds}s"));
            (lab.status(), lab.send(1000, ATTACK, 2))
        });
        assert_eq!((status["mode"].as_str(), arrived), (Some("observe"), 2), "{plane}");
        assert!((0.0..=600.0).contains(&status["observe_remaining_seconds"].as_f64().unwrap()), "{status}");
        wait("it enforces again", || lab.send(1000, ATTACK, 1) == 0);
        assert!(lab.status()["observe_remaining_seconds"].is_null());
    }
}

#[test]
fn the_mode_of_the_whole_goes_on_under_another_policy() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml --mode enforce");
    assert!(lab.ok("mode observe --for 1h").contains("observe, 59 min"));
    lab.policy("classes: {attack: {action: rate-limit, rate: 1/m, burst: 1}}");
    lab.attach("--policy p.yaml");
    assert!(lab.ok("status").contains("observe, 59 min"));
    lab.write("c.wirewise", &bundle_of_classes("second", data_path().unwrap(), &["attack", "benign"]));
    lab.policy("classes: {attack: drop}");
    lab.ok("swap --bundle c.wirewise --policy p.yaml --yes");
    assert!(lab.ok("status").contains("observe, 59 min"));
    assert!(lab.error("mode enforce --for 1h", 2).contains("wirewised allow add"));
    lab.ok("mode enforce --for 1h --yes");
    lab.ok(&format!("run --bundle c.wirewise --interface {INTERFACE} --policy p.yaml --yes"));
    assert!(lab.ok("status").contains("enforce, 59 min"));
    lab.ok("mode observe");
    let status = lab.status();
    assert_eq!((&status["mode"], &status["enforce_remaining_seconds"]), (&"observe".into(), &Value::Null));
}

#[test]
fn workers_in_user_space_go_by_the_mode_of_a_class() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let _carrier = Carrier::of(&lab, "af-xdp", "--policy p.yaml --mode enforce");
    lab.ok("mode --class attack observe");
    assert_eq!(lab.send(1000, ATTACK, 3), 3);
    wait("all are counted", || outcome(&lab, "would-drop") == 3);
    lab.ok("mode --class attack enforce");
    assert_eq!(lab.send(1000, ATTACK, 2), 0);
    wait("all are counted", || outcome(&lab, "drop") == 2);
}

#[test]
fn the_mode_of_a_class_outlives_a_policy_and_a_swap() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.ok("mode --class attack observe");
    lab.policy("classes: {attack: {action: rate-limit, rate: 1/m, burst: 1}}");
    lab.attach("--policy p.yaml");
    assert_eq!(lab.send(1000, ATTACK, 3), 3);
    assert_eq!(outcome(&lab, "would-limit"), 2);
    lab.attach("--mode enforce");
    assert_eq!(class(&lab, "attack")["mode"], "observe");
    // The classes have other numbers there.
    lab.write("c.wirewise", &bundle_of_classes("second", data_path().unwrap(), &["attack", "benign"]));
    lab.ok("swap --bundle c.wirewise");
    assert_eq!(class(&lab, "attack")["mode"], "observe");
    assert_eq!(class(&lab, "benign")["mode"], "enforce");
    lab.write("d.wirewise", &bundle_of_classes("third", data_path().unwrap(), &["benign", "attack"]));
    lab.policy("classes: {attack: drop}");
    lab.ok("swap --bundle d.wirewise --policy p.yaml --yes");
    assert_eq!(class(&lab, "attack")["mode"], "observe");
}

#[test]
fn a_class_enforces_no_more_than_the_whole() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml");
    let done = lab.run("mode --class attack enforce");
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.success() && said.contains("wirewised mode enforce"), "{said}");
    assert_eq!((lab.send(1000, ATTACK, 2), class(&lab, "attack")["mode"].as_str()), (2, Some("observe")));
}

#[test]
fn what_is_no_class_is_refused_with_those_there_are() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml --mode enforce");
    let said = lab.error("mode --class atack observe", 2);
    assert!(said.contains("did you mean 'attack'? there are: benign, attack"), "{said}");
    assert_eq!(lab.run("mode").status.code(), Some(2));
    assert!(lab.ok("mode --class attack observe --dry-run").contains("nothing was changed"));
    assert_eq!(lab.send(1000, ATTACK, 2), 0);
}
