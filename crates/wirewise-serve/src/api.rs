// SPDX-License-Identifier: Apache-2.0
//! The API, for peers whom the kernel names (by the control socket) and for tokens (by `listen`). Without either, a request learns
//! nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use axum::extract::{FromRequestParts, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::{Semaphore, oneshot};
use utoipa::{IntoParams, OpenApi, ToSchema};
use wirewised::abi::Mode;
use wirewised::attachment::lists::Lists;
use wirewised::attachment::pins::Root;
use wirewised::attachment::{Attachment, Listing};
use wirewised::error::{Error, Result};
use wirewised::policy::Prefix;
use wirewised::reading::events as agent;
use wirewised::reading::flows::{Sort, Wanted};
use wirewised::reading::status::Status;

use crate::agent::{Agent, Order as Command};
use crate::config::{Place, Role, Token, check_netns};
use crate::events::{Hears, Told, follow};
use crate::keeper::{Board, Event, Health, Operation, Summary};
use crate::kept::hexadecimal;
use crate::openapi::{Described, Failure, Readings};
use crate::talkers::Talkers;
use crate::{metrics, page};

/// Flows in one answer.
const MOST_FLOWS: usize = 1000;
/// Entries of a list in one answer.
const MOST_LISTED: usize = 1000;
/// Sources, and targets, in one answer.
const MOST_TALKERS: usize = 100;
/// One at a time: lists and flow tables may have millions of entries.
static LISTING: Mutex<()> = Mutex::new(());
/// Examinations at a time, each of which is a process.
static EXAMINATIONS: Semaphore = Semaphore::const_new(2);
/// A month, in seconds: what is to last longer belongs into the policy.
const LONGEST: u32 = 30 * 24 * 3600;
/// Events that may wait for a slow reader.
const TOLD_AT_A_TIME: usize = 4096;

/// What requests are answered from.
#[derive(Clone)]
pub struct Service {
    pub root: Root,
    pub agent: Agent,
    pub board: Board,
    pub tell: UnboundedSender<Event>,
    pub tokens: Arc<RwLock<Vec<Token>>>,
}

/// Who asks by the control socket.
#[derive(Debug, Clone)]
pub struct Peer {
    pub name: String,
    pub role: Role,
}

/// Where a request by `listen` comes from.
#[derive(Debug, Clone, Copy)]
pub struct Origin(pub IpAddr);

/// A new token, and the line of the configuration that admits whoever has it.
pub fn new_token(name: &str, role: Role) -> Result<(String, String)> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::other(format!("random numbers: {error}")))?;
    let token = hexadecimal(&bytes);
    let role = serde_json::to_value(role).map_err(|error| Error::other(error.to_string()))?;
    let line = format!(
        "{{name: {}, role: {}, sha256: {}}}",
        json!(name),
        role.as_str().unwrap_or_default(),
        hexadecimal(&Sha256::digest(&token))
    );
    Ok((token, line))
}

pub fn routes(service: Service) -> Router {
    Router::new()
        .route("/metrics", get(numbers))
        .route("/api/v1/state", get(state))
        .route("/api/v1/status", get(status))
        .route("/api/v1/policy", get(policy))
        .route("/api/v1/stats", get(stats))
        .route("/api/v1/drift", get(drift))
        .route("/api/v1/card", get(card))
        .route("/api/v1/explain", get(explain))
        .route("/api/v1/lists", get(lists))
        .route("/api/v1/flows", get(flows))
        .route("/api/v1/talkers", get(talkers))
        .route("/api/v1/events", get(events))
        .route("/api/v1/doctor", get(doctor))
        .route("/api/v1/openapi.json", get(openapi))
        .route("/api/v1/reload", post(reload))
        .route("/api/v1/mode", post(mode))
        .route("/api/v1/rollback", post(rollback))
        .route("/api/v1/swap", post(swap))
        .route("/api/v1/shadow", post(shadow))
        .route("/api/v1/allow", post(allow))
        .route("/api/v1/deny", post(deny))
        .route("/api/v1/lift", post(lift))
        .fallback(async || StatusCode::NOT_FOUND)
        .layer(middleware::from_fn_with_state(service.clone(), admit))
        // The page says nothing by itself; what it shows it asks for with the reader's token.
        .merge(page::routes())
        .with_state(service)
}

