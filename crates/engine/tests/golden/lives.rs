//! Whole lives of sessions, from which the stored logs were made.
//!
//! A log that is stored stays as it is. To keep another life, add it here and run the tests with `UPDATE_GOLDEN=1`,
//! which writes the logs that do not exist yet and never one that does.

use std::sync::Arc;

use handover_kernel::approval::{Approvals, Changes, Ruling};
use handover_kernel::budget::{Amount, Amounts, Budget, Under};
use handover_kernel::charter::{Charter, Liveness, OnSilence, SUSPENSION_CAP_DEFAULT_MS};
use handover_kernel::command::{
    Answer, CheckInTerms, Contract, Delegation, Failure, HandoffAct, ModeKind, Need, NewOffer, NewQuestion,
    Next, OfferContext, Opening, Progress, Reply, Request, Start, TaskAct,
};
use handover_kernel::commitment::{Commitment, Supersedes};
use handover_kernel::errand::Verdict;
use handover_kernel::policy::{Descriptor, Scope};
use handover_kernel::{
    Act, AgentId, Blob, Command, Event, Face, HandoffId, Limits, Millis, QuestionKey, Refusal, Seq, Session,
    SessionId, Text, Timestamp, Trace, step,
};

/// One session from its start to its end, or part of the way. Its name is the id of the session.
pub struct Life {
    pub name: &'static str,
    pub session: Option<Session>,
    pub events: Vec<Event>,
    now: Timestamp,
}

/// Every life that is stored.
pub fn all() -> Vec<Life> {
    vec![
        macp_task_under_a_policy(),
        mcp_task_with_questions(),
        grid_conversation(),
        handoff_accepted_implicitly(),
        parent_cancelled_with_children(),
        child_of_a_cancelled_parent(),
        expired_at_its_deadline(),
        expired_while_suspended(),
        waiting_for_permission(),
        owing_a_handoff(),
        traced_task_under_a_contract(),
        handoff_offered_with_context(),
        handoff_begun_with_its_offer(),
        orders_told_at_a_checkpoint(),
        macp_task_with_the_times_of_its_senders(),
        mcp_task_failed_while_paused(),
        grid_task_given_up(),
        grid_task_read_with_orders(),
        mcp_task_freed_from_a_silent_worker(),
        mcp_task_approved_with_changes(),
        macp_handoff_approved_and_sent_again(),
        mcp_task_in_a_circle(),
        mcp_task_with_a_budget_under_another(),
    ]
}

impl Life {
    fn new(name: &'static str) -> Life {
        Life { name, session: None, events: Vec::new(), now: Timestamp(1_767_225_600_000) }
    }

    /// Put a command that must be accepted, this much later.
    fn put(&mut self, later: Millis, command: Command) {
        self.now = self.now.plus(later);
        let id = SessionId::from(self.name);
        let done = step(&mut self.session, &id, &command, &Limits::default(), self.now);
        assert!(done.answer.is_ok(), "{}: {command:?} was refused: {:?}", self.name, done.answer);
        self.events.extend(done.events);
    }

    /// Put a command that is refused because it needs an approval.
    fn refused(&mut self, later: Millis, command: Command) {
        self.now = self.now.plus(later);
        let id = SessionId::from(self.name);
        let done = step(&mut self.session, &id, &command, &Limits::default(), self.now);
        assert!(matches!(done.answer, Err(Refusal::ApprovalNeeded { .. })), "{:?}", done.answer);
        self.events.extend(done.events);
    }

    fn start(&mut self, by: &str, face: Face, start: Start) {
        self.put(0, command(by, face, Act::Start(Box::new(start))).with_id("start"));
    }

    fn task(&mut self, later: Millis, by: &str, face: Face, act: TaskAct) {
        self.put(later, command(by, face, Act::Task(act)));
    }

    fn runtime(&mut self, later: Millis, act: Act) {
        self.put(later, Command::runtime(act));
    }
}

