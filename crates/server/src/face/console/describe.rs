//! The OpenAPI description of everything over HTTP that does not describe itself: the console, the server's own pages, and the
//! directory of Grid.

use axum::extract::{Request, State};
use axum::response::Response;

use super::Console;
use crate::http::json_answer;

/// The document, and the name of the cookie in it.
const DOCUMENT: &str = include_str!("../../../../../docs/openapi.json");
const COOKIE: &str = "\"handover-8420\"";

/// The document, with the name that the cookie has here.
pub(super) async fn serve(State(console): State<Console>, request: Request) -> Response {
    let cookie = format!("\"{}\"", console.cookie_name(request.uri(), request.headers()));
    json_answer(200, DOCUMENT.replacen(COOKIE, &cookie, 1), None)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    fn described() -> BTreeSet<String> {
        document()["paths"].as_object().unwrap().keys().cloned().collect()
    }

    /// What the routes are made from, without the tests below it.
    const ROUTES: [&str; 6] = [
        include_str!("http.rs"),
        include_str!("../../http.rs"),
        include_str!("../../http/backup.rs"),
        include_str!("../grid/http.rs"),
        include_str!("../grid/nodes.rs"),
        include_str!("../mcp/http.rs"),
    ];

    /// What is described elsewhere: the forms of a task one by one, MCP by itself, Grid's methods by OpenRPC.
    const ELSEWHERE: [&str; 4] = ["/tasks/{id}/{act}", "/mcp", "/grid/a2a/{node}", "/grid/a2a/{node}/events"];

    #[test]
    fn every_route_is_described() {
        let (described, mut found) = (described(), 0);
        for source in ROUTES {
            let routes = source.split(".route(\"").skip(1).chain(source.split("for path in [").skip(1));
            for text in routes {
                let until = if text.starts_with('"') { ']' } else { '"' };
                let paths = text.split(until).next().unwrap();
                for path in paths.split(',').map(|path| path.trim().trim_matches('"')) {
                    found += 1;
                    let known = described.contains(path) || ELSEWHERE.contains(&path);
                    assert!(known, "{path} is not in docs/openapi.json");
                }
            }
        }
        assert!(found > 30, "found {found} routes");
        let help = handover_desk::codes::pages::PATH;
        for path in [help.to_owned(), format!("{help}/"), format!("{help}/{{code}}")] {
            assert!(described.contains(&path), "{path} is not in docs/openapi.json");
        }
    }

    #[test]
    fn every_act_of_the_console_is_described_and_no_other() {
        let source = include_str!("acts.rs");
        let acts = source.split("let act = match act {").nth(1).unwrap();
        let acts = acts.split("other => return Err(expected(\"an act").next().unwrap();
        let arms = acts.lines().filter_map(|line| line.strip_prefix("        \"")?.split_once("\" => "));
        let acts: BTreeSet<_> = arms.map(|(name, _)| format!("/tasks/{{id}}/{name}")).collect();
        let forms = document();
        let forms = forms["paths"].as_object().unwrap().iter();
        let forms = forms.filter(|(path, it)| path.starts_with("/tasks/") && it["post"].is_object());
        assert_eq!(forms.map(|(path, _)| path.clone()).collect::<BTreeSet<_>>(), acts);
    }

    #[test]
    fn the_document_names_this_release_and_the_cookie_once() {
        assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(DOCUMENT.matches(COOKIE).count(), 1);
    }
}
