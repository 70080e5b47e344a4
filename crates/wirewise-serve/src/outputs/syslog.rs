// SPDX-License-Identifier: Apache-2.0
//! Syslog as in RFC 5424: in datagrams (RFC 5426), or by TCP with the length of each message in front of it (RFC 6587, 3.4.1).

use std::io;

use super::receiver::{self, Receiver};
use super::{Sent, Sink};

/// By their numbers (RFC 5424, table 1).
pub const FACILITIES: &[&str] = &[
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
    "ntp", "security", "console", "clock", "local0", "local1", "local2", "local3", "local4", "local5",
    "local6", "local7",
];
/// Longest name of a host (RFC 5424, 6).
const HOST_NAME: usize = 255;

pub struct Syslog {
    receiver: Receiver,
    facility: u8,
    counts_octets: bool,
    host: String,
}

impl Syslog {
    pub fn new(receiver: Receiver, facility: u8, counts_octets: bool) -> Self {
        let host = wirewised::kernel::host_name().unwrap_or_default();
        Self { receiver, facility, counts_octets, host }
    }

    fn message(&self, Sent { json, timestamp, kind, host, severity, .. }: &Sent) -> String {
        let priority = self.facility * 8 + severity;
        // RFC 3339 has a colon in the zone, EVE has none.
        let time = timestamp.replace("+0000", "+00:00");
        let host = header(host.as_deref().unwrap_or(&self.host));
        let process = std::process::id();
        format!("<{priority}>1 {time} {host} wirewise {process} {kind} - {json}")
    }
}

impl Sink for Syslog {
    fn send(&mut self, sent: &Sent) -> io::Result<()> {
        let message = self.message(sent);
        let framed = if self.counts_octets { format!("{} {message}", message.len()) } else { message };
        self.receiver.send(framed.as_bytes())
    }

    fn may_pass(&self, error: &io::Error) -> bool {
        receiver::may_pass(error)
    }
}

/// A field of the header has printable ASCII characters only, and `-` stands for nothing.
fn header(name: &str) -> String {
    let name: String = name.chars().filter(char::is_ascii_graphic).take(HOST_NAME).collect();
    if name.is_empty() { "-".to_string() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hosts_fit_the_header() {
        assert_eq!(["a b\n<c>", "ä", ""].map(header), ["ab<c>", "-", "-"]);
        assert_eq!(header(&"x".repeat(300)).len(), 255);
    }
}
