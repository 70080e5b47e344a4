// SPDX-License-Identifier: Apache-2.0
//! A capture, packet by packet.

use std::io::{ErrorKind, Read};
use std::path::Path;

use crate::error::{Error, Kind, Result};
use crate::link::LinkType;
use crate::pcap::{self, Pcap};
use crate::pcapng::{self, Pcapng};
use crate::source::Source;

/// A record that claims more is damage, not a packet.
pub(crate) const MAX_RECORD: usize = 64 << 20;

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

/// Where the current packet lies in the source's buffer, and what its format says of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    /// Of header and packet.
    pub length: usize,
    pub start: usize,
    pub end: usize,
    pub time_ns: u64,
    pub wire_length: u32,
    pub link: LinkType,
    /// Why the packet cannot be handed on.
    pub unusable: Option<&'static str>,
}

/// Why there is no next record, without the file's name.
#[derive(Debug)]
pub(crate) struct Broken {
    kind: Kind,
    rule: String,
    behind: String,
}

impl Broken {
    pub fn damaged(rule: String) -> Self {
        Self { kind: Kind::Damaged, rule, behind: String::new() }
    }

    #[cold]
    pub fn cut_off(source: &Source, expected: usize) -> Self {
        let behind = format!(" ({expected} bytes expected, {} left)", source.bytes().len());
        match source.failure() {
            Some(failure) => Self { kind: Kind::Io, rule: format!("cannot be read on ({failure})"), behind },
            None => {
                Self { kind: Kind::CutOff, rule: "the capture breaks off inside a record".into(), behind }
            }
        }
    }

    /// `None` if the file ends where a record ends.
    #[cold]
    pub fn at_end(source: &Source, expected: usize) -> Option<Self> {
        (!source.bytes().is_empty() || source.failure().is_some()).then(|| Self::cut_off(source, expected))
    }
}

enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
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
        let cut = |length: usize| {
            let rule = format!("the capture breaks off inside its header, at byte {length}");
            refuse(Kind::NotACapture, &rule)
        };
        let format = if *magic == pcapng::MAGIC {
            if source.bytes().len() < 12 {
                return cut(source.bytes().len());
            }
            Format::Pcapng(Pcapng::default())
        } else if Pcap::is_magic(*magic).is_some() {
            let Some(pcap) = source.bytes().first_chunk().and_then(Pcap::from_header) else {
                return cut(source.bytes().len());
            };
            source.consume(pcap::HEADER);
            Format::Pcap(pcap)
        } else {
            return refuse(Kind::NotACapture, &no_capture(magic));
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
        let next = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.source),
            Format::Pcapng(pcapng) => pcapng.next(&mut self.source),
        };
        match next {
            Ok(Some(record)) => {
                self.current = record;
                self.packets += 1;
                if self.current.link != LinkType::ETHERNET || self.current.unusable.is_some() {
                    return self.make_up().map(|()| true);
                }
                Ok(true)
            }
            Ok(None) => {
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
