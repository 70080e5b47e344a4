// SPDX-License-Identifier: Apache-2.0
//! How far live flows are from those that the model learned from.
//!
//! Each feature is compared with what training saw in flows of the same classes, in the shares that the live flows have them:
//! a network with fewer attacks than the training data is not another network. The measure is the population stability index (PSI),
//! the sum over bins of (live - training) ln(live / training), with its usual thresholds; what chance alone may give follows from the
//! numbers of flows (Yurdakul and Naranjo, "Statistical properties of the population stability index", 2020).

use serde::Serialize;

use crate::abi::Stats;
use crate::bundle::manifest::FlowFeature;
use crate::bundle::reference::{Histogram, Reference};
use crate::object::flow_table::Flow;
use crate::reading::counters::total;

/// Fewer give no verdict.
pub const FEWEST_FLOWS: u64 = 100;
/// Of PSI, and of the share of flows outside the range that training saw.
pub const WATCH: f64 = 0.1;
pub const OUT_OF_DEPTH: f64 = 0.25;
/// Least share of a bin in PSI, which an empty one would make endless.
const FLOOR: f64 = 1e-4;
/// Standard deviations above its mean that PSI may have by chance.
const DEVIATIONS: f64 = 3.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    LikeTraining,
    Watch,
    OutOfDepth,
}

/// All that is known of it.
#[derive(Debug, Serialize)]
pub struct Drift {
    pub interface: String,
    pub bundle: Option<String>,
    /// Null without a reference in the bundle, and with fewer live flows than `FEWEST_FLOWS`.
    pub verdict: Option<Level>,
    /// Null: the bundle has no reference, so there is nothing to compare with.
    pub compared: Option<Compared>,
}

#[derive(Debug, Serialize)]
pub struct Compared {
    /// Live ones with a verdict of this model that are not idle, each as of its last packet.
    pub flows: u64,
    pub training_flows: u64,
    /// The highest PSI first.
    pub features: Vec<FeatureDrift>,
    /// Of the shares of packets by class, since the program was attached; it says nothing of the model alone, so it is no part of
    /// the verdict. Null before any packet got a class.
    pub classes_psi: Option<f64>,
    pub classes: Vec<ClassShare>,
}

#[derive(Debug, Serialize)]
pub struct FeatureDrift {
    pub name: String,
    pub unit: String,
    pub level: Level,
    pub psi: f64,
    /// PSI up to this may be chance.
    pub chance: f64,
    /// Share of flows outside the range that training saw, `low` to `high`.
    pub outside: f64,
    pub low: f64,
    pub high: f64,
    pub bins: Vec<Bin>,
}

#[derive(Debug, Serialize)]
pub struct Bin {
    /// Its least value; null: there is none.
    pub from: Option<f64>,
    /// Shares of flows.
    pub training: f64,
    pub live: f64,
}

#[derive(Debug, Serialize)]
pub struct ClassShare {
    pub name: String,
    /// Shares of packets.
    pub training: f64,
    pub live: f64,
}

/// Live flows, counted as the reference counts its own.
pub struct Live<'a> {
    reference: &'a Reference,
    /// By histogram: the feature, and where it stands in a flow's.
    features: Vec<(&'a Histogram, &'a FlowFeature, usize, Counted)>,
    /// By class.
    flows: Vec<u64>,
}

#[derive(Default)]
struct Counted {
    bins: Vec<u64>,
    outside: u64,
}

