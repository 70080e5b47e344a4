// SPDX-License-Identifier: Apache-2.0
//! What can go wrong, on every plane: the agent is killed, the interface goes and comes back, its link is down, a second agent comes,
//! queues run over. After each of them packets are judged again or the end is clear, and traffic flows.

use std::net::UdpSocket;

use crate::carrier::{Carrier, packets, wait};
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, RECEIVER, SENDER, bundle, variant};

/// A plane, and whether packets are carried by the agent.
const PLANES: &[(&str, bool)] = &[
    ("xdp-native", false),
    ("xdp-generic", false),
    ("tc-ingress", false),
    ("tc-egress", false),
    ("af-packet", true),
    ("af-xdp", true),
    #[cfg(feature = "dpdk")]
    ("dpdk", true),
];

/// A lab for each plane, one after the other.
fn each(mut test: impl FnMut(&Lab, &str, bool)) {
    for (plane, carried) in PLANES {
        let Some(lab) = Lab::new() else { return };
        lab.whole_packets();
        eprintln!("{plane}");
        test(&lab, plane, *carried);
    }
}

fn start(lab: &Lab, plane: &str, carried: bool, arguments: &str) -> Option<Carrier> {
    if carried {
        return Some(Carrier::of(lab, plane, arguments));
    }
    lab.attach(&format!("--plane {plane} {arguments}"));
    None
}

/// Packets of the plane's direction, sent until some are judged.
fn judged(lab: &Lab, plane: &str) {
    let before = packets(lab, 0);
    let (socket, to) = match plane {
        "tc-egress" => (lab.enter(|| UdpSocket::bind((RECEIVER, 0)).unwrap()), (SENDER, 1000)),
        _ => (lab.enter_sender(|| UdpSocket::bind((SENDER, 0)).unwrap()), (RECEIVER, 1000)),
    };
    wait(&format!("{plane} judges packets"), || {
        // Refused where an answer said that nobody listens.
        let _ = socket.send_to(&[0; BENIGN], to);
        packets(lab, 0) > before
    });
}

fn flows(lab: &Lab) {
    wait("packets arrive", || lab.send(2000, BENIGN, 3) == 3);
}

fn finish(lab: &Lab, carrier: Option<Carrier>) {
    lab.ok(&format!("detach --interface {INTERFACE}"));
    if let Some(carrier) = carrier {
        let (code, said) = carrier.end();
        assert_eq!(code, Some(0), "{said}");
    }
    wait("nothing is left", || lab.xdp(INTERFACE).is_none());
    lab.assert_untouched();
    flows(lab);
}

#[test]
fn a_killed_agent_leaves_traffic_and_the_next_one_begins_anew() {
    each(|lab, plane, carried| {
        if carried {
            let carrier = Carrier::of(lab, plane, "");
            judged(lab, plane);
            carrier.signal(libc::SIGKILL);
            carrier.end();
            wait("the kernel takes the program off", || lab.xdp(INTERFACE).is_none());
            assert_eq!(lab.run("status --check").status.code(), Some(5), "{plane}");
        } else {
            let mut agent = lab.foreground(&format!("--plane {plane} --json"));
            wait("it is attached", || lab.run("status --check").status.success());
            agent.signal(libc::SIGKILL);
            agent.0.wait().unwrap();
            judged(lab, plane);
        }
        flows(lab);
        let carrier = start(lab, plane, carried, "");
        judged(lab, plane);
        finish(lab, carrier);
    });
}

