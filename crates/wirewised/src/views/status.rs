// SPDX-License-Identifier: Apache-2.0
//! What is attached, as `status` and `run` tell it.

use serde_json::{Value, json};
use wirewise_lane::LaneCounts;

use crate::attachment::Unreadable;
use crate::attachment::unpinned::Unpinned;
use crate::bundle::signature;
use crate::interface::offloads::Merging;
use crate::plane::Plane;
use crate::plane::note::Carrier;
use crate::reading::status::{Previous, Status};
use crate::text::units::{format_bytes, thousands};
use crate::views::terminal;

const GONE: &str = "gone: the interface was deleted, or the program taken off; `detach` removes the pins";

/// What cannot be read, for JSON.
pub fn unreadable(all: &[Unreadable]) -> Vec<Value> {
    let one = |it: &Unreadable| json!({ "interface": it.interface, "pins": it.directory, "error": it.why.to_string() });
    all.iter().map(one).collect()
}

pub fn print_unreadable(it: &Unreadable) {
    println!("{}", it.interface);
    println!("  {:<12} {}", "unreadable", it.why);
    println!("  {:<12} {} (`detach` removes them)", "pins", it.directory.display());
}

pub fn print_unpinned(it: &Unpinned) {
    let Unpinned { interface, program_id, plane, .. } = it;
    let name = it.name.as_deref().unwrap_or("whose name may not be asked for: CAP_SYS_ADMIN");
    println!("{interface}");
    println!("  {:<12} {plane}, program {program_id} ({name})", "plane");
    println!("  {:<12} not seen: under another --pin-root, or in a BPF file system not mounted here", "pins");
}

pub fn print(status: &Status) {
    let row = |name: &str, value: &str| terminal::print_wrapped(&format!("  {name:<12} {value}"), 15);
    let name = |plane: Option<Plane>| plane.map_or("unknown", Plane::name);
    println!("{}", status.interface);
    match (status.plane_asked, status.plane_obtained) {
        _ if !status.attached => row("plane", GONE),
        (asked, None) => row("plane", &format!("cannot be seen from here (asked for {})", name(asked))),
        (asked, obtained) if asked == obtained => row("plane", name(obtained)),
        (asked, obtained) => row("plane", &format!("{} (asked for {})", name(obtained), name(asked))),
    }
    if let Some(filter) = &status.filter {
        row(
            "filter",
            &format!(
                "of clsact, priority {}, handle {:#x} (`tc filter show`)",
                filter.priority, filter.handle
            ),
        );
    }
    if let Some(priority) = status.run_priority.filter(|_| status.attached) {
        row("dispatcher", &format!("run priority {priority}, as ww_component (`xdp-loader status`)"));
    }
    if let Some(outgoing) = &status.outgoing {
        row(
            "outgoing",
            &format!("{}, program {}, in the same flow tables", outgoing.plane, outgoing.program_id),
        );
    }
    if let Some(companion) = &status.companion {
        row(
            "companion",
            &format!("{}, program {}, for what XDP cannot do itself", companion.plane, companion.program_id),
        );
    }
    if let Some(next) = &status.next {
        row("next", &format!("program {} ({}), {}", next.program_id, next.name, next.path));
    }
    if let Some(elsewhere) = &status.network_namespace {
        row("network ns", &elsewhere.describe());
    }
    if let Some(carrier) = status.carrier.as_ref().filter(|_| status.attached) {
        let mut all = LaneCounts::default();
        carrier.lanes.iter().for_each(|lane| all.add(lane));
        let to = carrier.to.as_ref().map_or(String::new(), |to| format!(", between it and {to}"));
        let how = match carrier {
            Carrier { answers: false, .. } => ", which does not answer",
            Carrier { has_begun: false, .. } => ", which has not yet begun",
            _ => "",
        };
        // Empty until the lanes are open.
        let obtained = if carrier.obtained.is_empty() { "" } else { &format!(", {}", carrier.obtained) };
        row("carried by", &format!("process {}{how}{obtained}{to}", carrier.process));
        let mut packets =
            format!("{} received, {} lost to full queues", thousands(all.received), thousands(all.lost));
        if carrier.to.is_some() {
            packets += &format!(", {} sent on, {} could not be", thousands(all.sent), thousands(all.unsent));
        }
        row("packets", &packets);
    }
    row("mode", &status.describe_mode());
    if let Some(bundle) = &status.bundle {
        row("bundle", &format!("{} ({}), sha256 {}", bundle.name, bundle.model, &bundle.digest[..16]));
    }
    if let Some(bundle) = &status.bundle {
        row("signature", &signature::describe(bundle.signer.as_ref()));
    }
    let classes: Vec<_> =
        status.classes.iter().map(|class| format!("{}: {}", class.name, class.describe())).collect();
    row("classes", &classes.join(", "));
    if let Some(policy) = &status.policy {
        row("policy", policy.file.as_deref().unwrap_or("none: every class passes"));
    }
    let tables = &status.flow_tables;
    let entries = tables.entries.map_or("?".to_string(), |entries| entries.to_string());
    let size = tables.sharing.describe(entries, tables.cpus);
    let others = match &status.shares_flows_with[..] {
        [] => String::new(),
        others => format!(", shared with {}", others.join(", ")),
    };
    row("flow tables", &format!("{size}, {}{others}", format_bytes(tables.bytes)));
    if !status.offloads_off.is_empty() {
        let off: Vec<_> = status.offloads_off.iter().map(Merging::describe).collect();
        row("offloads", &format!("off until detached: {}", off.join(", ")));
    }
    row("clock", status.clock.as_deref().unwrap_or("unknown"));
    let mut programs = vec![status.program_id.map_or("none".to_string(), |id| id.to_string())];
    programs.extend(status.tail_call_program_ids.iter().map(u32::to_string));
    row("programs", &format!("{} (`bpftool prog show id ID`)", programs.join(", ")));
    row("since", status.since.as_deref().unwrap_or("unknown"));
    if let Some(shadow) = &status.shadow {
        row("shadow", &shadow.describe());
    }
    if let Some(Previous { bundle, since, .. }) = &status.previous {
        let (name, digest) = (&bundle.name, &bundle.digest[..16]);
        row("previous", &format!("{name}, sha256 {digest}, since {since} (`wirewised rollback`)"));
    }
    row("pins", &status.pins);
}
