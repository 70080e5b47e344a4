// SPDX-License-Identifier: Apache-2.0
//! How an interface's packets reach the CPUs, and what that means for flow tables of which each CPU has its own
//! (docs/cpus.md).

use std::fs;
use std::path::Path;

use crate::attachment::doctor::finding::Finding;
use crate::bundle::manifest::{Flow, Sharing, ends_of_key};
use crate::interface::netdev::{self, Device, HashFields};
use crate::text::shell::quoted;

const CHECK: &str = "flow tables";
/// Their packets are received by the CPU that sends them.
const RECEIVED_WHERE_SENT: [&str; 6] = ["veth", "tun", "netkit", "bridge", "dummy", "loopback"];
/// A key for which a Toeplitz hash is the same both ways: it repeats after 16 bits (Woo and Park, 2012). As long as most cards want.
const SYMMETRIC_KEY: &str = "$(echo 6d:5a{,,,,,,,,,,,,,,,,,,,} | tr ' ' ':')";

/// What is known of an interface.
#[derive(Debug, Clone, Default)]
pub struct Spread {
    pub cpus: u32,
    pub driver: Option<String>,
    pub queues: Option<u32>,
    /// Receive packet steering is on: the kernel hashes packets over CPUs once more.
    pub steering: bool,
    /// What the card hashes of TCP over IPv4.
    pub fields: Option<HashFields>,
    /// Whether the card's hash is the same for both directions.
    pub symmetric: Option<bool>,
}

impl Spread {
    pub fn of(interface: &str, device: &Device) -> Self {
        Self {
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            driver: device.driver().or_else(|| (interface == "lo").then(|| "loopback".to_string())),
            queues: device.receive_queues(),
            steering: steers(interface),
            fields: device.hash_fields(),
            symmetric: device.hashes_symmetrically(),
        }
    }

    /// One sentence.
    fn describe(&self) -> String {
        if self.cpus == 1 {
            return "there is one CPU".to_string();
        }
        if self.where_sent() {
            return format!("{} CPUs; a packet is received by the CPU that sends it", self.cpus);
        }
        let steering = if self.steering { ", then steered (RPS)" } else { "" };
        match self.queues {
            Some(1) => format!("{} CPUs; one queue, served by one of them{steering}", self.cpus),
            Some(queues) => {
                let hash = match self.symmetric {
                    Some(true) => "a symmetric hash",
                    Some(false) => "a hash that differs by direction",
                    None => "a hash this driver does not tell of",
                };
                format!("{} CPUs; {hash} chooses one of {queues} queues{steering}", self.cpus)
            }
            None => format!("{} CPUs; the driver does not tell its queues{steering}", self.cpus),
        }
    }

    fn where_sent(&self) -> bool {
        self.driver.as_deref().is_some_and(|driver| RECEIVED_WHERE_SENT.contains(&driver))
    }

    /// All packets come through one CPU at a time.
    fn one_way(&self) -> bool {
        self.cpus == 1 || (self.queues == Some(1) && !self.steering && !self.where_sent())
    }

    /// Why flows of this key can meet several CPUs; `None`: they cannot.
    fn parts(&self, key: &str) -> Option<&'static str> {
        if self.one_way() {
            return None;
        }
        if self.where_sent() {
            return Some("a flow whose packets are sent from two CPUs is two flows");
        }
        let fields = self.fields.unwrap_or(HashFields::UNKNOWN);
        match ends_of_key(key) {
            "five-tuple" => None,
            "five-tuple-bidirectional" => {
                let whole = self.symmetric == Some(true) && !self.steering;
                (!whole).then_some("the directions of a connection can meet two CPUs, and are two flows then")
            }
            "source-destination" => (fields != HashFields::ADDRESSES || self.steering)
                .then_some("connections between two hosts meet several CPUs, and each counts its own"),
            "source" => (fields != HashFields::SOURCE || self.steering)
                .then_some("a source's connections meet several CPUs, and each counts its own"),
            _ => (fields != HashFields::DESTINATION || self.steering)
                .then_some("a destination's connections meet several CPUs, and each counts its own"),
        }
    }
}

/// What the spread of packets means for the flow tables of a bundle; without one, for those of any.
pub fn check(interface: &str, spread: &Spread, flow: Option<&Flow>) -> Finding {
    let how = spread.describe();
    let Some(flow) = flow else {
        return Finding::ok(CHECK, format!("{how}; tables of each CPU's own suit {}", suited(spread)));
    };
    if flow.sharing == Sharing::Shared {
        return Finding::ok(CHECK, format!("shared by all CPUs ({how})"));
    }
    match spread.parts(&flow.key) {
        None => Finding::ok(CHECK, format!("one a CPU, which suits the key {} here ({how})", flow.key)),
        Some(parts) => Finding::warning(
            CHECK,
            format!("one a CPU, with the key {}: {parts} ({how})", flow.key),
            format!(
                "compile the model with `flow_table: {{sharing: shared}}` in its feature set{}; docs/cpus.md",
                card(interface, spread, &flow.key)
            ),
        ),
    }
}

