//! Where a request says whose it is.

use axum::http::{HeaderMap, header};

/// The token of `authorization: Bearer <token>`.
pub fn token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim_ascii();
    let (scheme, token) = value.split_at_checked("bearer".len())?;
    token.strip_prefix(' ').filter(|_| scheme.eq_ignore_ascii_case("bearer"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_follows_the_word_bearer() {
        let found = |text: &'static str| {
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, text.parse().unwrap())]);
            token(&headers).map(str::to_owned)
        };
        assert_eq!(found("Bearer planner").as_deref(), Some("planner"));
        assert_eq!(found(" bearer planner ").as_deref(), Some("planner"));
        for wrong in ["Basic planner", "Bearer", "planner", ""] {
            assert_eq!(found(wrong), None, "{wrong}");
        }
        assert_eq!(token(&HeaderMap::new()), None);
    }
}
