//! The audit log: what matters to whoever asks later who tried what. One JSON object a line, only ever appended to.
//!
//! - [`queue`]: what waits to be written, and what there was no room for
//! - [`mod@file`]: the file, and the older ones
//!
//! Always: nobody waits for the disk; what is left out is counted, and the log says so. Never: a token, a payload, what an
//! agent wrote as a reason.

pub mod file;
pub mod queue;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use handover_kernel::event::ExpiryCause;
use handover_kernel::{Event, Face, Fact, Timestamp};
use serde::Serialize;

use self::file::File;
use self::queue::{LeftOut, Queue};
use crate::calendar::rfc3339;
use crate::caller::Caller;
use crate::counters::Counters;
use crate::timeline;
use handover_engine::Key;
use handover_engine::clock::now;
use handover_engine::locks::lock;

/// How long lines gather before they are written together.
const GATHER: Duration = Duration::from_millis(200);

/// How much of a session's id is shown: nobody has checked it yet.
const SESSION_BYTES_MAX: usize = 128;

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
}

impl What {
    /// Everything that can happen.
    pub const ALL: [What; 8] = [
        What::AuthenticationFailed,
        What::Forbidden,
        What::Limited,
        What::SessionResolved,
        What::SessionExpired,
        What::SessionCancelled,
        What::PolicyRegistered,
        What::PolicyUnregistered,
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
        }
    }

    /// Whether anybody can make as many of it as they like, just by asking.
    fn is_cheap(self) -> bool {
        match self {
            What::AuthenticationFailed | What::Forbidden | What::Limited => true,
            What::SessionResolved
            | What::SessionExpired
            | What::SessionCancelled
            | What::PolicyRegistered
            | What::PolicyUnregistered => false,
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
    face: Option<Face>,
    peer: Option<SocketAddr>,
    code: &'static str,
    reason: Cow<'static, str>,
    /// The end of a session, which says the rest.
    end: Option<(Key, Arc<Event>)>,
}

impl Record {
    fn new(what: What) -> Record {
        Record {
            what,
            at: now(),
            tenant: Box::default(),
            agent: Box::default(),
            session: Box::default(),
            policy: Box::default(),
            face: None,
            peer: None,
            code: "",
            reason: Cow::Borrowed(""),
            end: None,
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
        let end = (0..=SESSION_BYTES_MAX.min(id.len())).rev().find(|end| id.is_char_boundary(*end));
        self.session = id[..end.unwrap_or(0)].into();
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

    /// A session has ended with this event, durably. None if the event ends nothing.
    pub fn end(key: &Key, event: &Arc<Event>) -> Option<Record> {
        let (what, reason) = ending(&event.fact)?;
        let end = Some((key.clone(), Arc::clone(event)));
        Some(Record { at: event.at, reason: Cow::Borrowed(reason), end, ..Record::new(what) })
    }

    /// The line of the log, with its end.
    fn line(&self) -> Vec<u8> {
        let mut shown = Shown {
            time: rfc3339(self.at),
            event: self.what.name(),
            tenant: &self.tenant,
            agent: &self.agent,
            session: &self.session,
            policy: &self.policy,
            face: self.face.map_or("", timeline::face),
            peer: self.peer.map_or_else(String::new, |peer| peer.to_string()),
            code: self.code,
            reason: &self.reason,
            ..Shown::default()
        };
        if let Some((key, event)) = &self.end {
            (shown.tenant, shown.session) = (&key.tenant, &key.session);
            shown.agent = event.author.agent().map_or("", |agent| agent.as_str());
            shown.face = timeline::face(event.face);
        }
        shown.line()
    }
}

/// How an event ends its session, if it does, and why.
fn ending(fact: &Fact) -> Option<(What, &'static str)> {
    if let Fact::Committed(commitment) = fact {
        return Some((What::SessionResolved, if commitment.positive { "positive" } else { "negative" }));
    }
    if let Fact::Expired { cause } = fact {
        let reason = match cause {
            ExpiryCause::Deadline => "deadline",
            ExpiryCause::SuspensionCap => "suspension_cap",
        };
        return Some((What::SessionExpired, reason));
    }
    matches!(fact, Fact::Cancelled { .. }).then_some((What::SessionCancelled, ""))
}

/// A line, in the order in which it is read.
#[derive(Default, Serialize)]
struct Shown<'a> {
    time: String,
    event: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    tenant: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    agent: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    session: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    policy: &'a str,
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
        let mut line = serde_json::to_vec(self).expect("texts and numbers are JSON");
        line.push(b'\n');
        line
    }
}

/// The audit log. Cheap to clone; all clones write the same log. The default is none.
#[derive(Clone, Default)]
pub struct Audit {
    inner: Option<Arc<Inner>>,
}

struct Inner {
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
    /// Write to this file, and begin another when it would have more than `bytes_max`.
    pub fn open(path: &Path, bytes_max: u64, counters: Arc<Counters>) -> io::Result<Audit> {
        let file = File::open(path, bytes_max)?;
        let inner = Arc::new(Inner {
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

    /// Have something written. Never waits for the disk.
    pub fn record(&self, record: Record) {
        let Some(inner) = &self.inner else { return };
        let what = record.what;
        let now = inner.begun.elapsed();
        let mut queue = lock(&inner.queue);
        let wakes = queue.push(what, record, now);
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
        let mut failing = false;
        loop {
            let (records, left_out, stopped) = self.wait();
            let mut lines: Vec<Vec<u8>> = records.iter().map(Record::line).collect();
            lines.extend(left_out.iter().map(|(what, count)| self.left_out(*what, *count)));
            let written = file.append(&lines);
            self.counters.audit_lines.inc_by(written.lines as u64);
            self.counters.audit_left_out.inc_by((lines.len() - written.lines) as u64);
            if let Some(error) = &written.error
                && !failing
            {
                tracing::error!(%error, "the audit log cannot be written: what happens until it can be is left out");
            }
            failing = written.error.is_some();
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
        let queue = lock(&self.queue);
        let queue = self.changed.wait_while(queue, |queue| !queue.has_work());
        let queue = queue.unwrap_or_else(PoisonError::into_inner);
        let gathered = self.changed.wait_timeout_while(queue, GATHER, |queue| !queue.is_pressing());
        let (mut queue, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        queue.take()
    }

    fn left_out(&self, what: What, count: u64) -> Vec<u8> {
        self.counters.audit_left_out.inc_by(count);
        let (time, of, count) = (rfc3339(now()), what.name(), Some(count));
        Shown { time, event: "left_out", of, count, ..Shown::default() }.line()
    }
}

#[cfg(test)]
mod tests;
