// SPDX-License-Identifier: Apache-2.0
//! `wirewised swap`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::attachment::Attachment;
use crate::attachment::args::AttachmentArgs;
use crate::attachment::doctor;
use crate::attachment::doctor::finding;
use crate::attachment::lockout::{self, LockOutArgs};
use crate::attachment::outgoing;
use crate::attachment::pins::Lock;
use crate::attachment::steering;
use crate::attachment::swap::{self, FlowsPlan, PolicyPlan, SwapPlan, SwapRequest, shadow};
use crate::attachment::untried;
use crate::bundle::{Bundle, ready_model};
use crate::error::{Error, Result};
use crate::kernel;
use crate::policy::Policy;
use crate::reading::policy::will_enforce;
use crate::text::output;
use crate::text::shell::quoted;
use crate::text::units::format_bytes;
use crate::trust::keys::TrustArgs;
use crate::views;

const EXAMPLES: &str = "\
Examples:
  wirewised swap --bundle retrained.wirewise --dry-run
      load it beside what runs, and say what a swap would keep; nothing changes
  wirewised swap --bundle retrained.wirewise
  wirewised rollback
      back to what ran before
  wirewised swap --bundle more-classes.wirewise --policy policy.yaml
  wirewised swap --bundle other-features.wirewise --reset-flows
      its features need another flow state: begin with empty flow tables
  wirewised swap --interface eth0,eth1 --bundle retrained.wirewise
      on both, or on neither
  wirewised swap --shadow --bundle retrained.wirewise
      try it first: it sees every packet, changes no verdict, and `stats` says where the two disagree
  wirewised swap --promote
  wirewised swap --no-shadow
No packet meets the interface without a program, and with equal flow tables every flow goes on where it was.";

/// Replace the model under load: flows, policy and counters go on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Bundle made by `wirewise compile`, or a ready model (@flood), which takes over
    #[arg(long, visible_alias = "model", value_name = "FILE", required_unless_present_any = ["promote", "no_shadow"])]
    bundle: Option<PathBuf>,

    #[command(flatten)]
    which: AttachmentArgs,

    /// Policy file for the new bundle [default: the policy in force stays]; the mode stays as it is
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    #[command(flatten)]
    lock_out: LockOutArgs,

    /// Begin with empty flow tables if the new bundle cannot use the present ones
    #[arg(long)]
    reset_flows: bool,

    /// Run the bundle beside what runs instead: on the same packets, changing no verdict, and counting where the two disagree
    #[arg(long, conflicts_with_all = ["policy", "reset_flows"])]
    shadow: bool,

    /// With --shadow: the file of the bundle that runs, if it is no longer where it was
    #[arg(long, value_name = "FILE", requires = "shadow")]
    running: Option<PathBuf>,

    /// The shadow takes over, with the flows it knows if it cannot use those of the first
    #[arg(long, conflicts_with_all = ["bundle", "shadow", "reset_flows"])]
    promote: bool,

    /// End the shadow
    #[arg(long, conflicts_with_all = ["bundle", "shadow", "promote", "policy", "reset_flows"])]
    no_shadow: bool,

    /// Only load it beside what runs, and say what would be done
    #[arg(long)]
    dry_run: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    trust: TrustArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let each = args.which.each()?;
    if let [which] = &each[..] {
        let told = run_on(args, which, Stage::Final)?;
        return told.json.map_or(Ok(()), |told| output::print_json(&told));
    }
    if args.shadow || args.promote || args.no_shadow {
        return args.which.find().map(drop);
    }
    // What one of them refuses none of them gets.
    if !args.dry_run {
        each.iter().try_for_each(|which| run_on(args, which, Stage::Rehearsal).map(drop))?;
    }
    let mut all: Vec<Told> = Vec::new();
    for which in &each {
        match run_on(args, which, Stage::Final) {
            Ok(told) => all.push(told),
            Err(error) => return Err(roll_back(all, error)),
        }
    }
    let told: Vec<_> = all.into_iter().filter_map(|told| told.json).collect();
    if args.json { output::print_json(&json!({ "interfaces": told })) } else { Ok(()) }
}

/// Puts back what ran before on interfaces where the swap went through.
fn roll_back(all: Vec<Told>, error: Error) -> Error {
    let back = |attachment: Attachment| {
        let failed = swap::rollback(&attachment).err();
        failed.map(|failed| format!("{} could not be rolled back: {failed}", attachment.interface))
    };
    let failed: Vec<_> = all.into_iter().rev().filter_map(|told| told.swapped).filter_map(back).collect();
    if failed.is_empty() {
        error
    } else {
        Error::new(error.kind(), format!("{error}; {}", failed.join("; ")))
    }
}

/// Whether a swap is only tried, without a word, before all of several interfaces get it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Rehearsal,
    Final,
}

/// What was done, or would be.
#[derive(Debug, Default)]
struct Told {
    /// `None`: it was said as text.
    json: Option<Value>,
    /// What runs now, if it is not what ran before.
    swapped: Option<Attachment>,
}

impl Told {
    fn json(told: Value) -> Self {
        Self { json: Some(told), swapped: None }
    }
}

