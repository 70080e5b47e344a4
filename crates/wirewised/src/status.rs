// SPDX-License-Identifier: Apache-2.0
//! What is attached, as `status` and `run` tell it: asked for and obtained, from the kernel where the kernel knows.

use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;

use crate::abi::Mode;
use crate::agreement::Agreement;
use crate::attach::effective_mode;
use crate::attachment::{Attachment, FLOW_MAPS, POLICY_MAP, Whereabouts};
use crate::error::Result;
use crate::kernel;
use crate::manifest::Sharing;
use crate::meta::{BundleMeta, PolicyMeta};
use crate::offloads::{self, Merging};
use crate::signature;
use crate::succession::Places;
use crate::units::{format_age, format_bytes};
use crate::xdp::{self, Plane};

const GONE: &str = "gone: the interface was deleted, or the program taken off; `detach` removes the pins";

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
    /// What holds now; null if nothing does, as nothing is attached any more.
    pub mode: Option<Mode>,
    /// False: enforcement was asked for a time that is over.
    pub mode_as_asked: bool,
    pub enforce_remaining_seconds: Option<f64>,
    pub since: Option<String>,
    pub bundle: Option<BundleMeta>,
    pub classes: Vec<Class>,
    pub policy: Option<PolicyMeta>,
    pub flow_tables: FlowTables,
    /// Where the program reads the time: `fine`, `coarse (jiffies)`, or `coarse (helper)` where the kernel's tick could not be
    /// measured, which costs some ns a packet.
    pub clock: Option<String>,
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

pub fn of(attachment: &Attachment) -> Result<Status> {
    let policy = attachment.policy()?;
    let now = kernel::boot_ns();
    let mode = effective_mode(&policy, now);
    let meta = attachment.meta.as_ref();
    let link = attachment.link.as_ref().map(|(_, info)| *info);
    let attached = attachment.whereabouts != Whereabouts::Gone;
    let elsewhere = attachment.namespace();
    let obtained = link.filter(|_| attached).and_then(|link| {
        let query = || xdp::query(link.ifindex).ok()?.plane_of(link.program_id);
        elsewhere.as_ref().map_or_else(query, |other| other.within(query).flatten())
    });
    let limited = attached && mode == Mode::Enforce && policy.enforce_until_ns != 0;
    Ok(Status {
        interface: attachment.interface.clone(),
        attached,
        network_namespace: (attachment.whereabouts == Whereabouts::Elsewhere).then(|| Elsewhere {
            netns: elsewhere.map(|other| other.name),
            attached_in_inode: meta.map_or(0, |meta| meta.namespace),
        }),
        plane_asked: meta.map(|meta| meta.plane),
        plane_obtained: obtained,
        mode: attached.then_some(mode),
        mode_as_asked: mode.code() == policy.mode,
        enforce_remaining_seconds: limited.then(|| (policy.enforce_until_ns - now) as f64 / 1e9),
        since: meta.map(|meta| meta.since.clone()),
        bundle: meta.map(|meta| meta.bundle.clone()),
        classes: classes(attachment)?,
        policy: meta.map(|meta| meta.policy.clone()),
        flow_tables: FlowTables {
            sharing: attachment.sharing()?,
            entries: meta.map(|meta| meta.table_size),
            cpus: attachment.shards()?,
            bytes: attachment.flow_table_bytes()?,
        },
        clock: meta.map(|meta| meta.clock.clone()),
        offloads_off: offloads::read(&Places::of(&attachment.directory).offloads),
        shadow: Agreement::read(attachment)?,
        previous: previous(attachment),
        link_id: link.map(|link| link.id),
        program_id: link.map(|link| link.program_id),
        tail_call_program_ids: tail_calls(attachment)?,
        pins: attachment.directory.display().to_string(),
    })
}

fn previous(attachment: &Attachment) -> Option<Previous> {
    let previous = attachment.previous()?;
    let meta = previous.meta.as_ref()?;
    Some(Previous {
        bundle: meta.bundle.clone(),
        since: meta.since.clone(),
        shares_flows: FLOW_MAPS.iter().all(|name| attachment.shares(&previous, name)),
        shares_policy: attachment.shares(&previous, POLICY_MAP),
    })
}

