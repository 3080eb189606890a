//! Which records mean something in another store: what an archive takes, and what it leaves out.

use crate::directory::{NAMES_SPACE, SPACE as AGENTS, VERSIONS_SPACE};
use crate::identity::bound;
use crate::{announce, id, identity::signins, policies};

/// The spaces whose records can be taken to another store.
const TAKEN: [(&str, &str); 7] = [
    (AGENTS, "agents"),
    (NAMES_SPACE, "lists of tool names"),
    (policies::SPACE, "policies"),
    (bound::KEYS, "bound keys"),
    (bound::LISTS, "lists of bound keys"),
    // So that a signed request that was taken here counts for nothing there.
    (bound::MARKS, "marks of signed requests"),
    (id::SPACE, "secret for derived ids"),
];

/// The spaces whose records stay where they are.
const LEFT: [(&str, &str); 6] = [
    // Who is let in by a cookie signs in again.
    (signins::SPACE, "sign-ins"),
    (signins::LISTS, "lists of sign-ins"),
    // Positions in the store's own log, which are others there.
    (announce::SPACE, "places of webhooks"),
    ("traces", "places of traces"),
    // Counts the changes that the store's own nodes made.
    (VERSIONS_SPACE, "versions of directories"),
    // What a server's own configuration was when it last started.
    (id::SPACE, "settings for the audit log"),
];

/// Whether a record can be taken to another store.
pub fn is_taken(space: &str, key: &str) -> bool {
    TAKEN.iter().any(|(taken, _)| *taken == space) && (space != id::SPACE || key == id::KEY)
}

/// Whether a record gives way when those of another store take the place of those that are there. What was signed here stays
/// known.
pub fn is_replaced(space: &str, key: &str) -> bool {
    is_taken(space, key) && space != bound::MARKS
}

/// The space of names that are given out to the agents of a tenant together: none of them can be added by itself.
pub const SHARED: &str = NAMES_SPACE;

/// What the records of a space are called.
pub fn called(space: &str, key: &str) -> &'static str {
    let table = if is_taken(space, key) { &TAKEN[..] } else { &LEFT[..] };
    table.iter().find(|(named, _)| *named == space).map_or("records of another kind", |(_, called)| called)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_taken_and_what_is_the_servers_own_is_not() {
        assert!(is_taken("server", "id-secret") && is_taken("agent", "ada") && is_taken("nonce", "x"));
        for (space, key) in
            [("server", "identity.tokens"), ("signin", "x"), ("announce", "ada"), ("else", "x")]
        {
            assert!(!is_taken(space, key), "{space}");
        }
        assert_eq!(called("server", "id-secret"), "secret for derived ids");
        assert_eq!(called("server", "identity.tokens"), "settings for the audit log");
        assert_eq!(called("traces", "0"), "places of traces");
        assert_eq!(called("else", ""), "records of another kind");
    }
}
