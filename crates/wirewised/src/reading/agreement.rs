// SPDX-License-Identifier: Apache-2.0
//! How far a model and its shadow agree.

use libbpf_rs::{MapCore, MapHandle};
use serde::Serialize;

use crate::abi::{self, AGREEMENT_ROWS, MAX_CLASSES};
use crate::error::Result;
use crate::object::read_element;
use crate::reading::meta::{BundleMeta, Meta};
use crate::text::units::thousands;

/// The name of no class: a packet that was not classified.
const NO_CLASS: &str = "(none)";

/// Packets since the shadow began, of those that at least one of the two classified.
#[derive(Debug, Clone, Serialize)]
pub struct Agreement {
    pub bundle: Option<BundleMeta>,
    /// When the shadow began, RFC 3339.
    pub since: Option<String>,
    pub packets: u64,
    /// Both gave a class of this name.
    pub agree: u64,
    pub disagree: u64,
    /// Every pair of classes that occurred, the most frequent first.
    pub pairs: Vec<Pair>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// Class of the model whose verdicts hold, `(none)` if it gave none; likewise `shadow`.
    pub first: String,
    pub shadow: String,
    pub packets: u64,
}

impl Agreement {
    /// map : `ww_agreement`. meta : of the shadow. first, shadow : names of classes, by class id.
    pub fn read(
        map: &MapHandle,
        meta: Option<&Meta>,
        first: impl Fn(u8) -> String,
        shadow: impl Fn(u8) -> String,
    ) -> Result<Self> {
        let mut packets = [[0; AGREEMENT_ROWS]; AGREEMENT_ROWS];
        for index in 0..map.max_entries() {
            let row: abi::Agreement = read_element(map, index)?;
            let sums = packets[index as usize % AGREEMENT_ROWS].iter_mut();
            sums.zip(row.packets).for_each(|(sum, more)| *sum += more);
        }
        let since = meta.map(|meta| meta.since.clone());
        Ok(Self::new(meta.map(|meta| meta.bundle.clone()), since, pairs(&packets, first, shadow)))
    }

    fn new(bundle: Option<BundleMeta>, since: Option<String>, pairs: Vec<Pair>) -> Self {
        let sum = |same: bool| -> u64 {
            pairs.iter().filter(|pair| (pair.first == pair.shadow) == same).map(|pair| pair.packets).sum()
        };
        let (agree, disagree) = (sum(true), sum(false));
        Self { bundle, since, packets: agree + disagree, agree, disagree, pairs }
    }

    pub fn describe(&self) -> String {
        let name = self.bundle.as_ref().map_or("unknown", |bundle| &bundle.name);
        if self.packets == 0 {
            return format!("{name}, no packet yet");
        }
        let share = 100.0 * self.agree as f64 / self.packets as f64;
        format!(
            "{name} agrees on {} of {} packets ({share:.2} %)",
            thousands(self.agree),
            thousands(self.packets)
        )
    }
}

fn pairs(
    packets: &[[u64; AGREEMENT_ROWS]; AGREEMENT_ROWS],
    first: impl Fn(u8) -> String,
    shadow: impl Fn(u8) -> String,
) -> Vec<Pair> {
    let name = |of: &dyn Fn(u8) -> String, id: usize| {
        if id == MAX_CLASSES { NO_CLASS.to_string() } else { of(id as u8) }
    };
    let mut pairs = Vec::new();
    for (a, row) in packets.iter().enumerate() {
        for (b, packets) in row.iter().enumerate() {
            if *packets > 0 && (a, b) != (MAX_CLASSES, MAX_CLASSES) {
                pairs.push(Pair { first: name(&first, a), shadow: name(&shadow, b), packets: *packets });
            }
        }
    }
    pairs.sort_by_key(|pair| std::cmp::Reverse(pair.packets));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_agree_by_name_and_what_neither_classified_is_left_out() {
        let mut packets = [[0; AGREEMENT_ROWS]; AGREEMENT_ROWS];
        packets[0][1] = 10;
        packets[1][1] = 2;
        packets[1][MAX_CLASSES] = 3;
        packets[MAX_CLASSES][MAX_CLASSES] = 1000;
        let name = |names: [&'static str; 2]| move |id: u8| names[usize::from(id)].to_string();
        let found = pairs(&packets, name(["benign", "attack"]), name(["attack", "benign"]));
        let agreement = Agreement::new(None, None, found);
        assert_eq!((agreement.packets, agreement.agree, agreement.disagree), (15, 10, 5));
        let texts: Vec<_> =
            agreement.pairs.iter().map(|pair| (&*pair.first, &*pair.shadow, pair.packets)).collect();
        assert_eq!(texts, [("benign", "benign", 10), ("attack", "(none)", 3), ("attack", "benign", 2)]);
    }
}