/// Each class with what the policy asks for it.
pub fn classes(attachment: &Attachment) -> Result<Vec<Class>> {
    let policy = attachment.policy()?;
    let written = attachment.meta.as_ref().map(|meta| &meta.policy.actions);
    let action = |class_id: usize| match written.and_then(|actions| actions.get(class_id)) {
        Some(action) => action.clone(),
        None => match crate::abi::Action::from_code(policy.class_policy[class_id].action) {
            Some(action) => action.name().to_string(),
            None => "unknown".to_string(),
        },
    };
    let class = |id: usize| Class { name: attachment.class_name(id as u8), action: action(id) };
    Ok((0..attachment.classes()).map(class).collect())
}

fn tail_calls(attachment: &Attachment) -> Result<Vec<u32>> {
    let Some(map) = attachment.optional_map("ww_progs")? else { return Ok(Vec::new()) };
    let id = |index: u32| {
        let value = map.lookup(&index.to_ne_bytes(), MapFlags::ANY).ok()??;
        Some(u32::from_ne_bytes(value.try_into().ok()?))
    };
    Ok((0..map.max_entries()).filter_map(id).collect())
}

impl Elsewhere {
    fn describe(&self) -> String {
        match &self.netns {
            Some(name) => format!("{name} (`--netns {name}`)"),
            None => format!(
                "another that cannot be entered from here (attached in inode {}, see `lsns -t net`)",
                self.attached_in_inode
            ),
        }
    }
}

impl Status {
    pub fn print(&self) {
        let row = |name: &str, value: &str| println!("  {name:<12} {value}");
        let name = |plane: Option<Plane>| plane.map_or("unknown", Plane::name);
        println!("{}", self.interface);
        match (self.plane_asked, self.plane_obtained) {
            _ if !self.attached => row("plane", GONE),
            (asked, None) => row("plane", &format!("cannot be seen from here (asked for {})", name(asked))),
            (asked, obtained) if asked == obtained => row("plane", name(obtained)),
            (asked, obtained) => row("plane", &format!("{} (asked for {})", name(obtained), name(asked))),
        }
        if let Some(elsewhere) = &self.network_namespace {
            row("network ns", &elsewhere.describe());
        }
        row("mode", &self.describe_mode());
        if let Some(bundle) = &self.bundle {
            row("bundle", &format!("{} ({}), sha256 {}", bundle.name, bundle.model, &bundle.digest[..16]));
        }
        if let Some(bundle) = &self.bundle {
            row("signature", &signature::describe(bundle.signer.as_ref()));
        }
        let classes: Vec<_> =
            self.classes.iter().map(|class| format!("{}: {}", class.name, class.action)).collect();
        row("classes", &classes.join(", "));
        if let Some(policy) = &self.policy {
            row("policy", policy.file.as_deref().unwrap_or("none: every class passes"));
        }
        let tables = &self.flow_tables;
        let entries = tables.entries.map_or("?".to_string(), |entries| entries.to_string());
        let size = tables.sharing.describe(entries, tables.cpus);
        row("flow tables", &format!("{size}, {}", format_bytes(tables.bytes)));
        if !self.offloads_off.is_empty() {
            let off: Vec<_> = self.offloads_off.iter().map(Merging::describe).collect();
            row("offloads", &format!("off until detached: {}", off.join(", ")));
        }
        row("clock", self.clock.as_deref().unwrap_or("unknown"));
        let mut programs = vec![self.program_id.map_or("none".to_string(), |id| id.to_string())];
        programs.extend(self.tail_call_program_ids.iter().map(u32::to_string));
        row("programs", &format!("{} (`bpftool prog show id ID`)", programs.join(", ")));
        row("since", self.since.as_deref().unwrap_or("unknown"));
        if let Some(shadow) = &self.shadow {
            row("shadow", &shadow.describe());
        }
        if let Some(Previous { bundle, since, .. }) = &self.previous {
            let (name, digest) = (&bundle.name, &bundle.digest[..16]);
            row("previous", &format!("{name}, sha256 {digest}, since {since} (`wirewised rollback`)"));
        }
        row("pins", &self.pins);
    }

    pub fn describe_mode(&self) -> String {
        match self.enforce_remaining_seconds {
            Some(seconds) => format!("enforce, {} left", format_age((seconds * 1e9) as u64)),
            None if !self.attached => "none: nothing is attached any more".to_string(),
            None if !self.mode_as_asked => "observe (the time of enforcement is over)".to_string(),
            None => self.mode.map_or("none", Mode::name).to_string(),
        }
    }
}
