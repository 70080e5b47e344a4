// SPDX-License-Identifier: Apache-2.0
//! What the agent says where its surroundings fail it: a full disk, few descriptors, a file system that is read-only, other commands
//! at the same time.

use std::fs::File;
use std::process::{Command, Output};
use std::thread;

use serde_json::Value;

use crate::lab::{ATTACK, INTERFACE, Lab};

const AGENT: &str = env!("CARGO_BIN_EXE_wirewised");

/// The one line on standard error.
fn line(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    let [line] = stderr.lines().collect::<Vec<_>>()[..] else { panic!("not one line: {stderr}") };
    line.to_owned()
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_no_panic() {
    let Some(lab) = Lab::new() else { return };
    lab.attach("");
    lab.write("c.pcap", &capture());
    let commands = [
        "status",
        "status --json",
        "stats",
        "stats --watch --interval 100ms",
        "flows",
        "events",
        "doctor",
        "detach --interface ww0 --dry-run",
        "run --bundle b.wirewise --interface ww0 --dry-run",
        "run --bundle b.wirewise --interface ww0",
        "verify --bundle b.wirewise",
        "replay c.pcap --bundle b.wirewise",
        "trace c.pcap --bundle b.wirewise",
        "completions bash",
        "--help",
        "run --help",
        "--version",
    ];
    lab.send(1000, ATTACK, 3);
    for command in commands {
        let mut child = match command.split(' ').next() {
            // These know no --pin-root.
            Some("verify" | "replay" | "trace" | "completions" | "--help" | "--version") => {
                let mut child = Command::new(AGENT);
                child.args(command.split(' ')).current_dir(lab.path(""));
                child
            }
            _ => lab.command(command),
        };
        let output = child.stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
        if command == "events" {
            // Nothing is printed: nothing can fail.
            assert!(output.status.success());
            continue;
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {stderr}");
        assert!(stderr.contains("No space left on device"), "{command}: {stderr}");
        assert!(!stderr.contains("panicked"), "{command}: {stderr}");
    }
    // Nobody can be told, but the exit code stays.
    let full = File::options().write(true).open("/dev/full").unwrap();
    let code = lab.command("status --interface nonesuch").stderr(full).status().unwrap().code();
    assert_eq!(code, Some(2));
}

#[test]
fn what_the_process_ran_out_of_is_named() {
    let Some(lab) = Lab::new() else { return };
    lab.write("c.pcap", &capture());
    let limited = |limit: &str, arguments: &str| {
        let script = format!("ulimit {limit} && exec {AGENT} {arguments}");
        Command::new("sh").args(["-c", &script]).current_dir(lab.path("")).output().unwrap()
    };
    let output = limited("-n 8", "verify --bundle b.wirewise");
    assert_eq!(output.status.code(), Some(1));
    let line = line(&output);
    assert!(line.contains("too many open files") && line.contains("ulimit -n"), "{line}");
    let output = limited("-v 60000", "replay c.pcap --bundle b.wirewise --caged");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("out of memory"), "{stderr}");
}

#[test]
fn a_read_only_bpf_file_system_is_not_blamed_on_the_user() {
    let Some(lab) = Lab::new() else { return };
    lab.sh(&format!("mount -o remount,ro {}", lab.pins().parent().unwrap().display()));
    let error = lab.error(&format!("run --bundle b.wirewise --interface {INTERFACE}"), 3);
    assert!(error.contains("is mounted read-only") && error.contains("remount,rw"), "{error}");
    lab.assert_untouched();
}

#[test]
fn a_relative_pin_root_is_as_good_as_any() {
    let Some(lab) = Lab::new() else { return };
    let run = |folder: &str, arguments: &str| {
        let output = lab.command(arguments).current_dir(lab.path(folder)).output().unwrap();
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run("", "run --bundle b.wirewise --interface ww0 --pin-root bpf/here");
    let status: Value = serde_json::from_str(&run("bpf", "status --json --pin-root ./here")).unwrap();
    let pins = status["attachments"][0]["pins"].as_str().unwrap();
    assert!(pins.starts_with('/') && pins.ends_with("/bpf/here/ww0"), "{pins}");
    run("bpf", "detach --interface ww0 --pin-root here");
    lab.assert_untouched();
}

#[test]
fn with_json_an_error_is_an_object() {
    let Some(lab) = Lab::new() else { return };
    for (arguments, exit_code, said) in [
        ("run --bundle nonesuch --interface ww0 --json", 2, "nonesuch: does not exist"),
        ("flows --interface nonesuch --json", 2, "no wirewise program on 'nonesuch'"),
        ("stats --json --nonesuch", 2, "unexpected argument '--nonesuch'"),
        ("run --json", 2, "required arguments were not provided"),
    ] {
        let output = lab.run(arguments);
        assert_eq!(output.status.code(), Some(exit_code), "{arguments}");
        let error: Value = serde_json::from_str(&line(&output)).unwrap();
        assert_eq!(error["error"]["exit_code"], exit_code);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains(said) && !message.starts_with("error: "), "{arguments}: {message}");
        assert!(output.stdout.is_empty(), "{arguments}");
    }
    assert!(lab.error("status --interface nonesuch", 2).starts_with("error: no wirewise program"));
}

#[test]
fn commands_beside_an_attach_and_a_detach_say_what_happened() {
    let Some(lab) = Lab::new() else { return };
    let pins = lab.pins();
    let mut others = Vec::new();
    thread::scope(|scope| {
        let beside =
            ["status", "stats", "flows", "detach --interface ww0", "detach --interface ww0 --dry-run"];
        let workers = beside.map(|command| {
            let lab = &lab;
            scope.spawn(move || (0..40).map(|_| lab.run(command)).collect::<Vec<_>>())
        });
        for _ in 0..15 {
            lab.run("run --bundle b.wirewise --interface ww0");
            lab.run("detach --interface ww0");
        }
        for worker in workers {
            others.extend(worker.join().unwrap());
        }
    });
    assert!(others.iter().any(|output| output.status.success()));
    for output in &others {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("os error"), "{stderr}");
        // Whoever waits for the lock says so.
        let lines = stderr.lines().filter(|line| !line.starts_with("note: waiting for "));
        assert!(output.status.success() || lines.count() == 1, "{stderr}");
    }
    lab.run("detach --interface ww0");
    assert!(!pins.exists(), "{:?}", lab.pinned());
}

