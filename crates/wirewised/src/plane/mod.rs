// SPDX-License-Identifier: Apache-2.0
//! Where live packets meet a program: a module for each kind of plane, which says what its planes are and can do. In the kernel a
//! program is attached to a hook, by a BPF link, and outlives the agent. In user space the agent carries the packets to the engine itself
//! (`user_space/`), for as long as it runs.

pub mod dispatcher;
pub mod link;
mod port;
pub mod tc;
pub mod user_space;
mod xdp;

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::abi;
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::interface::offloads::Direction;
use crate::object::Runs;

pub use dispatcher::Component;
pub use port::Port;
pub use tc::{Filter, FilterHandle};
use user_space::Carried;
pub use user_space::note::{self, Note};
pub use xdp::{Driver, MTU_OF_ONE_BUFFER, driver};

const IN_KERNEL: [Plane; 4] = [xdp::NATIVE, xdp::GENERIC, tc::INGRESS, tc::EGRESS];
/// Every plane, in the order in which they are shown.
static PLANES: LazyLock<Vec<Plane>> = LazyLock::new(|| {
    IN_KERNEL.into_iter().chain(user_space::KINDS.iter().filter_map(|kind| kind.plane)).collect()
});

/// What a plane is and can do; the rest of the agent, `--help`, `wirewised planes` and the documentation go by this.
pub struct Abilities {
    pub name: &'static str,
    /// A line for `--help`.
    pub about: &'static str,
    /// Why one would take it.
    pub choose: &'static str,
    /// What it needs of the machine.
    pub needs: &'static str,
    /// The driver must have XDP.
    pub native: bool,
    /// Programs of others may be attached beside ours.
    pub shared: bool,
    /// It sees packets that were merged, or are not taken apart yet.
    pub sees_merged: bool,
    /// Of the packets it sees.
    pub direction: Direction,
    pub drops: Drops,
    /// What else a policy may ask for: `abi::STEER_*` bits.
    pub steers: u32,
    pub place: Site,
}

/// Whether a verdict can keep a packet from its receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Drops {
    Always,
    /// Where what passes is sent on to a second interface; else it sees copies.
    Forwarding,
}

/// Where the program runs.
#[derive(Clone, Copy)]
pub enum Site {
    Kernel(&'static dyn Hook),
    User(&'static dyn Carried),
}

/// What each hook does in its own way. All of it is about the network namespace this thread is in.
pub trait Hook: Sync {
    /// What the program must be loaded for.
    fn kind(&self) -> abi::Hook;

    /// The programs that the kernel says are attached to an interface.
    fn query(&self, ifindex: u32) -> io::Result<Vec<u32>>;

    /// The interface of a link of this hook (0: it is gone, or the link was detached), `None` for other hooks' links.
    fn ifindex(&self, link: &libbpf_sys::bpf_link_info) -> Option<u32>;

    /// pin : where the link is to be found after this process; the kernel keeps what has no pin for as long as the descriptor is open.
    fn attach(
        &self,
        program: BorrowedFd<'_>,
        ifindex: u32,
        joining: Joining,
        pin: Option<&Path>,
    ) -> io::Result<OwnedFd>;
    fn attach_without_link(&self, program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()>;
    fn detach_without_link(&self, program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()>;
    fn attach_error(&self, interface: &str, error: &io::Error) -> Error;
}

/// Where packets meet the program.
#[derive(Clone, Copy)]
pub struct Plane(&'static Abilities);

/// Our place among the programs of others, at a hook that takes several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Before those that are there: sees every packet
    #[default]
    First,
    /// Behind them: sees what they let through
    Last,
    /// First, beside a program of ours at another hook.
    #[value(skip)]
    Companion,
    /// In a dispatcher at XDP: by run priority, the smallest first
    #[value(skip)]
    Priority(u32),
}

/// How a program joins those of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Joining {
    pub order: Order,
    /// By a filter of clsact, though the kernel has tcx.
    pub clsact: bool,
    /// In a dispatcher of libxdp, with this run priority.
    #[serde(default)]
    pub priority: Option<u32>,
}

impl Order {
    /// The run priority in a dispatcher. libxdp's own programs have 10 (xdp-filter) to 50, its default.
    pub fn priority(self) -> u32 {
        match self {
            Self::First | Self::Companion => 0,
            Self::Last => i32::MAX as u32,
            Self::Priority(priority) => priority,
        }
    }

    /// `first`, `last`, or a run priority.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        match text {
            "first" => Ok(Self::First),
            "last" => Ok(Self::Last),
            _ => text
                .parse::<u32>()
                .ok()
                .filter(|priority| *priority <= i32::MAX as u32)
                .map(Self::Priority)
                .ok_or_else(|| format!("first, last, or a run priority of libxdp's from 0 to {}", i32::MAX)),
        }
    }
}

impl Plane {
    pub const XDP_NATIVE: Self = xdp::NATIVE;
    pub const XDP_GENERIC: Self = xdp::GENERIC;
    pub const TC_INGRESS: Self = tc::INGRESS;
    pub const TC_EGRESS: Self = tc::EGRESS;

