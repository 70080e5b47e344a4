// SPDX-License-Identifier: Apache-2.0
//! Ethernet captures, pcap and pcapng, read packet by packet in constant memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use pcap_parser::traits::{PcapNGPacketBlock, PcapReaderIterator};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError};

use crate::error::{Error, Result};

/// Only headers are read of a frame, and no headers reach further.
pub const MAX_FRAME: usize = 2048;
/// More than any frame or ordinary block; larger blocks (decryption secrets, say) make the buffer grow.
const BUFFER: usize = 1 << 20;
const MAX_BLOCK: usize = 16 << 20;

/// A packet of a capture. `frame` is cut to `MAX_FRAME` bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// 1 is the first of the file.
    pub number: u64,
    pub time_ns: u64,
    pub frame: &'a [u8],
}

/// How to read the time stamps of a pcapng interface.
#[derive(Debug, Clone, Copy)]
struct Interface {
    link_type: Linktype,
    units_per_second: u128,
    offset_seconds: i64,
}

pub struct Capture {
    name: String,
    reader: Box<dyn PcapReaderIterator + Send>,
    /// Size of the reader's buffer in bytes.
    buffer: usize,
    /// pcap: one, from the file header. pcapng: those of the section.
    interfaces: Vec<Interface>,
    packets: u64,
    time_ns: u64,
    frame: Vec<u8>,
}

impl Capture {
    /// `-` is standard input.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let input: Box<dyn Read + Send> = if name == "-" {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(path).map_err(|error| Error::input(format!("{name}: {error}")))?)
        };
        Self::from_reader(&name, input)
    }

    /// Reads a capture from `input`; `name` is what errors call it.
    pub fn from_reader(name: &str, input: impl Read + Send + 'static) -> Result<Self> {
        let reader = pcap_parser::create_reader(BUFFER, input).map_err(|error| {
            Error::input(match error {
                PcapError::Eof => format!("{name}: is empty, not a capture"),
                PcapError::ReadError => format!("{name}: cannot be read"),
                PcapError::Incomplete(_) => format!("{name}: the capture breaks off inside its header"),
                _ => format!("{name}: neither a pcap nor a pcapng capture"),
            })
        })?;
        let frame = Vec::with_capacity(MAX_FRAME);
        Ok(Self {
            name: name.to_owned(),
            reader,
            buffer: BUFFER,
            interfaces: Vec::new(),
            packets: 0,
            time_ns: 0,
            frame,
        })
    }

    /// Bytes of the file used so far.
    pub fn position(&self) -> u64 {
        self.reader.consumed() as u64
    }

    /// The next packet; `None` at the end. A capture that breaks off gives its whole packets first.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        loop {
            let offset = self.reader.consumed();
            match self.reader.next() {
                Ok((length, block)) => {
                    let found = read_block(&block, &mut self.interfaces, &mut self.frame, &mut self.time_ns)
                        .map_err(|rule| Error::input(format!("{}: at byte {offset}: {rule}", self.name)));
                    self.reader.consume(length);
                    if found? {
                        self.packets += 1;
                        let (number, time_ns) = (self.packets, self.time_ns);
                        return Ok(Some(Packet { number, time_ns, frame: &self.frame }));
                    }
                }
                Err(PcapError::Eof) => return Ok(None),
                Err(PcapError::Incomplete(_)) => {
                    if self.reader.refill().is_err() {
                        return Err(self.broken(offset, "cannot be read on"));
                    }
                }
                Err(PcapError::BufferTooSmall) => {
                    self.buffer *= 2;
                    if self.buffer > MAX_BLOCK || !self.reader.grow(self.buffer) {
                        return Err(self.broken(offset, "has a record of impossible length"));
                    }
                }
                Err(PcapError::UnexpectedEof) => {
                    return Err(self.broken(offset, "the capture breaks off inside a record"));
                }
                Err(_) => return Err(self.broken(offset, "holds something that is no record")),
            }
        }
    }

    fn broken(&self, offset: usize, what: &str) -> Error {
        Error::input(format!(
            "{}: {what}, at byte {offset}, after {} whole packets: capture or copy the file again",
            self.name, self.packets
        ))
    }
}

