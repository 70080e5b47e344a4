// SPDX-License-Identifier: Apache-2.0
//! Runs packets of a capture through a bundle's program, one by one and with the captured times, and reads what came of each.

use std::time::Duration;

use bytemuck::Zeroable;
use wirewise_capture::Packet;

use crate::abi::maps::{self, Counted};
use crate::abi::{self, Action, Fate, Mode, Outcome, Status};
use crate::bundle::Bundle;
use crate::bundle::manifest::Flow as Layout;
use crate::bundle::model::n_outputs;
use crate::error::{Error, Result};
use crate::object;
use crate::object::flow_table::FlowTable;
use crate::offline::engine_run::Trust;
use crate::offline::runtime::{MAX_FRAME, Ran, RunSettings, Runtime, RuntimeName};
use crate::policy::Policy;
use crate::reading::policy::{effective_mode, set_class_mode};
use crate::text::units::Nanoseconds;

#[derive(Debug, Clone)]
pub struct RunOptions {
    pub policy: Policy,
    pub mode: Mode,
    pub observed: Observed,
    pub hash_seed: [u64; abi::HASH_SEEDS],
    /// Flow-table entries; `None`: the bundle's.
    pub table_size: Option<u32>,
    /// In the kernel: each packet runs on one of so many CPUs, at random, one packet after the other.
    pub cpus: u32,
}

/// Classes, by number, that observe although the policy is enforced; with a time, for so long from the first packet.
#[derive(Debug, Clone, Default)]
pub struct Observed(pub Vec<(usize, Option<Nanoseconds>)>);

impl Observed {
    /// now_ns : of the first packet.
    pub fn apply(&self, mut element: abi::Element, now_ns: u64) -> abi::Element {
        for (class, time) in &self.0 {
            let rule = &mut element.policy.class_policy[*class];
            set_class_mode(rule, Mode::Observe, now_ns, time.map(|time| time.0));
        }
        element
    }
}

/// What the program made of one packet. `scratch` is the data path's own record; which of its parts mean something
/// depends on `status` and `inferred`.
#[derive(Debug, Clone)]
pub struct Observation {
    pub status: Status,
    pub fate: Fate,
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
    /// The packet as other programs see it; zeros unless the policy has `metadata` or `verdicts`.
    pub fn described(&self) -> abi::Description {
        self.scratch.described
    }

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
    options: RunOptions,
    runtime: Runtime,
    /// As written at the first packet.
    policy: Option<abi::Element>,
    n_scores: usize,
}

impl<'a> Runner<'a> {
    /// Loads the bundle's program.
    ///
    /// input : what errors call the bundle.
    pub fn new(input: &str, bundle: &'a Bundle, runtime: RuntimeName, options: RunOptions) -> Result<Self> {
        options.policy.check_key(&bundle.manifest.flow.key)?;
        let n_scores = n_outputs(&bundle.manifest, &bundle.model)
            .map_err(|rule| Error::input(format!("{input}: model.json: {rule}")))?;
        let table_size = Some(options.table_size.unwrap_or(bundle.manifest.flow.table_size));
        let settings = RunSettings {
            hash_seed: options.hash_seed,
            table_size,
            cpus: options.cpus,
            acts: options.policy.steering_kinds(),
        };
        let runtime = Runtime::new(runtime, input, &bundle.object, &settings)?;
        Ok(Self { bundle, options, runtime, policy: None, n_scores })
    }

    pub fn n_features(&self) -> usize {
        self.bundle.manifest.feature_names.len()
    }

    /// 1 if the model has one output, else the number of classes or outputs.
    pub fn n_scores(&self) -> usize {
        self.n_scores
    }

    pub fn load_time(&self) -> Duration {
        self.runtime.load_time()
    }

    pub fn trust(&self) -> Trust {
        self.runtime.trust()
    }

