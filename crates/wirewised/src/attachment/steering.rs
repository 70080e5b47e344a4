// SPDX-License-Identifier: Apache-2.0
//! Whether a policy's packets can go where it sends them: what the planes can do, and what the interfaces they go to can take.

use crate::abi;
use crate::attachment::Attachment;
use crate::attachment::ban;
use crate::attachment::challenge;
use crate::attachment::circles;
use crate::attachment::companion;
use crate::attachment::doctor::finding::Finding;
use crate::attachment::forwarding;
use crate::attachment::next;
use crate::attachment::pins::Root;
use crate::attachment::way_out::{Judged, check_sends, check_target};
use crate::attachment::{outgoing, pools, tunnels};
use crate::error::{Error, Result};
use crate::interface::netdev::{self, Device};
use crate::kernel;
use crate::plane::{self, Plane};
use crate::policy::Policy;
use crate::policy::act::Redirect;

pub use crate::attachment::way_out::CHECK;

/// Resolves what actions need in this network namespace. Fails if a policy cannot work here; findings are warnings for the user.
type Admit = fn(&mut Policy, &Judged<'_>) -> Result<Vec<Finding>>;

/// One for each action with such needs, in the order in which they run.
const ADMITS: [Admit; 9] = [
    admit_senders,
    ban::admit,
    challenge::admit,
    admit_cpus,
    admit_snap,
    admit_targets,
    forwarding::admit,
    tunnels::admit,
    pools::admit,
];

/// Checks that the planes support what the policy asks for, and resolves what its actions need on this host.
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
    for plane in planes {
        let missing = policy.describes() & !plane.abilities().steers;
        if let Some((kind, key)) = abi::DESCRIBING.into_iter().find(|(kind, _)| missing & kind != 0) {
            return Err(cannot_describe(key, kind, *plane));
        }
    }
    planes.iter().try_for_each(|plane| check_companion(policy, *plane))?;
    next::admit(policy, planes)?;
    let own = match planes.iter().find(|plane| plane.names_device(interface)) {
        Some(_) => 0,
        None => netdev::index(interface)?,
    };
    let (judged, mut findings) = (Judged { interface, own, planes }, Vec::new());
    for admit in ADMITS {
        findings.extend(admit(policy, &judged)?);
    }
    circles::refuse(policy, interface, own, planes, root)?;
    Ok(findings)
}

/// Actions that send by the judged interface itself.
fn admit_senders(policy: &mut Policy, judged: &Judged<'_>) -> Result<Vec<Finding>> {
    // A pool without an interface sends by the one that is judged; and what is too long for a tunnel is answered.
    let bounces =
        policy.steering_kinds() & (abi::STEER_BOUNCE | abi::STEER_CHALLENGE | abi::STEER_ENCAPSULATE) != 0
            || policy.pools.iter().any(|pool| pool.interface.is_none());
    let found = (bounces && judged.is_native()).then(|| check_bounces(judged.interface, judged.own));
    Ok(found.flatten().into_iter().collect())
}

fn admit_targets(policy: &mut Policy, judged: &Judged<'_>) -> Result<Vec<Finding>> {
    let (interface, mut findings) = (judged.interface, Vec::new());
    for (key, target) in policy.targets_mut() {
        target.ifindex = netdev::index(&target.interface)
            .map_err(|error| Error::input(format!("policy: {key}: {error}")))?;
        if target.ifindex == judged.own {
            return Err(Error::input(format!(
                "policy: {key}: {interface} is the interface whose packets are judged: they would go round in a loop; the action \
                 `bounce` sends them back to who sent them"
            )));
        }
        // A copy leaves from TC, whatever the plane.
        let planes = if key == "mirror" { &[] } else { judged.planes };
        findings.extend(check_target(&target.interface, target.ifindex, planes));
    }
    Ok(findings)
}

/// What the companion at TC is to do it can only do to packets that come there.
fn check_companion(policy: &Policy, plane: Plane) -> Result<()> {
    for (class, steering) in policy.steering() {
        let name =
            |kinds: u32| abi::STEERING.into_iter().find(|(kind, _)| kinds & kind != 0).map(|(_, name)| name);
        let written = name(plane.by_companion(steering.kinds()));
        let elsewhere = name(steering.kinds() & (abi::STEER_ELSEWHERE | abi::STEER_CPU));
        if let Some((written, elsewhere)) = written.zip(elsewhere) {
            let can = steering.kinds() & !companion::PLANE.abilities().steers == 0;
            let other = if can { format!(", or take `--plane {}`", companion::PLANE) } else { String::new() };
            return Err(Error::input(format!(
                "policy: {class}: {plane} leaves {written} to a program at TC, where packets with {elsewhere} never come: leave one of \
                 the two out{other}"
            )));
        }
    }
    Ok(())
}

