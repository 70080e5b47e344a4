// SPDX-License-Identifier: Apache-2.0
//! From attach to detach, and what survives an agent.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::carrier::wait;
use crate::lab::{ATTACK, BENIGN, Foreground, INTERFACE, Lab, bundle, data_path};

#[test]
fn observe_counts_and_enforce_drops_and_detach_leaves_nothing() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let status = lab.attach("--policy p.yaml");
    assert_eq!(
        (&status["plane_asked"], &status["plane_obtained"]),
        (&"xdp-native".into(), &"xdp-native".into())
    );
    assert_eq!(status["mode"], "observe");
    assert_eq!(status["bundle"]["name"], "first");
    assert!(["coarse (jiffies)", "coarse (helper)"].contains(&status["clock"].as_str().unwrap()), "{status}");
    assert_eq!(status["flow_tables"]["bytes"].as_u64().unwrap() % (1024 * 64 * 2), 0);
    assert_eq!(lab.xdp(INTERFACE), Some((1, status["program_id"].as_u64().unwrap())));

    assert_eq!((lab.send(1000, BENIGN, 7), lab.send(1000, ATTACK, 5)), (7, 5));
    let stats = lab.stats();
    let class =
        |stats: &Value, id: usize, what: &str| stats["classes"][id]["outcomes"][what]["packets"].clone();
    assert_eq!((class(&stats, 0, "pass"), class(&stats, 1, "would-drop")), (7.into(), 5.into()));
    assert_eq!(stats["classes"][1]["bytes"], 5 * (ATTACK + 42));

    let again = lab.attach("--policy p.yaml --mode enforce");
    assert_eq!(again["program_id"], status["program_id"]);
    assert_eq!(again["mode"], "enforce");
    assert_eq!((lab.send(1000, BENIGN, 7), lab.send(1000, ATTACK, 5)), (7, 0));
    let stats = lab.stats();
    assert_eq!((class(&stats, 0, "pass"), class(&stats, 1, "drop")), (14.into(), 5.into()));

    let plan = lab.ok(&format!("detach --interface {INTERFACE} --dry-run"));
    assert!(plan.starts_with("would detach program"), "{plan}");
    assert_eq!(lab.send(1000, ATTACK, 5), 0);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
    assert_eq!(lab.send(1000, ATTACK, 5), 5);
}

#[test]
fn killing_the_agent_changes_no_verdict_and_run_adopts() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let mut agent = lab.foreground("--policy p.yaml --mode enforce --json --interval 100ms");
    let mut lines = BufReader::new(agent.0.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["mode"], "enforce");
    assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0));
    let id = lab.status()["program_id"].clone();

    let memory = std::fs::read_to_string(format!("/proc/{}/status", agent.0.id())).unwrap();
    let resident = memory.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 30 << 10, "{kib} KiB resident");

    agent.signal(libc::SIGKILL);
    agent.0.wait().unwrap();
    assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0));
    let answer = lab.json(&format!("run --bundle b.wirewise --interface {INTERFACE}"));
    assert_eq!(answer["action"], "adopted");
    assert_eq!((&answer["status"]["program_id"], &answer["status"]["mode"]), (&id, &"enforce".into()));
    assert_eq!(lab.send(1000, ATTACK, 3), 0);
    assert_eq!(lab.stats()["classes"][1]["outcomes"]["drop"]["packets"], 9);
}

#[test]
fn the_foreground_ends_in_order() {
    let Some(lab) = Lab::new() else { return };
    for (arguments, stays) in [("--interval 100ms", true), ("--interval 100ms --detach-on-exit", false)] {
        let mut agent = lab.foreground(arguments);
        let mut lines = BufReader::new(agent.0.stdout.take().unwrap()).lines();
        while !lines.next().unwrap().unwrap().starts_with("class ") {}
        agent.signal(libc::SIGINT);
        assert!(agent.0.wait().unwrap().success());
        assert_eq!(lab.xdp(INTERFACE).is_some(), stays);
    }
    lab.assert_untouched();
}

