// SPDX-License-Identifier: Apache-2.0
//! A program of somebody else's, pinned, to which what passes goes on.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::PathBuf;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use serde_json::Value;
use test_needs::{Need, skip};
use wirewised::kernel::objects;

use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, RECEIVER, SENDER, bundle, data_path, foreign};
use crate::quiet;
use crate::swap::lenient;

/// Dropped by the first and by the second of the foreign programs.
pub const FIRST_DROPS: u16 = 7000;
const SECOND_DROPS: u16 = 7001;

pub struct Foreign {
    object: Object,
    pub pin: PathBuf,
    id: u32,
}

impl Foreign {
    /// Loads it, and pins it under this name instead of what was there.
    pub fn new(lab: &Lab, name: &str, defines: &[&str]) -> Self {
        let object = foreign(defines);
        let object = ObjectBuilder::default().open_memory(&object).unwrap().load().unwrap();
        let pin = lab.pins().with_file_name(name);
        let _ = std::fs::remove_file(&pin);
        let program = object.progs().next().unwrap();
        objects::pin(program.as_fd(), &pin).unwrap();
        let id = objects::program_info(program.as_fd()).unwrap().id;
        Self { object, pin, id }
    }

    fn seen(&self) -> u64 {
        let map = self.object.maps().next().unwrap();
        let value = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        u64::from_ne_bytes(value.try_into().unwrap())
    }
}

/// What arrives: benign packets to three ports, and attacks.
fn arrives(lab: &Lab) -> [usize; 4] {
    [(1000, BENIGN), (FIRST_DROPS, BENIGN), (SECOND_DROPS, BENIGN), (1000, ATTACK)]
        .map(|(port, payload)| lab.send(port, payload, 2))
}

fn finding(lab: &Lab) -> Value {
    let report = lab.json(&format!("doctor --interface {INTERFACE}"));
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["check"] == "next").cloned().unwrap_or(Value::Null)
}

fn lives_on(plane: &str, defines: &[&str]) {
    let Some(lab) = Lab::new() else { return };
    lab.write("c.wirewise", &lenient());
    let first = Foreign::new(&lab, "firewall", defines);
    let next = format!("next: {}", first.pin.display());
    lab.policy(&format!("classes: {{attack: drop}}\n{next}"));
    let run = format!("--plane {plane} --policy p.yaml");
    let status = lab.attach(&run);
    assert_eq!(
        (&status["next"]["program_id"], &status["next"]["name"]),
        (&first.id.into(), &"foreign".into())
    );
    assert!(lab.ok("status").contains(&format!("next         program {} (foreign), /", first.id)));

    // In observe mode too: every packet passes the model.
    let before = first.seen();
    assert_eq!(arrives(&lab), [2, 0, 2, 2], "{plane}");
    assert_eq!(first.seen() - before, 8);
    // What is dropped does not get there.
    lab.attach("--mode enforce");
    let before = first.seen();
    assert_eq!(arrives(&lab), [2, 0, 2, 0], "{plane}");
    assert_eq!(first.seen() - before, 6);
    assert_eq!(
        (finding(&lab)["level"].as_str(), lab.status()["next"]["program_id"].as_u64()),
        (Some("ok"), Some(first.id.into()))
    );

    // Another model, and back: the same program follows.
    lab.ok("swap --bundle c.wirewise");
    assert_eq!(arrives(&lab), [2, 0, 2, 2], "{plane}: after a swap");
    lab.ok("rollback");
    assert_eq!(arrives(&lab), [2, 0, 2, 0], "{plane}: after a rollback");
    // A shadow hands over to the first model, which hands over to the next program.
    lab.ok("swap --shadow --bundle c.wirewise");
    let before = first.seen();
    assert_eq!(arrives(&lab), [2, 0, 2, 0], "{plane}: beside a shadow");
    assert_eq!(first.seen() - before, 6);
    assert_eq!(lab.stats()["shadow"]["packets"], 8);
    lab.ok("swap --promote");
    assert_eq!(arrives(&lab), [2, 0, 2, 2], "{plane}: after a shadow");
    lab.ok("rollback");

    // Its pin goes, and it stays for as long as it is called.
    std::fs::remove_file(&first.pin).unwrap();
    assert_eq!(arrives(&lab), [2, 0, 2, 0], "{plane}: without its pin");
    let gone = finding(&lab);
    assert!(gone["level"] == "warning" && gone["found"].as_str().unwrap().contains("is gone"), "{gone}");
    // Another one takes its place once the policy is given again.
    let second = Foreign::new(&lab, "firewall", &[defines, &["PORT=7001"]].concat());
    assert_eq!(arrives(&lab), [2, 0, 2, 0], "{plane}: the old one still");
    let other = finding(&lab)["found"].as_str().unwrap().to_owned();
    assert!(other.contains(&format!("is program {} (foreign) now", second.id)), "{other}");
    lab.attach("--policy p.yaml");
    assert_eq!((arrives(&lab), &lab.status()["next"]["program_id"]), ([2, 2, 0, 0], &second.id.into()));
    lab.ok("rollback");
    assert_eq!((arrives(&lab), &lab.status()["next"]["program_id"]), ([2, 0, 2, 0], &first.id.into()));
    // A policy without it.
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml");
    assert_eq!((arrives(&lab), &lab.status()["next"]), ([2, 2, 2, 0], &Value::Null));
    assert_eq!(finding(&lab), Value::Null);
    let told = lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!((told.contains("next"), lab.pinned()), (false, Vec::new()));
    // The pin is somebody else's.
    assert!(second.pin.exists());
}

