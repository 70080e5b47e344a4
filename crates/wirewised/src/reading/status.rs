// SPDX-License-Identifier: Apache-2.0
//! What runs and where, as asked for and as obtained.

use serde::Serialize;

use crate::abi::{self, Mode};
use crate::bundle::manifest::Sharing;
use crate::interface::offloads::Merging;
use crate::plane::note::Carrier;
use crate::plane::{FilterHandle, Plane};
use crate::reading::agreement::Agreement;
use crate::reading::meta::{BundleMeta, PolicyMeta};
use crate::reading::policy::{ClassMode, class_mode};
use crate::text::shell::quoted;
use crate::text::units::format_age;

#[derive(Debug, Serialize)]
pub struct Status {
    pub interface: String,
    /// False: the interface or the link is gone, only pins are left.
    pub attached: bool,
    /// Where the interface is, if it is in another network namespace; what can be said of it.
    pub network_namespace: Option<Elsewhere>,
    pub plane_asked: Option<Plane>,
    /// Read back from the kernel; null if the interface is gone, or in a network namespace that cannot be entered.
    pub plane_obtained: Option<Plane>,
    /// Outgoing packets are judged too, by the same program.
    pub outgoing: Option<Second>,
    /// A program at TC, which does what the policy asks for and XDP cannot.
    pub companion: Option<Second>,
    /// Somebody else's, to which what passes goes on.
    pub next: Option<Next>,
    /// Of a filter of clsact, which programs of TC are where the kernel has no tcx links.
    pub filter: Option<FilterHandle>,
    /// In a dispatcher of libxdp, where `xdp-loader status` shows ww_component.
    pub run_priority: Option<u32>,
    /// What holds now; null if nothing does, as nothing is attached any more.
    pub mode: Option<Mode>,
    /// False: enforcement was asked for a time that is over.
    pub mode_as_asked: bool,
    /// Then it observes; null: it does not enforce, or until that is changed.
    pub enforce_remaining_seconds: Option<f64>,
    /// Then it enforces; null: it does not observe, or until that is changed.
    pub observe_remaining_seconds: Option<f64>,
    pub since: Option<String>,
    pub bundle: Option<BundleMeta>,
    pub classes: Vec<Class>,
    pub policy: Option<PolicyMeta>,
    pub flow_tables: FlowTables,
    /// Interfaces whose programs use the same flow tables.
    pub shares_flows_with: Vec<String>,
    /// Where the program reads the time: `fine`, `coarse (jiffies)`, or `coarse (helper)` where the kernel's tick could not be
    /// measured, which costs some ns a packet.
    pub clock: Option<String>,
    /// Who carries the packets, of a plane in user space, and what became of them; null in the kernel.
    pub carrier: Option<Carrier>,
    /// What is switched off until it is detached, since it would merge packets.
    pub offloads_off: Vec<Merging>,
    /// A second model on the same packets, and how far it agrees.
    pub shadow: Option<Agreement>,
    /// What `rollback` brings back.
    pub previous: Option<Previous>,
    pub link_id: Option<u32>,
    pub program_id: Option<u32>,
    pub tail_call_program_ids: Vec<u32>,
    pub pins: String,
}

/// A program beside the first.
#[derive(Debug, Serialize)]
pub struct Second {
    pub plane: Plane,
    pub link_id: u32,
    pub program_id: u32,
}

/// A program that the policy names.
#[derive(Debug, Serialize)]
pub struct Next {
    /// As the policy has it.
    pub path: String,
    pub program_id: u32,
    /// At most 15 characters: the kernel keeps no more.
    pub name: String,
}

/// Another network namespace.
#[derive(Debug, Serialize)]
pub struct Elsewhere {
    /// What `--netns` takes; null if it cannot be found or entered.
    pub netns: Option<String>,
    /// Of the namespace in which the program was attached; 0 if nobody remembers.
    pub attached_in_inode: u64,
}

#[derive(Debug, Serialize)]
pub struct Previous {
    pub bundle: BundleMeta,
    /// When it began to run.
    pub since: String,
    /// It uses the same flow tables as what runs; else its own, as it left them.
    pub shares_flows: bool,
    pub shares_policy: bool,
}

#[derive(Debug, Serialize)]
pub struct Class {
    pub name: String,
    pub action: String,
    /// What holds now: enforce only while the whole policy is enforced.
    pub mode: Mode,
    /// What `wirewised mode` asked for it, while that lasts.
    pub asked: Option<AskedMode>,
}

/// The mode of one class.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct AskedMode {
    pub mode: Mode,
    /// Afterwards the other mode holds; null: until it is changed.
    pub remaining_seconds: Option<f64>,
}

impl AskedMode {
    /// `None`: nothing was asked for, or it is over.
    pub fn of(rule: &abi::ClassPolicy, now_ns: u64) -> Option<Self> {
        let ClassMode { mode, remaining_ns } = class_mode(rule, now_ns);
        let lasts = mode == Mode::Observe || remaining_ns.is_some();
        lasts.then(|| Self { mode, remaining_seconds: remaining_ns.map(|time| time as f64 / 1e9) })
    }
}

impl std::fmt::Display for AskedMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.remaining_seconds {
            Some(seconds) => write!(f, "{}, {} left", self.mode, format_age((seconds * 1e9) as u64)),
            None => self.mode.fmt(f),
        }
    }
}

impl Class {
    /// Its action, with the mode if it has one of its own: `drop (observe, 59 min 12 s left)`.
    pub fn describe(&self) -> String {
        describe_action(&self.action, self.asked.as_ref())
    }
}

/// The action of a class, with the mode if it has one of its own.
pub fn describe_action(action: &str, asked: Option<&AskedMode>) -> String {
    asked.map_or_else(|| action.to_string(), |asked| format!("{action} ({asked})"))
}

#[derive(Debug, Serialize)]
pub struct FlowTables {
    pub sharing: Sharing,
    /// Of all CPUs together if they share the tables, else of each.
    pub entries: Option<u32>,
    pub cpus: u32,
    /// Of both tables, IPv4 and IPv6.
    pub bytes: u64,
}

impl Elsewhere {
    pub fn describe(&self) -> String {
        match &self.netns {
            Some(name) => format!("{name} (`--netns {}`)", quoted(name)),
            None => format!(
                "another that cannot be entered from here (attached in inode {}, see `lsns -t net`)",
                self.attached_in_inode
            ),
        }
    }
}

impl Status {
    pub fn describe_mode(&self) -> String {
        let mode = self.mode.map_or("none", Mode::name);
        match self.enforce_remaining_seconds.or(self.observe_remaining_seconds) {
            Some(seconds) => format!("{mode}, {} left", format_age((seconds * 1e9) as u64)),
            None if !self.attached => "none: nothing is attached any more".to_string(),
            None if !self.mode_as_asked => "observe (the time of enforcement is over)".to_string(),
            None => mode.to_string(),
        }
    }
}