/// Lets through who may ask for this: reading needs either role, changing `operate`.
async fn admit(State(service): State<Service>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned().or_else(|| bearer(&service, &request));
    let Some(peer) = peer else {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")]).into_response();
    };
    let reads = request.method().is_safe();
    let path = request.uri().path().to_string();
    if !reads {
        let admitted = peer.role >= Role::Operate;
        let verdict = if admitted { "admitted" } else { "refused" };
        tracing::info!("audit: {} asks for {} {path:?}: {verdict}", peer.name, request.method());
        service.board.audit(json!({
            "peer": peer.name, "method": request.method().as_str(), "path": path,
            "query": request.uri().query(), "result": verdict,
        }));
        if !admitted {
            return said(StatusCode::FORBIDDEN, "this needs the role `operate`");
        }
    }
    next.run(request).await
}

fn bearer(service: &Service, request: &Request) -> Option<Peer> {
    let given = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")?;
    // The digests are compared, so the time it takes says nothing about a token.
    let digest = hexadecimal(&Sha256::digest(given.trim()));
    let tokens = service.tokens.read().unwrap_or_else(PoisonError::into_inner);
    let token = tokens.iter().find(|token| token.sha256.eq_ignore_ascii_case(&digest))?;
    let Origin(address) = request.extensions().get()?;
    Some(Peer { name: format!("token '{}' from {address}", token.name), role: token.role })
}

/// The query, or what is wrong with it, in the form of all errors.
pub struct Asked<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> std::result::Result<Self, Response> {
        let read = Query::try_from_uri(&parts.uri);
        read.map(|Query(asked)| Self(asked))
            .map_err(|error| said(StatusCode::BAD_REQUEST, &error.body_text()))
    }
}

/// An error, in the form of all of them.
pub fn said(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({"error": {"message": message}}))).into_response()
}

/// Reads maps in a separate thread, because system calls may block.
async fn reading<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> std::result::Result<T, Response> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(error)) => Err(said(StatusCode::NOT_FOUND, &error.to_string())),
        Err(error) => Err(said(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())),
    }
}

/// Numbers for Prometheus.
#[utoipa::path(get, path = "/metrics", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
pub async fn numbers(State(service): State<Service>) -> std::result::Result<Response, Response> {
    let text = reading(move || {
        metrics::text(&service.root, &service.board)
            .map_err(|error| Error::other(format!("metrics: {error}")))
    });
    Ok(([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text.await?).into_response())
}

/// What the service keeps, what it could not, and why.
#[utoipa::path(get, path = "/api/v1/state", responses((status = 200, body = Health)))]
pub async fn state(State(service): State<Service>) -> Json<Value> {
    Json(json!(service.board.lock().clone()))
}

/// Which interface; all of them if none is named.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Which {
    interface: Option<String>,
}

/// In whichever network namespace.
fn attachments(root: &Root, interface: Option<&str>) -> Result<Vec<Attachment>> {
    let Listing { attachments, .. } = Attachment::all(root)?;
    let wanted = |it: &Attachment| it.link.is_some() && interface.is_none_or(|name| it.interface == name);
    let found: Vec<_> = attachments.into_iter().filter(wanted).collect();
    match interface {
        Some(name) if found.is_empty() => Err(Error::input(format!("nothing is attached to '{name}'"))),
        _ => Ok(found),
    }
}

/// What is attached.
#[utoipa::path(get, path = "/api/v1/status", params(Which), responses((status = 200, body = Readings), (status = 404, body = Failure)))]
pub async fn status(
    State(service): State<Service>,
    Asked(which): Asked<Which>,
) -> std::result::Result<Json<Value>, Response> {
    reading(move || each(&service.root, &which, |it| Ok(json!(it.status()?)))).await
}

/// The policy in force: mode, and what is done with each class.
#[utoipa::path(get, path = "/api/v1/policy", params(Which), responses((status = 200, body = Readings), (status = 404, body = Failure)))]
pub async fn policy(
    State(service): State<Service>,
    Asked(which): Asked<Which>,
) -> std::result::Result<Json<Value>, Response> {
    reading(move || each(&service.root, &which, |it| Ok(in_force(&it.status()?)))).await
}

/// By the names that `status` has.
fn in_force(status: &Status) -> Value {
    json!({
        "interface": status.interface,
        "network_namespace": status.network_namespace,
        "mode": status.mode,
        "mode_as_asked": status.mode_as_asked,
        "enforce_remaining_seconds": status.enforce_remaining_seconds,
        "observe_remaining_seconds": status.observe_remaining_seconds,
        "classes": status.classes,
        "policy": status.policy,
    })
}

