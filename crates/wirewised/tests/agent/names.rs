// SPDX-License-Identifier: Apache-2.0
//! Interfaces with odd names, with several names, and in directories as an older agent called them.

use crate::lab::{INTERFACE, Lab, bundle, data_path};

#[test]
fn no_name_means_the_directory_of_another() {
    let Some(lab) = Lab::new() else { return };
    let names = ["vb", "..x", "vb..previous", "vb..new", "a\u{e9}~"];
    for (number, name) in names.iter().enumerate() {
        lab.sh(&format!("ip link add {name} type veth peer name p{number}"));
        lab.ok(&format!("run --bundle b.wirewise --interface {name}"));
    }
    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    lab.ok("swap --bundle c.wirewise --interface vb");
    let status = lab.json("status");
    let mut seen: Vec<_> = status["attachments"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["interface"].as_str().unwrap())
        .collect();
    seen.sort_unstable();
    let mut expected = names;
    expected.sort_unstable();
    assert_eq!(seen, expected);
    // Another's name like a directory beside takes nothing from vb.
    lab.ok("detach --interface vb..previous");
    lab.ok("detach --interface vb..new");
    assert_eq!(lab.json("rollback --interface vb")["status"]["bundle"]["name"], "first");
    for name in ["vb", "..x", "a\u{e9}~"] {
        lab.ok(&format!("detach --interface {name}"));
        assert_eq!(lab.xdp(name), None);
    }
    lab.assert_untouched();
}

#[test]
fn an_interface_has_all_its_names() {
    let Some(lab) = Lab::new() else { return };
    let long = "the-uplink-to-the-provider-in-rack-17";
    lab.sh(&format!("ip link property add dev {INTERFACE} altname uplink altname {long}"));
    let run = |name: &str| lab.json(&format!("run --bundle b.wirewise --interface {name}"));
    let first = run(long);
    assert_eq!((&first["action"], &first["status"]["interface"]), (&"attached".into(), &INTERFACE.into()));
    assert_eq!(run("uplink")["action"], "adopted");
    for name in [INTERFACE, "uplink", long] {
        assert_eq!(lab.json(&format!("stats --interface {name}"))["interface"], INTERFACE);
        assert_eq!(lab.json(&format!("doctor --interface {name}"))["ready"], true);
    }
    lab.ok(&format!("detach --interface {long}"));
    lab.assert_untouched();
    let error = lab.error("run --bundle b.wirewise --interface a-name-longer-than-any-that-was-given", 2);
    assert!(error.contains("no interface 'a-name-longer-than-any-that-was-given'"), "{error}");
}

#[test]
fn directories_of_an_older_agent_are_taken_over() {
    let Some(lab) = Lab::new() else { return };
    for (name, old) in [("vb.5", "vb:5"), ("..x", "::x")] {
        lab.sh(&format!("ip link add {name} type veth peer name vp"));
        let run = format!("run --bundle b.wirewise --interface {name}");
        let pins = lab.json(&run)["status"]["pins"].as_str().unwrap().to_owned();
        std::fs::rename(pins, lab.pins().join(old)).unwrap();
        assert_eq!(lab.json(&run)["action"], "adopted");
        assert_eq!(lab.json("status")["attachments"][0]["interface"], name);
        lab.ok(&format!("detach --interface {name}"));
        lab.assert_untouched();
        lab.sh(&format!("ip link delete {name}"));
    }
}

#[test]
fn suggested_commands_quote_names_that_others_gave() {
    let Some(lab) = Lab::new() else { return };
    lab.sh(&format!("ethtool -K {INTERFACE} gro on"));
    let [sender, _] = lab.namespaces();
    lab.sender_sh("ip link set ww1 down");
    lab.sender_sh("ip link set ww1 name a;reboot;b");
    lab.sender_sh("ip link set a;reboot;b up");
    let doctor = lab.ok(&format!("doctor --interface {INTERFACE} --plane xdp-generic"));
    let quoted = format!("ip netns exec {sender} ethtool -K 'a;reboot;b' tso off");
    assert!(doctor.split_whitespace().collect::<Vec<_>>().join(" ").contains(&quoted), "{doctor}");
    for (name, quoted) in [("a;b", "'a;b'"), ("$(id)", "'$(id)'"), ("it's", r"'it'\''s'"), ("`x`", "'`x`'")] {
        lab.sh(&format!("ip link add {name} type veth peer name vp"));
        let report = lab.ok(&format!("run --bundle b.wirewise --interface {name}"));
        assert!(report.contains(&format!("`wirewised stats --interface {quoted} ")), "{report}");
        let finding = lab.run(&format!("doctor --interface {name}"));
        let text = String::from_utf8(finding.stdout).unwrap();
        assert!(text.contains(&format!("`ip link set {quoted} up`")), "{text}");
        lab.ok(&format!("detach --interface {name}"));
        lab.sh(&format!("ip link delete {name}"));
    }
    lab.assert_untouched();
}

#[test]
fn names_of_files_add_no_line_to_what_is_shown() {
    let Some(lab) = Lab::new() else { return };
    let name = "p\n  mode         enforce\n  pins         x\u{1b}[2J\ty";
    lab.write(name, b"version: 1\n");
    lab.write("b\nc.wirewise", &bundle("first", data_path().unwrap()));
    let run = |words: &[&str]| {
        let output = lab.command(words[0]).args(&words[1..]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let attached = run(&[
        "run",
        "--bundle",
        "b\nc.wirewise",
        "--interface",
        INTERFACE,
        "--policy",
        name,
        "--mode",
        "observe",
    ]);
    for text in [
        attached,
        run(&["status"]),
        run(&["run", "--dry-run", "--bundle", "b\nc.wirewise", "--interface", INTERFACE]),
    ] {
        let forged =
            |line: &&str| line.starts_with("  mode         enforce") || line.starts_with("c.wirewise");
        assert_eq!(text.lines().find(forged), None, "{text}");
        assert!(!text.contains('\u{1b}') && !text.contains('\t'), "{text:?}");
    }
    assert!(run(&["status"]).contains(r"p\u000a  mode         enforce\u000a"));
    let status = &lab.json("status")["attachments"][0];
    assert!(status["policy"]["file"].as_str().unwrap().ends_with(name), "{status}");
    run(&["detach", "--interface", INTERFACE]);
    lab.assert_untouched();
}
