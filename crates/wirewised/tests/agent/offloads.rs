// SPDX-License-Identifier: Apache-2.0
//! TCP as hosts send it, where a program sees socket buffers: merged by offloads of either end of the veth pair.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use serde_json::Value;

use crate::lab::{INTERFACE, Lab, RECEIVER, SENDER};

const BYTES: usize = 50 << 20;
/// What a TCP segment carries at most on this MTU, with timestamps.
const SEGMENT: u64 = 1448;

/// Sends data over TCP to the interface under test.
fn transfer(lab: &Lab) {
    let listener = lab.enter(|| TcpListener::bind((RECEIVER, 0)).unwrap());
    let address = listener.local_addr().unwrap();
    stream(listener, lab.enter_sender(|| TcpStream::connect(address).unwrap()));
}

/// And out of it.
fn transfer_out(lab: &Lab) {
    let listener = lab.enter_sender(|| TcpListener::bind((SENDER, 0)).unwrap());
    let address = listener.local_addr().unwrap();
    stream(listener, lab.enter(|| TcpStream::connect(address).unwrap()));
}

fn stream(listener: TcpListener, mut sender: TcpStream) {
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = vec![0; 1 << 16];
        let mut read = 0;
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            read += count;
        }
        read
    });
    let block = vec![0; 1 << 16];
    for _ in 0..BYTES / block.len() {
        sender.write_all(&block).unwrap();
    }
    drop(sender);
    assert_eq!(receiver.join().unwrap(), BYTES);
}

/// Packets that the program saw, and their bytes.
fn seen(lab: &Lab) -> (u64, u64) {
    let stats = lab.stats();
    let sum = |what: &str| {
        stats["status"].as_array().unwrap().iter().map(|row| row[what].as_u64().unwrap()).sum::<u64>()
    };
    (sum("packets"), sum("bytes"))
}

/// Offloads of both ends.
fn offloads(lab: &Lab) -> (String, String) {
    (lab.sh(&format!("ethtool -k {INTERFACE}")), lab.sender_sh("ethtool -k ww1"))
}

