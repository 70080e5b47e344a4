// SPDX-License-Identifier: Apache-2.0
//! The verdict as data: in front of packets, for a program of somebody else's at TC and for sockets of AF_XDP, and in the map `ww_verdicts`.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::time::Instant;

use bytemuck::{Zeroable, bytes_of, pod_read_unaligned};
use libbpf_rs::{MapCore, MapFlags, MapHandle, ObjectBuilder};
use serde_json::{Value, json};
use test_needs::{Need, skip};
use wirewised::abi;
use wirewised::interface::netdev;
use wirewised::kernel;
use wirewised::plane::{Joining, Order, Plane, Port};

use crate::companion::{full_of_metadata, run_with_metadata};
use crate::compiled::compile;
use crate::elsewhere::Receiving;
use crate::lab::{ATTACK, BENIGN, FAR, INTERFACE, Lab, RECEIVER, SENDER, bind, bundle, second, variant};
use crate::quiet::PATIENCE;
use crate::steering::{attacks, outcome, sender};
use crate::wire::ipv4;

const AT_XDP: [&str; 2] = ["xdp-native", "xdp-generic --offloads off"];
const NO_VERDICT: u32 = abi::MAX_CLASSES as u32;

/// The example's program, behind ours at TC of the interface under test, while it is open.
struct Reader {
    classes: MapHandle,
    _link: OwnedFd,
}

/// What it keeps for a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Seen {
    packets: u64,
    last: abi::Metadata,
}

impl Reader {
    fn attach(lab: &Lab) -> Self {
        let object = compile("../../examples/verdict-reader/reader.bpf.c", &[]).unwrap();
        let loaded = ObjectBuilder::default().open_memory(&object).unwrap().load().unwrap();
        let program = loaded.progs().next().unwrap().as_fd().try_clone_to_owned().unwrap();
        let classes = MapHandle::try_from(&loaded.maps().next().unwrap()).unwrap();
        let last = Joining { order: Order::Last, ..Joining::default() };
        let link = lab.enter(|| {
            let port = Port::Interface(netdev::index(INTERFACE).unwrap());
            Plane::TC_INGRESS.attach(program.as_fd(), port, last).unwrap()
        });
        Self { classes, _link: link }
    }

    fn seen(&self, class: u32) -> Seen {
        let value = self.classes.lookup(&class.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        pod_read_unaligned(&value)
    }

    /// Packets of both classes, and those without a verdict.
    fn counts(&self) -> [u64; 3] {
        [0, 1, NO_VERDICT].map(|class| self.seen(class).packets)
    }
}

fn scored(lab: &Lab) {
    lab.write("b.wirewise", &bundle("scored", &variant("SCORED")));
}

#[test]
fn a_program_at_tc_reads_the_verdicts_of_xdp() {
    let Some(lab) = Lab::new() else { return };
    scored(&lab);
    lab.policy("classes: {attack: count}\nmetadata: true");
    for plane in AT_XDP {
        let reader = Reader::attach(&lab);
        assert_eq!((lab.send(1000, BENIGN, 2), reader.counts()), (2, [0, 0, 2]), "{plane}");
        let before = kernel::monotonic_ns();
        // It changes no packet, so it is there in observe mode too.
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode observe"));
        assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 2)), (3, 2));
        assert_eq!(reader.counts(), [3, 2, 2], "{plane}");
        let [benign, attack] = [0, 1].map(|class| reader.seen(class).last);
        assert_eq!([benign.class_id, attack.class_id], [0, 1]);
        assert_eq!((attack.version, attack.flags), (1, abi::METADATA_SCORE as u8));
        assert_eq!((benign.score, attack.score), (1, 1), "the class's own score");
        assert!(benign.model == attack.model && benign.model != 0);
        assert_ne!(benign.flow_hash, attack.flow_hash, "each call has a socket of its own");
        // The coarse clock is some milliseconds late.
        let (early, late) = (before - 20_000_000, kernel::monotonic_ns());
        assert!((early..=late).contains(&attack.time_ns), "{early} {} {late}", attack.time_ns);
        assert_eq!(lab.stats()["metadata"], json!({"written": 5, "no_room": 0}));
        // A policy that does not ask for it ends it in place.
        lab.policy("classes: {attack: count}");
        lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml"));
        assert_eq!((lab.send(1000, ATTACK, 2), reader.counts()), (2, [3, 2, 4]), "{plane}");
        assert_eq!(lab.stats()["metadata"], Value::Null);
        lab.policy("classes: {attack: count}\nmetadata: true");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn dropped_and_unclassified_packets_have_none() {
    let Some(lab) = Lab::new() else { return };
    let reader = Reader::attach(&lab);
    lab.policy("classes: {attack: drop}\nallow: {ports: [1001]}\nmetadata: true");
    lab.attach("--plane xdp-native --policy p.yaml --mode enforce");
    assert_eq!((lab.send(1000, ATTACK, 2), lab.send(1001, ATTACK, 3), lab.send(1000, BENIGN, 4)), (0, 3, 4));
    assert_eq!(reader.counts(), [4, 0, 3]);
    assert_eq!(reader.seen(0).last.flags, 0, "the model of this bundle gives no scores");
    assert_eq!(lab.stats()["metadata"]["written"], 4);
}