#[test]
fn the_foreground_ends_with_its_interface() {
    let Some(lab) = Lab::new() else { return };
    let mut agent = lab.foreground("--interval 100ms");
    let mut lines = BufReader::new(agent.0.stdout.take().unwrap()).lines();
    while !lines.next().unwrap().unwrap().starts_with("class ") {}
    lab.sh(&format!("ip link delete {INTERFACE}"));
    assert_eq!(agent.0.wait().unwrap().code(), Some(1));
    let said = std::io::read_to_string(agent.0.stderr.take().unwrap()).unwrap();
    assert!(said.contains("ww0: the interface was deleted"), "{said}");
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(lab.pinned(), [""; 0]);
}

#[test]
fn the_only_attachment_is_watched_from_another_network_namespace() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    let [sender, _] = lab.namespaces();
    let agent = env!("CARGO_BIN_EXE_wirewised");
    let mut watching = Command::new("ip")
        .args(["netns", "exec", sender, agent, "stats", "--watch", "--json", "--interval", "50ms"])
        .arg("--pin-root")
        .arg(lab.pins())
        .stdout(Stdio::piped())
        .spawn()
        .map(Foreground)
        .unwrap();
    let lines = BufReader::new(watching.0.stdout.take().unwrap()).lines();
    let shown: Vec<Value> = lines.take(3).map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!(shown.len() == 3 && shown.iter().all(|one| one["interface"] == INTERFACE), "{shown:?}");
}

#[test]
fn enforcement_for_a_time_ends_in_the_data_path_itself() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}\nenforce_for: 5s");
    let status = lab.attach("--policy p.yaml --mode enforce");
    assert!((0.1..=5.0).contains(&status["enforce_remaining_seconds"].as_f64().unwrap()), "{status}");
    assert_eq!(lab.send(1000, ATTACK, 3), 0);
    wait("enforcement ends", || lab.status()["mode"] == "observe");
    assert_eq!(lab.send(1000, ATTACK, 3), 3);
    let status = lab.status();
    assert_eq!((&status["mode"], &status["mode_as_asked"]), (&"observe".into(), &false.into()));
    // Only the mode is named: the policy that is there starts its time again.
    assert_eq!(lab.attach("--mode enforce")["mode"], "enforce");
    assert_eq!(lab.send(1000, ATTACK, 3), 0);
}

#[test]
fn enforcement_for_a_time_is_as_long_in_a_time_namespace() {
    let Some(mut lab) = Lab::new() else { return };
    lab.copy_agent();
    lab.policy("classes: {attack: drop}\nevents: {rate: 1000/s}\nenforce_for: 5s");
    for ahead in ["86400", "1000000"] {
        let words = ["unshare", "--time", "--monotonic", ahead, "--boottime", ahead, "--fork"];
        lab.runner = words.map(String::from).to_vec();
        let status = lab.attach("--policy p.yaml --mode enforce");
        assert!((0.1..=5.0).contains(&status["enforce_remaining_seconds"].as_f64().unwrap()), "{status}");
        assert_eq!(lab.send(1000, ATTACK, 3), 0);
        let flows = lab.json("flows");
        assert!(flows["flows"][0]["age_seconds"].as_f64().unwrap() < 10.0, "{flows}");
        let inside = events(&lab);
        lab.runner.clear();
        let outside = events(&lab);
        assert_eq!(inside.len(), outside.len());
        for ((seconds, event), (same, other)) in inside.iter().zip(&outside) {
            assert_eq!(event, other);
            // Each command measures anew how far the wall clock is from the kernel's.
            let apart = (seconds - same).abs();
            assert!(!(1.0..86_399.0).contains(&apart), "{seconds} {same}");
        }
        wait("enforcement ends", || lab.status()["mode"] == "observe");
        assert_eq!(lab.send(1000, ATTACK, 3), 3);
    }
}

