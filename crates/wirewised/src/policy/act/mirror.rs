// SPDX-License-Identifier: Apache-2.0
//! A copy of some packets goes to another interface.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Act, ActionMap, Does, Pool};
use crate::abi;
use crate::policy::file::from_text;
use crate::policy::words::{Number, Target};

/// An Ethernet header.
const MIN_SNAP: u32 = 14;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    interface: Option<String>,
    #[serde(default, deserialize_with = "from_text")]
    rate: Option<Sampling>,
    #[serde(default, deserialize_with = "from_text")]
    snap: Option<Number>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    pub target: Target,
    rate: Sampling,
    /// Bytes of each; `None`: all of it.
    pub snap: Option<u32>,
}

/// One packet in so many, at random: `1/100`; 1 and more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sampling {
    every: u32,
}

impl Act for Mirror {
    const DOES: Does = Does::Copies;
    const KIND: u32 = abi::STEER_MIRROR;
    const NAME: &'static str = "mirror";

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        let Some(file) = &file.mirror else { return Ok(None) };
        let snap = file.snap.map(|Number(snap)| snap);
        if let Some(snap) = snap.filter(|snap| *snap < MIN_SNAP) {
            return Err(format!("mirror: snap {snap} is less than {MIN_SNAP}, an Ethernet header"));
        }
        let target = Target::read("mirror", file.interface.as_ref())?;
        Ok(Some(Self { target, rate: file.rate.unwrap_or(Sampling { every: 1 }), snap }))
    }

    fn write(&self, steer: &mut abi::Steer) {
        steer.mirror_ifindex = self.target.ifindex;
        steer.mirror_every = self.rate.every;
        steer.mirror_snap = self.snap.unwrap_or(0);
    }

    fn value(&self) -> Value {
        json!({ "interface": self.target.interface, "every": self.rate.every, "snap": self.snap })
    }

    fn text(&self) -> String {
        let snap = self.snap.map_or(String::new(), |snap| format!(", {snap} bytes of each"));
        format!("mirror {} to {}{snap}", self.rate, self.target.interface)
    }
}

impl FromStr for Sampling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let every = if text == "1" { Some("1") } else { text.strip_prefix("1/") };
        let every = every.and_then(|every| every.parse::<Number>().ok()).filter(|every| every.0 > 0);
        every
            .map(|every| Self { every: every.0 })
            .ok_or_else(|| format!("'{text}' is no part of all packets, such as 1 or 1/100"))
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.every == 1 { f.write_str("1") } else { write!(f, "1/{}", self.every) }
    }
}
