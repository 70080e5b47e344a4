// SPDX-License-Identifier: Apache-2.0
//! Packets that are sent round in a circle: refused where the agent knows of it; where it does not, as behind another root of pins, copies and
//! bounces are bounded.

use std::ops::RangeInclusive;

use crate::carrier::wait;
use crate::lab::{ATTACK, INTERFACE, Lab};
use crate::steering::{outcome, passing, sender};
use crate::wire::{FAR, NEAR, Wire, ipv4, sum};

const PLANES: [&str; 3] = ["tc-ingress --offloads off", "xdp-generic --offloads off", "xdp-native"];
/// A copy is copied so often.
const COPIES: u64 = 4;
/// More than the bounces of one packet whose hops end, and fewer than those of a tenth of a second without an end.
const BOUNCES: u64 = 20_000;

/// Two veth pairs, a0-a1 and b0-b1, of which the second ends are in the sender's namespace if it is to be another.
struct Ring {
    lab: Lab,
    apart: bool,
}

impl Ring {
    fn new(apart: bool) -> Option<Self> {
        let lab = Lab::new()?;
        let other = if apart { format!("netns {}", lab.namespaces()[0]) } else { String::new() };
        for pair in ["a", "b"] {
            lab.sh(&format!("ip link add {pair}0 type veth peer name {pair}1 {other}"));
        }
        let ring = Self { lab, apart };
        for end in ["a0", "a1", "b0", "b1"] {
            ring.sh(end, &format!("ip link set {end} up"));
            ring.sh(end, &format!("ethtool -K {end} gro on"));
        }
        Some(ring)
    }

    fn is_far(&self, end: &str) -> bool {
        self.apart && end.ends_with('1')
    }

    fn sh(&self, end: &str, command: &str) -> String {
        if self.is_far(end) { self.lab.sender_sh(command) } else { self.lab.sh(command) }
    }

    /// The command that has an end judged; root: where pins are.
    fn run(&self, end: &str, class: &str, plane: &str, root: &str) -> String {
        self.lab.write("l.yaml", format!("version: 1\nclasses: {{attack: {class}}}\n").as_bytes());
        let pins = self.lab.pins().with_file_name(root);
        let namespace = self.lab.namespaces()[usize::from(!self.is_far(end))];
        format!(
            "run --bundle b.wirewise --netns {namespace} --pin-root {} --interface {end} --plane {plane} --policy l.yaml \
             --mode enforce --yes",
            pins.display()
        )
    }

    fn received(&self) -> u64 {
        let of = |end: &str| {
            let said = self.sh(end, &format!("ip -j -s link show {end}"));
            let links: serde_json::Value = serde_json::from_str(&said).unwrap();
            links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
        };
        ["a0", "a1", "b0", "b1"].into_iter().map(of).sum()
    }

    /// How often one packet that leaves by an end comes in somewhere, until it is quiet.
    fn comes_round(&self, end: &str) -> u64 {
        let before = self.received();
        let send = || Wire::open(end).send(&[ipv4(1000, ATTACK, 0)]);
        if self.is_far(end) {
            self.lab.enter_sender(send)
        } else {
            self.lab.enter(send)
        }
        let mut last = self.received();
        for _ in 0..50 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let now = self.received();
            if now == last {
                return now - before;
            }
            last = now;
        }
        panic!("it goes round and round: {}", last - before);
    }
}

