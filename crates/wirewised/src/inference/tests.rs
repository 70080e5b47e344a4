// SPDX-License-Identifier: Apache-2.0
//! Executors against a slow and obvious one, on random networks; tests/parity/test_infer.py compares them with the Python reference.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::*;

#[derive(Debug, Clone)]
enum Source {
    Bits { feature: usize, shift: u32, bits: u32 },
    Steps { feature: usize, thresholds: Vec<i64> },
}

/// A network with its bits as bits.
#[derive(Debug, Clone)]
struct Plain {
    n_features: usize,
    sources: Vec<Source>,
    /// Weights of each neuron, and its threshold or bias.
    layers: Vec<Vec<(Vec<bool>, i32)>>,
}

impl Source {
    fn width(&self) -> usize {
        match self {
            Self::Bits { bits, .. } => *bits as usize,
            Self::Steps { thresholds, .. } => thresholds.len(),
        }
    }

    fn encode(&self, row: &[i64]) -> Vec<bool> {
        match self {
            Self::Bits { feature, shift, bits } => {
                let most = (1i128 << (shift + bits)) - 1;
                let value = i128::from(row[*feature]).clamp(0, most) >> shift;
                (0..*bits).map(|bit| value >> bit & 1 == 1).collect()
            }
            Self::Steps { feature, thresholds } => {
                thresholds.iter().map(|step| row[*feature] > *step).collect()
            }
        }
    }

    fn document(&self) -> Value {
        match self {
            Self::Bits { feature, shift, bits } => json!({"feature": feature, "shift": shift, "bits": bits}),
            Self::Steps { feature, thresholds } => json!({"feature": feature, "thresholds": thresholds}),
        }
    }
}

impl Plain {
    fn judge(&self, row: &[i64]) -> (u32, Vec<i64>) {
        let mut bits: Vec<bool> = self.sources.iter().flat_map(|source| source.encode(row)).collect();
        let agree =
            |bits: &[bool], weights: &[bool]| bits.iter().zip(weights).filter(|(a, b)| a == b).count() as i64;
        let (last, hidden) = self.layers.split_last().unwrap();
        for layer in hidden {
            bits = layer.iter().map(|(weights, least)| agree(&bits, weights) >= i64::from(*least)).collect();
        }
        let scores: Vec<i64> =
            last.iter().map(|(weights, bias)| agree(&bits, weights) + i64::from(*bias)).collect();
        let best = scores.iter().max().unwrap();
        (scores.iter().position(|score| score == best).unwrap() as u32, scores)
    }

    fn document(&self) -> Value {
        let layer = |(index, neurons): (usize, &Vec<(Vec<bool>, i32)>)| {
            let name = if index + 1 == self.layers.len() { "bias" } else { "threshold" };
            let weights: Vec<String> = neurons.iter().map(|(weights, _)| hex(weights)).collect();
            let numbers: Vec<i32> = neurons.iter().map(|(_, number)| *number).collect();
            json!({"weights": weights, name: numbers})
        };
        let classes = self.layers.last().unwrap().len();
        json!({
            "family": "binary-mlp", "version": 1, "n_features": self.n_features, "n_classes": classes, "n_outputs": classes,
            "inputs": self.sources.iter().map(Source::document).collect::<Vec<_>>(),
            "layers": self.layers.iter().enumerate().map(layer).collect::<Vec<_>>(),
        })
    }
}

/// Without leading zeros, as Python writes it.
fn hex(bits: &[bool]) -> String {
    let digits: String = bits
        .chunks(4)
        .rev()
        .map(|part| part.iter().rev().fold(0, |digit, bit| digit << 1 | u32::from(*bit)))
        .map(|digit| char::from_digit(digit, 16).unwrap())
        .collect();
    let short = digits.trim_start_matches('0');
    if short.is_empty() { "0".to_owned() } else { short.to_owned() }
}

const ENDS: [i64; 9] = [i64::MIN, i64::MIN + 1, -1, 0, 1, 255, 1 << 32, i64::MAX - 1, i64::MAX];

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![proptest::sample::select(&ENDS[..]), any::<i64>(), 0..2000i64]
}

