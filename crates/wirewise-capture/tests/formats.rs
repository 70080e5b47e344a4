// SPDX-License-Identifier: Apache-2.0
//! The formats, field by field, with files made byte by byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Cursor;

use wirewise_capture::{Error, Format, Kind, LinkType, Merge, Packet, Reader, Writer};

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

struct Ng {
    big_endian: bool,
    file: Vec<u8>,
}

impl Ng {
    fn new(big_endian: bool) -> Self {
        Self { big_endian, file: Vec::new() }.section()
    }

    fn u32(&self, n: u32) -> [u8; 4] {
        if self.big_endian { n.to_be_bytes() } else { n.to_le_bytes() }
    }

    fn u16(&self, n: u16) -> [u8; 2] {
        if self.big_endian { n.to_be_bytes() } else { n.to_le_bytes() }
    }

    fn block(mut self, kind: u32, body: &[u8]) -> Self {
        let length = self.u32(body.len() as u32 + 12);
        self.file.extend([&self.u32(kind)[..], &length, body, &length].concat());
        self
    }

    fn section(self) -> Self {
        let body = [&self.u32(0x1a2b_3c4d)[..], &self.u16(1), &self.u16(0), &[0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    fn interface(self, link: u16, snap_length: u32, options: &[(u16, &[u8])]) -> Self {
        let mut body = [&self.u16(link)[..], &self.u16(0), &self.u32(snap_length)].concat();
        for (code, value) in options {
            body.extend(self.u16(*code));
            body.extend(self.u16(value.len() as u16));
            body.extend(*value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
        body.extend([0; 4]);
        self.block(1, &body)
    }

    fn packet(self, interface: u32, stamp: u64, frame: &[u8]) -> Self {
        let length = frame.len() as u32;
        let head = [interface, (stamp >> 32) as u32, stamp as u32, length, length];
        let mut body = head.map(|n| self.u32(n)).concat();
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        self.block(6, &body)
    }

    fn simple(self, wire_length: u32, frame: &[u8]) -> Self {
        let body = [&self.u32(wire_length)[..], frame].concat();
        self.block(3, &body)
    }
}

fn open(file: Vec<u8>) -> Result<Reader, Error> {
    Reader::from_reader("x", Cursor::new(file))
}

fn times(file: Vec<u8>) -> Result<Vec<u64>, Error> {
    let mut capture = open(file)?;
    let mut times = Vec::new();
    while let Some(packet) = capture.next_packet()? {
        times.push(packet.time_ns);
    }
    Ok(times)
}

#[test]
fn pcap_times_are_micro_or_nanoseconds_in_either_byte_order() {
    let records: &[(u32, u32, &[u8])] = &[(1, 2, &[0; 60]), (3, 999_999, &[0; 60])];
    for (magic, expected) in
        [(0xa1b2_c3d4, vec![1_000_002_000, 3_999_999_000]), (0xa1b2_3c4d, vec![1_000_000_002, 3_000_999_999])]
    {
        let little = pcap(magic, 1, records);
        let mut big = little.clone();
        big[4..6].reverse();
        big[6..8].reverse();
        for at in [0, 8, 12, 16, 20, 24, 28, 32, 36, 100, 104, 108, 112] {
            big[at..at + 4].reverse();
        }
        assert_eq!(times(little), Ok(expected.clone()));
        assert_eq!(times(big), Ok(expected));
    }
}

#[test]
fn the_modified_pcap_has_longer_record_headers() {
    let mut file = pcap(0xa1b2_cd34, 1, &[]);
    file.extend([5u32, 6, 4, 4, 9, 9].iter().flat_map(|n| n.to_le_bytes()));
    file.extend([7; 4]);
    let mut capture = open(file).unwrap();
    let packet = capture.next_packet().unwrap().unwrap();
    assert_eq!((packet.time_ns, packet.original), (5_000_006_000, &[7; 4][..]));
    assert_eq!(capture.next_packet().unwrap(), None);
}

#[test]
fn pcapng_times_follow_resolution_and_offset() {
    for big in [false, true] {
        let one = |options: &[(u16, &[u8])], stamp: u64| {
            times(Ng::new(big).interface(1, 0, options).packet(0, stamp, &[0; 14]).file)
        };
        let offset = if big { 5i64.to_be_bytes() } else { 5i64.to_le_bytes() };
        let before = if big { (-5i64).to_be_bytes() } else { (-5i64).to_le_bytes() };
        assert_eq!(one(&[], 1_500_000), Ok(vec![1_500_000_000]));
        assert_eq!(one(&[(9, &[9])], 7), Ok(vec![7]));
        assert_eq!(one(&[(9, &[0x81])], 3), Ok(vec![1_500_000_000]));
        assert_eq!(one(&[(2, b"eth0"), (14, &offset)], 1), Ok(vec![5_000_001_000]));
        assert_eq!(one(&[(14, &before)], 1).unwrap_err().kind(), Kind::Unusable);
        assert_eq!(one(&[(9, &[0x7f])], 1).unwrap_err().kind(), Kind::Unusable);
    }
}

#[test]
fn sections_have_their_own_interfaces_and_byte_order() {
    let first = Ng::new(false).interface(1, 0, &[(9, &[9])]).packet(0, 7, &[1; 14]);
    let mut second = Ng { big_endian: true, file: first.file }.section();
    second = second.interface(101, 0, &[]).interface(1, 0, &[(9, &[9])]);
    second = second.packet(0, 8, &[0x45]).packet(1, 9, &[2; 14]);
    let mut capture = open(second.file).unwrap();
    let mut seen = Vec::new();
    while let Some(packet) = capture.next_packet().unwrap() {
        seen.push((packet.number, packet.time_ns, packet.link.0, packet.original.len(), packet.frame.len()));
    }
    assert_eq!(seen, [(1, 7, 1, 14, 14), (2, 8000, 101, 1, 15), (3, 9, 1, 14, 14)]);
}

#[test]
fn simple_packets_are_cut_by_the_interface_and_have_the_time_before() {
    let file = Ng::new(false).interface(1, 16, &[]).packet(0, 3, &[1; 14]).simple(100, &[2; 16]);
    let mut capture = open(file.file).unwrap();
    capture.advance().unwrap();
    let packet = capture.next_packet().unwrap().unwrap();
    assert_eq!((packet.time_ns, packet.wire_length, packet.original), (3000, 100, &[2; 16][..]));
}

#[test]
fn one_unusable_packet_does_not_end_the_capture() {
    let file = Ng::new(false).interface(105, 0, &[]).interface(1, 0, &[]);
    let file = file.packet(0, 1, &[1; 14]).packet(7, 1, &[1; 14]).packet(1, 2, &[1; 14]).file;
    let mut capture = open(file).unwrap();
    let error = capture.advance().unwrap_err();
    assert_eq!((error.kind(), error.is_about_one_packet()), (Kind::Unusable, true));
    assert!(error.to_string().contains("packet 1, at byte 76: has link type IEEE802_11"), "{error}");
    assert!(capture.advance().unwrap_err().to_string().contains("packet 2"), "no such interface");
    assert_eq!(capture.next_packet().unwrap().unwrap().number, 3);
}

#[test]
fn a_capture_that_breaks_off_gives_its_packets_and_says_where() {
    let mut file = pcap(0xa1b2_c3d4, 1, &[(1, 0, &[0; 60]), (2, 0, &[0; 60])]);
    file.truncate(file.len() - 1);
    let mut capture = open(file).unwrap();
    assert_eq!(capture.next_packet().unwrap().unwrap().number, 1);
    let error = capture.next_packet().unwrap_err();
    assert_eq!(
        error.to_string(),
        "x: the capture breaks off inside a record, at byte 100 (76 bytes expected, 75 left), after 1 whole packets: \
         capture or copy the file again"
    );
    assert_eq!((error.kind(), error.offset(), error.packets()), (Kind::CutOff, 100, 1));
}

#[test]
fn what_is_no_capture_is_refused() {
    for (file, part) in [
        (Vec::new(), "is empty"),
        (b"hello, world".to_vec(), "neither a pcap"),
        (pcap(0xa1b2_c3d4, 1, &[])[..20].to_vec(), "inside its header"),
        (pcap(0xa1b2_c3d4, 147, &[(0, 0, &[0; 60])]), "link type LINKTYPE_147"),
    ] {
        let error = times(file).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
    let damaged = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..], &[0xff; 64]].concat();
    let error = times(damaged).unwrap_err().to_string();
    assert!(
        error.contains("corrupt deflate stream")
            && error.contains("at byte 0")
            && error.contains("copy the file"),
        "{error}"
    );
    assert_eq!(Reader::open("no/such/file".as_ref()).err().unwrap().kind(), Kind::Io);
    assert_eq!(Reader::open(".".as_ref()).err().unwrap().kind(), Kind::Io);
}

#[test]
fn captures_of_every_kind_are_read_behind_each_other() {
    let mut modified = pcap(0xa1b2_cd34, 1, &[]);
    modified.extend([3u32, 0, 0, 0, 9, 9].iter().flat_map(|n| n.to_le_bytes()));
    let mut big = pcap(0xa1b2_3c4d, 1, &[]);
    big[4..6].reverse();
    big[6..8].reverse();
    for at in [0, 16, 20] {
        big[at..at + 4].reverse();
    }
    big.extend([4u32, 0, 0, 0].iter().flat_map(|n| n.to_be_bytes()));
    let kinds = [
        pcap(0xa1b2_c3d4, 1, &[(3, 0, &[]), (4, 0, &[1; 60])]),
        pcap(0xa1b2_3c4d, 101, &[(4, 0, &[0x45; 20])]),
        modified,
        big,
        Ng::new(false).interface(1, 0, &[]).packet(0, 4_000_000, &[0; 14]).file,
        Ng::new(true).interface(1, 0, &[]).packet(0, 4_000_000, &[0; 14]).file,
    ];
    for first in &kinds {
        for second in &kinds {
            let alone = [times(first.clone()).unwrap(), times(second.clone()).unwrap()].concat();
            assert_eq!(times([&first[..], second].concat()).unwrap(), alone);
        }
        let cut = [&first[..], &kinds[0][..20]].concat();
        let error = times(cut).unwrap_err();
        assert_eq!((error.kind(), error.offset()), (Kind::CutOff, first.len() as u64), "{error}");
    }
}

#[test]
fn a_packet_without_bytes_from_the_year_2055_is_no_header() {
    let file = pcap(0xa1b2_c3d4, 1, &[(0xa1b2_c3d4, 7, &[]), (5, 0, &[1; 60])]);
    assert_eq!(times(file), Ok(vec![0xa1b2_c3d4_u64 * 1_000_000_000 + 7000, 5_000_000_000]));
}

#[test]
fn other_compression_is_named_with_the_way_out() {
    for (file, name, command) in [
        (&b"PK\x03\x04rest"[..], "zip", "`unzip`"),
        (&[0x02, 0x21, 0x4c, 0x18, 0, 0], "lz4's old format", "`lz4 -d`"),
        (&[0x1f, 0x9d, 0x90, 0, 0, 0], "compress (.Z)", "`uncompress`"),
    ] {
        let error = times(file.to_vec()).unwrap_err().to_string();
        assert!(error.contains(&format!("compressed by {name}")) && error.contains(command), "{error}");
    }
}

/// A file of a few hundred bytes may ask for a dictionary of gigabytes.
#[test]
fn a_decoder_takes_bounded_memory() {
    use liblzma::stream::{Check, Filters, LzmaOptions, Stream};
    let mut options = LzmaOptions::new_preset(0).unwrap();
    options.dict_size(1 << 30);
    let stream = Stream::new_stream_encoder(Filters::new().lzma2(&options), Check::Crc32).unwrap();
    let capture = pcap(0xa1b2_c3d4, 1, &[(1, 0, &[0; 60])]);
    let mut packed = Vec::new();
    std::io::Read::read_to_end(
        &mut liblzma::bufread::XzEncoder::new_stream(&capture[..], stream),
        &mut packed,
    )
    .unwrap();
    let error = times(packed).unwrap_err().to_string();
    assert!(error.contains("memory"), "{error}");
}

#[test]
fn an_impossible_length_does_not_eat_the_memory() {
    let mut file = pcap(0xa1b2_c3d4, 1, &[(1, 0, &[0; 60])]);
    file[32..36].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(times(file.clone()).unwrap_err().to_string().contains("impossible length"));
    file[32..36].copy_from_slice(&(16u32 << 20).to_le_bytes());
    assert_eq!(times(file).unwrap_err().kind(), Kind::CutOff);
}

#[test]
fn interfaces_without_end_do_not_eat_the_memory() {
    const MOST: usize = 1 << 16;
    let one = Ng { big_endian: false, file: Vec::new() }.interface(1, 0, &[]).file;
    let described = |count: usize| [Ng::new(false).file, one.repeat(count)].concat();
    assert_eq!(times(described(MOST)), Ok(vec![]));
    let error = times(described(MOST + 1)).unwrap_err();
    assert_eq!(error.kind(), Kind::Damaged);
    assert!(error.to_string().contains("describes more than 65536 interfaces"), "{error}");
    // Each section has its own.
    assert_eq!(times([described(MOST), described(MOST)].concat()), Ok(vec![]));
}

#[test]
fn a_merge_goes_on_behind_a_capture_that_breaks_off() {
    let whole = pcap(0xa1b2_c3d4, 1, &[(1, 0, &[1; 14]), (4, 0, &[1; 14])]);
    let cut = pcap(0xa1b2_c3d4, 1, &[(2, 0, &[2; 14]), (3, 0, &[2; 14])]);
    let empty = pcap(0xa1b2_c3d4, 1, &[]);
    let broken = cut[..30].to_vec();
    let readers = [broken, whole, cut[..cut.len() - 1].to_vec(), empty].map(|file| open(file).unwrap());
    let mut merge = Merge::new(readers.into());
    let mut seen = Vec::new();
    loop {
        match merge.advance() {
            Ok(true) => seen.push((merge.source(), merge.packet().time_ns / 1_000_000_000)),
            Ok(false) => break,
            Err(error) => seen.push((9, error.packets())),
        }
    }
    assert_eq!(seen, [(9, 0), (1, 1), (2, 2), (9, 1), (1, 4)]);
}

#[test]
fn a_pcap_holds_one_link_type_and_times_up_to_2106() {
    let packet = |link: u16, time_ns: u64| Packet {
        number: 1,
        time_ns,
        wire_length: 20,
        link: LinkType(link),
        original: &[0x45; 20],
        frame: &[],
    };
    let mut writer = Writer::new(Vec::new(), Format::Pcap);
    writer.write(&packet(101, 1)).unwrap();
    assert!(writer.write(&packet(1, 1)).unwrap_err().to_string().contains("one link type, this one RAW"));
    assert!(writer.write(&packet(101, u64::MAX)).unwrap_err().to_string().contains("2106"));
    assert_eq!(writer.packets(), 1);
    assert_eq!(times(writer.finish().unwrap()), Ok(vec![1]));
    let empty = Writer::new(Vec::new(), Format::Pcapng).finish().unwrap();
    assert_eq!(times(empty), Ok(vec![]));
    assert_eq!(Format::of("a/b.pcapng".as_ref()), Format::Pcapng);
    assert_eq!(Format::of("-".as_ref()), Format::Pcap);
}
