//! The endpoint: one path, POST. One JSON answer, or a stream of events when there is something to tell before it, or it
//! takes long.
//!
//! - [`headers`]: what the headers must say of the body
//! - `reply`: one answer, or what is told before it as well

pub mod headers;
mod reply;

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use handover_client::mcp::{SESSION_HEADER, VERSION_HEADER, may_stream};
use handover_kernel::Face;
use serde_json::json;
use serde_json::value::RawValue;

use self::reply::Work;
use super::caller::{
    Caller, Era, HANDSHAKES, Level, Meta, Opening, POLL, Wishes, era, meta_of, modern, progress_token,
};
use super::message::{Error, INVALID_REQUEST, Incoming, answer, answer_with, refusal};
use super::{Mcp, No, Outbox, handshake};
use crate::http::host::Host;
use crate::http::line::{note, short};
use crate::http::{
    Peer, Routes, bearer, gather, host, is_json, json_held, origin, problem, sse, too_much, trace,
};
use crate::queue::queue;
use handover_desk::codes::own;
use handover_desk::gate;
use handover_desk::memory::Lease;
use handover_desk::wishes::Wish;
pub use headers::ParameterHeaders;

static SESSION_ID: HeaderName = HeaderName::from_static(SESSION_HEADER);
static VERSION: HeaderName = HeaderName::from_static(VERSION_HEADER);

/// Where the face is.
const PATH: &str = "/mcp";

/// The routes of the face.
pub fn router(mcp: Mcp) -> Router {
    Router::new()
        .route(PATH, post(take).get(hear).delete(end).options(preflight))
        .route("/.well-known/oauth-protected-resource", get(resource).options(preflight))
        .route("/.well-known/oauth-protected-resource/mcp", get(resource).options(preflight))
        .with_state(mcp)
}

/// Routes that answer what is posted to the face, which is most of all requests, before they are asked.
pub fn often(mcp: &Mcp, routes: Routes) -> Routes {
    let mcp = mcp.clone();
    routes.often(PATH, move |request| take(State(mcp.clone()), request))
}

/// RFC 9728: who issues tokens for this endpoint.
async fn resource(State(mcp): State<Mcp>, uri: Uri, headers: HeaderMap) -> Response {
    let settings = &mcp.parts.settings;
    let mut metadata = json!({
        "resource": address(&mcp, &uri, &headers),
        "bearer_methods_supported": ["header"],
        "resource_name": "Handover",
    });
    // An empty list would promise that there is somebody to ask.
    if !settings.authorization_servers.is_empty() {
        metadata["authorization_servers"] = json!(settings.authorization_servers);
    }
    let origin = origin::let_in(&headers, &settings.origins);
    origin::share(Json(metadata).into_response(), origin)
}

/// A client of a handshake revision ends its session, of which nothing is kept that would have to be thrown away.
async fn end(State(mcp): State<Mcp>, headers: HeaderMap) -> Response {
    let what = "a session has no end of its own: nothing is kept of it but what its client wants to be told";
    let mut response = problem(&own::METHOD_NOT_ALLOWED, what);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST, OPTIONS"));
    origin::share(response, origin::let_in(&headers, &mcp.parts.settings.origins))
}

/// A browser asks whether a page may ask.
async fn preflight(State(mcp): State<Mcp>, headers: HeaderMap) -> Response {
    origin::preflight(&headers, &mcp.parts.settings.origins, "mcp.origins")
}

