//! Signing in with a token, or in development with a name; signing out; and the sign-ins that there are.

use std::net::SocketAddr;

use askama::Template;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};
use axum::response::Response;
use handover_desk::No;
use handover_desk::calendar::rfc3339;
use handover_desk::codes::own;
use handover_desk::identity::signins::SIGN_IN_MS;
use handover_kernel::Face;

use super::Console;
use super::acts::{after, done};
use super::fields::Fields;
use super::http::{Asked, is_form, secret};
use super::page::{self, Notice, Top, html, see_other};
use crate::http::{Peer, body};

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignIn {
    top: Top,
    /// Whether a name is enough.
    by_name: bool,
    next: String,
}

#[derive(Template)]
#[template(path = "sign_ins.html")]
struct SignIns {
    top: Top,
    sign_ins: Vec<Row>,
}

struct Row {
    name: String,
    began_at: String,
    ends_at: String,
    from: String,
    this: bool,
}

/// The page to sign in at, and what its form does.
pub(super) async fn serve(console: &Console, request: Request) -> Response {
    if *request.method() != Method::POST {
        let query = Fields::parse(request.uri().query().unwrap_or_default());
        return form(console, own_address(query.get("next")), Notice::None);
    }
    let cookie = console.cookie_name(request.uri(), request.headers());
    let before = secret(request.headers(), &cookie).map(str::to_owned);
    let peer = request.extensions().get::<Peer>().cloned();
    if !is_form(request.headers()) {
        let said = "expected a form (application/x-www-form-urlencoded)";
        return page::wrong(Top::default(), 415, said, own::UNSUPPORTED_MEDIA_TYPE.code);
    }
    let body = match console.parts.strangers.read(request.into_body()).await {
        Ok(body) => body,
        Err(why) => {
            console.parts.unread.count(why.name());
            let (status, code) = match why {
                body::Unread::TooLong => (413, own::PAYLOAD_TOO_LARGE.code),
                body::Unread::Full
                | body::Unread::TooSlow
                | body::Unread::Broken
                | body::Unread::Limited(_) => (408, own::REQUEST_TIMEOUT.code),
            };
            return page::wrong(Top::default(), status, "expected a whole short form in time", code);
        }
    };
    let fields = Fields::parse(&String::from_utf8_lossy(&body));
    let next = own_address(fields.get("next"));
    let address = peer.as_ref().map(|peer| peer.address);
    match console.desk().sign_in(fields.said("token"), Face::Console, address).await {
        Ok((_, secret)) => {
            if let Some(peer) = &peer {
                peer.is_known();
            }
            if let Some(before) = before {
                replaced(console, &before, address).await;
            }
            with_cookie(console, see_other(next), &cookie, &secret, SIGN_IN_MS / 1000)
        }
        Err(No::Unauthenticated(_)) => {
            let expected = match console.desk().proves_nothing() {
                true => "expected the name of an agent: visible characters, no spaces, at most 256 bytes",
                false => {
                    "expected a token that this server knows, found another: it may have ended or been revoked"
                }
            };
            let (said, code) = (expected.to_owned(), own::UNAUTHENTICATED.code);
            form(console, next, Notice::Refused { said, code, status: 401 })
        }
        Err(no) => form(console, next, Notice::refused(no)),
    }
}

/// Who signs in again in the same browser leaves no sign-in behind that nobody has a use for.
async fn replaced(console: &Console, secret: &str, from: Option<SocketAddr>) {
    let desk = console.desk();
    if let Ok(caller) = desk.signed_in(secret, Face::Console, from).await {
        // One that cannot be ended now ends with its time.
        _ = desk.end_sign_in(&caller, &desk.sign_in_name(secret)).await;
    }
}

fn form(console: &Console, next: &str, notice: Notice) -> Response {
    let status = notice.status();
    let top = Top { title: "Sign in".to_owned(), notice, ..Top::default() };
    let by_name = console.desk().proves_nothing();
    html(status, &SignIn { top, by_name, next: next.to_owned() }, None)
}

/// An address of the console itself: anything else leads to its first page.
fn own_address(next: &str) -> &str {
    let own = next.starts_with('/') && !next.starts_with("//") && next.len() <= 2048;
    let plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if own && plain { next } else { "/" }
}

fn with_cookie(console: &Console, mut response: Response, name: &str, value: &str, seconds: u64) -> Response {
    let secure = if console.parts.settings.secure { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// Sign out. The cookie is of no use from then on, whoever has a copy of it.
pub(super) async fn out(console: &Console, asked: &Asked) -> Result<Response, No> {
    console.desk().end_sign_in(&asked.caller, &asked.sign_in).await?;
    Ok(signed_out(console, asked))
}

/// The browser forgets what is of no use any more.
fn signed_out(console: &Console, asked: &Asked) -> Response {
    with_cookie(console, see_other("/sign-in"), &asked.cookie, "", 0)
}

/// The sign-ins of whoever asks.
pub(super) async fn list(console: &Console, asked: &Asked, notice: Notice) -> Result<Response, No> {
    let found = console.desk().sign_ins(&asked.caller).await?;
    let row = |shown: handover_desk::signins::Shown| Row {
        this: shown.name == asked.sign_in,
        began_at: rfc3339(shown.began_at),
        ends_at: rfc3339(shown.ends_at),
        name: shown.name,
        from: shown.from,
    };
    let top = console.top(asked, "Sign-ins").await?;
    let notice = if let Notice::None = notice { done(console, asked, "/sign-ins") } else { notice };
    let status = notice.status();
    let top = Top { here: "sign-ins", notice, ..top };
    let page = SignIns { top, sign_ins: found.into_iter().map(row).collect() };
    Ok(html(status, &page, asked.caller.room()))
}

/// End one of them.
pub(super) async fn end(console: &Console, asked: &Asked) -> Result<Response, No> {
    let name = asked.form.get("name");
    match console.desk().end_sign_in(&asked.caller, name).await? {
        true if name == asked.sign_in => Ok(signed_out(console, asked)),
        true => Ok(see_other(&after(console, asked, "/sign-ins", "ended"))),
        false => {
            list(console, asked, Notice::invalid("there is no such sign-in: it has ended already")).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_console_are_gone_on_at() {
        for own in ["/", "/tasks?state=working", "/tasks/abc"] {
            assert_eq!(own_address(own), own);
        }
        for other in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a b", "/\u{202e}"] {
            assert_eq!(own_address(other), "/", "{other}");
        }
    }
}
