// SPDX-License-Identifier: Apache-2.0
//! A base station, the end of its tunnels, and a data network behind: what goes through, what passes, and the table under load.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::carrier::wait;
use crate::lab::{INTERFACE, Lab, bind};
use crate::quiet::{self, PATIENCE};
use crate::steering::{Beyond, OUT};
use crate::wire::{FAR, NEAR, Wire, sum};

const PLANES: [&str; 2] = ["xdp-native", "xdp-generic --offloads off"];
const OUT_OF: &str = "{decapsulate: gtp-u, action: forward}";
const INTO: &str = "{encapsulate: gtp-u, action: forward}";
/// Of the phone, and of a server in the data network.
const UE: [&str; 2] = ["10.45.0.2", "2001:db8:45:2::2"];
const SERVERS: [&str; 2] = ["10.8.0.2", "fd00:8::2"];
const TEID: u32 = 0x100;
const PEER_TEID: u32 = 0x200;
const TUNNELS: &str = "[{ue: [10.45.0.2, '2001:db8:45:2::/64'], local: 10.9.0.2, teid: 0x100, peer: 10.9.0.1, \
                       peer-teid: 0x200, qfi: 9}]";
const PORT: u16 = 2152;

/// The header of user data, with a PDU session container of the uplink.
fn tunnelled(teid: u32, inner: &[u8]) -> Vec<u8> {
    let mut message = vec![0x34, 255];
    message.extend((8 + inner.len() as u16).to_be_bytes());
    message.extend(teid.to_be_bytes());
    message.extend([0, 0, 0, 0x85, 1, 0x10, 9, 0]);
    message.extend(inner);
    message
}

/// A phone and its base station, in the sender's namespace: what the phone sends goes into a tunnel, by hand.
struct Station {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Station {
    fn start(lab: &Lab, mtu: u32) -> Self {
        let phone = lab.enter_sender(tun);
        for [ue, length, network] in [[UE[0], "32", "10.8.0.0/24"], [UE[1], "64", "fd00:8::/64"]] {
            lab.sender_sh(&format!(
                "ip addr add {ue}/{length} dev ue0 {}",
                if length == "64" { "nodad" } else { "" }
            ));
            lab.sender_sh(&format!("ip link set ue0 mtu {mtu} up"));
            lab.sender_sh(&format!("ip route replace {network} dev ue0 src {ue}"));
        }
        let socket = lab.enter_sender(|| bind("10.9.0.1", PORT));
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let up = (phone.try_clone().unwrap(), socket.try_clone().unwrap(), Arc::clone(&stop));
        let down = (phone, socket, Arc::clone(&stop));
        let threads = vec![
            std::thread::spawn(move || {
                let ((mut phone, socket, stop), mut packet) = (up, [0; 2048]);
                while !stop.load(Ordering::Relaxed) {
                    match phone.read(&mut packet) {
                        Ok(length) => {
                            drop(socket.send_to(&tunnelled(TEID, &packet[..length]), ("10.9.0.2", PORT)))
                        }
                        Err(_) => std::thread::sleep(Duration::from_millis(1)),
                    }
                }
            }),
            std::thread::spawn(move || {
                let ((mut phone, socket, stop), mut message) = (down, [0; 4096]);
                while !stop.load(Ordering::Relaxed) {
                    let Ok((length, _)) = socket.recv_from(&mut message) else { continue };
                    let [0x34, 255, high, low, teid @ .., 0, 0, 0, 0x85, 1, 0, 9, 0] = &message[..16] else {
                        panic!("no tunnel of the downlink: {:x?}", &message[..16]);
                    };
                    assert_eq!(teid, PEER_TEID.to_be_bytes());
                    assert_eq!(usize::from(u16::from_be_bytes([*high, *low])) + 8, length);
                    phone.write_all(&message[16..length]).unwrap();
                }
            }),
        ];
        Self { stop, threads }
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A packet that is not as it should be fails the test.
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("the base station stopped");
            }
        }
    }
}

/// A device whose packets a process reads and writes: without a header, and without waiting.
fn tun() -> File {
    const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
    // SAFETY: the path is a C string; the descriptor is ours alone. The request is an ifreq with a name and flags, which outlives the call.
    unsafe {
        let descriptor =
            libc::open(c"/dev/net/tun".as_ptr(), libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC);
        assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
        let file = File::from_raw_fd(descriptor);
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"ue0") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short;
        let code = libc::ioctl(file.as_raw_fd(), TUNSETIFF as _, &raw mut request);
        assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
        file
    }
}

