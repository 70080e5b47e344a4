// SPDX-License-Identifier: Apache-2.0
//! What a policy's forwarding needs of an interface, and by which others its packets may leave.

use std::fs;
use std::path::Path;

use crate::abi;
use crate::abi::maps::{INTERFACES, STATIONS};
use crate::attachment::Attachment;
use crate::attachment::doctor::finding::Finding;
use crate::attachment::way_out::{self, Judged};
use crate::error::{Error, Result};
use crate::interface::netdev::{self, Device};
use crate::interface::rtnetlink::{self, Link};
use crate::kernel;
use crate::object::Opened;
use crate::plane::{self, Plane};
use crate::policy::Policy;
use crate::policy::act::forward::{Bridge, EthernetAddress};
use crate::text::shell::quoted;
use libbpf_rs::MapCore;

pub const CHECK: &str = "forward";
/// Beside those that classes are redirected to, before and after a policy changes.
const MAX_EGRESS: usize = abi::INTERFACES as usize / 2 - abi::MAX_CLASSES;
/// Kinds whose drivers may send what XDP gives them, where the kernel does not say: hardware, and these.
const MAY_SEND: [&str; 3] = ["", "veth", "tun"];

/// Looks up what the classes need that are forwarded.
pub fn admit(policy: &mut Policy, judged: &Judged<'_>) -> Result<Vec<Finding>> {
    let Judged { interface, own, planes } = *judged;
    let mut findings = Vec::new();
    let address = address(interface)?;
    let mut routes = false;
    for forward in policy.forwards_mut() {
        forward.address = address;
        match &mut forward.bridge {
            Some(bridge) => {
                findings.extend(admit_ports(bridge, interface, own, planes)?);
                forward.ways = bridge.ports.iter().map(|port| port.ifindex).collect();
            }
            None => routes = true,
        }
    }
    if !routes {
        return Ok(findings);
    }
    findings.extend(check_sysctls(own));
    let ways = if at_xdp(planes) { ways(is_native(planes))? } else { Vec::new() };
    if at_xdp(planes) && ways.is_empty() {
        findings.push(Finding::warning(
            CHECK,
            "no interface here sends what XDP gives it: all packets pass to the stack",
            "`--plane xdp-generic` and `--plane tc-ingress` send by every interface",
        ));
    }
    if ways.len() > MAX_EGRESS {
        findings.push(Finding::warning(
            CHECK,
            format!(
                "there are {} interfaces; what goes to others than the first {MAX_EGRESS} passes to the stack",
                ways.len()
            ),
            "`--plane tc-ingress` knows no limit",
        ));
    }
    for forward in policy.forwards_mut().filter(|forward| forward.bridge.is_none()) {
        forward.ways = ways.iter().take(MAX_EGRESS).map(|link| link.index).collect();
    }
    Ok(findings)
}

/// Looks up the ports, and what of this host is at them.
fn admit_ports(bridge: &mut Bridge, interface: &str, own: u32, planes: &[Plane]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let links = rtnetlink::links().unwrap_or_default();
    for port in &mut bridge.ports {
        port.ifindex = netdev::index(&port.interface)
            .map_err(|error| Error::input(format!("policy: forward: {error}")))?;
        if port.ifindex != own {
            findings.extend(way_out::check_target(&port.interface, port.ifindex, planes));
        }
        // A bridge of the kernel has an address of its own.
        let link = links.iter().find(|link| link.index == port.ifindex);
        let master = link.and_then(|link| link.master).and_then(netdev::name);
        for name in std::iter::once(port.interface.clone()).chain(master) {
            bridge.own.push(address(&name)?);
        }
    }
    if bridge.ports.iter().any(|port| port.ifindex == own) {
        return Ok(findings);
    }
    Err(Error::input(format!(
        "policy: forward: {interface}, whose packets are judged, is none of the ports; name it too, with those to which its packets go"
    )))
}

/// Lets a program know the stations that others of this network namespace have learned. root : where pins are.
pub fn join(opened: &mut Opened, root: &Path) -> Result<()> {
    if opened.config().is_none_or(|config| config.acts & abi::STEER_BRIDGE == 0) {
        return Ok(());
    }
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let Ok(other) = Attachment::open(&entry.path()) else { continue };
        if other.port().is_some()
            && let Some(stations) = other.optional_map(STATIONS)?
        {
            return opened.share(STATIONS, &stations);
        }
    }
    Ok(())
}

fn at_xdp(planes: &[Plane]) -> bool {
    planes.iter().any(|plane| !plane.is_in_user_space() && !plane.is_of_tc())
}

fn is_native(planes: &[Plane]) -> bool {
    planes.iter().any(|plane| plane.is_in_driver())
}

