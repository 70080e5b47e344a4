// SPDX-License-Identifier: Apache-2.0
//! The normal form of a policy: every default and every list written out, times in nanoseconds. Other programs read this, so that there is
//! one reader of the file.

use serde_json::{Value, json};

use crate::policy::class::{ClassAction, ClassPolicy, Limit};
use crate::policy::pools::{Backend, Pool};
use crate::policy::selector::Selector;
use crate::policy::tunnels::Tunnel;
use crate::policy::values::{Port, Prefix};
use crate::policy::words::Target;
use crate::policy::{Policy, Trigger};

impl Policy {
    /// As JSON. Classes are in the order of their ids; what interfaces and addresses are found to be on a host is not in it.
    pub fn normal(&self) -> Value {
        let classes = self.classes.iter().zip(&self.actions).map(|(name, rule)| class(name, rule));
        let mut normal = json!({
            "version": 1,
            "classes": classes.collect::<Vec<_>>(),
            "trigger": trigger(&self.trigger),
            "allow": {
                "prefixes": self.prefixes.iter().map(Prefix::to_string).collect::<Vec<_>>(),
                "ports": self.ports.iter().map(port).collect::<Vec<_>>(),
                "source_ports": self.source_ports.iter().map(port).collect::<Vec<_>>(),
                "established": self.established,
            },
            "deny": self.deny.as_ref().map(|deny| json!({
                "prefixes": deny.prefixes.iter().map(Prefix::to_string).collect::<Vec<_>>(),
                "ports": deny.ports.iter().map(port).collect::<Vec<_>>(),
            })),
            "evidence": self.evidence.as_ref().map(|evidence| json!({
                "by": evidence.by(),
                "last": evidence.last,
                "flows": evidence.flows,
                "threshold": evidence.threshold(),
                "within_ns": evidence.within.0,
                "text": evidence.to_string(),
            })),
            "enforce_for_ns": self.enforce_for.map(|time| time.0),
            "drop_malformed": self.drop_malformed,
            "drop_essential": self.drop_essential,
            "events": events(self),
            "metadata": self.metadata,
            "verdicts": self.verdicts,
            "pools": self.pools.iter().map(pool).collect::<Vec<_>>(),
            "tunnels": self.tunnels.as_ref().map(|tunnels| tunnels.iter().map(tunnel).collect::<Vec<_>>()),
        });
        // No default: nothing comes next.
        if let Some(next) = &self.next {
            normal["next"] = next.display().to_string().into();
        }
        normal
    }
}

fn port(it: &Port) -> Value {
    json!({ "port": it.port, "tcp": it.tcp, "udp": it.udp })
}

/// action : `act`, whose parts are beside it, or a name of the file. text : the rule, for people.
fn class(name: &str, rule: &ClassPolicy) -> Value {
    let (limits, acts) = match &rule.action {
        ClassAction::RateLimit(it) => (Some(limit(it)), None),
        ClassAction::Steer(it) => (None, Some(it.normal())),
        ClassAction::Pass | ClassAction::Drop | ClassAction::Count => (None, None),
    };
    json!({
        "name": name,
        "action": rule.action.code(),
        "keys": rule.action.keys(),
        "text": rule.text(),
        "severity": rule.severity,
        "after": rule.after,
        "ban": rule.ban.map(|ban| json!({
            "ipv4": ban.kind.length4,
            "ipv6": ban.kind.length6,
            "pair": ban.kind.pair,
            "for_ns": ban.time.0,
            "spoofable": ban.spoofable,
        })),
        "limit": limits,
        "acts": acts,
    })
}

fn limit(limit: &Limit) -> Value {
    let (interval_ns, burst_ns) = limit.to_abi();
    json!({ "interval_ns": interval_ns, "burst_ns": burst_ns })
}

fn events(policy: &Policy) -> Value {
    let mut events = limit(&policy.events);
    events["each"] = policy.each.name().into();
    events["update_ns"] = policy.event_update.0.into();
    events["features"] = policy.event_features.into();
    events
}

/// Exactly one is given; none: every packet.
fn trigger(trigger: &Trigger) -> Value {
    match trigger {
        Trigger::Every => json!({}),
        Trigger::Packets(packets) => json!({ "packets": packets }),
        Trigger::Interval(interval) => json!({ "interval_ns": interval.0 }),
        Trigger::FirstN(count) => json!({ "first_n": count }),
        Trigger::Headers { any, every } => {
            json!({ "any": any.iter().map(Selector::normal).collect::<Vec<_>>(), "every": every })
        }
    }
}

fn interface(target: Option<&Target>) -> Option<&str> {
    target.map(|target| target.interface.as_str())
}

fn pool(pool: &Pool) -> Value {
    let health = pool.health.as_ref().map(|it| {
        json!({
            "check": it.check,
            "port": it.port,
            "path": it.path,
            "interval_ns": u64::from(it.interval_ms) * 1_000_000,
            "timeout_ns": u64::from(it.timeout_ms) * 1_000_000,
            "fall": it.fall,
            "rise": it.rise,
        })
    });
    json!({
        "name": pool.name,
        "method": pool.method,
        "interface": interface(pool.interface.as_ref()),
        "source": pool.source,
        "seed": pool.seed,
        "health": health,
        "backends": pool.backends.iter().map(backend).collect::<Vec<_>>(),
    })
}

fn backend(it: &Backend) -> Value {
    json!({
        "address": it.address,
        "weight": it.weight,
        "drains": it.drains,
        "mac": it.mac.map(|mac| mac.to_string()),
    })
}

fn tunnel(it: &Tunnel) -> Value {
    json!({
        "local": it.local,
        "teid": it.teid,
        "ue4": it.ue.v4,
        "ue6": it.ue.v6.map(|network| format!("{network}/64")),
        "peer": it.peer.map(|(address, _)| address),
        "peer_teid": it.peer.map(|(_, teid)| teid),
        "qfi": it.qfi,
    })
}
