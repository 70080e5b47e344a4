// SPDX-License-Identifier: Apache-2.0
//! A capture that is being written.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use wirewise_capture::{Format, LinkType, Packet, Writer};

use crate::error::Result;
use crate::files::place::cannot_write;
use crate::files::whole_file::WholeFile;

pub struct CaptureOut {
    file: WholeFile,
    writer: Writer<BufWriter<File>>,
}

impl CaptureOut {
    /// Its name says the format.
    pub fn create(path: &Path) -> Result<Self> {
        let file = WholeFile::create(path)?;
        let out = BufWriter::with_capacity(1 << 18, file.file()?);
        Ok(Self { file, writer: Writer::new(out, Format::of(path)) })
    }

    pub fn write(&mut self, packet: &Packet<'_>) -> Result<()> {
        self.writer.write(packet).map_err(|error| cannot_write(self.file.path(), &error))
    }

    /// wire_length : bytes of the frame on the wire, of which there may be fewer here.
    pub fn write_frame(&mut self, time_ns: u64, wire_length: usize, frame: &[u8]) -> Result<()> {
        let (number, link) = (self.writer.packets() + 1, LinkType::ETHERNET);
        let wire_length = u32::try_from(wire_length).unwrap_or(u32::MAX);
        self.write(&Packet { number, time_ns, wire_length, link, original: frame, frame })
    }

    pub fn packets(&self) -> u64 {
        self.writer.packets()
    }

    /// The whole file, to commit.
    pub fn finish(self) -> Result<WholeFile> {
        let file = self.file;
        self.writer.finish().map_err(|error| cannot_write(file.path(), &error))?;
        Ok(file)
    }
}
