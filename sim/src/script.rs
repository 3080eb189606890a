//! What the clients do: mostly what makes sense in the state that the session is in, sometimes anything.

use std::sync::Arc;

use handover_kernel::approval::{Approvals, Changes, Ruling, State};
use handover_kernel::budget::{Amount, Amounts, Budget};
use handover_kernel::charter::{Authority, Charter, Liveness, OnSilence};
use handover_kernel::command::{
    Act, Answer, CheckInTerms, Failure, HandoffAct, ModeKind, Need, NewOffer, NewQuestion, Next, Progress,
    Reply, Request, Start, TaskAct,
};
use handover_kernel::commitment::Commitment;
use handover_kernel::session::{Lifecycle, Mode};
use handover_kernel::task::Phase;
use handover_kernel::{
    AgentId, Blob, Command, Face, HandoffId, QuestionKey, Session, SessionId, Text, Timestamp,
};

use crate::rng::Rng;

/// Everybody who takes part.
pub const AGENTS: [&str; 5] = ["ada", "ben", "cleo", "dan", "eve"];

fn agent(rng: &mut Rng) -> AgentId {
    AgentId::from(*rng.pick(&AGENTS))
}

fn text(rng: &mut Rng) -> Text {
    Text::from(format!("text {}", rng.below(100)))
}

fn blob(rng: &mut Rng) -> Blob {
    let length = rng.below(40) as usize;
    Arc::from(vec![rng.below(256) as u8; length])
}

/// The face that a session's agents use: its charter's own, mostly.
pub fn face(rng: &mut Rng, session: Option<&Session>) -> Face {
    match session {
        Some(session) if rng.chance(700) => session.binding.face,
        Some(_) | None => *rng.pick(&[Face::Macp, Face::Mcp, Face::Grid, Face::Console, Face::Cli]),
    }
}

/// A command as the face sends it.
pub fn by(agent: &AgentId, face: Face, act: Act) -> Command {
    let command = Command::by(agent, face, act);
    if face == Face::Macp { command.in_session_scope() } else { command }
}

/// Whether two commands of a script are the same message: the same words of the same agent. Flags that say how it is to be
/// taken, and not what it says, do not count.
pub fn alike(one: &Command, other: &Command) -> bool {
    one.by == other.by && one.used == other.used && words(&one.act) == words(&other.act)
}

/// Whether the second of them may not be refused as another message: a log may say of old that whoever read was at a safe point,
/// but a safe point is not taken for having read.
pub fn is_repeated(one: &Command, other: &Command) -> bool {
    let reads = |command: &Command| matches!(command.act, Act::Task(TaskAct::Read { .. }));
    alike(one, other) && reads(one) == reads(other)
}

fn words(act: &Act) -> Act {
    let mut act = act.clone();
    match &mut act {
        Act::Pause { gently, .. } => *gently = false,
        Act::Task(TaskAct::Update { withdraws, .. }) => *withdraws = false,
        Act::Task(TaskAct::Answer { ignore_unknown, refuse_when_paused, .. }) => {
            (*ignore_unknown, *refuse_when_paused) = (false, false);
        }
        Act::Task(TaskAct::Say { next, .. }) => *next = Next::AsBefore,
        // Whoever has nothing new to read was at a safe point.
        Act::Task(safe_point @ TaskAct::Read { .. }) => *safe_point = TaskAct::Checkpoint,
        Act::Start(_)
        | Act::Delegate(_)
        | Act::Cancel { .. }
        | Act::Resume { .. }
        | Act::Tick
        | Act::Commit(_)
        | Act::Decide { .. }
        | Act::Task(_)
        | Act::Handoff(_)
        | Act::SettleErrand { .. } => {}
    }
    act
}