fn run_on(args: &Args, which: &AttachmentArgs, stage: Stage) -> Result<Told> {
    if args.no_shadow {
        return end_shadow(args, which);
    }
    let read = |file: &PathBuf| {
        let file = ready_model::bundle_file(file)?;
        args.trust.read(&file).map(|bundle| (bundle, file))
    };
    let given = args.bundle.as_ref().map(read).transpose()?;
    // Before the lock is taken, so that nobody waits for a person's answer.
    let admit = |file: &PathBuf| admitted(args, which, stage, file, given.as_ref());
    let policy = args.policy.as_ref().map(admit).transpose()?;
    let (lock, ours) = begin(args, which)?;
    match given {
        Some((bundle, file)) if args.shadow => start_shadow(args, &ours, &bundle, &file),
        Some((bundle, file)) => swap(args, stage, lock, ours, (bundle, file), policy, None),
        None => {
            let (shadow, meta) = shadow::of(&ours)?;
            let file = PathBuf::from(&meta.bundle.file);
            let bundle = args.trust.read(&file)?;
            if bundle.digest != meta.bundle.digest {
                return Err(Error::input(format!(
                    "{}: it is not the shadow's bundle {} any more; `swap --bundle FILE` takes it from another place",
                    file.display(),
                    meta.bundle.name
                )));
            }
            swap(args, stage, lock, ours, (bundle, file), policy, Some(shadow))
        }
    }
}

/// The new policy, once nobody risks to lock themselves out by it. given: the bundle, if it is not the shadow's.
fn admitted(
    args: &Args,
    which: &AttachmentArgs,
    stage: Stage,
    file: &Path,
    given: Option<&(Bundle, PathBuf)>,
) -> Result<(PathBuf, Policy)> {
    let ours = which.find()?;
    let classes = match given {
        Some((bundle, _)) => bundle.manifest.classes.clone(),
        None => shadow::of(&ours)?.1.classes,
    };
    let mut policy = Policy::load(file, &classes)?;
    if policy.goes_beyond_verdicts() {
        let plane = ours.link.as_ref().and_then(|(_, link)| link.plane().ok()?);
        let planes: Vec<_> = plane.into_iter().chain(ours.outgoing.map(|_| outgoing::PLANE)).collect();
        let findings = steering::admit(&mut policy, &ours.interface, &planes, &which.root()?)?;
        finding::require(&findings)?;
        if stage == Stage::Final {
            finding::warn(&findings);
        }
    }
    args.lock_out.admit(&mut policy, args.json)?;
    let mode = will_enforce(&ours.policy()?, kernel::boot_ns());
    if stage == Stage::Final && !args.lock_out.yes && lockout::threatens(mode, &policy.to_abi(0, mode)) {
        if args.dry_run {
            eprintln!("warning: lock-out: {}; {}", lockout::RISK, lockout::WAYS_OUT);
        } else {
            lockout::confirm(args.json, lockout::WAYS_OUT)?;
        }
    }
    Ok((file.to_path_buf(), policy))
}

/// What is attached, with the lock that keeps it so.
fn begin(args: &Args, which: &AttachmentArgs) -> Result<(Lock, Attachment)> {
    which.find_locked(args.dry_run, |root| finding::require(&doctor::check_machine(root)))
}

fn swap(
    args: &Args,
    stage: Stage,
    lock: Lock,
    ours: Attachment,
    (bundle, bundle_file): (Bundle, PathBuf),
    policy: Option<(PathBuf, Policy)>,
    shadow: Option<Attachment>,
) -> Result<Told> {
    let request =
        SwapRequest { ours, bundle, bundle_file, policy, mode: None, reset_flows: args.reset_flows, shadow };
    if request.runs_already() {
        return if stage == Stage::Final { keep(args, &request.ours) } else { Ok(Told::default()) };
    }
    let plan = swap::plan(&request)?;
    require_shared_flows_stay(&request, &plan)?;
    require_tried(&request, &plan, &args.lock_out)?;
    let loaded = swap::load(&request, &plan)?;
    if stage == Stage::Rehearsal {
        return Ok(Told::default());
    }
    let mut told = tell(&request, &plan, if args.dry_run { "would swap" } else { "swapped" });
    if plan.flows == FlowsPlan::Empty {
        eprintln!("warning: flows: the flow tables begin empty: {}", plan.differences.join("; "));
    }
    if args.dry_run {
        if args.json {
            return Ok(Told::json(told));
        }
        print(&told);
        println!("nothing was changed");
        return Ok(Told::default());
    }
    let attachment = swap::execute(&request, &plan, &loaded)?;
    drop(lock);
    let status = attachment.status()?;
    if args.json {
        told["status"] = serde_json::to_value(status).unwrap_or_default();
        return Ok(Told { json: Some(told), swapped: Some(attachment) });
    }
    print(&told);
    println!("`wirewised rollback --interface {}` goes back", quoted(&attachment.interface));
    Ok(Told { json: None, swapped: Some(attachment) })
}

