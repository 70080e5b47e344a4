// SPDX-License-Identifier: Apache-2.0
//! The bundle reader: what is right is read, everything else is refused with one line.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use ed25519_dalek::SigningKey;

use common::{bundle, bundle_with, manifest, members, reseal, seal};
use proptest::prelude::*;
use serde_json::{Value, json};
use wirewised::bundle::signature;
use wirewised::bundle::{Bundle, with_signature};

/// The refusal of a bundle; panics if it is accepted, or if the message is not one line.
fn refusal(bytes: &[u8]) -> String {
    let message = Bundle::from_bytes(bytes).expect_err("accepted");
    assert!(!message.contains('\n') && message.len() < 500, "not one short line: {message}");
    message
}

#[test]
fn a_bundle_is_read() {
    let read = Bundle::from_bytes(&bundle(b"object")).unwrap();
    assert_eq!(read.object, b"object");
    assert_eq!(read.manifest.classes, ["benign", "attack"]);
    assert_eq!(read.manifest.flow.table_size, 1024);
    assert_eq!(read.model, members(b"object")["model.json"]);
    assert_eq!(read.digest.len(), 64);
}

#[test]
fn every_changed_byte_and_every_cut_is_found() {
    let good = bundle(b"object");
    for place in 0..good.len() {
        let mut bad = good.clone();
        bad[place] ^= 1 << (place % 8);
        refusal(&bad);
        refusal(&good[..place]);
    }
    let mut longer = good.clone();
    longer.push(0);
    refusal(&longer);
}

#[test]
fn digests_are_checked_even_if_the_file_was_sealed_again() {
    let members = members(b"object");
    let manifest = manifest(&members);
    for name in members.keys() {
        let mut edited = members.clone();
        edited.insert(name.clone(), b"edited".to_vec());
        let message = refusal(&bundle_with(&manifest, &edited));
        assert!(message.contains(&format!("the digest of {name}")), "{message}");
        edited.remove(name);
        assert!(refusal(&bundle_with(&manifest, &edited)).contains("is missing"));
    }
    let mut more = members.clone();
    more.insert("extra".to_string(), vec![]);
    assert!(refusal(&bundle_with(&manifest, &more)).contains("extra is not in the manifest"));
}

