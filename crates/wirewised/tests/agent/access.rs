// SPDX-License-Identifier: Apache-2.0
//! What access networks put in front of IP: VLAN tags, which may be part of the flow key, and sessions of PPPoE. The same on every plane.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::carrier::{Carrier, wait};
use crate::lab::{ATTACK, INTERFACE, Lab, changed_bundle, variant};
use crate::steering::{Beyond, PLANES, attacks, class_of, outcome, sender};
use crate::swap::{flows, status};
use crate::wire::{FAR, NEAR, in_session, ipv4, ipv6, tagged};

const ROUNDS: u64 = 3;

/// One packet in no VLAN, in two, behind two tags, and with a tag of priority only; with the ids that flows show.
fn in_vlans() -> Vec<(Vec<u8>, Value)> {
    let plain = ipv4(1000, ATTACK, 0);
    let with = |tags: &[[u8; 4]]| [&plain[..12], &tags.concat(), &plain[12..]].concat();
    let (customer, other, service) = ([0x81, 0, 0x20, 7], [0x81, 0, 0, 8], [0x88, 0xa8, 0x0f, 0xff]);
    vec![
        (with(&[]), Value::Null),
        (with(&[customer]), json!([7])),
        (with(&[other]), json!([8])),
        (with(&[service, customer]), json!([4095, 7])),
        (with(&[service, other]), json!([4095, 8])),
        (with(&[[0x81, 0, 0xe0, 0]]), Value::Null),
    ]
}

/// Packets of the flows, by their VLANs.
fn by_vlan(flows: &[Value]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for flow in flows {
        *counts.entry(flow["vlan"].to_string()).or_default() += flow["packets"].as_u64().unwrap();
    }
    counts
}

/// Sends all kinds, and looks which flows they are of, and which events say so.
fn assert_told_apart(lab: &Lab, plane: &str, apart: bool) {
    let near = sender(lab);
    let mut expected = BTreeMap::new();
    for (frame, vlans) in in_vlans() {
        (0..ROUNDS).for_each(|_| near.send(std::slice::from_ref(&frame)));
        let vlans = if apart { vlans } else { Value::Null };
        *expected.entry(vlans.to_string()).or_default() += ROUNDS;
    }
    wait("all are counted", || by_vlan(&flows(lab)).values().sum::<u64>() == 6 * ROUNDS);
    assert_eq!(by_vlan(&flows(lab)), expected, "{plane}");
    let mut events = BTreeMap::new();
    for line in lab.ok("events --json").lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        *events.entry(event["vlan"].to_string()).or_default() += 1;
    }
    assert_eq!(events, expected, "{plane}");
    let shown = lab.ok("flows");
    assert_eq!(shown.contains("UDP vlan 4095.7"), apart, "{plane}: {shown}");
}

#[test]
fn vlans_tell_flows_apart_if_the_key_has_them() {
    let Some(lab) = Lab::new() else { return };
    for key in ["five-tuple", "five-tuple+vlan"] {
        let apart = key.ends_with("+vlan");
        let object = variant(if apart { "VLANS" } else { "BORDER=100" });
        lab.write(
            "b.wirewise",
            &changed_bundle("b", &object, |manifest| manifest["flow"]["key"] = json!(key)),
        );
        lab.policy("classes: {attack: count}");
        for plane in PLANES {
            // Tags that come beside frames are seen behind XDP only.
            let run =
                format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --mode enforce");
            let output = lab.run(&format!("{run} --plane {plane} --dry-run"));
            let told = String::from_utf8(output.stderr).unwrap();
            assert_eq!(told.contains("rxvlan off"), apart && plane.starts_with("xdp"), "{plane}: {told}");
            lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
            assert_told_apart(&lab, plane, apart);
            lab.ok(&format!("detach --interface {INTERFACE}"));
        }
        let carrier = Carrier::start(&lab, "--policy p.yaml");
        assert_told_apart(&lab, "af-packet", apart);
        carrier.signal(libc::SIGTERM);
        carrier.end();
    }
}

#[test]
fn sessions_of_pppoe_are_judged() {
    let Some(lab) = Lab::new() else { return };
    let near = sender(&lab);
    lab.policy("classes: {attack: drop}");
    let plain =
        [ipv4(1000, ATTACK, 0), ipv6(1000, ATTACK), ipv4(1000, ATTACK, 0x2000), ipv4(1000, ATTACK, 64)];
    let mut sessions: Vec<_> = plain.iter().map(|frame| in_session(frame)).collect();
    sessions.extend(plain.iter().map(|frame| tagged(&in_session(frame))));
    let changed = |at: usize, byte: u8| {
        let mut frame = sessions[0].clone();
        frame[at] = byte;
        frame
    };
    // Of discovery, of another version, and of PPP's own protocols.
    let others = [changed(13, 0x63), changed(14, 0x21), changed(20, 0xc0)];
    let lies = [changed(19, sessions[0][19] - 1)];
    for plane in PLANES {
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        near.send(&sessions);
        near.send(&others);
        near.send(&lies);
        wait("all are counted", || status(&lab.stats(), "malformed_ethernet") == 1);
        assert_eq!(outcome(&lab, 1, "drop"), 8, "{plane}");
        assert!(status(&lab.stats(), "not_ip") >= 3, "{plane}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

/// What stays as long as it was may be written to and sent elsewhere; what would need another length, or is for who ends the session, passes.
#[test]
fn sessions_of_pppoe_stay_whole_wherever_they_go() {
    let Some(lab) = Lab::new() else { return };
    let (beyond, near) = (Beyond::new(&lab), sender(&lab));
    let sent: Vec<_> = attacks().iter().take(4).map(|frame| in_session(frame)).collect();
    // PPP's protocol takes the EtherType's place.
    let inside = |frame: &[u8]| [&frame[..12], &frame[20..]].concat();
    for plane in PLANES {
        for (policy, arrives_at, addresses) in [
            ("{action: bounce, dscp: EF}", &near, [FAR, NEAR]),
            ("{dscp: EF, redirect: {interface: out0}}", &beyond.wire, [NEAR, FAR]),
        ] {
            lab.policy(&format!("classes: {{attack: {policy}}}"));
            lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
            arrives_at.clear();
            near.send(&sent);
            let arrived = arrives_at.sessions();
            assert_eq!(arrived.len(), sent.len(), "{plane} {policy}");
            for (before, after) in sent.iter().zip(&arrived) {
                assert_eq!(after[..12], addresses.concat()[..], "{plane} {policy}");
                assert_eq!(after[12..22], before[12..22], "{plane} {policy}");
                assert_eq!(class_of(&inside(after)), 46 << 2 | class_of(&inside(before)) & 3);
                assert_eq!(after[34..], before[34..], "{plane} {policy}");
            }
            lab.ok(&format!("detach --interface {INTERFACE}"));
        }
        for policy in ["{action: forward}", "{forward: {ports: [ww0, out0]}}"] {
            lab.policy(&format!("classes: {{attack: {policy}}}"));
            lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
            near.send(&sent);
            wait("all are counted", || outcome(&lab, 1, "not-acted") == 4);
            lab.ok(&format!("detach --interface {INTERFACE}"));
        }
    }
}
