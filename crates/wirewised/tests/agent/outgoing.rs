// SPDX-License-Identifier: Apache-2.0
//! Both directions of an interface: incoming packets on a plane, outgoing ones at TC, one set of maps.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Stdio;

use serde_json::json;
use wirewised::interface::netdev;
use wirewised::kernel::objects;
use wirewised::plane::{self, Attached, Plane};

use crate::carrier::wait;
use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, RECEIVER, SENDER, bundle, data_path, variant};
use crate::quiet;
use crate::swap::lenient;

const RUN: &str = "--policy p.yaml --mode enforce --offloads off --outgoing";

/// A socket at each end.
struct Ends {
    inside: UdpSocket,
    outside: UdpSocket,
}

impl Ends {
    fn new(lab: &Lab) -> Self {
        Self {
            inside: lab.enter(|| UdpSocket::bind((RECEIVER, 0)).unwrap()),
            outside: lab.enter_sender(|| UdpSocket::bind((SENDER, 0)).unwrap()),
        }
    }

    /// How many of three arrive: benign ones and attacks, to the host and from it.
    fn arrive(&self) -> [usize; 4] {
        let send = |from: &UdpSocket, to: &UdpSocket, payload: usize| {
            for _ in 0..3 {
                from.send_to(&vec![0; payload], to.local_addr().unwrap()).unwrap();
            }
            quiet::arrivals(to, 3)
        };
        let (inside, outside) = (&self.inside, &self.outside);
        [
            send(outside, inside, BENIGN),
            send(outside, inside, ATTACK),
            send(inside, outside, BENIGN),
            send(inside, outside, ATTACK),
        ]
    }
}

fn planes(lab: &Lab) -> Vec<Plane> {
    let attached = lab.enter(|| plane::attached(netdev::index(INTERFACE).unwrap()).unwrap());
    attached.into_iter().map(|Attached { plane, .. }| plane).collect()
}

#[test]
fn one_set_of_maps_sees_both_directions_on_every_plane_of_the_kernel() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.write("c.wirewise", &lenient());
    let ends = Ends::new(&lab);
    for plane in ["xdp-native", "xdp-generic", "tc-ingress", "tc-ingress --clsact"] {
        let ours = lab.attach(&format!("--plane {plane} {RUN}"));
        assert_eq!(ours["outgoing"]["plane"], "tc-egress", "{plane}");
        assert_eq!(planes(&lab).len(), 2, "{plane}");
        assert_eq!(ends.arrive(), [3, 0, 3, 0], "{plane}");
        let classes = lab.stats()["classes"].clone();
        assert_eq!((&classes[0]["packets"], &classes[1]["packets"]), (&json!(6), &json!(6)), "{plane}");
        // Another program takes over in both, and goes again.
        assert_eq!(lab.json("swap --bundle c.wirewise")["flows"], "kept");
        assert_eq!(ends.arrive(), [3; 4], "{plane}");
        lab.json("rollback");
        assert_eq!(ends.arrive(), [3, 0, 3, 0], "{plane}");
        lab.json("swap --shadow --bundle c.wirewise");
        assert_eq!(ends.arrive(), [3, 0, 3, 0], "{plane}");
        assert_eq!(lab.stats()["shadow"]["packets"], 12, "{plane}");
        lab.json("swap --no-shadow");
        assert_eq!(ends.arrive(), [3, 0, 3, 0], "{plane}");
        let status = lab.status();
        assert_eq!(status["outgoing"]["link_id"], ours["outgoing"]["link_id"], "{plane}");
        lab.ok(&format!("detach --interface {INTERFACE}"));
        assert_eq!((planes(&lab), lab.pinned()), (Vec::new(), Vec::new()), "{plane}");
        assert!(!lab.sh(&format!("tc qdisc show dev {INTERFACE}")).contains("clsact"), "{plane}");
        assert_eq!(ends.arrive(), [3; 4], "{plane}");
    }
}

#[test]
fn a_split_model_judges_both_directions() {
    let Some(lab) = Lab::new() else { return };
    lab.write("b.wirewise", &bundle("first", &variant("CHAIN=16")));
    lab.policy("classes: {attack: drop}");
    let ends = Ends::new(&lab);
    lab.attach(&format!("--plane xdp-native {RUN}"));
    assert_eq!(ends.arrive(), [3, 0, 3, 0]);
    lab.write("c.wirewise", &bundle("second", &variant("CHAIN=16")));
    lab.json("swap --bundle c.wirewise");
    assert_eq!(ends.arrive(), [3, 0, 3, 0]);
    lab.json("swap --shadow --bundle b.wirewise");
    assert_eq!((ends.arrive(), lab.stats()["shadow"]["packets"].clone()), ([3, 0, 3, 0], json!(12)));
    lab.ok("swap --no-shadow");
    lab.json("rollback");
    assert_eq!(ends.arrive(), [3, 0, 3, 0]);
}

