// SPDX-License-Identifier: Apache-2.0
//! Commands that are killed after any of the changes they make. Afterwards what was there or what was asked for holds, `status` says which, and
//! the next command leaves neither too little nor too much.

use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use serde_json::{Value, json};
use wirewised::abi::Hook;
use wirewised::interface::netdev;
use wirewised::plane::{self, Attached, Joining, Plane, Port};

use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, RECEIVER, SENDER, take_off};
use crate::next::{FIRST_DROPS, Foreign};
use crate::quiet;
use crate::swap::lenient;
use crate::tc::foreign_program;

/// Allowed by `more.yaml`, not by `p.yaml`.
const ALLOWED: u16 = 1001;

/// What can be seen from outside.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    /// What `status` says: bundle, plane, mode, actions, policy file, and planes beside.
    said: Value,
    /// Packets that arrive: benign, attacks, attacks at an allowed port, attacks that the host sends, and those that somebody else's program drops.
    arrives: [bool; 5],
}

struct Scene {
    lab: Lab,
    sockets: [(UdpSocket, UdpSocket); 3],
}

impl Scene {
    fn new() -> Option<Self> {
        let lab = Lab::new()?;
        lab.write("c.wirewise", &lenient());
        lab.policy("classes: {attack: drop}");
        for (name, text) in [
            ("more.yaml", format!("classes: {{attack: drop}}\nallow: {{ports: [udp/{ALLOWED}]}}")),
            ("count.yaml", "classes: {attack: count}".to_string()),
            ("mark.yaml", "classes: {benign: {mark: 7}, attack: drop}".to_string()),
            (
                "next.yaml",
                format!(
                    "classes: {{attack: drop}}\nnext: {}",
                    Foreign::new(&lab, "firewall", &[]).pin.display()
                ),
            ),
        ] {
            lab.write(name, format!("version: 1\n{text}\n").as_bytes());
        }
        lab.whole_packets();
        let pair = |port: u16| {
            let inside = lab.enter(|| UdpSocket::bind((RECEIVER, port)).unwrap());
            let outside = lab.enter_sender(|| UdpSocket::bind((SENDER, 0)).unwrap());
            (inside, outside)
        };
        let sockets = [pair(1000), pair(ALLOWED), pair(FIRST_DROPS)];
        Some(Self { lab, sockets })
    }

    fn seen(&self) -> Seen {
        let output = self.lab.run(&format!("status --interface {INTERFACE} --json"));
        let status: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let status = status["attachments"][0].clone();
        let said = match status["attached"] == true {
            false => Value::Null,
            true => json!([
                status["bundle"]["name"],
                status["plane_obtained"],
                status["mode"],
                status["classes"],
                status["policy"]["file"],
                status["outgoing"]["plane"],
                status["shadow"]["bundle"]["name"],
            ]),
        };
        let arrives = |from: &UdpSocket, to: &UdpSocket, payload: usize| {
            from.send_to(&vec![0; payload], to.local_addr().unwrap()).unwrap();
            quiet::arrivals(to, 1) == 1
        };
        let [(inside, outside), (allowed, stranger), (filtered, third)] = &self.sockets;
        let arrives = [
            arrives(outside, inside, BENIGN),
            arrives(outside, inside, ATTACK),
            arrives(stranger, allowed, ATTACK),
            arrives(inside, outside, ATTACK),
            arrives(third, filtered, BENIGN),
        ];
        Seen { said, arrives }
    }

    fn attached(&self) -> Vec<Attached> {
        self.lab.enter(|| plane::attached(netdev::index(INTERFACE).unwrap()).unwrap())
    }

    fn left(&self) -> Vec<String> {
        let mut left = self.lab.pinned();
        left.retain(|name| name.matches('/').count() == 1);
        left.extend(self.attached().iter().map(|it| it.plane.to_string()));
        let qdisc = self.lab.sh(&format!("tc qdisc show dev {INTERFACE}"));
        left.extend(qdisc.contains("clsact").then(|| "clsact".to_string()));
        left
    }

