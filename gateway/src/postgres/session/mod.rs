//! One client's session: bytes of both sides through a [`Conversation`], admission before statements, metering while
//! they run.
//!
//! One task, one poll function. Nothing waits for anything else: while a statement waits for admission the server's
//! side goes on, while a result is held back the client's side does.

mod deciding;
mod watching;

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_cost_model::SqlDialect;
use tidegate_sql::{Answer, Statement};

use self::deciding::Pending;
use super::cancel::Request;
use super::conversation::{Conversation, Event, Explained, Step, Unit};
use super::frame::Broken;
use super::message;
use super::own;
use super::reset::{Reset, has_reset_all};
use super::serve::Shared;
use crate::govern::{Backend, Denied, Login, Running, Subject, explained};
use crate::seats::Seat;
use crate::session::{Ends, Later, Link, LinkError, Over, Pace, Read};
use crate::stream::Stream;

/// How a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed the connection or said that it would.
    Client,
    /// The server closed the connection.
    Server,
    /// The client gets the reason.
    Told(Over),
    /// The client of a runaway that survives being cancelled gets the reason, too.
    Runaway,
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
    /// A connection failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A runaway that the server is asked to cancel.
struct Killed {
    /// The error for its client.
    denied: Denied,
    /// How often the server was asked.
    cancels: u32,
}

type Talk = Conversation<Box<Running>, Statement>;

/// A PostgreSQL client's session.
pub(super) struct Session {
    shared: Arc<Shared>,
    link: Link,
    talk: Talk,
    login: Login,
    subject: Option<Result<Subject, Denied>>,
    backend: Option<Backend>,
    pending: Option<Pending>,
    /// Its answer goes out first, and then it is counted: the client need not wait for that.
    answered: Option<Unit<Box<Running>>>,
    /// The answer to a statement of ours when it was described, kept for its execution.
    described: Option<(Arc<Statement>, Answer)>,
    /// Asks the server to cancel what runs; the client's side waits for it, so that it hits nothing else.
    cancelling: Option<Later<io::Result<()>>>,
    /// The statement that the server is at is to end.
    killed: Option<Killed>,
    /// It does not, and its session ends in its place.
    must_end: bool,
    /// The client is gone already.
    dismissed: bool,
    wanted_cancel: Arc<Request>,
    pace: Pace,
    ends: Ends,
}

impl Session {
    /// A session between these two; the startup packet is the first thing the server gets.
    pub(super) fn new(
        shared: Arc<Shared>,
        (client, server): (Stream, Stream),
        login: Login,
        startup: &[u8],
        seat: Arc<Seat>,
    ) -> Self {
        let unbound = server.is_secure() && !client.is_secure();
        let mut link = Link::new(client, server, shared.listening.kills_abandoned);
        link.to_server.add(startup);
        let unknown = shared.listening.governor.known(SqlDialect::PostgreSql, b"", false);
        let mut talk = Conversation::new(unknown);
        if unbound {
            talk.offers_no_binding();
        }
        Self {
            link,
            talk,
            login,
            subject: None,
            backend: None,
            pending: None,
            answered: None,
            described: None,
            cancelling: None,
            killed: None,
            must_end: false,
            dismissed: false,
            wanted_cancel: Arc::default(),
            pace: Pace::new(),
            ends: Ends::new(&shared.listening, seat),
            shared,
        }
    }

    /// Runs to the end. A statement that is under way then is cancelled and settled.
    pub(super) async fn run(&mut self) -> Result<End, Fault> {
        let end = std::future::poll_fn(|cx| self.poll(cx)).await;
        if let Ok(End::Told(over)) = end {
            let sqlstate = match over {
                Over::Login => "57014",
                Over::Closing => "57P01",
            };
            self.link.to_client.add(&message::fatal(sqlstate, over.words()));
        }
        if matches!(end, Ok(End::Runaway)) {
            self.dismiss().await;
        }
        self.link.last_words(matches!(end, Ok(End::Server))).await;
        self.finish().await;
        end
    }

    /// Sends the client of a runaway away. The statement is charged, and the server asked to end it, until it ends.
    async fn dismiss(&mut self) {
        if let Some(killed) = self.killed.as_ref().filter(|_| self.talk.is_between_messages()) {
            let told = message::fatal(killed.denied.code.postgres_state, &killed.denied.message);
            self.link.to_client.add(&told);
        }
        self.dismissed = true;
        self.link.dismiss_client().await;
        std::future::poll_fn(|cx| self.poll_dismissed(cx)).await;
    }

    /// Ready when the server has come to the end, or is gone.
    fn poll_dismissed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let goes_on = matches!(self.poll_server(cx), Ok(None)) && !self.talk.is_quiet();
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

