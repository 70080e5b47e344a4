// SPDX-License-Identifier: Apache-2.0
//! Captures out: pcap and pcapng, with the link types packets came with, in nanoseconds.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use crate::link::LinkType;
use crate::reader::Packet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One link type a file, times from 1970 to 2106.
    Pcap,
    Pcapng,
}

impl Format {
    /// By the file's name: `.pcapng` or `.ntar`, all else is pcap.
    pub fn of(path: &Path) -> Self {
        let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
        if extension == "pcapng" || extension == "ntar" { Self::Pcapng } else { Self::Pcap }
    }
}

/// What the readers of captures take.
const SNAP_LENGTH: u32 = 256 << 10;

pub struct Writer<W> {
    out: W,
    format: Format,
    /// pcap: that of the file. pcapng: one an interface.
    links: Vec<LinkType>,
    packets: u64,
}

impl<W: Write> Writer<W> {
    /// Buffer `out`: every packet is several small writes.
    pub fn new(out: W, format: Format) -> Self {
        Self { out, format, links: Vec::new(), packets: 0 }
    }

    /// Writes the packet as it stood in its file. A packet that the format cannot hold is an error of kind
    /// `InvalidInput`, and is not written.
    pub fn write(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let captured = u32::try_from(packet.original.len()).map_err(io::Error::other)?;
        let wire_length = packet.wire_length.max(captured);
        let interface = self.interface(packet.link)?;
        match self.format {
            Format::Pcap => {
                let (seconds, ns) = (packet.time_ns / 1_000_000_000, packet.time_ns % 1_000_000_000);
                let seconds = u32::try_from(seconds)
                    .map_err(|_| refuse("a pcap holds no times after 2106; name the output .pcapng"))?;
                self.words(&[seconds, ns as u32, captured, wire_length])?;
                self.out.write_all(packet.original)?;
            }
            Format::Pcapng => {
                let padding = packet.original.len().next_multiple_of(4) - packet.original.len();
                let length = 32 + captured + padding as u32;
                let (high, low) = ((packet.time_ns >> 32) as u32, packet.time_ns as u32);
                self.words(&[6, length, interface, high, low, captured, wire_length])?;
                self.out.write_all(packet.original)?;
                self.out.write_all(&[0; 3][..padding])?;
                self.words(&[length])?;
            }
        }
        self.packets += 1;
        Ok(())
    }

    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Completes the file; without a packet it is an empty capture of Ethernet.
    pub fn finish(mut self) -> io::Result<W> {
        if self.links.is_empty() {
            self.interface(LinkType::ETHERNET)?;
        }
        self.out.flush()?;
        Ok(self.out)
    }

    /// The number of the interface for a link type, described in the file before its first packet.
    fn interface(&mut self, link: LinkType) -> io::Result<u32> {
        if let Some(index) = self.links.iter().position(|known| *known == link) {
            return Ok(index as u32);
        }
        match (self.format, self.links.first()) {
            (Format::Pcap, None) => {
                self.words(&[0xa1b2_3c4d, 4 << 16 | 2, 0, 0, SNAP_LENGTH, link.0.into()])?;
            }
            (Format::Pcap, Some(first)) => {
                let rule = format!(
                    "a pcap holds one link type, this one {first}, and a packet of {link} came; name the output .pcapng"
                );
                return Err(refuse(rule));
            }
            (Format::Pcapng, first) => {
                if first.is_none() {
                    self.words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28])?;
                }
                // With the option if_tsresol: 10^-9.
                self.words(&[1, 32, link.0.into(), SNAP_LENGTH, 1 << 16 | 9, 9, 0, 32])?;
            }
        }
        self.links.push(link);
        Ok(self.links.len() as u32 - 1)
    }

    fn words(&mut self, words: &[u32]) -> io::Result<()> {
        words.iter().try_for_each(|word| self.out.write_all(&word.to_le_bytes()))
    }
}

fn refuse(rule: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, rule.into())
}
