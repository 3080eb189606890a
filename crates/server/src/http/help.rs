//! A page for each error code, where the errors say that it is: for everybody, and without a token.

use axum::Router;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::problem;
use handover_desk::codes::own;
use handover_desk::codes::pages::{self, INDEX, PATH};

const MARKDOWN: &str = "text/markdown; charset=utf-8";

/// The routes of the pages.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let index = || async { markdown(INDEX) };
    Router::new()
        .route(PATH, get(index))
        .route(&format!("{PATH}/"), get(index))
        .route(&format!("{PATH}/{{code}}"), get(page))
}

/// Whether a path is one of theirs.
pub(super) fn is_page(path: &str) -> bool {
    path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The pages link to each other by the names of their files.
async fn page(Path(code): Path<String>) -> Response {
    match pages::page(code.strip_suffix(".md").unwrap_or(&code)) {
        Some(page) => markdown(page),
        None => problem(&own::NOT_FOUND, &format!("there is no such error code: {PATH} lists all of them")),
    }
}

fn markdown(page: &'static str) -> Response {
    ([(header::CONTENT_TYPE, MARKDOWN)], page).into_response()
}
