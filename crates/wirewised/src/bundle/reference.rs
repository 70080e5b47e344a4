// SPDX-License-Identifier: Apache-2.0
//! How flows looked when the model learned, as `wirewise compile --table` counted them: `reference` of a manifest.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::abi;

pub const MAX_BINS: usize = 32;
/// Of one kind: sums of all that a manifest can hold stay far below 2^64, and each is exact as a float.
const MAX_COUNT: u64 = 1 << 48;

/// Packets and flows by the class that the model says; what its features were at the last packet of each flow.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    pub packets: Vec<u64>,
    pub flows: Vec<u64>,
    pub features: Vec<Histogram>,
}

/// A feature, as the integers of `FlowFeature`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Histogram {
    pub name: String,
    /// The least and the largest value.
    pub low: i64,
    pub high: i64,
    /// First values of all bins but the first, ascending.
    pub edges: Vec<i64>,
    /// Flows, by class and bin.
    pub counts: Vec<Vec<u64>>,
}

impl Histogram {
    pub fn bins(&self) -> usize {
        self.edges.len() + 1
    }

    /// The bin of any value: those outside the range belong to the bins at its ends.
    pub fn bin(&self, value: i64) -> usize {
        self.edges.partition_point(|edge| *edge <= value)
    }

    pub fn is_outside(&self, value: i64) -> bool {
        !(self.low..=self.high).contains(&value)
    }

    fn check(&self, flows: &[u64]) -> Result<(), String> {
        let name = &self.name;
        if self.bins() > MAX_BINS {
            return Err(format!("reference {name} has more than {MAX_BINS} bins"));
        }
        let ascending = self.edges.is_sorted_by(|one, next| one < next);
        let within = self.edges.iter().all(|edge| *edge > self.low && *edge <= self.high);
        if self.low > self.high || !ascending || !within {
            return Err(format!("reference {name} has edges that do not ascend within its range"));
        }
        let counted = self.counts.iter().map(|bins| (bins.len() == self.bins()).then(|| sum(bins)).flatten());
        if !counted.eq(flows.iter().map(|flows| Some(*flows))) {
            return Err(format!("reference {name} does not count each flow once"));
        }
        Ok(())
    }
}

impl Reference {
    /// known : names of what a flow's state gives. The error is a rule that is broken.
    pub fn check(&self, classes: usize, known: &HashSet<&str>) -> Result<(), String> {
        if self.packets.len() != classes || self.flows.len() != classes {
            return Err(format!("the reference does not count {classes} classes"));
        }
        if [&self.packets, &self.flows].into_iter().any(|counts| sum(counts).is_none_or(|sum| sum == 0)) {
            return Err("the reference has no flows, or impossibly many".to_string());
        }
        if self.features.len() > abi::MAX_FEATURES {
            return Err(format!("the reference has more than {} features", abi::MAX_FEATURES));
        }
        let mut seen = HashSet::new();
        for histogram in &self.features {
            let name = histogram.name.as_str();
            if !known.contains(name) || !seen.insert(name) {
                return Err(format!("reference {name:?} stands twice, or is not among the flow's features"));
            }
            histogram.check(&self.flows)?;
        }
        Ok(())
    }
}

/// `None`: more than there can be.
fn sum(counts: &[u64]) -> Option<u64> {
    let sum = counts.iter().try_fold(0u64, |sum, count| sum.checked_add(*count))?;
    (sum <= MAX_COUNT).then_some(sum)
}
