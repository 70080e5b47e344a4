// SPDX-License-Identifier: Apache-2.0
//! Packets a second that are forwarded: back out of the same interface, or across to another.

use std::time::Instant;

use serde_json::{Value, json};

use super::{Bench, Throughput, plane};
use crate::abi::Mode;
use crate::error::Result;
use crate::wire::exit::{Exit, NEAR};
use crate::wire::receiver::{self, Receiver, all};
use crate::wire::sender::Traffic;
use crate::wire::steady::Measuring;
use crate::wire::{ADDRESS, Wire};

/// Queues are full after this.
const WARM_UP: std::time::Duration = std::time::Duration::from_millis(300);

struct Way {
    name: &'static str,
    plane: &'static str,
    action: Value,
    options: &'static [&'static str],
    /// Back to the sender, or out at the exit.
    returns: bool,
}

pub fn measure(bench: &Bench<'_>) -> Result<Vec<Throughput>> {
    let measuring = Measuring::on(bench.wire, Traffic::Udp)?;
    let exit = Exit::lay()?;
    let _takes = bench.wire.take_back(false)?;
    let across = json!({"redirect": {"interface": NEAR}});
    let way = |name, plane, action: Value, options, returns| Way { name, plane, action, options, returns };
    let ways = [
        way("xdp-native: bounce, same interface", "xdp-native", json!({"action": "bounce"}), &[][..], true),
        way("xdp-native: redirect", "xdp-native", across, &[], false),
        way("af-xdp: to", "af-xdp", json!("pass"), &["--to", NEAR], false),
        way("af-packet: to", "af-packet", json!("pass"), &["--to", NEAR], false),
        way("dpdk: to", "dpdk", json!("pass"), &["--to", NEAR], false),
    ];
    let mut rows = Vec::new();
    for way in ways {
        rows.extend(way.measure(bench, &measuring, &exit)?);
    }
    leave_to_the_stack(bench.wire, &exit)?;
    let routes = way("xdp-native: forward", "xdp-native", json!({"action": "forward"}), &[], false);
    rows.extend(routes.measure(bench, &measuring, &exit)?);
    eprintln!("forward: the stack");
    receiver::watched(bench.wire, None)?;
    rows.push(throughput("stack: routing", bench, &measuring, || exit.arrived())?);
    Ok(rows)
}

impl Way {
    fn measure(
        self,
        bench: &Bench<'_>,
        measuring: &Measuring<'_>,
        exit: &Exit,
    ) -> Result<Option<Throughput>> {
        let Some(plane) = plane(self.plane) else { return Ok(None) };
        eprintln!("forward: {}", self.name);
        let policy = all(bench.classes, &self.action);
        // What passes is sent on in either mode, and merged packets are not dropped.
        let mode = if plane.abilities().sees_merged { Mode::Observe } else { Mode::Enforce };
        let receiver = Receiver::start(bench.wire, plane, bench.bundle, &policy, mode, self.options)?;
        let count = || if self.returns { bench.wire.returned() } else { exit.arrived() };
        let row = throughput(self.name, bench, measuring, count)?;
        receiver.stop()?;
        Ok(Some(row))
    }
}

/// The address that frames go to is no more this namespace's, but beyond the exit.
fn leave_to_the_stack(wire: &Wire, exit: &Exit) -> Result<()> {
    wire.move_away()?;
    exit.route(ADDRESS)
}

fn throughput(
    name: &str,
    bench: &Bench<'_>,
    measuring: &Measuring<'_>,
    count: impl Fn() -> Result<u64>,
) -> Result<Throughput> {
    measuring.during(None, || {
        std::thread::sleep(WARM_UP);
        let (begin, sent, arrived) = (Instant::now(), measuring.sent()?, count()?);
        std::thread::sleep(bench.time);
        let seconds = begin.elapsed().as_secs_f64();
        Ok(Throughput {
            way: name.to_string(),
            cores: 1,
            offered_per_second: (measuring.sent()? - sent) as f64 / seconds,
            per_second: (count()? - arrived) as f64 / seconds,
        })
    })
}
