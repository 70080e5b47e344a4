// SPDX-License-Identifier: Apache-2.0
//! What passes reaches the host as if nothing were there: each kind of packet is sent without a plane and on every plane, and the host's
//! sockets have to receive the same.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

use etherparse::{EtherType, PacketBuilder, VlanId};
use wirewised::interface::netdev;
use wirewised::plane::{Joining, Plane, Port};

use crate::carrier::Carrier;
use crate::lab::{INTERFACE, Lab, bind, sh};
use crate::quiet::PATIENCE;
use crate::wire::{FAR, NEAR, Wire};

const PORT: u16 = 4000;
/// What is sent last, so nothing else is on its way when it arrives.
const END: &str = "<end>";

/// `PACKET_OUTGOING` (linux/if_packet.h): answers of the host.
const OUTGOING: u8 = 4;
const ALL: [u8; 6] = [0xff; 6];
const STRANGER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const MACVLAN: [u8; 6] = [2, 0, 0, 0, 0, 6];
/// A service VLAN (802.1ad) around another one.
const OUTER: u16 = 0x88a8;

/// Whether the kernel has a kind of interface, which was made.
fn made(lab: &Lab, command: &str) -> bool {
    let [_, receiver] = lab.namespaces();
    let words = format!("-n {receiver} link add {command}");
    Command::new("ip").args(words.split(' ')).stderr(Stdio::null()).status().unwrap().success()
}

/// Addresses of both hosts, and VLANs and a macvlan of the receiver where the kernel has these. Strict reverse-path filter: packets must come
/// in where answers go out. Returns what there is.
fn furnish(lab: &Lab) -> [bool; 2] {
    let ipv6 = "net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
                net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0";
    let [sender, receiver] = lab.namespaces();
    for (namespace, interface, host) in [(receiver, INTERFACE, 2), (sender, "ww1", 1)] {
        let sysctl = format!("ip netns exec {namespace} sysctl -qw");
        sh(&format!("{sysctl} net.ipv4.conf.all.rp_filter=1 {ipv6} net.ipv6.conf.{interface}.accept_dad=0"));
        sh(&format!("{sysctl} net.ipv6.conf.{interface}.disable_ipv6=0"));
        sh(&format!("ip -n {namespace} addr add fd00::{host}/64 dev {interface} nodad"));
    }
    let vlans = made(lab, &format!("link {INTERFACE} name v7 type vlan id 7"));
    if vlans {
        lab.sh(&format!("ip link add link {INTERFACE} name v9 type vlan proto 802.1ad id 9"));
        lab.sh("ip link add link v9 name v8 type vlan id 8");
        for vlan in [7, 9, 8] {
            lab.sh(&format!("ip addr add 10.{vlan}.0.2/24 dev v{vlan}"));
            lab.sh(&format!("ip link set v{vlan} up"));
        }
    }
    let macvlan = made(lab, &format!("link {INTERFACE} name mv0 address 02:00:00:00:00:06 type macvlan"));
    if macvlan {
        lab.sh("ip addr add 10.6.0.2/24 dev mv0");
        lab.sh("ip link set mv0 up");
    }
    [vlans, macvlan]
}

/// IPv4 and UDP. The payload is the name, by which the packet is found.
fn ipv4(to: [u8; 6], address: [u8; 4], name: &str) -> Vec<u8> {
    let source = [10, address[1].max(6), 0, 1];
    let source = if address[0] == 10 { source } else { [10, 9, 0, 1] };
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2(FAR, to).ipv4(source, address, 64).udp(PORT, PORT);
    builder.write(&mut frame, name.as_bytes()).unwrap();
    frame
}

fn ipv6(to: [u8; 6], address: &str, name: &str) -> Vec<u8> {
    let source: Ipv6Addr = "fd00::1".parse().unwrap();
    let address: Ipv6Addr = address.parse().unwrap();
    let mut frame = Vec::new();
    let builder =
        PacketBuilder::ethernet2(FAR, to).ipv6(source.octets(), address.octets(), 64).udp(PORT, PORT);
    builder.write(&mut frame, name.as_bytes()).unwrap();
    frame
}

fn tagged(frame: &[u8], kind: u16, id: u16) -> Vec<u8> {
    [&frame[..12], &kind.to_be_bytes(), &id.to_be_bytes(), &frame[12..]].concat()
}

