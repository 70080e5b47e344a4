// SPDX-License-Identifier: Apache-2.0
//! A class whose packets are sent on, as a router does, or between ports as a switch does.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Act, ActionMap, Does, Pool, Steering};
use crate::abi;
use crate::policy::words::Target;

/// More would be a network that should learn.
const MOST_FIXED: usize = 512;
const MOST_PORTS: usize = 64;
const ELSEWHERE: &str = "a packet goes either between ports, or elsewhere: give forward without redirect, bounce or `action: forward`";
const FORMS: &str = "forward needs two ports or more: {forward: {ports: [eth1, eth2]}}; `action: forward` goes by the kernel's routes";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    ports: Option<Vec<String>>,
    #[serde(rename = "static")]
    fixed: Option<BTreeMap<String, String>>,
}

/// What is looked up for it where the policy is to hold is empty until then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Forward {
    /// Of Ethernet: that of the interface whose packets are judged. Frames for others are not a router's.
    pub address: EthernetAddress,
    /// Interfaces that packets may leave by at XDP, by index; by others the stack sends them.
    pub ways: Vec<u32>,
    /// `None`: by the kernel's routes.
    pub bridge: Option<Bridge>,
}

/// Ports between which frames go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    pub ports: Vec<Target>,
    /// Stations that are behind a port whatever is seen of them: that port's place in `ports`.
    pub fixed: BTreeMap<EthernetAddress, usize>,
    /// This host's own addresses at the ports, to be looked up.
    pub own: Vec<EthernetAddress>,
}

impl Act for Forward {
    const DOES: Does = Does::Sends;
    const KIND: u32 = abi::STEER_FORWARD;
    const NAME: &'static str = "forward";
    const IS_WORD: bool = true;

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        let bridge = file.forward.as_ref().map(Bridge::parse).transpose()?;
        match (bridge, Self::is_named(file)) {
            (Some(_), true) => Err(ELSEWHERE.to_string()),
            (None, false) => Ok(None),
            (bridge, _) => Ok(Some(Self { bridge, ..Self::default() })),
        }
    }

    fn check(&self, class: &Steering) -> Result<(), String> {
        match (&self.bridge, &class.redirect, &class.bounce) {
            (Some(_), Some(_), _) | (Some(_), _, Some(_)) => Err(ELSEWHERE.to_string()),
            (None, Some(_), _) => Err(
                "a packet goes either where the routes say or to one interface: give the action forward or redirect"
                    .to_string(),
            ),
            _ => Ok(()),
        }
    }

    fn kinds(&self) -> u32 {
        Self::KIND | if self.bridge.is_some() { abi::STEER_BRIDGE } else { 0 }
    }

    fn write(&self, steer: &mut abi::Steer) {
        steer.address = self.address.0;
        if let Some(bridge) = &self.bridge {
            steer.ifindex = bridge.id();
        }
    }

    fn normal(act: Option<&Self>) -> Vec<(&'static str, Value)> {
        let bridge = act.and_then(|act| act.bridge.as_ref());
        let ports: Vec<_> =
            bridge.iter().flat_map(|it| &it.ports).map(|port| port.interface.as_str()).collect();
        vec![(Self::NAME, json!(act.is_some())), ("ports", json!(ports))]
    }

    fn text(&self) -> String {
        let Some(bridge) = &self.bridge else { return Self::NAME.to_string() };
        let names: Vec<_> = bridge.ports.iter().map(|port| port.interface.as_str()).collect();
        format!("forward between {}", names.join(", "))
    }
}

impl Bridge {
    fn parse(file: &File) -> Result<Self, String> {
        let names = file.ports.as_deref().unwrap_or_default();
        if !(2..=MOST_PORTS).contains(&names.len()) || names.iter().any(|name| !is_name(name)) {
            return Err(FORMS.to_string());
        }
        if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
            return Err(format!("forward: port '{}' stands twice", twice.1));
        }
        let mut fixed = BTreeMap::new();
        for (station, port) in file.fixed.iter().flatten() {
            let address = station.parse().map_err(|message| format!("forward: static: {message}"))?;
            let at = names.iter().position(|name| name == port).ok_or_else(|| {
                format!("forward: static: '{port}' is none of the ports {}", names.join(", "))
            })?;
            fixed.insert(address, at);
        }
        if fixed.len() > MOST_FIXED {
            return Err(format!(
                "forward: static: more than {MOST_FIXED} stations; leave out those that can be learned"
            ));
        }
        let port = |name: &String| Target { interface: name.clone(), ifindex: 0 };
        Ok(Self { ports: names.iter().map(port).collect(), fixed, own: Vec::new() })
    }

    /// What tells its stations from those of other ports.
    pub fn id(&self) -> u32 {
        self.ports.iter().map(|port| port.ifindex).min().unwrap_or(0)
    }

    /// Stations whose port is certain, by index; of this host: 0.
    pub fn stations(&self) -> impl Iterator<Item = (EthernetAddress, u32)> {
        let fixed = self.fixed.iter().map(|(address, at)| (*address, self.ports[*at].ifindex));
        fixed.chain(self.own.iter().map(|address| (*address, 0)))
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0'])
}

/// Of Ethernet, as it stands in a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EthernetAddress(pub [u8; 6]);

impl FromStr for EthernetAddress {
    type Err = String;

    /// Of one station: none of a group, and not all zero.
    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("'{text}' is no Ethernet address of a station, such as 02:00:00:00:00:07");
        let mut address = [0; 6];
        let mut words = text.split(':');
        for byte in &mut address {
            let word = words
                .next()
                .filter(|word| word.len() == 2 && word.bytes().all(|digit| digit.is_ascii_hexdigit()));
            *byte = u8::from_str_radix(word.ok_or_else(refuse)?, 16).map_err(|_| refuse())?;
        }
        let is_station = address[0] & 1 == 0 && address != [0; 6];
        if words.next().is_none() && is_station { Ok(Self(address)) } else { Err(refuse()) }
    }
}
