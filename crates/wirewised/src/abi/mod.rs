// SPDX-License-Identifier: Apache-2.0
//! What the data path and user space share: `contract` is written from `bpf/abi.h` and `bpf/act/act_abi.h`, where the meaning of each field stands;
//! here is what the agent knows of it beside.
//!
//! Integers are in host byte order; addresses and ports are as in the packet (network byte order).

use bytemuck::Zeroable;

/// An enum of `abi.h`: codes from 0 on, each with the name that options, JSON and tables use.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
        #[repr(u32)]
        pub enum $name {
            $(#[serde(rename = $text)] $variant),+
        }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];
            pub const COUNT: usize = Self::ALL.len();

            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $text),+
                }
            }

            /// The value of a code the kernel wrote; `None` if it is none of ours.
            pub fn from_code(code: u32) -> Option<$name> {
                Self::ALL.get(code as usize).copied()
            }

            pub fn code(self) -> u32 {
                self as u32
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

mod contract;
pub mod maps;

pub use contract::*;

/// The end of what lasts until it is changed.
pub const FOREVER: u64 = u64::MAX;
/// Trigger `packets` can name packets 1 to this of a flow.
pub const MAX_TRIGGER_PACKET: u32 = TRIGGER_WORDS as u32 * 64 - 1;
/// Those by which a packet does not come to its receiver.
pub const STEER_ELSEWHERE: u32 = STEER_REDIRECT
    | STEER_BOUNCE
    | STEER_SOCKET
    | STEER_FORWARD
    | STEER_CHALLENGE
    | STEER_BACKEND
    | STEER_DECAPSULATE;
/// Those by which a packet grows or shrinks at its front.
pub const STEER_THROUGH_TUNNELS: u32 = STEER_DECAPSULATE | STEER_ENCAPSULATE;
/// Each kind with the key of a policy file.
pub const STEERING: [(u32, &str); 16] = [
    (STEER_REDIRECT, "redirect"),
    (STEER_BOUNCE, "bounce"),
    (STEER_DSCP, "dscp"),
    (STEER_MARK, "mark"),
    (STEER_PRIORITY, "priority"),
    (STEER_QUEUE, "queue"),
    (STEER_CPU, "cpu"),
    (STEER_SOCKET, "socket"),
    (STEER_MIRROR, "mirror"),
    (STEER_FORWARD, "forward"),
    (STEER_BACKEND, "backend"),
    (STEER_CHALLENGE, "challenge"),
    (STEER_DECAPSULATE, "decapsulate"),
    (STEER_ENCAPSULATE, "encapsulate"),
    (STEER_QFI, "qfi"),
    (STEER_INNER_DSCP, "inner-dscp"),
];

/// Kinds that apply to every packet, not to a class, with their keys in a policy file.
pub const DESCRIBING: [(u32, &str); 2] = [(STEER_METADATA, "metadata"), (STEER_VERDICTS, "verdicts")];
pub const STEER_DESCRIBES: u32 = STEER_METADATA | STEER_VERDICTS;

/// The keys of a policy file that ask for these kinds: `dscp, redirect`.
pub fn keys_of(kinds: u32) -> String {
    let mut keys = Vec::new();
    for (kind, name) in STEERING {
        let key = if kind & (STEER_CPU | STEER_SOCKET) == 0 { name } else { "redirect" };
        if kinds & kind != 0 && !keys.contains(&key) {
            keys.push(key);
        }
    }
    keys.join(", ")
}

/// Of the map `ww_tunnels`.
pub const ENDS_OF_A_TUNNEL: usize = 3;
/// The kernel's limit for one packet (MAX_TAIL_CALL_CNT).
pub const MAX_TAIL_CALLS: u32 = 33;

/// What becomes of a packet, by the code that its program returns to the hook (XDP).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Dropped = 1,
    Passed = 2,
    /// Back to who sent it.
    Bounced = 3,
    /// To another interface.
    Redirected = 4,
}

impl Fate {
    /// Any other code is no verdict: XDP_ABORTED, and what the data path has no use for.
    pub fn from_code(code: u32) -> Result<Self, String> {
        let all = [Self::Dropped, Self::Passed, Self::Bounced, Self::Redirected];
        all.into_iter().find(|fate| *fate as u32 == code).ok_or_else(|| {
            format!("the program returned {code}, which is no verdict: 1 drops a packet, 2 passes it, 3 and 4 send it elsewhere")
        })
    }

    /// The same, of a program of TC: TC_ACT_UNSPEC, which goes on to the next program, TC_ACT_SHOT and TC_ACT_REDIRECT, which is also
    /// of packets that bounce.
    pub fn from_tc(code: u32) -> Result<Self, String> {
        match code.cast_signed() {
            -1 => Ok(Self::Passed),
            2 => Ok(Self::Dropped),
            7 => Ok(Self::Redirected),
            code => Err(format!(
                "the program returned {code}, which is no verdict: -1 passes a packet, 2 drops it, 7 sends it elsewhere"
            )),
        }
    }

    pub fn passed(self) -> bool {
        self == Self::Passed
    }
}

impl Action {
    /// Whether a packet of the class may be dropped.
    pub fn may_drop(self) -> bool {
        match self {
            Self::Drop | Self::RateLimit => true,
            Self::Pass | Self::Count | Self::Act => false,
        }
    }
}

impl Outcome {
    /// Whether a packet with it was dropped.
    pub fn drops(self) -> bool {
        matches!(self, Self::Drop | Self::Limited | Self::Ban)
    }

    /// Above a column of packets.
    pub fn title(self) -> String {
        self.name().replace('-', " ")
    }
}

impl Default for Counter {
    fn default() -> Self {
        Self::zeroed()
    }
}

