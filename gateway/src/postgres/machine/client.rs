//! The client's side: which messages go on, and which have to be decided first.

use std::sync::Arc;

use tidegate_sql::Naming;

use super::expected::Expect;
use super::names::remember;
use super::{Ask, Explained, Machine, Portal, Prepared, Step, Text};
use crate::govern::{Denied, EXPLAINED_ROWS, Known, explained_columns};
use crate::postgres::frame::{HEADER, Header, ProtocolError, c_string};
use crate::postgres::message;
use crate::postgres::reset::is_reset_all;

/// Bytes of a statement's text that are looked at; the rest passes unseen.
const MAX_TEXT: usize = 64 * 1_024;
/// Answers outstanding, neighbours of the same kind counted once; a client that sends on is cut off.
const MAX_EXPECTED: usize = 65_536;
/// Longest message of a client that has not logged in yet, such as a Kerberos ticket.
const MAX_LOGIN_MESSAGE: usize = 65_536;

impl<R, O> Machine<R, O> {
    /// Looks at what the client sent.
    pub(crate) fn client(&mut self, bytes: &[u8]) -> Result<Step<O>, ProtocolError> {
        if let Some(bytes) = self.front.take_instead() {
            self.units.count_in(bytes.len());
            return Ok(Step::Send(bytes));
        }
        if let Some(step) = self.front.go_on(bytes.len()) {
            if let (Step::Pass(length), true) = (&step, self.ready) {
                self.units.count_in(*length);
            }
            return Ok(step);
        }
        let Some(header) = Header::read(bytes)? else {
            return Ok(Step::More(HEADER));
        };
        if !self.ready {
            if header.total > MAX_LOGIN_MESSAGE {
                let (what, length, max) = ("a message before the login", header.total, MAX_LOGIN_MESSAGE);
                return Err(ProtocolError::TooLong { what, length, max });
            }
            return Ok(self.front.pass(header));
        }
        if self.expected.len().max(self.statements.unconfirmed()) >= MAX_EXPECTED {
            return Err(ProtocolError::TooMany { max: MAX_EXPECTED });
        }
        if self.skipping && !matches!(header.kind, b'S' | b'X') {
            return Ok(self.front.skip(header));
        }
        let looked_at = header.total.min(HEADER + MAX_TEXT);
        let needed = match header.kind {
            b'Q' | b'P' | b'B' | b'E' | b'C' | b'D' => looked_at,
            _ => HEADER,
        };
        if bytes.len() < needed {
            return Ok(Step::More(needed));
        }
        let body = bytes.get(HEADER..needed).unwrap_or_default();
        self.message(header, body)
    }

    fn message(&mut self, header: Header, body: &[u8]) -> Result<Step<O>, ProtocolError> {
        match header.kind {
            b'Q' => Ok(Step::Ask(Ask::Query(Text::at(header, HEADER, body)))),
            b'F' => Ok(Step::Ask(Ask::Query(Text { place: 0..0, whole: true }))),
            b'P' => {
                let (name, rest) =
                    c_string(body).ok_or(ProtocolError::Malformed { what: "the Parse message" })?;
                Ok(Step::Ask(Ask::Parse(Text::at(header, HEADER + name.len() + 1, rest))))
            }
            b'B' => self.bind(header, body),
            b'E' => self.execute(header, body),
            b'D' => self.describe(header, body),
            b'C' => self.close(header, body),
            b'S' => Ok(self.sync(header)),
            b'c' | b'f' => {
                self.copying_in = false;
                Ok(self.front.pass(header))
            }
            // CopyData, Flush, Terminate, and whatever there will be.
            _ => Ok(self.front.pass(header)),
        }
    }

    fn bind(&mut self, header: Header, body: &[u8]) -> Result<Step<O>, ProtocolError> {
        let malformed = ProtocolError::Malformed { what: "the Bind message" };
        let (portal, rest) = c_string(body).ok_or_else(|| malformed.clone())?;
        let (name, rest) = c_string(rest).ok_or(malformed)?;
        let prepared = self.statements.get(name).cloned();
        let prepared = prepared.unwrap_or_else(|| Prepared::Theirs(self.unknown.clone()));
        let (ours, explained) =
            (matches!(prepared, Prepared::Ours(_)), matches!(prepared, Prepared::Explained(_)));
        if explained && header.total > HEADER + body.len() {
            return Ok(self.deny(header, &Denied::explained_parameters(header.total, MAX_TEXT)));
        }
        let formats = if ours || explained { message::result_formats(rest) } else { Arc::default() };
        remember(&mut self.portals, portal, Portal { prepared, formats });
        if ours {
            self.insert(message::BIND_COMPLETE.to_vec());
            return Ok(self.front.skip(header));
        }
        let step = self.forward(header);
        // The formats are for the columns of the cost; the statement has others. A broken message breaks at the server.
        match explained.then(|| message::without_formats(body, rest)).flatten() {
            Some(bytes) => Ok(self.front.swap(header, bytes)),
            None => Ok(step),
        }
    }

