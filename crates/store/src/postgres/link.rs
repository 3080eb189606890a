//! Connections to the database, and waiting for its answers on threads that may block, never for longer than somebody says.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::{DbError, Severity, SqlState};
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

/// How long it may take to reach one of the database's hosts, whatever the patience.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// In how many parts the patience is divided, so that several hosts can be tried.
const HOSTS_TRIED: u32 = 3;

/// For what may take as long as it takes.
pub(super) const AT_ITS_LEISURE: Duration = Duration::from_secs(24 * 60 * 60);

/// Why there is no answer that counts.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("{}", chain(.0))]
    Database(tokio_postgres::Error),
    /// The connection is given up. What was asked for may still be done.
    #[error("no answer within {} ms", .0.as_millis())]
    Silent(Duration),
    /// It was done, but a standby may not have it: somebody cancelled the wait for that.
    #[error("the database warned that what it keeps may be lost")]
    Warned,
    /// It has not seen this node where another one has.
    #[error(
        "the database that answers may be a former primary: it does not know when this node was last seen"
    )]
    Left,
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Database(error)
    }
}

impl Error {
    pub(super) fn code(&self) -> Option<&SqlState> {
        self.as_db_error().map(DbError::code)
    }

    pub(super) fn as_db_error(&self) -> Option<&DbError> {
        match self {
            Error::Database(error) => error.as_db_error(),
            Error::Silent(_) | Error::Warned | Error::Left => None,
        }
    }
}

/// An error and its sources in one line.
pub(super) fn chain(error: &tokio_postgres::Error) -> String {
    if is_standby(error) {
        return "expected the primary, found a standby".to_owned();
    }
    let sources = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    sources.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Whether none of the hosts takes anything that is written.
pub(super) fn is_standby(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    source.is_some_and(|source| {
        source.kind() == std::io::ErrorKind::PermissionDenied && source.raw_os_error().is_none()
    })
}

/// How to reach the database, and the thread that talks to it.
pub(super) struct Link {
    database: Database,
    /// Stands in the place of `@` in what is asked: nothing rests on what a connection was told before, since behind a pooler it
    /// may be another one each time.
    schema: String,
    runtime: Option<Runtime>,
    /// How many connections were opened.
    opened: AtomicU64,
    /// The number of the one over which this node was last seen: those before it may lead to a database that others have left.
    trusted: AtomicU64,
}

/// An open connection.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) number: u64,
    /// Whether it leads to the database that has last seen this node.
    pub(super) is_sure: AtomicBool,
    /// How many warnings the database has given.
    warnings: Arc<AtomicU64>,
    carrying: AbortHandle,
    given_up: AtomicBool,
}

impl Link {
    /// `node` is what the database shows of whoever is connected; what is sent to it and not received within the patience ends
    /// the connection.
    pub(super) fn new(
        mut database: Database,
        schema: &str,
        node: &str,
        patience: Duration,
    ) -> Result<Link, Fault> {
        database
            .config
            // A standby, or a primary that has become one, would answer with what was.
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .connect_timeout(CONNECT_WITHIN.min(patience / HOSTS_TRIED))
            .tcp_user_timeout(patience)
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
        let schema = format!("\"{schema}\".");
        let (opened, trusted) = Default::default();
        Ok(Link { database, schema, runtime: Some(runtime), opened, trusted })
    }

