// SPDX-License-Identifier: Apache-2.0
//! The way a packet's features take through the trees of a bundle's model.json. Only for showing: the class and the
//! scores come from the program.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Each tree has one vote.
pub const MAJORITY: &str = "majority";

/// What is needed of a tree-ensemble model.
#[derive(Debug, Deserialize)]
pub struct Ensemble {
    votes: String,
    trees: Vec<Tree>,
}

/// Parallel lists over the nodes; node 0 is the root, children stand behind their parents.
#[derive(Debug, Deserialize)]
struct Tree {
    /// -1 at a leaf.
    feature: Vec<i64>,
    threshold: Vec<i64>,
    left: Vec<i64>,
    right: Vec<i64>,
    /// At a leaf: one class (majority), or scores.
    value: Vec<Vec<i64>>,
    /// The one output the tree adds to; `None`: all.
    output: Option<u32>,
}

/// A test on the way: `value <= threshold` goes left.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    pub feature: usize,
    pub value: i64,
    pub threshold: i64,
    pub left: bool,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Path {
    pub tree: usize,
    pub steps: Vec<Step>,
    pub leaf: Vec<i64>,
    pub output: Option<u32>,
}

impl Ensemble {
    /// The error says what rule of the format is broken.
    pub fn parse(model: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(model).map_err(|error| error.to_string())
    }

    /// Each tree votes for a class; else it adds to scores.
    pub fn votes(&self) -> bool {
        self.votes == MAJORITY
    }

    /// Features that some tree tests: the program computes no others.
    pub fn tested(&self) -> BTreeSet<usize> {
        let features = self.trees.iter().flat_map(|tree| &tree.feature);
        features.filter_map(|feature| usize::try_from(*feature).ok()).collect()
    }

    /// One path a tree.
    pub fn paths(&self, features: &[i64]) -> Result<Vec<Path>, String> {
        let path = |(tree, nodes): (usize, &Tree)| {
            let (steps, leaf) = nodes.walk(features).ok_or(format!("tree {tree} is broken"))?;
            Ok(Path { tree, steps, leaf, output: nodes.output })
        };
        self.trees.iter().enumerate().map(path).collect()
    }
}

impl Tree {
    fn walk(&self, features: &[i64]) -> Option<(Vec<Step>, Vec<i64>)> {
        let (mut node, mut steps) = (0, Vec::new());
        loop {
            // -1 is no index: a leaf.
            let Ok(feature) = usize::try_from(*self.feature.get(node)?) else {
                return Some((steps, self.value.get(node)?.clone()));
            };
            let (value, threshold) = (*features.get(feature)?, *self.threshold.get(node)?);
            let left = value <= threshold;
            steps.push(Step { feature, value, threshold, left });
            let child = *if left { self.left.get(node)? } else { self.right.get(node)? };
            let next = usize::try_from(child).ok()?;
            // Children stand behind their parents, or this would not end.
            if next <= node {
                return None;
            }
            node = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stump(left: i64) -> Vec<u8> {
        let ir = json!({"votes": "majority", "family": "tree-ensemble", "trees": [{
            "feature": [1, -1, -1], "threshold": [10, 0, 0], "left": [left, -1, -1], "right": [2, -1, -1],
            "value": [[], [0], [1]], "output": null,
        }]});
        ir.to_string().into_bytes()
    }

    #[test]
    fn the_threshold_itself_goes_left() {
        let ensemble = Ensemble::parse(&stump(1)).unwrap();
        for (value, left, leaf) in [(9, true, 0), (10, true, 0), (11, false, 1)] {
            let path = &ensemble.paths(&[0, value]).unwrap()[0];
            assert_eq!(path.steps, [Step { feature: 1, value, threshold: 10, left }]);
            assert_eq!(path.leaf, [leaf]);
        }
    }

    #[test]
    fn broken_trees_are_refused_and_never_loop() {
        assert!(Ensemble::parse(&stump(0)).unwrap().paths(&[0, 5]).is_err(), "a loop");
        assert!(Ensemble::parse(&stump(9)).unwrap().paths(&[0, 5]).is_err(), "no such node");
        assert!(Ensemble::parse(&stump(1)).unwrap().paths(&[]).is_err(), "no such feature");
        assert!(Ensemble::parse(br#"{"family": "mlp"}"#).is_err());
        assert!(Ensemble::parse(br#"{"family": "tree-ensemble", "trees": 3}"#).is_err());
    }
}
