//! One client's session: bytes of both sides through a [`Machine`], admission before statements, metering while they
//! run.
//!
//! One task, one poll function. Nothing waits for anything else: while a statement waits for admission the server's
//! side goes on, while a result is held back the client's side does.

mod judging;
mod watching;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_client::Group;
use tidegate_sql::Answer as Own;

use super::answer::{Answer, Refusal};
use super::asked::{Asked, Remembered};
use super::control::ControlError;
use super::fault::Fault;
use super::machine::{INPUT_LIMIT, Machine};
use super::opening::Opened;
use super::serve::Shared;
use super::step::{self, Bytes, Event, Side, StatementEnds, Step};
use super::warnings::Warnings;
use crate::govern::{Backend, Denied, Login, Progress, Running, Subject, explained};
use crate::seats::Seat;
use crate::session::{Ends, Later, Link, LinkError, Over, Pace, Read};

/// How a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed the connection or said that it would.
    Client,
    /// The server closed the connection.
    Server,
    /// The client gets the reason.
    Told(Refusal),
    /// The client of a runaway that the server does not kill gets the reason, too.
    Runaway(Refusal),
}

/// Why a session broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// Either side does not follow the protocol.
    #[error(transparent)]
    Protocol(#[from] Fault),
    /// A connection failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// What the client's side waits for.
enum Pending {
    /// The group that pays, for the login or for a statement.
    Subject(Later<Result<Subject, Denied>>, Option<Asked>),
    Admission(Later<Result<Box<Running>, Denied>>, Asked),
    /// An answer of the gateway itself.
    Own(Later<Result<Own, Denied>>),
    /// The responses to what came before decide whether the statement is inside a transaction.
    Quiet(Asked),
}

/// A statement that was admitted.
struct Admitted {
    number: u64,
    running: Box<Running>,
    explains: bool,
    killed: Option<Killed>,
}

/// A statement whose response has come to its end.
struct Answered {
    running: Box<Running>,
    progress: Progress,
    failed: bool,
}

/// A statement that the server is to interrupt.
struct Killed {
    /// The error for its client.
    refusal: Refusal,
    /// How often it was asked to.
    asked: u32,
}

/// A MySQL client's session.
pub(super) struct Session {
    shared: Arc<Shared>,
    link: Link,
    /// Where it comes from.
    client: IpAddr,
    machine: Machine<Remembered>,
    /// Admitted statements in the order in which the server gets them.
    admitted: VecDeque<Admitted>,
    /// Its response goes out first, and then it is counted: the client need not wait for that.
    answered: Option<Answered>,
    login: Login,
    /// The server's number of the connection; zero before the login.
    connection: u32,
    subject: Option<Result<Subject, Denied>>,
    /// The group chosen by `SET RESOURCE GROUP`; outlives a change of the database.
    chosen: Option<Group>,
    backend: Option<Backend>,
    finding: Option<Later<Option<Backend>>>,
    pending: Option<Pending>,
    /// Has the server interrupt what runs; the client's side waits for it, so that it hits nothing else.
    killing: Option<Later<Result<(), ControlError>>>,
    pace: Pace,
    ends: Ends,
    must_end: Option<Refusal>,
    /// The diagnostics of the last statement, where the gateway answered it.
    warnings: Option<Warnings>,
    /// The client is gone already.
    dismissed: bool,
}

impl Session {
    /// The rest of a connection whose login is on its way.
    pub(super) fn new(shared: Arc<Shared>, (opened, client): (Opened, IpAddr), seat: Arc<Seat>) -> Self {
        Self {
            link: opened.link,
            client,
            machine: opened.machine,
            admitted: VecDeque::new(),
            answered: None,
            login: Login::default(),
            connection: 0,
            subject: None,
            chosen: None,
            backend: None,
            finding: None,
            pending: None,
            killing: None,
            pace: Pace::new(),
            ends: Ends::new(&shared.listening, seat),
            must_end: None,
            warnings: None,
            dismissed: false,
            shared,
        }
    }

    /// Runs to the end. A statement that is under way then is killed and settled.
    pub(super) async fn run(&mut self) -> Result<End, Broken> {
        let end = std::future::poll_fn(|cx| self.poll(cx)).await;
        let told = match &end {
            Ok(End::Told(refusal) | End::Runaway(refusal)) => Some(refusal.clone()),
            Err(Broken::Protocol(fault)) => Some(Refusal::from(fault)),
            _ => None,
        };
        if let Some(packet) = told.and_then(|refusal| self.machine.farewell(&refusal)) {
            self.link.to_client.add(&packet);
        }
        if matches!(end, Ok(End::Runaway(_))) {
            self.dismissed = true;
            self.link.dismiss_client().await;
            // A statement that the server goes on with is charged until it ends.
            std::future::poll_fn(|cx| self.poll_dismissed(cx)).await;
        }
        self.link.last_words(matches!(end, Ok(End::Server))).await;
        self.finish(matches!(end, Ok(End::Server))).await;
        end
    }

    /// Ready when the server has come to the end, or is gone.
    fn poll_dismissed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let goes_on = matches!(self.poll_server(cx), Ok(None)) && !self.machine.awaits_nothing();
            self.link.poll_dismissed(cx);
            self.count_answered();
            if !goes_on {
                return Poll::Ready(());
            }
            if !self.poll_watch(cx) {
                return Poll::Pending;
            }
        }
    }

    async fn finish(&mut self, server_is_gone: bool) {
        if !(self.admitted.is_empty() || server_is_gone)
            && let Some(control) = &self.shared.control
            // The server notices that its client is gone when it writes, which may be hours away.
            && let Err(error) = control.kill_query(self.connection).await
        {
            tracing::warn!(%error, "a statement whose client is gone could not be killed");
        }
        self.count_answered();
        for ends in self.machine.abandon() {
            self.answered = self.take_ended(&ends);
            self.count_answered();
        }
        self.admitted.clear();
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, Broken>> {
        loop {
            let mut moved = match self.poll_server(cx)? {
                Some(end) => return Poll::Ready(Ok(end)),
                None => self.link.poll_write(cx)?,
            };
            self.count_answered();
            match self.poll_client(cx)? {
                Poll::Ready(Some(end)) => return Poll::Ready(Ok(end)),
                Poll::Ready(None) => moved = true,
                Poll::Pending => {}
            }
            moved |= self.link.poll_write(cx)?;
            // Behind the client's side, which may have begun a statement.
            moved |= self.poll_watch(cx);
            if let Some(end) = self.poll_end(cx) {
                return Poll::Ready(Ok(end));
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Option<End> {
        if let Some(refusal) = self.must_end.take() {
            return Some(End::Runaway(refusal));
        }
        let idle = self.machine.is_idle() && self.pending.is_none();
        let over = self.ends.poll(cx, idle)?;
        // ER_NET_READ_INTERRUPTED, ER_SERVER_SHUTDOWN
        let code = match over {
            Over::Login => 1159,
            Over::Closing => 1053,
        };
        Some(End::Told(Refusal { code, state: *b"08S01", message: over.words().to_owned() }))
    }

    /// Takes what the server sent. `None` when there is nothing more now.
    fn poll_server(&mut self, cx: &mut Context<'_>) -> Result<Option<End>, Broken> {
        loop {
            if self.link.to_client.room() == 0 {
                return Ok(None);
            }
            match self.machine.server(self.link.from_server.data())? {
                Step::More | Step::Wait if self.pace.holds() => return Ok(None),
                Step::More | Step::Wait => {
                    self.link.from_server.reserve(1 + self.link.from_server.data().len().min(INPUT_LIMIT));
                    match self.link.poll_server(cx)? {
                        Poll::Pending => return Ok(None),
                        Poll::Ready(Read::Closed) => return Ok(Some(End::Server)),
                        Poll::Ready(Read::More) => {}
                    }
                }
                Step::Pass(count) => {
                    self.link.to_client.add(self.link.from_server.data().get(..count).unwrap_or_default());
                    self.link.from_server.consume(count);
                }
                Step::Skip(count) => self.link.from_server.consume(count),
                Step::Swap(count, Bytes(bytes)) => {
                    self.link.to_client.add(&bytes);
                    self.link.from_server.consume(count);
                }
                Step::Send(side, Bytes(bytes)) => self.send(side, &bytes),
                Step::Tell(event) => self.told(event),
                // Neither comes of what a server says after the greeting.
                Step::StartTls(_) | Step::Ask(_) => {}
            }
        }
    }

    fn send(&mut self, side: Side, bytes: &[u8]) {
        match side {
            Side::Client => self.link.to_client.add(bytes),
            Side::Server => self.link.to_server.add(bytes),
        }
    }

    fn told(&mut self, event: Event) {
        match event {
            Event::Login(login) => {
                self.ends.logged_in();
                self.connection = login.thread_id;
                self.find_backend(&login);
                self.logged_in(login);
            }
            Event::UserChanged(login) => self.logged_in(login),
            Event::StatementEnds(ends) => self.ended(&ends),
            Event::SessionReset => {
                self.chosen = None;
                self.look_up(None);
            }
            // The database is the tenant: its group pays from the next statement on.
            Event::DatabaseChanged { database } => {
                self.login.tenant = database;
                self.look_up(None);
            }
        }
    }

    fn logged_in(&mut self, login: step::Login) {
        self.login = Login {
            tenant: login.database.unwrap_or_default(),
            user: login.user,
            application: login.program_name.unwrap_or_default(),
        };
        (self.chosen, self.warnings) = (None, None);
        self.look_up(None);
    }

    /// A response has ended, and its last packet has gone to the outbox, unless it explains the statement.
    fn ended(&mut self, ends: &StatementEnds) {
        self.count_answered();
        self.pace.ended();
        let explains = self.admitted.front().is_some_and(|admitted| admitted.explains);
        // The gateway, not the server, says why it was interrupted.
        if let Some(Killed { refusal, .. }) = self.admitted.front().and_then(|first| first.killed.as_ref())
            && ends.error == Some(refusal.code)
        {
            self.warnings = Some(Warnings::of_error(refusal));
        }
        self.answered = self.take_ended(ends);
        if self.answered.is_none() && ends.error.is_some() {
            // A question about warnings that the server does not prepare, as MySQL does none, leaves its error.
            self.warnings = None;
        }
        if explains && let Some(ended) = self.count_answered() {
            self.machine.explain(&Answer::Rows(explained(&ended)));
        }
    }

    fn take_ended(&mut self, ends: &StatementEnds) -> Option<Answered> {
        if self.admitted.front()?.number != ends.number {
            return None;
        }
        let running = self.admitted.pop_front()?.running;
        let progress = Progress {
            sent_rows: ends.rows,
            changed_rows: ends.affected,
            bytes_in: ends.request_bytes,
            bytes_out: ends.response_bytes,
        };
        Some(Answered { running, progress, failed: ends.error.is_some() || !ends.complete })
    }

    fn count_answered(&mut self) -> Option<crate::govern::Ended> {
        let Answered { running, progress, failed } = self.answered.take()?;
        let work = running.work(progress);
        let goes_on = self.machine.in_transaction();
        let counted = self.backend.as_mut().map(|backend| backend.end(&work, goes_on));
        Some(running.end(counted, progress, failed))
    }

    /// Takes what the client sent. Ready when something changed.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Result<Poll<Option<End>>, Broken> {
        if self.killing.is_some() {
            return Ok(Poll::Pending);
        }
        if self.pending.is_some() {
            return self.poll_pending(cx);
        }
        loop {
            if self.link.to_server.room() == 0 || self.link.to_client.room() == 0 {
                return Ok(Poll::Pending);
            }
            match self.machine.client(self.link.from_client.data())? {
                Step::Wait if self.link.from_client.is_full() => return Ok(Poll::Pending),
                Step::More | Step::Wait => {
                    let held = self.link.from_client.data().len();
                    self.link.from_client.reserve(1 + held.min(INPUT_LIMIT));
                    match self.link.poll_client(cx)? {
                        Poll::Pending => return Ok(Poll::Pending),
                        Poll::Ready(Read::Closed) => return Ok(Poll::Ready(Some(End::Client))),
                        Poll::Ready(Read::More) => {}
                    }
                }
                Step::Pass(count) => {
                    self.link.to_server.add(self.link.from_client.data().get(..count).unwrap_or_default());
                    self.link.from_client.consume(count);
                }
                Step::Skip(count) => self.link.from_client.consume(count),
                Step::Swap(count, Bytes(bytes)) => {
                    self.link.to_server.add(&bytes);
                    self.link.from_client.consume(count);
                }
                Step::Send(side, Bytes(bytes)) => self.send(side, &bytes),
                Step::Tell(event) => {
                    self.told(event);
                    return Ok(Poll::Ready(None));
                }
                Step::Ask(statement) => {
                    let asked = Asked::of(&self.shared.listening.governor, &statement);
                    let before = self.admitted.len();
                    self.judge(asked)?;
                    if self.admitted.len() == before {
                        return Ok(Poll::Ready(None));
                    }
                }
                Step::StartTls(_) => {}
            }
        }
    }
}
