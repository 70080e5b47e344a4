// SPDX-License-Identifier: Apache-2.0
//! The checks before an attach: what this machine, this process and an interface offer, each with its remedy.

pub mod finding;
pub mod memory;
mod offered;
mod spread;

use std::os::fd::AsFd;
use std::path::Path;

use crate::attachment::Attachment;
use crate::attachment::doctor::finding::Finding;
use crate::attachment::doctor::spread::Spread;
use crate::attachment::followed;
use crate::attachment::forwarding;
use crate::attachment::outgoing;
use crate::attachment::pins::Root;
use crate::attachment::steering;
use crate::bundle::manifest::{Flow, Sharing, ends_of_key};
use crate::error::Kind;
use crate::interface::netdev::{self, Device};
use crate::interface::offloads::{self, Merging};
use crate::kernel;
use crate::kernel::bpffs;
use crate::kernel::objects;
use crate::plane::user_space::Carried;
use crate::plane::{self, Attached, Driver, MTU_OF_ONE_BUFFER, Plane, Port, dispatcher};
use crate::text::shell::quoted;

/// The flow key under which both directions are one flow.
const BOTH_DIRECTIONS: &str = "five-tuple-bidirectional";
/// `NETDEV_XDP_ACT_RX_SG` (linux/netdev.h): the driver gives programs frames in several buffers.
const RX_SG: u64 = 1 << 5;
/// Since 5.11 maps are charged to the cgroup and not to the limit on locked memory.
const MEMLOCK_UNTIL: (u32, u32) = (5, 11);

/// What does not depend on an interface.
pub fn check_machine(root: &Root) -> Vec<Finding> {
    let release = kernel::release();
    let mut findings = vec![check_kernel(&release), check_jit(), check_btf()];
    findings.extend(check_capabilities(&kernel::missing_capabilities()));
    findings.extend(check_memlock(&release));
    findings.push(check_pins(root));
    findings
}

fn check_kernel(release: &str) -> Finding {
    let (major, minor) = kernel::OLDEST;
    let needs = format!("wirewise needs Linux {major}.{minor} or newer: upgrade the kernel");
    match kernel::version_of(release) {
        Some(version) if version < kernel::OLDEST => {
            Finding::error("kernel", format!("Linux {release} is too old"), needs)
        }
        Some(_) => Finding::ok("kernel", format!("Linux {release}")),
        None => Finding::warning("kernel", format!("cannot tell the version of '{release}'"), needs),
    }
}

fn check_jit() -> Finding {
    match std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").as_deref().map(str::trim) {
        Ok("0") => Finding::note(
            "jit",
            "off: programs are interpreted, several times slower",
            "`sysctl -w net.core.bpf_jit_enable=1`",
        ),
        Ok(_) => Finding::ok("jit", "on"),
        // Only root sees it, and only in the first network namespace.
        Err(_) => Finding::ok("jit", "cannot be seen from here"),
    }
}

fn check_btf() -> Finding {
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        Finding::ok("btf", "the kernel describes its types")
    } else {
        Finding::note(
            "btf",
            "no /sys/kernel/btf/vmlinux: wirewise runs, but bpftool shows less",
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, or mount /sys",
        )
    }
}

fn check_capabilities(missing: &[&str]) -> Vec<Finding> {
    const NEEDED: [(&str, &str); 3] = [
        ("CAP_BPF", "loads programs and makes maps"),
        ("CAP_NET_ADMIN", "attaches to interfaces"),
        ("CAP_PERFMON", "lets programs use pointers as the flow table does"),
    ];
    let finding = |(name, what): (&'static str, &str)| {
        if !missing.contains(&name) {
            return Finding::ok(name, format!("held ({what})"));
        }
        Finding::error(
            name,
            format!("{name} is missing ({what})"),
            format!("run as root, or {}", kernel::SHARE),
        )
    };
    NEEDED.into_iter().map(finding).collect()
}

