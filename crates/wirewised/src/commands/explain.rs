// SPDX-License-Identifier: Apache-2.0
//! `wirewised explain`: why one packet of a capture got its verdict.

use std::path::PathBuf;

use serde::Serialize;
use wirewise_capture::{Packet, Reader};

use super::trace::RunArgs;
use crate::abi::{Mode, Outcome, Status};
use crate::bundle::Bundle;
use crate::bundle::model::Model;
use crate::bundle::tree::Path;
use crate::error::{Error, Result};
use crate::offline::runner::{Observation, Runner};
use crate::offline::runtime::RuntimeName;
use crate::offline::trace_output::class_name;
use crate::packets::headers::{self, Header};
use crate::policy::Policy;
use crate::reading::explanation::{Adds, FeatureValue, feature_values, speaks_for};
use crate::text::output;
use crate::text::units::thousands;

/// Show why a packet of a capture gets its verdict
///
/// Headers, features with units, the way through the trees (of a network the scores), class, policy rule and action. Runs the capture up to that
/// packet through the bundle's program, in this kernel or, without privilege, in the engine.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example: wirewised explain attack.pcap --packet 17 --bundle forest.wirewise --policy policy.yaml")]
pub struct Args {
    /// pcap or pcapng file, also compressed (gzip, zstd, xz, bzip2, lz4); - reads standard input
    capture: PathBuf,

    /// Number of the packet; 1 is the first of the capture
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    packet: u64,

    #[command(flatten)]
    run: RunArgs,

    /// How many trees to show; JSON has all of them
    #[arg(long, value_name = "N", default_value_t = 3)]
    trees: usize,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Explanation<'a> {
    packet: u64,
    plane: RuntimeName,
    time_ns: u64,
    headers: Vec<Header>,
    status: Status,
    /// Of the flow, with this packet; 0 if it came to no flow.
    packets_of_flow: u32,
    /// No flow entry was free: judged as the first packet of its flow.
    refused: bool,
    /// False: the trigger did not fire, and the verdict is that of an earlier packet.
    inferred: bool,
    features: Vec<FeatureValue>,
    paths: Vec<Path>,
    /// Why there are no paths of a model that is not made of trees.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_shown: Option<String>,
    scores: &'a [i64],
    class: Option<&'a str>,
    rule: Option<String>,
    /// As the policy calls it.
    action: Option<String>,
    outcome: Option<Outcome>,
    mode: Mode,
    passed: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let bundle = Bundle::read(&args.run.bundle)?;
    let options = args.run.options(&bundle)?;
    let policy = options.policy.clone();
    let model = Model::parse(&bundle.model)
        .map_err(|rule| Error::input(format!("{}: model.json: {rule}", args.run.name())))?;
    let mut capture = Reader::open(&args.capture)?;
    let plane = RuntimeName::choose(args.run.plane);
    let mut runner = Runner::new(&args.run.name(), &bundle, plane, options)?;
    let mut seen = 0;
    while let Some(packet) = capture.next_packet()? {
        let observation = runner.run(&packet)?;
        if packet.number == args.packet {
            let mode = args.run.mode.into();
            let explanation = explain(&packet, &observation, &bundle, &model, &policy, (plane, mode))?;
            if args.json {
                return output::print_json(&explanation);
            }
            print(&explanation, args.trees, &bundle, &model);
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
    (plane, mode): (RuntimeName, Mode),
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
        not_shown: model.not_shown(&bundle.manifest.model.family),
        scores: observation.scores(),
        class,
        rule: rule.zip(class).map(|(action, class)| format!("{class}: {action}")),
        action: rule.map(|rule| rule.action.keys()),
        outcome: verdict.map(|verdict| verdict.outcome),
        mode,
        passed: observation.fate.passed(),
    })
}

fn meaning(status: Status) -> &'static str {
    match status {
        Status::Classified => "classified",
        Status::NotIp => "not IP: passes unclassified",
        Status::MalformedEthernet => {
            "malformed: ends inside the Ethernet, VLAN or PPPoE header, or is longer than PPPoE says"
        }
        Status::MalformedIp => "malformed IP header",
        Status::MalformedTransport => "malformed transport header",
        Status::MalformedTunnel => "a tunnel with a malformed packet inside",
        Status::TooManyExtensions => "too many IPv6 extension headers",
        Status::AllowedPrefix => "passes: its source address is on the allow list",
        Status::AllowedPort => "passes: its destination or source port is on the allow list",
        Status::AllowedEssential => "passes: the host would lose its network without such packets",
        Status::DeniedPrefix => "its source address is on the deny list: dropped where that is enforced",
        Status::Banned => "its sender was banned by a packet before it: dropped where that is enforced",
        Status::DeniedPort => "its destination port is on the deny list: dropped where that is enforced",
        Status::NoPolicy => "passes: no policy was written",
        Status::Undecided => "passes: the trigger has not fired for its flow yet, so there is no verdict",
    }
}

fn print(explanation: &Explanation<'_>, trees: usize, bundle: &Bundle, model: &Model) {
    let e = explanation;
    println!("packet {} at {}.{:09} s", e.packet, e.time_ns / 1_000_000_000, e.time_ns % 1_000_000_000);
    println!();
    println!("headers");
    for header in &e.headers {
        println!("  {:<10} {}", header.name, header.text);
    }
    if e.packets_of_flow > 0 {
        let refused =
            if e.refused { "; no entry was free, so judged as the first packet of its flow" } else { "" };
        println!();
        println!("flow");
        println!("  packet {} of its flow (key: {}){refused}", e.packets_of_flow, bundle.manifest.flow.key);
    }
    if e.inferred {
        println!();
        println!("features (what the model compares, in brackets, where it is not the value itself)");
        let width = e.features.iter().map(|feature| feature.name.len()).max().unwrap_or(0);
        for feature in &e.features {
            let raw = if feature.value == feature.raw as f64 {
                String::new()
            } else {
                format!("  ({})", thousands(feature.raw))
            };
            let value = if feature.value.fract() == 0.0 {
                thousands(feature.value as i64)
            } else {
                format!("{:.4}", feature.value)
            };
            println!("  {:<width$}  {value} {}{raw}", feature.name, feature.unit);
        }
        println!();
        println!("model  ({})", bundle.manifest.model.summary);
        let adds = Adds::of(model, e.scores.len());
        for path in e.paths.iter().take(trees) {
            print_path(path, &e.features, &bundle.manifest.classes, adds);
        }
        if let Some(why) = &e.not_shown {
            println!("  {why}");
        }
        if e.paths.len() > trees {
            println!("  ... {} more trees: --trees {} or --json", e.paths.len() - trees, e.paths.len());
        }
        let scores: Vec<_> = e.scores.iter().map(|score| thousands(*score)).collect();
        println!("  scores {}", scores.join(", "));
    } else if e.status == Status::Classified {
        println!();
        println!("model");
        println!("  did not run: the trigger did not fire, so the verdict of an earlier packet holds");
    }
    println!();
    println!("verdict");
    match (e.class, &e.action, e.outcome) {
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

fn print_path(path: &Path, features: &[FeatureValue], classes: &[String], adds: Adds) {
    println!("  tree {}: {}", path.tree, speaks_for(path, classes, adds));
    for step in &path.steps {
        let sign = if step.left { "<=" } else { ">" };
        let (value, threshold) = (thousands(step.value), thousands(step.threshold));
        println!("    {} = {value} {sign} {threshold}", features[step.feature].name);
    }
}