fn warnings(lab: &Lab, arguments: &str) -> String {
    let output = lab.run(arguments);
    assert!(output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn merged_packets_are_warned_of_and_nothing_is_enforced_on_them() {
    let Some(lab) = Lab::new() else { return };
    lab.sh(&format!("ethtool -K {INTERFACE} gro on"));
    let [sender, _] = lab.namespaces();
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --plane xdp-generic");
    lab.policy("classes: {attack: drop}");
    let error = lab.error(&format!("{run} --policy p.yaml --mode enforce --yes"), 3);
    for part in [
        &format!("sees packets merged by {INTERFACE} (gro) and ww1 in {sender} (tso, tx-"),
        &format!("`ethtool -K {INTERFACE} gro off` and `ip netns exec {sender} ethtool -K ww1 tso off tx-"),
        "--offloads off",
    ] {
        assert!(error.contains(part), "{error}");
    }
    lab.assert_untouched();
    let doctor = lab.json(&format!("doctor --interface {INTERFACE} --plane xdp-generic"));
    let finding = |report: &Value| {
        let mut findings = report["findings"].as_array().unwrap().iter();
        findings.find(|it| it["check"] == "offloads").map(|it| it["level"].as_str().unwrap().to_owned())
    };
    assert_eq!(finding(&doctor).as_deref(), Some("warning"));
    assert_eq!(finding(&lab.json(&format!("doctor --interface {INTERFACE}"))), None);
    assert!(warnings(&lab, &run).starts_with("warning: offloads: xdp-generic sees packets merged by"));
    transfer(&lab);
    let (packets, bytes) = seen(&lab);
    assert!(bytes / packets > 5 * SEGMENT, "{bytes} bytes in {packets} packets: not merged at all");
    // As the remedy says.
    let before = offloads(&lab);
    lab.sh(&format!("ethtool -K {INTERFACE} gro off"));
    lab.sender_sh("ethtool -K ww1 tso off tx-udp-segmentation off tx-sctp-segmentation off");
    assert_ne!(before, offloads(&lab));
    let left = lab.json(&format!("doctor --interface {INTERFACE} --plane xdp-generic"));
    assert_eq!(finding(&left).as_deref(), Some("ok"), "{left}");
    assert_eq!(lab.json(&format!("{run} --policy p.yaml --mode enforce --yes"))["action"], "adopted");
}

#[test]
fn switched_off_offloads_give_the_packets_of_the_network_and_come_back() {
    let Some(lab) = Lab::new() else { return };
    lab.sh(&format!("ethtool -K {INTERFACE} gro on"));
    let before = offloads(&lab);
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --plane xdp-generic --offloads off");
    let error = lab.error(&run.replace("xdp-generic", "xdp-native"), 2);
    assert!(error.contains("--offloads off is not for `--plane xdp-native`"), "{error}");
    lab.ok(&format!("{run} --dry-run"));
    assert_eq!(offloads(&lab), before);
    lab.policy("classes: {}");
    lab.ok(&format!("{run} --policy p.yaml --mode enforce --yes"));
    let off = &lab.status()["offloads_off"];
    assert_eq!((&off[0]["interface"], &off[1]["interface"]), (&INTERFACE.into(), &"ww1".into()));
    transfer(&lab);
    let (packets, bytes) = seen(&lab);
    println!("{BYTES} bytes of TCP: {packets} packets, {} bytes each", bytes / packets);
    assert!(packets >= BYTES as u64 / SEGMENT && packets < BYTES as u64 / SEGMENT * 2, "{packets}");
    // What was asked for holds for the attachment, not for the program that runs.
    lab.ok("swap --bundle b.wirewise");
    lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --replace --flow-table-size 2048"));
    assert_eq!(lab.status()["offloads_off"].as_array().unwrap().len(), 2);
    let said = lab.ok(&format!("detach --interface {INTERFACE}"));
    assert!(said.contains("on again: ww0 (gro)") && said.contains("on again: ww1 in"), "{said}");
    assert_eq!(offloads(&lab), before);
    lab.assert_untouched();

    // Another plane, for which the kernel itself keeps some of it off, and an agent that was killed half-way.
    lab.ok(&run);
    lab.ok(&format!("run --bundle b.wirewise --interface {INTERFACE} --plane xdp-native --replace"));
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(offloads(&lab), before);
    lab.ok(&run);
    std::fs::remove_file(lab.pins().join(INTERFACE).join("link")).unwrap();
    while lab.xdp(INTERFACE).is_some() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_ne!(offloads(&lab), before);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(offloads(&lab), before);
    lab.assert_untouched();
}

#[test]
fn outgoing_packets_are_taken_apart_before_the_program_if_asked() {
    let Some(lab) = Lab::new() else { return };
    let segments = || lab.sh(&format!("ip -d link show {INTERFACE}")).contains("gso_max_segs 65535");
    assert!(segments());
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --plane tc-egress");
    let warned = warnings(&lab, &run);
    assert!(warned.contains("tc-egress sees packets merged by ww0 (gso, up to 65535 segments)"), "{warned}");
    transfer_out(&lab);
    let (packets, bytes) = seen(&lab);
    assert!(bytes / packets > 5 * SEGMENT, "{bytes} bytes in {packets} packets: not merged at all");
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.ok(&format!("{run} --offloads off"));
    transfer_out(&lab);
    let (packets, bytes) = seen(&lab);
    assert!(packets >= BYTES as u64 / SEGMENT && packets < BYTES as u64 / SEGMENT * 2, "{packets}");
    assert!(bytes / packets <= SEGMENT + 66, "{bytes} bytes in {packets} packets");
    assert!(!segments());
    let said = lab.ok(&format!("detach --interface {INTERFACE}"));
    assert!(said.contains("on again: ww0 (gso, up to 65535 segments)"), "{said}");
    assert!(segments());
}
