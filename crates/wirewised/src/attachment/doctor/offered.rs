// SPDX-License-Identifier: Apache-2.0
//! What kernel, driver and process offer for a plane.

use crate::attachment::doctor::finding::Finding;
use crate::kernel;
use crate::object::Runs;
use crate::plane::{Driver, Plane, tc};

/// The first kernel that says which XDP features a driver has.
const TELLS_DRIVER_FEATURES: (u32, u32) = (6, 3);
/// `NETDEV_XDP_ACT_BASIC` (linux/netdev.h).
const XDP_BASIC: u64 = 1;

pub fn check(interface: &str, index: u32, plane: Plane, driver: Driver) -> Vec<Finding> {
    let (release, native) = (kernel::release(), plane.abilities().native);
    let mut findings = match plane.runs() {
        _ if plane.is_of_tc() => vec![check_tc(index)],
        Runs::InUserSpace if !native => Vec::new(),
        _ => vec![check_native(interface, driver, &release, native)],
    };
    if plane.is_in_user_space() {
        findings.push(check_raw_sockets(plane));
    }
    findings
}

fn check_native(interface: &str, driver: Driver, release: &str, wanted: bool) -> Finding {
    let tells = kernel::version_of(release).is_some_and(|version| version >= TELLS_DRIVER_FEATURES);
    if driver.features & XDP_BASIC != 0 {
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

fn check_raw_sockets(plane: Plane) -> Finding {
    if kernel::may_open_raw_sockets() {
        return Finding::ok("CAP_NET_RAW", format!("held ({plane} receives packets)"));
    }
    Finding::error(
        "CAP_NET_RAW",
        format!("CAP_NET_RAW is missing ({plane} receives packets)"),
        "run as root, or add cap_net_raw to the capabilities of the program",
    )
}

/// By what a program is attached at TC.
pub fn check_tc(index: u32) -> Finding {
    if tc::is_there(index) {
        return Finding::ok("tc", "the kernel has tcx links");
    }
    Finding::ok("tc", format!("no tcx links before Linux {}: a filter of clsact", tc::SINCE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::doctor::finding::Level;

    #[test]
    fn whether_a_driver_is_native_has_three_answers() {
        let driver = |features| Driver { features, ..Default::default() };
        assert_eq!(check_native("eth0", driver(XDP_BASIC), "6.18", true).level, Level::Ok);
        assert_eq!(check_native("eth0", driver(0), "6.18", true).level, Level::Error);
        assert_eq!(check_native("eth0", driver(0), "6.18", false).level, Level::Ok);
        assert_eq!(check_native("eth0", driver(0), "5.15", true).level, Level::Warning);
    }
}
