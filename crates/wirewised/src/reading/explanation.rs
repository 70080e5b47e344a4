// SPDX-License-Identifier: Apache-2.0
//! What a model makes of a packet's features: what they are, the way through the trees, and the scores of a network.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::bundle::Bundle;
use crate::bundle::model::{Bounded, Model, n_outputs};
use crate::bundle::network::{Network, decide};
use crate::bundle::tree::Path;
use crate::files::json;
use crate::reading::meta::Input;
use crate::text::units::thousands;

/// More than the largest network has that can be computed here.
const NETWORK: json::Limits = json::Limits { bytes: 8 << 20, depth: 16, elements: 1 << 18 };

/// Why the features of an event give its class.
#[derive(Debug, Serialize)]
pub struct Explanation {
    pub bundle: String,
    pub model: String,
    /// Those that the model reads.
    pub features: Vec<FeatureValue>,
    pub trees: Vec<TreeWay>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkWay>,
    /// Features outside what training saw; the class is `unknown` if there are any.
    pub outside: Vec<Outside>,
    /// Why neither trees nor scores are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_shown: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct FeatureValue {
    pub name: String,
    /// What the model compares; `value` in `unit` is this over 2^fraction_bits.
    pub raw: i64,
    pub value: f64,
    pub unit: String,
}

/// A tree's tests of the features, and what its leaf says.
#[derive(Debug, Serialize)]
pub struct TreeWay {
    pub says: String,
    pub tests: Vec<Test>,
}

#[derive(Debug, Serialize)]
pub struct Test {
    pub feature: String,
    /// In the feature's unit.
    pub value: f64,
    pub threshold: f64,
    /// Whether the value is not above the threshold.
    pub below: bool,
}

/// What a network gives, and what it would give if one feature were another.
#[derive(Debug, Serialize)]
pub struct NetworkWay {
    pub class: String,
    pub scores: Vec<Score>,
    pub inputs: Vec<NetworkInput>,
}

#[derive(Debug, Serialize)]
pub struct Score {
    pub class: String,
    pub score: i64,
}

#[derive(Debug, Serialize)]
pub struct NetworkInput {
    pub feature: String,
    /// As the first layer gets it; `None`: as bits.
    pub encoded: Option<f64>,
    /// With this feature at the ends of what the network tells apart, and all others as they are.
    pub otherwise: Vec<Otherwise>,
}

#[derive(Debug, Serialize)]
pub struct Otherwise {
    /// In the feature's unit.
    pub value: f64,
    pub class: String,
}

