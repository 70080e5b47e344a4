// SPDX-License-Identifier: Apache-2.0
//! Classes that a policy sends elsewhere, or writes on.

use std::mem;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use serde_json::{Value, json};
use wirewised::abi::Hook;
use wirewised::interface::netdev;
use wirewised::plane::{Joining, Plane, Port};

use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, Namespace, RECEIVER, SENDER, bind, data_path, take_off};
use crate::quiet;
use crate::swap::{flows, lenient};
use crate::tc::foreign_program;
use crate::wire::{FAR, NEAR, Wire, ipv4, ipv6, sum, tagged, untagged};

pub const PLANES: [&str; 3] = ["xdp-native", "xdp-generic --offloads off", "tc-ingress --offloads off"];
pub const OUT: &str = "out0";

/// A second interface beside the one under test, whose other end is in a namespace of its own. That end, and the sender's, have an XDP
/// program, which passes everything: a veth pair takes frames from XDP only so.
pub struct Beyond {
    pub namespace: Namespace,
    pub wire: Wire,
    pub programs: Vec<OwnedFd>,
}

impl Beyond {
    pub fn new(lab: &Lab) -> Self {
        let [_, receiver] = lab.namespaces();
        let namespace = Namespace::new(receiver.replace("ww-r-", "ww-b-"));
        let queues = "numrxqueues 4 numtxqueues 4";
        namespace
            .sh(&format!("ip link add far0 {queues} type veth peer name {OUT} {queues} netns {receiver}"));
        namespace.sh("ip link set far0 up");
        lab.sh(&format!("ip link set {OUT} up"));
        let programs = vec![namespace.enter(|| passing("far0")), lab.enter_sender(|| passing("ww1"))];
        let wire = namespace.enter(|| Wire::open("far0"));
        Self { namespace, wire, programs }
    }
}

/// An XDP program that passes everything, for as long as the link is open.
pub fn passing(interface: &str) -> OwnedFd {
    let program = foreign_program(Hook::Xdp);
    let index = netdev::index(interface).unwrap();
    Plane::XDP_NATIVE.attach(program.as_fd(), Port::Interface(index), Joining::default()).unwrap()
}

pub fn sender(lab: &Lab) -> Wire {
    lab.enter_sender(|| Wire::open("ww1"))
}

pub fn outcome(lab: &Lab, class: usize, name: &str) -> u64 {
    lab.stats()["classes"][class]["outcomes"][name]["packets"].as_u64().unwrap()
}

/// One of each kind, which the model takes for attack.
pub fn attacks() -> Vec<Vec<u8>> {
    let whole = ipv4(1000, ATTACK, 0);
    vec![
        whole.clone(),
        ipv6(1000, ATTACK),
        ipv4(1000, ATTACK, 0x2000),
        ipv4(1000, ATTACK, 64),
        tagged(&whole),
    ]
}

/// The DSCP and ECN of each frame; its checksum is right, if it has one.
pub fn class_of(frame: &[u8]) -> u8 {
    let at = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    if frame[at] >> 4 == 6 {
        return frame[at] << 4 | frame[at + 1] >> 4;
    }
    assert_eq!(sum(&frame[at..at + 20]), 0, "{frame:x?}");
    frame[at + 1]
}

