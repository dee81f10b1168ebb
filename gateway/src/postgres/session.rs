//! One client's session: bytes of both sides through a [`Conversation`], admission before statements, metering while
//! they run.
//!
//! One task, one poll function. Nothing waits for anything else: while a statement waits for admission the server's
//! side goes on, while a result is held back the client's side does.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate_cost_model::SqlDialect;
use tidegate_sql::{Answer, Statement};
use tokio::time::{Instant, Sleep};

use super::cancel::{self, Request};
use super::conversation::{Ask, Conversation, Event, Prepared, Step, Unit};
use super::frame::Broken;
use super::serve::Shared;
use super::{message, own};
use crate::buffer::{Inbox, Outbox};
use crate::clock;
use crate::govern::{Admission, Backend, Denied, Login, Progress, Running, Subject, Verdict, explained};
use crate::stream::Stream;

/// Between two looks at a statement that goes on.
const LOOK: Duration = Duration::from_millis(100);
/// Looks between two reads from the server for a statement that cools down.
const COOLDOWN: u32 = 10;
/// Looks between two requests to cancel the same statement.
const CANCEL_AGAIN: u32 = 10;

/// How a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed the connection or said that it would.
    Client,
    /// The server closed the connection.
    Server,
    /// The gateway is shutting down, or the login took too long.
    Told(&'static str, &'static str),
}

/// Why a session broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The client does not follow the protocol.
    #[error("the client broke the protocol: {0}")]
    Client(Broken),
    /// The server does not follow the protocol.
    #[error("the server broke the protocol: {0}")]
    Server(Broken),
    /// The client's connection.
    #[error("the client's connection failed: {0}")]
    ClientIo(io::Error),
    /// The server's connection.
    #[error("the server's connection failed: {0}")]
    ServerIo(io::Error),
}

type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What the client's side waits for.
enum Pending {
    /// Who pays.
    Subject(Later<Result<Subject, Denied>>),
    /// The statement at the front of the client's inbox.
    Admission { admission: Later<Result<Box<Running>, Denied>>, inner: Option<String> },
    /// An answer of the gateway itself.
    Own { answer: Later<Result<Answer, Denied>>, own: Own },
}

/// What an own answer is for.
#[derive(Clone)]
enum Own {
    Query,
    Describe { statement: Arc<Statement>, parameters: bool, formats: Arc<[bool]> },
    Run { formats: Arc<[bool]> },
}

/// See the module.
pub(super) struct Session {
    shared: Arc<Shared>,
    client: Stream,
    server: Stream,
    from_client: Inbox,
    to_client: Outbox,
    from_server: Inbox,
    to_server: Outbox,
    talk: Conversation<Box<Running>, Statement>,
    login: Login,
    subject: Option<Result<Subject, Denied>>,
    backend: Option<Backend>,
    pending: Option<Pending>,
    /// What a statement of ours gave when it was described, for its execution.
    described: Option<(Arc<Statement>, Answer)>,
    /// Asks the server to cancel what runs; the client's side waits for it, so that it hits nothing else.
    cancelling: Option<Later<io::Result<()>>>,
    wanted_cancel: Arc<Request>,
    tick: Pin<Box<Sleep>>,
    ticking: bool,
    /// Nothing is read from the server until the next look.
    holding: bool,
    looks: u32,
    closing: Later<()>,
    told_to_end: bool,
    login_ends: Option<Pin<Box<Sleep>>>,
}

impl Session {
    /// A session between these two; the startup packet is the first thing the server gets.
    pub(super) fn new(
        shared: Arc<Shared>,
        client: Stream,
        server: Stream,
        login: Login,
        startup: &[u8],
    ) -> Self {
        let mut to_server = Outbox::default();
        to_server.add(startup);
        let unknown = shared.governor.template(SqlDialect::PostgreSql, b"");
        let closing = shared.closing();
        let login_ends = clock::now().checked_add(shared.login_timeout);
        Self {
            client,
            server,
            from_client: Inbox::new(),
            to_client: Outbox::default(),
            from_server: Inbox::new(),
            to_server,
            talk: Conversation::new(unknown),
            login,
            subject: None,
            backend: None,
            pending: None,
            described: None,
            cancelling: None,
            wanted_cancel: Arc::default(),
            tick: Box::pin(tokio::time::sleep(Duration::ZERO)),
            ticking: false,
            holding: false,
            looks: 0,
            closing,
            told_to_end: false,
            login_ends: login_ends.map(|at| Box::pin(tokio::time::sleep_until(at))),
            shared,
        }
    }

