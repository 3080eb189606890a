//! What each method does: which acts of the desk it is.

use std::sync::Arc;
use std::time::Duration;

use handover_desk::answerable::{SEEN_BY_NOBODY, is_seen_by_nobody};
use handover_desk::caller::Caller;
use handover_desk::converse::{Saying, Tasks};
use handover_desk::delegate::{Profile, Work};
use handover_desk::look::HISTORY_MAX;
use handover_desk::policies::GRID_POLICY;
use handover_desk::{Accepted, Desk};
use handover_kernel::budget::{Amounts, Budget};
use handover_kernel::command::{Act, CheckInTerms, Failure, Need, Next, Progress, TaskAct};
use handover_kernel::{AgentId, Blob, Charter, Refusal, Session, SessionId, Text};
use serde_json::Value;
use tokio::time::Instant;

use super::message;
use super::methods::{
    Acknowledged, Branch, CancelTask, Canceled, Delegated, EndTask, ListTasks, Listed, MaybeOne, NewBudget,
    One, OnlyTask, ReadHistory, ReadTask, SendMessage, SendTask, Sent, Steering, UpdateTask, Waits, WasRead,
    WasSaid, WithAgent, Words,
};
use super::parts::{self, Part};
use super::state::{self, State};
use super::task::{self, Task};
use super::{No, Refused};
use crate::face::budget::{self, Numbers};
use crate::face::silence;

/// What the sessions of the face are bound to.
const PROFILE: Profile = Profile { charter: Charter::grid, policy: GRID_POLICY, configuration: "grid" };

/// How many tasks a page shows, and how many messages.
const LIST_MAX: usize = 100;
const READ_MAX: usize = 200;

/// How many tasks of a tree are shown.
const TREE_MAX: usize = 200;

/// How long a call may wait for news: less than anything on the way waits for an answer.
pub const WAIT_MAX: Duration = Duration::from_secs(25);

/// What a task is called whose sender has no name for it.
pub(super) const UNNAMED: &str = "task";

/// Why a task is completed whose sender says nothing about it.
const ACCEPTED: &str = "the sender accepts what was delivered";

/// How long a title may be that is made from a message.
const TITLE_CHARS_MAX: usize = 80;

impl Words {
    fn parts(self) -> Result<Vec<Part>, Refused> {
        let parts = match self {
            Words::Nothing => return Ok(Vec::new()),
            Words::Text(text) => vec![Part::Text { text }],
            Words::Parts(message) => message.parts,
        };
        parts::check(&parts).map_err(|what| Refused::invalid(format!("message.{what}")))?;
        Ok(parts)
    }

    /// The same, where there must be some.
    fn some_parts(self) -> Result<Vec<Part>, Refused> {
        let parts = self.parts()?;
        if parts.is_empty() {
            return Err(Refused::invalid("message: expected a text, or an object with parts, found nothing"));
        }
        Ok(parts)
    }

    /// As a reason, which is text.
    fn reason(self) -> Result<Text, Refused> {
        let parts = self.parts()?;
        if parts.iter().any(|part| !matches!(part, Part::Text { .. })) {
            return Err(Refused::invalid(
                "message: expected text alone with a state that ends the task, found other parts",
            ));
        }
        Ok(Text::from(parts::to_text(&parts)))
    }
}

/// Seconds as milliseconds.
fn milliseconds(name: &str, seconds: Option<f64>, max: f64) -> Result<Option<u64>, Refused> {
    match seconds {
        None => Ok(None),
        Some(seconds) if (0.001..=max).contains(&seconds) => Ok(Some((seconds * 1000.0) as u64)),
        Some(found) => {
            Err(Refused::invalid(format!("{name}: expected seconds from 0.001 to {max}, found {found}")))
        }
    }
}

/// The longest window in which a message is to be acknowledged.
const CHECK_IN_SECONDS_MAX: f64 = 24.0 * 3600.0;

/// No time that is said of a task is longer than the longest `limits.ttl_hours_max`; what it is here, the kernel says.
const TASK_SECONDS_MAX: f64 = 87_600.0 * 3600.0;

fn check_in(seconds: Option<f64>, misses_max: Option<u32>) -> Result<CheckInTerms, Refused> {
    if misses_max == Some(0) {
        return Err(Refused::invalid("failAfterMisses: expected 1 or more, found 0"));
    }
    Ok(CheckInTerms { window_ms: milliseconds("checkIn", seconds, CHECK_IN_SECONDS_MAX)?, misses_max })
}

