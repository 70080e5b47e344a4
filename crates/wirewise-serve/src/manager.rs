// SPDX-License-Identifier: Apache-2.0
//! What passes between the service manager and the service: sockets that it listened on before the service ran, and messages to it that
//! the service is ready, its status, and signs of life.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::LazyLock;

use sd_notify::NotifyState;
use socket2::{Socket, Type};
use tokio::net::{TcpListener, UnixListener};
use wirewised::error::{Error, Result};

/// Whether the manager ends a service that is silent (`WatchdogSec=`).
static WATCHED: LazyLock<bool> = LazyLock::new(|| sd_notify::watchdog_enabled(false, &mut 0));

pub fn ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(status)]);
}

pub fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Tells that work goes on. Called where work is done and never by a timer: whoever hangs is silent.
pub fn progress() {
    if *WATCHED {
        notify(&[NotifyState::Watchdog]);
    }
}

/// Sockets on which connections may wait already (`ListenStream=` of a unit for a socket). They belong to the manager, and stay when the service
/// ends.
#[derive(Debug, Default)]
pub struct Sockets {
    pub control: Option<UnixListener>,
    pub listen: Option<TcpListener>,
}

/// control, listen : where the configuration has them. A socket elsewhere is refused, for nobody would answer there.
pub fn sockets(control: &Path, listen: Option<SocketAddr>) -> Result<Sockets> {
    let failed = |error: io::Error| Error::input(format!("a socket of the service manager: {error}"));
    let mut sockets = Sockets::default();
    for descriptor in sd_notify::listen_fds().map_err(failed)? {
        // SAFETY: the manager has opened it for this process, and the variables that say so are gone: nobody takes it again.
        let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(descriptor) });
        let address = socket.local_addr().map_err(failed)?;
        socket.set_nonblocking(true).map_err(failed)?;
        let is_stream =
            socket.r#type().map_err(failed)? == Type::STREAM && socket.is_listener().map_err(failed)?;
        if is_stream && address.as_pathname() == Some(control) {
            sockets.control = Some(UnixListener::from_std(socket.into()).map_err(failed)?);
        } else if is_stream && address.as_socket().is_some() && address.as_socket() == listen {
            sockets.listen = Some(TcpListener::from_std(socket.into()).map_err(failed)?);
        } else {
            let at = address.as_pathname().map(|path| path.display().to_string());
            let at = at.or_else(|| address.as_socket().map(|it| it.to_string())).unwrap_or_default();
            return Err(Error::input(format!(
                "the service manager listens at '{at}', which is neither `socket: {{path: {}}}` of the configuration nor its \
                 `listen`; change `ListenStream=` of the unit or the configuration",
                control.display()
            )));
        }
    }
    Ok(sockets)
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(false, states) {
        tracing::warn!("the service manager could not be told: {error}");
    }
}
