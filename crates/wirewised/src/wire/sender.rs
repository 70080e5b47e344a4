// SPDX-License-Identifier: Apache-2.0
//! Packets from the kernel itself: BPF_PROG_TEST_RUN with live frames runs an XDP program on frames that it then sends, without a socket
//! buffer. The program writes each frame anew, because it gets back what the receiver made of those before, gives it the port of its flow,
//! counts it, and lets it go when it is due.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use bytemuck::{Pod, Zeroable};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use libbpf_sys as bpf;

use crate::error::{Error, Result};
use crate::kernel::assembler::{
    self, ADD, ADD_REGISTER, AND, CALL, EXIT, IF_BEYOND, IF_EQUAL, ITS_VALUE, LOAD_MAP, LOAD_U32, LOAD_U64,
    Line, MOVE, SECOND_HALF, SET, SHIFT_LEFT, STORE_NUMBER, STORE_U16, STORE_U64, TO_BIG_ENDIAN, XOR,
    assemble,
};
use crate::kernel::{self};
use crate::object;

/// Flows that take turns, a power of two: each has a source port of its own.
pub const FLOWS: i32 = 64;
const FIRST_PORT: i32 = 4096;
/// Ethernet, IPv4 and UDP (10.77.0.1 to 10.77.0.2:53): 64 bytes.
pub const FRAME: [u8; 64] = frame(&[
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, // Ethernet: addresses of no interface, IPv4
    0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2, // IPv4: 50 bytes, TTL 64, UDP
    0, 0, 0, 53, 0, 30, 0, 0, // UDP: ports, 30 bytes, no checksum
]);
/// Likewise of TCP, from 10.88.0.0/16 to port 80: the beginning of a connection.
const SYN: [u8; 64] = frame(&[
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, // Ethernet, IPv4
    0x45, 0, 0, 40, 0xff, 0xff, 0, 0, 64, 6, 0, 0, 10, 88, 0, 0, 10, 77, 0, 2, // IPv4: 40 bytes, TCP
    0x30, 0x39, 0, 80, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0, // TCP: SYN
]);
const IDENTIFICATION: i16 = 18;
const SOURCE: i16 = 28;
const SOURCE_PORT: i16 = 34;
const SEQUENCE: i16 = 40;
const IP: usize = 14;
const TCP: usize = 34;
const HEADERS_OF_TCP: usize = 54;
/// Of a frame, in whole words: all headers are in it.
const WRITTEN: usize = 56;

/// With the checksums of IPv4 and, if it is one of TCP, of that.
const fn frame(headers: &[u8]) -> [u8; 64] {
    let mut frame = [0; 64];
    let mut at = 0;
    while at < headers.len() {
        frame[at] = headers[at];
        at += 1;
    }
    let sum = folded(sum(&frame, IP, TCP));
    (frame[IP + 10], frame[IP + 11]) = ((sum >> 8) as u8, sum as u8);
    if headers.len() == HEADERS_OF_TCP {
        // The pseudo-header: addresses, protocol and length.
        let pseudo = sum_of_addresses(&frame) + 6 + (HEADERS_OF_TCP - TCP) as u32;
        let sum = folded(pseudo + self::sum(&frame, TCP, HEADERS_OF_TCP));
        (frame[TCP + 16], frame[TCP + 17]) = ((sum >> 8) as u8, sum as u8);
    }
    frame
}

const fn sum_of_addresses(frame: &[u8; 64]) -> u32 {
    sum(frame, IP + 12, TCP)
}

/// Of its 16-bit words.
const fn sum(frame: &[u8; 64], from: usize, to: usize) -> u32 {
    let (mut sum, mut at) = (0, from);
    while at < to {
        sum += (frame[at] as u32) << 8 | frame[at + 1] as u32;
        at += 2;
    }
    sum
}

const fn folded(sum: u32) -> u16 {
    let sum = (sum >> 16) + (sum & 0xffff);
    !((sum >> 16) + sum) as u16
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// UDP of `FLOWS` flows.
    Udp,
    /// Beginnings of TCP connections, from 65,536 addresses that nobody has.
    Syn,
}

