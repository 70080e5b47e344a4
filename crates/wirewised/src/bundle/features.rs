// SPDX-License-Identifier: Apache-2.0
//! What the agent checks of `features.json`: that its names are names, and that the manifest speaks of the same set.

use serde_json::Value;

use crate::bundle::manifest::Manifest;
use crate::bundle::names;

/// The error is a rule that is broken.
pub fn check(features: &Value, manifest: &Manifest) -> Result<(), String> {
    let name = features["name"].as_str().unwrap_or_default();
    if !names::is_set_name(name) {
        let start: String = name.chars().take(80).collect();
        return Err(format!(
            "{start:?} is not the name of a feature set: 1 to {} letters, digits, spaces and . _ - + ( ) , :",
            names::MAX
        ));
    }
    let listed =
        features["features"].as_array().into_iter().flatten().map(|feature| feature["name"].as_str());
    if !listed.eq(manifest.feature_names.iter().map(|name| Some(name.as_str()))) {
        return Err("its features are not those that the manifest names".to_string());
    }
    let key = &features["key"];
    if *key != manifest.flow.key.as_str() {
        return Err(format!("its key is {key}, that of the manifest {:?}", manifest.flow.key));
    }
    Ok(())
}
