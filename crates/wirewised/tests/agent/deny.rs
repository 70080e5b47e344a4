// SPDX-License-Identifier: Apache-2.0
//! The deny list: of the policy, and of `wirewised deny`, while packets pass.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use serde_json::Value;
use wirewised::abi::maps::DENY_FILTER;
use wirewised::object::deny_filter::Filter;

use crate::carrier::{Carrier, wait};
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, bundle, data_path};
use crate::quiet::while_it_lasts;

/// The sender's address.
const SENDER: &str = "10.9.0.1";

fn packets(lab: &Lab, status: &str) -> u64 {
    let stats = lab.stats();
    let rows = stats["status"].as_array().unwrap();
    rows.iter().find(|row| row["status"] == status).unwrap()["packets"].as_u64().unwrap()
}

#[test]
fn a_policy_denies_below_its_allow_list() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("deny: {prefixes: [10.9.0.0/24]}");
    let plan = lab.ok(&format!("run --interface {INTERFACE} --bundle b.wirewise --policy p.yaml --dry-run"));
    assert!(plan.contains("kept out     3.0 MiB for a deny list or bans"), "{plan}");
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

#[test]
fn who_is_denied_while_traffic_flows_is_so_at_every_hook() {
    for plane in ["xdp-native", "xdp-generic --offloads off", "tc-ingress --offloads off"] {
        let Some(lab) = Lab::new() else { return };
        lab.policy("deny: {}");
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        assert_eq!(lab.send(1000, BENIGN, 2), 2, "{plane}");
        let said = lab.json(&format!("deny add {SENDER} 2001:db8::/32"));
        assert_eq!(
            (said["changes"]["added"].as_u64(), said["origin"].as_str()),
            (Some(2), Some("hand")),
            "{said}"
        );
        assert_eq!(lab.send(1000, BENIGN, 2), 0, "{plane}");
        // A second origin denies a larger prefix, and goes on when the first does no longer.
        lab.write("list.txt", b"# two\n10.9.0.0/24\n198.51.100.0/24\n");
        lab.ok("deny load list.txt");
        lab.ok(&format!("deny remove {SENDER}"));
        assert_eq!(lab.send(1000, BENIGN, 2), 0, "{plane}");
        lab.write("list.txt", b"198.51.100.0/24\n");
        assert!(lab.ok("deny load list.txt --dry-run").contains("1 removed"));
        assert_eq!(lab.send(1000, BENIGN, 2), 0, "{plane}");
        lab.ok("deny load list.txt");
        assert_eq!(lab.send(1000, BENIGN, 2), 2, "{plane}");
        let listed: Value = lab.json("deny list");
        let listed: Vec<_> =
            listed["prefixes"].as_array().unwrap().iter().map(|it| it["prefix"].as_str().unwrap()).collect();
        assert_eq!(listed, ["198.51.100.0/24", "2001:db8::/32"]);
    }
}

/// Packets that an origin kept out; `None`: it is not in the list.
fn kept_out(lab: &Lab, origin: &str) -> Option<u64> {
    let stats = lab.stats();
    let rows = stats["denied"].as_array()?;
    rows.iter().find(|row| row["origin"] == origin)?["packets"].as_u64()
}

#[test]
fn packets_are_counted_for_the_origin_that_kept_them_out() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("deny: {}");
    lab.attach("--policy p.yaml --mode enforce");
    assert_eq!(kept_out(&lab, "hand"), None);
    lab.ok(&format!("deny add {SENDER} --for 1h"));
    lab.send(1000, BENIGN, 2);
    assert_eq!(kept_out(&lab, "hand"), Some(2));
    // It denies the same address for longer.
    lab.ok(&format!("deny add {SENDER} --origin long"));
    lab.send(1000, BENIGN, 3);
    assert_eq!((kept_out(&lab, "hand"), kept_out(&lab, "long")), (Some(2), Some(3)));
    lab.ok(&format!("deny remove {SENDER} --origin long"));
    lab.send(1000, BENIGN, 4);
    assert_eq!((kept_out(&lab, "hand"), kept_out(&lab, "long")), (Some(6), None));
    // Whoever gets the place of another begins at 0.
    lab.ok(&format!("deny add {SENDER} --origin other"));
    assert_eq!(kept_out(&lab, "other"), Some(0));
    lab.send(1000, BENIGN, 1);
    assert_eq!(kept_out(&lab, "other"), Some(1));
}

#[test]
fn workers_in_user_space_go_by_the_list_when_the_command_ends() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("deny: {}");
    let _carrier = Carrier::start(&lab, "--policy p.yaml");
    lab.ok(&format!("deny add {SENDER}"));
    lab.send(1000, BENIGN, 4);
    wait("all are counted", || packets(&lab, "denied_prefix") == 4);
    lab.ok(&format!("deny remove {SENDER}"));
    lab.send(1000, BENIGN, 3);
    wait("all are counted", || packets(&lab, "classified") == 3);
    assert_eq!(packets(&lab, "denied_prefix"), 4);
}

#[test]
fn what_has_expired_does_not_shield_from_a_longer_denial() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("deny: {}");
    lab.attach("--policy p.yaml --mode enforce");
    let (seconds, arrived) = while_it_lasts(|seconds| {
        lab.ok(&format!("deny add {SENDER} --for {seconds}s --origin short"));
        lab.send(1000, BENIGN, 2)
    });
    assert_eq!(arrived, 0);
    std::thread::sleep(std::time::Duration::from_secs(seconds + 1));
    assert_eq!(lab.send(1000, BENIGN, 2), 2);
    assert_eq!(lab.json("deny list")["prefixes"], Value::Array(Vec::new()));
    lab.ok(&format!("deny add {SENDER} --for 3s --origin short"));
    lab.ok("deny add 10.0.0.0/8 --origin long");
    std::thread::sleep(std::time::Duration::from_secs(4));
    assert_eq!(lab.send(1000, BENIGN, 2), 0, "10.0.0.0/8 is still denied");
}