    /// Runs to the end. What is under way then is cancelled and settled.
    pub(super) async fn run(mut self) -> Result<End, Fault> {
        let end = std::future::poll_fn(|cx| self.poll(cx)).await;
        if let Ok(End::Told(sqlstate, words)) = end {
            self.to_client.add(&message::fatal(sqlstate, words));
        }
        let _ =
            clock::within(LOOK, std::future::poll_fn(|cx| self.to_client.poll_write(cx, &mut self.client)))
                .await;
        self.finish().await;
        end
    }

    async fn finish(&mut self) {
        let key = self.talk.key();
        if let Some(key) = key {
            self.shared.cancels.leave(key);
        }
        let running = self.talk.current().is_some_and(|unit| unit.running.is_some());
        if running && let Some(key) = key {
            // The server notices that its client is gone when it writes, which may be hours away.
            let _ = cancel_upstream(Arc::clone(&self.shared), key).await;
        }
        let units: Vec<Unit<Box<Running>>> = self.talk.rest().collect();
        for unit in units {
            self.end(unit);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, Fault>> {
        loop {
            let mut moved = self.poll_timers(cx)?;
            if let Some(end) = self.poll_end(cx) {
                return Poll::Ready(Ok(end));
            }
            match self.poll_server(cx)? {
                Some(end) => return Poll::Ready(Ok(end)),
                None => moved |= self.poll_write(cx)?,
            }
            match self.poll_client(cx)? {
                Poll::Ready(Some(end)) => return Poll::Ready(Ok(end)),
                Poll::Ready(None) => moved = true,
                Poll::Pending => {}
            }
            moved |= self.poll_write(cx)?;
            if !moved {
                return Poll::Pending;
            }
        }
    }

    /// Sends what is to go out. True when an outbox that was full has room again.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, Fault> {
        let full = self.to_client.room() == 0 || self.to_server.room() == 0;
        if !self.to_client.is_empty()
            && let Poll::Ready(sent) = self.to_client.poll_write(cx, &mut self.client)
        {
            sent.map_err(Fault::ClientIo)?;
        }
        if !self.to_server.is_empty()
            && let Poll::Ready(sent) = self.to_server.poll_write(cx, &mut self.server)
        {
            // What the server said before it closed is still to be read, and tells more.
            if sent.is_err() {
                self.to_server = Outbox::default();
            }
        }
        Ok(full && self.to_client.room() > 0 && self.to_server.room() > 0)
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Option<End> {
        if let Some(timer) = &mut self.login_ends
            && timer.as_mut().poll(cx).is_ready()
        {
            return Some(End::Told("57014", "the login took too long"));
        }
        if !self.told_to_end && self.closing.as_mut().poll(cx).is_ready() {
            self.told_to_end = true;
        }
        // A statement that runs is waited for; whoever shuts down sets the limit.
        let idle = self.talk.is_quiet() && self.pending.is_none();
        (self.told_to_end && idle)
            .then_some(End::Told("57P01", "the gateway is shutting down; connect again"))
    }

    /// Takes what the server sent. `None` when there is nothing more now.
    fn poll_server(&mut self, cx: &mut Context<'_>) -> Result<Option<End>, Fault> {
        loop {
            let room = self.to_client.room();
            if room == 0 {
                return Ok(None);
            }
            let talked = self.talk.server(self.from_server.data(), self.to_client.vec(), room);
            let (used, event) = talked.map_err(Fault::Server)?;
            self.from_server.consume(used);
            match event {
                Some(Event::Ready) => self.logged_in(),
                Some(Event::Ended(unit)) => self.ended(unit),
                None if self.to_client.room() == 0 || self.holding => return Ok(None),
                None => match self.from_server.poll_read(cx, &mut self.server) {
                    Poll::Pending => return Ok(None),
                    Poll::Ready(Ok(0)) => return Ok(Some(End::Server)),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
                        return Ok(Some(End::Server));
                    }
                    Poll::Ready(Err(error)) => return Err(Fault::ServerIo(error)),
                },
            }
        }
    }

    fn logged_in(&mut self) {
        self.login_ends = None;
        if let Some(key) = self.talk.key() {
            self.shared.cancels.enter(key, &self.wanted_cancel);
            self.backend = Backend::postgres(key.0, self.server.local_port());
        }
        if self.backend.is_none() {
            tracing::debug!(
                user = self.login.user,
                "the server's counters cannot be read; costs are estimated"
            );
        }
        let (governor, login) = (Arc::clone(&self.shared.governor), self.login.clone());
        self.pending = Some(Pending::Subject(Box::pin(async move { governor.subject(login).await })));
    }

    /// A unit has ended, and its `ReadyForQuery` has not gone out yet.
    fn ended(&mut self, unit: Unit<Box<Running>>) {
        self.holding = false;
        self.looks = 0;
        let explains = unit.explained && !unit.failed;
        if let Some(ended) = self.end(unit)
            && explains
        {
            let table = explained(&ended);
            self.to_client.add(&message::row_description(&table.columns, &[]));
            self.to_client.add(&own::rows(&table, &[]));
        }
    }

    fn end(&mut self, unit: Unit<Box<Running>>) -> Option<crate::govern::Ended> {
        let running = unit.running?;
        let counted = self.backend.as_mut().map(Backend::take);
        Some(running.end(counted, unit.progress, unit.failed))
    }

    /// Looks at the statement that runs, when it is time, and cancels it when it must.
    fn poll_timers(&mut self, cx: &mut Context<'_>) -> Result<bool, Fault> {
        let mut moved = false;
        if let Some(request) = &mut self.cancelling
            && let Poll::Ready(done) = request.as_mut().poll(cx)
        {
            if let Err(error) = done {
                tracing::warn!(%error, "a runaway could not be cancelled; it is tried again");
            }
            self.cancelling = None;
            moved = true;
        }
        loop {
            let Some((running, _)) = self.running() else {
                return Ok(moved);
            };
            if !self.ticking {
                let next = clock::now().checked_add(LOOK).unwrap_or_else(clock::now);
                let next = running.map_or(next, |deadline| deadline.min(next));
                self.tick.as_mut().reset(next);
                self.ticking = true;
            }
            if self.tick.as_mut().poll(cx).is_pending() {
                return Ok(moved);
            }
            self.ticking = false;
            moved = true;
            self.look();
        }
    }

    /// The statement the server works on: when its rule ends it, and what is seen of it.
    fn running(&mut self) -> Option<(Option<Instant>, Progress)> {
        let unit = self.talk.current()?;
        Some((unit.running.as_ref()?.deadline(), unit.progress))
    }

    fn look(&mut self) {
        self.looks = self.looks.saturating_add(1);
        let counted = self.backend.as_mut().map(|backend| {
            backend.find_workers();
            backend.take()
        });
        let spared = self.talk.in_transaction() && self.shared.governor.owes_in_transactions();
        let looks = self.looks;
        let Some(unit) = self.talk.current() else { return };
        let progress = unit.progress;
        let Some(running) = &mut unit.running else { return };
        match running.look(counted, progress) {
            Verdict::Goes => self.holding = false,
            Verdict::Holds if running.cools_down() => self.holding = !looks.is_multiple_of(COOLDOWN),
            Verdict::Holds => self.holding = !spared,
            Verdict::Dies(denied) => {
                self.holding = false;
                self.talk.killed(message::error(&denied));
                self.cancel();
            }
        }
        if looks.is_multiple_of(CANCEL_AGAIN) && self.talk.is_killed() {
            self.cancel();
        }
    }

    fn cancel(&mut self) {
        if let (Some(key), None) = (self.talk.key(), &self.cancelling) {
            self.cancelling = Some(Box::pin(cancel_upstream(Arc::clone(&self.shared), key)));
        }
    }

    /// Takes what the client sent. Ready when something changed.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Result<Poll<Option<End>>, Fault> {
        if self.cancelling.is_some() {
            return Ok(Poll::Pending);
        }
        if self.pending.is_some() {
            return self.poll_pending(cx);
        }
        loop {
            if self.to_server.room() == 0 {
                return Ok(Poll::Pending);
            }
            let step = self.talk.client(self.from_client.data()).map_err(Fault::Client)?;
            match step {
                Step::Pass(count) => {
                    self.to_server.add(self.from_client.data().get(..count).unwrap_or_default());
                    self.from_client.consume(count);
                }
                Step::Drop(count) => self.from_client.consume(count),
                Step::Ask(ask) => {
                    if !self.decide(ask).map_err(Fault::Client)? {
                        return Ok(Poll::Pending);
                    }
                    return Ok(Poll::Ready(None));
                }
                Step::More(wanted) => {
                    if self.talk.take_flush() {
                        self.to_server.add(message::FLUSH);
                    }
                    self.from_client.reserve(wanted);
                    match self.from_client.poll_read(cx, &mut self.client) {
                        Poll::Pending => return Ok(Poll::Pending),
                        Poll::Ready(Ok(0)) => return Ok(Poll::Ready(Some(End::Client))),
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => return Err(Fault::ClientIo(error)),
                    }
                }
            }
        }
    }

