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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::path::{Path, PathBuf};
    use std::sync::{Arc, RwLock};

    use proptest::collection::vec;
    use proptest::option::weighted;
    use proptest::prelude::*;
    use proptest::sample::select;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::sync::mpsc::unbounded_channel;
    use wirewised::attachment::pins::Root;

    use super::*;
    use crate::agent::Agent;
    use crate::config::Token;
    use crate::keeper::{Board, Event};

    /// At most, in one of 256 cases: 10,000 together.
    const REQUESTS: usize = 80;
    /// SHA-256 of the token `of a test`.
    const DIGEST: &str = "0e4469ed8a3e1739d5dac1e53ea8bc2fc59ac6707695032a8a85c8f6b6f13180";

    /// Beside those of `routes`: the page, and what there is not.
    const PATHS: &[&str] = &[
        "/metrics",
        "/api/v1/state",
        "/api/v1/status",
        "/api/v1/policy",
        "/api/v1/stats",
        "/api/v1/drift",
        "/api/v1/card",
        "/api/v1/explain?interface=eth0&features={}",
        "/api/v1/lists",
        "/api/v1/flows",
        "/api/v1/talkers",
        "/api/v1/doctor",
        "/api/v1/openapi.json",
        "/api/v1/reload",
        "/api/v1/rollback?interface=eth0",
        "/api/v1/mode?interface=eth0&mode=enforce",
        "/api/v1/swap?interface=eth0&bundle=b.wirewise",
        "/api/v1/shadow?interface=eth0&change=begin&bundle=@flood",
        "/api/v1/deny?interface=eth0&prefix=192.0.2.1",
        "/api/v1/lift?interface=eth0&list=denied&prefix=192.0.2.1",
        PATH,
        "/",
        "/page.js",
        "/../../etc/passwd",
        "//",
        "*",
    ];
    const NAMES: &[&str] = &[
        "interface",
        "netns",
        "class",
        "mode",
        "seconds",
        "prefix",
        "list",
        "bundle",
        "change",
        "features",
        "sort",
        "limit",
        "since",
        "words",
        "columns",
    ];
    const VALUES: &[&str] = &[
        "",
        "eth0",
        "blue",
        "../x",
        "%00",
        "%ff%fe",
        "%",
        "observe",
        "enforce",
        "0",
        "1",
        "-1",
        "4294967296",
        "99999999999999999999",
        "1e9",
        "10.0.0.0/8",
        "10.0.0.1/8",
        "::/0",
        "192.0.2.1",
        "denied",
        "banned",
        "begin",
        "promote",
        "end",
        "@flood",
        "/etc/shadow",
        "packets",
        "{}",
        "[]",
        "{%22a%22:1}",
        "%5B%22status%22%5D",
        "%5B%22detach%22%5D",
        "%5B%5B%5B%5B",
    ];
    const AUTHORIZATION: &str = "Authorization: Bearer of a test\r\n";
    const HEADERS: &[&str] = &[
        "Accept: */*\r\n",
        "Content-Length: 0\r\n",
        "Expect: 100-continue\r\n",
        "Connection: Upgrade\r\nUpgrade: h2c\r\n",
        "Range: bytes=0-1\r\n",
        "Host: localhost\r\n",
    ];
    const MALFORMED: &[&str] = &[
        "Authorization: Bearer \r\n",
        "Authorization: Basic dTpw\r\n",
        "Content-Length: 7\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Transfer-Encoding: chunked\r\n",
        ": \r\n",
        "A\0: b\r\n",
        " folded\r\n",
    ];

    fn text(choices: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![60 => select(choices).prop_map(|text| text.as_bytes().to_vec()), 1 => vec(any::<u8>(), 0..40)]
    }

    /// What a request may look like: mostly right, so that it comes far, with bytes changed in some.
    fn request() -> impl Strategy<Value = Vec<u8>> {
        let method =
            text(&["GET", "GET", "GET", "POST", "POST", "HEAD", "PUT", "OPTIONS", "CONNECT", "TRACE", "get"]);
        let query = vec((text(NAMES), text(VALUES)), 0..3);
        let headers = vec(prop_oneof![20 => text(HEADERS), 1 => text(MALFORMED)], 0..4);
        let body = vec(any::<u8>(), 0..20);
        let changes = vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
        let parts =
            (method, text(PATHS), query, headers, weighted(0.1, body), weighted(0.1, changes), any::<bool>());
        parts.prop_map(|(method, path, query, headers, body, changes, is_authorized)| {
            let mut bytes = [&method[..], b" ", &path].concat();
            for (name, value) in query {
                let sign: &[u8] = if bytes.contains(&b'?') { b"&" } else { b"?" };
                bytes.extend([sign, &name, b"=", &value].concat());
            }
            bytes.extend_from_slice(b" HTTP/1.1\r\n");
            if is_authorized {
                bytes.extend_from_slice(AUTHORIZATION.as_bytes());
            }
            headers.iter().for_each(|header| bytes.extend_from_slice(header));
            bytes.extend_from_slice(b"\r\n");
            bytes.extend(body.unwrap_or_default());
            for (place, byte) in changes.unwrap_or_default() {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes
        })
    }

    /// Without attachments, and with a keeper that refuses all.
    fn service() -> Service {
        let (tell, mut told) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = told.recv().await {
                let refused = Err(Error::input("a test changes nothing"));
                if let Event::Reload { answer: Some(answer) } | Event::Operate { answer, .. } = event {
                    let _ = answer.send(refused);
                }
            }
        });
        let token = Token { name: "a".to_string(), role: Role::Operate, sha256: DIGEST.to_string() };
        Service {
            root: Root::at(Path::new("/nonexistent")),
            agent: Agent::new(PathBuf::from("/nonexistent"), PathBuf::from("/nonexistent")),
            board: Board::default(),
            tell,
            tokens: Arc::new(RwLock::new(vec![token])),
        }
    }

    /// The answers to some bytes. Requests that end the connection follow them, more than a body may swallow.
    async fn answers(sent: &[u8], routes: Router) -> String {
        let last = "\r\n\r\nGET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".repeat(10);
        let (near, far) = duplex(64 << 10);
        let (mut from, mut to) = tokio::io::split(near);
        let mut all = Vec::new();
        let peer = async {
            // Whoever is refused may find the connection closed before all is sent.
            let sent = [sent, last.as_bytes()].concat();
            let _ = tokio::join!(to.write_all(&sent), from.read_to_end(&mut all));
        };
        let _ = tokio::join!(serve(far, routes), peer);
        String::from_utf8_lossy(&all).into_owned()
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    /// What a peer of `listen` can reach, or one of the control socket.
    fn reachable(is_local: bool) -> Router {
        let service = service();
        if !is_local {
            return routes(service).layer(Extension(Origin(IpAddr::V4(Ipv4Addr::LOCALHOST))));
        }
        let reader = Router::new().route(PATH, get(reader::command)).with_state(service.clone());
        let peer = Peer { name: "user 0".to_string(), role: Role::Operate };
        routes(service).merge(reader).layer(Extension(peer))
    }

    proptest! {
        #[test]
        fn whatever_is_sent_nothing_panics(requests in vec(request(), 0..REQUESTS), is_local: bool) {
            let all = runtime().block_on(async {
                let (routes, mut all) = (reachable(is_local), Vec::new());
                for request in &requests {
                    all.push(answers(request, routes.clone()).await);
                }
                // And all by one connection, until one is malformed.
                all.push(answers(&requests.concat(), routes).await);
                all
            });
            for said in all {
                prop_assert!(said.is_empty() || said.starts_with("HTTP/1."), "{said}");
                prop_assert!(!said.contains("HTTP/1.1 500"), "{said}");
            }
        }
    }

    #[test]
    fn such_requests_come_as_far_as_the_keeper() {
        let sent = b"POST /api/v1/deny?interface=eth0&prefix=192.0.2.1 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer of a test\r\n\r\n";
        let said = runtime().block_on(async { answers(sent, reachable(false)).await });
        assert!(said.starts_with("HTTP/1.1 409") && said.contains("a test changes nothing"), "{said}");
    }
}
