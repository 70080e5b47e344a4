// SPDX-License-Identifier: Apache-2.0
//! Bans: whom a class has dropped from then on, and for how long.

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;

use crate::abi;
use crate::policy::file::from_text;
use crate::policy::values::Switch;
use crate::policy::words::Number;
use crate::text::nearest::choose;
use crate::text::units::Nanoseconds;

const BY: [&str; 3] = ["source", "source-prefix", "pair"];
/// Of `source-prefix`, where the policy does not say.
const PREFIX4: u8 = 24;
const PREFIX6: u8 = 64;
const MILLISECOND: u64 = 1_000_000;
/// Also what the data path has room for: 2^32 ms are more.
const LONGEST: Nanoseconds = Nanoseconds(30 * 24 * 3_600_000 * MILLISECOND);

/// Who else is banned together with a packet's sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Bits of the sender's address that count.
    pub length4: u8,
    pub length6: u8,
    /// Only what it sends to the same receiver.
    pub pair: bool,
}

/// What a class has done to those who send its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ban {
    pub kind: Kind,
    /// Whole milliseconds.
    pub time: Nanoseconds,
    /// Also those who have not proved that the address is theirs.
    pub spoofable: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BanFile {
    by: Option<String>,
    #[serde(default, rename = "for", deserialize_with = "from_text")]
    time: Option<Nanoseconds>,
    #[serde(default, deserialize_with = "from_text")]
    ipv4: Option<Number>,
    #[serde(default, deserialize_with = "from_text")]
    ipv6: Option<Number>,
    spoofable: Option<Switch>,
}

impl Kind {
    const SOURCE: Self = Self { length4: 32, length6: 128, pair: false };

    /// As a policy file calls it.
    pub fn by(self) -> &'static str {
        match self {
            Self { pair: true, .. } => BY[2],
            Self::SOURCE => BY[0],
            _ => BY[1],
        }
    }

    /// Whether it bans more than addresses that have a bit of `ww_ban_filter` in common.
    fn is_wide(self) -> bool {
        u32::from(self.length4) < abi::BAN_NETWORK4 || u32::from(self.length6) < abi::BAN_NETWORK6
    }

    fn to_abi(self) -> abi::BanKind {
        abi::BanKind { there: 1, length4: self.length4, length6: self.length6, pair: self.pair.into() }
    }
}

impl From<&abi::BanKind> for Kind {
    fn from(kind: &abi::BanKind) -> Self {
        Self { length4: kind.length4, length6: kind.length6, pair: kind.pair != 0 }
    }
}

impl fmt::Display for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind: Kind { length4, length6, .. }, time, spoofable } = self;
        write!(f, "ban {}", self.kind.by())?;
        if self.kind.by() == BY[1] {
            write!(f, " /{length4} and /{length6}")?;
        }
        write!(f, " for {time}{}", if *spoofable { ", spoofable" } else { "" })
    }
}

impl BanFile {
    /// The error names the rule that was broken.
    pub(super) fn read(self) -> Result<Ban, String> {
        let by = self.by.ok_or_else(|| format!("needs `by`: {}", BY.join(", ")))?;
        let time = self.time.ok_or("needs `for`: how long, such as 60s")?;
        if !time.0.is_multiple_of(MILLISECOND) || time > LONGEST {
            return Err(format!("for: {time} is out of range; 1ms to {LONGEST}, in whole milliseconds"));
        }
        let lengths = [("ipv4", self.ipv4, PREFIX4, 32), ("ipv6", self.ipv6, PREFIX6, 128)];
        let kind = match by.as_str() {
            "source-prefix" => {
                let [length4, length6] =
                    lengths.map(|(key, length, default, bits)| match length.map(|Number(length)| length) {
                        None => Ok(default),
                        Some(length) if (1..=bits).contains(&length) => Ok(length as u8),
                        Some(length) => Err(format!("{key}: {length} is out of range; 1 to {bits} bits")),
                    });
                Kind { length4: length4?, length6: length6?, pair: false }
            }
            "source" | "pair" => {
                if let Some((key, ..)) = lengths.iter().find(|(_, length, ..)| length.is_some()) {
                    return Err(format!(
                        "{key} is the length of a prefix, which belongs to `by: source-prefix`, not to '{by}'"
                    ));
                }
                Kind { pair: by == "pair", ..Kind::SOURCE }
            }
            other => return Err(format!("by: unknown choice '{other}'; {}", choose(other, &BY))),
        };
        Ok(Ban { kind, time, spoofable: self.spoofable.unwrap_or_default().0 })
    }
}

/// The kinds of bans of all classes, each once.
fn kinds(bans: &[Option<Ban>]) -> BTreeSet<Kind> {
    bans.iter().flatten().map(|ban| ban.kind).collect()
}

/// Refuses more kinds than packets are looked up by.
pub(super) fn check(bans: &[Option<Ban>]) -> Result<(), String> {
    let (count, most) = (kinds(bans).len(), abi::BAN_KINDS);
    if count <= most {
        return Ok(());
    }
    Err(format!(
        "classes: their bans are of {count} kinds, each looked up for every packet; at most {most}: give some of them the same `by` and lengths"
    ))
}

/// Writes the bans of all classes, by class id.
pub(super) fn write(bans: &[Option<Ban>], act: &mut abi::ActPolicy) {
    let kinds = kinds(bans);
    act.ban.iter_mut().zip(&kinds).for_each(|(element, kind)| *element = kind.to_abi());
    for (steer, ban) in act.steer.iter_mut().zip(bans) {
        let Some(ban) = ban else { continue };
        steer.ban_ms = (ban.time.0 / MILLISECOND) as u32;
        steer.ban_kind = kinds.iter().position(|kind| *kind == ban.kind).unwrap_or_default() as u8;
        steer.spoofable = ban.spoofable.into();
        act.proofs |= u8::from(!ban.spoofable);
        act.wide_bans |= u8::from(ban.kind.is_wide());
    }
}
