// SPDX-License-Identifier: Apache-2.0
//! Classes whose flows are spread over pools of servers.

use std::collections::{BTreeMap, BTreeSet};

use etherparse::{NetHeaders, PacketHeaders, TransportHeader};
use wirewised::abi;

use crate::carrier::{Carrier, wait};
use crate::elsewhere::{Carried, in_user_space};
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, data_path};
use crate::steering::{Beyond, OUT, PLANES, outcome, sender};
use crate::wire::{ipv4, ipv6, sum, tagged};

const BALANCING: [&str; 4] = [PLANES[0], PLANES[1], PLANES[2], "af-xdp"];

/// Enforces `p.yaml`; in user space for as long as what is returned is there.
fn begin(lab: &Lab, plane: &str) -> Option<Carrier> {
    if plane == "af-xdp" {
        return Some(Carrier::of(lab, plane, "--policy p.yaml --mode enforce"));
    }
    lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
    None
}

/// The Ethernet address that the tests give to a backend.
fn mac(host: u8) -> [u8; 6] {
    [2, 0, 0, 0, 9, host]
}

/// A pool of `out`, with the Ethernet addresses of its backends given. hosts: last byte, and more of its mapping.
fn pool(settings: &str, hosts: &[(u8, &str)]) -> String {
    let backend = |(host, more): &(u8, &str)| {
        format!("{{address: 10.8.0.{host}, mac: \"02:00:00:00:09:{host:02x}\"{more}}}")
    };
    let backends: Vec<_> = hosts.iter().map(backend).collect();
    format!("{{{settings}, backends: [{}]}}", backends.join(", "))
}

fn policy(lab: &Lab, pool: &str) {
    lab.policy(&format!("classes: {{attack: {{backend: web}}}}\npools: {{web: {pool}}}"));
}

/// The same frame from another port.
fn from_port(frame: &[u8], port: u16) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let at = if frame[14] >> 4 == 6 { 54 } else { 34 };
    frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
    frame
}

/// Flows of both versions of IP, which the model takes for attack.
fn flows(count: u16) -> Vec<Vec<u8>> {
    let frame = |port: u16| {
        let frame = if port.is_multiple_of(2) { ipv4(1000, ATTACK, 0) } else { ipv6(1000, ATTACK) };
        from_port(&frame, 20_000 + port)
    };
    (0..count).map(frame).collect()
}

/// By flow, which is known by its source port, the host that its frame went to.
fn hosts(arrived: &[Vec<u8>]) -> BTreeMap<u16, u8> {
    let of = |frame: &Vec<u8>| {
        let at = if frame[14] >> 4 == 6 { 54 } else { 34 };
        assert_eq!(frame[..5], mac(0)[..5]);
        (u16::from_be_bytes([frame[at], frame[at + 1]]), frame[5])
    };
    arrived.iter().map(of).collect()
}

/// An interface with addresses, so that there are routes to the backends.
fn addressed(lab: &Lab) {
    lab.sh(&format!("ip addr add 10.8.0.1/24 dev {OUT}"));
    lab.sh(&format!("sysctl -qw net.ipv6.conf.{OUT}.disable_ipv6=0"));
    lab.sh(&format!("ip addr add fd08::1/64 dev {OUT} nodad"));
}

fn address_of(lab: &Lab, interface: &str) -> String {
    let links: serde_json::Value =
        serde_json::from_str(&lab.sh(&format!("ip -j link show {interface}"))).unwrap();
    links[0]["address"].as_str().unwrap().to_string()
}

