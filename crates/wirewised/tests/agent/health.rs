// SPDX-License-Identifier: Apache-2.0
//! What `status` says where not everything can be seen, and where what was attached is gone.

use std::process::Command;

use serde_json::Value;

use crate::lab::{ATTACK, BENIGN, INTERFACE, Lab};

/// Dropping attacks.
fn enforcing(interface: &str) -> Option<Lab> {
    let lab = Lab::new()?;
    if interface != INTERFACE {
        lab.sh(&format!("ip link add {interface} type veth peer name other"));
    }
    lab.policy("classes: {attack: drop}");
    lab.ok(&format!("run --bundle b.wirewise --interface {interface} --policy p.yaml --mode enforce --yes"));
    Some(lab)
}

#[test]
fn what_is_attached_elsewhere_is_said_to_be_there() {
    let Some(lab) = enforcing(INTERFACE) else { return };
    let [sender, receiver] = lab.namespaces();
    lab.ok(&format!("status --check --interface {INTERFACE}"));
    let there = lab.json(&format!("status --check --netns {sender}"))["attachments"][0].clone();
    assert_eq!(there["network_namespace"]["netns"], receiver);
    assert_eq!((&there["attached"], &there["plane_obtained"]), (&true.into(), &"xdp-native".into()));
    let text = lab.ok(&format!("status --netns {sender}"));
    assert!(text.contains(&format!("{receiver} (`--netns {receiver}`)")), "{text}");
    let check = lab.error(&format!("status --check --interface {INTERFACE} --netns {sender}"), 5);
    assert!(check.contains(&format!("but there is {INTERFACE} (--netns {receiver})")), "{check}");
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert!(lab.error("status --check", 5).contains("nothing is attached under"));
    assert!(lab.ok("status").contains("nothing is attached under"));
}

#[test]
fn what_cannot_be_seen_is_not_said_to_be_nothing() {
    let Some(lab) = enforcing(INTERFACE) else { return };
    let program = lab.status()["program_id"].clone();
    let without_bpffs = |arguments: &str| {
        let script = format!("umount \"$1\" && exec \"$2\" {arguments} --pin-root \"$3\" --netns \"$4\"");
        let output = Command::new("unshare")
            .args(["--mount", "sh", "-c", &script, "sh"])
            .arg(lab.pins().parent().unwrap())
            .args([env!("CARGO_BIN_EXE_wirewised").as_ref(), lab.pins().as_os_str()])
            .arg(lab.namespaces()[1])
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (code, said, _) = without_bpffs("status");
    assert_eq!(code, 0);
    assert!(
        said.contains(&format!("{INTERFACE}\n  plane        xdp-native, program {program} (ww_main)")),
        "{said}"
    );
    assert!(said.contains("cannot know what is attached") && !said.contains("nothing is attached"), "{said}");
    let (code, said, error) = without_bpffs("status --check --json");
    assert_eq!(code, 6, "{error}");
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["bpf_file_system"], &said["attachments"]), (&false.into(), &Value::Array(Vec::new())));
    assert_eq!(said["unpinned"][0]["program_id"], program);
    let error: Value = serde_json::from_str(&error).unwrap();
    assert_eq!(error["error"]["exit_code"], 6);
    assert!(
        error["error"]["message"].as_str().unwrap().starts_with("cannot know what is attached: "),
        "{error}"
    );
    let (code, ..) = without_bpffs("status --check --interface lo");
    assert_eq!(code, 6);
    for command in ["stats", "flows", "events", "detach"] {
        let (code, _, error) = without_bpffs(&format!("{command} --interface {INTERFACE}"));
        assert_eq!(code, 6, "{error}");
        assert!(error.contains("cannot know what is attached to"), "{error}");
    }

    // The same for who looks in another place.
    let elsewhere = format!("--pin-root {}", lab.pins().with_file_name("other").display());
    let error = lab.error(&format!("status --check --interface {INTERFACE} {elsewhere}"), 6);
    assert!(error.contains("no pins under"), "{error}");
    assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0));
    lab.ok(&format!("status --check --interface {INTERFACE}"));
}

