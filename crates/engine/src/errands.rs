//! What spans two sessions: who is asked before a command, and how an errand travels there and back.

use std::collections::{BTreeMap, BTreeSet};

use handover_kernel::command::{Act, Command, HandoffAct, NewOffer, Opening, TaskAct};
use handover_kernel::errand::{Errand, Verdict};
use handover_kernel::handoff::task_of_scope;
use handover_kernel::id::{Author, SessionId};
use handover_kernel::{AgentId, Refusal, Text};
use handover_store::SessionKey;

use crate::answer::{Answer, Denied};
use crate::key::Key;

/// What another session must agree to before the command is put to its own: the running task that an offer's scope
/// names, the parent of a subtask.
pub fn preflight(key: &SessionKey, command: &Command) -> Option<(Key, Command)> {
    let Author::Agent(by) = &command.by else {
        return None;
    };
    let by = by.clone();
    let (other, act) = match &command.act {
        Act::Handoff(HandoffAct::Offer(offer)) => hand_on(offer, by)?,
        Act::Start(start) => (start.parent.clone()?, TaskAct::CanHaveChild { by }),
        Act::Delegate(delegation) => match &delegation.opening {
            Opening::Request(_) => (delegation.start.parent.clone()?, TaskAct::CanHaveChild { by }),
            Opening::Offer(offer) => hand_on(offer, by)?,
        },
        Act::Handoff(HandoffAct::Context { .. } | HandoffAct::Accept { .. } | HandoffAct::Decline { .. })
        | Act::Cancel { .. }
        | Act::Pause { .. }
        | Act::Resume { .. }
        | Act::Tick
        | Act::Commit(_)
        | Act::Decide { .. }
        | Act::Task(_)
        | Act::SettleErrand { .. } => return None,
    };
    Some((beside(key, &other), Command::runtime(Act::Task(act))))
}

/// The task that an offer hands on, if it names one, and what it must agree to.
fn hand_on(offer: &NewOffer, by: AgentId) -> Option<(SessionId, TaskAct)> {
    Some((task_of_scope(&offer.scope)?, TaskAct::CanHandOn { by, to: offer.target.clone() }))
}

/// How the other session's no becomes the command's own: a session that the caller cannot see is not named.
pub fn preflight_refusal(refusal: Refusal) -> Refusal {
    let unknown = "expected a task that the sender has a part in, found no such task";
    let hidden = matches!(
        refusal,
        Refusal::SessionNotFound | Refusal::NotParticipant { .. } | Refusal::WrongMode { .. }
    );
    if hidden { Refusal::invalid(unknown) } else { refusal }
}

/// What the root of a budget is asked before a task starts under it.
pub fn reserve(key: &SessionKey, root: &SessionId, depth: u32) -> (Key, Command) {
    let child = SessionId::from(&*key.session);
    (beside(key, root), Command::runtime(Act::Task(TaskAct::Reserve { child, depth })))
}

/// How the root's no becomes the start's own: one that is not there any more has ended.
pub fn reserve_refusal(refusal: Refusal) -> Refusal {
    if refusal == Refusal::SessionNotFound { Refusal::budget_ended() } else { refusal }
}

/// Where an errand goes, and what it asks for there.
pub fn outbound(from: &Key, errand: &Errand) -> (Key, Command) {
    let session = SessionId::from(&*from.session);
    let command = Command::runtime(errand.act(&session)).with_id(errand.message_id(&session));
    (beside(from, &errand.to), command)
}

/// What the session that owed the errand is to record, if the answer is final. Otherwise it stays due.
pub fn homebound(errand: &Errand, answer: &Answer) -> Option<Command> {
    let verdict = match answer {
        Answer::Accepted(accepted) => errand.verdict(&accepted.session),
        Answer::Denied(Denied::Refused(Refusal::SessionSuspended | Refusal::Busy)) => return None,
        Answer::Denied(Denied::Refused(refusal)) => Verdict::Refused { code: Text::from(refusal.code()) },
        Answer::Denied(Denied::Fault(_) | Denied::Unreadable(_) | Denied::Stopping) | Answer::State(_) => {
            return None;
        }
    };
    Some(Command::runtime(Act::SettleErrand { errand: errand.id, verdict }))
}

/// Who waits for which session to change, because it would not take an errand as it was. What does not fit is left to the
/// timers, which find everything that is owed, only later.
#[derive(Debug, Default)]
pub struct Waiting {
    by_target: BTreeMap<Key, BTreeSet<Key>>,
}

impl Waiting {
    /// The session `from` owes an errand that `to` did not take.
    pub fn wait(&mut self, to: &Key, from: &Key) {
        if self.by_target.len() < WAITING_MAX || self.by_target.contains_key(to) {
            self.by_target.entry(to.clone()).or_default().insert(from.clone());
        }
    }

    /// A session has changed: those who waited for it may try again.
    pub fn changed(&mut self, to: &Key) -> BTreeSet<Key> {
        self.by_target.remove(to).unwrap_or_default()
    }
}

/// How many sessions may be waited for.
const WAITING_MAX: usize = 10_000;

fn beside(key: &SessionKey, session: &SessionId) -> Key {
    Key::from(SessionKey::new(key.tenant.clone(), session.as_str()))
}

