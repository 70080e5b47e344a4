// SPDX-License-Identifier: Apache-2.0
//! Swaps that do not come to their end, and agents that look on.

use std::io::{BufRead, BufReader};

use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab, bundle, data_path};
use crate::swap::{directories, flows, lenient, sum};

fn place(lab: &Lab, beside: &str) -> std::path::PathBuf {
    lab.pins().join(format!("{INTERFACE}{beside}"))
}

#[test]
fn from_every_state_a_killed_swap_can_leave_the_next_command_goes_on() {
    let Some(lab) = Lab::new() else { return };
    let [current, new, previous, old] =
        ["", "::new", "::previous", "::old"].map(|beside| place(&lab, beside));
    let rename = |from: &std::path::Path, to: &std::path::Path| std::fs::rename(from, to).unwrap();
    lab.write("c.wirewise", &lenient());
    lab.policy("classes: {attack: drop}");
    for moves in 0..=3 {
        for rollback in [false, true] {
            lab.attach("--policy p.yaml --mode enforce");
            assert_eq!(lab.json("swap --bundle c.wirewise --policy p.yaml --yes")["action"], "swapped");
            // Undo the steps that follow the update of the link, from the last one on.
            let from = if rollback { &previous } else { &new };
            if moves < 3 {
                rename(&previous, &old);
            }
            if moves < 2 {
                rename(&current, from);
            }
            if moves < 1 {
                rename(&old, &current);
                rename(&from.join("link"), &current.join("link"));
            }
            let status = lab.status();
            assert_eq!(
                (&status["bundle"]["name"], &status["attached"]),
                (&"second".into(), &true.into()),
                "{moves} {rollback}"
            );
            assert_eq!(lab.send(1000, ATTACK, 2), 2);
            assert_eq!(lab.stats()["classes"][0]["packets"], 2, "{moves} {rollback}");
            let next = match moves {
                0 => "swap --bundle c.wirewise".to_string(),
                _ => format!("run --bundle c.wirewise --interface {INTERFACE}"),
            };
            let answer = lab.json(&next);
            assert!(["kept", "adopted"].contains(&answer["action"].as_str().unwrap()), "{answer}");
            let names = ["", "::previous"].map(|beside| format!("wirewise/{INTERFACE}{beside}"));
            assert_eq!(directories(&lab), names, "{moves} {rollback}");
            assert_eq!(lab.json("rollback")["status"]["bundle"]["name"], "first");
            assert_eq!((lab.send(1000, ATTACK, 2), lab.send(1000, BENIGN, 2)), (0, 2));
            lab.ok(&format!("detach --interface {INTERFACE}"));
            lab.assert_untouched();
        }
    }
}

#[test]
fn killed_at_any_moment_the_data_path_works_and_the_next_swap_too() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    lab.attach("--policy p.yaml --mode enforce");
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    let start = std::time::Instant::now();
    lab.ok("swap --bundle c.wirewise");
    let whole = start.elapsed();
    let flow = lab.flow(1000);
    let (mut sent, mut ended) = (0, [0; 2]);
    for kill in 0.. {
        // Longer and longer, for a machine that gets slower meanwhile.
        if kill >= 40 && (kill == 200 || ended.iter().all(|count| *count > 0)) {
            break;
        }
        let running = lab.status()["bundle"]["name"] == "first";
        let next = if running { "c.wirewise" } else { "b.wirewise" };
        let mut child = lab
            .command(&format!("swap --bundle {next} --json"))
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole * kill / 20);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(flow.send(ATTACK, 1), 0, "kill {kill}");
        sent += 1;
        let status = lab.status();
        assert_eq!((&status["attached"], &status["mode"]), (&true.into(), &"enforce".into()), "kill {kill}");
        assert_eq!(lab.xdp(INTERFACE).unwrap().1, status["program_id"].as_u64().unwrap());
        ended[usize::from((status["bundle"]["name"] == "first") == running)] += 1;
    }
    assert!(ended[0] > 0 && ended[1] > 0, "kills before and after the swap: {ended:?}");
    let found = flows(&lab);
    assert_eq!(sum(&found, |flow| &flow["packets"]), sent);
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
}