/// The keys whose flows keep to one CPU.
fn suited(spread: &Spread) -> String {
    let keys = ["five-tuple", "five-tuple-bidirectional", "source", "destination", "source-destination"];
    let suited: Vec<_> = keys.into_iter().filter(|key| spread.parts(key).is_none()).collect();
    match suited.len() {
        0 => "no key".to_string(),
        5 => "every key".to_string(),
        _ => format!("the key {} only", suited.join(", ")),
    }
}

/// The line that makes the card's hash fit a key.
fn card(interface: &str, spread: &Spread, key: &str) -> String {
    if spread.where_sent() {
        return String::new();
    }
    let fields = match key {
        "source" => "s",
        "destination" => "d",
        "source-destination" => "sd",
        _ => {
            return format!(
                ", or, if the card can, `ethtool -X {} hfunc toeplitz hkey {SYMMETRIC_KEY}`",
                quoted(interface)
            );
        }
    };
    format!(
        ", or, if the card can, `ethtool -N {} rx-flow-hash tcp4 {fields}` (udp4, tcp6, udp6 too)",
        quoted(interface)
    )
}

/// Only /sys tells, which may show another network namespace: then nothing is known.
fn steers(interface: &str) -> bool {
    let folder = Path::new("/sys/class/net").join(interface);
    let shown = fs::read_to_string(folder.join("ifindex")).ok().and_then(|index| index.trim().parse().ok());
    shown.is_some() && shown == netdev::index(interface).ok() && names_a_cpu(&folder.join("queues"))
}

/// Whether some queue's `rps_cpus` does.
fn names_a_cpu(queues: &Path) -> bool {
    let entries = fs::read_dir(queues).into_iter().flatten().flatten();
    let masks = entries.filter_map(|queue| fs::read_to_string(queue.path().join("rps_cpus")).ok());
    masks.into_iter().any(|mask| mask.chars().any(|digit| digit.is_ascii_hexdigit() && digit != '0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card_with(queues: u32, symmetric: Option<bool>, fields: Option<HashFields>) -> Spread {
        Spread {
            cpus: 8,
            driver: Some("ice".to_string()),
            queues: Some(queues),
            steering: false,
            fields,
            symmetric,
        }
    }

    #[test]
    fn what_a_key_needs_of_the_hash() {
        let both = "five-tuple-bidirectional";
        let plain = card_with(8, Some(false), Some(HashFields::FOUR));
        assert!(plain.parts("five-tuple").is_none());
        for key in [both, "source", "destination", "source-destination"] {
            assert!(plain.parts(key).is_some(), "{key}");
            assert!(card_with(1, None, None).parts(key).is_none(), "one queue, {key}");
            let one = Spread { steering: true, ..card_with(1, None, None) };
            assert!(one.parts(key).is_some(), "steered, {key}");
        }
        assert!(card_with(8, Some(true), None).parts(both).is_none());
        assert!(card_with(8, None, None).parts(both).is_some());
        assert!(card_with(8, None, Some(HashFields::SOURCE)).parts("source").is_none());
        assert!(card_with(8, None, Some(HashFields::DESTINATION)).parts("destination").is_none());
        assert!(card_with(8, None, Some(HashFields::ADDRESSES)).parts("source-destination").is_none());
        let veth = Spread { driver: Some("veth".to_string()), ..plain };
        assert!(veth.parts("five-tuple").is_some());
        assert!(Spread { cpus: 1, ..veth }.parts("source").is_none());
    }

    #[test]
    fn steering_is_a_mask_with_a_cpu() {
        let folder = tempfile::tempdir().unwrap();
        for (queue, mask) in [("rx-0", "00000000,00000000\n"), ("tx-0", "")] {
            fs::create_dir(folder.path().join(queue)).unwrap();
            if queue.starts_with("rx") {
                fs::write(folder.path().join(queue).join("rps_cpus"), mask).unwrap();
            }
        }
        assert!(!names_a_cpu(folder.path()));
        fs::write(folder.path().join("rx-0/rps_cpus"), "00000000,00000a00\n").unwrap();
        assert!(names_a_cpu(folder.path()));
    }
}
