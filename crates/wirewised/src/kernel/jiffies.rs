// SPDX-License-Identifier: Apache-2.0
//! The kernel's tick as a clock: what `ww_config` needs so that the data path reads the time in one load.
//!
//! The kernel tells nobody how long its tick is, so it is measured: a program of our own reads jiffies and the monotonic clock
//! at one moment, again and again for some ticks.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use libbpf_sys::bpf_insn;

/// What Linux is built with, ticks a second: kernel/Kconfig.hz.
const RATES: [u64; 4] = [100, 250, 300, 1000];
const SECOND_NS: u64 = 1_000_000_000;
/// Long enough to tell 250 from 300: 20 ticks from 24.
const MEASURED_NS: u64 = 80_000_000;
/// Between two readings: several in a tick, so that one is just behind its start.
const PAUSE: Duration = Duration::from_millis(1);
/// Ticks by which a count may be off: one begun and one ended tick are less than one; the rest is for a late interrupt.
const TOLERANCE: f64 = 1.5;
const TRIES: usize = 3;
/// The kernel test-runs no frame shorter than an Ethernet header.
const FRAME: usize = 64;

/// `bpf_jiffies64() * tick_ns + zero_ns` (modulo 2^64) is CLOCK_MONOTONIC, late by up to a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Jiffies {
    pub tick_ns: u64,
    pub zero_ns: u64,
}

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy)]
struct Sample {
    jiffies: u64,
    monotonic_ns: u64,
}

/// This kernel's, measured once in the life of a process (80 ms). `None`: it could not be told beyond doubt.
pub fn of_this_kernel() -> Option<Jiffies> {
    static MEASURED: OnceLock<Option<Jiffies>> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let measured = Reader::load().and_then(|reader| {
            for _ in 0..TRIES {
                if let Some(jiffies) = estimate(&reader.samples()?) {
                    return Ok(Some(jiffies));
                }
            }
            Ok(None)
        });
        match measured {
            Ok(jiffies) => jiffies,
            Err(error) => {
                tracing::info!("cannot measure the kernel's tick: {error}");
                None
            }
        }
    })
}

/// The one rate that the readings allow, in the order they were taken; `None` if several do, or none.
fn estimate(samples: &[Sample]) -> Option<Jiffies> {
    let (first, last) = (samples.first()?, samples.last()?);
    let ticks = last.jiffies.checked_sub(first.jiffies)? as f64;
    let elapsed = last.monotonic_ns.checked_sub(first.monotonic_ns)?;
    let fits = |rate: &u64| (elapsed as f64 / (SECOND_NS / rate) as f64 - ticks).abs() < TOLERANCE;
    let mut rates = RATES.into_iter().filter(fits);
    let (Some(rate), None) = (rates.next(), rates.next()) else { return None };
    let tick_ns = SECOND_NS / rate;
    let ticks_ns = |sample: &Sample| sample.jiffies.wrapping_mul(tick_ns);
    // A reading is up to a tick behind the tick's start; the one that is least behind counts. The differences from the first
    // are compared, because zero_ns itself wraps.
    let zero = |sample: &Sample| sample.monotonic_ns.wrapping_sub(ticks_ns(sample));
    let behind = samples.iter().map(|sample| zero(sample).wrapping_sub(zero(first)) as i64).min()?;
    Some(Jiffies { tick_ns, zero_ns: zero(first).wrapping_add_signed(behind) })
}

/// The loaded program.
struct Reader(OwnedFd);

impl Reader {
    fn load() -> io::Result<Self> {
        let program = program();
        // SAFETY: name and license are C strings, `program` holds the given number of instructions, and no options are legal.
        let fd = unsafe {
            libbpf_sys::bpf_prog_load(
                libbpf_sys::BPF_PROG_TYPE_XDP,
                c"ww_jiffies".as_ptr(),
                c"Apache-2.0".as_ptr(),
                program.as_ptr(),
                program.len() as _,
                std::ptr::null_mut(),
            )
        };
        check(fd)?;
        // SAFETY: the kernel just made this descriptor for us.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn samples(&self) -> io::Result<Vec<Sample>> {
        let first = self.sample()?;
        let mut samples = vec![first];
        loop {
            sleep(PAUSE);
            let sample = self.sample()?;
            samples.push(sample);
            if sample.monotonic_ns.saturating_sub(first.monotonic_ns) >= MEASURED_NS {
                return Ok(samples);
            }
        }
    }

