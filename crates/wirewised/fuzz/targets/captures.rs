// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a capture, packed or not: each packet is looked into, and written to a new capture.
#![no_main]

use std::io::{Cursor, sink};

use libfuzzer_sys::fuzz_target;
use readers::packets::headers;
use readers::packets::outer::Outer;
use wirewise_capture::{Error, Format, Reader, Writer};

/// A packed file of a few bytes may hold millions: reading goes on, and would give nothing new.
const PACKETS: usize = 1000;

fuzz_target!(|data: &[u8]| {
    if let Err(error) = read(data) {
        readers::assert_one_line(error);
    }
});

fn read(data: &[u8]) -> Result<(), Error> {
    let mut capture = Reader::from_reader("x", Cursor::new(data.to_vec()))?;
    let mut copy = Writer::new(sink(), Format::Pcapng);
    for _ in 0..PACKETS {
        match capture.next_packet() {
            Ok(Some(packet)) => {
                headers::of(packet.frame);
                Outer::parse(packet.frame).map(|outer| outer.conversation());
                let _ = copy.write(&packet);
            }
            Ok(None) => break,
            Err(error) if error.is_about_one_packet() => {
                readers::assert_one_line(error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
