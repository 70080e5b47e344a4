// SPDX-License-Identifier: Apache-2.0
//! Policies of several interfaces that send packets, or copies of them, round in a circle. Two interfaces that redirect to each other what comes
//! in are none: a packet that leaves is not judged again, unless what is sent is judged too (TC only), or it comes in at once by the other end of
//! a veth pair, here or in another network namespace where this agent judges. What a bridge, a router or another host does with it is not known:
//! there the data path bounds copies (`WW_COPY` in bpf/act) and bounces (`ww_may_bounce`).

use std::collections::BTreeSet;
use std::fs::File;

use crate::abi;
use crate::attachment::pins::Root;
use crate::attachment::{Attachment, outgoing};
use crate::error::{Error, Result};
use crate::interface::netns;
use crate::interface::offloads::Direction;
use crate::interface::rtnetlink::{self, Link};
use crate::plane::{Plane, Port};
use crate::policy::Policy;

/// An interface: the number of its network, and its index there.
type Node = (usize, u32);

/// One direction of an interface, and where its packets, or copies, are sent to.
#[derive(Debug, Clone)]
struct Judge {
    place: Node,
    direction: Direction,
    /// What it sends comes by TC: of a plane in user space too, which sends by raw sockets.
    at_tc: bool,
    targets: BTreeSet<u32>,
}

impl Judge {
    fn new(place: Node, plane: Plane, targets: BTreeSet<u32>) -> Self {
        let at_tc = plane.is_of_tc() || plane.is_in_user_space();
        Self { place, direction: plane.abilities().direction, at_tc, targets }
    }

    fn is_same_place(&self, other: &Self) -> bool {
        self.place == other.place && self.direction == other.direction
    }
}

/// The interfaces of a network namespace.
#[derive(Debug, Default)]
struct Network {
    links: Vec<Link>,
    /// Other networks, by the numbers that this one gives them.
    others: Vec<(i32, usize)>,
}

/// The network namespaces where something is judged; the first is that of this thread.
#[derive(Debug, Default)]
struct Networks(Vec<Network>);

impl Networks {
    fn look(others: &[netns::Other]) -> Self {
        let Ok(own) = File::open("/proc/thread-self/ns/net") else { return Self::default() };
        let files: Vec<_> = std::iter::once(&own).chain(others.iter().map(netns::Other::file)).collect();
        let look = || Network {
            links: rtnetlink::links().unwrap_or_default(),
            others: (0..)
                .zip(&files)
                .filter_map(|(number, file)| Some((rtnetlink::namespace_id(file).ok()??, number)))
                .collect(),
        };
        let theirs = others.iter().map(|other| other.within(look).unwrap_or_default());
        Self(std::iter::once(look()).chain(theirs).collect())
    }

    fn link(&self, (network, index): Node) -> Option<&Link> {
        self.0.get(network)?.links.iter().find(|link| link.index == index)
    }

    /// What an interface is on: the other end of a veth pair, or the interface below.
    fn lower(&self, (network, index): Node) -> Option<Node> {
        let link = self.link((network, index))?;
        match link.lower_namespace {
            None => Some((network, link.lower?)),
            Some(id) => {
                let (_, other) = self.0[network].others.iter().find(|(known, _)| *known == id)?;
                Some((*other, link.lower?))
            }
        }
    }

    /// Where a packet that leaves by an interface is sent, and where it comes in at once.
    fn way(&self, target: Node) -> (BTreeSet<Node>, BTreeSet<Node>) {
        let (mut sent, mut received) = (BTreeSet::new(), BTreeSet::new());
        let mut at = Some(target);
        while let Some(place) = at.filter(|place| sent.insert(*place)) {
            at = self.lower(place);
            if self.link(place).is_some_and(|link| link.kind == "veth") {
                received.extend(at.take());
            }
        }
        let mut ends: Vec<_> = received.iter().copied().collect();
        while let Some((network, index)) = ends.pop() {
            let links = self.0.get(network).map_or(&[][..], |it| &it.links);
            let tags = links.iter().filter(|link| link.kind == "vlan" && link.lower == Some(index));
            let master = self.link((network, index)).and_then(|link| link.master);
            let above = tags.map(|link| link.index).chain(master).map(|above| (network, above));
            ends.extend(above.filter(|place| received.insert(*place)));
        }
        (sent, received)
    }
}

/// Where a policy sends packets of an interface. The ports of a bridge and the pools of servers are in other maps.
fn targets_of(policy: &abi::Element, own: u32) -> BTreeSet<u32> {
    let of = |steer: &abi::Steer| {
        let asks = |kind| steer.kinds & kind != 0;
        let redirect = asks(abi::STEER_REDIRECT).then_some(steer.ifindex);
        let mirror = asks(abi::STEER_MIRROR).then_some(steer.mirror_ifindex);
        let bounce = asks(abi::STEER_BOUNCE).then_some(own);
        [redirect, mirror, bounce].into_iter().flatten()
    };
    policy.steered().flat_map(|(_, steer)| of(steer)).collect()
}

