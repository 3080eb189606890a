//! Two pipes as MCP has them: one message a line, and the requests that are under way between them. The server's stdio and
//! the bridge share it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use crate::jsonrpc::{Error, INVALID_REQUEST, notification, params as read, refusal};

/// How many lines may wait to be written before whoever makes them waits too.
pub const LINES_MAX: usize = 64;

/// How long requests may still be answered once the client's end is closed.
pub const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// How long a client may take to read what is left.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(1);

/// Where lines that are to be written come from.
pub trait Lines {
    /// The next one. Waits for it; none if nothing more comes.
    fn next(&mut self) -> impl Future<Output = Option<String>> + Send;

    /// The next one, if it is there.
    fn ready(&mut self) -> Option<String>;
}

impl Lines for mpsc::Receiver<String> {
    async fn next(&mut self) -> Option<String> {
        self.recv().await
    }

    fn ready(&mut self) -> Option<String> {
        self.try_recv().ok()
    }
}

/// Write each line as one message.
pub async fn write(mut output: impl AsyncWrite + Unpin, mut lines: impl Lines) -> io::Result<()> {
    while let Some(mut line) = lines.next().await {
        line.push('\n');
        output.write_all(line.as_bytes()).await?;
        while let Some(mut line) = lines.ready() {
            line.push('\n');
            output.write_all(line.as_bytes()).await?;
        }
        output.flush().await?;
    }
    Ok(())
}

/// Wait until the last lines are written. A client that does not read them does not hold us, and one that has gone is
/// no error.
pub async fn written_out(mut writer: JoinHandle<io::Result<()>>) -> io::Result<()> {
    match tokio::time::timeout(LAST_LINES_WITHIN, &mut writer).await {
        Ok(Ok(Err(error))) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        Ok(_) => Ok(()),
        Err(_) => {
            writer.abort();
            Ok(())
        }
    }
}

/// What came of reading a line.
pub enum Line {
    /// It is in the buffer.
    Read,
    /// It was longer than it may be, and is skipped.
    TooLong,
    /// There is none any more.
    End,
}

/// Read a line of at most `max` bytes. It may be dropped at any time only if nothing more is read afterwards.
pub async fn read_line(
    input: &mut (impl AsyncBufRead + Unpin),
    line: &mut Vec<u8>,
    max: usize,
) -> io::Result<Line> {
    line.clear();
    let read = (&mut *input).take(max as u64 + 1).read_until(b'\n', line).await?;
    if read == 0 {
        return Ok(Line::End);
    }
    if line.len() > max && line.last() != Some(&b'\n') {
        skip_line(input).await?;
        return Ok(Line::TooLong);
    }
    Ok(Line::Read)
}

async fn skip_line(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<()> {
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

/// What a line that is too long is answered with.
pub fn too_long(max: usize) -> String {
    let error = Error::new(INVALID_REQUEST, format!("expected a message of at most {max} bytes"));
    refusal(None, &error)
}

/// The requests that are under way, by their ids.
#[derive(Clone, Default)]
pub struct Running(Arc<Mutex<BTreeMap<String, AbortHandle>>>);

impl Running {
    /// Begin a request under its id, unless one is under way that is called the same.
    pub fn begin(
        &self,
        id: &RawValue,
        requests: &mut JoinSet<()>,
        request: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Error> {
        let mut running = self.lock();
        let Entry::Vacant(place) = running.entry(id.get().to_owned()) else {
            return Err(Error::new(INVALID_REQUEST, "a request of this id is under way"));
        };
        place.insert(requests.spawn(request));
        Ok(())
    }

    /// The request has come to its end; false if it was taken back, and nothing more is to be said of it.
    pub fn end(&self, id: &RawValue) -> bool {
        self.lock().remove(id.get()).is_some()
    }

    /// `notifications/cancelled`: stop a request; nothing more is said of it. One that is not under way is none of our
    /// business.
    pub fn cancel(&self, params: Option<&RawValue>) {
        #[derive(Deserialize)]
        struct Cancelled<'a> {
            #[serde(borrow, rename = "requestId")]
            request_id: &'a RawValue,
        }
        let Ok(cancelled) = read::<Cancelled<'_>>(params) else { return };
        if let Some(request) = self.lock().remove(cancelled.request_id.get()) {
            request.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is said when a subscription ends that the client did not end.
pub fn subscription_over(id: &RawValue) -> String {
    let params = json!({ "requestId": id, "reason": "the subscription has ended" });
    notification("notifications/cancelled", &params)
}

/// Let requests be answered that still can be; the rest is dropped.
pub async fn finish(requests: &mut JoinSet<()>, within: Duration) {
    let all = async { while requests.join_next().await.is_some() {} };
    _ = tokio::time::timeout(within, all).await;
    requests.shutdown().await;
}
