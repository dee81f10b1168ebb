//! MySQL's half of a session: a [`Machine`], the statements that were admitted, and their diagnostics.

mod judging;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use tidegate_cost_model::SqlDialect;
use tidegate_sql::Answer as Own;

use super::answer::{Answer, Refusal};
use super::asked::{Asked, Remembered};
use super::command::Command;
use super::machine::{Decision, INPUT_LIMIT, Machine};
use super::own;
use super::protocol_error::ProtocolError;
use super::serve::Shared;
use super::step::{self, Bytes, Event, StatementEnds, Step};
use super::warnings::Warnings;
use crate::complaints::Kind;
use crate::govern::{Denied, Governor, Login, Progress, Running, Server, explained};
use crate::session::{self, End, Finished, Judged, Later, Link, Next, Over, Protocol, SessionError, Side};

/// A MySQL client's session.
pub(super) type Session = session::Session<MySql>;

/// A statement that was admitted.
struct Admitted {
    number: u64,
    running: Box<Running>,
    explains: bool,
}

/// MySQL's half of a session.
pub(super) struct MySql {
    machine: Machine<Remembered>,
    /// Where the client comes from.
    client: IpAddr,
    /// The server's number of the connection; zero before the login.
    connection: u32,
    /// Admitted statements in the order in which the server gets them.
    admitted: VecDeque<Admitted>,
    /// The diagnostics of the last statement, where the gateway answered it.
    warnings: Option<Warnings>,
}

impl MySql {
    /// The machine of a connection whose login is on its way.
    pub(super) fn new(machine: Machine<Remembered>, client: IpAddr) -> Self {
        Self { machine, client, connection: 0, admitted: VecDeque::new(), warnings: None }
    }

    fn finished(&mut self, ends: &StatementEnds) -> Option<Finished> {
        let admitted = self.admitted.pop_front_if(|first| first.number == ends.number)?;
        let progress = Progress {
            sent_rows: ends.rows,
            changed_rows: ends.affected,
            bytes_in: ends.request_bytes,
            bytes_out: ends.response_bytes,
        };
        let failed = ends.error.is_some() || !ends.complete;
        Some(Finished { running: admitted.running, progress, failed })
    }
}

impl Protocol for MySql {
    const DIALECT: SqlDialect = SqlDialect::MySql;
    const REFUSES: bool = true;
    const ASKS_AGAIN: bool = false;
    type Shared = Shared;
    type Error = ProtocolError;
    type Event = Event;
    type Ask = Asked;
    type Goes = Asked;
    type Own = ();

    fn server(&mut self, link: &mut Link) -> Result<Option<Event>, ProtocolError> {
        while link.to_client.room() > 0 {
            match self.machine.server(link.from_server.data())? {
                Step::More | Step::Wait => {
                    link.from_server.reserve(1 + link.from_server.data().len().min(INPUT_LIMIT));
                    break;
                }
                Step::Pass(count) => link.pass(Side::Server, count),
                Step::Skip(count) => link.skip(Side::Server, count),
                Step::Swap(count, Bytes(bytes)) => link.swap(Side::Server, count, &bytes),
                Step::Send(side, Bytes(bytes)) => link.add(side, &bytes),
                Step::Tell(event) => return Ok(Some(event)),
                // Neither comes of what a server says after the greeting.
                Step::StartTls(_) | Step::Ask(_) => {}
            }
        }
        Ok(None)
    }

    fn client(&mut self, link: &mut Link, governor: &Governor) -> Result<Next<Self>, ProtocolError> {
        while link.to_server.room() > 0 && link.to_client.room() > 0 {
            match self.machine.client(link.from_client.data())? {
                // What waits is not on its way yet: only behind it may the server hear that the client says no more.
                Step::Wait => break,
                Step::More => {
                    return Ok(Next::More(1 + link.from_client.data().len().min(INPUT_LIMIT)));
                }
                Step::Pass(count) => link.pass(Side::Client, count),
                Step::Skip(count) => link.skip(Side::Client, count),
                Step::Swap(count, Bytes(bytes)) => link.swap(Side::Client, count, &bytes),
                Step::Send(side, Bytes(bytes)) => link.add(side, &bytes),
                Step::Tell(event) => return Ok(Next::Event(event)),
                Step::Ask(statement) => return Ok(Next::Ask(Asked::of(governor, &statement))),
                Step::StartTls(_) => {}
            }
        }
        Ok(Next::Wait)
    }

    fn happened(session: &mut Session, event: Event) {
        match event {
            Event::Login(login) => {
                session.ends.logged_in();
                session.protocol.connection = login.thread_id;
                session.find_backend(&login);
                session.is_user(login);
            }
            Event::UserChanged(login) => session.is_user(login),
            Event::StatementEnds(ends) => session.statement_ends(&ends),
            Event::SessionReset => {
                session.protocol.warnings = None;
                session.choose_none();
                session.look_up(None);
            }
            // The database is the tenant: its group pays from the next statement on.
            Event::DatabaseChanged { database } => {
                session.login.tenant = database;
                session.look_up(None);
            }
        }
    }

    fn judge(session: &mut Session, asked: Asked) -> Result<Judged, ProtocolError> {
        session.judge_asked(asked)
    }

