// SPDX-License-Identifier: Apache-2.0
//! Allowances of `wirewised allow`, while packets pass.

use serde_json::Value;

use crate::carrier::{Carrier, wait};
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, bundle, data_path};
use crate::wire::{Wire, ipv4, ipv6};

/// The sender's address.
const SENDER: &str = "10.9.0.1";
const BANS: &str = "classes: {attack: {ban: {by: source, for: 600s, spoofable: true}}}";

fn packets(lab: &Lab, status: &str) -> u64 {
    let stats = lab.stats();
    let rows = stats["status"].as_array().unwrap();
    rows.iter().find(|row| row["status"] == status).unwrap()["packets"].as_u64().unwrap()
}

fn allowed(lab: &Lab) -> Vec<String> {
    let listed: Value = lab.json("allow list");
    let prefixes = listed["prefixes"].as_array().unwrap().iter();
    prefixes.map(|entry| entry["prefix"].as_str().unwrap().to_string()).collect()
}

#[test]
fn who_is_allowed_for_a_time_passes_a_deny_list_and_bans_at_every_hook() {
    for plane in ["xdp-native", "xdp-generic --offloads off", "tc-ingress --offloads off"] {
        let Some(lab) = Lab::new() else { return };
        lab.policy(&format!("{BANS}\ndeny: {{prefixes: [{SENDER}]}}"));
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        assert_eq!(lab.send(1000, BENIGN, 2), 0, "{plane}");
        // Only the longer of two prefixes expires at first, and the other holds it still.
        lab.ok("allow add 10.0.0.0/8 --for 5s");
        lab.ok(&format!("allow add {SENDER} --for 1s"));
        wait("one of two has expired", || allowed(&lab) == ["10.0.0.0/8"] || allowed(&lab).is_empty());
        wait("the other has", || lab.send(1000, BENIGN, 1) == 0);
        assert!(packets(&lab, "denied_prefix") >= 3 && allowed(&lab).is_empty(), "{plane}");
        lab.policy(BANS);
        lab.attach("--policy p.yaml --mode enforce");
        assert_eq!((lab.send(1000, ATTACK, 1), lab.send(1000, BENIGN, 2)), (0, 0), "{plane}");
        assert_eq!(packets(&lab, "banned"), 2, "{plane}");
        let before = (packets(&lab, "allowed_prefix"), lab.stats()["inferred"].as_u64());
        let said = lab.json(&format!("allow add {SENDER} 2001:db8::/32"));
        assert_eq!(said["changes"]["added"].as_u64(), Some(2), "{said}");
        assert_eq!(lab.send(1000, ATTACK, 3), 3, "{plane}");
        assert_eq!(
            (packets(&lab, "allowed_prefix"), lab.stats()["inferred"].as_u64()),
            (before.0 + 3, before.1)
        );
        assert!(lab.ok("allow remove 10.9.0.1 --dry-run").contains("1 removed (dry run"));
        lab.ok(&format!("allow remove {SENDER}"));
        assert_eq!((lab.send(1000, BENIGN, 2), packets(&lab, "banned")), (0, 4), "{plane}");
        assert_eq!(allowed(&lab), ["2001:db8::/32"]);
    }
}

#[test]
fn an_expired_prefix_does_not_hide_one_that_holds_it() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {benign: drop}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.ok("allow add 10.0.0.0/8");
    lab.ok(&format!("allow add {SENDER} --for 1s"));
    assert_eq!(lab.send(1000, BENIGN, 2), 2);
    wait("one of two has expired", || allowed(&lab) == ["10.0.0.0/8"]);
    assert_eq!(lab.send(1000, BENIGN, 2), 2);
    lab.ok("allow remove 10.0.0.0/8");
    assert_eq!((lab.send(1000, BENIGN, 2), allowed(&lab)), (0, Vec::new()));
}

#[test]
fn allowances_outlive_a_policy_and_a_swap() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    assert!(allowed(&lab).is_empty());
    lab.ok(&format!("allow add {SENDER}"));
    lab.policy("classes: {benign: drop}\nallow: {prefixes: [192.0.2.0/24, 10.9.0.1]}");
    lab.attach("--policy p.yaml --mode enforce");
    assert_eq!((lab.send(1000, BENIGN, 2), allowed(&lab).len()), (2, 2));
    assert!(lab.error("allow remove 192.0.2.0/24", 2).contains("by the policy"));
    assert!(lab.error("allow remove 192.0.2.7", 2).contains("`wirewised allow list`"));
    let list = lab.ok("allow list");
    assert!(list.contains("policy") && list.contains("hand") && list.contains("ever"), "{list}");
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    lab.policy("classes: {benign: drop}");
    lab.ok("swap --bundle c.wirewise --policy p.yaml --yes");
    assert_eq!((lab.send(1000, BENIGN, 2), allowed(&lab)), (2, vec!["10.9.0.1/32".to_string()]));
    // The model beside the first looks at no packet that is allowed.
    lab.write("d.wirewise", &bundle("third", data_path().unwrap()));
    lab.ok("swap --shadow --bundle d.wirewise");
    assert_eq!(lab.send(1000, BENIGN, 2), 2);
    assert_eq!(lab.stats()["shadow"]["packets"], 0);
    lab.ok(&format!("allow remove {SENDER}"));
    assert_eq!((lab.send(1000, BENIGN, 2), &lab.stats()["shadow"]["packets"]), (0, &2.into()));
}

#[test]
fn workers_in_user_space_go_by_the_list_when_the_command_ends() {
    for (plane, mode) in [("af-xdp", "enforce"), ("af-packet", "observe")] {
        let Some(lab) = Lab::new() else { return };
        let near = lab.enter_sender(|| Wire::open("ww1"));
        lab.policy("classes: {benign: drop, attack: drop}");
        let _carrier = Carrier::of(&lab, plane, &format!("--policy p.yaml --mode {mode}"));
        // Both have expired; those that hold them have not.
        lab.ok("allow add 10.9.0.1 fd00::1 --for 1s");
        wait("they have expired", || allowed(&lab).is_empty());
        lab.ok("allow add 10.0.0.0/8 fd00::/16");
        near.send(&[ipv4(1000, ATTACK, 0), ipv6(1000, ATTACK)]);
        wait("both are allowed", || packets(&lab, "allowed_prefix") == 2);
        lab.ok("allow remove 10.0.0.0/8");
        near.send(&[ipv4(1000, ATTACK, 0), ipv6(1000, ATTACK)]);
        wait("one is", || packets(&lab, "allowed_prefix") == 3 && packets(&lab, "classified") == 1);
        lab.ok("allow remove fd00::/16");
        near.send(&[ipv6(1000, ATTACK)]);
        wait("none is", || packets(&lab, "classified") == 2);
        assert_eq!(packets(&lab, "allowed_prefix"), 3, "{plane}");
        if mode == "observe" {
            assert!(lab.error("mode enforce --for 1h --yes", 2).contains("it can drop none"));
        }
    }
}

#[test]
fn what_cannot_be_allowed_is_refused() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    let refused = lab.run("allow add example.org");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("'example.org' is not a prefix"), "{said}");
    let said = lab.ok(&format!("allow add {SENDER} --dry-run --interface {INTERFACE}"));
    assert!(said.contains("1 added, 0 changed, 0 removed (dry run"), "{said}");
    assert!(allowed(&lab).is_empty());
}
