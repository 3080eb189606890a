//! What an act brings about in other sessions: whoever acts is answered when that is done as well.

use std::sync::Arc;
use std::time::Duration;

use handover_engine::{Denied, Ended, Key, Topic};
use handover_kernel::errand::{Verdict, is_parents};
use handover_kernel::session::Lifecycle;
use handover_kernel::{Session, SessionId};
use handover_store::{Place, SessionKey};
use tokio::time::{Instant, timeout_at};

use crate::Desk;
use crate::caller::Caller;
use crate::no::No;

/// How long an answer waits for what happens elsewhere: usually a commit, but a task may be paused, and then it takes its time.
const WITHIN: Duration = Duration::from_secs(2);

/// How many tasks under a cancelled one are looked at.
const BELOW_MAX: usize = 200;

/// What became of the tasks under a cancelled one.
#[derive(Debug)]
pub struct Below {
    /// Those that were cancelled with it.
    pub reached: Vec<SessionId>,
    /// Those that go on, because they are to be kept or are not reached yet.
    pub left: Vec<SessionId>,
}

/// Why the task that a settled handoff names has not been handed on, as a code; none if it has been, or if there is none.
pub fn not_moved(session: &Session) -> Option<&str> {
    match &session.handoff()?.moved {
        Some(Verdict::Done) => None,
        Some(Verdict::Refused { code }) => Some(code),
        // It is carried out as soon as the task goes on.
        None if owes(session) => Some("SESSION_SUSPENDED"),
        None => None,
    }
}

/// Whether something that was done in a session is still to be done in another.
fn owes(session: &Session) -> bool {
    !session.errands.is_empty()
}

impl Desk {
    /// Wait until a session owes nothing more of what was just done in it, if that does not take too long. Returns it as it is
    /// then.
    pub(crate) async fn when_settled(
        &self,
        key: &SessionKey,
        mut session: Arc<Session>,
    ) -> Result<Arc<Session>, Denied> {
        let until = Instant::now() + WITHIN;
        if !owes(&session) {
            return Ok(session);
        }
        let topic = Topic::Session(Key::from(key.clone()));
        let mut events = self.engine.subscribe(topic, Place::first_slot(session.head.0));
        while owes(&session) {
            match timeout_at(until, events.next()).await {
                Ok(Ok(_)) => {}
                Ok(Err(Ended::TooSlow { resume_after })) => events.begin_again(resume_after),
                Ok(Err(Ended::Denied(denied))) => return Err(denied),
                Err(_) => break,
            }
            session = self.engine.session(key.clone()).await?.unwrap_or(session);
        }
        Ok(session)
    }

    /// What a cancellation has reached under a task, when it has gone as far as it goes, if that does not take too long.
    pub async fn below_cancelled(&self, caller: &Caller, task: &str) -> Result<Below, No> {
        let until = Instant::now() + WITHIN;
        loop {
            let (tree, _) = self.tree(caller, task, BELOW_MAX).await?;
            // What was cancelled goes on to what it has delegated itself.
            let going = tree.iter().find(|branch| owes(&branch.session)).filter(|_| Instant::now() < until);
            if let Some(branch) = going {
                let key = SessionKey::new(caller.tenant.clone(), branch.session.binding.id.as_str());
                self.when_settled(&key, Arc::clone(&branch.session)).await?;
                continue;
            }
            let mut below = Below { reached: Vec::new(), left: Vec::new() };
            for branch in tree.iter().skip(1) {
                let Session { lifecycle, binding, .. } = &*branch.session;
                if matches!(lifecycle, Lifecycle::Cancelled { reason, .. } if is_parents(reason)) {
                    below.reached.push(binding.id.clone());
                } else if !lifecycle.is_terminal() {
                    below.left.push(binding.id.clone());
                }
            }
            return Ok(below);
        }
    }
}