fn check_memlock(release: &str) -> Option<Finding> {
    if kernel::version_of(release).is_none_or(|version| version >= MEMLOCK_UNTIL) {
        return None;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is an rlimit that the call fills.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) } == 0;
    Some(if read && limit.rlim_cur == libc::RLIM_INFINITY {
        Finding::ok("memlock", "unlimited")
    } else {
        Finding::error(
            "memlock",
            "limited: this kernel counts maps as locked memory",
            "`ulimit -l unlimited`",
        )
    })
}

fn check_pins(root: &Root) -> Finding {
    let path = root.path().display();
    match bpffs::state(root.path()) {
        bpffs::State::Writable => match root.path().symlink_metadata().map(|_| root.open()) {
            Ok(Err(error)) => Finding::refusal("bpffs", &error).of_kind(error.kind()),
            _ => Finding::ok("bpffs", format!("{path} is in a BPF file system")),
        },
        bpffs::State::Mountable => {
            Finding::ok("bpffs", format!("none at {} yet: `run` mounts it", bpffs::PLACE))
        }
        bpffs::State::Missing(obstacle) => {
            Finding::error("bpffs", format!("{path} {obstacle}"), obstacle.remedy())
        }
        bpffs::State::ReadOnly => Finding::error(
            "bpffs",
            format!("the BPF file system of {path} is mounted read-only"),
            bpffs::REMOUNT,
        ),
        bpffs::State::NotWritable => Finding::error(
            "bpffs",
            format!("{path} is not writable for this user"),
            "as root make a directory and give it away: `mkdir /sys/fs/bpf/NAME && chown USER /sys/fs/bpf/NAME`, \
             then use --pin-root /sys/fs/bpf/NAME",
        ),
    }
}

/// What an interface offers for a plane. That there is no such interface is a finding too.
///
/// flow : of the bundle that is to run, if one is.
pub fn check_interface(interface: &str, plane: Plane, root: &Root, flow: Option<&Flow>) -> Vec<Finding> {
    if let Some(carried) = plane.carried().filter(|carried| carried.names_device(interface)) {
        return check_device(interface, carried, root);
    }
    let opened = netdev::index(interface).and_then(|index| Ok((index, Device::open(interface)?)));
    let (index, device) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let finding =
                Finding::error("interface", error.to_string(), "give one of these with --interface");
            return vec![finding.of_kind(error.kind())];
        }
    };
    let native = plane.abilities().native;
    let mut findings = vec![check_state(interface, &device)];
    findings
        .push(Finding::ok("driver", device.driver().unwrap_or_else(|| "does not say its name".to_string())));
    findings.extend(check_ethernet(interface, &device));
    let mut features = 0;
    match plane::driver(index).and_then(|driver| Ok((driver, plane::attached(index)?))) {
        Err(error) => {
            findings.push(Finding::warning("xdp", format!("cannot be asked: {error}"), "see `ip link`"))
        }
        Ok((driver, attached)) => {
            features = driver.features;
            findings.extend(offered::check(interface, index, plane, driver));
            findings.push(check_programs(interface, index, plane, driver, &attached, root));
            findings.extend(check_steering(index, root));
        }
    }
    findings.extend(device.mtu().map(|mtu| check_mtu(interface, mtu, plane, features)));
    findings.extend(device.lro().map(|on| check_lro(interface, on, native)));
    findings.extend(check_offloads(index, plane));
    findings.extend(flow.and_then(|flow| check_tags(interface, &device, plane, flow)));
    findings.extend(device.receive_queues().map(|queues| check_queues(interface, queues)));
    findings.push(spread::check(interface, &Spread::of(interface, &device), flow));
    findings
}

/// What an interface offers for the other direction, beside a plane.
pub fn check_outgoing(interface: &str, flow: &Flow) -> Vec<Finding> {
    let Ok(index) = netdev::index(interface) else { return Vec::new() };
    let mut findings = vec![offered::check_tc(index)];
    findings.extend(check_offloads(index, outgoing::PLANE));
    if flow.sharing != Sharing::Shared && ends_of_key(&flow.key) == BOTH_DIRECTIONS {
        findings.push(Finding::warning(
            "cpus",
            "what comes in and what goes out of one flow may be on two CPUs, and each has flow tables of its own",
            "compile the model with `flow_table: {sharing: shared}` in its feature set; docs/cpus.md",
        ));
    }
    findings
}