/// The stream of a handshake revision on which the server tells what nobody asked about: that the list of tools has changed,
/// and that a resource has. Any other revision has no such stream.
async fn hear(State(mcp): State<Mcp>, request: Request) -> Response {
    let (headers, uri) = (request.headers(), request.uri());
    let origins = &mcp.parts.settings.origins;
    let shared = origin::let_in(headers, origins);
    let welcome = origin::check(headers, origins, "mcp.origins");
    let peer = request.extensions().get::<Peer>();
    let who = match welcome.and_then(|()| mcp.who(uri, headers, peer)) {
        Ok(who) => who,
        Err(refused) => return origin::share(*refused, shared),
    };
    let version = text(headers, &VERSION);
    let is_handshake = version.is_none_or(|version| HANDSHAKES.contains(&version));
    let streams = headers.contains_key(header::ACCEPT) && headers::takes_events(headers);
    let session = text(headers, &SESSION_ID).filter(|session| handshake::is_session(session));
    let (Some(session), true, true) = (session, is_handshake, streams) else {
        let what = "GET is for clients that opened with initialize: expected accept: text/event-stream and their Mcp-Session-Id";
        return origin::share(problem(&own::METHOD_NOT_ALLOWED, what), shared);
    };
    if let Err(limited) = mcp.desk().gate.request(&who) {
        return origin::share(too_much(&own::RATE_LIMITED, &limited), shared);
    }
    let who = match mcp.desk().gate.take_in(who, 0) {
        Ok(who) => who,
        Err(limited) => return origin::share(too_much(&own::MEMORY_BUDGET_SPENT, &limited), shared),
    };
    let room = who.room().cloned();
    let (out, mut inbox) = queue(room.clone());
    let wanted = handshake::wanted(&mcp, &who, session);
    let telling = match mcp.tell_of_changes(&who, wanted, out) {
        Ok(telling) => telling,
        Err(no) => return origin::share(error(None, &Error::from(no).status(429), who.held), shared),
    };
    let (events, response) = sse::channel(room);
    tokio::spawn(async move {
        let telling = tokio::spawn(telling);
        loop {
            let told = tokio::select! {
                biased;
                () = events.closed() => break,
                told = inbox.recv_held() => told,
            };
            let Some((message, held)) = told else { break };
            if !events.pass(reply::frame(&message), held).await {
                break;
            }
        }
        telling.abort();
    });
    origin::share(response, shared)
}

/// The endpoint as this client knows it.
fn address(mcp: &Mcp, uri: &Uri, headers: &HeaderMap) -> String {
    let settings = &mcp.parts.settings;
    // What is no host is not repeated.
    let host = host::of(uri, headers).filter(|host| Host::parse(host).is_some()).unwrap_or("localhost");
    let scheme = if settings.tls { "https" } else { "http" };
    settings.resource.clone().unwrap_or_else(|| format!("{scheme}://{host}/mcp"))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim_ascii)
}

async fn take(State(mcp): State<Mcp>, request: Request) -> Response {
    let (headers, origins) = (request.headers(), &mcp.parts.settings.origins);
    if !headers.contains_key(header::ORIGIN) {
        return taken(mcp, request).await;
    }
    let shared = origin::let_in(headers, origins);
    if let Err(refused) = origin::check(headers, origins, "mcp.origins") {
        return *refused;
    }
    origin::share(taken(mcp, request).await, shared)
}

/// Take a request of somebody, or of a page that is let in. Who may not ask is not listened to: the body comes last.
async fn taken(mcp: Mcp, request: Request) -> Response {
    let (Parts { headers, uri, extensions, .. }, body) = request.into_parts();
    let who = match mcp.who(&uri, &headers, extensions.get::<Peer>()) {
        Ok(who) => who,
        Err(refused) => return *refused,
    };
    let lane = match mcp.desk().gate.request(&who) {
        Ok(lane) => lane,
        Err(limited) => return too_much(&own::RATE_LIMITED, &limited),
    };
    if !text(&headers, &header::CONTENT_TYPE).is_some_and(is_json) {
        return problem(&own::UNSUPPORTED_MEDIA_TYPE, "expected a body of type application/json");
    }
    let mut who = match mcp.desk().gate.take_in(who, 0) {
        Ok(who) => who,
        Err(limited) => return too_much(&own::MEMORY_BUDGET_SPENT, &limited),
    };
    // A body that comes in one part needs no place among those that are coming.
    let mut reading = None;
    let grow = |bytes| reading.get_or_insert_with(|| mcp.desk().gate.reading(&who)).grow(bytes);
    let body = match gather(body, &mcp.parts.settings.bounds, &mcp.parts.unread, grow).await {
        Ok(body) => body,
        Err(refused) => return *refused,
    };
    who.brings(body.len() as u64);
    drop(reading);
    let desk = mcp.desk();
    desk.gate.charge_bytes(&who, body.len() as u64);
    desk.work_on(lane, body.len(), Box::pin(respond(&mcp, who, &uri, &headers, &body))).await
}