/// Takes in one block. True if it is a packet, whose frame and time are then in `frame` and `time_ns`.
fn read_block(
    block: &PcapBlockOwned<'_>,
    interfaces: &mut Vec<Interface>,
    frame: &mut Vec<u8>,
    time_ns: &mut u64,
) -> std::result::Result<bool, String> {
    let data = match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let units_per_second = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
            // The upper half of the field may say how long the frame check sequences are.
            let link_type = Linktype(header.network.0 & 0xffff);
            interfaces.push(Interface { link_type, units_per_second, offset_seconds: 0 });
            return Ok(false);
        }
        PcapBlockOwned::Legacy(record) => {
            let interface = ethernet(interfaces, 0)?;
            let fraction = u128::from(record.ts_usec) * 1_000_000_000 / interface.units_per_second;
            *time_ns = u64::from(record.ts_sec) * 1_000_000_000 + fraction as u64;
            record.data
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            return Ok(false);
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(description)) => {
            let units_per_second = units_per_second(description.if_tsresol)?;
            // The crate reads the offset as little-endian in any file.
            let little_endian = description.block_type == pcap_parser::IDB_MAGIC;
            let offset = description.if_tsoffset;
            let offset_seconds = if little_endian { offset } else { offset.swap_bytes() };
            interfaces.push(Interface { link_type: description.linktype, units_per_second, offset_seconds });
            return Ok(false);
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            let interface = ethernet(interfaces, packet.if_id)?;
            let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            *time_ns = interface.nanoseconds(units)?;
            packet.packet_data()
        }
        // A simple packet has no time of its own: it gets that of the packet before.
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            ethernet(interfaces, 0)?;
            packet.packet_data()
        }
        PcapBlockOwned::NG(_) => return Ok(false),
    };
    frame.clear();
    frame.extend_from_slice(&data[..data.len().min(MAX_FRAME)]);
    Ok(true)
}

fn ethernet(interfaces: &[Interface], index: u32) -> std::result::Result<Interface, String> {
    let interface =
        interfaces.get(index as usize).ok_or("a packet of an interface that was not described")?;
    if interface.link_type == Linktype::ETHERNET {
        return Ok(*interface);
    }
    Err(format!("packets of link type {} cannot be run: only Ethernet can", interface.link_type))
}

/// The option if_tsresol: a power of ten, or with the top bit set of two.
fn units_per_second(resolution: u8) -> std::result::Result<u128, String> {
    let (base, exponent) = if resolution & 0x80 == 0 { (10u128, resolution) } else { (2, resolution & 0x7f) };
    let units = base.checked_pow(u32::from(exponent)).filter(|units| *units < 1 << 90);
    units.ok_or(format!("time stamps of resolution {resolution:#04x} cannot be read"))
}

