// SPDX-License-Identifier: Apache-2.0
//! What the agent checks of `features.json`: that its names are names, and that the manifest speaks of the same set.

use serde_json::Value;

use crate::bundle::manifest::Manifest;
use crate::bundle::names;

/// The error is a rule that is broken.
pub fn check(features: &Value, manifest: &Manifest) -> Result<(), String> {
    if let Some(name) = features.get("name") {
        let name = name.as_str().unwrap_or_default();
        if !names::is_set_name(name) {
            let start: String = name.chars().take(80).collect();
            return Err(format!(
                "{start:?} is not the name of a feature set: 1 to {} letters, digits, spaces and . _ - + ( ) , :",
                names::MAX
            ));
        }
    }
    if let Some(list) = features.get("features") {
        let names: Vec<_> =
            list.as_array().into_iter().flatten().map(|feature| feature["name"].as_str()).collect();
        if !names.into_iter().eq(manifest.feature_names.iter().map(|name| Some(name.as_str()))) {
            return Err("its features are not those that the manifest names".to_string());
        }
    }
    match features.get("key") {
        Some(key) if *key != manifest.flow.key.as_str() => {
            Err(format!("its key is {key}, that of the manifest {:?}", manifest.flow.key))
        }
        _ => Ok(()),
    }
}
