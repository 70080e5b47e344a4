// SPDX-License-Identifier: Apache-2.0
//! Compressed captures: the format is recognised by its first bytes. Files that are several compressed files, one behind the other, are
//! read whole, as the tools that made them do.

use std::io::{self, BufRead, BufReader, Cursor, ErrorKind, Read};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use lz4_flex::frame::FrameDecoder;

/// Small enough for a second-level cache, large enough that a system call per refill costs nothing.
pub(crate) const BUFFER: usize = 256 << 10;

/// Longest of the signatures below.
const LONGEST: usize = 6;
/// Bytes that a decoder may take: a file of `xz -9` needs 65 MiB. zstd's own limit is 128 MiB.
const MEMORY: u64 = 128 << 20;

type Input = Box<dyn Read + Send>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Gzip,
    Zstd,
    Lz4,
    Bzip2,
    Xz,
}

const SIGNATURES: [(Packing, &[u8]); 5] = [
    (Packing::Gzip, &[0x1f, 0x8b]),
    (Packing::Zstd, &[0x28, 0xb5, 0x2f, 0xfd]),
    (Packing::Lz4, &[0x04, 0x22, 0x4d, 0x18]),
    (Packing::Bzip2, b"BZh"),
    (Packing::Xz, &[0xfd, b'7', b'z', b'X', b'Z', 0]),
];

/// Signatures of formats that are not read, and how to unpack them.
const OTHERS: [(&str, &str, &[u8]); 7] = [
    ("zip", "unzip", b"PK\x03\x04"),
    ("7z", "7z x", &[b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c]),
    ("rar", "unrar x", b"Rar!"),
    ("compress (.Z)", "uncompress", &[0x1f, 0x9d]),
    ("lzip", "lzip -d", b"LZIP"),
    ("lzop", "lzop -d", &[0x89, b'L', b'Z', b'O']),
    ("lz4's old format", "lz4 -d", &[0x02, 0x21, 0x4c, 0x18]),
];

/// What compressed a file that begins so, and the command that unpacks it, if that is known and cannot be done here.
pub(crate) fn unread(first: &[u8]) -> Option<(&'static str, &'static str)> {
    OTHERS
        .iter()
        .find(|(_, _, signature)| first.starts_with(signature))
        .map(|(name, command, _)| (*name, *command))
}

/// The bytes of a file, unpacked if it is compressed.
pub(crate) fn unpacked(mut input: Input) -> io::Result<Input> {
    let mut first = Vec::with_capacity(LONGEST);
    input.by_ref().take(LONGEST as u64).read_to_end(&mut first)?;
    let packing = SIGNATURES.iter().find(|(_, signature)| first.starts_with(signature));
    let input = Cursor::new(first).chain(input);
    let Some((packing, _)) = packing else { return Ok(Box::new(input)) };
    let input = BufReader::with_capacity(BUFFER, input);
    Ok(match packing {
        Packing::Gzip => Box::new(MultiGzDecoder::new(input)),
        Packing::Zstd => Box::new(zstd::Decoder::with_buffer(input)?),
        Packing::Lz4 => Box::new(Lz4Frames(FrameDecoder::new(ToTheEnd { input, ended: false }))),
        Packing::Bzip2 => Box::new(MultiBzDecoder::new(input)),
        Packing::Xz => {
            Box::new(XzDecoder::new_stream(input, Stream::new_stream_decoder(MEMORY, CONCATENATED)?))
        }
    })
}

/// `FrameDecoder` ends with each frame, and also where the file ends inside one.
struct Lz4Frames<R: BufRead>(FrameDecoder<ToTheEnd<R>>);

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.0.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            let input = self.0.get_mut();
            if input.ended {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "the lz4 frame breaks off"));
            }
            if input.input.fill_buf()?.is_empty() {
                return Ok(0);
            }
        }
    }
}

/// Knows whether more was asked for than there is.
struct ToTheEnd<R> {
    input: R,
    ended: bool,
}

impl<R: Read> Read for ToTheEnd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.ended |= count == 0 && !buffer.is_empty();
        Ok(count)
    }
}
