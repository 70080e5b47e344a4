// SPDX-License-Identifier: Apache-2.0
//! The same program at TC, in both directions, beside programs of others.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use serde_json::{Value, json};
use wirewised::abi::Hook;
use wirewised::interface::netdev;
use wirewised::kernel::objects;
use wirewised::object::{Opened, Runs, Settings};
use wirewised::offline::test_run;
use wirewised::plane::{self, Attached, Joining, Order, Plane, Port, tc};

use crate::carrier::wait;
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, RECEIVER, SENDER, bundle, data_path, take_off, variant};
use crate::quiet;
use crate::swap::{lenient, status};

const PORT: u16 = 4000;

/// The programs on the interface under test, in the order in which they see packets.
fn attached(lab: &Lab) -> Vec<Attached> {
    lab.enter(|| plane::attached(netdev::index(INTERFACE).unwrap()).unwrap())
}

fn nothing_is_left(lab: &Lab) {
    assert_eq!((attached(lab), lab.pinned()), (Vec::new(), Vec::new()));
}

/// Sends UDP payloads between two addresses, and returns how many arrived.
fn send(from: &UdpSocket, to: &UdpSocket, payload: usize, count: usize) -> usize {
    for _ in 0..count {
        from.send_to(&vec![0; payload], to.local_addr().unwrap()).unwrap();
    }
    quiet::arrivals(to, count)
}

fn class(stats: &Value, id: usize, outcome: &str) -> u64 {
    stats["classes"][id]["outcomes"][outcome]["packets"].as_u64().unwrap()
}

/// A program that the agent knows nothing of, which passes everything.
pub fn foreign_program(hook: Hook) -> OwnedFd {
    let mut opened = Opened::open("other", data_path().unwrap()).unwrap();
    opened.prepare(&Settings::live(Runs::InKernel(hook)).unwrap()).unwrap();
    opened.load().unwrap().entry().unwrap().as_fd().try_clone_to_owned().unwrap()
}

fn id(program: &OwnedFd) -> u32 {
    objects::program_info(program.as_fd()).unwrap().id
}

#[test]
fn incoming_packets_are_judged_as_at_xdp() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let plan =
        lab.ok(&format!("run --bundle b.wirewise --interface {INTERFACE} --plane tc-ingress --dry-run"));
    assert!(plan.contains("would attach first to ww0 as tc-ingress"), "{plan}");
    nothing_is_left(&lab);
    let ours = lab.attach("--plane tc-ingress --policy p.yaml --mode enforce --offloads off");
    assert_eq!((&ours["plane_asked"], &ours["plane_obtained"]), (&json!("tc-ingress"), &json!("tc-ingress")));
    let program_id = ours["program_id"].as_u64().unwrap() as u32;
    assert_eq!(attached(&lab), [Attached { program_id, plane: tc::INGRESS }]);
    assert_eq!(lab.xdp(INTERFACE), None);
    assert_eq!((lab.send(1000, BENIGN, 7), lab.send(1000, ATTACK, 5)), (7, 0));
    let stats = lab.stats();
    assert_eq!((class(&stats, 0, "pass"), class(&stats, 1, "drop")), (7, 5));
    assert_eq!(stats["classes"][1]["bytes"], 5 * (ATTACK + 42));
    assert_eq!(lab.json("flows")["found"], 2);
    assert_eq!(lab.ok("events --json").lines().count(), 5);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    nothing_is_left(&lab);
    assert_eq!(lab.send(1000, ATTACK, 5), 5);
}

#[test]
fn outgoing_packets_are_judged_before_they_leave() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.attach("--plane tc-egress --policy p.yaml --mode enforce --offloads off");
    assert_eq!(attached(&lab)[0].plane, tc::EGRESS);
    let inside = lab.enter(|| UdpSocket::bind((RECEIVER, PORT)).unwrap());
    let outside = lab.enter_sender(|| UdpSocket::bind((SENDER, PORT)).unwrap());
    assert_eq!((send(&inside, &outside, BENIGN, 7), send(&inside, &outside, ATTACK, 5)), (7, 0));
    // What comes in is not its business.
    assert_eq!(send(&outside, &inside, ATTACK, 4), 4);
    let stats = lab.stats();
    assert_eq!((class(&stats, 0, "pass"), class(&stats, 1, "drop")), (7, 5));
    assert_eq!(stats["classes"][1]["bytes"], 5 * (ATTACK + 42));
    lab.ok(&format!("detach --interface {INTERFACE}"));
    nothing_is_left(&lab);
}

