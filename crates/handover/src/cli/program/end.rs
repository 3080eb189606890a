//! How a program comes to its end, and what the server is told of it.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::PoisonError;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{ENDS_WITHIN, Ended, Outcome, Running};
use crate::Failure;
use crate::cli::exit::Exit;

impl Running<'_> {
    /// End the program and everything that it started.
    pub(super) async fn end(&mut self) {
        self.stdin = None;
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        if tokio::time::timeout(ENDS_WITHIN, self.child.wait()).await.is_err() {
            self.signal(Signal::KILL);
            _ = self.child.wait().await;
        }
    }

    /// Tell the server what came of the task.
    pub(super) async fn report(&mut self, ended: Ended) -> Result<Outcome, Failure> {
        let (code, why) = match ended {
            Ended::Overtaken(status) => return Ok(Outcome::Ended(status)),
            Ended::Failed { code, why } => (code, self.with_last_lines(why)),
            Ended::Exited(status) => match (&self.failed, status.success()) {
                (Some(why), _) => ("failed".to_owned(), why.clone()),
                (None, false) => (code_of(status), self.with_last_lines(status.to_string())),
                (None, true) => match self.complete().await {
                    Ok(()) => return Ok(Outcome::Completed),
                    Err(why) => ("result_refused".to_owned(), why?),
                },
            },
        };
        let asked = json!({ "task_id": self.id, "reason": why, "code": code });
        let failed = self.remote.insist("work_fail", asked, Some(&format!("{}-fail", self.nonce))).await;
        self.ended_or(failed, Outcome::Failed(why))
    }

    /// Report the result. What the server says against it is why the task fails instead.
    async fn complete(&mut self) -> Result<(), Result<String, Failure>> {
        let mut asked = json!({ "task_id": self.id });
        match serde_json::from_slice::<Value>(&self.result) {
            Ok(output @ Value::Object(_)) => asked["output"] = output,
            _ if self.result.is_empty() => {}
            _ => asked["text"] = json!(String::from_utf8_lossy(&self.result)),
        }
        match self.remote.insist("work_complete", asked, Some(&format!("{}-done", self.nonce))).await {
            Ok(_) => Ok(()),
            Err(Failure::Told { exit: Exit::Refused, what, .. }) => {
                Err(Ok(format!("the result was refused: {what}")))
            }
            Err(failure) => Err(Err(failure)),
        }
    }

    /// A task that is no longer there to be reported on has ended.
    fn ended_or(&self, reported: Result<Value, Failure>, outcome: Outcome) -> Result<Outcome, Failure> {
        match reported {
            Ok(_) => Ok(outcome),
            Err(Failure::Told { exit: Exit::Refused | Exit::NotFound, what, .. }) => Ok(Outcome::Ended(what)),
            Err(failure) => Err(failure),
        }
    }

    fn with_last_lines(&self, why: String) -> String {
        let kept = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<&str> = kept.iter().map(String::as_str).collect();
        if lines.is_empty() { why } else { format!("{why}\n{}", lines.join("\n")) }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // The program's own children are not its process: with the worker they end, too.
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::KILL);
        }
    }
}

fn code_of(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit_{code}"),
        (None, Some(signal)) => format!("signal_{signal}"),
        (None, None) => "exit".to_owned(),
    }
}
