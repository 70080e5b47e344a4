// SPDX-License-Identifier: Apache-2.0
//! What the agent itself reads of a bundle's model.json: which features the program computes, and the way through
//! trees. What networks compute between features and scores is shown by `wirewise explain`.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::tree::{Ensemble, Path};

#[derive(Debug)]
pub enum Model {
    Trees(Ensemble),
    Network { used: BTreeSet<usize> },
}

/// The input scaler of one feature, in int8 and Q16 networks.
#[derive(Debug, Deserialize)]
struct Scaler {
    low: i64,
    high: i64,
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

impl Model {
    /// The error says what rule of the format is broken.
    pub fn parse(model: &Value) -> Result<Self, String> {
        let used = match model["family"].as_str() {
            Some("int8-mlp" | "q16-mlp") => Dense::deserialize(model).map(|network| network.used()),
            Some("binary-mlp") => Binary::deserialize(model)
                .map(|network| network.inputs.iter().map(|input| input.feature).collect()),
            _ => return Ensemble::parse(model).map(Self::Trees),
        };
        used.map(|used| Self::Network { used }).map_err(|error| error.to_string())
    }

    /// Features that can make a difference: the program computes no others.
    pub fn used(&self) -> BTreeSet<usize> {
        match self {
            Self::Trees(ensemble) => ensemble.tested(),
            Self::Network { used } => used.clone(),
        }
    }

    /// One path a tree; none of a network.
    pub fn paths(&self, features: &[i64]) -> Result<Vec<Path>, String> {
        match self {
            Self::Trees(ensemble) => ensemble.paths(features),
            Self::Network { .. } => Ok(Vec::new()),
        }
    }
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
    fn scale(&self, x: i64) -> i128 {
        let product = (i128::from(x) - i128::from(self.zero)) * i128::from(self.multiplier);
        let shift = if self.shift > 62 { 0 } else { self.shift };
        (product + ((1i128 << shift) >> 1)) >> shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
            let model = json!({"family": family, "inputs": inputs,
                "layers": [{"weights": [[1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 0, 5]]}]});
            assert_eq!(Model::parse(&model).unwrap().used(), BTreeSet::from([0, 5]));
        }
    }

    #[test]
    fn binary_networks_name_their_features() {
        let model = json!({"family": "binary-mlp", "inputs": [
            {"feature": 3, "shift": 0, "bits": 8}, {"feature": 1, "thresholds": [5]}, {"feature": 3, "shift": 8, "bits": 8}]});
        let model = Model::parse(&model).unwrap();
        assert_eq!(model.used(), BTreeSet::from([1, 3]));
        assert_eq!(model.paths(&[1, 2, 3, 4]).unwrap(), []);
    }

    #[test]
    fn other_families_and_broken_networks_are_refused() {
        for model in [json!({"family": "rules"}), json!({"family": "int8-mlp", "inputs": 5}), json!([])] {
            assert!(Model::parse(&model).is_err());
        }
    }
}
