// SPDX-License-Identifier: Apache-2.0
//! `wirewised policy`.

use std::path::PathBuf;

use serde_json::json;

use crate::attachment::ban;
use crate::attachment::doctor::finding;
use crate::bundle::Bundle;
use crate::error::Result;
use crate::policy::Policy;
use crate::text::output;

const EXAMPLES: &str = "\
Examples:
  wirewised policy policy.yaml --bundle model.wirewise          is it right, and what does it do with each class?
  wirewised policy policy.yaml --class benign --class attack    without a bundle, for these classes
  wirewised policy policy.yaml --bundle model.wirewise --json   with all defaults written out, for programs
Nothing is looked up on this host: whether interfaces exist is checked by `run --dry-run`.";

/// Check a policy file and show what it says, defaults included.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("for").required(true))]
pub struct Args {
    /// Policy file
    #[arg(value_name = "FILE")]
    policy: PathBuf,

    /// The classes are those of this bundle
    #[arg(long, value_name = "BUNDLE", group = "for")]
    bundle: Option<PathBuf>,

    /// A class; give all, in the order of the model
    #[arg(long = "class", value_name = "NAME", group = "for")]
    classes: Vec<String>,

    /// Print the normal form as JSON: every default and list written out, times in nanoseconds
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let (classes, key) = match &args.bundle {
        Some(bundle) => {
            let manifest = Bundle::read(bundle)?.manifest;
            (manifest.classes, Some(manifest.flow.key))
        }
        None => (args.classes.clone(), None),
    };
    let policy = Policy::load(&args.policy, &classes)?;
    if let Some(key) = key {
        policy.check_key(&key)?;
    }
    if args.json {
        return output::print_json(&json!({ "policy": policy.normal() }));
    }
    finding::warn(&ban::spoofable(&policy));
    for (name, rule) in policy.classes.iter().zip(&policy.actions) {
        println!("{name}: {rule}");
    }
    if let Some(deny) = &policy.deny {
        println!("deny: {} prefixes, {} ports", deny.prefixes.len(), deny.ports.len());
    }
    if let Some(next) = &policy.next {
        println!("next: {}", next.display());
    }
    if let Some(evidence) = &policy.evidence {
        println!("evidence: {evidence}");
    }
    Ok(())
}