impl Traffic {
    fn frame(self) -> &'static [u8; 64] {
        match self {
            Self::Udp => &FRAME,
            Self::Syn => &SYN,
        }
    }

    /// Undoes what a receiver has written, such as other addresses or a hop less: r2 is the frame's start.
    fn anew(self) -> Vec<Line> {
        let (words, _) = self.frame()[..WRITTEN].as_chunks::<4>();
        let stored =
            |(at, word): (usize, &[u8; 4])| (STORE_NUMBER, 2, 0, 4 * at as i16, i32::from_ne_bytes(*word));
        words.iter().enumerate().map(stored).collect()
    }

    /// How one frame differs from the next: r1 is its number, r2 its start.
    fn differences(self) -> &'static [Line] {
        match self {
            Self::Udp => &[
                (AND, 1, 0, 0, FLOWS - 1),
                (ADD, 1, 0, 0, FIRST_PORT),
                (TO_BIG_ENDIAN, 1, 0, 0, 16),
                (STORE_U16, 2, 1, SOURCE_PORT, 0),
            ],
            // Two other words are always as much less as this one is more, so both checksums stay right.
            Self::Syn => &[
                (STORE_U16, 2, 1, SOURCE, 0),
                (XOR, 1, 0, 0, 0xffff),
                (STORE_U16, 2, 1, IDENTIFICATION, 0),
                (STORE_U16, 2, 1, SEQUENCE, 0),
            ],
        }
    }
}

/// Frames that are sent together at most. More would be other frames than those still in the cache.
const BATCH: u32 = 64;
/// Frames a call, far more than are asked for: a signal ends it. Beginning and ending a call takes the kernel tens of milliseconds, in
/// which nothing is sent, as it waits until no CPU runs the program.
const FRAMES: i32 = i32::MAX;
/// Fractional bits of a nanosecond in `State`.
const FRACTION: u32 = 8;

/// The value of the program's map.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct State {
    sent: u64,
    /// When the next frame goes, in 1/256 ns of the kernel's clock.
    due: u64,
    /// Between two frames, likewise; 0: as fast as it goes.
    interval: u64,
}
const SENT: i16 = 0;
const DUE: i16 = 8;
const INTERVAL: i16 = 16;

/// Where lines jump to.
const SEND: i16 = i16::MAX;
const WAIT: i16 = i16::MAX - 1;

/// A frame that is not due is dropped here, which costs this CPU less than a packet, and the next is asked.
const PACE: &[Line] = &[
    (MOVE, 6, 1, 0, 0), // r6: the context
    (LOAD_MAP, 7, ITS_VALUE, 0, 0),
    SECOND_HALF,                   // r7: the state
    (LOAD_U64, 8, 7, INTERVAL, 0), // r8: the interval
    (IF_EQUAL, 8, 0, SEND, 0),
    (CALL, 0, 0, 0, bpf::BPF_FUNC_ktime_get_ns as i32),
    (SHIFT_LEFT, 0, 0, 0, FRACTION as i32), // r0: now
    (LOAD_U64, 1, 7, DUE, 0),
    (IF_BEYOND, 1, 0, WAIT, 0),
    (ADD_REGISTER, 1, 8, 0, 0),
    (STORE_U64, 7, 1, DUE, 0),
];
const LET_GO: &[Line] = &[
    (LOAD_U32, 2, 6, 0, 0), // r2: where the packet starts
    (LOAD_U32, 3, 6, 4, 0), // r3: where it ends
    (MOVE, 4, 2, 0, 0),
    (ADD, 4, 0, 0, WRITTEN as i32),
    (IF_BEYOND, 4, 3, WAIT, 0),
    (LOAD_U64, 1, 7, SENT, 0),
    (ADD, 1, 0, 0, 1),
    (STORE_U64, 7, 1, SENT, 0),
];
const GO: &[Line] = &[(SET, 0, 0, 0, bpf::XDP_TX as i32), (EXIT, 0, 0, 0, 0)];
const KEEP: &[Line] = &[(SET, 0, 0, 0, bpf::XDP_DROP as i32), (EXIT, 0, 0, 0, 0)];

/// Sends out of an interface of the namespace of the thread that calls `send`.
pub struct Sender {
    traffic: Traffic,
    program: OwnedFd,
    map: MapHandle,
    interface: u32,
}

impl Sender {
    /// interface : the index of the sending end.
    pub fn new(interface: u32, traffic: Traffic) -> Result<Self> {
        let options =
            bpf::bpf_map_create_opts { sz: size_of::<bpf::bpf_map_create_opts>() as _, ..Default::default() };
        let size = size_of::<State>() as u32;
        let map = MapHandle::create(MapType::Array, Some("ww_sender"), 4, size, 1, &options)
            .map_err(|error| Error::missing(format!("the sender's map cannot be made: {error}")))?;
        let program = load(map.as_fd().as_raw_fd(), traffic)
            .map_err(|error| Error::missing(format!("the sender's program cannot be loaded: {error}")))?;
        Ok(Self { traffic, program, map, interface })
    }

