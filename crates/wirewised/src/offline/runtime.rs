// SPDX-License-Identifier: Apache-2.0
//! Where a program runs on captured packets: in this kernel (BPF_PROG_TEST_RUN), or in the engine. Nothing is attached, and
//! the maps are the run's own.

use std::time::Duration;

use bytemuck::Zeroable;
use libbpf_rs::ProgramInput;

use crate::abi::maps;
use crate::abi::{self, Captured, Clock, Fate, Hook, Status};
use crate::error::{Error, Result};
use crate::kernel;
use crate::object::flow_table::Elements;
use crate::object::mapped::MappedArray;
use crate::object::policy_maps;
use crate::object::{self, Loaded, Opened, Runs, Settings};
use crate::offline::engine_run::{Prepared, Trust, Worker};
use crate::policy::Policy;

/// Only headers and the first bytes behind them are read of a frame, and they reach no further; the kernel runs no frame that is much longer.
pub const MAX_FRAME: usize = 2048;

pub const METADATA: usize = size_of::<Captured>();

impl Captured {
    /// frame : all of it.
    pub fn of(frame: &[u8], time_ns: u64) -> Self {
        Self { time_ns, length: frame.len() as u32, reserved: 0 }
    }
}
/// Ethernet.
const LINK_HEADER: usize = 14;
/// Bytes by which a frame may grow: the largest headers of a tunnel.
const ROOM: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeName {
    /// This kernel runs every packet (needs the privilege to load programs)
    Kernel,
    /// The same, as a program of TC
    KernelTc,
    /// wirewise's own engine, in user space
    Engine,
}

impl RuntimeName {
    /// What was asked for; else the kernel, where this process may load programs.
    pub fn choose(asked: Option<Self>) -> Self {
        let privileged = || if kernel::require().is_ok() { Self::Kernel } else { Self::Engine };
        asked.unwrap_or_else(privileged)
    }
}

/// What a run on one CPU decides.
#[derive(Debug, Clone)]
pub struct RunSettings {
    pub hash_seed: [u64; abi::HASH_SEEDS],
    /// Flow-table entries; `None`: as compiled.
    pub table_size: Option<u32>,
    /// In the kernel: each packet runs on one of so many CPUs, at random, one packet after the other.
    pub cpus: u32,
    /// `abi::STEER_*` bits: what the policy may ask for.
    pub acts: u32,
}

impl RunSettings {
    fn in_kernel(&self, cpu: u32, hook: Hook) -> Settings {
        Settings { runs: Runs::InKernel(hook), ..self.traced(cpu, Clock::Metadata) }
    }

    /// Its clock shows the captured times.
    pub fn in_engine(&self) -> Settings {
        let traced = self.traced(0, Clock::Fine);
        // It cannot move the front of a packet: such classes are not steered there.
        Settings { acts: traced.acts & !abi::STEER_THROUGH_TUNNELS, ..traced }
    }

    /// With the packet's way left behind for us to read.
    fn traced(&self, cpu: u32, clock: Clock) -> Settings {
        Settings {
            table_size: self.table_size,
            clock: Some(clock),
            trace: true,
            acts: if self.acts == 0 { 0 } else { self.acts | abi::STEER_TOLD },
            ..Settings::on_cpu(cpu, self.hash_seed)
        }
    }
}

/// What came of running a frame.
pub enum Ran {
    Program(Fate, Box<abi::Scratch>),
    /// The kernel test-runs no frame that is so short; the program would say this of it.
    TooShort(Status),
}

pub enum Runtime {
    Kernel(KernelRuntime),
    Engine(EngineRuntime),
}

impl Runtime {
    /// Loads the program; in the kernel, keeps this thread on one CPU from here on. input : what errors call the object.
    pub fn new(name: RuntimeName, input: &str, object: &[u8], settings: &RunSettings) -> Result<Self> {
        Ok(match name {
            RuntimeName::Kernel => Self::Kernel(KernelRuntime::new(input, object, settings, Hook::Xdp)?),
            RuntimeName::KernelTc => {
                Self::Kernel(KernelRuntime::new(input, object, settings, Hook::TcIngress)?)
            }
            RuntimeName::Engine => Self::Engine(EngineRuntime::new(input, object, settings)?),
        })
    }

