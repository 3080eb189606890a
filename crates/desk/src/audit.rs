//! The audit log: what matters to whoever asks later who tried what. One JSON object a line, only ever appended to.
//!
//! - [`queue`]: what waits to be written, and what there was no room for
//! - [`chain`]: the hashes that hold the lines together
//! - [`mod@file`]: the file, and the older ones
//! - [`read`]: reading it back, for those who may
//! - [`mod@verify`]: whether a log is as it was written
//!
//! Always: nobody waits for the disk; what is left out is counted, and the log says so, for each source by itself. Never: a token, a payload, what an
//! agent wrote as a reason.

pub mod chain;
pub mod file;
pub mod queue;
pub mod read;
pub mod verify;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use handover_kernel::event::ExpiryCause;
use handover_kernel::{AgentId, Event, Face, Fact, Timestamp};
use serde::Serialize;

use self::file::File;
use self::queue::{LeftOut, Queue, Source};
use crate::calendar::rfc3339;
use crate::caller::Caller;
use crate::counters::Counters;
use crate::identity::Principal;
use crate::identity::tokens::{Change, How};
use crate::timeline;
use handover_engine::Key;
use handover_engine::clock::machine;
use handover_engine::locks::lock;
use handover_engine::seldom::Seldom;

/// How long lines gather before they are written together.
const GATHER: Duration = Duration::from_millis(200);

/// How long the writer sleeps when there is nothing to do.
const LONG: Duration = Duration::from_secs(3600);

/// How many of those are named who may take work that is nobody's yet.
const ANYBODY_MAX: usize = 8;

/// How much is shown of an id that nobody has checked yet.
const NAME_BYTES_MAX: usize = 256;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A request was not authenticated, or its sender claimed to be somebody else.
    AuthenticationFailed,
    /// An agent asked for what it may not see or do.
    Forbidden,
    /// An agent asked for more than it may.
    Limited,
    /// A commitment settled a session.
    SessionResolved,
    /// A session's time was up.
    SessionExpired,
    /// A session was ended without an outcome.
    SessionCancelled,
    /// A policy was registered.
    PolicyRegistered,
    /// A policy was removed.
    PolicyUnregistered,
    /// Work was handed out.
    TaskDelegated,
    /// Something was proposed that needs an approval.
    ApprovalAsked,
    /// Somebody decided about what was proposed.
    ApprovalDecided,
    /// An agent took work, by itself or by a handoff.
    TaskAccepted,
    /// Responsibility was offered.
    HandoffOffered,
    /// Responsibility was taken.
    HandoffAccepted,
    /// An agent said something new of itself in the directory.
    AgentRegistered,
    /// An agent was taken out of the directory.
    AgentUnregistered,
    /// An agent bound a key to itself, to sign its requests with.
    AgentKeyBound,
    /// A key that an agent signed with counts no longer.
    AgentKeyUnbound,
    /// An agent signed in with a browser.
    SignedIn,
    /// A sign-in was ended.
    SignedOut,
    /// A static token counts from now on.
    TokenAdded,
    /// A static token counts no longer.
    TokenRevoked,
    /// A static token has other rights, limits or another end.
    TokenChanged,
    /// Tokens that are signed with a key count from now on.
    KeyAdded,
    /// Tokens that are signed with a key count no longer.
    KeyWithdrawn,
    /// The server started with another access list, or other static tokens, than the time before.
    AccessChanged,
}

