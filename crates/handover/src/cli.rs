//! The commands with which people and scripts use a running server.
//!
//! - [`exit`]: what a command ends with
//! - [`text`]: text of agents, tables, states and times for people
//! - [`find`]: from what somebody types to the task that is meant
//! - [`task`]: `handover task`
//! - [`agent`]: `handover agent`, of which [`work`] takes tasks and [`program`] does one
//! - [`list`], [`tree`]: lists of tasks, and what is part of what
//! - [`bulk`]: one act on many tasks
//! - [`handoff`]: `handover handoff`
//! - [`mod@watch`]: `handover watch` and `handover replay`
//! - [`shell`]: completions and manual pages
//! - [`timeline`]: what happened in a task, in sentences
//! - [`wait`]: waiting for a task, with a progress bar
//! - [`answer`]: answers to what a task asks

pub mod agent;
pub mod answer;
mod approve;
pub mod bulk;
pub mod exit;
pub mod find;
pub mod handoff;
pub mod list;
pub mod program;
pub mod shell;
pub mod task;
pub mod text;
pub mod timeline;
pub mod tree;
pub mod wait;
pub mod watch;
pub mod work;

use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;

use handover_client::bridge::Endpoint;
use handover_client::caller::{Caller, Error};
use handover_client::fetch;
use serde_json::{Value, json};

use self::exit::Exit;
use crate::Failure;

/// Where a server is unless somebody says otherwise.
const SERVER: &str = "http://127.0.0.1:8420";

/// The version of what `--json` prints. A field may be added to it; one that goes or changes raises it.
pub const JSON_VERSION: u64 = 1;

/// How many bytes a file with a token may have.
const TOKEN_BYTES_MAX: u64 = 64 * 1024;

/// How a command finds its server, and how it speaks.
#[derive(clap::Args, Clone)]
pub struct Common {
    /// The address of the server
    #[arg(long, global = true, value_name = "URL", env = "HANDOVER_SERVER", default_value = SERVER, help_heading = "Connection")]
    server: String,
    /// A file with the token, instead of HANDOVER_TOKEN or the file that HANDOVER_TOKEN_FILE names
    #[arg(long, global = true, value_name = "FILE", help_heading = "Connection")]
    token_file: Option<PathBuf>,
    /// Print JSON with a version; JSON Lines where something streams
    #[arg(long, global = true, help_heading = "Output")]
    pub json: bool,
    /// Never ask: a command that would have to ask fails
    #[arg(long, global = true, help_heading = "Output")]
    pub no_input: bool,
}

/// The environment variable that says which trace a program is part of (W3C Trace Context).
pub const TRACEPARENT: &str = "TRACEPARENT";

/// A server, and whoever sits in front of it.
pub struct Remote {
    caller: Caller,
    /// Whether programs read what is printed.
    pub json: bool,
    /// Whether somebody is there to be asked.
    pub asks: bool,
}

impl Common {
    /// The server that is meant, with the token that is meant. Whether it is there shows with the first call.
    pub fn open(&self) -> Result<Remote, Failure> {
        let token = self.token()?;
        let endpoint = Endpoint::new(&self.server, token.as_deref(), fetch::system_roots());
        let endpoint = endpoint.map_err(|what| Failure::Usage(format!("--server: {what}")))?;
        if endpoint.token_is_in_the_clear() {
            note(&format!("the token goes to {} in the clear: use https", endpoint.url()));
        }
        let asks = !self.no_input && !self.json && std::io::stdin().is_terminal();
        let trace = std::env::var(TRACEPARENT).ok().filter(|parent| !parent.is_empty());
        Ok(Remote { caller: Caller::new(endpoint).traced(trace), json: self.json, asks })
    }

    /// The address of the server, as it was given.
    pub fn server(&self) -> &str {
        &self.server
    }

    fn token(&self) -> Result<Option<String>, Failure> {
        let variable = |name: &str| match std::env::var_os(name).filter(|value| !value.is_empty()) {
            None => Ok(None),
            Some(value) => value
                .into_string()
                .map(Some)
                .map_err(|_| Failure::Usage(format!("environment {name}: expected text in UTF-8"))),
        };
        if let Some(file) = &self.token_file {
            return read_token(file).map(Some);
        }
        if let Some(token) = variable("HANDOVER_TOKEN")? {
            return Ok(Some(token));
        }
        variable("HANDOVER_TOKEN_FILE")?.map(|file| read_token(&PathBuf::from(file))).transpose()
    }
}

fn read_token(file: &PathBuf) -> Result<String, Failure> {
    let unreadable = |error: &dyn std::fmt::Display| {
        Failure::Usage(format!("token file {}: expected a file with a token, found: {error}", file.display()))
    };
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|error| unreadable(&error))?;
    opened.take(TOKEN_BYTES_MAX).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    let token = text.trim();
    if token.is_empty() || token.contains(char::is_whitespace) {
        return Err(unreadable(&"something else than one word"));
    }
    Ok(token.to_owned())
}

