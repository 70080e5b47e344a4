// SPDX-License-Identifier: Apache-2.0
//! A class that has to prove itself: SYNs are answered by cookies, at XDP, and who returns one gets in.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread;

use libbpf_rs::{MapCore, MapHandle};

use crate::lab::{BENIGN, INTERFACE, Lab, RECEIVER, bundle, variant};
use crate::quiet::PATIENCE;
use crate::steering::{outcome, passing, sender};
use crate::wire::{FAR, NEAR, Wire, ethernet, in_session, sum, tagged};

const PLANES: [&str; 2] = ["xdp-native", "xdp-generic --offloads off"];
const RECEIVER6: &str = "fd00::2";
const PORT: u16 = 8080;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;
const POLICY: &str = "classes: {attack: challenge}";

/// The receiver takes cookies, both speak IPv6 too, and the sender's end has an XDP program, without which a veth pair takes nothing
/// back. Checksums are made and checked, as between two machines.
struct Challenged {
    lab: Lab,
    _program: OwnedFd,
}

impl Challenged {
    /// shortest : IP length of the shortest packet that the model takes for attack, less 1.
    fn new(shortest: usize) -> Option<Self> {
        let lab = Lab::new()?;
        lab.whole_packets();
        lab.sh("ethtool -K ww0 tx off");
        lab.sh("sysctl -qw net.ipv4.tcp_syncookies=2 net.ipv6.conf.ww0.disable_ipv6=0");
        lab.sender_sh("sysctl -qw net.ipv6.conf.ww1.disable_ipv6=0");
        lab.sh(&format!("ip addr add {RECEIVER6}/64 dev {INTERFACE} nodad"));
        lab.sender_sh("ip addr add fd00::1/64 dev ww1 nodad");
        lab.write("b.wirewise", &bundle("first", &variant(&format!("BORDER={shortest}"))));
        lab.policy(POLICY);
        let _program = lab.enter_sender(|| passing("ww1"));
        Some(Self { lab, _program })
    }

    fn enforce(&self, plane: &str) {
        self.lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
    }

    fn detach(&self) {
        self.lab.ok(&format!("detach --interface {INTERFACE}"));
        assert_eq!(self.lab.pinned(), [""; 0]);
    }

    /// Somebody listens on both versions of IP, and sends back what each connection sent until its end.
    fn listen(&self) {
        for address in [RECEIVER, RECEIVER6] {
            let listener = self.lab.enter(|| TcpListener::bind((address, PORT)).unwrap());
            thread::spawn(move || {
                for stream in listener.incoming() {
                    thread::spawn(move || echo(stream.unwrap()));
                }
            });
        }
    }