    fn go(&mut self, _: &Link, asked: Asked, running: Box<Running>) -> Result<(), ProtocolError> {
        self.warnings = None;
        if let Some(naming) = asked.renames(self.machine.knows_names()) {
            self.machine.will_name(naming);
        }
        let explained = asked.explained && asked.command == Command::Execute;
        let explains = asked.explains.is_some() || explained;
        self.admitted.push_back(Admitted { number: asked.number, running, explains });
        let go = if explained { Decision::ExplainRun } else { Decision::Go };
        self.machine.decide(asked.explains.map_or(go, Decision::Explain))
    }

    fn deny(&mut self, _: &Link, denied: &Denied) -> Result<Judged, ProtocolError> {
        let refusal = Refusal::from(denied);
        self.warnings = Some(Warnings::of_error(&refusal));
        self.machine.decide(Decision::Answer(Answer::Refused(refusal)))?;
        Ok(Judged::Answered)
    }

    fn answer(&mut self, _: &Link, answer: Own, (): ()) -> Result<(), ProtocolError> {
        self.warnings = Some(Warnings::of(&answer));
        self.machine.decide(Decision::Answer(own::answer(answer)))
    }

    fn is_quiet(&self) -> bool {
        self.machine.is_quiet()
    }

    fn is_idle(&self) -> bool {
        self.machine.is_idle()
    }

    fn in_transaction(&self) -> bool {
        self.machine.in_transaction()
    }

    fn running(&mut self) -> Option<(&mut Running, Option<Progress>)> {
        let first = self.admitted.front_mut()?;
        let seen = self.machine.progress().filter(|seen| seen.number == first.number);
        let progress = seen.map(|seen| Progress {
            sent_rows: seen.rows,
            changed_rows: 0,
            bytes_in: seen.request_bytes,
            bytes_out: seen.response_bytes,
        });
        Some((&mut first.running, progress))
    }

    fn kill(&mut self, shared: &Shared, denied: &Denied) -> bool {
        if shared.control.is_some()
            && let Some(first) = self.admitted.front()
        {
            return self.machine.kill(first.number, denied.into());
        }
        false
    }

    fn interrupt(&self, shared: &Arc<Shared>) -> Option<Later<io::Result<()>>> {
        shared.control.as_ref()?;
        let (shared, connection) = (Arc::clone(shared), self.connection);
        Some(Box::pin(async move {
            match &shared.control {
                Some(control) => control.kill_query(connection).await.map_err(io::Error::other),
                None => Ok(()),
            }
        }))
    }

    fn farewell(&self, end: &Result<End, SessionError<ProtocolError>>) -> Option<Vec<u8>> {
        let refusal = match end {
            Ok(End::Told(over)) => (*over).into(),
            Ok(End::Runaway(denied)) => denied.into(),
            Err(SessionError::Protocol(_, error)) => error.into(),
            Ok(End::Client | End::Server) | Err(SessionError::Link(_)) => return None,
        };
        self.machine.farewell(&refusal)
    }

    fn abandon(&mut self) -> Vec<Finished> {
        let ended = self.machine.abandon();
        let finished = ended.iter().filter_map(|ends| self.finished(ends)).collect();
        self.admitted.clear();
        finished
    }
}

impl Session {
    fn is_user(&mut self, login: step::Login) {
        self.login = Login {
            tenant: login.database.unwrap_or_default(),
            user: login.user,
            application: login.program_name.unwrap_or_default(),
        };
        self.protocol.warnings = None;
        self.choose_none();
        self.look_up(None);
    }

    fn find_backend(&mut self, login: &step::Login) {
        if self.shared.control.is_none() {
            tracing::debug!("the upstream URL names no user; costs are estimated");
            return;
        }
        let (shared, &MySql { connection, client, .. }) = (Arc::clone(&self.shared), &self.protocol);
        let is_mariadb = login.server_version.contains("MariaDB");
        let server = if is_mariadb { Server::MariaDb } else { Server::MySql };
        self.finding = Some(Box::pin(async move {
            let control = shared.control.as_ref()?;
            match control.thread(connection, is_mariadb).await {
                Ok(found) => control.home().backend(&found?, server, &shared.listening.unowned),
                Err(error) => {
                    if let Some(left_out) = shared.listening.complaints.told(client, Kind::Control) {
                        tracing::warn!(%error, left_out, "the server's thread is not known; costs are estimated");
                    }
                    None
                }
            }
        }));
    }

    /// A response has ended, and its last packet has gone to the outbox, unless it explains the statement.
    fn statement_ends(&mut self, ends: &StatementEnds) {
        let killed = self.ended().map(|denied| Refusal::from(&denied));
        let explains = self.protocol.admitted.front().is_some_and(|admitted| admitted.explains);
        // The gateway, not the server, says why it was interrupted.
        if let Some(refusal) = killed.filter(|refusal| ends.error == Some(refusal.code)) {
            self.protocol.warnings = Some(Warnings::of_error(&refusal));
        }
        let finished = self.protocol.finished(ends);
        if finished.is_none() && ends.error.is_some() {
            // A question about warnings that the server does not prepare, as MySQL does none, leaves its error.
            self.protocol.warnings = None;
        }
        self.count_later(finished);
        if explains && let Some(ended) = self.count_answered() {
            self.protocol.machine.explain(&Answer::Rows(explained(&ended)));
        }
    }
}

impl From<Over> for Refusal {
    fn from(over: Over) -> Self {
        // ER_NET_READ_INTERRUPTED, ER_SERVER_SHUTDOWN
        let code = match over {
            Over::Login => 1159,
            Over::Closing => 1053,
        };
        Self { code, state: *b"08S01", message: over.words().to_owned() }
    }
}
