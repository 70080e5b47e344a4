// SPDX-License-Identifier: Apache-2.0
//! Messages of IPFIX (RFC 7011). A record has the elements of what is known of its flow, and no others: the number of its template says
//! which, so that the same number means the same elements in every message.

use std::net::IpAddr;

use crate::passes::Reason;

/// Octets of a message that fit in a frame, whatever tunnel the frame goes through.
const MOST: usize = 1400;
const VERSION: u16 = 10;
const HEADER: usize = 16;
/// Id of a set of templates; those of templates begin at the other.
const TEMPLATES: u16 = 2;
const FIRST_TEMPLATE: u16 = 256;
/// Marks an element that an enterprise has defined.
const ENTERPRISE_BIT: u16 = 1 << 15;
/// In a template, of elements of any length; and octets of those whose length takes one octet of a record.
const VARIABLE: u16 = u16::MAX;
const LONGEST_TEXT: usize = 254;

/// A flow, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    pub source: Option<IpAddr>,
    pub destination: Option<IpAddr>,
    /// Source and destination.
    pub ports: Option<[u16; 2]>,
    pub protocol: Option<u8>,
    /// ifIndex; 0: none.
    pub interface: u32,
    pub packets: u64,
    /// With IP headers.
    pub octets: Option<u64>,
    /// Milliseconds since 1970, as the next.
    pub start: Option<u64>,
    pub end: u64,
    pub reason: Reason,
    /// The outermost tag's id, and that of the one behind it; 0: no tag.
    pub vlans: Option<[u16; 2]>,
    pub teid: Option<u32>,
    /// With its name, of which 254 octets are sent.
    pub class: Option<(u8, &'a str)>,
    pub score: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Iana(u16),
    Own(u16),
}

enum Value<'a> {
    Number(u64, u16),
    Address(IpAddr),
    Text(&'a str),
}

impl Record<'_> {
    /// Calls for each element, in their order.
    fn each(&self, mut put: impl FnMut(Element, Value<'_>)) {
        use Element::{Iana, Own};
        use Value::{Address, Number, Text};
        let by_version = |address: IpAddr, [v4, v6]: [u16; 2]| Iana(if address.is_ipv4() { v4 } else { v6 });
        if let Some(source) = self.source {
            put(by_version(source, [8, 27]), Address(source));
        }
        if let Some(destination) = self.destination {
            put(by_version(destination, [12, 28]), Address(destination));
        }
        if let Some([source, destination]) = self.ports {
            put(Iana(7), Number(source.into(), 2));
            put(Iana(11), Number(destination.into(), 2));
        }
        if let Some(protocol) = self.protocol {
            put(Iana(4), Number(protocol.into(), 1));
        }
        put(Iana(10), Number(self.interface.into(), 4));
        put(Iana(86), Number(self.packets, 8));
        if let Some(octets) = self.octets {
            put(Iana(85), Number(octets, 8));
        }
        if let Some(start) = self.start {
            put(Iana(152), Number(start, 8));
        }
        put(Iana(153), Number(self.end, 8));
        put(Iana(136), Number(self.reason as u64, 1));
        if let Some([outer, inner]) = self.vlans {
            put(Iana(243), Number(outer.into(), 2));
            put(Iana(245), Number(inner.into(), 2));
        }
        if let Some(teid) = self.teid {
            put(Iana(507), Number(teid.into(), 4));
        }
        if let Some((id, name)) = self.class {
            put(Own(1), Number(id.into(), 1));
            put(Own(2), Text(&name[..name.floor_char_boundary(LONGEST_TEXT)]));
        }
        if let Some(score) = self.score {
            put(Own(3), Number(score as u64, 8));
        }
    }

    /// The number of its template: a bit for each thing that a record may have or not.
    pub fn template(&self) -> u16 {
        let is_ipv6 = [self.source, self.destination].iter().flatten().any(IpAddr::is_ipv6);
        let has = [
            is_ipv6,
            self.source.is_some(),
            self.destination.is_some(),
            self.ports.is_some(),
            self.protocol.is_some(),
            self.octets.is_some(),
            self.start.is_some(),
            self.vlans.is_some(),
            self.teid.is_some(),
            self.class.is_some(),
            self.score.is_some(),
        ];
        let bits = has.iter().rev().fold(0, |bits, has| bits << 1 | u16::from(*has));
        FIRST_TEMPLATE + bits
    }
}

/// A message that is being made.
pub struct Message {
    enterprise: u32,
    domain: u32,
    bytes: Vec<u8>,
    /// Id of the last set, and where it begins.
    set: Option<(u16, usize)>,
    records: u32,
}

impl Message {
    /// enterprise : number under which our own elements are sent. domain : observation domain.
    pub fn new(enterprise: u32, domain: u32) -> Self {
        Self { enterprise, domain, bytes: vec![0; HEADER], set: None, records: 0 }
    }

    pub fn records(&self) -> u32 {
        self.records
    }

