// SPDX-License-Identifier: Apache-2.0
//! The next generation: blocks in sections, packets of several interfaces.

use crate::link::LinkType;
use crate::magic::{PCAPNG_BYTE_ORDER, pcap_byte_order};
use crate::record::{Broken, MAX_RECORD, Next, Record};
use crate::source::Source;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const TSRESOL: u16 = 9;
const TSOFFSET: u16 = 14;
/// Of a section. A host has as many as it may have network devices, and no capture comes near.
const MAX_INTERFACES: usize = 1 << 16;
/// Type and length in front, length behind.
pub(crate) const FRAME: usize = 12;

#[derive(Debug, Default)]
pub(crate) struct Pcapng {
    big_endian: bool,
    interfaces: Vec<Interface>,
    /// A simple packet has no time of its own: it gets that of the packet before.
    time_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Interface {
    link: LinkType,
    snap_length: u32,
    /// `None`: a resolution nobody can read.
    units_per_second: Option<u128>,
    offset_seconds: i64,
}

impl Interface {
    fn nanoseconds(self, units: u64) -> Result<u64, &'static str> {
        let per_second =
            self.units_per_second.ok_or("has a time stamp of a resolution that cannot be read")?;
        if self.offset_seconds == 0 {
            let scaled = match per_second {
                1_000_000_000 => Some(units),
                1_000_000 => units.checked_mul(1000),
                _ => None,
            };
            if let Some(time) = scaled {
                return Ok(time);
            }
        }
        let time = u128::from(units) * 1_000_000_000 / per_second;
        let time = time as i128 + i128::from(self.offset_seconds) * 1_000_000_000;
        u64::try_from(time).map_err(|_| "has a time stamp before 1970 or after 2554")
    }
}

impl Pcapng {
    /// The packet block at the start of the source, which stays there; other blocks are taken in and consumed.
    pub fn next(&mut self, source: &mut Source) -> Result<Next, Broken> {
        loop {
            if !source.need(FRAME) {
                return Broken::at_end(source, FRAME);
            }
            if source.bytes().first_chunk().copied().and_then(pcap_byte_order).is_some() {
                return Ok(Next::Capture);
            }
            let kind = self.word(source.bytes(), 0);
            if kind == SECTION {
                self.begin_section(source.bytes())?;
            }
            let length = self.word(source.bytes(), 4) as usize;
            if length < FRAME || !length.is_multiple_of(4) || length > MAX_RECORD {
                return Err(Broken::damaged(format!("has a record of impossible length, {length} bytes")));
            }
            if !source.need(length) {
                return Err(Broken::cut_off(source, length));
            }
            let block = &source.bytes()[..length];
            if self.word(block, length - 4) as usize != length {
                return Err(Broken::damaged("holds something that is no record".to_owned()));
            }
            match kind {
                INTERFACE => {
                    let interface = self.interface(block);
                    self.interfaces.push(interface.ok_or_else(inconsistent)?);
                    if self.interfaces.len() > MAX_INTERFACES {
                        let rule = format!("describes more than {MAX_INTERFACES} interfaces");
                        return Err(Broken::damaged(rule));
                    }
                }
                ENHANCED_PACKET | OBSOLETE_PACKET | SIMPLE_PACKET => {
                    let packet = self.packet(kind, block).ok_or_else(inconsistent)?;
                    self.time_ns = packet.time_ns;
                    return Ok(Next::Packet(packet));
                }
                _ => {}
            }
            source.consume(length);
        }
    }

    fn begin_section(&mut self, block: &[u8]) -> Result<(), Broken> {
        self.interfaces.clear();
        self.big_endian = false;
        self.big_endian = match self.word(block, 8) {
            PCAPNG_BYTE_ORDER => false,
            number if number.swap_bytes() == PCAPNG_BYTE_ORDER => true,
            _ => return Err(Broken::damaged("has a section of unknown byte order".to_owned())),
        };
        Ok(())
    }

    /// `None`: the block is too short for what it says.
    fn interface(&self, block: &[u8]) -> Option<Interface> {
        let body = block.get(16..block.len() - 4)?;
        let mut interface = Interface {
            link: LinkType(self.half(block, 8)),
            snap_length: self.word(block, 12),
            units_per_second: Some(1_000_000),
            offset_seconds: 0,
        };
        let mut options = body;
        while options.len() >= 4 {
            let (code, length) = (self.half(options, 0), usize::from(self.half(options, 2)));
            let value = options.get(4..4 + length)?;
            match (code, value) {
                (0, _) => break,
                (TSRESOL, [resolution, ..]) => interface.units_per_second = units_per_second(*resolution),
                (TSOFFSET, value) => {
                    let bytes = *value.first_chunk::<8>()?;
                    interface.offset_seconds =
                        if self.big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
                }
                _ => {}
            }
            options = options.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        }
        Some(interface)
    }

    fn packet(&self, kind: u32, block: &[u8]) -> Option<Record> {
        let room = block.len() - 4;
        let (index, start, captured, wire_length) = if kind == SIMPLE_PACKET {
            let wire_length = (room >= 12).then(|| self.word(block, 8))?;
            let snap_length = self.interfaces.first().map_or(0, |interface| interface.snap_length);
            let captured = if snap_length == 0 { wire_length } else { wire_length.min(snap_length) };
            (0, 12, captured as usize, wire_length)
        } else {
            let index = (room >= 28).then(|| match kind {
                ENHANCED_PACKET => self.word(block, 8) as usize,
                _ => self.half(block, 8).into(),
            })?;
            (index, 28, self.word(block, 20) as usize, self.word(block, 24))
        };
        let end = start + captured;
        if end > room {
            return None;
        }
        let (time, link) = match self.interfaces.get(index) {
            None => (Err("is of an interface that was not described"), LinkType::ETHERNET),
            Some(interface) if kind == SIMPLE_PACKET => (Ok(self.time_ns), interface.link),
            Some(interface) => {
                let units = u64::from(self.word(block, 12)) << 32 | u64::from(self.word(block, 16));
                (interface.nanoseconds(units), interface.link)
            }
        };
        let (time_ns, unusable) = match time {
            Ok(time_ns) => (time_ns, None),
            Err(rule) => (self.time_ns, Some(rule)),
        };
        Some(Record { length: block.len(), start, end, time_ns, wire_length, link, unusable })
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let bytes = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn half(&self, bytes: &[u8], at: usize) -> u16 {
        let bytes = [bytes[at], bytes[at + 1]];
        if self.big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }
}

fn inconsistent() -> Broken {
    Broken::damaged("has a block that does not hold together".to_owned())
}

/// The option if_tsresol: a power of ten, or with the top bit set of two.
fn units_per_second(resolution: u8) -> Option<u128> {
    let (base, exponent) = if resolution & 0x80 == 0 { (10u128, resolution) } else { (2, resolution & 0x7f) };
    base.checked_pow(u32::from(exponent)).filter(|units| *units < 1 << 90)
}