fn admit_cpus(policy: &mut Policy, _: &Judged<'_>) -> Result<Vec<Finding>> {
    let online = kernel::online_cpus()?;
    for (class, steering) in policy.steering() {
        let cpus = steering.redirect.as_ref().map_or(&[][..], Redirect::cpus);
        if let Some(cpu) = cpus.iter().find(|cpu| !online.contains(cpu)) {
            let all: Vec<_> = online.iter().map(u32::to_string).collect();
            return Err(Error::input(format!(
                "policy: {class}: redirect: there is no CPU {cpu}; online are {}",
                all.join(", ")
            )));
        }
    }
    Ok(Vec::new())
}

/// The kernel copies a packet as a whole.
fn admit_snap(policy: &mut Policy, judged: &Judged<'_>) -> Result<Vec<Finding>> {
    let Some(plane) = judged.planes.iter().find(|plane| !plane.is_in_user_space()) else {
        return Ok(Vec::new());
    };
    let cut =
        policy.steering().find(|(_, it)| it.mirror.as_ref().is_some_and(|mirror| mirror.snap.is_some()));
    cut.map_or(Ok(Vec::new()), |(class, _)| {
        Err(Error::input(format!(
            "policy: {class}: mirror: {plane} copies whole packets, as the kernel does; leave snap out, or let who records cut them"
        )))
    })
}

/// kind : `abi::STEER_METADATA` or `abi::STEER_VERDICTS`.
fn cannot_describe(key: &str, kind: u32, plane: Plane) -> Error {
    let why = match kind {
        _ if plane.is_in_user_space() => {
            "there the program runs in user space, out of reach of other programs in the kernel"
        }
        _ => "only XDP can put data in front of a packet; a class's `mark` reaches other programs from TC",
    };
    Error::input(format!("policy: {key}: not on {plane}: {why}; planes that can: {}", planes_that(kind)))
}

fn planes_that(kind: u32) -> String {
    let can = Plane::all().iter().filter(|plane| plane.abilities().steers & kind != 0);
    can.map(|plane| plane.name()).collect::<Vec<_>>().join(", ")
}

fn cannot(class: &str, name: &str, kind: u32, plane: Plane) -> Error {
    Error::input(format!(
        "policy: {class}: {plane} cannot do {name}; planes that can: {} (`wirewised planes`)",
        planes_that(kind)
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
    let Ok(policy) = ours.element() else { return Vec::new() };
    let planes: Vec<_> = std::iter::once(plane).chain(ours.outgoing.map(|_| outgoing::PLANE)).collect();
    let places = policy.steered().flat_map(|(class, steer)| {
        let redirected = (steer.kinds & abi::STEER_REDIRECT != 0).then_some((steer.ifindex, false));
        let copied = (steer.kinds & abi::STEER_MIRROR != 0).then_some((steer.mirror_ifindex, true));
        redirected.into_iter().chain(copied).map(move |place| (class, place))
    });
    let challenged = (policy.steering() & abi::STEER_CHALLENGE != 0).then(challenge::check);
    let placed = places.flat_map(|(class, (ifindex, copied))| {
        let class = ours.class_name(class as u8);
        let (goes, gone) = match copied {
            true => ("is copied to", "are copied to is gone: there are no copies"),
            false => ("goes to", "goes to is gone: its packets pass"),
        };
        match netdev::name(ifindex) {
            Some(name) => match check_target(&name, ifindex, &planes) {
                found if found.is_empty() => vec![Finding::ok(CHECK, format!("{class} {goes} {name}"))],
                found => found,
            },
            None => vec![Finding::warning(
                CHECK,
                format!("the interface that {}{class} {gone}", if copied { "packets of " } else { "" }),
                "give the policy again (`wirewised run --policy`) when it is back, or another one",
            )],
        }
    });
    challenged.into_iter().chain(placed).collect()
}

/// Whether the companion of what is attached does its work. index : of the interface.
pub fn check_attached_companion(ours: &Attachment, plane: Plane, index: u32) -> Option<Finding> {
    let asked = plane.by_companion(ours.element().ok()?.steering());
    if asked == 0 {
        return None;
    }
    let keys: Vec<_> =
        abi::STEERING.into_iter().filter(|(kind, _)| asked & kind != 0).map(|(_, key)| key).collect();
    let keys = keys.join(", ");
    let at = companion::PLANE;
    let Some(companion) = &ours.companion else {
        return Some(Finding::warning(
            "companion",
            format!("{keys}: the program at {at} that does this is gone: packets pass without it"),
            "give the policy again: `wirewised run --policy`",
        ));
    };
    let attached = plane::attached(index).unwrap_or_default();
    let first = attached.iter().find(|it| it.plane == at).map(|it| it.program_id);
    Some(match first.filter(|first| *first != companion.program_id) {
        None => Finding::ok("companion", format!("{keys}: by program {} at {at}", companion.program_id)),
        Some(before) => Finding::warning(
            "companion",
            format!(
                "{keys}: program {before} at {at} is before the one that does this, and sees packets without it"
            ),
            "give the policy again after `wirewised detach`, or attach the other one behind (`bpftool net` shows both)",
        ),
    })
}
