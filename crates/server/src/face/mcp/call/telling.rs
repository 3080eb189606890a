//! What a caller is told while it waits: progress, log lines, and in the handshake revisions questions.

use std::collections::BTreeSet;

use handover_desk::follow::Events;
use handover_kernel::{Event, Face, Fact, Session};
use serde_json::{Map, Value, json};

use crate::face::mcp::caller::{Caller, Level};
use crate::face::mcp::message::{Error, notification, request};
use crate::face::mcp::{No, Outbox, handshake};

/// What happens to a task, told to the one that waits for it.
pub(super) struct Telling<'a> {
    caller: &'a Caller,
    out: &'a Outbox,
    /// The last event that was heard of.
    heard: u64,
    /// The last progress that was told.
    progress: Option<f64>,
    /// The questions that were put.
    asked: BTreeSet<String>,
}

impl<'a> Telling<'a> {
    /// Nothing was told yet.
    pub(super) fn new(caller: &'a Caller, out: &'a Outbox) -> Telling<'a> {
        Telling { caller, out, heard: 0, progress: None, asked: BTreeSet::new() }
    }

    /// Tell everything up to an event.
    pub(super) async fn up_to(&mut self, events: &mut Events, head: u64) -> Result<(), Error> {
        while self.heard < head {
            self.next(events).await?;
        }
        Ok(())
    }

    /// Tell the next thing that happens.
    pub(super) async fn next(&mut self, events: &mut Events) -> Result<(), Error> {
        let delivery = events.next().await.map_err(No::over)?;
        self.heard = delivery.event.seq.0;
        self.tell(&delivery.event).await;
        Ok(())
    }

    async fn tell(&mut self, event: &Event) {
        let Fact::Updated { progress, .. } = &event.fact else { return };
        let said: Map<String, Value> = match (&event.verbatim, event.face) {
            (Some(bytes), Face::Mcp | Face::Cli) => serde_json::from_slice(bytes).unwrap_or_default(),
            (Some(_) | None, _) => Map::new(),
        };
        if let Some(token) = &self.caller.progress
            && let Some(done) = said.get("progress").and_then(Value::as_f64).or(progress.done)
            && self.progress.is_none_or(|last| done > last)
        {
            self.progress = Some(done);
            let mut params = json!({ "progressToken": token, "progress": done });
            let total = said.get("total").cloned().or_else(|| (done <= 1.0).then(|| json!(1)));
            if let Some(total) = total {
                params["total"] = total;
            }
            if !progress.message.is_empty() {
                params["message"] = json!(&*progress.message);
            }
            self.send(notification("notifications/progress", &params)).await;
        }
        let Some(least) = self.caller.log else { return };
        for line in said.get("log").and_then(Value::as_array).into_iter().flatten() {
            let level = line.get("level").and_then(Value::as_str).and_then(Level::of);
            if level.is_some_and(|level| level >= least) {
                self.send(notification("notifications/message", line)).await;
            }
        }
    }

    /// Whether the client shows one of the open questions now.
    pub(super) fn is_asking(&self, session: &Session) -> bool {
        let questions = session.task().map_or(&[][..], |task| task.phase.questions());
        questions.iter().any(|question| self.asked.contains(question.key.as_str()))
    }

    /// Put questions as requests of ours, each once.
    pub(super) async fn ask(&mut self, session: &Session, asked: Map<String, Value>) {
        let questions = session.task().map_or(&[][..], |task| task.phase.questions());
        for question in questions {
            let key = question.key.as_str();
            if let Some(put) = asked.get(key)
                && self.asked.insert(key.to_owned())
            {
                let id = handshake::asking(session.binding.id.as_str(), &question.key);
                let method = put.get("method").and_then(Value::as_str).unwrap_or_default();
                let params = put.get("params").cloned().unwrap_or_else(|| json!({}));
                self.send(request(&id, method, &params)).await;
            }
        }
    }

    /// Whoever has gone away need not be told.
    async fn send(&self, message: String) {
        _ = self.out.send(message).await;
    }
}