/// What was counted.
#[utoipa::path(get, path = "/api/v1/stats", params(Which), responses((status = 200, body = Readings), (status = 404, body = Failure)))]
pub async fn stats(
    State(service): State<Service>,
    Asked(which): Asked<Which>,
) -> std::result::Result<Json<Value>, Response> {
    reading(move || each(&service.root, &which, |it| Ok(json!(it.statistics(&it.counters()?, None)?)))).await
}

/// How far traffic is from what the model was trained on.
#[utoipa::path(get, path = "/api/v1/drift", params(Which), responses((status = 200, body = Readings), (status = 404, body = Failure)))]
pub async fn drift(
    State(service): State<Service>,
    Asked(which): Asked<Which>,
) -> std::result::Result<Json<Value>, Response> {
    reading(move || each(&service.root, &which, |it| Ok(json!(it.drift()?)))).await
}

/// The card of the model that runs: features, classes, and how good it was found to be.
#[utoipa::path(get, path = "/api/v1/card", params(Which), responses((status = 200, body = Readings), (status = 404, body = Failure)))]
pub async fn card(
    State(service): State<Service>,
    Asked(which): Asked<Which>,
) -> std::result::Result<Json<Value>, Response> {
    reading(move || each(&service.root, &which, |it| Ok(json!(it.card()?)))).await
}

/// Who is denied or banned: the first thousand of each list, and how many there are.
#[utoipa::path(get, path = "/api/v1/lists", params(Which), responses((status = 200, body = Readings), (status = 404, body = Failure)))]
pub async fn lists(
    State(service): State<Service>,
    Asked(which): Asked<Which>,
) -> std::result::Result<Json<Value>, Response> {
    reading(move || {
        let _alone = LISTING.lock().unwrap_or_else(PoisonError::into_inner);
        each(&service.root, &which, |it| Ok(json!(Lists::read(it, MOST_LISTED)?)))
    })
    .await
}

/// Which features.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Judged {
    interface: String,
    /// `features` of an event, as JSON.
    features: String,
}

/// Why the model gives an event its class: features in their units, and the way through each tree.
#[utoipa::path(get, path = "/api/v1/explain", params(Judged), responses((status = 200, body = Object), (status = 404, body = Failure)))]
pub async fn explain(
    State(service): State<Service>,
    Asked(judged): Asked<Judged>,
) -> std::result::Result<Json<Value>, Response> {
    reading(move || {
        let found = attachments(&service.root, Some(&judged.interface))?;
        let features: BTreeMap<String, i64> = serde_json::from_str(&judged.features)
            .map_err(|error| Error::input(format!("`features` is not what an event has: {error}")))?;
        // Interfaces of several network namespaces may have the same name.
        let mut why = None;
        for attachment in found {
            match attachment.explain(&features) {
                Ok(explanation) => return Ok(Json(json!(explanation))),
                Err(error) => why = Some(error),
            }
        }
        Err(why.unwrap_or_else(|| Error::input(format!("nothing is attached to '{}'", judged.interface))))
    })
    .await
}

/// Which flows.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WhichFlows {
    interface: Option<String>,
    class: Option<String>,
    /// With the newest packets, or with the most.
    #[serde(default)]
    #[param(inline)]
    sort: Order,
    /// One per attachment.
    #[serde(default = "few")]
    #[param(minimum = 1, maximum = 1000, default = 20)]
    limit: usize,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum Order {
    #[default]
    Newest,
    Packets,
}

fn few() -> usize {
    20
}

/// Flows.
#[utoipa::path(get, path = "/api/v1/flows", params(WhichFlows), responses((status = 200, body = Readings), (status = 404, body = Failure)))]
pub async fn flows(
    State(service): State<Service>,
    Asked(which): Asked<WhichFlows>,
) -> std::result::Result<Json<Value>, Response> {
    if which.limit == 0 || which.limit > MOST_FLOWS {
        return Err(said(StatusCode::BAD_REQUEST, &format!("`limit` must be from 1 to {MOST_FLOWS}")));
    }
    let sort = match which.sort {
        Order::Newest => Sort::Newest,
        Order::Packets => Sort::Packets,
    };
    reading(move || {
        let wanted =
            Wanted { limit: which.limit, sort: Some(sort), class: which.class.clone(), ..Wanted::default() };
        each(&service.root, &Which { interface: which.interface }, |it| {
            let found = it.flows(&wanted)?;
            let mut flows = Vec::new();
            found.each(|flow| {
                flows.push(json!(flow));
                Ok(())
            })?;
            Ok(json!({"interface": it.interface, "count": found.count(), "flows": flows}))
        })
    })
    .await
}

