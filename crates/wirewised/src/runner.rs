// SPDX-License-Identifier: Apache-2.0
//! Runs packets of a capture through a bundle's program in the kernel (BPF_PROG_TEST_RUN), one by one, on one CPU and
//! with the captured times. Nothing is attached; the maps are the run's own.

use std::time::Duration;

use bytemuck::Zeroable;
use libbpf_rs::ProgramInput;

use crate::abi::{self, Action, Clock, Mode, Outcome, Status};
use crate::bundle::Bundle;
use crate::capture::Packet;
use crate::error::{Error, Result};
use crate::flow_table::{FlowTable, TABLES};
use crate::kernel;
use crate::mapped::MappedArray;
use crate::object::{self, Loaded, Opened, Settings};
use crate::policy::Policy;
use crate::policy_maps;

/// The kernel runs no frame shorter than an Ethernet header; such a frame is `MalformedEthernet` all the same.
const SHORTEST_FRAME: usize = 14;
/// The time stands in front of the frame, as XDP metadata.
const METADATA: usize = size_of::<u64>();

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

#[derive(Debug, Clone)]
pub struct Options {
    pub policy: Policy,
    pub mode: Mode,
    pub hash_seed: [u64; abi::HASH_WORDS],
    /// Flow-table entries; `None`: the bundle's.
    pub table_size: Option<u32>,
}

/// What the program made of one packet. `scratch` is the data path's own record; which of its parts mean something
/// depends on `status` and `inferred`.
#[derive(Debug, Clone)]
pub struct Observation {
    pub status: Status,
    pub xdp_return: u32,
    pub inferred: bool,
    /// Of a classified packet.
    pub verdict: Option<Verdict>,
    /// Of the flow, with this packet; 0 if the packet came to no flow.
    pub packets: u32,
    /// No flow entry was free: judged as the first packet of its flow.
    pub refused: bool,
    scratch: abi::Scratch,
    n_features: usize,
    n_scores: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    pub class_id: u32,
    pub action: Action,
    pub outcome: Outcome,
}

impl Observation {
    /// In the order of the bundle's features; empty if the model did not run.
    pub fn features(&self) -> &[i64] {
        if self.inferred { &self.scratch.feature[..self.n_features] } else { &[] }
    }

    /// Votes or sums, one an output of the model; empty if the model did not run.
    pub fn scores(&self) -> &[i64] {
        if self.inferred { &self.scratch.score[..self.n_scores] } else { &[] }
    }
}

pub struct Runner<'a> {
    bundle: &'a Bundle,
    options: Options,
    loaded: Loaded,
    scratch: MappedArray,
    cpu: u32,
    /// As written at the first packet.
    policy: Option<abi::Policy>,
    n_scores: usize,
    data: Vec<u8>,
}

impl<'a> Runner<'a> {
    /// Loads the bundle's program, and keeps this thread on one CPU from here on.
    ///
    /// input : what errors call the bundle.
    pub fn new(input: &str, bundle: &'a Bundle, options: Options) -> Result<Self> {
        let n_scores =
            n_scores(bundle).map_err(|rule| Error::input(format!("{input}: model.json: {rule}")))?;
        let mut opened = Opened::open(input, &bundle.object)?;
        if opened.config().is_none() {
            return Err(Error::input(format!("{input}: its program is no data path of wirewise")));
        }
        let cpu = kernel::pin_to_one_cpu()?;
        opened.prepare(&Settings {
            table_size: Some(options.table_size.unwrap_or(bundle.manifest.flow.table_size)),
            clock: Some(Clock::Metadata),
            trace: true,
            ..Settings::on_cpu(cpu, options.hash_seed)
        })?;
        let loaded = opened.load()?;
        let scratch = loaded.map_array("ww_scratch")?;
        Ok(Self { bundle, options, loaded, scratch, cpu, policy: None, n_scores, data: Vec::new() })
    }

    pub fn n_features(&self) -> usize {
        self.bundle.manifest.feature_names.len()
    }

    /// 1 if the model has one output, else the number of classes or outputs.
    pub fn n_scores(&self) -> usize {
        self.n_scores
    }

    pub fn load_time(&self) -> Duration {
        self.loaded.load_time
    }

