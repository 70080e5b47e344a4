// SPDX-License-Identifier: Apache-2.0
//! The checks before an attach: what this machine, this process and an interface offer, each with its remedy.

use std::os::fd::AsFd;
use std::path::Path;

use serde::Serialize;

use crate::attachment::Attachment;
use crate::bpffs;
use crate::error::{Error, Kind, Result};
use crate::kernel;
use crate::manifest::Flow;
use crate::netdev::{self, Device};
use crate::offloads::{self, Merging};
use crate::pins::Root;
use crate::spread::{self, Spread};
use crate::xdp::{self, Attached, Plane};

/// The largest frame most drivers take natively: a page less the headroom and the kernel's own bookkeeping.
const NATIVE_MTU: u32 = 3_498;
/// The first kernel that says which XDP features a driver has.
const TELLS_DRIVER_FEATURES: (u32, u32) = (6, 3);
/// `NETDEV_XDP_ACT_BASIC` (linux/netdev.h).
const XDP_BASIC: u64 = 1;
/// Since 5.11 maps are charged to the cgroup and not to the limit on locked memory.
const MEMLOCK_UNTIL: (u32, u32) = (5, 11);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// Works, but not as well as it could.
    Note,
    /// Something may be wrong, or could not be told.
    Warning,
    /// `run` would fail.
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub check: &'static str,
    pub level: Level,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    #[serde(skip)]
    kind: Kind,
}

impl Finding {
    pub fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, level: Level::Ok, found: found.into(), remedy: None, kind: Kind::Missing }
    }

    fn note(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Note, ..Self::warning(check, found, remedy) }
    }

    pub fn warning(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Warning, remedy: Some(remedy.into()), ..Self::ok(check, found) }
    }

    fn error(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { level: Level::Error, ..Self::warning(check, found, remedy) }
    }

    /// What an error says, with the way out after its first semicolon.
    fn refusal(check: &'static str, error: &Error) -> Self {
        let message = error.to_string();
        let (found, remedy) = message.split_once("; ").unwrap_or((&message, ""));
        Self::error(check, found, remedy)
    }

    /// The finding as the error that ends `run`.
    pub fn to_error(&self) -> Error {
        let remedy = self.remedy.as_deref().unwrap_or_default();
        let message = format!("{}; {remedy}", self.found);
        match self.kind {
            Kind::Input => Error::input(message),
            Kind::Missing | Kind::Refused => Error::missing(message),
            _ => Error::other(message),
        }
    }
}

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
            "run as root, or `setcap cap_bpf,cap_net_admin,cap_perfmon+ep $(command -v wirewised)`",
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
            Ok(Err(error)) => Finding { kind: error.kind(), ..Finding::refusal("bpffs", &error) },
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
    let opened = netdev::index(interface).and_then(|index| Ok((index, Device::open(interface)?)));
    let (index, device) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let finding =
                Finding::error("interface", error.to_string(), "give one of these with --interface");
            return vec![Finding { kind: error.kind(), ..finding }];
        }
    };
    let native = plane == Plane::XdpNative;
    let mut findings = vec![check_state(interface, &device)];
    findings
        .push(Finding::ok("driver", device.driver().unwrap_or_else(|| "does not say its name".to_string())));
    match xdp::query(index) {
        Err(error) => {
            findings.push(Finding::warning("xdp", format!("cannot be asked: {error}"), "see `ip link`"))
        }
        Ok(state) => {
            let release = kernel::release();
            findings.push(check_native(interface, &state, &release, native));
            findings.push(check_programs(interface, index, &state, root));
        }
    }
    findings.extend(device.mtu().map(|mtu| check_mtu(interface, mtu, native)));
    findings.extend(device.lro().map(|on| check_lro(interface, on, native)));
    if !native {
        findings.push(check_offloads(index));
    }
    findings.extend(device.receive_queues().map(|queues| check_queues(interface, queues)));
    findings.push(spread::check(interface, &Spread::of(interface, &device), flow));
    findings
}

fn check_state(interface: &str, device: &Device) -> Finding {
    if device.is_up() == Some(false) {
        let remedy = format!("`ip link set {interface} up`; a program can be attached before");
        return Finding::warning("interface", format!("{interface} is down"), remedy);
    }
    Finding::ok("interface", format!("{interface} is up"))
}

fn check_native(interface: &str, state: &xdp::Interface, release: &str, wanted: bool) -> Finding {
    let tells = kernel::version_of(release).is_some_and(|version| version >= TELLS_DRIVER_FEATURES);
    if state.driver_features & XDP_BASIC != 0 {
        return Finding::ok("native", "the driver supports XDP");
    }
    if !tells {
        return Finding::warning(
            "native",
            "kernels before 6.3 do not say whether a driver supports XDP",
            "try it: `run` says so cleanly if not; `--plane xdp-generic` works everywhere",
        );
    }
    let found = format!("the driver of {interface} has no native XDP");
    let remedy = "add `--plane xdp-generic` (works on every interface, slower)";
    if wanted { Finding::error("native", found, remedy) } else { Finding::ok("native", found) }
}