    /// Adds a record, with its template in front if the receiver has to be told. Returns whether there was room; if not, it is as before.
    pub fn add(&mut self, record: &Record<'_>, with_template: bool) -> bool {
        let before = (self.bytes.len(), self.set);
        if with_template {
            self.open(TEMPLATES);
            self.template(record);
        }
        self.open(record.template());
        record.each(|_, value| match value {
            Value::Number(number, octets) => {
                self.bytes.extend(&number.to_be_bytes()[8 - usize::from(octets)..]);
            }
            Value::Address(IpAddr::V4(address)) => self.bytes.extend(address.octets()),
            Value::Address(IpAddr::V6(address)) => self.bytes.extend(address.octets()),
            Value::Text(text) => {
                self.bytes.push(text.len() as u8);
                self.bytes.extend(text.as_bytes());
            }
        });
        if self.bytes.len() > MOST && before.0 > HEADER {
            self.bytes.truncate(before.0);
            self.set = before.1;
            return false;
        }
        self.records += 1;
        true
    }

    fn template(&mut self, record: &Record<'_>) {
        let mut elements = Vec::new();
        record.each(|element, value| {
            let length = match value {
                Value::Number(_, octets) => octets,
                Value::Address(address) => {
                    if address.is_ipv4() {
                        4
                    } else {
                        16
                    }
                }
                Value::Text(_) => VARIABLE,
            };
            elements.push((element, length));
        });
        self.u16(record.template());
        self.u16(elements.len() as u16);
        for (element, length) in elements {
            match element {
                Element::Iana(id) => {
                    self.u16(id);
                    self.u16(length);
                }
                Element::Own(id) => {
                    self.u16(id | ENTERPRISE_BIT);
                    self.u16(length);
                    self.bytes.extend(self.enterprise.to_be_bytes());
                }
            }
        }
    }

    fn u16(&mut self, number: u16) {
        self.bytes.extend(number.to_be_bytes());
    }

    /// Goes on with a set of this id.
    fn open(&mut self, id: u16) {
        if self.set.is_some_and(|(open, _)| open == id) {
            return;
        }
        self.close();
        self.set = Some((id, self.bytes.len()));
        self.u16(id);
        self.u16(0);
    }