/// The lab's sender has the base station, its receiver is the end of the tunnels, and behind `OUT` is the data network.
struct Core {
    lab: Lab,
    beyond: Beyond,
}

impl Core {
    fn new() -> Option<Self> {
        let lab = Lab::new()?;
        let beyond = Beyond::new(&lab);
        lab.whole_packets();
        beyond.namespace.sh("ethtool -K far0 tx off gso off tso off");
        let accept = "sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.all.disable_ipv6=0 \
                      net.ipv6.conf.default.disable_ipv6=0";
        lab.sender_sh(accept);
        lab.sh(accept);
        beyond.namespace.sh(accept);
        for interface in [INTERFACE, OUT] {
            lab.sh(&format!(
                "sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=0 net.ipv6.conf.{interface}.accept_dad=0"
            ));
        }
        beyond.namespace.sh("sysctl -qw net.ipv6.conf.far0.disable_ipv6=0 net.ipv6.conf.far0.accept_dad=0");
        for command in [
            "ip addr add 10.8.0.2/24 dev far0",
            "ip addr add fd00:8::2/64 dev far0 nodad",
            "ip route add default via 10.8.0.1",
            "ip -6 route add default via fd00:8::1",
        ] {
            beyond.namespace.sh(command);
        }
        lab.sh(&format!("ip addr add 10.8.0.1/24 dev {OUT}"));
        lab.sh(&format!("ip addr add fd00:8::1/64 dev {OUT} nodad"));
        lab.sh(
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0",
        );
        lab.sh(&format!("sysctl -qw net.ipv4.conf.{INTERFACE}.rp_filter=0"));
        lab.write("tunnels.yaml", format!("version: 1\ntunnels: {TUNNELS}\n").as_bytes());
        Some(Self { lab, beyond })
    }

    /// Both directions, with the tunnels of tunnels.yaml.
    fn attach(&self, plane: &str) {
        for (interface, rule, name) in [(INTERFACE, OUT_OF, "n3.yaml"), (OUT, INTO, "n6.yaml")] {
            let policy = format!(
                "version: 1\nclasses: {{benign: {rule}, attack: {rule}}}\ntunnels: tunnels.yaml\n\
                 allow: {{prefixes: ['fe80::/10', '::/128']}}\n"
            );
            self.lab.write(name, policy.as_bytes());
            self.lab.ok(&format!(
                "run --bundle b.wirewise --interface {interface} --plane {plane} --policy {name} --mode enforce --yes"
            ));
        }
    }

    fn detach(&self) {
        for interface in [INTERFACE, OUT] {
            self.lab.ok(&format!("detach --interface {interface}"));
        }
    }

    fn tunnels(&self, interface: &str) -> Value {
        self.lab.json(&format!("tunnels --interface {interface}"))
    }

    /// Packets that something became of.
    fn count(&self, interface: &str, what: &str) -> u64 {
        self.tunnels(interface)["packets"][what].as_u64().unwrap()
    }

    /// A connection from the phone to the server: so many bytes there, and as many back.
    fn talk(&self, server: &str, bytes: usize) {
        let listener = self.beyond.namespace.enter(|| TcpListener::bind((server, 0)).unwrap());
        let to = listener.local_addr().unwrap();
        let echo = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            let mut got = vec![0; bytes];
            stream.read_exact(&mut got).unwrap();
            stream.write_all(&got).unwrap();
        });
        let mut stream = self.lab.enter_sender(|| TcpStream::connect_timeout(&to, PATIENCE).unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let sent: Vec<u8> = (0..bytes).map(|byte| (byte % 251) as u8).collect();
        let mut got = vec![0; bytes];
        stream.write_all(&sent).unwrap();
        stream.read_exact(&mut got).unwrap();
        assert!(got == sent, "{server}");
        echo.join().unwrap();
    }
}