impl What {
    /// Everything that can happen.
    pub const ALL: [What; 26] = [
        What::AuthenticationFailed,
        What::Forbidden,
        What::Limited,
        What::SessionResolved,
        What::SessionExpired,
        What::SessionCancelled,
        What::PolicyRegistered,
        What::PolicyUnregistered,
        What::TaskDelegated,
        What::ApprovalAsked,
        What::ApprovalDecided,
        What::TaskAccepted,
        What::HandoffOffered,
        What::HandoffAccepted,
        What::AgentRegistered,
        What::AgentUnregistered,
        What::AgentKeyBound,
        What::AgentKeyUnbound,
        What::SignedIn,
        What::SignedOut,
        What::TokenAdded,
        What::TokenRevoked,
        What::TokenChanged,
        What::KeyAdded,
        What::KeyWithdrawn,
        What::AccessChanged,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            What::AuthenticationFailed => "authentication_failed",
            What::Forbidden => "forbidden",
            What::Limited => "limited",
            What::SessionResolved => "session_resolved",
            What::SessionExpired => "session_expired",
            What::SessionCancelled => "session_cancelled",
            What::PolicyRegistered => "policy_registered",
            What::PolicyUnregistered => "policy_unregistered",
            What::TaskDelegated => "task_delegated",
            What::ApprovalAsked => "approval_asked",
            What::ApprovalDecided => "approval_decided",
            What::TaskAccepted => "task_accepted",
            What::HandoffOffered => "handoff_offered",
            What::HandoffAccepted => "handoff_accepted",
            What::AgentRegistered => "agent_registered",
            What::AgentUnregistered => "agent_unregistered",
            What::AgentKeyBound => "agent_key_bound",
            What::AgentKeyUnbound => "agent_key_unbound",
            What::SignedIn => "signed_in",
            What::SignedOut => "signed_out",
            What::TokenAdded => "token_added",
            What::TokenRevoked => "token_revoked",
            What::TokenChanged => "token_changed",
            What::KeyAdded => "key_added",
            What::KeyWithdrawn => "key_withdrawn",
            What::AccessChanged => "access_changed",
        }
    }

    /// Whether anybody can make as many of it as they like, just by asking.
    fn is_cheap(self) -> bool {
        match self {
            What::AuthenticationFailed
            | What::Forbidden
            | What::Limited
            | What::AgentRegistered
            | What::AgentUnregistered
            | What::AgentKeyBound
            | What::AgentKeyUnbound
            | What::SignedIn
            | What::SignedOut => true,
            // What starts a session is bounded by its own rate; the rest is the operator's or an administrator's.
            What::SessionResolved
            | What::SessionExpired
            | What::SessionCancelled
            | What::PolicyRegistered
            | What::PolicyUnregistered
            | What::TaskDelegated
            | What::ApprovalAsked
            | What::ApprovalDecided
            | What::TaskAccepted
            | What::HandoffOffered
            | What::HandoffAccepted
            | What::TokenAdded
            | What::TokenRevoked
            | What::TokenChanged
            | What::KeyAdded
            | What::KeyWithdrawn
            | What::AccessChanged => false,
        }
    }
}

/// Something that happened, as it waits to be written.
#[derive(Debug)]
pub struct Record {
    what: What,
    at: Timestamp,
    tenant: Box<str>,
    agent: Box<str>,
    session: Box<str>,
    policy: Box<str>,
    to: Box<str>,
    face: Option<Face>,
    peer: Option<SocketAddr>,
    code: &'static str,
    reason: Cow<'static, str>,
}

impl Record {
    fn new(what: What) -> Record {
        Record {
            what,
            at: machine(),
            tenant: Box::default(),
            agent: Box::default(),
            session: Box::default(),
            policy: Box::default(),
            to: Box::default(),
            face: None,
            peer: None,
            code: "",
            reason: Cow::Borrowed(""),
        }
    }

    /// A request that was not authenticated.
    pub fn unauthenticated(face: Face, peer: Option<SocketAddr>, reason: String) -> Record {
        let (face, reason) = (Some(face), Cow::Owned(reason));
        Record { face, peer, reason, code: "UNAUTHENTICATED", ..Record::new(What::AuthenticationFailed) }
    }

    /// Something that an agent did or tried.
    pub fn of(what: What, caller: &Caller) -> Record {
        Record {
            tenant: caller.tenant.clone(),
            agent: caller.agent.as_str().into(),
            face: Some(caller.face),
            peer: caller.peer,
            ..Record::new(what)
        }
    }

    /// About this session.
    pub fn session(mut self, id: &str) -> Record {
        self.session = cut(id).into();
        self
    }

    /// Whom it is about, beside who did it.
    pub fn to(mut self, whom: &str) -> Record {
        self.to = cut(whom).into();
        self
    }

    /// About this policy.
    pub fn policy(mut self, id: &str) -> Record {
        self.policy = id.into();
        self
    }

    /// Answered with this code, because of this.
    pub fn because(mut self, code: &'static str, reason: impl Into<Cow<'static, str>>) -> Record {
        self.code = code;
        self.reason = reason.into();
        self
    }

    /// What has happened in a session, durably, if it is something that hands out work or ends it.
    pub fn happened(key: &Key, participants: &[AgentId], event: &Event) -> Option<Record> {
        let (what, to, reason) = telling(&event.fact)?;
        let agent = event.author.agent().map_or("", |agent| agent.as_str());
        // Work that is nobody's yet is for whoever else takes part.
        let others = || participants.iter().map(AgentId::as_str).filter(|other| *other != agent);
        let anybody = || others().take(ANYBODY_MAX).collect::<Vec<_>>().join(", ");
        let to = if what == What::TaskDelegated && to.is_empty() { anybody() } else { to.to_owned() };
        Some(Record {
            at: event.at,
            tenant: (&*key.tenant).into(),
            agent: agent.into(),
            session: (&*key.session).into(),
            face: Some(event.face),
            reason: Cow::Borrowed(reason),
            ..Record::new(what).to(&to)
        })
    }

