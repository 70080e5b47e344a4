// SPDX-License-Identifier: Apache-2.0
//! A record of a capture, whatever its format.

use crate::error::Kind;
use crate::link::LinkType;
use crate::source::Source;

/// A record that claims more is damage, not a packet. Wireshark has the same limit for blocks.
pub(crate) const MAX_RECORD: usize = 16 << 20;

/// The current packet: its place in the source's buffer, and its fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    /// Bytes of header and packet together.
    pub length: usize,
    pub start: usize,
    pub end: usize,
    pub time_ns: u64,
    pub wire_length: u32,
    pub link: LinkType,
    /// Why the packet cannot be handed on.
    pub unusable: Option<&'static str>,
}

/// What comes next in a capture.
pub(crate) enum Next {
    Packet(Record),
    /// The header of another capture: two files were joined by `cat`.
    Capture,
    End,
}

/// Why there is no next record, without the file's name.
#[derive(Debug)]
pub(crate) struct Broken {
    pub kind: Kind,
    pub rule: String,
    pub behind: String,
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

    /// An error unless the file ends where a record ends.
    #[cold]
    pub fn at_end(source: &Source, expected: usize) -> std::result::Result<Next, Self> {
        if source.bytes().is_empty() && source.failure().is_none() {
            return Ok(Next::End);
        }
        Err(Self::cut_off(source, expected))
    }
}