    /// Waits for what the client's message depends on, and meanwhile for the client to go away.
    fn poll_pending(&mut self, cx: &mut Context<'_>) -> Result<Poll<Option<End>>, Fault> {
        let Some(pending) = &mut self.pending else { return Ok(Poll::Ready(None)) };
        let bytes = self.from_client.data();
        let done = match pending {
            Pending::Subject(subject) => match subject.as_mut().poll(cx) {
                Poll::Pending => None,
                Poll::Ready(subject) => {
                    self.subject = Some(subject);
                    Some(Ok(()))
                }
            },
            Pending::Admission { admission, inner } => {
                let answer = match admission.as_mut().poll(cx) {
                    Poll::Pending if self.wanted_cancel.poll(cx) => Some(Err(Denied::cancelled())),
                    Poll::Pending => None,
                    Poll::Ready(answer) => Some(answer),
                };
                match (answer, inner) {
                    (None, _) => None,
                    (Some(Ok(running)), None) => Some(self.talk.go(bytes, running)),
                    (Some(Ok(running)), Some(inner)) => {
                        let query = self.talk.explain(bytes, inner.as_bytes(), running);
                        Some(query.map(|query| self.to_server.add(&query)))
                    }
                    (Some(Err(denied)), _) => Some(deny(&mut self.talk, bytes, &denied)),
                }
            }
            Pending::Own { answer, own } => match answer.as_mut().poll(cx) {
                Poll::Pending => None,
                Poll::Ready(answer) => {
                    let own = own.clone();
                    Some(self.own_answer(answer, own))
                }
            },
        };
        if let Some(done) = done {
            self.pending = None;
            return done.map(|()| Poll::Ready(None)).map_err(Fault::Client);
        }
        if !self.from_client.is_full() {
            match self.from_client.poll_read(cx, &mut self.client) {
                Poll::Ready(Ok(0)) => return Ok(Poll::Ready(Some(End::Client))),
                Poll::Ready(Err(error)) => return Err(Fault::ClientIo(error)),
                Poll::Ready(Ok(_)) => return Ok(Poll::Ready(None)),
                Poll::Pending => {}
            }
        }
        Ok(Poll::Pending)
    }