    /// Have something done on the thread that talks to the database, for as long as it lives.
    pub(super) fn begin<F: Future<Output = ()> + Send + 'static>(&self, work: impl FnOnce(Database) -> F) {
        let runtime = self.runtime.as_ref().expect("the thread ends with the store");
        runtime.spawn(work(self.database.clone()));
    }

    /// Wait so long for something that happens on the thread that talks to the database.
    fn wait<T: Send + 'static>(
        &self,
        within: Duration,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, answer) = mpsc::sync_channel(1);
        let runtime = self.runtime.as_ref().expect("the thread ends with the store");
        runtime.spawn(async move {
            let answer = timeout(within, work).await;
            _ = sender.send(answer.unwrap_or(Err(Error::Silent(within))));
        });
        answer.recv().expect("work for the database ends with an answer")
    }

    /// The schema of the tables.
    pub(super) fn schema(&self) -> &str {
        self.schema.trim_matches(['"', '.'])
    }

    /// A new connection.
    pub(super) fn connect(&self, within: Duration) -> Result<Arc<Session>, Error> {
        let (database, number) = (self.database.clone(), self.opened.fetch_add(1, Ordering::AcqRel));
        self.wait(within, async move {
            let session = open(database, |_| {}).await?;
            Ok(Arc::new(Session { number, ..session }))
        })
    }

    /// Nothing goes over connections that were opened before this one any more.
    pub(super) fn trust(&self, number: u64) {
        self.trusted.fetch_max(number, Ordering::AcqRel);
    }

    pub(super) fn trusted(&self) -> u64 {
        self.trusted.load(Ordering::Acquire)
    }

    /// Whether a connection can be used again.
    pub(super) fn is_usable(&self, session: &Session) -> bool {
        session.is_open() && session.number >= self.trusted()
    }

    /// Ask one thing. A connection that is silent for too long is given up.
    pub(super) fn ask(
        &self,
        session: &Arc<Session>,
        sql: &str,
        values: Vec<Value>,
        within: Duration,
    ) -> Result<Vec<Row>, Error> {
        let (asked, sql) = (Arc::clone(session), sql.replace('@', &self.schema));
        self.or_give_up(session, within, async move {
            let values: Vec<(&(dyn ToSql + Sync), Type)> =
                values.iter().map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone())).collect();
            let warnings = asked.warnings.load(Ordering::Acquire);
            let rows = asked.client.query_typed(&sql, &values).await?;
            // They come before the end of the answer.
            match asked.warnings.load(Ordering::Acquire) > warnings {
                true => Err(Error::Warned),
                false => Ok(rows),
            }
        })
    }

    /// Statements without values, in one transaction.
    pub(super) fn script(&self, session: &Arc<Session>, sql: &str, within: Duration) -> Result<(), Error> {
        let (asked, sql) = (Arc::clone(session), sql.to_owned());
        self.or_give_up(session, within, async move { Ok(asked.client.batch_execute(&sql).await?) })
    }

    fn or_give_up<T: Send + 'static>(
        &self,
        session: &Session,
        within: Duration,
        work: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let answer = self.wait(within, work);
        if matches!(answer, Err(Error::Silent(_))) {
            session.give_up();
        }
        answer
    }
}

impl Session {
    /// End the connection without a word: whoever is silent would not hear it.
    pub(super) fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
        self.carrying.abort();
    }

    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed() && !self.given_up.load(Ordering::Acquire)
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
pub(super) async fn open(database: Database, hear: impl Fn(&str) + Send + 'static) -> Result<Session, Error> {
    let Database { config, tls } = database;
    let warnings = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&warnings);
    let (client, carrying) = match tls {
        Some(tls) => {
            let (client, connection) = config.connect(tls).await?;
            (client, tokio::spawn(carry(connection, counted, hear)))
        }
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            (client, tokio::spawn(carry(connection, counted, hear)))
        }
    };
    Ok(Session {
        client,
        number: 0,
        is_sure: AtomicBool::new(false),
        warnings,
        carrying: carrying.abort_handle(),
        given_up: AtomicBool::new(false),
    })
}

/// Carry a connection until it ends.
async fn carry<S: AsyncRead + AsyncWrite + Unpin>(
    mut connection: Connection<Socket, S>,
    warnings: Arc<AtomicU64>,
    hear: impl Fn(&str),
) {
    while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
        match message {
            // What the severity is called depends on the server's language.
            AsyncMessage::Notice(notice) if notice.parsed_severity() == Some(Severity::Warning) => {
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

    /// Use one of them, so long at most; one that is closed is replaced.
    pub(super) fn with<T>(
        &self,
        link: &Link,
        within: Duration,
        work: impl Fn(&Arc<Session>, Duration) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let until = Instant::now() + within;
        let all_lent = |state: &mut Free| state.idle.is_empty() && state.left == 0;
        let state = self.returned.wait_timeout_while(self.state(), within, all_lent);
        let (mut state, waited) = state.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return Err(Error::Silent(within));
        }
        let idle = state.idle.pop();
        state.left -= usize::from(idle.is_none());
        drop(state);
        let (result, session) = attempt(link, idle.filter(|session| link.is_usable(session)), until, work);
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
    until: Instant,
    work: impl Fn(&Arc<Session>, Duration) -> Result<T, Error>,
) -> (Result<T, Error>, Option<Arc<Session>>) {
    let left = || until.saturating_duration_since(Instant::now());
    if let Some(session) = idle {
        // It may have been forgotten on the way: then there is time for a new one.
        let result = work(&session, left() / 2);
        if session.is_open() || result.is_ok() {
            return (result, Some(session));
        }
    }
    match link.connect(left()) {
        Ok(session) => (work(&session, left()), Some(session)),
        Err(error) => (Err(error), None),
    }
}
