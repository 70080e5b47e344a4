// SPDX-License-Identifier: Apache-2.0
//! What a policy does to packets, and how it changes while they pass.

use crate::lab::{ATTACK, BENIGN, Lab};

#[test]
fn the_allow_list_is_checked_before_the_model_and_changes_in_place() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}\nallow: {ports: [udp/1000]}");
    lab.attach("--policy p.yaml --mode enforce");
    assert_eq!((lab.send(1000, ATTACK, 3), lab.send(1001, ATTACK, 3)), (3, 0));
    lab.policy("classes: {attack: drop}\nallow: {ports: [tcp/1000, 1001]}");
    lab.attach("--policy p.yaml");
    assert_eq!((lab.send(1000, ATTACK, 3), lab.send(1001, ATTACK, 3)), (0, 3));
    lab.policy("classes: {attack: drop}\nallow: {prefixes: [10.9.0.0/31, 192.0.2.0/24]}");
    lab.attach("--policy p.yaml");
    assert_eq!((lab.send(1000, ATTACK, 3), lab.send(1001, ATTACK, 3)), (3, 3));
    lab.policy("classes: {attack: drop}\nallow: {prefixes: [192.0.2.0/24]}");
    lab.attach("--policy p.yaml");
    assert_eq!(lab.send(1000, ATTACK, 3), 0);
    let stats = lab.stats();
    let status = |name: &str| {
        let rows = stats["status"].as_array().unwrap();
        rows.iter().find(|row| row["status"] == name).unwrap()["packets"].as_u64().unwrap()
    };
    assert_eq!((status("allowed_port"), status("allowed_prefix"), status("classified")), (6, 6, 9));
}

#[test]
fn a_rate_limit_lets_the_burst_through() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: {action: rate-limit, rate: 1/m, burst: 5}, benign: count}");
    lab.attach("--policy p.yaml --mode enforce");
    assert_eq!((lab.send(1000, ATTACK, 20), lab.send(1000, BENIGN, 20)), (5, 20));
    let outcomes = lab.stats()["classes"][1]["outcomes"].clone();
    assert_eq!((&outcomes["pass"]["packets"], &outcomes["limited"]["packets"]), (&5.into(), &15.into()));
}

#[test]
fn enforce_needs_a_policy() {
    let Some(lab) = Lab::new() else { return };
    let error = lab.error("run --bundle b.wirewise --interface ww0 --mode enforce", 2);
    assert!(error.contains("--mode enforce needs --policy FILE"), "{error}");
    lab.assert_untouched();
    lab.attach("");
    let error = lab.error("run --bundle b.wirewise --interface ww0 --mode enforce", 2);
    assert!(error.contains("--mode enforce needs --policy FILE"), "{error}");
    assert_eq!(lab.status()["mode"], "observe");
}
