// SPDX-License-Identifier: Apache-2.0
//! Packets that are sent round in a circle: refused where the agent knows of it, and bounded where it does not, as behind another root of pins.

use crate::lab::{ATTACK, Lab};
use crate::wire::{Wire, ipv4};

const PLANES: [&str; 3] =
    ["tc-ingress --offloads off", "xdp-generic --offloads off", "xdp-native --offloads off"];
/// A packet has that many, and a copy is copied so often.
const HOPS: u64 = 64;
const COPIES: u64 = 4;

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
            self.sh(end, &format!("cat /sys/class/net/{end}/statistics/rx_packets"))
                .trim()
                .parse::<u64>()
                .unwrap()
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

#[test]
fn what_is_bounced_at_both_ends_comes_to_its_end() {
    for apart in [false, true] {
        for planes in [[0, 0], [1, 0], [2, 2]] {
            let Some(ring) = Ring::new(apart) else { return };
            ring.lab.ok(&ring.run("a0", "bounce", PLANES[planes[0]], "one"));
            ring.lab.ok(&ring.run("a1", "bounce", PLANES[planes[1]], "two"));
            let often = ring.comes_round("a1");
            assert!((HOPS / 2..=HOPS + 2).contains(&often), "{planes:?}: {often}");
        }
    }
}

#[test]
fn what_is_redirected_in_a_ring_comes_to_its_end() {
    for apart in [false, true] {
        for planes in [[0, 0], [1, 0]] {
            let Some(ring) = Ring::new(apart) else { return };
            ring.lab.ok(&ring.run("a0", "{redirect: {interface: b0}}", PLANES[planes[0]], "one"));
            ring.lab.ok(&ring.run("b1", "{redirect: {interface: a1}}", PLANES[planes[1]], "two"));
            let often = ring.comes_round("a1");
            assert!((HOPS / 2..=HOPS + 2).contains(&often), "{planes:?}: {often}");
        }
    }
}

#[test]
fn a_copy_of_a_copy_is_not_copied_for_ever() {
    for apart in [false, true] {
        for planes in [[0, 0], [1, 0], [2, 2]] {
            let Some(ring) = Ring::new(apart) else { return };
            ring.lab.ok(&ring.run("a0", "{mirror: {interface: b0}}", PLANES[planes[0]], "one"));
            ring.lab.ok(&ring.run("b1", "{mirror: {interface: a1}}", PLANES[planes[1]], "two"));
            assert_eq!(ring.comes_round("a1"), 1 + COPIES, "{planes:?}, apart: {apart}");
        }
    }
}
