// SPDX-License-Identifier: Apache-2.0
//! Whether a policy's packets can go where it sends them: what the planes can do, and what the interfaces they go to can take.

use crate::abi;
use crate::attachment::Attachment;
use crate::attachment::challenge;
use crate::attachment::circles;
use crate::attachment::doctor::finding::Finding;
use crate::attachment::forwarding;
use crate::attachment::pins::Root;
use crate::attachment::way_out::{check_sends, check_target};
use crate::attachment::{outgoing, pools, tunnels};
use crate::error::{Error, Result};
use crate::interface::netdev::{self, Device};
use crate::kernel;
use crate::plane::{self, Plane};
use crate::policy::Policy;
use crate::running::Running;

pub use crate::attachment::way_out::CHECK;

/// Refuses what the planes cannot do, and looks up the interfaces that packets go to, in this network namespace. Returns what is to be said of
/// these.
///
/// interface : whose packets are judged.
pub fn admit(policy: &mut Policy, interface: &str, planes: &[Plane], root: &Root) -> Result<Vec<Finding>> {
    for (class, steering) in policy.steering() {
        for plane in planes {
            let missing = steering.kinds() & !plane.abilities().steers;
            if let Some((kind, name)) = abi::STEERING.into_iter().find(|(kind, _)| missing & kind != 0) {
                return Err(cannot(class, name, kind, *plane));
            }
        }
    }
    let own = netdev::index(interface)?;
    let mut findings = Vec::new();
    // A pool without an interface sends by the one that is judged; and what is too long for a tunnel is answered.
    let bounces =
        policy.steering_kinds() & (abi::STEER_BOUNCE | abi::STEER_CHALLENGE | abi::STEER_ENCAPSULATE) != 0
            || policy.pools.iter().any(|pool| pool.interface.is_none());
    if bounces && planes.iter().any(|plane| plane.abilities().native && !plane.is_in_user_space()) {
        findings.extend(check_bounces(interface, own));
    }
    if policy.steering_kinds() & abi::STEER_CHALLENGE != 0 {
        findings.push(challenge::check());
    }
    check_cpus(policy)?;
    check_snap(policy, planes)?;
    for (key, target) in policy.targets_mut() {
        target.ifindex = netdev::index(&target.interface)
            .map_err(|error| Error::input(format!("policy: {key}: {error}")))?;
        if target.ifindex == own {
            return Err(Error::input(format!(
                "policy: {key}: {interface} is the interface whose packets are judged: they would go round in a loop; the action \
                 `bounce` sends them back to who sent them"
            )));
        }
        findings.extend(check_target(&target.interface, target.ifindex, planes));
    }
    circles::refuse(policy, interface, own, planes, root)?;
    findings.extend(forwarding::admit(policy, interface, own, planes)?);
    findings.extend(tunnels::admit(policy, interface, own)?);
    for pool in &mut policy.pools {
        pools::resolve(pool, own)?;
        if let Some(target) = pool.interface.as_ref().filter(|target| target.ifindex != own) {
            findings.extend(check_target(&target.interface, target.ifindex, planes));
        }
    }
    Ok(findings)
}

fn check_cpus(policy: &Policy) -> Result<()> {
    let online = kernel::online_cpus()?;
    for (class, steering) in policy.steering() {
        if let Some(cpu) = steering.cpus.iter().find(|cpu| !online.contains(cpu)) {
            let all: Vec<_> = online.iter().map(u32::to_string).collect();
            return Err(Error::input(format!(
                "policy: {class}: redirect: there is no CPU {cpu}; online are {}",
                all.join(", ")
            )));
        }
    }
    Ok(())
}

/// The kernel copies a packet as a whole.
fn check_snap(policy: &Policy, planes: &[Plane]) -> Result<()> {
    let Some(plane) = planes.iter().find(|plane| !plane.is_in_user_space()) else { return Ok(()) };
    let cut =
        policy.steering().find(|(_, it)| it.mirror.as_ref().is_some_and(|mirror| mirror.snap.is_some()));
    cut.map_or(Ok(()), |(class, _)| {
        Err(Error::input(format!(
            "policy: {class}: mirror: {plane} copies whole packets, as the kernel does; leave snap out, or let who records cut them"
        )))
    })
}

fn cannot(class: &str, name: &str, kind: u32, plane: Plane) -> Error {
    let can: Vec<_> = Plane::all()
        .iter()
        .filter(|other| other.abilities().steers & kind != 0)
        .map(|other| other.name())
        .collect();
    Error::input(format!(
        "policy: {class}: {plane} cannot do {name}; planes that can: {} (`wirewised planes`)",
        can.join(", ")
    ))
}

/// Natively, the driver of a veth pair gives back only to an end that takes frames without a socket buffer. Other drivers with XDP do.
fn check_bounces(interface: &str, index: u32) -> Option<Finding> {
    let device = Device::open(interface).ok()?;
    if device.driver().as_deref() != Some("veth") {
        return None;
    }
    check_sends(interface, &device, plane::driver(index).unwrap_or_default(), &kernel::release())
}

/// What has become of the interfaces that an attachment redirects to.
pub fn check_running(ours: &Attachment, plane: Plane) -> Vec<Finding> {
    let Ok(policy) = ours.policy() else { return Vec::new() };
    let planes: Vec<_> = std::iter::once(plane).chain(ours.outgoing.map(|_| outgoing::PLANE)).collect();
    let redirected = policy.steered().filter(|(_, steer)| steer.kinds & abi::STEER_REDIRECT != 0);
    let challenged = (policy.steering() & abi::STEER_CHALLENGE != 0).then(challenge::check);
    let redirected = redirected.flat_map(|(class, steer)| match netdev::name(steer.ifindex) {
        Some(name) => match check_target(&name, steer.ifindex, &planes) {
            found if found.is_empty() => {
                vec![Finding::ok(CHECK, format!("{} goes to {name}", ours.class_name(class as u8)))]
            }
            found => found,
        },
        None => vec![Finding::warning(
            CHECK,
            format!("the interface that {} goes to is gone: its packets pass", ours.class_name(class as u8)),
            "give the policy again (`wirewised run --policy`) when it is back, or another one",
        )],
    });
    challenged.into_iter().chain(redirected).collect()
}
