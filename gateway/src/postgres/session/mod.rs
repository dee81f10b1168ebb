//! PostgreSQL's half of a session: a [`Machine`], and what it waits for besides.

mod deciding;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::task::Context;

use tidegate_cost_model::SqlDialect;
use tidegate_sql::{Answer, Statement};

use self::deciding::Own;
use super::cancel::Request;
use super::frame::ProtocolError;
use super::machine::{Ask, Decision, Event, Explained, Goes, Machine, Step, Unit};
use super::message;
use super::own;
use super::reset::{Reset, has_reset_all};
use super::serve::Shared;
use crate::govern::{Backend, Denied, Governor, Login, Progress, Running, explained};
use crate::seats::Seat;
use crate::session::{self, End, Finished, Judged, Later, Link, Next, Over, Protocol, SessionError, Side};
use crate::stream::Stream;

/// A PostgreSQL client's session.
pub(super) type Session = session::Session<Postgres>;

/// PostgreSQL's half of a session.
pub(super) struct Postgres {
    machine: Machine<Box<Running>, Statement>,
    /// The answer to a statement of ours when it was described, kept for its execution.
    described: Option<(Arc<Statement>, Answer)>,
    wanted_cancel: Arc<Request>,
    /// The statement at the front of the client's inbox waits for the ends of those before it.
    is_behind: bool,
}

/// A session between these two; the startup packet is the first thing the server gets.
pub(super) fn begin(
    shared: Arc<Shared>,
    (client, server): (Stream, Stream),
    login: Login,
    startup: &[u8],
    seat: Arc<Seat>,
) -> Session {
    let unbound = server.is_secure() && !client.is_secure();
    let mut link = Link::new(client, server, shared.listening.kills_abandoned);
    link.to_server.add(startup);
    let unknown = shared.listening.governor.known(SqlDialect::PostgreSql, b"", false);
    let machine = Machine::new(unknown, unbound);
    let protocol = Postgres { machine, described: None, wanted_cancel: Arc::default(), is_behind: false };
    Session::new(protocol, shared, link, login, seat)
}

impl Protocol for Postgres {
    const DIALECT: SqlDialect = SqlDialect::PostgreSql;
    const REFUSES: bool = false;
    const ASKS_AGAIN: bool = true;
    type Shared = Shared;
    type Error = ProtocolError;
    type Event = Event<Box<Running>>;
    type Ask = Ask<Statement>;
    type Goes = Goes;
    type Own = Own;

    fn server(&mut self, link: &mut Link) -> Result<Option<Self::Event>, ProtocolError> {
        let room = link.to_client.room();
        let (used, event) = self.machine.server(link.from_server.data(), link.to_client.vec(), room)?;
        link.skip(Side::Server, used);
        Ok(event)
    }

    fn client(&mut self, link: &mut Link, _: &Governor) -> Result<Next<Self>, ProtocolError> {
        // To ask about a statement again counts the watch that covers it again.
        if self.is_behind && self.machine.awaits_end() {
            return Ok(Next::Wait);
        }
        self.is_behind = false;
        while link.to_server.room() > 0 {
            match self.machine.client(link.from_client.data())? {
                Step::Pass(count) => link.pass(Side::Client, count),
                Step::Skip(count) => link.skip(Side::Client, count),
                Step::Send(bytes) => link.add(Side::Server, &bytes),
                Step::Ask(ask) => return Ok(Next::Ask(ask)),
                Step::Ends => {
                    if let Some(unit) = self.machine.part() {
                        return Ok(Next::Event(Event::Ended(unit)));
                    }
                }
                Step::Wait if self.answers(link)? => {}
                Step::Wait => {
                    self.flush(link);
                    return Ok(Next::Wait);
                }
                Step::More(wanted) => {
                    self.answers(link)?;
                    self.flush(link);
                    return Ok(Next::More(wanted));
                }
            }
        }
        Ok(Next::Wait)
    }

    fn happened(session: &mut Session, event: Self::Event) {
        match event {
            Event::Login => session.let_in(),
            Event::Ended(unit) => session.unit_ended(unit),
            Event::Costs(formats) => session.tell_costs(&formats),
        }
    }

    fn judge(session: &mut Session, ask: Self::Ask) -> Result<Judged, ProtocolError> {
        Ok(match session.decide(ask)? {
            false => Judged::NotYet,
            true if session.protocol.machine.has_answer() => Judged::Answered,
            true => Judged::Goes,
        })
    }

    fn go(&mut self, link: &Link, goes: Goes, running: Box<Running>) -> Result<(), ProtocolError> {
        self.machine.decide(link.from_client.data(), Decision::Go(running, goes))
    }

    /// The statement at the front of the client's inbox fails with this.
    fn deny(&mut self, link: &Link, denied: &Denied) -> Result<Judged, ProtocolError> {
        self.machine.decide(link.from_client.data(), Decision::Refuse(message::error(denied)))?;
        Ok(if self.machine.has_answer() { Judged::Answered } else { Judged::Goes })
    }

    fn answer(&mut self, link: &Link, answer: Answer, own: Own) -> Result<(), ProtocolError> {
        let tag = if matches!(answer, Answer::Session(_)) { "SET" } else { "RESOURCE GROUP" };
        let reply = match own {
            Own::Query => own::simple(&answer, tag),
            Own::Run { formats } => own::executed(&answer, tag, &formats),
            Own::Describe { statement, parameters, formats } => {
                let table = match &answer {
                    Answer::Table(table) => Some(table),
                    _ => None,
                };
                let described = own::described(table, parameters, &formats);
                self.described = Some((statement, answer));
                described
            }
        };
        self.machine.decide(link.from_client.data(), Decision::Answer(reply))
    }