fn macp_task_under_a_policy() -> Life {
    let mut life = Life::new("macp-task-under-a-policy");
    let policy = Descriptor {
        id: Text::from("policy.reviewed"),
        scope: Scope::Mode(ModeKind::Task),
        schema_version: 3,
        rules: Text::from(
            r#"{"assignment":{"allow_reassignment_on_reject":true},"completion":{"require_output":true},
                "commitment":{"authority":"designated_role","designated_roles":["auditor","planner"]}}"#,
        ),
    };
    let charter = policy.compile(ModeKind::Task).expect("the policy is valid");
    let mut start = start(ModeKind::Task, charter, &["worker", "helper", "auditor"]);
    start.policy_version = Text::from("policy.reviewed");
    start.ttl_ms = Some(3_600_000);
    start.sent_at = Some(Timestamp(life.now.0 - 1_500));
    start.context_id = Text::from("ctx-7");
    start.extension_keys = vec![Text::from("ext.trace"), Text::from("ext.billing")];
    let mut begin = command("planner", Face::Macp, Act::Start(Box::new(start))).with_id("m-1");
    begin.verbatim = Some(Blob::from([0x0a, 0x00, 0xff, 0x80]));
    life.put(0, begin);
    let mut ask = command("planner", Face::Macp, Act::Task(TaskAct::Request(Box::new(request("worker")))))
        .with_id("m-2");
    ask.verbatim = Some(Blob::from([]));
    life.put(10, ask);
    let named = Some(Text::from("t1"));
    let hasty = TaskAct::Accept { task: named.clone(), assignee: None, reason: Text::default() };
    life.task(15, "worker", Face::Macp, hasty);
    let decline = TaskAct::Decline {
        task: named.clone(),
        assignee: Some(AgentId::from("worker")),
        reason: Text::from("busy"),
    };
    life.task(20, "worker", Face::Macp, decline);
    let accept = TaskAct::Accept { task: named.clone(), assignee: None, reason: Text::from("free") };
    life.task(30, "helper", Face::Macp, accept);
    let update =
        TaskAct::Update { task: named.clone(), progress: progress("reading", Some(0.1)), withdraws: false };
    life.task(40, "helper", Face::Macp, update);
    life.put(50, command("planner", Face::Macp, Act::Pause { reason: Text::from("lunch"), gently: false }));
    life.put(60_000, command("planner", Face::Macp, Act::Resume { reason: Text::from("back") }));
    let complete = TaskAct::Complete {
        task: named,
        assignee: Some(AgentId::from("helper")),
        output: Blob::from(*b"{\"pages\":12}"),
        summary: Text::from("twelve pages, äöü ✓"),
    };
    life.task(70, "helper", Face::Macp, complete);
    let mut commitment = commitment("task.completed", true);
    commitment.policy_version = Text::from("policy.reviewed");
    commitment.supersedes = Some(Supersedes {
        session: SessionId::from("an-earlier-session"),
        hash: Text::from(format!("sha256:{}", "0a".repeat(32))),
    });
    life.put(80, command("auditor", Face::Macp, Act::Commit(Box::new(commitment))).with_id("m-9"));
    life
}

