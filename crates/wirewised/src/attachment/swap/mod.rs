// SPDX-License-Identifier: Apache-2.0
//! One model after another on an interface, while packets pass: the new program is loaded beside the old one, uses the flow tables
//! that are there, and takes over in one step. What ran before stays at hand for `rollback`.
//!
//! What is shared, and what each program has for itself, follows from the scope of each map (`object/maps.rs`):
//!
//! - the flow tables are shared if both keep the same of a flow; otherwise the new ones are empty;
//! - counters and events are numbered by class, so they are shared by programs with the same classes;
//! - so is all that belongs to the policy, unless a new policy comes with the new program, which is then written over a copy;
//! - what others put there, and what flows were given, is the same for all programs.

mod fit;
pub mod shadow;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use crate::abi::maps::{POLICY, Scope, TUNNELS, flow_tables, of_scopes};
use crate::abi::{self, Action, Mode};
use crate::attachment::Attachment;
use crate::attachment::followed;
use crate::attachment::forwarding;
use crate::attachment::limits;
use crate::attachment::next;
use crate::attachment::staging;
use crate::attachment::succession::{Places, not_tidied};
use crate::attachment::verdicts;
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::kernel::objects;
use crate::kernel::{self, pinned};
use crate::object::policy_maps;
use crate::object::{Loaded, Opened, Runs, Settings};
use crate::plane::{Joining, link};
use crate::policy::Policy;
use crate::reading::meta::{BundleMeta, Meta, PolicyMeta};
use crate::reading::policy::{carry_class_modes, carry_mode};
use crate::text::shell::quoted;

#[derive(Debug)]
pub struct SwapRequest {
    pub ours: Attachment,
    pub bundle: Bundle,
    pub bundle_file: PathBuf,
    /// `None`: the one in force stays.
    pub policy: Option<(PathBuf, Policy)>,
    /// `None`: the one in force stays. Only with a policy.
    pub mode: Option<Mode>,
    /// Begin with empty flow tables if those in use do not fit.
    pub reset_flows: bool,
    /// The shadow that becomes the first.
    pub shadow: Option<Attachment>,
}

/// Where the new program's flow tables come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlowsPlan {
    /// Both programs use them.
    Kept,
    /// From the same model's time as a shadow.
    OfShadow,
    Empty,
}

/// What becomes of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyPlan {
    /// Both programs use it.
    Kept,
    /// The same actions for the same classes, which have other numbers now.
    Renumbered,
    /// The file given.
    New,
}

/// What a swap comes down to.
#[derive(Debug)]
pub struct SwapPlan {
    /// What is attached, as it remembers it.
    old: Meta,
    config: abi::Config,
    pub flows: FlowsPlan,
    /// Why the flow tables cannot stay; empty: they do.
    pub differences: Vec<String>,
    pub same_classes: bool,
    /// It is the bundle that runs, loaded once more.
    same_bundle: bool,
    pub policy: PolicyPlan,
    /// The policy's file says nothing of tunnels: the table goes on.
    leaves_tunnels: bool,
    /// Classes the old program did not have; without a policy that names them they pass.
    pub new_classes: Vec<String>,
}

impl SwapRequest {
    /// The bundle is what runs, and nothing else is asked for.
    pub fn runs_already(&self) -> bool {
        let same = self.ours.meta.as_ref().is_some_and(|meta| meta.bundle.digest == self.bundle.digest);
        same && self.policy.is_none() && !self.reset_flows && self.shadow.is_none()
    }

    pub fn new_bundle(&self) -> BundleMeta {
        BundleMeta::new(&self.bundle, &self.bundle_file)
    }
}

impl SwapPlan {
    pub fn old_bundle(&self) -> &BundleMeta {
        &self.old.bundle
    }

    /// The maps that old and new program have in common.
    fn shared(&self) -> impl Iterator<Item = &'static str> {
        let in_common = of_scopes(|scope| match scope {
            Scope::Load => false,
            Scope::Bundle => self.same_bundle,
            Scope::Table => self.flows == FlowsPlan::Kept,
            Scope::Classes => self.same_classes,
            Scope::AllowList | Scope::Policy => self.policy == PolicyPlan::Kept,
            Scope::Host => true,
        });
        in_common.chain(self.leaves_tunnels.then_some(TUNNELS))
    }
}

