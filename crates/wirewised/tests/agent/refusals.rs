// SPDX-License-Identifier: Apache-2.0
//! Bad input and refusals: one line, the right exit code, and nothing left behind.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use crate::lab::{INTERFACE, Lab, bundle, data_path, small_path};

#[test]
fn bad_input_is_one_line_and_leaves_nothing() {
    let Some(lab) = Lab::new() else { return };
    let run = |bundle: &str, rest: &str| format!("run --bundle {bundle} --interface {INTERFACE} {rest}");
    let good = std::fs::read(lab.path("b.wirewise")).unwrap();
    for place in [0, good.len() / 2, good.len() - 1] {
        let mut changed = good.clone();
        changed[place] ^= 1;
        lab.write("changed.wirewise", &changed);
        assert!(lab.error(&run("changed.wirewise", ""), 2).contains("changed.wirewise: "));
    }
    lab.write(
        "foreign.wirewise",
        b"PK\x03\x04 but something else entirely, and long enough to have a seal of 64 digits...",
    );
    lab.write("object.wirewise", &bundle("no object", b"no ELF"));
    lab.policy("classes: {worm: drop}");
    let cases = [
        (run("gone.wirewise", ""), "gone.wirewise: does not exist"),
        (run("foreign.wirewise", ""), "foreign.wirewise: the file's digest does not match"),
        (run("object.wirewise", ""), "object.wirewise: program.bpf.o is no ELF object"),
        (
            run("b.wirewise", "--policy p.yaml"),
            "p.yaml: classes: unknown class 'worm'; the bundle has: benign, attack",
        ),
        (run("b.wirewise", "--flow-table-size 1000"), "1000 entries a CPU is not possible"),
        (
            run("b.wirewise", "").replace(INTERFACE, "nope"),
            "no interface 'nope'; this network namespace has: ",
        ),
        ("stats".to_owned(), "nothing is attached under"),
        (format!("detach --interface {INTERFACE}"), "no wirewise program on 'ww0'"),
        (format!("status --interface {INTERFACE}"), "no wirewise program on 'ww0'"),
    ];
    for (arguments, expected) in cases {
        let error = lab.error(&arguments, 2);
        assert!(error.contains(expected), "{arguments}: {error}");
        lab.assert_untouched();
    }
}

#[test]
fn a_driver_without_native_xdp_is_refused_with_the_way_out() {
    let Some(lab) = Lab::new() else { return };
    let error = lab.error("run --bundle b.wirewise --interface lo", 3);
    assert!(error.contains("the driver of lo has no native XDP; add `--plane xdp-generic`"), "{error}");
    assert_eq!(lab.xdp("lo"), None);
    lab.assert_untouched();
    let answer = lab.json("run --bundle b.wirewise --interface lo --plane xdp-generic");
    assert_eq!(answer["status"]["plane_obtained"], "xdp-generic");
}

#[test]
fn a_driver_that_refuses_at_the_last_moment_leaves_nothing() {
    let Some(lab) = Lab::new() else { return };
    lab.sender_sh("ip link set ww1 mtu 9000");
    let error = lab.error(&format!("run --bundle b.wirewise --interface {INTERFACE}"), 3);
    assert!(error.contains("the driver refuses native XDP") && error.contains("MTU"), "{error}");
    lab.assert_untouched();
}

#[test]
fn a_refusal_of_the_verifier_has_the_deciding_lines_and_a_log() {
    let Some(lab) = Lab::new() else { return };
    lab.write("broken.wirewise", &bundle("broken", &small_path(&["BROKEN"]).unwrap()));
    let error = lab.error(&format!("run --bundle broken.wirewise --interface {INTERFACE}"), 4);
    assert!(error.contains("invalid access to packet"), "{error}");
    let log = error.split("full log: ").nth(1).unwrap().trim_end_matches(')');
    assert!(std::fs::read_to_string(Path::new(log)).unwrap().contains("invalid access to packet"));
    lab.assert_untouched();
}

#[test]
fn a_dry_run_touches_nothing() {
    let Some(lab) = Lab::new() else { return };
    lab.policy("classes: {attack: drop}");
    let run =
        format!("run --bundle b.wirewise --interface {INTERFACE} --policy p.yaml --mode enforce --dry-run");
    let said = lab.ok(&run);
    for expected in [
        "would attach first to ww0 as xdp-native",
        "enforce",
        "attack: drop",
        "1024 entries",
        "nothing was changed",
    ] {
        assert!(said.contains(expected), "{said}");
    }
    let plan = lab.json(&run);
    let cpus = plan["flow_tables"]["cpus"].as_u64().unwrap();
    assert_eq!(plan["flow_tables"]["bytes"], cpus * 1024 * 128);
    lab.assert_untouched();
}

/// `detach --interface etc --pin-root /` has nothing to remove.
#[test]
fn folders_outside_a_bpf_file_system_are_no_attachments() {
    let Some(lab) = Lab::new() else { return };
    let place = lab.path("plain");
    fs::create_dir_all(place.join("etc/deep")).unwrap();
    for name in ["etc/meta", "etc/link", "etc/deep/file"] {
        fs::write(place.join(name), "mine").unwrap();
    }
    fs::set_permissions(&place, Permissions::from_mode(0o755)).unwrap();
    for command in ["detach", "rollback", "stats", "swap --bundle b.wirewise", "mode observe"] {
        let error = lab.error(&format!("{command} --interface etc --pin-root {}", place.display()), 6);
        assert!(error.contains("is in no BPF file system"), "{command}: {error}");
    }
    for name in ["etc/meta", "etc/link", "etc/deep/file"] {
        assert_eq!(fs::read_to_string(place.join(name)).unwrap(), "mine");
    }
    assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o755);
    lab.assert_untouched();
}

/// The directory of the attachments may hold the pins of others, too.
#[test]
fn pins_of_others_beside_ours_stay() {
    let Some(lab) = Lab::new() else { return };
    let theirs = lab.pins().join("theirs/maps");
    fs::create_dir_all(&theirs).unwrap();
    lab.attach("");
    let error = lab.error("detach --interface theirs", 2);
    assert!(error.contains("no wirewise program on 'theirs'"), "{error}");
    lab.ok(&format!("detach --interface {INTERFACE}"));
    assert!(theirs.is_dir());
    assert_eq!(lab.xdp(INTERFACE), None);
}

#[test]
fn pins_outside_a_bpf_file_system_are_refused_with_the_mount() {
    let Some(lab) = Lab::new() else { return };
    let place = lab.path("plain");
    let error = lab
        .error(&format!("run --bundle b.wirewise --interface {INTERFACE} --pin-root {}", place.display()), 3);
    assert!(error.contains("mount -t bpf bpf /sys/fs/bpf"), "{error}");
    assert!(!place.exists());
    lab.assert_untouched();
}

#[test]
fn an_object_that_does_not_fit_its_manifest_is_refused() {
    let Some(lab) = Lab::new() else { return };
    let members = crate::common::members(data_path().unwrap());
    let mut manifest = crate::common::manifest(&members);
    manifest["flow"]["entry4_size"] = 96.into();
    lab.write("odd.wirewise", &crate::common::bundle_with(&manifest, &members));
    let error = lab.error(&format!("run --bundle odd.wirewise --interface {INTERFACE}"), 2);
    assert!(error.contains("map ww_flows4 has type 2, keys of 4 bytes, values of 256"), "{error}");
    lab.assert_untouched();
}
