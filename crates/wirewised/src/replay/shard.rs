// SPDX-License-Identifier: Apache-2.0
//! Which worker a packet belongs to: all packets of a flow to one, whichever key the flows have.

use crate::outer::{Address, Outer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardBy {
    /// Both directions of a conversation together.
    Conversation,
    Source,
    Destination,
    Addresses,
}

impl ShardBy {
    /// By the flow key of a feature set; `None`: no part of the outer header says which flow a packet is of.
    pub fn of_key(key: &str) -> Option<Self> {
        Some(match key {
            "five-tuple" | "five-tuple-bidirectional" => Self::Conversation,
            "source" => Self::Source,
            "destination" => Self::Destination,
            "source-destination" => Self::Addresses,
            _ => return None,
        })
    }

    /// From 0 to workers - 1. What is not IP has no flow: the first worker counts it.
    pub fn worker(self, outer: Option<&Outer>, workers: usize) -> usize {
        let (Some(outer), 2..) = (outer, workers) else { return 0 };
        let hash = match self {
            Self::Source => address(0, outer.source),
            Self::Destination => address(0, outer.destination),
            Self::Addresses => address(address(0, outer.source), outer.destination),
            Self::Conversation => {
                let conversation = outer.conversation();
                let [low, high] = conversation.ports.map(u64::from);
                let hash = u64::from(conversation.protocol) << 32 | low << 16 | high;
                conversation.addresses.into_iter().fold(mix(0, hash), address)
            }
        };
        // The high bits are the well-mixed ones.
        ((u128::from(hash) * workers as u128) >> 64) as usize
    }
}

fn address(hash: u64, number: Address) -> u64 {
    mix(mix(hash, number as u64), (number >> 64) as u64)
}

fn mix(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outer(source: [u8; 4], destination: [u8; 4], ports: (u16, u16)) -> Outer {
        let address = |bytes: [u8; 4]| crate::outer::address(bytes.into());
        Outer {
            version: 4,
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
            let worker = |by: ShardBy, outer: &Outer| by.worker(Some(outer), workers);
            prop_assert_eq!(worker(ShardBy::Conversation, &there), worker(ShardBy::Conversation, &back));
            prop_assert_eq!(worker(ShardBy::Source, &there), worker(ShardBy::Source, &outer(a, [9; 4], other)));
            prop_assert_eq!(worker(ShardBy::Destination, &there), worker(ShardBy::Destination, &outer([9; 4], b, other)));
            prop_assert_eq!(worker(ShardBy::Addresses, &there), worker(ShardBy::Addresses, &outer(a, b, other)));
            prop_assert!(worker(ShardBy::Conversation, &there) < workers);
        }
    }

    #[test]
    fn flows_spread_over_the_workers() {
        let mut counts = [0; 4];
        for number in 0..4000u16 {
            let [high, low] = number.to_be_bytes();
            counts[ShardBy::Conversation
                .worker(Some(&outer([10, 0, high, low], [10, 9, 9, 9], (number, 80))), 4)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }
}
