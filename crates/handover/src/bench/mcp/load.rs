//! Load: connections that ask again as soon as they are answered, from one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::wire::{Agent, Connection};
use crate::Failure;
use crate::bench::{machine, micros};

/// What is asked, one after the other, and what the answer must be.
pub struct Ask {
    /// Who asks.
    pub agent: Agent,
    /// The requests, in turn.
    pub requests: Vec<Vec<u8>>,
    /// What each is answered.
    pub expect: Expect,
}

/// What an answer must be.
pub enum Expect {
    /// The one at the place of the request, byte for byte.
    Same(Vec<Vec<u8>>),
    /// Anything with this in it.
    With(&'static [u8]),
}

impl Expect {
    fn is_met(&self, index: usize, body: &[u8]) -> bool {
        match self {
            Expect::Same(bodies) => bodies[index % bodies.len()] == body,
            Expect::With(text) => body.windows(text.len()).any(|window| window == *text),
        }
    }
}

/// What a turn came to.
pub struct Turn {
    /// From each request to its answer.
    pub latencies_us: Vec<f64>,
    /// How long it was.
    pub seconds: f64,
    /// Processor time of the server, in microseconds for each request.
    pub server_us: Option<f64>,
    /// The same of this generator.
    pub client_us: Option<f64>,
}

impl Turn {
    /// Answers in a second.
    pub fn rate(&self) -> f64 {
        self.latencies_us.len() as f64 / self.seconds
    }
}

const MEASURED: u8 = 1;
const OVER: u8 = 2;

/// Ask over so many connections, first unmeasured, then measured.
pub fn turn(
    ask: &Arc<Ask>,
    connections: usize,
    warm_up: Duration,
    seconds: Duration,
    pid: Option<&str>,
) -> Result<Turn, Failure> {
    let fault = |error: std::io::Error| Failure::fault("starting the generator", &error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(fault)?;
    runtime.block_on(async {
        let phase = Arc::new(AtomicU8::new(0));
        let mut clients = JoinSet::new();
        for number in 0..connections {
            let connection =
                ask.agent.connect().await.map_err(|error| Failure::fault("connecting", &error))?;
            clients.spawn(client(connection, Arc::clone(ask), number, Arc::clone(&phase)));
        }
        tokio::time::sleep(warm_up).await;
        let (server, own) = (pid.and_then(machine::cpu_seconds), machine::cpu_seconds("self"));
        let begun = Instant::now();
        phase.store(MEASURED, Ordering::Relaxed);
        tokio::time::sleep(seconds).await;
        phase.store(OVER, Ordering::Relaxed);
        let seconds = begun.elapsed().as_secs_f64();
        let used = |before: Option<f64>, now: Option<f64>| Some((now? - before?) * 1e6);
        let server = used(server, pid.and_then(machine::cpu_seconds));
        let own = used(own, machine::cpu_seconds("self"));
        let mut latencies_us = Vec::new();
        while let Some(client) = clients.join_next().await {
            latencies_us.extend(client.map_err(|error| Failure::fault("measuring", &error))??);
        }
        let each = |used: f64| used / latencies_us.len().max(1) as f64;
        Ok(Turn { seconds, server_us: server.map(each), client_us: own.map(each), latencies_us })
    })
}

/// An answer that does not come before the end of the turn does not count.
async fn client(
    mut connection: Connection,
    ask: Arc<Ask>,
    number: usize,
    phase: Arc<AtomicU8>,
) -> Result<Vec<f64>, Failure> {
    let mut latencies_us = Vec::new();
    // Each begins elsewhere, so that not all ask for the same.
    for index in number.. {
        let was = phase.load(Ordering::Relaxed);
        if was == OVER {
            break;
        }
        let begun = Instant::now();
        let body = connection.exchange(&ask.requests[index % ask.requests.len()]).await;
        let body = body.map_err(|error| Failure::fault("asking", &error))?;
        if was == MEASURED && phase.load(Ordering::Relaxed) == MEASURED {
            latencies_us.push(micros(begun));
        }
        if !ask.expect.is_met(index % ask.requests.len(), body) {
            let found = String::from_utf8_lossy(body);
            return Err(Failure::Fault(format!("expected the answer of before, found {found}")));
        }
    }
    Ok(latencies_us)
}
