// SPDX-License-Identifier: Apache-2.0
//! Devices as DPDK's options name them: a name, and arguments behind commas.

/// The name in a device string.
pub fn name_of(device: &str) -> &str {
    device.split(',').next().unwrap_or(device)
}

/// The value of an argument in a device string.
pub fn argument<'a>(device: &'a str, name: &str) -> Option<&'a str> {
    let mut parts = device.split(',').skip(1);
    parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

/// `01:00.0` or `0000:01:00.0`.
pub fn is_pci(name: &str) -> bool {
    name.contains(':') && name.bytes().all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte))
}
