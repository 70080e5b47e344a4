// SPDX-License-Identifier: Apache-2.0
//! TC as on kernels before 6.6: by filters of clsact.

use std::os::fd::AsFd;

use serde_json::json;
use wirewised::abi::Hook;
use wirewised::interface::netdev;
use wirewised::kernel::objects;
use wirewised::plane;

use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab};
use crate::swap::lenient;
use crate::tc::foreign_program;

const RUN: &str = "--policy p.yaml --mode enforce --offloads off --clsact";

/// What `tc` shows of the interface under test.
fn shown(lab: &Lab, what: &str) -> String {
    lab.sh(&format!("tc {what} show dev {INTERFACE}"))
}

fn nothing_is_left(lab: &Lab) {
    let attached = lab.enter(|| plane::attached(netdev::index(INTERFACE).unwrap()).unwrap());
    assert_eq!((attached, lab.pinned()), (Vec::new(), Vec::new()));
    assert!(!shown(lab, "qdisc").contains("clsact"));
}

#[test]
fn a_filter_lives_as_a_link_does() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.write("c.wirewise", &lenient());
    let verdicts = || (lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3));
    for (order, priority) in [("first", 1), ("last", 0xffff)] {
        let ours = lab.attach(&format!("--plane tc-ingress --order {order} {RUN}"));
        assert_eq!(ours["plane_obtained"], "tc-ingress");
        assert_eq!(ours["filter"], json!({"priority": priority, "handle": 0x7777}));
        assert!(shown(&lab, "filter").is_empty(), "the default is what goes out");
        let filter = lab.sh(&format!("tc filter show dev {INTERFACE} ingress"));
        assert!(
            filter.contains(&format!("pref {priority} bpf")) && filter.contains("direct-action"),
            "{filter}"
        );
        assert_eq!(verdicts(), (3, 0));
        assert_eq!(lab.json("swap --bundle c.wirewise")["flows"], "kept");
        assert_eq!(verdicts(), (3, 3));
        lab.json("rollback");
        assert_eq!(verdicts(), (3, 0));
        lab.json("swap --shadow --bundle c.wirewise");
        assert_eq!((verdicts(), lab.stats()["shadow"]["packets"].clone()), ((3, 0), json!(6)));
        lab.json("swap --no-shadow");
        // Another agent finds it where it is.
        let again = lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE}"));
        assert_eq!((&again["action"], &again["status"]["filter"]), (&json!("adopted"), &ours["filter"]));
        // And on another plane, without a program on both.
        lab.json(&format!(
            "run --bundle b.wirewise --interface {INTERFACE} --plane xdp-native --policy p.yaml --mode enforce --yes --replace"
        ));
        assert_eq!(verdicts(), (3, 0));
        assert!(!shown(&lab, "qdisc").contains("clsact"));
        lab.ok(&format!("detach --interface {INTERFACE}"));
        nothing_is_left(&lab);
        assert_eq!(verdicts(), (3, 3));
    }
}

#[test]
fn filters_of_others_stay() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let (other, pin) = (foreign_program(Hook::TcIngress), lab.pins().with_file_name("other"));
    objects::pin(other.as_fd(), &pin).unwrap();
    lab.sh(&format!("tc qdisc add dev {INTERFACE} clsact"));
    lab.sh(&format!(
        "tc filter add dev {INTERFACE} ingress pref 7 bpf direct-action pinned {}",
        pin.display()
    ));
    let filters = || lab.sh(&format!("tc filter show dev {INTERFACE} ingress"));
    for order in ["first", "last"] {
        lab.attach(&format!("--plane tc-ingress --order {order} {RUN}"));
        assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0));
        let shown = filters();
        let at = |what: &str| shown.find(what).unwrap();
        let (ours, theirs) = (at("handle 0x7777"), at("pref 7 bpf chain 0 handle"));
        assert_eq!(ours < theirs, order == "first", "{shown}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
        assert!(filters().contains("pref 7 bpf"));
    }
    // Ours is the only one left, but the qdisc was there before.
    lab.attach(&format!("--plane tc-ingress {RUN}"));
    lab.sh(&format!("tc filter delete dev {INTERFACE} ingress pref 7"));
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!((filters(), shown(&lab, "qdisc").contains("clsact")), (String::new(), true));
}

#[test]
fn a_plane_that_is_not_of_tc_refuses() {
    let Some(lab) = Lab::new() else { return };
    let error = lab.error(&format!("run --bundle b.wirewise --interface {INTERFACE} --clsact"), 2);
    assert!(error.contains("--clsact is for planes of TC"), "{error}");
    lab.assert_untouched();
}

#[test]
fn who_goes_on_after_a_kill_finds_the_filter_or_its_interface_gone() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let attach = || lab.attach(&format!("--plane tc-ingress {RUN}"));
    attach();
    // As of an agent that was killed before it had pinned its note: the filter stays, and the next one takes its place.
    std::fs::remove_file(lab.pins().join(INTERFACE).join("link")).unwrap();
    attach();
    let filters = lab.sh(&format!("tc filter show dev {INTERFACE} ingress"));
    assert_eq!(filters.matches("direct-action").count(), 1, "{filters}");
    assert_eq!(lab.send(1000, ATTACK, 3), 0);
    lab.sh(&format!("ip link delete {INTERFACE}"));
    assert_eq!(lab.status()["attached"], false);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(lab.pinned(), [""; 0]);
}
