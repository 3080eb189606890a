//! The pages and where they are. Whose request it is, its cookie says; a request that changes something must come from a page
//! of the console's own.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Uri, header};
use axum::response::Response;
use axum::routing::{get, post};
use handover_desk::No;
use handover_desk::caller::Caller;
use handover_desk::codes::own;
use handover_desk::limit::Lane;
use handover_kernel::Face;
use tower_http::csrf::{CsrfLayer, ProtectionError};

use super::fields::{Fields, Typed, cookie, encode};
use super::page::{self, Top, see_other};
use super::{
    Console, acts, agents, assets, audit, bulk, delegate, describe, health, limits, live, policies, replay,
    sign_in, task, tasks, waiting,
};
use crate::http::line::note;
use crate::http::{Peer, gather, host, trace};

/// The routes of the face.
pub fn router(console: Console) -> Router {
    let mut router = Router::new();
    for path in ["/", "/tasks", "/tasks/{id}", "/tasks/{id}/events", "/tasks/{id}/replay", "/agents"] {
        router = router.route(path, get(serve));
    }
    for path in ["/health", "/policies", "/limits", "/audit", "/live", "/assets/{name}", "/sign-ins"] {
        router = router.route(path, get(serve));
    }
    router
        .route("/count", get(serve))
        .route("/sign-in", get(serve).post(serve))
        .route("/delegate", get(serve).post(serve))
        .route("/bulk", get(serve).post(serve))
        .route("/sign-out", post(serve))
        .route("/sign-ins/end", post(serve))
        .route("/tasks/{id}/{act}", post(serve))
        .route("/openapi.json", get(describe::serve))
        .layer(CsrfLayer::new().with_rejection_response(of_another_origin))
        .with_state(console)
}

/// What is said to forms of other pages.
fn of_another_origin(_: ProtectionError) -> Response {
    let said = "expected a form of this console, found a request from a page of another origin";
    page::sealed(page::wrong(Top::default(), 403, said, own::ORIGIN_REFUSED.code))
}

/// A request whose sender is known.
pub(super) struct Asked {
    pub(super) caller: Caller,
    /// The name of its sign-in, and of the cookie that it came with.
    pub(super) sign_in: String,
    pub(super) cookie: String,
    /// What its address says after the question mark.
    pub(super) query: Fields,
    /// What its form says.
    pub(super) form: Fields,
    /// The last event that a page has heard of, if it comes back.
    pub(super) last_event: Option<String>,
    /// Which form that is: the last part of its address, and the task in it.
    act: (String, String),
}

impl Asked {
    /// What was typed into a form of a task, which is refused.
    pub(super) fn typed(&self, task: &str) -> Typed {
        match &self.act {
            (act, id) if id == task => Typed { act: act.clone(), form: self.form.clone() },
            _ => Typed::default(),
        }
    }
}

async fn serve(State(console): State<Console>, request: Request) -> Response {
    page::sealed(console.respond(request).await)
}

impl Console {
    async fn respond(&self, request: Request) -> Response {
        let path = request.uri().path().to_owned();
        if let Some(asset) = assets::at(&path) {
            return asset;
        }
        let changes = *request.method() == Method::POST;
        if path == "/sign-in" {
            return sign_in::serve(self, request).await;
        }
        let query = Fields::parse(request.uri().query().unwrap_or_default());
        let again = request.uri().path_and_query().map_or("/", |to| to.as_str()).to_owned();
        let (asked, lane) = match self.admit(request, query).await {
            Ok(admitted) => admitted,
            Err(Refused::Unknown) if matches!(path.as_str(), "/live" | "/count") => {
                return page::wrong(Top::default(), 401, "sign in first", own::UNAUTHENTICATED.code);
            }
            Err(Refused::Unknown) => {
                let next = if changes { page_of(&path) } else { &again };
                return see_other(&format!("/sign-in?next={}", encode(next)));
            }
            Err(Refused::No(no)) => return page::no(Top::default(), *no),
            Err(Refused::Wrong(response)) => return *response,
        };
        let bytes = asked.form.weight();
        self.desk().work_on(lane, bytes, Box::pin(self.show(asked, &path, changes))).await
    }

    async fn show(&self, asked: Asked, path: &str, changes: bool) -> Response {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let caller = asked.caller.clone();
        let shown = match (changes, parts.as_slice()) {
            (false, [""]) => waiting::show(self, &asked, Default::default()).await,
            (false, ["tasks"]) => tasks::show(self, &asked).await,
            (false, ["tasks", id]) => task::show(self, &asked, id, Default::default()).await,
            (false, ["tasks", id, "events"]) => task::events(self, &asked, id).await,
            (false, ["tasks", id, "replay"]) => replay::show(self, &asked, id).await,
            (false, ["agents"]) => agents::show(self, &asked).await,
            (false, ["policies"]) => policies::show(self, &asked).await,
            (false, ["limits"]) => limits::show(self, &asked).await,
            (false, ["audit"]) => audit::show(self, &asked).await,
            (false, ["health"]) => health::show(self, &asked).await,
            (false, ["sign-ins"]) => sign_in::list(self, &asked, Default::default()).await,
            (false, ["delegate"]) => delegate::show(self, &asked, Default::default()).await,
            (false, ["live"]) => live::listen(self, asked),
            (false, ["count"]) => live::count(self, &asked).await,
            (false, ["bulk"]) => bulk::confirm(self, &asked, Default::default()).await,
            (true, ["bulk"]) => bulk::act(self, &asked).await,
            (true, ["delegate"]) => delegate::begin(self, &asked).await,
            (true, ["sign-out"]) => sign_in::out(self, &asked).await,
            (true, ["sign-ins", "end"]) => sign_in::end(self, &asked).await,
            (true, ["tasks", id, act]) => acts::act(self, &asked, id, act).await,
            (false | true, _) => {
                let said = format!("nothing is served at {path}");
                Ok(page::wrong(Top::of(&caller, "Nothing here"), 404, said, own::NOT_FOUND.code))
            }
        };
        shown.unwrap_or_else(|no| page::no(Top::of(&caller, ""), no))
    }