    fn close(&mut self) {
        if let Some((_, start)) = self.set {
            let length = (self.bytes.len() - start) as u16;
            self.bytes[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
        }
    }

    /// The whole message. time : of export, in seconds since 1970. sequence : records of this domain before it.
    pub fn finish(mut self, time: u32, sequence: u32) -> Vec<u8> {
        self.close();
        let length = self.bytes.len() as u16;
        let [version, length] = [VERSION, length].map(u16::to_be_bytes);
        let words = [time, sequence, self.domain].map(u32::to_be_bytes);
        self.bytes[..HEADER].copy_from_slice(&[&version[..], &length, words.as_flattened()].concat());
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::option::of;
    use proptest::prelude::*;

    use super::*;

    const OURS: u32 = 32473;

    /// A template's elements: enterprise, id, length.
    type Templates = BTreeMap<u16, Vec<(u32, u16, u16)>>;
    /// A record: the octets of each element, by enterprise and id.
    type Elements = BTreeMap<(u32, u16), Vec<u8>>;

    fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
        let (taken, rest) = bytes.split_at(length);
        *bytes = rest;
        taken
    }

    fn number(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The header without version and length, and the records. Written after the RFC's text, not after the code above.
    fn decode(message: &[u8], templates: &mut Templates) -> (Vec<u64>, Vec<Elements>) {
        let mut rest = message;
        assert_eq!(number(take(&mut rest, 2)), 10);
        assert_eq!(number(take(&mut rest, 2)), message.len() as u64);
        let header = (0..3).map(|_| number(take(&mut rest, 4))).collect();
        let mut records = Vec::new();
        while !rest.is_empty() {
            let id = number(take(&mut rest, 2)) as u16;
            let length = number(take(&mut rest, 2)) as usize;
            let mut set = take(&mut rest, length - 4);
            assert!(!set.is_empty(), "a set has at least one record");
            while !set.is_empty() {
                if id == 2 {
                    let (id, count) = (number(take(&mut set, 2)) as u16, number(take(&mut set, 2)));
                    let element = |set: &mut &[u8]| {
                        let (id, length) = (number(take(set, 2)) as u16, number(take(set, 2)) as u16);
                        let enterprise = if id >> 15 == 1 { number(take(set, 4)) as u32 } else { 0 };
                        (enterprise, id & 0x7fff, length)
                    };
                    let elements: Vec<_> = (0..count).map(|_| element(&mut set)).collect();
                    let known = templates.entry(id).or_insert_with(|| elements.clone());
                    assert_eq!(*known, elements, "template {id} means two things");
                } else {
                    let mut record = BTreeMap::new();
                    for (enterprise, element, length) in &templates[&id] {
                        let length = match length {
                            65535 => number(take(&mut set, 1)) as usize,
                            length => usize::from(*length),
                        };
                        let twice = record.insert((*enterprise, *element), take(&mut set, length).to_vec());
                        assert!(twice.is_none());
                    }
                    records.push(record);
                }
            }
        }
        (header, records)
    }

    /// What a collector should read.
    fn elements(record: &Record<'_>) -> Elements {
        let mut all = BTreeMap::new();
        let mut put = |enterprise, id, octets: &[u8]| _ = all.insert((enterprise, id), octets.to_vec());
        for (address, v4, v6) in [(record.source, 8, 27), (record.destination, 12, 28)] {
            match address {
                Some(IpAddr::V4(address)) => put(0, v4, &address.octets()),
                Some(IpAddr::V6(address)) => put(0, v6, &address.octets()),
                None => {}
            }
        }
        if let Some([source, destination]) = record.ports {
            put(0, 7, &source.to_be_bytes());
            put(0, 11, &destination.to_be_bytes());
        }
        record.protocol.iter().for_each(|it| put(0, 4, &[*it]));
        put(0, 10, &record.interface.to_be_bytes());
        put(0, 86, &record.packets.to_be_bytes());
        record.octets.iter().for_each(|it| put(0, 85, &it.to_be_bytes()));
        record.start.iter().for_each(|it| put(0, 152, &it.to_be_bytes()));
        put(0, 153, &record.end.to_be_bytes());
        put(0, 136, &[record.reason as u8]);
        if let Some([outer, inner]) = record.vlans {
            put(0, 243, &outer.to_be_bytes());
            put(0, 245, &inner.to_be_bytes());
        }
        record.teid.iter().for_each(|it| put(0, 507, &it.to_be_bytes()));
        if let Some((id, name)) = record.class {
            put(OURS, 1, &[id]);
            put(OURS, 2, name.as_bytes());
        }
        record.score.iter().for_each(|it| put(OURS, 3, &it.to_be_bytes()));
        all
    }

    fn addresses() -> impl Strategy<Value = (Option<IpAddr>, Option<IpAddr>)> {
        let v4 = || any::<Ipv4Addr>().prop_map(IpAddr::from);
        let v6 = || any::<Ipv6Addr>().prop_map(IpAddr::from);
        prop_oneof![(of(v4()), of(v4())), (of(v6()), of(v6()))]
    }

    fn records() -> impl Strategy<Value = Record<'static>> {
        let names = prop_oneof![Just("attack"), Just(""), Just("größer"), Just("a b, c")];
        let key =
            (addresses(), of(any::<[u16; 2]>()), of(any::<u8>()), of(any::<[u16; 2]>()), of(any::<u32>()));
        let counts =
            (any::<u32>(), any::<u64>(), of(any::<u64>()), of(any::<u64>()), any::<u64>(), any::<bool>());
        let verdict = (of((any::<u8>(), names)), of(any::<i64>()));
        (key, counts, verdict).prop_map(|(key, counts, (class, score))| {
            let ((source, destination), ports, protocol, vlans, teid) = key;
            let (interface, packets, octets, start, end, active) = counts;
            let reason = if active { Reason::Active } else { Reason::Idle };
            Record {
                source,
                destination,
                ports,
                protocol,
                interface,
                packets,
                octets,
                start,
                end,
                reason,
                vlans,
                teid,
                class,
                score,
            }
        })
    }

    proptest! {
        #[test]
        fn a_collector_reads_what_was_sent(sent in prop::collection::vec(records(), 1..200), domain: u32) {
            let (mut templates, mut told) = (Templates::new(), std::collections::BTreeSet::new());
            let (mut messages, mut received) = (vec![], vec![]);
            let mut message = Message::new(OURS, domain);
            for record in &sent {
                let is_new = told.insert(record.template());
                if !message.add(record, is_new) {
                    messages.push(std::mem::replace(&mut message, Message::new(OURS, domain)));
                    prop_assert!(message.add(record, is_new));
                }
            }
            messages.push(message);
            for message in messages {
                let (count, sequence) = (message.records(), received.len() as u32);
                let bytes = message.finish(7, sequence);
                prop_assert!(bytes.len() <= 1400);
                let (header, records) = decode(&bytes, &mut templates);
                prop_assert_eq!(header, [7, sequence.into(), domain.into()]);
                prop_assert_eq!(records.len(), count as usize);
                received.extend(records);
            }
            prop_assert_eq!(received, sent.iter().map(elements).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let name = "ä".repeat(400);
        let record = Record {
            source: None,
            destination: None,
            ports: None,
            protocol: None,
            interface: 0,
            packets: 1,
            octets: None,
            start: None,
            end: 0,
            reason: Reason::Idle,
            vlans: None,
            teid: None,
            class: Some((0, &name)),
            score: None,
        };
        let mut message = Message::new(OURS, 1);
        assert!(message.add(&record, true));
        let (_, records) = decode(&message.finish(0, 0), &mut Templates::new());
        assert_eq!(records[0][&(OURS, 2)], "ä".repeat(127).as_bytes());
    }
}
