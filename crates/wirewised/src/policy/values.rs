// SPDX-License-Identifier: Apache-2.0
//! Values as a policy file writes them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use bytemuck::bytes_of;
use serde::Deserialize;

use crate::abi;
use crate::text::nearest::choose;

/// An IPv4 or IPv6 prefix without host bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Prefix {
    pub address: IpAddr,
    pub length: u8,
}

/// `true` or `false`, and none of the other words that some readers of YAML take for them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Switch(pub bool);

/// A destination or source port, of one protocol or of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Port {
    pub port: u16,
    pub tcp: bool,
    pub udp: bool,
}

/// Number of an IP protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol(pub u8);

const PROTOCOLS: [(&str, u8); 6] =
    [("icmp", 1), ("tcp", 6), ("udp", 17), ("gre", 47), ("icmpv6", 58), ("sctp", 132)];

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Some((_, number)) = PROTOCOLS.iter().find(|(name, _)| *name == text) {
            return Ok(Self(*number));
        }
        text.parse().map(Self).map_err(|_| {
            let names = PROTOCOLS.map(|(name, _)| name);
            format!("'{text}' is not a protocol: 0 to 255, or a name; {}", choose(text, &names))
        })
    }
}

impl Prefix {
    /// The prefix of this length that an address is in; `None`: no address is that long.
    pub fn around(address: IpAddr, length: u8) -> Option<Self> {
        let address = match address {
            IpAddr::V4(v4) if length <= 32 => IpAddr::V4((v4.to_bits() & mask(length, 32) as u32).into()),
            IpAddr::V6(v6) if length <= 128 => IpAddr::V6((v6.to_bits() & mask(length, 128)).into()),
            _ => return None,
        };
        Some(Self { address, length })
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let length = self.length;
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                own.to_bits() == other.to_bits() & mask(length, 32) as u32
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => own.to_bits() == other.to_bits() & mask(length, 128),
            _ => false,
        }
    }

    /// Its key in a table of prefixes.
    pub fn map_key(&self) -> Vec<u8> {
        let length = u32::from(self.length);
        match self.address {
            IpAddr::V4(address) => bytes_of(&abi::Prefix4 { length, address: address.octets() }).to_vec(),
            IpAddr::V6(address) => bytes_of(&abi::Prefix6 { length, address: address.octets() }).to_vec(),
        }
    }
}

impl From<IpAddr> for Prefix {
    /// Of one address.
    fn from(address: IpAddr) -> Self {
        Self { address, length: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.address, self.length))
    }
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let refuse = || format!("'{text}' is not a prefix; write 10.0.0.0/8 or 2001:db8::/32");
        let address: IpAddr = address.parse().map_err(|_| refuse())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = length.map_or(Some(bits), |length| length.parse().ok());
        let prefix = length.and_then(|length| Self::around(address, length)).ok_or_else(refuse)?;
        if prefix.address != address {
            return Err(format!("'{text}' has bits set behind the prefix; did you mean {prefix}?"));
        }
        Ok(prefix)
    }
}

/// `bits` one-bits of which the lowest `bits - length` are cleared.
fn mask(length: u8, bits: u32) -> u128 {
    let all = u128::MAX >> (128 - bits);
    if u32::from(length) == 0 { 0 } else { all & (all << (bits - u32::from(length))) }
}

impl TryFrom<String> for Switch {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        match text.as_str() {
            "true" => Ok(Self(true)),
            "false" => Ok(Self(false)),
            _ => Err(format!("'{text}' is neither true nor false")),
        }
    }
}

impl TryFrom<String> for Port {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let (protocol, number) = text.split_once('/').unwrap_or(("", &text));
        let (tcp, udp) = match protocol {
            "" if !text.contains('/') => (true, true),
            "tcp" => (true, false),
            "udp" => (false, true),
            _ => return Err(format!("'{text}' is not a port; write 22 (TCP and UDP), tcp/22 or udp/53")),
        };
        match number.parse() {
            Ok(port) if number.bytes().all(|byte| byte.is_ascii_digit()) => Ok(Self { port, tcp, udp }),
            _ => Err(format!("'{text}' is not a port; ports are 0 to 65535, such as 22, tcp/179, udp/53")),
        }
    }
}