#[test]
fn flows_are_spread_and_stay_where_they_are_when_the_pool_changes() {
    let Some(lab) = Lab::new() else { return };
    let (beyond, near) = (Beyond::new(&lab), sender(&lab));
    lab.whole_packets();
    addressed(&lab);
    let settings = format!("interface: {OUT}");
    for plane in BALANCING {
        policy(&lab, &pool(&settings, &[(1, ""), (2, ""), (3, "")]));
        let _carrier = begin(&lab, plane);
        let run = |pool: &str| {
            policy(&lab, pool);
            lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes"));
        };
        let send = |frames: &[Vec<u8>]| {
            let mut all = BTreeMap::new();
            // No more at once than a socket has room for.
            for frames in frames.chunks(50) {
                near.send(frames);
                all.extend(hosts(&beyond.wire.received()));
            }
            assert_eq!(all.len(), frames.len());
            all
        };
        let old = flows(60);
        beyond.wire.clear();
        near.send(&old);
        let arrived = beyond.wire.received();
        // All is as it was but for the Ethernet addresses.
        assert_eq!(arrived.len(), 60, "{plane}");
        for (before, after) in old.iter().zip(&arrived) {
            assert_eq!(before[12..], after[12..], "{plane}");
            let source = after[6..12].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
            assert_eq!(source, address_of(&lab, OUT));
        }
        let first = hosts(&arrived);
        assert_eq!(first.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 3]), "{plane}");
        assert_eq!(outcome(&lab, 1, "acted"), 60);
        // Another backend, and other weights: nobody moves, and new flows go to all.
        run(&pool(&settings, &[(1, ""), (2, ", weight: 40"), (3, ""), (4, "")]));
        assert_eq!(send(&old), first, "{plane}");
        let new: Vec<_> = flows(200).split_off(60);
        let second = send(&new);
        let heavy = second.values().filter(|host| **host == 2).count();
        assert!(heavy > 110, "{plane}: {heavy} of 140");
        // One drains: its flows go on, no new one comes.
        run(&pool(&settings, &[(1, ""), (2, ", drain: true"), (3, ""), (4, "")]));
        assert_eq!((send(&old), send(&new)), (first.clone(), second.clone()), "{plane}");
        let newer: Vec<_> = flows(300).split_off(200);
        let third = send(&newer);
        assert_eq!(third.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 3, 4]), "{plane}");
        // One leaves: only its own flows move.
        run(&pool(&settings, &[(1, ""), (3, ""), (4, "")]));
        for (before, after) in [(first, send(&old)), (second, send(&new)), (third, send(&newer))] {
            for (flow, host) in &before {
                assert!(if *host == 2 { after[flow] != 2 } else { after[flow] == *host }, "{plane}: {flow}");
            }
        }
        // The same, when the program itself is another one: the new policy asks for what it was not loaded for.
        let (before, program) = (send(&old), lab.status()["program_id"].clone());
        lab.policy(&format!(
            "classes: {{attack: {{backend: web, dscp: 9}}}}\npools: {{web: {}}}",
            pool(&settings, &[(1, ""), (3, ""), (4, ""), (5, "")])
        ));
        lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes"));
        assert_ne!(lab.status()["program_id"], program);
        assert_eq!(send(&old), before, "{plane}");
        lab.json("rollback");
        assert_eq!(send(&old), before, "{plane}");
        assert_eq!((lab.send(1000, BENIGN, 2), outcome(&lab, 1, "not-acted")), (2, 0));
        lab.ok(&format!("detach --interface {INTERFACE}"));
        assert_eq!(lab.pinned(), [""; 0]);
    }
}

