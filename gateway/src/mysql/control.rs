//! The gateway's own connections to a server: they kill statements, and find out which thread serves a connection.
//!
//! Logged in as the user of the upstream's URL, who needs `CONNECTION ADMIN` to kill others' statements and `PROCESS` to
//! see their threads (MySQL: `CONNECTION_ADMIN`, and to read two columns of `performance_schema.threads`). Opened when
//! first needed, at most [`MAX_CONNECTIONS`], and kept for [`KEPT`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Pool, PoolConstraints, PoolOpts, SslOpts};
use tidegate_tls::{Trust, Trusted};

use super::bunch::{Bunch, Turn};
use super::thread::Home;
use crate::clock;
use crate::keepalive::Keepalive;
use crate::upstream::{Place, TlsMode, Upstream};

/// Connections at once; each takes one of the server's.
const MAX_CONNECTIONS: usize = 4;
/// How long one is kept without use: logins come in bunches, and each would open one again. Half of it does so for an
/// application that opens sessions every few seconds; twice it holds a place at the server for longer.
const KEPT: Duration = Duration::from_secs(30);
const KEPT_CHECK: Duration = Duration::from_secs(5);
/// After a question about threads the server rests for so many times the time that the question took: MariaDB goes
/// through all sessions for it, and while 500 log in one question after the other would take a core of the server's
/// from them. With half of it a third of a core; twice of it holds the figures of a first statement back for longer.
const REST: u32 = 3;
/// The longest time of a question that counts for that. It is what an answer for 1,000 sessions takes on a busy server;
/// with twice of it, a server that hung once would rest for longer than a client logs in.
const LONGEST: Duration = Duration::from_millis(50);
/// Longest wait for an answer, the connection included.
const PATIENCE: Duration = Duration::from_secs(5);
/// The statement had ended, and its connection too (`ER_NO_SUCH_THREAD`).
const NO_SUCH_THREAD: u16 = 1094;

/// Why the server did not do it.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlError {
    /// An error of the server's or of the connection.
    #[error(
        "the gateway's own connection failed: {0}; check user, password and privileges of the upstream URL"
    )]
    Server(#[from] Error),
    /// No answer.
    #[error("the gateway's own connection got no answer within {PATIENCE:?}; the server is busy or away")]
    Silent,
}

/// What a server says of the thread behind a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Thread {
    /// As the kernel of the server's machine numbers it.
    pub(super) tid: u32,
    /// The name of the server's machine.
    pub(super) host: String,
}

/// What was found out about the thread of a connection.
type Found = Result<Option<Thread>, Arc<ControlError>>;

/// The gateway's own connections to one server.
pub(crate) struct Control {
    opts: OptsBuilder,
    mode: TlsMode,
    trust: Option<Arc<Trust>>,
    pool: Mutex<Trusting>,
    threads: Arc<Bunch<Found>>,
    home: Home,
}

