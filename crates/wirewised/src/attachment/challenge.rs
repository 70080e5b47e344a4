// SPDX-License-Identifier: Apache-2.0
//! What a challenge needs of the kernel, and of this network namespace.

use std::fs;

use crate::abi;
use crate::attachment::doctor::finding::{Finding, Level};
use crate::attachment::way_out::Judged;
use crate::error::{Error, Result};
use crate::interface::netdev::Device;
use crate::interface::rtnetlink;
use crate::kernel;
use crate::policy::Policy;
use crate::policy::act::Guarded;

pub const CHECK: &str = "challenge";
const COOKIES: &str = "/proc/sys/net/ipv4/tcp_syncookies";
/// The helpers that make and check cookies without a socket, all of the same kernel: `bpf_tcp_raw_*`.
const HELPERS: [u32; 4] = [
    libbpf_sys::BPF_FUNC_tcp_raw_gen_syncookie_ipv4,
    libbpf_sys::BPF_FUNC_tcp_raw_gen_syncookie_ipv6,
    libbpf_sys::BPF_FUNC_tcp_raw_check_syncookie_ipv4,
    libbpf_sys::BPF_FUNC_tcp_raw_check_syncookie_ipv6,
];

/// Looks up what SYNs have to be addressed to, and what they must not be.
pub fn admit(policy: &mut Policy, judged: &Judged<'_>) -> Result<Vec<Finding>> {
    if policy.steering_kinds() & abi::STEER_CHALLENGE == 0 {
        return Ok(Vec::new());
    }
    let interface = judged.interface;
    let address = Device::open(interface)?.address();
    let address =
        address.ok_or_else(|| Error::other(format!("{interface}: cannot ask for its Ethernet address")))?;
    let known = rtnetlink::broadcasts()
        .map_err(|error| Error::other(format!("cannot list the addresses of this host: {error}")))?;
    let mut broadcast = [[0; 4]; abi::BROADCASTS];
    broadcast.iter_mut().zip(known).for_each(|(place, address)| *place = address.octets());
    policy.challenging_mut().for_each(|challenge| challenge.guarded = Guarded { address, broadcast });
    Ok(vec![check()])
}

/// Whether who answers a challenge gets a connection. Of listeners in the network namespace of this thread.
pub fn check() -> Finding {
    let kernel = check_kernel(has_helper, &kernel::release());
    if kernel.level > Level::Ok { kernel } else { check_cookies(fs::read_to_string(COOKIES).ok().as_deref()) }
}

/// `None`: the kernel cannot be asked.
fn has_helper(helper: u32) -> Option<bool> {
    // SAFETY: takes two numbers; no options are given.
    let said = unsafe {
        libbpf_sys::libbpf_probe_bpf_helper(libbpf_sys::BPF_PROG_TYPE_XDP, helper, std::ptr::null())
    };
    (said >= 0).then_some(said > 0)
}

fn check_kernel(has_helper: impl Fn(u32) -> Option<bool>, release: &str) -> Finding {
    if HELPERS.into_iter().any(|helper| has_helper(helper) == Some(false)) {
        return Finding::error(
            CHECK,
            format!(
                "Linux {release} lacks bpf_tcp_raw_gen_syncookie and bpf_tcp_raw_check_syncookie, which a challenge needs"
            ),
            "they came with Linux 6.0; give the class `drop` or `rate-limit`",
        );
    }
    Finding::ok(CHECK, "the kernel makes and checks cookies")
}

/// said : the sysctl's value.
fn check_cookies(said: Option<&str>) -> Finding {
    match said.map(str::trim) {
        Some("2") => Finding::ok(CHECK, "listeners take cookies (tcp_syncookies is 2)"),
        Some(other) => Finding::error(
            CHECK,
            format!(
                "net.ipv4.tcp_syncookies is {other} in this network namespace: a listener takes the cookies of a challenge where it is 2"
            ),
            "`sysctl -w net.ipv4.tcp_syncookies=2`",
        ),
        None => Finding::warning(
            CHECK,
            format!("{COOKIES} cannot be read: where it is not 2, all packets pass unchallenged"),
            "`sysctl net.ipv4.tcp_syncookies` in this network namespace",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_cookies_is_refused_with_the_reason() {
        let old = check_kernel(|helper| Some(helper < 204), "5.19.0");
        assert_eq!(old.level, Level::Error);
        let said = old.to_error();
        assert_eq!(said.kind().exit_code(), 3);
        assert!(said.to_string().contains("Linux 5.19.0 lacks bpf_tcp_raw_gen_syncookie"), "{said}");
        assert!(said.to_string().contains("came with Linux 6.0"), "{said}");
        for said in [Some(true), None] {
            assert_eq!(check_kernel(|_| said, "6.1").level, Level::Ok);
        }
    }

    #[test]
    fn listeners_have_to_take_cookies() {
        let level = |said| check_cookies(said).level;
        assert_eq!([Some("2\n"), None].map(level), [Level::Ok, Level::Warning]);
        assert_eq!([Some("1\n"), Some("0\n")].map(level), [Level::Error; 2]);
        assert!(check_cookies(Some("1\n")).to_error().to_string().contains("`sysctl -w"));
    }
}