fn with_byte(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    frame
}

/// Two fragments, which hold the frame's packet between them.
fn fragments(frame: &[u8]) -> [Vec<u8>; 2] {
    const CUT: usize = 34 + 16;
    let part = |body: &[u8], more_and_offset: u16| {
        let mut part = [&frame[..34], body].concat();
        part[16..18].copy_from_slice(&(20 + body.len() as u16).to_be_bytes());
        part[20..22].copy_from_slice(&more_and_offset.to_be_bytes());
        part[24..26].copy_from_slice(&[0, 0]);
        let sum = crate::wire::sum(&part[14..34]);
        part[24..26].copy_from_slice(&sum.to_be_bytes());
        part
    };
    [part(&frame[34..CUT], 0x2000), part(&frame[CUT..], 2)]
}

fn other(to: [u8; 6], kind: EtherType, name: &str) -> Vec<u8> {
    [&to[..], &FAR, &kind.0.to_be_bytes(), name.as_bytes(), &[0; 46]].concat()
}

/// Whole frames, as a card would bring them.
fn frames() -> Vec<Vec<u8>> {
    let host = [10, 9, 0, 2];
    let vlan = VlanId::try_new(7).unwrap().value();
    let mut frames = vec![
        ipv4(NEAR, host, "<unicast>"),
        ipv4(ALL, [255, 255, 255, 255], "<broadcast>"),
        ipv4(ALL, [10, 9, 0, 255], "<subnet broadcast>"),
        ipv4([1, 0, 0x5e, 1, 2, 3], [239, 1, 2, 3], "<joined group>"),
        ipv4([1, 0, 0x5e, 9, 9, 9], [239, 9, 9, 9], "<other group>"),
        ipv4(STRANGER, host, "<other MAC>"),
        ipv4(MACVLAN, [10, 6, 0, 2], "<macvlan>"),
        with_byte(ipv4(NEAR, host, "<wrong UDP checksum>"), 40, 0x5a),
        with_byte(ipv4(NEAR, host, "<wrong IP checksum>"), 24, 0x5a),
        with_byte(with_byte(ipv4(NEAR, host, "<no UDP checksum>"), 40, 0), 41, 0),
        tagged(&ipv4(NEAR, [10, 7, 0, 2], "<VLAN>"), 0x8100, vlan),
        tagged(&ipv4(NEAR, [10, 7, 0, 2], "<other VLAN>"), 0x8100, 70),
        tagged(&tagged(&ipv4(NEAR, [10, 8, 0, 2], "<two tags>"), 0x8100, 8), OUTER, 9),
        ipv6(NEAR, "fd00::2", "<v6 unicast>"),
        ipv6([0x33, 0x33, 0, 0, 0x12, 0x34], "ff15::1234", "<v6 joined group>"),
        ipv6([0x33, 0x33, 0, 0, 0x99, 0x99], "ff15::9999", "<v6 other group>"),
        ipv6(STRANGER, "fd00::2", "<v6 other MAC>"),
        with_byte(ipv6(NEAR, "fd00::2", "<v6 wrong checksum>"), 60, 0x5a),
        other([1, 0x80, 0xc2, 0, 0, 0xe], EtherType(0x88cc), "<LLDP>"),
        other([1, 0x80, 0xc2, 0, 0, 0], EtherType(40), "<spanning tree>"),
        other(NEAR, EtherType(0x8864), "<PPPoE>"),
        other(ALL, EtherType(0x9100), "<9100>"),
    ];
    frames.extend(fragments(&ipv4(NEAR, host, "<in fragments, long enough>")));
    frames
}

