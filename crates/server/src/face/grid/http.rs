//! The endpoints: one for the methods and one for the stream of each node, and those of the directory.
//!
//! Whose request it is, its bearer token says, or, where it has none, its signature. Who has a token is known before the
//! body is read; a signed body is read for a stranger, and so is short.

use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use handover_client::jsonrpc::{Error, Incoming, answer, refusal};
use handover_desk::caller::Caller;
use handover_desk::codes::own;
use handover_desk::limit::Lane;
use handover_kernel::Face;
use hyper::body::Body as _;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::methods::Method;
use super::notify::{self, Beginning};
use super::{Grid, No, describe, nodes};
use crate::http::line::{note, short};
use crate::http::{
    Awaited, Peer, bearer, body, gather, is_json, json_answer, origin, problem, problem_of, sse, too_much,
    trace,
};

/// The routes of the face.
pub fn router(grid: Grid) -> Router {
    Router::new()
        .route("/grid/a2a/{node}", post(take).options(preflight))
        .route("/grid/a2a/{node}/events", get(hear).options(preflight))
        .route("/grid/openrpc.json", get(|| async { Json(describe::openrpc()) }))
        .merge(nodes::routes())
        .with_state(grid)
}

/// A browser asks whether a page may ask.
pub(super) async fn preflight(State(grid): State<Grid>, headers: HeaderMap) -> Response {
    origin::preflight(&headers, &grid.parts.settings.origins, "mcp.origins")
}

async fn take(State(grid): State<Grid>, Path(node): Path<String>, request: Request) -> Response {
    let shared = origin::let_in(request.headers(), &grid.parts.settings.origins);
    let response = match grid.admit(request).await {
        Ok(taken) => {
            let (desk, bytes) = (grid.desk(), taken.body.len());
            desk.work_on(taken.lane, bytes, Box::pin(respond(&grid, &node, &taken))).await
        }
        Err(refused) => *refused,
    };
    origin::share(response, shared)
}

/// A request whose sender is known.
pub(super) struct Taken {
    pub(super) caller: Caller,
    pub(super) lane: Lane,
    pub(super) body: Bytes,
}

impl Grid {
    /// Let a request in that has a body.
    pub(super) async fn admit(&self, mut request: Request) -> Result<Taken, Box<Response>> {
        let headers = std::mem::take(request.headers_mut());
        let peer = request.extensions_mut().remove::<Peer>();
        origin::check(&headers, &self.parts.settings.origins, "mcp.origins")?;
        // What has nothing to say need not say what it is.
        let is_json = match headers.get(header::CONTENT_TYPE) {
            Some(kind) => kind.to_str().is_ok_and(is_json),
            None => request.body().size_hint().exact() == Some(0),
        };
        let bearer = bearer::token(&headers);
        let known = match bearer {
            Some(_) => Some(self.who(bearer, &headers, peer.as_ref())?),
            // In development there may be a name for whoever has none.
            None => self.recognized(&headers, peer.as_ref()),
        };
        if !is_json {
            let what = "expected a body of type application/json";
            return Err(Box::new(problem(&own::UNSUPPORTED_MEDIA_TYPE, what)));
        }
        match known {
            Some((caller, lane)) => self.read_known(caller, lane, request).await,
            None => self.read_signed(&headers, peer.as_ref(), request).await,
        }
    }

    async fn read_known(&self, caller: Caller, lane: Lane, request: Request) -> Result<Taken, Box<Response>> {
        let gate = &self.desk().gate;
        let mut caller = gate
            .take_in(caller, 0)
            .map_err(|limited| Box::new(too_much(&own::MEMORY_BUDGET_SPENT, &limited)))?;
        // A body that comes in one part needs no place among those that are coming.
        let mut reading = None;
        let grow = |bytes| reading.get_or_insert_with(|| gate.reading(&caller)).grow(bytes);
        let body = gather(request.into_body(), &self.parts.settings.bounds, &self.parts.unread, grow).await?;
        drop(reading);
        caller.brings(body.len() as u64);
        gate.charge_bytes(&caller, body.len() as u64);
        Ok(Taken { caller, lane, body })
    }