    /// Before it sends. rate : packets a second; `None`: as many as go.
    pub fn pace(&self, rate: Option<u32>) -> Result<()> {
        let interval = rate.map_or(0, |rate| (1_000_000_000 << FRACTION) / u64::from(rate));
        let state = State { sent: 0, due: kernel::monotonic_ns() << FRACTION, interval };
        self.map
            .update(&0u32.to_ne_bytes(), bytemuck::bytes_of(&state), MapFlags::ANY)
            .map_err(|error| Error::other(format!("the sender cannot be told its rate: {error}")))
    }

    /// Frames that were sent since `pace`, whether or not the other end had room.
    pub fn sent(&self) -> Result<u64> {
        object::read_element::<State>(&self.map, 0).map(|state| state.sent)
    }

    /// Sends until asked to stop, and interrupted by a signal.
    pub fn send(&self, stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            self.send_some()?;
        }
        Ok(())
    }

    fn send_some(&self) -> Result<()> {
        let mut context = bpf::xdp_md { ingress_ifindex: self.interface, ..Default::default() };
        context.data_end = FRAME.len() as u32;
        let mut options = bpf::bpf_test_run_opts {
            sz: size_of::<bpf::bpf_test_run_opts>() as _,
            data_in: self.traffic.frame().as_ptr().cast(),
            data_size_in: FRAME.len() as u32,
            ctx_in: std::ptr::from_ref(&context).cast(),
            ctx_size_in: size_of::<bpf::xdp_md>() as u32,
            repeat: FRAMES,
            flags: bpf::BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: BATCH,
            ..Default::default()
        };
        // SAFETY: the options are of their own size and point to frame and context, which outlive the call and are only read.
        let code = unsafe { bpf::bpf_prog_test_run_opts(self.program.as_raw_fd(), &mut options) };
        match -code {
            0 | libc::EINTR => Ok(()),
            error => Err(Error::missing(format!(
                "the kernel cannot send live frames (BPF_PROG_TEST_RUN, Linux 5.18): {}",
                io::Error::from_raw_os_error(error)
            ))),
        }
    }
}

fn load(map: RawFd, traffic: Traffic) -> io::Result<OwnedFd> {
    let lines = [PACE, LET_GO, &traffic.anew(), traffic.differences(), GO].concat();
    let (send, wait) = (PACE.len(), lines.len());
    let code = assemble(&[&lines, KEEP].concat(), &[(SEND, send), (WAIT, wait)], map);
    assembler::load(bpf::BPF_PROG_TYPE_XDP, c"ww_sender", &code)
}

#[cfg(test)]
mod tests {
    use test_needs::{Need, skip};

    use super::*;

    #[test]
    fn what_a_receiver_has_written_on_a_frame_is_undone() {
        let missing = kernel::missing_capabilities();
        if !missing.is_empty() {
            return skip(Need::Root, format_args!("loading a program needs {}", missing.join(", ")));
        }
        for traffic in [Traffic::Udp, Traffic::Syn] {
            let sender = Sender::new(1, traffic).unwrap();
            sender.pace(None).unwrap();
            let frame = |from: [u8; 64]| {
                let mut to = [0u8; 64];
                let mut options = bpf::bpf_test_run_opts {
                    sz: size_of::<bpf::bpf_test_run_opts>() as _,
                    data_in: from.as_ptr().cast(),
                    data_out: to.as_mut_ptr().cast(),
                    data_size_in: 64,
                    data_size_out: 64,
                    repeat: 1,
                    ..Default::default()
                };
                // SAFETY: both frames have the stated size and outlive the call.
                let code = unsafe { bpf::bpf_prog_test_run_opts(sender.program.as_raw_fd(), &mut options) };
                assert_eq!((code, options.retval), (0, bpf::XDP_TX));
                to
            };
            let mut routed = *traffic.frame();
            routed[..WRITTEN].iter_mut().for_each(|byte| *byte ^= 0xa5);
            // The second frame sent, from scratch and from what came back, each by a sender that begins anew.
            let second = frame(*traffic.frame());
            sender.pace(None).unwrap();
            assert_eq!(frame(routed), second);
        }
    }
}
