// SPDX-License-Identifier: Apache-2.0
//! What a network of model.json makes of features, as python/wirewise/models/ defines it. Only for showing: the class and the scores of a
//! packet come from the program.

use serde::Deserialize;
use serde_json::Value;

use crate::bundle::model::Scaler;
use crate::bundle::shape::{BINARY, INT8, Q16};
use crate::inference::binary::Encoding;
use crate::inference::{Executor, Instructions, Verdicts};

const MAX_LAYERS: usize = 8;
const MAX_WIDTH: usize = 128;
const INT8_LIMIT: i128 = 127;
const Q16_BITS: u32 = 16;

/// A network that can be computed here.
#[derive(Debug)]
pub enum Network {
    Int8(Dense),
    Q16(Dense),
    Binary(Executor),
}

#[derive(Debug, Deserialize)]
pub struct Dense {
    inputs: Vec<Scaler>,
    layers: Vec<Layer>,
}

#[derive(Debug, Deserialize)]
struct Layer {
    /// By neuron, then input.
    weights: Vec<Vec<i64>>,
    bias: Vec<i64>,
    /// In int8 networks, by neuron.
    #[serde(default)]
    multiplier: Vec<i64>,
    #[serde(default)]
    shift: u32,
    /// In Q16 networks: the largest activation.
    #[serde(default)]
    ceiling: Option<i64>,
}

impl Network {
    /// `None`: of another family. The error says what rule of the format is broken.
    pub fn parse(ir: &Value) -> Result<Option<Self>, String> {
        let dense = || {
            let dense = Dense::deserialize(ir).map_err(|error| error.to_string())?;
            dense.check().map(|()| dense)
        };
        Ok(Some(match ir["family"].as_str() {
            Some(INT8) => Self::Int8(dense()?),
            Some(Q16) => Self::Q16(dense()?),
            Some(BINARY) => Self::Binary(Executor::with(ir, Instructions::PORTABLE)?),
            _ => return Ok(None),
        }))
    }

    /// One for each output. features : all of the feature set.
    pub fn scores(&self, features: &[i64]) -> Result<Vec<i64>, String> {
        let expected = match self {
            Self::Int8(dense) | Self::Q16(dense) => dense.inputs.len(),
            Self::Binary(executor) => executor.n_features(),
        };
        if features.len() != expected {
            return Err(format!("has {expected} features, and the manifest {}", features.len()));
        }
        match self {
            Self::Binary(executor) => {
                let mut verdicts = Verdicts::default();
                executor.judge(features, &mut verdicts);
                Ok(verdicts.scores.iter().flatten().copied().collect())
            }
            Self::Int8(dense) => dense.scores(features, true),
            Self::Q16(dense) => dense.scores(features, false),
        }
    }

    /// A feature as the first layer gets it: of int8 from -127 to 127, of Q16 a number; `None`: as bits.
    pub fn encoded(&self, place: usize, x: i64) -> Option<f64> {
        match self {
            Self::Int8(dense) => Some(dense.encode(place, x, true)? as f64),
            Self::Q16(dense) => Some(dense.encode(place, x, false)? as f64 / f64::from(1 << Q16_BITS)),
            Self::Binary(_) => None,
        }
    }

    /// Values of a feature at and beyond which nothing changes any more. `None`: it makes no difference.
    pub fn range(&self, place: usize) -> Option<(i64, i64)> {
        let (low, high) = match self {
            Self::Int8(dense) | Self::Q16(dense) => {
                let scaler = dense.inputs.get(place)?;
                (scaler.low, scaler.high)
            }
            Self::Binary(executor) => executor.encodings(place).map(ends).reduce(wider)?,
        };
        (low < high).then_some((low, high))
    }
}

/// Values beyond which the bits of a feature do not change.
fn ends(encoding: &Encoding) -> (i64, i64) {
    match encoding {
        Encoding::Steps { thresholds } => {
            let least = thresholds.iter().min().copied().unwrap_or(0);
            let most = thresholds.iter().max().copied().unwrap_or(0);
            (least, most.saturating_add(1))
        }
        Encoding::Bits { shift, bits } => {
            (0, 1i64.checked_shl(shift + bits).map_or(i64::MAX, |most| most.wrapping_sub(1)))
        }
    }
}

fn wider(one: (i64, i64), other: (i64, i64)) -> (i64, i64) {
    (one.0.min(other.0), one.1.max(other.1))
}

impl Dense {
    /// The limits of python/wirewise/models/network.py, so that whatever a bundle holds takes milliseconds.
    fn check(&self) -> Result<(), String> {
        let mut width = self.inputs.len();
        if !(1..=MAX_LAYERS).contains(&self.layers.len()) || width > MAX_WIDTH {
            return Err(format!("a network has 1 to {MAX_LAYERS} layers and at most {MAX_WIDTH} features"));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let neurons = layer.weights.len();
            let fits = (1..=MAX_WIDTH).contains(&neurons)
                && layer.weights.iter().all(|weights| weights.len() == width)
                && layer.bias.len() == neurons;
            if !fits {
                return Err(format!(
                    "layer {index} does not have 1 to {MAX_WIDTH} neurons with a bias and a weight for each of its {width} inputs"
                ));
            }
            width = neurons;
        }
        Ok(())
    }

