// SPDX-License-Identifier: Apache-2.0
//! The documents' examples: every `wirewised` command line is one, and the policy is accepted.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;

use clap::Parser;
use wirewised::abi::{STEERING, maps};
use wirewised::cli::Cli;
use wirewised::plane::Plane;
use wirewised::policy::{ClassAction, Policy, Trigger};

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

/// The command lines of code blocks, without comments, prompts and what is run before.
fn commands(text: &str) -> Vec<String> {
    let code = text.lines().filter(|line| line.starts_with("    ") || line.starts_with("$ "));
    let commands = code.filter_map(|line| {
        let line = line.split(" # ").next()?.trim().trim_start_matches("$ ");
        let line = line.trim_start_matches("sudo ").trim_start_matches("-u watch ");
        line.starts_with("wirewised ").then(|| line.split(['|', '>', ';']).next().unwrap().to_owned())
    });
    commands.collect()
}

#[test]
fn every_command_line_in_the_documents_is_one() {
    let mut seen = 0;
    for name in [
        "docs/agent.md",
        "docs/bundles.md",
        "docs/install.md",
        "docs/replay.md",
        "docs/targets/ebpf.md",
        "README.md",
    ] {
        for command in commands(&document(name)) {
            if let Err(error) = Cli::try_parse_from(command.split_whitespace()) {
                panic!("{name}: {command}: {error}");
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} command lines were found");
}

/// A file with capabilities gives them to everybody who may run it.
#[test]
fn capabilities_are_given_to_a_group_alone() {
    let mut seen = 0;
    for text in [document("docs/agent.md"), document("docs/install.md"), wirewised::kernel::SHARE.to_owned()]
    {
        for (at, _) in text.match_indices("setcap ") {
            let before = &text[text[..at].rfind("\n\n").unwrap_or(0)..at];
            let (group, mode) = (before.rfind("chgrp wirewise"), before.rfind("chmod 0750"));
            assert!(group.is_some() && group < mode, "{before}");
            seen += 1;
        }
    }
    assert_eq!(seen, 2);
}

#[test]
fn the_policy_of_the_manual_is_accepted() {
    let text = document("docs/policy.md");
    let example = text.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let classes = ["benign", "syn-flood", "port-scan", "slow-http"].map(String::from);
    let policy = Policy::parse(example, &classes).unwrap();
    assert_eq!(policy.actions[1].action, ClassAction::Drop);
    assert_eq!(policy.trigger, Trigger::Every);
    assert_eq!((policy.prefixes.len(), policy.ports.len()), (2, 3));
}

#[test]
fn the_documents_have_the_table_of_maps() {
    let table = maps::document();
    assert!(document("docs/architecture.md").contains(&table), "docs/architecture.md is to hold:\n{table}");
}

/// The table of the manual is that of the agent.
#[test]
fn the_manual_says_what_each_plane_can_do() {
    let text = document("docs/policy.md");
    // One without the plane that only some builds have.
    let planes: Vec<_> = Plane::all().iter().filter(|plane| plane.name() != "dpdk").collect();
    let head = planes.iter().map(|plane| format!("`{plane}`")).collect::<Vec<_>>().join(" | ");
    assert!(text.contains(&format!("| | {head} | `dpdk` |")), "{head}");
    for (kind, name) in STEERING {
        let can = |plane: &Plane| plane.abilities().steers & kind != 0;
        let cells: Vec<_> = planes.iter().map(|plane| if can(plane) { "yes " } else { "" }).collect();
        let row = format!("| `{name}` | {}|", cells.join("| "));
        assert!(text.contains(&row), "{row}");
        if let Some(dpdk) = Plane::all().iter().find(|plane| plane.name() == "dpdk") {
            let row = format!("{row} {}|", if can(dpdk) { "yes " } else { "" });
            assert!(text.contains(&row), "{row}");
        }
    }
}

#[test]
fn the_steering_policy_of_the_manual_is_accepted() {
    let text = document("docs/policy.md");
    let example = text.split("```yaml\n").nth(2).unwrap().split("```").next().unwrap();
    let classes = ["benign", "syn-flood", "port-scan", "slow-http"].map(String::from);
    let policy = Policy::parse(example, &classes).unwrap();
    let said = policy.actions.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(said, ["pass", "dscp CS1, redirect to eth2 after 3", "bounce", "dscp AF41"]);
}
