//! Hints: a node lets the others know that it has written something, so that they look at once and not only when they look
//! anyway. Nothing rests on a hint.
//!
//! One connection listens and tells. It tells after a commit and not in it: in the transaction, `NOTIFY` holds a lock of the
//! whole server through the sync.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::{ToSql, Type};

use super::database::Database;
use super::link::{Error, open};

/// How long what is written gathers before the others are told.
const GATHER: Duration = Duration::from_millis(2);

/// How long it may take until what was told is heard here as well.
const HEARD_WITHIN: Duration = Duration::from_secs(5);

/// How long it may take until it is listened.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

const SILENT: &str = "the database does not answer";

/// How often a node that writes nothing sees whether it still hears.
const PROBE_EVERY: Duration = Duration::from_secs(30);

/// How long to wait before it is tried again to listen.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

type Wake = Box<dyn Fn() + Send + Sync>;

/// What one node tells the others, and hears of them.
pub(super) struct Hints {
    /// What marks our own.
    name: String,
    wake: OnceLock<Wake>,
    written: Notify,
    /// What was told has come back.
    heard: Notify,
    /// Whether it always did.
    hearing: AtomicBool,
    /// Whether there is anybody to tell.
    others: AtomicBool,
}

impl Hints {
    pub(super) fn new() -> Hints {
        Hints {
            name: format!("{:x}", RandomState::new().hash_one("node")),
            wake: OnceLock::new(),
            written: Notify::new(),
            heard: Notify::new(),
            hearing: AtomicBool::new(false),
            others: AtomicBool::new(true),
        }
    }

    /// Whom to wake when another node has written something. The first one stays.
    pub(super) fn on_hint(&self, wake: Wake) {
        _ = self.wake.set(wake);
    }

    /// Whether hints arrive, as far as is known.
    pub(super) fn come(&self) -> bool {
        self.hearing.load(Ordering::Acquire)
    }

    /// Whether there are other nodes.
    pub(super) fn set_others(&self, others: bool) {
        self.others.store(others, Ordering::Release);
    }

    /// Something was written.
    pub(super) fn wrote(&self) {
        if self.others.load(Ordering::Acquire) {
            self.written.notify_one();
        }
    }

    /// Listen and tell, for as long as the thread that talks to the database lives.
    pub(super) async fn carry(self: Arc<Self>, database: Database, channel: String) {
        let mut warned = false;
        loop {
            let why = self.listen(&database, &channel).await;
            if self.hearing.swap(false, Ordering::AcqRel) || !warned {
                tracing::warn!(
                    why,
                    "this node receives no notifications from the others and polls for what they did"
                );
            }
            warned = true;
            // Whoever listened may have missed something.
            if let Some(wake) = self.wake.get() {
                wake();
            }
            sleep(AGAIN_AFTER).await;
        }
    }

    /// Returns why nothing can be heard any more.
    async fn listen(self: &Arc<Self>, database: &Database, channel: &str) -> String {
        let ear = Ear(Arc::clone(self));
        let listen = format!("LISTEN \"{channel}\"");
        let begin = async {
            let session = open(database.clone(), move |by| ear.hear(by)).await?;
            session.client.batch_execute(&listen).await?;
            Ok::<_, Error>(session)
        };
        let session = match timeout(LISTENS_WITHIN, begin).await {
            Ok(Ok(session)) => session,
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return SILENT.to_owned(),
        };
        let told = [(&channel as &(dyn ToSql + Sync), Type::TEXT), (&self.name, Type::TEXT)];
        loop {
            // At first as well: so the others know of this node, and this one that it hears.
            match timeout(HEARD_WITHIN, session.client.query_typed("SELECT pg_notify($1, $2)", &told)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return error.to_string(),
                Err(_) => {
                    session.give_up();
                    return SILENT.to_owned();
                }
            }
            if timeout(HEARD_WITHIN, self.heard.notified()).await.is_err() {
                return "what was told does not come back, as behind a pooler that lends connections"
                    .to_owned();
            }
            self.hearing.store(true, Ordering::Release);
            _ = timeout(PROBE_EVERY, self.written.notified()).await;
            sleep(GATHER).await;
        }
    }
}

/// Goes with its connection: whoever is to tell finds out.
struct Ear(Arc<Hints>);

impl Ear {
    fn hear(&self, by: &str) {
        let Hints { name, heard, wake, .. } = &*self.0;
        if by == name {
            return heard.notify_one();
        }
        self.0.set_others(true);
        if let Some(wake) = wake.get() {
            wake();
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.0.written.notify_one();
    }
}
