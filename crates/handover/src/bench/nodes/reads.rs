//! `tasks/get` at a server on PostgreSQL: while another node changes the task all the time, beside `SELECT 1`; and what it costs
//! when nobody does, beside a server on the embedded store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Value, json};

use super::Bench;
use crate::Failure;
use crate::bench::macp::runtime::Server;
use crate::bench::mcp::cast::{Cast, connect};
use crate::bench::mcp::load::{self, Ask, Expect};
use crate::bench::mcp::wire::{self, Agent};
use crate::bench::{Scratch, median, micros, progress, quantile};

/// At most so many times `SELECT 1`, and so many times the processor time of the embedded store.
const MEDIAN_MAX: f64 = 4.0;
const CPU_MAX: f64 = 2.0;

impl Bench {
    pub(super) fn reads(&self) -> Result<Value, Failure> {
        let dir = Scratch::new(Some(&std::env::temp_dir()))?;
        let mut shared = vec![("HANDOVER_STORE_SCHEMA", self.options.schema.as_str())];
        shared.extend(self.variables.iter().map(|(name, value)| (*name, value.as_str())));
        let server = |name: &str, settings: &[(&str, &str)]| {
            Server::start_at(&dir.path.join(name), "127.0.0.1:0", settings)
        };
        let (one, two) = (server("one", &shared)?, server("two", &shared)?);
        let embedded = server("embedded", &[("HANDOVER_STORE", ""), ("HANDOVER_CONFIG", "")])?;
        let task = self.runtime.block_on(running(&one))?;
        let beside = self.runtime.block_on(running(&embedded))?;
        let (mut reads, mut selects, mut here, mut there) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for round in 0..self.rounds {
            progress(&format!("reads, turn {} of {}", round + 1, self.rounds));
            let (read, select) = self.read_what_changes(&one, &two, &task, round as u64)?;
            reads.push(read);
            selects.push(select);
            here.extend(self.cost_of_reads(&two, &task)?);
            there.extend(self.cost_of_reads(&embedded, &beside)?);
        }
        progress("");
        for server in [one, two, embedded] {
            server.stop()?;
        }
        let times = median(reads.iter().zip(&selects).map(|(read, select)| read / select).collect());
        let (read, select) = (median(reads), median(selects));
        self.say(&format!(
            "tasks/get of a task that another node changes: median {read:.0} us, SELECT 1 {select:.0} us"
        ));
        self.judge("within 4 of SELECT 1", times <= MEDIAN_MAX, &format!("{times:.2}"));
        let mut result = json!({ "read_us": read, "select_us": select, "times": times });
        if !here.is_empty() && !there.is_empty() {
            let cpu = median(here.iter().zip(&there).map(|(here, there)| here / there).collect());
            let (here, there) = (median(here), median(there));
            self.say(&format!(
                "tasks/get of one that nobody changes: {here:.0} us of processor time, on the embedded store {there:.0} us"
            ));
            self.judge("at most twice the embedded store's", cpu <= CPU_MAX, &format!("{cpu:.2}"));
            result["cpu_us"] = here.into();
            result["embedded_cpu_us"] = there.into();
            result["cpu_times"] = cpu.into();
        }
        Ok(result)
    }

    /// The medians of a read at one server while its task changes at another, and of `SELECT 1`, in turns.
    fn read_what_changes(
        &self,
        writes: &Server,
        reads: &Server,
        task: &str,
        round: u64,
    ) -> Result<(f64, f64), Failure> {
        let bare = self.bare()?;
        let stop = Arc::new(AtomicBool::new(false));
        let writing = self.runtime.spawn(write(cast(writes), task.to_owned(), round, Arc::clone(&stop)));
        let agent = cast(reads).requester;
        let request = agent.look(task);
        let mut connection = self.runtime.block_on(connect(&agent))?;
        let (mut looks, mut selects) = (Vec::new(), Vec::new());
        let until = Instant::now() + self.length;
        while Instant::now() < until {
            let begun = Instant::now();
            let body = self.runtime.block_on(connection.exchange(&request));
            looks.push(micros(begun));
            wire::result(body.map_err(|error| Failure::fault("reading a task", &error))?)?;
            let begun = Instant::now();
            bare.select_one().map_err(|fault| Failure::fault("asking for 1", &fault))?;
            selects.push(micros(begun));
        }
        stop.store(true, Ordering::Relaxed);
        let written = self.runtime.block_on(writing).map_err(|error| Failure::fault("writing", &error))??;
        if written == 0 {
            return Err(Failure::Fault("expected the task to change, found that it did not".to_owned()));
        }
        Ok((quantile(&mut looks, 0.5), quantile(&mut selects, 0.5)))
    }

    /// The processor time of a read at a server, in microseconds, if it can be told.
    fn cost_of_reads(&self, server: &Server, task: &str) -> Result<Option<f64>, Failure> {
        let agent = cast(server).requester;
        let requests = vec![agent.look(task)];
        let ask = Arc::new(Ask { agent, requests, expect: Expect::With(b"\"working\"") });
        let turn = load::turn(&ask, 1, self.length / 10, self.length, Some(&server.pid().to_string()))?;
        Ok(turn.server_us)
    }
}

fn cast(server: &Server) -> Cast {
    let agent = |token: &str| Agent { target: server.http.clone(), token: token.to_owned() };
    Cast { requester: agent("planner"), worker: agent("worker") }
}

/// A task that its worker is at.
async fn running(server: &Server) -> Result<String, Failure> {
    let cast = cast(server);
    cast.register().await?;
    let ids = cast.running(1).await?;
    ids.into_iter().next().ok_or_else(|| Failure::Fault("expected a task, found none".to_owned()))
}

/// Let a task change until it is enough, and say how often it did.
async fn write(cast: Cast, task: String, round: u64, stop: Arc<AtomicBool>) -> Result<u64, Failure> {
    let mut connection = connect(&cast.worker).await?;
    let mut written = 0;
    while !stop.load(Ordering::Relaxed) {
        written += 1;
        // No step is said twice: the first was when it was taken.
        wire::ask(&mut connection, &cast.update(&task, (round + 1) * STEPS_MAX + written)).await?;
    }
    Ok(written)
}

/// More than there are in one turn.
const STEPS_MAX: u64 = 1_000_000;