#[test]
fn connections_go_through_tunnels_both_ways() {
    let Some(core) = Core::new() else { return };
    for plane in PLANES {
        core.attach(plane);
        {
            let _station = Station::start(&core.lab, 1400);
            for server in SERVERS {
                core.talk(server, 100_000);
            }
        }
        let [out, into] = [INTERFACE, OUT].map(|interface| core.tunnels(interface));
        let carried = |tunnels: &Value, way: &str| tunnels["tunnels"][0][way]["packets"].as_u64().unwrap();
        assert!(carried(&out, "taken-out") > 50, "{plane}: {out}");
        assert!(carried(&into, "put-in") > 50, "{plane}: {into}");
        assert_eq!(carried(&out, "taken-out"), out["packets"]["taken-out"], "{plane}");
        assert_eq!(carried(&into, "put-in"), into["packets"]["put-in"], "{plane}");
        assert_eq!(into["packets"]["answered"], 0, "{plane}: {into}");
        core.detach();
    }
}

#[test]
fn senders_are_told_what_is_too_long() {
    let Some(core) = Core::new() else { return };
    core.lab.sender_sh("ip link set ww1 mtu 1600");
    core.lab.sh(&format!("ip link set {INTERFACE} mtu 1600"));
    core.lab.sh(&format!("ip route add 10.9.0.1/32 dev {INTERFACE} mtu lock 1500"));
    for plane in PLANES {
        core.attach(plane);
        {
            // The phone takes 1,500 bytes, the way to it 44 less.
            let _station = Station::start(&core.lab, 1500);
            for server in SERVERS {
                core.talk(server, 100_000);
                let cached = core
                    .beyond
                    .namespace
                    .sh(&format!("ip route get {}", UE[usize::from(server.contains(':'))]));
                assert!(cached.contains("mtu 1456"), "{plane}, {server}: {cached}");
            }
        }
        assert!(core.count(OUT, "answered") >= 2, "{plane}");
        core.beyond.namespace.sh("ip route flush cache");
        core.beyond.namespace.sh("ip -6 route flush cache");
        core.detach();
    }
}

