// SPDX-License-Identifier: Apache-2.0
//! What can be wrong with a capture, and where.

use std::fmt;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The operating system does not give the file, or not on.
    Io,
    /// The file is no capture.
    NotACapture,
    /// The file ends inside a record.
    CutOff,
    /// A record contradicts itself, so that nobody knows where the next one begins.
    Damaged,
    /// One packet that cannot be handed on: its link type, interface or time. The next may be all right.
    Unusable,
}

/// An error names the file, the byte of the (unpacked) capture, and how many packets came before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    file: String,
    offset: u64,
    packets: u64,
    rule: String,
}

impl Error {
    pub(crate) fn new(kind: Kind, file: &str, offset: u64, packets: u64, rule: impl Into<String>) -> Self {
        Self { kind, file: file.to_owned(), offset, packets, rule: rule.into() }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn file(&self) -> &str {
        &self.file
    }

    /// Where the record that is broken begins: a byte of the capture, after unpacking.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Packets handed on before.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Whether the reader can go on behind this.
    pub fn is_about_one_packet(&self) -> bool {
        self.kind == Kind::Unusable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, packets, rule, .. } = self;
        match self.kind {
            Kind::NotACapture => write!(f, "{file}: {rule}"),
            Kind::Io if *packets == 0 && *offset == 0 => write!(f, "{file}: {rule}"),
            Kind::Unusable => {
                write!(f, "{file}: packet {}, at byte {offset}: {rule}", packets + 1)
            }
            Kind::Io | Kind::CutOff | Kind::Damaged => {
                write!(f, "{file}: {rule}, after {packets} whole packets: capture or copy the file again")
            }
        }
    }
}

impl std::error::Error for Error {}
