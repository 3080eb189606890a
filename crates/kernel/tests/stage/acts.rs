//! Short words for what the cast does.

use handover_kernel::budget::{Amount, Amounts};
use handover_kernel::command::{
    Act, Answer, CheckInTerms, Delegation, Failure, HandoffAct, Need, NewOffer, NewQuestion, Next,
    OfferContext, Opening, Progress, Reply, Request, Start, TaskAct,
};
use handover_kernel::commitment::Commitment;
use handover_kernel::errand::Verdict;
use handover_kernel::{AgentId, Blob, HandoffId, Millis, QuestionKey, Seq, SessionId, Text};

/// So many tokens.
pub fn tokens(count: u64) -> Amounts {
    Amounts::stored([(Text::from("tokens"), Amount(count * 1_000_000))])
}

pub fn reserve(child: &str, depth: u32) -> Act {
    Act::Task(TaskAct::Reserve { child: SessionId::from(child), depth })
}

pub fn spend(from: &str, used: Amounts) -> Act {
    Act::Task(TaskAct::Spend { from: SessionId::from(from), used })
}

pub fn blob(text: &str) -> Blob {
    Blob::from(text.as_bytes())
}

/// The work of every play, its id `t1`.
pub fn work(assignee: Option<&str>) -> Request {
    Request {
        task: Text::from("t1"),
        title: Text::from("sum up the quarter"),
        instructions: Text::from("read the numbers, write a page"),
        assignee: assignee.map(AgentId::from),
        input: blob("{}"),
        wanted_by: None,
        check_in: CheckInTerms::default(),
        session_key: None,
    }
}

pub fn request(assignee: Option<&str>) -> Act {
    Act::Task(TaskAct::Request(Box::new(work(assignee))))
}

pub fn accept() -> Act {
    Act::Task(TaskAct::Accept { task: None, assignee: None, reason: Text::default() })
}

pub fn decline() -> Act {
    Act::Task(TaskAct::Decline { task: None, assignee: None, reason: Text::from("no time") })
}

pub fn progress(message: &str) -> Progress {
    Progress {
        status: Text::from("running"),
        done: Some(0.5),
        message: Text::from(message),
        partial: Blob::default(),
    }
}

pub fn update(message: &str) -> Act {
    Act::Task(TaskAct::Update { task: None, progress: progress(message), withdraws: false })
}

/// An update that takes the open questions back.
pub fn withdraw(message: &str) -> Act {
    Act::Task(TaskAct::Update { task: None, progress: progress(message), withdraws: true })
}

pub fn question(key: Option<&str>, need: Need) -> NewQuestion {
    NewQuestion {
        key: key.map(QuestionKey::from),
        need,
        text: Text::from("which?"),
        schema: Blob::default(),
        wire: None,
    }
}

pub fn ask_all(questions: Vec<NewQuestion>) -> Act {
    Act::Task(TaskAct::Ask { task: None, questions, progress: progress("waiting") })
}

pub fn ask(key: &str) -> Act {
    ask_all(vec![question(Some(key), Need::Input)])
}

pub fn ask_unnamed() -> Act {
    ask_all(vec![question(None, Need::Input)])
}

pub fn ask_permission(key: &str) -> Act {
    ask_all(vec![question(Some(key), Need::Authorization)])
}

pub fn checkpoint() -> Act {
    Act::Task(TaskAct::Checkpoint)
}

pub fn hold() -> Act {
    Act::Task(TaskAct::Hold { reason: Text::from("a bill to approve") })
}

/// Starts a task together with its work.
pub fn delegate(start: Start, assignee: Option<&str>) -> Act {
    Act::Delegate(Box::new(Delegation { start, opening: Opening::Request(work(assignee)) }))
}

/// Starts a handoff together with its first offer, and what the target should know.
pub fn begin_handoff(start: Start, target: &str) -> Act {
    let Act::Handoff(HandoffAct::Offer(offer)) = offer_with("the runbook", "h1", target) else {
        unreachable!("it is an offer")
    };
    Act::Delegate(Box::new(Delegation { start, opening: Opening::Offer(offer) }))
}

pub fn deliver(up_to: u64) -> Act {
    Act::Task(TaskAct::Deliver { up_to: Seq(up_to) })
}

pub fn answers(keys: &[&str], ignore_unknown: bool, refuse_when_paused: bool) -> Act {
    let answers = keys
        .iter()
        .map(|key| Answer { key: QuestionKey::from(*key), reply: Reply::Content(blob("this one")) })
        .collect();
    Act::Task(TaskAct::Answer { answers, ignore_unknown, refuse_when_paused })
}

pub fn answer(key: &str) -> Act {
    answers(&[key], false, false)
}

pub fn steer(text: &str) -> Act {
    Act::Task(TaskAct::Steer { text: Text::from(text) })
}

pub fn complete(output: &str) -> Act {
    Act::Task(TaskAct::Complete {
        task: None,
        assignee: None,
        output: blob(output),
        summary: Text::from("done"),
    })
}

pub fn fail(code: &str) -> Act {
    Act::Task(TaskAct::Fail {
        task: None,
        assignee: None,
        failure: Failure {
            code: Text::from(code),
            reason: Text::from("it broke"),
            retryable: false,
            protocol_error: false,
            output: Blob::default(),
        },
    })
}

