// SPDX-License-Identifier: Apache-2.0
//! One model after another on an interface, while packets pass: the new program is loaded beside the old one, uses the flow tables
//! that are there, and takes over in one step. What ran before stays at hand for `rollback`.
//!
//! What is shared, and what each program has for itself:
//!
//! - the flow tables are shared if both keep the same of a flow; otherwise the new ones are empty;
//! - counters and events are numbered by class, so they are shared by programs with the same classes;
//! - so are policy, allow list and rate limits, unless a new policy comes with the new program.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use crate::abi::{self, Action};
use crate::attach::{effective_mode, not_tidied};
use crate::attachment::{Attachment, CPU_MAP, EVENTS_MAP, FLOW_MAPS, POLICY_MAP};
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::kernel;
use crate::manifest::Flow;
use crate::meta::{self, BundleMeta, Meta, PolicyMeta};
use crate::object::{Loaded, Opened, Settings};
use crate::policy::Policy;
use crate::policy_maps::{self, ALLOW_LIST};
use crate::staging;
use crate::succession::Places;
use crate::verdicts;
use crate::xdp;

const LIMIT_MAP: &str = "ww_limit";

#[derive(Debug)]
pub struct Request {
    pub ours: Attachment,
    pub bundle: Bundle,
    pub bundle_file: PathBuf,
    /// `None`: the one in force stays.
    pub policy: Option<(PathBuf, Policy)>,
    /// Begin with empty flow tables if those in use do not fit.
    pub reset_flows: bool,
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
pub struct Plan {
    /// What is attached, as it remembers it.
    old: Meta,
    config: abi::Config,
    /// Why the flow tables cannot stay; empty: they do.
    pub differences: Vec<String>,
    pub same_classes: bool,
    pub policy: PolicyPlan,
    /// Classes the old program did not have; without a policy that names them they pass.
    pub new_classes: Vec<String>,
}

impl Request {
    /// The bundle is what runs, and nothing else is asked for.
    pub fn runs_already(&self) -> bool {
        let same = self.ours.meta.as_ref().is_some_and(|meta| meta.bundle.digest == self.bundle.digest);
        same && self.policy.is_none() && !self.reset_flows
    }

    pub fn new_bundle(&self) -> BundleMeta {
        BundleMeta::new(&self.bundle, &self.bundle_file)
    }
}

impl Plan {
    pub fn old_bundle(&self) -> &BundleMeta {
        &self.old.bundle
    }

    pub fn keeps_flows(&self) -> bool {
        self.differences.is_empty()
    }

    /// The maps that old and new program have in common.
    fn shared(&self) -> Vec<&'static str> {
        let mut maps = Vec::new();
        if self.keeps_flows() {
            maps.extend(FLOW_MAPS);
        }
        if self.same_classes {
            maps.extend([CPU_MAP, EVENTS_MAP]);
        }
        if self.policy == PolicyPlan::Kept {
            maps.extend([POLICY_MAP, LIMIT_MAP]);
            maps.extend(ALLOW_LIST);
        }
        maps
    }
}

