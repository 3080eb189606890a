//! Whether a question of a worker is shown to somebody. A task remembers what its requester's client said that it can do when
//! it was created, so that a worker learns at once that it may wait for ever.

use handover_kernel::event::Question;
use handover_kernel::{Event, Fact, Session};

/// What a task remembers of a requester whose client follows it as a task: no call of it waits, and what a call would have
/// been answered reaches nobody. Both names are stored with tasks for ever, as the face that first had them wrote them.
pub const FOLLOWS: &str = "mcp.tasks";

/// The same of a client that shows questions to its user.
pub const SHOWS_QUESTIONS: &str = "mcp.elicitation";

/// What a worker is told whose question may be shown to nobody; its face says what to do in its own words.
pub const SEEN_BY_NOBODY: &str = "the requester's client follows this task and did not say that it can show questions, so that \
    nobody may ever see yours";

/// Whether the requester's client said that it can show questions to its user.
pub fn shows_questions(session: &Session) -> bool {
    declared(session, SHOWS_QUESTIONS)
}

/// Whether nobody at the other end will be shown a plain question: a client follows the task, and shows none.
pub fn is_seen_by_nobody(session: &Session) -> bool {
    declared(session, FOLLOWS) && !shows_questions(session)
}

/// The same for what an event asks. What is put in the requester's own protocol was refused unless its client can do it.
pub fn asks_nobody(session: &Session, event: &Event) -> bool {
    let Fact::Asked { questions, .. } = &event.fact else { return false };
    let plain = |question: &Question| question.wire.is_none();
    is_seen_by_nobody(session) && questions.iter().any(plain)
}

fn declared(session: &Session, what: &str) -> bool {
    session.binding.extension_keys.iter().any(|key| **key == *what)
}