/// Both IP versions, and in groups of both.
fn listen(lab: &Lab, interface: Option<&str>) -> UdpSocket {
    let socket = lab.enter(|| {
        let socket = bind("::", PORT);
        let index = netdev::index(INTERFACE).unwrap();
        let group = libc::ip_mreqn {
            imr_multiaddr: libc::in_addr { s_addr: u32::from_ne_bytes([239, 1, 2, 3]) },
            imr_address: libc::in_addr { s_addr: 0 },
            imr_ifindex: index as i32,
        };
        set(&socket, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &group);
        socket.join_multicast_v6(&"ff15::1234".parse().unwrap(), index).unwrap();
        socket
    });
    if let Some(interface) = interface {
        let name = interface.as_bytes();
        let size = name.len() as libc::socklen_t;
        // SAFETY: the name has `size` bytes.
        let code = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_BINDTODEVICE,
                name.as_ptr().cast(),
                size,
            )
        };
        assert_eq!(code, 0);
    }
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn set<T>(socket: &impl AsRawFd, level: i32, option: i32, value: &T) {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the value has `size` bytes.
    let code =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const *value).cast(), size) };
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
}

/// The name in a packet, and its length if it is longer than names are.
fn name_in(packet: &[u8]) -> Option<String> {
    let start = packet.iter().position(|byte| *byte == b'<')?;
    let end = start + packet[start..].iter().position(|byte| *byte == b'>')?;
    let name = String::from_utf8_lossy(&packet[start..=end]).into_owned();
    Some(if packet.len() > 400 { format!("{name}{}", packet.len()) } else { name })
}

fn receive(socket: &UdpSocket) -> String {
    let mut packet = vec![0; 65536];
    let length = socket.recv(&mut packet).expect("the last packet arrives");
    name_in(&packet[..length]).unwrap()
}

/// What a socket gets until the end, of which several may come, in the order of names.
fn received(socket: &UdpSocket, mut ends: usize) -> Vec<String> {
    let mut names = Vec::new();
    while ends > 0 {
        match receive(socket) {
            name if name == END => ends -= 1,
            name => names.push(name),
        }
    }
    names.sort();
    names
}

/// A listener for all frames of one interface, or of all.
fn tap(lab: &Lab, interface: Option<&str>) -> OwnedFd {
    lab.enter(|| {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: zero is a value of every field of this plain C struct.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = interface.map_or(0, |name| netdev::index(name).unwrap() as i32);
        let size = size_of_val(&address) as libc::socklen_t;
        // SAFETY: numbers, and an address of `size` bytes; the descriptor is new and ours alone.
        unsafe {
            let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(socket >= 0);
            let socket = OwnedFd::from_raw_fd(socket);
            assert_eq!(libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size), 0);
            set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &1i32);
            set(
                &socket,
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                &libc::timeval { tv_sec: PATIENCE.as_secs() as _, tv_usec: 0 },
            );
            socket
        }
    })
}

/// Each frame that came in: its name, where, whose it is to the kernel, and the tag that lies beside it.
fn tapped(lab: &Lab, tap: &OwnedFd) -> Vec<String> {
    let mut all = Vec::new();
    let mut frame = vec![0; 65536];
    let mut left = 2;
    while left > 0 {
        // SAFETY: zero is a value of every field of these plain C structs.
        let (mut from, mut message): (libc::sockaddr_ll, libc::msghdr) = unsafe { std::mem::zeroed() };
        let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
        let mut control = [0u64; 16];
        (message.msg_name, message.msg_namelen) = ((&raw mut from).cast(), size_of_val(&from) as u32);
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        (message.msg_control, message.msg_controllen) =
            (control.as_mut_ptr().cast(), size_of_val(&control) as _);
        // SAFETY: address, buffer and room for what lies beside are of the sizes given.
        let length = unsafe { libc::recvmsg(tap.as_raw_fd(), &raw mut message, 0) };
        let length = usize::try_from(length).expect("the last frame is seen");
        // SAFETY: the only thing beside is what was asked for; `control` outlives it.
        let beside: libc::tpacket_auxdata = unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            assert!(!header.is_null());
            std::ptr::read_unaligned(libc::CMSG_DATA(header).cast())
        };
        let has_tag = beside.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
        let tag = if has_tag { format!(" tag {}", beside.tp_vlan_tci) } else { String::new() };
        let Some(name) = name_in(&frame[..length]).filter(|_| from.sll_pkttype != OUTGOING) else { continue };
        let interface = lab.enter(|| netdev::name(from.sll_ifindex as u32));
        // Copies of broadcasts come to a macvlan at a time of its own.
        if interface.as_deref() == Some("mv0") && from.sll_pkttype != libc::PACKET_HOST {
            continue;
        }
        // The end is sent twice: its second copy comes behind all copies of what came before.
        left -= usize::from(name == END && interface.as_deref() == Some(INTERFACE));
        all.push(format!("{name} {} {}{tag}", interface.unwrap_or_default(), from.sll_pkttype));
    }
    all.sort();
    all
}

