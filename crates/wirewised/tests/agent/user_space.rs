// SPDX-License-Identifier: Apache-2.0
//! Planes in user space: the agent carries the packets, and every command works as with the kernel's planes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::carrier::{Carrier, packets, wait};
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, Namespace, RECEIVER, bind, bundle, variant};
use crate::quiet::{self, PATIENCE};
use crate::steering::class_of;
use crate::wire::Wire;

#[test]
fn copies_are_judged_and_every_command_tells_of_them() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let carrier = Carrier::start(&lab, "--policy p.yaml");
    assert_eq!((lab.send(1000, BENIGN, 7), lab.send(1000, ATTACK, 5)), (7, 5), "it sees copies");
    wait("all are counted", || packets(&lab, 0) == 7 && packets(&lab, 1) == 5);
    let stats = lab.stats();
    assert_eq!(stats["classes"][0]["outcomes"]["pass"]["packets"], 7);
    assert_eq!(stats["classes"][1]["outcomes"]["would-drop"]["packets"], 5);
    assert_eq!(lab.json("flows")["found"], 2);
    assert_eq!(lab.ok("events --json").lines().count(), 5);
    let status = lab.status();
    assert_eq!(
        (&status["plane_asked"], &status["plane_obtained"]),
        (&json!("af-packet"), &json!("af-packet"))
    );
    assert_eq!(status["carrier"]["process"], carrier.id());
    assert_eq!(lab.xdp(INTERFACE), None);
    wait("the agent tells its counts", || lab.ok("status").contains("12 received"));
    lab.ok(&format!("detach --interface {INTERFACE}"));
    let (code, said) = carrier.end();
    assert_eq!(code, Some(0), "{said}");
    lab.assert_untouched();
}

#[test]
fn ctrl_c_ends_it_and_leaves_nothing() {
    let Some(lab) = Lab::new() else { return };
    for signal in [libc::SIGINT, libc::SIGTERM] {
        let carrier = Carrier::start(&lab, "");
        carrier.signal(signal);
        let (code, said) = carrier.end();
        assert_eq!(code, Some(0), "{said}");
        lab.assert_untouched();
    }
}

#[test]
fn a_killed_agent_is_seen_to_be_gone_and_another_begins_anew() {
    let Some(lab) = Lab::new() else { return };
    let carrier = Carrier::start(&lab, "");
    carrier.signal(libc::SIGKILL);
    assert_eq!(carrier.end().0, None);
    assert_eq!(lab.status()["attached"], false);
    assert_eq!(lab.run("status --check").status.code(), Some(5));
    let carrier = Carrier::start(&lab, "");
    assert_eq!(lab.status()["attached"], true);
    carrier.signal(libc::SIGKILL);
    carrier.end();
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}

/// Whoever asks hears it, and nobody waits long or keeps the lock.
#[test]
fn a_stopped_agent_is_told_of_and_not_waited_for() {
    let Some(lab) = Lab::new() else { return };
    lab.write("longer.wirewise", &bundle("longer", &variant("BORDER=600")));
    lab.policy("classes: {attack: drop}\nallow: {prefixes: [10.9.0.0/24]}");
    let carrier = Carrier::start(&lab, "");
    lab.ok("status --check");
    assert_eq!(lab.status()["carrier"]["answers"], true);
    carrier.signal(libc::SIGSTOP);
    let silent = format!("process {}, which carries the packets, does not answer", carrier.id());
    let check = lab.run("status --check");
    assert_eq!(check.status.code(), Some(5));
    assert!(String::from_utf8(check.stderr).unwrap().contains(&silent));
    assert_eq!(lab.status()["carrier"]["answers"], false);
    assert!(lab.ok("status").contains("which does not answer"));
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes");
    for command in ["swap --bundle longer.wirewise", "swap --shadow --bundle longer.wirewise", &run] {
        let begin = Instant::now();
        let error = lab.error(command, 1);
        assert!(error.contains(&silent) && error.contains("kill -CONT"), "{command}: {error}");
        assert!(begin.elapsed() < PATIENCE, "{command}: {:?}", begin.elapsed());
    }
    carrier.signal(libc::SIGCONT);
    let begin = Instant::now();
    while !lab.run("status --check").status.success() {
        if begin.elapsed() > PATIENCE {
            panic!("it does not answer again: {:?}", carrier.end());
        }
    }
    assert_eq!(lab.status()["bundle"]["name"], "first");
    lab.ok("swap --bundle longer.wirewise");
    lab.send(1000, ATTACK, 3);
    wait("the new border holds", || lab.status()["bundle"]["name"] == "longer");
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(carrier.end().0, Some(0));
    lab.assert_untouched();
}