/// How many sources and targets.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct WhichTalkers {
    interface: Option<String>,
    /// Sources, and as many targets, per attachment.
    #[serde(default = "ten")]
    #[param(minimum = 1, maximum = 100, default = 10)]
    limit: usize,
}

fn ten() -> usize {
    10
}

/// Who sends and who receives the most packets, of the flows that are in the tables.
#[utoipa::path(get, path = "/api/v1/talkers", params(WhichTalkers), responses((status = 200, body = Readings), (status = 404, body = Failure)))]
pub async fn talkers(
    State(service): State<Service>,
    Asked(which): Asked<WhichTalkers>,
) -> std::result::Result<Json<Value>, Response> {
    if which.limit == 0 || which.limit > MOST_TALKERS {
        return Err(said(StatusCode::BAD_REQUEST, &format!("`limit` must be from 1 to {MOST_TALKERS}")));
    }
    reading(move || {
        let _alone = LISTING.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = which.limit;
        each(&service.root, &Which { interface: which.interface }, |it| Ok(json!(Talkers::read(it, limit)?)))
    })
    .await
}

/// Events from when on, as Suricata writes their time.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Since {
    since: Option<String>,
}

/// Server-sent events, one for each event of every attachment, those that are kept first.
#[utoipa::path(get, path = "/api/v1/events", params(Since),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn events(State(service): State<Service>, Asked(Since { since }): Asked<Since>) -> Response {
    let (tell, mut told) = mpsc::channel(TOLD_AT_A_TIME);
    // Reading never waits for the connection; a slow reader gets a gap instead.
    std::thread::spawn(move || {
        let mut listener = Browser { tell: tell.clone(), lost: 0 };
        follow(
            &service.root,
            &Told::until(since.as_deref().unwrap_or_default()),
            || !tell.is_closed(),
            &mut listener,
        );
    });
    let stream = futures_util::stream::poll_fn(move |context| {
        told.poll_recv(context)
            .map(|text| text.map(|text: String| Ok::<_, Infallible>(sse::Event::default().data(text))))
    });
    Sse::new(stream).keep_alive(sse::KeepAlive::default()).into_response()
}

struct Browser {
    tell: mpsc::Sender<String>,
    /// Events lost since the last one that was sent.
    lost: u64,
}

impl Hears for Browser {
    fn event(&mut self, _place: &Place, _event: &agent::Event, json: &str) {
        if self.lost > 0 {
            let gap = json!({"event_type": "missed", "events": self.lost}).to_string();
            if self.tell.try_send(gap).is_err() {
                self.lost += 1;
                return;
            }
            self.lost = 0;
        }
        self.lost += u64::from(self.tell.try_send(json.to_string()).is_err());
    }

    fn missed(&mut self, events: u64) {
        self.lost += events;
    }
}

/// What is read of each attachment, beside those that went meanwhile or that this program cannot read.
fn each(root: &Root, which: &Which, read: impl Fn(&Attachment) -> Result<Value>) -> Result<Json<Value>> {
    let (mut all, mut unreadable) = (Vec::new(), Vec::new());
    for attachment in attachments(root, which.interface.as_deref())? {
        match read(&attachment) {
            Ok(said) => all.push(said),
            Err(error) => unreadable.push(error.to_string()),
        }
    }
    Ok(Json(json!({"attachments": all, "unreadable": unreadable})))
}

/// This description.
#[utoipa::path(get, path = "/api/v1/openapi.json", responses((status = 200, body = Object)))]
pub async fn openapi() -> Response {
    Json(Described::openapi()).into_response()
}

/// Reads the configuration again.
#[utoipa::path(post, path = "/api/v1/reload", responses((status = 200, body = Summary)))]
pub async fn reload(State(service): State<Service>) -> Response {
    ask(&service, |answer| Event::Reload { answer: Some(answer) }).await
}

/// Has the keeper do something, and says what became of it.
async fn ask(service: &Service, event: impl FnOnce(oneshot::Sender<Result<Summary>>) -> Event) -> Response {
    let (answer, answered) = oneshot::channel();
    let gone = || said(StatusCode::SERVICE_UNAVAILABLE, "the service is ending");
    if service.tell.send(event(answer)).is_err() {
        return gone();
    }
    match answered.await {
        Ok(Ok(summary)) => Json(json!(summary)).into_response(),
        Ok(Err(error)) => said(StatusCode::CONFLICT, &error.to_string()),
        Err(_) => gone(),
    }
}

