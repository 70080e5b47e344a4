// SPDX-License-Identifier: Apache-2.0
//! Whether `model.json` is a model at all, found out without building it: a list of zeros takes a hundred times its bytes.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::files::json::{self, Limits};

pub const TREES: &str = "tree-ensemble";
pub const INT8: &str = "int8-mlp";
pub const Q16: &str = "q16-mlp";
pub const BINARY: &str = "binary-mlp";
pub const BANK: &str = "binary-bank";
pub const BOUNDED: &str = "bounded";

/// A forest of 100 trees of depth 10 has 200,000 values.
const LIMITS: Limits = Limits { bytes: super::MAX_BYTES as usize, depth: 16, elements: 1 << 22 };

/// Refuses what does not have the form of its family. A family that is not known here may have any.
pub fn check(text: &[u8]) -> Result<(), String> {
    json::check(text, &LIMITS)?;
    match family(text)?.as_str() {
        TREES | INT8 | Q16 | BINARY | BANK | BOUNDED => read::<Shape>(text)?.check(),
        _ => Ok(()),
    }
}

/// The family that a model says it is of.
pub fn family(text: &[u8]) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Head {
        family: Option<String>,
    }
    let is_object = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    let head: Option<Head> = is_object.then(|| read(text)).transpose()?;
    head.and_then(|head| head.family).ok_or_else(|| "is not a model: it names no family".to_string())
}

fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| format!("is not a model: {error}"))
}

#[derive(Deserialize)]
struct Shape {
    family: String,
    trees: Option<Many<Tree>>,
    layers: Option<Many<Record>>,
    networks: Option<Many<Record>>,
    /// Of a model that is bounded.
    model: Option<Box<Shape>>,
}

impl Shape {
    fn check(&self) -> Result<(), String> {
        let (key, parts) = match self.family.as_str() {
            TREES => ("trees", self.trees.as_ref().map(|trees| trees.count)),
            INT8 | Q16 | BINARY => ("layers", self.layers.as_ref().map(|layers| layers.count)),
            BANK => ("networks", self.networks.as_ref().map(|networks| networks.count)),
            BOUNDED => {
                let inside = self.model.as_ref().filter(|inside| inside.family != BOUNDED);
                return inside
                    .ok_or_else(|| "is not a model: its bounds have none inside".to_string())?
                    .check();
            }
            family => return Err(format!("is not a model: a {family} cannot have bounds")),
        };
        match parts {
            Some(1..) => Ok(()),
            _ => Err(format!("is not a model: a {} has {key}", self.family)),
        }
    }
}

/// A list whose parts are read and dropped.
struct Many<T> {
    count: usize,
    kind: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Parts<T> {
            type Value = Many<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Many<T>, A::Error> {
                let mut count = 0;
                while parts.next_element::<T>()?.is_some() {
                    count += 1;
                }
                Ok(Many { count, kind: PhantomData })
            }
        }

        deserializer.deserialize_seq(Parts(PhantomData))
    }
}

/// Any object.
#[derive(Deserialize)]
struct Record {}

/// A tree has as many parts in each list as it has nodes.
#[derive(Deserialize)]
#[serde(try_from = "Columns")]
struct Tree;

#[derive(Deserialize)]
struct Columns {
    feature: Many<i64>,
    threshold: Many<i64>,
    left: Many<i64>,
    right: Many<i64>,
    value: Many<Many<i64>>,
}

impl TryFrom<Columns> for Tree {
    type Error = &'static str;

    fn try_from(columns: Columns) -> Result<Self, Self::Error> {
        let nodes = columns.feature.count;
        let lists = [columns.threshold.count, columns.left.count, columns.right.count, columns.value.count];
        match nodes > 0 && lists.iter().all(|count| *count == nodes) {
            true => Ok(Self),
            false => Err("a tree does not have as many parts in each of its lists"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refusal(model: &Value) -> Option<String> {
        check(model.to_string().as_bytes()).err()
    }

    #[test]
    fn what_has_not_the_form_of_its_family_is_no_model() {
        let tree = json!({"feature": [-1], "threshold": [0], "left": [-1], "right": [-1], "value": [[1]], "output": null});
        let trees = |tree: &Value| json!({"family": "tree-ensemble", "version": 1, "trees": [tree]});
        let network = json!({"family": "int8-mlp", "layers": [{"weights": [[1]]}]});
        let bounded = |model: &Value| json!({"family": "bounded", "model": model, "bounds": []});
        for good in [trees(&tree), network.clone(), bounded(&network), json!({"family": "rules", "trees": 5})]
        {
            assert_eq!(refusal(&good), None);
        }
        let edited = |key: &str, value: Value| {
            let mut edited = tree.clone();
            edited[key] = value;
            trees(&edited)
        };
        for (bad, rule) in [
            (json!([0, 0]), "names no family"),
            (json!("tree-ensemble"), "names no family"),
            (json!({"trees": []}), "names no family"),
            (json!({"family": 7}), "invalid type"),
            (json!({"family": "tree-ensemble"}), "has trees"),
            (json!({"family": "tree-ensemble", "trees": []}), "has trees"),
            (json!({"family": "tree-ensemble", "trees": [0, 0]}), "invalid type"),
            (edited("left", json!([-1, -1])), "as many parts"),
            (edited("feature", json!(["0"])), "invalid type"),
            (edited("value", json!([0])), "invalid type"),
            (json!({"family": "q16-mlp", "layers": [0, 0]}), "invalid type"),
            (json!({"family": "binary-bank", "networks": 3}), "invalid type"),
            (bounded(&json!({"family": "rules"})), "cannot have bounds"),
            (bounded(&bounded(&network)), "none inside"),
            (json!({"family": "bounded"}), "none inside"),
        ] {
            let refusal = refusal(&bad).unwrap_or_default();
            assert!(refusal.contains(rule), "{bad}: {refusal}");
        }
    }
}
