// SPDX-License-Identifier: Apache-2.0
//! A socket that somebody else reads from, and that is connected again when it has to be.

use std::fmt;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

/// How long connecting may take.
const TO_CONNECT: Duration = Duration::from_secs(5);
/// How long another host may leave what was sent unanswered.
const TO_ANSWER: Duration = Duration::from_secs(30);

/// Where a receiver is, as the configuration writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Unix(PathBuf),
    Udp(SocketAddr),
    Tcp(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ip = |text: &str| {
            text.parse().map_err(|_| {
                format!("'{text}' is not an address with a port, such as 192.0.2.1:514 or [2001:db8::1]:514")
            })
        };
        match text.split_once("://") {
            None => Ok(Self::Unix(PathBuf::from(text))),
            Some(("udp", address)) => Ok(Self::Udp(ip(address)?)),
            Some(("tcp", address)) => Ok(Self::Tcp(ip(address)?)),
            Some((other, _)) => Err(format!(
                "'{other}://' is not known; there are: udp://ADDRESS:PORT, tcp://ADDRESS:PORT, a socket's path"
            )),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "{}", path.display()),
            Self::Udp(address) => write!(f, "udp://{address}"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

impl Address {
    /// Datagrams go to a path. Refuses one that is too long for a socket.
    pub fn receiver(&self) -> io::Result<Receiver> {
        match self {
            Self::Unix(path) => Receiver::unix(path, Type::DGRAM),
            Self::Udp(address) => Ok(Receiver::ip(*address, Type::DGRAM)),
            Self::Tcp(address) => Ok(Receiver::ip(*address, Type::STREAM)),
        }
    }
}

pub struct Receiver {
    address: SockAddr,
    kind: Type,
    socket: Option<Socket>,
}

impl Receiver {
    /// Refuses a path that is too long for a socket.
    pub fn unix(path: &Path, kind: Type) -> io::Result<Self> {
        Ok(Self { address: SockAddr::unix(path)?, kind, socket: None })
    }

    fn ip(address: SocketAddr, kind: Type) -> Self {
        Self { address: address.into(), kind, socket: None }
    }

    pub fn is_stream(&self) -> bool {
        self.kind == Type::STREAM
    }

    /// Sends one message whole, and waits while the receiver has no room. After an error the next one goes over another connection.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.connect()?;
        self.send_on(message)
    }

    /// As `send`, but only over the connection that `connect` left.
    pub fn send_on(&mut self, message: &[u8]) -> io::Result<()> {
        let mut socket = self.socket.take().ok_or(io::ErrorKind::NotConnected)?;
        match self.is_stream() {
            true => socket.write_all(message)?,
            false => _ = socket.send(message)?,
        }
        self.socket = Some(socket);
        Ok(())
    }

    /// Connects unless a connection is open; one that the receiver has closed is not. Returns whether the connection is new.
    pub fn connect(&mut self) -> io::Result<bool> {
        let stream = self.is_stream();
        self.socket = self.socket.take().filter(|socket| !stream || is_open(socket));
        if self.socket.is_some() {
            return Ok(false);
        }
        self.socket = Some(self.open()?);
        Ok(true)
    }

    fn open(&self) -> io::Result<Socket> {
        let socket = Socket::new(self.address.domain(), self.kind, None)?;
        if self.is_stream() && self.address.domain() != Domain::UNIX {
            socket.set_tcp_user_timeout(Some(TO_ANSWER))?;
        }
        socket.connect_timeout(&self.address, TO_CONNECT)?;
        Ok(socket)
    }
}

/// Whether the receiver has not hung up, which writing to it would show one message too late. What it says is thrown away.
fn is_open(socket: &Socket) -> bool {
    let mut said = [MaybeUninit::uninit(); 512];
    match socket.recv_with_flags(&mut said, libc::MSG_DONTWAIT) {
        Ok(length) => length > 0,
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

/// Whether a message that was refused may be taken later: not one that is too long.
pub fn may_pass(error: &io::Error) -> bool {
    error.raw_os_error() != Some(libc::EMSGSIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in ["/dev/log", "udp://192.0.2.1:514", "tcp://[2001:db8::1]:601"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for (text, why) in [("tls://192.0.2.1:6514", "'tls://'"), ("udp://loghost:514", "'loghost:514'")] {
            assert!(text.parse::<Address>().unwrap_err().contains(why), "{text}");
        }
    }
}