    fn connect(&self, address: &str) -> std::io::Result<TcpStream> {
        let address = SocketAddr::new(address.parse().unwrap(), PORT);
        let stream = self.lab.enter_sender(|| TcpStream::connect_timeout(&address, PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// A counter of the receiver's stack.
    fn counter(&self, name: &str) -> u64 {
        let said = self.lab.sh(&format!("nstat -asz {name}"));
        let line = said.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Flows that are remembered.
    fn remembered(&self) -> usize {
        let name = self.lab.pinned().into_iter().find(|name| name.ends_with("/ww_memory")).unwrap();
        let path = self.lab.pins().parent().unwrap().join(name);
        MapHandle::from_pinned_path(path).unwrap().keys().count()
    }

    /// Connections of which the receiver's stack waits for the last packet of the handshake.
    fn half_open(&self) -> usize {
        let tables = ["tcp", "tcp6"].map(|name| format!("/proc/thread-self/net/{name}"));
        self.lab.enter(|| {
            let read = |path| std::fs::read_to_string(path).unwrap();
            tables.iter().map(|path| read(path).lines().filter(|line| line.contains(" 03 ")).count()).sum()
        })
    }
}

fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// Sends so many bytes, and expects them back.
fn exchange(stream: &mut TcpStream, bytes: usize) {
    let sent: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect();
    let mut back = vec![0; bytes];
    let mut writer = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| writer.write_all(&sent).unwrap());
        stream.read_exact(&mut back).unwrap();
    });
    assert!(back == sent);
}

/// A frame with TCP from a host that nobody has, `host` of them, to the receiver. acknowledged : the number, where the flag is set.
fn tcp(version: u8, host: u16, port: u16, flags: u8, acknowledged: u32) -> Vec<u8> {
    // MSS 1460, SACK, timestamps, window scale.
    let options = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    with_options(version, host, port, flags, acknowledged, &options)
}

fn with_options(version: u8, host: u16, port: u16, flags: u8, acknowledged: u32, options: &[u8]) -> Vec<u8> {
    let [high, low] = host.to_be_bytes();
    let (source, destination) = match version {
        4 => (vec![10, 9, 0, 77], vec![10, 9, 0, 2]),
        _ => {
            let address = |low: [u8; 2]| [&[0xfd, 0][..], &[0; 12], &low].concat();
            (address([0, 77]), address([0, 2]))
        }
    };
    let mut segment = [&[high | 0x80, low][..], &port.to_be_bytes(), &[0x12, high, low, 0xff]].concat();
    segment.extend(acknowledged.to_be_bytes());
    let words = 5 + options.len() as u8 / 4;
    segment.extend([words << 4, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
    segment.extend(options);
    let check = sum(&[pseudo(&source, &destination, segment.len()), segment.clone()].concat());
    segment[16..18].copy_from_slice(&check.to_be_bytes());
    let size = segment.len() as u16;
    if version == 4 {
        let mut header = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 6, 0, 0];
        header[2..4].copy_from_slice(&(20 + size).to_be_bytes());
        header.extend([source, destination].concat());
        let check = sum(&header);
        header[10..12].copy_from_slice(&check.to_be_bytes());
        return ethernet(0x0800, &[header, segment].concat());
    }
    let mut header = vec![0x60, 0x1a, 0xbc, 0xde, 0, 0, 6, 64];
    header[4..6].copy_from_slice(&size.to_be_bytes());
    ethernet(0x86dd, &[header, source, destination, segment].concat())
}

/// Gives a segment another sequence number, and the checksum for it.
fn renumber(version: u8, frame: &mut [u8], number: u32) {
    let (addresses, begin) = if version == 4 { (26, 34) } else { (22, 54) };
    let (ends, segment) = frame.split_at_mut(begin);
    let (source, destination) = ends[addresses..].split_at((begin - addresses) / 2);
    segment[4..8].copy_from_slice(&number.to_be_bytes());
    segment[16..18].fill(0);
    let check = sum(&[pseudo(source, destination, segment.len()), segment.to_vec()].concat());
    segment[16..18].copy_from_slice(&check.to_be_bytes());
}

/// What a TCP checksum is over, beside the segment.
fn pseudo(source: &[u8], destination: &[u8], length: usize) -> Vec<u8> {
    [source, destination, &[0, 6], &(length as u16).to_be_bytes()].concat()
}

/// Sends frames, and waits for what comes back. So few at once that a socket has room for the answers.
fn answers_to(wire: &Wire, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut answers = Vec::new();
    for some in frames.chunks(100) {
        wire.send(some);
        answers.extend(wire.received_of(libc::IPPROTO_TCP));
    }
    answers
}

/// The answer to a SYN that `tcp` made: every byte but the cookie, and both checksums.
fn assert_answers(answer: &[u8], syn: &[u8]) {
    assert_eq!((&answer[..6], &answer[6..12], &answer[12..14]), (&FAR[..], &NEAR[..], &syn[12..14]));
    let (packet, asked) = (&answer[14..], &syn[14..]);
    let (addresses, header) = if packet[0] >> 4 == 4 { (12, 20) } else { (8, 40) };
    let size = (header - addresses) / 2;
    let (source, destination) = packet[addresses..header].split_at(size);
    assert_eq!([destination, source].concat(), asked[addresses..header]);
    let segment = &packet[header..header + 24];
    if header == 20 {
        assert_eq!(packet[..10], [0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, 6]);
        assert_eq!(sum(&packet[..20]), 0);
    } else {
        assert_eq!(packet[..8], [0x60, 0, 0, 0, 0, 24, 6, 64]);
    }
    assert_eq!(sum(&[&pseudo(source, destination, 24)[..], segment].concat()), 0);
    let asked = &asked[header..];
    assert_eq!((&segment[..2], &segment[2..4]), (&asked[2..4], &asked[..2]));
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    assert_eq!(number(&segment[8..12]), number(&asked[4..8]).wrapping_add(1));
    let most = 1500 - header as u16 - 20;
    assert_eq!(segment[12..14], [0x60, SYN | ACK]);
    assert_eq!(segment[14..16], (10 * most).to_be_bytes());
    assert_eq!(segment[18..22], [0, 0, 2, 4]);
    assert_eq!(segment[22..24], most.to_be_bytes());
    // A tag that was taken off counts.
    assert!([60, 14 + header + 24].contains(&answer.len()), "{}", answer.len());
}

#[test]
fn who_answers_gets_in() {
    // All packets are attacks; and only those that are longer than the last of the handshake.
    for shortest in [0, 59] {
        let Some(it) = Challenged::new(shortest) else { return };
        it.listen();
        for plane in PLANES {
            it.enforce(plane);
            for address in [RECEIVER, RECEIVER6] {
                let (sent, taken) = (it.counter("TcpExtSyncookiesSent"), it.counter("TcpExtSyncookiesRecv"));
                let before = outcome(&it.lab, 1, "acted");
                let mut stream = it.connect(address).unwrap();
                exchange(&mut stream, 1000);
                exchange(&mut stream, 8 << 20);
                assert_eq!(outcome(&it.lab, 1, "acted") - before, 1, "{plane} {address}");
                // The stack took a cookie that it had not given.
                assert_eq!(it.counter("TcpExtSyncookiesSent"), sent, "{plane} {address}");
                assert_eq!(it.counter("TcpExtSyncookiesRecv"), taken + 1, "{plane} {address}");
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(stream.read(&mut [0]).unwrap(), 0);
            }
            assert_eq!(it.remembered(), 2, "{plane}");
            assert_eq!(outcome(&it.lab, 1, "drop"), 0, "{plane}");
            assert!(outcome(&it.lab, 1, "pass") > 1000, "{plane}");
            it.detach();
        }
    }
}

#[test]
fn a_flood_is_answered_and_leaves_nothing() {
    const FLOOD: u16 = 300;
    let Some(it) = Challenged::new(0) else { return };
    it.listen();
    let near = sender(&it.lab);
    for plane in PLANES {
        it.enforce(plane);
        near.clear();
        let opened = it.counter("TcpPassiveOpens");
        for version in [4, 6] {
            let mut flood: Vec<_> = (0..FLOOD).map(|host| tcp(version, host, PORT, SYN | 0xc0, 0)).collect();
            let answers = answers_to(&near, &flood);
            assert_eq!(answers.len(), flood.len(), "{plane}");
            answers.iter().zip(&flood).for_each(|(answer, syn)| assert_answers(answer, syn));
            flood.truncate(1);
            let [answer] = &answers_to(&near, &[tagged(&flood[0])])[..] else { panic!("{plane}") };
            // The kernel hands a packet socket the tag beside the frame.
            assert_answers(answer, &flood[0]);
            // A session's header would need another length.
            let unsteered = outcome(&it.lab, 1, "not-acted");
            assert!(answers_to(&near, &[in_session(&flood[0])]).is_empty(), "{plane}");
            assert!(outcome(&it.lab, 1, "not-acted") > unsteered, "{plane}");
            // Shorter than its answer, and as long as a SYN can be.
            for options in [vec![], vec![1; 40]] {
                let syn = with_options(version, 7, PORT, SYN, 0, &options);
                let [answer] = &answers_to(&near, std::slice::from_ref(&syn))[..] else { panic!("{plane}") };
                assert_answers(answer, &syn);
            }
        }
        assert_eq!(outcome(&it.lab, 1, "acted"), 2 * u64::from(FLOOD) + 6);
        assert_eq!((it.remembered(), it.half_open()), (0, 0), "{plane}");
        assert_eq!(it.counter("TcpPassiveOpens"), opened);
        // Who guesses a cookie.
        for version in [4, 6] {
            let guesses =
                |flags| (0..FLOOD).map(move |host| tcp(version, host, PORT, flags, u32::from(host)));
            for flags in [ACK, RST, FIN, SYN | ACK] {
                let none: [Vec<u8>; 0] = [];
                assert_eq!(answers_to(&near, &guesses(flags).collect::<Vec<_>>()), none, "{plane}");
            }
        }
        assert_eq!(outcome(&it.lab, 1, "drop"), 8 * u64::from(FLOOD), "{plane}");
        assert_eq!((it.remembered(), it.half_open()), (0, 0), "{plane}");
        // And a client among them.
        exchange(&mut it.connect(RECEIVER).unwrap(), 100_000);
        it.detach();
    }
}

/// The cookie that the receiver gives to a host that then returns it.
#[test]
fn a_cookie_is_right_only_from_who_got_it() {
    let Some(it) = Challenged::new(0) else { return };
    it.listen();
    let near = sender(&it.lab);
    it.enforce("xdp-native");
    for version in [4, 6] {
        near.clear();
        let answers = answers_to(&near, &[tcp(version, 9, PORT, SYN, 0)]);
        let at = if version == 4 { 38 } else { 58 };
        let cookie = u32::from_be_bytes(answers[0][at..at + 4].try_into().unwrap());
        let mut returned = tcp(version, 9, PORT, ACK, cookie.wrapping_add(1));
        // Its number is one more than the SYN's.
        let before = u32::from_be_bytes(returned[at..at + 4].try_into().unwrap());
        renumber(version, &mut returned, before - 1000);
        let (dropped, passed) = (outcome(&it.lab, 1, "drop"), outcome(&it.lab, 1, "pass"));
        answers_to(&near, &[returned.clone(), tcp(version, 10, PORT, ACK, cookie.wrapping_add(1))]);
        assert_eq!(outcome(&it.lab, 1, "drop"), dropped + 2);
        renumber(version, &mut returned, before + 1);
        let remembered = it.remembered();
        answers_to(&near, &[returned]);
        assert_eq!((outcome(&it.lab, 1, "drop"), outcome(&it.lab, 1, "pass")), (dropped + 2, passed + 1));
        assert_eq!(it.remembered(), remembered + 1);
    }
}

#[test]
fn connections_go_on() {
    let Some(it) = Challenged::new(0) else { return };
    it.listen();
    for plane in PLANES {
        it.lab.policy("classes: {attack: count}");
        it.enforce(plane);
        let mut streams = [RECEIVER, RECEIVER6].map(|address| it.connect(address).unwrap());
        // That the host itself began, too.
        let outside = it.lab.enter_sender(|| TcpListener::bind(("0.0.0.0", PORT)).unwrap());
        let address = SocketAddr::from(([10, 9, 0, 1], PORT));
        let begin = || it.lab.enter(|| TcpStream::connect_timeout(&address, PATIENCE)).unwrap();
        let (mut begun, mut taken) = (begin(), outside.accept().unwrap().0);
        it.lab.policy(POLICY);
        it.enforce(plane);
        streams.iter_mut().for_each(|stream| exchange(stream, 1 << 20));
        let mut word = [0; 5];
        for (from, to) in [(&mut taken, &mut begun), (&mut begin(), &mut outside.accept().unwrap().0)] {
            to.set_read_timeout(Some(PATIENCE)).unwrap();
            from.write_all(b"hello").unwrap();
            to.read_exact(&mut word).unwrap();
            assert_eq!(&word, b"hello");
        }
        assert_eq!((outcome(&it.lab, 1, "drop"), outcome(&it.lab, 1, "acted")), (0, 0), "{plane}");
        it.detach();
    }
}

#[test]
fn what_no_cookie_is_for_passes() {
    let Some(it) = Challenged::new(0) else { return };
    it.listen();
    let near = sender(&it.lab);
    for plane in PLANES {
        it.enforce(plane);
        assert_eq!(it.lab.send(1000, BENIGN, 3), 3);
        let here = it.lab.enter(|| Wire::open(INTERFACE));
        let mut fragment = tcp(4, 1, PORT, SYN, 0);
        fragment[20] |= 0x20;
        fragment[24..26].fill(0);
        let check = sum(&fragment[14..34]);
        fragment[24..26].copy_from_slice(&check.to_be_bytes());
        let mut to_all = tcp(4, 1, PORT, SYN, 0);
        to_all[..6].fill(0xff);
        // Nobody listens there.
        let others = [fragment, to_all, tcp(4, 1, 9, SYN, 0), tcp(6, 1, 9, SYN, 0), tcp(4, 1, 9, ACK, 5)];
        near.send(&others);
        assert_eq!(here.received_of(libc::IPPROTO_TCP), others, "{plane}");
        assert_eq!(["acted", "drop", "pass"].map(|name| outcome(&it.lab, 1, name)), [0; 3], "{plane}");
        // The kernels say this and that to groups of IPv6.
        assert!(outcome(&it.lab, 1, "not-acted") >= 8, "{plane}");
        it.detach();
    }
}

/// The frame with other bytes in its IP header, and both checksums right.
fn rewritten(mut frame: Vec<u8>, change: impl Fn(&mut [u8])) -> Vec<u8> {
    change(&mut frame[14..]);
    let (addresses, header) = if frame[14] >> 4 == 4 { (12, 20) } else { (8, 40) };
    let half = (header - addresses) / 2;
    let (ip, segment) = frame[14..].split_at_mut(header);
    segment[16..18].fill(0);
    let (source, destination) = ip[addresses..].split_at(half);
    let check = sum(&[&pseudo(source, destination, segment.len())[..], segment].concat());
    segment[16..18].copy_from_slice(&check.to_be_bytes());
    if header == 20 {
        ip[10..12].fill(0);
        let check = sum(ip);
        ip[10..12].copy_from_slice(&check.to_be_bytes());
    }
    frame
}

/// What no TCP of a host would answer: a stranger could have answers sent to, or in the name of, whom he likes.
#[test]
fn what_a_hosts_tcp_would_not_answer_is_not_answered() {
    let Some(it) = Challenged::new(0) else { return };
    it.listen();
    // A router, whose listener is not asked about what passes by.
    it.lab.sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0");
    let near = sender(&it.lab);
    let syn = |version| tcp(version, 3, PORT, SYN, 0);
    let from = |address: [u8; 4]| rewritten(syn(4), move |ip| ip[12..16].copy_from_slice(&address));
    let to = |address: [u8; 4]| rewritten(syn(4), move |ip| ip[16..20].copy_from_slice(&address));
    let six = |at: usize, address: &str| {
        let octets = address.parse::<std::net::Ipv6Addr>().unwrap().octets();
        rewritten(syn(6), move |ip| ip[at..at + 16].copy_from_slice(&octets))
    };
    let with = |version, at: usize| {
        let mut frame = syn(version);
        frame[at] ^= 0x10;
        frame
    };
    let mut unsound = vec![
        ("a header's checksum", with(4, 24)),
        ("TCP's checksum", with(4, 14 + 20 + 16)),
        ("TCP's checksum over IPv6", with(6, 14 + 40 + 17)),
        ("another station", with(4, 3)),
        ("another station, IPv6", with(6, 3)),
    ];
    for address in [[0, 0, 0, 1], [127, 0, 0, 1], [224, 0, 0, 1], [240, 0, 0, 1], [255; 4], [10, 9, 0, 255]] {
        unsound.extend([("from", from(address)), ("to", to(address))]);
    }
    unsound.extend([("from itself", from([10, 9, 0, 2])), ("to another host", to([10, 9, 0, 9]))]);
    for address in ["::", "::1", "ff02::1", "::ffff:10.9.0.1"] {
        unsound.extend([("from", six(8, address)), ("to", six(24, address))]);
    }
    unsound.push(("from itself, IPv6", six(8, RECEIVER6)));
    for plane in PLANES {
        it.enforce(plane);
        near.clear();
        for (what, frame) in &unsound {
            let answers = answers_to(&near, std::slice::from_ref(frame));
            let cookies = answers.iter().filter(|answer| answer.len() <= 78 && answer[..6] == FAR).count();
            assert_eq!((cookies, outcome(&it.lab, 1, "acted")), (0, 0), "{plane}: {what} {frame:x?}");
        }
        for version in [4, 6] {
            let syn = syn(version);
            let [answer] = &answers_to(&near, std::slice::from_ref(&syn))[..] else { panic!("{plane}") };
            assert_answers(answer, &syn);
            // With the sum of the addresses alone, as a veth pair's other end leaves it to a card.
            let mut partial = syn.clone();
            let header = if version == 4 { 20 } else { 40 };
            let addresses = if version == 4 { 12 } else { 8 };
            let (source, destination) = syn[14 + addresses..14 + header].split_at((header - addresses) / 2);
            let check = !sum(&pseudo(source, destination, syn.len() - 14 - header));
            partial[14 + header + 16..14 + header + 18].copy_from_slice(&check.to_be_bytes());
            assert_eq!(answers_to(&near, &[partial]).len(), 1, "{plane}");
        }
        it.detach();
    }
}

#[test]
fn who_observes_leaves_it_to_the_stack() {
    let Some(it) = Challenged::new(0) else { return };
    it.listen();
    for plane in PLANES {
        it.lab.attach(&format!("--plane {plane} --policy p.yaml"));
        let sent = it.counter("TcpExtSyncookiesSent");
        exchange(&mut it.connect(RECEIVER).unwrap(), 1000);
        assert_eq!(it.counter("TcpExtSyncookiesSent"), sent + 1);
        assert!(outcome(&it.lab, 1, "would-act") > 3);
        assert_eq!((outcome(&it.lab, 1, "acted"), it.remembered()), (0, 0));
        it.detach();
    }
}

#[test]
fn a_running_program_learns_to_challenge() {
    let Some(it) = Challenged::new(0) else { return };
    it.listen();
    it.lab.policy("classes: {attack: drop}");
    it.enforce("xdp-native");
    it.lab.policy(POLICY);
    let again =
        it.lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes"));
    assert_eq!(again["action"], "adopted");
    assert_eq!(again["status"]["classes"][1]["action"], "challenge");
    let mut stream = it.connect(RECEIVER).unwrap();
    exchange(&mut stream, 1000);
    assert_eq!(outcome(&it.lab, 1, "acted"), 1);
    // Who answered is known to the next program too.
    it.lab.write("c.wirewise", &bundle("second", &variant("BORDER=1")));
    it.lab.json("swap --bundle c.wirewise");
    assert_eq!(it.remembered(), 1);
    exchange(&mut stream, 1000);
    // And beside a shadow, which asks nobody.
    it.lab.json("swap --shadow --bundle b.wirewise");
    exchange(&mut stream, 1000);
    exchange(&mut it.connect(RECEIVER6).unwrap(), 1000);
    assert_eq!((outcome(&it.lab, 1, "acted"), it.remembered()), (2, 2));
}

#[test]
fn a_challenge_that_cannot_be_is_refused_and_changes_nothing() {
    let Some(it) = Challenged::new(0) else { return };
    let lab = &it.lab;
    let refused = |class: &str, arguments: &str, code: i32, said: &str| {
        lab.policy(&format!("classes: {{attack: {class}}}"));
        let run = format!(
            "run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --mode enforce {arguments}"
        );
        let error = lab.error(&run, code);
        assert!(error.contains(said), "{class} {arguments}: {error}");
        lab.assert_untouched();
    };
    refused("{action: challenge, dscp: EF}", "--yes", 2, "challenge stands alone");
    refused("{action: challenge, redirect: {interface: lo}}", "--yes", 2, "challenge stands alone");
    refused("{action: challenge, rate: 1/s}", "--yes", 2, "does not go together with 'rate'");
    refused("challenge", "--yes --plane tc-ingress", 2, "tc-ingress cannot do challenge");
    refused("challenge", "--yes --plane af-xdp --to lo", 2, "af-xdp cannot do challenge");
    refused("challenge", "--yes --outgoing", 2, "tc-egress cannot do challenge");
    refused("challenge", "", 2, "you may lock yourself out");
    lab.sh("sysctl -qw net.ipv4.tcp_syncookies=1");
    refused("challenge", "--yes", 3, "net.ipv4.tcp_syncookies is 1 in this network namespace");
    lab.sh("sysctl -qw net.ipv4.tcp_syncookies=2");
    lab.sender_sh("ethtool -K ww1 gro off");
    it.enforce("xdp-native");
    // From now on all SYNs are the stack's again, and doctor says why.
    lab.sh("sysctl -qw net.ipv4.tcp_syncookies=1");
    it.listen();
    exchange(&mut it.connect(RECEIVER).unwrap(), 1000);
    let doctor = String::from_utf8(lab.run(&format!("doctor --interface {INTERFACE}")).stdout).unwrap();
    assert!(doctor.contains("net.ipv4.tcp_syncookies is 1"), "{doctor}");
    assert!(outcome(lab, 1, "not-acted") > 0);
    assert_eq!(outcome(lab, 1, "acted"), 0);
}
