// SPDX-License-Identifier: Apache-2.0
//! Who made what is attached, and what reaches the terminal.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::lab::{INTERFACE, Lab, bundle, data_path};

#[test]
fn what_no_trusted_key_signed_is_not_attached() {
    let Some(lab) = Lab::new() else { return };
    let keygen = |name: &str| {
        let output = lab.agent(&format!("keygen {name}"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let sign =
        |file: &str, key: &str| assert!(lab.agent(&format!("sign {file} --key {key}")).status.success());
    fs::create_dir(lab.path("keys")).unwrap();
    fs::set_permissions(lab.path("keys"), fs::Permissions::from_mode(0o755)).unwrap();
    keygen("release.key");
    keygen("other.key");
    fs::rename(lab.path("release.pub"), lab.path("keys/release.pub")).unwrap();
    let trust = "--require-signature --trusted-keys keys";
    let run = format!("run --bundle b.wirewise --interface {INTERFACE} {trust}");
    assert!(lab.error(&run, 2).contains("is not signed"));
    sign("b.wirewise", "other.key");
    assert!(lab.error(&run, 2).contains("not among the trusted keys"));
    lab.assert_untouched();
    sign("b.wirewise", "release.key");
    lab.ok(&run);
    assert_eq!(lab.status()["bundle"]["signer"]["trusted_as"], "release");
    assert!(lab.ok("status").contains("signature    by release, trusted here"));

    lab.write("c.wirewise", &bundle("second", data_path().unwrap()));
    for command in ["swap", "swap --shadow"] {
        assert!(lab.error(&format!("{command} --bundle c.wirewise {trust}"), 2).contains("is not signed"));
    }
    assert_eq!(lab.status()["bundle"]["name"], "first");
    lab.ok("swap --bundle c.wirewise");
    assert_eq!(lab.status()["bundle"]["signer"], serde_json::Value::Null);
    assert!(lab.ok("status").contains("signature    by nobody"));
}

#[test]
fn the_name_of_a_policy_file_reaches_no_terminal() {
    let Some(lab) = Lab::new() else { return };
    let name = "p\u{1b}[2J\u{9b}31m.yaml";
    lab.write(name, b"version: 1\nclasses: {attack: drop}\n");
    lab.ok(&format!("run --bundle b.wirewise --interface {INTERFACE} --policy {name}"));
    let shown = lab.ok("status");
    assert!(shown.contains(r"p\u001b[2J\u009b31m.yaml"), "{shown}");
    assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    // JSON says the same of itself.
    assert!(!lab.ok("status --json").contains(|c: char| c.is_control() && c != '\n'));
    assert_eq!(lab.status()["policy"]["file"], lab.path(name).display().to_string());
}
