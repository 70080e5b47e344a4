// SPDX-License-Identifier: Apache-2.0
//! Words of a policy file by which a class is steered: interfaces, DSCPs and numbers.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::text::nearest::choose;

const MAX_DSCP: u32 = 63;

/// Names of DSCPs: RFC 2474, 2597, 3246, 5865, 8622.
const NAMES: [(&str, u8); 24] = [
    ("DF", 0),
    ("CS0", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VA", 44),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

/// An interface to which packets go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub interface: String,
    /// In the network namespace where the policy is to hold; 0: nobody has looked.
    pub ifindex: u32,
}

impl Target {
    /// key : that names it, for errors.
    pub fn read(key: &str, name: Option<&String>) -> Result<Self, String> {
        match name {
            Some(name) if !name.is_empty() && !name.contains(['/', '\0']) => {
                Ok(Self { interface: name.clone(), ifindex: 0 })
            }
            _ => Err(format!("{key} needs an interface: {{{key}: {{interface: eth2}}}}")),
        }
    }
}

/// The value of an optional key: a scalar, read by its type's `FromStr`.
#[derive(Debug, Clone, Copy)]
pub struct Text<T>(pub Option<T>);

impl<T> Default for Text<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map(|it| Self(Some(it))).map_err(D::Error::custom)
    }
}

/// A differentiated services code point, 0 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dscp(pub u8);

impl FromStr for Dscp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, value)) = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Ok(Self(*value));
        }
        match text.parse::<Number>() {
            Ok(Number(value)) if value <= MAX_DSCP => Ok(Self(value as u8)),
            Ok(_) => {
                Err(format!("dscp {text} is out of range; 0 to {MAX_DSCP}, or a name such as AF41 or EF"))
            }
            Err(_) => {
                let names = NAMES.map(|(name, _)| name);
                Err(format!("'{text}' is no DSCP: 0 to {MAX_DSCP}, or a name; {}", choose(text, &names)))
            }
        }
    }
}

impl fmt::Display for Dscp {
    /// Its name, if it has one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().rfind(|(_, value)| *value == self.0) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

/// A whole number below 2^32, decimal or hexadecimal (`0x10`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number(pub u32);

impl FromStr for Number {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, base) = text.strip_prefix("0x").map_or((text, 10), |digits| (digits, 16));
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u32::from_str_radix(digits, base).ok().filter(|_| plain);
        value
            .map(Self)
            .ok_or_else(|| format!("'{text}' is no whole number from 0 to {}, such as 7 or 0x10", u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dscp_has_a_name_or_a_number() {
        for (text, value, shown) in
            [("AF41", 34, "AF41"), ("ef", 46, "EF"), ("0x2e", 46, "EF"), ("63", 63, "63"), ("DF", 0, "CS0")]
        {
            let dscp: Dscp = text.parse().unwrap();
            assert_eq!((dscp.0, dscp.to_string().as_str()), (value, shown), "{text}");
        }
        assert!("AF44".parse::<Dscp>().unwrap_err().contains("did you mean 'AF4"));
        assert!("64".parse::<Dscp>().unwrap_err().contains("0 to 63"));
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        assert_eq!("4294967295".parse(), Ok(Number(u32::MAX)));
        assert_eq!("0xff".parse(), Ok(Number(255)));
        for text in ["", "0x", "+1", "-1", "4294967296", "1e3", "0x+1"] {
            assert!(text.parse::<Number>().is_err(), "{text}");
        }
    }
}