    /// What the operator did about a token of this agent.
    pub fn of_token(change: &Change) -> Record {
        let what = match change.how {
            How::Added => What::TokenAdded,
            How::Revoked => What::TokenRevoked,
            How::Changed => What::TokenChanged,
        };
        let Principal { agent, tenant, observer, admin, .. } = &change.principal;
        let roles = match (observer, admin) {
            (true, true) => "observer admin",
            (true, false) => "observer",
            (false, true) => "admin",
            (false, false) => "",
        };
        Record { tenant: tenant.clone(), ..Record::new(what).to(agent.as_str()).because("", roles) }
    }

    /// What the issuer did about a key.
    pub fn of_key(what: What, name: &str) -> Record {
        Record::new(what).to(if name.is_empty() { "unnamed" } else { name })
    }

    /// What a setting that says who may do what is now, other than when the server started before.
    pub fn of_access(setting: &str, now: String) -> Record {
        Record::new(What::AccessChanged).to(setting).because("", now)
    }

    /// Whose bounds it counts against.
    fn source(&self) -> Source {
        // Who is let in has a tenant; the operator's doings have no face.
        if self.tenant.is_empty() && self.face.is_some() {
            return Source::at(self.peer.map(|peer| peer.ip()));
        }
        Source::Agent(self.tenant.clone(), self.agent.clone())
    }

    /// The line of the log, without its hash, as this node writes it.
    fn line(&self, node: &str) -> Vec<u8> {
        let shown = Shown {
            node,
            time: rfc3339(self.at),
            event: self.what.name(),
            tenant: &self.tenant,
            agent: &self.agent,
            session: &self.session,
            policy: &self.policy,
            to: &self.to,
            face: self.face.map_or("", timeline::face),
            peer: self.peer.map_or_else(String::new, |peer| peer.to_string()),
            code: self.code,
            reason: &self.reason,
            ..Shown::default()
        };
        shown.line()
    }
}

/// The beginning of a name that nobody has checked.
fn cut(name: &str) -> &str {
    let end = (0..=NAME_BYTES_MAX.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
    &name[..end.unwrap_or(0)]
}

/// What the log tells of an event, if anything: what it is, whom it concerns, and how.
fn telling(fact: &Fact) -> Option<(What, &str, &'static str)> {
    match fact {
        Fact::Requested(request) => {
            let to = request.assignee.as_ref().map_or("", |agent| agent.as_str());
            Some((What::TaskDelegated, to, ""))
        }
        Fact::Accepted { handoff, .. } => {
            Some((What::TaskAccepted, "", if handoff.is_some() { "handoff" } else { "" }))
        }
        Fact::Offered { target, .. } => Some((What::HandoffOffered, target.as_str(), "")),
        Fact::OfferAccepted { implicit, .. } => {
            Some((What::HandoffAccepted, "", if *implicit { "implicit" } else { "" }))
        }
        Fact::Committed(commitment) => {
            let reason = if commitment.positive { "positive" } else { "negative" };
            Some((What::SessionResolved, "", reason))
        }
        Fact::Expired { cause: ExpiryCause::Deadline } => Some((What::SessionExpired, "", "deadline")),
        Fact::Expired { cause: ExpiryCause::SuspensionCap } => {
            Some((What::SessionExpired, "", "suspension_cap"))
        }
        Fact::Cancelled { .. } => Some((What::SessionCancelled, "", "")),
        Fact::Proposed { what, .. } => Some((What::ApprovalAsked, "", what.name())),
        Fact::Decided { ruling, .. } => Some((What::ApprovalDecided, "", ruling.name())),
        Fact::Started(_)
        | Fact::Suspended { .. }
        | Fact::Resumed { .. }
        | Fact::ErrandSettled { .. }
        | Fact::Declined { .. }
        | Fact::Updated { .. }
        | Fact::Asked { .. }
        | Fact::Checkpointed
        | Fact::Delivered { .. }
        | Fact::Answered { .. }
        | Fact::Steered { .. }
        | Fact::PauseRequested { .. }
        | Fact::Completed { .. }
        | Fact::Failed(_)
        | Fact::Said { .. }
        | Fact::Read { .. }
        | Fact::Acknowledged
        | Fact::CheckInMissed { .. }
        | Fact::FellSilent { .. }
        | Fact::CycleFound { .. }
        | Fact::KeySet { .. }
        | Fact::ChildAdded { .. }
        | Fact::Reserved { .. }
        | Fact::Used { .. }
        | Fact::Spent { .. }
        | Fact::Overspent { .. }
        | Fact::ContextAdded { .. }
        | Fact::OfferDeclined { .. } => None,
    }
}

/// A line, in the order in which it is read.
#[derive(Default, Serialize)]
struct Shown<'a> {
    time: String,
    event: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    node: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tenant: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    agent: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    session: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    policy: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    to: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    face: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    peer: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    code: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    of: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

impl Shown<'_> {
    fn line(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and numbers are JSON")
    }
}