fn check_programs(interface: &str, index: u32, state: &xdp::Interface, root: &Root) -> Finding {
    if state.offloaded {
        return Finding::warning(
            "programs",
            "a program is offloaded to the network card",
            "it runs before wirewise",
        );
    }
    let Some(attached) = state.attached.first() else {
        return Finding::ok("programs", "no other XDP program");
    };
    let ours = Attachment::all(root).unwrap_or_default();
    let ours = ours.iter().find(|ours| ours.ifindex() == Some(index));
    if ours.is_some_and(|ours| {
        ours.link.as_ref().is_some_and(|(_, link)| link.program_id == attached.program_id)
    }) {
        return Finding::ok(
            "programs",
            format!("wirewise ({}, {})", describe_program(attached.program_id), attached.plane),
        );
    }
    taken(interface, *attached)
}

/// Somebody else's program is attached.
pub fn taken(interface: &str, attached: Attached) -> Finding {
    let finding = Finding::error(
        "programs",
        format!(
            "{interface} is taken: {} is attached ({})",
            describe_program(attached.program_id),
            attached.plane
        ),
        "`run --replace` takes it over; `ip link` and `bpftool net` show who it is",
    );
    Finding { kind: Kind::Other, ..finding }
}

/// `program 12 (name)`; without the name where it may not be asked for.
pub fn describe_program(id: u32) -> String {
    match xdp::program_by_id(id).and_then(|program| xdp::program_info(program.as_fd())) {
        Ok(info) => format!("program {id} ({})", info.name),
        Err(_) => format!("program {id}"),
    }
}

fn check_mtu(interface: &str, mtu: u32, native: bool) -> Finding {
    if native && mtu > NATIVE_MTU {
        return Finding::warning(
            "mtu",
            format!("{mtu}: most drivers refuse native XDP above {NATIVE_MTU}"),
            format!("`ip link set {interface} mtu 1500`, or `--plane xdp-generic`"),
        );
    }
    Finding::ok("mtu", mtu.to_string())
}

fn check_lro(interface: &str, on: bool, native: bool) -> Finding {
    if on && native {
        return Finding::warning(
            "lro",
            "on: drivers refuse native XDP, or hand over merged packets with wrong lengths",
            format!("`ethtool -K {interface} lro off`"),
        );
    }
    Finding::ok("lro", if on { "on" } else { "off" })
}

/// What merges packets before generic XDP.
pub fn check_offloads(index: u32) -> Finding {
    let found = match offloads::find(index) {
        Ok(found) => found,
        Err(error) => return Finding::warning("offloads", error.to_string(), "see `ethtool -k`"),
    };
    if found.is_empty() {
        return Finding::ok("offloads", "packets come as they were sent");
    }
    let merging: Vec<_> = found.iter().map(Merging::describe).collect();
    let remedies: Vec<_> = found.iter().filter(|it| it.is_seen()).map(|it| it.remedy("off")).collect();
    Finding::warning(
        "offloads",
        format!(
            "xdp-generic sees packets merged by {}: their counts and lengths are not those of the network",
            merging.join(" and ")
        ),
        match remedies.is_empty() {
            true => "look from a network namespace that can be seen into (--netns)".to_string(),
            false => format!(
                "{}, or `run --offloads off`, which puts them back at the end",
                remedies.join(" and ")
            ),
        },
    )
}

fn check_queues(interface: &str, queues: u32) -> Finding {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    if queues == 1 && cpus > 1 {
        return Finding::note(
            "queues",
            format!("1 receive queue: one of {cpus} CPUs does all the work"),
            format!(
                "`ethtool -L {interface} combined {cpus}` if the hardware has more (`ethtool -l {interface}`)"
            ),
        );
    }
    Finding::ok("queues", format!("{queues} receive queues, {cpus} CPUs"))
}

/// The first error as the error to end with.
pub fn require(findings: &[Finding]) -> Result<()> {
    findings
        .iter()
        .find(|finding| finding.level == Level::Error)
        .map_or(Ok(()), |finding| Err(finding.to_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn whether_a_driver_is_native_has_three_answers() {
        let state = |driver_features| xdp::Interface { driver_features, ..Default::default() };
        assert_eq!(check_native("eth0", &state(XDP_BASIC), "6.18", true).level, Level::Ok);
        assert_eq!(check_native("eth0", &state(0), "6.18", true).level, Level::Error);
        assert_eq!(check_native("eth0", &state(0), "6.18", false).level, Level::Ok);
        assert_eq!(check_native("eth0", &state(0), "5.15", true).level, Level::Warning);
    }

    #[test]
    fn large_frames_and_lro_matter_only_natively() {
        assert_eq!(check_mtu("eth0", 9000, true).level, Level::Warning);
        assert_eq!(check_mtu("eth0", 9000, false).level, Level::Ok);
        assert_eq!(check_lro("eth0", true, true).level, Level::Warning);
        assert_eq!(check_lro("eth0", true, false).level, Level::Ok);
    }
}