#[test]
fn the_second_direction_is_added_and_stays_when_the_plane_changes() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let ends = Ends::new(&lab);
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --mode enforce --yes");
    lab.json(&run);
    assert_eq!((ends.arrive(), lab.status()["outgoing"].clone()), ([3, 0, 3, 3], json!(null)));
    let error = lab.error(&format!("{run} --outgoing --offloads off"), 1);
    assert!(error.contains("to judge incoming packets only") && error.contains("--replace"), "{error}");
    let plan = lab.ok(&format!("{run} --outgoing --offloads off --replace --dry-run"));
    assert!(plan.contains("replace the program on ww0 by first"), "{plan}");
    lab.json(&format!("{run} --outgoing --offloads off --replace"));
    assert_eq!(ends.arrive(), [3, 0, 3, 0]);
    // What is there, stays: who says nothing of it, adopts it.
    assert_eq!(lab.json(&run)["action"], "adopted");
    lab.json(&format!("{run} --plane tc-ingress --replace --offloads off"));
    assert_eq!((ends.arrive(), planes(&lab).len()), ([3, 0, 3, 0], 2));
    lab.json(&format!("{run} --replace --flow-table-size 2048"));
    assert_eq!((ends.arrive(), planes(&lab).len()), ([3, 0, 3, 0], 2));
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!((planes(&lab), lab.pinned()), (Vec::new(), Vec::new()));
}

#[test]
fn half_of_it_after_a_kill_is_put_in_order() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    let ends = Ends::new(&lab);
    let attach = || lab.attach(&format!("--plane xdp-native {RUN}"));
    attach();
    // Killed before the first direction was attached.
    let directory = lab.pins().join(INTERFACE);
    std::fs::remove_file(directory.join("link")).unwrap();
    wait("the kernel takes the program off", || planes(&lab).len() == 1);
    attach();
    assert_eq!((ends.arrive(), planes(&lab).len()), ([3, 0, 3, 0], 2));
    // Killed in a swap, the second link may be behind: it follows with the next command.
    let start = std::time::Instant::now();
    lab.ok("swap --bundle c.wirewise");
    let whole = start.elapsed();
    for kill in 0..16 {
        let next = if lab.status()["bundle"]["name"] == "first" { "c.wirewise" } else { "b.wirewise" };
        let mut child =
            lab.command(&format!("swap --bundle {next} --json")).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * kill / 10);
        child.kill().unwrap();
        child.wait().unwrap();
        let running = if lab.status()["bundle"]["name"] == "first" { "b.wirewise" } else { "c.wirewise" };
        lab.ok(&format!("run --bundle {running} --interface {INTERFACE}"));
        let pinned = objects::open_pin(&directory.join("outgoing/prog")).unwrap();
        let pinned = objects::program_info(pinned.as_fd()).unwrap().id;
        assert_eq!(lab.status()["outgoing"]["program_id"], pinned, "kill {kill}");
        assert_eq!(planes(&lab).len(), 2, "kill {kill}");
    }
    assert_eq!(ends.arrive(), [3, 0, 3, 0]);
    lab.sh(&format!("ip link delete {INTERFACE}"));
    assert_eq!(
        (lab.status()["attached"].clone(), lab.status()["outgoing"].clone()),
        (json!(false), json!(null))
    );
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(lab.pinned(), [""; 0]);
}

#[test]
fn what_has_no_second_direction_says_so() {
    let Some(lab) = Lab::new() else { return };
    let run =
        |plane: &str| format!("run --bundle b.wirewise --interface {INTERFACE} --plane {plane} --outgoing");
    assert!(lab.error(&run("tc-egress"), 2).contains("judges outgoing packets already"));
    assert!(lab.error(&run("af-packet"), 2).contains("with `--to NAME`"));
    let plan = lab.ok(&format!("{} --dry-run", run("xdp-native")));
    assert!(plan.contains("would attach first to ww0 as xdp-native and tc-egress"), "{plan}");
    lab.assert_untouched();
}