    fn is_quiet(&self) -> bool {
        self.machine.is_quiet()
    }

    fn is_idle(&self) -> bool {
        // A notification may be on its way, and is to come whole.
        self.machine.is_quiet() && self.machine.is_between_messages()
    }

    fn in_transaction(&self) -> bool {
        self.machine.in_transaction()
    }

    fn running(&mut self) -> Option<(&mut Running, Option<Progress>)> {
        let (unit, is_first) = self.machine.admitted()?;
        let progress = is_first.then_some(unit.progress);
        Some((unit.running.as_deref_mut()?, progress))
    }

    fn poll_cancelled(&mut self, cx: &Context<'_>) -> bool {
        self.wanted_cancel.poll(cx)
    }

    fn forget_cancelled(&mut self) {
        self.wanted_cancel.forget();
    }

    fn poll_interrupted(&mut self, cx: &Context<'_>) -> bool {
        self.wanted_cancel.poll_done(cx)
    }

    fn kill(&mut self, _: &Shared, denied: &Denied) -> bool {
        // A server that gave no key takes no request.
        let can_be_asked = self.machine.key().is_some();
        if can_be_asked {
            self.machine.kill(message::error(denied));
        }
        can_be_asked
    }

    fn interrupt(&self, shared: &Arc<Shared>) -> Option<Later<io::Result<()>>> {
        Some(Box::pin(Arc::clone(shared).cancel(self.machine.key()?.clone())))
    }

    fn farewell(&self, end: &Result<End, SessionError<ProtocolError>>) -> Option<Vec<u8>> {
        if !self.machine.is_between_messages() {
            return None;
        }
        match end {
            Ok(End::Told(over @ Over::Login)) => Some(message::fatal("57014", over.words())),
            Ok(End::Told(over @ Over::Closing)) => Some(message::fatal("57P01", over.words())),
            Ok(End::Runaway(denied)) => Some(message::fatal(denied.code.postgres_state, &denied.message)),
            Ok(End::Client | End::Server) | Err(_) => None,
        }
    }

    fn leave(&self, shared: &Shared) {
        if let Some(key) = self.machine.key() {
            shared.cancels.leave(key);
        }
    }

    fn abandon(&mut self) -> Vec<Finished> {
        let abandoned = self.machine.abandon().filter_map(finished);
        // The end of none of them was seen.
        abandoned.map(|finished| Finished { failed: true, ..finished }).collect()
    }
}

impl Postgres {
    /// Puts out answers of the gateway whose turn it is: a server that has nothing to say before them says nothing.
    /// Whether there were any.
    fn answers(&mut self, link: &mut Link) -> Result<bool, ProtocolError> {
        let room = link.to_client.room();
        let are_due = room > 0 && self.machine.has_answer() && self.machine.is_between_messages();
        if are_due {
            self.machine.server(&[], link.to_client.vec(), room)?;
        }
        Ok(are_due)
    }

    /// Asks the server for the replies that it keeps, when something of the gateway's waits for them.
    fn flush(&mut self, link: &mut Link) {
        if self.machine.take_flush() {
            link.add(Side::Server, message::FLUSH);
        }
    }
}

impl Session {
    fn let_in(&mut self) {
        self.ends.logged_in();
        if let Some(key) = self.protocol.machine.key() {
            self.shared.cancels.enter(key.clone(), &self.protocol.wanted_cancel);
            let unowned = &self.shared.listening.unowned;
            self.backend = Backend::postgres(key.pid(), self.link.server_proof(), unowned);
        }
        if self.backend.is_none() {
            tracing::debug!(
                user = self.login.user,
                "the server's counters cannot be read; costs are estimated"
            );
        }
        self.look_up(None);
    }

    /// A unit has ended, and its `ReadyForQuery` has not gone out yet.
    fn unit_ended(&mut self, unit: Unit<Box<Running>>) {
        self.ended();
        // What is executed later is to know what has changed meanwhile.
        self.protocol.described.take_if(|(statement, _)| !own::is_done_when_described(statement));
        if resets(&unit) {
            self.choose_none();
        }
        let explains = unit.explained.clone().filter(|_| !unit.failed);
        match (explains, finished(unit)) {
            (Some(explains), Some(finished)) => {
                let table = explained(&self.count(finished));
                let reply = match explains {
                    Explained::Table => own::table(&table),
                    Explained::Rows(formats) => own::rows(&table, &formats),
                };
                self.link.to_client.add(&reply);
            }
            (_, finished) => self.count_later(finished),
        }
    }

    /// A statement that is explained has run, and more of its unit follows.
    fn tell_costs(&mut self, formats: &[bool]) {
        self.count_answered();
        let Some((running, Some(progress))) = self.protocol.running() else { return };
        let counted = self.backend.as_mut().map(|backend| backend.take(&running.work(progress)));
        let table = explained(&running.so_far(counted, progress));
        self.link.to_client.add(&own::rows(&table, formats));
    }
}

/// What is counted of a unit; `None` when none of it was admitted.
fn finished(unit: Unit<Box<Running>>) -> Option<Finished> {
    Some(Finished { running: unit.running?, progress: unit.progress, failed: unit.failed })
}

/// Whether a unit that has ended gave up the session's settings, and with them what it has chosen.
fn resets(unit: &Unit<Box<Running>>) -> bool {
    match unit.reset {
        None => false,
        // The server commits it at once, whatever comes next in the unit.
        Some(Reset::All) => true,
        Some(Reset::Some) if unit.failed => false,
        Some(Reset::Some) => {
            let template = unit.running.as_ref().map(|running| running.template().text());
            unit.runs_reset || template.is_some_and(has_reset_all)
        }
    }
}