    fn clean(&self) {
        let output = self.lab.run(&format!("detach --interface {INTERFACE}"));
        if !output.status.success() {
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(
                error.contains("nothing is attached") || error.contains("no wirewise program"),
                "{error}"
            );
        }
    }

    fn setup(&self, commands: &[&str]) {
        for command in commands {
            self.lab.ok(&with(command));
        }
    }

    /// The kinds of changes a command makes, in order.
    fn changes(&self, command: &str) -> Vec<String> {
        let file = self.lab.path("changes");
        let _ = std::fs::remove_file(&file);
        let output = self.lab.command(&with(command)).env("WIREWISED_CHANGES", &file).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        std::fs::read_to_string(file).unwrap().lines().map(str::to_string).collect()
    }

    fn die(&self, command: &str, after: usize) -> bool {
        let mut command = self.lab.command(&with(command));
        command.env("WIREWISED_DIE_AFTER", after.to_string());
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        status.signal() == Some(libc::SIGKILL)
    }
}

fn with(command: &str) -> String {
    if command == "detach" {
        return format!("detach --interface {INTERFACE}");
    }
    if command.starts_with("run") {
        format!("{command} --interface {INTERFACE} --yes")
    } else {
        command.to_string()
    }
}

/// Between two states that the kernel cannot exchange in one step.
fn is_between(seen: &Seen, old: &Seen, new: &Seen) -> bool {
    // Each direction is old or new, and what is said of the second one is true of it.
    let first = |of: &Seen| {
        let mut said = of.said.clone();
        said.as_array_mut().map(|said| said.remove(5));
        (said, [&of.arrives[..3], &of.arrives[4..]].concat())
    };
    let second = [old, new].iter().any(|it| it.arrives[3] == seen.arrives[3]);
    let told = !seen.said[5].is_null() || seen.arrives[3];
    if old.said[5] != new.said[5] || seen.said[5].is_string() {
        return second && told && (first(seen) == first(old) || first(seen) == first(new));
    }
    // A program at TC judges as the new one.
    let mut bridge = new.clone();
    bridge.said[1] = json!("tc-ingress");
    *seen == bridge
}

/// After which changes a command dies: all, or a third of those where one of a row of equal changes is not as good as the next, which are the
/// first and the last. Which third differs from command to command, for most kinds of changes occur in many.
fn points(command: &str, changes: &[String], every: bool) -> Vec<usize> {
    let all = 1..=changes.len();
    if every {
        return all.collect();
    }
    let same = |one: usize, other: usize| changes.get(one) == changes.get(other);
    let is_end = |number: &usize| {
        let at = number - 1;
        at == 0 || !same(at, at - 1) || !same(at, at + 1)
    };
    let ends: Vec<usize> = all.filter(is_end).collect();
    let begin = command.bytes().map(usize::from).sum::<usize>() % ends.len().clamp(1, 3);
    ends.into_iter().skip(begin).step_by(3).collect()
}

