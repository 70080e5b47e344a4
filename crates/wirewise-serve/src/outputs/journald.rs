// SPDX-License-Identifier: Apache-2.0
//! The journal, by its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): a datagram with a field per line.

use std::io;

use super::receiver::{self, Receiver};
use super::{Sent, Sink};

pub struct Journal(pub Receiver);

impl Sink for Journal {
    fn send(&mut self, Sent { json, kind, severity, event, .. }: &Sent) -> io::Result<()> {
        let mut datagram = Vec::new();
        add(&mut datagram, "MESSAGE", json);
        add(&mut datagram, "PRIORITY", &severity.to_string());
        add(&mut datagram, "SYSLOG_IDENTIFIER", "wirewise");
        add(&mut datagram, "WIREWISE_EVENT_TYPE", kind);
        let address = |address: Option<std::net::IpAddr>| address.map(|it| it.to_string());
        let fields = event.iter().flat_map(|event| {
            [
                ("WIREWISE_INTERFACE", Some(event.in_iface.clone())),
                ("WIREWISE_CLASS", Some(event.wirewise.class.clone())),
                ("WIREWISE_OUTCOME", event.wirewise.outcome.map(|outcome| outcome.name().to_string())),
                ("WIREWISE_FLOW_ID", Some(event.flow_id.to_string())),
                ("WIREWISE_SRC_IP", address(event.flow.src_ip)),
                ("WIREWISE_DEST_IP", address(event.flow.dest_ip)),
            ]
        });
        for (name, value) in fields {
            if let Some(value) = value {
                add(&mut datagram, name, &value);
            }
        }
        self.0.send(&datagram)
    }

    fn may_pass(&self, error: &io::Error) -> bool {
        receiver::may_pass(error)
    }
}

/// A value of several lines has its length in front, so nobody's value can begin another field.
fn add(datagram: &mut Vec<u8>, name: &str, value: &str) {
    datagram.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        datagram.push(b'\n');
        datagram.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        datagram.push(b'=');
    }
    datagram.extend_from_slice(value.as_bytes());
    datagram.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_feed_begins_no_field() {
        let mut datagram = Vec::new();
        add(&mut datagram, "A", "b=c");
        add(&mut datagram, "D", "e\nPRIORITY=0");
        assert_eq!(datagram, b"A=b=c\nD\n\x0c\0\0\0\0\0\0\0e\nPRIORITY=0\n");
    }
}
