//! Connections to the database, and waiting for its answers on threads that may block.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Row, Socket};

use super::database::Database;
use crate::fault::Fault;

/// A value for a statement, and its type there.
pub(super) type Value = (Box<dyn ToSql + Sync + Send>, Type);

/// The values of a statement.
macro_rules! values {
    ($($value:expr => $type:ident),* $(,)?) => {
        vec![$((Box::new($value) as Box<dyn tokio_postgres::types::ToSql + Sync + Send>, tokio_postgres::types::Type::$type)),*]
    };
}
pub(super) use values;

/// How long it may take to reach the database.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// How to reach the database, and the thread that talks to it.
pub(super) struct Link {
    database: Database,
    /// Stands in the place of `@` in what is asked: nothing rests on what a connection was told before, since behind a pooler it
    /// may be another one each time.
    schema: String,
    runtime: Option<Runtime>,
}

/// An open connection.
pub(super) struct Session {
    client: Client,
    /// How many warnings the database has given.
    warnings: Arc<AtomicU64>,
}

impl Link {
    /// `node` is what the database shows of whoever is connected.
    pub(super) fn new(mut database: Database, schema: &str, node: &str) -> Result<Link, Fault> {
        database
            .config
            .connect_timeout(CONNECT_WITHIN)
            .keepalives_idle(Duration::from_secs(10))
            .keepalives_interval(Duration::from_secs(5))
            .keepalives_retries(3)
            .application_name(node);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("postgres")
            .enable_all()
            .build()
            .map_err(|source| Fault::Unavailable {
                doing: "starting the thread for the database",
                source: source.into(),
            })?;
        Ok(Link { database, schema: format!("\"{schema}\"."), runtime: Some(runtime) })
    }

    /// Have something done on the thread that talks to the database, for as long as it lives.
    pub(super) fn begin<F: Future<Output = ()> + Send + 'static>(&self, work: impl FnOnce(Database) -> F) {
        let runtime = self.runtime.as_ref().expect("the thread ends with the store");
        runtime.spawn(work(self.database.clone()));
    }

    /// Wait for something that happens on the thread that talks to the database.
    fn wait<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let (sender, answer) = mpsc::sync_channel(1);
        let runtime = self.runtime.as_ref().expect("the thread ends with the store");
        runtime.spawn(async move { _ = sender.send(work.await) });
        answer.recv().expect("work for the database ends with an answer")
    }

    /// The schema of the tables.
    pub(super) fn schema(&self) -> &str {
        self.schema.trim_matches(['"', '.'])
    }

    /// A new connection.
    pub(super) fn connect(&self) -> Result<Arc<Session>, tokio_postgres::Error> {
        let warnings = Arc::new(AtomicU64::new(0));
        let client = self.wait(open(self.database.clone(), Arc::clone(&warnings), |_| {}))?;
        Ok(Arc::new(Session { client, warnings }))
    }

    /// Ask one thing.
    pub(super) fn ask(
        &self,
        session: &Arc<Session>,
        sql: &str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let (session, sql) = (Arc::clone(session), sql.replace('@', &self.schema));
        self.wait(async move {
            let values: Vec<(&(dyn ToSql + Sync), Type)> =
                values.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
            session.client.query_typed(&sql, &values).await
        })
    }

    /// Statements without values, in one transaction.
    pub(super) fn script(&self, session: &Arc<Session>, sql: &str) -> Result<(), tokio_postgres::Error> {
        let (session, sql) = (Arc::clone(session), sql.to_owned());
        self.wait(async move { session.client.batch_execute(&sql).await })
    }
}

impl Session {
    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    pub(super) fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::Acquire)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Whoever drops it may be on a thread that must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Open a connection, of which warnings are counted and notifications heard.
pub(super) async fn open(
    database: Database,
    warnings: Arc<AtomicU64>,
    hear: impl Fn(&str) + Send + 'static,
) -> Result<Client, tokio_postgres::Error> {
    let Database { config, tls } = database;
    match tls {
        Some(tls) => {
            let (client, connection) = config.connect(tls).await?;
            tokio::spawn(carry(connection, warnings, hear));
            Ok(client)
        }
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(carry(connection, warnings, hear));
            Ok(client)
        }
    }
}

/// Carry a connection until it ends.
async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Connection<Socket, S>,
    warnings: Arc<AtomicU64>,
    hear: impl Fn(&str),
) {
    while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
        match message {
            AsyncMessage::Notice(notice) if notice.severity() == "WARNING" => {
                warnings.fetch_add(1, Ordering::AcqRel);
                tracing::warn!(message = notice.message(), "the database warns");
            }
            AsyncMessage::Notification(notification) => hear(notification.payload()),
            // There may be others in a later version.
            AsyncMessage::Notice(_) | _ => {}
        }
    }
}

/// A few connections, each lent to one caller at a time.
pub(super) struct Pool {
    state: Mutex<Free>,
    returned: Condvar,
}

struct Free {
    idle: Vec<Arc<Session>>,
    /// How many more may be opened.
    left: usize,
}

impl Pool {
    pub(super) fn new(max: usize) -> Pool {
        Pool { state: Mutex::new(Free { idle: Vec::new(), left: max.max(1) }), returned: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, Free> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Use one of them; one that is closed is replaced.
    pub(super) fn with<T>(
        &self,
        link: &Link,
        work: impl Fn(&Arc<Session>) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, tokio_postgres::Error> {
        let mut state = self.state();
        while state.idle.is_empty() && state.left == 0 {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let idle = state.idle.pop();
        state.left -= usize::from(idle.is_none());
        drop(state);
        let (result, session) = attempt(link, idle.filter(|session| session.is_open()), work);
        let mut state = self.state();
        match session.filter(|session| session.is_open()) {
            Some(session) => state.idle.push(session),
            None => state.left += 1,
        }
        drop(state);
        self.returned.notify_one();
        result
    }
}

/// Reading twice does no harm: what fails because a connection has ended is asked once more on a new one.
fn attempt<T>(
    link: &Link,
    idle: Option<Arc<Session>>,
    work: impl Fn(&Arc<Session>) -> Result<T, tokio_postgres::Error>,
) -> (Result<T, tokio_postgres::Error>, Option<Arc<Session>>) {
    if let Some(session) = idle {
        let result = work(&session);
        if session.is_open() || result.is_ok() {
            return (result, Some(session));
        }
    }
    match link.connect() {
        Ok(session) => (work(&session), Some(session)),
        Err(error) => (Err(error), None),
    }
}
