// SPDX-License-Identifier: Apache-2.0
//! Packets go to another interface, up the stack of other CPUs, or to the socket of a receive queue.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Act, ActionMap, Does, Pool};
use crate::abi;
use crate::policy::file::from_text;
use crate::policy::words::{Number, Target};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    interface: Option<String>,
    cpu: Option<OneOrMore>,
    #[serde(default, deserialize_with = "from_text")]
    socket: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(u32),
    More(Vec<u32>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redirect {
    Interface(Target),
    /// One of them, by the flow; at least one.
    Cpus(Vec<u32>),
    /// The socket of this receive queue.
    Socket(u32),
}

impl Redirect {
    pub fn interface_mut(&mut self) -> Option<&mut Target> {
        if let Self::Interface(target) = self { Some(target) } else { None }
    }

    pub fn cpus(&self) -> &[u32] {
        if let Self::Cpus(cpus) = self { cpus } else { &[] }
    }
}

impl Act for Redirect {
    const DOES: Does = Does::Sends;
    const KIND: u32 = abi::STEER_REDIRECT;
    const NAME: &'static str = "redirect";

    fn read(file: &ActionMap, _: &[Pool]) -> Result<Option<Self>, String> {
        let Some(file) = &file.redirect else { return Ok(None) };
        let redirect = match (&file.interface, &file.cpu, file.socket) {
            (None, Some(wanted), None) => Self::Cpus(cpus(wanted)?),
            (None, None, Some(Number(queue))) if queue < abi::SOCKETS => Self::Socket(queue),
            (None, None, Some(Number(queue))) => {
                return Err(format!(
                    "redirect: socket: queue {queue} is out of range; 0 to {}",
                    abi::SOCKETS - 1
                ));
            }
            (name, None, None) => Self::Interface(Target::read("redirect", name.as_ref())?),
            _ => return Err("redirect goes to one of interface, cpu and socket".to_string()),
        };
        Ok(Some(redirect))
    }

    fn kinds(&self) -> u32 {
        match self {
            Self::Interface(_) => Self::KIND,
            Self::Cpus(_) => abi::STEER_CPU,
            Self::Socket(_) => abi::STEER_SOCKET,
        }
    }

    fn write(&self, steer: &mut abi::Steer) {
        match self {
            Self::Interface(target) => steer.ifindex = target.ifindex,
            Self::Cpus(cpus) => {
                steer.cpus = cpus.len() as u8;
                steer.cpu.iter_mut().zip(cpus).for_each(|(place, cpu)| *place = *cpu as u16);
            }
            Self::Socket(queue) => steer.socket = *queue,
        }
    }

    fn destination(&self) -> Option<String> {
        match self {
            Self::Interface(target) => Some(format!("to-{}", target.interface)),
            Self::Cpus(_) => None,
            Self::Socket(queue) => Some(format!("to-socket-{queue}")),
        }
    }

    fn normal(act: Option<&Self>) -> Vec<(&'static str, Value)> {
        let (mut interface, mut cpus, mut socket) = (json!(null), json!([]), json!(null));
        match act {
            None => {}
            Some(Self::Interface(target)) => interface = json!(target.interface),
            Some(Self::Cpus(found)) => cpus = json!(found),
            Some(Self::Socket(queue)) => socket = json!(queue),
        }
        vec![(Self::NAME, interface), ("cpus", cpus), ("socket", socket)]
    }

    fn text(&self) -> String {
        match self {
            Self::Interface(target) => format!("redirect to {}", target.interface),
            Self::Cpus(cpus) => {
                let cpus: Vec<_> = cpus.iter().map(u32::to_string).collect();
                format!("redirect to CPU {}", cpus.join(", "))
            }
            Self::Socket(queue) => format!("redirect to the socket of queue {queue}"),
        }
    }
}

fn cpus(wanted: &OneOrMore) -> Result<Vec<u32>, String> {
    let cpus = match wanted {
        OneOrMore::One(cpu) => vec![*cpu],
        OneOrMore::More(cpus) => cpus.clone(),
    };
    let most = abi::MAX_SPREAD;
    if cpus.is_empty() || cpus.len() > most {
        return Err(format!(
            "redirect: cpu: {} CPUs; 1 to {most}: {{redirect: {{cpu: [1, 2]}}}}",
            cpus.len()
        ));
    }
    Ok(cpus)
}
