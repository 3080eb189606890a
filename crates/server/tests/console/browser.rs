//! What a browser does, without its script: it keeps a cookie, sends forms as its pages' own, and goes where it is sent.

use std::net::SocketAddr;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HeaderMap;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::others::stage::{Stage, in_time};

/// How many bytes a page may have.
const PAGE_BYTES_MAX: usize = 1_000_000;

#[derive(Clone)]
pub struct Browser {
    pub address: SocketAddr,
    /// `name=value` of its cookie.
    pub cookie: Option<String>,
}

/// An answer.
#[derive(Debug)]
pub struct Page {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Page {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The page has this text.
    #[track_caller]
    pub fn has(&self, text: &str) -> &Page {
        assert!(self.text.contains(text), "expected {text:?} in\n{}", self.text);
        self
    }

    #[track_caller]
    pub fn lacks(&self, text: &str) -> &Page {
        assert!(!self.text.contains(text), "expected no {text:?} in\n{}", self.text);
        self
    }

    /// The value of the first hidden field of this name.
    #[track_caller]
    pub fn hidden(&self, name: &str) -> String {
        let start = format!("name=\"{name}\" value=\"");
        let at = self.text.find(&start).unwrap_or_else(|| panic!("no {name} in\n{}", self.text));
        self.text[at + start.len()..].split('"').next().unwrap().to_owned()
    }
}

fn encode(fields: &[(&str, &str)]) -> String {
    let escape = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    fields
        .iter()
        .map(|(name, value)| format!("{}={}", escape(name), escape(value)))
        .collect::<Vec<_>>()
        .join("&")
}

impl Browser {
    /// Somebody who has not signed in.
    pub fn new(stage: &Stage) -> Browser {
        Browser { address: stage.address, cookie: None }
    }

    /// Somebody who has.
    pub async fn signed_in(stage: &Stage, token: &str) -> Browser {
        let mut browser = Browser::new(stage);
        let page = browser.sign_in(token).await;
        assert_eq!((page.status, page.header("location")), (303, "/"));
        browser
    }

    pub async fn sign_in(&mut self, token: &str) -> Page {
        let page = self.post("/sign-in", &[("token", token), ("next", "/")]).await;
        if let Some((cookie, _)) = page.header("set-cookie").split_once(';') {
            self.cookie = Some(cookie.to_owned());
        }
        page
    }

    /// A request with exactly these headers beside the cookie.
    pub async fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: String) -> Page {
        in_time(async {
            let stream = TcpStream::connect(self.address).await.unwrap();
            let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            let connection = tokio::spawn(async move { _ = connection.await });
            let mut request = hyper::Request::builder().method(method).uri(target);
            if !headers.iter().any(|(name, _)| *name == "host") {
                request = request.header("host", self.address.to_string());
            }
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            if let Some(cookie) = &self.cookie {
                request = request.header("cookie", cookie);
            }
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            let (head, body) = sender.send_request(request).await.unwrap().into_parts();
            let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
            connection.abort();
            assert!(text.len() <= PAGE_BYTES_MAX, "{target} has {} bytes", text.len());
            Page { status: head.status.as_u16(), headers: head.headers, text }
        })
        .await
    }

    /// A page.
    pub async fn get(&self, target: &str) -> Page {
        self.send("GET", target, &[], String::new()).await
    }

    /// A page that must be there.
    pub async fn ok(&self, target: &str) -> Page {
        let page = self.get(target).await;
        assert_eq!(page.status, 200, "{target}: {}", page.text);
        assert!(page.text.trim_end().ends_with("</html>"), "{target} is whole");
        page
    }

    /// A form of a page of the console.
    pub async fn post(&self, target: &str, fields: &[(&str, &str)]) -> Page {
        self.post_from(target, fields, &[("sec-fetch-site", "same-origin")]).await
    }

    /// A form of some page.
    pub async fn post_from(&self, target: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Page {
        let kind = ("content-type", "application/x-www-form-urlencoded");
        let headers: Vec<_> = headers.iter().copied().chain([kind]).collect();
        self.send("POST", target, &headers, encode(fields)).await
    }

    /// A form that does what it says, and the page that follows.
    pub async fn does(&self, target: &str, fields: &[(&str, &str)]) -> Page {
        let page = self.post(target, fields).await;
        assert_eq!(page.status, 303, "{target}: {}", page.text);
        self.ok(page.header("location")).await
    }
}