impl<'a> Live<'a> {
    /// features : of the layout that flows are read with.
    pub fn new(reference: &'a Reference, features: &'a [FlowFeature]) -> Self {
        let find = |histogram: &'a Histogram| {
            let place = features.iter().position(|feature| feature.name == histogram.name)?;
            let counted = Counted { bins: vec![0; histogram.bins()], outside: 0 };
            Some((histogram, &features[place], place, counted))
        };
        Self {
            reference,
            features: reference.features.iter().filter_map(find).collect(),
            flows: vec![0; reference.flows.len()],
        }
    }

    /// Flows without a verdict are left out, as rows without features are.
    pub fn add(&mut self, flow: &Flow) {
        let Some(of_class) = flow.class_id.and_then(|id| self.flows.get_mut(usize::from(id))) else { return };
        // An entry that is not as the manifest says has fewer.
        if self.features.iter().any(|(_, _, place, _)| *place >= flow.features.len()) {
            return;
        }
        *of_class += 1;
        for (histogram, _, place, counted) in &mut self.features {
            let value = flow.features[*place];
            counted.bins[histogram.bin(value)] += 1;
            counted.outside += u64::from(histogram.is_outside(value));
        }
    }

    /// stats : what the program counted. names : of classes.
    pub fn compare(&self, stats: &Stats, names: &[String]) -> Compared {
        let flows = self.flows.iter().sum();
        let mut features = Vec::new();
        if flows > 0 {
            features.extend(self.features.iter().map(|feature| self.feature(feature, flows)));
        }
        features.sort_by(|one, next| next.psi.total_cmp(&one.psi));
        let packets: Vec<_> =
            names.iter().zip(&stats.class_outcome).map(|(_, counts)| total(counts).packets).collect();
        let (training, live) = (shares(&self.reference.packets), shares(&packets));
        Compared {
            flows,
            training_flows: self.reference.flows.iter().sum(),
            features,
            classes_psi: packets.iter().any(|count| *count > 0).then(|| psi(&training, &live)),
            classes: names
                .iter()
                .zip(training.iter().zip(&live))
                .map(|(name, (training, live))| ClassShare {
                    name: name.clone(),
                    training: *training,
                    live: *live,
                })
                .collect(),
        }
    }

    fn feature(
        &self,
        (histogram, feature, _, counted): &(&Histogram, &FlowFeature, usize, Counted),
        flows: u64,
    ) -> FeatureDrift {
        let live = shares(&counted.bins);
        let (training, spread) = self.expected(histogram);
        let (psi, chance) = (psi(&training, &live), chance(live.len(), 1.0 / flows as f64 + spread));
        let outside = counted.outside as f64 / flows as f64;
        let value = |raw: i64| raw as f64 / f64::from(feature.fraction_bits).exp2();
        let from = std::iter::once(None).chain(histogram.edges.iter().map(|edge| Some(value(*edge))));
        let shares = training.into_iter().zip(live);
        FeatureDrift {
            name: feature.name.clone(),
            unit: feature.unit.clone(),
            level: level(psi, chance).max(level(outside, 0.0)),
            psi,
            chance,
            outside,
            low: value(histogram.low),
            high: value(histogram.high),
            bins: from.zip(shares).map(|(from, (training, live))| Bin { from, training, live }).collect(),
        }
    }

    /// The shares of bins in training's flows, weighted to have the live flows' classes; how much they vary by chance, as one over
    /// a number of flows. A class that training has no flow of is expected to look like all.
    fn expected(&self, histogram: &Histogram) -> (Vec<f64>, f64) {
        let live: u64 = self.flows.iter().sum();
        let pooled: Vec<u64> =
            (0..histogram.bins()).map(|bin| histogram.counts.iter().map(|bins| bins[bin]).sum()).collect();
        let (mut expected, mut spread) = (vec![0.0; histogram.bins()], 0.0);
        for (live_flows, bins) in self.flows.iter().zip(&histogram.counts) {
            let weight = *live_flows as f64 / live as f64;
            let bins = if bins.iter().any(|count| *count > 0) { bins } else { &pooled };
            for (expected, share) in expected.iter_mut().zip(shares(bins)) {
                *expected += weight * share;
            }
            spread += weight * weight / bins.iter().sum::<u64>() as f64;
        }
        (expected, spread)
    }
}

impl Compared {
    /// One feature whose shares differ is to be watched. The model is out of its depth where it never saw such values, or where
    /// half of the features differ much.
    pub fn verdict(&self) -> Option<Level> {
        (self.flows >= FEWEST_FLOWS).then_some(())?;
        let most = self.features.iter().map(|feature| feature.level).max()?;
        let differ = self.features.iter().filter(|feature| feature.level == Level::OutOfDepth).count();
        let unseen = self.features.iter().any(|feature| feature.outside > OUT_OF_DEPTH);
        Some(if unseen || 2 * differ >= self.features.len() {
            Level::OutOfDepth
        } else {
            most.min(Level::Watch)
        })
    }
}

fn level(found: f64, chance: f64) -> Level {
    match found {
        found if found > OUT_OF_DEPTH.max(chance) => Level::OutOfDepth,
        found if found > WATCH.max(chance) => Level::Watch,
        _ => Level::LikeTraining,
    }
}

fn shares(counts: &[u64]) -> Vec<f64> {
    let all = counts.iter().sum::<u64>().max(1);
    counts.iter().map(|count| *count as f64 / all as f64).collect()
}

/// The population stability index of shares of the same bins.
fn psi(training: &[f64], live: &[f64]) -> f64 {
    let term = |(training, live): (&f64, &f64)| {
        let (training, live) = (training.max(FLOOR), live.max(FLOOR));
        (live - training) * (live / training).ln()
    };
    training.iter().zip(live).map(term).sum()
}

