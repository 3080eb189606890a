//! The conversation of a task: who has read what, who has acknowledged, and how each side finds it again.

use serde::{Deserialize, Serialize};

use crate::command::CheckInTerms;
use crate::id::{Blob, Millis, Seq, Text, Timestamp};

/// How often a receiver that gives no sign is reported to the requester, for one message.
pub const CHECK_INS_MAX: u32 = 10;

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
    /// How long each window is.
    pub window_ms: Millis,
    /// How many have passed without a sign.
    pub missed: u32,
    /// After how many of them the task has failed.
    pub misses_max: Option<u32>,
}

/// A message that was not acknowledged in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    /// Which message.
    pub message: Seq,
    /// How many windows have passed.
    pub times: u32,
    /// When the first window passed without any sign since, of this message or of one before.
    pub since: Timestamp,
}

impl CheckIn {
    /// What follows if the window passes now: when the next one does, and whether the task has failed.
    pub(crate) fn after_miss(&self) -> (Option<Timestamp>, bool) {
        let missed = self.missed + 1;
        let gives_up = self.misses_max.is_some_and(|most| missed >= most);
        let most = self.misses_max.unwrap_or(CHECK_INS_MAX);
        // A window of no length would pass again at once.
        let again = missed < most && self.window_ms > 0;
        (again.then(|| self.due.plus(self.window_ms)), gives_up)
    }
}

/// The conversation of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// How many messages there are, the request among them.
    pub messages: usize,
    /// The window that is open.
    pub check_in: Option<Box<CheckIn>>,
    /// What the receiver has not acknowledged in time, without a sign since.
    pub check_in_missed: Option<Box<Missed>>,
    /// Since when the task has failed because the receiver gave no sign.
    pub given_up: Option<Timestamp>,
    /// Whether the receiver has given no sign since the requester last said something.
    pub unacknowledged: bool,
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
        if from == Party::Requester {
            self.unacknowledged = true;
        }
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

    /// The receiver has shown that it is there.
    pub(crate) fn sign(&mut self) {
        self.check_in = None;
        self.check_in_missed = None;
        self.given_up = None;
        self.unacknowledged = false;
    }

    pub(crate) fn miss_check_in(&mut self, message: Seq, at: Timestamp, next: Option<Timestamp>) {
        let since = self.check_in_missed.as_deref().map_or(at, |missed| missed.since);
        let before = self.check_in_missed.as_deref().filter(|missed| missed.message == message);
        let times = before.map_or(0, |missed| missed.times) + 1;
        self.check_in_missed = Some(Box::new(Missed { message, times, since }));
        match (&mut self.check_in, next) {
            (Some(check_in), Some(next)) => {
                check_in.missed += 1;
                check_in.due = next;
            }
            (_, None) => self.check_in = None,
            (None, Some(_)) => {}
        }
    }

    /// Open a window, unless an older message still waits for its acknowledgement and its time is not up.
    pub(crate) fn expect_check_in(&mut self, message: Seq, at: Timestamp, terms: CheckInTerms) {
        let waits = self.check_in.as_deref().is_some_and(|check_in| check_in.missed == 0);
        if let (false, Some(window_ms)) = (waits, terms.window_ms) {
            let due = at.plus(window_ms);
            let misses_max = terms.misses_max;
            let check_in = CheckIn { message, opened: at, due, window_ms, missed: 0, misses_max };
            self.check_in = Some(Box::new(check_in));
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