    fn encode(&self, place: usize, x: i64, int8: bool) -> Option<i128> {
        let value = self.inputs.get(place)?.scale(x);
        Some(if int8 { value.clamp(-INT8_LIMIT, INT8_LIMIT) } else { value })
    }

    fn scores(&self, features: &[i64], int8: bool) -> Result<Vec<i64>, String> {
        let encode = |(place, x): (usize, &i64)| self.encode(place, *x, int8);
        let mut values: Vec<i128> = features.iter().enumerate().filter_map(encode).collect();
        for (index, layer) in self.layers.iter().enumerate() {
            let last = index + 1 == self.layers.len();
            let neuron = |neuron: usize| layer.neuron(neuron, &values, int8, last);
            let next: Option<Vec<i128>> = (0..layer.weights.len()).map(neuron).collect();
            values = next.ok_or_else(|| format!("layer {index} is broken, or a sum of it overflows"))?;
        }
        let score = |value: &i128| i64::try_from(*value).map_err(|_| "a score overflows".to_string());
        values.iter().map(score).collect()
    }
}

impl Layer {
    fn neuron(&self, neuron: usize, values: &[i128], int8: bool, last: bool) -> Option<i128> {
        let start = Some(i128::from(*self.bias.get(neuron)?));
        let sum =
            self.weights.get(neuron)?.iter().zip(values).fold(start, |sum, (weight, value)| {
                sum?.checked_add(value.checked_mul(i128::from(*weight))?)
            })?;
        let sum = if int8 { sum.checked_mul(i128::from(*self.multiplier.get(neuron)?))? } else { sum };
        if last {
            return Some(sum);
        }
        let (shift, most) = match int8 {
            true => (self.shift, INT8_LIMIT),
            false => (Q16_BITS, self.ceiling.map_or(i128::MAX, i128::from)),
        };
        let half = 1i128.checked_shl(shift)? >> 1;
        Some((sum.checked_add(half)? >> shift).max(0).min(most))
    }
}

/// Number of the class: with one score 1 if it is above 0, else that of the largest, the lowest of equal ones.
pub fn decide(scores: &[i64]) -> usize {
    match scores {
        [score] => usize::from(*score > 0),
        _ => scores.iter().enumerate().rev().max_by_key(|(_, score)| **score).map_or(0, |(class, _)| class),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn network(family: &str, multiplier: &Value) -> Network {
        let scaler = json!({"low": 0, "high": 200, "zero": 100, "multiplier": 1, "shift": 0});
        let layers = json!([
            {"weights": [[2, 0], [0, -1]], "bias": [0, 5], "multiplier": multiplier, "shift": 1, "ceiling": null},
            {"weights": [[1, 1], [-1, 3]], "bias": [1, 0], "multiplier": multiplier, "shift": 0, "ceiling": null},
        ]);
        let ir = json!({"family": family, "inputs": [scaler, scaler], "layers": layers});
        Network::parse(&ir).unwrap().unwrap()
    }

    #[test]
    fn layers_are_computed_as_the_reference_says() {
        let int8 = network("int8-mlp", &json!([1, 1]));
        // Encoded 10 and -20; hidden round(20 / 2) = 10 and round(25 / 2) = 13; scores 24 and 29.
        assert_eq!(int8.scores(&[110, 80]).unwrap(), [24, 29]);
        assert_eq!((int8.encoded(0, 110), int8.encoded(0, 999)), (Some(10.0), Some(100.0)));
        assert_eq!(int8.range(1), Some((0, 200)));
        // The hidden sums are below half of 2^16.
        assert_eq!(network("q16-mlp", &json!([])).scores(&[110, 80]).unwrap(), [1, 0]);
        assert!(int8.scores(&[1]).unwrap_err().contains("2 features"));
    }

    #[test]
    fn equal_scores_are_of_the_lowest_class() {
        assert_eq!([decide(&[0]), decide(&[1]), decide(&[3, 7, 7])], [0, 1, 1]);
    }

    #[test]
    fn broken_networks_are_refused() {
        for layers in
            [json!([]), json!([{"weights": [[1]], "bias": []}]), json!([{"weights": [[]], "bias": [1]}])]
        {
            let scaler = json!({"low": 0, "high": 1, "zero": 0, "multiplier": 1, "shift": 0});
            let ir = json!({"family": "q16-mlp", "inputs": [scaler], "layers": layers});
            assert!(Network::parse(&ir).is_err(), "{ir}");
        }
        assert!(Network::parse(&json!({"family": "rules"})).unwrap().is_none());
    }
}
