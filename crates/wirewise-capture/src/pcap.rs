// SPDX-License-Identifier: Apache-2.0
//! The classic format: a header of 24 bytes, then records.

use crate::link::LinkType;
use crate::reader::{Broken, MAX_RECORD, Record};
use crate::source::Source;

pub(crate) const HEADER: usize = 24;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pcap {
    big_endian: bool,
    tick_ns: u64,
    record_header: usize,
    link: LinkType,
}

impl Pcap {
    /// From the file header; `None` if it is not one.
    pub fn from_header(header: &[u8; HEADER]) -> Option<Self> {
        let big_endian = Self::is_magic(*header.first_chunk()?)?;
        let word = |at: usize| word(header, at, big_endian);
        let (tick_ns, record_header) = match word(0) {
            0xa1b2_c3d4 => (1000, 16),
            0xa1b2_3c4d => (1, 16),
            // Kuznetzov's tcpdump: eight more bytes a record, about the interface.
            _ => (1000, 24),
        };
        // The upper half of the field may say how long the frame check sequences are.
        let link = LinkType(word(20) as u16);
        Some(Self { big_endian, tick_ns, record_header, link })
    }

    /// Byte order by the first four bytes; `None` if they are not those of a pcap.
    pub fn is_magic(bytes: [u8; 4]) -> Option<bool> {
        let known = |number: u32| matches!(number, 0xa1b2_c3d4 | 0xa1b2_3c4d | 0xa1b2_cd34);
        match (known(u32::from_le_bytes(bytes)), known(u32::from_be_bytes(bytes))) {
            (true, _) => Some(false),
            (_, true) => Some(true),
            _ => None,
        }
    }

    /// The record at the start of the source, which stays there; `None` at the end.
    #[inline]
    pub fn next(&self, source: &mut Source) -> Result<Option<Record>, Broken> {
        let head = self.record_header;
        if !source.need(head) {
            return Broken::at_end(source, head).map_or(Ok(None), Err);
        }
        let Some(header) = source.bytes().first_chunk::<16>() else { return Ok(None) };
        let number = |at: usize| word(header, at, self.big_endian);
        let (seconds, ticks, captured, wire_length) = (number(0), number(4), number(8) as usize, number(12));
        if captured > MAX_RECORD {
            return Err(Broken::damaged(format!("has a record of impossible length, {captured} bytes")));
        }
        let length = head + captured;
        if !source.need(length) {
            return Err(Broken::cut_off(source, length));
        }
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(ticks) * self.tick_ns;
        Ok(Some(Record {
            length,
            start: head,
            end: length,
            time_ns,
            wire_length,
            link: self.link,
            unusable: None,
        }))
    }
}

#[inline]
fn word(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let word = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if big_endian { word.swap_bytes() } else { word }
}
