// SPDX-License-Identifier: Apache-2.0
//! Classes whose packets go to other CPUs or to a socket, or of which there are copies.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::{Child, Output, Stdio};
use std::time::Instant;

use test_needs::{Need, skip};
use wirewise_capture::{Packet, Reader};
use wirewised::kernel;

use crate::carrier::{Carrier, wait};
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, RECEIVER, SENDER, bind, bundle, variant};
use crate::quiet::PATIENCE;
use crate::steering::{Beyond, attacks, class_of, outcome, sender};
use crate::user_space::{Far, SECOND};
use crate::wire::{FAR, NEAR, Wire, untagged};

const AT_XDP: [&str; 2] = ["xdp-native", "xdp-generic --offloads off"];

/// A pair of interfaces leaves checksums out, and tells in the socket buffer, which a packet loses on its way to another CPU.
fn sums_are_whole(lab: &Lab) {
    lab.sender_sh("ethtool -K ww1 tx-checksumming off");
}

/// Killed with the guard, so that a test that fails leaves none behind.
pub struct Receiving(Option<Child>);

impl Receiving {
    pub fn start(lab: &Lab, arguments: &str) -> Self {
        let mut command = lab.command(arguments);
        Self(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    pub fn end(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The CPU whose stack brought the socket its last packet.
fn cpu_of(socket: &UdpSocket) -> i32 {
    let (mut cpu, mut length) = (-1i32, 4);
    // SAFETY: the option is an int; it and its length outlive the call.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_INCOMING_CPU,
            (&raw mut cpu).cast(),
            &raw mut length,
        )
    };
    assert_eq!(code, 0);
    cpu
}

#[test]
fn a_class_goes_up_the_stack_of_another_cpu() {
    let Some(lab) = Lab::new() else { return };
    if kernel::online_cpus().unwrap().len() < 2 {
        skip(Need::Cpus, "packets go to another one");
        return;
    }
    sums_are_whole(&lab);
    for plane in AT_XDP {
        for cpu in [0, 1] {
            lab.policy(&format!("classes: {{attack: {{redirect: {{cpu: {cpu}}}, dscp: EF}}}}"));
            lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
            let socket = lab.enter(|| bind(RECEIVER, 1000));
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            // The packets of a pair of interfaces stay on the CPU of who sends them.
            for from in [0, 1] {
                let near = lab.enter_sender(|| UdpSocket::bind((SENDER, 0)).unwrap());
                // Of others it is not noted.
                socket.connect(near.local_addr().unwrap()).unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        kernel::pin_to(from).unwrap();
                        near.send_to(&[0; ATTACK], (RECEIVER, 1000)).unwrap();
                    });
                });
                let mut data = [0; 2048];
                assert_eq!(socket.recv(&mut data).unwrap(), ATTACK, "{plane}");
                assert_eq!(cpu_of(&socket), cpu, "{plane}, from {from}");
            }
            assert_eq!(outcome(&lab, 1, "acted"), 2, "{plane}");
            lab.ok(&format!("detach --interface {INTERFACE}"));
        }
    }
}

#[test]
fn a_running_policy_finds_other_cpus_and_flows_keep_theirs() {
    let Some(lab) = Lab::new() else { return };
    if kernel::online_cpus().unwrap().len() < 2 {
        skip(Need::Cpus, "packets go to another one");
        return;
    }
    sums_are_whole(&lab);
    lab.policy("classes: {attack: {redirect: {cpu: [0]}}}");
    lab.attach("--plane xdp-native --policy p.yaml --mode enforce");
    // In place: the program does this kind of thing already.
    lab.policy("classes: {attack: {redirect: {cpu: [0, 1]}}}");
    lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes"));
    let socket = lab.enter(|| bind(RECEIVER, 1000));
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut seen = [0; 2];
    for _ in 0..32 {
        let near = lab.enter_sender(|| UdpSocket::bind((SENDER, 0)).unwrap());
        socket.connect(near.local_addr().unwrap()).unwrap();
        let mut cpus = Vec::new();
        for _ in 0..3 {
            near.send_to(&[0; ATTACK], (RECEIVER, 1000)).unwrap();
            socket.recv(&mut [0; 2048]).unwrap();
            cpus.push(cpu_of(&socket));
        }
        assert!(cpus.iter().all(|cpu| *cpu == cpus[0]), "{cpus:?}");
        seen[cpus[0] as usize] += 1;
    }
    assert!(seen.iter().all(|flows| *flows > 2), "{seen:?}");
}