    /// What became of the packet, and what the program left behind. Of the frame it reads the first `MAX_FRAME` bytes, and the length.
    pub fn run(&mut self, frame: &[u8], time_ns: u64) -> Result<Ran> {
        let captured = Captured::of(frame, time_ns);
        let frame = &frame[..frame.len().min(MAX_FRAME)];
        match self {
            Self::Kernel(runtime) => runtime.run(frame, captured),
            Self::Engine(runtime) => {
                let (code, scratch) = runtime.run(frame, captured)?;
                Ok(Ran::Program(Fate::from_code(code).map_err(Error::other)?, Box::new(scratch)))
            }
        }
    }

    /// The last frame that ran, as the program left it, up to where it was cut; of one that was too short, nothing.
    pub fn frame(&self) -> &[u8] {
        match self {
            Self::Kernel(runtime) => &runtime.left,
            Self::Engine(runtime) => runtime.data.get(METADATA..).unwrap_or_default(),
        }
    }

    pub fn write_policy(&mut self, policy: &Policy, element: &abi::Element) -> Result<()> {
        match self {
            Self::Kernel(runtime) => {
                policy_maps::write(policy, element, |name| runtime.loaded.map(name), || Ok(()))
            }
            Self::Engine(runtime) => runtime.worker.write_policy(policy, element),
        }
    }

    /// An array map as it is now; `None` if the program has no such map.
    pub fn elements(&self, name: &str) -> Result<Option<Elements>> {
        Ok(match self {
            Self::Kernel(runtime) if runtime.loaded.map(name).is_none() => None,
            Self::Kernel(runtime) => Some(Elements::Mapped(runtime.loaded.map_array(name)?)),
            Self::Engine(runtime) => runtime.worker.elements(name),
        })
    }

    /// Buckets of a shard of the flow tables.
    pub fn buckets(&self) -> u32 {
        match self {
            Self::Kernel(runtime) => runtime.loaded.buckets(),
            Self::Engine(runtime) => runtime.buckets,
        }
    }

    pub fn load_time(&self) -> Duration {
        match self {
            Self::Kernel(runtime) => runtime.loaded.load_time,
            Self::Engine(runtime) => runtime.load_time,
        }
    }

    /// Whether the kernel's verifier has seen the program: always, of one that runs there.
    pub fn trust(&self) -> Trust {
        match self {
            Self::Kernel(_) => Trust::Verified,
            Self::Engine(runtime) => runtime.trust,
        }
    }
}

pub struct KernelRuntime {
    hook: Hook,
    loaded: Loaded,
    own: MappedArray,
    /// Where packets run, and the one this thread is on.
    cpus: Vec<u32>,
    cpu: u32,
    random: u64,
    data: Vec<u8>,
    /// The frame, as the program left it.
    left: Vec<u8>,
}

/// `struct __sk_buff` of linux/bpf.h, up to the last of the fields that we give.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct TcContext {
    before: [u64; 6],
    control_block: [u32; 2],
    between: [u64; 12],
    tstamp: u64,
}

/// `struct xdp_md` of linux/bpf.h.
#[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct XdpContext {
    data: u32,
    data_end: u32,
    data_meta: u32,
    ingress_ifindex: u32,
    rx_queue_index: u32,
    egress_ifindex: u32,
}

/// Before a program of TC sees a frame, the kernel looks for the IP header itself.
fn too_short(frame: &[u8], hook: Hook) -> Option<Status> {
    let Some((link, packet)) = frame.split_first_chunk::<LINK_HEADER>() else {
        return Some(Status::MalformedEthernet);
    };
    let header = match link.last_chunk() {
        Some([0x08, 0x00]) => 20,
        Some([0x86, 0xdd]) => 40,
        _ => 0,
    };
    (hook != Hook::Xdp && packet.len() < header).then_some(Status::MalformedIp)
}