/// A new session: who starts it, through which face, and how.
pub fn start(rng: &mut Rng, tasks: &[SessionId], now: Timestamp) -> (AgentId, Face, Act) {
    let requester = agent(rng);
    let mode = if rng.chance(800) { ModeKind::Task } else { ModeKind::Handoff };
    let (face, mut charter) = match rng.below(3) {
        0 => (Face::Macp, Charter::macp()),
        1 => (Face::Mcp, Charter::mcp()),
        _ => (Face::Grid, Charter::grid()),
    };
    charter.reassignment |= rng.chance(300);
    charter.suspension_cap_ms = rng.between(1_000, 60_000);
    if mode == ModeKind::Handoff && rng.chance(500) {
        charter.implicit_accept_ms = Some(rng.between(500, 10_000));
    }
    if rng.chance(100) {
        charter.authority = Authority::AnyParticipant;
    }
    if mode == ModeKind::Task && rng.chance(250) {
        let then = *rng.pick(&[OnSilence::Nothing, OnSilence::Tell, OnSilence::Free, OnSilence::Fail]);
        charter.liveness = Some(Box::new(Liveness { window_ms: rng.between(500, 20_000), then }));
    }
    if rng.chance(150) {
        let mut asked = || if rng.chance(600) { vec![agent(rng), agent(rng)] } else { Vec::new() };
        let approvals = Approvals { opening: asked(), commitment: asked() };
        charter.approvals = Some(Arc::new(approvals));
    }
    if mode == ModeKind::Task && rng.chance(500) {
        charter.budget = Some(Arc::new(budget(rng)));
    }
    let mut participants: Vec<AgentId> = AGENTS.into_iter().map(AgentId::from).collect();
    participants.retain(|agent| *agent == requester || rng.chance(700));
    let start = Start {
        mode,
        participants,
        charter,
        mode_version: Text::from("1.0.0"),
        configuration_version: Text::from("sim"),
        policy_version: Text::from("policy.default"),
        ttl_ms: rng.chance(800).then(|| rng.between(3_000, 120_000)),
        sent_at: rng.chance(500).then(|| Timestamp(now.0.saturating_sub(rng.below(90_000)))),
        intent: text(rng),
        context_id: Text::default(),
        extension_keys: Vec::new(),
        parent: (!tasks.is_empty() && rng.chance(400)).then(|| rng.pick(tasks).clone()),
        contract: None,
        under: None,
    };
    (requester, face, Act::Start(Box::new(start)))
}

fn budget(rng: &mut Rng) -> Budget {
    Budget {
        // One bound at least.
        tasks: Some(rng.below(5) as u32),
        depth: rng.chance(500).then(|| rng.below(3) as u32),
        time_ms: rng.chance(300).then(|| rng.between(1_000, 60_000)),
        numbers: if rng.chance(600) { used(rng) } else { Amounts::default() },
    }
}

/// Whether an assignee that does this may say what it has used.
pub fn may_use(act: &Act) -> bool {
    let Act::Task(act) = act else { return false };
    matches!(
        act,
        TaskAct::Update { .. }
            | TaskAct::Ask { .. }
            | TaskAct::Checkpoint
            | TaskAct::Say { .. }
            | TaskAct::Complete { .. }
            | TaskAct::Fail { .. }
    )
}

/// What an agent says that it has used.
pub fn used(rng: &mut Rng) -> Amounts {
    let names = ["tokens", "cost_usd"].into_iter().filter(|_| rng.chance(700)).collect::<Vec<_>>();
    Amounts::stored(names.into_iter().map(|name| (Text::from(name), Amount(rng.between(1, 30_000_000)))))
}

