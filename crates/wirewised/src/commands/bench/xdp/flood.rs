// SPDX-License-Identifier: Apache-2.0
//! Requests a second that a server answers while its CPU is flooded.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Bench;
use super::rule::{self, Rule};
use crate::abi::{self, Mode};
use crate::commands::bench::planes::Rate;
use crate::error::{Error, Result};
use crate::plane::Plane;
use crate::text::table;
use crate::wire::receiver::{self, Receiver};
use crate::wire::sender::Traffic;
use crate::wire::steady::Measuring;
use crate::wire::transactions::{Answered, Pair};
use crate::wire::{ADDRESS, Cpus};

const WARM_UP: Duration = Duration::from_millis(700);

#[derive(Debug, Serialize)]
pub struct Row {
    flood: &'static str,
    guard: &'static str,
    /// Packets a second of the flood that were asked for; null: as many as go. 0: none.
    rate: Option<u32>,
    offered_per_second: f64,
    #[serde(flatten)]
    answered: Answered,
    /// Of what is answered without a flood and without a guard.
    share: f64,
}

/// What stands between the flood and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Guard {
    /// Nothing
    None,
    /// A rule of nftables
    Rule,
    /// The bundle, which drops the flood
    Model,
    /// The bundle, which challenges who opens a connection
    Challenge,
    /// The bundle, and the stack's work of ordinary traffic on the sender's CPU
    Moved,
}

impl Guard {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Rule => "nftables rule",
            Self::Model => "model",
            Self::Challenge => "challenge",
            Self::Moved => "model, other CPU",
        }
    }

    fn is_there(self, flood: Traffic) -> bool {
        match self {
            Self::Rule => rule::can(),
            Self::Challenge => {
                flood == Traffic::Syn && Plane::XDP_NATIVE.abilities().steers & abi::STEER_CHALLENGE != 0
            }
            _ => true,
        }
    }

    /// What the policy asks for each class; `None`: no program is attached.
    fn policy(self, classes: &[String], cpus: Cpus) -> Option<Map<String, Value>> {
        let (ordinary, flood) = match self {
            Self::None | Self::Rule => return None,
            Self::Model => (json!("pass"), json!("drop")),
            Self::Challenge => (json!("pass"), json!({"action": "challenge"})),
            Self::Moved => (json!({"redirect": {"cpu": cpus.sender}}), json!("drop")),
        };
        let of = |number: usize| if number == 0 { ordinary.clone() } else { flood.clone() };
        Some(classes.iter().enumerate().map(|(number, class)| (class.clone(), of(number))).collect())
    }
}

pub fn measure(bench: &Bench<'_>) -> Result<Vec<Row>> {
    // What a challenge needs of the listener; without one it keeps half-open connections until its queue is full.
    let cookies = "/proc/sys/net/ipv4/tcp_syncookies";
    let pair = Pair::new(bench.wire, ADDRESS)?;
    let server = bench.wire.cpus.receiver;
    let mut rows = Vec::new();
    let undisturbed = {
        receiver::watched(bench.wire, None)?;
        eprintln!("flood: none");
        pair.measure(server, WARM_UP, bench.time)?
    };
    let most = undisturbed.transactions_per_second;
    if undisturbed.transactions == 0 {
        return Err(Error::other(format!(
            "the server answers nothing in {:?}, even without a flood; measure for longer (`--seconds`)",
            bench.time
        )));
    }
    for (flood, name) in [(Traffic::Udp, "UDP"), (Traffic::Syn, "SYN")] {
        let measuring = Measuring::on(bench.wire, flood)?;
        for guard in bench.guards.iter().copied().filter(|guard| guard.is_there(flood)) {
            std::fs::write(cookies, if guard == Guard::Challenge { "2" } else { "1" })
                .map_err(|error| Error::other(format!("{cookies}: {error}")))?;
            eprintln!("flood: {name}, {}", guard.name());
            let rule =
                (guard == Guard::Rule).then(|| Rule::add("prerouting priority raw", rule_against(flood)));
            let _rule = rule.transpose()?;
            let policy = guard.policy(bench.classes, bench.wire.cpus);
            let start = |policy: &Map<String, Value>| {
                let mode = Mode::Enforce;
                Receiver::start(bench.wire, Plane::XDP_NATIVE, bench.bundle, policy, mode, &[])
            };
            let _takes = (guard == Guard::Challenge).then(|| bench.wire.take_back(true)).transpose()?;
            let receiver = policy.as_ref().map(start).transpose()?;
            if receiver.is_none() {
                receiver::watched(bench.wire, None)?;
            }
            let alone = pair.measure(server, WARM_UP, bench.time)?;
            rows.push(row(name, guard, Some(0), 0.0, alone, most));
            for Rate(rate) in bench.rates {
                let (offered, answered) = measuring.during(*rate, || {
                    let (begin, before) = (std::time::Instant::now(), measuring.sent()?);
                    let answered = pair.measure(server, WARM_UP, bench.time)?;
                    let offered = (measuring.sent()? - before) as f64 / begin.elapsed().as_secs_f64();
                    Ok((offered, answered))
                })?;
                rows.push(row(name, guard, *rate, offered, answered, most));
            }
            receiver.map(Receiver::stop).transpose()?;
        }
    }
    Ok(rows)
}

fn rule_against(flood: Traffic) -> &'static str {
    match flood {
        Traffic::Udp => "udp dport 53 drop",
        Traffic::Syn => "ip saddr 10.88.0.0/16 drop",
    }
}

fn row(
    flood: &'static str,
    guard: Guard,
    rate: Option<u32>,
    offered: f64,
    answered: Answered,
    most: f64,
) -> Row {
    let share = answered.transactions_per_second / most;
    Row { flood, guard: guard.name(), rate, offered_per_second: offered, answered, share }
}

pub fn print(rows: &[Row]) {
    let heads = ["flood", "guard", "offered/s", "answered/s", "share", "median us", "99 % us", "failed"];
    let mut lines = vec![heads.map(str::to_string)];
    lines.extend(rows.iter().map(|row| {
        let us = |ns: Option<u64>| ns.map_or_else(|| "-".to_string(), |ns| format!("{:.0}", ns as f64 / 1e3));
        [
            row.flood.to_string(),
            row.guard.to_string(),
            format!("{:.0}", row.offered_per_second),
            format!("{:.0}", row.answered.transactions_per_second),
            format!("{:.0} %", row.share * 100.0),
            us(row.answered.median_ns),
            us(row.answered.p99_ns),
            row.answered.failed_connections.to_string(),
        ]
    }));
    table::print(&lines, 2);
}
