// SPDX-License-Identifier: Apache-2.0
//! What can go wrong, on every plane: the agent is killed, the interface goes and comes back, its link is down, a second agent comes,
//! queues run over. After each of them packets are judged again or the end is clear, and traffic flows.

use std::io::Read;
use std::net::UdpSocket;

use crate::carrier::{Carrier, packets, wait};
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, RECEIVER, SENDER, bundle, variant};

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

/// In the order in which they cost the fewest starts.
fn every_fault(plane: &str, carried: bool) {
    let Some(lab) = Lab::new() else { return };
    lab.whole_packets();
    lab.write("c.wirewise", &bundle("second", &variant("BORDER=600")));
    let carrier = start(&lab, plane, carried, "");
    judged(&lab, plane);
    a_second_agent(&lab, plane, carrier.as_ref());
    a_link_that_is_down(&lab, plane);
    let carrier = killed(&lab, plane, carrier);
    an_interface_made_again(&lab, plane, carrier);
}

fn a_second_agent(lab: &Lab, plane: &str, carrier: Option<&Carrier>) {
    let run = format!("run --interface {INTERFACE} --yes");
    let error = lab.error(&format!("{run} --bundle c.wirewise --plane {plane}"), 1);
    assert!(error.contains("attached with another bundle"), "{error}");
    let other = if plane == "tc-ingress" { "tc-egress" } else { "tc-ingress" };
    let error = lab.error(&format!("{run} --bundle b.wirewise --plane {other}"), 1);
    assert!(error.contains(&format!("attached as {plane}")), "{error}");
    let adopted = lab.attach(&format!("--plane {plane}"));
    assert_eq!(adopted["bundle"]["name"], "first");
    if let Some(carrier) = carrier {
        assert_eq!(adopted["carrier"]["process"], carrier.id());
    }
    judged(lab, plane);
}

fn a_link_that_is_down(lab: &Lab, plane: &str) {
    for end in ["down", "up"] {
        lab.sh(&format!("ip link set {INTERFACE} {end}"));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    judged(lab, plane);
    assert_eq!(lab.status()["plane_obtained"], plane);
    flows(lab);
}

/// The next agent begins where one was killed, or goes on with what stayed in the kernel.
fn killed(lab: &Lab, plane: &str, carrier: Option<Carrier>) -> Option<Carrier> {
    let carried = carrier.is_some();
    if let Some(carrier) = carrier {
        carrier.signal(libc::SIGKILL);
        carrier.end();
        wait("the kernel takes the program off", || lab.xdp(INTERFACE).is_none());
        assert_eq!(lab.run("status --check").status.code(), Some(5));
    } else {
        let mut agent = lab.foreground(&format!("--plane {plane} --json --interval 1ms"));
        let mut first = [0];
        agent.0.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        agent.signal(libc::SIGKILL);
        agent.0.wait().unwrap();
        judged(lab, plane);
    }
    flows(lab);
    let carrier = start(lab, plane, carried, "");
    judged(lab, plane);
    carrier
}

fn an_interface_made_again(lab: &Lab, plane: &str, carrier: Option<Carrier>) {
    let carried = carrier.is_some();
    lab.sh(&format!("ip link delete {INTERFACE}"));
    if let Some(carrier) = carrier {
        let (code, said) = carrier.end();
        let clear = said.contains(INTERFACE) && (said.contains("deleted") || said.contains("it is gone"));
        assert!(code == Some(1) && clear, "{said}");
        assert_eq!(lab.pinned(), [""; 0]);
    } else {
        assert_eq!(lab.status()["attached"], false);
        let error = lab.error("status --check", 5);
        assert!(error.contains("was deleted") && error.contains("attaches again"), "{error}");
    }
    lab.join();
    lab.whole_packets();
    let carrier = start(lab, plane, carried, "");
    judged(lab, plane);
    finish(lab, carrier);
}

#[test]
fn xdp_native() {
    every_fault("xdp-native", false);
}

#[test]
fn xdp_generic() {
    every_fault("xdp-generic", false);
}

#[test]
fn tc_ingress() {
    every_fault("tc-ingress", false);
}

#[test]
fn tc_egress() {
    every_fault("tc-egress", false);
}

#[test]
fn af_packet() {
    every_fault("af-packet", true);
    run_over("af-packet");
}

#[test]
fn af_xdp() {
    every_fault("af-xdp", true);
    run_over("af-xdp");
}

#[cfg(feature = "dpdk")]
#[test]
fn dpdk() {
    every_fault("dpdk", true);
    run_over("dpdk");
}

/// More than any queue holds, while the agent does not look: what is lost is counted, and the rest is judged.
fn run_over(plane: &str) {
    const FLOOD: usize = 80_000;
    let Some(lab) = &Lab::new() else { return };
    lab.whole_packets();
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
    wait("it accounts for every packet", || new("received", received) + new("lost", lost) >= FLOOD as u64);
    assert!(new("lost", lost) > 0, "{plane}");
    assert_eq!(lanes(lab, "frames_busy"), 0, "{plane}");
    // Packets of the host's own, such as a question for an address, may be among them.
    let all = new("received", received) + new("lost", lost);
    assert!(all < FLOOD as u64 + 10, "{plane}: {all}");
    judged(lab, plane);
    assert_eq!(lab.send(1000, ATTACK, 5), 5, "{plane}");
    finish(lab, Some(carrier));
}

fn lanes(lab: &Lab, key: &str) -> u64 {
    let lanes = lab.status()["carrier"]["lanes"].as_array().unwrap().clone();
    lanes.iter().map(|lane| lane[key].as_u64().unwrap()).sum()
}