/// What is to be changed where.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Change {
    interface: String,
    /// Network namespace, by its name; without it, the service's own.
    netns: Option<String>,
    #[param(inline)]
    mode: WantedMode,
    /// Only this class, as `wirewised mode` does.
    class: Option<String>,
    /// For so long, counted in the data path; afterwards the other mode holds.
    #[param(minimum = 1, maximum = 2_592_000)]
    seconds: Option<u32>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum WantedMode {
    Observe,
    Enforce,
}

/// A place.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct At {
    interface: String,
    /// Network namespace, by its name; without it, the service's own.
    netns: Option<String>,
}

/// Observes or enforces: an interface until its time is over or the configuration is read again, or a class until its time is over or that is
/// changed.
#[utoipa::path(post, path = "/api/v1/mode", params(Change), responses((status = 200, body = Summary)))]
pub async fn mode(service: State<Service>, Asked(change): Asked<Change>) -> Response {
    let mode = match change.mode {
        WantedMode::Observe => Mode::Observe,
        WantedMode::Enforce => Mode::Enforce,
    };
    let place = Place { netns: change.netns, interface: change.interface };
    if change.seconds.is_some_and(|seconds| !(1..=LONGEST).contains(&seconds)) {
        let text = format!("`seconds` must be from 1 to {LONGEST}; without it, the mode stays");
        return said(StatusCode::BAD_REQUEST, &text);
    }
    let operation = match (change.class, change.seconds) {
        (None, None) => Operation::Mode(mode),
        (None, Some(seconds)) => Operation::ModeFor { mode, seconds },
        (Some(class), seconds) => Operation::ClassMode { mode, class, seconds },
    };
    operate(service, place, operation).await
}

/// Undoes the last swap, until the configuration is read again.
#[utoipa::path(post, path = "/api/v1/rollback", params(At), responses((status = 200, body = Summary)))]
pub async fn rollback(service: State<Service>, Asked(at): Asked<At>) -> Response {
    let place = Place { netns: at.netns, interface: at.interface };
    operate(service, place, Operation::Rollback).await
}

/// Which bundle to run where.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Swap {
    interface: String,
    /// Network namespace, by its name; without it, the service's own.
    netns: Option<String>,
    /// A file beside the configuration, or a ready model such as @flood.
    bundle: String,
}

/// Replaces the bundle and keeps the policy, until the configuration is read again.
#[utoipa::path(post, path = "/api/v1/swap", params(Swap), responses((status = 200, body = Summary)))]
pub async fn swap(service: State<Service>, Asked(swap): Asked<Swap>) -> Response {
    let place = Place { netns: swap.netns, interface: swap.interface };
    operate(service, place, Operation::Swap(swap.bundle)).await
}

/// What to do with a shadow where.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Shadow {
    interface: String,
    /// Network namespace, by its name; without it, the service's own.
    netns: Option<String>,
    /// Begin, let it take over, or end it.
    #[param(inline)]
    change: ShadowChange,
    /// To begin with: a file beside the configuration, or a ready model such as @flood.
    bundle: Option<String>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum ShadowChange {
    Begin,
    Promote,
    End,
}

/// Runs a bundle beside the one that judges, on the same packets; lets it take over; or ends it.
#[utoipa::path(post, path = "/api/v1/shadow", params(Shadow), responses((status = 200, body = Summary)))]
pub async fn shadow(service: State<Service>, Asked(shadow): Asked<Shadow>) -> Response {
    let place = Place { netns: shadow.netns, interface: shadow.interface };
    let operation = match (shadow.change, shadow.bundle) {
        (ShadowChange::Begin, Some(bundle)) => Operation::Shadow(bundle),
        (ShadowChange::Begin, None) => {
            return said(StatusCode::CONFLICT, "`change=begin` needs a `bundle`");
        }
        (_, Some(_)) => return said(StatusCode::CONFLICT, "`bundle` is for `change=begin` only"),
        (ShadowChange::Promote, None) => Operation::Promote,
        (ShadowChange::End, None) => Operation::EndShadow,
    };
    operate(service, place, operation).await
}

