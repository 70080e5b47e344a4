// SPDX-License-Identifier: Apache-2.0
//! Evidence by sender, which a class needs before it counts: `evidence: {by: source, last: 20, within: 10m}`.

use std::fmt;

use serde::Deserialize;

use crate::abi;
use crate::policy::file::from_text;
use crate::policy::words::Number;
use crate::text::nearest::choose;
use crate::text::units::Nanoseconds;

const DEFAULT_LAST: u32 = 20;
const DEFAULT_FLOWS: u32 = 3;
const DEFAULT_PERCENT: u32 = 50;
const DEFAULT_WITHIN: Nanoseconds = Nanoseconds(600_000_000_000);
/// Longer than any evidence is worth, and far from where a time of 32 bits in milliseconds would turn over.
const MAX_WITHIN: Nanoseconds = Nanoseconds(7 * 24 * 3_600_000_000_000);
const MILLISECOND_NS: u64 = 1_000_000;

/// Whose flows are evidence against each other, each with its name in a policy file and the parts of a flow key that it needs.
const KINDS: [(&str, abi::Evidence); 3] =
    [("source", abi::Evidence::Source), ("pair", abi::Evidence::Pair), ("service", abi::Evidence::Service)];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EvidenceFile {
    by: Option<String>,
    #[serde(default, deserialize_with = "from_text")]
    last: Option<Number>,
    #[serde(default, deserialize_with = "from_text")]
    flows: Option<Number>,
    threshold: Option<String>,
    #[serde(default, deserialize_with = "from_text")]
    within: Option<Nanoseconds>,
}

/// A class counts for a flow only while the mean score of its sender's last flows is at least the threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    pub by: abi::Evidence,
    /// Flows that count, 1 to `abi::MAX_LAST`.
    pub last: u32,
    /// Least number of flows that the mean is taken over, 1 to `last`.
    pub flows: u32,
    /// In per cent, 1 to 100.
    pub percent: u32,
    pub within: Nanoseconds,
}

impl Evidence {
    /// The mean score from which on a class counts, 1 to `abi::SCORE_MAX`; a share between two scores takes the higher one.
    pub fn threshold(&self) -> u32 {
        (self.percent * abi::SCORE_MAX).div_ceil(100)
    }

    pub fn to_abi(self) -> abi::EvidenceRule {
        abi::EvidenceRule {
            by: self.by.code(),
            last: self.last,
            flows: self.flows,
            threshold: self.threshold(),
            within_ms: (self.within.0 / MILLISECOND_NS) as u32,
            reserved: 0,
        }
    }

    pub fn by(&self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self.by).map_or("", |(name, _)| name)
    }

    /// What the key of flows lacks for it; `None`: nothing. key : of a feature set, such as `five-tuple+vlan`.
    pub fn lacks(&self, key: &str) -> Option<&'static str> {
        let key = key.split('+').next().unwrap_or(key);
        let whole = key.starts_with("five-tuple");
        match self.by {
            abi::Evidence::Source if whole || key.starts_with("source") => None,
            abi::Evidence::Source => Some("source addresses"),
            abi::Evidence::Pair if whole || key == "source-destination" => None,
            abi::Evidence::Pair => Some("source and destination addresses"),
            abi::Evidence::Service if whole => None,
            abi::Evidence::Service => Some("ports"),
            abi::Evidence::None => None,
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { last, flows, percent, within, .. } = self;
        write!(
            f,
            "{percent} % of the last {last} flows by {}, of {flows} at least, within {within}",
            self.by()
        )
    }
}

/// That of a policy.
pub(super) fn of_policy(file: EvidenceFile) -> Result<Evidence, String> {
    let names = KINDS.map(|(name, _)| name);
    let by = file.by.as_deref().unwrap_or(KINDS[0].0);
    let Some((_, by)) = KINDS.into_iter().find(|(name, _)| *name == by) else {
        return Err(format!("evidence: by: unknown '{by}'; {}", choose(by, &names)));
    };
    let whole =
        |key: &str, given: Option<Number>, without: u32, most: u32| match given.map_or(without, |it| it.0) {
            value if (1..=most).contains(&value) => Ok(value),
            value => Err(format!("evidence: {key}: {value} is out of range; it is 1 to {most}")),
        };
    let last = whole("last", file.last, DEFAULT_LAST, abi::MAX_LAST)?;
    let flows = whole("flows", file.flows, DEFAULT_FLOWS.min(last), last)?;
    let percent = match &file.threshold {
        None => DEFAULT_PERCENT,
        Some(text) => percent(text)?,
    };
    let within = file.within.unwrap_or(DEFAULT_WITHIN);
    if within > MAX_WITHIN || within.0 < MILLISECOND_NS {
        return Err(format!("evidence: within: {within} is out of range; it is 1ms to {MAX_WITHIN}"));
    }
    Ok(Evidence { by, last, flows, percent, within })
}

fn percent(text: &str) -> Result<u32, String> {
    let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok());
    number.filter(|percent| (1..=100).contains(percent)).ok_or_else(|| {
        format!(
            "evidence: threshold: '{text}' is not a share of 1% to 100%; write a whole number, such as 50%"
        )
    })
}
