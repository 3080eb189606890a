//! Who waits for whom: an agent waits for another while a task that it has in hand, or something that it proposed, can go on
//! only by what the other does. It is made from the tasks as they are, whichever faces the agents are on.
//!
//! Agents that wait for each other in a circle may do so for ever: whoever closes one has it told to the requesters.

use std::collections::BTreeSet;
use std::sync::Arc;

use handover_engine::view::WaitKind;
use handover_kernel::charter::Authority;
use handover_kernel::command::{Act, TaskAct};
use handover_kernel::session::Lifecycle;
use handover_kernel::task::{Phase, Task};
use handover_kernel::{AgentId, Command, Session, SessionId};
use handover_store::SessionKey;

use crate::Desk;
use crate::approvals::sees_approval;
use crate::caller::{Caller, sees};
use crate::no::No;

/// How many tasks of one agent, and how many subtasks of one task, are looked at.
const TASKS_MAX: usize = 64;

/// How many rows of an inbox are read at a time.
const ROWS: usize = 16;

/// How many tasks are looked at in all before a search for a circle is given up: whoever delegates chooses how many there are.
const LOOKS_MAX: usize = 256;

/// One agent waits for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Who waits.
    pub from: AgentId,
    /// For whom.
    pub to: AgentId,
    /// In which task or handoff.
    pub task: SessionId,
    /// What for.
    pub why: Why,
    /// The subtask that it waits for, or else the task itself.
    pub on: SessionId,
}

/// What an agent has in hand.
#[derive(Clone, Debug)]
pub struct InHand {
    /// Its tasks.
    pub tasks: Vec<Arc<Session>>,
    /// For whom it waits in them.
    pub waits: Vec<Edge>,
    /// Whether there are others.
    pub more: bool,
}

/// What an agent waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The answer to a question.
    Question,
    /// An approval.
    Approval,
    /// The review of what was reported.
    Review,
    /// A task that it delegated.
    Delegated,
}

impl Why {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Why::Question => "question",
            Why::Approval => "approval",
            Why::Review => "review",
            Why::Delegated => "delegated",
        }
    }
}

/// A circle in a sentence.
pub fn cycle(agents: &[AgentId]) -> String {
    let names: Vec<&str> = agents.iter().chain(agents.first()).map(AgentId::as_str).collect();
    format!("these agents wait for each other: {}", names.join(" → "))
}

impl Desk {
    /// For whom the assignee of a task waits, as far as that is known from the task and what was delegated under it, and the
    /// caller may know it.
    pub async fn waits_in(&self, caller: &Caller, session: &Session) -> Result<Vec<Edge>, No> {
        self.edges_in(&caller.tenant, session, &mut { LOOKS_MAX }, Some(caller)).await
    }

    /// The same of all tasks of a tree, each wait once, as far as there is time to look at them.
    pub async fn waits_among(&self, caller: &Caller, tree: &[Arc<Session>]) -> Result<Vec<Edge>, No> {
        let (mut edges, mut looks): (Vec<Edge>, usize) = (Vec::new(), LOOKS_MAX);
        for session in tree.iter().take(TASKS_MAX) {
            for edge in self.edges_in(&caller.tenant, session, &mut looks, Some(caller)).await? {
                let is_it = |known: &Edge| {
                    (&known.from, &known.to, known.why, &known.on)
                        == (&edge.from, &edge.to, edge.why, &edge.on)
                };
                if !edges.iter().any(is_it) {
                    edges.push(edge);
                }
            }
        }
        Ok(edges)
    }

    /// What an agent has in hand of what the caller may see, at most so many tasks, and for whom it waits there. Of what the
    /// caller may not see, not even that it is there is told.
    pub async fn in_hand(&self, caller: &Caller, agent: &AgentId, max: usize) -> Result<InHand, No> {
        let kinds = WaitKind::InHand.bit();
        let (mut tasks, mut waits, mut looks) = (Vec::new(), Vec::new(), LOOKS_MAX);
        let (mut after, mut left) = (None, TASKS_MAX);
        loop {
            let page =
                self.engine.inbox(&caller.tenant, agent.as_str(), kinds, after, left.min(ROWS)).await?;
            left -= page.sessions.len().min(left);
            let keys = page.sessions.into_iter().map(|waiting| waiting.key).collect();
            for session in self.engine.sessions(keys).await? {
                if !sees(caller, &session) {
                    continue;
                }
                if tasks.len() >= max {
                    return Ok(InHand { tasks, waits, more: true });
                }
                let found = self.edges_in(&caller.tenant, &session, &mut looks, Some(caller)).await?;
                waits.extend(found.into_iter().filter(|edge| edge.from == *agent));
                tasks.push(session);
            }
            match page.next {
                Some(next) if left > 0 => after = Some(next),
                _ => return Ok(InHand { tasks, waits, more: false }),
            }
        }
    }

