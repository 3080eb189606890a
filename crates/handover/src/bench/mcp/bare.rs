//! What is measured against: a bare axum handler that takes the same request and returns a canned body, on the same
//! connections, in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::routing::post;
use handover_desk::shutdown::Shutdown;
use handover_server::http::listen::Settings;
use handover_server::http::{self, Router};
use handover_server::tls::wire::Wire;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

use crate::Failure;

/// More than any benchmark opens.
const CONNECTIONS_MAX: usize = 100_000;

/// Serve until standard input ends, which is when whoever started this has gone.
pub fn serve(body: &str) -> Result<(), Failure> {
    let fault = |error: std::io::Error| Failure::fault("serving a canned body", &error);
    let runtime = tokio::runtime::Runtime::new().map_err(fault)?;
    runtime.block_on(async {
        let (trigger, shutdown) = Shutdown::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(fault)?;
        let address = listener.local_addr().map_err(fault)?;
        writeln!(std::io::stdout(), "{address}").map_err(fault)?;
        tokio::spawn(async move {
            _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
            trigger.begin();
        });
        let router = Router::new().route("/mcp", post(canned)).with_state(Bytes::from(body.to_owned()));
        let mut settings = Settings::new(Wire::Plain);
        settings.limits.connections_max = CONNECTIONS_MAX;
        http::serve(listener, settings, router, shutdown).await;
        Ok(())
    })
}

async fn canned(State(body): State<Bytes>, _request: Bytes) -> ([(HeaderName, &'static str); 1], Bytes) {
    ([(CONTENT_TYPE, "application/json")], body)
}

/// Such a server, in a process that does not outlive its owner.
pub struct Bare {
    child: Child,
    /// Where it is.
    pub address: String,
}

impl Bare {
    /// Start one and wait until it is ready.
    pub fn start(body: &str) -> Result<Bare, Failure> {
        let fault = |error: std::io::Error| Failure::fault("starting a bare server", &error);
        let mut child = Command::new(std::env::current_exe().map_err(fault)?)
            .args(["bench", "mcp", "--bare-server", body])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fault)?;
        let out = child.stdout.take();
        let mut bare = Bare { child, address: String::new() };
        if let Some(out) = out {
            BufReader::new(out).read_line(&mut bare.address).map_err(fault)?;
        }
        bare.address.truncate(bare.address.trim_end().len());
        if bare.address.is_empty() {
            return Err(Failure::Fault("expected the bare server to say where it is".to_owned()));
        }
        Ok(bare)
    }

    /// Its process.
    pub fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // One that has ended cannot be killed, and that is all that can go wrong.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