/// Looks, and changes nothing.
pub fn plan(request: &Request) -> Result<Plan> {
    let Request { ours, bundle, .. } = request;
    let interface = &ours.interface;
    let (old, config) = known(ours)?;
    let new = &bundle.manifest;
    let mut differences = differences(&old.flow, &new.flow);
    if old.decapsulate != bundle.decapsulate() {
        let list = |names: &[String]| if names.is_empty() { "none".to_string() } else { names.join(", ") };
        let (new, old) = (list(&bundle.decapsulate()), list(&old.decapsulate));
        differences.push(format!("it looks into tunnels {new}, not {old}"));
    }
    if !differences.is_empty() && !request.reset_flows {
        return Err(Error::other(format!(
            "{interface}: {} cannot go on with the flow tables of {}: {}; `--reset-flows` swaps and begins with empty ones",
            new.name,
            old.bundle.name,
            differences.join("; ")
        )));
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
    let new_classes = new.classes.iter().filter(|class| !old.classes.contains(class)).cloned().collect();
    Ok(Plan { old, config, differences, same_classes, policy, new_classes })
}

/// What an attachment must have for another program to follow it.
fn known(ours: &Attachment) -> Result<(Meta, abi::Config)> {
    let interface = &ours.interface;
    if ours.link.as_ref().is_none_or(|(_, link)| link.ifindex == 0) {
        return Err(Error::other(format!(
            "{interface}: only pins are left of what was attached; `wirewised detach --interface {interface}` removes them"
        )));
    }
    ours.meta.clone().zip(ours.config()?).ok_or_else(|| {
        Error::other(format!(
            "{interface}: another version of wirewised attached this program; `wirewised run --replace` replaces it, flows \
             start anew"
        ))
    })
}

/// What keeps a program with the flow tables `new` from using those of `old`.
fn differences(old: &Flow, new: &Flow) -> Vec<String> {
    let mut found = Vec::new();
    if old.key != new.key {
        found.push(format!("its flow key is {}, not {}", new.key, old.key));
    }
    if old.table_size != new.table_size {
        found.push(format!("it wants {} entries a CPU, not {}", new.table_size, old.table_size));
    }
    if old.layout_digest != new.layout_digest
        || (old.entry4_size, old.entry6_size) != (new.entry4_size, new.entry6_size)
    {
        let names = |of: &Flow, without: &Flow| {
            let fields =
                of.state.iter().filter(|field| !without.state.iter().any(|other| other.name == field.name));
            fields.map(|field| field.name.clone()).collect::<Vec<_>>().join(", ")
        };
        let (added, gone) = (names(new, old), names(old, new));
        let mut text = "it keeps other state of a flow".to_string();
        if !added.is_empty() {
            text += &format!(", with {added}");
        }
        if !gone.is_empty() {
            text += &format!(", without {gone}");
        }
        found.push(text);
    }
    found
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
pub fn load(request: &Request, plan: &Plan) -> Result<Loaded> {
    let Request { ours, bundle, .. } = request;
    let mut opened = Opened::open(&request.bundle_file.display().to_string(), &bundle.object)?;
    let mut settings = Settings::live()?;
    if plan.keeps_flows() {
        let old = &plan.config;
        settings.table_size = Some((old.bucket_mask + 1) * abi::WAYS);
        settings.shards = old.shards;
        settings.hash_seed = old.hash_seed;
        settings.verdict = old.verdict as u8;
        if !plan.same_classes {
            settings.verdict = verdicts::other(settings.verdict);
        }
    }
    opened.prepare(&settings)?;
    for name in plan.shared() {
        if let Some(map) = ours.optional_map(name)? {
            opened.share(name, &map)?;
        }
    }
    staging::load(opened, bundle)
}

/// Does what the plan says. The caller holds the lock of the root, under which the plan was made.
pub fn execute(request: &Request, plan: &Plan, loaded: &Loaded) -> Result<Attachment> {
    let ours = &request.ours;
    let places = Places::of(&ours.directory);
    let staged = staging::pin(loaded, &places.new)?;
    let policy = write_policy(request, plan, loaded)?;
    let config = loaded.config.as_ref().unwrap_or(&plan.config);
    let Meta { interface, plane, .. } = &plan.old;
    let meta = Meta::new(&request.bundle, &request.bundle_file, interface, *plane, config, policy);
    staging::remember(&places.new, &meta)?;
    if plan.keeps_flows() && !plan.same_classes {
        for name in FLOW_MAPS {
            ours.optional_map(name)?
                .map_or(Ok(()), |table| verdicts::retire(&table, config.verdict as u8))?;
        }
    }
    update_link(ours, loaded.entry()?.as_fd())?;
    staged.keep();
    places.tidy().map_err(|error| not_tidied(&places, &error))?;
    Attachment::open(&ours.directory)
}

/// The one moment at which the next packet meets another program.
fn update_link(ours: &Attachment, program: BorrowedFd<'_>) -> Result<()> {
    let Some((link, _)) = &ours.link else { return Err(Error::other("the attachment went away meanwhile")) };
    xdp::update_link(link.as_fd(), program)
        .map_err(|error| Error::other(format!("{}: cannot replace the program: {error}", ours.interface)))
}

/// Writes the new program's policy, if it has one of its own. Returns what is to be remembered of it.
fn write_policy(request: &Request, plan: &Plan, loaded: &Loaded) -> Result<PolicyMeta> {
    let (ours, old) = (&request.ours, &plan.old);
    if let Some((file, policy)) = &request.policy {
        let now = kernel::monotonic_ns();
        let element = policy.to_abi(now, effective_mode(&ours.policy()?, now));
        policy_maps::write(policy, &element, |name| loaded.map(name))?;
        return Ok(PolicyMeta::new(Some(file), policy));
    }
    let mut remembered = old.policy.clone();
    if plan.policy == PolicyPlan::Renumbered {
        let classes = &request.bundle.manifest.classes;
        policy_maps::copy_allow_list(|name| ours.optional_map(name).ok().flatten(), |name| loaded.map(name))?;
        policy_maps::write_element(&renumber(&ours.policy()?, &old.classes, classes), |name| {
            loaded.map(name)
        })?;
        let action = |class| {
            let number = old.classes.iter().position(|old| old == class);
            number.and_then(|number| old.policy.actions.get(number).cloned())
        };
        remembered.actions = classes
            .iter()
            .map(|class| action(class).unwrap_or_else(|| Action::Pass.name().to_string()))
            .collect();
    }
    Ok(remembered)
}

/// The same policy for classes with other numbers; a class it does not know passes.
fn renumber(policy: &abi::Policy, old: &[String], new: &[String]) -> abi::Policy {
    let mut renumbered =
        abi::Policy { class_policy: [bytemuck::Zeroable::zeroed(); abi::MAX_CLASSES], ..*policy };
    for (rule, class) in renumbered.class_policy.iter_mut().zip(new) {
        if let Some(number) = old.iter().position(|old| old == class) {
            *rule = policy.class_policy[number];
        }
    }
    renumbered
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
    let program = xdp::open_pin(&places.previous.join(crate::pins::PROGRAM))
        .map_err(|error| Error::other(format!("{}: {error}", places.previous.display())))?;
    // A policy that both have in common may have changed since.
    if let Some(current) = &ours.meta
        && previous.shares(ours, POLICY_MAP)
    {
        meta.policy = current.policy.clone();
    }
    meta.since = meta::now();
    staging::remember(&places.previous, &meta)?;
    update_link(ours, program.as_fd())?;
    places.tidy().map_err(|error| not_tidied(&places, &error))?;
    Attachment::open(&ours.directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{ClockName, StateField, StateType};

    fn flow(key: &str, table_size: u32, state: &[&str]) -> Flow {
        let field = |name: &&str| StateField { name: name.to_string(), kind: StateType::U64, offset: 0 };
        Flow {
            key: key.to_string(),
            table_size,
            idle_timeout_ns: 0,
            grace_ns: 0,
            proven_packets: 0,
            clock: ClockName::Fine,
            entry4_size: 64,
            entry6_size: 96,
            layout_digest: format!("{key} {state:?}"),
            state: state.iter().map(field).collect(),
        }
    }

    #[test]
    fn each_difference_of_flow_tables_is_named() {
        let old = flow("five-tuple", 1024, &["sum", "max"]);
        assert_eq!(differences(&old, &old.clone()), [""; 0]);
        let new = flow("host-pair", 2048, &["sum", "min"]);
        let found = differences(&old, &new).join("; ");
        for expected in
            ["key is host-pair, not five-tuple", "2048 entries a CPU, not 1024", "with min, without max"]
        {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn a_policy_follows_the_names_of_classes() {
        let names = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let mut policy: abi::Policy = bytemuck::Zeroable::zeroed();
        policy.mode = 1;
        policy.class_policy[1].action = Action::Drop.code();
        policy.class_policy[2].action = Action::Count.code();
        let new = renumber(&policy, &names("benign flood scan"), &names("scan benign worm flood"));
        assert_eq!(new.mode, 1);
        assert_eq!([0, 1, 2, 3, 4].map(|class| new.class_policy[class].action), [2, 0, 0, 1, 0]);
    }
}
