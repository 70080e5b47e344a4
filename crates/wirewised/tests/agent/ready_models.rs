// SPDX-License-Identifier: Apache-2.0
//! Ready models: they come from `wirewise`, and enforce where there is evidence.

use serde_json::{Value, json};

use crate::lab::{INTERFACE, Lab, changed_bundle, data_path};

const DROP: &str = "classes: {attack: drop}\nallow: {established: true}";

/// A bundle that says it is of a ready model, and the digest of its model.
fn ready(name: &str) -> (Vec<u8>, String) {
    let mut digest = String::new();
    let bytes = changed_bundle(name, data_path().unwrap(), |manifest| {
        manifest["training"] = json!({"ready": {"name": "@flood"}});
        digest = manifest["model"]["digest"].as_str().unwrap().to_string();
    });
    (bytes, digest)
}

fn report(digest: &str, may_drop: &[&str]) -> Vec<u8> {
    let one = json!({"about": {"model_digest": digest}, "verdict": {"may_drop": may_drop}});
    one.to_string().into_bytes()
}

#[test]
fn a_ready_model_drops_only_what_an_evaluation_lets_it() {
    let Some(lab) = Lab::new() else { return };
    let (bundle, digest) = ready("ready");
    lab.write("ready.wirewise", &bundle);
    lab.policy(DROP);
    let run =
        |rest: &str| format!("run --bundle ready.wirewise --interface {INTERFACE} --policy p.yaml {rest}");
    let error = lab.error(&run("--mode enforce"), 2);
    assert!(
        error.contains("@flood: has learned from other networks") && error.contains("has not run here"),
        "{error}"
    );
    assert!(error.contains("wirewise evaluate @flood") && error.contains("--yes"), "{error}");
    lab.assert_untouched();

    for (content, why) in [
        (report(&"0".repeat(64), &["attack"]), "is not an evaluation of this model"),
        (report(&digest, &[]), "does not say that attack may be dropped, but: none"),
        (b"<html>".to_vec(), "give the .json that"),
    ] {
        lab.write("report.json", &content);
        let error = lab.error(&run("--mode enforce --evaluation report.json"), 2);
        assert!(error.contains("report.json: ") && error.contains(why), "{error}");
    }
    lab.assert_untouched();

    lab.write("report.json", &report(&digest, &["attack"]));
    let attached = lab.json(&run("--mode enforce --evaluation report.json"));
    assert_eq!(attached["status"]["mode"], "enforce", "{attached}");
}

#[test]
fn a_ready_model_observes_and_counts_without_evidence() {
    let Some(lab) = Lab::new() else { return };
    lab.write("ready.wirewise", &ready("ready").0);
    lab.policy(DROP);
    let run = |rest: &str| format!("run --bundle ready.wirewise --interface {INTERFACE} {rest}");
    assert_eq!(lab.json(&run("--policy p.yaml"))["status"]["mode"], "observe");
    // It has run, but for less than a week.
    let error = lab.error(&run("--mode enforce"), 2);
    assert!(error.contains("less than a week"), "{error}");
    assert_eq!(lab.json(&run("--mode enforce --yes"))["status"]["mode"], "enforce");
    lab.policy("classes: {attack: count}");
    assert_eq!(lab.json(&run("--policy p.yaml --mode enforce"))["status"]["mode"], "enforce");
}

#[test]
fn a_ready_model_does_not_take_over_where_a_policy_drops() {
    let Some(lab) = Lab::new() else { return };
    let (bundle, digest) = ready("ready");
    lab.write("ready.wirewise", &bundle);
    lab.policy(DROP);
    lab.attach("--policy p.yaml --mode enforce");
    let error = lab.error("swap --bundle ready.wirewise", 2);
    assert!(error.contains("has not run here"), "{error}");
    lab.write("report.json", &report(&digest, &["attack"]));
    let swapped: Value = lab.json("swap --bundle ready.wirewise --evaluation report.json");
    assert_eq!(swapped["to"]["name"], "ready");
}

#[test]
fn a_name_needs_the_toolkit_to_compile_it() {
    let Some(lab) = Lab::new() else { return };
    let mut command = lab.command(&format!("run --model @flood --interface {INTERFACE}"));
    let output = command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.starts_with("error: @flood: is compiled by `wirewise`"), "{error}");
    assert!(error.contains("--bundle FILE") && error.lines().count() == 1, "{error}");
    lab.assert_untouched();
}