    /// The frame of the last packet, as the program left it.
    pub fn frame(&self, packet: &Packet<'_>) -> Vec<u8> {
        let left = self.runtime.frame();
        if left.is_empty() {
            return packet.frame.to_vec(); // too short to run
        }
        [left, &packet.frame[packet.frame.len().min(MAX_FRAME)..]].concat()
    }

    pub fn run(&mut self, packet: &Packet<'_>) -> Result<Observation> {
        let policy = match self.policy {
            Some(policy) => policy,
            None => self.write_policy(packet.time_ns)?,
        };
        match self.runtime.run(packet.frame, packet.time_ns)? {
            Ran::Program(fate, scratch) => self.observe(*scratch, fate),
            Ran::TooShort(status) => Ok(self.too_short(status, &policy.policy, packet.time_ns)),
        }
    }

    /// `enforce_for` counts from the first packet: the capture's clock is the only one in this run.
    fn write_policy(&mut self, now_ns: u64) -> Result<abi::Element> {
        let element =
            self.options.observed.apply(self.options.policy.to_abi(now_ns, self.options.mode), now_ns);
        self.runtime.write_policy(&self.options.policy, &element)?;
        self.policy = Some(element);
        Ok(element)
    }

    fn observe(&self, scratch: abi::Scratch, mut fate: Fate) -> Result<Observation> {
        let unknown =
            |what: &str, code: u32| Error::other(format!("the program left an unknown {what}: {code}"));
        let status = Status::from_code(scratch.status).ok_or_else(|| unknown("status", scratch.status))?;
        let in_a_flow = matches!(status, Status::Classified | Status::Undecided);
        let verdict = if status == Status::Classified {
            let action =
                Action::from_code(scratch.action).ok_or_else(|| unknown("action", scratch.action))?;
            let outcome =
                Outcome::from_code(scratch.outcome).ok_or_else(|| unknown("outcome", scratch.outcome))?;
            if fate == Fate::Redirected && self.bounces(scratch.class_id) {
                fate = Fate::Bounced;
            }
            Some(Verdict { class_id: scratch.class_id, action, outcome })
        } else {
            None
        };
        Ok(Observation {
            status,
            fate,
            inferred: in_a_flow && scratch.inferred != 0,
            verdict,
            packets: if in_a_flow { scratch.packets } else { 0 },
            refused: in_a_flow && scratch.refused != 0,
            scratch,
            n_features: self.n_features(),
            n_scores: self.n_scores,
        })
    }

    /// Whether a class goes back to who sent it: at TC the program says the same of other interfaces.
    fn bounces(&self, class_id: u32) -> bool {
        let steering = self.policy.and_then(|policy| policy.act.steer.get(class_id as usize).copied());
        steering.is_some_and(|steering| steering.kinds & abi::STEER_BOUNCE != 0)
    }

    fn too_short(&self, status: Status, policy: &abi::Policy, now_ns: u64) -> Observation {
        let drops = effective_mode(policy, now_ns) == Mode::Enforce && policy.drop_malformed != 0;
        Observation {
            status,
            fate: if drops { Fate::Dropped } else { Fate::Passed },
            inferred: false,
            verdict: None,
            packets: 0,
            refused: false,
            scratch: abi::Scratch::zeroed(),
            n_features: 0,
            n_scores: 0,
        }
    }

    /// How entries of the flow tables are laid out.
    pub fn layout(&self) -> &Layout {
        &self.bundle.manifest.flow
    }

    /// The flow tables as they are now.
    pub fn flow_tables(&self) -> Result<Vec<FlowTable<'_>>> {
        let mut tables = Vec::new();
        for (ip_version, name) in maps::tables(Counted::Flow) {
            if let Some(elements) = self.runtime.elements(name)? {
                tables.push(FlowTable::new(elements, ip_version, self.layout(), self.runtime.buckets())?);
            }
        }
        Ok(tables)
    }
}

/// The seed of a run: from a number, or random.
pub fn hash_seed(seed: Option<u64>) -> Result<[u64; abi::HASH_SEEDS]> {
    seed.map_or_else(object::random_seed, |seed| Ok(object::seed_from(seed)))
}