    fn execute(&mut self, header: Header, body: &[u8]) -> Result<Step<O>, ProtocolError> {
        let (name, rest) = c_string(body).ok_or(ProtocolError::Malformed { what: "the Execute message" })?;
        let admitted = self.units.last().is_some_and(|unit| !unit.closed && unit.running.is_some());
        match self.portals.get(name) {
            Some(Portal { prepared: Prepared::Ours(statement), formats }) => {
                let (statement, formats) = (Arc::clone(statement), Arc::clone(formats));
                Ok(Step::Ask(Ask::Run { statement, formats }))
            }
            // The server will skip it, too.
            _ if self.server_skips => Ok(self.forward(header)),
            Some(Portal { prepared: Prepared::Explained(_), .. })
                if (1..=EXPLAINED_ROWS).contains(&message::row_limit(rest)) =>
            {
                Ok(self.deny(header, &Denied::explained_limit(message::row_limit(rest))))
            }
            _ if admitted => Ok(self.run(header, body)),
            Some(Portal { prepared: Prepared::Theirs(known) | Prepared::Explained(known), .. }) => {
                Ok(Step::Ask(Ask::Execute(self.statements.behind(known).clone())))
            }
            None => Ok(Step::Ask(Ask::Execute(self.unknown.clone()))),
        }
    }

    fn describe(&mut self, header: Header, body: &[u8]) -> Result<Step<O>, ProtocolError> {
        let malformed = ProtocolError::Malformed { what: "the Describe message" };
        let (kind, rest) = body.split_first().ok_or_else(|| malformed.clone())?;
        let (name, _) = c_string(rest).ok_or(malformed)?;
        let (prepared, formats, parameters) = match kind {
            b'S' => (self.statements.get(name), Arc::default(), true),
            _ => {
                let portal = self.portals.get(name);
                let formats = portal.map(|portal| Arc::clone(&portal.formats)).unwrap_or_default();
                (portal.map(|portal| &portal.prepared), formats, false)
            }
        };
        if let Some(Prepared::Ours(statement)) = prepared {
            let statement = Arc::clone(statement);
            return Ok(Step::Ask(Ask::Describe { statement, parameters, formats }));
        }
        if let Some(Prepared::Explained(_)) = prepared {
            let description = message::row_description(&explained_columns(), &formats);
            return Ok(self.forward_expecting(header, Expect::Described(description)));
        }
        Ok(self.forward(header))
    }

    fn close(&mut self, header: Header, body: &[u8]) -> Result<Step<O>, ProtocolError> {
        let malformed = ProtocolError::Malformed { what: "the Close message" };
        let (kind, rest) = body.split_first().ok_or_else(|| malformed.clone())?;
        let (name, _) = c_string(rest).ok_or(malformed)?;
        let statement = (*kind == b'S').then_some(name);
        if statement.is_none() {
            self.portals.remove(name);
        }
        // The server does not mind closing what it does not know.
        let step = self.forward(header);
        if !self.server_skips {
            self.statements.close(self.units.opened(), statement);
        }
        Ok(step)
    }

    fn sync(&mut self, header: Header) -> Step<O> {
        self.skipping = false;
        self.expected.take_flush();
        // While data is copied in, the server reads over it.
        if !self.copying_in {
            self.server_skips = false;
            self.units.open();
            if let Some(unit) = self.units.last_mut() {
                unit.closed = true;
            }
            self.expected.push(Expect::Ready);
        }
        self.front.pass(header)
    }

    /// Sends a message on that the server answers with one reply.
    fn forward(&mut self, header: Header) -> Step<O> {
        self.units.open();
        if !self.server_skips {
            self.expected.push(Expect::Replies(1));
        }
        self.front.pass(header)
    }

    /// Sends a message on whose answer is not for the client as it is.
    fn forward_expecting(&mut self, header: Header, expect: Expect) -> Step<O> {
        self.units.open();
        if !self.server_skips {
            self.expected.push(expect);
        }
        self.front.pass(header)
    }

    /// Sends an `Execute` on that is admitted. The cost of an explained statement is that of all its rows.
    fn run(&mut self, header: Header, body: &[u8]) -> Step<O> {
        let Some((name, rest)) = c_string(body) else { return self.forward(header) };
        let Some(portal) = self.portals.get(name) else { return self.forward(header) };
        let explained =
            matches!(portal.prepared, Prepared::Explained(_)).then(|| Arc::clone(&portal.formats));
        let (mut naming, mut resets) = (None, false);
        if let Prepared::Theirs(known) | Prepared::Explained(known) = &portal.prepared {
            let runs = self.statements.behind(known);
            (naming, resets) = (runs.naming.clone(), is_reset_all(runs.template.text()));
        }
        let Some(formats) = explained else {
            let step = self.forward(header);
            if let Some(unit) = self.units.last_mut() {
                unit.runs_reset |= resets;
            }
            self.change_names(naming.as_deref());
            return step;
        };
        let step = self.forward_expecting(header, Expect::Explained(formats));
        self.change_names(naming.as_deref());
        if message::row_limit(rest) == 0 {
            return step;
        }
        self.front.swap(header, message::execute(name))
    }