#[test]
fn what_others_deny_outlives_a_policy() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("deny: {prefixes: [192.0.2.0/24]}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.ok(&format!("deny add {SENDER}"));
    lab.policy("deny: {ports: [udp/9]}");
    lab.attach("--policy p.yaml");
    assert_eq!(lab.send(1000, BENIGN, 2), 0);
    let listed = lab.json("deny list");
    assert_eq!(listed["prefixes"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn a_shadow_infers_no_packet_that_is_denied_or_banned() {
    let Some(lab) = Lab::new() else { return };
    lab.policy(
        "classes: {attack: {ban: {by: source, for: 60s, spoofable: true}}}\ndeny: {ports: [udp/1001]}\nallow: {ports: [udp/1000]}",
    );
    lab.attach("--policy p.yaml --mode enforce");
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    lab.ok("swap --shadow --bundle c.wirewise");
    assert_eq!((lab.send(1002, BENIGN, 3), lab.send(1001, BENIGN, 4), lab.send(1002, ATTACK, 1)), (3, 0, 0));
    assert_eq!((lab.send(1002, BENIGN, 5), lab.send(1000, BENIGN, 2)), (0, 2));
    let found = &lab.stats()["shadow"];
    assert_eq!((&found["packets"], &found["agree"], &found["disagree"]), (&4.into(), &4.into(), &0.into()));
}

#[test]
fn what_cannot_be_denied_is_refused_with_the_way_out() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    assert!(lab.error("deny add 192.0.2.1", 2).contains("`deny: {}`"));
    lab.policy("deny: {prefixes: [192.0.2.0/24]}");
    lab.attach("--policy p.yaml");
    let refused = lab.run("deny add example.org");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && said.contains("'example.org' is not a prefix"), "{said}");
    assert!(lab.error("deny remove 192.0.2.0/24", 2).contains("by the policy"));
    assert!(lab.error("deny remove 192.0.2.1", 2).contains("deny list"));
    assert!(lab.error("deny add 192.0.2.1 --origin policy", 2).contains("its file"));
    lab.write("list.txt", b"10.0.0.0/8\nnobody\n");
    assert!(lab.error("deny load list.txt", 2).contains("line 2"));
    assert_eq!(lab.json("deny list")["prefixes"].as_array().unwrap().len(), 1);
}

/// The words of the filter that have bits.
fn filter(lab: &Lab) -> Vec<(u32, u64)> {
    let map = MapHandle::from_pinned_path(lab.pins().join(INTERFACE).join(DENY_FILTER)).unwrap();
    Filter::read(&map).unwrap().words().collect()
}

fn filter_of(prefixes: &[&str]) -> Vec<(u32, u64)> {
    let prefixes: Vec<_> = prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
    Filter::of(&prefixes).words().collect()
}

#[test]
fn a_prefix_of_any_length_denies() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("deny: {}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.ok("deny add 10.9.0.128/25 10.9.0.0/32 10.9.1.0/24");
    assert_eq!(lab.send(1000, BENIGN, 2), 2, "others of the network are denied");
    let holding = [
        "10.9.0.1/32",
        "10.9.0.0/31",
        "10.9.0.0/25",
        "10.9.0.0/24",
        "10.9.0.0/23",
        "10.9.0.0/18",
        "10.0.0.0/8",
        "0.0.0.0/1",
        "0.0.0.0/0",
    ];
    for prefix in holding {
        lab.ok(&format!("deny add {prefix} --origin {}", prefix.replace('/', "-")));
        assert_eq!(lab.send(1000, BENIGN, 2), 0, "{prefix}");
        lab.ok(&format!("deny remove {prefix} --origin {}", prefix.replace('/', "-")));
        assert_eq!(lab.send(1000, BENIGN, 2), 2, "{prefix}");
    }
}

#[test]
fn the_filter_has_the_bits_of_the_list_and_no_others() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("deny: {prefixes: [192.0.2.0/23]}");
    lab.attach("--policy p.yaml");
    assert_eq!(filter(&lab), filter_of(&["192.0.2.0/23"]));
    lab.ok("deny add 10.9.0.0/24 2001:db8::/40");
    assert_eq!(filter(&lab), filter_of(&["192.0.2.0/23", "10.9.0.0/24", "2001:db8::/40"]));
    lab.policy("deny: {prefixes: [198.51.100.0/25]}");
    lab.attach("--policy p.yaml");
    assert_eq!(filter(&lab), filter_of(&["198.51.100.0/25", "10.9.0.0/24", "2001:db8::/40"]));
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    lab.ok("swap --bundle c.wirewise");
    assert_eq!(filter(&lab), filter_of(&["198.51.100.0/25", "10.9.0.0/24", "2001:db8::/40"]));
    // As one leaves it who has set bits and ended before the prefixes were there.
    let map = MapHandle::from_pinned_path(lab.pins().join(INTERFACE).join(DENY_FILTER)).unwrap();
    map.update(&7u32.to_ne_bytes(), &u64::MAX.to_ne_bytes(), MapFlags::ANY).unwrap();
    lab.ok("deny remove 10.9.0.0/24");
    assert_eq!(filter(&lab), filter_of(&["198.51.100.0/25", "2001:db8::/40"]));
}
