// SPDX-License-Identifier: Apache-2.0
//! Where a program runs on captured packets: in this kernel (BPF_PROG_TEST_RUN), or in the engine. Nothing is attached, and
//! the maps are the run's own.

use std::time::Duration;

use bytemuck::Zeroable;
use libbpf_rs::ProgramInput;

use crate::abi::{self, Clock};
use crate::engine_run::{Prepared, Worker};
use crate::error::{Error, Result};
use crate::flow_table::Elements;
use crate::kernel;
use crate::mapped::MappedArray;
use crate::object::{self, Loaded, Opened, Settings};
use crate::policy::Policy;
use crate::policy_maps;

/// In the kernel the time stands in front of the frame, as XDP metadata.
pub const METADATA: usize = size_of::<u64>();
/// The kernel runs no frame shorter than an Ethernet header.
const SHORTEST_FRAME: usize = 14;

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum PlaneName {
    /// This kernel runs every packet (needs the privilege to load programs)
    Kernel,
    /// wirewise's own engine, in user space
    Engine,
}

impl PlaneName {
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
}

impl RunSettings {
    fn in_kernel(&self, cpu: u32) -> Settings {
        self.traced(cpu, Clock::Metadata)
    }

    /// Its clock shows the captured times.
    pub fn in_engine(&self) -> Settings {
        self.traced(0, Clock::Fine)
    }

    /// With the packet's way left behind for us to read.
    fn traced(&self, cpu: u32, clock: Clock) -> Settings {
        Settings {
            table_size: self.table_size,
            clock: Some(clock),
            trace: true,
            ..Settings::on_cpu(cpu, self.hash_seed)
        }
    }
}

pub enum Plane {
    Kernel(KernelPlane),
    Engine(EnginePlane),
}

impl Plane {
    /// Loads the program; in the kernel, keeps this thread on one CPU from here on. input : what errors call the object.
    pub fn new(name: PlaneName, input: &str, object: &[u8], settings: &RunSettings) -> Result<Self> {
        Ok(match name {
            PlaneName::Kernel => Self::Kernel(KernelPlane::new(input, object, settings)?),
            PlaneName::Engine => Self::Engine(EnginePlane::new(input, object, settings)?),
        })
    }

    /// What the program returned and left behind. `None`: the plane cannot run so short a frame.
    pub fn run(&mut self, frame: &[u8], time_ns: u64) -> Result<Option<(u32, abi::Scratch)>> {
        match self {
            Self::Kernel(_) if frame.len() < SHORTEST_FRAME => Ok(None),
            Self::Kernel(plane) => plane.run(frame, time_ns).map(Some),
            Self::Engine(plane) => plane.run(frame, time_ns).map(Some),
        }
    }

    pub fn write_policy(&mut self, policy: &Policy, element: &abi::Policy) -> Result<()> {
        match self {
            Self::Kernel(plane) => policy_maps::write(policy, element, |name| plane.loaded.map(name)),
            Self::Engine(plane) => plane.worker.write_policy(policy, element),
        }
    }

    /// An array map as it is now; `None` if the program has no such map.
    pub fn elements(&self, name: &str) -> Result<Option<Elements>> {
        Ok(match self {
            Self::Kernel(plane) if plane.loaded.map(name).is_none() => None,
            Self::Kernel(plane) => Some(Elements::Mapped(plane.loaded.map_array(name)?)),
            Self::Engine(plane) => plane.worker.elements(name),
        })
    }

    /// Buckets of a shard of the flow tables.
    pub fn buckets(&self) -> u32 {
        match self {
            Self::Kernel(plane) => plane.loaded.buckets(),
            Self::Engine(plane) => plane.buckets,
        }
    }

    pub fn load_time(&self) -> Duration {
        match self {
            Self::Kernel(plane) => plane.loaded.load_time,
            Self::Engine(plane) => plane.load_time,
        }
    }
}

pub struct KernelPlane {
    loaded: Loaded,
    own: MappedArray,
    /// Where packets run, and the one this thread is on.
    cpus: Vec<u32>,
    cpu: u32,
    random: u64,
    data: Vec<u8>,
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

impl KernelPlane {
    fn new(input: &str, object: &[u8], settings: &RunSettings) -> Result<Self> {
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
        opened.prepare(&settings.in_kernel(last))?;
        let loaded = opened.load()?;
        let own = loaded.map_array(object::PER_CPU)?;
        kernel::pin_to(last)?;
        Ok(Self { loaded, own, cpus, cpu: last, random: settings.hash_seed[0] | 1, data: Vec::new() })
    }

    fn run(&mut self, frame: &[u8], time_ns: u64) -> Result<(u32, abi::Scratch)> {
        self.change_cpu()?;
        self.data.clear();
        self.data.extend_from_slice(&time_ns.to_le_bytes());
        self.data.extend_from_slice(frame);
        let mut context =
            XdpContext { data: METADATA as u32, data_end: self.data.len() as u32, ..XdpContext::zeroed() };
        let input = ProgramInput {
            context_in: Some(bytemuck::bytes_of_mut(&mut context)),
            data_in: Some(&self.data),
            ..ProgramInput::default()
        };
        let output = self.loaded.entry()?.test_run(input).map_err(|error| {
            Error::missing(format!("the kernel cannot test-run a frame of {} bytes: {error}", frame.len()))
        })?;
        let own: Option<abi::Cpu> = self.own.read(self.cpu);
        let own = own.ok_or_else(|| object::other_layout(object::PER_CPU))?;
        Ok((output.return_value, own.scratch))
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

pub struct EnginePlane {
    worker: Worker,
    buckets: u32,
    load_time: Duration,
    data: Vec<u8>,
}

impl EnginePlane {
    fn new(input: &str, object: &[u8], settings: &RunSettings) -> Result<Self> {
        let start = std::time::Instant::now();
        let prepared = Prepared::new(input, object, &settings.in_engine(), false)?;
        let worker = prepared.worker()?;
        let buckets = prepared.config().bucket_mask + 1;
        Ok(Self { worker, buckets, load_time: start.elapsed(), data: Vec::new() })
    }

    fn run(&mut self, frame: &[u8], time_ns: u64) -> Result<(u32, abi::Scratch)> {
        self.data.clear();
        self.data.extend_from_slice(frame);
        let code = self.worker.run(&mut self.data, time_ns)?;
        Ok((code, self.worker.own()?.scratch))
    }
}
