// SPDX-License-Identifier: Apache-2.0
//! What XDP leaves to a program at TC: marks, priorities, queues and copies.

use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Stdio;

use serde_json::json;
use wirewised::abi::{self, Hook};
use wirewised::interface::netdev;
use wirewised::kernel::{self, objects};
use wirewised::plane::{self, Attached, Joining, Plane, Port};

use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, RECEIVER, bind, take_off};
use crate::steering::{Beyond, OUT, arrives, attacks, outcome, receive, sender, tell};
use crate::swap::{flows, lenient};
use crate::tc::foreign_program;
use crate::wire::{Wire, untagged};

const PLANES: [&str; 3] = ["xdp-native", "xdp-native --clsact", "xdp-generic --offloads off"];
const NOT_WRITTEN: [u32; 2] = [0, 0];

/// What else is at TC on the interface under test, in order.
fn at_tc(lab: &Lab) -> Vec<u32> {
    let attached = lab.enter(|| plane::attached(netdev::index(INTERFACE).unwrap()).unwrap());
    attached.into_iter().filter(|it| it.plane == Plane::TC_INGRESS).map(|it| it.program_id).collect()
}

fn nothing_is_left(lab: &Lab) {
    let attached = lab.enter(|| plane::attached(netdev::index(INTERFACE).unwrap()).unwrap());
    assert_eq!((attached, lab.pinned()), (Vec::<Attached>::new(), Vec::new()));
    assert!(!lab.sh(&format!("tc qdisc show dev {INTERFACE}")).contains("clsact"));
}

/// A socket of the interface under test that has packets of one kind behind TC.
struct BehindTc(Wire);

impl BehindTc {
    fn open(lab: &Lab, kind: i32) -> Self {
        let wire = lab.enter(|| Wire::of_kind(INTERFACE, kind));
        tell(&wire);
        Self(wire)
    }

    /// The mark and the priority of each packet. Kernels before 6.14 do not tell the latter.
    fn received(&self) -> Vec<[u32; 2]> {
        std::iter::from_fn(|| receive(&self.0))
            .filter(|(frame, _)| frame.len() > ATTACK)
            .map(|(_, [mark, priority, _])| [mark, if priority == u32::MAX { 5 } else { priority }])
            .collect()
    }
}

fn attach(lab: &Lab, plane: &str, class: &str) -> serde_json::Value {
    lab.policy(&format!("classes: {{attack: {class}}}"));
    lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"))
}

fn socket(lab: &Lab) -> UdpSocket {
    lab.enter(|| bind(RECEIVER, 1000))
}

#[test]
fn marks_and_priorities_come_from_xdp_to_the_stack() {
    let Some(lab) = Lab::new() else { return };
    let socket = socket(&lab);
    for plane in PLANES {
        let ours = attach(&lab, plane, "{mark: 0xabcd, priority: 5, dscp: CS6}");
        assert_eq!(at_tc(&lab), [ours["companion"]["program_id"].as_u64().unwrap() as u32], "{plane}");
        let [mark, priority, tos] = arrives(&lab, &socket);
        assert_eq!((mark, tos), (0xabcd, 48 << 2), "{plane}");
        assert!([5, u32::MAX].contains(&priority), "{plane}: {priority}");
        assert_eq!(outcome(&lab, 1, "acted"), 1);
        lab.ok(&format!("detach --interface {INTERFACE}"));
        nothing_is_left(&lab);
        assert_eq!(arrives(&lab, &socket)[0], 0, "{plane}");
    }
}

