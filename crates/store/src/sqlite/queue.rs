//! Group commit: concurrent calls share one record of the journal, or one transaction, and one sync.
//!
//! There is no writer thread. Whoever comes first leads: it takes everything that is waiting, commits it, answers the
//! others, and lets the first of those who came meanwhile lead next. A lone caller thus commits on its own thread
//! without a hop, and a crowd shares one sync.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::work::{Reply, Work};
use crate::fault::Fault;

/// What became of one piece of work.
pub(super) type Answer = Result<Reply, Fault>;

/// Work that waits for the next commit.
pub(super) struct Queue {
    line: Mutex<Line>,
    events_max: usize,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<(Work, Arc<Ticket>)>,
    /// Whether someone is committing. Nobody is only if nothing waits.
    led: bool,
}

#[derive(Default)]
struct Ticket {
    turn: Mutex<Turn>,
    changed: Condvar,
}

#[derive(Default)]
enum Turn {
    #[default]
    Wait,
    Lead,
    Answered(Answer),
}

impl Queue {
    /// A queue whose commits take work until they hold `events_max` events.
    pub(super) fn new(events_max: usize) -> Self {
        Queue { line: Mutex::default(), events_max }
    }

    /// Have `work` committed, by this thread or another, and wait for it. `commit` gives one answer per piece of work.
    pub(super) fn submit(&self, work: Work, commit: impl FnOnce(Vec<Work>) -> Vec<Answer>) -> Answer {
        let ticket = Arc::new(Ticket::default());
        let mut line = self.line();
        line.waiting.push_back((work, ticket.clone()));
        if line.led {
            drop(line);
            if let Some(answer) = ticket.wait() {
                return answer;
            }
        } else {
            line.led = true;
            drop(line);
        }
        let (works, tickets) = self.take();
        let mut lead = Lead { queue: self, tickets };
        let answers = commit(works);
        assert_eq!(answers.len(), lead.tickets.len(), "one answer per piece of work");
        let mut own = None;
        for (answered, answer) in lead.tickets.drain(..).zip(answers) {
            if Arc::ptr_eq(&answered, &ticket) {
                own = Some(answer);
            } else {
                answered.set(Turn::Answered(answer));
            }
        }
        drop(lead);
        own.expect("a leader's own work is in the group that it commits")
    }

    /// The next group: of what goes to the journal, or of what does not. The leader's own work is at the front of the line,
    /// so there is always some.
    fn take(&self) -> (Vec<Work>, Vec<Arc<Ticket>>) {
        let mut line = self.line();
        let journaled = line.waiting.front().is_some_and(|(work, _)| work.is_journaled());
        let mut events = 0;
        let mut count = 0;
        while let Some((work, _)) = line.waiting.get(count)
            && work.is_journaled() == journaled
            && (count == 0 || events < self.events_max)
        {
            events = work.events().saturating_add(events);
            count += 1;
        }
        line.waiting.drain(..count).unzip()
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().expect("no holder of the line panics")
    }
}

impl Ticket {
    fn set(&self, turn: Turn) {
        *self.turn.lock().expect("no holder of a ticket panics") = turn;
        self.changed.notify_one();
    }

    /// Wait until there is something to do: an answer to return, or, if none, a group to lead.
    fn wait(&self) -> Option<Answer> {
        let mut turn = self.turn.lock().expect("no holder of a ticket panics");
        loop {
            match std::mem::take(&mut *turn) {
                Turn::Wait => turn = self.changed.wait(turn).expect("no holder of a ticket panics"),
                Turn::Lead => return None,
                Turn::Answered(answer) => return Some(answer),
            }
        }
    }
}

/// Being the leader. Ends by passing it on, also when the leader panics, so that nobody waits for ever.
struct Lead<'a> {
    queue: &'a Queue,
    /// Who is not answered yet.
    tickets: Vec<Arc<Ticket>>,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        for ticket in self.tickets.drain(..) {
            let source = "the thread that was committing stopped".into();
            ticket.set(Turn::Answered(Err(Fault::Unavailable { doing: "committing", source })));
        }
        let mut line = self.queue.line();
        match line.waiting.front() {
            Some((_, next)) => next.set(Turn::Lead),
            None => line.led = false,
        }
    }
}
