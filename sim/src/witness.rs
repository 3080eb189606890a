//! The log is the witness: an answer that wrote nothing must be what the kernel says of the session as it was at some moment
//! between the question and the answer.

use handover_engine::errands::preflight;
use handover_kernel::session::apply;
use handover_kernel::{Event, Refusal, Session, SessionId, step};

use crate::check;
use crate::world::World;

impl World {
    /// The session as its first events tell it, for each number of events that it can have had since an operation was sent.
    fn since(&self, op: usize, events: &[Event]) -> Vec<Option<Session>> {
        let id = SessionId::from(&*self.ops[op].key.session);
        let (from, _) = self.ops[op].asked;
        let mut slot = None;
        let mut all = vec![slot.clone()];
        for event in events {
            apply(&mut slot, &id, event);
            all.push(slot.clone());
        }
        all.split_off(usize::try_from(from.0).unwrap_or(usize::MAX).min(all.len() - 1))
    }

    /// Whoever looked saw the session as it was.
    pub(crate) fn witness_look(&mut self, op: usize, seen: Option<&Session>) -> Result<(), String> {
        let events = check::log(self.disk.store(), &self.ops[op].key)?;
        if !self.since(op, &events).iter().any(|session| session.as_ref() == seen) {
            let head = seen.map(|session| session.head);
            return Err(format!("op {op} saw {head:?} of {} events, which is out of date", events.len()));
        }
        self.witnessed += 1;
        Ok(())
    }

    /// Whoever was refused would have been refused then, for the same reason. What another session or a count of sessions
    /// has to say is not in the log. Says whether the log could tell.
    pub(crate) fn witness_refusal(
        &mut self,
        op: usize,
        refusal: &Refusal,
        events: &[Event],
    ) -> Result<bool, String> {
        let of_others =
            matches!(refusal, Refusal::TooManySessions { .. } | Refusal::BudgetSpent { .. } | Refusal::Busy);
        let asked = &self.ops[op];
        if of_others || *refusal == Refusal::DuplicateMessage {
            return Ok(false);
        }
        let id = SessionId::from(&*asked.key.session);
        let (from, until) = (asked.asked.1, self.now.plus(self.skew_max_ms()));
        let refuses = |session: &Option<Session>| {
            // What is due by then comes first, so that the time counts too.
            let wakes = session.as_ref().and_then(Session::wake_at);
            let times = [Some(from), Some(until), wakes.filter(|at| *at > from && *at < until)];
            times.into_iter().flatten().any(|at| {
                let said = step(&mut session.clone(), &id, &asked.command, &self.limits, at).answer;
                said.err().as_ref().map(Refusal::code) == Some(refusal.code())
            })
        };
        if !self.since(op, events).iter().any(refuses) {
            // Another session may have refused it.
            if preflight(&asked.key, &asked.command).is_some() {
                return Ok(false);
            }
            return Err(format!("op {op} was refused {}, which is out of date", refusal.code()));
        }
        self.witnessed += 1;
        Ok(true)
    }
}
