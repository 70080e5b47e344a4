// SPDX-License-Identifier: Apache-2.0
//! The card of a model: where it comes from, and how good it was found to be.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::bundle::Bundle;
use crate::bundle::manifest::Feature;
use crate::bundle::signature::Signer;
use crate::reading::status::Class;

#[derive(Debug, Serialize)]
pub struct Card {
    pub interface: String,
    pub name: String,
    pub digest: String,
    pub created: String,
    pub model: String,
    pub signer: Option<Signer>,
    /// Each with its action and mode under the policy.
    pub classes: Vec<Class>,
    /// The flow key.
    pub key: String,
    pub features: Vec<Feature>,
    /// What `wirewise compile` was given of these; `None`: nothing.
    pub training: Option<Map<String, Value>>,
    pub accuracy: Option<Map<String, Value>>,
    pub fidelity: Option<Map<String, Value>>,
}

impl Card {
    /// classes : with action and mode under the policy.
    pub fn new(interface: &str, bundle: &Bundle, classes: Vec<Class>) -> Self {
        let manifest = bundle.manifest.clone();
        Self {
            interface: interface.to_string(),
            name: manifest.name,
            digest: bundle.digest.clone(),
            created: manifest.created,
            model: manifest.model.summary,
            signer: bundle.signer.clone(),
            classes,
            key: manifest.flow.key,
            features: manifest.features,
            training: manifest.training,
            accuracy: manifest.accuracy,
            fidelity: manifest.fidelity,
        }
    }
}