fn address(interface: &str) -> Result<EthernetAddress> {
    let address = Device::open(interface)?.address();
    address
        .map(EthernetAddress)
        .ok_or_else(|| Error::other(format!("{interface}: cannot ask for its Ethernet address")))
}

/// The interfaces that packets may leave by at XDP.
fn ways(native: bool) -> Result<Vec<Link>> {
    let links =
        rtnetlink::links().map_err(|error| Error::other(format!("cannot list interfaces: {error}")))?;
    let release = kernel::release();
    let sends = |link: &Link| {
        let driver = plane::driver(link.index).unwrap_or_default();
        !native || way_out::sends(driver, &release).unwrap_or(MAY_SEND.contains(&link.kind.as_str()))
    };
    Ok(links.into_iter().filter(|link| link.name != "lo" && sends(link)).collect())
}

/// `bpf_fib_lookup` honours the ingress interface's `forwarding` sysctl, as the stack does.
fn check_sysctls(own: u32) -> Option<Finding> {
    let name = netdev::name(own)?;
    let is_on = |setting: &str| {
        let value = fs::read_to_string(format!("/proc/sys/net/{setting}")).ok()?;
        Some(value.trim() != "0")
    };
    let off = |version: &str| is_on(&format!("{version}/conf/{name}/forwarding")) == Some(false);
    let ipv6 = is_on(&format!("ipv6/conf/{name}/disable_ipv6")) == Some(false) && off("ipv6");
    let (versions, settings): (Vec<_>, Vec<_>) = [("IPv4", "ipv4", off("ipv4")), ("IPv6", "ipv6", ipv6)]
        .into_iter()
        .filter(|(_, _, is_off)| *is_off)
        .map(|(shown, version, _)| (shown, quoted(format_args!("net/{version}/conf/{name}/forwarding=1"))))
        .unzip();
    (!versions.is_empty()).then(|| {
        Finding::warning(
            CHECK,
            format!("{name} does not forward {}: such packets pass to the stack", versions.join(" and ")),
            format!("`sysctl -w {}`", settings.join(" ")),
        )
    })
}

/// Whether the ports between which an attachment forwards are there.
fn check_ports(ours: &Attachment, policy: &abi::Element, plane: Plane) -> Vec<Finding> {
    let Some((class, _)) = policy.steered().find(|(_, steer)| steer.kinds & abi::STEER_BRIDGE != 0) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    if let (true, Ok(Some(map))) = (is_native(&[plane]), ours.optional_map(INTERFACES)) {
        let ports = map.keys().filter_map(|key| key.try_into().ok().map(u32::from_ne_bytes));
        findings.extend(ports.filter_map(netdev::name).filter_map(|name| way_out::check_way(&name)));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{} is forwarded", ours.class_name(class as u8))));
    }
    findings
}

/// Whether what an attachment forwards still goes.
pub fn check_running(ours: &Attachment, own: u32, plane: Plane) -> Vec<Finding> {
    let Ok(policy) = ours.element() else { return Vec::new() };
    let forwards = |(_, steer): &(usize, &abi::Steer)| {
        steer.kinds & (abi::STEER_FORWARD | abi::STEER_BRIDGE) == abi::STEER_FORWARD
    };
    let Some((class, steer)) = policy.steered().filter(forwards).last() else {
        return check_ports(ours, &policy, plane);
    };
    let again = "give the policy again (`wirewised run --policy`)";
    let mut findings: Vec<_> = check_sysctls(own).into_iter().collect();
    if address(&ours.interface).is_ok_and(|address| address.0 != steer.address) {
        findings.push(Finding::warning(
            CHECK,
            format!(
                "{} has another Ethernet address than before: all packets pass to the stack",
                ours.interface
            ),
            again,
        ));
    }
    if let (true, Ok(Some(map))) = (at_xdp(&[plane]), ours.optional_map(INTERFACES)) {
        let known: Vec<u32> =
            map.keys().filter_map(|key| key.try_into().ok().map(u32::from_ne_bytes)).collect();
        let missing = ways(is_native(&[plane])).unwrap_or_default();
        let missing: Vec<_> =
            missing.into_iter().filter(|link| !known.contains(&link.index)).map(|link| link.name).collect();
        if !missing.is_empty() && known.len() < MAX_EGRESS {
            findings.push(Finding::warning(
                CHECK,
                format!(
                    "what leaves by {} passes to the stack: it came after the policy",
                    missing.join(", ")
                ),
                again,
            ));
        }
        if is_native(&[plane]) {
            findings.extend(
                known.into_iter().filter_map(netdev::name).filter_map(|name| way_out::check_way(&name)),
            );
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok(CHECK, format!("{} is forwarded", ours.class_name(class as u8))));
    }
    findings
}
