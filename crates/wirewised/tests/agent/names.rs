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
