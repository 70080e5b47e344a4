// SPDX-License-Identifier: Apache-2.0
//! The two doors of the API: the control socket, where the kernel names the peer, and `listen`, which wants a token. Both have the same
//! routes.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use wirewised::commands::by_service::PATH;
use wirewised::error::{Error, Result};

use crate::api::{self, Origin, Peer, Service, routes};
use crate::config::{Role, Socket};
use crate::limits::Limits;
use crate::reader;
use crate::seldom::Seldom;
use crate::tls::Current;

/// Connections that are answered at a time at each of the two; more are closed at once.
const CONNECTIONS: usize = 64;
/// How long encryption may take to be agreed on, a request's head to arrive, and a connection to be idle.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection to `listen` may last.
const LONGEST: Duration = Duration::from_secs(60);

/// Opens the control socket. One that nobody listens on, of an earlier service, is replaced.
pub fn control_socket(socket: &Socket) -> Result<UnixListener> {
    let path = &socket.path;
    let failed =
        |what: &str, error: io::Error| Error::missing(format!("{}: {what}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| failed("its folder", error))?;
    }
    if let Ok(metadata) = std::fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(Error::input(format!(
                "{} is there and no socket; name another with `socket`",
                path.display()
            )));
        }
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(Error::input(format!("another service answers at {}", path.display())));
        }
        std::fs::remove_file(path).map_err(|error| failed("cannot be replaced", error))?;
    }
    let listener = UnixListener::bind(path).map_err(|error| failed("cannot be opened", error))?;
    let mode = if socket.group.is_some() { 0o660 } else { 0o600 };
    if let Some(group) = &socket.group {
        std::os::unix::fs::chown(path, None, Some(group_id(group)?))
            .map_err(|error| failed("its group", error))?;
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .map_err(|error| failed("its mode", error))?;
    Ok(listener)
}

fn group_id(name: &str) -> Result<u32> {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let of = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    groups.lines().find_map(of).ok_or_else(|| {
        Error::input(format!(
            "`socket`: no group '{name}' on this machine; `groupadd --system {name}` makes it"
        ))
    })
}

/// The peer's role by its credentials: root may change things; others whom the socket's mode admits may read.
fn peer(stream: &UnixStream) -> Option<Peer> {
    let credentials = stream.peer_cred().ok()?;
    // SAFETY: takes nothing, and cannot fail.
    let own = unsafe { libc::geteuid() };
    let operates = credentials.uid() == 0 || credentials.uid() == own;
    let role = if operates { Role::Operate } else { Role::Read };
    Some(Peer { name: format!("user {}", credentials.uid()), role })
}

/// Answers on the control socket until the process ends.
pub async fn answer_locally(listener: UnixListener, service: Service) {
    // Not for tokens, and not described: it is between programs of one installation.
    let reader = Router::new().route(PATH, get(reader::command)).with_state(service.clone());
    let (routes, limit) = (routes(service).merge(reader), Arc::new(Semaphore::new(CONNECTIONS)));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (Some(peer), Ok(permit)) = (peer(&stream), Arc::clone(&limit).try_acquire_owned()) else {
                    continue;
                };
                let routes = routes.clone().layer(Extension(peer));
                tokio::spawn(async move {
                    // A reader may follow events for as long as he likes.
                    let _ = serve(stream, routes).await;
                    drop(permit);
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Answers by HTTP until the process ends. tls : `None` only where no other host can ask.
pub async fn answer_by_tcp(
    listener: TcpListener,
    service: Service,
    tls: Option<Arc<Current>>,
    limits: Arc<Limits>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let routes = routes(service).layer(middleware::from_fn_with_state(Arc::clone(&limits), limit));
    let unencrypted = Arc::new(Seldom::default());
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let Some(own) = limits.connects(from.ip()) else { continue };
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                let routes = routes.clone().layer(Extension(Origin(from.ip().to_canonical())));
                let (tls, unencrypted) = (tls.clone(), Arc::clone(&unencrypted));
                tokio::spawn(async move {
                    match tls {
                        None => answer(stream, routes).await,
                        Some(tls) => match timeout(PATIENCE, tls.encrypt(stream)).await {
                            Ok(Ok(stream)) => answer(stream, routes).await,
                            Ok(Err(error)) if unencrypted.is_due() => {
                                tracing::warn!("no TLS with {from}: {error}");
                            }
                            _ => {}
                        },
                    }
                    drop((own, place));
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Answers an address that asks too often, or too often without a token, before anything is looked at.
async fn limit(
    State(limits): State<Arc<Limits>>,
    Extension(Origin(address)): Extension<Origin>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(wait) = limits.asks(address) {
        let seconds = (wait.as_secs() + 1).to_string();
        let why =
            api::said(StatusCode::TOO_MANY_REQUESTS, "too many requests from this address; ask again later");
        return ([(header::RETRY_AFTER, seconds)], why).into_response();
    }
    let answer = next.run(request).await;
    if answer.status() == StatusCode::UNAUTHORIZED {
        limits.failed(address);
    }
    answer
}

/// Where, for one, descriptors have run out.
async fn pause(error: &io::Error) {
    tracing::warn!("a connection was not taken: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// For a while, whoever asks.
async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, routes: Router) {
    // Whoever hangs up, or says what is no HTTP, has no answer.
    let _ = timeout(LONGEST, serve(stream, routes)).await;
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    routes: Router,
) -> hyper::Result<()> {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(16 << 10)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes))
        .await
}
