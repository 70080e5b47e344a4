// SPDX-License-Identifier: Apache-2.0
//! Which backend each place of a pool's table has: Maglev hashing (Eisenbud et al., NSDI 2016, section 3.4), with weights. The same
//! backends give the same table everywhere; python/wirewise/policy/act/backend.py is the reference.

use std::net::IpAddr;

use crate::abi;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const END: u64 = 0x94d0_49bb_1331_11eb;
/// Seeds of the two numbers that a backend's order of places comes from.
const OFFSET: u64 = 1;
const SKIP: u64 = 2;

/// A backend that gets flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    pub address: IpAddr,
    /// 1 and more.
    pub weight: u16,
    /// What stands for it in the table.
    pub slot: u16,
}

/// The hash of balance.h: 32 bits.
pub fn hash(words: &[u64], seed: u64) -> u64 {
    let mixed = words.iter().fold(seed, |hash, word| {
        let hash = (hash ^ word).wrapping_mul(STEP);
        hash ^ hash >> 32
    });
    mixed.wrapping_mul(END) >> 32
}

/// A pool's table; 0 everywhere if it has no members.
///
/// Each has an order of its own in which it would like to have the places. By turns each takes the first in its order that is free; one of
/// a smaller weight misses turns.
pub fn table(members: &[Member]) -> Vec<u16> {
    let mut table = vec![0; abi::PLACES];
    let mut members = members.to_vec();
    members.sort_by_key(|member| member.address);
    let most = members.iter().map(|member| u32::from(member.weight)).max().unwrap_or(0);
    if most == 0 {
        return table;
    }
    let mut turns: Vec<_> = members.iter().map(|member| (order(member.address), 0)).collect();
    let mut free = abi::PLACES;
    loop {
        for (((next, skip), credit), member) in turns.iter_mut().zip(&members) {
            *credit += u32::from(member.weight);
            if *credit < most {
                continue;
            }
            *credit -= most;
            while table[*next] != 0 {
                *next = (*next + *skip) % abi::PLACES;
            }
            table[*next] = member.slot;
            free -= 1;
            if free == 0 {
                return table;
            }
        }
    }
}

/// The first place that a backend would like to have, and how far the next ones are.
fn order(address: IpAddr) -> (usize, usize) {
    let mut bytes = [0; 16];
    let version = match address {
        IpAddr::V4(v4) => {
            bytes[..4].copy_from_slice(&v4.octets());
            4
        }
        IpAddr::V6(v6) => {
            bytes = v6.octets();
            6
        }
    };
    let [first, second] = bytemuck::cast::<[u8; 16], [u64; 2]>(bytes).map(u64::from_le);
    let words = [first, second, version];
    let below = |seed, bound: usize| ((hash(&words, seed) * bound as u64) >> 32) as usize;
    (below(OFFSET, abi::PLACES), below(SKIP, abi::PLACES - 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(hosts: impl IntoIterator<Item = (u32, u16)>) -> Vec<Member> {
        let member = |(host, weight): (u32, u16)| Member {
            address: IpAddr::from((0x0a00_0000 + host).to_be_bytes()),
            weight,
            slot: host as u16,
        };
        hosts.into_iter().map(member).collect()
    }

    fn shares(table: &[u16], slots: usize) -> Vec<f64> {
        let mut counts = vec![0; slots + 1];
        table.iter().for_each(|slot| counts[usize::from(*slot)] += 1);
        counts.iter().map(|count| f64::from(*count) / table.len() as f64).collect()
    }

    #[test]
    fn nobody_has_an_empty_pools_places() {
        assert!(table(&[]).iter().all(|slot| *slot == 0));
    }

    /// The same numbers stand in tests/unit/test_balancing.py.
    #[test]
    fn the_table_is_that_of_the_reference() {
        let member = |(slot, (address, weight)): (u16, (&str, u16))| Member {
            address: address.parse().unwrap(),
            weight,
            slot,
        };
        let given = [("10.0.0.11", 2), ("10.0.0.12", 1), ("2001:db8::11", 1)];
        let places = table(&(1..).zip(given).map(member).collect::<Vec<_>>());
        assert_eq!(places[..3], [2, 2, 1]);
        assert_eq!(hash(&places.iter().map(|slot| u64::from(*slot)).collect::<Vec<_>>(), 0), 2_501_649_962);
        assert_eq!(hash(&[1, 2, 3], 4), 673_065_866);
    }

    #[test]
    fn a_hundred_backends_are_even_and_few_flows_move_when_one_leaves() {
        let all = members((1..=100).map(|host| (host, 1)));
        let before = table(&all);
        for share in &shares(&before, 100)[1..] {
            assert!((0.0095..0.0105).contains(share), "{share}");
        }
        for gone in [1, 37, 100] {
            let left: Vec<_> = all.iter().filter(|member| member.slot != gone).copied().collect();
            let after = table(&left);
            let others = before.iter().zip(&after).filter(|(before, _)| **before != gone);
            let (moved, kept): (Vec<_>, Vec<_>) = others.partition(|(before, after)| before != after);
            let moved = moved.len() as f64 / (moved.len() + kept.len()) as f64;
            assert!(moved < 0.02, "{gone}: {moved}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn places_are_shared_by_weight(hosts in prop::collection::btree_map(1u32..2000, 1u16..=100, 1..60)) {
            let all = members(hosts.clone());
            let total: f64 = hosts.values().map(|weight| f64::from(*weight)).sum();
            let shares = shares(&table(&all), 2000);
            prop_assert_eq!(shares[0], 0.0);
            for (host, weight) in hosts {
                let due = f64::from(weight) / total;
                let share = shares[host as usize];
                // A turn more or less at the end, and 2 % of its due.
                prop_assert!((share - due).abs() < 0.02 * due + 2.0 / abi::PLACES as f64, "{host}: {share} for {due}");
            }
        }

        #[test]
        fn the_order_in_which_they_are_given_means_nothing(hosts in prop::collection::btree_map(1u32..2000, 1u16..=4, 1..20)) {
            let mut all = members(hosts);
            let table_of = table(&all);
            all.reverse();
            prop_assert!(table(&all) == table_of);
        }
    }
}