/// The same policy protects the same peers in both directions.
#[test]
fn the_allow_list_of_outgoing_packets_is_that_of_their_answers() {
    let Some(lab) = Lab::new() else { return };
    let inside = lab.enter(|| UdpSocket::bind((RECEIVER, PORT)).unwrap());
    let outside = lab.enter_sender(|| UdpSocket::bind((SENDER, PORT + 1)).unwrap());
    let (own, peer) = (PORT, PORT + 1);
    for (allow, arrived, why) in [
        (format!("prefixes: [{SENDER}/32]"), 3, "allowed_prefix"),
        (format!("prefixes: [{RECEIVER}/32]"), 0, "allowed_prefix"),
        (format!("ports: [udp/{own}]"), 3, "allowed_port"),
        (format!("ports: [udp/{peer}]"), 0, "allowed_port"),
        (format!("source_ports: [udp/{peer}]"), 3, "allowed_port"),
        (format!("source_ports: [udp/{own}]"), 0, "allowed_port"),
        ("established: true".to_string(), 0, "allowed_port"),
    ] {
        lab.policy(&format!("classes: {{attack: drop}}\nallow: {{{allow}}}"));
        lab.attach("--plane tc-egress --policy p.yaml --mode enforce --offloads off");
        assert_eq!(send(&inside, &outside, ATTACK, 3), arrived, "{allow}");
        assert_eq!(status(&lab.stats(), why), arrived as u64, "{allow}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
    // A UDP socket counts as established once it has a peer.
    inside.connect((SENDER, peer)).unwrap();
    lab.attach("--plane tc-egress --policy p.yaml --mode enforce --offloads off");
    inside.send(&[0; ATTACK]).unwrap();
    assert_eq!(outside.recv(&mut [0; 2048]).unwrap(), ATTACK);
    assert_eq!(class(&lab.stats(), 1, "established"), 1);
}

#[test]
fn programs_of_others_stay_and_the_user_chooses_the_order() {
    let Some(lab) = Lab::new() else { return };
    let (other, at_xdp) = (foreign_program(Hook::TcIngress), foreign_program(Hook::Xdp));
    let last = Joining { order: Order::Last, ..Joining::default() };
    let links = lab.enter(|| {
        let index = netdev::index(INTERFACE).unwrap();
        let attach = |plane: Plane, program: &OwnedFd| {
            plane.attach(program.as_fd(), Port::Interface(index), last).unwrap()
        };
        [attach(tc::INGRESS, &other), attach(Plane::XDP_GENERIC, &at_xdp)]
    });
    let doctor = lab.ok(&format!("doctor --interface {INTERFACE} --plane tc-ingress"));
    assert!(doctor.contains(&format!("beside program {} (ww_main)", id(&other))), "{doctor}");
    lab.policy("classes: {attack: drop}");
    for (order, ours_at) in [("", 0), ("--order last", 1), ("--order first", 0)] {
        let ours =
            lab.attach(&format!("--plane tc-ingress {order} --policy p.yaml --mode enforce --offloads off"));
        let mut expected = vec![id(&other)];
        expected.insert(ours_at, ours["program_id"].as_u64().unwrap() as u32);
        let tc = attached(&lab).into_iter().filter(|it| it.plane == tc::INGRESS);
        assert_eq!(tc.map(|it| it.program_id).collect::<Vec<_>>(), expected, "{order}");
        assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0));
        // Its place stays when the program is replaced.
        lab.json(&format!(
            "run --bundle b.wirewise --interface {INTERFACE} --replace --flow-table-size 2048 --yes"
        ));
        assert_eq!(attached(&lab).iter().position(|it| it.program_id == id(&other)), Some(2 - ours_at));
        lab.ok(&format!("detach --interface {INTERFACE}"));
        assert_eq!(attached(&lab).len(), 2);
    }
    // At XDP there is room for one only, whatever is at TC.
    let run = format!("run --bundle b.wirewise --interface {INTERFACE}");
    let error = lab.error(&run, 1);
    assert!(error.contains(&format!("is taken: program {} (ww_main)", id(&at_xdp))), "{error}");
    let [at_tc, at_xdp] = links;
    take_off(at_xdp);
    lab.ok(&run);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    take_off(at_tc);
    lab.assert_untouched();
}

#[test]
fn the_same_commands_work_as_at_xdp() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.write("c.wirewise", &lenient());
    let ours = lab.attach("--plane tc-ingress --policy p.yaml --mode enforce --offloads off");
    let verdicts = || (lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3));
    assert_eq!(verdicts(), (3, 0));
    assert_eq!(lab.json("swap --bundle c.wirewise")["flows"], "kept");
    assert_eq!(verdicts(), (3, 3));
    assert_eq!(lab.json("rollback")["status"]["bundle"]["name"], "first");
    assert_eq!(verdicts(), (3, 0));
    lab.json("swap --shadow --bundle c.wirewise");
    assert_eq!(verdicts(), (3, 0));
    let agreement = lab.stats()["shadow"].clone();
    assert_eq!(agreement["packets"], 6, "{agreement}");
    lab.json("swap --no-shadow");
    assert_eq!((lab.status()["link_id"].clone(), verdicts()), (ours["link_id"].clone(), (3, 0)));
    // To XDP and back.
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --mode enforce --yes");
    assert!(lab.error(&format!("{run} --plane xdp-native"), 1).contains("attached as tc-ingress"));
    for plane in ["xdp-native", "tc-ingress"] {
        lab.json(&format!("{run} --plane {plane} --replace"));
        assert_eq!((lab.status()["plane_obtained"].clone(), verdicts()), (plane.into(), (3, 0)));
        assert_eq!(attached(&lab).len(), 1);
    }
    lab.ok(&format!("detach --interface {INTERFACE}"));
    nothing_is_left(&lab);
}

