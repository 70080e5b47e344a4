// SPDX-License-Identifier: Apache-2.0
//! Who enforces on the machine they are logged in to may lock themselves out: a model errs, and an attack may look like them.

use std::io::{self, BufRead, IsTerminal};
use std::path::PathBuf;

use crate::abi::{self, Mode};
use crate::attachment::session::Session;
use crate::error::{Error, Result};
use crate::policy::Policy;

/// Of commands that give a policy to what enforces, or lets it enforce.
#[derive(Debug, clap::Args)]
pub struct LockOutArgs {
    /// Enforce even if the policy's allow list is empty, without asking, and though nothing says what a ready model drops here
    #[arg(long)]
    pub yes: bool,

    /// Put the address from which you are logged in over SSH on the policy's allow list
    #[arg(long, requires = "policy")]
    allow_current_session: bool,

    /// With a ready model: the .json that `wirewise evaluate --report` writes, which says what it may drop here
    #[arg(long, value_name = "FILE")]
    pub evaluation: Option<PathBuf>,
}

impl LockOutArgs {
    /// Adds who asks for it to those the policy allows, and says so.
    pub fn admit(&self, policy: &mut Policy, json: bool) -> Result<()> {
        if self.allow_current_session {
            let Session { address, told_by } = Session::find()?;
            if !json {
                println!("  allowed      {address}, where you are logged in from ({told_by})");
            }
            policy.prefixes.insert(address.into());
        }
        Ok(())
    }
}

/// Whether a policy that comes into force in a mode may drop packets, and nobody is sure to get through.
pub fn threatens(mode: Mode, policy: &abi::Element) -> bool {
    mode == Mode::Enforce && is_possible(policy)
}

/// Whether packets of anybody may be dropped or sent elsewhere. A session that is there is a connection of this host.
fn is_possible(policy: &abi::Element) -> bool {
    let list = abi::ALLOW_IPV4 | abi::ALLOW_IPV6 | abi::ALLOW_PORTS | abi::ALLOW_SOURCE_PORTS;
    // A session is safe from drops by being one, not from being sent elsewhere.
    let elsewhere = policy.steered().any(|(class, _)| policy.takes_away(class));
    let list = if elsewhere { list } else { list | abi::ALLOW_ESTABLISHED };
    let takes_away = policy.denies() || (0..abi::MAX_CLASSES).any(|class| policy.takes_away(class));
    policy.policy.allow & list == 0 && takes_away
}

pub const WAYS_OUT: &str = "put your address into the policy (`allow: {prefixes: [...]}`), or `allow: {established: true}`, or add \
     --allow-current-session, or --yes";
pub const RISK: &str =
    "enforcing drops packets whoever sends them, and the policy allows nobody: you may lock yourself out";

/// For commands that take no policy.
pub const WAYS_OUT_OF_MODE: &str = "allow your address (`wirewised allow add ADDRESS`), or add --yes";

/// Asks on a terminal, refuses elsewhere.
pub fn confirm(json: bool, ways_out: &str) -> Result<()> {
    let refusal = || Error::input(format!("{RISK}; {ways_out}"));
    if json || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(refusal());
    }
    eprintln!("warning: {RISK}; {ways_out}");
    eprint!("Enforce all the same? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" if read.is_ok() => Ok(()),
        _ => Err(Error::other("nothing was changed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Action;
    use bytemuck::Zeroable;

    #[test]
    fn a_lock_out_needs_a_drop_and_no_allow_list() {
        let mut policy = abi::Element::zeroed();
        assert!(!is_possible(&policy));
        policy.policy.class_policy[3].action = Action::Count.code();
        assert!(!is_possible(&policy));
        policy.policy.class_policy[3].action = Action::RateLimit.code();
        assert!(is_possible(&policy));
        policy.policy.allow = abi::ALLOW_ESSENTIAL;
        assert!(is_possible(&policy));
        policy.policy.allow |= abi::ALLOW_IPV6;
        assert!(!is_possible(&policy));
        policy.policy.allow = abi::ALLOW_ESTABLISHED;
        assert!(!is_possible(&policy));
        policy.policy.class_policy[3].action = Action::Act.code();
        policy.act.steer[3].kinds = abi::STEER_DSCP;
        assert!(!is_possible(&policy));
        policy.act.steer[3].kinds |= abi::STEER_BOUNCE;
        assert!(is_possible(&policy));
    }
}