#[test]
fn what_has_no_ports_to_go_by_passes() {
    let Some(lab) = Lab::new() else { return };
    let (beyond, near) = (Beyond::new(&lab), sender(&lab));
    lab.whole_packets();
    addressed(&lab);
    policy(&lab, &pool(&format!("interface: {OUT}"), &[(1, "")]));
    for plane in BALANCING {
        let _carrier = begin(&lab, plane);
        beyond.wire.clear();
        near.send(&[ipv4(1000, ATTACK, 0x2000), ipv4(1000, ATTACK, 64), tagged(&ipv4(1000, ATTACK, 0))]);
        assert_eq!(beyond.wire.received().len(), 1, "{plane}");
        assert_eq!((outcome(&lab, 1, "not-acted"), outcome(&lab, 1, "acted")), (2, 1), "{plane}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

/// Takes the outer headers off by a parser of others, which also checks lengths; checksums are summed up here. Returns the outer ends, the
/// protocol by which the inner packet is called, and that.
fn inside(frame: &[u8], gue: bool) -> ([String; 2], u8, Vec<u8>) {
    let outer = PacketHeaders::from_ethernet_slice(frame).unwrap();
    let (ends, protocol) = match outer.net.unwrap() {
        NetHeaders::Ipv4(ip, _) => {
            assert_eq!(sum(&frame[14..34]), 0);
            assert_eq!((ip.time_to_live, ip.dont_fragment, ip.header_len()), (64, true, 20));
            assert_eq!(usize::from(ip.total_len) + 14, frame.len());
            ([ip.source, ip.destination].map(|ip| std::net::Ipv4Addr::from(ip).to_string()), ip.protocol.0)
        }
        NetHeaders::Ipv6(ip, _) => {
            assert_eq!(usize::from(ip.payload_length) + 54, frame.len());
            ([ip.source, ip.destination].map(|ip| std::net::Ipv6Addr::from(ip).to_string()), ip.next_header.0)
        }
        other => panic!("{other:?}"),
    };
    if !gue {
        let at = if frame[14] >> 4 == 4 { 34 } else { 54 };
        return (ends, protocol, frame[at..].to_vec());
    }
    let Some(TransportHeader::Udp(udp)) = outer.transport else { panic!("{frame:x?}") };
    let payload = outer.payload.slice();
    assert_eq!((protocol, udp.destination_port, udp.checksum), (17, 6080, 0));
    assert_eq!((usize::from(udp.length), udp.source_port >= 0xc000), (payload.len() + 8, true));
    // Variant 0, no control message, no options.
    assert_eq!((payload[0], &payload[2..4]), (0, &[0, 0][..]));
    (ends, payload[1], payload[4..].to_vec())
}

#[test]
fn packets_are_carried_inside_of_others() {
    let Some(lab) = Lab::new() else { return };
    let (beyond, near) = (Beyond::new(&lab), sender(&lab));
    lab.whole_packets();
    addressed(&lab);
    let backends = "backends: [{address: 10.8.0.9, mac: \"02:00:00:00:09:09\"}]";
    let backends6 = "backends: [{address: \"fd08::9\", mac: \"02:00:00:00:09:09\"}]";
    for plane in BALANCING {
        for (method, backends, ends) in [
            ("ip-in-ip", backends, ["10.8.0.1", "10.8.0.9"]),
            ("gue", backends, ["10.8.0.1", "10.8.0.9"]),
            ("ip-in-ip", backends6, ["fd08::1", "fd08::9"]),
            ("gue", backends6, ["fd08::1", "fd08::9"]),
            ("gue, source: 10.7.7.7", backends, ["10.7.7.7", "10.8.0.9"]),
        ] {
            policy(&lab, &format!("{{interface: {OUT}, method: {method}, {backends}}}"));
            let _carrier = begin(&lab, plane);
            let sent = flows(12);
            beyond.wire.clear();
            near.send(&sent);
            let arrived = beyond.wire.all();
            assert_eq!(arrived.len(), 12, "{plane} {method}");
            let mut ports = BTreeSet::new();
            for (before, after) in sent.iter().zip(&arrived) {
                assert_eq!(after[..6], mac(9));
                let gue = method.starts_with("gue");
                let (found, protocol, inner) = inside(after, gue);
                assert_eq!(found, ends, "{plane} {method}");
                assert_eq!(protocol, if before[14] >> 4 == 4 { 4 } else { 41 });
                assert_eq!(inner, before[14..], "{plane} {method}");
                // DSCP and ECN are those of the inner packet: RFC 2983, 6040.
                assert_eq!(dsfield(&after[14..]), dsfield(&inner), "{plane} {method}");
                ports.insert(after[if ends[0].contains('.') { 34..36 } else { 54..56 }].to_vec());
            }
            assert!(!method.starts_with("gue") || ports.len() > 8, "{ports:?}");
            // What would be too long for the interface then passes as it is.
            lab.sh(&format!("ip link set {OUT} mtu 1300"));
            near.send(&[ipv4(1000, 1300 - 28 - 19, 0)]);
            assert_eq!((beyond.wire.all().len(), outcome(&lab, 1, "not-acted")), (0, 1), "{plane} {method}");
            near.send(&[ipv4(1000, 1300 - 28 - 52, 0)]);
            assert_eq!((beyond.wire.all().len(), outcome(&lab, 1, "not-acted")), (1, 1), "{plane} {method}");
            lab.sh(&format!("ip link set {OUT} mtu 1500"));
            // A tagged frame has no room that is known.
            near.send(&[tagged(&ipv4(1000, ATTACK, 0))]);
            let unsteered = if plane != PLANES[2] { 2 } else { 1 };
            wait("it is counted", || outcome(&lab, 1, "not-acted") == unsteered);
            lab.ok(&format!("detach --interface {INTERFACE}"));
        }
    }
}

fn dsfield(packet: &[u8]) -> u8 {
    if packet[0] >> 4 == 4 { packet[1] } else { packet[0] << 4 | packet[1] >> 4 }
}

#[test]
fn a_pool_without_an_interface_sends_by_the_one_that_is_judged() {
    let Some(lab) = Lab::new() else { return };
    let (_beyond, near) = (Beyond::new(&lab), sender(&lab));
    lab.whole_packets();
    policy(&lab, "{backends: [{address: 10.9.0.77, mac: \"02:00:00:00:09:07\"}]}");
    for plane in BALANCING {
        let _carrier = begin(&lab, plane);
        near.clear();
        near.send(&flows(10));
        let back = near.received();
        assert_eq!(back.len(), 10, "{plane}");
        assert!(
            back.iter().all(|frame| frame[..6] == mac(7) && frame[6..12] == crate::wire::NEAR),
            "{plane}"
        );
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

/// What `wirewised backends` counts, of all hosts.
fn counted(lab: &Lab) -> u64 {
    let backends = lab.json("backends")["pools"][0]["backends"].as_array().unwrap().clone();
    backends.iter().map(|backend| backend["packets"].as_u64().unwrap()).sum()
}

/// By the other planes in user space, which have other memory for frames.
#[test]
fn user_space_balances() {
    for (plane, options) in in_user_space() {
        let Some(it) = Carried::new(&options) else { return };
        addressed(&it.lab);
        let settings = format!("interface: {OUT}");
        policy(&it.lab, &pool(&settings, &[(1, ""), (2, ""), (3, "")]));
        let _carrier = Carrier::of(&it.lab, plane, &format!("{options} --policy p.yaml --mode enforce"));
        let run = |pool: &str| {
            policy(&it.lab, pool);
            it.lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes"));
            it.beyond.wire.clear();
            it.near.clear();
        };
        let sent = flows(50);
        it.near.send(&sent);
        let arrived = it.beyond.wire.received();
        let first = hosts(&arrived);
        assert_eq!((arrived.len(), first.len()), (50, 50), "{plane} {options}");
        assert!(sent.iter().zip(&arrived).all(|(before, after)| before[12..] == after[12..]));
        assert_eq!(first.values().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 3]));
        assert_eq!((counted(&it.lab), outcome(&it.lab, 1, "acted")), (50, 50), "{plane} {options}");
        // Who is known stays where he is, whatever the weights.
        run(&pool(&settings, &[(1, ""), (2, ", weight: 40"), (3, ", drain: true")]));
        it.near.send(&sent);
        assert_eq!(hosts(&it.beyond.wire.received()), first, "{plane} {options}");
        // Inside of others, by another interface and by the one that is judged.
        let backends = "backends: [{address: 10.8.0.9, mac: \"02:00:00:00:09:09\"}]";
        for (method, gue) in [("ip-in-ip", false), ("gue", true)] {
            for (settings, wire) in
                [(format!("interface: {OUT}"), &it.beyond.wire), ("source: 10.8.0.1".to_string(), &it.near)]
            {
                run(&format!("{{{settings}, method: {method}, {backends}}}"));
                let before = outcome(&it.lab, 1, "acted");
                it.near.send(&sent);
                wait("all are judged", || outcome(&it.lab, 1, "acted") == before + 50);
                let arrived: Vec<_> = wire.all().into_iter().filter(|frame| frame[..6] == mac(9)).collect();
                assert_eq!(arrived.len(), 50, "{plane} {options} {method} {settings}");
                for (before, after) in sent.iter().zip(&arrived) {
                    let (ends, _, inner) = inside(after, gue);
                    assert_eq!(ends, ["10.8.0.1", "10.8.0.9"], "{plane} {options} {method}");
                    assert_eq!(inner, before[14..], "{plane} {options} {method}");
                }
                // What would be too long then passes, whole; what just fits goes.
                let most = 1500 - 28 - if gue { 32 } else { 20 };
                let before = outcome(&it.lab, 1, "not-acted");
                it.near.send(&[ipv4(1000, most + 1, 0)]);
                // Not what the receiver answers, which is shorter, and judged too.
                let arrived = || {
                    let of_size = |frame: &Vec<u8>| frame.len() > 1400 && frame[..6] == mac(9);
                    wire.all().into_iter().filter(of_size).map(|frame| frame.len()).collect::<Vec<_>>()
                };
                assert_eq!(arrived(), [0; 0], "{plane} {options} {method} {settings}");
                it.near.send(&[ipv4(1000, most, 0)]);
                assert_eq!(arrived(), [1514], "{plane} {options} {method} {settings}");
                assert_eq!(outcome(&it.lab, 1, "not-acted"), before + 1, "{plane} {options} {method}");
            }
        }
        assert_eq!(it.arrive(BENIGN, 3), 3, "{plane} {options}");
        it.lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn the_largest_pools_have_room_beside_those_that_they_replace() {
    let Some(lab) = Lab::new() else { return };
    let _beyond = Beyond::new(&lab);
    addressed(&lab);
    let all = |first: usize| {
        let backend = |n: usize| {
            let n = first + n;
            format!("{{address: 10.8.{}.{}, mac: \"02:00:00:00:09:01\"}}", n / 250, n % 250 + 2)
        };
        let hosts: Vec<_> = (0..abi::BACKENDS / 2 - 1).map(backend).collect();
        policy(&lab, &format!("{{interface: {OUT}, backends: [{}]}}", hosts.join(", ")));
    };
    all(0);
    lab.attach("--policy p.yaml --mode enforce");
    all(2000);
    lab.attach("--policy p.yaml");
    all(0);
    lab.attach("--policy p.yaml");
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    if data_path().is_none() {
        return;
    }
    let Some(lab) = Lab::new() else { return };
    let _beyond = Beyond::new(&lab);
    addressed(&lab);
    let refused = |text: &str, arguments: &str, said: &str| {
        lab.policy(text);
        let run =
            format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes {arguments}");
        let error = lab.error(&run, 2);
        assert!(error.contains(said), "{text} {arguments}: {error}");
        lab.assert_untouched();
    };
    let class = "classes: {attack: {backend: web}}";
    refused(class, "", "there is no pool 'web'");
    refused("pools: {web: {backends: [{address: 10.8.0.9}]}}", "", "web: no class goes there");
    let one = |more: &str| format!("{class}\npools: {{web: {{interface: {OUT}, {more}}}}}");
    refused(&one("backends: []"), "", "has no backends");
    refused(&one("backends: [{weight: 2}]"), "", "a backend needs an address");
    refused(&one("backends: [{address: 10.8.0.9, weight: 0}]"), "", "weight 0 is out of range");
    refused(&one("backends: [{address: 224.0.0.9}]"), "", "is no address of another host");
    refused(&one("backends: [{address: 10.8.0.9}, {address: 10.8.0.9}]"), "", "10.8.0.9 stands twice");
    refused(&one("method: dsrr, backends: [{address: 10.8.0.9}]"), "", "did you mean 'dsr'");
    refused(&one("source: 10.8.0.1, backends: [{address: 10.8.0.9}]"), "", "which the method dsr has not");
    refused(&one("health: {udp: 5}, backends: [{address: 10.8.0.9}]"), "", "udp");
    refused(&one("health: {tcp: 0}, backends: [{address: 10.8.0.9}]"), "", "port 0 is out of range");
    refused(&one("health: {http: x, port: 1}, backends: [{address: 10.8.0.9}]"), "", "'x' is no path");
    let backends = "backends: [{address: 10.8.0.9}]";
    refused(&one(backends), "", "backend 10.8.0.9: it does not say its Ethernet address on out0");
    refused(
        &one("backends: [{address: \"fd77::9\"}]"),
        "",
        "backend fd77::9: there is no route to it by out0",
    );
    lab.sh(&format!("ip route add 10.77.0.0/16 via 10.8.0.254 dev {OUT}"));
    refused(&one("backends: [{address: 10.77.0.9}]"), "", "is behind the router 10.8.0.254");
    refused(
        &one("method: gue, backends: [{address: 10.77.0.9}]"),
        "",
        "the router 10.8.0.254 does not say its Ethernet address",
    );
    refused(
        &format!("{class}\npools: {{web: {{interface: nowhere, {backends}}}}}"),
        "",
        "no interface 'nowhere'",
    );
    refused(&one(backends), "--plane tc-egress", "tc-egress cannot do backend");
    refused(
        "classes: {attack: {backend: web, redirect: {interface: out0}}}\npools: {web: {backends: [{address: 10.8.0.9}]}}",
        "",
        "a packet goes to a backend or elsewhere",
    );
}
