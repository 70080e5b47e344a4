// SPDX-License-Identifier: Apache-2.0
//! A capture, packet by packet.

use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::error::{Error, Kind, Result};
use crate::link::LinkType;
use crate::magic;
use crate::packing::unread;
use crate::pcap::{self, Pcap};
use crate::pcapng::{self, Pcapng};
use crate::record::{Broken, Next, Record};
use crate::source::Source;

/// A packet of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// 1 is the first of the file. Packets that cannot be handed on are counted too.
    pub number: u64,
    /// Since 1970.
    pub time_ns: u64,
    /// Bytes on the wire; the capture may hold fewer.
    pub wire_length: u32,
    /// Of `original`.
    pub link: LinkType,
    /// As it stands in the file.
    pub original: &'a [u8],
    /// As an Ethernet frame; the same as `original` if that is what it is.
    pub frame: &'a [u8],
}

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl Format {
    /// From the header at the start of the source; `None` if it is none, or breaks off.
    fn begin(source: &mut Source) -> Option<Self> {
        source.need(pcap::HEADER);
        let bytes = source.bytes();
        if bytes.starts_with(&magic::PCAPNG) {
            // Its header is a block, which the format reads itself.
            return (bytes.len() >= pcapng::FRAME).then(|| Self::Pcapng(Pcapng::default()));
        }
        let pcap = bytes.first_chunk().and_then(Pcap::from_header)?;
        source.consume(pcap::HEADER);
        Some(Self::Pcap(pcap))
    }
}

pub struct Reader {
    name: String,
    source: Source,
    format: Format,
    packets: u64,
    /// Behind an error nobody knows where the next record begins.
    ended: bool,
    current: Record,
    /// The current packet with its made-up header, if it is not Ethernet.
    made_up: Vec<u8>,
}

/// What is wrong with a file that begins so.
fn no_capture(first: &[u8]) -> String {
    if let Some((packing, command)) = unread(first) {
        return format!(
            "neither a pcap nor a pcapng capture, but compressed by {packing}, which is not read: unpack it first (`{command}`), or use \
             gzip, zstd, xz, bzip2 or lz4"
        );
    }
    let bytes: Vec<_> = first.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!(
        "neither a pcap nor a pcapng capture (at byte 0 it has {}); leave it out, or convert it (`editcap FILE OUT.pcapng` reads many \
         formats)",
        bytes.join(" ")
    )
}