#[test]
fn every_kind_of_packet_is_written_on_while_somebody_looks_on() {
    let Some(lab) = Lab::new() else { return };
    let near = sender(&lab);
    let kinds = [libc::ETH_P_IP, libc::ETH_P_IPV6].map(|kind| BehindTc::open(&lab, kind));
    let received = || kinds.iter().flat_map(BehindTc::received).collect::<Vec<_>>();
    for looks_on in [false, true] {
        // A packet socket of all packets takes them before TC, and has them in common with it.
        let wire = looks_on.then(|| lab.enter(|| Wire::open(INTERFACE)));
        for plane in PLANES {
            attach(&lab, plane, "{mark: 7, priority: 5}");
            near.send(&attacks());
            assert_eq!(received(), [[7, 5]; 5], "{plane}, looks on: {looks_on}");
            // Without a wish of their own they are as they were.
            lab.policy("classes: {attack: {mark: 0}}");
            lab.json(&format!(
                "run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --mode observe"
            ));
            near.send(&attacks());
            assert_eq!(received(), [NOT_WRITTEN; 5], "{plane}");
            assert_eq!((outcome(&lab, 1, "acted"), outcome(&lab, 1, "would-act")), (5, 5));
            lab.ok(&format!("detach --interface {INTERFACE}"));
        }
        if let Some(wire) = wire {
            assert_eq!(wire.received().len(), 2 * 3 * 5);
        }
    }
}