fn mcp_task_with_questions() -> Life {
    let mut life = Life::new("mcp-task-with-questions");
    life.start("client", Face::Mcp, start(ModeKind::Task, Charter::mcp(), &["worker", "helper"]));
    life.task(
        1,
        "client",
        Face::Mcp,
        TaskAct::Request(Box::new(Request { assignee: None, ..request("worker") })),
    );
    let accept = TaskAct::Accept { task: None, assignee: None, reason: Text::default() };
    life.task(2, "worker", Face::Mcp, accept);
    let questions = vec![
        question(Some("which"), Need::Input, r#"{"type":"string"}"#),
        question(Some("may-i"), Need::Authorization, ""),
        question(None, Need::Input, ""),
        question(Some("late"), Need::Input, ""),
    ];
    life.task(
        3,
        "worker",
        Face::Mcp,
        TaskAct::Ask { task: None, questions, progress: progress("stuck", Some(0.5)) },
    );
    let answers = vec![
        answer("which", Reply::Content(Blob::from(*b"\"the second\""))),
        answer("may-i", Reply::Refused),
        answer("q4.3", Reply::Dismissed),
    ];
    let reply = TaskAct::Answer { answers, ignore_unknown: false, refuse_when_paused: true };
    life.task(4, "client", Face::Console, reply);
    let update = TaskAct::Update { task: None, progress: progress("going on", None), withdraws: true };
    let mut taking = command("worker", Face::Mcp, Act::Task(update));
    taking.takes_orders = true;
    life.put(5, taking);
    life.task(6, "client", Face::Cli, TaskAct::Steer { text: Text::from("use the newer data") });
    life.put(7, command("client", Face::Mcp, Act::Pause { reason: Text::from("wait"), gently: true }));
    let mut checkpoint = command("worker", Face::Mcp, Act::Task(TaskAct::Checkpoint));
    checkpoint.takes_orders = true;
    life.put(8, checkpoint);
    life.task(9, "client", Face::Mcp, TaskAct::Steer { text: Text::from("and the older") });
    life.put(1_000, command("client", Face::Mcp, Act::Resume { reason: Text::default() }));
    let failure = Failure {
        code: Text::from("NO_DATA"),
        reason: Text::from("there is none"),
        retryable: true,
        protocol_error: true,
        output: Blob::from(*b"half"),
    };
    life.task(11, "worker", Face::Mcp, TaskAct::Fail { task: None, assignee: None, failure });
    life
}

fn grid_conversation() -> Life {
    let mut life = Life::new("grid-conversation");
    life.start("sender", Face::Grid, start(ModeKind::Task, Charter::grid(), &["receiver"]));
    let request = Request {
        wanted_by: Some(Timestamp(life.now.0 + 86_400_000)),
        check_in: CheckInTerms { window_ms: Some(5_000), misses_max: None },
        ..request("receiver")
    };
    life.task(1, "sender", Face::Grid, TaskAct::Request(Box::new(request)));
    life.task(2, "sender", Face::Grid, TaskAct::SetKey { key: Some(Text::from("sender/main")) });
    life.task(3, "receiver", Face::Grid, TaskAct::SetKey { key: Some(Text::default()) });
    life.runtime(6_000, Act::Tick);
    life.task(4, "sender", Face::Grid, say("are you there?", false, Some(10_000)));
    life.task(5, "receiver", Face::Grid, TaskAct::Acknowledge);
    life.task(6, "receiver", Face::Grid, TaskAct::Read { up_to: Seq(u64::MAX) });
    life.task(7, "receiver", Face::Grid, say("yes; which one?", true, None));
    life.task(8, "sender", Face::Grid, say("the blue one", false, None));
    let questions = vec![question(Some("size"), Need::Input, "")];
    let ask = TaskAct::Ask { task: None, questions, progress: Progress::default() };
    life.task(9, "receiver", Face::Grid, ask);
    life.task(10, "sender", Face::Grid, say("large", false, Some(1)));
    life.task(11, "sender", Face::Grid, TaskAct::SetKey { key: None });
    life.task(12, "receiver", Face::Grid, say("", false, None));
    life.put(13, command("sender", Face::Grid, Act::Commit(Box::new(commitment("task.completed", true)))));
    life
}

fn handoff_accepted_implicitly() -> Life {
    let mut life = Life::new("handoff-accepted-implicitly");
    let charter = Charter { implicit_accept_ms: Some(30_000), ..Charter::macp() };
    life.start("owner", Face::Macp, start(ModeKind::Handoff, charter, &["owner", "first", "second"]));
    life.put(1, handoff("owner", offer("h1", "first")).with_id("offer-1"));
    let context = HandoffAct::Context {
        handoff: HandoffId::from("h1"),
        content_type: Text::from("text/plain"),
        body: Blob::from(*b"everything you need"),
    };
    life.put(2, handoff("owner", context));
    let decline = HandoffAct::Decline {
        handoff: HandoffId::from("h1"),
        by: Some(AgentId::from("first")),
        reason: Text::from("not mine"),
    };
    life.put(3, handoff("first", decline));
    life.put(4, handoff("owner", offer("h2", "second")));
    life.put(5, command("owner", Face::Macp, Act::Pause { reason: Text::default(), gently: false }));
    life.put(90_000, command("owner", Face::Macp, Act::Resume { reason: Text::default() }));
    life.runtime(40_000, Act::Tick);
    life.put(6, command("owner", Face::Macp, Act::Commit(Box::new(commitment("handoff.accepted", true)))));
    let errand = owed(&life, 0);
    life.runtime(7, Act::SettleErrand { errand, verdict: Verdict::Done });
    life
}

fn parent_cancelled_with_children() -> Life {
    let mut life = Life::new("parent-cancelled-with-children");
    life.start("client", Face::Mcp, start(ModeKind::Task, Charter::mcp(), &["worker", "second"]));
    life.task(1, "client", Face::Mcp, TaskAct::Request(Box::new(request("worker"))));
    let accept = TaskAct::Accept { task: None, assignee: None, reason: Text::default() };
    life.task(2, "worker", Face::Mcp, accept);
    let child = |name: &str| Act::Task(TaskAct::AddChild { child: SessionId::from(name) });
    life.put(3, Command::runtime(child("child-of-a-cancelled-parent")).with_id("handover:errand:child:1"));
    life.runtime(4, child("another-child"));
    let hand_on = TaskAct::HandOn {
        handoff: SessionId::from("handoff-accepted-implicitly"),
        to: AgentId::from("second"),
        by: AgentId::from("client"),
    };
    life.put(5, Command::runtime(Act::Task(hand_on)).with_id("handover:errand:handoff:9"));
    life.put(6, command("client", Face::Mcp, Act::cancel("no longer needed")));
    let (first, second) = (owed(&life, 0), owed(&life, 1));
    life.runtime(7, Act::SettleErrand { errand: first, verdict: Verdict::Done });
    let refused = Verdict::Refused { code: Text::from("SESSION_NOT_FOUND") };
    life.runtime(8, Act::SettleErrand { errand: second, verdict: refused });
    life
}

fn child_of_a_cancelled_parent() -> Life {
    let mut life = Life::new("child-of-a-cancelled-parent");
    let mut start = start(ModeKind::Task, Charter::mcp(), &["helper"]);
    start.parent = Some(SessionId::from("parent-cancelled-with-children"));
    life.start("worker", Face::Mcp, start);
    let errand = owed(&life, 0);
    life.runtime(1, Act::SettleErrand { errand, verdict: Verdict::Done });
    life.task(2, "worker", Face::Mcp, TaskAct::Request(Box::new(request("helper"))));
    life.runtime(3, Act::cancel("parent_cancelled"));
    life
}

fn expired_at_its_deadline() -> Life {
    let mut life = Life::new("expired-at-its-deadline");
    let mut start = start(ModeKind::Task, Charter::macp(), &["worker"]);
    start.ttl_ms = Some(1_000);
    life.start("planner", Face::Macp, start);
    life.task(1, "planner", Face::Macp, TaskAct::Request(Box::new(request("worker"))));
    life.runtime(1_000, Act::Tick);
    life
}

fn expired_while_suspended() -> Life {
    let mut life = Life::new("expired-while-suspended");
    life.start("planner", Face::Macp, start(ModeKind::Task, Charter::macp(), &["worker"]));
    life.put(1, command("planner", Face::Macp, Act::Pause { reason: Text::from("later"), gently: false }));
    life.runtime(SUSPENSION_CAP_DEFAULT_MS + 1, Act::Tick);
    life
}

fn waiting_for_permission() -> Life {
    let mut life = Life::new("waiting-for-permission");
    let mut start = start(ModeKind::Task, Charter::mcp(), &["worker"]);
    start.ttl_ms = Some(60_000);
    life.start("client", Face::Mcp, start);
    life.task(1, "client", Face::Mcp, TaskAct::Request(Box::new(request("worker"))));
    let accept = TaskAct::Accept { task: None, assignee: None, reason: Text::default() };
    life.task(2, "worker", Face::Mcp, accept);
    let questions = vec![question(Some("may-i"), Need::Authorization, "")];
    life.task(3, "worker", Face::Mcp, TaskAct::Ask { task: None, questions, progress: Progress::default() });
    life.task(4, "client", Face::Mcp, TaskAct::Steer { text: Text::from("carefully") });
    life
}

fn owing_a_handoff() -> Life {
    let mut life = Life::new("owing-a-handoff");
    let participants = &["owner", "target"];
    life.start("owner", Face::Macp, start(ModeKind::Handoff, Charter::macp(), participants));
    life.put(1, handoff("owner", offer("h1", "target")));
    let accept = HandoffAct::Accept {
        handoff: HandoffId::from("h1"),
        by: None,
        reason: Text::from("gladly"),
        implicit: false,
    };
    life.put(2, handoff("target", accept));
    let commit = Act::Commit(Box::new(commitment("handoff.accepted", true)));
    life.put(3, command("owner", Face::Macp, commit));
    life
}

fn traced_task_under_a_contract() -> Life {
    let mut life = Life::new("traced-task-under-a-contract");
    let mut start = start(ModeKind::Task, Charter::mcp(), &["worker"]);
    start.contract = Some(Arc::new(Contract {
        skill: Text::from("read_report"),
        input: Blob::from(*br#"{"type":"object","required":["report"]}"#),
        output: Blob::default(),
    }));
    let work = Delegation { start, opening: Opening::Request(request("worker")) };
    let delegate = command("client", Face::Mcp, Act::Delegate(Box::new(work))).with_id("start");
    life.put(0, Command { trace: trace("00f067aa0ba902b7", "vendor=1,other=t61rcWkgMzE"), ..delegate });
    let accept = TaskAct::Accept { task: None, assignee: None, reason: Text::default() };
    let accept = command("worker", Face::Macp, Act::Task(accept));
    life.put(1, Command { trace: trace("b7ad6b7169203331", ""), ..accept });
    let complete = TaskAct::Complete {
        task: None,
        assignee: None,
        output: Blob::from(*b"{\"pages\":12}"),
        summary: Text::default(),
    };
    life.task(2, "worker", Face::Macp, complete);
    life
}

fn handoff_offered_with_context() -> Life {
    let mut life = Life::new("handoff-offered-with-context");
    life.start("owner", Face::Mcp, start(ModeKind::Handoff, Charter::macp(), &["owner", "target"]));
    let mut with = offer("h1", "target");
    if let HandoffAct::Offer(NewOffer { context, .. }) = &mut with {
        let (content_type, body) = (Text::from("text/plain"), Blob::from(*b"everything you need"));
        *context = Some(OfferContext { content_type, body });
    }
    life.put(1, command("owner", Face::Mcp, Act::Handoff(with)).with_id("offer-1"));
    life
}

fn handoff_begun_with_its_offer() -> Life {
    let mut life = Life::new("handoff-begun-with-its-offer");
    let HandoffAct::Offer(mut offer) = offer("h1", "target") else { unreachable!("it is an offer") };
    let (content_type, body) = (Text::from("text/plain"), Blob::from(*b"everything you need"));
    offer.context = Some(OfferContext { content_type, body });
    let start = start(ModeKind::Handoff, Charter::macp(), &["owner", "target"]);
    let begun = Delegation { start, opening: Opening::Offer(offer) };
    life.put(0, command("owner", Face::Mcp, Act::Delegate(Box::new(begun))).with_id("offer-1"));
    life
}

fn orders_told_at_a_checkpoint() -> Life {
    let mut life = Life::new("orders-told-at-a-checkpoint");
    let start = start(ModeKind::Task, Charter::mcp(), &["worker"]);
    let work = Delegation { start, opening: Opening::Request(request("worker")) };
    life.put(0, command("client", Face::Mcp, Act::Delegate(Box::new(work))));
    let accept = TaskAct::Accept { task: None, assignee: None, reason: Text::default() };
    life.task(1, "worker", Face::Mcp, accept);
    life.task(2, "client", Face::Mcp, TaskAct::Steer { text: Text::from("shorter") });
    life.task(3, "client", Face::Mcp, say("and in French", false, None));
    let mut checkpoint = command("worker", Face::Mcp, Act::Task(TaskAct::Checkpoint)).with_id("point-1");
    checkpoint.takes_orders = true;
    life.put(4, checkpoint);
    life
}

fn macp_task_with_the_times_of_its_senders() -> Life {
    let mut life = Life::new("macp-task-with-the-times-of-its-senders");
    let mut start = start(ModeKind::Task, Charter::macp(), &["worker"]);
    start.sent_at = Some(Timestamp(life.now.0 - 200));
    life.start("planner", Face::Macp, start);
    let sent = |by: &str, at: u64, act: TaskAct| Command {
        sent_at: Some(Timestamp(at)),
        ..command(by, Face::Macp, Act::Task(act)).with_id(format!("m-{at}"))
    };
    life.put(1, sent("planner", life.now.0 - 100, TaskAct::Request(Box::new(request("worker")))));
    let accept = TaskAct::Accept { task: None, assignee: None, reason: Text::default() };
    // One clock is ahead, the other says nothing that could be true.
    life.put(2, sent("worker", life.now.0 + 60_000, accept));
    let update = TaskAct::Update { task: None, progress: progress("reading", Some(0.1)), withdraws: true };
    life.put(3, sent("worker", 1, update));
    life
}

fn mcp_task_failed_while_paused() -> Life {
    let mut life = Life::new("mcp-task-failed-while-paused");
    life.start("planner", Face::Mcp, start(ModeKind::Task, Charter::mcp(), &["worker"]));
    life.task(1, "planner", Face::Mcp, TaskAct::Request(Box::new(request("worker"))));
    let accept = TaskAct::Accept { task: None, assignee: None, reason: Text::default() };
    life.task(2, "worker", Face::Mcp, accept);
    life.task(3, "worker", Face::Mcp, TaskAct::Hold { reason: Text::from("no disk") });
    life.put(4, command("worker", Face::Mcp, Act::Resume { reason: Text::from("there is") }));
    life.task(5, "worker", Face::Mcp, TaskAct::Hold { reason: Text::from("none again") });
    let failure = Failure {
        code: Text::from("E_DISK"),
        reason: Text::from("broken"),
        retryable: true,
        protocol_error: false,
        output: Blob::default(),
    };
    life.task(6, "worker", Face::Mcp, TaskAct::Fail { task: None, assignee: None, failure });
    life
}

fn grid_task_given_up() -> Life {
    let mut life = Life::new("grid-task-given-up");
    let start = start(ModeKind::Task, Charter::grid(), &["receiver"]);
    let request = Request {
        check_in: CheckInTerms { window_ms: Some(5_000), misses_max: Some(2) },
        session_key: Some(Text::from("sender/main")),
        ..request("receiver")
    };
    let begun = Delegation { start, opening: Opening::Request(request) };
    life.put(0, command("sender", Face::Grid, Act::Delegate(Box::new(begun))));
    life.runtime(6_000, Act::Tick);
    life.runtime(6_000, Act::Tick);
    life
}

fn grid_task_read_with_orders() -> Life {
    let mut life = Life::new("grid-task-read-with-orders");
    life.start("sender", Face::Grid, start(ModeKind::Task, Charter::grid(), &["receiver"]));
    life.task(1, "sender", Face::Grid, TaskAct::Request(Box::new(request("receiver"))));
    let words = |next| TaskAct::Say { body: Blob::from(*b"hm"), next, check_in: CheckInTerms::default() };
    life.task(2, "receiver", Face::Grid, words(Next::Delivers));
    life.task(3, "receiver", Face::Grid, words(Next::Works));
    life.task(4, "sender", Face::Grid, TaskAct::Steer { text: Text::from("use the newer data") });
    let mut read = command("receiver", Face::Grid, Act::Task(TaskAct::Read { up_to: Seq(u64::MAX) }));
    read.takes_orders = true;
    life.put(5, read);
    let asks = Next::Asks { need: Need::Authorization, text: Text::from("may I?"), schema: Blob::default() };
    life.task(6, "receiver", Face::Grid, words(asks));
    let cancel = Act::Cancel { reason: Text::from("enough"), keeps_children: true };
    life.put(7, command("receiver", Face::Grid, cancel));
    life
}

fn mcp_task_freed_from_a_silent_worker() -> Life {
    let mut life = Life::new("mcp-task-freed-from-a-silent-worker");
    let liveness = Some(Liveness { window_ms: 5_000, then: OnSilence::Free });
    let charter = Charter { liveness: liveness.map(Box::new), ..Charter::mcp() };
    life.start("planner", Face::Mcp, start(ModeKind::Task, charter, &["worker", "helper"]));
    life.task(1, "planner", Face::Mcp, TaskAct::Request(Box::new(request("worker"))));
    let accept = || TaskAct::Accept { task: None, assignee: None, reason: Text::default() };
    life.task(2, "worker", Face::Mcp, accept());
    life.runtime(6_000, Act::Tick);
    life.task(3, "helper", Face::Mcp, accept());
    life
}

/// Whose approval the openings and the commitments of these sessions need.
fn guarded(charter: Charter) -> Charter {
    let lead = || vec![AgentId::from("lead")];
    let approvals = Approvals { opening: lead(), commitment: lead() };
    Charter { approvals: Some(Arc::new(approvals)), ..charter }
}

fn decide(proposal: u64, ruling: Ruling) -> Act {
    Act::Decide { proposal: Seq(proposal), ruling }
}

fn mcp_task_approved_with_changes() -> Life {
    let mut life = Life::new("mcp-task-approved-with-changes");
    life.start("planner", Face::Mcp, start(ModeKind::Task, guarded(Charter::mcp()), &["worker"]));
    life.task(1, "planner", Face::Mcp, TaskAct::Request(Box::new(request("worker"))));
    let asked = Ruling::ChangesAsked(Text::from("say which quarter"));
    life.put(2, command("lead", Face::Grid, decide(2, asked)));
    let again = Request { instructions: Text::from("of the last quarter"), ..request("worker") };
    life.task(3, "planner", Face::Mcp, TaskAct::Request(Box::new(again)));
    let changes =
        Changes { title: Some(Text::from("Q3")), input: Some(Blob::from(&b"{}"[..])), ..Changes::default() };
    life.put(4, command("lead", Face::Grid, decide(4, Ruling::Approved(changes))));
    life.task(
        5,
        "worker",
        Face::Mcp,
        TaskAct::Accept { task: None, assignee: None, reason: Text::default() },
    );
    let (output, summary) = (Blob::from(&b"42"[..]), Text::default());
    let complete = TaskAct::Complete { task: None, assignee: None, output, summary };
    life.task(6, "worker", Face::Mcp, complete);
    life.put(7, command("lead", Face::Mcp, decide(9, Ruling::Approved(Changes::default()))));
    life
}

fn mcp_task_in_a_circle() -> Life {
    let mut life = Life::new("mcp-task-in-a-circle");
    life.start("planner", Face::Mcp, start(ModeKind::Task, Charter::mcp(), &["worker"]));
    life.task(1, "planner", Face::Mcp, TaskAct::Request(Box::new(request("worker"))));
    let accept = TaskAct::Accept { task: None, assignee: None, reason: Text::default() };
    life.task(2, "worker", Face::Mcp, accept);
    let agents = vec![AgentId::from("helper"), AgentId::from("worker")];
    life.runtime(3, Act::Task(TaskAct::NoteCycle { agents }));
    life
}

fn macp_handoff_approved_and_sent_again() -> Life {
    let mut life = Life::new("macp-handoff-approved-and-sent-again");
    life.start(
        "planner",
        Face::Macp,
        start(ModeKind::Handoff, guarded(Charter::macp()), &["planner", "worker"]),
    );
    let offer = HandoffAct::Offer(NewOffer {
        handoff: HandoffId::from("h1"),
        target: AgentId::from("worker"),
        scope: Text::from("on call"),
        reason: Text::default(),
        context: None,
    });
    life.refused(1, command("planner", Face::Macp, Act::Handoff(offer.clone())).with_id("m2"));
    life.put(2, command("lead", Face::Mcp, decide(2, Ruling::Approved(Changes::default()))));
    life.put(3, handoff("planner", offer).with_id("m2"));
    let (handoff_id, reason) = (HandoffId::from("h1"), Text::default());
    let accept = HandoffAct::Accept { handoff: handoff_id, by: None, reason, implicit: false };
    life.put(4, handoff("worker", accept));
    life
}

fn mcp_task_with_a_budget_under_another() -> Life {
    let mut life = Life::new("mcp-task-with-a-budget-under-another");
    let amounts = |tokens, cost| {
        let named = [(Text::from("tokens"), Amount(tokens)), (Text::from("cost_usd"), Amount(cost))];
        Amounts::new(named).expect("they are few")
    };
    let budget = Budget {
        tasks: Some(2),
        depth: Some(0),
        time_ms: Some(600_000),
        numbers: amounts(200_000_000_000, 1_250_000),
    };
    let charter = Charter { budget: Some(Arc::new(budget)), ..Charter::mcp() };
    let mut begin = start(ModeKind::Task, charter, &["worker"]);
    begin.parent = Some(SessionId::from("parent"));
    let until = Some(life.now.plus(300_000));
    let root = SessionId::from("root");
    begin.under = Some(Arc::new(Under { root, depth: 2, deepest: Some(3), until, nested: 1 }));
    life.start("planner", Face::Mcp, begin);
    life.runtime(1, Act::SettleErrand { errand: Seq(1), verdict: Verdict::Done });
    life.task(1, "planner", Face::Mcp, TaskAct::Request(Box::new(request("worker"))));
    life.task(
        2,
        "worker",
        Face::Mcp,
        TaskAct::Accept { task: None, assignee: None, reason: Text::default() },
    );
    let reserve = TaskAct::Reserve { child: SessionId::from("child"), depth: 1 };
    life.runtime(3, Act::Task(reserve));
    let spend = TaskAct::Spend { from: SessionId::from("child"), used: amounts(1_200_000_000, 500_000) };
    life.runtime(4, Act::Task(spend));
    let update = TaskAct::Update { task: None, progress: progress("reading", Some(0.1)), withdraws: false };
    let mut used = command("worker", Face::Mcp, Act::Task(update));
    used.used = amounts(800_000_000, 1_000_000);
    life.put(5, used);
    let code = Text::from("BUDGET_SPENT");
    life.runtime(6, Act::SettleErrand { errand: Seq(6), verdict: Verdict::Refused { code } });
    life
}

fn trace(span: &str, state: &str) -> Option<Box<Trace>> {
    Trace::new(&format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span}-01"), state).map(Box::new)
}

fn command(by: &str, face: Face, act: Act) -> Command {
    let command = Command::by(&AgentId::from(by), face, act);
    if face == Face::Macp { command.in_session_scope() } else { command }
}

fn handoff(by: &str, act: HandoffAct) -> Command {
    command(by, Face::Macp, Act::Handoff(act))
}

fn start(mode: ModeKind, charter: Charter, participants: &[&str]) -> Start {
    Start {
        mode,
        participants: participants.iter().map(|agent| AgentId::from(*agent)).collect(),
        charter,
        mode_version: Text::from("1.0"),
        configuration_version: Text::from("c1"),
        policy_version: Text::from("policy.default"),
        ttl_ms: None,
        sent_at: None,
        intent: Text::from("read the report"),
        context_id: Text::default(),
        extension_keys: Vec::new(),
        parent: None,
        contract: None,
        under: None,
    }
}

fn request(assignee: &str) -> Request {
    Request {
        task: Text::from("t1"),
        title: Text::from("read"),
        instructions: Text::from("read the report and say how long it is"),
        assignee: Some(AgentId::from(assignee)),
        input: Blob::from(*b"{\"report\":7}"),
        wanted_by: None,
        check_in: CheckInTerms::default(),
        session_key: None,
    }
}

fn progress(status: &str, done: Option<f64>) -> Progress {
    Progress {
        status: Text::from(status),
        done,
        message: Text::from("page by page"),
        partial: Blob::from([1, 2, 3]),
    }
}

fn question(key: Option<&str>, need: Need, schema: &str) -> NewQuestion {
    NewQuestion {
        key: key.map(QuestionKey::from),
        need,
        text: Text::from("what now?"),
        schema: Blob::from(schema.as_bytes()),
        wire: None,
    }
}

fn answer(key: &str, reply: Reply) -> Answer {
    Answer { key: QuestionKey::from(key), reply }
}

fn say(body: &str, delivers: bool, window_ms: Option<Millis>) -> TaskAct {
    let next = if delivers { Next::Delivers } else { Next::AsBefore };
    let check_in = CheckInTerms { window_ms, misses_max: None };
    TaskAct::Say { body: Blob::from(body.as_bytes()), next, check_in }
}

fn offer(handoff: &str, target: &str) -> HandoffAct {
    HandoffAct::Offer(NewOffer {
        handoff: HandoffId::from(handoff),
        target: AgentId::from(target),
        scope: Text::from("task:parent-cancelled-with-children"),
        reason: Text::from("going off duty"),
        context: None,
    })
}

fn commitment(action: &str, positive: bool) -> Commitment {
    Commitment {
        commitment: Text::from("c-1"),
        action: Text::from(action),
        scope: Text::from("task"),
        reason: Text::from("reviewed"),
        mode_version: Text::from("1.0"),
        policy_version: Text::default(),
        configuration_version: Text::from("c1"),
        positive,
        supersedes: None,
    }
}

fn owed(life: &Life, index: usize) -> Seq {
    let session = life.session.as_ref().expect("the session has started");
    session.errands.get(index).expect("the session owes an errand").id
}
