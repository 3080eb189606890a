//! What an agent is told as it happens: one stream for all of its tasks. Everything in it can be read from the tasks
//! themselves; it only says where to look.

use std::time::Duration;

use handover_desk::approvals::decides;
use handover_desk::caller::Caller;
use handover_desk::follow::{Events, Over, Stay};
use handover_desk::{Delivery, Desk, No};
use handover_kernel::conversation::Party;
use handover_kernel::event::Fact;
use handover_kernel::{AgentId, Event, Session};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::state::{self, State};
use crate::http::sse::{Frame, Outlet};

/// When a client that lost its stream is to come back.
const RETRY: Duration = Duration::from_secs(1);

/// Why an agent is told of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It was sent a task.
    Task,
    /// The other side said something, asked, answered or delivered.
    Message,
    /// The state has changed.
    State,
    /// The receiver said how it goes.
    Progress,
    /// The receiver has received the messages and works on them.
    Ack,
    /// The other side has read the messages.
    Read,
    /// The receiver did not acknowledge a message in time.
    NoAck,
    /// The receiver has shown no sign of life for too long.
    Silent,
    /// Agents wait for each other, the receiver among them.
    Cycle,
    /// Something waits for your approval, or was decided about what you proposed.
    Approval,
    /// More was used than the budget allows.
    Overspent,
    /// The sender wants something to be taken into account.
    Steer,
    /// The sender wants the task to be paused.
    Pause,
}

/// What a notification says.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Notification {
    /// Which task.
    pub task_id: String,
    /// Who did it; none if the server did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_node_id: Option<String>,
    /// Why you are told.
    pub kind: Kind,
    /// The place of what happened in the task's history.
    pub sequence: u64,
    /// The state that it led to, if it led to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The sender's own name for the conversation.
    pub sender_session_key: Option<String>,
    /// The receiver's own name for it.
    pub receiver_session_key: Option<String>,
    /// What the task belongs to, as its sender calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
}

/// What an agent is told of an event, if it is told of it: what others did, and concerns its side.
pub fn of(session: &Session, event: &Event, agent: &AgentId) -> Option<Notification> {
    let (task, binding) = (session.task()?, &session.binding);
    let author = event.author.agent().filter(|_| !event.is_by_runtime());
    let is_sender = *agent == binding.requester;
    let about = matches!(event.fact, Fact::Proposed { .. } | Fact::Decided { .. });
    let concerned = match about {
        true => decides(session, agent),
        false => is_sender || binding.participants.contains(agent),
    };
    if author == Some(agent) || !concerned {
        return None;
    }
    // Whoever might have taken a task is told of it, and of no more once somebody else has.
    let others = task.phase.assignee().is_some_and(|assignee| assignee != agent);
    let kind = kind_of(&event.fact, is_sender)?;
    // What the runtime makes of a party's own act is told with that act.
    let made = matches!(event.fact, Fact::Committed(_) | Fact::Completed { .. });
    if made && task.follows(event) {
        return None;
    }
    if !is_sender && others && !about && kind != Kind::Task {
        return None;
    }
    let key = |party| task.conversation.side(party).key.as_ref().map(ToString::to_string);
    Some(Notification {
        task_id: binding.id.to_string(),
        from_node_id: author.map(ToString::to_string),
        kind,
        sequence: event.seq.0,
        state: state::after(&event.fact, session),
        sender_session_key: key(Party::Requester),
        receiver_session_key: key(Party::Receiver),
        context_id: (!binding.context_id.is_empty()).then(|| binding.context_id.to_string()),
    })
}

fn kind_of(fact: &Fact, is_sender: bool) -> Option<Kind> {
    let (to_sender, to_receiver) = (is_sender, !is_sender);
    let so = |so: bool, kind| so.then_some(kind);
    match fact {
        Fact::Requested(_) => so(to_receiver, Kind::Task),
        Fact::Said { .. } => Some(Kind::Message),
        Fact::Asked { .. } | Fact::Completed { .. } => so(to_sender, Kind::Message),
        Fact::Answered { .. } => so(to_receiver, Kind::Message),
        Fact::Steered { .. } => so(to_receiver, Kind::Steer),
        Fact::PauseRequested { .. } => so(to_receiver, Kind::Pause),
        Fact::Updated { .. } => so(to_sender, Kind::Progress),
        Fact::Acknowledged => so(to_sender, Kind::Ack),
        Fact::Read { .. } => Some(Kind::Read),
        Fact::CheckInMissed { .. } => so(to_sender, Kind::NoAck),
        Fact::FellSilent { .. } => so(to_sender, Kind::Silent),
        Fact::CycleFound { .. } => so(to_sender, Kind::Cycle),
        Fact::Proposed { .. } | Fact::Decided { .. } => Some(Kind::Approval),
        Fact::Overspent { .. } => so(to_sender, Kind::Overspent),
        Fact::Accepted { .. }
        | Fact::Declined { .. }
        | Fact::Failed(_)
        | Fact::Suspended { .. }
        | Fact::Resumed { .. }
        | Fact::Expired { .. }
        | Fact::Cancelled { .. }
        | Fact::Committed(_) => Some(Kind::State),
        Fact::Started(_)
        | Fact::ErrandSettled { .. }
        | Fact::Reserved { .. }
        | Fact::Used { .. }
        | Fact::Spent { .. }
        | Fact::Checkpointed
        | Fact::Delivered { .. }
        | Fact::KeySet { .. }
        | Fact::ChildAdded { .. }
        | Fact::Offered { .. }
        | Fact::ContextAdded { .. }
        | Fact::OfferAccepted { .. }
        | Fact::OfferDeclined { .. } => None,
    }
}

