// SPDX-License-Identifier: Apache-2.0
//! `wirewised planes`.

use serde_json::{Value, json};

use crate::abi::{Action, DESCRIBING, STEERING};
use crate::error::Result;
use crate::interface::offloads::Direction;
use crate::plane::{Drops, Plane};
use crate::text::output;
use crate::text::table;

const EXAMPLES: &str = "\
Examples:
  wirewised planes                                   what each can do, and when to choose it
  wirewised doctor --interface eth0 --plane NAME     whether an interface can have one, and what is missing";

/// List the planes: where a program can meet packets, and what each can do.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<()> {
    if args.json {
        return output::print_json(&json!({ "planes": Plane::all().iter().map(of).collect::<Vec<_>>() }));
    }
    let mut rows =
        vec![["plane", "runs in", "packets", "drops", "others there", "needs"].map(str::to_string)];
    for plane in Plane::all() {
        let told = of(plane);
        let word = |key: &str| told[key].as_str().unwrap_or_default().to_string();
        rows.push(["name", "runs_in", "packets", "drops", "others", "needs"].map(word));
    }
    table::print(&rows, 6);
    println!();
    let mut rows = vec![["a policy may ask for", "on"].map(str::to_string)];
    rows.push([plain_actions().collect::<Vec<_>>().join(" "), EVERY.to_string()]);
    rows.extend(
        STEERING.into_iter().chain(DESCRIBING).map(|(kind, name)| [name.to_string(), planes_that(kind)]),
    );
    table::print(&rows, 2);
    println!();
    for plane in Plane::all() {
        println!("{}: choose it where {}", plane.name(), plane.abilities().choose);
    }
    println!(
        "A plane in user space runs for as long as its `run` does; in the kernel a program stays when the agent ends."
    );
    Ok(())
}

const EVERY: &str = "every plane";

/// kind : an `abi::STEER_*` bit.
fn planes_that(kind: u32) -> String {
    let can: Vec<_> = Plane::all().iter().filter(|plane| plane.abilities().steers & kind != 0).collect();
    if can.len() == Plane::all().len() {
        return EVERY.to_string();
    }
    can.iter().map(|plane| plane.name()).collect::<Vec<_>>().join(" ")
}

/// What a policy may ask for: the names of actions, and of what classes are steered by.
fn actions(plane: &Plane) -> Vec<&'static str> {
    let steers = plane.abilities().steers;
    let kinds = STEERING.into_iter().filter(|(kind, _)| steers & kind != 0);
    plain_actions().chain(kinds.map(|(_, name)| name)).collect()
}

fn plain_actions() -> impl Iterator<Item = &'static str> {
    Action::ALL.iter().filter(|action| **action != Action::Act).map(|action| action.name())
}

fn of(plane: &Plane) -> Value {
    let it = plane.abilities();
    json!({
        "name": it.name,
        "about": it.about,
        "choose": it.choose,
        "runs_in": if plane.is_in_user_space() { "user space" } else { "the kernel" },
        "packets": match it.direction {
            Direction::Received => "incoming",
            Direction::Sent => "outgoing",
        },
        "drops": match it.drops {
            Drops::Always => "yes",
            Drops::Forwarding => "with --to",
        },
        "actions": actions(plane),
        "others": if it.shared { "stay" } else { "none" },
        "sees_merged": it.sees_merged,
        "needs": it.needs,
    })
}
