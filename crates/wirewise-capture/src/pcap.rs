// SPDX-License-Identifier: Apache-2.0
//! The classic format: a header of 24 bytes, then records.

use crate::link::LinkType;
use crate::magic;
use crate::record::{Broken, MAX_RECORD, Next, Record};
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
        let big_endian = magic::pcap_byte_order(*header.first_chunk()?)?;
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

    /// The record at the start of the source, which stays there.
    #[inline]
    pub fn next(&self, source: &mut Source) -> Result<Next, Broken> {
        let head = self.record_header;
        if !source.need(head) {
            return Broken::at_end(source, head);
        }
        let Some(header) = source.bytes().first_chunk::<16>() else { return Ok(Next::End) };
        let number = |at: usize| word(header, at, self.big_endian);
        let (seconds, ticks, captured, wire_length) = (number(0), number(4), number(8) as usize, number(12));
        // As a record, the header of a pcap has no bytes, and that of a pcapng too many.
        if (captured == 0 || captured > MAX_RECORD) && begins_capture(header) {
            return Ok(Next::Capture);
        }
        if captured > MAX_RECORD {
            return Err(Broken::damaged(format!("has a record of impossible length, {captured} bytes")));
        }
        let length = head + captured;
        if !source.need(length) {
            return Err(Broken::cut_off(source, length));
        }
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(ticks) * self.tick_ns;
        Ok(Next::Packet(Record {
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

/// Whether this is the start of a capture rather than a record: the magic number would be a time in 1975 or 2055, and the version, 2.4,
/// its microseconds.
#[cold]
fn begins_capture(header: &[u8; 16]) -> bool {
    let word = |at: usize, big_endian| word(header, at, big_endian);
    match header.first_chunk().copied() {
        Some(magic::PCAPNG) => [word(8, false), word(8, true)].contains(&magic::PCAPNG_BYTE_ORDER),
        Some(bytes) => magic::pcap_byte_order(bytes).is_some_and(|big_endian| {
            let version = if big_endian { [0, 2, 0, 4] } else { [2, 0, 4, 0] };
            header[4..8] == version
        }),
        None => false,
    }
}

#[inline]
fn word(bytes: &[u8], at: usize, big_endian: bool) -> u32 {
    let word = u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if big_endian { word.swap_bytes() } else { word }
}
