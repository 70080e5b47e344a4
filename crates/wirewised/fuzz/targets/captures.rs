// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a capture, packed or not: each packet is looked into, and written to a new capture.
#![no_main]
#![allow(clippy::panic, clippy::expect_used, reason = "a finding ends the process")]

use std::io::{Cursor, sink};

use libfuzzer_sys::fuzz_target;
use wirewise_capture::{Error, Format, Reader, Writer};
use wirewised::error::Error as Refusal;
use wirewised::packets::headers;
use wirewised::packets::outer::Outer;

#[path = "../one_line.rs"]
mod one_line;

/// A packed file of a few bytes may hold millions: reading goes on, and would give nothing new.
const PACKETS: usize = 1000;

fuzz_target!(|data: &[u8]| {
    if let Err(error) = read(data) {
        one_line::assert_one_line(&Refusal::input(error).to_string());
    }
});

fn read(data: &[u8]) -> Result<(), Error> {
    let mut capture = Reader::from_reader("x", Cursor::new(data.to_vec()))?;
    let mut copy = Writer::new(sink(), Format::Pcapng).expect("a sink takes all");
    for _ in 0..PACKETS {
        match capture.next_packet() {
            Ok(Some(packet)) => {
                headers::of(packet.frame);
                Outer::parse(packet.frame).map(|outer| outer.conversation());
                let _ = copy.write(&packet);
            }
            Ok(None) => break,
            Err(error) if error.is_about_one_packet() => {
                one_line::assert_one_line(&Refusal::input(error).to_string());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