#[test]
fn an_interface_that_is_made_again_has_nothing_attached() {
    let Some(lab) = enforcing("vb") else { return };
    assert_eq!(lab.json("stats --interface vb")["mode"], "enforce");
    lab.sh("ip link delete vb");
    lab.sh("ip link add vb type veth peer name other");
    let error = lab.error("status --check --interface vb", 5);
    assert!(error.contains("vb: nothing is attached any more"), "{error}");
    lab.error("status --check", 5);
    let status = lab.json("status --interface vb")["attachments"][0].clone();
    assert_eq!((&status["attached"], &status["mode"]), (&false.into(), &Value::Null));
    let stats = lab.json("stats --interface vb");
    assert_eq!(
        (&stats["attached"], &stats["mode"]),
        (&false.into(), &"none: nothing is attached any more".into())
    );
    let watch = lab
        .command("stats --interface vb --watch --interval 50ms")
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut watch = crate::lab::Foreground(watch.unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(watch.0.stdout.take().unwrap()), &mut line)
        .unwrap();
    assert!(line.contains("mode none: nothing is attached any more"), "{line}");
    drop(watch);
    for command in ["swap --bundle b.wirewise", "rollback"] {
        assert!(lab.error(&format!("{command} --interface vb"), 2).contains("nothing is attached any more"));
    }
    lab.ok("run --bundle b.wirewise --interface vb");
    lab.ok("status --check --interface vb");
    lab.ok("detach --interface vb");
    lab.assert_untouched();
}

#[test]
fn what_cannot_be_read_hides_nothing_else() {
    let Some(lab) = enforcing(INTERFACE) else { return };
    lab.sh("ip link add vb type veth peer name other");
    let run = "run --bundle b.wirewise --interface vb";
    for broken in ["prog", "ww_policy"] {
        lab.ok(run);
        // As another version of the agent, or somebody with `rm`, may leave it.
        let pin = lab.pins().join("vb").join(broken);
        std::fs::remove_file(&pin).unwrap();
        if broken == "prog" {
            std::fs::create_dir(&pin).unwrap();
        }
        let error = lab.error("status --check", 7);
        assert!(error.starts_with("error: vb: what is attached cannot be read: "), "{error}");
        let said = lab.json("status");
        assert_eq!(said["attachments"].as_array().unwrap().len(), 1, "{said}");
        assert_eq!(said["attachments"][0]["interface"], INTERFACE);
        assert_eq!(said["unreadable"][0]["interface"], "vb", "{said}");
        assert_eq!(said["unpinned"].as_array().unwrap().len(), 0, "{said}");
        let text = lab.ok("status");
        assert!(text.contains("vb\n  unreadable   ") && text.contains(&format!("{INTERFACE}\n")), "{text}");
        lab.error("status --interface vb", 1);
        lab.error("status --check --interface vb", 7);
        // Of the other one everything works.
        lab.ok(&format!("status --check --interface {INTERFACE}"));
        lab.ok(&format!("swap --bundle b.wirewise --interface {INTERFACE}"));
        assert_eq!((lab.send(1000, BENIGN, 3), lab.send(1000, ATTACK, 3)), (3, 0));
        if broken == "prog" {
            assert!(lab.error(run, 1).contains("`wirewised detach --interface vb` takes it off"));
        }
        lab.ok("detach --interface vb");
        assert_eq!(lab.xdp("vb"), None);
    }
    lab.ok("status --check");
}

#[test]
fn files_are_remembered_by_names_that_hold_everywhere() {
    let Some(lab) = Lab::new() else { return };
    std::fs::create_dir(lab.path("folder")).unwrap();
    lab.policy("classes: {attack: drop}");
    let run = "run --bundle ./folder/../b.wirewise --policy folder/../p.yaml --interface";
    let answer = lab.json(&format!("{run} {INTERFACE} --yes"));
    let name = |file: &str| lab.path(file).canonicalize().unwrap().display().to_string();
    assert_eq!(answer["status"]["bundle"]["file"], name("b.wirewise"));
    assert_eq!(answer["status"]["policy"]["file"], name("p.yaml"));
    // A shadow reads the first's bundle again, from wherever it is asked for.
    let mut shadow = lab.command(&format!("swap --shadow --bundle {}", name("b.wirewise")));
    let shadow = shadow.current_dir("/").output().unwrap();
    assert!(shadow.status.success(), "{}", String::from_utf8_lossy(&shadow.stderr));
}
