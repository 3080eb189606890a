//! What the two sides of a task do together: one act for each column of the matrix. After each step everybody must see
//! the task where its log says it is.

use std::pin::Pin;
use std::sync::Arc;

use handover_kernel::session::Standing;

use super::Protocol;
use super::checker::{Watch, log, word};
use super::others::both::Both;
use super::requester::Requester;
use super::worker::Worker;

/// How long a task may take: long, because the machine may be busy.
const TTL_MS: u32 = 600_000;
/// How long one may take that is to expire: long enough to be taken before.
const EXPIRY_MS: u32 = 4000;

/// What came of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It works as it does everywhere.
    Yes,
    /// It is not for this pair of protocols, and why.
    No(&'static str),
}

type Doing<'a> = Pin<Box<dyn Future<Output = Done> + Send + 'a>>;
type Act = for<'a> fn(&'a mut Cell) -> Doing<'a>;

/// The acts, by the names of their columns.
pub const ACTS: [(&str, Act); 11] = [
    ("accept", |cell| Box::pin(accept(cell))),
    ("progress", |cell| Box::pin(progress(cell))),
    ("question, answer", |cell| Box::pin(question(cell))),
    ("authorization", |cell| Box::pin(authorization(cell))),
    ("steer", |cell| Box::pin(steer(cell))),
    ("pause, resume", |cell| Box::pin(pause(cell))),
    ("report, settlement", |cell| Box::pin(report(cell))),
    ("failure", |cell| Box::pin(failure(cell))),
    ("cancel", |cell| Box::pin(cancel(cell))),
    ("expiry", |cell| Box::pin(expiry(cell))),
    ("hand on", |cell| Box::pin(hand_on(cell))),
];

/// One cell of the matrix: two agents of its own, and what they do.
pub struct Cell {
    both: Arc<Both>,
    number: usize,
    requester: Requester,
    worker: Worker,
    task: String,
    watch: Option<Watch>,
}

impl Cell {
    /// Agents that nobody else in the matrix is.
    pub fn agents(number: usize) -> [String; 3] {
        ["planner", "worker", "helper"].map(|name| format!("{name}-{number}"))
    }

    pub async fn new(both: &Arc<Both>, number: usize, requester: Protocol, worker: Protocol) -> Cell {
        let [planner, hands, _] = Cell::agents(number);
        Cell {
            both: Arc::clone(both),
            number,
            requester: Requester::new(both, requester, &planner),
            worker: Worker::new(both, worker, &hands).await,
            task: String::new(),
            watch: None,
        }
    }

    /// The history must be the same everywhere, if there is one.
    pub async fn check(self) {
        if let Some(watch) = self.watch {
            watch.checks(&self.both, &self.task).await;
        }
    }

    /// Everybody sees the task here.
    async fn stands(&self, standing: Standing) {
        self.watch.as_ref().unwrap().sees(&self.both, &self.task, standing).await;
        let (requester, worker) = (&self.requester, &self.worker);
        for (speaker, protocol) in
            [(&requester.speaker, requester.protocol), (&worker.speaker, worker.protocol)]
        {
            assert_eq!(speaker.word(&self.task).await, word(protocol, standing));
        }
    }

    /// A task that waits for the worker, and the observer.
    async fn delegated(&mut self, ttl_ms: u32) {
        let [_, worker, helper] = Cell::agents(self.number);
        let own = format!("a-task-of-the-matrix-{:04}", self.number);
        self.task = self.requester.delegates(&own, [&worker, &helper], ttl_ms).await;
        self.watch = Some(Watch::new(&self.both, &self.task).await);
    }

    /// A task that the worker has.
    async fn taken(&mut self) {
        self.delegated(TTL_MS).await;
        self.worker.accepts(&self.task).await;
    }
}

async fn accept(cell: &mut Cell) -> Done {
    cell.delegated(TTL_MS).await;
    cell.stands(Standing::Requested).await;
    cell.worker.finds(&cell.task).await;
    cell.worker.accepts(&cell.task).await;
    cell.stands(Standing::Working).await;
    Done::Yes
}

async fn progress(cell: &mut Cell) -> Done {
    cell.taken().await;
    cell.worker.reports(&cell.task, "half of it").await;
    cell.stands(Standing::Working).await;
    let told = cell.requester.is_told(&cell.task).await;
    assert!(told.contains("half of it"), "{told}");
    Done::Yes
}

