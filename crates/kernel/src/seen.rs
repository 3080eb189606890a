//! Which messages were accepted: the same message id twice has one effect.
//!
//! Ids of MACP senders are one space per session; ids from other faces are scoped by face and agent. Kept small, because
//! every open session has one: most sessions see few messages, and most ids are UUIDs.

use std::collections::BTreeMap;

use crate::id::{Author, Face, MessageId, Seq, Text, Timestamp};

/// Up to so many messages a list is smaller than a map, and searching it costs nothing.
const FEW_MAX: usize = 16;

/// The messages that were accepted, with their place and time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Few(Vec<(Name, Seq, Timestamp)>),
    Many(BTreeMap<Name, (Seq, Timestamp)>),
}

/// A message id within its scope.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// A UUID in its usual form, of a MACP sender.
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
    pub(crate) fn get(&self, face: Face, author: &Author, id: &MessageId) -> Option<(Seq, Timestamp)> {
        let name = name(face, author, id);
        match self {
            Seen::Few(few) => few.iter().find(|(known, _, _)| *known == name).map(|(_, seq, at)| (*seq, *at)),
            Seen::Many(many) => many.get(&name).copied(),
        }
    }

    /// A message was accepted.
    pub(crate) fn insert(&mut self, face: Face, author: &Author, id: &MessageId, seq: Seq, at: Timestamp) {
        let name = name(face, author, id);
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

fn name(face: Face, author: &Author, id: &MessageId) -> Name {
    match (face, author) {
        (Face::Macp, _) => match uuid(id.as_str()) {
            Some(bytes) => Name::Uuid(bytes),
            None => Name::Text(Text::from(format!("m {id}"))),
        },
        (Face::Mcp | Face::Grid | Face::Console | Face::Cli, Author::Agent(agent)) => {
            Name::Text(Text::from(format!("{face:?} {} {agent} {id}", agent.as_str().len())))
        }
        (Face::Mcp | Face::Grid | Face::Console | Face::Cli, Author::Runtime) | (Face::Runtime, _) => {
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
    use crate::id::AgentId;

    fn planner() -> Author {
        Author::Agent(AgentId::from("planner"))
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
        let id = |n: u64| MessageId::from(format!("message {n}"));
        for n in 1..=(FEW_MAX as u64 * 3) {
            assert_eq!(seen.get(Face::Macp, &planner(), &id(n)), None);
            seen.insert(Face::Macp, &planner(), &id(n), Seq(n), Timestamp(n * 10));
            for known in 1..=n {
                assert_eq!(
                    seen.get(Face::Macp, &planner(), &id(known)),
                    Some((Seq(known), Timestamp(known * 10)))
                );
            }
        }
    }

    #[test]
    fn scopes_do_not_meet() {
        let mut seen = Seen::default();
        let id = MessageId::from("one");
        let other = Author::Agent(AgentId::from("worker"));
        seen.insert(Face::Mcp, &planner(), &id, Seq(1), Timestamp(1));
        assert_eq!(seen.get(Face::Mcp, &other, &id), None);
        assert_eq!(seen.get(Face::Grid, &planner(), &id), None);
        assert_eq!(seen.get(Face::Macp, &planner(), &id), None);
        assert!(seen.get(Face::Mcp, &planner(), &id).is_some());
        seen.insert(Face::Macp, &planner(), &id, Seq(2), Timestamp(2));
        assert!(seen.get(Face::Macp, &other, &id).is_some(), "MACP ids are one space, whoever sends");
    }
}