/// Looks, and changes nothing.
pub fn plan(request: &SwapRequest) -> Result<SwapPlan> {
    let SwapRequest { ours, bundle, .. } = request;
    let interface = &ours.interface;
    let (old, config) = known(ours)?;
    let new = &bundle.manifest;
    let mut differences = fit::differences(&old.flow, &new.flow);
    if old.decapsulate != bundle.decapsulate() {
        let list = |names: &[String]| if names.is_empty() { "none".to_string() } else { names.join(", ") };
        let (new, old) = (list(&bundle.decapsulate()), list(&old.decapsulate));
        differences.push(format!("it looks into tunnels {new}, not {old}"));
    }
    let flows = match &request.shadow {
        _ if differences.is_empty() => FlowsPlan::Kept,
        Some(_) => FlowsPlan::OfShadow,
        None => FlowsPlan::Empty,
    };
    if flows == FlowsPlan::Empty && !request.reset_flows {
        return Err(Error::other(format!(
            "{interface}: {} cannot go on with the flow tables of {}: {}; {}`--reset-flows` swaps and begins with empty ones",
            new.name,
            old.bundle.name,
            differences.join("; "),
            way_on(&old, bundle)
        )));
    }
    if let Some((_, policy)) = &request.policy {
        policy.check_key(&new.flow.key)?;
    }
    let same_classes = old.classes == new.classes;
    let policy = match &request.policy {
        Some(_) => PolicyPlan::New,
        None if same_classes => PolicyPlan::Kept,
        None => {
            check_policy(ours, &old, &new.classes)?;
            PolicyPlan::Renumbered
        }
    };
    let same_bundle = old.bundle.digest == bundle.digest;
    let leaves_tunnels = request.policy.as_ref().is_some_and(|(_, policy)| policy.tunnels.is_none());
    let new_classes = new.classes.iter().filter(|class| !old.classes.contains(class)).cloned().collect();
    Ok(SwapPlan {
        old,
        config,
        flows,
        differences,
        same_classes,
        same_bundle,
        policy,
        leaves_tunnels,
        new_classes,
    })
}

/// How the bundle could take the flows over after all.
fn way_on(old: &Meta, bundle: &Bundle) -> String {
    if old.decapsulate != bundle.decapsulate() || !fit::is_part(&bundle.manifest.flow, &old.flow) {
        return String::new();
    }
    format!(
        "all the state it needs is there: compile it again with `wirewise compile --keep-state-of {}` and flows go on, or ",
        quoted(&old.bundle.file)
    )
}

/// What an attachment must have for another program to follow it.
fn known(ours: &Attachment) -> Result<(Meta, abi::Config)> {
    let interface = &ours.interface;
    if ours.link.as_ref().is_none_or(|(_, link)| link.port.is_none()) {
        return Err(Error::other(format!(
            "{interface}: only pins are left of what was attached; `wirewised detach --interface {}` removes them",
            quoted(interface)
        )));
    }
    let meta = ours.meta.clone().ok_or_else(|| another_version(interface))?;
    Ok((meta, known_config(ours)?))
}

fn known_config(ours: &Attachment) -> Result<abi::Config> {
    ours.config()?.ok_or_else(|| another_version(&ours.interface))
}

fn another_version(interface: &str) -> Error {
    Error::other(format!(
        "{interface}: another version of wirewised attached this program; `wirewised run --replace` replaces it, flows start anew"
    ))
}

/// Refuses to lose an action of the policy in force.
fn check_policy(ours: &Attachment, old: &Meta, classes: &[String]) -> Result<()> {
    let policy = ours.policy()?;
    let acts = |(_, rule): &(&String, &abi::ClassPolicy)| rule.action != Action::Pass.code();
    let lost = old.classes.iter().zip(&policy.class_policy).filter(acts).map(|(class, _)| class);
    let lost: Vec<_> = lost.filter(|class| !classes.contains(class)).cloned().collect();
    if lost.is_empty() {
        return Ok(());
    }
    Err(Error::input(format!(
        "{}: the policy in force has actions for classes that the new bundle has not ({}); it has {}: give a policy for it with \
         `--policy FILE`",
        ours.interface,
        lost.join(", "),
        classes.join(", ")
    )))
}