    /// A statement of the last unit goes on that does this with names.
    pub(crate) fn change_names(&mut self, naming: Option<&Naming<Known>>) {
        // What the server skips changes nothing.
        if let Some(naming) = naming.filter(|_| !self.server_skips) {
            self.statements.change(self.units.opened(), naming);
        }
    }

    /// The message at the front fails with this, and with it what follows up to `Sync`.
    fn deny(&mut self, header: Header, denied: &Denied) -> Step<O> {
        self.insert(message::error(denied));
        self.skipping = true;
        self.front.skip(header)
    }

    /// The message asked about goes on; `running` stands for it.
    pub(crate) fn go(&mut self, bytes: &[u8], running: R) -> Result<(), ProtocolError> {
        let Some(header) = Header::read(bytes)? else { return Ok(()) };
        if header.kind == b'E' {
            let _ = self.run(header, bytes.get(HEADER..).unwrap_or_default());
        } else {
            self.units.push(true);
            self.expected.push(Expect::Ready);
            let _: Step<O> = self.front.pass(header);
        }
        self.units.admit(running);
        Ok(())
    }

    /// The simple query asked about is replaced by `inner`, which runs as `running`, and its result is withheld.
    pub(crate) fn explain(&mut self, bytes: &[u8], inner: &[u8], running: R) -> Result<(), ProtocolError> {
        self.go(bytes, running)?;
        if let Some(unit) = self.units.last_mut() {
            unit.explained = Some(Explained::Table);
        }
        if let Some(header) = Header::read(bytes)? {
            let _: Step<O> = self.front.swap(header, message::query(inner));
        }
        Ok(())
    }

    /// The simple query asked about does not go on; the client is answered this.
    pub(crate) fn answer(&mut self, bytes: &[u8], reply: Vec<u8>) -> Result<(), ProtocolError> {
        if let Some(header) = Header::read(bytes)? {
            self.expected.push(Expect::Answer(reply));
            let _: Step<O> = self.front.skip(header);
        }
        Ok(())
    }

    /// The statement asked about is this one.
    pub(crate) fn prepare(&mut self, bytes: &[u8], prepared: Prepared<O>) -> Result<(), ProtocolError> {
        let Some(header) = Header::read(bytes)? else { return Ok(()) };
        let name = bytes.get(HEADER..).and_then(c_string).map_or(&[][..], |(name, _)| name);
        let ours = matches!(prepared, Prepared::Ours(_));
        if ours {
            self.statements.set(name, prepared);
            self.insert(message::PARSE_COMPLETE.to_vec());
            let _: Step<O> = self.front.skip(header);
        } else {
            let _ = self.forward(header);
            self.give_name(name, prepared);
        }
        Ok(())
    }

    /// The statement asked about explains `inner`, which is prepared in its place; its message is whole.
    pub(crate) fn prepare_explained(
        &mut self,
        bytes: &[u8],
        known: Known,
        inner: &[u8],
    ) -> Result<(), ProtocolError> {
        let Some(header) = Header::read(bytes)? else { return Ok(()) };
        let body = bytes.get(HEADER..header.total).unwrap_or_default();
        let (name, rest) = c_string(body).unwrap_or_default();
        let (_, types) = c_string(rest).unwrap_or_default();
        let parse = message::parse(name, inner, types);
        let _ = self.forward(header);
        self.give_name(name, Prepared::Explained(known));
        let _: Step<O> = self.front.swap(header, parse);
        Ok(())
    }

    /// A `Parse` of the last unit goes on.
    fn give_name(&mut self, name: &[u8], prepared: Prepared<O>) {
        // What the server skips changes nothing.
        if !self.server_skips {
            self.statements.give(self.units.opened(), name, prepared);
        }
    }

    /// The message asked about does not go on, and the client is answered this in its place.
    pub(crate) fn replace(&mut self, bytes: &[u8], reply: Vec<u8>) -> Result<(), ProtocolError> {
        if let Some(header) = Header::read(bytes)? {
            self.insert(reply);
            let _: Step<O> = self.front.skip(header);
        }
        Ok(())
    }

    /// The message of the extended protocol asked about fails with this error, and with it what follows up to `Sync`.
    pub(crate) fn refuse(&mut self, bytes: &[u8], error: Vec<u8>) -> Result<(), ProtocolError> {
        self.replace(bytes, error)?;
        self.skipping = true;
        Ok(())
    }

    fn insert(&mut self, reply: Vec<u8>) {
        self.units.open();
        // The client has had an error of this unit already, and hears nothing else before its end.
        if self.server_skips {
            return;
        }
        self.expected.insert(reply);
    }
}