/// Events with the second of the day, which is taken out of them.
fn events(lab: &Lab) -> Vec<(f64, serde_json::Value)> {
    let text = lab.ok("events --json");
    let event = |line: &str| {
        let mut event: serde_json::Value = serde_json::from_str(line).unwrap();
        let time = event["timestamp"].take();
        let clock = time.as_str().unwrap().split(['T', '+']).nth(1).unwrap().to_owned();
        let seconds = clock.split(':').fold(0.0, |sum, part| 60.0 * sum + part.parse::<f64>().unwrap());
        (seconds, event)
    };
    text.lines().map(event).collect()
}

#[test]
fn another_bundle_replaces_ours_without_a_gap() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let before = lab.attach("--policy p.yaml --mode enforce");
    lab.write("other.wirewise", &bundle("second", data_path().unwrap()));
    let run =
        format!("run --bundle other.wirewise --interface {INTERFACE} --policy p.yaml --mode enforce --yes");
    let error = lab.error(&run, 1);
    assert!(error.contains("with another bundle (first, ") && error.contains("--replace"), "{error}");

    lab.flow(1000).send_during(ATTACK, || {
        for name in ["other", "b"].repeat(4) {
            lab.ok(&format!("{} --replace", run.replace("other", name)));
        }
    });
    let after = lab.status();
    assert_eq!((&after["bundle"]["name"], &after["link_id"]), (&"first".into(), &before["link_id"]));
    assert_ne!(after["program_id"], before["program_id"]);
    let directories: Vec<_> =
        lab.pinned().into_iter().filter(|name| name.matches('/').count() == 1).collect();
    assert_eq!(directories, [format!("wirewise/{INTERFACE}")]);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}

#[test]
fn the_plane_changes_only_when_told() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("--plane xdp-generic");
    assert_eq!(lab.xdp(INTERFACE).unwrap().0, 2);
    // Without --plane an adopted program stays where it is.
    assert_eq!(lab.attach("")["plane_obtained"], "xdp-generic");
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} --plane xdp-native");
    assert!(lab.error(&run, 1).contains("attached as xdp-generic; `--replace` changes that"));
    assert_eq!(lab.json(&format!("{run} --replace"))["status"]["plane_obtained"], "xdp-native");
    assert_eq!(lab.xdp(INTERFACE).unwrap().0, 1);
    assert_eq!(lab.attach("--replace --flow-table-size 2048")["flow_tables"]["entries"], 2048);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}

#[test]
fn what_a_killed_agent_left_half_way_is_no_obstacle() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    std::fs::remove_file(lab.pins().join(INTERFACE).join("link")).unwrap();
    while lab.xdp(INTERFACE).is_some() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(lab.json("status")["attachments"], serde_json::json!([]));
    assert_eq!(lab.attach("")["attached"], true);
    std::fs::remove_file(lab.pins().join(INTERFACE).join("link")).unwrap();
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert_eq!(lab.pinned(), [""; 0]);
}

#[test]
fn an_interface_may_go_away_or_have_a_dot_in_its_name() {
    let Some(lab) = Lab::new() else { return };
    lab.sh(&format!("ip link add {INTERFACE}.5 type veth peer name other"));
    let run = format!("run --bundle b.wirewise --interface {INTERFACE}.5");
    let status = lab.json(&run)["status"].clone();
    assert_eq!(status["interface"], format!("{INTERFACE}.5"));
    assert_eq!(lab.xdp(&format!("{INTERFACE}.5")), Some((1, status["program_id"].as_u64().unwrap())));
    lab.sh(&format!("ip link delete {INTERFACE}.5"));
    let status = lab.json(&format!("status --interface {INTERFACE}.5"));
    assert_eq!(status["attachments"][0]["attached"], false);
    lab.ok(&format!("detach --interface {INTERFACE}.5"));
    lab.assert_untouched();
}