    /// Let a request in: whose it is, whether it asks too often, and what it says.
    async fn admit(&self, mut request: Request, query: Fields) -> Result<(Asked, Lane), Refused> {
        let name = self.cookie_name(request.uri(), request.headers());
        let path = request.uri().path().to_owned();
        let headers = std::mem::take(request.headers_mut());
        let peer = request.extensions_mut().remove::<Peer>();
        let secret = secret(&headers, &name).ok_or(Refused::Unknown)?;
        let (desk, gate) = (self.desk(), &self.desk().gate);
        let address = peer.as_ref().map(|peer| peer.address);
        note("face", "console");
        let caller = match desk.signed_in(secret, Face::Console, address).await {
            Ok(caller) => caller,
            Err(No::Unauthenticated(_)) => return Err(Refused::Unknown),
            Err(no) => return Err(Refused::No(Box::new(no))),
        };
        if let Some(peer) = &peer {
            peer.is_known();
        }
        note("agent", caller.agent.as_str());
        let limited = |limited: handover_desk::limit::Limited| Refused::No(Box::new(No::Limited(limited)));
        let lane = gate.request(&caller).map_err(limited)?;
        let mut caller = gate.take_in(caller.traced(trace::of(&headers)), 0).map_err(limited)?;
        let form = match *request.method() == Method::POST {
            false => Fields::default(),
            true => {
                if !is_form(&headers) {
                    let said = "expected a form (application/x-www-form-urlencoded)";
                    let top = Top::of(&caller, "Not a form");
                    let wrong = page::wrong(top, 415, said, own::UNSUPPORTED_MEDIA_TYPE.code);
                    return Err(Refused::Wrong(Box::new(wrong)));
                }
                let mut reading = None;
                let grow = |bytes| reading.get_or_insert_with(|| gate.reading(&caller)).grow(bytes);
                let body = gather(request.into_body(), &self.parts.settings.bounds, &self.parts.unread, grow);
                let body = body.await.map_err(Refused::Wrong)?;
                drop(reading);
                caller.brings(body.len() as u64);
                gate.charge_bytes(&caller, body.len() as u64);
                Fields::parse(&String::from_utf8_lossy(&body))
            }
        };
        let sign_in = desk.sign_in_name(secret);
        let act = match path.split('/').collect::<Vec<_>>().as_slice() {
            ["", "tasks", id, act] => ((*act).to_owned(), (*id).to_owned()),
            _ => Default::default(),
        };
        let last_event = headers.get("last-event-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        Ok((Asked { caller, sign_in, cookie: name, query, form, last_event, act }, lane))
    }

    /// What the cookie is called: browsers give a cookie to every port of a host.
    pub(super) fn cookie_name(&self, uri: &Uri, headers: &HeaderMap) -> String {
        let secure = self.parts.settings.secure;
        let port = host::of(uri, headers).and_then(|host| host.rsplit_once(':')).map(|(_, port)| port);
        let default = if secure { "443" } else { "80" };
        let port = port.filter(|port| port.bytes().all(|byte| byte.is_ascii_digit())).unwrap_or(default);
        format!("{}handover-{port}", if secure { "__Host-" } else { "" })
    }

    /// The top of a page, with how many things wait.
    pub(super) async fn top(&self, asked: &Asked, title: impl Into<String>) -> Result<Top, No> {
        let waiting = waiting::count(self, asked).await?;
        Ok(Top { waiting, whose: self.whose(&asked.caller), ..Top::of(&asked.caller, title) })
    }

    /// A mark of the agent whose page it is. It says nothing to anybody but this server.
    pub(super) fn whose(&self, caller: &Caller) -> String {
        self.desk().seal(&["console page", &caller.tenant, caller.agent.as_str()])
    }
}

/// The page that a form is on, by the form's address.
fn page_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        _ if path == "/bulk" => "/tasks",
        _ if path == "/delegate" => path,
        Some((page, _)) if page == "/sign-ins" || page.starts_with("/tasks/") => page,
        _ => "/",
    }
}

/// Why a request is not let in.
enum Refused {
    /// Nobody is signed in.
    Unknown,
    No(Box<No>),
    Wrong(Box<Response>),
}

/// The secret in the cookie of this name.
pub(super) fn secret<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    cookie(headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok()), name)
}

/// Whether the body is a form.
pub(super) fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split_once(';').map_or(kind, |(kind, _)| kind);
    kind.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
}