#[test]
fn twenty_thousand_prefixes_are_allowed_live_and_in_replay() {
    let Some(lab) = Lab::new() else { return };
    let prefixes: Vec<_> = (0..20_000).map(|n| format!("172.{}.{}.0/24", 16 + n / 256, n % 256)).collect();
    let list = prefixes.join(", ");
    lab.policy(&format!("classes: {{attack: drop}}\nallow: {{prefixes: [{list}, 10.9.0.0/31]}}"));
    lab.attach("--policy p.yaml --mode enforce");
    assert_eq!(lab.send(1000, ATTACK, 3), 3);
    lab.write("c.pcap", &capture());
    for caged in ["", "--caged"] {
        let arguments =
            format!("replay c.pcap --bundle b.wirewise --policy p.yaml --mode enforce --json {caged}");
        let output = Command::new(AGENT)
            .args(arguments.split_whitespace())
            .current_dir(lab.path(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let allowed = report["status"].as_array().unwrap().iter();
        let allowed: Vec<_> = allowed.filter(|row| row["status"] == "allowed_prefix").collect();
        assert_eq!(allowed[0]["packets"], 1, "{report}");
    }
}

#[test]
fn trace_reports_as_json() {
    let Some(lab) = Lab::new() else { return };
    lab.write("c.pcap", &capture());
    let trace = |arguments: &str| {
        let arguments = format!("trace c.pcap --bundle b.wirewise --json {arguments}");
        Command::new(AGENT).args(arguments.split_whitespace()).current_dir(lab.path("")).output().unwrap()
    };
    let summary: Value = serde_json::from_slice(&trace("-o t.jsonl").stdout).unwrap();
    assert_eq!((&summary["packets"], &summary["written"]), (&1.into(), &"t.jsonl".into()));
    let lines = trace("").stdout;
    assert_eq!(lines, std::fs::read(lab.path("t.jsonl")).unwrap());
    assert_eq!(serde_json::from_slice::<Value>(&lines).unwrap()["class"], "attack");
    assert!(line(&trace("--format raw")).contains("raw records are no JSON"));
}

/// A capture of one packet from the sender that the test model takes for an attack.
pub fn capture() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0x02, 0x10, 0, 0, 0, 0, 64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    frame.extend([0x12, 0x34, 0x03, 0xe8, 0x01, 0xfc, 0, 0]);
    frame.resize(14 + 528, 0);
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for word in [1_700_000_000_u32, 0, frame.len() as u32, frame.len() as u32] {
        file.extend(word.to_le_bytes());
    }
    file.extend(frame);
    file
}
