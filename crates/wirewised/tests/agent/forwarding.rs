// SPDX-License-Identifier: Apache-2.0
//! A router between two hosts: what it forwards by itself, and what it leaves to the stack.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use crate::carrier::wait;
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, Namespace, bundle, variant};
use crate::quiet;
use crate::steering::{Beyond, OUT, PLANES, class_of, outcome};
use crate::wire::{NEAR, Wire, ipv4};

const SERVERS: [&str; 2] = ["10.8.0.2", "fd00:8::2"];
/// Hosts that say which groups they are in are not counted.
const HOSTS: &str = "allow: {prefixes: ['fe80::/10', '::/128']}";
const ALL: &str = "{benign: forward, attack: {action: forward, dscp: AF41}}";

/// The lab's sender is a client, its receiver the router, and behind `OUT` is a server.
struct Router {
    lab: Lab,
    beyond: Beyond,
}

impl Router {
    fn new() -> Option<Self> {
        let lab = Lab::new()?;
        let beyond = Beyond::new(&lab);
        lab.whole_packets();
        for (namespace, interface) in [(0, "ww1"), (1, INTERFACE), (1, OUT), (2, "far0")] {
            let conf = format!("net.ipv6.conf.{interface}");
            // Addresses are used at once: nobody asks whether others have them.
            let commands = [
                format!("sysctl -qw net.ipv6.conf.all.accept_dad=0 {conf}.accept_dad=0"),
                format!("sysctl -qw {conf}.disable_ipv6=0"),
            ];
            for command in commands {
                match namespace {
                    0 => lab.sender_sh(&command),
                    1 => lab.sh(&command),
                    _ => beyond.namespace.sh(&command),
                };
            }
        }
        for command in [
            "ip addr add fd00:9::1/64 dev ww1 nodad",
            "ip route add default via 10.9.0.2",
            "ip -6 route add default via fd00:9::2",
        ] {
            lab.sender_sh(command);
        }
        for command in [
            "ip addr add 10.8.0.2/24 dev far0",
            "ip addr add fd00:8::2/64 dev far0 nodad",
            "ip route add default via 10.8.0.1",
            "ip -6 route add default via fd00:8::1",
        ] {
            beyond.namespace.sh(command);
        }
        lab.sh(&format!("ip addr add fd00:9::2/64 dev {INTERFACE} nodad"));
        lab.sh(&format!("ip addr add 10.8.0.1/24 dev {OUT}"));
        lab.sh(&format!("ip addr add fd00:8::1/64 dev {OUT} nodad"));
        lab.sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1");
        Some(Self { lab, beyond })
    }

    /// Sends to the server, and returns how many it got.
    fn send(&self, server: &str, payload: usize, count: usize) -> usize {
        self.exchange(server, payload, count, |_| ()).0
    }

    /// As `send`, from a socket that is changed before; with the socket.
    fn exchange(
        &self,
        server: &str,
        payload: usize,
        count: usize,
        change: impl FnOnce(&UdpSocket) + Send,
    ) -> (usize, UdpSocket) {
        let there = self.beyond.namespace.enter(|| UdpSocket::bind((server, 0)).unwrap());
        quiet::make_room(&there);
        let client = if server.contains(':') { "fd00:9::1" } else { "10.9.0.1" };
        let here = self.lab.enter_sender(|| UdpSocket::bind((client, 0)).unwrap());
        change(&here);
        here.connect(there.local_addr().unwrap()).unwrap();
        let message: Vec<u8> = (0..payload).map(|byte| byte as u8).collect();
        for _ in 0..count {
            // An answer of ICMP to one may come before the next.
            let _ = here.send(&message);
        }
        let mut buffer = [0; 4096];
        let mut arrived = 0;
        while arrived < count
            && quiet::receive(&there, &mut buffer).is_some_and(|length| buffer[..length] == message)
        {
            arrived += 1;
        }
        (arrived, here)
    }

    fn policy(&self, classes: &str) {
        self.lab.policy(&format!("classes: {classes}\n{HOSTS}"));
    }

