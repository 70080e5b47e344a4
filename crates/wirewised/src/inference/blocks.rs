// SPDX-License-Identifier: Apache-2.0
//! Binary networks on blocks of rows.
//!
//! A block holds word k of all its rows side by side, so each step is the same for all of them: XNOR, popcount and sum become a few vector
//! instructions, which the compiler makes of these loops for the instruction sets that it is told of. No lane looks into another one, so a network of
//! any shape fills the vectors.

use super::Verdicts;
use super::binary::{Encoding, Input, Layer, MAX_INPUT_BITS, Network, WORD};

/// Rows of a block. With 8 each step would be one vector of AVX-512, but takes twice to three times as long: nothing runs beside it.
const BLOCK: usize = 32;
const MAX_WORDS: usize = MAX_INPUT_BITS / WORD;

/// Bits of the rows of a block.
type Bits<const ROWS: usize> = [[u64; ROWS]; MAX_WORDS];

/// What the loops are compiled for; only what this processor has can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instructions(Set);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Popcnt,
    Portable,
}

impl Instructions {
    /// What every processor has.
    pub const PORTABLE: Self = Self(Set::Portable);

    /// Those of this processor, the widest first.
    pub fn all() -> Vec<Self> {
        let mut found = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let popcnt = is_x86_feature_detected!("popcnt");
            let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
            let wide = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512dq");
            if popcnt && avx512 && wide && is_x86_feature_detected!("avx512vpopcntdq") {
                found.push(Self(Set::Avx512));
            }
            if popcnt && is_x86_feature_detected!("avx2") {
                found.push(Self(Set::Avx2));
            }
            if popcnt {
                found.push(Self(Set::Popcnt));
            }
        }
        found.push(Self::PORTABLE);
        found
    }

    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Set::Popcnt => "popcnt",
            Set::Portable => "portable",
        }
    }

    /// verdicts : with a place for each row.
    pub(super) fn judge(self, network: &Network, rows: &[i64], verdicts: &mut Verdicts) {
        match self.0 {
            // SAFETY: `all` found all of AVX-512 that it is compiled for, and POPCNT, on this processor.
            #[cfg(target_arch = "x86_64")]
            Set::Avx512 => unsafe { with_avx512(network, rows, verdicts) },
            // SAFETY: `all` found AVX2 and POPCNT on this processor.
            #[cfg(target_arch = "x86_64")]
            Set::Avx2 => unsafe { with_avx2(network, rows, verdicts) },
            // SAFETY: `all` found POPCNT on this processor.
            #[cfg(target_arch = "x86_64")]
            Set::Popcnt => unsafe { with_popcnt(network, rows, verdicts) },
            Set::Portable => judge(network, rows, 10, verdicts),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx512vpopcntdq,popcnt")]
fn with_avx512(network: &Network, rows: &[i64], verdicts: &mut Verdicts) {
    judge(network, rows, 3, verdicts);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn with_avx2(network: &Network, rows: &[i64], verdicts: &mut Verdicts) {
    judge(network, rows, 5, verdicts);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "popcnt")]
fn with_popcnt(network: &Network, rows: &[i64], verdicts: &mut Verdicts) {
    judge(network, rows, 10, verdicts);
}

/// In blocks. few : so many rows that are left take less time one by one than a block does.
#[inline(always)]
fn judge(network: &Network, rows: &[i64], few: usize, verdicts: &mut Verdicts) {
    let count = rows.len() / network.n_features;
    let left = count % BLOCK;
    let whole = if left <= few { count - left } else { count };
    let (blocks, rest) = rows.split_at(whole * network.n_features);
    judge_by::<BLOCK>(network, blocks, 0, verdicts);
    judge_by::<1>(network, rest, whole, verdicts);
}

#[inline(always)]
fn judge_by<const ROWS: usize>(network: &Network, rows: &[i64], first: usize, verdicts: &mut Verdicts) {
    let (mut one, mut other): (Bits<ROWS>, Bits<ROWS>) = ([[0; ROWS]; MAX_WORDS], [[0; ROWS]; MAX_WORDS]);
    let (mut bits, mut next) = (&mut one, &mut other);
    // The last block may be short; its other rows are zeros that nobody looks at.
    for (index, block) in rows.chunks(ROWS * network.n_features).enumerate() {
        bits[..network.input_words].fill([0; ROWS]);
        for input in &network.inputs {
            encode(input, block, network.n_features, bits);
        }
        for layer in &network.hidden {
            hidden(layer, bits, next);
            std::mem::swap(&mut bits, &mut next);
        }
        decide(&network.last, bits, first + index * ROWS, block.len() / network.n_features, verdicts);
    }
}

#[inline(always)]
fn encode<const ROWS: usize>(input: &Input, block: &[i64], width: usize, bits: &mut Bits<ROWS>) {
    let mut values = [0i64; ROWS];
    for (value, row) in values.iter_mut().zip(block.chunks_exact(width)) {
        *value = row[input.feature];
    }
    match &input.encoding {
        Encoding::Steps { thresholds } => {
            for (bit, threshold) in (input.at..).zip(thresholds) {
                let word = &mut bits[bit / WORD];
                for (word, value) in word.iter_mut().zip(&values) {
                    *word |= u64::from(value > threshold) << (bit % WORD);
                }
            }
        }
        Encoding::Bits { shift, bits: count } => {
            let (most, shift) = (((1u64 << (shift + count)) - 1) as i64, *shift);
            let (word, low) = (input.at / WORD, input.at % WORD);
            for (word, value) in bits[word].iter_mut().zip(&values) {
                *word |= ((*value).clamp(0, most) as u64 >> shift) << low;
            }
            if low + *count as usize > WORD {
                for (word, value) in bits[word + 1].iter_mut().zip(&values) {
                    *word |= (*value).clamp(0, most) as u64 >> shift >> (WORD - low);
                }
            }
        }
    }
}

/// How many inputs differ from a neuron's weights, by row.
#[inline(always)]
fn differing<const ROWS: usize>(bits: &Bits<ROWS>, weights: &[u64]) -> [i64; ROWS] {
    let mut sums = [0i64; ROWS];
    for (word, weight) in bits.iter().zip(weights) {
        for (sum, word) in sums.iter_mut().zip(word) {
            // At most 1,024 in all; a sum that is checked would not become a vector.
            *sum = sum.wrapping_add(i64::from((word ^ weight).count_ones()));
        }
    }
    sums
}

#[inline(always)]
fn hidden<const ROWS: usize>(layer: &Layer, bits: &Bits<ROWS>, next: &mut Bits<ROWS>) {
    next[..layer.limits.len().div_ceil(WORD)].fill([0; ROWS]);
    let neurons = layer.weights.chunks_exact(layer.words).zip(&layer.limits);
    for (neuron, (weights, limit)) in neurons.enumerate() {
        let sums = differing(bits, weights);
        for (word, sum) in next[neuron / WORD].iter_mut().zip(&sums) {
            *word |= u64::from(sum < limit) << (neuron % WORD);
        }
    }
}

/// The largest score's class, ties to the lowest.
#[inline(always)]
fn decide<const ROWS: usize>(
    layer: &Layer,
    bits: &Bits<ROWS>,
    first: usize,
    count: usize,
    verdicts: &mut Verdicts,
) {
    let (mut best, mut classes) = ([i64::MIN; ROWS], [0u32; ROWS]);
    let neurons = layer.weights.chunks_exact(layer.words).zip(&layer.limits);
    for ((class, (weights, limit)), out) in (0u32..).zip(neurons).zip(&mut verdicts.scores) {
        let sums = differing(bits, weights);
        let mut scores = [0; ROWS];
        for row in 0..ROWS {
            scores[row] = limit.wrapping_sub(sums[row]);
            let better = scores[row] > best[row];
            best[row] = if better { scores[row] } else { best[row] };
            classes[row] = if better { class } else { classes[row] };
        }
        out[first..first + count].copy_from_slice(&scores[..count]);
    }
    verdicts.classes[first..first + count].copy_from_slice(&classes[..count]);
}