#[test]
fn programs_follow_each_other_and_keep_their_flows() {
    let Some(lab) = Lab::new() else { return };
    lab.write("longer.wirewise", &bundle("longer", &variant("BORDER=600")));
    lab.policy("classes: {attack: drop}");
    let _carrier = Carrier::start(&lab, "--policy p.yaml");
    lab.send(1000, ATTACK, 5);
    wait("all are counted", || packets(&lab, 1) == 5);
    lab.ok("swap --bundle longer.wirewise");
    assert_eq!(lab.status()["bundle"]["name"], "longer");
    let flow = lab.flow(2000);
    flow.send(ATTACK, 3);
    wait("the new border holds", || packets(&lab, 0) == 3);
    assert_eq!((packets(&lab, 1), lab.json("flows")["found"].clone()), (5, json!(2)));
    lab.ok("rollback");
    flow.send(ATTACK, 2);
    wait("the old border holds", || packets(&lab, 1) == 7);
    let found = lab.json("flows");
    assert_eq!(found["found"], 2, "{found}");
}

#[test]
fn a_shadow_sees_the_same_packets() {
    let Some(lab) = Lab::new() else { return };
    lab.write("longer.wirewise", &bundle("longer", &variant("BORDER=600")));
    let _carrier = Carrier::start(&lab, "--workers 1");
    lab.ok("swap --shadow --bundle longer.wirewise");
    lab.send(1000, ATTACK, 5);
    lab.send(1000, BENIGN, 6);
    wait("all are counted", || packets(&lab, 0) + packets(&lab, 1) == 11);
    let shadow = lab.stats()["shadow"].clone();
    assert_eq!((&shadow["agree"], &shadow["disagree"]), (&json!(6), &json!(5)), "{shadow}");
    lab.ok("swap --no-shadow");
    lab.send(1000, BENIGN, 2);
    wait("all are counted", || packets(&lab, 0) == 8);
    assert_eq!(lab.stats()["shadow"], Value::Null);
}

#[test]
fn the_allow_list_holds_from_the_moment_the_command_ends() {
    let Some(lab) = Lab::new() else { return };
    let _carrier = Carrier::start(&lab, "");
    lab.policy("classes: {attack: drop}\nallow: {prefixes: [10.9.0.0/24]}");
    lab.attach("--policy p.yaml");
    lab.send(1000, ATTACK, 5);
    let allowed = || {
        lab.stats()["status"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["status"] == "allowed_prefix")
            .map(|row| row["packets"].clone())
    };
    wait("all are counted", || allowed() == Some(json!(5)));
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml");
    lab.send(1000, ATTACK, 4);
    wait("all are counted", || packets(&lab, 1) == 4);
    assert_eq!(allowed(), Some(json!(5)));
}

/// A third namespace, behind the one that the agent is in: what the sender sends to the receiver's address gets there only if somebody
/// carries it from the one interface to the other.
pub struct Far(Namespace);

pub const SECOND: &str = "ww2";

impl Far {
    pub fn behind(lab: &Lab) -> Self {
        let [_, near] = lab.namespaces();
        let far = Namespace::new(format!("{near}-far"));
        lab.sh(&format!("ip addr flush dev {INTERFACE}"));
        lab.sh(&format!(
            "ip link add {SECOND} type veth peer name far0 netns {near}-far address 02:00:00:00:00:02"
        ));
        lab.sh(&format!("ip link set {SECOND} up"));
        far.sh("ip link set far0 up");
        far.sh(&format!("ip addr add {RECEIVER}/24 dev far0"));
        Self(far)
    }

    pub fn namespace(&self) -> &Namespace {
        &self.0
    }

