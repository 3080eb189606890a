//! Which messages were accepted: the same message id twice has one effect.
//!
//! An id counts within its scope: the session, one agent on one wire, or the runtime. Kept small, because every open
//! session has one: most sessions see few messages, and most ids are UUIDs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::command::Command;
use crate::event::Event;
use crate::id::{Author, Face, IdScope, MessageId, Seq, Text, Timestamp};

/// Up to so many messages a list is smaller than a map, and searching it costs nothing.
const FEW_MAX: usize = 16;

/// The messages that were accepted, with their place and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Seen {
    Few(Vec<(Name, Seq, Timestamp)>),
    Many(BTreeMap<Name, (Seq, Timestamp)>),
}

/// A message id within its scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Name {
    /// A UUID in its usual form, in the scope of the session.
    Uuid([u8; 16]),
    /// Anything else, with its scope.
    Text(Text),
}

impl Default for Seen {
    fn default() -> Self {
        Seen::Few(Vec::new())
    }
}

impl Seen {
    /// Where and when a message was accepted, if it was.
    pub(crate) fn get(&self, command: &Command) -> Option<(Seq, Timestamp)> {
        let name = name(command.id_scope, command.face, &command.by, command.id.as_ref()?);
        match self {
            Seen::Few(few) => few.iter().find(|(known, _, _)| *known == name).map(|(_, seq, at)| (*seq, *at)),
            Seen::Many(many) => many.get(&name).copied(),
        }
    }

    /// A message was accepted, if the event has an id.
    pub(crate) fn insert(&mut self, event: &Event) {
        let Some(id) = &event.id else { return };
        let name = name(event.id_scope, event.face, &event.author, id);
        let (seq, at) = (event.seq, event.at);
        match self {
            Seen::Few(few) if few.len() < FEW_MAX => few.push((name, seq, at)),
            Seen::Few(few) => {
                let mut many: BTreeMap<Name, (Seq, Timestamp)> =
                    few.drain(..).map(|(name, seq, at)| (name, (seq, at))).collect();
                many.insert(name, (seq, at));
                *self = Seen::Many(many);
            }
            Seen::Many(many) => {
                many.insert(name, (seq, at));
            }
        }
    }
}

fn name(scope: IdScope, face: Face, author: &Author, id: &MessageId) -> Name {
    match (scope, author) {
        (IdScope::Session, _) => match uuid(id.as_str()) {
            Some(bytes) => Name::Uuid(bytes),
            None => Name::Text(Text::from(format!("m {id}"))),
        },
        (IdScope::Sender, Author::Agent(agent)) => {
            Name::Text(Text::from(format!("{face:?} {} {agent} {id}", agent.as_str().len())))
        }
        (IdScope::Sender, Author::Runtime) | (IdScope::Runtime, _) => {
            Name::Text(Text::from(format!("r {id}")))
        }
    }
}

/// The bytes of a UUID that is written in the one way that gives the same text back: lowercase, with dashes.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits = text.as_bytes();
    if digits.len() != 36 {
        return None;
    }
    let mut bytes = [0; 16];
    let mut place = 0;
    for (index, digit) in digits.iter().enumerate() {
        if matches!(index, 8 | 13 | 18 | 23) {
            if *digit != b'-' {
                return None;
            }
            continue;
        }
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        bytes[place / 2] = bytes[place / 2] << 4 | value;
        place += 1;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Act;
    use crate::event::Fact;
    use crate::id::AgentId;

    fn by(agent: &str, face: Face) -> Command {
        Command::by(&AgentId::from(agent), face, Act::Tick)
    }

    /// The event of a command, ten milliseconds after the one before it.
    fn event(command: &Command, n: u64) -> Event {
        Event {
            seq: Seq(n),
            at: Timestamp(n * 10),
            author: command.by.clone(),
            face: command.face,
            ordinal: None,
            id: command.id.clone(),
            id_scope: command.id_scope,
            verbatim: None,
            sent_at: None,
            trace: None,
            fact: Fact::Acknowledged,
        }
    }

    #[test]
    fn only_a_uuid_in_its_usual_form_is_kept_as_one() {
        let usual = "0123abcd-4567-89ef-0123-456789abcdef";
        assert_eq!(
            uuid(usual).map(|bytes| bytes.map(|byte| format!("{byte:02x}")).concat()),
            Some(usual.replace('-', ""))
        );
        for other in [usual.to_uppercase().as_str(), &usual.replace('-', "_"), &usual[1..], "", "0123abcd"] {
            assert_eq!(uuid(other), None, "{other}");
        }
    }

    #[test]
    fn a_message_is_found_among_few_and_among_many() {
        let mut seen = Seen::default();
        let put = |n: u64| by("planner", Face::Mcp).in_session_scope().with_id(format!("message {n}"));
        for n in 1..=(FEW_MAX as u64 * 3) {
            assert_eq!(seen.get(&put(n)), None);
            seen.insert(&event(&put(n), n));
            for known in 1..=n {
                assert_eq!(seen.get(&put(known)), Some((Seq(known), Timestamp(known * 10))));
            }
        }
    }

    #[test]
    fn scopes_do_not_meet() {
        let mut seen = Seen::default();
        let one = |agent, face| by(agent, face).with_id("one");
        seen.insert(&event(&one("planner", Face::Mcp), 1));
        assert_eq!(seen.get(&one("worker", Face::Mcp)), None);
        assert_eq!(seen.get(&one("planner", Face::Grid)), None);
        assert_eq!(seen.get(&one("planner", Face::Mcp).in_session_scope()), None);
        assert_eq!(seen.get(&Command::runtime(Act::Tick).with_id("one")), None);
        assert!(seen.get(&one("planner", Face::Mcp)).is_some());
        seen.insert(&event(&one("planner", Face::Macp).in_session_scope(), 2));
        let other = one("worker", Face::Mcp).in_session_scope();
        assert!(seen.get(&other).is_some(), "one space, whoever sends and on whatever wire");
    }
}
