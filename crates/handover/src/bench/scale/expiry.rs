//! Many sessions whose time is up at the same moment, and what everybody else feels of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use handover_server::face::macp::proto::v1::{Envelope, SessionState};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::crowd::{Crowd, Requester};
use super::pages;
use crate::Failure;
use crate::bench::macp::runtime::Server;
use crate::bench::macp::script::{By, Ids, Script, now_ms};
use crate::bench::macp::{ANSWER_WITHIN, late};
use crate::bench::quantile;

/// How many others live task lives meanwhile.
const OTHERS: usize = 4;

/// How often the server is asked how many have expired.
const ASK_EVERY: Duration = Duration::from_millis(5);

/// Sessions with one deadline.
pub struct Expiry {
    crowd: Crowd,
    deadline_ms: i64,
}

/// One Send of the others.
struct Sent {
    from: Instant,
    until: Instant,
}

impl Sent {
    fn micros(&self) -> f64 {
        self.until.duration_since(self.from).as_secs_f64() * 1e6
    }
}

impl Expiry {
    /// Start sessions that all have until the same moment: the time of a session counts from when its start was sent, and
    /// all are sent with the same time.
    pub async fn set(crowd: Crowd, after: Duration) -> Result<Expiry, Failure> {
        let sent_at = now_ms();
        let ttl_ms = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        let start = move |mut requester: Requester, session_id: String, mut ids: Ids| async move {
            let script = Script::within(ttl_ms, &requester.name, &requester.worker);
            let envelope = script.envelope(&script.lines()[0], &session_id, ids.next());
            let envelope = Envelope { timestamp_unix_ms: sent_at, ..envelope };
            requester.caller.put(By::Requester, envelope).await.map(|_| ())
        };
        crowd.each(start).await?;
        Ok(Expiry { crowd, deadline_ms: sent_at + ttl_ms })
    }

    /// The server has been started again, somewhere else.
    pub async fn moved_to(self, address: &str) -> Result<Expiry, Failure> {
        Ok(Expiry { crowd: self.crowd.moved_to(address).await?, ..self })
    }

    /// Wait for the deadline and see how long it takes until all have expired.
    pub async fn measure(self, others: &Crowd, server: &Server, quiet: Duration) -> Result<Value, Failure> {
        let count = self.crowd.sessions();
        let left = u64::try_from(self.deadline_ms - now_ms()).ok().map(Duration::from_millis);
        let Some(left) = left.filter(|left| *left > quiet) else {
            let message =
                "expected sessions to be open for a while before their deadline, found that it was too near";
            return Err(Failure::Fault(message.to_owned()));
        };
        let deadline = Instant::now() + left;
        let already = expired(&server.admin).await?;
        let over = Arc::new(AtomicBool::new(false));
        let mut lives = JoinSet::new();
        for _ in 0..OTHERS {
            lives.spawn(live(others.first(), Arc::clone(&over)));
        }
        tokio::time::sleep_until(deadline.into()).await;
        let all = async {
            while expired(&server.admin).await? < already + count as u64 {
                tokio::time::sleep(ASK_EVERY).await;
            }
            Ok::<_, Failure>(Instant::now())
        };
        let all = tokio::time::timeout(ANSWER_WITHIN, all).await;
        let last = all.map_err(|_| late("every session to expire"))??;
        over.store(true, Ordering::Relaxed);
        let mut sent = Vec::new();
        while let Some(task) = lives.join_next().await {
            sent.extend(task.map_err(|error| Failure::fault("measuring", &error))??);
        }
        self.all_have_expired().await?;
        let within = |from: Instant, until: Instant| -> Vec<f64> {
            let met = sent.iter().filter(|sent| sent.from < until && sent.until > from);
            met.map(Sent::micros).collect()
        };
        let (mut before, mut during) = (within(deadline - quiet, deadline), within(deadline, last));
        let (before_us, during_us) = (quantile(&mut before, 0.5), quantile(&mut during, 0.5));
        Ok(json!({
            "sessions": count,
            "seconds": last.duration_since(deadline).as_secs_f64(),
            "others": OTHERS,
            "sends_before": before.len(),
            "sends_during": during.len(),
            "send_before_p50_us": before_us,
            "send_during_p50_us": during_us,
            "send_before_p99_us": quantile(&mut before, 0.99),
            "send_during_p99_us": quantile(&mut during, 0.99),
            "send_ratio": during_us / before_us,
        }))
    }

    /// What each requester's list says: all of its sessions have expired.
    async fn all_have_expired(&self) -> Result<(), Failure> {
        let mut found = 0;
        for requester in self.crowd.requesters() {
            let mut caller = requester.caller.clone();
            let mut token = String::new();
            loop {
                let (sessions, next) = pages::page(&mut caller, By::Requester, token).await?;
                let expired = |state: i32| state == SessionState::Expired as i32;
                found += sessions.iter().filter(|session| expired(session.state)).count();
                if next.is_empty() {
                    break;
                }
                token = next;
            }
        }
        if found == self.crowd.sessions() {
            return Ok(());
        }
        let expected = self.crowd.sessions();
        Err(Failure::Fault(format!("expected {expected} sessions to have expired, found {found}")))
    }
}

/// One life after the other. The last is lived to its end, so that no session stays open.
async fn live(mut one: Requester, over: Arc<AtomicBool>) -> Result<Vec<Sent>, Failure> {
    let mut ids = Ids::new();
    let mut sent = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let session_id = ids.next();
        for line in one.script.lines() {
            let from = Instant::now();
            one.caller.send(&one.script, line, &session_id, &mut ids).await?;
            sent.push(Sent { from, until: Instant::now() });
        }
    }
    Ok(sent)
}

/// How many sessions have expired since the server started, as it tells its operator.
async fn expired(admin: &str) -> Result<u64, Failure> {
    let fault = |error: std::io::Error| Failure::fault("reading the metrics", &error);
    let mut connection = TcpStream::connect(admin).await.map_err(fault)?;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.map_err(fault)?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.map_err(fault)?;
    let name = "handover_sessions_ended_total{how=\"expired\"} ";
    let count = answer.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    count.ok_or_else(|| Failure::Fault("expected a count of expired sessions among the metrics".to_owned()))
}
