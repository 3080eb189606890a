//! The same over two pipes: one message a line, many requests at a time.
//!
//! A client of a handshake revision says once what it can do, and means the whole connection.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use handover_kernel::Face;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::caller::{Caller, Declared, Era, Level, era, meta_of, modern, progress_token};
use super::message::{Error, INVALID_REQUEST, Incoming, answer, notification, refusal};
use super::{FRAMES_MAX, Mcp, handshake};
use crate::gate;

/// How many requests may be under way. Beyond that, the client waits for one to end.
const REQUESTS_MAX: usize = 1000;

/// What a message may have beside the largest payload.
const LINE_OVERHEAD_BYTES: usize = 64 * 1024;

/// What the connection knows of a client of a handshake revision.
#[derive(Clone, Copy)]
struct Shaken {
    declared: Declared,
    level: Level,
}

/// The requests that are under way, by their ids.
type Running = Arc<Mutex<BTreeMap<String, AbortHandle>>>;

/// Serve one client until its end of the pipe is closed or the server stops.
pub async fn serve(
    mcp: Mcp,
    token: Option<&str>,
    input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
) -> io::Result<()> {
    let who = mcp
        .parts
        .gate
        .authenticate(token, Face::Mcp, None)
        .map_err(|refused| io::Error::new(io::ErrorKind::PermissionDenied, refused.to_string()))?;
    let (lines, written) = mpsc::channel(FRAMES_MAX);
    let writer = tokio::spawn(write(output, written));
    let mut connection = Connection {
        mcp,
        who,
        lines,
        shaken: Shaken { declared: Declared::default(), level: Level::Info },
        running: Running::default(),
        requests: JoinSet::new(),
    };
    let read = connection.read(input).await;
    // Whoever closed its end does not wait for answers.
    connection.requests.shutdown().await;
    drop(connection);
    let wrote = writer.await.unwrap_or(Ok(()));
    read.and(wrote)
}

async fn write(mut output: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<String>) -> io::Result<()> {
    while let Some(mut line) = lines.recv().await {
        line.push('\n');
        output.write_all(line.as_bytes()).await?;
        while let Ok(mut line) = lines.try_recv() {
            line.push('\n');
            output.write_all(line.as_bytes()).await?;
        }
        output.flush().await?;
    }
    Ok(())
}

struct Connection {
    mcp: Mcp,
    who: gate::Caller,
    lines: mpsc::Sender<String>,
    shaken: Shaken,
    running: Running,
    requests: JoinSet<()>,
}

impl Connection {
    async fn read(&mut self, mut input: impl AsyncBufRead + Unpin) -> io::Result<()> {
        let max = self.mcp.engine().limits().payload_bytes_max * 2 + LINE_OVERHEAD_BYTES;
        let mut shutdown = self.mcp.parts.shutdown.clone();
        let mut line = Vec::new();
        loop {
            line.clear();
            let mut bounded = (&mut input).take(max as u64 + 1);
            let read = tokio::select! {
                biased;
                () = shutdown.begun() => return Ok(()),
                read = bounded.read_until(b'\n', &mut line) => read?,
            };
            if read == 0 {
                return Ok(());
            }
            if line.len() > max && line.last() != Some(&b'\n') {
                self.skip_line(&mut input).await?;
                let error = Error::new(INVALID_REQUEST, format!("expected a message of at most {max} bytes"));
                self.send(refusal(None, &error)).await;
                continue;
            }
            if !line.iter().all(u8::is_ascii_whitespace) {
                self.take(&line).await;
            }
            while self.requests.try_join_next().is_some() {}
        }
    }

    async fn skip_line(&self, input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<()> {
        loop {
            let buffer = input.fill_buf().await?;
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let (used, done) = match end {
                Some(end) => (end + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            };
            input.consume(used);
            if done {
                return Ok(());
            }
        }
    }

    async fn send(&self, line: String) {
        // A client that reads no more will be noticed when its pipe closes.
        _ = self.lines.send(line).await;
    }

    async fn take(&mut self, line: &[u8]) {
        match Incoming::parse(line) {
            Err(unreadable) => self.send(refusal(unreadable.id, &unreadable.error)).await,
            Ok(Incoming::Request { id, method, params }) => {
                if let Err(error) = self.begin(id, &method, params).await {
                    self.send(refusal(Some(id), &error)).await;
                }
            }
            Ok(Incoming::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancel(params);
                }
            }
            Ok(Incoming::Response { id, result }) => {
                let caller = self.handshaken(None);
                if let Err(error) = self.mcp.take_response(&caller, &id, result).await {
                    tracing::debug!(error = %error.message, "an answer of the client was refused");
                }
            }
        }
    }

    fn handshaken(&self, progress: Option<Box<RawValue>>) -> Caller {
        Caller {
            who: self.who.clone(),
            era: Era::Handshake,
            declared: self.shaken.declared,
            progress,
            log: Some(self.shaken.level),
            idempotency_key: None,
        }
    }

    /// Begin a request. What it comes to is written by a task of its own.
    async fn begin(&mut self, id: &RawValue, method: &str, params: Option<&RawValue>) -> Result<(), Error> {
        let meta = meta_of(params)?;
        let caller = match era(method, &meta, None)? {
            Era::Modern => modern(self.who.clone(), meta)?,
            Era::Handshake => match method {
                "initialize" => {
                    let (result, session) = handshake::initialize(params)?;
                    self.shaken.declared = handshake::declared(&session);
                    self.send(answer(id, &result)).await;
                    return Ok(());
                }
                "logging/setLevel" => {
                    self.shaken.level = handshake::asked_level(params)?;
                    self.send(answer(id, "{}")).await;
                    return Ok(());
                }
                _ => self.handshaken(progress_token(meta.progress_token)?),
            },
        };
        while self.requests.len() >= REQUESTS_MAX {
            self.requests.join_next().await;
        }
        self.spawn(caller, id, method, params);
        Ok(())
    }

    fn spawn(&mut self, caller: Caller, id: &RawValue, method: &str, params: Option<&RawValue>) {
        let (mcp, lines, running) = (self.mcp.clone(), self.lines.clone(), Arc::clone(&self.running));
        let (id, method, params) = (id.to_owned(), method.to_owned(), params.map(ToOwned::to_owned));
        let name = id.get().to_owned();
        let mut all = lock(&self.running);
        let handle = self.requests.spawn(async move {
            let done = if Mcp::may_stream(&method) {
                mcp.answer_streaming(&caller, &id, &method, params.as_deref(), None, &lines).await
            } else {
                mcp.answer(&caller, &method, params.as_deref()).await
            };
            lock(&running).remove(id.get());
            if method == "subscriptions/listen" && done.is_ok() {
                let params = json!({ "requestId": id, "reason": "the subscription has ended" });
                _ = lines.send(notification("notifications/cancelled", &params)).await;
            }
            let line = match done {
                Ok(result) => answer(&id, &result),
                Err(error) => refusal(Some(&id), &error),
            };
            _ = lines.send(line).await;
        });
        all.insert(name, handle);
    }

    /// Stop a request; nothing more is said of it. One that is not under way is none of our business.
    fn cancel(&self, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        let Ok(cancelled) = super::params::<Cancelled<'_>>(params) else { return };
        if let Some(request) = lock(&self.running).remove(cancelled.request_id.get()) {
            request.abort();
        }
    }
}

fn lock(running: &Running) -> std::sync::MutexGuard<'_, BTreeMap<String, AbortHandle>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
