// SPDX-License-Identifier: Apache-2.0
//! The deny list.

use crate::lab::{ATTACK, BENIGN, Lab};

fn packets(lab: &Lab, status: &str) -> u64 {
    let stats = lab.stats();
    let rows = stats["status"].as_array().unwrap();
    rows.iter().find(|row| row["status"] == status).unwrap()["packets"].as_u64().unwrap()
}

#[test]
fn a_policy_denies_below_its_allow_list() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("deny: {prefixes: [10.9.0.0/24]}");
    lab.attach("--policy p.yaml");
    assert_eq!(lab.send(1000, BENIGN, 3), 3, "nothing is dropped in observe mode");
    assert_eq!((packets(&lab, "denied_prefix"), lab.stats()["inferred"].as_u64()), (3, Some(0)));
    lab.attach("--mode enforce");
    assert_eq!(lab.send(1000, BENIGN, 3), 0);
    lab.policy("allow: {ports: [udp/1000]}\ndeny: {prefixes: [10.9.0.0/24]}");
    lab.attach("--policy p.yaml");
    assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1001, BENIGN, 3)), (3, 0));
    lab.write("drop.txt", b"; a list as Spamhaus has it\n192.0.2.0/24 ; SBL1\n");
    lab.policy("classes: {attack: drop}\ndeny: {prefixes: drop.txt, ports: [udp/1001]}");
    lab.attach("--policy p.yaml");
    assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3), lab.send(1001, BENIGN, 3)), (3, 0, 0));
    assert_eq!(packets(&lab, "denied_port"), 3);
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml");
    assert_eq!(lab.send(1001, BENIGN, 3), 3);
}
