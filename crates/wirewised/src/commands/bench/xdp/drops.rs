// SPDX-License-Identifier: Apache-2.0
//! Packets a second that are dropped: by a model on each plane, and by the stack's own means.

use serde_json::json;

use super::rule::{self, Rule};
use super::{Bench, Throughput};
use crate::bundle::Bundle;
use crate::error::Result;
use crate::interface::offloads::Direction;
use crate::object::{self, Settings};
use crate::offline::test_run;
use crate::plane::Plane;
use crate::wire::receiver::{Receiver, all, strictest_mode};
use crate::wire::sender::{FRAME, Traffic};
use crate::wire::steady::{Measuring, Steady};

/// What the stack can do instead: nothing (nobody listens), a rule before all else, and one behind connection tracking.
const RULES: [(&str, &str, &str); 2] = [
    ("stack: nftables, prerouting", "prerouting priority raw", "udp dport 53 drop"),
    ("stack: conntrack, input", "input priority filter", "ct state new udp dport 53 drop"),
];

/// Packets of a CPU from memory.
const WARM_UP: u32 = 100_000;
const PACKETS: u32 = 3_000_000;
/// In a frame of UDP.
const SOURCE_PORT: usize = 34;

pub fn measure(bench: &Bench<'_>) -> Result<Vec<Throughput>> {
    let measuring = Measuring::on(bench.wire, Traffic::Udp)?;
    let mut rows = Vec::new();
    let row = |way: &str, steady: &Steady| Throughput {
        way: way.to_string(),
        cores: 1,
        offered_per_second: steady.a_second(steady.sent),
        per_second: steady.a_second(steady.received),
    };
    for plane in Plane::all().iter().filter(|plane| plane.abilities().direction == Direction::Received) {
        eprintln!("drop: {plane}");
        let drops = all(bench.classes, &json!("drop"));
        let receiver =
            Receiver::start(bench.wire, *plane, bench.bundle, &drops, strictest_mode(*plane), &[])?;
        rows.push(row(plane.name(), &measuring.at(Some(&receiver), None, bench.time)?));
        receiver.stop()?;
    }
    if rule::can() {
        for (name, hook, rule) in RULES {
            eprintln!("drop: {name}");
            let _rule = Rule::add(hook, rule)?;
            rows.push(row(name, &measuring.at(None, None, bench.time)?));
        }
    }
    rows.extend(from_memory(bench)?);
    Ok(rows)
}

/// The wire brings its packets to one CPU. What more of them would drop is measured without it: the same frame again and again, each CPU a
/// flow of its own.
fn from_memory(bench: &Bench<'_>) -> Result<Vec<Throughput>> {
    let cpus = bench.allowed_cpus;
    let bundle = Bundle::read(bench.bundle)?;
    let mut rows = Vec::new();
    for cores in 1..=cpus.len() {
        eprintln!("drop: from memory, {cores} cores");
        let settings = Settings::on_cpu(cpus[cores - 1], object::random_seed()?);
        let program =
            test_run::load_with("the bundle", &bundle.object, &settings, &test_run::policy(&[], true))?;
        let frames: Vec<_> =
            (0u8..).zip(&cpus[..cores]).map(|(number, cpu)| (*cpu, of_flow(number))).collect();
        test_run::run_on_cpus(&program, &frames, WARM_UP)?;
        let ns = test_run::run_on_cpus(&program, &frames, PACKETS)?;
        let a_second = ns.iter().map(|cpu| 1e9 / cpu.ns).sum();
        rows.push(Throughput {
            way: "xdp-native, from memory".to_string(),
            cores: cores as u32,
            offered_per_second: a_second,
            per_second: a_second,
        });
    }
    Ok(rows)
}

fn of_flow(number: u8) -> Vec<u8> {
    let mut frame = FRAME.to_vec();
    frame[SOURCE_PORT] = number;
    frame
}
