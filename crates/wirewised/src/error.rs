// SPDX-License-Identifier: Apache-2.0
//! The one error type of the agent. Its kind is the exit code, its message one line that names the input, the rule
//! it broke and the way out.

use std::fmt;

use crate::harmless::harmless;

/// What went wrong, as a script that calls the agent needs to tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An input or option breaks a rule.
    Input,
    /// A privilege, kernel feature, driver feature or interface is missing.
    Missing,
    /// The kernel verifier refused a program.
    Refused,
    /// `status --check`: nothing is attached, or not any more.
    NotAttached,
    /// `status --check`: whether something is attached cannot be seen from here.
    Unknown,
    /// `status --check`: of what is attached, something cannot be read.
    Unreadable,
    /// Anything else.
    Other,
}

impl Kind {
    const ALL: [Self; 7] = [
        Kind::Other,
        Kind::Input,
        Kind::Missing,
        Kind::Refused,
        Kind::NotAttached,
        Kind::Unknown,
        Kind::Unreadable,
    ];

    /// Of a command of this agent; an exit code of no kind, such as a signal's, is `Other`.
    pub fn of_exit_code(code: Option<i32>) -> Self {
        let found = Self::ALL.into_iter().find(|kind| code == Some(kind.exit_code().into()));
        found.unwrap_or(Kind::Other)
    }

    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Other => 1,
            Kind::Input => 2,
            Kind::Missing => 3,
            Kind::Refused => 4,
            Kind::NotAttached => 5,
            Kind::Unknown => 6,
            Kind::Unreadable => 7,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    message: String,
}

pub type Result<T> = std::result::Result<T, Error>;

/// Longer than any message that does not quote a whole input.
const MAX_MESSAGE: usize = 1500;

/// Messages quote inputs, which may hold anything: no line break, no escape sequence reaches a terminal.
fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty());
    // Written out before it is cut: that makes it longer.
    let mut text = harmless(&lines.collect::<Vec<_>>().join("; ").replace('\t', " ")).into_owned();
    if text.len() > MAX_MESSAGE {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE));
        text.push_str(" ...");
    }
    text
}

impl Error {
    pub fn new(kind: Kind, message: impl fmt::Display) -> Self {
        Self { kind, message: one_line(&message.to_string()) }
    }

    pub fn input(message: impl fmt::Display) -> Self {
        Self::new(Kind::Input, message)
    }

    pub fn missing(message: impl fmt::Display) -> Self {
        Self::new(Kind::Missing, message)
    }

    pub fn refused(message: impl fmt::Display) -> Self {
        Self::new(Kind::Refused, message)
    }

    pub fn not_attached(message: impl fmt::Display) -> Self {
        Self::new(Kind::NotAttached, message)
    }

    pub fn unknown(message: impl fmt::Display) -> Self {
        Self::new(Kind::Unknown, message)
    }

    pub fn unreadable(message: impl fmt::Display) -> Self {
        Self::new(Kind::Unreadable, message)
    }

    pub fn other(message: impl fmt::Display) -> Self {
        Self::new(Kind::Other, message)
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }
}

/// What the system ran out of, where a library's message ends with the number of that error.
pub fn shortage(message: &str) -> Option<&'static str> {
    let (_, number) = message.rsplit_once("(os error ")?;
    match number.split(')').next()?.parse().ok()? {
        libc::EMFILE => {
            Some("too many open files for this process: raise the limit, such as `ulimit -n 1024`")
        }
        libc::ENFILE => Some("too many open files on this machine (sysctl fs.file-max)"),
        libc::ENOMEM => {
            Some("out of memory: a limit of this process (`ulimit -v`), of its cgroup, or of the machine")
        }
        _ => None,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line() {
        let error = Error::input("policy.yaml: unknown class\n  known: a, b\n");
        assert_eq!(error.to_string(), "policy.yaml: unknown class; known: a, b");
        assert_eq!(error.kind().exit_code(), 2);
    }

    #[test]
    fn what_a_message_quotes_does_no_harm() {
        assert_eq!(Error::input("a\r\u{1b}[2Jb").to_string(), "a\\u000d\\u001b[2Jb");
        assert!(Error::input("x".repeat(1 << 20)).to_string().len() < 2000);
    }

    #[test]
    fn what_the_system_ran_out_of_is_said() {
        assert!(
            shortage("bpf_object__open: Too many open files (os error 24)").unwrap().contains("ulimit -n")
        );
        assert!(
            shortage("mmap: Cannot allocate memory (os error 12): map").unwrap().contains("out of memory")
        );
        assert_eq!(shortage("Invalid argument (os error 22)"), None);
        assert_eq!(shortage("no number"), None);
    }

    #[test]
    fn kinds_have_the_documented_exit_codes() {
        assert!(Kind::ALL.iter().all(|kind| Kind::of_exit_code(Some(kind.exit_code().into())) == *kind));
        assert_eq!([None, Some(130)].map(Kind::of_exit_code), [Kind::Other; 2]);
        let attached = [Kind::NotAttached, Kind::Unknown, Kind::Unreadable];
        let kinds = [Kind::Other, Kind::Input, Kind::Missing, Kind::Refused];
        assert_eq!((kinds.map(Kind::exit_code), attached.map(Kind::exit_code)), ([1, 2, 3, 4], [5, 6, 7]));
    }
}
