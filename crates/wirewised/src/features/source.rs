// SPDX-License-Identifier: Apache-2.0
//! The program whose features are wanted: of a bundle, or an object with its feature set.

use std::path::Path;

use serde_json::Value;

use crate::abi;
use crate::bundle;
use crate::bundle::Bundle;
use crate::bundle::model::used_features;
use crate::error::{Error, Result};
use crate::files::{self, json};

pub struct Source {
    /// What errors call the object.
    pub input: String,
    pub object: Vec<u8>,
    /// The feature set as JSON; it travels in the table.
    pub feature_set: Value,
    pub names: Vec<String>,
    /// Whether the program computes each feature: one with a model computes only what the model reads.
    pub computed: Vec<bool>,
    /// Class names of the bundle; none of an object that only extracts.
    pub classes: Vec<String>,
    /// Flow-table entries; `None`: as compiled.
    pub table_size: Option<u32>,
}

impl Source {
    pub fn from_bundle(path: &Path) -> Result<Self> {
        let bundle = Bundle::read(path)?;
        let manifest = bundle.manifest;
        let used = used_features(&manifest, &bundle.model)
            .map_err(|rule| Error::input(format!("{}: model.json: {rule}", path.display())))?;
        Ok(Self {
            input: path.display().to_string(),
            object: bundle.object,
            feature_set: bundle.features,
            computed: (0..manifest.feature_names.len()).map(|index| used.contains(&index)).collect(),
            names: manifest.feature_names,
            classes: manifest.classes,
            table_size: Some(manifest.flow.table_size),
        })
    }

    /// features : the feature set that the object was compiled for, as JSON.
    pub fn from_object(path: &Path, features: &Path) -> Result<Self> {
        let refuse = |rule: &str| {
            let name = features.display();
            Error::input(format!(
                "{name}: {rule}; give the feature set's JSON (`wirewise features -f NAME --json`)"
            ))
        };
        let bytes = files::read(features, bundle::FEATURES_LIMITS.bytes as u64)?;
        let feature_set: Value = json::from_slice(&bytes, &bundle::FEATURES_LIMITS)
            .map_err(|rule| refuse(&format!("is no feature set: it {rule}")))?;
        let list = feature_set["features"].as_array().ok_or_else(|| refuse("has no list `features`"))?;
        let name = |feature: &Value| feature["name"].as_str().or_else(|| feature.as_str()).map(str::to_owned);
        let names: Option<Vec<String>> = list.iter().map(name).collect();
        let names = names.ok_or_else(|| refuse("has a feature without a name"))?;
        if !(1..=abi::MAX_FEATURES).contains(&names.len()) {
            return Err(refuse(&format!(
                "has {} features, 1 to {} are possible",
                names.len(),
                abi::MAX_FEATURES
            )));
        }
        let table_size = match &feature_set["table_size"] {
            Value::Null => None,
            size => {
                let size = size.as_u64().and_then(|size| u32::try_from(size).ok());
                Some(size.ok_or_else(|| refuse("has a table_size that is no number"))?)
            }
        };
        Ok(Self {
            input: path.display().to_string(),
            object: files::read(path, bundle::MAX_OBJECT)?,
            computed: vec![true; names.len()],
            names,
            feature_set,
            classes: Vec::new(),
            table_size,
        })
    }

    pub fn not_computed(&self) -> usize {
        self.computed.iter().filter(|computed| !**computed).count()
    }
}