    /// Look for a circle that an act may have closed, and have it told to the requesters of its tasks.
    pub(crate) async fn tell_of_cycle(&self, tenant: &str, session: &Session) {
        let assignee = session.task().and_then(|task| task.phase.assignee());
        for agent in [Some(&session.binding.requester), assignee].into_iter().flatten() {
            // What cannot be looked at now is looked at with the next act.
            if let Ok(Some(found)) = self.cycle_through(tenant, agent).await {
                self.note_cycle(tenant, &found).await;
                return;
            }
        }
    }

    async fn note_cycle(&self, tenant: &str, found: &[Edge]) {
        let first = found.iter().enumerate().min_by_key(|(_, edge)| &edge.from).map_or(0, |(at, _)| at);
        let turned: Vec<&Edge> = found[first..].iter().chain(&found[..first]).collect();
        let agents: Vec<AgentId> = turned.iter().map(|edge| edge.from.clone()).collect();
        // The same circle is told once, whoever finds it.
        let parts: Vec<String> =
            turned.iter().map(|edge| format!("{}:{}:{}", edge.task, edge.on, edge.why.name())).collect();
        let name = self.secret.derive(&parts.iter().map(String::as_str).collect::<Vec<_>>());
        let tasks: BTreeSet<&SessionId> = turned.iter().map(|edge| &edge.task).collect();
        for task in tasks {
            let act = Act::Task(TaskAct::NoteCycle { agents: agents.clone() });
            let command = Command::runtime(act).with_id(format!("handover:cycle:{name}"));
            let key = SessionKey::new(tenant, task.as_str());
            // A task that has ended meanwhile waits for nobody.
            _ = self.engine.submit(key, command).await;
        }
    }

    /// The edges of a circle that an agent is part of.
    async fn cycle_through(&self, tenant: &str, agent: &AgentId) -> Result<Option<Vec<Edge>>, No> {
        let (mut seen, mut looks) = (BTreeSet::from([agent.clone()]), LOOKS_MAX);
        // The way from the agent to where the search is, and what is left to try at each step.
        let mut left = vec![self.edges_of(tenant, agent, &mut looks).await?];
        let mut way: Vec<Edge> = Vec::new();
        while let Some(edges) = left.last_mut() {
            let Some(edge) = edges.pop() else {
                left.pop();
                way.pop();
                continue;
            };
            if edge.to == *agent {
                way.push(edge);
                return Ok(Some(way));
            }
            if seen.insert(edge.to.clone()) {
                left.push(self.edges_of(tenant, &edge.to, &mut looks).await?);
                way.push(edge);
            }
        }
        Ok(None)
    }

    /// For whom an agent waits.
    async fn edges_of(&self, tenant: &str, agent: &AgentId, looks: &mut usize) -> Result<Vec<Edge>, No> {
        let max = TASKS_MAX.min(*looks);
        if max == 0 {
            return Ok(Vec::new());
        }
        let kinds = WaitKind::InHand.bit() | WaitKind::Proposed.bit();
        let page = self.engine.inbox(tenant, agent.as_str(), kinds, None, max).await?;
        *looks -= page.sessions.len().min(max);
        let keys = page.sessions.into_iter().map(|waiting| waiting.key).collect();
        let mut edges = Vec::new();
        for session in self.engine.sessions(keys).await? {
            let found = self.edges_in(tenant, &session, looks, None).await?;
            edges.extend(found.into_iter().filter(|edge| edge.from == *agent));
        }
        Ok(edges)
    }