/// A device that the kernel has not: it has no offloads, queues or programs that could be asked for.
fn check_device(name: &str, carried: &dyn Carried, root: &Root) -> Vec<Finding> {
    let mut findings = vec![match carried.check_device(name) {
        Ok(what) => Finding::ok("device", what),
        Err(error) => Finding::refusal("device", &error).of_kind(error.kind()),
    }];
    let ours = Attachment::all(root).unwrap_or_default().attachments;
    let ours = ours.iter().find(|ours| ours.is_on(Port::Device, name)).and_then(Attachment::carrier);
    findings.extend(
        ours.map(|carrier| {
            Finding::ok("programs", format!("wirewise, carried by process {}", carrier.process))
        }),
    );
    findings
}

fn check_state(interface: &str, device: &Device) -> Finding {
    if device.is_up() == Some(false) {
        let remedy = format!("`ip link set {} up`; a program can be attached before", quoted(interface));
        return Finding::warning("interface", format!("{interface} is down"), remedy);
    }
    Finding::ok("interface", format!("{interface} is up"))
}

fn check_ethernet(interface: &str, device: &Device) -> Option<Finding> {
    (device.is_ethernet() == Some(false)).then(|| {
        Finding::error(
            "ethernet",
            format!("packets of {interface} have no Ethernet header (a tun device, WireGuard, ...)"),
            "judge them where they have one: on the interface they come in by",
        )
    })
}

/// Where what is attached sends packets.
fn check_steering(index: u32, root: &Root) -> Vec<Finding> {
    let ours = Attachment::all(root).unwrap_or_default().attachments;
    let Some(ours) = ours.into_iter().find(|ours| ours.port() == Some(Port::Interface(index))) else {
        return Vec::new();
    };
    let plane = ours.link.as_ref().and_then(|(_, link)| link.plane().ok()?);
    let Some(plane) = plane else { return Vec::new() };
    let mut findings = steering::check_running(&ours, plane);
    findings.extend(forwarding::check_running(&ours, index, plane));
    findings.extend(steering::check_attached_companion(&ours, plane, index));
    findings.extend(followed::check_running(&ours));
    findings
}

fn check_programs(
    interface: &str,
    index: u32,
    plane: Plane,
    driver: Driver,
    attached: &[Attached],
    root: &Root,
) -> Finding {
    if driver.offloaded {
        return Finding::warning(
            "programs",
            "a program is offloaded to the network card",
            "it runs before wirewise",
        );
    }
    let ours = Attachment::all(root).unwrap_or_default().attachments;
    let ours = ours.iter().find(|ours| ours.port() == Some(Port::Interface(index)));
    if let Some(carrier) = ours.and_then(Attachment::carrier).filter(|carrier| carrier.is_alive) {
        return Finding::ok("programs", format!("wirewise, carried by process {}", carrier.process));
    }
    if let Some(priority) = ours.and_then(Attachment::priority) {
        return Finding::ok("programs", format!("wirewise, in a dispatcher with run priority {priority}"));
    }
    let ours = ours.and_then(|ours| Some(ours.link.as_ref()?.1.program_id));
    if let Some(ours) = attached.iter().find(|it| ours == Some(it.program_id)) {
        return Finding::ok(
            "programs",
            format!("wirewise ({}, {})", describe_program(ours.program_id), ours.plane),
        );
    }
    if let Some(other) = attached.iter().find(|it| it.plane.is_in_the_way_of(plane)) {
        if other.plane == plane && dispatcher::is_there(plane, index).unwrap_or(false) {
            return check_dispatcher(interface, index, *other);
        }
        return taken(interface, *other, root);
    }
    let beside: Vec<_> = attached.iter().filter(|it| it.plane == plane).collect();
    if beside.is_empty() {
        return Finding::ok(
            "programs",
            match plane.abilities().shared {
                true => format!("no other program at {plane}"),
                false => "no other XDP program".to_string(),
            },
        );
    }
    let names: Vec<_> = beside.iter().map(|it| describe_program(it.program_id)).collect();
    Finding::ok("programs", format!("beside {}: `run --order first|last`", names.join(", ")))
}