/// How an agent that had a task would take it from the one that has it: it offers the task to a friend, gives it back, and
/// commits the handoff when somebody else has it.
pub fn theft() -> Vec<(&'static str, AgentId, Act)> {
    let [ada, ben, cleo, dan] = ["ada", "ben", "cleo", "dan"].map(AgentId::from);
    let words = || Text::from("theft");
    let start = |mode, participants: &[AgentId]| {
        Act::Start(Box::new(Start {
            mode,
            participants: participants.to_vec(),
            charter: Charter { reassignment: true, ..Charter::macp() },
            mode_version: Text::from("1.0.0"),
            configuration_version: Text::from("sim"),
            policy_version: Text::from("policy.default"),
            ttl_ms: Some(120_000),
            sent_at: None,
            intent: words(),
            context_id: Text::default(),
            extension_keys: Vec::new(),
            parent: None,
            contract: None,
            under: None,
        }))
    };
    let accept = || Act::Task(TaskAct::Accept { task: None, assignee: None, reason: words() });
    let handoff = || HandoffId::from("theft");
    let request = Request {
        task: Text::from("t1"),
        title: words(),
        instructions: words(),
        assignee: None,
        input: Blob::default(),
        wanted_by: None,
        check_in: CheckInTerms::default(),
        session_key: None,
    };
    let offer = NewOffer {
        handoff: handoff(),
        target: dan.clone(),
        scope: Text::from("task:wanted"),
        reason: words(),
        context: None,
    };
    let take = HandoffAct::Accept { handoff: handoff(), by: None, reason: words(), implicit: false };
    let commitment = Commitment {
        commitment: words(),
        action: Text::from("handoff.accepted"),
        scope: words(),
        reason: words(),
        mode_version: Text::from("1.0.0"),
        policy_version: Text::from("policy.default"),
        configuration_version: Text::from("sim"),
        positive: true,
        supersedes: None,
    };
    vec![
        ("wanted", ada.clone(), start(ModeKind::Task, &[ben.clone(), cleo.clone(), dan.clone()])),
        ("wanted", ada, Act::Task(TaskAct::Request(Box::new(request)))),
        ("wanted", ben.clone(), accept()),
        ("way", ben.clone(), start(ModeKind::Handoff, &[ben.clone(), dan.clone()])),
        ("way", ben.clone(), Act::Handoff(HandoffAct::Offer(offer))),
        ("way", dan, Act::Handoff(take)),
        ("wanted", ben.clone(), Act::Task(TaskAct::Decline { task: None, assignee: None, reason: words() })),
        ("wanted", cleo, accept()),
        ("way", ben, Act::Commit(Box::new(commitment))),
    ]
}

/// Something to do with a session as it is.
pub fn act(rng: &mut Rng, session: &Session, tasks: &[SessionId]) -> (AgentId, Act) {
    if rng.chance(120) {
        return (agent(rng), anything(rng, session, tasks));
    }
    if let Some(step) = about_proposal(rng, session) {
        return step;
    }
    let requester = session.binding.requester.clone();
    match &session.lifecycle {
        Lifecycle::Suspended { .. } if rng.chance(600) => (requester, Act::Resume { reason: text(rng) }),
        Lifecycle::Suspended { .. } => (requester, Act::Task(TaskAct::Steer { text: text(rng) })),
        Lifecycle::Open
        | Lifecycle::Resolved { .. }
        | Lifecycle::Expired { .. }
        | Lifecycle::Cancelled { .. } => {
            if rng.chance(60) {
                return (requester, Act::Pause { reason: text(rng), gently: rng.chance(500) });
            }
            if rng.chance(15) {
                return (requester, Act::cancel(text(rng)));
            }
            match &session.mode {
                Mode::Task(task) => sensible_task(rng, session, &task.phase),
                Mode::Handoff(_) => sensible_handoff(rng, session, tasks),
            }
        }
    }
}

/// What an approver decides about what was proposed, and what is sent again once it was approved.
fn about_proposal(rng: &mut Rng, session: &Session) -> Option<(AgentId, Act)> {
    let proposal = session.proposal.as_ref().filter(|_| rng.chance(600))?;
    match &proposal.state {
        State::Open => {
            let ruling = match rng.below(6) {
                0 => Ruling::Rejected(text(rng)),
                1 => Ruling::ChangesAsked(text(rng)),
                2 => Ruling::Approved(Changes { title: Some(text(rng)), ..Changes::default() }),
                _ => Ruling::Approved(Changes::default()),
            };
            let by = match session.approvers() {
                [] => agent(rng),
                approvers => rng.pick(approvers).clone(),
            };
            Some((by, Act::Decide { proposal: proposal.id, ruling }))
        }
        State::Decided { ruling: Ruling::Approved(_), .. } => {
            Some((proposal.by.clone(), proposal.what.act()))
        }
        State::Decided { .. } => None,
    }
}

