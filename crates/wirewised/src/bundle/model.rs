// SPDX-License-Identifier: Apache-2.0
//! What the agent reads of a bundle's model: which features the program computes and how many scores there are, as
//! the manifest states them, and for `explain` the way through trees. A model of any family runs: what it does
//! between features and scores is the program's own affair.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::abi;
use crate::bundle::manifest::Manifest;
use crate::bundle::shape::{self, BANK, BINARY, BOUNDED, INT8, Q16, TREES};
use crate::bundle::tree::{Ensemble, MAJORITY, Path};

/// Features that can make a difference: the program computes no others. `ir` is read of a bundle whose manifest does
/// not state them yet. The error says what rule of the format is broken.
pub fn used_features(manifest: &Manifest, ir: &[u8]) -> Result<BTreeSet<usize>, String> {
    match &manifest.model.used_features {
        Some(used) => Ok(used.iter().copied().collect()),
        None => used_by_ir(ir),
    }
}

/// How many scores the model gives; `ir` as in `used_features`.
pub fn n_outputs(manifest: &Manifest, ir: &[u8]) -> Result<usize, String> {
    if let Some(outputs) = manifest.model.n_outputs {
        return Ok(outputs);
    }
    #[derive(Deserialize)]
    struct Outputs {
        #[serde(default)]
        votes: Option<String>,
        #[serde(default)]
        n_outputs: Option<usize>,
    }
    let Outputs { votes, n_outputs } = serde_json::from_slice(ir).map_err(|error| error.to_string())?;
    if votes.as_deref() == Some(MAJORITY) {
        return Ok(manifest.classes.len());
    }
    n_outputs
        .filter(|outputs| (1..=abi::MAX_CLASSES).contains(outputs))
        .ok_or_else(|| format!("n_outputs must be a number from 1 to {}", abi::MAX_CLASSES))
}

/// What can be shown of a model between features and scores.
#[derive(Debug)]
pub enum Model {
    Trees(Ensemble),
    /// What its layers give is shown by `wirewise explain`.
    Network,
    /// Of a family that is newer than this agent, or somebody's own.
    Unknown,
}

impl Model {
    /// The error says what rule of the format is broken.
    pub fn parse(ir: &[u8]) -> Result<Self, String> {
        if let Some(bounded) = Bounded::parse(ir)? {
            return Self::parse(bounded.inside());
        }
        Ok(match shape::family(ir)?.as_str() {
            TREES => Self::Trees(Ensemble::parse(ir)?),
            INT8 | Q16 | BINARY | BANK => Self::Network,
            _ => Self::Unknown,
        })
    }

    /// One path a tree; none of what is no tree.
    pub fn paths(&self, features: &[i64]) -> Result<Vec<Path>, String> {
        match self {
            Self::Trees(ensemble) => ensemble.paths(features),
            Self::Network | Self::Unknown => Ok(Vec::new()),
        }
    }

    /// Why there are no paths; `family` is the model's.
    pub fn not_shown(&self, family: &str) -> Option<String> {
        match self {
            Self::Trees(_) => None,
            Self::Network => Some("what its layers give is shown by `wirewise explain`".to_string()),
            Self::Unknown => Some(format!(
                "this wirewised does not know models of family {family}: what it computes between features and \
                 scores cannot be shown"
            )),
        }
    }
}

/// A model that says `unknown` where a feature is outside what training saw of it.
#[derive(Debug, Deserialize)]
pub struct Bounded {
    model: Box<RawValue>,
    /// Feature, and the least and the most that training saw.
    pub bounds: Vec<(usize, i64, i64)>,
}

impl Bounded {
    /// `None`: the model has no bounds.
    pub fn parse(ir: &[u8]) -> Result<Option<Self>, String> {
        if shape::family(ir)? != BOUNDED {
            return Ok(None);
        }
        let bounded: Self = serde_json::from_slice(ir).map_err(|error| error.to_string())?;
        match shape::family(bounded.inside())?.as_str() {
            BOUNDED => Err("bounds have a model with bounds inside".to_string()),
            _ => Ok(Some(bounded)),
        }
    }

    pub fn inside(&self) -> &[u8] {
        self.model.get().as_bytes()
    }
}

/// Of bundles made before the manifest stated it.
fn used_by_ir(ir: &[u8]) -> Result<BTreeSet<usize>, String> {
    let used = match shape::family(ir)?.as_str() {
        INT8 | Q16 => serde_json::from_slice(ir).map(|network: Dense| network.used()),
        BINARY => serde_json::from_slice(ir)
            .map(|network: Binary| network.inputs.iter().map(|input| input.feature).collect()),
        TREES => return Ok(Ensemble::parse(ir)?.tested()),
        _ => return Err("is of an unknown family, and the manifest states no used_features".to_string()),
    };
    used.map_err(|error| error.to_string())
}