    /// Sends UDP packets from the sender, and returns how many arrive, with the same content.
    pub fn receive(&self, lab: &Lab, to: &str, payload: usize, count: u8) -> usize {
        let receiver = self.0.enter(|| bind(to, 4000));
        let sender = lab.enter_sender(|| UdpSocket::bind("0.0.0.0:0").unwrap());
        for number in 0..count {
            sender.send_to(&vec![number; payload], (to, 4000)).unwrap();
        }
        let mut buffer = [0; 2048];
        (0..count)
            .take_while(|number| {
                let Some(length) = quiet::receive(&receiver, &mut buffer) else { return false };
                assert_eq!(buffer[..length], vec![*number; payload]);
                true
            })
            .count()
    }
}

#[test]
fn between_two_interfaces_what_is_dropped_does_not_arrive() {
    let Some(lab) = Lab::new() else { return };
    let far = Far::behind(&lab);
    assert_eq!(far.receive(&lab, RECEIVER, BENIGN, 3), 0, "nobody carries it yet");
    lab.policy("classes: {attack: drop}");
    let carrier =
        Carrier::start(&lab, &format!("--to {SECOND} --policy p.yaml --mode enforce --offloads off"));
    assert_eq!(far.receive(&lab, RECEIVER, BENIGN, 7), 7);
    assert_eq!(far.receive(&lab, RECEIVER, ATTACK, 5), 0);
    lab.ok(&format!("run --bundle b.wirewise --interface {INTERFACE} --mode observe"));
    assert_eq!(far.receive(&lab, RECEIVER, ATTACK, 5), 5);
    // The sender does not know the other's address any more: its question is carried, and the answer the other way.
    lab.sender_sh(&format!("ip neigh delete {RECEIVER} dev ww1"));
    assert_eq!(far.receive(&lab, RECEIVER, BENIGN, 3), 3);
    let counts = &lab.status()["carrier"];
    assert_eq!(counts["to"], SECOND);
    carrier.signal(libc::SIGTERM);
    assert_eq!(carrier.end().0, Some(0));
    assert_eq!(far.receive(&lab, RECEIVER, BENIGN, 3), 0);
    lab.assert_untouched();
}

/// Segments that are still to be cut, and checksums that are still to be made.
#[test]
fn what_the_host_left_to_the_card_is_carried_whole() {
    let Some(lab) = Lab::new() else { return };
    let far = Far::behind(&lab);
    let _carrier = Carrier::start(&lab, &format!("--to {SECOND}"));
    const BYTES: usize = 3_000_000;
    let listener = far.0.enter(|| TcpListener::bind((RECEIVER, 5000)).unwrap());
    let receive = std::thread::spawn(move || {
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        received
    });
    let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    lab.enter_sender(|| TcpStream::connect((RECEIVER, 5000)).unwrap().write_all(&sent).unwrap());
    assert!(receive.join().unwrap() == sent, "TCP");
}

#[test]
fn a_deleted_interface_ends_it_clearly_and_a_link_that_was_down_comes_back() {
    let Some(lab) = Lab::new() else { return };
    let carrier = Carrier::start(&lab, "");
    lab.sh(&format!("ip link set {INTERFACE} down"));
    std::thread::sleep(Duration::from_millis(100));
    lab.sh(&format!("ip link set {INTERFACE} up"));
    wait("packets are judged again", || {
        lab.send(1000, BENIGN, 1);
        packets(&lab, 0) > 0
    });
    lab.sh(&format!("ip link delete {INTERFACE}"));
    let (code, said) = carrier.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("ww0: the interface was deleted"), "{said}");
    assert_eq!(lab.pinned(), [""; 0]);
}

