// SPDX-License-Identifier: Apache-2.0
//! Packets that a trigger selects by their headers.

use std::fmt::Display;

use serde_json::{Value, json};

use crate::abi;
use crate::policy::file::{OneOrMoreTexts, SelectorFile};
use crate::policy::values::Port;
use crate::text::nearest::choose;

/// Flags of TCP from the lowest bit on (RFC 9293, 3168).
const FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];
/// Before a flag that must not be set.
const NOT: &str = "not-";
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Which end of a packet has a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Either,
    Source,
    Destination,
}

impl End {
    /// Its key in a policy file and in the normal form.
    fn key(self) -> &'static str {
        match self {
            Self::Either => "port",
            Self::Source => "source_port",
            Self::Destination => "destination_port",
        }
    }
}

/// What a packet has to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    port: Option<(End, u16)>,
    protocol: Option<u8>,
    /// Flags that are looked at, and which of them are set.
    tcp_flags: Option<(u8, u8)>,
}

impl Selector {
    /// number : of the selector, for errors.
    pub fn read(file: SelectorFile, number: usize) -> Result<Self, String> {
        let refused = |message: &dyn Display| format!("trigger: any: selector {number}: {message}");
        let ends = [
            (End::Either, file.port),
            (End::Source, file.source_port),
            (End::Destination, file.destination_port),
        ];
        let mut ends = ends.into_iter().filter_map(|(end, port)| Some((end, port?)));
        let port = ends.next();
        if ends.next().is_some() {
            return Err(refused(
                &"it has one of port, source_port and destination_port; write a selector for each",
            ));
        }
        let mut protocol = file.protocol.map(|protocol| protocol.0);
        if let Some((_, Port { tcp, udp, .. })) = port {
            let of_port = match (tcp, udp) {
                (true, false) => Some(TCP),
                (false, true) => Some(UDP),
                _ => None,
            };
            match (protocol, of_port) {
                (Some(given), _) if ![TCP, UDP].contains(&given) => {
                    return Err(refused(&"only TCP and UDP have ports here; leave out protocol or the port"));
                }
                (Some(given), Some(of_port)) if given != of_port => {
                    return Err(refused(&"port and protocol name different protocols; leave one out"));
                }
                _ => protocol = protocol.or(of_port),
            }
        }
        let tcp_flags = file.tcp_flags.map(flags).transpose().map_err(|message| refused(&message))?;
        if tcp_flags.is_some() && protocol.is_some_and(|protocol| protocol != TCP) {
            return Err(refused(&"only TCP has tcp_flags; leave out the other protocol"));
        }
        let port = port.map(|(end, port)| (end, port.port));
        if port.is_none() && protocol.is_none() && tcp_flags.is_none() {
            return Err(refused(
                &"it is empty; write such as {port: 53}, {protocol: icmp} or {tcp_flags: syn}",
            ));
        }
        Ok(Self { port, protocol, tcp_flags })
    }

    pub fn to_abi(&self) -> abi::Selector {
        let mut asks = 0;
        if self.protocol.is_some() {
            asks |= abi::SELECT_PROTOCOL;
        }
        asks |= match self.port {
            Some((End::Either, _)) => abi::SELECT_SOURCE_PORT | abi::SELECT_DESTINATION_PORT,
            Some((End::Source, _)) => abi::SELECT_SOURCE_PORT,
            Some((End::Destination, _)) => abi::SELECT_DESTINATION_PORT,
            None => 0,
        };
        if self.tcp_flags.is_some() {
            asks |= abi::SELECT_TCP_FLAGS;
        }
        let (flags_mask, flags) = self.tcp_flags.unwrap_or_default();
        abi::Selector {
            port: self.port.map_or(0, |(_, port)| port),
            protocol: self.protocol.unwrap_or_default(),
            asks: asks as u8,
            flags_mask,
            flags,
            reserved: 0,
        }
    }

    /// Keys that are not asked for are null.
    pub fn normal(&self) -> Value {
        let mut normal = json!({
            "port": null, "source_port": null, "destination_port": null, "protocol": self.protocol,
            "tcp_flags": self.tcp_flags.map(|(mask, set)| json!({ "mask": mask, "set": set })),
        });
        if let Some((end, port)) = self.port {
            normal[end.key()] = port.into();
        }
        normal
    }
}

/// Which flags are looked at, and which of them have to be set.
fn flags(names: OneOrMoreTexts) -> Result<(u8, u8), String> {
    let names = match names {
        OneOrMoreTexts::One(name) => vec![name],
        OneOrMoreTexts::More(names) => names,
    };
    let (mut mask, mut set) = (0u8, 0u8);
    for name in &names {
        let (flag, is_set) = name.strip_prefix(NOT).map_or((name.as_str(), true), |flag| (flag, false));
        let bit = FLAGS.iter().position(|known| *known == flag).ok_or_else(|| {
            format!(
                "tcp_flags: unknown flag '{flag}'; {} (with `{NOT}` before it: not set)",
                choose(flag, &FLAGS)
            )
        })?;
        if mask >> bit & 1 == 1 {
            return Err(format!("tcp_flags: {flag} is there twice; name each flag once"));
        }
        mask |= 1 << bit;
        set |= u8::from(is_set) << bit;
    }
    if mask == 0 {
        Err("tcp_flags: the list is empty; name flags, such as syn".to_string())
    } else {
        Ok((mask, set))
    }
}