/// Where it forwards them: to ports of a bridge, and to servers of a pool.
fn forwards_of(policy: &Policy, own: u32) -> BTreeSet<u32> {
    let bridges = policy.steering().filter_map(|(_, it)| it.forward.as_ref()?.bridge.as_ref());
    let ports = bridges.flat_map(|it| it.ports.iter().map(|port| port.ifindex)).filter(|port| *port != own);
    let pools = policy.pools.iter().map(|pool| pool.interface.as_ref().map_or(own, |target| target.ifindex));
    ports.chain(pools).collect()
}

/// Refuses a policy whose packets would come back to where it judges them. own : the interface's index.
pub fn refuse(policy: &Policy, interface: &str, own: u32, planes: &[Plane], root: &Root) -> Result<()> {
    let mut targets = targets_of(&policy.to_abi(0, abi::Mode::Observe), own);
    targets.append(&mut forwards_of(policy, own));
    if targets.is_empty() {
        return Ok(());
    }
    let ours = planes.iter().map(|plane| Judge::new((0, own), *plane, targets.clone()));
    let mut judges: Vec<_> = ours.collect();
    let starts = judges.len();
    let (mut others, mut inodes) = (Vec::new(), vec![netns::inode()]);
    for other in Attachment::all(root)?.attachments {
        let Some((_, info)) = &other.link else { continue };
        let Some(Port::Interface(index)) = info.port else { continue };
        let (network, plane) = match other.namespace() {
            None => (0, info.plane().ok().flatten()),
            Some(namespace) => {
                let Some((inode, plane)) = namespace.within(|| (netns::inode(), info.plane())) else {
                    continue;
                };
                let network = inodes.iter().position(|known| *known == inode).unwrap_or_else(|| {
                    inodes.push(inode);
                    others.push(namespace);
                    others.len()
                });
                (network, plane.ok().flatten())
            }
        };
        let Some(plane) = plane.filter(|_| (network, index) != (0, own)) else { continue };
        let Ok(policy) = other.element() else { continue };
        let targets = targets_of(&policy, index);
        let both = std::iter::once(plane).chain(other.outgoing.map(|_| outgoing::PLANE));
        judges.extend(both.map(|plane| Judge::new((network, index), plane, targets.clone())));
    }
    let networks = Networks::look(&others);
    for start in 0..starts {
        if let Some(way) = circle(&judges, start, |target| networks.way(target)) {
            let names: Vec<_> = way
                .into_iter()
                .map(|place| networks.link(place).map(|link| link.name.clone()).unwrap_or_default())
                .collect();
            return Err(Error::input(format!(
                "policy: packets of {interface} would go round in a loop ({}): wirewise judges them there too, and sends them \
                 back; give one of these interfaces another policy",
                names.join(" -> ")
            )));
        }
    }
    Ok(())
}

