// SPDX-License-Identifier: Apache-2.0
//! Quantities as people write and read them: durations (`500ms`), rates (`100/s`), sizes (`16.0 MiB`).

use std::fmt;
use std::str::FromStr;

const UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A length of time, at least 1 ns and below 2^62 ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nanoseconds(pub u64);

impl FromStr for Nanoseconds {
    type Err = String;

    /// Reads a decimal number and a unit. The result must be a whole number of nanoseconds.
    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "'{text}' is not a duration; write a number and a unit (ns, us, ms, s, m, h), such as 500ms"
            )
        };
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(refuse)?;
        let (number, unit) = (trimmed[..split].trim_end(), &trimmed[split..]);
        let (_, scale) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(refuse)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(fraction) {
            return Err(refuse());
        }
        let exact = || {
            let denominator = 10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            let numerator = whole.parse::<u128>().ok()?.checked_mul(denominator)?;
            let scaled = numerator.checked_add(fraction.parse().ok()?)?.checked_mul(u128::from(*scale))?;
            (scaled % denominator == 0).then_some(scaled / denominator)
        };
        match exact() {
            Some(value) if 0 < value && value < 1 << 62 => Ok(Self(value as u64)),
            _ => Err(format!("'{text}' must be a positive whole number of nanoseconds; try 1ms or more")),
        }
    }
}

impl fmt::Display for Nanoseconds {
    /// The shortest exact spelling: 500000000 is `500ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = UNITS.iter().rev().find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale));
        let (name, scale) = exact.unwrap_or(&UNITS[0]);
        f.pad(&format!("{}{name}", self.0 / scale))
    }
}

/// Events a second or minute; 0 is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub count: u64,
    period_ns: u64,
}

impl Rate {
    pub fn per_second(count: u64) -> Self {
        Self { count, period_ns: 1_000_000_000 }
    }

    /// Time one event costs, rounded down to a nanosecond; 0 for the rate 0.
    pub fn interval_ns(self) -> u64 {
        self.period_ns.checked_div(self.count).unwrap_or(0)
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse =
            || format!("'{text}' is not a rate; write packets a second or minute, such as 100/s or 30/m");
        let trimmed = text.trim();
        if trimmed == "0" {
            return Ok(Self::per_second(0));
        }
        let (count, unit) = trimmed.split_once('/').ok_or_else(refuse)?;
        let period_ns = match unit.trim() {
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            _ => return Err(refuse()),
        };
        let count = count.trim();
        if count.is_empty() || !count.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refuse());
        }
        match count.parse::<u64>() {
            Ok(count) if count <= period_ns => Ok(Self { count, period_ns }),
            _ => Err(format!("'{text}' is above the largest rate, 1000000000/s")),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = if self.period_ns == 1_000_000_000 { "s" } else { "m" };
        write!(f, "{}/{unit}", self.count)
    }
}

/// `16.0 MiB`.
pub fn format_bytes(bytes: u64) -> String {
    scaled(bytes as f64, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// `1,234,567`, for counts in tables and messages. JSON has plain numbers.
pub fn thousands(count: impl Into<i128>) -> String {
    let count = count.into();
    let digits = count.unsigned_abs().to_string();
    let mut text = if count < 0 { "-".to_string() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `12.3 k`, for packets a second.
pub fn format_count(count: f64) -> String {
    scaled(count, 1000.0, &["", "k", "M", "G", "T"]).trim_end().to_string()
}

fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    // What would be rounded up to a whole step is one of the next unit.
    while value >= step - if unit == 0 { 0.5 } else { 0.05 } && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} {}", units[0]) } else { format!("{value:.1} {}", units[unit]) }
}

/// `3 h 12 min`, for ages and remaining times: at most two units.
pub fn format_age(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    match seconds {
        0 => format!("{} ms", nanoseconds / 1_000_000),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_and_rates_are_read_as_written() {
        let cases =
            [("500ms", 500_000_000), ("1.5 h", 5_400_000_000_000), (" 10m ", 600_000_000_000), ("1ns", 1)];
        for (text, nanoseconds) in cases {
            assert_eq!(text.parse(), Ok(Nanoseconds(nanoseconds)), "{text}");
        }
        for text in
            ["", "5", "ms", "0s", "-1s", "1.5ns", "1d", "1.s", ".5s", "1e3s", "99999999999999999999999h"]
        {
            assert!(text.parse::<Nanoseconds>().is_err(), "{text}");
        }
        for (text, interval) in
            [("100/s", 10_000_000), ("30/m", 2_000_000_000), ("0", 0), ("0/s", 0), ("3/s", 333_333_333)]
        {
            assert_eq!(text.parse::<Rate>().map(Rate::interval_ns), Ok(interval), "{text}");
        }
        for text in ["", "5", "/s", "-1/s", "1/h", "1.5/s", "1000000001/s", "99999999999999999999/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn thousands_are_set_apart() {
        let cases =
            [(0, "0"), (999, "999"), (1_000, "1,000"), (-1_234_567, "-1,234,567"), (100_000, "100,000")];
        for (count, text) in cases {
            assert_eq!(thousands(count), text);
        }
    }

    #[test]
    fn sizes_and_ages_are_short() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(16 << 20), "16.0 MiB");
        assert_eq!(format_count(999.0), "999");
        assert_eq!(format_count(12_345.0), "12.3 k");
        assert_eq!((format_count(999_949.0), format_count(999_951.0)), ("999.9 k".into(), "1.0 M".into()));
        assert_eq!(format_age(2_500_000), "2 ms");
        assert_eq!(format_age(11_520_000_000_000), "3 h 12 min");
    }

    proptest! {
        #[test]
        fn a_printed_duration_reads_back(ns in 1u64..1 << 62) {
            prop_assert_eq!(Nanoseconds(ns).to_string().parse(), Ok(Nanoseconds(ns)));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<Nanoseconds>();
            let _ = text.parse::<Rate>();
        }
    }
}
