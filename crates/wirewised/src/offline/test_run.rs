// SPDX-License-Identifier: Apache-2.0
//! Programs run on frames of our own, over and over (BPF_PROG_TEST_RUN): loaded with a policy under which every class passes,
//! every packet is inferred and no event is sent. Nothing is attached.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Barrier;
use std::thread;

use bytemuck::Zeroable;
use libbpf_rs::{MapCore, MapFlags};

use crate::abi;
use crate::error::{Error, Result};
use crate::kernel;
use crate::object::{Loaded, Opened, Settings};

/// input : what errors call the object.
pub fn load(input: &str, object: &[u8], settings: &Settings) -> Result<Loaded> {
    load_with(input, object, settings, &abi::Policy::zeroed())
}

/// As `load`, under another policy than the one that lets every class pass and infers every packet.
pub fn load_with(input: &str, object: &[u8], settings: &Settings, policy: &abi::Policy) -> Result<Loaded> {
    let mut opened = Opened::open(input, object)?;
    opened.prepare(settings)?;
    let loaded = opened.load()?;
    if let Some(map) = loaded.map("ww_policy") {
        map.update(&0u32.to_ne_bytes(), bytemuck::bytes_of(policy), MapFlags::ANY)
            .map_err(|error| Error::other(format!("{input}: cannot write the policy: {error}")))?;
    }
    Ok(loaded)
}

/// Every class passes, or is dropped. trigger_packets : none: every packet is inferred.
pub fn policy(trigger_packets: &[u32], drop: bool) -> abi::Policy {
    let mut policy = abi::Policy::zeroed();
    if drop {
        policy.mode = abi::Mode::Enforce.code();
        policy.class_policy.iter_mut().for_each(|class| class.action = abi::Action::Drop.code());
    }
    for packet in trigger_packets {
        policy.trigger = abi::Trigger::Packets.code();
        policy.trigger_packets[*packet as usize / 64] |= 1 << (packet % 64);
    }
    policy
}

/// What a packet took.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    /// CPU time of the call over its packets. The kernel's figure has no decimals.
    pub ns: f64,
    /// The kernel's own figure, rounded down.
    pub kernel_ns: u32,
}

/// Runs the program `repeat` times on the frame, which keeps what the program writes into it.
pub fn run(program: &Loaded, frame: &[u8], repeat: u32) -> Result<Timed> {
    run_entry(program.entry()?.as_fd(), frame, repeat)
}

/// Runs the program on several CPUs at once, on each `repeat` times on its frame. frames : CPU and frame.
pub fn run_on_cpus(program: &Loaded, frames: &[(u32, Vec<u8>)], repeat: u32) -> Result<Vec<Timed>> {
    let (entry, ready) = (program.entry()?, Barrier::new(frames.len()));
    let fd = entry.as_fd();
    let run = |(cpu, frame): &(u32, Vec<u8>)| {
        let pinned = kernel::pin_to(*cpu);
        ready.wait();
        pinned.and_then(|()| run_entry(fd, frame, repeat))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = frames.iter().map(|frame| scope.spawn(|| run(frame))).collect();
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Error::other("a thread of the test run stopped")))
        });
        ended.collect()
    })
}

fn run_entry(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> Result<Timed> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: repeat as i32,
        ..Default::default()
    };
    // Time on the CPU, not on the wall: in so long a call the kernel lets others run, and does not count it either.
    let start = kernel::thread_cpu_ns();
    // SAFETY: the options are of their own size and point to `frame`, which outlives the call and is only read.
    let code = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    let ns = kernel::thread_cpu_ns() - start;
    if code != 0 {
        let error = io::Error::from_raw_os_error(-code);
        return Err(Error::missing(format!(
            "the kernel cannot test-run a frame of {} bytes: {error}",
            frame.len()
        )));
    }
    Ok(Timed { ns: ns as f64 / f64::from(repeat.max(1)), kernel_ns: options.duration })
}

/// Ethernet, IPv4 and TCP (an ACK from 10.0.0.1:40000 to 10.0.0.2:443) with ten bytes of payload: 64 bytes.
pub fn default_frame() -> Vec<u8> {
    const HEADERS: [u8; 54] = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, // Ethernet: addresses, IPv4
        0x45, 0, 0, 50, 0, 1, 0x40, 0, 64, 6, 0x26, 0xc3, // IPv4: 50 bytes, TTL 64, TCP
        10, 0, 0, 1, 10, 0, 0, 2, // addresses
        0x9c, 0x40, 0x01, 0xbb, 0, 0, 0, 1, 0, 0, 0, 1, // TCP: ports, sequence, acknowledgement
        0x50, 0x10, 0x20, 0, 0, 0, 0, 0, // data offset 5, ACK, window 8192
    ];
    let mut frame = HEADERS.to_vec();
    frame.resize(64, 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_sets_the_bits_of_its_packets() {
        let policy = policy(&[1, 2, 64, 1023], false);
        assert_eq!(policy.trigger, abi::Trigger::Packets.code());
        assert_eq!((policy.trigger_packets[0], policy.trigger_packets[1]), (0b110, 1));
        assert_eq!(policy.trigger_packets[15], 1 << 63);
        assert_eq!(super::policy(&[], false), abi::Policy::zeroed());
    }

    #[test]
    fn the_default_frame_is_what_its_comment_says() {
        let frame = default_frame();
        assert_eq!(frame.len(), 64);
        let header = &frame[14..34];
        assert_eq!(usize::from(header[3]) + 14, frame.len());
        let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
        assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff, "IPv4 header checksum");
    }
}