#[test]
fn copies_leave_by_another_interface_and_the_packets_go_on() {
    let Some(lab) = Lab::new() else { return };
    let (beyond, near) = (Beyond::new(&lab), sender(&lab));
    // That end judges too: it must not take a wish that was another's.
    let there = |arguments: &str| {
        let namespace = beyond.namespace.path();
        lab.ok(&format!("{arguments} --interface far0 --netns {namespace}"))
    };
    beyond.programs.into_iter().for_each(take_off);
    lab.policy("classes: {attack: {mark: 1}, benign: {mark: 1}}");
    there("run --bundle b.wirewise --plane xdp-generic --policy p.yaml --mode observe");
    for plane in PLANES {
        let mirrored = format!("{{mirror: {{interface: {OUT}}}, mark: 7, priority: 5}}");
        lab.policy(&format!("classes: {{attack: {mirrored}}}"));
        lab.json(&format!(
            "run --bundle b.wirewise --interface {INTERFACE} --plane {plane} --policy p.yaml --mode enforce --yes"
        ));
        let behind = BehindTc::open(&lab, libc::ETH_P_IP);
        let kind = libc::ETH_P_IP;
        let copies = beyond.namespace.enter(|| Wire::of_kind("far0", kind));
        tell(&copies);
        beyond.wire.clear();
        near.send(&attacks());
        // All of them as they came, also where they go: the tag is beside the frame.
        let arrived: Vec<_> = beyond.wire.received().iter().map(|frame| untagged(frame)).collect();
        let sent: Vec<_> = attacks().iter().map(|frame| untagged(frame)).collect();
        assert_eq!(arrived, sent, "{plane}");
        assert_eq!(behind.received(), [[7, 5]; 4], "{plane}");
        let marks: Vec<_> = std::iter::from_fn(|| receive(&copies)).map(|(_, found)| found[0]).collect();
        assert_eq!(marks, [0; 4], "{plane}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
    // One in so many. With 400 packets, one in a quarter of a million runs has none of them, or more than 60.
    attach(&lab, "xdp-native", &format!("{{mirror: {{interface: {OUT}, rate: 1/20}}}}"));
    beyond.wire.clear();
    let frames = vec![attacks().swap_remove(0); 100];
    let copies: usize = (0..4)
        .map(|_| {
            near.send(&frames);
            beyond.wire.received().len()
        })
        .sum();
    assert!((1..=60).contains(&copies), "{copies}");
    assert_eq!(outcome(&lab, 1, "acted"), 400);
    there("detach");
}

/// Runs the attached program on a packet with so many bytes of metadata. Returns what it made of packet and metadata.
pub fn run_with_metadata(lab: &Lab, metadata: u32, frame: &[u8]) -> Vec<u8> {
    let program = objects::open_pin(&lab.pins().join(INTERFACE).join("prog")).unwrap();
    let data = [vec![0x55; metadata as usize], frame.to_vec()].concat();
    // struct xdp_md: data, data_end, data_meta; the rest is of interfaces.
    let context = [metadata, data.len() as u32, 0, 0, 0, 0];
    let mut out = vec![0; 4096];
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: data.as_ptr().cast(),
        data_size_in: data.len() as u32,
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: size_of_val(&context) as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: the options name buffers with their lengths, which outlive the call.
    let code = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    assert_eq!((code, options.retval), (0, libbpf_sys::XDP_PASS));
    out.truncate(options.data_size_out as usize);
    out
}

/// Bytes of metadata beside which there is no room for more: the kernel takes 32, since Linux 6.8 what the headroom of 256 has beside a
/// struct xdp_frame.
pub fn full_of_metadata() -> u32 {
    if kernel::version_of(&kernel::release()) < Some((6, 8)) { 32 } else { 208 }
}

#[test]
fn a_wish_stands_before_what_others_wrote_and_where_there_is_no_room_the_packet_passes() {
    let Some(lab) = Lab::new() else { return };
    let frame = attacks().swap_remove(0);
    attach(&lab, "xdp-native", "{mark: 7, priority: 5, queue: 3}");
    let wish = [abi::WISH, abi::STEER_MARK | abi::STEER_PRIORITY | abi::STEER_QUEUE, 7, 5, 3, 0];
    let wish: Vec<u8> = wish.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let before = |metadata: usize| [wish.clone(), vec![0x55; metadata], frame.clone()].concat();
    assert_eq!(run_with_metadata(&lab, 0, &frame), before(0));
    assert_eq!(run_with_metadata(&lab, 8, &frame), before(8));
    assert_eq!((outcome(&lab, 1, "acted"), outcome(&lab, 1, "not-acted")), (2, 0));
    let full = full_of_metadata();
    assert_eq!(run_with_metadata(&lab, full, &frame), [vec![0x55; full as usize], frame.clone()].concat());
    assert_eq!((outcome(&lab, 1, "acted"), outcome(&lab, 1, "not-acted")), (2, 1));
    // Who observes writes nothing.
    lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --mode observe"));
    assert_eq!(run_with_metadata(&lab, 0, &frame), frame);
    // Of a class that asks for less, only that is wished; a copy is drawn before.
    lab.policy("classes: {attack: {mirror: {interface: lo, rate: 1/1000000}}}");
    lab.attach("--policy p.yaml --mode enforce");
    assert_eq!(run_with_metadata(&lab, 0, &frame), frame);
}

/// By IPv4 for the queue; by IPv6, as forwarding of IPv4 makes the priority anew from the byte of TOS.
#[test]
fn what_the_stack_forwards_leaves_by_the_queue_and_in_the_class_that_are_asked_for() {
    let Some(lab) = Lab::new() else { return };
    let (beyond, near) = (Beyond::new(&lab), sender(&lab));
    lab.sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0");
    lab.sh(&format!("ip addr add 10.9.1.1/24 dev {OUT}"));
    lab.sh(&format!("ip neigh replace 10.9.1.2 lladdr 02:00:00:00:00:09 dev {OUT}"));
    let received = |queue: u32| {
        let statistics = beyond.namespace.sh("ethtool -S far0");
        let name = format!("rx_queue_{queue}_xdp_packets:");
        let line = statistics.lines().find_map(|line| line.trim().strip_prefix(&name)).unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    let [through4, through6] = [attacks().swap_remove(0), attacks().swap_remove(1)].map(|mut frame| {
        if frame[12] == 8 {
            frame[14 + 18] = 1; // 10.9.1.2, one's complement arithmetic below
            frame[14 + 10..14 + 12].fill(0);
            let sum = crate::wire::sum(&frame[14..34]);
            frame[14 + 10..14 + 12].copy_from_slice(&sum.to_be_bytes());
        } else {
            frame[14 + 24 + 1] = 1; // fd01::2
        }
        frame
    });
    for plane in ["xdp-native", "xdp-generic --offloads off"] {
        for queue in [2, 0, 3] {
            attach(&lab, plane, &format!("{{queue: {queue}}}"));
            let before: Vec<_> = (0..4).map(received).collect();
            near.send(&vec![through4.clone(); 6]);
            assert_eq!(beyond.wire.received().len(), 6, "{plane}");
            let after: Vec<_> =
                (0..4).map(|other| before[other as usize] + if other == queue { 6 } else { 0 }).collect();
            assert_eq!((0..4).map(received).collect::<Vec<_>>(), after, "{plane}, queue {queue}");
        }
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
    lab.sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.all.forwarding=1");
    lab.sh(&format!("ip -6 addr add fd01::1/64 dev {OUT} nodad"));
    lab.sh(&format!("ip -6 neigh replace fd01::2 lladdr 02:00:00:00:00:09 dev {OUT}"));
    // What the host itself sends, such as neighbour discovery, has the third.
    lab.sh(&format!("tc qdisc replace dev {OUT} root handle 1: htb default 30"));
    for class in ["1:10", "1:20", "1:30"] {
        lab.sh(&format!("tc class add dev {OUT} parent 1: classid {class} htb rate 1gbit"));
    }
    let sent = |class: &str| {
        let classes = lab.sh(&format!("tc -s class show dev {OUT}"));
        let (_, counted) = classes.split_once(&format!("class htb {class} ")).unwrap();
        let (_, counted) = counted.split_once(" bytes ").unwrap();
        counted.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    attach(&lab, "xdp-native", "{priority: 0x10010}");
    near.send(&vec![through6.clone(); 4]);
    assert_eq!(beyond.wire.received().len(), 4);
    assert_eq!((sent("1:10"), sent("1:20")), (4, 0));
    attach(&lab, "xdp-native", "{priority: 0x10020}");
    near.send(&vec![through6; 3]);
    assert_eq!(beyond.wire.received().len(), 3);
    assert_eq!((sent("1:10"), sent("1:20")), (4, 3));
}

#[test]
fn it_comes_and_goes_with_the_policy_in_place_and_flows_stay() {
    let Some(lab) = Lab::new() else { return };
    let socket = socket(&lab);
    for plane in PLANES {
        let marking = attach(&lab, plane, "{mark: 7}");
        assert_eq!(arrives(&lab, &socket)[0], 7);
        let known = flows(&lab).len();
        for round in 0..2 {
            // The program can do both: only the policy changes.
            let plain = attach(&lab, plane.trim_end_matches(" --clsact"), "count");
            assert_eq!((&plain["program_id"], &plain["companion"]), (&marking["program_id"], &json!(null)));
            assert_eq!((at_tc(&lab), arrives(&lab, &socket)[0]), (Vec::new(), 0), "{plane}");
            let again = attach(&lab, plane, &format!("{{mark: {}}}", 8 + round));
            assert_eq!(again["program_id"], marking["program_id"]);
            assert_eq!((at_tc(&lab).len(), arrives(&lab, &socket)[0]), (1, 8 + round), "{plane}");
        }
        // Another value, or another mode, needs no other companion.
        let link = lab.status()["companion"]["link_id"].clone();
        attach(&lab, plane, "{mark: 77}");
        assert_eq!((arrives(&lab, &socket)[0], &lab.status()["companion"]["link_id"]), (77, &link));
        lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --mode observe"));
        assert_eq!((at_tc(&lab).len(), arrives(&lab, &socket)[0]), (1, 0));
        assert!(flows(&lab).len() > known);
        lab.ok(&format!("detach --interface {INTERFACE}"));
        nothing_is_left(&lab);
    }
    // A program that was not loaded for it is loaded again, and goes back.
    let before = attach(&lab, "xdp-native", "count");
    let after = attach(&lab, "xdp-native", "{mark: 7}");
    assert_ne!(before["program_id"], after["program_id"]);
    assert_eq!(before["link_id"], after["link_id"]);
    assert_eq!((at_tc(&lab).len(), arrives(&lab, &socket)[0]), (1, 7));
    lab.json("rollback");
    assert_eq!((at_tc(&lab), arrives(&lab, &socket)[0]), (Vec::new(), 0));
    lab.json("rollback");
    assert_eq!((at_tc(&lab).len(), arrives(&lab, &socket)[0]), (1, 7));
}

#[test]
fn swaps_shadows_and_other_planes_keep_it_or_end_it() {
    let Some(lab) = Lab::new() else { return };
    let socket = socket(&lab);
    lab.write("c.wirewise", &lenient());
    let benign = || {
        let from = lab.enter_sender(|| UdpSocket::bind((crate::lab::SENDER, 0)).unwrap());
        tell(&socket);
        from.send_to(&[0; BENIGN], socket.local_addr().unwrap()).unwrap();
        receive(&socket).unwrap().1[0]
    };
    let ours = attach(&lab, "xdp-native", "{mark: 7}");
    lab.json("swap --bundle c.wirewise");
    // To this model nothing of that length is an attack.
    assert_eq!((arrives(&lab, &socket)[0], benign()), (0, 0));
    lab.policy("classes: {benign: {mark: 9}}");
    lab.json("swap --bundle b.wirewise --policy p.yaml --yes");
    assert_eq!((arrives(&lab, &socket)[0], benign()), (0, 9));
    assert_eq!(lab.status()["companion"]["link_id"], ours["companion"]["link_id"]);
    lab.json("swap --shadow --bundle c.wirewise");
    assert_eq!((arrives(&lab, &socket)[0], benign(), at_tc(&lab).len()), (0, 9, 1));
    lab.json("swap --no-shadow");
    lab.policy("classes: {attack: drop}");
    lab.json("swap --bundle c.wirewise --policy p.yaml --yes");
    assert_eq!(at_tc(&lab), [0; 0]);
    lab.json("rollback");
    assert_eq!((arrives(&lab, &socket)[0], benign(), at_tc(&lab).len()), (0, 9, 1));
    // In both directions, and on another plane.
    let run = format!(
        "run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --mode enforce --yes --replace"
    );
    lab.policy("classes: {attack: {mark: 5}}");
    lab.json(&format!("{run} --plane xdp-generic --offloads off --outgoing"));
    assert_eq!((arrives(&lab, &socket)[0], at_tc(&lab).len()), (5, 1));
    assert_eq!(lab.status()["outgoing"]["plane"], "tc-egress");
    assert_eq!(lab.json("status")["unpinned"], json!([]));
    for tc in ["tc-ingress", "tc-ingress --clsact"] {
        let status = lab.json(&format!("{run} --plane {tc} --offloads off"))["status"].clone();
        assert_eq!((arrives(&lab, &socket)[0], &status["companion"]), (5, &json!(null)), "{tc}");
        assert_eq!(at_tc(&lab), [status["program_id"].as_u64().unwrap() as u32], "{tc}");
        lab.json(&format!("{run} --plane xdp-native --clsact"));
        assert_eq!((arrives(&lab, &socket)[0], at_tc(&lab).len()), (5, 1), "{tc}");
    }
    lab.ok(&format!("detach --interface {INTERFACE}"));
    nothing_is_left(&lab);
}

/// A program of somebody else at TC, for as long as the link is open.
fn foreign(lab: &Lab) -> (u32, OwnedFd) {
    let program = foreign_program(Hook::TcIngress);
    let id = objects::program_info(program.as_fd()).unwrap().id;
    let link = lab.enter(|| {
        let index = netdev::index(INTERFACE).unwrap();
        Plane::TC_INGRESS.attach(program.as_fd(), Port::Interface(index), Joining::default()).unwrap()
    });
    (id, link)
}

#[test]
fn programs_of_others_stay_behind_it_and_doctor_says_who_is_before_it() {
    let Some(lab) = Lab::new() else { return };
    let socket = socket(&lab);
    let (behind, _link) = foreign(&lab);
    let ours = attach(&lab, "xdp-native", "{mark: 7}")["companion"]["program_id"].as_u64().unwrap() as u32;
    assert_eq!((at_tc(&lab), arrives(&lab, &socket)[0]), (vec![ours, behind], 7));
    let doctor = || lab.ok(&format!("doctor --interface {INTERFACE}"));
    assert!(doctor().contains(&format!("mark: by program {ours} at tc-ingress")), "{}", doctor());
    let (before, link) = foreign(&lab);
    assert_eq!((at_tc(&lab), arrives(&lab, &socket)[0]), (vec![before, ours, behind], 7));
    assert!(
        doctor().contains(&format!("mark: program {before} at tc-ingress is before the one that does this"))
    );
    take_off(link);
    let text = lab.ok(&format!("status --interface {INTERFACE}"));
    assert!(text.contains(&format!("companion    tc-ingress, program {ours}")), "{text}");
    // Taken off by hand, it comes with the policy.
    plane::link::detach(
        objects::open_pin(&lab.pins().join(format!("{INTERFACE}::companion/link"))).unwrap().as_fd(),
    )
    .unwrap();
    assert!(doctor().contains("mark: the program at tc-ingress that does this is gone"), "{}", doctor());
    assert_eq!((at_tc(&lab), arrives(&lab, &socket)[0]), (vec![behind], 0));
    attach(&lab, "xdp-native", "{mark: 7}");
    assert_eq!((at_tc(&lab).len(), arrives(&lab, &socket)[0]), (2, 7));
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!((at_tc(&lab), lab.pinned()), (vec![behind], Vec::new()));
}

#[test]
fn killed_at_any_moment_it_is_there_if_the_policy_asks_for_it() {
    let Some(lab) = Lab::new() else { return };
    let socket = socket(&lab);
    for name in ["mark", "count"] {
        let class = if name == "mark" { "{mark: 7}" } else { "count" };
        lab.write(&format!("{name}.yaml"), format!("version: 1\nclasses: {{attack: {class}}}\n").as_bytes());
    }
    attach(&lab, "xdp-native", "{mark: 7}");
    let run = |policy: &str| {
        format!("run --bundle b.wirewise --interface {INTERFACE} --policy {policy}.yaml --yes --json")
    };
    let start = std::time::Instant::now();
    lab.ok(&run("count"));
    let whole = start.elapsed();
    let mut seen = [0; 2];
    for kill in 0.. {
        // Longer and longer, for a machine that gets slower meanwhile.
        if kill >= 30 && (kill == 150 || seen.iter().all(|count| *count > 0)) {
            break;
        }
        let next = ["mark", "count"][usize::from(lab.status()["classes"][1]["action"] == "mark 7")];
        let mut child = lab.command(&run(next)).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * kill / 20);
        child.kill().unwrap();
        child.wait().unwrap();
        // What the program goes by; what is remembered of it is written down last.
        let steered = outcome(&lab, 1, "acted");
        let mark = arrives(&lab, &socket)[0];
        let marks = outcome(&lab, 1, "acted") > steered;
        seen[usize::from(marks)] += 1;
        assert_eq!(mark, if marks { 7 } else { 0 }, "kill {kill}");
        // After the next command, which goes on with a policy that was on its way, it is there only if that asks for it.
        let told = lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE}"));
        let marks = told["status"]["classes"][1]["action"] == "mark 7";
        assert_eq!(at_tc(&lab).len(), usize::from(marks), "kill {kill}");
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    attach(&lab, "xdp-native", "{mark: 7}");
    lab.sh(&format!("ip link delete {INTERFACE}"));
    assert_eq!(lab.status()["companion"], json!(null));
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(lab.pinned(), [""; 0]);
}