impl Config {
    /// Where the data path reads the time, in words.
    pub fn describe_clock(&self) -> &'static str {
        match Clock::from_code(self.clock) {
            Some(Clock::Coarse) if self.jiffy_ns != 0 => "coarse (jiffies)",
            Some(Clock::Coarse) => "coarse (helper)",
            Some(clock) => clock.name(),
            None => "unknown",
        }
    }
}

impl From<Key4> for Key6 {
    /// The form of events and traces: an IPv4 address lies in the first four bytes.
    fn from(key: Key4) -> Self {
        let mut long = Self { source_port: key.source_port, protocol: key.protocol, ..Self::zeroed() };
        long.destination_port = key.destination_port;
        long.vlans = key.vlans;
        long.source[..4].copy_from_slice(&key.source);
        long.destination[..4].copy_from_slice(&key.destination);
        long
    }
}

/// A policy as maps hold it: what the classifier reads, and what the actor does with classes that ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Element {
    pub policy: Policy,
    pub act: ActPolicy,
}

impl ActConfig {
    /// The actor's constants for a load with these.
    pub fn of(config: &Config) -> Self {
        let Config { acts, hook, trace, shards, model, frags, clock, hash_seed, .. } = *config;
        Self { version: ACT_VERSION, acts, hook, trace, shards, model, frags, clock, hash_seed }
    }
}

impl Element {
    /// What the policy asks of a program beside passing and dropping classes: `STEER_*` bits.
    pub fn steering(&self) -> u32 {
        let asked = [
            (self.denies(), STEER_DENY),
            (self.bans(), STEER_BAN),
            (self.policy.rules & RULE_EVIDENCE != 0, STEER_EVIDENCE),
            (u32::from(self.act.each) != Each::Packet.code(), STEER_TELL),
            (self.act.inputs != 0, STEER_INPUTS),
            (self.act.metadata != 0, STEER_METADATA),
            (self.act.verdicts != 0, STEER_VERDICTS),
        ];
        let of_none = asked.iter().filter(|(asked, _)| *asked).fold(0, |kinds, (_, kind)| kinds | kind);
        self.steered().fold(of_none, |kinds, (_, steer)| kinds | steer.kinds)
    }

    /// Whether some class has those who send its packets banned.
    pub fn bans(&self) -> bool {
        self.policy.allow & ALLOW_UNLESS_BANNED != 0
    }

    /// Whether there is a deny list.
    pub fn denies(&self) -> bool {
        self.policy.allow & ALLOW_UNLESS_DENIED != 0
    }

    /// The classes that are steered, each with its number.
    pub fn steered(&self) -> impl Iterator<Item = (usize, &Steer)> {
        let rules = self.policy.class_policy.iter().zip(&self.act.steer).enumerate();
        rules
            .filter(|(_, (rule, _))| rule.action == Action::Act.code())
            .map(|(class, (_, steer))| (class, steer))
    }

    /// The action that was taken for a packet of a class, as a policy file calls it. `None`: the code is none of ours.
    pub fn action(&self, class: usize, code: u32) -> Option<String> {
        let kinds = self.act.steer.get(class).map_or(0, |steer| steer.kinds);
        match Action::from_code(code)? {
            // The policy may be another one by now.
            Action::Act if kinds != 0 => Some(keys_of(kinds)),
            action => Some(action.name().to_owned()),
        }
    }

    /// Whether packets of a class may be kept from their receiver: dropped, or sent elsewhere.
    pub fn takes_away(&self, class: usize) -> bool {
        let action = Action::from_code(self.policy.class_policy[class].action);
        let elsewhere = self.act.steer[class].kinds & STEER_ELSEWHERE != 0;
        action.is_some_and(|action| action.may_drop() || action == Action::Act && elsewhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_go_both_ways() {
        assert_eq!(Status::from_code(9), Some(Status::NoPolicy));
        assert_eq!(Status::from_code(11), Some(Status::AllowedEssential));
        assert_eq!(Status::from_code(13), Some(Status::DeniedPort));
        assert_eq!(Status::from_code(14), Some(Status::Banned));
        assert_eq!(Status::from_code(15), None);
        assert_eq!(Outcome::WouldLimit.code(), 4);
        assert_eq!(Action::RateLimit.to_string(), "rate-limit");
        assert_eq!(serde_json::to_string(&Mode::Enforce).unwrap(), "\"enforce\"");
    }

    #[test]
    fn an_action_has_the_words_of_a_policy() {
        let mut policy = Element::zeroed();
        policy.act.steer[1].kinds = STEER_CHALLENGE;
        policy.act.steer[2].kinds = STEER_DSCP | STEER_CPU | STEER_MIRROR;
        let action = |class, action: Action| policy.action(class, action.code());
        assert_eq!(action(1, Action::Act).as_deref(), Some("challenge"));
        assert_eq!(action(2, Action::Act).as_deref(), Some("dscp, redirect, mirror"));
        assert_eq!(action(1, Action::RateLimit).as_deref(), Some("rate-limit"));
        assert_eq!(action(3, Action::Act).as_deref(), Some("act"));
        assert_eq!((policy.action(255, 1).as_deref(), policy.action(0, 99)), (Some("drop"), None));
    }

    #[test]
    fn a_code_that_is_no_verdict_is_no_fate() {
        assert_eq!((Fate::from_code(1), Fate::from_code(2)), (Ok(Fate::Dropped), Ok(Fate::Passed)));
        assert_eq!((Fate::from_code(3), Fate::from_code(4)), (Ok(Fate::Bounced), Ok(Fate::Redirected)));
        for code in [0, 5, u32::MAX] {
            assert!(Fate::from_code(code).unwrap_err().contains(&format!("returned {code},")));
        }
    }
}
