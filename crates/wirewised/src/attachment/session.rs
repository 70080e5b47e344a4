// SPDX-License-Identifier: Apache-2.0
//! Where the operator is logged in from.

use std::fs;
use std::mem::offset_of;
use std::net::IpAddr;
use std::path::Path;

use crate::error::{Error, Result};
use crate::files;

/// What sshd tells the processes of a session: address and port of both ends.
const VARIABLE: &str = "SSH_CONNECTION";
/// Who is logged in at which terminal; not every system keeps it.
const LOGINS: &str = "/run/utmp";
const MAX_LOGINS: u64 = 1 << 20;
/// Parents that are looked at.
const GENERATIONS: usize = 32;

/// Where somebody is logged in from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub address: IpAddr,
    /// Where that stands, for people.
    pub told_by: String,
}

impl Session {
    /// That of the nearest of this process and its parents that knows: from its environment, which `sudo` hands on to nobody, or from
    /// the record of who is logged in at its terminal.
    pub fn find() -> Result<Self> {
        let logins = files::read(Path::new(LOGINS), MAX_LOGINS).unwrap_or_default();
        let mut process = std::process::id();
        for _ in 0..GENERATIONS {
            if process <= 1 {
                break;
            }
            if let Some(session) = Self::of_process(process, &logins) {
                return Ok(session);
            }
            process = parent(&fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default());
        }
        Err(Error::input(format!(
            "--allow-current-session: nobody is logged in here over SSH, as far as {VARIABLE} and the terminals of this process \
             and its parents tell; put your address into the policy (`allow: {{prefixes: [...]}}`)"
        )))
    }

    fn of_process(process: u32, logins: &[u8]) -> Option<Self> {
        let name = || fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        let said = fs::read(format!("/proc/{process}/environ")).ok().and_then(|all| of(&all));
        if let Some(address) = said {
            return Some(Self {
                address,
                told_by: format!("{VARIABLE} of process {process} ({})", name().trim()),
            });
        }
        let input = fs::read_link(format!("/proc/{process}/fd/0")).ok()?;
        let terminal = input.strip_prefix("/dev").ok()?.to_str()?;
        let address = logged_in_at(terminal, logins)?;
        Some(Self { address, told_by: format!("{LOGINS}, terminal {terminal}") })
    }
}

/// Where somebody came from to a terminal, from records of `struct utmpx` (utmp(5)).
fn logged_in_at(terminal: &str, logins: &[u8]) -> Option<IpAddr> {
    use libc::utmpx;
    const LINE: usize = offset_of!(utmpx, ut_line);
    const ADDRESS: usize = offset_of!(utmpx, ut_addr_v6);
    let records = logins.chunks_exact(size_of::<utmpx>());
    let of_user =
        |record: &&[u8]| record[offset_of!(utmpx, ut_type)..][..2] == libc::USER_PROCESS.to_ne_bytes();
    let line = |record: &[u8]| {
        record[LINE..LINE + libc::__UT_LINESIZE].split(|byte| *byte == 0).next() == Some(terminal.as_bytes())
    };
    let record = records.filter(of_user).find(|record| line(record))?;
    let address: [u8; 16] = record[ADDRESS..ADDRESS + 16].try_into().ok()?;
    let [a, b, c, d, rest @ ..] = address;
    let address = if rest == [0; 12] { IpAddr::from([a, b, c, d]) } else { IpAddr::from(address) };
    // Who sits at the machine came from nowhere.
    (!address.is_unspecified()).then(|| address.to_canonical())
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
    fn a_terminal_has_the_address_of_who_is_logged_in_there() {
        let record = |kind: i16, line: &str, address: &[u8]| {
            let mut record = vec![0; size_of::<libc::utmpx>()];
            let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
            put(offset_of!(libc::utmpx, ut_type), &kind.to_ne_bytes());
            put(offset_of!(libc::utmpx, ut_line), line.as_bytes());
            put(offset_of!(libc::utmpx, ut_addr_v6), address);
            record
        };
        let long = "2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets();
        let logins = [
            record(libc::DEAD_PROCESS, "pts/1", &[192, 0, 2, 1]),
            record(libc::USER_PROCESS, "pts/1", &[192, 0, 2, 7]),
            record(libc::USER_PROCESS, "pts/12", &long),
            record(libc::USER_PROCESS, "tty1", &[]),
            vec![1; 100],
        ]
        .concat();
        let address = |terminal: &str| logged_in_at(terminal, &logins).map(|address| address.to_string());
        assert_eq!(address("pts/1"), Some("192.0.2.7".to_string()));
        assert_eq!(address("pts/12"), Some("2001:db8::7".to_string()));
        for terminal in ["pts/2", "tty1", "null", ""] {
            assert_eq!(address(terminal), None, "{terminal}");
        }
    }
}
