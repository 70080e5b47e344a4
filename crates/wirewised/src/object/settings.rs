// SPDX-License-Identifier: Apache-2.0
//! What is decided of a load, and the secret of its hash.

use crate::abi;
use crate::error::{Error, Result};
use crate::kernel;

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    InKernel(abi::Hook),
    /// At XDP, called by a component of a dispatcher.
    InDispatcher,
    /// In the engine, as at XDP; the kernel only verifies it.
    InUserSpace,
}

/// What the loader decides, apart from what the compiler wrote into `struct ww_config`.
#[derive(Debug, Clone)]
pub struct Settings {
    pub runs: Runs,
    /// CPUs that have a shard of the flow tables, scratch space and counters.
    pub shards: u32,
    /// Flow-table entries a CPU; `None`: the compiled default.
    pub table_size: Option<u32>,
    /// `None`: what the features need, as compiled.
    pub clock: Option<abi::Clock>,
    pub hash_seed: [u64; abi::HASH_SEEDS],
    pub trace: bool,
    pub bench_flows: u32,
    pub bench_spoof: bool,
    pub bench_packets: u32,
    /// `abi::SLOT_VERDICT` or `abi::SLOT_VERDICT_2`.
    pub verdict: u8,
    pub shadow: abi::Shadow,
    /// `abi::STEER_*` bits: what a policy may ask the actor for; 0: none is linked.
    pub acts: u32,
    /// What passes goes on to another program.
    pub next: bool,
    /// Frames may lie in several buffers (xdp.frags).
    pub frags: bool,
    /// Rows of a CPU that wait to be read, a power of two; 0: nothing is recorded.
    pub record: u32,
}

impl Settings {
    /// For live traffic: a shard for every CPU and a secret nobody knows.
    pub fn live(runs: Runs) -> Result<Self> {
        Ok(Self { runs, ..Self::with_seed(kernel::possible_cpus()?, random_seed()?) })
    }

    /// For a run on one CPU, given as its number.
    pub fn on_cpu(cpu: u32, hash_seed: [u64; abi::HASH_SEEDS]) -> Self {
        Self::with_seed(cpu + 1, hash_seed)
    }

    fn with_seed(shards: u32, hash_seed: [u64; abi::HASH_SEEDS]) -> Self {
        Self {
            runs: Runs::InKernel(abi::Hook::Xdp),
            shards,
            table_size: None,
            clock: None,
            hash_seed,
            trace: false,
            bench_flows: 0,
            bench_spoof: false,
            bench_packets: 0,
            verdict: abi::SLOT_VERDICT,
            shadow: abi::Shadow::None,
            acts: 0,
            next: false,
            frags: false,
            record: 0,
        }
    }
}

pub fn random_seed() -> Result<[u64; abi::HASH_SEEDS]> {
    let mut bytes = [0; abi::HASH_SEEDS * 8];
    getrandom::fill(&mut bytes).map_err(|error| Error::other(format!("no random numbers: {error}")))?;
    Ok(with_odd_last(bytemuck::cast(bytes)))
}

/// The hash seed of a run that is to be repeatable: splitmix64 (Steele et al., OOPSLA 2014) from `seed`.
pub fn seed_from(seed: u64) -> [u64; abi::HASH_SEEDS] {
    let mut state = seed;
    with_odd_last(std::array::from_fn(|_| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }))
}

/// The hash multiplies by the last seed, which loses nothing if that is odd.
fn with_odd_last(mut seed: [u64; abi::HASH_SEEDS]) -> [u64; abi::HASH_SEEDS] {
    seed[abi::HASH_WORDS] |= 1;
    seed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_gives_the_published_sequence() {
        // First outputs for seed 1234567, from the reference implementation.
        assert_eq!(
            seed_from(1_234_567)[..3],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