/// What `wirewised doctor` finds there.
#[utoipa::path(get, path = "/api/v1/doctor", params(At), responses((status = 200, body = Object), (status = 404, body = Failure), (status = 503, body = Failure)))]
pub async fn doctor(State(service): State<Service>, Asked(at): Asked<At>) -> Response {
    if let Some(Err(why)) = at.netns.as_deref().map(check_netns) {
        return said(StatusCode::NOT_FOUND, &why);
    }
    let place = Place { netns: at.netns, interface: at.interface };
    let Ok(_place) = EXAMINATIONS.try_acquire() else {
        return said(StatusCode::SERVICE_UNAVAILABLE, "others are being answered; ask again");
    };
    match service.agent.finds(&Command::doctor(&place)).await {
        Ok(found) => Json(found).into_response(),
        Err(error) => said(StatusCode::NOT_FOUND, &error.to_string()),
    }
}

/// Whom to deny or to allow where.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Entry {
    interface: String,
    /// Network namespace, by its name; without it, the service's own.
    netns: Option<String>,
    /// An address, or a prefix such as 192.0.2.0/24.
    prefix: String,
    #[serde(default = "ten_minutes")]
    #[param(minimum = 1, maximum = 2_592_000, default = 600)]
    seconds: u32,
}

fn ten_minutes() -> u32 {
    600
}

impl Entry {
    /// Where, whom, and for how many seconds. for_good : who stays on the list, and by what.
    fn checked(self, for_good: &str) -> std::result::Result<(Place, Prefix, u32), (StatusCode, String)> {
        let Self { interface, netns, prefix, seconds } = self;
        if !(1..=LONGEST).contains(&seconds) {
            let text = format!("`seconds` must be from 1 to {LONGEST}; {for_good}");
            return Err((StatusCode::BAD_REQUEST, text));
        }
        let prefix = prefix.parse().map_err(|rule| (StatusCode::CONFLICT, rule))?;
        Ok((Place { netns, interface }, prefix, seconds))
    }
}

/// Has all that a prefix sends dropped for a while. The policy has to have a deny list, and whom it allows is let through all the same.
#[utoipa::path(post, path = "/api/v1/deny", params(Entry), responses((status = 200, body = Summary)))]
pub async fn deny(
    service: State<Service>,
    origin: Option<Extension<Origin>>,
    Asked(entry): Asked<Entry>,
) -> Response {
    let (place, prefix, seconds) = match entry.checked("the policy's `deny` has those who stay denied") {
        Ok(checked) => checked,
        Err((code, why)) => return said(code, &why),
    };
    if let Some(Extension(Origin(address))) = origin
        && !address.is_loopback()
        && prefix.contains(address.to_canonical())
    {
        return said(
            StatusCode::CONFLICT,
            &format!("{prefix} holds {address}, from where you ask: you would lock yourself out"),
        );
    }
    operate(service, place, Operation::Deny { prefix, seconds }).await
}

/// Lets through whatever a prefix sends for a while, before the deny list, bans and the model.
#[utoipa::path(post, path = "/api/v1/allow", params(Entry), responses((status = 200, body = Summary)))]
pub async fn allow(service: State<Service>, Asked(entry): Asked<Entry>) -> Response {
    match entry.checked("the policy's `allow` has those who stay allowed") {
        Ok((place, prefix, seconds)) => operate(service, place, Operation::Allow { prefix, seconds }).await,
        Err((code, why)) => said(code, &why),
    }
}

/// Whom to take off a list where.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Pardon {
    interface: String,
    /// Network namespace, by its name; without it, the service's own.
    netns: Option<String>,
    /// As the list has it.
    prefix: String,
    #[param(inline)]
    list: List,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum List {
    /// Only what was denied by hand or by this API.
    Denied,
    Banned,
    /// Only what was allowed by hand or by this API.
    Allowed,
}

/// Lets in again who is denied or banned; ends an allowance.
#[utoipa::path(post, path = "/api/v1/lift", params(Pardon), responses((status = 200, body = Summary)))]
pub async fn lift(service: State<Service>, Asked(pardon): Asked<Pardon>) -> Response {
    let prefix = match pardon.prefix.parse::<Prefix>() {
        Ok(prefix) => prefix,
        Err(rule) => return said(StatusCode::CONFLICT, &rule),
    };
    let operation = match pardon.list {
        List::Denied => Operation::DenyNoLonger(prefix),
        List::Banned => Operation::Pardon(prefix.address),
        List::Allowed => Operation::AllowNoLonger(prefix),
    };
    operate(service, Place { netns: pardon.netns, interface: pardon.interface }, operation).await
}

async fn operate(State(service): State<Service>, place: Place, operation: Operation) -> Response {
    ask(&service, |answer| Event::Operate { place, operation, answer }).await
}