/// The audit log. Cheap to clone; all clones write the same log. The default is none.
#[derive(Clone, Default)]
pub struct Audit {
    inner: Option<Arc<Inner>>,
}

struct Inner {
    path: PathBuf,
    /// Who writes it, where others write theirs.
    node: Box<str>,
    queue: Mutex<Queue<Record>>,
    changed: Condvar,
    counters: Arc<Counters>,
    begun: Instant,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.inner.is_some() { "an audit log" } else { "no audit log" })
    }
}

impl Audit {
    /// Write to this file, and begin another when it would have more than `bytes_max`. Where there are several nodes, each has a
    /// name.
    pub fn open(path: &Path, bytes_max: u64, node: &str, counters: Arc<Counters>) -> io::Result<Audit> {
        let file = File::open(path, bytes_max)?;
        let inner = Arc::new(Inner {
            path: path.to_owned(),
            node: node.into(),
            queue: Mutex::default(),
            changed: Condvar::new(),
            counters,
            begun: Instant::now(),
            thread: Mutex::new(None),
        });
        let writer = Arc::clone(&inner);
        let thread =
            std::thread::Builder::new().name("audit".to_owned()).spawn(move || writer.write(file))?;
        *lock(&inner.thread) = Some(thread);
        Ok(Audit { inner: Some(inner) })
    }

    /// Whether there is one.
    pub fn is_on(&self) -> bool {
        self.inner.is_some()
    }

    /// Its file and whose log it is, if there is one.
    pub(crate) fn place(&self) -> Option<(&Path, &str)> {
        self.inner.as_ref().map(|inner| (inner.path.as_path(), &*inner.node))
    }

    /// Have something written. Never waits for the disk.
    pub fn record(&self, record: Record) {
        let Some(inner) = &self.inner else { return };
        let (what, source) = (record.what, record.source());
        let now = inner.begun.elapsed();
        let mut queue = lock(&inner.queue);
        let wakes = queue.push(source, what, record, now);
        drop(queue);
        if wakes {
            inner.changed.notify_one();
        }
    }

    /// Write what waits, and no more after it. Blocks until it is on disk.
    pub fn stop(&self) {
        let Some(inner) = &self.inner else { return };
        lock(&inner.queue).stop();
        inner.changed.notify_one();
        if let Some(thread) = lock(&inner.thread).take() {
            // If it panicked, it has said so.
            _ = thread.join();
        }
    }
}

impl Inner {
    /// The thread that writes.
    fn write(&self, mut file: File) {
        let failed = Seldom::default();
        loop {
            let (records, left_out, stopped) = self.wait();
            let mut lines: Vec<Vec<u8>> = records.iter().map(|record| record.line(&self.node)).collect();
            lines.extend(left_out.iter().map(|(source, what, count)| self.left_out(source, *what, *count)));
            let written = file.append(&lines);
            self.counters.audit_lines.inc_by(written.lines as u64);
            self.counters.audit_left_out.inc_by((lines.len() - written.lines) as u64);
            if let Some(error) = &written.error
                && let Some(unsaid) = failed.now()
            {
                tracing::error!(%error, unsaid, "the audit log cannot be written: what happens until it can be is left out");
            }
            if stopped {
                if let Err(error) = file.sync() {
                    tracing::error!(%error, "the audit log may be incomplete");
                }
                return;
            }
        }
    }

    /// Wait until there is something to write, and a little longer, for more to come.
    fn wait(&self) -> (Vec<Record>, LeftOut, bool) {
        let mut queue = lock(&self.queue);
        while !queue.has_work(self.begun.elapsed()) {
            let pause = queue.tells_at().map_or(LONG, |at| at.saturating_sub(self.begun.elapsed()));
            let woken = self.changed.wait_timeout(queue, pause);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        let gathered = self.changed.wait_timeout_while(queue, GATHER, |queue| !queue.is_pressing());
        let (mut queue, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        queue.take(self.begun.elapsed())
    }

    fn left_out(&self, source: &Source, what: What, count: u64) -> Vec<u8> {
        self.counters.audit_left_out.inc_by(count);
        let (time, of, count) = (rfc3339(machine()), what.name(), Some(count));
        let (tenant, agent) = match source {
            Source::Agent(tenant, agent) => (&**tenant, &**agent),
            Source::OtherAgents | Source::Address(_) | Source::OtherAddresses => ("", ""),
        };
        let peer = source.to_string();
        let node = &*self.node;
        Shown { time, event: "left_out", node, tenant, agent, peer, of, count, ..Shown::default() }.line()
    }
}

#[cfg(test)]
mod tests;
