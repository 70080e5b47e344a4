// SPDX-License-Identifier: Apache-2.0
//! Rules: conditions on one packet, all of which must hold.

use serde::Deserialize;

use super::Seen;
use super::moment::Moment;
use super::values::{Flags, Network, OneOrMore, Ports, Protocol, Scalar, True};
use crate::packets::outer::{Outer, TCP};

/// As written. `label` and `capture` are those of a rule of a label file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub label: Option<String>,
    pub capture: Option<String>,
    #[allow(dead_code, reason = "`all: true` is no condition, but says that the rule is meant to have none")]
    pub all: Option<True>,
    pub any: Option<Vec<Rule>>,
    pub src: Option<OneOrMore<Network>>,
    pub dst: Option<OneOrMore<Network>>,
    pub src_not: Option<OneOrMore<Network>>,
    pub proto: Option<Scalar<Protocol>>,
    pub sport: Option<OneOrMore<Ports>>,
    pub dport: Option<OneOrMore<Ports>>,
    pub flags: Option<OneOrMore<Flags>>,
    pub icmp_type: Option<u8>,
    pub frag: Option<True>,
    pub arp_op: Option<u16>,
    pub arp_src_mac: Option<String>,
    pub from: Option<Scalar<Moment>>,
    pub until: Option<Scalar<Moment>>,
}

impl Rule {
    /// The parts of `any` are conditions, not rules of a file.
    pub fn check_conditions(&self) -> Result<(), String> {
        if self.label.is_some() || self.capture.is_some() {
            return Err("`label` and `capture` stand at the top of a rule only".to_owned());
        }
        self.check_parts()
    }

    pub fn check_parts(&self) -> Result<(), String> {
        self.any.iter().flatten().try_for_each(Self::check_conditions)
    }

    fn needs_ip(&self) -> bool {
        self.src.is_some()
            || self.dst.is_some()
            || self.src_not.is_some()
            || self.proto.is_some()
            || self.sport.is_some()
            || self.dport.is_some()
            || self.flags.is_some()
            || self.icmp_type.is_some()
            || self.frag.is_some()
    }
}

/// A rule made ready for the packets of one capture.
#[derive(Debug)]
pub struct Ready<'a> {
    rule: &'a Rule,
    any: Vec<Ready<'a>>,
    from_ns: u64,
    until_ns: u64,
    needs_ip: bool,
    arp_source: Option<String>,
}

impl<'a> Ready<'a> {
    /// first_ns : time of the capture's first packet.
    pub fn new(rule: &'a Rule, first_ns: u64) -> Self {
        let at = |moment: &Option<Scalar<Moment>>| moment.as_ref().map(|moment| moment.0.at(first_ns));
        Self {
            rule,
            any: rule.any.iter().flatten().map(|part| Self::new(part, first_ns)).collect(),
            from_ns: at(&rule.from).unwrap_or(0),
            until_ns: at(&rule.until).unwrap_or(u64::MAX),
            needs_ip: rule.needs_ip(),
            arp_source: rule.arp_src_mac.as_ref().map(|mac| mac.to_ascii_lowercase()),
        }
    }

    pub fn holds(&self, seen: &Seen<'_>) -> bool {
        if !(self.from_ns..self.until_ns).contains(&seen.time_ns) {
            return false;
        }
        if !self.any.is_empty() && !self.any.iter().any(|part| part.holds(seen)) {
            return false;
        }
        if (self.rule.arp_op.is_some() || self.arp_source.is_some()) && !self.arp_holds(seen.frame) {
            return false;
        }
        match seen.outer {
            None => !self.needs_ip,
            Some(outer) => !self.needs_ip || ip_holds(self.rule, outer),
        }
    }

    fn arp_holds(&self, frame: &[u8]) -> bool {
        let Some(frame) = frame.first_chunk::<42>() else { return false };
        let operation = u16::from_be_bytes([frame[20], frame[21]]);
        let source = || frame[22..28].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
        frame[12..14] == [0x08, 0x06]
            && self.rule.arp_op.is_none_or(|wanted| wanted == operation)
            && self.arp_source.as_ref().is_none_or(|wanted| *wanted == source())
    }
}

fn ip_holds(rule: &Rule, outer: &Outer) -> bool {
    let inside = |networks: &OneOrMore<Network>, address| {
        networks.0.iter().any(|n| n.contains(outer.version, address))
    };
    let within = |ports: &OneOrMore<Ports>, port| ports.0.iter().any(|range| range.contains(port));
    rule.proto.is_none_or(|protocol| protocol.0.0 == outer.protocol)
        && rule.flags.as_ref().is_none_or(|flags| {
            outer.protocol == TCP && flags.0.iter().any(|flags| flags.0 == outer.tcp_flags)
        })
        && rule.sport.as_ref().is_none_or(|ports| within(ports, outer.source_port))
        && rule.dport.as_ref().is_none_or(|ports| within(ports, outer.destination_port))
        && (rule.frag.is_none() || outer.fragment)
        && rule.icmp_type.is_none_or(|kind| matches!(outer.protocol, 1 | 58) && kind == outer.icmp_type)
        && rule.src.as_ref().is_none_or(|networks| inside(networks, outer.source))
        && !rule.src_not.as_ref().is_some_and(|networks| inside(networks, outer.source))
        && rule.dst.as_ref().is_none_or(|networks| inside(networks, outer.destination))
}