#[test]
fn a_class_goes_to_a_socket_and_passes_where_there_is_none() {
    let Some(lab) = Lab::new() else { return };
    let near = sender(&lab);
    lab.policy("classes: {attack: {redirect: {socket: 0}, dscp: AF41}}");
    for plane in AT_XDP {
        lab.attach(&format!("--plane {plane} --policy p.yaml --mode enforce"));
        assert_eq!((lab.send(1000, ATTACK, 2), outcome(&lab, 1, "not-acted")), (2, 2), "{plane}");
        let receive = format!("receive --interface {INTERFACE} --count 5 --write got.pcap --json");
        let running = Receiving::start(&lab, &receive);
        // It is there when a packet is no longer passed.
        let end = Instant::now() + PATIENCE;
        while lab.send(1000, ATTACK, 1) == 1 {
            assert!(Instant::now() < end, "{plane}");
        }
        assert!(
            lab.error(receive.trim_end_matches("--json"), 1).contains("another AF_XDP socket"),
            "{plane}"
        );
        near.send(&attacks());
        let ended = running.end();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let mut capture = Reader::open(&lab.path("got.pcap")).unwrap();
        let mut frames = Vec::new();
        while let Some(Packet { frame, .. }) = capture.next_packet().unwrap() {
            frames.push(frame.to_vec());
        }
        // The first is the one that showed it to be there.
        assert_eq!(frames.len(), 5, "{plane}");
        for (before, after) in attacks().iter().zip(&frames[1..]) {
            assert_eq!(class_of(after), 34 << 2 | class_of(before) & 3, "{plane}");
            let (before, after) = (untagged(before), untagged(after));
            assert_eq!((&before[..14], before.len()), (&after[..14], after.len()), "{plane}");
        }
        // The socket is closed, so they pass again; others did all the time.
        assert_eq!((lab.send(1000, ATTACK, 2), lab.send(1000, BENIGN, 2)), (2, 2), "{plane}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml");
    let error = lab.error(&format!("receive --interface {INTERFACE} --write got.pcap"), 2);
    assert!(error.contains("the policy redirects no class to a socket"), "{error}");
}

#[test]
fn a_sample_is_copied_and_the_packets_go_on() {
    let Some(lab) = Lab::new() else { return };
    let (beyond, near) = (Beyond::new(&lab), sender(&lab));
    for (rate, arrive) in [("1", 100..=100), ("1/4", 5..=60)] {
        lab.policy(&format!("classes: {{attack: {{mirror: {{interface: out0, rate: {rate}}}, dscp: EF}}}}"));
        lab.attach("--plane tc-ingress --offloads off --policy p.yaml --mode enforce");
        beyond.wire.clear();
        assert_eq!(lab.send(1000, ATTACK, 100), 100);
        let copies = beyond.wire.received().len();
        assert!(arrive.contains(&copies), "{rate}: {copies}");
        assert_eq!((lab.send(1000, BENIGN, 3), beyond.wire.received().len()), (3, 0));
        lab.ok(&format!("detach --interface {INTERFACE}"));
    }
    // The copy is of the packet as it came, also of one that goes elsewhere itself.
    lab.policy("classes: {attack: {mirror: {interface: out0}, action: bounce, dscp: EF}}");
    lab.attach("--plane tc-ingress --offloads off --policy p.yaml --mode enforce");
    beyond.wire.clear();
    near.clear();
    near.send(&attacks());
    let (copies, back) = (beyond.wire.received(), near.received());
    assert_eq!((copies.len(), back.len()), (5, 5));
    for (before, (copy, back)) in attacks().iter().zip(copies.iter().zip(&back)) {
        assert_eq!(untagged(before), untagged(copy));
        assert_eq!(class_of(back), 46 << 2 | class_of(before) & 3);
    }
    // No copy: the packets go on all the same.
    lab.sh("ip link delete out0");
    near.send(&attacks());
    assert_eq!((near.received().len(), outcome(&lab, 1, "acted")), (5, 10));
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let Some(lab) = Lab::new() else { return };
    let _beyond = Beyond::new(&lab);
    let refused = |class: &str, arguments: &str, said: &str| {
        lab.policy(&format!("classes: {{attack: {class}}}"));
        let run =
            format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes {arguments}");
        let error = lab.error(&run, 2);
        assert!(error.contains(said), "{class} {arguments}: {error}");
        lab.assert_untouched();
    };
    refused("{redirect: {cpu: 9999}}", "", "policy: attack: redirect: there is no CPU 9999; online are 0, ");
    refused(
        "{redirect: {cpu: 0}}",
        "--plane tc-ingress",
        "tc-ingress cannot do cpu; planes that can: xdp-native",
    );
    refused("{redirect: {socket: 0}}", "--plane af-xdp", "af-xdp cannot do socket");
    refused("{mirror: {interface: ww0}}", "--plane tc-ingress", "policy: mirror: ww0 is the interface");
    refused("{mirror: {interface: gone}}", "--plane tc-ingress", "policy: mirror: no interface 'gone'");
    refused("{mirror: {interface: out0, snap: 64}}", "--plane tc-ingress", "copies whole packets");
    for plane in ["--plane af-packet", "--plane af-xdp"] {
        refused("{mirror: {interface: ww0}}", plane, "policy: mirror: ww0 is the interface");
        refused("{mirror: {interface: gone, snap: 64}}", plane, "policy: mirror: no interface 'gone'");
        refused("{redirect: {interface: gone}}", plane, "policy: redirect: no interface 'gone'");
        refused("{mirror: {interface: out0, snap: 13}}", plane, "snap 13 is less than 14");
        refused("{backend: web}", plane, "there is no pool 'web'");
        refused("{backend: web}}\npools: {web: {backends: []}", plane, "has no backends");
        refused(
            "{backend: web}}\npools: {web: {interface: gone, backends: [{address: 10.8.0.9}]}",
            plane,
            "no interface 'gone'",
        );
    }
}

/// The planes in user space as they send packets on, and `af-xdp` as it gives them to the host.
pub fn in_user_space() -> Vec<(&'static str, String)> {
    let mut planes = vec![
        // One worker keeps the order.
        ("af-packet", format!("--to {SECOND} --offloads off --workers 1")),
        ("af-xdp", format!("--to {SECOND}")),
        ("af-xdp", String::new()),
    ];
    if cfg!(feature = "dpdk") {
        planes.push(("dpdk", format!("--to {SECOND} --driver net_af_packet --offloads off")));
        planes.push(("dpdk", format!("--to {SECOND} --driver net_af_xdp --offloads off")));
    }
    planes
}

/// A network with an interface beyond, and the sender's wire, for a plane in user space.
pub struct Carried {
    pub near: Wire,
    pub beyond: Beyond,
    far: Option<Far>,
    pub lab: Lab,
    attacks: Vec<Vec<u8>>,
}

impl Carried {
    pub fn new(options: &str) -> Option<Self> {
        let lab = Lab::new()?;
        let (beyond, near) = (Beyond::new(&lab), sender(&lab));
        let far = (!options.is_empty()).then(|| Far::behind(&lab));
        lab.whole_packets();
        if let Some(far) = &far {
            far.namespace().sh("ethtool -K far0 tx off");
        }
        let mut attacks = attacks();
        if options.contains("net_af_packet") {
            // DPDK's driver has the kernel put fragments together, and these are no whole packet.
            attacks.drain(2..4);
        }
        Some(Self { near, beyond, far, lab, attacks })
    }

    /// How many packets of so many come to their receiver.
    pub fn arrive(&self, payload: usize, count: u8) -> usize {
        match &self.far {
            Some(far) => far.receive(&self.lab, RECEIVER, payload, count),
            None => self.lab.send(1000, payload, count.into()),
        }
    }
}

#[test]
fn user_space_sends_a_class_by_another_interface() {
    for (plane, options) in in_user_space() {
        let Some(it) = Carried::new(&options) else { return };
        it.lab.policy("classes: {attack: {redirect: {interface: out0}, dscp: AF41}}");
        let _carrier = Carrier::of(&it.lab, plane, &format!("{options} --policy p.yaml --mode enforce"));
        it.beyond.wire.clear();
        it.near.send(&it.attacks);
        let arrived = it.beyond.wire.received();
        assert_eq!(arrived.len(), it.attacks.len(), "{plane} {options}");
        for (before, after) in it.attacks.iter().zip(&arrived) {
            assert_eq!(class_of(after), 34 << 2 | class_of(before) & 3, "{plane} {options}");
            assert_eq!(untagged(before).len(), untagged(after).len(), "{plane} {options}");
        }
        assert_eq!(outcome(&it.lab, 1, "acted"), it.attacks.len() as u64, "{plane} {options}");
        assert_eq!((it.arrive(BENIGN, 3), it.arrive(ATTACK, 3)), (3, 0), "{plane} {options}");
        it.lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn user_space_sends_a_class_back() {
    for (plane, options) in in_user_space() {
        let Some(it) = Carried::new(&options) else { return };
        it.lab.policy("classes: {attack: {action: bounce, dscp: EF}}");
        let _carrier = Carrier::of(&it.lab, plane, &format!("{options} --policy p.yaml --mode enforce"));
        // More than the rings of one burst, and again what comes when all frames have been sent once.
        for _ in 0..3 {
            it.near.clear();
            let sent: Vec<_> = it.attacks.iter().cycle().take(20 * it.attacks.len()).cloned().collect();
            it.near.send(&sent);
            let back = it.near.received();
            assert_eq!(back.len(), sent.len(), "{plane} {options}");
            for (before, after) in sent.iter().zip(&back) {
                assert_eq!((&after[..6], &after[6..12]), (&FAR[..], &NEAR[..]), "{plane} {options}");
                assert_eq!(class_of(after), 46 << 2 | class_of(before) & 3, "{plane} {options}");
                assert_eq!(untagged(before).len(), untagged(after).len(), "{plane} {options}");
            }
        }
        assert_eq!((it.arrive(BENIGN, 3), it.arrive(ATTACK, 3)), (3, 0), "{plane} {options}");
        let steered = 3 * 20 * it.attacks.len() as u64 + 3;
        assert_eq!(outcome(&it.lab, 1, "acted"), steered, "{plane} {options}");
        wait("every frame is free again", || {
            let lanes = it.lab.status()["carrier"]["lanes"].as_array().unwrap().clone();
            plane == "dpdk" || lanes.iter().all(|lane| lane["frames_busy"] == 0 && lane["unsent"] == 0)
        });
        // Who observes changes nothing.
        it.lab.ok(&format!("run --bundle b.wirewise --interface {INTERFACE} --mode observe"));
        it.near.clear();
        assert_eq!(it.arrive(ATTACK, 3), 3, "{plane} {options}");
        assert_eq!(outcome(&it.lab, 1, "would-act"), 3, "{plane} {options}");
        it.lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn user_space_copies_a_sample_as_it_came() {
    for (plane, options) in in_user_space() {
        let Some(it) = Carried::new(&options) else { return };
        let steers = |class: &str| {
            it.lab.policy(&format!("classes: {{attack: {class}}}"));
            it.lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --yes"));
            it.beyond.wire.clear();
            it.near.clear();
        };
        it.lab.policy("classes: {attack: {mirror: {interface: out0, snap: 60}, dscp: EF}}");
        let _carrier = Carrier::of(&it.lab, plane, &format!("{options} --policy p.yaml --mode enforce"));
        it.beyond.wire.clear();
        // The packets go on, and of each there is the beginning.
        assert_eq!((it.arrive(ATTACK, 20), it.arrive(BENIGN, 5)), (20, 5), "{plane} {options}");
        let copies = it.beyond.wire.received();
        assert_eq!(copies.len(), 20, "{plane} {options}");
        assert!(copies.iter().all(|copy| copy.len() == 60 && class_of(copy) == 0), "{plane} {options}");
        // A sample; so few or many are as likely as to guess a key of 60 bits.
        steers("{mirror: {interface: out0, rate: 1/4}}");
        assert_eq!(it.arrive(ATTACK, 100), 100, "{plane} {options}");
        let copies = it.beyond.wire.received().len();
        assert!((2..70).contains(&copies), "{plane} {options}: {copies}");
        // As it came, also of one that goes elsewhere itself.
        steers("{mirror: {interface: out0}, action: bounce, dscp: EF}");
        it.near.send(&it.attacks);
        let (copies, back) = (it.beyond.wire.received(), it.near.received());
        assert_eq!((copies.len(), back.len()), (it.attacks.len(), it.attacks.len()), "{plane} {options}");
        for (before, (copy, back)) in it.attacks.iter().zip(copies.iter().zip(&back)) {
            assert_eq!(untagged(before), untagged(copy), "{plane} {options}");
            assert_eq!(class_of(back), 46 << 2 | class_of(before) & 3, "{plane} {options}");
        }
        it.lab.ok(&format!("run --bundle b.wirewise --interface {INTERFACE} --mode observe"));
        it.near.send(&it.attacks);
        assert_eq!((it.near.received().len(), it.beyond.wire.received().len()), (0, 0));
        // No copy: the packets go on all the same.
        it.lab.ok(&format!("run --bundle b.wirewise --interface {INTERFACE} --mode enforce --yes"));
        it.lab.sh("ip link delete out0");
        it.near.send(&it.attacks);
        assert_eq!(it.near.received().len(), it.attacks.len(), "{plane} {options}");
        it.lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

#[test]
fn user_space_lets_packets_pass_whose_interface_is_gone_or_too_narrow() {
    for (plane, options) in in_user_space() {
        let Some(it) = Carried::new(&options) else { return };
        it.lab.policy("classes: {attack: {redirect: {interface: out0}, dscp: EF}}");
        let _carrier = Carrier::of(&it.lab, plane, &format!("{options} --policy p.yaml --mode enforce"));
        assert_eq!((it.arrive(ATTACK, 3), outcome(&it.lab, 1, "acted")), (0, 3), "{plane} {options}");
        it.lab.sh("ip link set out0 mtu 100");
        let passes = |what| {
            wait(what, || it.arrive(ATTACK, 1) == 1);
            let before = outcome(&it.lab, 1, "not-acted");
            assert_eq!(it.arrive(ATTACK, 3), 3, "{plane} {options}: {what}");
            assert_eq!(outcome(&it.lab, 1, "not-acted"), before + 3, "{plane} {options}: {what}");
        };
        passes("packets that are too long pass");
        it.lab.sh("ip link set out0 mtu 1500");
        wait("they go there again", || it.arrive(ATTACK, 1) == 0);
        it.lab.sh("ip link delete out0");
        passes("packets pass");
        it.lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}

/// A shadow changes nothing of what the first does, and sees the packets as they came.
#[test]
fn user_space_steers_beside_a_shadow_and_behind_a_swap() {
    for (plane, options) in
        [("af-packet", format!("--to {SECOND} --offloads off")), ("af-xdp", String::new())]
    {
        let Some(it) = Carried::new(&options) else { return };
        it.lab.policy("classes: {attack: {action: bounce, mirror: {interface: out0}}}");
        let _carrier = Carrier::of(&it.lab, plane, &format!("{options} --policy p.yaml --mode enforce"));
        it.lab.write("longer.wirewise", &bundle("longer", &variant("BORDER=600")));
        let bounced = || {
            it.near.clear();
            it.beyond.wire.clear();
            it.near.send(&it.attacks);
            (it.near.received().len(), it.beyond.wire.received().len())
        };
        for step in ["swap --shadow --bundle longer.wirewise", "swap --no-shadow", "doctor --interface ww0"] {
            let said = it.lab.ok(step);
            assert!(!step.starts_with("doctor") || said.contains("attack is copied to out0"), "{said}");
            assert_eq!(bounced(), (5, 5), "{plane} {step}");
        }
        it.lab.ok("swap --bundle longer.wirewise");
        assert_eq!(bounced(), (0, 0), "{plane}");
        it.lab.ok("rollback");
        assert_eq!(bounced(), (5, 5), "{plane}");
        it.lab.ok(&format!("detach --interface {INTERFACE}"));
    }
}