#[derive(Debug, Serialize)]
pub struct Outside {
    pub feature: String,
    /// In the feature's unit, as the bounds are.
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl NetworkWay {
    /// `None`: the network cannot be computed here. ir : model.json, without bounds.
    fn new(bundle: &Bundle, ir: &[u8], inputs: &[Input], features: &[i64]) -> Result<Option<Self>, String> {
        let Some(network) = Network::parse(&json::from_slice(ir, &NETWORK)?)? else { return Ok(None) };
        let classes = &bundle.manifest.classes;
        let name = |class: usize| classes.get(class).map_or("an unknown class", String::as_str).to_string();
        let scores = network.scores(features)?;
        let otherwise = |place: usize, value: i64| {
            let mut changed = features.to_vec();
            changed[place] = value;
            let class = name(decide(&network.scores(&changed)?));
            Ok(Otherwise { value: in_unit(bundle, place, value), class })
        };
        let input = |input: &Input| {
            let ends = network.range(input.place).map_or(Vec::new(), |(low, high)| vec![low, high]);
            Ok(NetworkInput {
                feature: input.name.clone(),
                encoded: network.encoded(input.place, features[input.place]),
                otherwise: ends
                    .into_iter()
                    .map(|end| otherwise(input.place, end))
                    .collect::<Result<_, String>>()?,
            })
        };
        // A single score is that of the second class.
        let first = usize::from(scores.len() == 1);
        let score = |(class, score): (usize, &i64)| Score { class: name(first + class), score: *score };
        Ok(Some(Self {
            class: name(decide(&scores)),
            scores: scores.iter().enumerate().map(score).collect(),
            inputs: inputs.iter().map(input).collect::<Result<_, String>>()?,
        }))
    }
}

/// Features outside the bounds. features : all of the bundle's.
fn outside(bundle: &Bundle, bounds: &[(usize, i64, i64)], features: &[i64]) -> Vec<Outside> {
    let mut found = Vec::new();
    for &(place, low, high) in bounds {
        let (Some(&value), Some(name)) = (features.get(place), bundle.manifest.feature_names.get(place))
        else {
            continue;
        };
        if !(low..=high).contains(&value) {
            let [value, low, high] = [value, low, high].map(|it| in_unit(bundle, place, it));
            found.push(Outside { feature: name.clone(), value, low, high });
        }
    }
    found
}

impl Explanation {
    /// given : by name, as events have them; all that the model reads. inputs : what that is. The error says what does not fit.
    pub fn new(bundle: &Bundle, inputs: &[Input], given: &BTreeMap<String, i64>) -> Result<Self, String> {
        let manifest = &bundle.manifest;
        let mut features = vec![0; manifest.feature_names.len()];
        for input in inputs {
            let value = given.get(&input.name);
            features[input.place] = *value.ok_or_else(|| {
                format!("the model reads {}, which is not among the features given", input.name)
            })?;
        }
        if let Some(other) = given.keys().find(|name| !inputs.iter().any(|input| input.name == **name)) {
            return Err(format!(
                "the model reads no feature {other:?}; the event may be of the bundle before the last swap"
            ));
        }
        let broken = |rule: String| format!("model.json: {rule}");
        let bounded = Bounded::parse(&bundle.model).map_err(broken)?;
        let (ir, bounds) = match &bounded {
            Some(bounded) => (bounded.inside(), bounded.bounds.as_slice()),
            None => (&bundle.model[..], &[][..]),
        };
        let model = Model::parse(ir).map_err(broken)?;
        let network = match model {
            Model::Network => NetworkWay::new(bundle, ir, inputs, &features).map_err(broken)?,
            Model::Trees(_) | Model::Unknown => None,
        };
        let adds = Adds::of(&model, n_outputs(manifest, &bundle.model).map_err(broken)?);
        let values = feature_values(bundle, &features);
        let way = |path: &Path| TreeWay {
            says: speaks_for(path, &manifest.classes, adds),
            tests: path
                .steps
                .iter()
                .map(|step| Test {
                    feature: manifest.feature_names[step.feature].clone(),
                    value: in_unit(bundle, step.feature, step.value),
                    threshold: in_unit(bundle, step.feature, step.threshold),
                    below: step.left,
                })
                .collect(),
        };
        Ok(Self {
            bundle: manifest.name.clone(),
            model: manifest.model.summary.clone(),
            trees: model.paths(&features).map_err(broken)?.iter().map(way).collect(),
            features: inputs.iter().map(|input| values[input.place].clone()).collect(),
            not_shown: match network {
                Some(_) => None,
                None => model.not_shown(&manifest.model.family),
            },
            network,
            outside: outside(bundle, bounds, &features),
        })
    }
}

/// Values with their names and units. features : all of the bundle's, as integers.
pub fn feature_values(bundle: &Bundle, features: &[i64]) -> Vec<FeatureValue> {
    let manifest = &bundle.manifest;
    let value = |(place, &raw): (usize, &i64)| FeatureValue {
        name: manifest.feature_names[place].clone(),
        raw,
        value: in_unit(bundle, place, raw),
        unit: manifest.features.get(place).map_or_else(String::new, |feature| feature.unit.clone()),
    };
    features.iter().enumerate().map(value).collect()
}

/// A feature's integer in the feature's unit. place : in the feature set.
fn in_unit(bundle: &Bundle, place: usize, raw: i64) -> f64 {
    let bits = bundle.manifest.features.get(place).map_or(0, |feature| feature.fraction_bits);
    raw as f64 / f64::from(bits).exp2()
}

/// What a leaf adds to the result: a vote for a class, or a score to each output.
#[derive(Clone, Copy)]
pub enum Adds {
    Votes,
    Scores(usize),
}

impl Adds {
    /// outputs : of the model.
    pub fn of(model: &Model, outputs: usize) -> Self {
        let votes = matches!(model, Model::Trees(trees) if trees.votes());
        if votes { Self::Votes } else { Self::Scores(outputs) }
    }
}

/// What the leaf at the end of a tree's path says.
pub fn speaks_for(path: &Path, classes: &[String], adds: Adds) -> String {
    let name = |id: usize| classes.get(id).map_or("an unknown class", String::as_str);
    let scores: Vec<_> = path.leaf.iter().map(|score| thousands(*score)).collect();
    let scores = scores.join(", ");
    match (adds, path.leaf.as_slice(), path.output) {
        (Adds::Votes, &[class, ..], _) => {
            format!("votes for {}", name(usize::try_from(class).unwrap_or(usize::MAX)))
        }
        (Adds::Scores(1), &[score, ..], _) => {
            format!("speaks for {}, score {scores}", name(usize::from(score > 0)))
        }
        (Adds::Scores(_), &[score], Some(output)) => {
            let way = if score < 0 { "against" } else { "for" };
            format!("speaks {way} {}, score {scores}", name(output as usize))
        }
        (_, leaf, _) => {
            let most = leaf.iter().enumerate().rev().max_by_key(|(_, score)| **score);
            format!("speaks for {}, scores {scores}", name(most.map_or(usize::MAX, |(id, _)| id)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_names_the_class_it_speaks_for() {
        let classes = ["benign", "scan", "flood"].map(String::from);
        for (leaf, output, adds, said) in [
            (vec![2], None, Adds::Votes, "votes for flood"),
            (vec![-5_000], None, Adds::Scores(1), "speaks for benign, score -5,000"),
            (vec![7], Some(0), Adds::Scores(1), "speaks for scan, score 7"),
            (vec![-7], Some(2), Adds::Scores(3), "speaks against flood, score -7"),
            (vec![5, 9, 9], None, Adds::Scores(3), "speaks for scan, scores 5, 9, 9"),
        ] {
            let path = Path { tree: 0, steps: Vec::new(), leaf, output };
            assert_eq!(speaks_for(&path, &classes, adds), said);
        }
    }
}