#[test]
fn what_passes_goes_on_at_xdp() {
    lives_on("xdp-native", &[]);
    lives_on("xdp-generic --offloads off", &[]);
}

#[test]
fn what_passes_goes_on_at_tc() {
    lives_on("tc-ingress --offloads off", &["AT_TC", "SECTION=\"tc\""]);
}

/// The other direction is another hook, so what leaves goes on to nobody.
#[test]
fn what_the_host_sends_goes_on_to_nobody() {
    let Some(lab) = Lab::new() else { return };
    let first = Foreign::new(&lab, "firewall", &[]);
    lab.policy(&format!("classes: {{attack: {{mark: 7}}}}\nnext: {}", first.pin.display()));
    lab.attach("--outgoing --offloads off --policy p.yaml --mode enforce");
    let before = first.seen();
    assert_eq!(arrives(&lab), [2, 0, 2, 2]);
    assert_eq!(first.seen() - before, 8);
    let outside = lab.enter_sender(|| UdpSocket::bind((SENDER, FIRST_DROPS)).unwrap());
    let inside = lab.enter(|| UdpSocket::bind((RECEIVER, 0)).unwrap());
    inside.send_to(&[0; BENIGN], (SENDER, FIRST_DROPS)).unwrap();
    assert_eq!(quiet::arrivals(&outside, 1), 1);
}

#[test]
fn what_cannot_come_next_is_refused() {
    let Some(lab) = Lab::new() else { return };
    let xdp = Foreign::new(&lab, "xdp", &[]);
    let tc = Foreign::new(&lab, "tc", &["AT_TC", "SECTION=\"tc\""]);
    let frags = Foreign::new(&lab, "frags", &["SECTION=\"xdp.frags\""]);
    let map = lab.pins().with_file_name("map");
    objects::pin(xdp.object.maps().next().unwrap().as_fd(), &map).unwrap();
    let missing = lab.pins().with_file_name("missing");
    for (path, plane, words) in [
        (&missing, "xdp-native", "nothing is pinned at"),
        (&lab.path("b.wirewise"), "xdp-native", "is not a pin"),
        (&map, "xdp-native", "is a map or a link; xdp-native can only call a program for XDP"),
        (&tc.pin, "xdp-native", "is a program for TC (sched_cls); xdp-native can only call"),
        (
            &xdp.pin,
            "tc-ingress --offloads off",
            "is a program for XDP; tc-ingress can only call a program for TC",
        ),
        (&xdp.pin, "af-packet --offloads off", "af-packet judges packets in user space"),
        (&frags.pin, "xdp-native", "without multi-buffer (xdp.frags)"),
    ] {
        lab.policy(&format!("next: {}", path.display()));
        let error = lab.error(
            &format!("run --bundle b.wirewise --interface {INTERFACE} --plane {plane} --policy p.yaml"),
            2,
        );
        assert!(error.contains(words), "{plane} {}: {error}", path.display());
        assert_eq!((lab.xdp(INTERFACE), lab.pinned()), (None, Vec::new()));
    }
    // What runs stays as it was.
    lab.policy(&format!("classes: {{attack: drop}}\nnext: {}", xdp.pin.display()));
    let before = lab.attach("--policy p.yaml --mode enforce");
    lab.policy(&format!("next: {}", frags.pin.display()));
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml");
    assert!(lab.error(&run, 2).contains("xdp.frags"));
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    assert!(lab.error("swap --bundle c.wirewise --policy p.yaml --yes", 2).contains("xdp.frags"));
    assert_eq!(lab.status()["program_id"], before["program_id"]);
    assert_eq!(arrives(&lab), [2, 0, 2, 0]);
}