#[test]
fn a_class_goes_to_another_interface() {
    let Some(lab) = Lab::new() else { return };
    let (beyond, near) = (Beyond::new(&lab), sender(&lab));
    lab.policy(&format!("classes: {{attack: {{dscp: AF41, redirect: {{interface: {OUT}}}}}}}"));
    for plane in PLANES {
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        beyond.wire.clear();
        near.send(&attacks());
        let arrived = beyond.wire.received();
        assert_eq!(arrived.len(), 5, "{plane}");
        for (before, after) in attacks().iter().zip(&arrived) {
            assert_eq!(class_of(after), 34 << 2 | class_of(before) & 3, "{plane}");
            // The kernel hands a packet socket the tag beside the frame.
            let (before, after) = (untagged(before), untagged(after));
            let payload = before.len() - ATTACK - 16;
            assert_eq!((&before[..14], &before[payload..]), (&after[..14], &after[payload..]), "{plane}");
        }
        assert_eq!(outcome(&lab, 1, "acted"), 5, "{plane}");
        // The others go where they went.
        assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 2)), (3, 0), "{plane}");
        assert_eq!(outcome(&lab, 1, "acted"), 7, "{plane}");
        let events = lab.ok("events --json");
        assert_eq!(
            events.lines().filter(|line| line.contains("\"outcome\":\"acted\"")).count(),
            7,
            "{events}"
        );
        lab.ok(&format!("detach --interface {INTERFACE}"));
        assert_eq!(lab.pinned(), [""; 0]);
    }
}

#[test]
fn a_class_goes_back_to_who_sent_it() {
    let Some(lab) = Lab::new() else { return };
    let (_beyond, near) = (Beyond::new(&lab), sender(&lab));
    lab.policy("classes: {attack: {action: bounce, dscp: EF}}");
    for plane in PLANES {
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        near.clear();
        near.send(&attacks());
        let back = near.received();
        assert_eq!(back.len(), 5, "{plane}");
        for (before, after) in attacks().iter().zip(&back) {
            assert_eq!((&after[..6], &after[6..12]), (&FAR[..], &NEAR[..]), "{plane}");
            assert_eq!(class_of(after), 46 << 2 | class_of(before) & 3, "{plane}");
        }
        assert_eq!(outcome(&lab, 1, "acted"), 5);
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn who_observes_counts_and_changes_nothing() {
    let Some(lab) = Lab::new() else { return };
    let (beyond, near) = (Beyond::new(&lab), sender(&lab));
    lab.policy(&format!("classes: {{attack: {{dscp: 1, redirect: {{interface: {OUT}}}}}}}"));
    for plane in PLANES {
        lab.attach(&format!("--plane {plane} --policy p.yaml"));
        let here = lab.enter(|| Wire::open(INTERFACE));
        near.send(&attacks()[..4]);
        assert_eq!(here.received(), attacks()[..4], "{plane}");
        assert_eq!((outcome(&lab, 1, "would-act"), outcome(&lab, 1, "acted")), (4, 0));
        assert_eq!(beyond.wire.received(), Vec::<Vec<u8>>::new());
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

/// Has a socket tell the mark, the priority and the byte of TOS of each packet. Older kernels lack some of these options.
pub fn tell(socket: &impl AsRawFd) {
    let on = 1i32;
    for (level, option) in [
        (libc::SOL_SOCKET, SO_RCVMARK),
        (libc::SOL_SOCKET, SO_RCVPRIORITY),
        (libc::IPPROTO_IP, libc::IP_RECVTOS),
    ] {
        // SAFETY: the option is an int, which outlives the call.
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const on).cast(), 4) };
    }
}

const SO_PRIORITY: i32 = 12;
const SO_RCVMARK: i32 = 75;
const SO_RCVPRIORITY: i32 = 82;

/// The next packet of a socket, with its mark, priority and TOS byte; `None`: no more comes.
pub fn receive(socket: &impl AsRawFd) -> Option<(Vec<u8>, [u32; 3])> {
    if !quiet::more(socket) {
        return None;
    }
    let (mut data, mut control) = (vec![0u8; 2048], [0u64; 32]);
    let mut part = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    // SAFETY: zero is a value of every field of this plain C struct.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
    // SAFETY: the message names two buffers with their lengths; both outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    data.truncate(usize::try_from(length).ok()?);
    let mut found = [u32::MAX; 3];
    // SAFETY: the kernel filled the control buffer; the macros walk it within its length, and a value has the size of its kind.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&raw const message);
        while !at.is_null() {
            let value = libc::CMSG_DATA(at);
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::SOL_SOCKET, libc::SO_MARK) => found[0] = value.cast::<u32>().read_unaligned(),
                (libc::SOL_SOCKET, SO_PRIORITY) => found[1] = value.cast::<u32>().read_unaligned(),
                (libc::IPPROTO_IP, libc::IP_TOS) => found[2] = value.read().into(),
                _ => {}
            }
            at = libc::CMSG_NXTHDR(&raw const message, at);
        }
    }
    Some((data, found))
}