#[test]
fn a_manifest_that_breaks_a_rule_is_refused() {
    let members = members(b"object");
    let cases: Vec<(&str, Value, &str)> = vec![
        ("/version", json!(2), "bundle version 2 is not supported, this wirewised reads version 1"),
        ("/abi", json!(99), "bundle abi 99 is not supported"),
        ("/format", json!("other"), "is not one of a wirewise bundle"),
        ("/classes", json!(["one"]), "1 classes"),
        ("/classes", json!(["same", "same"]), "stands twice"),
        ("/classes", json!(["a", "b\u{1b}[2J"]), "a character that a terminal would obey"),
        ("/classes", json!(["a", ""]), "cannot be a name"),
        ("/model/summary", json!("a\u{1b}]0;title\u{7}"), "a character that a terminal would obey"),
        ("/model/notes", json!(["\u{202e}txt"]), "a character that a terminal would obey"),
        ("/feature_names", json!([]), "0 features"),
        ("/model/n_features", json!(2), "are not those of the lists"),
        ("/flow/table_size", json!(1000), "table_size 1000 is not a power of two"),
        ("/flow/state/0/offset", json!(60), "lies outside a flow entry"),
        ("/flow/state/0/offset", json!(u32::MAX), "lies outside a flow entry"),
        ("/flow/state/0/type", json!("f32"), "unknown variant `f32`"),
        ("/flow", json!(null), "invalid type"),
    ];
    for (pointer, value, expected) in cases {
        let mut manifest = manifest(&members);
        *manifest.pointer_mut(pointer).unwrap() = value;
        let message = refusal(&bundle_with(&manifest, &members));
        assert!(message.contains(expected), "{pointer}: {message}");
    }
    for (key, value, expected) in [
        ("used_features", json!([1]), "used_features are not ascending indices of 1 features"),
        ("used_features", json!([0, 0]), "used_features are not ascending indices of 1 features"),
        ("used_features", json!([-1]), "invalid value"),
        ("n_outputs", json!(0), "n_outputs must be a number from 1 to 64"),
        ("n_outputs", json!(65), "n_outputs must be a number from 1 to 64"),
    ] {
        let mut manifest = manifest(&members);
        manifest["model"][key] = value;
        let message = refusal(&bundle_with(&manifest, &members));
        assert!(message.contains(expected), "{key}: {message}");
    }
    let reference = |histogram: Value| json!({"packets": [9, 9], "flows": [3, 1], "features": [histogram]});
    let histogram = |low: i64, edges: Value, counts: Value| {
        reference(json!({"name": "total", "low": low, "high": 9, "edges": edges, "counts": counts}))
    };
    let with = |reference: Value| {
        let mut manifest = manifest(&members);
        manifest["flow"]["features"] = json!([{"name": "total", "unit": "bytes", "fraction_bits": 0,
            "how": "value", "variable": "sum_length", "samples": "packets"}]);
        manifest["reference"] = reference;
        bundle_with(&manifest, &members)
    };
    let read = Bundle::from_bytes(&with(histogram(0, json!([5, 9]), json!([[1, 2, 0], [0, 0, 1]]))));
    assert!(read.is_ok(), "{:?}", read.err());
    for (value, expected) in [
        (histogram(0, json!([5, 5]), json!([[1, 2, 0], [0, 0, 1]])), "edges that do not ascend"),
        (histogram(5, json!([5]), json!([[1, 2], [0, 1]])), "edges that do not ascend"),
        (histogram(0, json!([10]), json!([[1, 2], [0, 1]])), "edges that do not ascend"),
        (histogram(10, json!([]), json!([[3], [1]])), "edges that do not ascend"),
        (histogram(0, json!([5]), json!([[1, 2, 0], [0, 1]])), "does not count each flow once"),
        (histogram(0, json!([5]), json!([[1, 1], [0, 1]])), "does not count each flow once"),
        (histogram(0, json!([5]), json!([[1, 2]])), "does not count each flow once"),
        (histogram(0, json!([5]), json!([[u64::MAX, 4], [0, 1]])), "does not count each flow once"),
        (histogram(0, json!([5]), json!([[-1, 4], [0, 1]])), "invalid value"),
        (histogram(-99, Value::from_iter(-40..0), json!([])), "more than 32 bins"),
        (
            reference(json!({"name": "mean", "low": 0, "high": 9, "edges": [], "counts": [[3], [1]]})),
            "\"mean\"",
        ),
        (json!({"packets": [9], "flows": [3, 1], "features": []}), "does not count 2 classes"),
        (json!({"packets": [9, 9], "flows": [0, 0], "features": []}), "has no flows"),
        (json!({"packets": [u64::MAX, 9], "flows": [1, 0], "features": []}), "impossibly many"),
    ] {
        let message = refusal(&with(value));
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let mut unknown = manifest(&members);
    unknown["surprise"] = json!(1);
    assert!(refusal(&bundle_with(&unknown, &members)).contains("unknown field `surprise`"));
}

#[test]
fn names_that_could_be_code_are_refused() {
    let with = |features: Value, change: &dyn Fn(&mut Value)| {
        let mut members = members(b"object");
        members.insert("features.json".to_string(), features.to_string().into_bytes());
        let mut manifest = manifest(&members);
        change(&mut manifest);
        bundle_with(&manifest, &members)
    };
    let set = |name: &str, feature: &str, key: &str| json!({"name": name, "key": key, "features": [{"name": feature, "is": "length"}]});
    let read = Bundle::from_bytes(&with(set("größe (2)", "length", "five-tuple"), &|_| ()));
    assert!(read.is_ok(), "{:?}", read.err());
    let code = "x */\n#define XDP_PASS XDP_DROP\n/* y";
    for name in [code, "*/", "a\\", "??/", "a\nb", "`include", "", " a", "\u{202e}a", &"x".repeat(201)] {
        let message = refusal(&with(set(name, "length", "five-tuple"), &|_| ()));
        assert!(message.contains("is not the name of a feature set: 1 to 200 letters"), "{message}");
    }
    for (missing, expected) in [
        ("name", "is not the name of a feature set"),
        ("key", "its key is null, that of the manifest \"five-tuple\""),
        ("features", "its features are not those that the manifest names"),
    ] {
        let mut features = set("a", "length", "five-tuple");
        features.as_object_mut().unwrap().remove(missing);
        assert!(refusal(&with(features, &|_| ())).contains(expected), "{missing}");
    }
    assert!(refusal(&with(json!({"name": 5}), &|_| ())).contains("is not the name of a feature set"));
    for name in ["*/", "x */ y", "Length", "größe", "a b", "9"] {
        let message = refusal(&with(set("a", name, "five-tuple"), &|manifest| {
            manifest["feature_names"] = json!([name]);
            manifest["features"][0]["name"] = name.into();
        }));
        assert!(message.contains("is not the name of a feature: lower-case"), "{message}");
    }
    let other = "its features are not those that the manifest names";
    assert!(refusal(&with(set("a", "ttl", "five-tuple"), &|_| ())).contains(other));
    let message = refusal(&with(json!({}), &|manifest| manifest["features"][0]["name"] = "ttl".into()));
    assert!(message.contains("it describes other features than it names"), "{message}");
    for (change, what) in [
        (json!({"classes": ["a\u{a0}b", "attack"]}), "cannot be a name"),
        (json!({"classes": ["benign", "x".repeat(201)]}), "cannot be a name"),
        (json!({"name": ""}), "cannot be a name"),
        (json!({"tools": {"wirewise": "x".repeat(201)}}), "cannot be a name"),
        (json!({"tools": {"": "1"}}), "cannot be a name"),
        (json!({"tools": {"wirewise": code}}), "a terminal would obey"),
    ] {
        let message = refusal(&with(json!({}), &|manifest| {
            for (key, value) in change.as_object().unwrap() {
                manifest[key] = value.clone();
            }
        }));
        assert!(message.contains(what), "{change}: {message}");
    }
    let message = refusal(&with(json!({}), &|manifest| {
        manifest["model"]["networks"] = json!(["*/"]);
        manifest["model"]["n_outputs"] = json!(1);
    }));
    assert!(message.contains("is not the name of a network"), "{message}");
    assert!(refusal(&with(set("a", "length", "source"), &|_| ())).contains("its key is \"source\""));
}

#[test]
fn hostile_archives_are_refused() {
    for name in ["../../etc/passwd", "/etc/passwd", "a/../b", "a\\b", "a//b", "./a", "a b"] {
        assert!(refusal(&seal(&[(name, b"x")])).contains("holds a member named"), "{name}");
    }
    assert!(refusal(&seal(&[("card.md", b"x")])).contains("has no manifest.json"));
    assert!(refusal(&seal(&[("manifest.json", b"[")])).contains("manifest.json is not JSON"));
    assert!(refusal(b"PK\x03\x04").contains("is not a wirewise bundle"));
    assert!(refusal(b"").contains("is not a wirewise bundle"));

    // A few KiB that become more than a bundle of that size does.
    let bomb = vec![0; 17 << 20];
    assert!(refusal(&seal(&[("manifest.json", &bomb)])).contains("unpacks to more than 16 MiB"));

    // The same member twice: whoever reads the first and whoever reads the last would see different bundles.
    let mut twice = seal(&[("card.md", b"one"), ("card.me", b"two")]);
    for place in 0..twice.len() - 7 {
        if &twice[place..place + 7] == b"card.me" {
            twice[place + 6] = b'd';
        }
    }
    refusal(&reseal(twice));
}

/// What is signed is all but the signature; any of it changed, and all digests made anew, is found.
#[test]
fn a_signature_breaks_with_each_member() {
    let key = SigningKey::from_bytes(&[3; 32]);
    let members = members(b"object");
    let plain = bundle_with(&manifest(&members), &members);
    let document = signature::sign(&key, &Bundle::from_bytes(&plain).unwrap().statement);
    let signed = with_signature(&plain, document.as_bytes()).unwrap();
    let signer = Bundle::from_bytes(&signed).unwrap().signer.unwrap();
    assert_eq!(signer.fingerprint, signature::fingerprint(&key.verifying_key()));
    assert_eq!(with_signature(&signed, document.as_bytes()).unwrap(), signed);

    let forged = |manifest: &Value, members: &std::collections::BTreeMap<String, Vec<u8>>| {
        refusal(&with_signature(&bundle_with(manifest, members), document.as_bytes()).unwrap())
    };
    for name in members.keys() {
        let mut edited = members.clone();
        edited.get_mut(name).unwrap().push(b' ');
        assert!(forged(&manifest(&edited), &edited).contains("changed since"), "{name}");
    }
    let mut more = members.clone();
    more.insert("extra".to_string(), vec![]);
    assert!(forged(&manifest(&more), &more).contains("changed since"));
    let mut renamed = manifest(&members);
    renamed["name"] = json!("other");
    assert!(forged(&renamed, &members).contains("changed since"));
    // In the manifest a signature would sign itself.
    let mut listed = members.clone();
    listed.insert("signature.json".to_string(), document.clone().into_bytes());
    assert!(refusal(&bundle_with(&manifest(&listed), &listed)).contains("is missing"));
}

proptest! {
    #[test]
    fn a_damaged_signature_is_refused(place in any::<prop::sample::Index>(), value in any::<u8>()) {
        let key = SigningKey::from_bytes(&[3; 32]);
        let plain = bundle(b"object");
        let document = signature::sign(&key, &Bundle::from_bytes(&plain).unwrap().statement);
        let mut damaged = document.clone().into_bytes();
        let place = place.index(damaged.len());
        damaged[place] = value;
        if let Ok(read) = Bundle::from_bytes(&with_signature(&plain, &damaged).unwrap()) {
            // White space, or a hexadecimal digit of the other case.
            prop_assert_eq!(read.signer.unwrap().fingerprint, signature::fingerprint(&key.verifying_key()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Damage that was sealed again reaches the zip reader and the manifest.
    #[test]
    fn no_damage_panics(places in prop::collection::vec((0usize..4000, any::<u8>()), 1..6)) {
        let mut bytes = bundle(b"object");
        let body = bytes.len() - 64;
        for (place, value) in places {
            bytes[place % body] = value;
        }
        let _ = Bundle::from_bytes(&reseal(bytes));
    }
}