/// Loads the new program beside the old one. Nothing runs yet.
pub fn load(request: &SwapRequest, plan: &SwapPlan) -> Result<Loaded> {
    let SwapRequest { ours, bundle, .. } = request;
    let mut opened = Opened::open(&request.bundle_file.display().to_string(), &bundle.object)?;
    let runs = ours.runs(plan.old.plane);
    // Bans are found by this seed, and outlive the program that made them.
    let mut settings = Settings { hash_seed: plan.config.hash_seed, ..Settings::live(runs)? };
    // A policy that stays must be as it was for what ran before, which may come back.
    let acts = match &request.policy {
        Some((_, policy)) => plan.old.plane.loads_for(policy.steering_kinds()),
        None => plan.config.acts,
    };
    let next = match &request.policy {
        Some((_, policy)) => next::of_policy(policy, plan.old.plane)?,
        None => followed::of(ours)?,
    };
    next::admit_beside(runs, next.is_some())?;
    let tables_of = request.shadow.as_ref().filter(|_| plan.flows == FlowsPlan::OfShadow);
    if plan.flows == FlowsPlan::Kept {
        settings = with_tables_of(&plan.config, runs)?;
        if !plan.same_classes {
            settings.verdict = verdicts::other(settings.verdict);
        }
    } else if let Some(shadow) = tables_of {
        settings = with_tables_of(&known_config(shadow)?, runs)?;
    }
    opened.prepare(&Settings { acts, next: next.is_some(), frags: plan.config.frags != 0, ..settings })?;
    if let Some(shadow) = &request.shadow {
        let own = |scope| scope == Scope::Bundle || scope == Scope::Table && tables_of.is_some();
        share(&mut opened, shadow, of_scopes(own))?;
    }
    forwarding::join(&mut opened, ours.directory.parent().unwrap_or(&ours.directory))?;
    share(&mut opened, ours, plan.shared())?;
    staging::load(opened, bundle, ours.outgoing.is_some(), next)
}

/// For a program that uses the flow tables of an attachment's.
pub(super) fn settings_with_tables_of(ours: &Attachment, runs: Runs) -> Result<Settings> {
    with_tables_of(&known_config(ours)?, runs)
}

/// For a program that uses the flow tables of a program with these constants, and its policy.
fn with_tables_of(config: &abi::Config, runs: Runs) -> Result<Settings> {
    Ok(Settings {
        shards: config.shards,
        table_size: Some((config.bucket_mask + 1) * abi::WAYS),
        hash_seed: config.hash_seed,
        verdict: config.verdict as u8,
        acts: config.acts,
        next: config.next != 0,
        frags: config.frags != 0,
        ..Settings::live(runs)?
    })
}

/// Lets a program use maps of an attachment, as far as both have them.
pub(super) fn share(
    opened: &mut Opened,
    from: &Attachment,
    maps: impl IntoIterator<Item = &'static str>,
) -> Result<()> {
    for name in maps {
        if let Some(map) = from.optional_map(name)? {
            opened.share(name, &map)?;
        }
    }
    Ok(())
}

/// Does what the plan says. The caller holds the lock of the root, under which the plan was made.
pub fn execute(request: &SwapRequest, plan: &SwapPlan, loaded: &Loaded) -> Result<Attachment> {
    let ours = &request.ours;
    let places = Places::of(&ours.directory);
    let staged = staging::pin(loaded, &places.new)?;
    staging::keep_object(&places.new, plan.old.plane, &request.bundle)?;
    let policy = write_policy(request, plan, loaded)?;
    let config = loaded.config.as_ref().unwrap_or(&plan.config);
    let Meta { interface, plane, .. } = &plan.old;
    let meta = Meta::new(&request.bundle, &request.bundle_file, interface, *plane, config, policy);
    staging::remember(&places.new, &meta)?;
    if plan.flows == FlowsPlan::Kept && !plan.same_classes {
        for name in flow_tables() {
            ours.optional_map(name)?
                .map_or(Ok(()), |table| verdicts::retire(&table, config.verdict as u8))?;
        }
    }
    let asked = match &request.policy {
        Some((_, policy)) => plane.by_companion(policy.steering_kinds()),
        None => plane.by_companion(ours.element()?.steering()),
    };
    let entry = loaded.entry()?;
    take_over(ours, &places, asked, entry.as_fd(), || staged.keep())
}

