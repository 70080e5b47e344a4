// SPDX-License-Identifier: Apache-2.0
//! What an interface is: index, MTU, driver, offloads, queues. Asked over a socket, not over /sys/class/net, which
//! shows the namespace it was mounted in.

use std::ffi::CStr;
use std::mem;
use std::net::Ipv6Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::error::{Error, Result};
use crate::interface::{rtnetlink, socket};

const ETHTOOL_GDRVINFO: u32 = 0x3;
const ETHTOOL_GFLAGS: u32 = 0x25;
/// Hash fields by type of flow: `struct ethtool_rxnfc`, of which we need the start.
const ETHTOOL_GRXFH: u32 = 0x29;
const RXNFC_WORDS: usize = 64;
const TCP_V4_FLOW: u32 = 1;
/// Hash key: `struct ethtool_rxfh`; behind it the table of queues, then the key.
const ETHTOOL_GRSSH: u32 = 0x46;
const RXFH_WORDS: usize = 6;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_FLAG_LRO: u32 = 1 << 15;
const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// Offset of `driver` in `struct ethtool_drvinfo` (linux/ethtool.h), and its length.
const DRIVER: std::ops::Range<usize> = 4..36;
const DRVINFO_WORDS: usize = 196 / 4;

/// The index of an interface of this network namespace, by its name or by another that it has (altname).
pub fn index(interface: &str) -> Result<u32> {
    let missing = || {
        let known = names().join(", ");
        Error::input(format!("no interface '{interface}'; this network namespace has: {known}"))
    };
    if interface.is_empty() || interface.contains('\0') {
        return Err(missing());
    }
    rtnetlink::link_by_name(interface).map(|link| link.index).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV | libc::EINVAL | libc::ERANGE) => missing(),
        _ => Error::other(format!("cannot ask about '{interface}': {error}")),
    })
}

/// The name that `ip link` shows for an interface that may be given by another; as given if there is none.
pub fn primary_name(interface: &str) -> String {
    let Ok(index) = self::index(interface) else { return interface.to_string() };
    // A name that is not text cannot be written here; then the other one stays.
    let primary = name(index).filter(|name| self::index(name) == Ok(index));
    primary.unwrap_or_else(|| interface.to_string())
}

/// The name that an index has now; `None` if there is no such interface.
pub fn name(index: u32) -> Option<String> {
    let mut buffer = [0 as libc::c_char; libc::IF_NAMESIZE];
    // SAFETY: `buffer` has IF_NAMESIZE bytes, as the call asks for.
    if index == 0 || unsafe { libc::if_indextoname(index, buffer.as_mut_ptr()) }.is_null() {
        return None;
    }
    // SAFETY: the call ended the name with a zero byte.
    Some(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned())
}

/// All interfaces of this network namespace.
pub fn names() -> Vec<String> {
    // SAFETY: the call returns an array ended by an element of index 0, or null; read here, then freed once.
    unsafe {
        let start = libc::if_nameindex();
        if start.is_null() {
            return Vec::new();
        }
        let mut names = Vec::new();
        let mut entry = start;
        while (*entry).if_index != 0 {
            names.push(CStr::from_ptr((*entry).if_name).to_string_lossy().into_owned());
            entry = entry.add(1);
        }
        libc::if_freenameindex(start);
        names
    }
}

/// Header fields that a card hashes: `RXH_*` of linux/ethtool.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashFields(u32);

impl HashFields {
    pub const UNKNOWN: Self = Self(0);
    pub const SOURCE: Self = Self(1 << 4);
    pub const DESTINATION: Self = Self(1 << 5);
    pub const ADDRESSES: Self = Self(Self::SOURCE.0 | Self::DESTINATION.0);
    /// Addresses and ports.
    pub const FOUR: Self = Self(Self::ADDRESSES.0 | 1 << 6 | 1 << 7);
}

/// Then a Toeplitz hash does not tell source and destination apart.
fn repeats_after_two_bytes(key: &[u8]) -> bool {
    key.len() > 2 && key.iter().zip(&key[2..]).all(|(byte, later)| byte == later)
}

/// An address of IPv6 of an interface: one that others can reach, before one of the link.
pub fn ipv6(index: u32) -> Option<Ipv6Addr> {
    const LINK: u8 = 0x20;
    let listed = std::fs::read_to_string("/proc/thread-self/net/if_inet6").ok()?;
    let address = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        let of = u32::from_str_radix(words.next()?, 16).ok()?;
        let scope = u8::from_str_radix(words.nth(1)?, 16).ok()?;
        (of == index && scope <= LINK).then(|| (scope, Ipv6Addr::from(address)))
    };
    listed.lines().filter_map(address).min_by_key(|(scope, _)| *scope).map(|(_, address)| address)
}

/// An interface, for questions. What a driver does not answer is `None`.
#[derive(Debug)]
pub struct Device {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Device {
    pub fn open(interface: &str) -> Result<Self> {
        let primary = name(index(interface)?).unwrap_or_else(|| interface.to_string());
        let socket = socket::open(libc::AF_INET, libc::SOCK_DGRAM, 0)
            .map_err(|error| Error::other(format!("cannot ask about {interface}: {error}")))?;
        let mut name = [0; libc::IFNAMSIZ];
        for (to, from) in name.iter_mut().zip(primary.bytes().take(libc::IFNAMSIZ - 1)) {
            *to = from as libc::c_char;
        }
        Ok(Self { socket, name })
    }