#[test]
fn a_mark_and_the_verdict_go_in_front_of_the_same_packet() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: {mark: 7}}\nmetadata: true");
    for plane in AT_XDP {
        let reader = Reader::attach(&lab);
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        sender(&lab).send(&attacks());
        assert_eq!((lab.send(1000, BENIGN, 1), lab.send(1000, ATTACK, 1)), (1, 1), "{plane}");
        // The companion takes its own part off, and leaves the verdict. Neighbours may speak too (ARP), so packets without one are not counted.
        let [benign, attack, _] = reader.counts();
        assert_eq!(([benign, attack], outcome(&lab, 1, "acted")), ([1, 6], 6), "{plane}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn a_packet_for_another_cpu_takes_its_verdict_along() {
    let Some(lab) = Lab::new() else { return };
    lab.sender_sh("ethtool -K ww1 tx-checksumming off");
    lab.policy("classes: {attack: {redirect: {cpu: 0}}}\nmetadata: true");
    for plane in AT_XDP {
        let reader = Reader::attach(&lab);
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        assert_eq!((lab.send(1000, ATTACK, 3), lab.send(1000, BENIGN, 1)), (3, 1), "{plane}");
        // The kernel hands a socket buffer to another CPU without its metadata.
        let attack = if plane == AT_XDP[0] { 3 } else { 0 };
        assert_eq!(
            (reader.counts()[..2].to_vec(), outcome(&lab, 1, "acted")),
            (vec![1, attack], 3),
            "{plane}"
        );
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

/// The lines of `receive --json`.
fn lines(output: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn who_receives_packets_reads_their_verdicts() {
    let Some(lab) = Lab::new() else { return };
    scored(&lab);
    for (plane, metadata) in [(AT_XDP[0], true), (AT_XDP[1], true), (AT_XDP[0], false)] {
        lab.policy(&format!("classes: {{attack: {{redirect: {{socket: 0}}}}}}\nmetadata: {metadata}"));
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        let running = Receiving::start(&lab, &format!("receive --interface {INTERFACE} --count 5 --json"));
        let end = Instant::now() + PATIENCE;
        while lab.send(1000, ATTACK, 1) == 1 {
            assert!(Instant::now() < end, "{plane}");
        }
        sender(&lab).send(&attacks());
        let ended = running.end();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let lines = lines(&ended.stdout);
        let (totals, packets) = lines.split_last().unwrap();
        assert_eq!((packets.len(), &totals["packets"], &totals["file"]), (5, &json!(5), &Value::Null));
        for packet in packets {
            let verdict = &packet["metadata"];
            assert_eq!(verdict.is_object(), metadata, "{plane}: {packet}");
            if metadata {
                assert_eq!((&verdict["class"], &verdict["score"]), (&json!("attack"), &json!(1)), "{packet}");
            }
        }
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

/// What `ww_verdicts` has of a flow of UDP.
fn verdict_of(lab: &Lab, from: (&str, u16), to: (&str, u16)) -> Option<abi::FlowVerdict> {
    let map = MapHandle::from_pinned_path(lab.pins().join(INTERFACE).join("ww_verdicts")).unwrap();
    let mut flow = abi::FiveTuple { protocol: 17, ip_version: 4, ..abi::FiveTuple::zeroed() };
    flow.source[..4].copy_from_slice(&from.0.parse::<Ipv4Addr>().unwrap().octets());
    flow.destination[..4].copy_from_slice(&to.0.parse::<Ipv4Addr>().unwrap().octets());
    (flow.source_port, flow.destination_port) = (from.1.to_be_bytes(), to.1.to_be_bytes());
    map.lookup(bytes_of(&flow), MapFlags::ANY).unwrap().map(|value| pod_read_unaligned(&value))
}

#[test]
fn the_map_of_verdicts_follows_the_class_of_each_flow() {
    let Some(lab) = Lab::new() else { return };
    // Each CPU has flow tables of its own, and a pair of interfaces stays on the sender's.
    kernel::pin_to(0).unwrap();
    scored(&lab);
    lab.policy("classes: {attack: {action: drop, after: 2}}\nverdicts: true");
    for plane in ["xdp-native", "tc-ingress --offloads off"] {
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        let of = |port| verdict_of(&lab, (SENDER, 2000), (RECEIVER, port));
        assert_eq!(lab.send_between(2000, 1000, BENIGN, 2), 2);
        let first = of(1000).unwrap();
        assert_eq!((first.class_id, first.flags, first.version), (0, 1, 1), "{plane}");
        // One packet is not enough for the class, the second one is.
        assert_eq!((lab.send_between(2000, 1000, ATTACK, 1), of(1000)), (1, Some(first)), "{plane}");
        assert_eq!(lab.send_between(2000, 1000, ATTACK, 1), 0);
        let changed = of(1000).unwrap();
        assert_eq!((changed.class_id, changed.model), (1, first.model), "{plane}");
        assert!(changed.time_ns >= first.time_ns);
        // It is written when the class changes, not with each packet.
        assert_eq!((lab.send_between(2000, 1000, ATTACK, 3), of(1000)), (0, Some(changed)));
        assert_eq!((of(1001), verdict_of(&lab, (RECEIVER, 1000), (SENDER, 2000))), (None, None), "{plane}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
    lab.assert_untouched();
}

#[test]
fn where_there_is_no_room_packets_pass_and_are_counted() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("metadata: true");
    lab.attach("--plane xdp-native --policy p.yaml");
    let frame = ipv4(1000, BENIGN, 0);
    let left = run_with_metadata(&lab, 0, &frame);
    let (metadata, packet) = left.split_at(size_of::<abi::Metadata>());
    let metadata: abi::Metadata = pod_read_unaligned(metadata);
    assert_eq!((metadata.magic, metadata.version, packet), (abi::METADATA, 1, frame.as_slice()));
    let full = full_of_metadata();
    assert_eq!(run_with_metadata(&lab, full, &frame), [vec![0x55; full as usize], frame].concat());
    assert_eq!(lab.stats()["metadata"], json!({"written": 1, "no_room": 1}));
}

/// The ruleset of docs/policy.md, with Suricata's answer to a flow that it bypasses in the place of the queue.
fn rules_of_docs(lab: &Lab) {
    let page = include_str!("../../../../docs/policy.md");
    let start = page.find("table inet wirewise").unwrap();
    let rules = &page[start..start + page[start..].find("```").unwrap()];
    let queue = "queue num 0 bypass";
    assert!(rules.contains(queue));
    lab.write("rules.nft", rules.replace(queue, "counter meta mark set 0x21 accept").as_bytes());
    lab.sh(&format!("nft -f {}", lab.path("rules.nft").display()));
}

#[test]
fn nftables_goes_by_the_mark_of_a_class_and_suricata_can_bypass() {
    let Some(lab) = Lab::new() else { return };
    if Command::new("nft").arg("--version").output().is_err() {
        return skip(Need::Tools, "no nft");
    }
    let far = second(&lab);
    rules_of_docs(&lab);
    lab.policy("classes: {benign: {mark: 0x10}, attack: {mark: 0x20}}");
    lab.attach("--policy p.yaml --mode enforce");
    let queued = || {
        let rules: Value = serde_json::from_str(&lab.sh("nft -j list table inet wirewise")).unwrap();
        let rules = rules["nftables"].as_array().unwrap().clone();
        let expressions = rules.iter().filter_map(|rule| rule["rule"]["expr"].as_array()).flatten();
        let mut counters = expressions.filter_map(|part| part["counter"]["packets"].as_u64());
        counters.next().unwrap()
    };
    let (near, beyond) = (lab.enter_sender(|| bind(SENDER, 0)), far.enter(|| bind(FAR, 1000)));
    beyond.set_read_timeout(Some(PATIENCE)).unwrap();
    let send = |length: usize| {
        near.send_to(&vec![0; length], (FAR, 1000)).unwrap();
        assert_eq!(beyond.recv(&mut [0; 2048]).unwrap(), length);
    };
    send(BENIGN);
    assert_eq!(queued(), 0);
    // The first of a suspicious flow is queued; its connection is bypassed from then on.
    (0..3).for_each(|_| send(ATTACK));
    assert_eq!(queued(), 1);
}

#[test]
fn planes_that_cannot_refuse_and_say_why() {
    let Some(lab) = Lab::new() else { return };
    for (key, plane, why) in [
        ("metadata", "tc-ingress", "only XDP can put data in front of a packet"),
        (
            "metadata",
            "af-packet",
            "out of reach of other programs in the kernel; planes that can: xdp-native, xdp-generic",
        ),
        ("verdicts", "af-xdp", "planes that can: xdp-native, xdp-generic, tc-ingress, tc-egress"),
    ] {
        lab.policy(&format!("{key}: true"));
        let run = format!("run --bundle b.wirewise --interface {INTERFACE} --plane {plane} --policy p.yaml");
        let error = lab.error(&run, 2);
        assert!(
            error.contains(&format!("policy: {key}: not on {plane}: ")) && error.contains(why),
            "{error}"
        );
    }
    lab.assert_untouched();
}