    /// Packets that the router's stack has forwarded.
    fn by_the_stack(&self) -> u64 {
        counter(&|command| self.lab.sh(command), "Ip: ", "ForwDatagrams")
            + counter6(&self.lab, "Ip6OutForwDatagrams")
    }

    /// The router knows its neighbours, and they it. The kernel may take seconds to ask again for one that did not answer at once.
    fn meet(&self) {
        for server in SERVERS {
            wait(server, || self.send(server, BENIGN, 1) == 1);
        }
    }
}

/// A number of /proc/net/snmp.
fn counter(sh: &dyn Fn(&str) -> String, protocol: &str, name: &str) -> u64 {
    let text = sh("cat /proc/net/snmp");
    let lines: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(protocol)).collect();
    let at = lines[0].split(' ').position(|word| word == name).unwrap();
    lines[1].split(' ').nth(at).unwrap().parse().unwrap()
}

fn counter6(lab: &Lab, name: &str) -> u64 {
    let text = lab.sh("cat /proc/net/snmp6");
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().parse().unwrap()
}

fn outcomes(lab: &Lab, name: &str) -> u64 {
    outcome(lab, 0, name) + outcome(lab, 1, name)
}

#[test]
fn packets_go_where_the_routes_say() {
    let Some(router) = Router::new() else { return };
    let lab = &router.lab;
    router.meet();
    router.policy(ALL);
    for plane in PLANES {
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        let before = router.by_the_stack();
        router.beyond.wire.clear();
        for server in SERVERS {
            assert_eq!(router.send(server, ATTACK, 3), 3, "{plane}, {server}");
            assert_eq!(router.send(server, BENIGN, 2), 2, "{plane}, {server}");
        }
        assert_eq!((outcomes(lab, "acted"), outcomes(lab, "not-acted")), (10, 0), "{plane}");
        let arrived = router.beyond.wire.received();
        assert_eq!(arrived.len(), 10, "{plane}");
        for frame in &arrived {
            // Both headers are right, with one hop less.
            let class = class_of(frame);
            assert_eq!(class >> 2, if frame.len() > ATTACK { 34 } else { 0 }, "{plane}");
            assert_eq!(if frame[14] >> 4 == 4 { frame[22] } else { frame[21] }, 63, "{plane}");
        }
        // Fragments, which the server puts together.
        assert_eq!((router.send(SERVERS[0], 3000, 2), router.send(SERVERS[1], 3000, 2)), (2, 2), "{plane}");
        assert_eq!((outcomes(lab, "acted"), router.by_the_stack()), (22, before), "{plane}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn the_stack_does_what_is_more_than_forwarding() {
    let Some(router) = Router::new() else { return };
    let lab = &router.lab;
    router.meet();
    router.policy(ALL);
    for plane in PLANES {
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        let seen = || (outcomes(lab, "acted"), outcomes(lab, "not-acted"));
        let answers = |name: &str| counter(&|command| lab.sender_sh(command), "Icmp: ", name);
        // For the router itself.
        assert_eq!((lab.send(1000, ATTACK, 2), seen()), (2, (0, 2)), "{plane}");
        // At the end of its hops: the router says so.
        let before = answers("InTimeExcds");
        let (arrived, _) = router.exchange(SERVERS[0], ATTACK, 1, |socket| socket.set_ttl(1).unwrap());
        assert_eq!((arrived, seen(), answers("InTimeExcds")), (0, (0, 3), before + 1), "{plane}");
        let (arrived, _) = router.exchange(SERVERS[1], ATTACK, 1, |socket| hops(socket, 1));
        assert_eq!((arrived, seen()), (0, (0, 4)), "{plane}");
        // Longer than the route takes, and not to be taken apart.
        lab.sh(&format!("ip link set {OUT} mtu 1300"));
        let before = answers("InDestUnreachs");
        let (arrived, _) = router.exchange(SERVERS[0], 1400, 1, |_| ());
        assert_eq!((arrived, seen(), answers("InDestUnreachs")), (0, (0, 5), before + 1), "{plane}");
        lab.sh(&format!("ip link set {OUT} mtu 1500"));
        lab.sender_sh("ip route flush cache");
        // Whom nobody knows yet: the stack asks, and sends it.
        lab.sh(&format!("ip neigh flush dev {OUT}"));
        assert_eq!((router.send(SERVERS[0], ATTACK, 1), seen()), (1, (0, 6)), "{plane}");
        assert_eq!((router.send(SERVERS[0], ATTACK, 1), seen()), (1, (1, 6)), "{plane}");
        // What is not for this host, and what has a tag, is none of it.
        let near = lab.enter_sender(|| Wire::open("ww1"));
        let mut frame = ipv4(1000, ATTACK, 0);
        assert_eq!(&frame[..6], &NEAR);
        frame[5] ^= 1;
        near.send(&[frame]);
        assert_eq!(seen(), (1, 7), "{plane}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

fn hops(socket: &UdpSocket, hops: i32) {
    // SAFETY: the option is an int, which outlives the call.
    let code = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_UNICAST_HOPS,
            (&raw const hops).cast(),
            4,
        )
    };
    assert_eq!(code, 0);
}

#[test]
fn an_attack_is_dropped_and_the_rest_forwarded() {
    let Some(router) = Router::new() else { return };
    let lab = &router.lab;
    router.meet();
    router.policy("{benign: forward, attack: drop}");
    for plane in PLANES.into_iter().chain(["tc-ingress --clsact --offloads off"]) {
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        for server in SERVERS {
            assert_eq!((router.send(server, BENIGN, 4), router.send(server, ATTACK, 3)), (4, 0), "{plane}");
        }
        assert_eq!((outcome(lab, 0, "acted"), outcome(lab, 1, "drop")), (8, 6), "{plane}");
        // Observing, the stack does all of it.
        let before = router.by_the_stack();
        lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --mode observe"));
        assert_eq!(
            (router.send(SERVERS[0], BENIGN, 4), router.send(SERVERS[0], ATTACK, 3)),
            (4, 3),
            "{plane}"
        );
        assert_eq!((outcome(lab, 0, "would-act"), router.by_the_stack() - before), (4, 7), "{plane}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

/// For what is missing there is one clear line; packets pass to the stack meanwhile.
#[test]
fn run_and_doctor_say_what_forwarding_lacks() {
    let Some(router) = Router::new() else { return };
    let lab = &router.lab;
    router.meet();
    router.policy(ALL);
    let off = |version: &str, value: u32| {
        lab.sh(&format!("sysctl -qw net.{version}.conf.{INTERFACE}.forwarding={value}"))
    };
    off("ipv4", 0);
    off("ipv6", 0);
    let said = "ww0 does not forward IPv4 and IPv6: such packets pass to the stack";
    let run =
        format!("run --bundle b.wirewise --interface {INTERFACE} --plane xdp-native --policy p.yaml --yes");
    let warned = String::from_utf8(lab.run(&format!("{run} --mode enforce")).stderr).unwrap();
    assert!(warned.contains(said), "{warned}");
    assert!(
        warned.contains("`sysctl -w net/ipv4/conf/ww0/forwarding=1 net/ipv6/conf/ww0/forwarding=1`"),
        "{warned}"
    );
    assert_eq!((router.send(SERVERS[0], ATTACK, 2), outcome(lab, 1, "not-acted")), (0, 2));
    let doctor = || {
        let found = lab.run(&format!("doctor --interface {INTERFACE} --plane xdp-native"));
        String::from_utf8(found.stdout).unwrap()
    };
    assert!(doctor().contains(said), "{}", doctor());
    off("ipv4", 1);
    off("ipv6", 1);
    assert!(doctor().contains("attack is forwarded"), "{}", doctor());
    // An interface that comes later is used when the policy is given again.
    let third = Namespace::new(format!("{}-3", lab.namespaces()[1]));
    third.sh(&format!("ip link add far1 type veth peer name late0 netns {}", lab.namespaces()[1]));
    let found = doctor();
    assert!(!found.contains("late0"), "its other end has no program: {found}");
    lab.sh(&format!("ip link set {INTERFACE} address 02:00:00:00:00:03"));
    lab.sender_sh("ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:03 dev ww1");
    assert!(doctor().contains("ww0 has another Ethernet address than before"), "{}", doctor());
    assert_eq!((router.send(SERVERS[0], ATTACK, 2), outcome(lab, 1, "not-acted")), (2, 4));
    lab.ok(&run);
    assert_eq!((router.send(SERVERS[0], ATTACK, 2), outcome(lab, 1, "acted")), (2, 2));
}

#[test]
fn a_plane_that_cannot_forward_says_so() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: forward}");
    for (plane, said) in [
        (
            "--plane tc-egress",
            "tc-egress cannot do forward; planes that can: xdp-native, xdp-generic, tc-ingress",
        ),
        ("--plane tc-ingress --outgoing", "tc-egress cannot do forward"),
        ("--plane af-xdp", "af-xdp cannot do forward"),
    ] {
        let error = lab.error(
            &format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes {plane}"),
            2,
        );
        assert!(error.contains(said), "{error}");
        lab.assert_untouched();
    }
}

/// What goes between two interfaces, judged at both: stations of one side are known at the other.
#[test]
fn frames_go_between_ports_by_what_was_seen() {
    let Some(lab) = Lab::new() else { return };
    let beyond = Beyond::new(&lab);
    let (near, far) = (lab.enter_sender(|| Wire::open("ww1")), &beyond.wire);
    let (client, server) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]);
    let between = |from: [u8; 6], to: [u8; 6], payload: usize| {
        let mut frame = ipv4(1000, payload, 0);
        frame[..6].copy_from_slice(&to);
        frame[6..12].copy_from_slice(&from);
        frame
    };
    let rule = format!("{{forward: {{ports: [{INTERFACE}, {OUT}]}}, dscp: AF41}}");
    for plane in PLANES {
        lab.policy(&format!("classes: {{benign: {rule}, attack: drop}}"));
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        lab.ok(&format!(
            "run --bundle b.wirewise --interface {OUT} --plane {plane} --policy p.yaml --mode enforce --yes"
        ));
        let steered = |interface: &str| {
            let stats = lab.json(&format!("stats --interface {interface}"));
            let count = |name: &str| stats["classes"][0]["outcomes"][name]["packets"].as_u64().unwrap();
            (count("acted"), count("not-acted"))
        };
        near.clear();
        far.clear();
        // Nobody has seen the server; when it has spoken, its frames find the client, and the client's the server.
        near.send(&[between(client, server, BENIGN)]);
        assert_eq!((far.received().len(), steered(INTERFACE)), (0, (0, 1)), "{plane}");
        far.send(&[between(server, client, BENIGN)]);
        let arrived = near.received();
        assert_eq!((arrived.len(), steered(OUT)), (1, (1, 0)), "{plane}");
        assert_eq!(
            (class_of(&arrived[0]) >> 2, &arrived[0][..12]),
            (34, &between(server, client, BENIGN)[..12])
        );
        near.send(&[
            between(client, server, BENIGN),
            between(client, server, ATTACK),
            between(client, server, BENIGN),
        ]);
        assert_eq!((far.received().len(), steered(INTERFACE)), (2, (2, 1)), "{plane}");
        // What is for this host, for all or for who sent it, and what pretends to be this host, is not forwarded and teaches nothing.
        let (own, all) = ([2, 0, 0, 0, 0, 2], [0xff; 6]);
        near.send(&[
            between(client, own, BENIGN),
            between(client, all, BENIGN),
            between(server, client, BENIGN),
        ]);
        far.send(&[between(own, client, BENIGN)]);
        near.send(&[between(client, own, BENIGN)]);
        assert_eq!((far.received().len(), steered(INTERFACE)), (0, (2, 5)), "{plane}");
        // A station that moved is found where it speaks.
        far.send(&[between(server, client, BENIGN)]);
        near.clear();
        near.send(&[between(client, server, BENIGN)]);
        assert_eq!(far.received().len(), 1, "{plane}");
        lab.ok(&format!("detach --interface {OUT}"));
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn a_station_may_be_fixed_to_a_port() {
    let Some(lab) = Lab::new() else { return };
    let beyond = Beyond::new(&lab);
    let near = lab.enter_sender(|| Wire::open("ww1"));
    let mut frame = ipv4(1000, ATTACK, 0);
    frame[5] = 7;
    let fixed =
        |more: &str| format!("classes: {{attack: {{forward: {{ports: [{INTERFACE}, {OUT}]{more}}}}}}}");
    for plane in PLANES {
        lab.policy(&fixed(&format!(", static: {{'02:00:00:00:00:07': {OUT}}}")));
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        beyond.wire.clear();
        near.send(&[frame.clone(), crate::wire::ipv6(1000, ATTACK)]);
        near.send(&[crate::wire::tagged(&frame)]);
        assert_eq!((beyond.wire.received().len(), outcome(&lab, 1, "not-acted")), (1, 2), "{plane}");
        // A policy without it forgets it; the mode changes all the same.
        lab.policy(&fixed(""));
        lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes"));
        near.send(&[frame.clone()]);
        assert_eq!((beyond.wire.received().len(), outcome(&lab, 1, "not-acted")), (0, 3), "{plane}");
        let found =
            lab.ok(&format!("doctor --interface {INTERFACE} --plane {}", plane.split(' ').next().unwrap()));
        assert!(found.contains("attack is forwarded"), "{found}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
    // Natively a port has to send what XDP gives it.
    lab.sh("ip link add idle0 type veth peer name idle1");
    lab.policy(&format!("classes: {{attack: {{forward: {{ports: [{INTERFACE}, idle0]}}}}}}"));
    let native = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes");
    assert!(lab.error(&native, 3).contains("idle0 would drop all that XDP sends by it"));
    lab.assert_untouched();
    lab.policy(&format!("classes: {{attack: {{forward: {{ports: [{OUT}, lo]}}}}}}"));
    let run =
        format!("run --bundle b.wirewise --interface {INTERFACE} --plane tc-ingress --policy p.yaml --yes");
    assert!(lab.error(&run, 2).contains("ww0, whose packets are judged, is none of the ports"));
    lab.policy(&format!("classes: {{attack: {{forward: {{ports: [{INTERFACE}, nowhere]}}}}}}"));
    assert!(lab.error(&run, 2).contains("policy: forward: no interface 'nowhere'"));
    lab.assert_untouched();
}

#[test]
fn a_split_model_forwards_and_an_attachment_learns_it() {
    let Some(router) = Router::new() else { return };
    let lab = &router.lab;
    router.meet();
    lab.write("b.wirewise", &bundle("first", &variant("CHAIN=16")));
    for plane in PLANES {
        lab.policy("classes: {attack: drop}");
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        assert_eq!(router.send(SERVERS[0], ATTACK, 2), 0, "{plane}");
        // Loaded again for what the policy asks for now; by the routes, then between ports.
        router.policy(ALL);
        let run = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes");
        assert_eq!(lab.json(&run)["action"], "adopted");
        assert_eq!((router.send(SERVERS[0], ATTACK, 2), outcome(lab, 1, "acted")), (2, 2), "{plane}");
        router.policy(&format!("{{attack: {{forward: {{ports: [{INTERFACE}, {OUT}]}}}}}}"));
        assert_eq!(lab.json(&run)["status"]["classes"][1]["action"], "forward between ww0, out0");
        let before = router.by_the_stack();
        assert_eq!((router.send(SERVERS[0], ATTACK, 2), outcome(lab, 1, "not-acted")), (2, 2), "{plane}");
        assert_eq!(router.by_the_stack(), before + 2, "{plane}");
        // And back to what ran before, with its policy.
        lab.json("rollback");
        assert_eq!((router.send(SERVERS[0], ATTACK, 2), outcome(lab, 1, "acted")), (2, 4), "{plane}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}
