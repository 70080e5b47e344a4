// SPDX-License-Identifier: Apache-2.0
//! How an engine runs its programs.

/// Where `bpf_ktime_get_ns` and its relatives take the time from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClockSource {
    /// The system's clocks, read at each call, as in the kernel.
    #[default]
    Live,
    /// [`Engine::set_time`](crate::Engine::set_time), or the time of each packet in a batch.
    Manual,
    /// The system's clock, read once a run or batch: saves the price of a clock read for each packet, and makes all
    /// packets of a batch arrive at the same time.
    PerBatch,
}

/// What makes native code of the byte code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Backend {
    /// Cranelift: milliseconds to compile.
    #[default]
    Cranelift,
    /// C through `clang -O3 -march=native`: some tenths of a second to compile, needs clang at run time.
    #[cfg(feature = "aot")]
    Clang,
}

/// How an engine runs its programs; `Options::default()` suits live traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Confine all memory access to the engine's own 4 GiB region, and bound the run time. `None`: exactly if the byte
    /// code is not verified; `Some(false)` for byte code that is not verified is refused.
    pub caged: Option<bool>,
    /// Caged: backward jumps and calls one packet may take. Those over long code cost more, one for each 4,096 operations; so does what
    /// helpers copy, one for each 4,096 bytes.
    pub fuel: u64,
    /// The clock.
    pub clock: ClockSource,
    /// What `bpf_get_smp_processor_id` returns.
    pub cpu: u32,
    /// CPUs there are; `cpu` is one of them.
    pub cpus: u32,
    /// The code generator.
    pub backend: Backend,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            caged: None,
            fuel: 1 << 20,
            clock: ClockSource::Live,
            cpu: 0,
            cpus: 1,
            backend: Backend::default(),
        }
    }
}