    async fn read_signed(
        &self,
        headers: &HeaderMap,
        peer: Option<&Peer>,
        request: Request,
    ) -> Result<Taken, Box<Response>> {
        note("face", "grid");
        let read = self.parts.strangers.read(request.into_body()).await;
        let body = read.map_err(|why| {
            self.parts.unread.count(why.name());
            Box::new(match why {
                body::Unread::TooLong => problem(
                    &own::PAYLOAD_TOO_LARGE,
                    "expected a signed request of at most 65536 bytes: larger ones need a bearer token",
                ),
                body::Unread::Full
                | body::Unread::TooSlow
                | body::Unread::Broken
                | body::Unread::Limited(_) => {
                    problem(&own::REQUEST_TIMEOUT, "expected a whole signed request in time")
                }
            })
        })?;
        let address = peer.map(|peer| peer.address);
        let (caller, lane) = match self.desk().authenticate_signed(&body, Face::Grid, address).await {
            Ok(known) => known,
            Err(handover_desk::No::Unauthenticated(refused)) => {
                let what = format!("expected a bearer token, or a signed request: {refused}");
                return Err(unauthenticated(&what));
            }
            Err(handover_desk::No::Limited(limited)) => {
                return Err(Box::new(too_much(&own::RATE_LIMITED, &limited)));
            }
            Err(no) => return Err(Box::new(problem(&own::INTERNAL_ERROR, &no.message()))),
        };
        if let Some(peer) = peer {
            peer.is_known();
        }
        note("agent", caller.agent.as_str());
        self.desk().directory.glimpse(&caller.tenant, &caller.agent);
        let taken = self.desk().gate.take_in(caller, body.len() as u64);
        let caller = taken.map_err(|limited| Box::new(too_much(&own::MEMORY_BUDGET_SPENT, &limited)))?;
        Ok(Taken { caller: caller.traced(trace::of(headers)), lane, body })
    }