/// Connections, and the authorities that they were opened by.
struct Trusting {
    pool: Pool,
    trusted: Option<Arc<Trusted>>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl Control {
    /// Connections to `upstream`, if its URL names a user.
    pub(crate) fn new(upstream: &Upstream, trust: Option<Arc<Trust>>, keepalive: Keepalive) -> Option<Self> {
        if upstream.user.is_empty() {
            return None;
        }
        // They leave nothing behind in a session that another would have to be rid of.
        let pool = PoolOpts::default()
            .with_constraints(PoolConstraints::new(0, MAX_CONNECTIONS)?)
            .with_inactive_connection_ttl(KEPT)
            .with_ttl_check_interval(KEPT_CHECK)
            .with_reset_connection(false);
        let opts = OptsBuilder::default()
            .user(Some(&upstream.user))
            .pass(Some(&*upstream.password))
            .prefer_socket(false)
            .stmt_cache_size(0)
            .tcp_keepalive(Some(keepalive.silence()))
            .pool_opts(pool);
        let opts = match &upstream.place {
            Place::Tcp { host, port } => opts.ip_or_hostname(host.clone()).tcp_port(*port),
            Place::Unix(path) => opts.socket(path.to_str()),
        };
        let trusted = trust.as_deref().map(Trust::in_force);
        let pool = Mutex::new(Trusting::new(&opts, upstream.tls, trusted));
        let (threads, home) = (Arc::default(), Home::default());
        Some(Self { opts, mode: upstream.tls, trust, pool, threads, home })
    }

    /// Connections by the authorities that are in force; those of former ones end with their questions.
    fn pool(&self) -> Pool {
        let trusted = self.trust.as_deref().map(Trust::in_force);
        let mut kept = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if trusted.as_ref().map(Arc::as_ptr) != kept.trusted.as_ref().map(Arc::as_ptr) {
            *kept = Trusting::new(&self.opts, self.mode, trusted);
        }
        kept.pool.clone()
    }

    /// The server's process, as far as it is on this machine.
    pub(super) fn home(&self) -> &Home {
        &self.home
    }

    /// Interrupts the statement that this connection runs.
    pub(super) async fn kill_query(&self, connection: u32) -> Result<(), ControlError> {
        let pool = self.pool();
        let killed = ask(&pool, move |mut server| async move {
            server.query_drop(format!("KILL QUERY {connection}")).await
        });
        match killed.await {
            Err(ControlError::Server(Error::Server(error))) if error.code == NO_SUCH_THREAD => Ok(()),
            done => done,
        }
    }

    /// The thread that serves this connection, if the server gives each its own.
    pub(super) async fn thread(
        &self,
        connection: u32,
        is_mariadb: bool,
    ) -> Result<Option<Thread>, Arc<ControlError>> {
        let (told, turn) = self.threads.join(connection);
        if let Some(turn) = turn {
            tokio::spawn(find(self.pool(), turn, is_mariadb));
        }
        told.await.unwrap_or_else(|_| Err(Arc::new(ControlError::Silent)))
    }
}

/// Asks for the threads of all connections that wait for theirs.
async fn find(pool: Pool, mut turn: Turn<Found>, is_mariadb: bool) {
    let (id, column, table) = if is_mariadb {
        ("ID", "TID", "information_schema.PROCESSLIST")
    } else {
        ("PROCESSLIST_ID", "THREAD_OS_ID", "performance_schema.threads")
    };
    while let Some(asked) = turn.next() {
        let began = clock::now();
        let ids: Vec<String> = asked.iter().map(|(connection, _)| connection.to_string()).collect();
        let query =
            format!("SELECT {id}, {column}, @@hostname FROM {table} WHERE {id} IN ({})", ids.join(", "));
        let rows =
            ask(
                &pool,
                |mut server| async move { server.query::<(u32, Option<u32>, String), _>(query).await },
            );
        let threads = rows.await.map_err(Arc::new).map(|rows| {
            let thread = |(id, tid, host): (u32, Option<u32>, String)| Some((id, Thread { tid: tid?, host }));
            rows.into_iter().filter_map(thread).collect::<BTreeMap<_, _>>()
        });
        for (connection, tell) in asked {
            // A session that is gone meanwhile needs no answer.
            drop(tell.send(match &threads {
                Ok(threads) => Ok(threads.get(&connection).cloned()),
                Err(error) => Err(Arc::clone(error)),
            }));
        }
        // Those who come meanwhile are asked for together, then.
        tokio::time::sleep(began.elapsed().min(LONGEST) * REST).await;
    }
}

/// Asks on one of the connections, in a task that ends with the answer and not with who asked: a connection that is
/// dropped in the middle of a question, as by a session that ends meanwhile, is lost, and the next one logs in.
async fn ask<T, F>(pool: &Pool, question: impl FnOnce(Conn) -> F + Send + 'static) -> Result<T, ControlError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, Error>> + Send,
{
    let pool = pool.clone();
    let asked = async move { question(pool.get_conn().await?).await };
    let answer = tokio::spawn(clock::within(PATIENCE, asked)).await;
    // Only a runtime that shuts down ends the task before.
    Ok(answer.ok().flatten().ok_or(ControlError::Silent)??)
}

impl Trusting {
    fn new(opts: &OptsBuilder, mode: TlsMode, trusted: Option<Arc<Trusted>>) -> Self {
        let opts = opts.clone().ssl_opts(tls(mode, trusted.as_deref()));
        Self { pool: Pool::new(Opts::from(opts)), trusted }
    }
}

fn tls(mode: TlsMode, trusted: Option<&Trusted>) -> Option<SslOpts> {
    let opts = SslOpts::default();
    match mode {
        TlsMode::Disable => None,
        TlsMode::Require => {
            Some(opts.with_danger_accept_invalid_certs(true).with_danger_skip_domain_validation(true))
        }
        TlsMode::VerifyFull => {
            let roots = trusted.map(|trusted| trusted.pem.clone().into()).into_iter().collect();
            Some(opts.with_root_certs(roots))
        }
    }
}
