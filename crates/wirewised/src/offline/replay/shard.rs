// SPDX-License-Identifier: Apache-2.0
//! Which worker a packet belongs to: the one whose part of the flow table's buckets its flow falls into.
//!
//! What a flow comes to depends on nothing but the flows of its bucket. So the workers, each with its part of the buckets, do together
//! what one does alone, whatever their number, and without a lock between them.

use crate::abi;
use crate::bundle::manifest::VLAN;
use crate::packets::outer::{Address, Outer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    FiveTuple,
    Bidirectional,
    Source,
    Destination,
    Addresses,
}

#[derive(Debug, Clone)]
pub struct Shards {
    key: Key,
    /// Its VLAN tags too.
    vlans: bool,
    hash_seed: [u64; abi::HASH_SEEDS],
    bucket_mask: u32,
}

impl Shards {
    /// key : of a feature set; `None`: no part of the outer header says which flow a packet is of.
    pub fn new(key: &str, config: &abi::Config) -> Option<Self> {
        let (ends, vlans) = match key.strip_suffix(VLAN) {
            Some(ends) => (ends, true),
            None => (key, false),
        };
        let key = match ends {
            "five-tuple" => Key::FiveTuple,
            "five-tuple-bidirectional" => Key::Bidirectional,
            "source" => Key::Source,
            "destination" => Key::Destination,
            "source-destination" => Key::Addresses,
            _ => return None,
        };
        Some(Self { key, vlans, hash_seed: config.hash_seed, bucket_mask: config.bucket_mask })
    }

    /// From 0 to workers - 1. What is not IP has no flow: the first worker counts it.
    pub fn worker(&self, outer: Option<&Outer>, workers: usize) -> usize {
        let (Some(outer), 2..) = (outer, workers) else { return 0 };
        let buckets = u64::from(self.bucket_mask) + 1;
        (u64::from(self.bucket(outer)) * workers as u64 / buckets) as usize
    }

    /// As `ww_find` of bpf/classify/flow_table.h.
    pub fn bucket(&self, outer: &Outer) -> u32 {
        self.hash(outer) >> 2 & self.bucket_mask
    }

    fn hash(&self, outer: &Outer) -> u32 {
        let mut ends = [(outer.source, outer.source_port), (outer.destination, outer.destination_port)];
        if self.key == Key::Bidirectional && ends[0] > ends[1] {
            ends.swap(0, 1);
        }
        let [source, destination] = ends;
        let kept = |keep: bool, address: Address| if keep { address } else { 0 };
        let addresses =
            [kept(self.key != Key::Destination, source.0), kept(self.key != Key::Source, destination.0)];
        let transport = match self.key {
            Key::FiveTuple | Key::Bidirectional => {
                let [first, second] = [source.1, destination.1].map(|port| u64::from(port.swap_bytes()));
                first | second << 16 | u64::from(outer.protocol) << 32
            }
            Key::Source | Key::Destination | Key::Addresses => 0,
        };
        let transport = if self.vlans { transport | u64::from(outer.vlans) << 40 } else { transport };
        // Addresses as a little-endian processor loads them from the packet.
        let sum = if outer.version == 4 {
            let [first, second] = addresses.map(|address| u64::from(((address >> 96) as u32).swap_bytes()));
            self.multilinear([first | second << 32, transport])
        } else {
            let [first, second] = addresses.map(|address| address.swap_bytes());
            self.multilinear([
                first as u64,
                (first >> 64) as u64,
                second as u64,
                (second >> 64) as u64,
                transport,
            ])
        };
        let finished = (sum ^ sum >> 32).wrapping_mul(self.hash_seed[abi::HASH_WORDS]);
        (finished ^ finished >> 32) as u32
    }

    fn multilinear<const WORDS: usize>(&self, words: [u64; WORDS]) -> u64 {
        let pairs = self.hash_seed.chunks_exact(2);
        words.into_iter().zip(pairs).fold(0, |sum: u64, (word, seed)| {
            let low = seed[0].wrapping_add(u64::from(word as u32));
            sum.wrapping_add(low.wrapping_mul(seed[1].wrapping_add(word >> 32)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;
    use proptest::prelude::*;

    fn shards(key: &str) -> Shards {
        let mut config = abi::Config::zeroed();
        config.hash_seed = crate::object::seed_from(1);
        config.bucket_mask = 16383;
        Shards::new(key, &config).unwrap()
    }

    fn outer(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Outer {
        let address = |bytes: [u8; 4]| crate::packets::outer::address(bytes.into());
        Outer {
            version: 4,
            vlans: 0,
            source: address(source),
            destination: address(destination),
            protocol: 6,
            fragment: false,
            source_port: ports.0,
            destination_port: ports.1,
            tcp_flags: 0,
            icmp_type: 0,
        }
    }

    proptest! {
        #[test]
        fn packets_of_a_flow_meet(a: [u8; 4], b: [u8; 4], ports: (u16, u16), other: (u16, u16), workers in 1usize..9) {
            let there = outer(a, b, ports);
            let back = outer(b, a, (ports.1, ports.0));
            let worker = |key: &str, outer: &Outer| shards(key).worker(Some(outer), workers);
            let both = "five-tuple-bidirectional";
            prop_assert_eq!(worker(both, &there), worker(both, &back));
            prop_assert_eq!(worker("source", &there), worker("source", &outer(a, [9; 4], other)));
            prop_assert_eq!(worker("destination", &there), worker("destination", &outer([9; 4], b, other)));
            prop_assert_eq!(
                worker("source-destination", &there),
                worker("source-destination", &outer(a, b, other))
            );
            prop_assert!(worker("five-tuple", &there) < workers);
            let tagged = |vlans| Outer { vlans, ..there };
            prop_assert_eq!(worker("five-tuple", &there), worker("five-tuple", &tagged(7)));
            let keyed = |vlans| shards("five-tuple+vlan").bucket(&tagged(vlans));
            prop_assert_ne!([keyed(7), keyed(8)], [keyed(0), keyed(0)]);
        }
    }

    #[test]
    fn flows_spread_over_the_workers() {
        let mut counts = [0; 4];
        for number in 0..4000u16 {
            let [high, low] = number.to_be_bytes();
            let packet = outer([10, 0, high, low], [10, 9, 9, 9], (number, 80));
            counts[shards("five-tuple").worker(Some(&packet), 4)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
