// SPDX-License-Identifier: Apache-2.0
//! Who enforces on the machine they are logged in to may lock themselves out: a model errs, and an attack may look like them.

use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::net::IpAddr;

use crate::abi::{self, Action};
use crate::error::{Error, Result};
use crate::policy::Prefix;

/// What sshd tells the processes of a session: address and port of both ends.
const VARIABLE: &str = "SSH_CONNECTION";
/// Parents that are looked at.
const GENERATIONS: usize = 32;

/// Whether packets of anybody may be dropped.
pub fn is_possible(policy: &abi::Policy) -> bool {
    let drops = [Action::Drop.code(), Action::RateLimit.code()];
    let list = abi::ALLOW_IPV4 | abi::ALLOW_IPV6 | abi::ALLOW_PORTS | abi::ALLOW_SOURCE_PORTS;
    policy.allow & list == 0 && policy.class_policy.iter().any(|rule| drops.contains(&rule.action))
}

pub const WAYS_OUT: &str =
    "put your address into the policy (`allow: {prefixes: [...]}`), or add --allow-current-session, or --yes";
pub const RISK: &str =
    "enforcing drops packets whoever sends them, and the policy allows nobody: you may lock yourself out";

/// Asks on a terminal, refuses elsewhere.
pub fn confirm(json: bool) -> Result<()> {
    let refusal = || Error::input(format!("{RISK}; {WAYS_OUT}"));
    if json || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(refusal());
    }
    eprintln!("warning: {RISK}; {WAYS_OUT}");
    eprint!("Enforce all the same? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" if read.is_ok() => Ok(()),
        _ => Err(Error::other("nothing was changed")),
    }
}

/// Where somebody is logged in from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub address: IpAddr,
    /// Where that stands, for people.
    pub told_by: String,
}

impl Session {
    /// That of this process: from its environment, or that of the nearest parent that has it, as `sudo` hands it on to nobody.
    pub fn find() -> Result<Self> {
        if let Some(address) = std::env::var(VARIABLE).ok().and_then(|value| parse(&value)) {
            return Ok(Self { address, told_by: VARIABLE.to_string() });
        }
        let mut process = std::os::unix::process::parent_id();
        for _ in 0..GENERATIONS {
            if process <= 1 {
                break;
            }
            if let Some(address) = fs::read(format!("/proc/{process}/environ")).ok().and_then(|all| of(&all))
            {
                let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
                let told_by = format!("{VARIABLE} of process {process} ({})", name.trim());
                return Ok(Self { address, told_by });
            }
            process = parent(&fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default());
        }
        Err(Error::input(format!(
            "--allow-current-session: nobody is logged in here over SSH, as far as {VARIABLE} of this process and its parents \
             tells; put your address into the policy (`allow: {{prefixes: [...]}}`)"
        )))
    }

    pub fn prefix(&self) -> Prefix {
        Prefix { address: self.address, length: if self.address.is_ipv4() { 32 } else { 128 } }
    }
}

/// The client's address; IPv4 may be written as IPv6, and a link-local address has its interface behind it.
fn parse(value: &str) -> Option<IpAddr> {
    let address: IpAddr = value.split_whitespace().next()?.split('%').next()?.parse().ok()?;
    Some(address.to_canonical())
}

/// From an environment: texts that end in a zero byte.
fn of(environment: &[u8]) -> Option<IpAddr> {
    let mut texts = environment.split(|byte| *byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    texts.find_map(|text| parse(text.strip_prefix(VARIABLE)?.strip_prefix('=')?))
}

/// From /proc/PID/stat, in which the process' name may hold anything; 0: it cannot be read.
fn parent(stat: &str) -> u32 {
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    fields.split_whitespace().nth(1).and_then(|parent| parent.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytemuck::Zeroable;

    #[test]
    fn the_address_of_a_session_is_read_as_sshd_writes_it() {
        let read = |text: &[u8]| of(text).map(|address| address.to_string());
        assert_eq!(read(b"A=1\0SSH_CONNECTION=192.0.2.7 50022 10.0.0.1 22\0"), Some("192.0.2.7".to_string()));
        assert_eq!(read(b"SSH_CONNECTION=fe80::1%eth0 5 fe80::2 22"), Some("fe80::1".to_string()));
        assert_eq!(read(b"SSH_CONNECTION=::ffff:192.0.2.7 5 ::1 22"), Some("192.0.2.7".to_string()));
        for text in
            [&b""[..], b"SSH_CONNECTION=", b"SSH_CONNECTION=x 1", b"XSSH_CONNECTION=10.0.0.1 1", b"\xff\0"]
        {
            assert_eq!(of(text), None);
        }
        assert_eq!(parent("12 (a ) b) S 34 12 12"), 34);
        assert_eq!(parent("nonsense"), 0);
    }

    #[test]
    fn a_lock_out_needs_a_drop_and_no_allow_list() {
        let mut policy = abi::Policy::zeroed();
        assert!(!is_possible(&policy));
        policy.class_policy[3].action = Action::Count.code();
        assert!(!is_possible(&policy));
        policy.class_policy[3].action = Action::RateLimit.code();
        assert!(is_possible(&policy));
        policy.allow = abi::ALLOW_ESSENTIAL;
        assert!(is_possible(&policy));
        policy.allow |= abi::ALLOW_IPV6;
        assert!(!is_possible(&policy));
    }
}
