// SPDX-License-Identifier: Apache-2.0
//! A bundle's model on rows of features, many at once and without packets: what `infer` runs.
//!
//! It computes what the integers of `model.json` mean, and not what the program does: those of wirewise's own bundles are the same, which the
//! parity tests show. So nothing that judges packets runs here.

pub mod binary;
mod blocks;
pub mod rows;

use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

pub use blocks::Instructions;

use crate::abi;
use crate::inference::binary::{Encoding, Network};

/// Of a try: enough to tell the sets apart, and a tenth of a millisecond with 256-32-16-2.
const TRIED_ROWS: usize = 512;
const TRIES: u32 = 4;

/// A model that takes rows.
#[derive(Debug)]
pub struct Executor {
    network: Network,
    bounds: Vec<Bound>,
    n_classes: usize,
    instructions: Instructions,
}

/// What training saw of a feature, both ends inside; elsewhere the class is the last one, `unknown`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(from = "(usize, i64, i64)")]
struct Bound {
    feature: usize,
    low: i64,
    high: i64,
}

impl From<(usize, i64, i64)> for Bound {
    fn from((feature, low, high): (usize, i64, i64)) -> Self {
        Self { feature, low, high }
    }
}

/// What a model says of rows; used again for the next ones.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Verdicts {
    pub classes: Vec<u32>,
    /// A list for each output.
    pub scores: Vec<Vec<i64>>,
}

impl Executor {
    /// Of `model.json`. The error says what rule of the format is broken, or that no executor knows the family.
    pub fn parse(ir: &Value) -> Result<Self, String> {
        let mut executor = Self::with(ir, Instructions::PORTABLE)?;
        executor.choose_instructions();
        Ok(executor)
    }

    /// Each is tried with this network: on some processors wider vectors take longer.
    fn choose_instructions(&mut self) {
        let rows = vec![0; TRIED_ROWS * self.n_features()];
        let mut verdicts = Verdicts::default();
        let mut least = (Duration::MAX, self.instructions);
        for instructions in Instructions::all() {
            self.instructions = instructions;
            for _ in 0..TRIES {
                let begin = Instant::now();
                self.judge(&rows, &mut verdicts);
                let took = begin.elapsed();
                if took < least.0 {
                    least = (took, instructions);
                }
            }
        }
        self.instructions = least.1;
    }

    pub fn with(ir: &Value, instructions: Instructions) -> Result<Self, String> {
        let (inner, bounds) = match ir["family"].as_str() {
            Some("bounded") => (&ir["model"], bounds(&ir["bounds"])?),
            _ => (ir, Vec::new()),
        };
        let network = match inner["family"].as_str() {
            Some("binary-mlp") => Network::parse(inner)?,
            Some(family) => return Err(format!("family {family} is not one of: binary-mlp")),
            None => return Err("names no family".to_owned()),
        };
        if let Some(bound) = bounds.iter().find(|bound| bound.feature >= network.n_features) {
            return Err(format!("has bounds of feature {}, which does not exist", bound.feature));
        }
        let n_classes = network.n_outputs() + usize::from(!bounds.is_empty());
        if n_classes > abi::MAX_CLASSES {
            return Err(format!("has {n_classes} classes, allowed are up to {}", abi::MAX_CLASSES));
        }
        Ok(Self { network, bounds, n_classes, instructions })
    }

    /// Numbers in a row.
    pub fn n_features(&self) -> usize {
        self.network.n_features
    }

    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    pub fn n_outputs(&self) -> usize {
        self.network.n_outputs()
    }

    /// Whether any feature that this is makes a difference.
    pub fn reads(&self, feature: usize) -> bool {
        self.network.reads(feature) || self.bounds.iter().any(|bound| bound.feature == feature)
    }

    /// How the network gets a feature.
    pub fn encodings(&self, feature: usize) -> impl Iterator<Item = &Encoding> {
        let inputs = self.network.inputs.iter().filter(move |input| input.feature == feature);
        inputs.map(|input| &input.encoding)
    }

    pub fn instructions(&self) -> Instructions {
        self.instructions
    }

    /// Judges whole rows that follow each other.
    pub fn judge(&self, rows: &[i64], verdicts: &mut Verdicts) {
        let width = self.n_features();
        let count = rows.len() / width;
        verdicts.classes.resize(count, 0);
        verdicts.scores.resize_with(self.n_outputs(), Vec::new);
        verdicts.scores.iter_mut().for_each(|scores| scores.resize(count, 0));
        self.instructions.judge(&self.network, &rows[..count * width], verdicts);
        let unknown = (self.n_classes - 1) as u32;
        for bound in &self.bounds {
            for (row, class) in rows.chunks_exact(width).zip(&mut verdicts.classes) {
                if !(bound.low..=bound.high).contains(&row[bound.feature]) {
                    *class = unknown;
                }
            }
        }
    }
}

fn bounds(document: &Value) -> Result<Vec<Bound>, String> {
    let bounds: Vec<Bound> =
        Deserialize::deserialize(document).map_err(|error| format!("its bounds: {error}"))?;
    if bounds.is_empty() {
        return Err("has no bounds, though its family is bounded".to_owned());
    }
    Ok(bounds)
}

#[cfg(test)]
mod tests;