/// What the host's sockets get of whole frames.
fn of_frames(lab: &Lab, interface: Option<&str>) -> Vec<String> {
    let socket = listen(lab, interface);
    let wire = lab.enter_sender(|| Wire::open("ww1"));
    wire.send(&frames());
    wire.send(&[ipv4(NEAR, [10, 9, 0, 2], END)]);
    received(&socket, 1)
}

fn of_taps(lab: &Lab, interface: Option<&str>) -> Vec<String> {
    let tap = tap(lab, interface);
    let wire = lab.enter_sender(|| Wire::open("ww1"));
    wire.send(&frames());
    wire.send(&[ipv4(NEAR, [10, 9, 0, 2], END), ipv4(NEAR, [10, 9, 0, 2], END)]);
    tapped(lab, &tap)
}

/// What another host's stack sends: with checksums left to the card, fragments, segments to be cut.
fn of_stack(lab: &Lab) -> Vec<String> {
    let socket = listen(lab, None);
    let long = |name: &str, length: usize| [name.as_bytes(), &vec![0; length - name.len()][..]].concat();
    lab.sender_sh("ip neigh flush dev ww1");
    // One packet waits while the kernel resolves an address. Later ones might overtake it.
    let asked = ["<asked for by ARP>", "<asked for by neighbour discovery>", "<link-local>"];
    lab.enter_sender(|| {
        let index = netdev::index("ww1").unwrap();
        let address = |to: &str| -> SocketAddrV6 { format!("[{to}]:{PORT}").parse().unwrap() };
        let hosts = ["::ffff:10.9.0.2".into(), "fd00::2".into(), format!("fe80::ff:fe00:2%{index}")];
        let both = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
        for (host, name) in hosts.iter().zip(asked) {
            both.send_to(name.as_bytes(), address(host)).unwrap();
            assert_eq!(receive(&socket), name);
        }
        for (host, name) in hosts.iter().zip(asked) {
            both.send_to(&long(name, 4000), address(host)).unwrap();
        }
        let sender = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        sender.set_broadcast(true).unwrap();
        set(&sender, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &u32::from_ne_bytes([10, 9, 0, 1]));
        for (to, name) in
            [("10.9.0.255", "<broadcast>"), ("239.1.2.3", "<joined group>"), ("239.9.9.9", "<other group>")]
        {
            sender.send_to(name.as_bytes(), (to, PORT)).unwrap();
            sender.send_to(&long(name, 4000), (to, PORT)).unwrap();
        }
        set(&both, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, &index);
        for (to, name) in [("ff15::1234", "<v6 joined group>"), ("ff15::9999", "<v6 other group>")] {
            both.send_to(name.as_bytes(), address(to)).unwrap();
            both.send_to(&long(name, 4000), address(to)).unwrap();
        }
        // Segments of one call.
        set(&sender, libc::IPPROTO_UDP, libc::UDP_SEGMENT, &1000);
        let parts: Vec<u8> = (0..5).flat_map(|_| long("<segment>", 1000)).collect();
        sender.send_to(&parts, ("10.9.0.2", PORT)).unwrap();
        for host in &hosts {
            both.send_to(END.as_bytes(), address(host)).unwrap();
        }
    });
    let mut names = received(&socket, asked.len());
    names.extend(asked.map(String::from));
    names.sort();
    names
}

/// Bytes that arrive by TCP in either direction, to an address.
fn of_tcp(lab: &Lab, to: &str) -> String {
    const BYTES: usize = 1_000_000;
    let listener = lab.enter(|| TcpListener::bind((to, 0)).unwrap());
    let port = listener.local_addr().unwrap().port();
    let sent: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    let echo = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; BYTES];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let mut stream = lab.enter_sender(|| TcpStream::connect((to, port)).unwrap());
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&sent).unwrap();
    let mut back = vec![0; BYTES];
    stream.read_exact(&mut back).unwrap();
    echo.join().unwrap();
    assert!(back == sent);
    format!("{to}: {BYTES}")
}