/// The input scaler of one feature, in int8 and Q16 networks.
#[derive(Debug, Deserialize)]
pub(super) struct Scaler {
    pub(super) low: i64,
    pub(super) high: i64,
    zero: i64,
    multiplier: i64,
    shift: u32,
}

#[derive(Debug, Deserialize)]
struct Dense {
    inputs: Vec<Scaler>,
    layers: Vec<DenseLayer>,
}

#[derive(Debug, Deserialize)]
struct DenseLayer {
    /// By neuron, then input.
    weights: Vec<Vec<i64>>,
}

#[derive(Debug, Deserialize)]
struct Binary {
    inputs: Vec<BinaryInput>,
}

#[derive(Debug, Deserialize)]
struct BinaryInput {
    feature: usize,
}

impl Dense {
    /// Inputs that are not constant and that some neuron of the first layer weighs.
    fn used(&self) -> BTreeSet<usize> {
        let weighed = |index: usize| {
            let rows = self.layers.first().map_or(&[][..], |layer| &layer.weights);
            rows.iter().any(|row| row.get(index).is_some_and(|weight| *weight != 0))
        };
        let varies = |scaler: &Scaler| scaler.scale(scaler.low) != scaler.scale(scaler.high);
        let inputs = self.inputs.iter().enumerate();
        inputs.filter(|(index, scaler)| varies(scaler) && weighed(*index)).map(|(index, _)| index).collect()
    }
}

impl Scaler {
    /// In 128 bits, so that a broken model cannot overflow; a shift out of range counts as none.
    pub(super) fn scale(&self, x: i64) -> i128 {
        let x = x.max(self.low).min(self.high);
        let product = (i128::from(x) - i128::from(self.zero)).saturating_mul(i128::from(self.multiplier));
        let shift = if self.shift > 62 { 0 } else { self.shift };
        product.saturating_add((1i128 << shift) >> 1) >> shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn text(ir: &Value) -> Vec<u8> {
        ir.to_string().into_bytes()
    }

    fn scaler(low: i64, high: i64, multiplier: i64, shift: u32) -> Value {
        json!({"low": low, "high": high, "zero": 0, "multiplier": multiplier, "shift": shift})
    }

    #[test]
    fn inputs_that_make_no_difference_are_not_used() {
        let inputs = [
            scaler(0, 9, 1, 0),
            scaler(0, 9, 0, 0),
            scaler(7, 7, 1, 0),
            scaler(0, 9, 1, 40),
            scaler(0, 9, 1, 0),
            scaler(i64::MIN, i64::MAX, i64::MAX, 62),
        ];
        for family in ["int8-mlp", "q16-mlp"] {
            let ir = json!({"family": family, "inputs": inputs,
                "layers": [{"weights": [[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 0, 5]]}]});
            assert_eq!(used_by_ir(&text(&ir)).unwrap(), BTreeSet::from([0, 5]));
        }
    }

    #[test]
    fn binary_networks_name_their_features() {
        let ir = json!({"family": "binary-mlp", "inputs": [
            {"feature": 3, "shift": 0, "bits": 8}, {"feature": 1, "thresholds": [5]}, {"feature": 3, "shift": 8, "bits": 8}]});
        assert_eq!(used_by_ir(&text(&ir)).unwrap(), BTreeSet::from([1, 3]));
        assert_eq!(Model::parse(&text(&ir)).unwrap().paths(&[1, 2, 3, 4]).unwrap(), []);
    }

    #[test]
    fn broken_networks_are_refused_where_they_must_be_read() {
        for ir in [json!({"family": "rules"}), json!({"family": "int8-mlp", "inputs": 5}), json!([])] {
            assert!(used_by_ir(&text(&ir)).is_err());
        }
        assert!(Model::parse(b"[]").is_err());
    }

    #[test]
    fn what_cannot_be_shown_of_a_model_is_said() {
        let not_shown =
            |family: &str| Model::parse(&text(&json!({"family": family}))).unwrap().not_shown(family);
        assert!(not_shown("int8-mlp").unwrap().contains("`wirewise explain`"));
        assert!(not_shown("rules").unwrap().contains("does not know models of family rules"));
        let trees = json!({"family": "tree-ensemble", "trees": [], "votes": "sum"});
        let trees = Model::parse(&text(&trees)).unwrap();
        assert_eq!(trees.not_shown("tree-ensemble"), None);
    }
}
