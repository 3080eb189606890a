//! The conversation of a task: who has read what, who has acknowledged, and how each side finds it again.

use serde::{Deserialize, Serialize};

use crate::id::{Blob, Millis, Seq, Text, Timestamp};

/// The two sides of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The agent that started the task.
    Requester,
    /// The agent that has it, or may take it.
    Receiver,
}

impl Party {
    /// The other one.
    pub fn other(self) -> Party {
        match self {
            Party::Requester => Party::Receiver,
            Party::Receiver => Party::Requester,
        }
    }
}

/// What one side has seen, and its session key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// The messages and notices that it has not read.
    pub unread: Vec<Seq>,
    /// The last one that it has.
    pub read_up_to: Seq,
    /// Its own name for the conversation.
    pub key: Option<Text>,
}

/// A message that the receiver should acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckIn {
    /// The message that waits.
    pub message: Seq,
    /// When the window opened.
    pub opened: Timestamp,
    /// When it counts as missed, later by the time that the session was suspended.
    pub due: Timestamp,
}

/// The conversation of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// How many messages there are, the request among them.
    pub messages: usize,
    /// The window that is open.
    pub check_in: Option<CheckIn>,
    /// The message whose window passed without a sign of the receiver, which has given none since.
    pub check_in_missed: Option<Seq>,
    /// The last thing that the assignee said.
    pub last_words: Option<Blob>,
    requester: Side,
    receiver: Side,
}

impl Conversation {
    /// One side of it.
    pub fn side(&self, party: Party) -> &Side {
        match party {
            Party::Requester => &self.requester,
            Party::Receiver => &self.receiver,
        }
    }

    pub(crate) fn side_mut(&mut self, party: Party) -> &mut Side {
        match party {
            Party::Requester => &mut self.requester,
            Party::Receiver => &mut self.receiver,
        }
    }

    pub(crate) fn message(&mut self, seq: Seq, from: Party) {
        self.messages += 1;
        let unread = &mut self.side_mut(from.other()).unread;
        if unread.is_empty() {
            // Most tasks have one message, the request.
            unread.reserve_exact(1);
        }
        unread.push(seq);
    }

    /// A change of state, told to everybody but the one that made it.
    pub(crate) fn notice(&mut self, seq: Seq, from: Option<Party>) {
        for party in [Party::Requester, Party::Receiver] {
            let unread = &mut self.side_mut(party).unread;
            if from != Some(party) && unread.last() != Some(&seq) {
                unread.push(seq);
            }
        }
    }

    pub(crate) fn read(&mut self, party: Party, up_to: Seq) {
        let side = self.side_mut(party);
        side.unread.retain(|seq| *seq > up_to);
        side.read_up_to = side.read_up_to.max(up_to);
    }

    /// Whether a sign of the receiver would be news.
    pub(crate) fn awaits_sign(&self) -> bool {
        self.check_in.is_some() || self.check_in_missed.is_some()
    }

    /// The receiver has shown that it is there.
    pub(crate) fn sign(&mut self) {
        self.check_in = None;
        self.check_in_missed = None;
    }

    pub(crate) fn miss_check_in(&mut self, message: Seq) {
        self.check_in = None;
        self.check_in_missed = Some(message);
    }

    /// Open a window, unless an older message still waits for its acknowledgement.
    pub(crate) fn expect_check_in(&mut self, message: Seq, at: Timestamp, window: Option<Millis>) {
        if let (None, Some(window)) = (self.check_in, window) {
            self.check_in = Some(CheckIn { message, opened: at, due: at.plus(window) });
        }
    }

    /// Time in which the session was suspended does not count. A message that came meanwhile has waited only since
    /// it came.
    pub(crate) fn shift(&mut self, since: Timestamp, until: Timestamp) {
        if let Some(check_in) = &mut self.check_in {
            let stood_still = until.since(since.max(check_in.opened));
            check_in.due = check_in.due.plus(stood_still);
        }
    }
}