/// A dispatcher of libxdp, which `run` joins if the kernel lets it.
fn check_dispatcher(interface: &str, index: u32, attached: Attached) -> Finding {
    let what = describe_program(attached.program_id);
    match dispatcher::probe(attached.plane, index) {
        Ok(()) => Finding::ok(
            "programs",
            format!("{what}, a dispatcher, which `run` joins: `--order first|last|N`"),
        ),
        Err(error) => Finding::error(
            "programs",
            format!("{interface} has a dispatcher ({what}), which cannot be joined: {error}"),
            beside_dispatcher(),
        )
        .of_kind(Kind::Missing),
    }
}

/// What works where a dispatcher cannot be joined.
pub fn beside_dispatcher() -> String {
    format!(
        "`--plane {}` judges what its programs let through; a program that is attached alone (LIBXDP_SKIP_DISPATCHER=1) can go on behind \
         wirewise with `next` in the policy",
        Plane::TC_INGRESS
    )
}

/// What libxdp calls its program that runs several.
const DISPATCHER: &str = "xdp_dispatcher";

/// Somebody else's program is attached.
pub fn taken(interface: &str, attached: Attached, root: &Root) -> Finding {
    let id = attached.program_id;
    let finding = Finding::error(
        "programs",
        format!("{interface} is taken: {} is attached ({})", describe_program(id), attached.plane),
        format!(
            "`run --replace` takes it over; {}; `ip link` and `bpftool net` show who it is",
            way_beside(id, root)
        ),
    );
    finding.of_kind(Kind::Other)
}

/// How both could go on.
fn way_beside(id: u32, root: &Root) -> String {
    if describe_program(id).contains(DISPATCHER) {
        return beside_dispatcher();
    }
    let keep = "in the policy keeps it: what wirewise lets pass goes on to it";
    match root.path().parent().and_then(|folder| bpffs::pin_of_program(folder, id)) {
        Some(pin) => format!("with that, `next: {}` {keep}", pin.display()),
        None => format!(
            "with that, and after `bpftool prog pin id {id} {0}/NAME`, `next: {0}/NAME` {keep}",
            bpffs::PLACE
        ),
    }
}

/// `program 12 (name)`; without the name where it may not be asked for.
pub fn describe_program(id: u32) -> String {
    match objects::program_by_id(id).and_then(|program| objects::program_info(program.as_fd())) {
        Ok(info) => format!("program {id} ({})", info.name),
        Err(_) => format!("program {id}"),
    }
}

/// features : of the driver, 0 where they are unknown.
fn check_mtu(interface: &str, mtu: u32, plane: Plane, features: u64) -> Finding {
    let needs_frags = plane.needs_frags(mtu);
    if !plane.abilities().native || mtu <= MTU_OF_ONE_BUFFER {
        return Finding::ok("mtu", mtu.to_string());
    }
    if needs_frags && features & RX_SG != 0 {
        return Finding::ok("mtu", format!("{mtu}, in several buffers (xdp.frags)"));
    }
    let found = if needs_frags && features != 0 {
        format!(
            "{mtu}: the driver gives programs one buffer, so it refuses native XDP above about {MTU_OF_ONE_BUFFER}"
        )
    } else {
        format!("{mtu}: some drivers refuse native XDP above {MTU_OF_ONE_BUFFER}")
    };
    let way_out = format!("`ip link set {} mtu 1500`, or `--plane xdp-generic`", quoted(interface));
    Finding::warning("mtu", found, way_out)
}

fn check_lro(interface: &str, on: bool, native: bool) -> Finding {
    if on && native {
        return Finding::warning(
            "lro",
            "on: drivers refuse native XDP, or hand over merged packets with wrong lengths",
            format!("`ethtool -K {} lro off`", quoted(interface)),
        );
    }
    Finding::ok("lro", if on { "on" } else { "off" })
}