#[cfg(test)]
mod tests {
    use handover_kernel::errand::What;
    use std::sync::Arc;

    use handover_kernel::{HandoffId, Limits, Receipt, Seq, Timestamp, step};

    use super::*;
    use crate::answer::Accepted;
    use crate::shard::tests::{NOW, by, key, request, start};

    fn offer(scope: &str) -> Command {
        by(
            "planner",
            Act::Handoff(HandoffAct::Offer(NewOffer {
                handoff: HandoffId::from("o1"),
                target: AgentId::from("helper"),
                scope: Text::from(scope),
                reason: Text::default(),
                context: None,
            })),
        )
    }

    #[test]
    fn an_offer_of_a_task_and_a_subtask_ask_another_session_first() {
        let (other, question) = preflight(&key("h"), &offer("task:t")).unwrap();
        assert_eq!(*other, *key("t"));
        let (planner, helper) = (AgentId::from("planner"), AgentId::from("helper"));
        assert_eq!(question.by, Author::Runtime);
        assert_eq!(question.act, Act::Task(TaskAct::CanHandOn { by: planner.clone(), to: helper }));
        let (other, question) = preflight(&key("child"), &start(Some("parent"))).unwrap();
        assert_eq!(*other, *key("parent"));
        assert_eq!(question.act, Act::Task(TaskAct::CanHaveChild { by: planner }));
        for command in [offer("the account"), offer("task:"), start(None), request()] {
            assert!(preflight(&key("s"), &command).is_none());
        }
        let own = Command { by: Author::Runtime, ..offer("task:t") };
        assert!(preflight(&key("h"), &own).is_none(), "the runtime asks nobody");
    }

    #[test]
    fn a_session_that_the_caller_cannot_see_is_not_named() {
        let agent = AgentId::from("planner");
        let hidden = [
            Refusal::SessionNotFound,
            Refusal::NotParticipant { agent },
            Refusal::WrongMode { expected: "handoff" },
        ];
        let same = preflight_refusal(Refusal::SessionNotFound);
        assert_eq!(same.code(), "INVALID");
        assert!(hidden.into_iter().all(|refusal| preflight_refusal(refusal) == same));
        assert_eq!(preflight_refusal(Refusal::ReassignmentDenied), Refusal::ReassignmentDenied);
    }

    #[test]
    fn an_errand_goes_to_a_session_of_the_same_tenant_under_a_name_of_its_own() {
        let errand = Errand { id: Seq(4), to: SessionId::from("child"), what: What::CancelChild };
        let (to, command) = outbound(&key("parent"), &errand);
        assert_eq!(*to, *key("child"));
        assert_eq!(command.by, Author::Runtime);
        assert_eq!(command.id.as_ref().map(|id| id.as_str()), Some("handover:errand:parent:4"));
        assert_eq!(outbound(&key("parent"), &errand).1, command, "the same every time");
        let next = Errand { id: Seq(5), ..errand };
        assert_ne!(outbound(&key("parent"), &next).1.id, command.id);
    }

    #[test]
    fn whoever_waits_for_a_session_is_told_of_its_next_change_once() {
        let mut waiting = Waiting::default();
        let named = |name: &str| Key::from(SessionKey::clone(&key(name)));
        for from in ["h1", "h2", "h1"] {
            waiting.wait(&named("t"), &named(from));
        }
        waiting.wait(&named("other"), &named("h3"));
        assert_eq!(waiting.changed(&named("t")), BTreeSet::from([named("h1"), named("h2")]));
        assert!(waiting.changed(&named("t")).is_empty());
        for index in 0..=WAITING_MAX {
            waiting.wait(&named(&format!("{index}")), &named("h"));
        }
        assert_eq!(waiting.by_target.len(), WAITING_MAX);
        waiting.wait(&named("other"), &named("h4"));
        assert_eq!(waiting.changed(&named("other")).len(), 2, "who is waited for already has room");
    }

    #[test]
    fn only_a_final_answer_settles_an_errand() {
        let receipt =
            Receipt { seq: Seq(1), at: Timestamp(1), duplicate: true, changed: false, orders: Vec::new() };
        let mut slot = None;
        step(&mut slot, &SessionId::from("s"), &start(None), &Limits::default(), NOW);
        let session = Arc::new(slot.expect("it has started"));
        let done = Answer::Accepted(Accepted { receipt, standing: session.standing(), session });
        let errand = Errand { id: Seq(4), to: SessionId::from("s"), what: What::TellParent };
        let settled = |answer: &Answer| homebound(&errand, answer).map(|command| command.act);
        let verdict = |verdict| Some(Act::SettleErrand { errand: Seq(4), verdict });
        assert_eq!(settled(&done), verdict(Verdict::Done));
        let refused = Answer::Denied(Denied::Refused(Refusal::SessionNotFound));
        let code = Text::from("SESSION_NOT_FOUND");
        assert_eq!(settled(&refused), verdict(Verdict::Refused { code }));
        for passing in [
            Denied::Refused(Refusal::SessionSuspended),
            Denied::Refused(Refusal::Busy),
            Denied::Unreadable("torn".into()),
            Denied::Stopping,
        ] {
            assert_eq!(settled(&Answer::Denied(passing)), None);
        }
    }
}
