//! Ids and names that callers choose. They are kept for as long as what they name, in memory as well, so they are short: one
//! bound for all of them, on every face.

use handover_kernel::command::{Act, Command, HandoffAct, NewOffer, Opening, Request, Start, TaskAct};
use handover_kernel::commitment::Commitment;
use handover_kernel::{AgentId, Refusal};

use crate::identity::agent_id;

/// How many bytes an id or a name may have: that of a message, a session, a task, a question, an offer, a version, an
/// idempotency key.
pub const ID_BYTES_MAX: usize = 256;

/// How many bytes a reference to something that is kept elsewhere may have.
const REFERENCE_BYTES_MAX: usize = 2048;

/// How many extension blocks a session may name.
const EXTENSIONS_MAX: usize = 256;

/// Whether something can be an id or a name.
pub fn check(what: &str, found: &str) -> Result<(), Refusal> {
    at_most(ID_BYTES_MAX, what, found)
}

fn at_most(max: usize, what: &str, found: &str) -> Result<(), Refusal> {
    if found.len() <= max {
        return Ok(());
    }
    let found = found.len();
    Err(Refusal::invalid(format!("expected {what} of at most {max} bytes, found {found}")))
}

/// Whether all ids and names that a command brings along can be such.
pub(crate) fn check_all(session: &str, command: &Command) -> Result<(), Refusal> {
    check("the id of a task or handoff", session)?;
    if let Some(id) = &command.id {
        check("an id of a message, or an idempotency key,", id.as_str())?;
    }
    match &command.act {
        Act::Start(start) => check_start(start),
        Act::Delegate(delegation) => {
            check_start(&delegation.start)?;
            match &delegation.opening {
                Opening::Request(request) => check_request(request),
                Opening::Offer(offer) => check_offer(offer),
            }
        }
        Act::Commit(commitment) => check_commitment(commitment),
        Act::Task(act) => check_task_act(act),
        Act::Handoff(act) => match act {
            HandoffAct::Offer(offer) => check_offer(offer),
            HandoffAct::Context { handoff, .. }
            | HandoffAct::Accept { handoff, .. }
            | HandoffAct::Decline { handoff, .. } => check("a handoff id", handoff.as_str()),
        },
        Act::Cancel { .. }
        | Act::Pause { .. }
        | Act::Resume { .. }
        | Act::Tick
        | Act::Decide { .. }
        | Act::SettleErrand { .. } => Ok(()),
    }
}

pub(crate) fn check_start(start: &Start) -> Result<(), Refusal> {
    start.participants.iter().try_for_each(check_agent)?;
    check("a mode_version", &start.mode_version)?;
    check("a configuration_version", &start.configuration_version)?;
    check("a policy_version", &start.policy_version)?;
    at_most(REFERENCE_BYTES_MAX, "a context_id", &start.context_id)?;
    let extensions = start.extension_keys.len();
    if extensions > EXTENSIONS_MAX {
        return Err(Refusal::invalid(format!(
            "expected at most {EXTENSIONS_MAX} extensions, found {extensions}"
        )));
    }
    start.extension_keys.iter().try_for_each(|key| check("the name of an extension", key))?;
    start.parent.iter().try_for_each(|parent| check("the id of a parent task", parent.as_str()))
}

fn check_request(request: &Request) -> Result<(), Refusal> {
    check("a task_id", &request.task)?;
    request.session_key.iter().try_for_each(|key| check("a session key", key))
}

fn check_offer(offer: &NewOffer) -> Result<(), Refusal> {
    check("a handoff id", offer.handoff.as_str())
}

fn check_commitment(commitment: &Commitment) -> Result<(), Refusal> {
    check("a commitment_id", &commitment.commitment)?;
    check("a mode_version", &commitment.mode_version)?;
    check("a configuration_version", &commitment.configuration_version)?;
    check("a policy_version", &commitment.policy_version)?;
    let supersedes = commitment.supersedes.iter();
    supersedes
        .map(|other| other.session.as_str())
        .try_for_each(|other| check("the id of a task or handoff", other))
}

fn check_task_act(act: &TaskAct) -> Result<(), Refusal> {
    match act {
        TaskAct::Request(request) => check_request(request),
        TaskAct::Ask { questions, .. } => {
            let keys = questions.iter().filter_map(|question| question.key.as_ref());
            keys.map(|key| key.as_str()).try_for_each(|key| check("the key of a question", key))
        }
        TaskAct::Answer { answers, .. } => {
            answers.iter().try_for_each(|answer| check("the key of a question", answer.key.as_str()))
        }
        TaskAct::SetKey { key } => key.iter().try_for_each(|key| check("a session key", key)),
        TaskAct::HandOn { handoff, .. } => check("the id of a task or handoff", handoff.as_str()),
        TaskAct::AddChild { child } | TaskAct::Reserve { child, .. } => {
            check("the id of a task or handoff", child.as_str())
        }
        TaskAct::Spend { from, .. } => check("the id of a task or handoff", from.as_str()),
        TaskAct::Accept { .. }
        | TaskAct::Decline { .. }
        | TaskAct::Update { .. }
        | TaskAct::Checkpoint
        | TaskAct::Hold { .. }
        | TaskAct::Deliver { .. }
        | TaskAct::Steer { .. }
        | TaskAct::Complete { .. }
        | TaskAct::Fail { .. }
        | TaskAct::Say { .. }
        | TaskAct::Read { .. }
        | TaskAct::Acknowledge
        | TaskAct::CanHandOn { .. }
        | TaskAct::CanHaveChild { .. }
        | TaskAct::NoteCycle { .. } => Ok(()),
    }
}

fn check_agent(agent: &AgentId) -> Result<(), Refusal> {
    agent_id(agent.as_str()).map_err(|why| {
        let found = agent.as_str().len();
        Refusal::invalid(format!("expected the id of an agent: {why}, found {found} bytes"))
    })
}