async fn respond(mcp: &Mcp, who: gate::Caller, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Response {
    let held = who.held.clone();
    let asked = match Asked::of_poll(headers, body) {
        Some(poll) => poll,
        None => match Incoming::parse(body) {
            Ok(Incoming::Request { id, method, params }) => Asked { id, method, params, said: None },
            Ok(Incoming::Notification { method, params }) => {
                return match told(headers, &method, params) {
                    Ok(()) => StatusCode::ACCEPTED.into_response(),
                    Err(refused) => error(None, &refused, held),
                };
            }
            Ok(Incoming::Response { id, result }) => {
                return match Box::pin(mcp.answered(who, headers, &id, result)).await {
                    Ok(()) => StatusCode::ACCEPTED.into_response(),
                    Err(refused) => error(None, &refused.status(400), held),
                };
            }
            Err(unreadable) => return error(unreadable.id, &unreadable.error, held),
        },
    };
    let id = asked.id;
    match mcp.request(who, uri, headers, asked).await {
        Ok(Reply::Message(message)) => answered(200, message, held),
        Ok(Reply::Whole(response)) => response,
        Err(refused) => error(Some(id), &refused, held),
    }
}

/// A request as it came.
struct Asked<'a> {
    id: &'a RawValue,
    method: Cow<'a, str>,
    params: Option<&'a RawValue>,
    /// What they say, if that was read with the message.
    said: Option<Opening<'a>>,
}