/// Where a stream begins.
pub struct Beginning {
    events: Events,
    /// Where the client was.
    resumed: bool,
    /// Now, though the client wanted to go on from earlier: it is told to look for itself.
    resync: bool,
}

impl Beginning {
    /// Of a client that was there before, if it says where.
    pub async fn of(desk: &Desk, caller: &Caller, last: Option<&str>) -> Result<Beginning, No> {
        let missed = match last {
            Some(last) => desk.own_events_after(caller, last).await?,
            None => None,
        };
        match missed {
            Some(events) => Ok(Beginning { events, resumed: true, resync: false }),
            None => {
                let events = desk.own_events(caller).await?;
                Ok(Beginning { events, resumed: false, resync: last.is_some() })
            }
        }
    }
}

/// Tell a client until it goes, its time is up, its credential ends or the server stops.
#[expect(
    clippy::manual_async_fn,
    reason = "it would have room for each of these twice, and there are many streams"
)]
pub fn tell(
    desk: Desk,
    caller: Caller,
    mut stay: Stay,
    mut beginning: Beginning,
    out: Outlet,
    until: Instant,
) -> impl Future<Output = ()> + Send {
    async move {
        let place = beginning.events.place();
        let connected = json!({ "nodeId": caller.agent.as_str(), "resumed": beginning.resumed }).to_string();
        let frame =
            Frame { id: Some(&place), event: Some("connected"), retry: Some(RETRY), data: Some(&connected) };
        out.send(frame).await;
        if beginning.resync {
            let data =
                json!({ "reason": "what you missed is not told any more: read task/list with unread" });
            let data = data.to_string();
            let frame =
                Frame { id: Some(&place), event: Some("resync"), data: Some(&data), ..Frame::default() };
            out.send(frame).await;
        }
        let mut untold = None;
        let why = loop {
            let next = tokio::select! {
                biased;
                () = tokio::time::sleep_until(until) => break "the connection has lasted as long as it may",
                next = stay.next(&mut beginning.events) => next,
            };
            let delivery = match next {
                Ok(delivery) => delivery,
                Err(Over::Stopping) => break "the server stops",
                Err(Over::Unauthenticated(_)) => break "the credential does not count any more",
                Err(Over::Lagging | Over::Denied(_)) => break "what happened could not be read",
            };
            // In a box, so that a stream with nothing to tell does not carry the room for it.
            let Ok(told) = Box::pin(told(&desk, &caller, &delivery)).await else {
                untold = Some(beginning.events.place_before(&delivery));
                break "what happened could not be read";
            };
            if let Some(data) = told {
                let id = beginning.events.place();
                let frame = Frame {
                    id: Some(&id),
                    event: Some("task_notify"),
                    data: Some(&data),
                    ..Frame::default()
                };
                out.send(frame).await;
            }
        };
        let data = json!({ "reason": why }).to_string();
        let place = untold.unwrap_or_else(|| beginning.events.place());
        let frame =
            Frame { id: Some(&place), event: Some("reconnect"), retry: Some(RETRY), data: Some(&data) };
        out.send(frame).await;
    }
}

/// What is told of an event, if it is told of it.
async fn told(desk: &Desk, caller: &Caller, delivery: &Delivery) -> Result<Option<String>, No> {
    // Asked first, because most events are none's news and a session may have to be read.
    if kind_of(&delivery.event.fact, true).or(kind_of(&delivery.event.fact, false)).is_none() {
        return Ok(None);
    }
    let session = match desk.session_at_last(caller, &delivery.key.session).await {
        Ok(session) => session,
        Err(no) if no.is_unknown() => return Ok(None),
        Err(no) => return Err(no),
    };
    let notification = of(&session, &delivery.event, &caller.agent);
    Ok(notification.and_then(|notification| serde_json::to_string(&notification).ok()))
}
