// SPDX-License-Identifier: Apache-2.0
//! `wirewised swap`.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::attachment::Attachment;
use crate::bundle::Bundle;
use crate::doctor;
use crate::error::Result;
use crate::input;
use crate::pins::RootArgs;
use crate::policy::Policy;
use crate::status;
use crate::succession;
use crate::swap::{self, Plan, PolicyPlan, Request};

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
No packet meets the interface without a program, and with equal flow tables every flow goes on where it was.";

/// Replace the model under load: flows, policy and counters go on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Bundle made by `wirewise compile`, which takes over
    #[arg(long, value_name = "FILE")]
    bundle: PathBuf,

    /// Which interface; not needed if only one is attached
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,

    /// Policy file for the new bundle [default: the policy in force stays]; the mode stays as it is
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,

    /// Begin with empty flow tables if the new bundle cannot use those that are there
    #[arg(long)]
    reset_flows: bool,

    /// Only load it beside what runs, and say what would be done
    #[arg(long)]
    dry_run: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    root: RootArgs,
}

pub fn run(args: &Args) -> Result<()> {
    let root = args.root.root();
    let bundle = Bundle::read(&args.bundle)?;
    let policy = args
        .policy
        .as_ref()
        .map(|path| Policy::load(path, &bundle.manifest.classes).map(|policy| (path.clone(), policy)));
    let policy = policy.transpose()?;
    // Taking the lock makes the directory, which a command that finds nothing attached must not.
    Attachment::find(&root, args.interface.as_deref())?;
    doctor::require(&doctor::check_machine(&root))?;
    let lock = root.lock()?;
    if !args.dry_run {
        succession::tidy_all(&root)?;
    }
    let ours = Attachment::find(&root, args.interface.as_deref())?;
    let bundle_file = args.bundle.clone();
    let request = Request { ours, bundle, bundle_file, policy, reset_flows: args.reset_flows };
    if request.runs_already() {
        return keep(args, &request.ours);
    }
    let plan = swap::plan(&request)?;
    let loaded = swap::load(&request, &plan)?;
    let told = tell(&request, &plan, if args.dry_run { "would swap" } else { "swapped" });
    if !plan.keeps_flows() && !args.json {
        eprintln!("warning: flows: the flow tables begin empty: {}", plan.differences.join("; "));
    }
    if args.dry_run {
        if args.json {
            return input::print_json(&told);
        }
        print(&told);
        println!("nothing was changed");
        return Ok(());
    }
    let attachment = swap::execute(&request, &plan, &loaded)?;
    drop(lock);
    let status = status::of(&attachment)?;
    if args.json {
        let mut told = told;
        told["status"] = serde_json::to_value(status).unwrap_or_default();
        return input::print_json(&told);
    }
    print(&told);
    println!("`wirewised rollback --interface {}` goes back", attachment.interface);
    Ok(())
}

/// Somebody asks for what is there.
fn keep(args: &Args, ours: &Attachment) -> Result<()> {
    let status = status::of(ours)?;
    if args.json {
        return input::print_json(&json!({ "action": "kept", "dry_run": args.dry_run, "status": status }));
    }
    println!("{}: this bundle runs already; nothing was changed", ours.interface);
    Ok(())
}

/// What is done, or would be.
fn tell(request: &Request, plan: &Plan, action: &str) -> Value {
    let policy = match plan.policy {
        PolicyPlan::Kept => "kept",
        PolicyPlan::Renumbered => "kept, for the classes by their names",
        PolicyPlan::New => "new",
    };
    let (old, new) = (plan.old_bundle(), request.new_bundle());
    json!({
        "action": action, "dry_run": action != "swapped", "interface": request.ours.interface,
        "from": old, "to": new,
        "flows": if plan.keeps_flows() { "kept" } else { "empty" }, "differences": plan.differences,
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