    pub fn is_up(&self) -> Option<bool> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: SIOCGIFFLAGS fills `ifru_flags`.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        Some(i32::from(flags) & libc::IFF_UP != 0)
    }

    pub fn mtu(&self) -> Option<u32> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFMTU as _, &mut request)?;
        // SAFETY: SIOCGIFMTU fills `ifru_mtu`.
        u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
    }

    /// Whether its frames begin with an Ethernet header.
    pub fn is_ethernet(&self) -> Option<bool> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFHWADDR as _, &mut request)?;
        // SAFETY: SIOCGIFHWADDR fills `ifru_hwaddr`.
        let kind = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
        Some([libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&kind))
    }

    /// Its address of Ethernet.
    pub fn address(&self) -> Option<[u8; 6]> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFHWADDR as _, &mut request)?;
        // SAFETY: SIOCGIFHWADDR fills `ifru_hwaddr`.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr.sa_data };
        Some(std::array::from_fn(|byte| address[byte] as u8))
    }

    /// Its first address of IPv4.
    pub fn ipv4(&self) -> Option<[u8; 4]> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFADDR as _, &mut request)?;
        // SAFETY: SIOCGIFADDR fills `ifru_addr`, of a socket of AF_INET with such an address.
        let data = unsafe { request.ifr_ifru.ifru_addr.sa_data };
        // Behind the port.
        Some(std::array::from_fn(|byte| data[2 + byte] as u8))
    }

    pub fn driver(&self) -> Option<String> {
        let mut words = [0u32; DRVINFO_WORDS];
        self.ethtool(ETHTOOL_GDRVINFO, &mut words)?;
        let bytes: &[u8] = bytemuck::cast_slice(&words);
        let name = CStr::from_bytes_until_nul(&bytes[DRIVER]).ok()?;
        Some(name.to_string_lossy().into_owned()).filter(|name| !name.is_empty())
    }

    /// Large receive offload.
    pub fn lro(&self) -> Option<bool> {
        let mut words = [0u32; 2];
        self.ethtool(ETHTOOL_GFLAGS, &mut words)?;
        Some(words[1] & ETH_FLAG_LRO != 0)
    }

    /// Receive queues in use.
    pub fn receive_queues(&self) -> Option<u32> {
        let mut words = [0u32; 9];
        self.ethtool(ETHTOOL_GCHANNELS, &mut words)?;
        let [.., receive, _transmit, _other, combined] = words;
        Some(receive + combined)
    }

    /// Transmit queues in use.
    pub fn transmit_queues(&self) -> Option<u32> {
        let mut words = [0u32; 9];
        self.ethtool(ETHTOOL_GCHANNELS, &mut words)?;
        let [.., transmit, _other, combined] = words;
        Some(transmit + combined)
    }

    /// What the card hashes of TCP over IPv4 to choose a queue.
    pub fn hash_fields(&self) -> Option<HashFields> {
        let mut words = [0u32; RXNFC_WORDS];
        words[1] = TCP_V4_FLOW;
        self.ethtool(ETHTOOL_GRXFH, &mut words)?;
        // A u64, of which the low half has all fields.
        let fields = if cfg!(target_endian = "little") { words[2] } else { words[3] };
        Some(HashFields(fields))
    }

    /// Whether the card's hash is the same for both directions of a connection.
    pub fn hashes_symmetrically(&self) -> Option<bool> {
        let mut head = [0u32; RXFH_WORDS];
        self.ethtool(ETHTOOL_GRSSH, &mut head)?;
        let [_, _, table, key_bytes, ..] = head;
        let mut words = vec![0u32; RXFH_WORDS + table as usize + (key_bytes as usize).div_ceil(4)];
        (words[2], words[3]) = (table, key_bytes);
        self.ethtool(ETHTOOL_GRSSH, &mut words)?;
        let transformed = words[4].to_ne_bytes()[1] != 0;
        let key: &[u8] = bytemuck::cast_slice(&words[RXFH_WORDS + table as usize..]);
        Some(transformed || repeats_after_two_bytes(key.get(..key_bytes as usize)?))
    }

    /// Asks with a structure of ethtool's, whose first word is the command.
    pub fn ethtool(&self, command: u32, words: &mut [u32]) -> Option<()> {
        words[0] = command;
        let mut request = self.request();
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        self.ioctl(SIOCETHTOOL, &mut request)
    }

    fn ioctl(&self, request: libc::c_ulong, argument: &mut libc::ifreq) -> Option<()> {
        // SAFETY: `argument` is the ifreq these requests take. For SIOCETHTOOL its data points to a buffer as long as
        // the command's structure, which outlives the call.
        let code =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), request as _, argument as *mut libc::ifreq) };
        (code >= 0).then_some(())
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: zero is a value of every field of this plain C struct.
        let mut request: libc::ifreq = unsafe { mem::zeroed() };
        request.ifr_name = self.name;
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_repeats_after_two_bytes_is_symmetric() {
        assert!(repeats_after_two_bytes(&[0x6d, 0x5a].repeat(20)));
        assert!(!repeats_after_two_bytes(&[]));
        let mut key = [0x6d, 0x5a].repeat(20);
        key[39] ^= 1;
        assert!(!repeats_after_two_bytes(&key));
    }
}
