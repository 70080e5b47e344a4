// SPDX-License-Identifier: Apache-2.0
//! The status of an attachment: from the kernel where the kernel knows.

use libbpf_rs::{MapCore, MapFlags};

use crate::abi::Mode;
use crate::abi::maps::{POLICY, TAIL_CALLS};
use crate::attachment::companion;
use crate::attachment::followed;
use crate::attachment::outgoing;
use crate::attachment::succession::Places;
use crate::attachment::{Attachment, Whereabouts};
use crate::error::Result;
use crate::interface::offloads;
use crate::kernel;
use crate::reading::policy::{effective_mode, remaining_ns};
use crate::reading::status::{Elsewhere, FlowTables, Previous, Second, Status};

pub fn of(attachment: &Attachment) -> Result<Status> {
    let policy = attachment.policy()?;
    let now = kernel::boot_ns();
    let mode = effective_mode(&policy, now);
    let meta = attachment.meta.as_ref();
    let link = attachment.link.as_ref().map(|(_, info)| *info);
    let attached = attachment.whereabouts != Whereabouts::Gone;
    let elsewhere = attachment.elsewhere();
    let obtained = match (&elsewhere, link) {
        (Some((_, plane)), _) => Some(*plane),
        (None, Some(link)) if attached => link.plane().ok().flatten(),
        _ => None,
    };
    let remaining =
        |of| remaining_ns(&policy, now).filter(|_| attached && mode == of).map(|ns| ns as f64 / 1e9);
    let over = policy.enforce_until_ns != 0 && policy.enforce_until_ns <= now;
    Ok(Status {
        interface: attachment.interface.clone(),
        attached,
        network_namespace: (attachment.whereabouts == Whereabouts::Elsewhere).then(|| Elsewhere {
            netns: elsewhere.map(|(other, _)| other.name),
            attached_in_inode: meta.map_or(0, |meta| meta.namespace),
        }),
        plane_asked: meta.map(|meta| meta.plane),
        plane_obtained: obtained,
        outgoing: attachment.outgoing.as_ref().map(|info| Second {
            plane: outgoing::PLANE,
            link_id: info.id,
            program_id: info.program_id,
        }),
        companion: attachment.companion.as_ref().map(|info| Second {
            plane: companion::PLANE,
            link_id: info.id,
            program_id: info.program_id,
        }),
        next: followed::status(attachment)?,
        filter: attachment.filter(),
        run_priority: attachment.priority(),
        mode: attached.then_some(mode),
        mode_as_asked: policy.mode == Mode::Observe.code() || !over,
        enforce_remaining_seconds: remaining(Mode::Enforce),
        observe_remaining_seconds: remaining(Mode::Observe),
        since: meta.map(|meta| meta.since.clone()),
        bundle: meta.map(|meta| meta.bundle.clone()),
        classes: attachment.classes()?,
        policy: meta.map(|meta| meta.policy.clone()),
        flow_tables: FlowTables {
            sharing: attachment.sharing()?,
            entries: meta.map(|meta| meta.table_size),
            cpus: attachment.shards()?,
            bytes: attachment.flow_table_bytes()?,
        },
        shares_flows_with: attachment.shares_flows_with(),
        clock: meta.map(|meta| meta.clock.clone()),
        carrier: attachment.carrier(),
        offloads_off: offloads::read(&Places::of(&attachment.directory).offloads),
        shadow: attachment.agreement()?,
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
        shares_flows: attachment.shares_flows(&previous),
        shares_policy: attachment.shares(&previous, POLICY),
    })
}

fn tail_calls(attachment: &Attachment) -> Result<Vec<u32>> {
    let Some(map) = attachment.optional_map(TAIL_CALLS)? else { return Ok(Vec::new()) };
    let id = |index: u32| {
        let value = map.lookup(&index.to_ne_bytes(), MapFlags::ANY).ok()??;
        Some(u32::from_ne_bytes(value.try_into().ok()?))
    };
    Ok((0..map.max_entries()).filter_map(id).collect())
}
