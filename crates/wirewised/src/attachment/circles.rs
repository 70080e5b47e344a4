// SPDX-License-Identifier: Apache-2.0
//! Policies of several interfaces that send packets round in a circle. Two interfaces that redirect to each other what comes in are none: a
//! packet that leaves is not judged again, unless what is sent is judged too (TC only), or it comes in at once by the other end of a veth
//! pair that is here as well.

use std::collections::BTreeSet;

use crate::abi;
use crate::attachment::pins::Root;
use crate::attachment::{Attachment, outgoing};
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::interface::offloads::Direction;
use crate::interface::rtnetlink::{self, Link};
use crate::plane::{Plane, Port};
use crate::policy::Policy;
use crate::running::Running;

/// One direction of an interface, and where its packets are redirected to.
#[derive(Debug, Clone)]
struct Judge {
    ifindex: u32,
    direction: Direction,
    /// What it sends comes by TC: of a plane in user space too, which sends by raw sockets.
    at_tc: bool,
    targets: BTreeSet<u32>,
}

impl Judge {
    fn new(ifindex: u32, plane: Plane, targets: BTreeSet<u32>) -> Self {
        let at_tc = plane.is_of_tc() || plane.is_in_user_space();
        Self { ifindex, direction: plane.abilities().direction, at_tc, targets }
    }

    fn is_same_place(&self, other: &Self) -> bool {
        self.ifindex == other.ifindex && self.direction == other.direction
    }
}

/// Refuses a policy whose redirected packets would come back to where it judges them. own : the interface's index.
pub fn refuse(policy: &Policy, interface: &str, own: u32, planes: &[Plane], root: &Root) -> Result<()> {
    let redirects = policy.steering().filter_map(|(_, steering)| steering.redirect.as_ref());
    let targets: BTreeSet<u32> = redirects.map(|target| target.ifindex).collect();
    if targets.is_empty() {
        return Ok(());
    }
    let ours = planes.iter().map(|plane| Judge::new(own, *plane, targets.clone()));
    let mut judges: Vec<_> = ours.collect();
    let starts = judges.len();
    for other in Attachment::all(root)?.attachments {
        let Some(Port::Interface(index)) = other.port().filter(|port| *port != Port::Interface(own)) else {
            continue;
        };
        let Some(plane) = other.link.as_ref().and_then(|(_, link)| link.plane().ok()?) else { continue };
        let Ok(policy) = other.policy() else { continue };
        let redirects = policy.steered().filter(|(_, steer)| steer.kinds & abi::STEER_REDIRECT != 0);
        let targets: BTreeSet<u32> = redirects.map(|(_, steer)| steer.ifindex).collect();
        let both = std::iter::once(plane).chain(other.outgoing.map(|_| outgoing::PLANE));
        judges.extend(both.map(|plane| Judge::new(index, plane, targets.clone())));
    }
    let links = rtnetlink::links().unwrap_or_default();
    for start in 0..starts {
        if let Some(way) = circle(&judges, start, |index| other_end(&links, index)) {
            let names: Vec<_> =
                way.into_iter().map(|index| netdev::name(index).unwrap_or_default()).collect();
            return Err(Error::input(format!(
                "policy: redirect: packets of {interface} would go round in a loop ({}): wirewise judges them there too, and sends them \
                 back; give one of these interfaces another policy",
                names.join(" -> ")
            )));
        }
    }
    Ok(())
}

/// The other end of a veth pair, if that is in this network namespace.
fn other_end(links: &[Link], index: u32) -> Option<u32> {
    let link = links.iter().find(|link| link.index == index && link.kind == "veth")?;
    link.lower.filter(|_| link.lower_namespace.is_none())
}

/// The interfaces by which packets come back to where they are judged first, which is at both ends of this list.
fn circle(judges: &[Judge], start: usize, other_end: impl Fn(u32) -> Option<u32>) -> Option<Vec<u32>> {
    let mut seen = vec![false; judges.len()];
    let mut ways = vec![(start, vec![judges[start].ifindex])];
    while let Some((at, way)) = ways.pop() {
        for target in &judges[at].targets {
            for (next, judge) in judges.iter().enumerate() {
                let meets = match judge.direction {
                    Direction::Sent => judges[at].at_tc && judge.ifindex == *target,
                    Direction::Received => other_end(*target) == Some(judge.ifindex),
                };
                if !meets || seen[next] {
                    continue;
                }
                let mut further = way.clone();
                further.push(*target);
                if judge.ifindex != *target {
                    further.push(judge.ifindex);
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

    fn judge(ifindex: u32, direction: Direction, at_tc: bool, targets: &[u32]) -> Judge {
        Judge { ifindex, direction, at_tc, targets: targets.iter().copied().collect() }
    }

    #[test]
    fn a_packet_that_left_is_judged_again_only_where_it_is_seen() {
        use Direction::{Received, Sent};
        let alone = |_: u32| None;
        // Each redirects to the other what comes in: a wire.
        let wire = [judge(1, Received, true, &[2]), judge(2, Received, true, &[1])];
        assert_eq!(circle(&wire, 0, alone), None);
        let sent = [judge(1, Sent, true, &[2]), judge(2, Sent, true, &[1])];
        assert_eq!(circle(&sent, 0, alone), Some(vec![1, 2, 1]));
        // What XDP sends does not come by TC.
        assert_eq!(circle(&[judge(1, Received, false, &[2]), judge(2, Sent, true, &[1])], 0, alone), None);
        // Two veth pairs, 1-2 and 3-4.
        let pairs = |index: u32| Some([0, 2, 1, 4, 3][index as usize]);
        let around = [judge(2, Received, false, &[3]), judge(4, Received, false, &[1])];
        assert_eq!(circle(&around, 0, pairs), Some(vec![2, 3, 4, 1, 2]));
        assert_eq!(circle(&around[..1], 0, pairs), None);
        assert_eq!(circle(&[judge(2, Received, false, &[1])], 0, pairs), Some(vec![2, 1, 2]));
    }

    #[test]
    fn tc_sees_what_planes_in_user_space_send() {
        let at_tc = |plane: &&Plane| Judge::new(1, **plane, BTreeSet::new()).at_tc;
        let others: Vec<_> = Plane::all().iter().filter(|plane| !at_tc(plane)).collect();
        assert_eq!(others, [&Plane::XDP_NATIVE, &Plane::XDP_GENERIC]);
        let [ours, theirs] = [Direction::Received, Direction::Sent];
        assert_eq!(
            circle(&[judge(1, ours, true, &[2]), judge(2, theirs, true, &[3])], 0, |_| Some(1)),
            Some(vec![1, 2, 1])
        );
    }
}
