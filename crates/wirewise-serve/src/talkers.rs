// SPDX-License-Identifier: Apache-2.0
//! Who sends and who receives the most, from the flow tables, in bounded memory.

use std::collections::HashMap;
use std::net::IpAddr;

use serde::Serialize;
use wirewised::attachment::Attachment;
use wirewised::error::Result;
use wirewised::reading::flows::Wanted;

/// Addresses counted at a time, of sources and of targets.
const COUNTED: usize = 1 << 16;

/// The flows of one attachment by their addresses.
#[derive(Debug, Serialize)]
pub struct Talkers {
    interface: String,
    sources: Top,
    targets: Top,
}

#[derive(Debug, Serialize)]
struct Top {
    /// Those with the most packets first.
    first: Vec<Talker>,
    /// False: there were too many addresses, so small ones were dropped on the way and counts may be too low.
    exact: bool,
}

/// An address, and its flows that are in the tables.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Talker {
    address: IpAddr,
    packets: u64,
    flows: u64,
}

impl Talkers {
    /// most : of each list. Flows whose key has no such address are left out.
    pub fn read(attachment: &Attachment, most: usize) -> Result<Self> {
        let (mut sources, mut targets) = (Counts::default(), Counts::default());
        attachment.flows(&Wanted::default())?.each(|found| {
            let mut ends = found.flow.key.ends();
            if found.flow.swapped {
                ends.reverse();
            }
            let [source, target] = ends.map(|(address, _)| address);
            let packets = found.flow.packets.into();
            source.inspect(|address| sources.add(*address, packets));
            target.inspect(|address| targets.add(*address, packets));
            Ok(())
        })?;
        let interface = attachment.interface.clone();
        Ok(Self { interface, sources: sources.top(most), targets: targets.top(most) })
    }
}

/// Packets and flows of each address.
#[derive(Debug, Default)]
struct Counts {
    counts: HashMap<IpAddr, (u64, u64)>,
    pruned: bool,
}

impl Counts {
    fn add(&mut self, address: IpAddr, packets: u64) {
        let (all, flows) = self.counts.entry(address).or_default();
        *all += packets;
        *flows += 1;
        if self.counts.len() > COUNTED {
            self.prune();
        }
    }

    /// Drops the smaller half, so that an address costs little however many there are.
    fn prune(&mut self) {
        let mut all: Vec<_> = self.counts.drain().collect();
        all.select_nth_unstable_by(COUNTED / 2, |one, other| other.1.cmp(&one.1));
        self.counts.extend(all.into_iter().take(COUNTED / 2));
        self.pruned = true;
    }

    fn top(self, most: usize) -> Top {
        let talker = |(address, (packets, flows))| Talker { address, packets, flows };
        let mut first: Vec<Talker> = self.counts.into_iter().map(talker).collect();
        first.sort_unstable_by(|one, other| {
            (other.packets, other.flows, one.address).cmp(&(one.packets, one.flows, other.address))
        });
        first.truncate(most);
        Top { first, exact: !self.pruned }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    #[test]
    fn addresses_are_ranked_by_packets_then_flows() {
        let mut counts = Counts::default();
        for (number, packets) in [(1, 5), (2, 3), (2, 3), (3, 2), (3, 3), (4, 1)] {
            counts.add(address(number), packets);
        }
        let top = counts.top(3);
        let found: Vec<_> = top.first.iter().map(|it| (it.address, it.packets, it.flows)).collect();
        assert_eq!(found, [(address(2), 6, 2), (address(3), 5, 2), (address(1), 5, 1)]);
        assert!(top.exact);
    }

    #[test]
    fn a_large_sender_is_found_among_a_million_in_bounded_memory() {
        let mut counts = Counts::default();
        for number in 0..1_000_000 {
            counts.add(address(number), 1);
            if number % 1000 == 0 {
                counts.add(address(u32::MAX), 2);
            }
            assert!(counts.counts.len() <= COUNTED);
        }
        let top = counts.top(1);
        assert!(!top.exact);
        assert_eq!(top.first, [Talker { address: address(u32::MAX), packets: 2000, flows: 1000 }]);
    }
}