    /// Decides what a message is, and what becomes of it. False when it cannot be decided yet.
    fn decide(&mut self, ask: Ask<Statement>) -> Result<bool, Broken> {
        let bytes = self.from_client.data();
        let subject = match &self.subject {
            Some(Ok(subject)) => subject,
            Some(Err(denied)) => {
                let denied = denied.clone();
                // The controller may be back with the next statement.
                self.subject = None;
                deny(&mut self.talk, bytes, &denied)?;
                return Ok(true);
            }
            None => {
                let (governor, login) = (Arc::clone(&self.shared.governor), self.login.clone());
                self.pending = Some(Pending::Subject(Box::pin(async move { governor.subject(login).await })));
                return Ok(true);
            }
        };
        let governor = &self.shared.governor;
        let (template, text, inner) = match ask {
            Ask::Query(place) => match parse_own(bytes.get(place.clone()).unwrap_or_default()) {
                Ok(None) => {
                    let text = bytes.get(place).unwrap_or_default();
                    (governor.template(SqlDialect::PostgreSql, text), text, None)
                }
                Ok(Some(Statement::ExplainRu(inner))) => {
                    (governor.template(SqlDialect::PostgreSql, inner.as_bytes()), &[][..], Some(inner))
                }
                Ok(Some(statement)) => {
                    self.ask_own(Arc::new(statement), Own::Query);
                    return Ok(true);
                }
                Err(denied) => {
                    deny(&mut self.talk, bytes, &denied)?;
                    return Ok(true);
                }
            },
            Ask::Parse(place) => {
                let text = bytes.get(place).unwrap_or_default();
                let prepared = match parse_own(text) {
                    Ok(None) => Prepared::Theirs(governor.template(SqlDialect::PostgreSql, text)),
                    Ok(Some(statement)) => Prepared::Ours(Arc::new(statement)),
                    Err(denied) => {
                        deny(&mut self.talk, bytes, &denied)?;
                        return Ok(true);
                    }
                };
                self.talk.prepare(bytes, prepared)?;
                return Ok(true);
            }
            Ask::Execute(template) => (template, &[][..], None),
            Ask::Describe { statement, parameters, formats } => {
                self.describe_own(statement, parameters, formats)?;
                return Ok(true);
            }
            Ask::Run { statement, formats } => {
                match self.described.take() {
                    Some((described, answer)) if Arc::ptr_eq(&described, &statement) => {
                        self.own_answer(Ok(answer), Own::Run { formats })?;
                    }
                    _ => self.ask_own(statement, Own::Run { formats }),
                }
                return Ok(true);
            }
        };
        let quiet = self.talk.is_quiet();
        let in_transaction = self.talk.in_transaction();
        match governor.admit(subject, &template, text, quiet && in_transaction) {
            Admission::Now(running) => match inner {
                None => self.talk.go(bytes, running)?,
                Some(inner) => {
                    let query = self.talk.explain(bytes, inner.as_bytes(), running)?;
                    self.to_server.add(&query);
                }
            },
            // What came before decides whether this is inside a transaction; it is asked again then.
            Admission::Wait(_) if !quiet => return Ok(false),
            Admission::Wait(admission) => {
                self.wanted_cancel.forget();
                self.pending = Some(Pending::Admission { admission, inner });
            }
            Admission::Denied(denied) => deny(&mut self.talk, bytes, &denied)?,
        }
        Ok(true)
    }

