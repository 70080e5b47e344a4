// SPDX-License-Identifier: Apache-2.0
//! What tells the data path that a packet is of nobody who is on the deny list, without a look at the list: the map `ww_deny_filter`. A bit too
//! many costs time, a bit too few lets a packet through. So bits are set before their prefixes are added, and cleared after those are
//! gone; an agent that dies in between leaves bits too many.

use std::net::IpAddr;

use libbpf_rs::MapCore;

use crate::abi;
use crate::abi::maps::DENY_FILTER;
use crate::error::Result;
use crate::kernel::change;
use crate::object::mapped::MappedArray;
use crate::object::maps::other_layout;
use crate::policy::Prefix;

const WORDS: usize = (abi::DENY_WORDS4 + abi::DENY_WORDS6) as usize;
/// A prefix of IPv6 that is shorter would set most bits one by one: it sets all.
const SHORTEST6: u32 = 18;

/// The map's words.
pub struct Filter(Vec<u64>);

impl Filter {
    pub fn of<'a>(prefixes: impl IntoIterator<Item = &'a Prefix>) -> Self {
        let mut filter = Self(vec![0; WORDS]);
        prefixes.into_iter().for_each(|prefix| filter.add(prefix));
        filter
    }

    fn add(&mut self, prefix: &Prefix) {
        let (v4, v6) = self.0.split_at_mut(abi::DENY_WORDS4 as usize);
        let length = u32::from(prefix.length);
        match prefix.address {
            IpAddr::V4(address) => {
                let first = u32::from(address) >> (32 - abi::DENY_BITS4);
                let networks = 1 << abi::DENY_BITS4.saturating_sub(length);
                if networks < u64::BITS {
                    (first..first + networks).for_each(|network| set(v4, network));
                } else {
                    // Whole words, because a power of two of networks begins at a multiple of itself.
                    let words = first / u64::BITS..(first + networks) / u64::BITS;
                    v4[words.start as usize..words.end as usize].fill(u64::MAX);
                }
            }
            IpAddr::V6(_) if length < SHORTEST6 => v6.fill(u64::MAX),
            IpAddr::V6(address) => {
                let first = (u128::from(address) >> (128 - abi::DENY_NETWORK6)) as u64;
                let networks = 1 << abi::DENY_NETWORK6.saturating_sub(length);
                (first..first + networks).for_each(|network| set(v6, hash6(network)));
            }
        }
    }

    /// The words that have bits, each with its index.
    pub fn words(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(self.0.iter().copied()).filter(|(_, word)| *word != 0)
    }

    /// Sets these bits too.
    pub fn cover(&self, map: &impl MapCore) -> Result<()> {
        let map = mapped(map)?;
        self.words().for_each(|(index, word)| store(&map, index, |before| before | word));
        change::made(&format!("write {DENY_FILTER}"));
        Ok(())
    }

    /// Sets these bits and clears all others.
    pub fn replace(&self, map: &impl MapCore) -> Result<()> {
        let map = mapped(map)?;
        (0..).zip(&self.0).for_each(|(index, word)| store(&map, index, |_| *word));
        change::made(&format!("write {DENY_FILTER}"));
        Ok(())
    }

    pub fn read(map: &impl MapCore) -> Result<Self> {
        let map = mapped(map)?;
        Ok(Self((0..WORDS as u32).map(|index| map.load_wide(index, 0).unwrap_or_default()).collect()))
    }
}

/// `ww_hash_network` (bpf/frame/hash.h). network : the first bits of an address.
fn hash6(network: u64) -> u32 {
    ((network ^ network >> 16) as u32).wrapping_mul(abi::NETWORK_FACTOR) >> (u32::BITS - abi::DENY_BITS6)
}

fn set(words: &mut [u64], bit: u32) {
    words[(bit / u64::BITS) as usize] |= 1 << (bit % u64::BITS);
}

fn mapped(map: &impl MapCore) -> Result<MappedArray> {
    let map = MappedArray::to_write(map)?;
    if (map.entries(), map.value_size()) == (WORDS as u32, size_of::<u64>()) {
        Ok(map)
    } else {
        Err(other_layout(DENY_FILTER))
    }
}

/// Does not write what would not change: CPUs have those words in their caches.
fn store(map: &MappedArray, index: u32, change: impl Fn(u64) -> u64) {
    let before = map.load_wide(index, 0).unwrap_or_default();
    let after = change(before);
    if after != before {
        map.store(index, 0, after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(prefix: &str) -> Vec<u32> {
        let filter = Filter::of([&prefix.parse().unwrap()]);
        let of_word = |(index, word): (u32, u64)| {
            (0..u64::BITS).filter(move |bit| word >> bit & 1 != 0).map(move |bit| index * u64::BITS + bit)
        };
        filter.words().flat_map(of_word).collect()
    }

    fn count(prefix: &str) -> usize {
        bits(prefix).len()
    }

    #[test]
    fn a_prefix_of_ipv4_sets_the_bits_of_its_networks() {
        assert_eq!(bits("0.0.1.7/32"), [1]);
        assert_eq!(bits("0.0.1.0/24"), [1]);
        assert_eq!(bits("0.0.2.0/23"), [2, 3]);
        assert_eq!(bits("0.0.64.0/18"), (64..128).collect::<Vec<_>>());
        assert_eq!(bits("255.255.255.255/32"), [(1 << 24) - 1]);
        assert_eq!(bits("255.255.224.0/19"), ((1 << 24) - 32..1 << 24).collect::<Vec<_>>());
        for length in 0..=24 {
            assert_eq!(count(&format!("0.0.0.0/{length}")), 1 << (24 - length));
        }
        assert_eq!(bits("128.0.0.0/1"), (1 << 23..1 << 24).collect::<Vec<_>>());
    }

    #[test]
    fn a_prefix_of_ipv6_sets_the_bits_of_all_its_addresses() {
        let last = abi::DENY_WORDS4 * u64::BITS + (1 << abi::DENY_BITS6);
        assert_eq!(count("2001:db8::7/128"), 1);
        assert_eq!(bits("2001:db8::/40"), bits("2001:db8:0:1::/64"));
        assert!((2..=256).contains(&count("2001:db8::/32")));
        let all = bits("2001:db8::/32");
        for third in [0u16, 0x100, 0x7f00, 0xff00, 0xffff] {
            assert!(all.contains(&bits(&format!("2001:db8:{third:x}::1/128"))[0]));
        }
        let wide = bits("2a00::/18");
        assert!(
            ["2a00::1", "2a00:3fff:ffff::1"].iter().all(|it| wide.contains(&bits(&format!("{it}/128"))[0]))
        );
        assert_eq!(bits("::/0"), (abi::DENY_WORDS4 * u64::BITS..last).collect::<Vec<_>>());
    }
}