#[test]
fn what_user_space_cannot_do_is_refused() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --yes --policy p.yaml");
    let error = lab.error(&format!("{run} --plane af-packet --mode enforce"), 2);
    assert!(error.contains("it sees copies") && error.contains("--to NAME"), "{error}");
    let error = lab.error(&format!("{run} --to lo"), 2);
    assert!(error.contains("--to is not for --plane xdp-native, but for af-packet, af-xdp"), "{error}");
    let error = lab.error(&format!("{run} --plane af-packet --to {INTERFACE}"), 2);
    assert!(error.contains("it is the interface itself"), "{error}");
    assert!(
        lab.error(&format!("{run} --plane af-packet --to nowhere"), 2).contains("no interface 'nowhere'")
    );
    lab.assert_untouched();
    let bench = lab.agent("bench --object b.wirewise --plane af-packet");
    let said = String::from_utf8(bench.stderr).unwrap();
    assert!(bench.status.code() == Some(2) && said.contains("this plane is in user space"), "{said}");
    let elsewhere = lab.command(&format!("{run} --plane af-packet"));
    let agent = elsewhere.get_args().map(|it| it.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let elsewhere = std::process::Command::new("unshare")
        .args(["--time", "--monotonic", "1000", "--fork", "nsenter"])
        .args(agent)
        .current_dir(lab.path("."))
        .output()
        .unwrap();
    let said = String::from_utf8(elsewhere.stderr).unwrap();
    assert!(elsewhere.status.code() == Some(2) && said.contains("in a time namespace"), "{said}");
    lab.assert_untouched();
    let dry = lab.ok(&format!("{run} --plane af-packet --dry-run"));
    assert!(dry.contains("af-packet") && dry.contains("nothing was changed"), "{dry}");
    lab.assert_untouched();
}

#[test]
fn another_plane_takes_over_and_the_first_agent_ends() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let carrier = Carrier::start(&lab, "");
    let error = lab.error(&format!("run --bundle b.wirewise --interface {INTERFACE} --plane xdp-generic"), 1);
    assert!(error.contains("attached as af-packet"), "{error}");
    lab.attach("--plane xdp-generic --policy p.yaml --mode enforce --offloads off --replace");
    assert_eq!(carrier.end().0, Some(0));
    assert_eq!(lab.send(1000, ATTACK, 5), 0);
    assert_eq!(lab.status()["carrier"], Value::Null);
    // And back.
    let carrier = Carrier::start(&lab, "--replace");
    assert_eq!((lab.xdp(INTERFACE), lab.send(1000, ATTACK, 5)), (None, 5));
    // A second agent with the same bundle finds it carried, changes what is asked for and leaves it to the first.
    let adopted = lab.attach("--policy p.yaml");
    assert_eq!(adopted["carrier"]["process"], carrier.id());
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(carrier.end().0, Some(0));
    lab.assert_untouched();
}

#[test]
fn several_workers_give_the_verdicts_of_one() {
    let Some(lab) = Lab::new() else { return };
    let _carrier = Carrier::start(&lab, "--workers 2");
    const FLOWS: u16 = 20;
    for flow in 0..FLOWS {
        lab.send_between(3000 + flow, 2000 + flow, BENIGN, 5);
    }
    wait("all are counted", || packets(&lab, 0) == 5 * u64::from(FLOWS));
    wait("both had some", || {
        let lanes = lab.status()["carrier"]["lanes"].as_array().unwrap().clone();
        let received: Vec<u64> = lanes.iter().map(|lane| lane["received"].as_u64().unwrap()).collect();
        received.iter().sum::<u64>() == 5 * u64::from(FLOWS) && received.iter().all(|count| *count > 0)
    });
    assert_eq!(lab.json("flows")["found"], FLOWS);
}

#[test]
fn af_xdp_gives_the_host_what_passes() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let carrier = Carrier::of(&lab, "af-xdp", "--policy p.yaml --mode enforce");
    assert_eq!((lab.send(1000, BENIGN, 7), lab.send(1000, ATTACK, 5)), (7, 0));
    let stats = lab.stats();
    assert_eq!(stats["classes"][0]["outcomes"]["pass"]["packets"], 7);
    assert_eq!(stats["classes"][1]["outcomes"]["drop"]["packets"], 5);
    let said = lab.json("status");
    let ours = &said["attachments"][0];
    assert_eq!(ours["plane_obtained"], "af-xdp");
    assert!(ours["carrier"]["obtained"].as_str().unwrap().contains("copied by the driver"));
    assert_eq!(said["unpinned"], json!([]), "the program of the way back judges nothing");
    assert!(lab.xdp(INTERFACE).is_some());
    // Questions for addresses stay in the kernel, so whoever has never spoken to the host can.
    lab.sender_sh(&format!("ip neigh delete {RECEIVER} dev ww1"));
    assert_eq!(lab.send(1000, BENIGN, 3), 3);
    lab.write("longer.wirewise", &bundle("longer", &variant("BORDER=600")));
    lab.ok("swap --bundle longer.wirewise");
    assert_eq!(lab.send(1000, ATTACK, 5), 5);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(carrier.end().0, Some(0));
    lab.assert_untouched();
    assert_eq!(lab.send(1000, ATTACK, 5), 5);
}