/// foreign : attaches what is somebody else's.
fn survives(setup: &[&str], command: &str, foreign: Option<fn(&Scene) -> Option<OwnedFd>>) {
    let Some(scene) = Scene::new() else { return };
    let begin = || {
        let link = foreign.map(|attach| attach(&scene));
        scene.setup(setup);
        link
    };
    let end = |link: Option<Option<OwnedFd>>| {
        scene.clean();
        link.flatten().into_iter().for_each(take_off);
        // Of somebody else, of whom a command that died had not taken it off yet.
        scene.lab.sh(&format!("ip link set dev {INTERFACE} xdp off"));
        assert_eq!(scene.attached(), [], "{command}");
        assert_eq!(scene.left(), [""; 0], "{command}");
    };
    let link = begin();
    let (old, was_attached) = (scene.seen(), !scene.attached().is_empty());
    let changes = scene.changes(command);
    let (new, left) = (scene.seen(), scene.left());
    let stays = was_attached && !scene.attached().is_empty();
    end(link);
    let mut failures = Vec::new();
    for after in points(command, &changes, std::env::var("WIREWISED_EVERY_DEATH").is_ok()) {
        let at = format!("{command}: after change {after} of {} ({})", changes.len(), changes[after - 1]);
        let link = begin();
        if !scene.die(command, after) {
            failures.push(format!("{at}: did not die"));
        }
        let seen = scene.seen();
        if seen != old && seen != new && !is_between(&seen, &old, &new) {
            failures.push(format!("{at}: {seen:?}\n   is neither {old:?}\n   nor {new:?}"));
        }
        if stays && scene.attached().is_empty() {
            failures.push(format!("{at}: nothing is attached"));
        }
        if seen != new || command.starts_with("run") {
            let output = scene.lab.run(&with(command));
            if !(output.status.success() || command == "detach" && seen == new) {
                failures.push(format!("{at}: again: {}", String::from_utf8_lossy(&output.stderr)));
            }
        } else if seen.said.is_null() {
            scene.clean();
        } else {
            let bundle = if seen.said[0] == "second" { "c.wirewise" } else { "b.wirewise" };
            scene.setup(&[&format!("run --bundle {bundle}")]);
        }
        let mended = scene.seen();
        if mended != new {
            failures.push(format!("{at}: mended {mended:?}\n   is not {new:?}"));
        }
        if scene.left() != left {
            failures.push(format!("{at}: left {:?}\n   is not {left:?}", scene.left()));
        }
        end(link);
    }
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// A change of tunnels takes a write for each of their ends: each tunnel is there as it was or as it was asked for, those that stay are there
/// all the time, and the same command completes the rest.
#[test]
fn a_change_of_tunnels() {
    let Some(scene) = Scene::new() else { return };
    let lab = &scene.lab;
    let tunnel = |id: u8, peer: u8| {
        format!(
            "{{ue: 10.45.0.{id}, local: {RECEIVER}, teid: {id}, peer: {SENDER}, peer-teid: {peer}, qfi: {peer}}}"
        )
    };
    let write = |name: &str, tunnels: &[String]| {
        lab.write(name, format!("version: 1\ntunnels: [{}]\n", tunnels.join(", ")).as_bytes());
    };
    write("old.yaml", &[tunnel(1, 1), tunnel(2, 1), tunnel(3, 1), tunnel(4, 1)]);
    write("new.yaml", &[tunnel(3, 1), tunnel(4, 2), tunnel(5, 1), tunnel(6, 1)]);
    lab.policy("classes: {attack: {decapsulate: gtp-u}}\ntunnels: old.yaml");
    scene.setup(&[RUN]);
    let listed = || lab.json("tunnels")["tunnels"].as_array().unwrap().clone();
    let old = listed();
    let change = "tunnels --load new.yaml";
    let changes = scene.changes(change);
    let new = listed();
    let written = changes.iter().filter(|change| change.ends_with("ww_tunnels")).count();
    assert_eq!((old.len(), new.len(), written), (4, 4, 10), "{changes:?} {old:?} {new:?}");
    for after in 1..=changes.len() {
        lab.ok("tunnels --load old.yaml");
        assert_eq!(listed(), old);
        assert!(scene.die(change, after), "{after}");
        let seen = listed();
        for tunnel in &seen {
            assert!(old.contains(tunnel) || new.contains(tunnel), "after change {after}: {tunnel}");
        }
        for tunnel in old.iter().filter(|tunnel| new.contains(tunnel)) {
            assert!(seen.contains(tunnel), "after change {after}: {tunnel} is gone");
        }
        lab.ok(change);
        assert_eq!(listed(), new);
    }
    scene.clean();
    assert_eq!(scene.left(), [""; 0]);
}

const RUN: &str = "run --bundle b.wirewise --policy p.yaml --mode enforce";

/// What passes goes on to somebody else's program.
const RUN_BEFORE: &str = "run --bundle b.wirewise --policy next.yaml --mode enforce";

fn of_others(scene: &Scene) -> Option<OwnedFd> {
    let program = foreign_program(Hook::Xdp);
    scene.lab.enter(|| {
        let index = netdev::index(INTERFACE).unwrap();
        Plane::XDP_NATIVE.attach_without_link(program.as_fd(), index).unwrap();
    });
    None
}

fn of_others_by_link(scene: &Scene) -> Option<OwnedFd> {
    let program = foreign_program(Hook::Xdp);
    scene.lab.enter(|| {
        let port = Port::Interface(netdev::index(INTERFACE).unwrap());
        Some(Plane::XDP_NATIVE.attach(program.as_fd(), port, Joining::default()).unwrap())
    })
}

macro_rules! deaths {
    ($($name:ident: [$($setup:expr),*] $command:expr, $foreign:expr;)*) => {$(
        #[test]
        fn $name() {
            survives(&[$($setup),*], $command, $foreign);
        }
    )*};
}

deaths! {
    run: [] RUN, None;
    run_at_tc_by_clsact: [] &format!("{RUN} --offloads off --plane tc-ingress --clsact"), None;
    run_with_outgoing: [] &format!("{RUN} --offloads off --outgoing"), None;
    run_with_outgoing_by_clsact: [] &format!("{RUN} --offloads off --outgoing --clsact --plane tc-ingress"), None;
    run_with_a_companion: [] "run --bundle b.wirewise --policy mark.yaml --mode enforce", None;
    run_over_another: [] &format!("{RUN} --replace"), Some(of_others);
    run_over_a_link_of_another: [] &format!("{RUN} --replace"), Some(of_others_by_link);
    replace: [RUN] "run --replace --bundle c.wirewise --policy p.yaml --mode enforce", None;
    replace_and_judge_outgoing: [RUN] &format!("{RUN} --offloads off --outgoing --replace"), None;
    native_to_tc: [RUN] &format!("{RUN} --offloads off --plane tc-ingress --replace"), None;
    native_to_clsact: [RUN] &format!("{RUN} --offloads off --plane tc-ingress --clsact --replace"), None;
    native_to_generic: [RUN] &format!("{RUN} --offloads off --plane xdp-generic --replace"), None;
    clsact_to_native: [&format!("{RUN} --offloads off --plane tc-ingress --clsact")] &format!("{RUN} --plane xdp-native --replace"), None;
    swap: [RUN] "swap --bundle c.wirewise", None;
    swap_again: [RUN, "swap --bundle c.wirewise", "rollback"] "swap --bundle c.wirewise", None;
    swap_with_policy: [RUN] "swap --bundle c.wirewise --policy more.yaml --yes", None;
    swap_of_both_directions: [&format!("{RUN} --offloads off --outgoing")] "swap --bundle c.wirewise", None;
    rollback: [RUN, "swap --bundle c.wirewise --policy more.yaml --yes"] "rollback", None;
    shadow: [RUN] "swap --shadow --bundle c.wirewise", None;
    no_shadow: [RUN, "swap --shadow --bundle c.wirewise"] "swap --no-shadow", None;
    promote: [RUN, "swap --shadow --bundle c.wirewise"] "swap --promote", None;
    another_action: [RUN] "run --bundle b.wirewise --policy count.yaml", None;
    a_longer_allow_list: [RUN] "run --bundle b.wirewise --policy more.yaml", None;
    a_shorter_allow_list: ["run --bundle b.wirewise --policy more.yaml --mode enforce"] RUN, None;
    another_mode: [RUN] "run --bundle b.wirewise --mode observe", None;
    reload_for_a_companion: [RUN] "run --bundle b.wirewise --policy mark.yaml", None;
    without_a_companion: ["run --bundle b.wirewise --policy mark.yaml --mode enforce"] RUN, None;
    run_before_another: [] RUN_BEFORE, None;
    reload_for_another: [RUN] RUN_BEFORE, None;
    without_another: [RUN_BEFORE] RUN, None;
    swap_before_another: [RUN_BEFORE] "swap --bundle c.wirewise", None;
    shadow_before_another: [RUN_BEFORE] "swap --shadow --bundle c.wirewise", None;
    rollback_before_another: [RUN_BEFORE, "swap --bundle c.wirewise"] "rollback", None;
    detach: [RUN] "detach", None;
    detach_both_directions: [&format!("{RUN} --offloads off --outgoing")] "detach", None;
    detach_from_clsact: [&format!("{RUN} --offloads off --plane tc-ingress --clsact --outgoing")] "detach", None;
}