    /// Let a request in that has no body: its token says whose it is.
    pub(super) fn admit_head(
        &self,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<Caller, Box<Response>> {
        origin::check(headers, &self.parts.settings.origins, "mcp.origins")?;
        let (caller, _) = self.who(bearer::token(headers), headers, peer)?;
        let taken = self.desk().gate.take_in(caller, 0);
        taken.map_err(|limited| Box::new(too_much(&own::MEMORY_BUDGET_SPENT, &limited)))
    }

    /// Whose token it is, and whether it has asked too often.
    fn who(
        &self,
        token: Option<&str>,
        headers: &HeaderMap,
        peer: Option<&Peer>,
    ) -> Result<(Caller, Lane), Box<Response>> {
        note("face", "grid");
        let gate = &self.desk().gate;
        let caller = gate.authenticate(token, Face::Grid, peer.map(|peer| peer.address));
        let caller = caller.map_err(|refused| unauthenticated(&refused.to_string()))?;
        if let Some(peer) = peer {
            peer.is_known();
        }
        note("agent", caller.agent.as_str());
        let lane =
            gate.request(&caller).map_err(|limited| Box::new(too_much(&own::RATE_LIMITED, &limited)))?;
        // Whoever only polls is there as well.
        self.desk().directory.glimpse(&caller.tenant, &caller.agent);
        Ok((caller.traced(trace::of(headers)), lane))
    }

    fn recognized(&self, headers: &HeaderMap, peer: Option<&Peer>) -> Option<(Caller, Lane)> {
        let gate = &self.desk().gate;
        gate.recognize(None, Face::Grid, peer.map(|peer| peer.address)).ok()?;
        self.who(None, headers, peer).ok()
    }

    /// Whether the path names the caller's own node.
    pub(super) async fn must_be_own(&self, caller: &Caller, node: &str) -> Result<(), No> {
        let agent = self.desk().agent_of_node(caller, node).await?;
        if agent == caller.agent {
            return Ok(());
        }
        let what = format!("expected your own node id {} in the path, found another", caller.agent);
        Err(No(handover_desk::No::NotAllowed { what }))
    }
}

fn unauthenticated(what: &str) -> Box<Response> {
    let mut response = problem(&own::UNAUTHENTICATED, what);
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Box::new(response)
}

/// A no where the request is no JSON-RPC: as all of HTTP says it.
pub(super) fn refused(no: &No) -> Response {
    problem_of(no.said_code(), no.meaning().http, &no.said())
}

async fn respond(grid: &Grid, node: &str, taken: &Taken) -> Response {
    let message = match Incoming::parse(&taken.body) {
        Ok(message) => message,
        Err(unreadable) => return error(taken, unreadable.id, &unreadable.error),
    };
    let (id, method, given) = match message {
        Incoming::Request { id, method, params } => (Some(id), method, params),
        Incoming::Notification { method, params } => (None, method, params),
        Incoming::Response { .. } => {
            let refused =
                Error::new(handover_client::jsonrpc::INVALID_REQUEST, "expected a request, found an answer");
            return error(taken, None, &refused.status(400));
        }
    };
    note("rpc", short(&method));
    if let Err(no) = grid.must_be_own(&taken.caller, node).await {
        return error(taken, id, &no.error(no.said()).status(403));
    }
    let done = match Method::of(&method) {
        None if method == "rpc.discover" => Ok(describe::openrpc().to_string()),
        None => return error(taken, id, &Error::no_method(&method)),
        Some(method) => super::answer(grid.desk(), &taken.caller, method, given).await,
    };
    match (done, id) {
        (Ok(result), Some(id)) => {
            let mut response = json_answer(200, answer(id, &result), taken.caller.room());
            if waits(given) {
                response.extensions_mut().insert(Awaited);
            }
            response
        }
        // Nothing is answered to what wants no answer, be it refused.
        (Ok(_) | Err(_), None) => StatusCode::ACCEPTED.into_response(),
        (Err(refused), id) => error(taken, id, &refused.0),
    }
}

/// Whether a call that was understood may have waited because it wanted to.
fn waits(given: Option<&RawValue>) -> bool {
    #[derive(Deserialize)]
    struct Waits {
        #[serde(rename = "waitMs", default)]
        wait_ms: Option<u64>,
    }
    // Few calls say it, and what does not is not read a second time.
    let said = given.map(RawValue::get).filter(|params| params.contains("waitMs"));
    let asked = said.and_then(|params| serde_json::from_str::<Waits>(params).ok());
    asked.and_then(|asked| asked.wait_ms).is_some_and(|wait| wait > 0)
}

fn error(taken: &Taken, id: Option<&RawValue>, refused: &Error) -> Response {
    note("code", refused.code);
    // Where there is no id to give back, it is null (JSON-RPC 2.0, section 5).
    let id = id.unwrap_or(RawValue::NULL);
    json_answer(refused.status, refusal(Some(id), refused), taken.caller.room())
}

/// The stream of notifications.
async fn hear(State(grid): State<Grid>, Path(node): Path<String>, request: Request) -> Response {
    let (headers, uri) = (request.headers(), request.uri());
    let shared = origin::let_in(headers, &grid.parts.settings.origins);
    let response = match grid.admit_head(headers, request.extensions().get::<Peer>()) {
        Ok(caller) => listen(&grid, caller, &node, last_of(headers, uri)).await,
        Err(refused) => *refused,
    };
    origin::share(response, shared)
}

/// The event after which a client wants to go on: clients that cannot set a header say it in the address.
fn last_of(headers: &HeaderMap, uri: &Uri) -> Option<String> {
    let header = headers.get("last-event-id").map(|id| String::from_utf8_lossy(id.as_bytes()).into_owned());
    let query = || in_query(uri, "lastEventId").map(str::to_owned);
    header.or_else(query).filter(|id| !id.is_empty())
}

/// What an address says after its question mark. Nothing that is said there needs to be escaped.
pub(super) fn in_query<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let mut pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

async fn listen(grid: &Grid, mut caller: Caller, node: &str, last: Option<String>) -> Response {
    caller.rests();
    if let Err(no) = grid.must_be_own(&caller, node).await {
        return refused(&no);
    }
    let desk = grid.desk();
    // The place is taken before anything is read: who has none left is refused at once.
    let stay = match desk.stay(&caller) {
        Ok(stay) => stay,
        Err(no) => return refused(&No(no)),
    };
    let beginning = match Beginning::of(desk, &caller, last.as_deref()).await {
        Ok(beginning) => beginning,
        Err(no) => return refused(&No(no)),
    };
    let settings = &grid.parts.settings;
    let (desk, until) = (desk.clone(), Instant::now() + settings.lifetime);
    sse::worked(settings.keep_alive, |out| notify::tell(desk, caller, stay, beginning, out, until))
}
