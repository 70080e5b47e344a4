// SPDX-License-Identifier: Apache-2.0
//! How fast captures are read: `cargo run --release --example speed FILE...`

use std::time::Instant;

use wirewise_capture::Reader;

fn main() -> Result<(), wirewise_capture::Error> {
    for path in std::env::args_os().skip(1) {
        let start = Instant::now();
        let mut capture = Reader::open(path.as_ref())?;
        let (mut packets, mut bytes, mut sum) = (0u64, 0u64, 0u64);
        while let Some(packet) = capture.next_packet()? {
            packets += 1;
            bytes += packet.frame.len() as u64;
            sum += u64::from(packet.frame.first().copied().unwrap_or(0));
        }
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{}: {packets} packets, {bytes} bytes (first bytes' sum {sum}), {:.1} M packets/s, {:.2} GB/s",
            path.display(),
            packets as f64 / seconds / 1e6,
            bytes as f64 / seconds / 1e9
        );
    }
    Ok(())
}