impl<'a> Asked<'a> {
    /// A poll, if the headers announce one and it is one.
    fn of_poll(headers: &HeaderMap, body: &'a [u8]) -> Option<Asked<'a>> {
        let (id, said) = headers::announce(headers, POLL).then(|| Opening::of_poll(body))??;
        Some(Asked { id, method: Cow::Borrowed(POLL), params: None, said: Some(said) })
    }
}

/// What a request is answered.
enum Reply {
    /// This message.
    Message(String),
    /// A response of its own.
    Whole(Response),
}

/// Whether a notification may be told so. Nothing follows from any of them over HTTP.
fn told(headers: &HeaderMap, method: &str, params: Option<&RawValue>) -> Result<(), Error> {
    let meta = meta_of(params)?;
    let version = text(headers, &VERSION);
    if era(method, &meta, version)? == Era::Modern {
        headers::version_fits(version, meta.version.as_deref())?;
    }
    headers::method_fits(headers, method)
}

/// The caller of a request in a handshake revision: what it can do is in its session id.
async fn handshaken(
    mcp: &Mcp,
    who: gate::Caller,
    headers: &HeaderMap,
    meta: &Meta<'_>,
    wishes: Wishes,
) -> Result<Caller, Error> {
    let session = text(headers, &SESSION_ID).filter(|session| handshake::is_session(session));
    let log = match session {
        // What cannot be read now is as if it had not been said: the request needs something else.
        Some(session) => mcp.desk().wished_level(&who, session).await.unwrap_or_default(),
        None => None,
    };
    Ok(Caller {
        who,
        era: Era::Handshake,
        declared: session.map(handshake::declared).unwrap_or_default(),
        progress: progress_token(meta.progress_token)?,
        log: Some(log.and_then(|level| Level::of(&level)).unwrap_or(Level::Info)),
        takes_back: false,
        idempotency_key: meta.key()?,
        wishes: wishes.or_of(meta),
    })
}

impl Mcp {
    /// Whose request it is: `authorization: Bearer <token>`.
    fn who(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<gate::Caller, Box<Response>> {
        note("face", "mcp");
        let bearer = bearer::token(headers);
        let who = self.parts.desk.gate.authenticate(bearer, Face::Mcp, peer.map(|peer| peer.address));
        if let (Ok(_), Some(peer)) = (&who, peer) {
            peer.is_known();
        }
        let who = who.map(|who| who.traced(trace::of(headers)));
        who.inspect(|who| note("agent", who.agent.as_str())).map_err(|refused| {
            let metadata = address(self, uri, headers);
            let metadata = metadata.strip_suffix("/mcp").unwrap_or(&metadata);
            let challenge = format!(
                "Bearer resource_metadata=\"{metadata}/.well-known/oauth-protected-resource/mcp\"{}",
                if bearer.is_some() { ", error=\"invalid_token\"" } else { "" }
            );
            let mut response = problem(&own::UNAUTHENTICATED, &refused.to_string());
            if let Ok(challenge) = HeaderValue::from_str(&challenge) {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            }
            Box::new(response)
        })
    }

    /// The client answers a request of ours, which only the handshake revisions have.
    async fn answered(
        &self,
        who: gate::Caller,
        headers: &HeaderMap,
        id: &str,
        result: Option<&RawValue>,
    ) -> Result<(), Error> {
        match era("", &Meta::default(), text(headers, &VERSION))? {
            Era::Modern => {
                Err(Error::new(INVALID_REQUEST, "expected a request or a notification, found an answer"))
            }
            Era::Handshake => {
                let caller = handshaken(self, who, headers, &Meta::default(), Wishes::default()).await?;
                self.take_response(&caller, id, result).await
            }
        }
    }

    async fn request(
        &self,
        who: gate::Caller,
        uri: &Uri,
        headers: &HeaderMap,
        asked: Asked<'_>,
    ) -> Result<Reply, Error> {
        let Asked { id, method, params, said } = asked;
        let announced = said.is_some();
        let method = &*method;
        note("rpc", short(method));
        let wishes = Wishes::of(uri.query())?;
        let mut said = said.map_or_else(|| Opening::of(params), Ok)?;
        let about = said.about(method);
        if let Some(task) = said.task_id {
            note("session", short(task.get().trim_matches('"')));
        }
        let meta = said.meta();
        let who = meta.traces(who);
        let version = text(headers, &VERSION);
        let caller = match era(method, &meta, version)? {
            Era::Modern => {
                headers::are_said_once(headers)?;
                headers::version_fits(version, meta.version.as_deref())?;
                let caller = modern(who, meta, wishes)?;
                if !announced {
                    headers::method_fits(headers, method)?;
                }
                headers::name_fits(headers, method, about.as_deref(), self.parts.settings.strict_headers)?;
                caller
            }
            Era::Handshake => {
                if method == "initialize" {
                    let (result, session) = handshake::initialize(params, wishes.profile_of(&who))?;
                    let mut response = answered(200, answer(id, &result), who.held);
                    let session = HeaderValue::from_str(&session).expect("a session id is visible ASCII");
                    response.headers_mut().insert(&SESSION_ID, session);
                    return Ok(Reply::Whole(response));
                }
                let session = text(headers, &SESSION_ID).filter(|session| handshake::is_session(session));
                if method == "logging/setLevel" {
                    let level = handshake::asked_level(params)?;
                    if let Some(session) = session {
                        let wish = Wish::Level(level.name().to_owned());
                        self.desk().wish(&who, session, wish).await.map_err(No)?;
                    }
                    return Ok(Reply::Message(answer(id, "{}")));
                }
                if let Some(wants) = handshake::wants(method) {
                    let uri = handshake::resource(params)?;
                    if let Some(session) = session {
                        let wish = if wants { Wish::Follow(uri) } else { Wish::Leave(uri) };
                        self.desk().wish(&who, session, wish).await.map_err(No)?;
                    }
                    return Ok(Reply::Message(answer(id, "{}")));
                }
                handshaken(self, who, headers, &meta, wishes).await?
            }
        };
        if may_stream(method) {
            return Box::pin(self.stream(caller, headers, id, method, params)).await.map(Reply::Whole);
        }
        let result = match (caller.era, method, about) {
            (Era::Modern, POLL, Some(task)) => self.tasks_get(&caller, &task).await?,
            // In a box, so that polls, which are most of all requests, do not carry the room that others need.
            (Era::Modern | Era::Handshake, _, _) => Box::pin(self.answer(&caller, method, params)).await?,
        };
        Ok(Reply::Message(answer_with(id, result)))
    }

    /// Answer a request that may take long or have something to tell before its answer.
    async fn stream(
        &self,
        caller: Caller,
        headers: &HeaderMap,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) -> Result<Response, Error> {
        let events = headers::takes_events(headers) || method == "subscriptions/listen";
        let room = caller.room().cloned();
        let (out, inbox) = queue(room.clone());
        let work = self.work(caller, headers, id, method, params, out);
        let within = self.parts.settings.head_within;
        if events {
            Ok(reply::with_events(work, inbox, within, room).await)
        } else {
            Ok(reply::without_events(work, inbox, within, room).await)
        }
    }

    /// The work of a streaming request, which owns everything that it needs.
    fn work(
        &self,
        caller: Caller,
        headers: &HeaderMap,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        out: Outbox,
    ) -> Work {
        let (mcp, id, method) = (self.clone(), id.to_owned(), method.to_owned());
        let params = params.map(ToOwned::to_owned);
        let headers = (caller.era == Era::Modern).then(|| ParameterHeaders::of(headers));
        Box::pin(async move {
            let done =
                mcp.answer_streaming(&caller, &id, &method, params.as_deref(), headers.as_ref(), &out).await;
            match done {
                Ok(result) => (200, answer(&id, &result)),
                Err(error) => {
                    note("code", error.code);
                    (error.status, refusal(Some(&id), &error))
                }
            }
        })
    }
}

fn error(id: Option<&RawValue>, error: &Error, held: Option<Arc<Lease>>) -> Response {
    note("code", error.code);
    answered(error.status, refusal(id, error), held)
}

/// An answer that takes over what was held for its request.
fn answered(status: u16, message: String, held: Option<Arc<Lease>>) -> Response {
    let lease = held.map(|held| Lease::of_answer(held, message.len() as u64));
    json_held(status, message, lease)
}
