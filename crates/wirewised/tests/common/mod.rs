// SPDX-License-Identifier: Apache-2.0
//! Bundles for tests: made as the toolkit writes them, with any member replaced.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::mem::offset_of;

use object::{Object, ObjectSection};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wirewised::abi::Config;
use wirewised::bundle::manifest::Manifest;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

const PROGRAM: &str = "program.bpf.o";
const FEATURES: &str = "features.json";

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A tree that is one leaf.
const MODEL: &[u8] = br#"{"family": "tree-ensemble", "version": 1, "n_features": 1, "n_classes": 2, "votes": "majority", "n_outputs": 2,
    "base": [0, 0], "trees": [{"feature": [-1], "threshold": [0], "left": [-1], "right": [-1], "value": [[1]], "output": null}]}"#;

/// The feature set of one feature.
pub const LENGTH: &[u8] =
    br#"{"name": "test", "key": "five-tuple", "features": [{"name": "length", "is": "length"}]}"#;

/// The members of a bundle of two classes, `benign` and `attack`, around `object`.
pub fn members(object: &[u8]) -> BTreeMap<String, Vec<u8>> {
    BTreeMap::from([
        ("model.json".to_string(), MODEL.to_vec()),
        (FEATURES.to_string(), LENGTH.to_vec()),
        ("program.bpf.o".to_string(), object.to_vec()),
        ("card.md".to_string(), b"# card\n".to_vec()),
        ("sources/main.bpf.c".to_string(), b"int x;\n".to_vec()),
    ])
}

pub fn manifest(members: &BTreeMap<String, Vec<u8>>) -> Value {
    let digests: BTreeMap<_, _> = members.iter().map(|(name, content)| (name, sha256(content))).collect();
    json!({
        "format": "wirewise-bundle", "version": 1, "abi": wirewised::abi::ABI_VERSION, "name": "test", "created": "2026-01-01T00:00:00+00:00",
        "classes": ["benign", "attack"], "digests": digests, "feature_names": ["length"],
        "features": [{"name": "length", "spec": "length", "unit": "byte", "fraction_bits": 0, "minimum": 0,
            "maximum": 65535}],
        "flow": {"key": "five-tuple", "table_size": 1024, "sharing": "per-cpu", "idle_timeout_ns": 3_600_000_000_000u64,
            "grace_ns": 10_000_000_000u64, "proven_packets": 4, "clock": "coarse", "entry4_size": 64,
            "entry6_size": 64, "layout_digest": "0", "state": [{"name": "sum_length", "type": "u64", "offset": 0}]},
        "program": {"section": "xdp", "entry": "ww_main", "tail_calls": [], "shape": "inline", "why": "small",
            "instructions": 1, "object_bytes": 1, "clang": "19", "predicted": {}, "verifier": null},
        "model": {"family": "tree-ensemble", "digest": "0", "n_features": 1, "n_classes": 2, "summary": "a test",
            "source": "", "notes": []},
        "training": null, "fidelity": null, "accuracy": null, "tools": {"wirewise": "0.1.0"}
    })
}

/// The zip with its seal, in the order given.
pub fn seal(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, content) in members {
        archive.start_file(*name, options).unwrap();
        archive.write_all(content).unwrap();
    }
    archive.set_comment("0".repeat(64)).unwrap();
    reseal(archive.finish().unwrap().into_inner())
}

/// Replaces the last 64 bytes by the digest of what is before them.
pub fn reseal(mut file: Vec<u8>) -> Vec<u8> {
    let body = file.len() - 64;
    let digest = sha256(&file[..body]);
    file[body..].copy_from_slice(digest.as_bytes());
    file
}

/// Manifest and members, with a program as if it had been compiled for this manifest; and with its features, unless the test has put others in.
pub fn bundle_with(manifest: &Value, members: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let (mut manifest, mut members) = (manifest.clone(), members.clone());
    if members.get(FEATURES).is_some_and(|features| features == LENGTH)
        && manifest["digests"][FEATURES] == sha256(LENGTH)
    {
        let features = feature_set(&manifest);
        manifest["digests"][FEATURES] = sha256(&features).into();
        members.insert(FEATURES.to_string(), features);
    }
    if let Some(object) = members.get_mut(PROGRAM)
        && manifest["digests"][PROGRAM] == sha256(object)
        && let Ok(parsed) = Manifest::parse(manifest.to_string().as_bytes())
    {
        set_meaning(object, &parsed.meaning());
        manifest["digests"][PROGRAM] = sha256(object).into();
    }
    bundle_as_is(&manifest, &members)
}

/// What the agent reads of the feature set that a manifest describes.
fn feature_set(manifest: &Value) -> Vec<u8> {
    if manifest["feature_names"] == json!(["length"]) && manifest["flow"]["key"] == "five-tuple" {
        return LENGTH.to_vec();
    }
    let names = manifest["feature_names"].as_array().into_iter().flatten();
    let features: Vec<_> = names.map(|name| json!({"name": name, "is": name})).collect();
    json!({"name": "test", "key": manifest["flow"]["key"], "features": features}).to_string().into_bytes()
}

/// As `bundle_with`, whatever the program was compiled for.
pub fn bundle_as_is(manifest: &Value, members: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let manifest = manifest.to_string();
    let mut all = vec![("manifest.json", manifest.as_bytes())];
    all.extend(members.iter().map(|(name, content)| (name.as_str(), content.as_slice())));
    seal(&all)
}

/// Does nothing to what is no data path.
pub fn set_meaning(object: &mut [u8], meaning: &[u8]) {
    let section = object::File::parse(&*object)
        .ok()
        .and_then(|file| file.section_by_name(".rodata.ww_config").and_then(|section| section.file_range()));
    let Some((start, size)) = section else { return };
    let place = start as usize + offset_of!(Config, meaning);
    if size as usize == size_of::<Config>()
        && let Some(place) = object.get_mut(place..place + meaning.len())
    {
        place.copy_from_slice(meaning);
    }
}

#[allow(dead_code, reason = "each test binary includes this module and uses a part of it")]
pub fn bundle(object: &[u8]) -> Vec<u8> {
    let members = members(object);
    bundle_with(&manifest(&members), &members)
}
