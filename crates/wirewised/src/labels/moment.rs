// SPDX-License-Identifier: Apache-2.0
//! Moments in label rules: a time since the capture's first packet, or a date.

use std::str::FromStr;
use std::time::UNIX_EPOCH;

use crate::text::units::Nanoseconds;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    SinceFirstPacket(u64),
    /// ns since 1970.
    Date(u64),
}

impl Moment {
    pub fn at(self, first_ns: u64) -> u64 {
        match self {
            Self::SinceFirstPacket(ns) => first_ns.saturating_add(ns),
            Self::Date(ns) => ns,
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text == "0" {
            return Ok(Self::SinceFirstPacket(0));
        }
        if let Ok(Nanoseconds(ns)) = text.parse() {
            return Ok(Self::SinceFirstPacket(ns));
        }
        let date = humantime::parse_rfc3339_weak(text).ok();
        let since = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        let ns = since.and_then(|since| u64::try_from(since.as_nanos()).ok());
        ns.map(Self::Date).ok_or_else(|| {
            format!(
                "'{text}' is no time; write a duration since the capture's first packet (90s), or a date in UTC \
                 (2026-03-01T12:00:00Z)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_count_from_the_first_packet_and_dates_do_not() {
        for (text, expected) in [
            ("0", 1000),
            ("2s", 2_000_001_000),
            ("1970-01-01T00:00:03Z", 3_000_000_000),
            ("1970-01-01 00:01:00.5", 60_500_000_000),
        ] {
            assert_eq!(text.parse::<Moment>().map(|moment| moment.at(1000)), Ok(expected), "{text}");
        }
        for text in ["", "5", "yesterday", "1960-01-01T00:00:00Z", "2026-13-01T00:00:00Z"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