    async fn finish(&mut self) {
        let key = self.talk.key().cloned();
        if let Some(key) = &key {
            self.shared.cancels.leave(key);
        }
        let running = self.talk.current().is_some_and(|unit| unit.running.is_some());
        if running
            && let Some(key) = key
            // The server notices that its client is gone when it writes, which may be hours away.
            && let Err(error) = Arc::clone(&self.shared).cancel(key).await
        {
            tracing::warn!(%error, "a statement whose client is gone could not be cancelled");
        }
        self.count_answered();
        let units: Vec<Unit<Box<Running>>> = self.talk.rest().collect();
        for unit in units {
            self.end(unit);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<End, Fault>> {
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
            if self.must_end {
                return Poll::Ready(Ok(End::Runaway));
            }
            let idle = self.talk.is_quiet() && self.pending.is_none();
            if let Some(over) = self.ends.poll(cx, idle) {
                return Poll::Ready(Ok(End::Told(over)));
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    /// Takes what the server sent. `None` when there is nothing more now.
    fn poll_server(&mut self, cx: &mut Context<'_>) -> Result<Option<End>, Fault> {
        loop {
            let room = self.link.to_client.room();
            if room == 0 {
                return Ok(None);
            }
            let talked = self.talk.server(self.link.from_server.data(), self.link.to_client.vec(), room);
            let (used, event) = talked.map_err(Fault::Server)?;
            self.link.from_server.consume(used);
            match event {
                Some(Event::Ready) => self.logged_in(),
                Some(Event::Ended(unit)) => self.ended(unit),
                Some(Event::Costs(formats)) => self.tell_costs(&formats),
                None if self.link.to_client.room() == 0 || self.pace.holds() => return Ok(None),
                None => match self.link.poll_server(cx)? {
                    Poll::Pending => return Ok(None),
                    Poll::Ready(Read::Closed) => return Ok(Some(End::Server)),
                    Poll::Ready(Read::More) => {}
                },
            }
        }
    }

    fn logged_in(&mut self) {
        self.ends.logged_in();
        if let Some(key) = self.talk.key() {
            self.shared.cancels.enter(key.clone(), &self.wanted_cancel);
            let unowned = &self.shared.listening.unowned;
            self.backend = Backend::postgres(key.pid(), self.link.server_proof(), unowned);
        }
        if self.backend.is_none() {
            tracing::debug!(
                user = self.login.user,
                "the server's counters cannot be read; costs are estimated"
            );
        }
        self.look_up();
    }

    /// A unit has ended, and its `ReadyForQuery` has not gone out yet.
    fn ended(&mut self, unit: Unit<Box<Running>>) {
        self.count_answered();
        self.pace.ended();
        self.killed = None;
        self.reset(&unit);
        let Some(explains) = unit.explained.clone().filter(|_| !unit.failed) else {
            self.answered = Some(unit);
            return;
        };
        if let Some(ended) = self.end(unit) {
            let table = explained(&ended);
            let reply = match explains {
                Explained::Table => own::table(&table),
                Explained::Rows(formats) => own::rows(&table, &formats),
            };
            self.link.to_client.add(&reply);
        }
    }

    fn count_answered(&mut self) {
        if let Some(unit) = self.answered.take() {
            self.end(unit);
        }
    }

    /// Gives up what the session has chosen, if a unit that has ended gave up its settings.
    fn reset(&mut self, unit: &Unit<Box<Running>>) {
        let resets = match unit.reset.filter(|_| !unit.failed) {
            None => false,
            Some(Reset::All) => true,
            Some(Reset::Some) => {
                let template = unit.running.as_ref().map(|running| running.template().text());
                unit.runs_reset || template.is_some_and(has_reset_all)
            }
        };
        if resets && let Some(Ok(subject)) = &mut self.subject {
            subject.chosen = None;
        }
    }

    /// A statement that is explained has run, and more of its unit follows.
    fn tell_costs(&mut self, formats: &[bool]) {
        self.count_answered();
        let Some(unit) = self.talk.current() else { return };
        let progress = unit.progress;
        let Some(running) = &mut unit.running else { return };
        let counted = self.backend.as_mut().map(|backend| backend.take(&running.work(progress)));
        let table = explained(&running.so_far(counted, progress));
        self.link.to_client.add(&own::rows(&table, formats));
    }

    fn end(&mut self, unit: Unit<Box<Running>>) -> Option<crate::govern::Ended> {
        let running = unit.running?;
        let work = running.work(unit.progress);
        let goes_on = self.talk.in_transaction();
        let counted = self.backend.as_mut().map(|backend| backend.end(&work, goes_on));
        Some(running.end(counted, unit.progress, unit.failed))
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
            if self.link.to_server.room() == 0 {
                return Ok(Poll::Pending);
            }
            let step = self.talk.client(self.link.from_client.data()).map_err(Fault::Client)?;
            match step {
                Step::Pass(count) => {
                    self.link.to_server.add(self.link.from_client.data().get(..count).unwrap_or_default());
                    self.link.from_client.consume(count);
                }
                Step::Drop(count) => self.link.from_client.consume(count),
                Step::Send(bytes) => self.link.to_server.add(&bytes),
                Step::Ask(ask) => {
                    if !self.decide(ask).map_err(Fault::Client)? {
                        return Ok(Poll::Pending);
                    }
                    if self.pending.is_some() || self.talk.has_answer() {
                        return Ok(Poll::Ready(None));
                    }
                }
                Step::More(wanted) => {
                    if self.talk.take_flush() {
                        self.link.to_server.add(message::FLUSH);
                    }
                    self.link.from_client.reserve(wanted);
                    match self.link.poll_client(cx)? {
                        Poll::Pending => return Ok(Poll::Pending),
                        Poll::Ready(Read::Closed) => return Ok(Poll::Ready(Some(End::Client))),
                        Poll::Ready(Read::More) => {}
                    }
                }
            }
        }
    }
}