/// The mark, the priority and the byte of TOS with which a packet comes to a socket.
pub fn arrives(lab: &Lab, socket: &UdpSocket) -> [u32; 3] {
    tell(socket);
    let from = lab.enter_sender(|| UdpSocket::bind((SENDER, 0)).unwrap());
    from.send_to(&[0; ATTACK], socket.local_addr().unwrap()).unwrap();
    let (data, found) = receive(socket).unwrap();
    assert_eq!(data.len(), ATTACK);
    found
}

#[test]
fn marks_and_priorities_come_to_the_stack() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: {mark: 0xabcd, priority: 5, dscp: CS6}}");
    lab.attach("--plane tc-ingress --policy p.yaml --mode enforce --offloads off");
    let socket = lab.enter(|| bind(RECEIVER, 1000));
    let [mark, priority, tos] = arrives(&lab, &socket);
    assert_eq!((mark, tos), (0xabcd, 48 << 2));
    // Kernels before 6.14 do not tell a socket.
    assert!([5, u32::MAX].contains(&priority), "{priority}");
    // The stack checks the header's sum before it gives a packet to a socket.
    lab.policy("classes: {attack: {dscp: CS6}}");
    lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --plane xdp-native --replace --policy p.yaml --mode enforce --yes"));
    assert_eq!(arrives(&lab, &socket)[2], 48 << 2);
}