/// What keeps VLAN tags from a key that has them.
fn check_tags(interface: &str, device: &Device, plane: Plane, flow: &Flow) -> Option<Finding> {
    let at_xdp = matches!(plane.abilities().name, "xdp-native" | "xdp-generic" | "af-xdp");
    (at_xdp && flow.has_vlans() && offloads::takes_tags_off(device)).then(|| {
        Finding::warning(
            "vlan",
            format!("{plane} does not see VLAN tags that {interface} takes off, and the key has them"),
            format!(
                "`ethtool -K {} rxvlan off`; of a veth pair also `txvlan off` at its other end",
                quoted(interface)
            ),
        )
    })
}

/// What merges packets before the program, where it can see such.
fn check_offloads(index: u32, plane: Plane) -> Option<Finding> {
    if !plane.abilities().sees_merged {
        return None;
    }
    let found = match offloads::find(index, plane.abilities().direction) {
        Ok(found) => found,
        Err(error) => return Some(Finding::warning("offloads", error.to_string(), "see `ethtool -k`")),
    };
    if found.is_empty() {
        return Some(Finding::ok("offloads", "packets come as they were sent"));
    }
    let merging: Vec<_> = found.iter().map(Merging::describe).collect();
    let remedies: Vec<_> = found.iter().filter(|it| it.is_seen()).map(|it| it.remedy("off")).collect();
    Some(Finding::warning(
        "offloads",
        format!(
            "{plane} sees packets merged by {}: their counts and lengths are not those of the network",
            merging.join(" and ")
        ),
        match remedies.is_empty() {
            true => "look from a network namespace that can be seen into (--netns)".to_string(),
            false => format!(
                "{}, or `run --offloads off`, which puts them back at the end",
                remedies.join(" and ")
            ),
        },
    ))
}

fn check_queues(interface: &str, queues: u32) -> Finding {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    if queues == 1 && cpus > 1 {
        return Finding::note(
            "queues",
            format!("1 receive queue: one of {cpus} CPUs does all the work"),
            format!(
                "`ethtool -L {0} combined {cpus}` if the hardware has more (`ethtool -l {0}`)",
                quoted(interface)
            ),
        );
    }
    Finding::ok("queues", format!("{queues} receive queues, {cpus} CPUs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::doctor::finding::Level;

    #[test]
    fn an_old_kernel_is_refused_with_the_oldest_that_works() {
        let finding = check_kernel("5.10.0-8-amd64");
        let error = finding.to_error();
        assert_eq!(error.kind(), Kind::Missing);
        assert!(
            error.to_string().contains("5.10.0-8-amd64 is too old; wirewise needs Linux 5.15"),
            "{error}"
        );
        assert_eq!(check_kernel("5.15.0").level, Level::Ok);
        assert_eq!(check_kernel("next").level, Level::Warning);
    }

    #[test]
    fn each_missing_capability_is_an_error_of_its_own() {
        let findings = check_capabilities(&["CAP_PERFMON"]);
        let levels: Vec<_> = findings.iter().map(|finding| (finding.check, finding.level)).collect();
        assert_eq!(
            levels,
            [("CAP_BPF", Level::Ok), ("CAP_NET_ADMIN", Level::Ok), ("CAP_PERFMON", Level::Error)]
        );
    }

    #[test]
    fn large_frames_and_lro_matter_only_natively() {
        let plane = |name: &str| *Plane::all().iter().find(|plane| plane.name() == name).unwrap();
        let level = |mtu, plane, features| check_mtu("eth0", mtu, plane, features).level;
        assert_eq!(level(9000, plane("xdp-native"), 0), Level::Warning);
        assert_eq!(level(9000, plane("xdp-native"), 1), Level::Warning);
        assert_eq!(level(9000, plane("xdp-native"), RX_SG | 1), Level::Ok);
        assert_eq!(level(3000, plane("xdp-native"), 1), Level::Ok);
        assert_eq!(level(9000, plane("xdp-generic"), 0), Level::Ok);
        assert_eq!(check_lro("eth0", true, true).level, Level::Warning);
        assert_eq!(check_lro("eth0", true, false).level, Level::Ok);
    }
}
