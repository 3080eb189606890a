//! What every page has: its head, who is signed in, what was just done, and the headers that browsers obey.

use askama::Template;
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use handover_desk::caller::Caller;
use handover_desk::memory::Room;
use handover_desk::visible::spelled_out;

use super::assets;
use crate::face::no::No;
use crate::http::line;
use crate::queue;

/// Nothing runs or is loaded that is not ours, nothing else is sent anywhere, and nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The top of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Top {
    /// What the page is called.
    pub(super) title: String,
    /// Who is signed in; empty if nobody is.
    pub(super) me: String,
    /// What that agent may beside what everybody may.
    pub(super) roles: &'static str,
    /// How many things wait for it, as people are told; empty if nothing does.
    pub(super) waiting: String,
    /// Which part of the console it is.
    pub(super) here: &'static str,
    /// Which tasks a live page is about: `all`, their ids with spaces between, or nothing if it is not live.
    pub(super) live: String,
    /// Where the page lives, if it answers a form and so stands at the form's address.
    pub(super) at: String,
    /// Whose page it is, as a live page compares it: the cookie of a browser may become another agent's.
    pub(super) whose: String,
    /// What was just done, or why it was not.
    pub(super) notice: Notice,
}

/// What is told at the top of a page.
#[derive(Clone, Debug, Default)]
pub(super) enum Notice {
    /// Nothing.
    #[default]
    None,
    /// Something was done.
    Done(String),
    /// Something was done, and did not bring about all that it was to.
    But(String),
    /// Something was refused: why, and the code of it.
    Refused { said: String, code: &'static str, status: u16 },
}

impl Notice {
    /// Why something was refused.
    pub(super) fn refused(no: handover_desk::No) -> Notice {
        let no = No(no);
        Notice::Refused { said: no.said(), code: no.said_code(), status: no.meaning().http }
    }

    /// The same, where a form says something that cannot be.
    pub(super) fn invalid(said: impl Into<String>) -> Notice {
        Notice::Refused { said: said.into(), code: "INVALID", status: 422 }
    }

    /// What was done.
    pub(super) fn done(&self) -> Option<&str> {
        match self {
            Notice::Done(said) => Some(said),
            Notice::None | Notice::But(_) | Notice::Refused { .. } => None,
        }
    }

    /// What was done, where it did not bring about all that it was to.
    pub(super) fn but(&self) -> Option<&str> {
        match self {
            Notice::But(said) => Some(said),
            Notice::None | Notice::Done(_) | Notice::Refused { .. } => None,
        }
    }

    /// Why something was not, and the code of it.
    pub(super) fn refusal(&self) -> Option<(&str, &'static str)> {
        match self {
            Notice::Refused { said, code, .. } => Some((said, code)),
            Notice::None | Notice::Done(_) | Notice::But(_) => None,
        }
    }

    /// The status of the page that says so.
    pub(super) fn status(&self) -> u16 {
        match self {
            Notice::None | Notice::Done(_) | Notice::But(_) => 200,
            Notice::Refused { status, .. } => *status,
        }
    }
}

impl Top {
    /// The top of a page of this agent.
    pub(super) fn of(caller: &Caller, title: impl Into<String>) -> Top {
        let roles = match (caller.observer, caller.admin) {
            (true, true) => "observer, administrator",
            (true, false) => "observer",
            (false, true) => "administrator",
            (false, false) => "",
        };
        Top { title: title.into(), me: caller.agent.to_string(), roles, ..Top::default() }
    }

    pub(super) fn css(&self) -> &'static str {
        assets::css()
    }

    pub(super) fn js(&self) -> &'static str {
        assets::js()
    }

    pub(super) fn icon(&self) -> &'static str {
        assets::icon()
    }
}

/// A page that says only that something is not to be had.
#[derive(Template)]
#[template(path = "no.html")]
struct Refusal {
    top: Top,
    said: String,
    code: &'static str,
}

/// A page. What agents hid in their texts is spelled out, wherever it stands.
pub(super) fn html(status: u16, page: &impl Template, room: Option<&Room>) -> Response {
    let (status, text) = match page.render() {
        Ok(text) => (status, text),
        Err(error) => {
            tracing::error!(%error, "a page could not be made");
            (500, "The page could not be made.".to_owned())
        }
    };
    let text = spelled_out(&text).into_owned();
    let lease = room.map(|room| room.hold(text.len() as u64));
    let mut response = Response::new(Body::from(queue::held(text, lease)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The page of a no.
pub(super) fn no(mut top: Top, no: handover_desk::No) -> Response {
    let no = No(no);
    line::note("code", no.said_code());
    top.title = "Not to be had".to_owned();
    let status = if no.is_unknown() { 404 } else { no.meaning().http };
    html(status, &Refusal { top, said: no.said(), code: no.said_code() }, None)
}

/// The page of a request that cannot be read, or that must not be.
pub(super) fn wrong(mut top: Top, status: u16, said: impl Into<String>, code: &'static str) -> Response {
    line::note("code", code);
    if top.title.is_empty() {
        top.title = "Refused".to_owned();
    }
    html(status, &Refusal { top, said: said.into(), code }, None)
}

/// Go on at another address.
pub(super) fn see_other(to: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

/// What holds for every answer.
pub(super) fn sealed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Not less: without it browsers hide the origin of our own forms from us as well.
        (header::REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
