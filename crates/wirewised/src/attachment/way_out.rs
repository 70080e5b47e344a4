// SPDX-License-Identifier: Apache-2.0
//! What an interface is to packets that a policy sends by it, and the one whose packets are judged.

use crate::attachment::doctor::finding::Finding;
use crate::interface::netdev::{self, Device};
use crate::kernel;
use crate::plane::{self, Driver, Plane};
use crate::text::shell::quoted;

/// `NETDEV_XDP_ACT_NDO_XMIT` (linux/netdev.h): the driver sends what programs at XDP redirect to it.
const XDP_SENDS: u64 = 4;
/// The first kernel that says which XDP features a driver has.
const TELLS_DRIVER_FEATURES: (u32, u32) = (6, 3);
pub const CHECK: &str = "redirect";

/// The interface whose packets the policy is for.
pub struct Judged<'a> {
    pub interface: &'a str,
    /// Its index; 0: a device unknown to the kernel.
    pub own: u32,
    pub planes: &'a [Plane],
}

impl Judged<'_> {
    /// Whether a plane is native XDP, where drivers send frames without a socket buffer.
    pub fn is_native(&self) -> bool {
        self.planes.iter().any(|plane| plane.is_in_driver())
    }
}

/// What an interface is to packets that are redirected to it.
pub fn check_target(name: &str, index: u32, planes: &[Plane]) -> Vec<Finding> {
    let Ok(device) = Device::open(name) else {
        return vec![Finding::warning(CHECK, format!("{name} cannot be asked"), "see `ip link`")];
    };
    let mut findings = Vec::new();
    if device.is_up() == Some(false) {
        findings.push(Finding::warning(
            CHECK,
            format!("{name} is down: packets that go there are lost"),
            format!("`ip link set {} up`", quoted(name)),
        ));
    }
    if planes.iter().any(|plane| plane.is_in_driver()) {
        let driver = plane::driver(index).unwrap_or_default();
        findings.extend(check_sends(name, &device, driver, &kernel::release()));
    }
    findings
}

/// Whether a driver sends what XDP gives it; `None`: the kernel does not say.
pub fn sends(driver: Driver, release: &str) -> Option<bool> {
    let tells = kernel::version_of(release).is_some_and(|version| version >= TELLS_DRIVER_FEATURES);
    let sends = driver.features & XDP_SENDS != 0;
    (tells || sends).then_some(sends)
}

/// What an interface is natively to packets that leave by it.
pub fn check_way(name: &str) -> Option<Finding> {
    let driver = plane::driver(netdev::index(name).ok()?).unwrap_or_default();
    check_sends(name, &Device::open(name).ok()?, driver, &kernel::release())
}

/// Natively, a driver gets packets that it has to send without a socket buffer.
pub fn check_sends(name: &str, device: &Device, driver: Driver, release: &str) -> Option<Finding> {
    match sends(driver, release) {
        Some(true) => return None,
        Some(false) => {}
        None => {
            return Some(Finding::warning(
                CHECK,
                format!("kernels before 6.3 do not say whether {name} sends what XDP gives it"),
                "see whether it arrives; `--plane tc-ingress` sends by every interface",
            ));
        }
    }
    let way = if device.driver().as_deref() == Some("veth") {
        "of a veth pair the other end must have an XDP program, whichever"
    } else {
        "its driver cannot, or only with a program of XDP on it"
    };
    Some(Finding::error(
        CHECK,
        format!("{name} would drop all that XDP sends by it: {way}"),
        "`--plane xdp-generic` and `--plane tc-ingress` send by every interface",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::doctor::finding::Level;

    #[test]
    fn a_driver_that_does_not_send_is_told_from_a_kernel_that_does_not_say() {
        let device = Device::open("lo").unwrap();
        let level = |features, release| {
            let driver = Driver { features, ..Driver::default() };
            check_sends("lo", &device, driver, release).map(|finding| finding.level)
        };
        assert_eq!(level(XDP_SENDS, "6.18"), None);
        assert_eq!(level(1, "6.18"), Some(Level::Error));
        assert_eq!(level(0, "6.1.0"), Some(Level::Warning));
    }
}