fn until(wait_ms: Option<u64>) -> Instant {
    Instant::now() + wait_ms.map_or(Duration::ZERO, |wait| Duration::from_millis(wait).min(WAIT_MAX))
}

/// The beginning of a text, as a title.
fn title(words: &str) -> String {
    let line = words.trim().lines().next().unwrap_or_default();
    handover_kernel::cut(line, TITLE_CHARS_MAX).into_owned()
}

/// What a party says, and the state that it leads its task to.
struct Step {
    id: Option<String>,
    state: Option<State>,
    words: Words,
    schema: Option<Value>,
    check_in: CheckInTerms,
    used: Option<Numbers>,
    /// Whether a state can be set without a word.
    may_be_silent: bool,
}

/// What a receiver can do whose question may be shown to nobody.
const GO_ON: &str =
    "go on without the answer if you can, otherwise set the state to failed and say what you need";

/// One caller at the desk.
pub struct Call<'a> {
    /// The desk.
    pub desk: &'a Desk,
    /// Who asks.
    pub caller: &'a Caller,
}

impl Call<'_> {
    fn view(&self, session: &Session) -> Result<Task, Refused> {
        task::of(session, &self.caller.agent, self.caller)
            .ok_or_else(|| No(Refusal::SessionNotFound.into()).into())
    }

    pub(super) fn one(&self, accepted: &Accepted) -> Result<One, Refused> {
        Ok(One { task: self.view(&accepted.session)?, waits: Vec::new(), warning: None })
    }

    fn sent(&self, accepted: &Accepted, sequence: u64, warning: Option<String>) -> Result<Sent, Refused> {
        let task = self.view(&accepted.session)?;
        Ok(Sent { task, sequence, duplicate: accepted.receipt.duplicate, warning })
    }

    /// What a receiver is told whose question may be shown to nobody.
    fn unseen(&self, accepted: &Accepted, state: Option<State>) -> Option<String> {
        let asks = matches!(state, Some(State::InputRequired | State::AuthRequired));
        let of_receiver = accepted.session.binding.requester != self.caller.agent;
        (asks && of_receiver && is_seen_by_nobody(&accepted.session))
            .then(|| format!("{SEEN_BY_NOBODY}: {GO_ON}"))
    }

    /// `task/send`.
    pub async fn send(&self, asked: SendTask) -> Result<Sent, Refused> {
        let parts = asked.message.some_parts()?;
        let words = parts::to_text(&parts);
        let to = self.node(&asked.to).await?;
        let key = asked.message_id.as_deref();
        let id = self.desk.new_id(self.caller, key);
        let warning = match asked.queue {
            true => None,
            false => self.desk.must_exist(self.caller, &id, std::slice::from_ref(&to)).await?,
        };
        let plain = matches!(&parts[..], [Part::Text { text }] if !text.is_empty());
        let work = Work {
            agents: vec![to.clone()],
            assignee: Some(to),
            title: Text::from(asked.title.unwrap_or_else(|| title(&words))),
            task: Text::from(asked.message_id.as_deref().unwrap_or(UNNAMED)),
            instructions: Text::from(words),
            input: if plain { Blob::default() } else { parts::to_body(&parts) },
            ttl_ms: milliseconds("deadline", asked.deadline, TASK_SECONDS_MAX)?,
            parent: asked.parent_task_id.map(SessionId::from),
            context: Text::from(asked.context_id),
            check_in: check_in(asked.check_in, asked.fail_after_misses)?,
            session_key: asked.session_key.map(Text::from),
            liveness: silence::liveness(
                milliseconds("silentAfter", asked.silent_after, TASK_SECONDS_MAX)?,
                asked.when_silent.as_deref(),
            )
            .map_err(Refused::invalid)?,
            budget: asked.budget.map(bounds).transpose()?,
            ..Work::default()
        };
        let accepted = self.desk.delegate(self.caller, &id, key, &PROFILE, work).await?;
        // The message comes after the start.
        self.sent(&accepted, accepted.receipt.seq.next().0, warning)
    }

    /// The agent that a node id stands for.
    async fn node(&self, id: &str) -> Result<AgentId, Refused> {
        Ok(self.desk.agent_of_node(self.caller, id).await?)
    }

    /// `message/send`.
    pub async fn say(&self, asked: SendMessage) -> Result<Sent, Refused> {
        let task = match (asked.task_id, asked.to) {
            (Some(task), None) => task,
            (None, Some(to)) => {
                let to = self.node(&to).await?;
                let active = self.desk.active_task(self.caller, &to).await?;
                let nothing =
                    || Refused::invalid(format!("there is no open task between you and {to}: send one"));
                active.ok_or_else(nothing)?.to_string()
            }
            (Some(_), Some(_)) | (None, None) => {
                return Err(Refused::invalid("expected taskId or to, found both or neither"));
            }
        };
        let check_in = check_in(asked.check_in, asked.fail_after_misses)?;
        let SendMessage { state, message: words, schema, message_id: id, used, .. } = asked;
        let step = Step { id, state, words, schema, check_in, used, may_be_silent: false };
        let accepted = self.step(&task, step).await?;
        let warning = self.unseen(&accepted, state);
        self.sent(&accepted, accepted.receipt.seq.0, warning)
    }

    /// Say something, lead a task to a state, or both.
    async fn step(&self, task: &str, step: Step) -> Result<Accepted, Refused> {
        let Step { id, state, words, schema, check_in, used, may_be_silent } = step;
        let id = id.as_deref();
        let used = budget::amounts("used", used).map_err(Refused::invalid)?;
        let session = self.desk.task(self.caller, task).await?;
        let is_sender = session.binding.requester == self.caller.agent;
        if schema.is_some() && !matches!(state, Some(State::InputRequired | State::AuthRequired)) {
            return Err(Refused::invalid("schema: expected input_required or auth_required with it"));
        }
        let no_work = matches!(state, Some(State::Completed | State::Canceled | State::Rejected));
        if !used.is_empty() && (is_sender || no_work) {
            return Err(Refused::invalid(
                "used: expected it of the receiver, with a message or with working, input_required, auth_required or failed",
            ));
        }
        let ends = |act| self.put_using(task, id, act, used.clone());
        match (state, is_sender) {
            (Some(State::Submitted), _) => Err(Refused::invalid(
                "state: expected a state that a party can set, found submitted, which a task begins with",
            )),
            (Some(State::Completed), _) => self.commit(&session, words.reason()?, id).await,
            (Some(State::Canceled), _) => self.give_up(task, id, words.reason()?, false).await,
            (Some(State::Rejected), _) => ends(decline(words.reason()?)).await,
            (Some(State::Failed), _) => {
                let parts = words.parts()?;
                let reason = Text::from(parts::to_text(&parts));
                let plain = parts.iter().all(|part| matches!(part, Part::Text { .. }));
                let output = if plain { Blob::default() } else { parts::to_body(&parts) };
                let (retryable, protocol_error) = (false, false);
                let failure =
                    Failure { code: Text::from("failed"), reason, retryable, protocol_error, output };
                ends(Act::Task(TaskAct::Fail { task: None, assignee: None, failure })).await
            }
            (None, true) => {
                let body = parts::to_body(&words.some_parts()?);
                self.speak(task, id, Saying { body, check_in, ..Saying::default() }).await
            }
            (Some(State::Working), _) if may_be_silent && matches!(words, Words::Nothing) => {
                let status = Text::from(State::Working.name());
                let progress = Progress { status, ..Progress::default() };
                ends(Act::Task(TaskAct::Update { task: None, progress, withdraws: true })).await
            }
            (next, _) => {
                let parts = words.some_parts()?;
                let body = parts::to_body(&parts);
                let ask = |need| {
                    let schema = schema.as_ref().map_or_else(Blob::default, handover_desk::payload::of_json);
                    Next::Asks { need, text: Text::from(parts::to_text(&parts)), schema }
                };
                let next = match next {
                    Some(State::Working) => Next::Works,
                    Some(State::AuthRequired) => ask(Need::Authorization),
                    Some(_) => ask(Need::Input),
                    None => Next::Delivers,
                };
                // The words of a question are text; what else it says is kept beside them.
                let only_text = matches!(&parts[..], [Part::Text { .. }]);
                let asks = matches!(next, Next::Asks { .. });
                let verbatim = (asks && !only_text).then(|| body.clone());
                self.speak(task, id, Saying { body, verbatim, next, used, ..Saying::default() }).await
            }
        }
    }

    async fn speak(&self, task: &str, id: Option<&str>, saying: Saying) -> Result<Accepted, Refused> {
        Ok(self.desk.say(self.caller, task, id, saying).await?)
    }

    async fn put(&self, task: &str, id: Option<&str>, act: Act) -> Result<Accepted, Refused> {
        self.put_using(task, id, act, Amounts::default()).await
    }

    async fn put_using(
        &self,
        task: &str,
        id: Option<&str>,
        act: Act,
        used: Amounts,
    ) -> Result<Accepted, Refused> {
        Ok(self.desk.converse(self.caller, task, id, act, used).await?)
    }

    async fn give_up(
        &self,
        task: &str,
        id: Option<&str>,
        reason: Text,
        keeps_children: bool,
    ) -> Result<Accepted, Refused> {
        Ok(self.desk.cancel(self.caller, task, id, reason, keeps_children).await?)
    }

    async fn commit(&self, session: &Session, reason: Text, id: Option<&str>) -> Result<Accepted, Refused> {
        let reason = if reason.trim().is_empty() { Text::from(ACCEPTED) } else { reason };
        Ok(self.desk.commit(self.caller, session, true, reason, id).await?)
    }

    /// `task/read`.
    pub async fn read(&self, asked: ReadTask) -> Result<WasRead, Refused> {
        let max = asked.max.unwrap_or(READ_MAX).clamp(1, READ_MAX);
        let until = until(asked.wait_ms);
        let read = self.desk.read_by(self.caller, &asked.task_id, max, until).await?;
        let shown = |event: &_| message::of(&read.session, event, &self.caller.agent);
        let messages = read.events.iter().filter_map(|event| shown(event)).collect();
        let trace = self.desk.trace_for_worker(self.caller, &read.session).await;
        let traceparent = trace.map(|trace| trace.parent.to_string());
        Ok(WasRead { task: self.view(&read.session)?, messages, more: read.more, traceparent })
    }

    /// `message/ack`.
    pub async fn ack(&self, asked: OnlyTask) -> Result<Acknowledged, Refused> {
        let accepted = self.put(&asked.task_id, None, Act::Task(TaskAct::Acknowledge)).await?;
        Ok(Acknowledged { acknowledged: accepted.receipt.changed, task: self.view(&accepted.session)? })
    }

    /// `task/get`.
    pub async fn get(&self, asked: OnlyTask) -> Result<One, Refused> {
        let session = self.desk.task(self.caller, &asked.task_id).await?;
        let waits = self.desk.waits_in(self.caller, &session).await?;
        let waits = waits.iter().map(|edge| Waits {
            from_node_id: edge.from.to_string(),
            to_node_id: edge.to.to_string(),
            why: edge.why.name(),
            task_id: edge.on.to_string(),
        });
        Ok(One { task: self.view(&session)?, waits: waits.collect(), warning: None })
    }

    /// `task/list`.
    pub async fn list(&self, asked: ListTasks) -> Result<Listed, Refused> {
        let max = asked.max.unwrap_or(LIST_MAX).clamp(1, LIST_MAX);
        let with = match &asked.with {
            Some(with) => Some(self.node(with).await?),
            None => None,
        };
        let wanted = Tasks {
            unread: asked.unread,
            standings: asked.state.map_or(0, State::standings),
            context: asked.context_id,
            with,
        };
        let (after, until) = (asked.cursor.as_deref(), until(asked.wait_ms));
        let (found, next_cursor) = self.desk.tasks_by(self.caller, &wanted, after, max, until).await?;
        let in_state = |session: &&Arc<Session>| asked.state.is_none_or(|state| state == state::of(session));
        let shown = found.iter().filter(in_state).map(|session| self.view(session));
        Ok(Listed { tasks: shown.collect::<Result<_, _>>()?, next_cursor })
    }

    /// `task/history`.
    pub async fn history(&self, asked: ReadHistory) -> Result<WasSaid, Refused> {
        let max = asked.max.unwrap_or(HISTORY_MAX).clamp(1, HISTORY_MAX);
        self.desk.task(self.caller, &asked.task_id).await?;
        let history = self.desk.history(self.caller, &asked.task_id, asked.after, max).await?;
        let shown = |event: &_| message::of(&history.session, event, &self.caller.agent);
        let messages = history.events.iter().filter_map(|event| shown(event)).collect();
        Ok(WasSaid { messages, next: history.next })
    }

    /// `task/update`.
    pub async fn update(&self, asked: UpdateTask) -> Result<One, Refused> {
        let task = asked.task_id.as_str();
        if asked.state.is_none() && asked.session_key.is_none() {
            return Err(Refused::invalid("expected state or sessionKey, found neither"));
        }
        if asked.state.is_none() && asked.used.is_some() {
            return Err(Refused::invalid("used: expected a state with it, found none"));
        }
        let (mut changed, mut warning) = (None, None);
        if let Some(key) = asked.session_key {
            let key = (!key.is_empty()).then(|| Text::from(key));
            changed = Some(self.put(task, None, Act::Task(TaskAct::SetKey { key })).await?);
        }
        if asked.state.is_some() {
            let (state, words, schema) = (asked.state, asked.message, None);
            let (id, check_in, may_be_silent) = (asked.message_id, CheckInTerms::default(), true);
            let used = asked.used;
            let step = Step { id, state, words, schema, check_in, used, may_be_silent };
            let accepted = self.step(task, step).await?;
            warning = self.unseen(&accepted, state);
            changed = Some(accepted);
        }
        Ok(One { warning, ..self.one(&changed.expect("a state or a key was set"))? })
    }

    /// `task/complete`.
    pub async fn complete(&self, asked: EndTask) -> Result<One, Refused> {
        let session = self.desk.task(self.caller, &asked.task_id).await?;
        self.one(&self.commit(&session, Text::from(asked.reason), None).await?)
    }

    /// `task/reject`.
    pub async fn reject(&self, asked: EndTask) -> Result<One, Refused> {
        self.one(&self.put(&asked.task_id, None, decline(Text::from(asked.reason))).await?)
    }

    /// `task/cancel`.
    pub async fn cancel(&self, asked: CancelTask) -> Result<Canceled, Refused> {
        let (task, reason, keep) = (&asked.task_id, Text::from(asked.reason), asked.keep_subtasks);
        let accepted = self.give_up(task, None, reason, keep).await?;
        let below = self.desk.below_cancelled(self.caller, task).await?;
        let names = |ids: Vec<SessionId>| ids.iter().map(ToString::to_string).collect();
        let (subtasks, going_on) = (names(below.reached), names(below.left));
        Ok(Canceled { task: self.view(&accepted.session)?, subtasks, going_on })
    }

    /// `task/active`.
    pub async fn active(&self, asked: WithAgent) -> Result<MaybeOne, Refused> {
        let with = self.node(&asked.node_id).await?;
        let task = match self.desk.active_task(self.caller, &with).await? {
            Some(id) => {
                let session = self.desk.task(self.caller, id.as_str()).await?;
                Some(self.view(&session)?)
            }
            None => None,
        };
        Ok(MaybeOne { task })
    }

    /// `task/tree`.
    pub async fn tree(&self, asked: OnlyTask) -> Result<Delegated, Refused> {
        let (found, more) = self.desk.tree(self.caller, &asked.task_id, TREE_MAX).await?;
        let branches = found.iter().filter_map(|branch| {
            let shown = task::of(&branch.session, &self.caller.agent, self.caller)?;
            Some(Branch {
                task_id: shown.task_id,
                parent_task_id: shown.parent_task_id,
                depth: branch.depth,
                state: shown.state,
                from_node_id: shown.from_node_id,
                to_node_id: shown.to_node_id,
                title: shown.title,
                created_at: shown.created_at,
                budget: shown.budget,
                used: shown.used,
            })
        });
        Ok(Delegated { tasks: branches.collect(), more })
    }

    /// `task/steer`.
    pub async fn steer(&self, asked: Steering) -> Result<One, Refused> {
        let steer = Act::Task(TaskAct::Steer { text: Text::from(asked.text) });
        self.one(&self.put(&asked.task_id, asked.message_id.as_deref(), steer).await?)
    }

    /// `task/pause`.
    pub async fn pause(&self, asked: EndTask) -> Result<One, Refused> {
        let pause = Act::Pause { reason: Text::from(asked.reason), gently: false };
        self.one(&self.put(&asked.task_id, None, pause).await?)
    }

    /// `task/resume`.
    pub async fn resume(&self, asked: EndTask) -> Result<One, Refused> {
        self.one(&self.put(&asked.task_id, None, Act::Resume { reason: Text::from(asked.reason) }).await?)
    }
}

/// The budget that was asked for.
fn bounds(asked: NewBudget) -> Result<Budget, Refused> {
    let NewBudget { tasks, depth, time, numbers } = asked;
    let time_ms = milliseconds("budget.time", time, TASK_SECONDS_MAX)?;
    let numbers = budget::amounts("budget.numbers", numbers).map_err(Refused::invalid)?;
    Ok(Budget { tasks, depth, time_ms, numbers })
}

fn decline(reason: Text) -> Act {
    Act::Task(TaskAct::Decline { task: None, assignee: None, reason })
}
