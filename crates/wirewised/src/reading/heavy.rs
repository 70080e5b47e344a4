// SPDX-License-Identifier: Apache-2.0
//! What occurs most in a stream, in bounded memory: the space-saving sketch of Metwally, Agrawal and El Abbadi, "Efficient computation of
//! frequent and top-k elements in data streams", ICDT 2005.

use std::collections::HashMap;
use std::hash::Hash;

/// Whatever has more than 1 / COUNTERS of all weight is counted.
const COUNTERS: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    /// At least as much as there was.
    weight: u64,
    /// How much of that may be others'.
    error: u64,
}

#[derive(Debug)]
pub struct Heavy<K> {
    counts: HashMap<K, Count>,
    total: u64,
}

impl<K> Default for Heavy<K> {
    fn default() -> Self {
        Self { counts: HashMap::new(), total: 0 }
    }
}

impl<K: Hash + Eq + Clone + Ord> Heavy<K> {
    pub fn add(&mut self, key: &K, weight: u64) {
        self.total = self.total.saturating_add(weight);
        if let Some(count) = self.counts.get_mut(key) {
            count.weight = count.weight.saturating_add(weight);
            return;
        }
        let mut error = 0;
        if self.counts.len() == COUNTERS {
            let least = self.counts.iter().min_by_key(|(_, count)| count.weight);
            if let Some((least, count)) = least.map(|(least, count)| (least.clone(), *count)) {
                self.counts.remove(&least);
                error = count.weight;
            }
        }
        self.counts.insert(key.clone(), Count { weight: error.saturating_add(weight), error });
    }

    /// The heaviest with the share of all weight that they have at least, at most `most` of them, and none below `share`.
    pub fn top(&self, most: usize, share: f64) -> Vec<(K, f64)> {
        let least = |count: &Count| (count.weight - count.error) as f64 / self.total.max(1) as f64;
        let mut top: Vec<_> = self.counts.iter().map(|(key, count)| (key.clone(), least(count))).collect();
        top.retain(|(_, least)| *least >= share);
        top.sort_by(|(key, one), (other_key, other)| other.total_cmp(one).then_with(|| key.cmp(other_key)));
        top.truncate(most);
        top
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_are_bounds_and_what_is_heavy_is_never_missed(
            stream in prop::collection::vec((prop_oneof![0u32..4, 0u32..2000], 1u64..50), 1..3000)
        ) {
            let mut heavy = Heavy::default();
            let mut exact = HashMap::<u32, u64>::new();
            for (key, weight) in &stream {
                heavy.add(key, *weight);
                *exact.entry(*key).or_default() += weight;
            }
            let total: u64 = exact.values().sum();
            prop_assert!(heavy.counts.len() <= COUNTERS);
            for (key, count) in &heavy.counts {
                prop_assert!(count.weight >= exact[key] && count.weight - count.error <= exact[key]);
            }
            for (key, weight) in &exact {
                if *weight as f64 > total as f64 / COUNTERS as f64 {
                    prop_assert!(heavy.counts.contains_key(key), "{key} has {weight} of {total}");
                }
            }
        }
    }

    #[test]
    fn the_heaviest_come_first_and_a_spoofed_flood_has_none() {
        let mut heavy = Heavy::default();
        (0..6).for_each(|_| heavy.add(&7, 10));
        (0..4).for_each(|_| heavy.add(&9, 10));
        assert_eq!(heavy.top(5, 0.01), [(7, 0.6), (9, 0.4)]);
        assert_eq!(heavy.top(1, 0.01), [(7, 0.6)]);
        let mut spoofed = Heavy::default();
        (0..100_000).for_each(|source| spoofed.add(&source, 1));
        assert_eq!(spoofed.top(5, 0.01), []);
    }
}