fn sensible_task(rng: &mut Rng, session: &Session, phase: &Phase) -> (AgentId, Act) {
    let requester = session.binding.requester.clone();
    let other = rng.pick(&session.binding.participants).clone();
    let (by, act) = match phase {
        Phase::Pending => (requester, TaskAct::Request(Box::new(request(rng, session)))),
        Phase::Requested { .. } => match rng.below(6) {
            0 => (other, TaskAct::Decline { task: None, assignee: None, reason: text(rng) }),
            1 => (other, say(rng)),
            2 => (requester, say(rng)),
            _ => (other, TaskAct::Accept { task: None, assignee: None, reason: text(rng) }),
        },
        Phase::Working { assignee, .. } => match rng.below(12) {
            0 => (assignee.clone(), ask(rng)),
            1 => (requester, TaskAct::Steer { text: text(rng) }),
            2 => (assignee.clone(), TaskAct::Checkpoint),
            3 => (assignee.clone(), say(rng)),
            4 => (requester, say(rng)),
            5 => (assignee.clone(), TaskAct::Decline { task: None, assignee: None, reason: text(rng) }),
            6 => (assignee.clone(), fail(rng)),
            7 | 8 => (assignee.clone(), complete(rng)),
            _ => (assignee.clone(), update(rng)),
        },
        Phase::Waiting { assignee, questions, .. } => match rng.below(6) {
            0 => (assignee.clone(), update(rng)),
            1 => (requester, say(rng)),
            2 => return (requester, commit(rng, session)),
            _ => {
                let open = questions.iter().map(|question| question.key.clone());
                (requester, answer(rng, open.collect()))
            }
        },
        Phase::Reported { .. } => return (requester, commit(rng, session)),
    };
    (by, Act::Task(act))
}

fn sensible_handoff(rng: &mut Rng, session: &Session, tasks: &[SessionId]) -> (AgentId, Act) {
    let requester = session.binding.requester.clone();
    let Some(handoff) = session.handoff() else {
        return (requester, Act::Tick);
    };
    match handoff.outstanding() {
        Some(offer) => {
            let (target, handoff) = (offer.target.clone(), offer.handoff.clone());
            match rng.below(4) {
                0 => (target, Act::Handoff(HandoffAct::Decline { handoff, by: None, reason: text(rng) })),
                1 => {
                    let act = HandoffAct::Context { handoff, content_type: text(rng), body: blob(rng) };
                    (requester, Act::Handoff(act))
                }
                _ => {
                    let act = HandoffAct::Accept { handoff, by: None, reason: text(rng), implicit: false };
                    (target, Act::Handoff(act))
                }
            }
        }
        None if handoff.offers.is_empty() || (handoff.accepted().is_none() && rng.chance(500)) => {
            (requester, offer(rng, session, tasks))
        }
        None => (requester, commit(rng, session)),
    }
}

fn anything(rng: &mut Rng, session: &Session, tasks: &[SessionId]) -> Act {
    let task = match rng.below(22) {
        0 => TaskAct::Request(Box::new(request(rng, session))),
        1 => TaskAct::Accept { task: None, assignee: None, reason: text(rng) },
        2 => TaskAct::Decline { task: None, assignee: None, reason: text(rng) },
        3 => update(rng),
        4 => ask(rng),
        5 => TaskAct::Checkpoint,
        6 => TaskAct::Deliver { up_to: session.head },
        7 => answer(rng, vec![QuestionKey::from("q1")]),
        8 => TaskAct::Steer { text: text(rng) },
        9 => complete(rng),
        10 => fail(rng),
        11 => say(rng),
        12 => TaskAct::Read { up_to: session.head },
        13 => TaskAct::Acknowledge,
        14 => TaskAct::SetKey { key: rng.chance(700).then(|| text(rng)) },
        15 => return Act::cancel(text(rng)),
        16 => return Act::Pause { reason: text(rng), gently: false },
        17 => return Act::Resume { reason: text(rng) },
        18 => return commit(rng, session),
        19 => return offer(rng, session, tasks),
        20 => return Act::Tick,
        _ => {
            let act = HandoffAct::Accept {
                handoff: HandoffId::from("h1"),
                by: None,
                reason: text(rng),
                implicit: false,
            };
            return Act::Handoff(act);
        }
    };
    Act::Task(task)
}