async fn question(cell: &mut Cell) -> Done {
    cell.taken().await;
    cell.worker.asks(&cell.task, "Where to?").await;
    // Between two agents of the Grid a question is a message that waits for another one.
    let grid = (cell.requester.protocol, cell.worker.protocol) == (Protocol::Grid, Protocol::Grid);
    cell.stands(if grid { Standing::WaitingReply } else { Standing::WaitingInput }).await;
    cell.requester.answers(&cell.task, "to the left").await;
    cell.stands(Standing::Working).await;
    let heard = cell.worker.hears(&cell.task).await;
    assert!(heard.contains("to the left"), "{heard}");
    Done::Yes
}

async fn authorization(cell: &mut Cell) -> Done {
    cell.taken().await;
    cell.worker.asks_permission(&cell.task, "Through the wall?").await;
    cell.stands(Standing::WaitingAuthorization).await;
    let granted = cell.requester.grants(&cell.task).await;
    cell.stands(Standing::Working).await;
    let heard = cell.worker.hears(&cell.task).await;
    assert!(heard.contains(granted), "{heard}");
    Done::Yes
}

async fn steer(cell: &mut Cell) -> Done {
    cell.taken().await;
    cell.requester.steers(&cell.task, "deeper").await;
    cell.stands(Standing::Working).await;
    let heard = cell.worker.hears(&cell.task).await;
    assert!(heard.contains("deeper"), "{heard}");
    cell.stands(Standing::Working).await;
    Done::Yes
}

async fn pause(cell: &mut Cell) -> Done {
    cell.taken().await;
    cell.requester.pauses(&cell.task).await;
    // MACP's own call suspends at once; elsewhere the assignee comes to a safe point first.
    let at_once = cell.requester.protocol == Protocol::Macp;
    cell.stands(if at_once { Standing::Suspended } else { Standing::Working }).await;
    cell.worker.stops(&cell.task).await;
    cell.stands(Standing::Suspended).await;
    cell.requester.resumes(&cell.task).await;
    cell.stands(Standing::Working).await;
    cell.worker.reports(&cell.task, "going on").await;
    cell.stands(Standing::Working).await;
    Done::Yes
}

async fn report(cell: &mut Cell) -> Done {
    cell.taken().await;
    cell.worker.delivers(&cell.task, "a hole").await;
    cell.stands(match (cell.requester.protocol, cell.worker.protocol) {
        (Protocol::Mcp, _) => Standing::ResolvedPositive,
        // A receiver of the Grid delivers with a message, and its sender may go on talking.
        (Protocol::Grid, Protocol::Grid) => Standing::WaitingReply,
        (Protocol::Macp | Protocol::Grid, _) => Standing::ReportedComplete,
    })
    .await;
    cell.requester.settles(&cell.task, true).await;
    cell.stands(Standing::ResolvedPositive).await;
    Done::Yes
}

async fn failure(cell: &mut Cell) -> Done {
    cell.taken().await;
    cell.worker.fails(&cell.task, "no ground").await;
    let reviewed = cell.requester.protocol == Protocol::Macp;
    cell.stands(if reviewed { Standing::ReportedFail } else { Standing::ResolvedNegative }).await;
    cell.requester.settles(&cell.task, false).await;
    cell.stands(Standing::ResolvedNegative).await;
    Done::Yes
}

async fn cancel(cell: &mut Cell) -> Done {
    cell.taken().await;
    cell.requester.cancels(&cell.task).await;
    cell.stands(Standing::Cancelled).await;
    Done::Yes
}

async fn expiry(cell: &mut Cell) -> Done {
    cell.delegated(EXPIRY_MS).await;
    cell.worker.accepts(&cell.task).await;
    let expired = word(Protocol::Mcp, Standing::Expired);
    cell.watch.as_mut().unwrap().until_told(expired).await;
    cell.stands(Standing::Expired).await;
    Done::Yes
}

async fn hand_on(cell: &mut Cell) -> Done {
    if cell.worker.protocol == Protocol::Grid {
        return Done::No("Grid has no method that hands a task on");
    }
    let [_, _, name] = Cell::agents(cell.number);
    let helper = Worker::new(&cell.both, cell.worker.protocol, &name).await;
    cell.taken().await;
    let handed_on = cell.worker.hands_on(&cell.task, &helper).await;
    cell.stands(Standing::Working).await;
    if cell.requester.protocol == Protocol::Grid {
        assert!(handed_on.unwrap_err().contains("HAND_ON_DENIED"));
        return Done::No("refused with HAND_ON_DENIED: a Grid task is between the two agents who began it");
    }
    handed_on.unwrap();
    let assignee = |cell: &Cell| log(&cell.both, &cell.task).1.task().unwrap().phase.assignee().cloned();
    assert_eq!(assignee(cell).unwrap().as_str(), name);
    helper.reports(&cell.task, "mine now").await;
    cell.stands(Standing::Working).await;
    Done::Yes
}
