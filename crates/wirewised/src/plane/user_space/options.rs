// SPDX-License-Identifier: Apache-2.0
//! The options of `run` and `record` for planes in user space. A plane declares its own options in its folder; shared ones are here.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::{KINDS, Wanted};
use crate::error::{Error, Result};
use crate::interface::netdev;
use crate::plane::Plane;

pub const TO: &str = "to";
pub const WORKERS: &str = "workers";

/// The options that a plane accepts.
pub struct Takes {
    /// Names of shared options, such as `TO`.
    pub common: &'static [&'static str],
    /// Adds the plane's own options to a command.
    pub own: fn(Command) -> Command,
}

impl Takes {
    fn takes(&self, option: &str) -> bool {
        let own = (self.own)(Command::default());
        self.common.contains(&option) || own.get_arguments().any(|own| own.get_long() == Some(option))
    }
}

#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
struct Common {
    /// With a plane in user space: send what passes on to this interface, and what comes in there back to the first (with
    /// --plane dpdk also a device, as with --interface)
    #[arg(long, value_name = "NAME")]
    to: Option<String>,

    /// With a plane in user space: threads that carry packets [default: one a CPU, or a queue]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Option<u32>,
}

/// The options that were given.
#[derive(Debug, Clone)]
pub struct Options {
    common: Common,
    /// The whole command line, from which a plane reads its own.
    given: ArgMatches,
}

impl Args for Options {
    fn augment_args(command: Command) -> Command {
        KINDS.iter().fold(Common::augment_args(command), |command, kind| (kind.takes.own)(command))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Options {
    fn from_arg_matches(given: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        Ok(Self { common: Common::from_arg_matches(given)?, given: given.clone() })
    }

    fn update_from_arg_matches(&mut self, given: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(given)?;
        Ok(())
    }
}

impl Options {
    pub fn to(&self) -> Option<&str> {
        self.common.to.as_deref()
    }

    pub fn workers(&self) -> Option<u32> {
        self.common.workers
    }

    /// A plane's own options.
    pub fn own<T: Args>(&self) -> Result<T> {
        T::from_arg_matches(&self.given).map_err(Error::other)
    }

    /// interface, arguments, most_workers : as in `Wanted`.
    pub fn wanted<'a>(
        &'a self,
        interface: &'a str,
        arguments: Option<&'a str>,
        most_workers: u32,
    ) -> Wanted<'a> {
        Wanted { interface, arguments, to: self.to(), workers: self.workers(), options: self, most_workers }
    }

    /// Fails if an option was given that this plane does not accept.
    pub fn check(&self, plane: Plane) -> Result<()> {
        let taken = KINDS.iter().find(|kind| kind.plane == Some(plane)).map(|kind| &kind.takes);
        let all = Self::augment_args(Command::default());
        let given = all.get_arguments().filter(|option| {
            self.given.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine)
        });
        let mut given = given.filter_map(clap::Arg::get_long);
        let Some(option) = given.find(|option| taken.is_none_or(|takes| !takes.takes(option))) else {
            return Ok(());
        };
        let others: Vec<_> = KINDS.iter().filter(|kind| kind.takes.takes(option)).collect();
        let names: Vec<_> = others.iter().filter(|kind| kind.plane.is_some()).map(|kind| kind.name).collect();
        let names = match (names.is_empty(), others.first()) {
            (true, Some(other)) => format!("{}, without which this agent was built", other.name),
            _ => names.join(", "),
        };
        Err(Error::input(format!("--{option} is not for --plane {plane}, but for {names}")))
    }

    /// Fails if `--to` names a port that does not exist, or the first one (`interface`).
    pub fn check_to(&self, plane: Plane, interface: &str) -> Result<()> {
        let Some(to) = self.to() else { return Ok(()) };
        let name = match plane.names_device(to) {
            true => plane.parts(to).0.to_string(),
            false => netdev::primary_name(to),
        };
        if name == interface {
            return Err(Error::input(format!("--to {name}: it is the interface itself")));
        }
        plane.port(to).map(drop)
    }
}
