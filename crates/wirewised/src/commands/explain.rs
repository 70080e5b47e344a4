// SPDX-License-Identifier: Apache-2.0
//! `wirewised explain`: why one packet of a capture got its verdict.

use std::path::PathBuf;

use serde::Serialize;
use wirewise_capture::{Packet, Reader};

use super::trace::RunArgs;
use crate::abi::{Action, Mode, Outcome, Status, XDP_PASS};
use crate::bundle::Bundle;
use crate::error::{Error, Result};
use crate::headers::{self, Header};
use crate::input;
use crate::model::Model;
use crate::plane::PlaneName;
use crate::policy::Policy;
use crate::runner::{Observation, Runner};
use crate::trace_output::class_name;
use crate::tree::Path;

/// Show why a packet of a capture gets its verdict
///
/// Headers, features with units, the way through the trees (of a network the scores), class, policy rule and action. Runs the capture up to that
/// packet through the bundle's program, in this kernel or, without privilege, in the engine.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: wirewised explain attack.pcap --packet 17 --bundle forest.wirewise --policy policy.yaml")]
pub struct Args {
    /// pcap or pcapng file, also packed with gzip or zstd; - reads standard input
    capture: PathBuf,

    /// Number of the packet; 1 is the first of the capture
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    packet: u64,

    #[command(flatten)]
    run: RunArgs,

    /// How many trees to show the way through; JSON has them all
    #[arg(long, value_name = "N", default_value_t = 3)]
    trees: usize,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Explanation<'a> {
    packet: u64,
    plane: PlaneName,
    time_ns: u64,
    headers: Vec<Header>,
    status: Status,
    /// Of the flow, with this packet; 0 if it came to no flow.
    packets_of_flow: u32,
    /// No flow entry was free: judged as the first packet of its flow.
    refused: bool,
    /// False: the trigger did not fire, and the verdict is that of an earlier packet.
    inferred: bool,
    features: Vec<FeatureValue<'a>>,
    paths: Vec<Path>,
    scores: &'a [i64],
    class: Option<&'a str>,
    rule: Option<String>,
    action: Option<Action>,
    outcome: Option<Outcome>,
    mode: Mode,
    passed: bool,
}

#[derive(Debug, Serialize)]
struct FeatureValue<'a> {
    name: &'a str,
    /// What the model compares; `value` in `unit` is this over 2^fraction_bits.
    raw: i64,
    value: f64,
    unit: &'a str,
}

pub fn run(args: &Args) -> Result<()> {
    let bundle = Bundle::read(&args.run.bundle)?;
    let options = args.run.options(&bundle)?;
    let policy = options.policy.clone();
    let model = Model::parse(&bundle.model)
        .map_err(|rule| Error::input(format!("{}: model.json: {rule}", args.run.name())))?;
    let mut capture = Reader::open(&args.capture)?;
    let plane = PlaneName::choose(args.run.plane);
    let mut runner = Runner::new(&args.run.name(), &bundle, plane, options)?;
    let mut seen = 0;
    while let Some(packet) = capture.next_packet()? {
        let observation = runner.run(&packet)?;
        if packet.number == args.packet {
            let mode = args.run.mode.into();
            let explanation = explain(&packet, &observation, &bundle, &model, &policy, (plane, mode))?;
            if args.json {
                return input::print_json(&explanation);
            }
            print(&explanation, args.trees, &bundle);
            return Ok(());
        }
        seen = packet.number;
    }
    let name = args.capture.display();
    Err(Error::input(format!(
        "{name}: has no packet {}, only {seen}: choose one of 1 to {seen}",
        args.packet
    )))
}

fn explain<'a>(
    packet: &Packet<'_>,
    observation: &'a Observation,
    bundle: &'a Bundle,
    model: &Model,
    policy: &Policy,
    (plane, mode): (PlaneName, Mode),
) -> Result<Explanation<'a>> {
    let features = observation.features();
    let paths = if observation.inferred {
        model.paths(features).map_err(|rule| Error::input(format!("model.json: {rule}")))?
    } else {
        Vec::new()
    };
    let verdict = observation.verdict;
    let class = verdict.map(|verdict| class_name(bundle, verdict.class_id));
    let rule = verdict.and_then(|verdict| policy.actions.get(verdict.class_id as usize));
    Ok(Explanation {
        packet: packet.number,
        plane,
        time_ns: packet.time_ns,
        headers: headers::of(packet.frame),
        status: observation.status,
        packets_of_flow: observation.packets,
        refused: observation.refused,
        inferred: observation.inferred,
        features: feature_values(bundle, features),
        paths,
        scores: observation.scores(),
        class,
        rule: rule.zip(class).map(|(action, class)| format!("{class}: {action}")),
        action: verdict.map(|verdict| verdict.action),
        outcome: verdict.map(|verdict| verdict.outcome),
        mode,
        passed: observation.xdp_return == XDP_PASS,
    })
}

