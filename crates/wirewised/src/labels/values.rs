// SPDX-License-Identifier: Apache-2.0
//! The values of conditions, as people write them.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::packets::outer::{self, Address};
use crate::policy::Prefix;

/// TCP flags from the lowest bit: FIN, SYN, RST, PSH, ACK, URG, ECE, CWR.
const FLAG_LETTERS: &str = "FSRPAUEC";
const PROTOCOLS: [(&str, u8); 6] =
    [("tcp", 6), ("udp", 17), ("icmp", 1), ("icmpv6", 58), ("sctp", 132), ("gre", 47)];

/// A value given as a number or as text.
#[derive(Debug, Clone, Copy)]
pub struct Scalar<T>(pub T);

/// One value, or a list of them.
#[derive(Debug, Clone)]
pub struct OneOrMore<T>(pub Vec<T>);

struct ScalarVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err = String>> Visitor<'_> for ScalarVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for Scalar<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScalarVisitor(PhantomData)).map(Self)
    }
}

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Values<T>(PhantomData<T>);

        impl<'de, T: FromStr<Err = String>> Visitor<'de> for Values<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value or a list of values")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<T>, E> {
                ScalarVisitor(PhantomData).visit_str(text).map(|value| vec![value])
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Vec<T>, E> {
                ScalarVisitor(PhantomData).visit_u64(number).map(|value| vec![value])
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Vec<T>, E> {
                ScalarVisitor(PhantomData).visit_i64(number).map(|value| vec![value])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
                let mut values = Vec::new();
                while let Some(Scalar(value)) = list.next_element()? {
                    values.push(value);
                }
                Ok(values)
            }
        }

        deserializer.deserialize_any(Values(PhantomData)).map(Self)
    }
}

/// `true`, the only value of a condition that is there or not.
#[derive(Debug, Clone, Copy)]
pub struct True;

impl<'de> Deserialize<'de> for True {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match bool::deserialize(deserializer)? {
            true => Ok(Self),
            false => Err(D::Error::custom("must be true, or be left out")),
        }
    }
}

/// An address or prefix, ready to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    version: u8,
    value: u128,
    mask: u128,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let prefix = Prefix::try_from(text.to_owned())?;
        let version = if prefix.address.is_ipv4() { 4 } else { 6 };
        let value = outer::address(prefix.address);
        let mask = u128::MAX.checked_shl(128 - u32::from(prefix.length)).unwrap_or(0);
        Ok(Self { version, value, mask })
    }
}

impl Network {
    pub fn contains(&self, version: u8, address: Address) -> bool {
        self.version == version && address & self.mask == self.value
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    low: u16,
    high: u16,
}

impl Ports {
    pub fn contains(self, port: u16) -> bool {
        (self.low..=self.high).contains(&port)
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?;
        match (number(low), number(high)) {
            (Some(low), Some(high)) if low <= high => Ok(Self { low, high }),
            _ => Err(format!("'{text}' is no port (0 to 65535) or range of ports (1000-2000)")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags(pub u8);

impl FromStr for Flags {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse =
            || format!("'{text}' is no set of TCP flags; write letters of {FLAG_LETTERS}, such as SA");
        let mut flags = 0u8;
        for letter in text.chars() {
            let bit = 1 << FLAG_LETTERS.find(letter.to_ascii_uppercase()).ok_or_else(refuse)?;
            if flags & bit != 0 {
                return Err(refuse());
            }
            flags |= bit;
        }
        if flags == 0 { Err(refuse()) } else { Ok(Self(flags)) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol(pub u8);

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = PROTOCOLS.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
        let number = known.map(|(_, number)| *number).or_else(|| text.parse().ok());
        number.map(Self).ok_or_else(|| {
            let names = PROTOCOLS.map(|(name, _)| name).join(", ");
            format!("'{text}' is no protocol; write {names} or a number up to 255")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_written() {
        assert_eq!("sa".parse(), Ok(Flags(0x12)));
        assert_eq!("UDP".parse(), Ok(Protocol(17)));
        assert!("1000-2000".parse::<Ports>().is_ok_and(|ports| ports.contains(2000) && !ports.contains(999)));
        for text in ["", "SS", "X"] {
            assert!(text.parse::<Flags>().is_err(), "{text}");
        }
        for text in ["", "-1", "70000", "9-8", "a", "1-", "+5"] {
            assert!(text.parse::<Ports>().is_err(), "{text}");
        }
        assert!("256".parse::<Protocol>().is_err());
    }

    #[test]
    fn networks_hold_their_addresses_of_their_version() {
        let v4 = |text: &str| outer::address(text.parse().unwrap());
        let network: Network = "10.1.0.0/16".parse().unwrap();
        assert!(network.contains(4, v4("10.1.255.1")) && !network.contains(4, v4("10.2.0.1")));
        assert!(!network.contains(6, v4("10.1.255.1")));
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains(4, v4("1.2.3.4")));
        assert!("2001:db8::1".parse::<Network>().unwrap().contains(6, v4("2001:db8::1")));
        assert!("10.0.0.1/8".parse::<Network>().unwrap_err().contains("10.0.0.0/8"));
    }
}
