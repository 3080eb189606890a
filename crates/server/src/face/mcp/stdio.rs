//! The same over two pipes: one message a line, many requests at a time.
//!
//! A client of a handshake revision says once what it can do, and means the whole connection.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use handover_client::mcp::may_stream;
use handover_client::pipe::{self, Line, Running};
use handover_kernel::{Face, Trace};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use tracing::{Instrument, Span};

use super::caller::{
    Caller, Declared, Era, Level, Meta, Opening, Wishes, era, meta_of, modern, progress_token,
};
use super::message::{Error, INTERNAL_ERROR, Incoming, answer, refusal};
use super::{Mcp, No, Outbox, handshake};
use crate::http::line::{Line as Log, note, short};
use crate::queue::queue;
use handover_desk::codes::own;
use handover_desk::gate;

/// How many requests that may take long may be under way; one more is refused. The client could not take one back if we
/// stopped reading.
const LONG_MAX: usize = 1000;

/// How many requests that are answered at once may be under way. Beyond that, reading waits for one to end.
const SHORT_MAX: usize = 64;

/// How long requests may take to end once the server stops, which all of them heed.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// What a message may have beside the largest payload.
const LINE_OVERHEAD_BYTES: usize = 64 * 1024;

/// What the connection knows of a client of a handshake revision.
#[derive(Clone, Copy)]
struct Shaken {
    declared: Declared,
    level: Level,
}

/// Serve one client, as it wants it, until its end of the pipe is closed or the server stops.
pub async fn serve(
    mcp: Mcp,
    token: Option<&str>,
    wishes: Wishes,
    input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let who = mcp
        .parts
        .desk
        .gate
        .authenticate(token, Face::Mcp, None)
        .map_err(|refused| io::Error::new(io::ErrorKind::PermissionDenied, refused.to_string()))?;
    let (lines, written) = queue(None);
    let writer = tokio::spawn(pipe::write(output, written));
    let mut connection = Connection {
        mcp,
        who,
        lines,
        wishes,
        shaken: Shaken { declared: Declared::default(), level: Level::Info },
        running: Running::default(),
        long: Arc::new(Semaphore::new(LONG_MAX)),
        short: Arc::new(Semaphore::new(SHORT_MAX)),
        requests: JoinSet::new(),
        wanted: watch::Sender::default(),
        telling: None,
    };
    let read = connection.read(input).await;
    let within = if matches!(read, Ok(End::Closed)) { pipe::ANSWERS_WITHIN } else { ENDS_WITHIN };
    pipe::finish(&mut connection.requests, within).await;
    drop(connection);
    read.map(|_| ()).and(pipe::written_out(writer).await)
}

/// Why reading ended.
enum End {
    /// There is no client any more.
    Closed,
    /// The server stops.
    Stopping,
}

struct Connection {
    mcp: Mcp,
    who: gate::Caller,
    lines: Outbox,
    wishes: Wishes,
    shaken: Shaken,
    running: Running,
    long: Arc<Semaphore>,
    short: Arc<Semaphore>,
    requests: JoinSet<()>,
    /// The resources that a client of a handshake revision follows, and what tells it of them.
    wanted: watch::Sender<BTreeSet<String>>,
    telling: Option<AbortHandle>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(telling) = &self.telling {
            telling.abort();
        }
    }
}

impl Connection {
    async fn read(&mut self, mut input: impl AsyncBufRead + Unpin) -> io::Result<End> {
        let max = self.mcp.desk().limits().payload_bytes_max * 2 + LINE_OVERHEAD_BYTES;
        let mut shutdown = self.mcp.parts.desk.shutdown.clone();
        let lines = self.lines.clone();
        let mut line = Vec::new();
        loop {
            let step = async {
                match pipe::read_line(&mut input, &mut line, max).await? {
                    Line::End => return Ok(false),
                    Line::TooLong => self.send(pipe::too_long(max)).await,
                    Line::Read if line.iter().all(u8::is_ascii_whitespace) => {}
                    Line::Read => self.take(&line).await,
                }
                while self.requests.try_join_next().is_some() {}
                Ok::<bool, io::Error>(true)
            };
            // A client that does not read is waited for, but not when there is nothing to wait for.
            tokio::select! {
                biased;
                () = shutdown.begun() => return Ok(End::Stopping),
                () = lines.closed() => return Ok(End::Closed),
                more = step => if !more? {
                    return Ok(End::Closed);
                },
            }
        }
    }

    async fn send(&self, line: String) {
        // A client that reads no more will be noticed when its pipe closes.
        _ = self.lines.send(line).await;
    }