#[test]
fn circles_that_the_agent_knows_of_are_refused() {
    for apart in [false, true] {
        let Some(ring) = Ring::new(apart) else { return };
        let refused = |end: &str, class: &str, way: &str| {
            let error = ring.lab.error(&ring.run(end, class, PLANES[0], "wirewise"), 2);
            assert!(error.contains("would go round in a loop") && error.contains(way), "{error}");
        };
        if !apart {
            for class in ["{mirror: {interface: a0}}", "{redirect: {interface: a0}}"] {
                refused("a1", class, "(a1 -> a0 -> a1)");
            }
            refused("a1", "{forward: {ports: [a0, a1]}}", "(a1 -> a0 -> a1)");
        }
        ring.lab.ok(&ring.run("a0", "bounce", PLANES[0], "wirewise"));
        refused("a1", "bounce", "(a1 -> a0 -> a1)");
        for class in ["redirect", "mirror"] {
            ring.lab.ok(&ring.run("a0", &format!("{{{class}: {{interface: b0}}}}"), PLANES[0], "wirewise"));
            for back in ["redirect", "mirror"] {
                refused("b1", &format!("{{{back}: {{interface: a1}}}}"), "(b1 -> a1 -> a0 -> b0 -> b1)");
            }
            // It ends at a recorder.
            ring.lab.ok(&ring.run("b0", "{mirror: {interface: lo}}", PLANES[0], "wirewise"));
        }
    }
}

/// Two ends, each with what it does to the class, on two roots of pins, so that neither knows of the other. A packet comes in so often.
fn goes_round(ends: [(&str, &str); 2], often: RangeInclusive<u64>) {
    for apart in [false, true] {
        for planes in [[0, 0], [1, 0], [2, 2]] {
            let Some(ring) = Ring::new(apart) else { return };
            for (((end, class), plane), root) in ends.into_iter().zip(planes).zip(["one", "two"]) {
                ring.lab.ok(&ring.run(end, class, PLANES[plane], root));
            }
            let found = ring.comes_round("a1");
            // Generic XDP does not see what TC has sent on (skb_is_redirected): there it ends by itself.
            let least = if planes[0] == 1 { 2 } else { *often.start() };
            assert!((least..=*often.end()).contains(&found), "{planes:?}, apart: {apart}: {found}");
        }
    }
}

#[test]
fn bounces_at_both_ends_come_to_an_end() {
    goes_round([("a0", "bounce"), ("a1", "bounce")], 64..=BOUNCES - 1);
}

#[test]
fn a_copy_of_a_copy_is_not_copied_for_ever() {
    let ends = [("a0", "{mirror: {interface: b0}}"), ("b1", "{mirror: {interface: a1}}")];
    goes_round(ends, 1 + COPIES..=1 + COPIES);
}

/// A frame whose IPv4 header has so many hops left.
fn with_hops(hops: u8) -> Vec<u8> {
    let mut frame = ipv4(1000, ATTACK, 0);
    frame[22] = hops;
    frame[24..26].fill(0);
    let check = sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&check.to_be_bytes());
    frame
}

#[test]
fn bounces_lose_a_hop_only_above_the_rate_of_a_loop() {
    const FLOOD: usize = 5000;
    let Some(lab) = Lab::new() else { return };
    let near = sender(&lab);
    let _program = lab.enter_sender(|| passing("ww1"));
    lab.policy("classes: {attack: bounce}");
    for plane in PLANES {
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        near.clear();
        // As a router's and a neighbour's protocols send: RFC 5082, RFC 2328.
        let few = [255, 64, 1].map(with_hops);
        near.send(&few);
        let back = near.received();
        assert_eq!(back.len(), few.len(), "{plane}");
        for (before, after) in few.iter().zip(&back) {
            assert_eq!([&FAR[..], &NEAR[..], &before[12..]].concat(), *after, "{plane}");
        }
        let mut counted = 3;
        for (hops, ends) in [(2, false), (1, true)] {
            near.clear();
            near.send(&vec![with_hops(hops); FLOOD]);
            counted += FLOOD as u64;
            wait("all are counted", || outcome(&lab, 1, "acted") + outcome(&lab, 1, "drop") == counted);
            assert_eq!(outcome(&lab, 1, "drop") > 0, ends, "{plane}");
            // What a socket has room for.
            let left: Vec<_> = near.received().iter().map(|frame| frame[22]).collect();
            assert!(
                left.contains(&hops) && left.iter().all(|left| *left == hops || !ends && *left == 1),
                "{plane}"
            );
        }
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}