#[test]
fn a_killed_af_xdp_agent_leaves_no_black_hole() {
    let Some(lab) = Lab::new() else { return };
    let carrier = Carrier::of(&lab, "af-xdp", "");
    assert_eq!(lab.send(1000, BENIGN, 3), 3);
    carrier.signal(libc::SIGKILL);
    carrier.end();
    wait("the kernel takes the program off", || lab.xdp(INTERFACE).is_none());
    assert_eq!(lab.send(1000, ATTACK, 5), 5);
    assert_eq!(lab.status()["attached"], false);
    let carrier = Carrier::of(&lab, "af-xdp", "");
    lab.sh(&format!("ip link set {INTERFACE} down"));
    lab.sh(&format!("ip link set {INTERFACE} up"));
    wait("packets come again", || lab.send(1000, BENIGN, 1) == 1);
    lab.sh(&format!("ip link delete {INTERFACE}"));
    let (code, said) = carrier.end();
    assert_eq!(code, Some(1));
    assert!(said.contains("ww0: it is gone"), "{said}");
    assert_eq!(lab.pinned(), [""; 0]);
}

#[test]
fn af_xdp_between_two_interfaces_loses_no_frame() {
    let Some(lab) = Lab::new() else { return };
    let far = Far::behind(&lab);
    lab.policy("classes: {attack: drop}");
    let _carrier = Carrier::of(&lab, "af-xdp", &format!("--to {SECOND} --policy p.yaml --mode enforce"));
    assert_eq!(far.receive(&lab, RECEIVER, BENIGN, 7), 7);
    assert_eq!(far.receive(&lab, RECEIVER, ATTACK, 5), 0);
    lab.sender_sh(&format!("ip neigh delete {RECEIVER} dev ww1"));
    assert_eq!(far.receive(&lab, RECEIVER, BENIGN, 3), 3, "questions for addresses are carried too");
    // More than the rings hold: what is lost is counted, and every frame comes back.
    const FLOOD: usize = 50_000;
    let before = lab.received();
    lab.spread(FLOOD);
    let frames = lab.status()["carrier"]["lanes"][0]["frames"].clone();
    wait("every packet is accounted for", || {
        let lanes = lab.status()["carrier"]["lanes"].as_array().unwrap().clone();
        let sum = |key: &str| lanes.iter().map(|lane| lane[key].as_u64().unwrap()).sum::<u64>();
        assert_eq!(lanes[0]["frames"], frames);
        sum("frames_busy") == 0 && sum("received") + sum("lost") >= lab.received() - before
    });
    assert_eq!(far.receive(&lab, RECEIVER, BENIGN, 7), 7);
}