fn source(n_features: usize) -> impl Strategy<Value = Source> {
    let bits = (0..n_features, 0..=62u32, any::<Index>()).prop_map(|(feature, shift, bits)| Source::Bits {
        feature,
        shift,
        bits: 1 + bits.index(63 - shift as usize) as u32,
    });
    let steps =
        (0..n_features, proptest::collection::vec(number(), 1..40)).prop_map(|(feature, mut thresholds)| {
            thresholds.sort_unstable();
            Source::Steps { feature, thresholds }
        });
    prop_oneof![bits, steps]
}

fn layer(fan_in: usize, neurons: usize) -> impl Strategy<Value = Vec<(Vec<bool>, i32)>> {
    let around = fan_in as i32 / 2 - 8..=fan_in as i32 / 2 + 8;
    let ends = [i32::MIN, -1, 0, 1, fan_in as i32 - 1, fan_in as i32, fan_in as i32 + 1, i32::MAX];
    let least = prop_oneof![3 => around, 1 => proptest::sample::select(ends.to_vec())];
    let weights = prop_oneof![
        5 => proptest::collection::vec(any::<bool>(), fan_in),
        1 => any::<bool>().prop_map(move |bit| vec![bit; fan_in]),
    ];
    proptest::collection::vec((weights, least), neurons)
}

/// 8 to 256 inputs, 1 to 3 layers.
fn network() -> impl Strategy<Value = Plain> {
    let sources = (1..6usize)
        .prop_flat_map(|n_features| (Just(n_features), proptest::collection::vec(source(n_features), 1..9)))
        .prop_map(|(n_features, mut sources)| {
            let mut bits = 0;
            sources.retain(|source| {
                let fits = bits + source.width() <= 256;
                bits += if fits { source.width() } else { 0 };
                fits
            });
            if bits < 8 {
                sources.push(Source::Bits { feature: 0, shift: 0, bits: 8 });
            }
            (n_features, sources)
        });
    (sources, proptest::collection::vec(1..130usize, 0..=2), 1..9usize).prop_flat_map(
        |((n_features, sources), widths, classes)| {
            let mut fan_in: usize = sources.iter().map(Source::width).sum();
            let mut layers = Vec::new();
            for width in widths.into_iter().chain([classes]) {
                layers.push(layer(fan_in, width));
                fan_in = width;
            }
            layers.prop_map(move |layers| Plain { n_features, sources: sources.clone(), layers })
        },
    )
}

fn rows(n_features: usize) -> impl Strategy<Value = Vec<i64>> {
    (0..70usize).prop_flat_map(move |count| proptest::collection::vec(number(), count * n_features))
}

/// With every set of instructions that there is here.
fn assert_the_same(plain: &Plain, rows: &[i64]) {
    let said: Vec<_> = rows.chunks(plain.n_features).map(|row| plain.judge(row)).collect();
    for instructions in Instructions::all() {
        let executor = Executor::with(&plain.document(), instructions).unwrap();
        let mut verdicts = Verdicts::default();
        executor.judge(rows, &mut verdicts);
        let classes: Vec<u32> = said.iter().map(|(class, _)| *class).collect();
        assert_eq!(verdicts.classes, classes, "{}", instructions.name());
        for (output, scores) in verdicts.scores.iter().enumerate() {
            let expected: Vec<i64> = said.iter().map(|(_, scores)| scores[output]).collect();
            assert_eq!(*scores, expected, "{}, output {output}", instructions.name());
        }
    }
}

proptest! {
    #[test]
    fn random_networks_are_what_they_mean((plain, rows) in network().prop_flat_map(|plain| {
        let rows = rows(plain.n_features);
        (Just(plain), rows)
    })) {
        assert_the_same(&plain, &rows);
    }
}

