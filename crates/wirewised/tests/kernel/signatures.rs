// SPDX-License-Identifier: Apache-2.0
//! `wirewised keygen`, `sign`, and who is trusted.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::fixture::{Place, object};

const CHECK: &str = "verify --bundle b.wirewise --no-load --require-signature --trusted-keys keys";

/// A place with keys, of which `release` is trusted.
fn place() -> Option<Place> {
    let place = Place::new(&object(&[])?);
    fs::create_dir(place.path("keys")).unwrap();
    fs::set_permissions(place.path("keys"), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["release.key", "other.key"] {
        place.stdout(&format!("keygen {name}"));
    }
    fs::copy(place.path("release.pub"), place.path("keys/release.pub")).unwrap();
    Some(place)
}

#[test]
fn a_private_key_is_for_its_owner_and_replaces_nothing() {
    let Some(place) = place() else { return };
    assert_eq!(fs::metadata(place.path("release.key")).unwrap().mode() & 0o777, 0o600);
    let before = fs::read(place.path("release.key")).unwrap();
    assert!(place.error("keygen release.key", 2).contains("release.key: is there already"));
    symlink(place.path("elsewhere"), place.path("link.key")).unwrap();
    place.error("keygen link.key", 2);
    // The public key is in the way: no private key without it.
    place.write("half.pub", b"");
    place.error("keygen half.key", 2);
    assert!(!place.path("elsewhere").exists() && !place.path("half.key").exists());
    assert_eq!(fs::read(place.path("release.key")).unwrap(), before);
    fs::set_permissions(place.path("release.key"), fs::Permissions::from_mode(0o640)).unwrap();
    assert!(place.error("sign b.wirewise --key release.key", 2).contains("`chmod 600` it"));
}

#[test]
fn only_what_a_trusted_key_signed_passes() {
    let Some(place) = place() else { return };
    assert!(place.error(CHECK, 2).contains("b.wirewise: is not signed"));
    assert!(place.stdout("verify --bundle b.wirewise --no-load").contains("signed by nobody"));
    let unsigned = fs::read(place.path("b.wirewise")).unwrap();

    let other = place.json("sign b.wirewise --key other.key --json");
    let error = place.error(CHECK, 2);
    assert!(error.contains(other["fingerprint"].as_str().unwrap()) && error.contains("keys"), "{error}");
    let said = place.stdout("verify --bundle b.wirewise --no-load --trusted-keys keys");
    assert!(said.contains("which is not trusted here"), "{said}");

    let again = place.json("sign b.wirewise --key release.key --json");
    assert_eq!(again["replaced"]["fingerprint"], other["fingerprint"]);
    assert!(place.stdout(CHECK).contains("signed by release, trusted here"));
    let report = place.json(&format!("{CHECK} --json"));
    assert_eq!(report["signature"]["trusted_as"], "release");
    assert_eq!(report["accepted"], serde_json::Value::Null);

    // The same key gives the same file, whatever signature was there.
    let signed = fs::read(place.path("b.wirewise")).unwrap();
    place.write("b.wirewise", &unsigned);
    place.stdout("sign b.wirewise --key release.key");
    assert_eq!(fs::read(place.path("b.wirewise")).unwrap(), signed);
    let mut files = place.files();
    files.retain(|name| name.contains("wirewise"));
    assert_eq!(files, ["b.wirewise"], "nothing half-written is left");
}

#[test]
fn keys_that_others_can_write_are_trusted_by_nobody() {
    let Some(place) = place() else { return };
    place.stdout("sign b.wirewise --key release.key");
    for path in ["keys", "keys/release.pub"] {
        let mode = fs::metadata(place.path(path)).unwrap().mode();
        fs::set_permissions(place.path(path), fs::Permissions::from_mode(mode | 0o002)).unwrap();
        assert!(place.error(CHECK, 2).contains("nothing in it can be trusted"));
        fs::set_permissions(place.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    place.write("keys/broken.pub", b"no key");
    assert!(place.error(CHECK, 2).contains("broken.pub: is no public Ed25519 key"));
    assert!(place.error(&CHECK.replace("keys keys", "keys nowhere"), 2).contains("nowhere"));
}
