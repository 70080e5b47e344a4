// SPDX-License-Identifier: Apache-2.0
//! Any bytes as a file of labels, of the kind that the first byte says, and what it says of a few packets.
#![no_main]

use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use readers::error::Result;
use readers::labels::{Labels, Seen};
use readers::packets::outer::Outer;
use tempfile::TempDir;

/// Seeds begin with the digits of these places.
const FILES: [(&str, Option<&str>); 4] =
    [("rules.yaml", None), ("list.csv", Some("benign")), ("list.flows", None), ("manifest.json", None)];
/// In ns since 1970; the seeds' flows are around the first.
const TIMES: [u64; 5] = [1_700_000_000_000_000_000, 1_700_000_001_000_000_000, 0, u64::MAX, 1];

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    // In memory, where there is such a place: each input is a file.
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder of its own")
});

fuzz_target!(|data: &[u8]| {
    let Some((kind, content)) = data.split_first() else { return };
    let (name, otherwise) = FILES[usize::from(kind % 4)];
    fs::write(FOLDER.path().join(name), content).expect("the folder is writable");
    if let Err(error) = label(name, otherwise) {
        readers::assert_one_line(error);
    }
});

fn label(name: &str, otherwise: Option<&str>) -> Result<()> {
    let labels = Labels::open(&FOLDER.path().join(name), otherwise)?;
    let names = labels.names();
    let mut labeller = labels.of_capture(&FOLDER.path().join("x.pcap"))?;
    for time_ns in TIMES {
        for frame in frames() {
            let outer = Outer::parse(&frame);
            let label = labeller.label(&Seen { time_ns, frame: &frame, outer: outer.as_ref() })?;
            assert!((label as usize) < names.len(), "label {label} of {}", names.len());
        }
    }
    labeller.joined();
    Ok(())
}

/// TCP, UDP and ICMP from 10.0.0.1 to 10.0.0.2, from port 1 to port 2, an ARP request, and nothing.
fn frames() -> [Vec<u8>; 5] {
    let ipv4 = |protocol: u8| {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 1, 0, 2, 0, 20, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0]);
        frame
    };
    let mut arp = vec![2; 12];
    arp.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
    [ipv4(6), ipv4(17), ipv4(1), arp, Vec::new()]
}