/// Has a program run that is ready, and what else there is follow it.
fn take_over(
    ours: &Attachment,
    places: &Places,
    asked: u32,
    program: BorrowedFd<'_>,
    keep: impl FnOnce(),
) -> Result<Attachment> {
    places.with_companion(&ours.interface, asked, Joining::default(), || {
        update_link(ours, program)?;
        keep();
        places.tidy().map_err(|error| not_tidied(places, &error))
    })?;
    follow(ours, Attachment::open(&ours.directory)?)
}

/// Programs with the same classes share the counters, and with them what the limit of events remembers. (Other limits lie beside the
/// policy: both are shared, or neither.)
fn follow(before: &Attachment, now: Attachment) -> Result<Attachment> {
    limits::renew_events(&before.policy()?, &now.policy()?, |name| now.optional_map(name).ok().flatten())?;
    Ok(now)
}

/// The one moment at which the next packet meets another program; of outgoing ones, when the directories are put in order.
fn update_link(ours: &Attachment, program: BorrowedFd<'_>) -> Result<()> {
    let Some((link, _)) = &ours.link else { return Err(Error::other("the attachment went away meanwhile")) };
    link::update(link.as_fd(), program)
        .map_err(|error| Error::other(format!("{}: cannot replace the program: {error}", ours.interface)))
}

/// Writes the new program's policy, if it has one of its own. Returns what is to be remembered of it.
fn write_policy(request: &SwapRequest, plan: &SwapPlan, loaded: &Loaded) -> Result<PolicyMeta> {
    let (ours, old) = (&request.ours, &plan.old);
    if plan.policy == PolicyPlan::Kept {
        return Ok(old.policy.clone());
    }
    let (from, to) = (|name: &str| ours.optional_map(name).ok().flatten(), |name: &str| loaded.map(name));
    let (now, before) = (kernel::boot_ns(), ours.element()?);
    let classes = &request.bundle.manifest.classes;
    let number = |class: usize| {
        let name = classes.get(class)?;
        old.classes.iter().position(|old| old == name)
    };
    let (element, remembered) = match &request.policy {
        Some((file, policy)) => {
            policy_maps::copy_changed(from, to)?;
            let mut element = policy.to_abi(now, request.mode.unwrap_or(Mode::Observe));
            if request.mode.is_none() {
                carry_mode(&before.policy, &mut element.policy, old.policy.enforce_for_ns.is_some(), now);
            }
            carry_class_modes(&before.policy, &mut element.policy, number);
            policy_maps::write(policy, &element, to, || Ok(()))?;
            (element, PolicyMeta::new(Some(file), policy))
        }
        None => {
            policy_maps::copy(from, to)?;
            let element = fit::renumber(&before, &old.classes, classes);
            policy_maps::write_element(&element, to)?;
            let action = |class| {
                let action = number(class).and_then(|number| old.policy.actions.get(number).cloned());
                action.unwrap_or_else(|| Action::Pass.name().to_string())
            };
            let actions = (0..classes.len()).map(action).collect();
            (element, PolicyMeta { actions, ..old.policy.clone() })
        }
    };
    limits::carry(&before.policy, &element.policy, number, from, to)?;
    Ok(remembered)
}

/// What ran before the last swap.
pub fn previous(ours: &Attachment) -> Result<(Attachment, Meta)> {
    known(ours)?;
    let previous = ours.previous().and_then(|previous| Some((previous.meta.clone()?, previous)));
    previous.map(|(meta, previous)| (previous, meta)).ok_or_else(|| {
        Error::input(format!(
            "{}: nothing ran before that could come back: only `wirewised swap` keeps what it replaces",
            ours.interface
        ))
    })
}

/// Puts back what ran before the last swap; what ran now can come back the same way. The caller holds the lock of the root.
pub fn rollback(ours: &Attachment) -> Result<Attachment> {
    let (previous, mut meta) = previous(ours)?;
    let places = Places::of(&ours.directory);
    let program = objects::open_pin(&places.previous.join(pinned::PROGRAM))
        .map_err(|error| Error::other(format!("{}: {error}", places.previous.display())))?;
    // A policy that both have in common may have changed since.
    if let Some(current) = &ours.meta
        && previous.shares(ours, POLICY)
    {
        meta.policy = current.policy.clone();
    }
    meta.since = kernel::now();
    staging::remember(&places.previous, &meta)?;
    let asked = meta.plane.by_companion(previous.element()?.steering());
    take_over(ours, &places, asked, program.as_fd(), || ())
}