    async fn take(&mut self, line: &[u8]) {
        let too_often = self.mcp.desk().gate.request(&self.who).err();
        match (Incoming::parse(line), too_often) {
            (Ok(Incoming::Request { id, .. }), Some(limited)) => {
                self.send(refusal(Some(id), &Error::from(No(limited.into())))).await;
            }
            // Nobody waits for an answer.
            (Ok(Incoming::Notification { .. } | Incoming::Response { .. }), Some(_)) => {}
            (Err(unreadable), _) => self.send(refusal(unreadable.id, &unreadable.error)).await,
            (Ok(Incoming::Request { id, method, params }), None) => {
                let mut log = Log::begin_bare();
                if let Some(log) = &log {
                    log.span.in_scope(|| self.noted(&method, params));
                }
                let begun = self.begin(id, &method, params, &mut log).await;
                // One that goes on by itself has taken it along.
                if let Some(log) = log {
                    tell(&log, None, begun.as_ref().err());
                }
                if let Err(error) = begun {
                    self.send(refusal(Some(id), &error)).await;
                }
            }
            (Ok(Incoming::Notification { method, params }), None) => {
                if method == "notifications/cancelled" {
                    self.running.cancel(params);
                }
            }
            (Ok(Incoming::Response { id, result }), None) => {
                let answered = match self.handshaken(&Meta::default()) {
                    Ok(caller) => self.mcp.take_response(&caller, &id, result).await,
                    Err(error) => Err(error),
                };
                if let Err(error) = answered {
                    tracing::debug!(error = %error.message, "an answer of the client was refused");
                }
            }
        }
    }

    fn handshaken(&self, meta: &Meta<'_>) -> Result<Caller, Error> {
        Ok(Caller {
            who: self.who.clone(),
            era: Era::Handshake,
            declared: self.shaken.declared,
            progress: progress_token(meta.progress_token)?,
            log: Some(self.shaken.level),
            takes_back: true,
            idempotency_key: meta.key()?,
            wishes: self.wishes.or_of(meta),
        })
    }

    /// Say in the log what is asked.
    fn noted(&self, method: &str, params: Option<&RawValue>) {
        note("face", "mcp");
        note("agent", self.who.agent.as_str());
        note("rpc", short(method));
        if let Ok(Opening { task_id: Some(task), .. }) = Opening::of(params) {
            note("session", short(task.get().trim_matches('"')));
        }
    }

    /// Begin a request. What it comes to is written by a task of its own.
    async fn begin(
        &mut self,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        log: &mut Option<Log>,
    ) -> Result<(), Error> {
        let meta = meta_of(params)?;
        let caller = match era(method, &meta, None)? {
            Era::Modern => modern(meta.traces(self.who.clone()), meta, self.wishes)?,
            Era::Handshake => match method {
                "initialize" => {
                    let (result, session) = handshake::initialize(params, self.wishes.profile_of(&self.who))?;
                    // Before anything is answered: a request has one answer, and this may be refused.
                    let telling =
                        self.mcp.tell_of_changes(&self.who, self.wanted.subscribe(), self.lines.clone())?;
                    self.shaken.declared = handshake::declared(&session);
                    self.send(answer(id, &result)).await;
                    // A client that opens again is told once.
                    if let Some(before) = self.telling.replace(tokio::spawn(telling).abort_handle()) {
                        before.abort();
                    }
                    return Ok(());
                }
                "resources/subscribe" | "resources/unsubscribe" => {
                    let uri = handshake::resource(params)?;
                    handshake::want(&self.wanted, uri, method == "resources/subscribe")?;
                    self.send(answer(id, "{}")).await;
                    return Ok(());
                }
                "logging/setLevel" => {
                    self.shaken.level = handshake::asked_level(params)?;
                    self.send(answer(id, "{}")).await;
                    return Ok(());
                }
                _ => self.handshaken(&meta)?,
            },
        };
        let place = self.place(method).await?;
        self.spawn(place, caller, id, method, params, log.take())
    }

    /// A place among the requests that are under way.
    async fn place(&self, method: &str) -> Result<OwnedSemaphorePermit, Error> {
        if may_stream(method) {
            return Arc::clone(&self.long).try_acquire_owned().map_err(|_| {
                Error::new(
                    INTERNAL_ERROR,
                    format!("expected at most {LONG_MAX} calls under way, found one more"),
                )
                .named(own::RATE_LIMITED.code)
            });
        }
        let place = Arc::clone(&self.short).acquire_owned().await;
        Ok(place.expect("the semaphore is never closed"))
    }

    fn spawn(
        &mut self,
        place: OwnedSemaphorePermit,
        caller: Caller,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
        log: Option<Log>,
    ) -> Result<(), Error> {
        let span = log.as_ref().map_or_else(Span::none, |log| log.span.clone());
        let (mcp, lines, running) = (self.mcp.clone(), self.lines.clone(), self.running.clone());
        let (name, method, params) = (id.to_owned(), method.to_owned(), params.map(ToOwned::to_owned));
        let request = async move {
            let id = &*name;
            let done = if may_stream(&method) {
                mcp.answer_streaming(&caller, id, &method, params.as_deref(), None, &lines).await
            } else {
                mcp.answer(&caller, &method, params.as_deref()).await
            };
            if let Some(log) = log {
                tell(&log, caller.who.trace.as_deref(), done.as_ref().err());
            }
            if !running.end(id) {
                return;
            }
            if method == "subscriptions/listen" && done.is_ok() {
                _ = lines.send(pipe::subscription_over(id)).await;
            }
            let line = match done {
                Ok(result) => answer(id, &result),
                Err(error) => refusal(Some(id), &error),
            };
            _ = lines.send(line).await;
            drop(place);
        };
        self.running.begin(id, &mut self.requests, request.instrument(span))
    }
}

/// One line of the log for a request that was answered.
fn tell(log: &Log, trace: Option<&Trace>, refused: Option<&Error>) {
    log.span.in_scope(|| {
        if let Some(error) = refused {
            note("code", error.code);
        }
        tracing::debug!(duration_ms = log.ms(), trace = trace.map(Trace::id), "answered");
    });
}