/// What PSI may be without a difference: it is `spread` times a chi-squared number with a degree of freedom less than bins.
fn chance(bins: usize, spread: f64) -> f64 {
    let freedom = (bins - 1) as f64;
    (freedom + DEVIATIONS * (2.0 * freedom).sqrt()) * spread
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(edges: &[i64], counts: &[&[u64]]) -> Histogram {
        Histogram {
            name: "mine".to_string(),
            low: 10,
            high: 99,
            edges: edges.to_vec(),
            counts: counts.iter().map(|bins| bins.to_vec()).collect(),
        }
    }

    proptest! {
        #[test]
        fn psi_of_anything_is_bounded_and_of_equal_shares_nothing(
            counts in prop::collection::vec((0u64..1000, 0u64..1000), 1..32),
        ) {
            let (one, other): (Vec<_>, Vec<_>) = counts.into_iter().unzip();
            let (one, other) = (shares(&one), shares(&other));
            prop_assert_eq!(psi(&one, &one), 0.0);
            let between = psi(&one, &other);
            prop_assert!((0.0..2.1 * (1.0 / FLOOR).ln()).contains(&between), "{}", between);
            prop_assert!((between - psi(&other, &one)).abs() < 1e-9);
        }

        #[test]
        fn every_value_has_a_bin(value: i64) {
            let histogram = histogram(&[20, 21, 50], &[]);
            let bin = histogram.bin(value);
            prop_assert!(bin < histogram.bins());
            prop_assert_eq!(bin > 0, value >= 20);
            prop_assert_eq!(bin > 2, value >= 50);
            prop_assert_eq!(histogram.is_outside(value), !(10..100).contains(&value));
        }
    }

    #[test]
    fn psi_is_as_by_hand() {
        let expected = 0.2 * (0.7f64 / 0.5).ln() + -0.2 * (0.3f64 / 0.5).ln();
        assert!((psi(&[0.5, 0.5], &[0.7, 0.3]) - expected).abs() < 1e-12);
        assert!(psi(&[1.0, 0.0], &[0.0, 1.0]) > 18.0);
    }

    #[test]
    fn chance_is_told_from_a_difference() {
        assert_eq!(level(0.2, 0.0), Level::Watch);
        assert_eq!(level(0.2, chance(10, 1.0 / 100.0 + 1.0 / 1000.0)), Level::LikeTraining);
        assert_eq!(level(0.3, chance(10, 2.0 / 1000.0)), Level::OutOfDepth);
        assert_eq!(chance(1, 1.0), 0.0);
    }

    #[test]
    fn one_feature_of_many_is_to_be_watched() {
        let verdict = |flows: u64, of_features: &[(Level, f64)]| {
            let feature = |(level, outside): &(Level, f64)| FeatureDrift {
                name: String::new(),
                unit: String::new(),
                level: *level,
                psi: 0.0,
                chance: 0.0,
                outside: *outside,
                low: 0.0,
                high: 0.0,
                bins: Vec::new(),
            };
            let features = of_features.iter().map(feature).collect();
            Compared { flows, training_flows: 1, features, classes_psi: None, classes: Vec::new() }.verdict()
        };
        let (like, watch, out) = ((Level::LikeTraining, 0.0), (Level::Watch, 0.0), (Level::OutOfDepth, 0.0));
        assert_eq!(verdict(100, &[like, like]), Some(Level::LikeTraining));
        assert_eq!(verdict(100, &[like, watch]), Some(Level::Watch));
        assert_eq!(verdict(100, &[like, like, out]), Some(Level::Watch));
        assert_eq!(verdict(100, &[like, out]), Some(Level::OutOfDepth));
        assert_eq!(verdict(100, &[like, like, (Level::OutOfDepth, 0.3)]), Some(Level::OutOfDepth));
        assert_eq!((verdict(99, &[out]), verdict(100, &[])), (None, None));
    }

    #[test]
    fn another_mix_of_classes_is_no_drift() {
        // Flows of class 0 are short, of class 1 long; of class 2 training has none.
        let reference = Reference {
            packets: vec![1, 1, 0],
            flows: vec![90, 10, 0],
            features: vec![histogram(&[50], &[&[90, 0], &[0, 10], &[0, 0]])],
        };
        let expected = |flows: [u64; 3]| {
            let live = Live { reference: &reference, features: Vec::new(), flows: flows.to_vec() };
            live.expected(&reference.features[0])
        };
        assert_eq!(expected([50, 150, 0]).0, [0.25, 0.75]);
        assert_eq!(expected([0, 0, 5]), (vec![0.9, 0.1], 0.01));
    }
}