#[test]
fn an_agent_that_watches_lives_through_swaps() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    let mut agent = lab.foreground("--json --interval 1ms");
    let mut lines = BufReader::new(agent.0.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    let reader = std::thread::spawn(move || lines.count());
    for swap in 0..10 {
        lab.ok(&format!("swap --bundle {}", if swap % 2 == 0 { "c.wirewise" } else { "b.wirewise" }));
        lab.ok("rollback");
        lab.ok("rollback");
    }
    if agent.0.try_wait().unwrap().is_some() {
        panic!("it ended: {}", std::io::read_to_string(agent.0.stderr.take().unwrap()).unwrap());
    }
    agent.signal(libc::SIGTERM);
    assert!(agent.0.wait().unwrap().success());
    assert!(reader.join().unwrap() > 10);
}

/// Commands under which every attack is dropped, whatever ran before.
const COMMANDS: [&str; 13] = [
    "swap --bundle b.wirewise",
    "swap --bundle c.wirewise",
    "swap --bundle c.wirewise --policy more.yaml --yes",
    "rollback",
    "swap --shadow --bundle c.wirewise",
    "swap --promote",
    "swap --no-shadow",
    "run --policy p.yaml",
    "run --policy more.yaml",
    "run --policy p.yaml --mode enforce --replace --plane xdp-native",
    "run --policy p.yaml --mode enforce --replace --plane xdp-generic --offloads off",
    "run --policy more.yaml --mode enforce --replace --plane tc-ingress --offloads off",
    "run --policy more.yaml --mode enforce --replace --plane tc-ingress --offloads off --clsact",
];

/// Twenty, or as many as `WIREWISED_KILLS` says.
#[test]
fn killed_at_random_under_traffic_no_attack_passes_and_nothing_is_left() {
    let Some(lab) = Lab::new() else { return };
    let kills: u32 = std::env::var("WIREWISED_KILLS").map_or(20, |kills| kills.parse().unwrap());
    lab.whole_packets();
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    lab.write(
        "more.yaml",
        b"version: 1\nclasses: {attack: drop, benign: {mark: 7}}\nallow: {ports: [udp/7]}\n",
    );
    lab.policy("classes: {attack: drop}");
    let with = |command: &str| {
        let running = lab.status()["bundle"]["name"] == "second";
        let bundle = if running { "c.wirewise" } else { "b.wirewise" };
        match command.strip_prefix("run") {
            Some(rest) => format!("run --bundle {bundle} --interface {INTERFACE} --yes {rest}"),
            None => command.to_string(),
        }
    };
    lab.attach("--policy p.yaml --mode enforce");
    let start = std::time::Instant::now();
    lab.ok("swap --bundle c.wirewise");
    let mut longest = 2 * start.elapsed();
    let mut died = 0;
    lab.flow(1000).send_during(ATTACK, || {
        // The same each time, but for when a command is where.
        let mut random = 7_u64;
        let mut next = |most: u32| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as u32 % most
        };
        while died < kills {
            let command = with(COMMANDS[next(COMMANDS.len() as u32) as usize]);
            let quiet = std::process::Stdio::null;
            let mut child = lab.command(&command).stdout(quiet()).stderr(quiet()).spawn().unwrap();
            std::thread::sleep(longest * next(100) / 100);
            let _ = child.kill();
            // However fast the machine is at the moment, about two of three die, at any moment of what they do.
            if child.wait().unwrap().code().is_none() {
                died += 1;
                longest = longest * 21 / 20;
            } else {
                longest = longest * 9 / 10;
            }
        }
    });
    assert_eq!(
        (lab.status()["attached"].clone(), lab.status()["mode"].clone()),
        (true.into(), "enforce".into())
    );
    lab.ok(&format!("detach --interface {INTERFACE}"));
    lab.assert_untouched();
    assert!(!lab.sh(&format!("tc qdisc show dev {INTERFACE}")).contains("clsact"));
    assert_eq!(lab.send(1001, ATTACK, 3), 3);
}