    fn ask_own(&mut self, statement: Arc<Statement>, own: Own) {
        if let Some(Ok(subject)) = &self.subject {
            let governor = Arc::clone(&self.shared.governor);
            let answer = governor.answer(subject.clone(), SqlDialect::PostgreSql, statement);
            self.pending = Some(Pending::Own { answer: Box::pin(answer), own });
        }
    }

    /// Only what gives rows has to run to tell its columns.
    fn describe_own(
        &mut self,
        statement: Arc<Statement>,
        parameters: bool,
        formats: Arc<[bool]>,
    ) -> Result<(), Broken> {
        if own::gives_rows(&statement) {
            let own = Own::Describe { statement: Arc::clone(&statement), parameters, formats };
            self.ask_own(statement, own);
            return Ok(());
        }
        self.talk.replace(self.from_client.data(), own::described(None, parameters, &formats))
    }

    /// What the gateway itself answers has come.
    fn own_answer(&mut self, answer: Result<Answer, Denied>, own: Own) -> Result<(), Broken> {
        let bytes = self.from_client.data();
        let answer = match answer {
            Ok(answer) => answer,
            Err(denied) => return deny(&mut self.talk, bytes, &denied),
        };
        if let (Answer::Session(change), Some(Ok(subject))) = (&answer, &mut self.subject) {
            self.shared.governor.apply(change, subject);
        }
        let tag = if matches!(answer, Answer::Session(_)) { "SET" } else { "RESOURCE GROUP" };
        match own {
            Own::Query => self.talk.answer(bytes, own::simple(&answer, tag)),
            Own::Run { formats } => self.talk.replace(bytes, own::executed(&answer, tag, &formats)),
            Own::Describe { statement, parameters, formats } => {
                let table = match &answer {
                    Answer::Table(table) => Some(table),
                    _ => None,
                };
                self.talk.replace(bytes, own::described(table, parameters, &formats))?;
                self.described = Some((statement, answer));
                Ok(())
            }
        }
    }
}

/// A statement of ours, if the text is one.
fn parse_own(text: &[u8]) -> Result<Option<Statement>, Denied> {
    if !tidegate_sql::may_be_ours(text) {
        return Ok(None);
    }
    // Ours are UTF-8; what is not goes to the database, which knows its encoding.
    let Ok(text) = std::str::from_utf8(text) else { return Ok(None) };
    Ok(Statement::parse(text, SqlDialect::PostgreSql)?)
}

/// The statement at the front of the client's inbox fails with this.
fn deny(
    talk: &mut Conversation<Box<Running>, Statement>,
    bytes: &[u8],
    denied: &Denied,
) -> Result<(), Broken> {
    let error = message::error(denied);
    match bytes.first() {
        Some(b'Q' | b'F') => talk.answer(bytes, error),
        _ => talk.refuse(bytes, error),
    }
}

/// Asks the server, over a connection of its own, to cancel what this session's process does.
async fn cancel_upstream(shared: Arc<Shared>, key: (u32, u32)) -> io::Result<()> {
    let stream = shared.connect().await?;
    cancel::send(stream, &cancel::packet(key)).await
}
