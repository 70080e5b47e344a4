// SPDX-License-Identifier: Apache-2.0
//! Whatever a file holds: its whole packets, then an error that says where; never a panic. What is written reads back.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Cursor, Write};

use proptest::collection::vec;
use proptest::prelude::*;
use wirewise_capture::{Error, Format, Kind, LinkType, Merge, Packet, Reader, Writer};

#[derive(Debug, Clone, PartialEq, Eq)]
struct Sample {
    time_ns: u64,
    wire_length: u32,
    link: u16,
    bytes: Vec<u8>,
}

fn written(samples: &[Sample], format: Format) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), format);
    for sample in samples {
        let Sample { time_ns, wire_length, link, bytes } = sample;
        let (time_ns, wire_length, link) = (*time_ns, *wire_length, LinkType(*link));
        let packet = Packet { number: 0, time_ns, wire_length, link, original: bytes, frame: &[] };
        writer.write(&packet).unwrap();
    }
    writer.finish().unwrap()
}

fn reader(file: Vec<u8>) -> Result<Reader, Error> {
    Reader::from_reader("x", Cursor::new(file))
}

/// Every packet that can be had, and the error at the end, if there is one.
fn read(file: Vec<u8>) -> (Vec<Sample>, Option<Error>) {
    let mut reader = match reader(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let mut samples = Vec::new();
    loop {
        match reader.next_packet() {
            Ok(None) => return (samples, None),
            Ok(Some(packet)) => {
                let Packet { time_ns, wire_length, link, original, frame, .. } = packet;
                let frame = frame.to_vec();
                samples.push(Sample { time_ns, wire_length, link: link.0, bytes: original.to_vec() });
                assert_eq!(reader.frame_mut(), frame);
            }
            Err(error) if error.is_about_one_packet() => {}
            Err(error) => {
                assert!(!reader.advance().unwrap(), "nothing comes after {error}");
                return (samples, Some(error));
            }
        }
    }
}

fn sample(links: &'static [u16]) -> impl Strategy<Value = Sample> {
    let bytes = prop_oneof![vec(any::<u8>(), 0..80), vec(any::<u8>(), 1400..1600)];
    // Up to the last second a pcap can hold.
    (0..(1u64 << 32) * 1_000_000_000, 0u32..10, proptest::sample::select(links), bytes).prop_map(
        |(time_ns, more, link, bytes)| Sample {
            time_ns,
            wire_length: bytes.len() as u32 + more,
            link,
            bytes,
        },
    )
}

fn captures() -> impl Strategy<Value = (Vec<Sample>, Format)> {
    prop_oneof![
        (vec(sample(&[1]), 0..12), Just(Format::Pcap)),
        (vec(sample(&[101]), 0..12), Just(Format::Pcap)),
        (vec(sample(&[1, 101, 113, 276, 0, 108, 228, 229]), 0..12), Just(Format::Pcapng)),
    ]
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut packer = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut packer = lz4_flex::frame::FrameEncoder::new(Vec::new());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

type Packer = fn(&[u8]) -> Vec<u8>;

/// Each compression format that is read.
const PACKERS: [Packer; 5] = [
    gzip,
    |bytes| zstd::encode_all(bytes, 1).unwrap(),
    |bytes| liblzma::encode_all(bytes, 0).unwrap(),
    bzip2,
    lz4,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn what_is_written_reads_back_packed_or_not((samples, format) in captures()) {
        let file = written(&samples, format);
        for packed in PACKERS.map(|pack| pack(&file)).into_iter().chain([file]) {
            let (read, error) = read(packed);
            prop_assert_eq!(error, None);
            prop_assert_eq!(&read, &samples);
        }
    }

    /// `cat A B > C`, of captures and of compressed captures.
    #[test]
    fn captures_behind_each_other_read_as_one(captures in vec(captures(), 1..4), packer in 0..PACKERS.len()) {
        let files: Vec<_> = captures.iter().map(|(samples, format)| written(samples, *format)).collect();
        let all: Vec<_> = captures.into_iter().flat_map(|(samples, _)| samples).collect();
        let pack = PACKERS[packer];
        let members: Vec<_> = files.iter().flat_map(|file| pack(file)).collect();
        for file in [files.concat(), pack(&files.concat()), members] {
            let (read, error) = read(file);
            prop_assert_eq!(error, None);
            prop_assert_eq!(&read, &all);
        }
    }

    #[test]
    fn a_capture_cut_at_any_byte_gives_its_whole_packets((samples, format) in captures(), cut: proptest::sample::Index) {
        let file = written(&samples, format);
        let length = cut.index(file.len());
        let (read, error) = read(file[..length].to_vec());
        prop_assert_eq!(&read[..], &samples[..read.len()]);
        let whole = written(&samples[..read.len()], format);
        match error {
            // Cut between two records (or two blocks).
            None => prop_assert!(length >= whole.len().min(24)),
            Some(error) if error.kind() == Kind::CutOff => {
                prop_assert!(error.offset() <= length as u64);
                prop_assert_eq!(error.packets(), read.len() as u64);
                let text = error.to_string();
                prop_assert!(text.contains(&format!("at byte {} (", error.offset())), "{}", text);
                prop_assert!(text.contains(&format!("{} left", length as u64 - error.offset())), "{}", text);
            }
            Some(error) => {
                prop_assert_eq!(error.kind(), Kind::NotACapture);
                prop_assert!(length < 24);
            }
        }
        // A packet that is there with all its bytes is handed on.
        if read.len() < samples.len() {
            prop_assert!(length < written(&samples[..=read.len()], format).len());
        }
    }

    #[test]
    fn a_packed_capture_cut_at_any_byte_is_an_error((samples, format) in captures(), cut: proptest::sample::Index) {
        let file = written(&samples, format);
        for packed in PACKERS.map(|pack| pack(&file)) {
            let length = 4 + cut.index(packed.len() - 4);
            let (read, error) = read(packed[..length].to_vec());
            prop_assert_eq!(&read[..], &samples[..read.len()]);
            prop_assert!(error.is_some(), "{} of {} bytes", length, packed.len());
        }
    }

    #[test]
    fn garbage_is_refused_or_read(file in vec(any::<u8>(), 0..600), magic in 0usize..12) {
        let magics: [&[u8]; 12] = [
            &[], &[0xd4, 0xc3, 0xb2, 0xa1], &[0xa1, 0xb2, 0xc3, 0xd4], &[0x4d, 0x3c, 0xb2, 0xa1],
            &[0x34, 0xcd, 0xb2, 0xa1], &[10, 13, 13, 10], &[10, 13, 13, 10, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a],
            &[0x1f, 0x8b, 8], &[0x28, 0xb5, 0x2f, 0xfd],
            b"BZh9", &[0xfd, b'7', b'z', b'X', b'Z', 0], &[0x04, 0x22, 0x4d, 0x18],
        ];
        read([magics[magic], &file].concat());
    }

    #[test]
    fn damage_anywhere_is_refused_or_read(
        (samples, format) in captures(), at: proptest::sample::Index, bytes in vec(any::<u8>(), 1..9)
    ) {
        let mut file = written(&samples, format);
        let at = at.index(file.len());
        let end = (at + bytes.len()).min(file.len());
        file[at..end].copy_from_slice(&bytes[..end - at]);
        read(file);
    }

    #[test]
    fn merging_is_sorting_where_each_capture_is_sorted(
        mut captures in vec(vec(sample(&[1]), 0..20), 1..5)
    ) {
        captures.iter_mut().for_each(|capture| capture.sort_by_key(|sample| sample.time_ns));
        let readers = captures.iter().map(|samples| reader(written(samples, Format::Pcap)).unwrap()).collect();
        let mut expected: Vec<(usize, Sample)> =
            captures.into_iter().enumerate().flat_map(|(index, c)| c.into_iter().map(move |s| (index, s))).collect();
        expected.sort_by_key(|(_, sample)| sample.time_ns);
        let mut merge = Merge::new(readers);
        let mut merged = Vec::new();
        while merge.advance().unwrap() {
            let packet = merge.packet();
            merged.push((merge.source(), packet.time_ns, packet.original.to_vec()));
        }
        let expected: Vec<_> = expected.into_iter().map(|(index, s)| (index, s.time_ns, s.bytes)).collect();
        prop_assert_eq!(merged, expected);
    }
}