    /// Who waits for whom because of one session and what was delegated under it: of what is told to a caller, only what it may
    /// know.
    async fn edges_in(
        &self,
        tenant: &str,
        session: &Session,
        looks: &mut usize,
        told: Option<&Caller>,
    ) -> Result<Vec<Edge>, No> {
        let may_know = |session: &Session, edge: &Edge| {
            told.is_none_or(|caller| {
                is_known_to(caller, session) && (edge.why != Why::Approval || sees_approval(caller, session))
            })
        };
        let mut edges = own_edges(session);
        edges.retain(|edge| may_know(session, edge));
        if let (Some(task), true) = (session.task(), session.lifecycle == Lifecycle::Open)
            && let Some(holder) = task.phase.assignee()
        {
            let key = |child: &SessionId| SessionKey::new(tenant, child.as_str());
            let newest = task.children.iter().rev().take(TASKS_MAX.min(*looks));
            let children: Vec<SessionKey> = newest.map(|(_, child)| key(child)).collect();
            *looks -= children.len();
            for child in self.engine.sessions(children).await? {
                edges.extend(edge_to(session, holder, &child).filter(|edge| may_know(&child, edge)));
            }
        }
        Ok(edges)
    }
}

/// Whether an act may make an agent wait for another.
pub(crate) fn may_wait(act: &Act) -> bool {
    let in_task = |act: &TaskAct| {
        matches!(
            act,
            TaskAct::Request(_)
                | TaskAct::Accept { .. }
                | TaskAct::Ask { .. }
                | TaskAct::Say { .. }
                | TaskAct::Complete { .. }
        )
    };
    matches!(act, Act::Delegate(_) | Act::Commit(_)) || matches!(act, Act::Task(act) if in_task(act))
}

/// Whether others can wait because of a session: it is part of a task, has parts, or waits for an approval.
pub(crate) fn is_related(session: &Session) -> bool {
    let has_parts = session.task().is_some_and(|task| !task.children.is_empty());
    session.binding.parent.is_some() || has_parts || session.proposal.is_some()
}

/// Whether a caller that sees a task may know of one under it: of what waits for an approval before it begins, only those know
/// who have a part in that.
pub(crate) fn is_known_to(caller: &Caller, session: &Session) -> bool {
    !session.is_held_back() || sees(caller, session)
}

fn own_edges(session: &Session) -> Vec<Edge> {
    if session.lifecycle != Lifecycle::Open {
        return Vec::new();
    }
    let id = &session.binding.id;
    let edge = |from: &AgentId, to: &AgentId, why| Edge {
        from: from.clone(),
        to: to.clone(),
        task: id.clone(),
        why,
        on: id.clone(),
    };
    let approver = session.proposal.as_ref().zip(only(session.approvers()));
    let approval = approver.map(|(proposal, to)| edge(&proposal.by, to, Why::Approval));
    let question = session.task().and_then(|task| match &task.phase {
        Phase::Waiting { assignee, .. } => Some(edge(assignee, &session.binding.requester, Why::Question)),
        Phase::Pending | Phase::Requested { .. } | Phase::Working { .. } | Phase::Reported { .. } => None,
    });
    approval.into_iter().chain(question).collect()
}

/// For whom the holder of a task waits because of a subtask that it delegated: nobody if it is its own turn there.
fn edge_to(parent: &Session, holder: &AgentId, child: &Session) -> Option<Edge> {
    let task: &Task = child.task()?;
    if child.lifecycle != Lifecycle::Open || child.binding.requester != *holder {
        return None;
    }
    let takers = || -> Vec<AgentId> { task.takers(&child.binding).take(2).cloned().collect() };
    let (to, why) = match &task.phase {
        Phase::Pending => (only(child.approvers())?.clone(), Why::Approval),
        // If several may take it, none of them is waited for.
        Phase::Requested { .. } => (only(&takers())?.clone(), Why::Delegated),
        Phase::Working { assignee, .. } => (assignee.clone(), Why::Delegated),
        Phase::Waiting { .. } => return None,
        Phase::Reported { .. } => match (&child.proposal, &child.binding.charter.authority) {
            (Some(_), _) => (only(child.approvers())?.clone(), Why::Approval),
            (None, Authority::Designated(agents)) => {
                let agents: Vec<AgentId> = agents.iter().take(2).cloned().collect();
                (only(&agents)?.clone(), Why::Review)
            }
            (None, Authority::Requester | Authority::AnyParticipant) => return None,
        },
    };
    let (task, on) = (parent.binding.id.clone(), child.binding.id.clone());
    (to != *holder).then(|| Edge { from: holder.clone(), to, task, why, on })
}

/// The one of a list that has only one: who can be helped by several waits for none of them.
fn only(agents: &[AgentId]) -> Option<&AgentId> {
    match agents {
        [one] => Some(one),
        _ => None,
    }
}
