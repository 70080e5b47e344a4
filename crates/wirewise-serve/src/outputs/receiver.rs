// SPDX-License-Identifier: Apache-2.0
//! A socket that somebody else reads from, and that is connected again when it has to be.

use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use socket2::{Domain, SockAddr, Socket, Type};

/// How long connecting may take.
const TO_CONNECT: Duration = Duration::from_secs(5);
/// How long another host may leave what was sent unanswered.
const TO_ANSWER: Duration = Duration::from_secs(30);

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

    pub fn ip(address: SocketAddr, kind: Type) -> Self {
        Self { address: address.into(), kind, socket: None }
    }

    pub fn is_stream(&self) -> bool {
        self.kind == Type::STREAM
    }

    /// Sends one message whole, and waits while the receiver has no room. After an error the next one goes over another connection.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        let open = self.socket.take().filter(|socket| !self.is_stream() || is_open(socket));
        let mut socket = open.map_or_else(|| self.connect(), Ok)?;
        match self.is_stream() {
            true => socket.write_all(message)?,
            false => _ = socket.send(message)?,
        }
        self.socket = Some(socket);
        Ok(())
    }

    fn connect(&self) -> io::Result<Socket> {
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