impl Reader {
    /// `-` is standard input.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let source = Source::open(path).map_err(|error| {
            let rule = match error.kind() {
                ErrorKind::NotFound => "does not exist; give a pcap or pcapng file".to_owned(),
                _ => error.to_string(),
            };
            Error::new(Kind::Io, &name, 0, 0, rule)
        })?;
        Self::new(name, source)
    }

    /// Reads a capture from `input`; `name` is what errors call it.
    pub fn from_reader(name: &str, input: impl Read + Send + 'static) -> Result<Self> {
        let source =
            Source::new(input).map_err(|error| Error::new(Kind::Io, name, 0, 0, error.to_string()))?;
        Self::new(name.to_owned(), source)
    }

    fn new(name: String, mut source: Source) -> Result<Self> {
        source.need(pcap::HEADER);
        let refuse = |kind, rule: &str| Err(Error::new(kind, &name, 0, 0, rule));
        let Some(magic) = source.bytes().first_chunk::<4>() else {
            return match (source.failure(), source.bytes().is_empty()) {
                (Some(failure), _) => refuse(
                    Kind::Io,
                    &format!(
                        "cannot be read ({failure}), at byte 0 of what is packed in it: copy the file again, or leave it out"
                    ),
                ),
                (None, true) => refuse(Kind::NotACapture, "is empty, not a capture"),
                (None, false) => refuse(Kind::NotACapture, &no_capture(source.bytes())),
            };
        };
        if *magic != magic::PCAPNG && magic::pcap_byte_order(*magic).is_none() {
            return refuse(Kind::NotACapture, &no_capture(source.bytes()));
        }
        let Some(format) = Format::begin(&mut source) else {
            let length = source.bytes().len();
            let rule = format!("the capture breaks off inside its header, at byte {length}");
            return refuse(Kind::NotACapture, &rule);
        };
        let current = Record {
            length: 0,
            start: 0,
            end: 0,
            time_ns: 0,
            wire_length: 0,
            link: LinkType::ETHERNET,
            unusable: None,
        };
        Ok(Self { name, source, format, packets: 0, ended: false, current, made_up: Vec::new() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the file as it lies on the disk: read so far, and all of them where that is known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        self.source.progress()
    }

    /// Goes to the next packet; false at the end. After an error about one packet the reader goes on behind it; after
    /// any other the capture has ended.
    #[inline]
    pub fn advance(&mut self) -> Result<bool> {
        self.source.consume(std::mem::take(&mut self.current.length));
        if self.ended {
            return Ok(false);
        }
        let mut next = self.next();
        while let Ok(Next::Capture) = next {
            next = self.next_capture();
        }
        match next {
            Ok(Next::Packet(record)) => {
                self.current = record;
                self.packets += 1;
                if self.current.link != LinkType::ETHERNET || self.current.unusable.is_some() {
                    return self.make_up().map(|()| true);
                }
                Ok(true)
            }
            Ok(Next::End | Next::Capture) => {
                self.ended = true;
                self.current.end = self.current.start;
                Ok(false)
            }
            Err(broken) => {
                self.ended = true;
                Err(self.error(broken))
            }
        }
    }

    #[inline]
    fn next(&mut self) -> std::result::Result<Next, Broken> {
        match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.source),
            Format::Pcapng(pcapng) => pcapng.next(&mut self.source),
        }
    }

    #[cold]
    fn next_capture(&mut self) -> std::result::Result<Next, Broken> {
        match Format::begin(&mut self.source) {
            Some(format) => self.format = format,
            None => return Err(Broken::cut_off(&self.source, pcap::HEADER)),
        }
        self.next()
    }

    #[cold]
    fn error(&self, broken: Broken) -> Error {
        let offset = self.source.offset();
        let rule = format!("{}, at byte {offset}{}", broken.rule, broken.behind);
        Error::new(broken.kind, &self.name, offset, self.packets, rule)
    }

    fn make_up(&mut self) -> Result<()> {
        let Record { start, end, link, unusable, .. } = self.current;
        let rule = match unusable {
            Some(rule) => Some(rule.to_owned()),
            None if link.is_known() => None,
            None => Some(format!(
                "has link type {link}, which cannot be run: Ethernet, raw IP, Linux cooked and loopback can; leave \
                 the capture out"
            )),
        };
        if let Some(rule) = rule {
            return Err(Error::new(Kind::Unusable, &self.name, self.source.offset(), self.packets - 1, rule));
        }
        self.made_up.clear();
        link.write_ethernet(&self.source.bytes()[start..end], &mut self.made_up);
        Ok(())
    }

    /// The packet that `advance` went to.
    #[inline]
    pub fn packet(&self) -> Packet<'_> {
        let record = &self.current;
        let original = self.source.bytes().get(record.start..record.end).unwrap_or_default();
        let frame = match record.link {
            LinkType::ETHERNET => original,
            _ => &self.made_up,
        };
        Packet {
            number: self.packets,
            time_ns: record.time_ns,
            wire_length: record.wire_length,
            link: record.link,
            original,
            frame,
        }
    }

    /// Time of the packet that `advance` went to.
    #[inline]
    pub fn time_ns(&self) -> u64 {
        self.current.time_ns
    }

    /// The frame of the packet that `advance` went to, without a copy. `packet` then shows what was written to it.
    #[inline]
    pub fn frame_mut(&mut self) -> &mut [u8] {
        let Record { start, end, link, .. } = self.current;
        match link {
            LinkType::ETHERNET => self.source.bytes_mut().get_mut(start..end).unwrap_or_default(),
            _ => &mut self.made_up,
        }
    }

    /// The next packet; `None` at the end. A capture that breaks off gives its whole packets first.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        Ok(if self.advance()? { Some(self.packet()) } else { None })
    }
}