/// The interfaces by which packets come back to where they are judged first, which is at both ends of this list.
fn circle(
    judges: &[Judge],
    start: usize,
    way: impl Fn(Node) -> (BTreeSet<Node>, BTreeSet<Node>),
) -> Option<Vec<Node>> {
    let mut seen = vec![false; judges.len()];
    let mut ways = vec![(start, vec![judges[start].place])];
    while let Some((at, so_far)) = ways.pop() {
        for target in &judges[at].targets {
            let target = (judges[at].place.0, *target);
            let (sent, received) = way(target);
            for (next, judge) in judges.iter().enumerate() {
                let meets = match judge.direction {
                    // What XDP sends does not come by TC, unless it is on its way to the interface below.
                    Direction::Sent => {
                        sent.contains(&judge.place) && (judges[at].at_tc || judge.place != target)
                    }
                    Direction::Received => received.contains(&judge.place),
                };
                if !meets || seen[next] {
                    continue;
                }
                let mut further = so_far.clone();
                for place in [target, judge.place] {
                    if further.last() != Some(&place) {
                        further.push(place);
                    }
                }
                if judge.is_same_place(&judges[start]) {
                    return Some(further);
                }
                seen[next] = true;
                ways.push((next, further));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Received, Sent};

    fn judge(index: u32, direction: Direction, at_tc: bool, targets: &[u32]) -> Judge {
        in_network(0, index, direction, at_tc, targets)
    }

    fn in_network(network: usize, index: u32, direction: Direction, at_tc: bool, targets: &[u32]) -> Judge {
        Judge { place: (network, index), direction, at_tc, targets: targets.iter().copied().collect() }
    }

    fn link(index: u32, kind: &str, lower: u32, lower_namespace: Option<i32>) -> Link {
        let lower = Some(lower).filter(|lower| *lower != 0);
        Link { index, kind: kind.to_string(), lower, lower_namespace, ..Link::default() }
    }

    fn places(indexes: &[u32]) -> Option<Vec<Node>> {
        Some(indexes.iter().map(|index| (0, *index)).collect())
    }

    fn round(judges: &[Judge], links: &[Link]) -> Option<Vec<Node>> {
        let networks = Networks(vec![Network { links: links.to_vec(), ..Network::default() }]);
        circle(judges, 0, |target| networks.way(target))
    }

    #[test]
    fn a_packet_that_left_is_judged_again_only_where_it_is_seen() {
        // Each redirects to the other what comes in: a wire.
        let wire = [judge(1, Received, true, &[2]), judge(2, Received, true, &[1])];
        assert_eq!(round(&wire, &[]), None);
        let sent = [judge(1, Sent, true, &[2]), judge(2, Sent, true, &[1])];
        assert_eq!(round(&sent, &[]), places(&[1, 2, 1]));
        // What XDP sends does not come by TC.
        assert_eq!(round(&[judge(1, Received, false, &[2]), judge(2, Sent, true, &[1])], &[]), None);
        let pairs = [(1, 2), (2, 1), (3, 4), (4, 3)].map(|(end, other)| link(end, "veth", other, None));
        let around = [judge(2, Received, false, &[3]), judge(4, Received, false, &[1])];
        assert_eq!(round(&around, &pairs), places(&[2, 3, 4, 1, 2]));
        assert_eq!(round(&around[..1], &pairs), None);
        assert_eq!(round(&[judge(2, Received, false, &[1])], &pairs), places(&[2, 1, 2]));
    }

    #[test]
    fn bounces_at_both_ends_of_a_pair_are_a_circle() {
        let pair = [link(1, "veth", 2, None), link(2, "veth", 1, None)];
        let both = [judge(1, Received, false, &[1]), judge(2, Received, true, &[2])];
        assert_eq!(round(&both, &pair), places(&[1, 2, 1]));
        assert_eq!(round(&both[..1], &pair), None);
    }

    #[test]
    fn tags_and_ports_lead_to_what_is_below_and_above() {
        let mut links = vec![link(1, "veth", 2, None), link(2, "veth", 1, None)];
        links.extend([link(5, "vlan", 1, None), link(6, "vlan", 2, None), link(7, "macvlan", 1, None)]);
        links.push(link(8, "bridge", 0, None));
        links[1].master = Some(8);
        for (receives, sends) in [(2, 5), (6, 5), (2, 7), (8, 1)] {
            assert_eq!(
                round(&[judge(receives, Received, false, &[sends])], &links),
                places(&[receives, sends, receives])
            );
        }
        // From XDP, too: what a tagged interface sends is sent by the one below.
        let below = [judge(2, Received, false, &[5]), judge(1, Sent, true, &[1])];
        assert!(round(&below, &links).is_some());
    }

    #[test]
    fn a_circle_leads_through_other_networks() {
        // Two pairs between two networks that know each other by 7 and 9.
        let networks = Networks(vec![
            Network {
                links: vec![link(1, "veth", 1, Some(7)), link(2, "veth", 2, Some(7))],
                others: vec![(7, 1)],
            },
            Network {
                links: vec![link(1, "veth", 1, Some(9)), link(2, "veth", 2, Some(9))],
                others: vec![(9, 0)],
            },
        ]);
        let mut judges = vec![judge(1, Received, false, &[2]), in_network(1, 2, Received, true, &[1])];
        let found = circle(&judges, 0, |target| networks.way(target));
        assert_eq!(found, Some(vec![(0, 1), (0, 2), (1, 2), (1, 1), (0, 1)]));
        judges.truncate(1);
        assert_eq!(circle(&judges, 0, |target| networks.way(target)), None);
        // One that gives the other no number is not known to be the other end.
        let strangers = Networks(vec![Network {
            links: vec![link(1, "veth", 1, Some(8)), link(2, "veth", 2, Some(8))],
            ..Network::default()
        }]);
        assert_eq!(circle(&judges, 0, |target| strangers.way(target)), None);
    }

    #[test]
    fn tc_sees_what_planes_in_user_space_send() {
        let at_tc = |plane: &&Plane| Judge::new((0, 1), **plane, BTreeSet::new()).at_tc;
        let others: Vec<_> = Plane::all().iter().filter(|plane| !at_tc(plane)).collect();
        assert_eq!(others, [&Plane::XDP_NATIVE, &Plane::XDP_GENERIC]);
    }
}