    fn sample(&self) -> io::Result<Sample> {
        let mut frame = [0u8; FRAME];
        let input = frame;
        // SAFETY: integers and pointers, of which zero and null are values.
        let mut options: libbpf_sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
        options.sz = size_of_val(&options) as _;
        options.data_in = input.as_ptr().cast();
        options.data_size_in = FRAME as u32;
        options.data_out = frame.as_mut_ptr().cast();
        options.data_size_out = FRAME as u32;
        options.repeat = 1;
        // SAFETY: both frames have the stated size and outlive the call; the descriptor is open.
        check(unsafe { libbpf_sys::bpf_prog_test_run_opts(self.0.as_raw_fd(), &mut options) })?;
        let word = |index: usize| bytemuck::pod_read_unaligned::<u64>(&frame[index * 8..][..8]);
        Ok(Sample { jiffies: word(0), monotonic_ns: word(1) })
    }
}

fn check(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}

/// An XDP program that writes bpf_jiffies64() and bpf_ktime_get_ns() over the first 16 bytes of the frame.
fn program() -> [bpf_insn; 12] {
    use libbpf_sys as sys;
    let call = |helper: u32| instruction(sys::BPF_JMP | sys::BPF_CALL, 0, 0, 0, helper as i32);
    let load = |to, offset| instruction(sys::BPF_LDX | sys::BPF_W | sys::BPF_MEM, to, 1, offset, 0);
    let store = |offset| instruction(sys::BPF_STX | sys::BPF_DW | sys::BPF_MEM, 6, 0, offset, 0);
    let set = |to, value| instruction(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, to, 0, 0, value);
    [
        set(0, sys::XDP_ABORTED as i32),
        load(6, 0), // r6 = data
        load(7, 4), // r7 = data_end
        instruction(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X, 2, 6, 0, 0),
        instruction(sys::BPF_ALU64 | sys::BPF_ADD | sys::BPF_K, 2, 0, 0, 16),
        instruction(sys::BPF_JMP | sys::BPF_JGT | sys::BPF_X, 2, 7, 5, 0), // too short: to the end
        call(sys::BPF_FUNC_jiffies64),
        store(0),
        call(sys::BPF_FUNC_ktime_get_ns),
        store(8),
        set(0, sys::XDP_PASS as i32),
        instruction(sys::BPF_JMP | sys::BPF_EXIT, 0, 0, 0, 0),
    ]
}

fn instruction(code: u32, destination: u8, source: u8, off: i16, imm: i32) -> bpf_insn {
    let mut instruction = bpf_insn { code: code as u8, off, imm, ..bpf_insn::default() };
    instruction.set_dst_reg(destination);
    instruction.set_src_reg(source);
    instruction
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Readings a millisecond apart of a kernel whose tick 0 was at `zero_ns`, each interrupt late by `late_ns`.
    fn samples(rate: u64, start_ns: u64, zero_ns: u64, late_ns: u64) -> Vec<Sample> {
        let tick_ns = SECOND_NS / rate;
        let times = (0..=80).map(|step| start_ns + step * 1_060_000);
        times
            .map(|monotonic_ns| {
                let jiffies = monotonic_ns.wrapping_sub(zero_ns).wrapping_sub(late_ns) / tick_ns;
                Sample { jiffies, monotonic_ns }
            })
            .collect()
    }

    proptest! {
        #[test]
        fn the_tick_is_found_and_its_time_is_never_ahead(
            rate in prop::sample::select(&RATES[..]), start_ns in 1 << 40..1u64 << 60, boot_ticks in 1u64 << 31..1 << 32,
            late_ns in 0u64..500_000,
        ) {
            let tick_ns = SECOND_NS / rate;
            // Jiffies start near 2^32 at boot: their zero is before that of the monotonic clock.
            let zero_ns = 0u64.wrapping_sub(boot_ticks * tick_ns);
            let samples = samples(rate, start_ns, zero_ns, late_ns);
            let jiffies = estimate(&samples).unwrap();
            prop_assert_eq!(jiffies.tick_ns, tick_ns);
            for sample in samples {
                let time = sample.jiffies.wrapping_mul(jiffies.tick_ns).wrapping_add(jiffies.zero_ns);
                let behind = sample.monotonic_ns.wrapping_sub(time) as i64;
                prop_assert!((0..tick_ns as i64 + 500_000).contains(&behind), "{behind}");
            }
        }

        #[test]
        fn a_rate_of_no_kernel_is_not_taken_for_one(rate in prop::sample::select(&[24u64, 48, 128, 200, 500][..])) {
            prop_assert_eq!(estimate(&samples(rate, 1 << 40, 0, 0)), None);
        }
    }

    #[test]
    fn readings_that_fit_two_rates_fit_none() {
        let sample = |jiffies, monotonic_ns| Sample { jiffies, monotonic_ns };
        assert_eq!(estimate(&[sample(100, 0), sample(102, 8_000_000)]), None);
        assert_eq!(estimate(&[sample(100, 0), sample(99, 80_000_000)]), None);
        assert_eq!(estimate(&[]), None);
    }
}