#[test]
fn senders_are_told_only_so_often() {
    const PACKETS: u64 = 2000;
    let Some(core) = Core::new() else { return };
    core.lab.sh(&format!("ip route add 10.9.0.1/32 dev {INTERFACE} mtu lock 1500"));
    core.attach(PLANES[1]);
    core.lab.sh(&format!("ip neigh replace 10.9.0.1 lladdr 02:00:00:00:00:01 dev {INTERFACE} nud permanent"));
    // From a server, to the phone: as long as a frame can be.
    let mut packet = from([10, 8, 0, 2], 5000, 1472);
    packet[16..20].copy_from_slice(&[10, 45, 0, 2]);
    packet[10..12].fill(0);
    let check = sum(&packet[..20]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    let links: Value = serde_json::from_str(&core.lab.sh(&format!("ip -j link show {OUT}"))).unwrap();
    let to: Vec<_> = links[0]["address"]
        .as_str()
        .unwrap()
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    let frame = [&to[..], &FAR, &[8, 0], &packet].concat();
    let began = Instant::now();
    core.beyond.wire.send(&vec![frame; PACKETS as usize]);
    wait("all are counted", || core.count(OUT, "answered") + core.count(OUT, "unanswered") == PACKETS);
    // Each CPU has a thousand a second, and fifty at once.
    let most = (began.elapsed().as_millis() as u64 + 51) * 2;
    assert!(core.count(OUT, "answered") <= most, "{}: {most}", core.count(OUT, "answered"));
    assert!(core.count(OUT, "answered") >= 50 && core.count(OUT, "unanswered") > 0, "{}", core.tunnels(OUT));
}

/// IPv4 and UDP from a phone to the server.
fn from(source: [u8; 4], port: u16, payload: usize) -> Vec<u8> {
    let length = 28 + payload as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(source);
    packet.extend([10, 8, 0, 2]);
    let sum: u32 = packet.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    packet[10..12].copy_from_slice(&(!((sum >> 16) + (sum & 0xffff)) as u16).to_be_bytes());
    packet.extend(4000u16.to_be_bytes());
    packet.extend(port.to_be_bytes());
    packet.extend((8 + payload as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.resize(length.into(), 7);
    packet
}

#[test]
fn what_is_in_no_known_tunnel_passes_and_is_counted() {
    let Some(core) = Core::new() else { return };
    let Core { lab, beyond } = &core;
    let (phone, other) = ([10, 45, 0, 2], [10, 45, 0, 3]);
    let server = beyond.namespace.enter(|| bind("10.8.0.2", 5000));
    // The slow path of a user plane function, which gets what the program does not do.
    let slow = lab.enter(|| bind("10.9.0.2", PORT));
    let station = lab.enter_sender(|| bind("10.9.0.1", 0));
    station.connect(("10.9.0.2", PORT)).unwrap();
    let got = |socket: &UdpSocket| quiet::receive(socket, &mut [0; 4096]);
    for plane in PLANES {
        core.attach(plane);
        let inner = from(phone, 5000, 100);
        station.send(&tunnelled(TEID, &inner)).unwrap();
        assert_eq!((got(&server), core.count(INTERFACE, "taken-out")), (Some(100), 1), "{plane}");
        let mut cut = tunnelled(TEID, &inner);
        cut[3] += 1;
        let mut untrue = tunnelled(TEID, &inner);
        untrue[16 + 10] ^= 1;
        let mut required = tunnelled(TEID, &inner);
        required[11] = 0xc0;
        let passes = [
            ("unknown", tunnelled(TEID + 1, &inner)),
            ("foreign", tunnelled(TEID, &from(other, 5000, 100))),
            ("nested", tunnelled(TEID, &from(phone, PORT, 100))),
            ("malformed", cut),
            // A router does not forward what its header's checksum is wrong of.
            ("malformed", untrue),
            ("extended", required),
            // An echo request.
            ("other", vec![0x32, 1, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0]),
        ];
        for (why, message) in &passes {
            let before = core.count(INTERFACE, why);
            station.send(message).unwrap();
            assert_eq!(got(&slow), Some(message.len()), "{plane}: {why}");
            // Among those that are no tunnels are hosts' own packets, such as answers of ICMP.
            let more = core.count(INTERFACE, why) - before;
            assert!(more == 1 || (*why == "other" && more > 1), "{plane}: {why}: {more}");
        }
        // In pieces.
        let long = tunnelled(TEID, &from(phone, 5000, 3000));
        station.send(&long).unwrap();
        assert_eq!(got(&slow), Some(long.len()), "{plane}");
        assert!(core.count(INTERFACE, "fragmented") >= 2, "{plane}");
        // A piece inside is nobody's matter: the server puts it together.
        assert_eq!((got(&server), core.count(INTERFACE, "taken-out")), (None, 1), "{plane}");
        core.detach();
    }
}

#[test]
fn the_table_changes_while_packets_go_through() {
    const PACKETS: usize = 3000;
    let Some(core) = Core::new() else { return };
    let Core { lab, beyond } = &core;
    let server = beyond.namespace.enter(|| bind("10.8.0.2", 5000));
    let station = lab.enter_sender(|| bind("10.9.0.1", 0));
    station.connect(("10.9.0.2", PORT)).unwrap();
    core.attach(PLANES[0]);
    let message = tunnelled(TEID, &from([10, 45, 0, 2], 5000, 100));
    // Neighbours are known from here on.
    station.send(&message).unwrap();
    assert_eq!(quiet::receive(&server, &mut [0; 2048]), Some(100));
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let arrived = std::thread::spawn({
        let server = server.try_clone().unwrap();
        move || (0..PACKETS).take_while(|_| server.recv(&mut [0; 2048]).is_ok()).count()
    });
    let sender = std::thread::spawn({
        let (station, message) = (station.try_clone().unwrap(), message.clone());
        move || {
            for _ in 0..PACKETS {
                station.send(&message).unwrap();
                std::thread::sleep(Duration::from_micros(500));
            }
        }
    });
    let mut many = format!("version: 1\ntunnels:\n- {}\n", &TUNNELS[1..TUNNELS.len() - 1]);
    for number in 1..=5000 {
        many += &format!("- {{local: 10.9.0.2, teid: {}}}\n", 0x1000 + number);
    }
    lab.write("many.yaml", many.as_bytes());
    let change = |arguments: &str| lab.json(&format!("tunnels --interface {INTERFACE} {arguments}"));
    let changes =
        |added, changed, removed| serde_json::json!({"added": added, "changed": changed, "removed": removed});
    assert_eq!(change("--load many.yaml --dry-run"), changes(5000, 0, 0));
    assert_eq!(core.tunnels(INTERFACE)["tunnels"].as_array().unwrap().len(), 1);
    assert_eq!(change("--load many.yaml"), changes(5000, 0, 0));
    assert_eq!(change("--load many.yaml"), changes(0, 0, 0));
    assert_eq!(change("--remove 10.9.0.2/0x1001 --remove 10.9.0.2/0x1002"), changes(0, 0, 2));
    assert_eq!(
        change("--add ue=10.45.0.9,local=10.9.0.2,teid=9,peer=10.9.0.1,peer-teid=9"),
        changes(1, 0, 0)
    );
    assert_eq!(change("--load tunnels.yaml"), changes(0, 0, 4999));
    sender.join().unwrap();
    assert_eq!(arrived.join().unwrap(), PACKETS);
    // Counters have gone on through all of it.
    let tunnels = core.tunnels(INTERFACE);
    assert_eq!(tunnels["tunnels"][0]["taken-out"]["packets"], PACKETS + 1, "{tunnels}");
    assert_eq!(tunnels["tunnels"][0]["taken-out"]["bytes"], (PACKETS + 1) * 128, "{tunnels}");
    // And so they do where another program takes over.
    lab.ok(&format!("run --bundle b.wirewise --interface {INTERFACE} --plane xdp-native --policy n3.yaml --mode enforce --yes"));
    assert_eq!(core.tunnels(INTERFACE)["tunnels"][0]["taken-out"]["packets"], PACKETS + 1);
    assert_eq!(change("--remove 10.45.0.2"), changes(0, 0, 1));
    station.send(&message).unwrap();
    assert_eq!(quiet::arrivals(&server, 1), 0);
    assert_eq!(core.count(INTERFACE, "unknown"), 1);
}

#[test]
fn frames_for_others_are_not_put_into_tunnels() {
    let Some(core) = Core::new() else { return };
    core.attach(PLANES[0]);
    let inner = from([10, 9, 0, 1], 5000, 100);
    let mut frame = [&NEAR[..], &FAR, &[8, 0], &inner].concat();
    frame[30..34].copy_from_slice(&[10, 45, 0, 2]);
    let wire = core.beyond.namespace.enter(|| Wire::open("far0"));
    wire.send(&[frame]);
    assert_eq!((core.count(OUT, "other"), core.count(OUT, "put-in")), (1, 0));
}

#[test]
fn what_cannot_be_is_said_in_a_line() {
    let Some(core) = Core::new() else { return };
    let lab = &core.lab;
    lab.policy(&format!("classes: {{attack: {OUT_OF}}}\ntunnels: {TUNNELS}"));
    let said = lab.error(
        &format!("run --bundle b.wirewise --interface {INTERFACE} --plane tc-ingress --policy p.yaml"),
        2,
    );
    assert!(
        said.contains("tc-ingress cannot do forward") || said.contains("cannot do decapsulate"),
        "{said}"
    );
    lab.policy("classes: {attack: drop}");
    lab.attach("--plane xdp-native --policy p.yaml");
    let said = lab.error(&format!("tunnels --interface {INTERFACE}"), 2);
    assert!(said.contains("the policy in force has no class with `decapsulate`"), "{said}");
    lab.ok(&format!("detach --interface {INTERFACE}"));
    core.attach(PLANES[0]);
    for (text, rule) in [
        ("version: 2\ntunnels: []\n", "version 2 is not supported"),
        ("version: 1\ntunnels: [{local: 10.9.0.2, teid: 0}]\n", "line 2: teid 0 is of no tunnel"),
        (
            "version: 1\ntunnels:\n- {local: 10.9.0.2, teid: 1}\n- {local: 10.9.0.2, teid: 0x1}\n",
            "line 4: TEID 0x1 at 10.9.0.2 stands in line 3 already",
        ),
        (
            "version: 1\ntunnels:\n- {local: 10.9.0.2, tied: 1}\n",
            "line 3, column 21: unknown key 'tied'; did you mean 'teid'?",
        ),
        (
            "version: 1\ntunnels:\n- {local: 10.9.0.2, teid: 1, ue: '2001:db8::1'}\n",
            "neither an address of IPv4 nor a network",
        ),
        ("version: 1\ntunnels:\n- {local: 224.0.0.1, teid: 1}\n", "is no address of a host"),
        ("\u{0}\u{1}", "bad.yaml: "),
    ] {
        lab.write("bad.yaml", text.as_bytes());
        let said = lab.error(&format!("tunnels --interface {INTERFACE} --load bad.yaml"), 2);
        assert!(said.contains(rule), "{said}");
    }
    let said = lab.error(&format!("tunnels --interface {INTERFACE} --remove 10.45.0.7"), 2);
    assert!(said.ends_with("there is no tunnel with ue 10.45.0.7"), "{said}");
    assert_eq!(core.tunnels(INTERFACE)["tunnels"].as_array().unwrap().len(), 1);
}