    pub fn all() -> &'static [Self] {
        &PLANES
    }

    pub fn abilities(self) -> &'static Abilities {
        self.0
    }

    /// What a program must be loaded for, whose policy asks for these `abi::STEER_*` bits.
    pub fn loads_for(self, kinds: u32) -> u32 {
        match kinds {
            0 => 0,
            kinds if self.is_in_user_space() => kinds | abi::STEER_CARRIED,
            kinds => kinds,
        }
    }

    /// Which of these `abi::STEER_*` bits the program leaves to another one, at TC.
    pub fn by_companion(self, kinds: u32) -> u32 {
        let at_xdp = self.runs() == Runs::InKernel(abi::Hook::Xdp);
        if at_xdp { kinds & abi::STEER_BY_COMPANION } else { 0 }
    }

    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// What the program must be loaded for.
    pub fn runs(self) -> Runs {
        self.hook().map_or(Runs::InUserSpace, |hook| Runs::InKernel(hook.kind()))
    }

    /// Whether it is at TC, in either direction.
    pub fn is_of_tc(self) -> bool {
        self.hook().is_some_and(|hook| hook.kind() != abi::Hook::Xdp)
    }

    /// Whether it is in the driver, where packets have no socket buffer yet.
    pub fn is_in_driver(self) -> bool {
        self.0.native && !self.is_in_user_space()
    }

    /// Whether what an interface with this MTU receives may lie in several buffers (xdp.frags), which a program must be loaded for.
    pub fn needs_frags(self, mtu: u32) -> bool {
        self.is_in_driver() && mtu > xdp::MTU_OF_ONE_BUFFER
    }

    fn hook(self) -> Option<&'static dyn Hook> {
        match self.0.place {
            Site::Kernel(hook) => Some(hook),
            Site::User(_) => None,
        }
    }

    /// Whether the program runs in user space, or in the kernel.
    pub fn is_in_user_space(self) -> bool {
        self.carried().is_some()
    }

    /// Of a plane whose packets the agent carries itself.
    pub fn carried(self) -> Option<&'static dyn Carried> {
        match self.0.place {
            Site::Kernel(_) => None,
            Site::User(carried) => Some(carried),
        }
    }

    /// Whether a name is that of a device of this plane's own, with its arguments if it takes any, and of no interface.
    pub fn names_device(self, name: &str) -> bool {
        self.carried().is_some_and(|carried| carried.names_device(name))
    }

    /// A name without the arguments that a device of this plane's own may have, and those.
    pub fn parts(self, name: &str) -> (&str, Option<&str>) {
        let parts = name.split_once(',').filter(|_| self.names_device(name));
        parts.map_or((name, None), |(name, arguments)| (name, Some(arguments)))
    }

    /// What this plane has by this name.
    pub fn port(self, name: &str) -> Result<Port> {
        match self.carried().filter(|carried| carried.names_device(name)) {
            Some(carried) => carried.check_device(name).map(|_| Port::Device),
            None => netdev::index(name).map(Port::Interface),
        }
    }

    /// Whether a program of somebody else that is here keeps one from going to another plane of the same interface.
    pub fn is_in_the_way_of(self, other: Self) -> bool {
        match (self.hook(), other.hook()) {
            (Some(ours), Some(theirs)) => ours.kind() == theirs.kind() && !self.0.shared,
            (Some(ours), None) => ours.kind() == abi::Hook::Xdp && !other.0.shared,
            _ => false,
        }
    }

    /// Whether one of these keeps the other from the same interface: it has one place for a program at XDP.
    pub fn excludes(self, other: Self) -> bool {
        self.takes_xdp() && other.takes_xdp()
    }

    fn takes_xdp(self) -> bool {
        self.hook().map_or(!self.0.shared, |hook| hook.kind() == abi::Hook::Xdp)
    }

    /// Puts a program that was attached without a link back.
    pub fn attach_without_link(self, program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
        self.hook().ok_or(io::ErrorKind::Unsupported)?.attach_without_link(program, ifindex)
    }

    /// Detaches a program that was attached without a link, if it is still this one.
    pub fn detach_without_link(self, program: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
        self.hook().ok_or(io::ErrorKind::Unsupported)?.detach_without_link(program, ifindex)
    }

    /// Attaches a program. In the kernel it stays as long as the descriptor, or a pin of it, is there; in user space it begins with the
    /// process that carries its packets, which is this one.
    pub fn attach(self, program: BorrowedFd<'_>, port: Port, joining: Joining) -> io::Result<OwnedFd> {
        self.attach_with(program, port, joining, None)
    }

    /// As `attach`, and pins the link. Whenever this process dies, either the pin is there, or no program is.
    pub fn attach_pinned(
        self,
        program: BorrowedFd<'_>,
        port: Port,
        joining: Joining,
        pin: &Path,
    ) -> io::Result<()> {
        self.attach_with(program, port, joining, Some(pin)).map(drop)
    }

    fn attach_with(
        self,
        program: BorrowedFd<'_>,
        port: Port,
        joining: Joining,
        pin: Option<&Path>,
    ) -> io::Result<OwnedFd> {
        match (self.0.place, port) {
            (Site::Kernel(hook), Port::Interface(index)) => hook.attach(program, index, joining, pin),
            (Site::Kernel(_), Port::Device) => Err(io::ErrorKind::Unsupported.into()),
            (Site::User(_), port) => link::pinned(Note::begin(self, program, port)?, pin),
        }
    }

    /// What an error of the kernel means to whoever wanted to attach.
    pub fn attach_error(self, interface: &str, error: &io::Error) -> Error {
        match self.0.place {
            Site::Kernel(hook) => hook.attach_error(interface, error),
            Site::User(_) => Error::other(format!("{interface}: cannot run as {self}: {error}")),
        }
    }
}

impl PartialEq for Plane {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Plane {}

impl std::fmt::Debug for Plane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::fmt::Display for Plane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl ValueEnum for Plane {
    fn value_variants<'a>() -> &'a [Self] {
        &PLANES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()).help(self.0.about))
    }
}

impl Serialize for Plane {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Plane {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let known = PLANES.iter().find(|plane| plane.name() == name);
        known
            .copied()
            .ok_or_else(|| serde::de::Error::custom(format!("no plane of this agent is called '{name}'")))
    }
}

/// A program that the kernel says is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Attached {
    pub program_id: u32,
    pub plane: Plane,
}

/// All that is attached to a port, at any hook of the kernel.
pub fn attached_to(port: Port) -> io::Result<Vec<Attached>> {
    port.index().map_or(Ok(Vec::new()), attached)
}

/// All that is attached to an interface, at any hook of the kernel.
pub fn attached(ifindex: u32) -> io::Result<Vec<Attached>> {
    let mut all = Vec::new();
    for plane in PLANES.iter().copied() {
        let Some(hook) = plane.hook() else { continue };
        all.extend(hook.query(ifindex)?.into_iter().map(|program_id| Attached { program_id, plane }));
    }
    Ok(all)
}