fn wide() -> Plain {
    let mut state = 1u64;
    let mut bit = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 63 == 1
    };
    let mut layer = |fan_in: usize, neurons: usize, number: i32| -> Vec<(Vec<bool>, i32)> {
        (0..neurons).map(|_| ((0..fan_in).map(|_| bit()).collect(), number)).collect()
    };
    let mut sources: Vec<_> = (0..16).map(|feature| Source::Bits { feature, shift: 0, bits: 63 }).collect();
    sources.push(Source::Steps { feature: 16, thresholds: (0..16).collect() });
    let mut layers = vec![layer(1024, 256, 512)];
    layers.extend((0..6).map(|_| layer(256, 256, 128)));
    layers.push(layer(256, 64, -3));
    Plain { n_features: 17, sources, layers }
}

#[test]
fn the_largest_network_is_what_it_means() {
    let rows: Vec<i64> =
        (0..17 * 67).map(|index: i64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64)).collect();
    assert_the_same(&wide(), &rows);
}

#[test]
fn rows_outside_the_bounds_are_unknown() {
    let plain = Plain {
        n_features: 2,
        sources: vec![Source::Bits { feature: 0, shift: 0, bits: 8 }],
        layers: vec![vec![(vec![true; 8], 0), (vec![false; 8], 0)]],
    };
    let ir = json!({"family": "bounded", "version": 1, "model": plain.document(), "bounds": [[0, 0, 200], [1, 5, 5]]});
    let executor = Executor::parse(&ir).unwrap();
    assert_eq!((executor.n_classes(), executor.n_outputs()), (3, 2));
    let mut verdicts = Verdicts::default();
    executor.judge(&[0, 5, 127, 5, 201, 5, 0, 4, 0, 6, -1, 5], &mut verdicts);
    assert_eq!(verdicts.classes, [1, 0, 2, 2, 2, 2]);
    assert_eq!(verdicts.scores[1], [8, 1, 4, 8, 8, 8]);
    assert!((0..2).all(|feature| executor.reads(feature)));
}

#[test]
fn broken_networks_are_refused_with_the_rule() {
    let good = wide().document();
    assert!(Executor::parse(&good).is_ok());
    let broken = |path: &str, value: Value| {
        let mut ir = good.clone();
        *ir.pointer_mut(path).unwrap() = value;
        Executor::parse(&ir).unwrap_err()
    };
    for (path, value, rule) in [
        ("/family", json!("tree-ensemble"), "not one of: binary-mlp"),
        ("/family", json!(3), "names no family"),
        ("/version", json!(2), "version 2"),
        ("/n_features", json!(0), "0 features"),
        ("/n_features", json!(16), "feature 16, which does not exist"),
        ("/n_classes", json!(2), "64 scores for 2 classes"),
        ("/inputs", json!([]), "0 input bits"),
        ("/inputs/0/bits", json!(0), "shift must be"),
        ("/inputs/0/shift", json!(4_000_000_000u32), "shift must be"),
        ("/inputs/16/thresholds", json!([2, 1]), "do not ascend"),
        ("/inputs/16/thresholds", json!(vec![0; 17]), "1025 input bits"),
        ("/layers", json!([]), "0 layers"),
        ("/layers/0/weights", json!([]), "0 neurons"),
        ("/layers/0/threshold", json!([1]), "1 of threshold for 256"),
        ("/layers/1/weights/3", json!("1".repeat(65)), "not 256 bits"),
        ("/layers/7/bias", Value::Null, "weights and bias"),
        ("/layers/0/threshold/0", json!(1u64 << 31), "layers"),
    ] {
        let said = broken(path, value);
        assert!(said.contains(rule) || rule == "layers" && said.contains("2147483648"), "{path}: {said}");
    }
    for ir in
        [json!([]), json!({"family": "bounded"}), json!({"family": "bounded", "model": good, "bounds": []})]
    {
        assert!(Executor::parse(&ir).is_err());
    }
    let ir = json!({"family": "bounded", "model": good, "bounds": [[99, 0, 1]]});
    assert!(Executor::parse(&ir).unwrap_err().contains("feature 99"));
}
