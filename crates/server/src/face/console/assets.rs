//! What pages load: one style sheet, one script and an icon, in the binary, under names that change with what is in them.

use std::hash::{DefaultHasher, Hasher};
use std::sync::LazyLock;

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// Something that pages load.
pub(super) struct Asset {
    path: String,
    kind: &'static str,
    text: &'static str,
}

/// The style sheet, the script and the icon.
static ALL: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    [
        Asset::new("console", "css", "text/css; charset=utf-8", include_str!("console.css")),
        Asset::new("console", "js", "text/javascript; charset=utf-8", include_str!("console.js")),
        Asset::new("icon", "svg", "image/svg+xml", include_str!("icon.svg")),
    ]
});

impl Asset {
    fn new(name: &str, ending: &str, kind: &'static str, text: &'static str) -> Asset {
        let mut hasher = DefaultHasher::new();
        hasher.write(text.as_bytes());
        Asset { path: format!("/assets/{name}-{:016x}.{ending}", hasher.finish()), kind, text }
    }
}

/// Where the style sheet is.
pub(super) fn css() -> &'static str {
    &ALL[0].path
}

/// Where the script is.
pub(super) fn js() -> &'static str {
    &ALL[1].path
}

/// Where the icon is.
pub(super) fn icon() -> &'static str {
    &ALL[2].path
}

/// What is at a path. It never changes, so that it may be kept for ever.
pub(super) fn at(path: &str) -> Option<Response> {
    let found = ALL.iter().find(|asset| asset.path == path)?;
    let mut response = found.text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(found.kind));
    let kept = HeaderValue::from_static("public, max-age=31536000, immutable");
    headers.insert(header::CACHE_CONTROL, kept);
    Some(response)
}