/// Debian's xdp-filter, whose program drops UDP to a port. Its pins are in the lab's BPF file system.
fn xdp_filter(lab: &Lab, arguments: &str) {
    let folder = lab.pins().parent().unwrap().display().to_string();
    let command = format!("mount --bind {folder} /sys/fs/bpf && exec xdp-filter {arguments}");
    // Where the kernel takes extensions, it would attach a dispatcher.
    let mut words = vec!["env", "LIBXDP_SKIP_DISPATCHER=1", "unshare", "-m", "sh", "-c"];
    words.push(&command);
    let mut filter = std::process::Command::new("nsenter");
    let output = filter.arg(format!("--net={}", lab.receiver_path())).args(words).output().unwrap();
    assert!(output.status.success(), "xdp-filter {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn xdp_filter_goes_on_behind_ours() {
    let Some(lab) = Lab::new() else { return };
    if std::process::Command::new("xdp-filter").arg("help").output().is_err() {
        return skip(Need::Tools, "no xdp-filter (Debian's xdp-tools)");
    }
    for mode in ["native", "skb"] {
        xdp_filter(&lab, &format!("load {INTERFACE} -m {mode} -p allow"));
        xdp_filter(&lab, &format!("port {FIRST_DROPS} -m dst -p udp"));
        assert_eq!(arrives(&lab), [2, 0, 2, 2]);
        let plane = if mode == "native" { "xdp-native" } else { "xdp-generic --offloads off" };
        let run = format!("run --bundle b.wirewise --interface {INTERFACE} --plane {plane}");
        let refused = lab.error(&run, 1);
        let pin =
            lab.pins().with_file_name("xdp-filter").join("programs").join(INTERFACE).join("xdpfilt_alw_all");
        assert!(refused.contains(&format!("`next: {}` in the policy keeps it", pin.display())), "{refused}");
        let own = lab.pins().with_file_name("firewall");
        std::fs::hard_link(&pin, &own).unwrap();
        lab.policy(&format!("classes: {{attack: drop}}\nnext: {}", own.display()));
        lab.ok(&format!("{run} --policy p.yaml --mode enforce --yes --replace"));
        assert_eq!(arrives(&lab), [2, 0, 2, 0], "both");
        // This removes pins of programs that are not attached themselves.
        xdp_filter(&lab, "status");
        assert_eq!((pin.exists(), &finding(&lab)["level"]), (false, &"ok".into()));
        // Its rules are changed while it runs behind ours.
        xdp_filter(&lab, &format!("port {FIRST_DROPS} -m dst -p udp -r"));
        xdp_filter(&lab, &format!("port {SECOND_DROPS} -m dst -p udp"));
        assert_eq!(arrives(&lab), [2, 2, 0, 0], "other rules");
        // It leaves, and comes back.
        lab.policy("classes: {attack: drop}");
        lab.attach(&format!("--plane {plane} --policy p.yaml"));
        assert_eq!(arrives(&lab), [2, 2, 2, 0], "without it");
        lab.ok("rollback");
        assert_eq!(arrives(&lab), [2, 2, 0, 0], "with it again");
        // Ours leaves.
        let told = lab.ok(&format!("detach --interface {INTERFACE}"));
        assert!(told.contains(&format!("{} is called by nobody now", own.display())), "{told}");
        let place = if mode == "native" { "xdpdrv" } else { "xdpgeneric" };
        lab.sh(&format!("ip link set dev {INTERFACE} {place} pinned {}", own.display()));
        assert_eq!(arrives(&lab), [2, 2, 0, 2], "without ours");
        xdp_filter(&lab, &format!("port {SECOND_DROPS} -m dst -p udp -r"));
        lab.sh(&format!("ip link set dev {INTERFACE} {place} off"));
        std::fs::remove_file(own).unwrap();
        assert_eq!(arrives(&lab), [2, 2, 2, 2], "without either");
        lab.assert_untouched();
    }
}