#[test]
fn it_outlives_the_agent_and_goes_with_its_interface() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let mut agent = lab.foreground("--plane tc-ingress --policy p.yaml --mode enforce --offloads off");
    while lab.json("status")["attachments"].as_array().unwrap().is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    agent.signal(libc::SIGKILL);
    agent.0.wait().unwrap();
    assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0));
    let again = lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE}"));
    assert_eq!(
        (&again["action"], &again["status"]["plane_obtained"]),
        (&json!("adopted"), &json!("tc-ingress"))
    );
    lab.sh(&format!("ip link delete {INTERFACE}"));
    assert_eq!(lab.status()["attached"], false);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(lab.pinned(), [""; 0]);
}

#[test]
fn a_split_model_runs_at_tc_too() {
    let Some(lab) = Lab::new() else { return };
    lab.write("b.wirewise", &bundle("first", &variant("CHAIN=16")));
    lab.policy("classes: {attack: drop}");
    for plane in ["tc-ingress --offloads off", "xdp-native"] {
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce --replace"));
        assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0), "{plane}");
    }
}

#[test]
fn an_interface_without_ethernet_is_refused() {
    let Some(lab) = Lab::new() else { return };
    lab.sh("ip tuntap add tun0 mode tun");
    for plane in ["tc-ingress", "tc-egress", "xdp-generic"] {
        let error = lab.error(&format!("run --bundle b.wirewise --interface tun0 --plane {plane}"), 3);
        assert!(error.contains("packets of tun0 have no Ethernet header"), "{error}");
    }
    assert_eq!(lab.pinned(), [""; 0]);
}

/// A tap device whose frames come in buffers with as little in front as is asked for.
struct Tap(File);

impl Tap {
    /// Of the network namespace that this thread is in.
    fn open(name: &str) -> Self {
        const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
        let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun").unwrap();
        // SAFETY: zero is a value of every field of this plain C struct.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16;
        // SAFETY: TUNSETIFF reads and writes an ifreq, which outlives the call.
        let code = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) };
        assert_eq!(code, 0, "{}", io::Error::last_os_error());
        Self(file)
    }

    /// linear : bytes of the frame that do not lie in a page.
    fn write(&self, frame: &[u8], linear: u16) {
        // struct virtio_net_hdr: flags, kind of segmentation, length of the headers, and what a plain frame does not use.
        let mut packet = vec![0; 10];
        packet[2..4].copy_from_slice(&linear.to_ne_bytes());
        packet.extend_from_slice(frame);
        assert_eq!((&self.0).write(&packet).unwrap(), packet.len());
    }
}

/// A tap device with the program at TC.
fn judged_tap(lab: &Lab) -> Tap {
    let tap = lab.enter(|| Tap::open("tap0"));
    lab.sh("ip link set tap0 mtu 9000 up");
    lab.policy("classes: {attack: drop}");
    lab.json("run --bundle b.wirewise --interface tap0 --plane tc-ingress --policy p.yaml --mode enforce --yes --offloads off");
    tap
}

/// The counters when so many packets have a status, or never come to it.
fn once(lab: &Lab, name: &str, packets: u64) -> Value {
    wait(name, || status(&lab.stats(), name) >= packets);
    let stats = lab.stats();
    assert_eq!(status(&stats, name), packets, "{stats}");
    stats
}

/// The kernel takes the outermost tag off before TC, whether or not it has VLAN devices.
#[test]
fn a_vlan_tag_beside_the_frame_is_seen() {
    let Some(lab) = Lab::new() else { return };
    let tap = judged_tap(&lab);
    let plain = test_run::default_frame();
    let tagged = |tags: &[[u8; 4]]| [&plain[..12], &tags.concat(), &plain[12..]].concat();
    let (vlan, service) = ([0x81, 0, 0, 7], [0x88, 0xa8, 0, 9]);
    let frames = [tagged(&[]), tagged(&[vlan]), tagged(&[service]), tagged(&[service, vlan])];
    for frame in &frames {
        tap.write(frame, 0);
    }
    let bytes: usize = frames.iter().map(Vec::len).sum();
    let stats = once(&lab, "classified", 4);
    assert_eq!(stats["status"].as_array().unwrap()[0]["bytes"], bytes, "{stats}");
    // As at XDP: what is behind a third is not looked at.
    tap.write(&tagged(&[service, vlan, vlan]), 0);
    once(&lab, "not_ip", 1);
}

#[test]
fn headers_in_fragments_are_read() {
    let Some(lab) = Lab::new() else { return };
    let tap = judged_tap(&lab);
    // The kernel puts no smaller frame into pages.
    let length = 6000u16;
    let mut frame = test_run::default_frame();
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame.resize(14 + usize::from(length), 0);
    for linear in [14, 20, 34, 54] {
        tap.write(&frame, linear);
    }
    let stats = once(&lab, "classified", 4);
    assert_eq!((class(&stats, 1, "drop"), status(&stats, "malformed_ip")), (4, 0), "{stats}");
    assert_eq!(stats["classes"][1]["bytes"], 4 * frame.len());
}