fn feature_values<'a>(bundle: &'a Bundle, features: &[i64]) -> Vec<FeatureValue<'a>> {
    let manifest = &bundle.manifest;
    let value = |(index, &raw): (usize, &i64)| {
        let (unit, bits) = manifest
            .features
            .get(index)
            .map_or(("", 0), |feature| (feature.unit.as_str(), feature.fraction_bits));
        let scale = (f64::from(bits)).exp2();
        FeatureValue { name: &manifest.feature_names[index], raw, value: raw as f64 / scale, unit }
    };
    features.iter().enumerate().map(value).collect()
}

fn meaning(status: Status) -> &'static str {
    match status {
        Status::Classified => "classified",
        Status::NotIp => "not IP: passes unclassified",
        Status::MalformedEthernet => "malformed: ends inside the Ethernet or VLAN header",
        Status::MalformedIp => "malformed IP header",
        Status::MalformedTransport => "malformed transport header",
        Status::MalformedTunnel => "a tunnel that holds something broken",
        Status::TooManyExtensions => "too many IPv6 extension headers",
        Status::AllowedPrefix => "passes: its source address is on the allow list",
        Status::AllowedPort => "passes: its destination or source port is on the allow list",
        Status::AllowedEssential => "passes: the host would lose its network without such packets",
        Status::NoPolicy => "passes: no policy was written",
        Status::Undecided => "passes: the trigger has not fired for its flow yet, so there is no verdict",
    }
}

fn print(explanation: &Explanation<'_>, trees: usize, bundle: &Bundle) {
    let e = explanation;
    println!("packet {} at {}.{:09} s", e.packet, e.time_ns / 1_000_000_000, e.time_ns % 1_000_000_000);
    println!("\nheaders");
    for header in &e.headers {
        println!("  {:<10} {}", header.name, header.text);
    }
    if e.packets_of_flow > 0 {
        let refused =
            if e.refused { "; no entry was free, so judged as the first packet of its flow" } else { "" };
        println!(
            "\nflow\n  packet {} of its flow (key: {}){refused}",
            e.packets_of_flow, bundle.manifest.flow.key
        );
    }
    if e.inferred {
        println!("\nfeatures");
        let width = e.features.iter().map(|feature| feature.name.len()).max().unwrap_or(0);
        for feature in &e.features {
            let fraction = if feature.value.fract() == 0.0 { 0 } else { 4 };
            // What the trees compare, where it is not the value itself.
            let raw = if feature.value == feature.raw as f64 {
                String::new()
            } else {
                format!("  (raw {})", feature.raw)
            };
            println!("  {:<width$}  {:.fraction$} {}{raw}", feature.name, feature.value, feature.unit);
        }
        println!("\nmodel  ({})", bundle.manifest.model.summary);
        for path in e.paths.iter().take(trees) {
            print_path(path, &e.features);
        }
        if e.paths.is_empty() {
            println!("  what its layers give is shown by `wirewise explain`");
        }
        if e.paths.len() > trees {
            println!("  ... {} more trees: --trees {} or --json", e.paths.len() - trees, e.paths.len());
        }
        println!("  scores {:?}", e.scores);
    } else if e.status == Status::Classified {
        println!("\nmodel\n  did not run: the trigger did not fire, the verdict of an earlier packet holds");
    }
    println!("\nverdict");
    match (e.class, e.action, e.outcome) {
        (Some(class), Some(action), Some(outcome)) => {
            println!("  class    {class}");
            println!("  rule     {}", e.rule.as_deref().unwrap_or("(none)"));
            println!("  action   {action}, mode {}", e.mode);
            println!("  outcome  {outcome}: the packet {}", if e.passed { "passes" } else { "is dropped" });
        }
        _ => {
            let dropped = if e.passed { "" } else { "; dropped, as the policy says of malformed packets" };
            println!("  {}{dropped}", meaning(e.status));
        }
    }
}

fn print_path(path: &Path, features: &[FeatureValue<'_>]) {
    let output = path.output.map(|output| format!(" of output {output}")).unwrap_or_default();
    println!("  tree {}{output}", path.tree);
    for step in &path.steps {
        let sign = if step.left { "<=" } else { ">" };
        println!("    {} = {} {sign} {}", features[step.feature].name, step.value, step.threshold);
    }
    println!("    leaf {:?}", path.leaf);
}