impl Remote {
    /// Where the server is.
    pub fn url(&self) -> &str {
        self.caller.endpoint().url()
    }

    /// Call a tool of the server.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Failure> {
        self.call_as(tool, arguments, None).await
    }

    /// The same under a key, so that it has one effect however often it is sent.
    pub async fn call_as(&self, tool: &str, arguments: Value, key: Option<&str>) -> Result<Value, Failure> {
        self.try_call(tool, arguments, key).await.map_err(|error| self.failure(error))
    }

    /// The same with the error as it came.
    pub async fn try_call(&self, tool: &str, arguments: Value, key: Option<&str>) -> Result<Value, Error> {
        self.caller.call(tool, arguments, key).await
    }

    /// All rows that a tool lists, page by page, at most so many.
    pub async fn pages(
        &self,
        tool: &str,
        rows: &str,
        asked: Value,
        max: usize,
    ) -> Result<Vec<Value>, Failure> {
        let (mut all, mut asked) = (Vec::new(), asked);
        loop {
            let mut page = self.call(tool, asked.clone()).await?;
            if let Value::Array(found) = page[rows].take() {
                all.extend(found);
            }
            match page["next_cursor"].as_str() {
                Some(next) if all.len() < max => asked["cursor"] = json!(next),
                _ => {
                    all.truncate(max);
                    return Ok(all);
                }
            }
        }
    }

    /// Why a call came to nothing, with what helps.
    pub fn failure(&self, error: Error) -> Failure {
        let message = text::line(&error.to_string());
        let url = self.caller.endpoint().url();
        match &error {
            Error::Unreachable(_) => {
                let here = url.contains("//127.") || url.contains("//localhost") || url.contains("//[::1]");
                let help = if here {
                    "start one with: handover serve".to_owned()
                } else {
                    "name another with --server or HANDOVER_SERVER, and see what is wrong with: handover doctor".to_owned()
                };
                Exit::NoServer.told(message, help)
            }
            Error::Unauthenticated(_) => Exit::SignIn.told(
                message,
                "put a token into HANDOVER_TOKEN, or its file into HANDOVER_TOKEN_FILE (handover token makes one; \
                 in development it is the agent's id, as in HANDOVER_TOKEN=ops)",
            ),
            Error::Refused { code, .. } if error.is_not_found() => {
                Exit::NotFound.told(named(&message, code), "see what there is with: handover task list")
            }
            Error::Refused { code, .. } if code.is_empty() => {
                Exit::Refused.told(message, "see what is expected with --help")
            }
            Error::Refused { code, .. } => {
                let help = format!("what it means and what to do: {}/errors/{code}", url.trim_end_matches("/mcp"));
                Exit::Refused.told(named(&message, code), help)
            }
        }
    }
}

fn named(message: &str, code: &str) -> String {
    if code.is_empty() { message.to_owned() } else { format!("{message} ({code})") }
}

/// Run a command on threads of its own.
pub fn run<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::fault("starting threads", &error))?;
    let done = runtime.block_on(work);
    // Somebody may still be asked for a line that nobody waits for.
    runtime.shutdown_background();
    done
}

/// Print a line for whoever asked. A reader that has gone wants no more.
pub fn say(line: impl AsRef<str>) -> Result<(), Failure> {
    print(line.as_ref(), "\n")
}

/// Print text that ends as it ends.
pub fn print(text: &str, end: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out
        .write_all(text.as_bytes())
        .and_then(|()| out.write_all(end.as_bytes()))
        .and_then(|()| out.flush())
    {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::Closed),
        Err(error) => Err(Failure::fault("printing", &error)),
    }
}

/// Print something for programs: one line, with the version.
pub fn say_json(fields: Value) -> Result<(), Failure> {
    let mut line = serde_json::Map::new();
    line.insert("version".to_owned(), json!(JSON_VERSION));
    if let Value::Object(fields) = fields {
        line.extend(fields);
    }
    say(text::ascii_json(&Value::Object(line)))
}

/// Tell whoever watches, beside what is printed.
pub fn note(line: &str) {
    // If standard error is closed there is nobody left to tell.
    _ = writeln!(std::io::stderr(), "{line}");
}

/// Ask somebody at the terminal for a line; none at the end of the input.
pub async fn ask(prompt: &str) -> Option<String> {
    _ = write!(std::io::stderr(), "{prompt}").and_then(|()| std::io::stderr().flush());
    let line = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        match std::io::stdin().read_line(&mut line) {
            Ok(read) if read > 0 => Some(line.trim().to_owned()),
            _ => None,
        }
    });
    line.await.ok().flatten()
}