fn request(rng: &mut Rng, session: &Session) -> Request {
    Request {
        task: Text::from("t1"),
        title: text(rng),
        instructions: text(rng),
        assignee: rng.chance(500).then(|| rng.pick(&session.binding.participants).clone()),
        input: blob(rng),
        wanted_by: None,
        check_in: check_in(rng),
        session_key: rng.chance(200).then(|| text(rng)),
    }
}

fn check_in(rng: &mut Rng) -> CheckInTerms {
    CheckInTerms {
        window_ms: rng.chance(200).then(|| rng.between(100, 5_000)),
        misses_max: rng.chance(200).then(|| rng.between(1, 3) as u32),
    }
}

fn progress(rng: &mut Rng) -> Progress {
    Progress {
        status: text(rng),
        done: Some(rng.below(100) as f64 / 100.0),
        message: text(rng),
        partial: blob(rng),
    }
}

fn update(rng: &mut Rng) -> TaskAct {
    TaskAct::Update { task: None, progress: progress(rng), withdraws: rng.chance(500) }
}

fn ask(rng: &mut Rng) -> TaskAct {
    let count = rng.between(1, 3);
    let questions = (0..count)
        .map(|_| NewQuestion {
            key: rng.chance(300).then(|| QuestionKey::from(format!("k{}", rng.below(5)))),
            need: if rng.chance(700) { Need::Input } else { Need::Authorization },
            text: text(rng),
            schema: blob(rng),
            wire: None,
        })
        .collect();
    TaskAct::Ask { task: None, questions, progress: progress(rng) }
}

fn answer(rng: &mut Rng, mut keys: Vec<QuestionKey>) -> TaskAct {
    if keys.len() > 1 && rng.chance(500) {
        keys.truncate(1);
    }
    let answers = keys
        .into_iter()
        .map(|key| Answer {
            key,
            reply: match rng.below(4) {
                0 => Reply::Refused,
                1 => Reply::Dismissed,
                _ => Reply::Content(blob(rng)),
            },
        })
        .collect();
    TaskAct::Answer { answers, ignore_unknown: rng.chance(500), refuse_when_paused: rng.chance(300) }
}

fn complete(rng: &mut Rng) -> TaskAct {
    TaskAct::Complete { task: None, assignee: None, output: blob(rng), summary: text(rng) }
}

fn fail(rng: &mut Rng) -> TaskAct {
    let failure = Failure {
        code: text(rng),
        reason: text(rng),
        retryable: rng.chance(500),
        protocol_error: rng.chance(100),
        output: blob(rng),
    };
    TaskAct::Fail { task: None, assignee: None, failure }
}

fn say(rng: &mut Rng) -> TaskAct {
    let next = match rng.below(10) {
        0..=3 => Next::AsBefore,
        4 => Next::Works,
        5 | 6 => Next::Delivers,
        _ => {
            let need = if rng.chance(300) { Need::Authorization } else { Need::Input };
            Next::Asks { need, text: text(rng), schema: Blob::default() }
        }
    };
    TaskAct::Say { body: blob(rng), next, check_in: check_in(rng) }
}

fn commit(rng: &mut Rng, session: &Session) -> Act {
    let positive = rng.chance(700);
    let versions = &session.binding.versions;
    Act::Commit(Box::new(Commitment {
        commitment: text(rng),
        action: Text::from(if positive { "task.completed" } else { "task.failed" }),
        scope: text(rng),
        reason: text(rng),
        mode_version: versions.mode.clone(),
        policy_version: versions.policy.clone(),
        configuration_version: versions.configuration.clone(),
        positive,
        supersedes: None,
    }))
}

fn offer(rng: &mut Rng, session: &Session, tasks: &[SessionId]) -> Act {
    let scope = if !tasks.is_empty() && rng.chance(700) {
        Text::from(format!("task:{}", rng.pick(tasks)))
    } else {
        text(rng)
    };
    Act::Handoff(HandoffAct::Offer(NewOffer {
        handoff: HandoffId::from(format!("h{}", rng.below(100))),
        target: rng.pick(&session.binding.participants).clone(),
        scope,
        reason: text(rng),
        context: None,
    }))
}