#[test]
fn an_interface_that_is_made_again_can_be_run_on_at_once() {
    each(|lab, plane, carried| {
        let carrier = start(lab, plane, carried, "");
        judged(lab, plane);
        lab.sh(&format!("ip link delete {INTERFACE}"));
        if let Some(carrier) = carrier {
            let (code, said) = carrier.end();
            assert_eq!(code, Some(1), "{plane}: {said}");
            let clear = said.contains(INTERFACE) && (said.contains("deleted") || said.contains("it is gone"));
            assert!(clear, "{plane}: {said}");
            assert_eq!(lab.pinned(), [""; 0], "{plane}");
        } else {
            assert_eq!(lab.status()["attached"], false, "{plane}");
            let error = lab.error("status --check", 5);
            assert!(error.contains("was deleted") && error.contains("attaches again"), "{plane}: {error}");
        }
        lab.join();
        lab.whole_packets();
        flows(lab);
        let carrier = start(lab, plane, carried, "");
        judged(lab, plane);
        finish(lab, carrier);
    });
}

#[test]
fn a_link_that_was_down_comes_back() {
    each(|lab, plane, carried| {
        let carrier = start(lab, plane, carried, "");
        for end in ["down", "up"] {
            lab.sh(&format!("ip link set {INTERFACE} {end}"));
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        judged(lab, plane);
        assert_eq!(lab.status()["plane_obtained"], *plane);
        flows(lab);
        finish(lab, carrier);
    });
}

#[test]
fn a_second_agent_changes_nothing_that_it_was_not_asked_to() {
    each(|lab, plane, carried| {
        lab.write("c.wirewise", &bundle("second", &variant("BORDER=600")));
        let carrier = start(lab, plane, carried, "");
        let run = format!("run --interface {INTERFACE} --yes");
        let error = lab.error(&format!("{run} --bundle c.wirewise --plane {plane}"), 1);
        assert!(error.contains("attached with another bundle"), "{plane}: {error}");
        let other = if *plane == *"tc-ingress" { "tc-egress" } else { "tc-ingress" };
        let error = lab.error(&format!("{run} --bundle b.wirewise --plane {other}"), 1);
        assert!(error.contains(&format!("attached as {plane}")), "{plane}: {error}");
        let adopted = lab.attach(&format!("--plane {plane}"));
        assert_eq!(adopted["bundle"]["name"], "first", "{plane}");
        judged(lab, plane);
        if let Some(carrier) = &carrier {
            assert_eq!(adopted["carrier"]["process"], carrier.id(), "{plane}");
        }
        finish(lab, carrier);
    });
}

/// More than any queue holds, while the agent does not look.
#[test]
fn what_queues_have_no_room_for_is_counted_and_the_rest_is_judged() {
    const FLOOD: usize = 80_000;
    each(|lab, plane, carried| {
        if !carried {
            return;
        }
        let carrier = Carrier::of(lab, plane, "");
        judged(lab, plane);
        wait("queues are empty", || {
            let received = lanes(lab, "received");
            std::thread::sleep(std::time::Duration::from_millis(100));
            lanes(lab, "received") == received
        });
        let (received, lost) = (lanes(lab, "received"), lanes(lab, "lost"));
        carrier.signal(libc::SIGSTOP);
        lab.spread(FLOOD);
        carrier.signal(libc::SIGCONT);
        let new = |key: &str, before: u64| lanes(lab, key) - before;
        wait(&format!("{plane} accounts for every packet"), || {
            new("received", received) + new("lost", lost) >= FLOOD as u64
        });
        assert!(new("lost", lost) > 0, "{plane}");
        assert_eq!(lanes(lab, "frames_busy"), 0, "{plane}");
        // Packets of the host's own, such as a question for an address, may be among them.
        let all = new("received", received) + new("lost", lost);
        assert!(all < FLOOD as u64 + 10, "{plane}: {all}");
        judged(lab, plane);
        assert_eq!(lab.send(1000, ATTACK, 5), 5, "{plane}");
        finish(lab, Some(carrier));
    });
}

fn lanes(lab: &Lab, key: &str) -> u64 {
    let lanes = lab.status()["carrier"]["lanes"].as_array().unwrap().clone();
    lanes.iter().map(|lane| lane[key].as_u64().unwrap()).sum()
}