    pub fn run(&mut self, packet: &Packet<'_>) -> Result<Observation> {
        let policy = match self.policy {
            Some(policy) => policy,
            None => self.write_policy(packet.time_ns)?,
        };
        if packet.frame.len() < SHORTEST_FRAME {
            return Ok(self.too_short(&policy, packet.time_ns));
        }
        let xdp_return = self.run_in_kernel(packet)?;
        let scratch: abi::Scratch = self
            .scratch
            .read(self.cpu)
            .ok_or_else(|| Error::other("the map ww_scratch has another layout than this agent's"))?;
        self.observe(scratch, xdp_return)
    }

    /// `enforce_for` counts from the first packet: the capture's clock is the only one in this run.
    fn write_policy(&mut self, now_ns: u64) -> Result<abi::Policy> {
        let element = self.options.policy.to_abi(now_ns, self.options.mode);
        policy_maps::write(&self.options.policy, &element, |name| self.loaded.map(name))?;
        self.policy = Some(element);
        Ok(element)
    }

    fn run_in_kernel(&mut self, packet: &Packet<'_>) -> Result<u32> {
        self.data.clear();
        self.data.extend_from_slice(&packet.time_ns.to_le_bytes());
        self.data.extend_from_slice(packet.frame);
        let mut context =
            XdpContext { data: METADATA as u32, data_end: self.data.len() as u32, ..XdpContext::zeroed() };
        let input = ProgramInput {
            context_in: Some(bytemuck::bytes_of_mut(&mut context)),
            data_in: Some(&self.data),
            ..ProgramInput::default()
        };
        let output = self.loaded.entry()?.test_run(input).map_err(|error| {
            Error::missing(format!("packet {}: the kernel cannot test-run it: {error}", packet.number))
        })?;
        Ok(output.return_value)
    }

    fn observe(&self, scratch: abi::Scratch, xdp_return: u32) -> Result<Observation> {
        let unknown =
            |what: &str, code: u32| Error::other(format!("the program left an unknown {what}: {code}"));
        let status = Status::from_code(scratch.status).ok_or_else(|| unknown("status", scratch.status))?;
        let in_a_flow = matches!(status, Status::Classified | Status::Undecided);
        let verdict = if status == Status::Classified {
            let action =
                Action::from_code(scratch.action).ok_or_else(|| unknown("action", scratch.action))?;
            let outcome =
                Outcome::from_code(scratch.outcome).ok_or_else(|| unknown("outcome", scratch.outcome))?;
            Some(Verdict { class_id: scratch.class_id, action, outcome })
        } else {
            None
        };
        Ok(Observation {
            status,
            xdp_return,
            inferred: in_a_flow && scratch.inferred != 0,
            verdict,
            packets: if in_a_flow { scratch.packets } else { 0 },
            refused: in_a_flow && scratch.refused != 0,
            scratch,
            n_features: self.n_features(),
            n_scores: self.n_scores,
        })
    }

    fn too_short(&self, policy: &abi::Policy, now_ns: u64) -> Observation {
        let in_time = policy.enforce_until_ns == 0 || now_ns < policy.enforce_until_ns;
        let drops = policy.mode == Mode::Enforce.code() && in_time && policy.drop_malformed != 0;
        Observation {
            status: Status::MalformedEthernet,
            xdp_return: if drops { abi::XDP_DROP } else { abi::XDP_PASS },
            inferred: false,
            verdict: None,
            packets: 0,
            refused: false,
            scratch: abi::Scratch::zeroed(),
            n_features: 0,
            n_scores: 0,
        }
    }

    /// The flow tables as they are now.
    pub fn flow_tables(&self) -> Result<Vec<FlowTable<'_>>> {
        let present = TABLES.iter().filter(|(_, name)| self.loaded.map(name).is_some());
        let layout = &self.bundle.manifest.flow;
        let table = |(ip_version, name): &(u8, &str)| {
            FlowTable::new(self.loaded.map_array(name)?, *ip_version, layout, self.loaded.buckets())
        };
        present.map(table).collect()
    }
}

fn n_scores(bundle: &Bundle) -> std::result::Result<usize, String> {
    let n_classes = bundle.manifest.classes.len();
    if bundle.model["votes"] == "majority" {
        return Ok(n_classes);
    }
    match bundle.model["n_outputs"].as_u64() {
        Some(outputs) if (1..=abi::MAX_CLASSES as u64).contains(&outputs) => Ok(outputs as usize),
        _ => Err(format!("n_outputs must be a number from 1 to {}", abi::MAX_CLASSES)),
    }
}

/// The seed of a run: from a number, or random.
pub fn hash_seed(seed: Option<u64>) -> Result<[u64; abi::HASH_WORDS]> {
    seed.map_or_else(object::random_seed, |seed| Ok(object::seed_from(seed)))
}