/// Frames with a tag that is not among their bytes, as cards and the other end of a pair hand them over.
fn of_cards_tag(lab: &Lab) -> Vec<String> {
    const TAG: i32 = 7;
    let tap = tap(lab, Some(INTERFACE));
    lab.enter_sender(|| {
        let line = |code, register: u8, number| {
            let mut line = libbpf_sys::bpf_insn { code, imm: number, ..Default::default() };
            line.set_dst_reg(register);
            line
        };
        let push = libbpf_sys::BPF_FUNC_skb_vlan_push as i32;
        let code = [
            line(0xb7, 2, i32::from(0x8100_u16.to_be())),
            line(0xb7, 3, TAG),
            line(0x85, 0, push),
            line(0xb7, 0, 0),
            line(0x95, 0, 0),
        ];
        // SAFETY: names end in NUL, and there are as many instructions; the descriptor is new and ours alone.
        let program = unsafe {
            let (name, none) = (c"tag".as_ptr(), std::ptr::null_mut());
            let kind = libbpf_sys::BPF_PROG_TYPE_SCHED_CLS;
            let program = libbpf_sys::bpf_prog_load(kind, name, name, code.as_ptr(), code.len() as u64, none);
            assert!(program >= 0);
            OwnedFd::from_raw_fd(program)
        };
        let port = Port::Interface(netdev::index("ww1").unwrap());
        let _link = Plane::TC_EGRESS.attach(program.as_fd(), port, Joining::default()).unwrap();
        let host = [10, 9, 0, 2];
        let frames = [ipv4(NEAR, host, "<tagged>"), ipv6(NEAR, "fd00::2", "<v6 tagged>")];
        Wire::open("ww1").send(&[&frames[..], &[ipv4(NEAR, host, END), ipv4(NEAR, host, END)]].concat());
    });
    tapped(lab, &tap)
}

/// All that the host receives.
fn everything(lab: &Lab) -> Vec<(&'static str, Vec<String>)> {
    vec![
        ("frames", of_frames(lab, None)),
        ("frames, to a socket of the interface", of_frames(lab, Some(INTERFACE))),
        ("frames, seen on the interface", of_taps(lab, Some(INTERFACE))),
        ("frames, seen on all interfaces", of_taps(lab, None)),
        ("sent by a stack", of_stack(lab)),
        ("TCP", ["10.9.0.2", "fd00::2"].map(|to| of_tcp(lab, to)).into()),
        ("a tag beside the frame", of_cards_tag(lab)),
    ]
}

#[test]
fn every_plane_delivers_what_the_host_receives_without_one() {
    let Some(lab) = Lab::new() else { return };
    let [vlans, macvlan] = furnish(&lab);
    let alone = everything(&lab);
    // What is compared with is no empty list.
    let whole: BTreeSet<&str> = alone[0].1.iter().map(String::as_str).collect();
    let mut expected = BTreeSet::from([
        "<unicast>",
        "<broadcast>",
        "<subnet broadcast>",
        "<joined group>",
        "<no UDP checksum>",
        "<v6 unicast>",
        "<v6 joined group>",
        "<in fragments, long enough>",
    ]);
    expected.extend(["<VLAN>", "<two tags>"].into_iter().filter(|_| vlans));
    expected.extend(["<macvlan>"].into_iter().filter(|_| macvlan));
    assert_eq!(whole, expected);
    assert_eq!(alone[4].1.len(), 3 * 2 + 3 * 2 + 5, "{:?}", alone[4].1);
    assert!(alone[6].1[0].ends_with("tag 7"), "{:?}", alone[6].1);
    for plane in ["xdp-native", "xdp-generic", "tc-ingress", "af-packet", "af-xdp"] {
        let carrier = match plane {
            "af-packet" | "af-xdp" => Some(Carrier::of(&lab, plane, "")),
            _ => {
                lab.attach(&format!("--plane {plane}"));
                None
            }
        };
        for ((kind, with), (_, without)) in everything(&lab).into_iter().zip(&alone) {
            assert_eq!(&with, without, "{plane}: {kind}");
        }
        lab.ok(&format!("detach --interface {INTERFACE}"));
        if let Some(carrier) = carrier {
            assert_eq!(carrier.end().0, Some(0), "{plane}");
        }
    }
}
