// SPDX-License-Identifier: Apache-2.0
//! `wirewised run` on several interfaces: all of them or none.

use serde_json::json;

use super::{Args, Checked, checked, done, report, tell};
use crate::attachment::Attachment;
use crate::attachment::attach;
use crate::attachment::doctor::finding::{self, Finding};
use crate::attachment::interfaces;
use crate::attachment::lockout;
use crate::attachment::plan::{self, AttachPlan};
use crate::attachment::ready;
use crate::attachment::succession::{self, Places};
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::kernel::bpffs;
use crate::text::output;

/// The interfaces that `--interface` means, in its order.
pub fn names(args: &Args) -> Result<Vec<String>> {
    // A device of a plane's own may have commas in its arguments.
    if args.plane.is_some_and(|plane| plane.names_device(&args.interface)) {
        return Ok(vec![args.interface.clone()]);
    }
    args.root.root()?;
    let names = interfaces::expand(&args.interface, || Ok(netdev::names()))?;
    let mut primary: Vec<String> = Vec::new();
    for name in names {
        // Two names of one interface are one.
        let is_there = primary.iter().any(|other| netdev::primary_name(other) == netdev::primary_name(&name));
        if !is_there {
            primary.push(name);
        }
    }
    Ok(primary)
}

/// What was done to an interface.
struct Done {
    attachment: Attachment,
    action: &'static str,
    /// Nothing was there before.
    is_new: bool,
}

pub fn run(args: &Args, names: &[String]) -> Result<()> {
    if args.foreground {
        return Err(Error::input(format!(
            "--foreground shows one interface; --interface means {}",
            names.join(", ")
        )));
    }
    let mut all = names.iter().map(|name| checked(args, name)).collect::<Result<Vec<_>>>()?;
    if let Some(carried) = all.iter().map(|it| it.request.plane).find(|plane| plane.is_in_user_space()) {
        return Err(Error::input(format!(
            "--plane {carried} carries packets in this process: run it once for each of {}",
            names.join(", ")
        )));
    }
    if args.share_flows {
        check_sharing(&all)?;
    }
    if all.iter().any(|it| it.threatens) {
        if args.dry_run {
            let risk = Finding::warning("lock-out", lockout::RISK.to_string(), lockout::WAYS_OUT);
            all[0].findings.push(risk);
        } else {
            lockout::confirm(args.json, lockout::WAYS_OUT)?;
        }
    }
    if args.dry_run {
        let told = all.iter().map(|it| tell(args, &it.request, &it.plan, &it.prepared, &it.findings));
        let told: Vec<_> = told.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        return if args.json { output::print_json(&json!({ "interfaces": told })) } else { Ok(()) };
    }
    if !args.json {
        all.iter().for_each(|it| finding::warn(&it.findings));
        output::check()?;
    }
    let root = all[0].request.root.clone();
    let mounts = bpffs::mount(root.path())?;
    if mounts {
        eprintln!("note: {}", bpffs::mounted_note());
    }
    let lock = root.lock()?;
    succession::tidy_all(&root)?;
    let mut attached: Vec<Done> = Vec::new();
    for one in all {
        match execute(args, one, attached.first()) {
            Ok(done) => attached.push(done),
            Err(error) => return Err(undo(attached, error)),
        }
    }
    drop(lock);
    let told = attached.iter().map(|it| report(args, it.action, mounts, &it.attachment, false));
    let told: Vec<_> = told.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
    if args.json { output::print_json(&json!({ "interfaces": told })) } else { Ok(()) }
}

fn execute(args: &Args, one: Checked, first: Option<&Done>) -> Result<Done> {
    let Checked { request, prepared, .. } = one;
    // Somebody may have attached since the first look.
    let plan = plan::of(&request)?;
    let (action, is_new) = (done(&plan), matches!(plan, AttachPlan::Attach { displaced: None }));
    let prepared = match first.filter(|_| args.share_flows && plan.adopted().is_none()) {
        Some(first) => ready::prepare_beside(&request, &first.attachment)?,
        None => prepared,
    };
    Ok(Done { attachment: attach::execute(&request, plan, prepared)?, action, is_new })
}

/// Detaches what this command has attached. What it changed in place stays changed, and the error names it.
fn undo(attached: Vec<Done>, error: Error) -> Error {
    let mut changed = Vec::new();
    for done in attached.into_iter().rev() {
        let interface = done.attachment.interface.clone();
        if !done.is_new {
            changed.push(format!("{interface} is {} all the same", done.action));
        } else if let Err(left) = Places::of(&done.attachment.directory).remove() {
            changed.push(format!("{interface} could not be detached: {left}"));
        }
    }
    if changed.is_empty() {
        error
    } else {
        Error::new(error.kind(), format!("{error}; {}", changed.join("; ")))
    }
}

/// What goes on keeps its flow tables, so it has to share them already.
fn check_sharing(all: &[Checked]) -> Result<()> {
    let mut adopted = all.iter().filter_map(|it| it.plan.adopted());
    let Some(first) = adopted.next() else { return Ok(()) };
    let other = match all[0].plan.adopted() {
        Some(_) => adopted.find(|other| !other.shares_flows(first)),
        None => Some(first),
    };
    other.map_or(Ok(()), |other| {
        Err(Error::input(format!(
            "--share-flows: {} is attached with flow tables of its own; `--replace` attaches all of them anew, or `wirewised detach \
             --interface {}` first",
            other.interface, other.interface
        )))
    })
}