impl KernelRuntime {
    fn new(input: &str, object: &[u8], settings: &RunSettings, hook: Hook) -> Result<Self> {
        let mut opened = Opened::open(input, object)?;
        if opened.config().is_none() {
            return Err(object::no_data_path(input));
        }
        let mut cpus = kernel::allowed_cpus()?;
        if settings.cpus as usize > cpus.len() {
            return Err(Error::missing(format!(
                "{} CPUs are asked for, and this process may use {}",
                settings.cpus,
                cpus.len()
            )));
        }
        cpus.truncate(settings.cpus as usize);
        let last = cpus.last().copied().unwrap_or_default();
        opened.prepare(&settings.in_kernel(last, hook))?;
        let loaded = opened.load()?;
        let own = loaded.map_array(maps::PER_CPU)?;
        kernel::pin_to(last)?;
        Ok(Self {
            hook,
            loaded,
            own,
            cpus,
            cpu: last,
            random: settings.hash_seed[0] | 1,
            data: Vec::new(),
            left: Vec::new(),
        })
    }

    fn run(&mut self, frame: &[u8], captured: Captured) -> Result<Ran> {
        self.left.clear();
        if let Some(status) = too_short(frame, self.hook) {
            return Ok(Ran::TooShort(status));
        }
        self.change_cpu()?;
        self.data.clear();
        let (mut at_xdp, mut at_tc) = (XdpContext::zeroed(), TcContext::zeroed());
        let context = match self.hook {
            Hook::Xdp => {
                self.data.extend_from_slice(bytemuck::bytes_of(&captured));
                at_xdp.data = METADATA as u32;
                at_xdp.data_end = (METADATA + frame.len()) as u32;
                bytemuck::bytes_of_mut(&mut at_xdp)
            }
            _ => {
                at_tc.tstamp = captured.time_ns;
                at_tc.control_block[0] = captured.length;
                bytemuck::bytes_of_mut(&mut at_tc)
            }
        };
        self.data.extend_from_slice(frame);
        self.left.resize(self.data.len() + ROOM, 0);
        let input = ProgramInput {
            context_in: Some(context),
            data_in: Some(&self.data),
            data_out: Some(&mut self.left),
            ..ProgramInput::default()
        };
        let output = self.loaded.entry()?.test_run(input).map_err(|error| {
            Error::missing(format!("the kernel cannot test-run a frame of {} bytes: {error}", frame.len()))
        })?;
        let (code, length) = (output.return_value, output.data.map_or(0, |data| data.len()));
        self.left.truncate(length);
        // In front of the frame, as it was given.
        let front = if self.hook == Hook::Xdp { METADATA } else { 0 };
        self.left.drain(..front.min(length));
        let own: Option<abi::Cpu> = self.own.read(self.cpu);
        let own = own.ok_or_else(|| object::other_layout(maps::PER_CPU))?;
        let fate = match self.hook {
            Hook::Xdp => Fate::from_code(code),
            _ => Fate::from_tc(code),
        };
        Ok(Ran::Program(fate.map_err(Error::other)?, Box::new(own.scratch)))
    }

    fn change_cpu(&mut self) -> Result<()> {
        if self.cpus.len() < 2 {
            return Ok(());
        }
        // xorshift (Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let cpu = self.cpus[(self.random >> 32) as usize % self.cpus.len()];
        if cpu != self.cpu {
            kernel::pin_to(cpu)?;
            self.cpu = cpu;
        }
        Ok(())
    }
}

pub struct EngineRuntime {
    worker: Worker,
    buckets: u32,
    load_time: Duration,
    trust: Trust,
    data: Vec<u8>,
}

impl EngineRuntime {
    fn new(input: &str, object: &[u8], settings: &RunSettings) -> Result<Self> {
        let start = std::time::Instant::now();
        let prepared = Prepared::new(input, object, &settings.in_engine(), false)?;
        let worker = prepared.worker()?;
        let buckets = prepared.config().bucket_mask + 1;
        let trust = prepared.trust;
        Ok(Self { worker, buckets, load_time: start.elapsed(), trust, data: Vec::new() })
    }

    fn run(&mut self, frame: &[u8], captured: Captured) -> Result<(u32, abi::Scratch)> {
        self.data.clear();
        self.data.extend_from_slice(bytemuck::bytes_of(&captured));
        self.data.extend_from_slice(frame);
        let code = self.worker.run_behind(&mut self.data, METADATA, captured.time_ns)?;
        Ok((code, self.worker.own()?.scratch))
    }
}
