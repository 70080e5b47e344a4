// SPDX-License-Identifier: Apache-2.0
//! What a class may ask for beside passing and dropping: where its packets go, and what is written on them.

use std::fmt;

use crate::abi;
use crate::policy::forward::{Bridge, Forward};
use crate::policy::words::{Dscp, Sampling, Target};

/// The kernel keeps 65535 for "none", and counts from 1.
pub const MAX_QUEUE: u32 = 65_533;

/// A copy of some packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    pub target: Target,
    pub rate: Sampling,
    /// Bytes of each; `None`: all of it.
    pub snap: Option<u32>,
}

/// A pool of servers, of the policy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolName {
    pub name: String,
    /// In the order of names.
    pub number: u16,
}

/// At least one part of it is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Steering {
    pub redirect: Option<Target>,
    /// Up the stack of one of these CPUs; empty: of the one that it came by.
    pub cpus: Vec<u32>,
    /// To the socket of this receive queue.
    pub socket: Option<u32>,
    pub mirror: Option<Mirror>,
    /// Back out of the interface they came by.
    pub bounce: bool,
    pub forward: Option<Forward>,
    /// Who opens a connection has to return a cookie.
    pub challenge: bool,
    pub dscp: Option<Dscp>,
    pub mark: Option<u32>,
    pub priority: Option<u32>,
    pub queue: Option<u16>,
    pub backend: Option<PoolName>,
    /// Out of its tunnel of GTP-U.
    pub decapsulate: bool,
    /// Into the tunnel of who it is for, and on by the routes.
    pub encapsulate: bool,
    pub qfi: Option<u8>,
    pub inner_dscp: Option<Dscp>,
    /// The judged interface's addresses, of IPv4 and IPv6, to be looked up; zeros: it has none.
    pub own: ([u8; 4], [u8; 16]),
    /// Of a challenge: who is to be addressed, to be looked up.
    pub guarded: Guarded,
}

/// A host that a challenge answers for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Guarded {
    pub address: [u8; 6],
    pub broadcast: [[u8; 4]; abi::BROADCASTS],
}

impl Steering {
    /// `abi::STEER_*` bits.
    pub fn kinds(&self) -> u32 {
        let there = [
            (abi::STEER_REDIRECT, self.redirect.is_some()),
            (abi::STEER_BOUNCE, self.bounce),
            (abi::STEER_FORWARD, self.forward.is_some()),
            (abi::STEER_BRIDGE, self.bridge().is_some()),
            (abi::STEER_DSCP, self.dscp.is_some()),
            (abi::STEER_MARK, self.mark.is_some()),
            (abi::STEER_PRIORITY, self.priority.is_some()),
            (abi::STEER_QUEUE, self.queue.is_some()),
            (abi::STEER_CPU, !self.cpus.is_empty()),
            (abi::STEER_SOCKET, self.socket.is_some()),
            (abi::STEER_MIRROR, self.mirror.is_some()),
            (abi::STEER_CHALLENGE, self.challenge),
            (abi::STEER_BACKEND, self.backend.is_some()),
            (abi::STEER_DECAPSULATE, self.decapsulate),
            (abi::STEER_ENCAPSULATE, self.encapsulate),
            (abi::STEER_QFI, self.qfi.is_some()),
            (abi::STEER_INNER_DSCP, self.inner_dscp.is_some()),
        ];
        there.iter().filter(|(_, there)| *there).fold(0, |kinds, (kind, _)| kinds | kind)
    }

    /// Whether some of its packets do not come to their receiver.
    pub fn takes_away(&self) -> bool {
        self.redirect.is_some()
            || self.socket.is_some()
            || self.bounce
            || self.forward.is_some()
            || self.challenge
            || self.backend.is_some()
            || self.decapsulate
    }

    /// Where its packets go instead, as part of a file's name.
    pub fn destination(&self) -> Option<String> {
        let interface = self.redirect.as_ref().map(|target| format!("to-{}", target.interface));
        let socket = self.socket.map(|queue| format!("to-socket-{queue}"));
        let pool = self.backend.as_ref().map(|pool| format!("to-pool-{}", pool.name));
        interface.or(socket).or(pool).or_else(|| self.bounce.then(|| "bounced".to_string()))
    }

    fn bridge(&self) -> Option<&Bridge> {
        self.forward.as_ref()?.bridge.as_ref()
    }

    pub fn to_abi(&self) -> abi::Steer {
        let bridge = self.bridge().map(Bridge::id);
        abi::Steer {
            kinds: self.kinds(),
            ifindex: self.redirect.as_ref().map(|target| target.ifindex).or(bridge).unwrap_or(0),
            mark: self.mark.unwrap_or(0),
            priority: self.priority.unwrap_or(0),
            queue: self.queue.unwrap_or(0),
            dscp: self.dscp.map_or(0, |dscp| dscp.0),
            cpus: self.cpus.len() as u8,
            cpu: std::array::from_fn(|place| self.cpus.get(place).map_or(0, |cpu| *cpu as u16)),
            socket: self.socket.unwrap_or(0),
            mirror_ifindex: self.mirror.as_ref().map_or(0, |mirror| mirror.target.ifindex),
            mirror_every: self.mirror.as_ref().map_or(0, |mirror| mirror.rate.every),
            mirror_snap: self.mirror.as_ref().and_then(|mirror| mirror.snap).unwrap_or(0),
            address: self.forward.as_ref().map_or(self.guarded.address, |forward| forward.address.0),
            pool: self.backend.as_ref().map_or(0, |pool| pool.number),
            qfi: self.qfi.unwrap_or(0),
            inner_dscp: self.inner_dscp.map_or(0, |dscp| dscp.0),
            reserved: 0,
            own4: self.own.0,
            own6: self.own.1,
            broadcast: self.guarded.broadcast,
        }
    }
}

impl fmt::Display for Steering {
    /// `dscp AF41, redirect to eth2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.dscp.map(|dscp| format!("dscp {dscp}")),
            self.mark.map(|mark| format!("mark {mark}")),
            self.priority.map(|priority| format!("priority {priority}")),
            self.queue.map(|queue| format!("queue {queue}")),
            self.mirror.as_ref().map(Mirror::to_string),
            self.redirect.as_ref().map(|target| format!("redirect to {}", target.interface)),
            (!self.cpus.is_empty()).then(|| format!("redirect to CPU {}", listed(&self.cpus))),
            self.socket.map(|queue| format!("redirect to the socket of queue {queue}")),
            self.bounce.then(|| "bounce".to_string()),
            self.forward.as_ref().map(Forward::to_string),
            self.challenge.then(|| "challenge".to_string()),
            self.backend.as_ref().map(|pool| format!("backend {}", pool.name)),
            self.decapsulate.then(|| "decapsulate".to_string()),
            self.encapsulate.then(|| "encapsulate".to_string()),
            self.qfi.map(|qfi| format!("qfi {qfi}")),
            self.inner_dscp.map(|dscp| format!("inner-dscp {dscp}")),
        ];
        f.pad(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mirror {} to {}", self.rate, self.target.interface)?;
        self.snap.map_or(Ok(()), |snap| write!(f, ", {snap} bytes of each"))
    }
}

fn listed(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}
