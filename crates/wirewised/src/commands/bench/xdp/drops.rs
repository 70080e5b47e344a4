// SPDX-License-Identifier: Apache-2.0
//! Packets a second that are dropped: by a model on each plane, and by the stack's own means.

use serde_json::json;

use super::rule::{self, Rule};
use super::{Bench, Throughput};
use crate::error::Result;
use crate::interface::offloads::Direction;
use crate::plane::Plane;
use crate::wire::receiver::{Receiver, all, strictest_mode};
use crate::wire::sender::Traffic;
use crate::wire::steady::{Measuring, Steady};

/// What the stack can do instead: nothing (nobody listens), a rule before all else, and one behind connection tracking.
const RULES: [(&str, &str, &str); 2] = [
    ("stack: nftables, prerouting", "prerouting priority raw", "udp dport 53 drop"),
    ("stack: conntrack, input", "input priority filter", "ct state new udp dport 53 drop"),
];

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
        if plane.name() == "dpdk" {
            continue;
        }
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
    Ok(rows)
}