#[test]
fn packets_leave_by_the_queue_that_is_asked_for() {
    let Some(lab) = Lab::new() else { return };
    let (beyond, near) = (Beyond::new(&lab), sender(&lab));
    let received = |queue: u32| {
        let statistics = beyond.namespace.sh("ethtool -S far0");
        let name = format!("rx_queue_{queue}_xdp_packets:");
        let line = statistics.lines().find_map(|line| line.trim().strip_prefix(&name)).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    for queue in [2, 0, 3] {
        lab.policy(&format!("classes: {{attack: {{queue: {queue}, redirect: {{interface: {OUT}}}}}}}"));
        lab.attach("--plane tc-ingress --policy p.yaml --mode enforce --offloads off");
        let before: Vec<_> = (0..4).map(received).collect();
        near.send(&vec![ipv4(1000, ATTACK, 0); 6]);
        assert_eq!(beyond.wire.received().len(), 6);
        let after: Vec<_> =
            (0..4).map(|other| before[other as usize] + if other == queue { 6 } else { 0 }).collect();
        assert_eq!((0..4).map(received).collect::<Vec<_>>(), after, "queue {queue}");
    }
}

#[test]
fn a_running_program_learns_to_steer_and_keeps_its_flows() {
    let Some(lab) = Lab::new() else { return };
    let beyond = Beyond::new(&lab);
    for plane in ["xdp-native", "tc-ingress --offloads off"] {
        lab.policy("classes: {attack: drop}");
        let ours = lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0));
        let known = flows(&lab).len();
        lab.policy(&format!("classes: {{attack: {{redirect: {{interface: {OUT}}}}}}}"));
        let run = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes");
        let plan = lab.ok(&format!("{run} --dry-run"));
        assert!(plan.contains("would load first on ww0 again"), "{plan}");
        beyond.wire.clear();
        let again = lab.json(&run);
        assert_eq!(again["action"], "adopted");
        assert_eq!(again["status"]["link_id"], ours["link_id"]);
        assert_ne!(again["status"]["program_id"], ours["program_id"]);
        assert_eq!((again["status"]["mode"].clone(), flows(&lab).len()), (json!("enforce"), known));
        assert_eq!(again["status"]["classes"][1]["action"], format!("redirect to {OUT}"));
        assert_eq!((lab.send(1000, ATTACK, 3), beyond.wire.received().len()), (0, 3), "{plane}");
        assert_eq!((outcome(&lab, 1, "drop"), outcome(&lab, 1, "acted")), (3, 3));
        // What it can do already needs no other program.
        let program = lab.status()["program_id"].clone();
        lab.policy(&format!("classes: {{benign: {{redirect: {{interface: {OUT}}}}}}}"));
        assert_eq!(lab.json(&run)["status"]["program_id"], program);
        assert_eq!((lab.send(1000, BENIGN, 2), lab.send(1000, ATTACK, 3)), (0, 3));
        // A swap keeps both: the policy, and what it asks for.
        lab.write("c.wirewise", &lenient());
        lab.json("swap --bundle c.wirewise");
        beyond.wire.clear();
        assert_eq!((lab.send(1000, ATTACK, 3), beyond.wire.received().len()), (0, 3), "{plane}");
        lab.json("rollback");
        assert_eq!((lab.send(1000, BENIGN, 2), lab.send(1000, ATTACK, 3)), (0, 3));
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn going_back_brings_back_the_policy_too() {
    let Some(lab) = Lab::new() else { return };
    let beyond = Beyond::new(&lab);
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.policy(&format!("classes: {{attack: {{redirect: {{interface: {OUT}}}}}}}"));
    lab.attach("--policy p.yaml");
    lab.json("rollback");
    beyond.wire.clear();
    assert_eq!((lab.send(1000, ATTACK, 3), beyond.wire.received().len()), (0, 0));
    assert_eq!(outcome(&lab, 1, "drop"), 3);
    lab.json("rollback");
    assert_eq!((lab.send(1000, ATTACK, 3), beyond.wire.received().len()), (0, 3));
}

#[test]
fn packets_pass_when_their_interface_is_gone() {
    let Some(lab) = Lab::new() else { return };
    for plane in PLANES {
        let beyond = Beyond::new(&lab);
        lab.policy(&format!("classes: {{attack: {{dscp: EF, redirect: {{interface: {OUT}}}}}}}"));
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        assert_eq!((lab.send(1000, ATTACK, 2), beyond.wire.received().len()), (0, 2));
        // A frame that it could not send is passed, too.
        lab.sh(&format!("ip link set {OUT} mtu 400"));
        assert_eq!((lab.send(1000, ATTACK, 2), outcome(&lab, 1, "not-acted")), (2, 2), "{plane}");
        lab.sh(&format!("ip link delete {OUT}"));
        let here = lab.enter(|| Wire::open(INTERFACE));
        assert_eq!((lab.send(1000, ATTACK, 3), outcome(&lab, 1, "not-acted")), (3, 5), "{plane}");
        here.received()
            .iter()
            .filter(|frame| frame.len() > ATTACK)
            .for_each(|frame| assert_eq!(class_of(frame), 0));
        let plane = plane.split(' ').next().unwrap();
        let doctor = lab.ok(&format!("doctor --interface {INTERFACE} --plane {plane}"));
        assert!(doctor.contains("the interface that attack goes to is gone: its packets pass"), "{doctor}");
        // The mode changes all the same.
        let observe = format!("run --bundle b.wirewise --interface {INTERFACE} --mode observe");
        assert_eq!(lab.json(&observe)["status"]["mode"], "observe");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn both_directions_are_steered() {
    let Some(lab) = Lab::new() else { return };
    let (beyond, near) = (Beyond::new(&lab), sender(&lab));
    lab.policy(&format!("classes: {{attack: {{dscp: CS3, redirect: {{interface: {OUT}}}}}}}"));
    for plane in PLANES {
        let plane = plane.split(' ').next().unwrap();
        lab.attach(&format!("--plane {plane} --outgoing --offloads off --policy p.yaml --mode enforce"));
        beyond.wire.clear();
        near.send(&[ipv4(1000, ATTACK, 0)]);
        let inside = lab.enter(|| UdpSocket::bind((RECEIVER, 0)).unwrap());
        inside.send_to(&[0; ATTACK], (SENDER, 1000)).unwrap();
        let arrived = beyond.wire.received();
        assert_eq!(arrived.len(), 2, "{plane}");
        arrived.iter().for_each(|frame| assert_eq!(class_of(frame) >> 2, 24));
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn a_split_model_and_a_shadow_steer_too() {
    let Some(lab) = Lab::new() else { return };
    let beyond = Beyond::new(&lab);
    lab.write("b.wirewise", &crate::lab::bundle("first", &crate::lab::variant("CHAIN=16")));
    lab.write("c.wirewise", &lenient());
    lab.policy(&format!("classes: {{attack: {{redirect: {{interface: {OUT}}}}}}}"));
    for plane in ["xdp-native", "tc-ingress --offloads off"] {
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        for beside in [false, true] {
            if beside {
                lab.json("swap --shadow --bundle c.wirewise");
            }
            beyond.wire.clear();
            assert_eq!((lab.send(1000, BENIGN, 2), lab.send(1000, ATTACK, 3)), (2, 0), "{plane}");
            assert_eq!(beyond.wire.received().len(), 3, "{plane}, shadow: {beside}");
        }
        // What the program was not loaded for waits until it is alone.
        lab.policy("classes: {attack: bounce}");
        let run = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes");
        assert!(lab.error(&run, 1).contains("`wirewised swap --no-shadow` ends that"));
        lab.ok(&format!("detach --interface {INTERFACE}"));
        lab.policy(&format!("classes: {{attack: {{redirect: {{interface: {OUT}}}}}}}"));
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let Some(lab) = Lab::new() else { return };
    let beyond = Beyond::new(&lab);
    let refused = |class: &str, arguments: &str, code: i32, said: &str| {
        lab.policy(&format!("classes: {{attack: {class}}}"));
        let run =
            format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes {arguments}");
        let error = lab.error(&run, code);
        assert!(error.contains(said), "{class} {arguments}: {error}");
        lab.assert_untouched();
    };
    refused("{redirect: {interface: nowhere}}", "", 2, "policy: redirect: no interface 'nowhere'");
    refused("{redirect: {interface: ww0}}", "", 2, "they would go round in a loop");
    refused(
        "{mark: 7}",
        "--plane af-packet",
        2,
        "af-packet cannot do mark; planes that can: xdp-native, xdp-generic,",
    );
    for (class, said) in [
        (
            "{mark: 7, redirect: {interface: out0}}",
            "xdp-native leaves mark to a program at TC, where packets with redirect never come",
        ),
        (
            "{mirror: {interface: out0}, action: bounce}",
            "leave one of the two out, or take `--plane tc-ingress`",
        ),
        (
            "{queue: 1, action: forward}",
            "leaves queue to a program at TC, where packets with forward never come",
        ),
        ("{priority: 1, redirect: {cpu: 0}}", "where packets with cpu never come: leave one of the two out"),
    ] {
        refused(class, "", 2, said);
        refused(class, "--outgoing --plane xdp-generic", 2, "");
    }
    refused("bounce", "--plane tc-egress", 2, "tc-egress cannot do bounce");
    refused("bounce", "--outgoing", 2, "tc-egress cannot do bounce");
    refused("forward", "--plane af-packet", 2, "af-packet cannot do forward");
    refused("challenge", "--plane af-xdp", 2, "af-xdp cannot do challenge");
    refused("{redirect: {interface: out0}, action: drop}", "", 2, "does not go together with 'drop'");
    beyond.programs.into_iter().for_each(take_off);
    refused("{redirect: {interface: out0}}", "", 3, "out0 would drop all that XDP sends by it");
    refused("bounce", "", 3, "ww0 would drop all that XDP sends by it");
    // Nobody is sure to get through.
    lab.policy("classes: {attack: {redirect: {interface: out0}}}");
    let run = format!(
        "run --bundle b.wirewise --interface {INTERFACE} --plane tc-ingress --policy p.yaml --mode enforce --offloads off"
    );
    assert!(lab.error(&run, 2).contains("you may lock yourself out"));
    lab.assert_untouched();
}

#[test]
fn a_loop_of_redirects_is_refused() {
    let Some(lab) = Lab::new() else { return };
    let _beyond = Beyond::new(&lab);
    lab.sh("ip link add a0 type veth peer name a1");
    lab.sh("ip link add b0 type veth peer name b1");
    let run = |interface: &str, plane: &str, target: &str| {
        lab.policy(&format!("classes: {{attack: {{redirect: {{interface: {target}}}}}}}"));
        format!("run --bundle b.wirewise --interface {interface} --plane {plane} --policy p.yaml --yes")
    };
    let detach = |interface: &str| lab.ok(&format!("detach --interface {interface}"));
    // What is sent is judged at both.
    lab.ok(&run(INTERFACE, "tc-egress", OUT));
    let error = lab.error(&run(OUT, "tc-egress", INTERFACE), 2);
    assert!(error.contains("packets of out0 would go round in a loop (out0 -> ww0 -> out0)"), "{error}");
    // Incoming packets of the one, outgoing of the other: a circle that nothing enters twice.
    lab.ok(&run(OUT, "tc-ingress", INTERFACE));
    let error = lab.error(&run(OUT, "tc-ingress --outgoing --replace", INTERFACE), 2);
    assert!(error.contains("(out0 -> ww0 -> out0)"), "{error}");
    detach(INTERFACE);
    detach(OUT);
    // By veth pairs, whatever the planes.
    lab.ok(&run("a1", "xdp-generic", "b0"));
    let error = lab.error(&run("b1", "tc-ingress", "a0"), 2);
    assert!(error.contains("(b1 -> a0 -> a1 -> b0 -> b1)"), "{error}");
    assert!(lab.error(&run("b1", "tc-ingress", "b0"), 2).contains("(b1 -> b0 -> b1)"));
    detach("a1");
    assert_eq!(lab.pinned(), [""; 0]);
}

#[test]
fn planes_say_what_each_can_do() {
    if data_path().is_none() {
        return;
    }
    let Some(lab) = Lab::new() else { return };
    let planes: Value = serde_json::from_slice(&lab.agent("planes --json").stdout).unwrap();
    let actions = |name: &str| {
        let plane = planes["planes"].as_array().unwrap().iter().find(|plane| plane["name"] == name).unwrap();
        plane["actions"].as_array().unwrap()[4..]
            .iter()
            .map(|action| action.as_str().unwrap().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        actions("xdp-native"),
        [
            "redirect",
            "bounce",
            "dscp",
            "mark",
            "priority",
            "queue",
            "cpu",
            "socket",
            "mirror",
            "forward",
            "backend",
            "challenge",
            "decapsulate",
            "encapsulate",
            "qfi",
            "inner-dscp"
        ]
    );
    assert_eq!(
        actions("tc-ingress"),
        ["redirect", "bounce", "dscp", "mark", "priority", "queue", "mirror", "forward", "backend"]
    );
    assert_eq!(actions("tc-egress"), ["redirect", "dscp", "mark", "priority", "queue", "mirror"]);
    for plane in ["af-packet", "af-xdp"] {
        assert_eq!(actions(plane), ["redirect", "bounce", "dscp", "mirror", "backend", "qfi", "inner-dscp"]);
    }
    let text = String::from_utf8(lab.agent("planes").stdout).unwrap();
    let table = text.split("\n\n").nth(1).unwrap();
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
}