impl Interface {
    fn nanoseconds(self, units: u64) -> std::result::Result<u64, String> {
        let time = u128::from(units) * 1_000_000_000 / self.units_per_second;
        let offset = i128::from(self.offset_seconds) * 1_000_000_000;
        let time = time as i128 + offset;
        u64::try_from(time).map_err(|_| format!("a time stamp of {time} ns is out of range"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pcap(magic: u32, link_type: u32, records: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let mut file = magic.to_le_bytes().to_vec();
        file.extend([2u16, 4].iter().flat_map(|n| n.to_le_bytes()));
        file.extend([0u32, 0, 65_535, link_type].iter().flat_map(|n| n.to_le_bytes()));
        for (seconds, fraction, frame) in records {
            let length = frame.len() as u32;
            file.extend([*seconds, *fraction, length, length].iter().flat_map(|n| n.to_le_bytes()));
            file.extend(*frame);
        }
        file
    }

    /// A pcapng section in the given byte order with one Ethernet interface.
    fn pcapng(big_endian: bool, options: &[(u16, &[u8])], stamps: &[u64]) -> Vec<u8> {
        let u32s = |n: u32| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
        let u16s = |n: u16| if big_endian { n.to_be_bytes() } else { n.to_le_bytes() };
        let block = |kind: u32, body: &[u8]| {
            let length = u32s(body.len() as u32 + 12);
            [&u32s(kind)[..], &length, body, &length].concat()
        };
        let section = [&u32s(0x1a2b_3c4d)[..], &u16s(1), &u16s(0), &[0xff; 8]].concat();
        let mut interface = [&u16s(1)[..], &u16s(0), &u32s(0)].concat();
        for (code, value) in options {
            interface.extend(u16s(*code));
            interface.extend(u16s(value.len() as u16));
            interface.extend(*value);
            interface.resize(interface.len().next_multiple_of(4), 0);
        }
        interface.extend([0; 4]);
        let mut file = [block(0x0a0d_0d0a, &section), block(1, &interface)].concat();
        for stamp in stamps {
            let numbers = [0, (stamp >> 32) as u32, *stamp as u32, 14, 14].map(u32s).concat();
            file.extend(block(6, &[&numbers[..], &[7; 14], &[0; 2]].concat()));
        }
        file
    }

    fn times(file: Vec<u8>) -> Result<Vec<u64>> {
        let mut capture = Capture::from_reader("x", io::Cursor::new(file))?;
        let mut times = Vec::new();
        while let Some(packet) = capture.next_packet()? {
            times.push(packet.time_ns);
        }
        Ok(times)
    }

    #[test]
    fn pcap_times_are_micro_or_nanoseconds() {
        let records: &[(u32, u32, &[u8])] = &[(1, 2, &[0; 60]), (3, 999_999, &[0; 60])];
        assert_eq!(times(pcap(0xa1b2_c3d4, 1, records)), Ok(vec![1_000_002_000, 3_999_999_000]));
        assert_eq!(times(pcap(0xa1b2_3c4d, 1, records)), Ok(vec![1_000_000_002, 3_000_999_999]));
    }

    #[test]
    fn pcapng_times_follow_resolution_and_offset() {
        let second = 1_000_000_000;
        for big in [false, true] {
            let offset = if big { 5i64.to_be_bytes() } else { 5i64.to_le_bytes() };
            assert_eq!(times(pcapng(big, &[], &[1_500_000])), Ok(vec![1_500_000_000]));
            assert_eq!(times(pcapng(big, &[(9, &[9])], &[7])), Ok(vec![7]));
            assert_eq!(times(pcapng(big, &[(9, &[0x81])], &[3])), Ok(vec![3 * second / 2]));
            assert_eq!(times(pcapng(big, &[(14, &offset)], &[1])), Ok(vec![5 * second + 1000]));
        }
    }

    #[test]
    fn long_frames_are_cut() {
        let file = pcap(0xa1b2_c3d4, 1, &[(0, 0, &[1; 9000])]);
        let mut capture = Capture::from_reader("x", io::Cursor::new(file)).unwrap();
        assert_eq!(capture.next_packet().unwrap().unwrap().frame.len(), MAX_FRAME);
    }

    #[test]
    fn a_capture_that_breaks_off_gives_its_packets_and_says_where() {
        let mut file = pcap(0xa1b2_c3d4, 1, &[(1, 0, &[0; 60]), (2, 0, &[0; 60])]);
        file.truncate(file.len() - 1);
        let mut capture = Capture::from_reader("x.pcap", io::Cursor::new(file)).unwrap();
        assert_eq!(capture.next_packet().unwrap().unwrap().number, 1);
        let error = capture.next_packet().unwrap_err();
        assert_eq!(
            error.to_string(),
            "x.pcap: the capture breaks off inside a record, at byte 100, after 1 whole packets: capture or copy the \
             file again"
        );
        assert_eq!(error.kind().exit_code(), 2);
    }

    #[test]
    fn what_is_no_ethernet_capture_is_refused() {
        for (file, part) in [
            (Vec::new(), "is empty"),
            (b"hello, world".to_vec(), "neither a pcap"),
            (pcap(0xa1b2_c3d4, 1, &[])[..20].to_vec(), "inside its header"),
            (pcap(0xa1b2_c3d4, 113, &[(0, 0, &[0; 60])]), "only Ethernet"),
        ] {
            let error = times(file).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn an_impossible_length_does_not_eat_the_memory() {
        let mut file = pcap(0xa1b2_c3d4, 1, &[(1, 0, &[0; 60])]);
        file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
        file.resize(file.len() + BUFFER, 0);
        assert!(times(file).unwrap_err().to_string().contains("impossible length"));
    }

    proptest! {
        /// Any damage gives packets or an error, never a panic or an endless loop.
        #[test]
        fn damaged_captures_are_read_or_refused(
            ng: bool, at in 0usize..400, bytes in proptest::collection::vec(any::<u8>(), 1..8), cut in 0usize..400
        ) {
            let mut file = if ng {
                pcapng(false, &[(9, &[9])], &[1, 2, 3])
            } else {
                pcap(0xa1b2_c3d4, 1, &[(1, 0, &[0; 60]), (2, 0, &[0; 60])])
            };
            for (place, byte) in (at..).zip(bytes) {
                if let Some(target) = file.get_mut(place) { *target = byte; }
            }
            file.truncate(file.len().saturating_sub(cut / 4));
            let _ = times(file);
        }
    }
}
