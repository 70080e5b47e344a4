// SPDX-License-Identifier: Apache-2.0
//! `stats --drift`: live flows beside those of training.

use serde_json::{Value, json};

use crate::lab::{BENIGN, Lab, changed_bundle, data_path};

/// A bundle that learned from flows of one packet each, of lengths around the one given.
fn learned(name: &str, length: usize) -> Vec<u8> {
    changed_bundle(name, data_path().unwrap(), |manifest| {
        let mean = |length: usize| (length as u64) << 16;
        manifest["reference"] = json!({"packets": [900, 100], "flows": [900, 100], "features": [
            {"name": "mean", "low": mean(length - 1), "high": mean(length + 1), "edges": [mean(length), mean(length) + 1],
             "counts": [[9, 882, 9], [0, 100, 0]]},
        ]});
    })
}

#[test]
fn drift_compares_live_flows_with_those_of_training() {
    let Some(lab) = Lab::new() else { return };
    let flows = 300;
    let drift = || -> Value { lab.json("stats --drift") };
    lab.attach("");
    let nothing = drift();
    assert_eq!((&nothing["verdict"], &nothing["compared"]), (&Value::Null, &Value::Null));
    let text = lab.ok("stats --drift");
    assert!(text.contains("compile it again with --table"), "{text}");

    lab.write("like.wirewise", &learned("like", BENIGN + 28));
    lab.ok("swap --bundle like.wirewise");
    assert_eq!(drift()["verdict"], Value::Null);
    let text = lab.ok("stats --drift");
    assert!(text.contains("has 0 live flows, too few for a verdict (100)"), "{text}");
    lab.spread(flows);
    let like = drift();
    assert_eq!((&like["verdict"], &like["bundle"]), (&"like-training".into(), &"like".into()), "{like}");
    let compared = &like["compared"];
    // Some find no empty place and take another's.
    let live = compared["flows"].as_u64().unwrap() as usize;
    assert!((flows - 10..=flows).contains(&live), "{live}");
    assert_eq!(compared["training_flows"], 1000);
    let mean = &compared["features"][0];
    assert_eq!((&mean["name"], &mean["low"], &mean["high"]), (&"mean".into(), &77.0.into(), &79.0.into()));
    assert_eq!((&mean["outside"], &mean["bins"][1]["live"]), (&0.0.into(), &1.0.into()));
    // All live flows are benign, so training's of attacks do not count.
    assert_eq!(mean["bins"][1]["training"], 0.98);
    assert_eq!(
        (&compared["classes"][0]["live"], &compared["classes"][0]["training"]),
        (&1.0.into(), &0.9.into())
    );
    assert!(lab.ok("stats --drift").contains("like looks like its training"));

    lab.write("other.wirewise", &learned("other", BENIGN + 128));
    lab.ok("swap --bundle other.wirewise");
    lab.spread(flows);
    let other = drift();
    assert_eq!(other["verdict"], "out-of-depth", "{other}");
    let mean = &other["compared"]["features"][0];
    assert_eq!((&mean["outside"], &mean["level"]), (&1.0.into(), &"out-of-depth".into()));
    assert!(mean["psi"].as_f64().unwrap() > 1.0, "{mean}");
    let text = lab.ok("stats --drift");
    assert!(text.contains("other is out of its depth: mean (PSI ") && text.contains("100.0%"), "{text}");
}