/// Flow tables that several interfaces share cannot begin empty for one of them alone.
fn require_shared_flows_stay(request: &SwapRequest, plan: &SwapPlan) -> Result<()> {
    let (ours, others) = (&request.ours.interface, request.ours.shares_flows_with());
    if plan.flows == FlowsPlan::Kept || others.is_empty() {
        return Ok(());
    }
    Err(Error::input(format!(
        "{ours} shares its flow tables with {}, and the new bundle would not use them; `wirewised run --replace --share-flows` attaches all of \
         them anew",
        others.join(", ")
    )))
}

/// A ready model that takes over where a policy enforces has to have been tried here, at least as the shadow.
fn require_tried(request: &SwapRequest, plan: &SwapPlan, args: &LockOutArgs) -> Result<()> {
    let SwapRequest { ours, bundle, .. } = request;
    let mode = will_enforce(&ours.policy()?, kernel::boot_ns());
    let taken = match &request.policy {
        Some((_, policy)) => untried::taken(&policy.to_abi(0, mode), &bundle.manifest.classes),
        None => untried::taken(&ours.element()?, &ours.class_names()),
    };
    let same = plan.old_bundle().digest == bundle.digest;
    let tried = request.shadow.as_ref().or_else(|| same.then_some(ours));
    untried::require(bundle, mode, &taken, tried, args)
}

fn start_shadow(args: &Args, ours: &Attachment, bundle: &Bundle, file: &Path) -> Result<Told> {
    let pair = shadow::load(ours, bundle, file, args.running.as_deref())?;
    let (name, interface) = (&bundle.manifest.name, &ours.interface);
    let attachment = if args.dry_run { None } else { Some(shadow::start(ours, bundle, file, &pair)?) };
    let action = if args.dry_run { "would shadow" } else { "shadowing" };
    let status = attachment.as_ref().map(Attachment::status).transpose()?;
    if args.json {
        return Ok(Told::json(json!({
            "action": action, "dry_run": args.dry_run, "interface": interface, "shadow": name,
            "flow_table_bytes": pair.table_bytes, "status": status,
        })));
    }
    println!("{action} on {interface}: {name} sees every packet and changes no verdict");
    println!("  flow tables  its own, {}, empty at first", format_bytes(pair.table_bytes));
    if args.dry_run {
        println!("nothing was changed");
    } else {
        println!(
            "`wirewised stats` shows where they disagree; `swap --promote` makes it the first, `swap --no-shadow` ends it"
        );
    }
    Ok(Told::default())
}

fn end_shadow(args: &Args, which: &AttachmentArgs) -> Result<Told> {
    let (_lock, ours) = begin(args, which)?;
    let (_, meta) = shadow::of(&ours)?;
    let agreement = ours.agreement()?;
    let status = if args.dry_run { None } else { Some(shadow::end(&ours)?.status()?) };
    let action = if args.dry_run { "would end the shadow" } else { "ended the shadow" };
    if args.json {
        return Ok(Told::json(json!({
            "action": action, "dry_run": args.dry_run, "interface": ours.interface, "shadow": meta.bundle.name,
            "agreement": agreement, "status": status,
        })));
    }
    println!("{action} on {}", ours.interface);
    if let Some(agreement) = agreement {
        views::agreement::print(&agreement);
    }
    Ok(Told::default())
}

/// Somebody asks for what is there.
fn keep(args: &Args, ours: &Attachment) -> Result<Told> {
    let status = ours.status()?;
    if args.json {
        return Ok(Told::json(json!({ "action": "kept", "dry_run": args.dry_run, "status": status })));
    }
    println!("{}: this bundle runs already; nothing was changed", ours.interface);
    Ok(Told::default())
}

/// What is done, or would be.
fn tell(request: &SwapRequest, plan: &SwapPlan, action: &str) -> Value {
    let policy = match plan.policy {
        PolicyPlan::Kept => "kept",
        PolicyPlan::Renumbered => "kept, for the classes by their names",
        PolicyPlan::New => "new",
    };
    let flows = match plan.flows {
        FlowsPlan::Kept => "kept",
        FlowsPlan::OfShadow => "those of the shadow",
        FlowsPlan::Empty => "empty",
    };
    let (old, new) = (plan.old_bundle(), request.new_bundle());
    json!({
        "action": action, "dry_run": action != "swapped", "interface": request.ours.interface,
        "from": old, "to": new,
        "flows": flows, "differences": plan.differences,
        "counters": if plan.same_classes { "kept" } else { "from zero" },
        "policy": policy, "new_classes": plan.new_classes,
    })
}

fn print(told: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let row = |name: &str, value: &str| println!("  {name:<12} {value}");
    let bundle = |which: &str| {
        let digest = text(&told[which]["digest"]);
        format!("{} ({}), sha256 {}", text(&told[which]["name"]), text(&told[which]["model"]), &digest[..16])
    };
    println!("{} on {}:", text(&told["action"]), text(&told["interface"]));
    row("from", &bundle("from"));
    row("to", &bundle("to"));
    for name in ["flows", "counters", "policy"] {
        row(name, &text(&told[name]));
    }
    let new: Vec<_> = told["new_classes"].as_array().into_iter().flatten().map(text).collect();
    if !new.is_empty() {
        row("new classes", &new.join(", "));
    }
}