/// A message, and what its sender does next.
pub fn said(text: &str, next: Next, window_ms: Option<Millis>) -> Act {
    let check_in = CheckInTerms { window_ms, misses_max: None };
    Act::Task(TaskAct::Say { body: blob(text), next, check_in })
}

pub fn message(text: &str) -> Act {
    said(text, Next::AsBefore, None)
}

/// A message after which the assignee waits for the requester's word.
pub fn hand_in(text: &str) -> Act {
    said(text, Next::Delivers, None)
}

/// A message that is to be acknowledged within this time.
pub fn message_within(text: &str, window: Millis) -> Act {
    said(text, Next::AsBefore, Some(window))
}

pub fn read(up_to: u64) -> Act {
    Act::Task(TaskAct::Read { up_to: Seq(up_to) })
}

/// Read everything.
pub fn read_all() -> Act {
    read(u64::MAX)
}

pub fn acknowledge() -> Act {
    Act::Task(TaskAct::Acknowledge)
}

pub fn set_key(key: &str) -> Act {
    Act::Task(TaskAct::SetKey { key: Some(Text::from(key)) })
}

pub fn can_hand_on(by: &str, to: &str) -> Act {
    Act::Task(TaskAct::CanHandOn { by: AgentId::from(by), to: AgentId::from(to) })
}

pub fn hand_on(to: &str) -> Act {
    Act::Task(TaskAct::HandOn {
        handoff: SessionId::from("handoff-1"),
        to: AgentId::from(to),
        by: AgentId::from("planner"),
    })
}

pub fn can_have_child(by: &str) -> Act {
    Act::Task(TaskAct::CanHaveChild { by: AgentId::from(by) })
}

pub fn note_cycle(agents: &[&str]) -> Act {
    let agents = agents.iter().map(|name| AgentId::from(*name)).collect();
    Act::Task(TaskAct::NoteCycle { agents })
}

pub fn add_child(child: &str) -> Act {
    Act::Task(TaskAct::AddChild { child: SessionId::from(child) })
}

pub fn pause() -> Act {
    Act::Pause { reason: Text::from("wait"), gently: false }
}

pub fn pause_gently() -> Act {
    Act::Pause { reason: Text::from("wait"), gently: true }
}

pub fn resume() -> Act {
    Act::Resume { reason: Text::from("go on") }
}

pub fn cancel() -> Act {
    Act::cancel("not needed any more")
}

/// A commitment that any session on the stage would take, apart from its action.
pub fn outcome(action: &str, positive: bool) -> Commitment {
    Commitment {
        commitment: Text::from("c1"),
        action: Text::from(action),
        scope: Text::from("the play"),
        reason: Text::from("reviewed"),
        mode_version: Text::from("1.0.0"),
        policy_version: Text::from("policy.default"),
        configuration_version: Text::from("config.1"),
        positive,
        supersedes: None,
    }
}

pub fn commit(commitment: Commitment) -> Act {
    Act::Commit(Box::new(commitment))
}

pub fn commit_success() -> Act {
    commit(outcome("task.completed", true))
}

pub fn commit_failure() -> Act {
    commit(outcome("task.failed", false))
}

pub fn commit_transfer() -> Act {
    commit(outcome("handoff.accepted", true))
}

pub fn commit_no_transfer() -> Act {
    commit(outcome("handoff.declined", false))
}

pub fn settle(errand: u64, verdict: Verdict) -> Act {
    Act::SettleErrand { errand: Seq(errand), verdict }
}

pub fn refused(code: &str) -> Verdict {
    Verdict::Refused { code: Text::from(code) }
}

pub fn offer_of(scope: &str, handoff: &str, target: &str) -> Act {
    offer_in(scope, handoff, target, None)
}

fn offer_in(scope: &str, handoff: &str, target: &str, context: Option<OfferContext>) -> Act {
    Act::Handoff(HandoffAct::Offer(NewOffer {
        handoff: HandoffId::from(handoff),
        target: AgentId::from(target),
        scope: Text::from(scope),
        reason: Text::from("shift ends"),
        context,
    }))
}

/// An offer that says at once what the target should know.
pub fn offer_with(body: &str, handoff: &str, target: &str) -> Act {
    let context = OfferContext { content_type: Text::from("text/plain"), body: blob(body) };
    offer_in("on call", handoff, target, Some(context))
}

pub fn offer(handoff: &str, target: &str) -> Act {
    offer_of("on call", handoff, target)
}

pub fn context(handoff: &str) -> Act {
    Act::Handoff(HandoffAct::Context {
        handoff: HandoffId::from(handoff),
        content_type: Text::from("text/plain"),
        body: blob("the runbook"),
    })
}

pub fn take(handoff: &str) -> Act {
    Act::Handoff(HandoffAct::Accept {
        handoff: HandoffId::from(handoff),
        by: None,
        reason: Text::default(),
        implicit: false,
    })
}

pub fn turn_down(handoff: &str) -> Act {
    Act::Handoff(HandoffAct::Decline {
        handoff: HandoffId::from(handoff),
        by: None,
        reason: Text::from("on leave"),
    })
}