#[test]
fn a_class_is_written_on_its_way() {
    let Some(lab) = Lab::new() else { return };
    let far = Far::behind(&lab);
    for (plane, offloads) in [("af-packet", "--offloads off"), ("af-xdp", "")] {
        lab.policy("classes: {attack: drop}");
        let options = format!("--to {SECOND} --policy p.yaml --mode enforce {offloads}");
        let _carrier = Carrier::of(&lab, plane, &options);
        assert_eq!((far.receive(&lab, RECEIVER, BENIGN, 3), far.receive(&lab, RECEIVER, ATTACK, 3)), (3, 0));
        // The program learns it while it carries.
        lab.policy("classes: {attack: {dscp: EF}}");
        lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes"));
        let wire = far.0.enter(|| Wire::open("far0"));
        assert_eq!(far.receive(&lab, RECEIVER, ATTACK, 3), 3, "the stack takes the checksums");
        assert_eq!(
            wire.received().iter().map(|frame| class_of(frame)).collect::<Vec<_>>(),
            [46 << 2; 3],
            "{plane}"
        );
        assert_eq!(far.receive(&lab, RECEIVER, BENIGN, 1), 1);
        assert_eq!(wire.received().iter().map(|frame| class_of(frame)).collect::<Vec<_>>(), [0]);
        assert_eq!(lab.stats()["classes"][1]["outcomes"]["acted"]["packets"], 3);
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn a_plane_takes_only_its_own_options() {
    let Some(lab) = Lab::new() else { return };
    let run = format!("run --bundle b.wirewise --interface {INTERFACE}");
    let error = lab.error(&format!("{run} --plane af-xdp --workers 2"), 2);
    assert!(error.contains("--workers is not for --plane af-xdp, but for af-packet"), "{error}");
    let error = lab.error(&format!("{run} --plane af-packet --copying copy"), 2);
    assert!(error.contains("--copying is not for --plane af-packet, but for af-xdp"), "{error}");
    let error = lab.error(&format!("{run} --plane af-xdp --copying zero-copy"), 1);
    assert!(error.contains("zero-copy"), "{error}");
    lab.assert_untouched();
}

/// What the run refuses, the dry run refuses in the same words.
#[test]
fn more_workers_than_cpus_are_refused_before_anything_is_touched() {
    let Some(lab) = Lab::new() else { return };
    let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let cpus = 1 + cpus.trim().rsplit(['-', ',']).next().unwrap().parse::<u32>().unwrap();
    let (run, too_many) = (format!("run --bundle b.wirewise --interface {INTERFACE} --yes"), cpus + 1);
    let by_number = format!("{run} --plane af-packet --workers {too_many}");
    lab.sh(&format!("ip link delete {INTERFACE}"));
    lab.join_with(&format!("numrxqueues {too_many} numtxqueues {too_many}"));
    lab.sh(&format!("ethtool -L {INTERFACE} rx {too_many} tx {too_many}"));
    let by_queues = format!("{run} --plane af-xdp");
    for command in [by_number, by_queues] {
        let error = lab.error(&format!("{command} --dry-run"), 2);
        assert!(error.contains(&format!("there are {cpus} CPU")), "{error}");
        assert_eq!(lab.error(&command, 2), error);
        lab.assert_untouched();
    }
}

#[cfg(feature = "dpdk")]
#[test]
fn dpdk_carries_as_the_raw_socket_does() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let error = lab.error(
        &format!("run --bundle b.wirewise --interface {INTERFACE} --plane dpdk --driver net_af_xdp"),
        2,
    );
    assert!(error.contains("say with --to"), "{error}");
    let carrier = Carrier::of(&lab, "dpdk", "--policy p.yaml");
    assert_eq!((lab.send(1000, BENIGN, 7), lab.send(1000, ATTACK, 5)), (7, 5));
    wait("all are counted", || packets(&lab, 1) == 5 && packets(&lab, 0) == 7);
    lab.write("longer.wirewise", &bundle("longer", &variant("BORDER=600")));
    lab.ok("swap --bundle longer.wirewise");
    lab.send(1000, ATTACK, 2);
    wait("the new border holds", || packets(&lab, 0) == 9);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(carrier.end().0, Some(0));
    lab.assert_untouched();
}

#[cfg(feature = "dpdk")]
#[test]
fn dpdk_between_two_interfaces_drops_what_the_policy_says() {
    let Some(lab) = Lab::new() else { return };
    let far = Far::behind(&lab);
    lab.whole_packets();
    far.0.sh("ethtool -K far0 tx off");
    lab.policy("classes: {attack: drop}");
    for driver in ["net_af_packet", "net_af_xdp"] {
        let options =
            format!("--to {SECOND} --driver {driver} --policy p.yaml --mode enforce --offloads off");
        let carrier = Carrier::of(&lab, "dpdk", &options);
        assert_eq!(far.receive(&lab, RECEIVER, BENIGN, 7), 7, "{driver}");
        assert_eq!(far.receive(&lab, RECEIVER, ATTACK, 5), 0, "{driver}");
        carrier.signal(libc::SIGTERM);
        assert_eq!(carrier.end().0, Some(0));
        lab.assert_untouched();
    }
}
