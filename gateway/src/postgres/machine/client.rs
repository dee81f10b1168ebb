//! The client's direction: which messages go on, and which have to be decided first.

use std::sync::Arc;

use super::expected::Expect;
use super::front::Front;
use super::names::{Map, remember};
use super::wire::Wire;
use super::{Ask, Decision, Explained, Goes, Portal, Prepared, Step, Stepped, Text};
use crate::govern::{Denied, EXPLAINED_ROWS, Known, explained_columns};
use crate::postgres::frame::{HEADER, Header, ProtocolError, c_string, looked_up};
use crate::postgres::message;
use crate::postgres::reset::is_reset_all;

/// Bytes of a statement's text that are looked at; the rest passes unseen.
const MAX_TEXT: usize = 64 * 1_024;
/// Answers outstanding, neighbours of the same kind counted once; a client that sends on is cut off.
const MAX_EXPECTED: usize = 65_536;
const TOO_MANY: ProtocolError = ProtocolError::TooMany { max: MAX_EXPECTED };
/// Longest message of a client that has not logged in yet, such as a Kerberos ticket.
const MAX_LOGIN_MESSAGE: usize = 65_536;

/// The client's direction.
#[derive(Debug)]
pub(super) struct ClientSide<O> {
    front: Front,
    portals: Map<Portal<O>>,
    /// Everything up to the next `Sync` is dropped, since a message before was refused.
    skipping: bool,
    unknown: Known,
}

impl<O> ClientSide<O> {
    /// Behind its startup packet. `unknown` stands for statements without a known text.
    pub(super) fn new(unknown: Known) -> Self {
        Self { front: Front::default(), portals: Map::default(), skipping: false, unknown }
    }

    /// Whether the server has got whole messages only.
    pub(super) fn is_between_messages(&self) -> bool {
        self.front.is_between_messages()
    }

    /// Looks at what it sent.
    pub(super) fn step<R>(&mut self, wire: &mut Wire<R, O>, bytes: &[u8]) -> Stepped<O> {
        if let Some(bytes) = self.front.take_instead() {
            wire.units.count_in(bytes.len());
            return Ok(Step::Send(bytes));
        }
        if let Some(step) = self.front.go_on(bytes.len()) {
            if let (Step::Pass(length), true) = (&step, wire.ready) {
                wire.units.count_in(*length);
            }
            return Ok(step);
        }
        let Some(header) = Header::read(bytes)? else { return Ok(Step::More(HEADER)) };
        if !wire.ready {
            // Once it is through with the login the server runs what comes next, while its word of that is on its way.
            if !matches!(header.kind, b'p' | b'X') {
                return Ok(Step::Wait);
            }
            if header.total > MAX_LOGIN_MESSAGE {
                let (what, length, max) = ("a message before the login", header.total, MAX_LOGIN_MESSAGE);
                return Err(ProtocolError::TooLong { what, length, max });
            }
            return Ok(self.front.pass(header));
        }
        if wire.expected.len().max(wire.statements.unconfirmed()) >= MAX_EXPECTED {
            return Err(TOO_MANY);
        }
        if self.skipping && !matches!(header.kind, b'S' | b'X') {
            return Ok(self.front.skip(header));
        }
        // The server skips it, too.
        if wire.server_skips && header.kind != b'S' {
            return Ok(self.front.pass(header));
        }
        if wire.expected.is_full() && matches!(header.kind, b'Q' | b'F' | b'P' | b'B' | b'E' | b'C' | b'D') {
            // What is copied in comes behind this, and the server waits for it.
            return if wire.copying_in { Err(TOO_MANY) } else { Ok(Step::Wait) };
        }
        if is_unit(header) && wire.is_open() {
            return Ok(if wire.expected.awaits() { Step::Wait } else { Step::Ends });
        }
        let needed = match header.kind {
            b'Q' | b'P' | b'B' | b'E' | b'C' | b'D' => header.total.min(HEADER + MAX_TEXT),
            _ => HEADER,
        };
        let Some(body) = bytes.get(HEADER..needed) else { return Ok(Step::More(needed)) };
        self.message(wire, header, body)
    }

    fn message<R>(&mut self, wire: &mut Wire<R, O>, header: Header, body: &[u8]) -> Stepped<O> {
        match header.kind {
            b'Q' => Ok(Step::Ask(Ask::Query(Text::at(header, HEADER, body)))),
            b'F' => Ok(Step::Ask(Ask::Query(Text { place: 0..0, whole: true }))),
            b'P' => {
                let (name, rest) =
                    c_string(body).ok_or(ProtocolError::Malformed { what: "the Parse message" })?;
                Ok(Step::Ask(Ask::Parse(Text::at(header, HEADER + name.len() + 1, rest))))
            }
            b'B' => self.bind(wire, header, body),
            b'E' => self.execute(wire, header, body),
            b'D' => self.describe(wire, header, body),
            b'C' => self.close(wire, header, body),
            b'S' => {
                self.skipping = false;
                wire.sync();
                Ok(self.front.pass(header))
            }
            b'c' | b'f' => {
                wire.copied_in();
                Ok(self.front.pass(header))
            }
            // CopyData, Flush, Terminate, and whatever there will be.
            _ => Ok(self.front.pass(header)),
        }
    }

    fn bind<R>(&mut self, wire: &mut Wire<R, O>, header: Header, body: &[u8]) -> Stepped<O> {
        let malformed = ProtocolError::Malformed { what: "the Bind message" };
        let (portal, rest) = c_string(body).ok_or_else(|| malformed.clone())?;
        let (name, rest) = c_string(rest).ok_or(malformed)?;
        let prepared = wire.statements.get(name).cloned();
        let prepared = prepared.unwrap_or_else(|| Prepared::Theirs(self.unknown.clone()));
        let (ours, explained) =
            (matches!(prepared, Prepared::Ours(_)), matches!(prepared, Prepared::Explained(_)));
        if explained && header.total > HEADER + body.len() {
            let denied = Denied::explained_parameters(header.total, MAX_TEXT);
            return Ok(self.refuse(wire, header, message::error(&denied)));
        }
        let formats = if ours || explained { message::result_formats(rest) } else { Arc::default() };
        remember(&mut self.portals, looked_up(portal), Portal { prepared, formats });
        if ours {
            return Ok(self.answer(wire, header, message::BIND_COMPLETE.to_vec()));
        }
        let step = self.forward(wire, header, Expect::Replies(1));
        // The formats are for the columns of the cost; the statement has others. A broken message breaks at the server.
        match explained.then(|| message::without_formats(body, rest)).flatten() {
            Some(bytes) => Ok(self.front.swap(header, bytes)),
            None => Ok(step),
        }
    }

    fn execute<R>(&mut self, wire: &mut Wire<R, O>, header: Header, body: &[u8]) -> Stepped<O> {
        let (name, rest) = c_string(body).ok_or(ProtocolError::Malformed { what: "the Execute message" })?;
        let limit = message::row_limit(rest);
        let admitted = wire.units.last().is_some_and(|unit| !unit.closed && unit.running.is_some());
        match self.portals.get(looked_up(name)) {
            Some(Portal { prepared: Prepared::Ours(statement), formats }) => {
                let (statement, formats) = (Arc::clone(statement), Arc::clone(formats));
                Ok(Step::Ask(Ask::Run { statement, formats }))
            }
            Some(Portal { prepared: Prepared::Explained(_), .. })
                if (1..=EXPLAINED_ROWS).contains(&limit) =>
            {
                Ok(self.refuse(wire, header, message::error(&Denied::explained_limit(limit))))
            }
            _ if admitted => Ok(self.run(wire, header, body)),
            Some(Portal { prepared: Prepared::Theirs(known) | Prepared::Explained(known), .. }) => {
                Ok(Step::Ask(Ask::Execute(wire.statements.behind(known).clone())))
            }
            None => Ok(Step::Ask(Ask::Execute(self.unknown.clone()))),
        }
    }

    fn describe<R>(&mut self, wire: &mut Wire<R, O>, header: Header, body: &[u8]) -> Stepped<O> {
        let malformed = ProtocolError::Malformed { what: "the Describe message" };
        let (kind, rest) = body.split_first().ok_or_else(|| malformed.clone())?;
        let (name, _) = c_string(rest).ok_or(malformed)?;
        let (prepared, formats, parameters) = match kind {
            b'S' => (wire.statements.get(name), Arc::default(), true),
            _ => match self.portals.get(looked_up(name)) {
                Some(Portal { prepared, formats }) => (Some(prepared), Arc::clone(formats), false),
                None => (None, Arc::default(), false),
            },
        };
        let expect = match prepared {
            Some(Prepared::Ours(statement)) => {
                let statement = Arc::clone(statement);
                return Ok(Step::Ask(Ask::Describe { statement, parameters, formats }));
            }
            Some(Prepared::Explained(_)) => {
                Expect::Described(message::row_description(&explained_columns(), &formats))
            }
            _ => Expect::Replies(1),
        };
        Ok(self.forward(wire, header, expect))
    }

    fn close<R>(&mut self, wire: &mut Wire<R, O>, header: Header, body: &[u8]) -> Stepped<O> {
        let malformed = ProtocolError::Malformed { what: "the Close message" };
        let (kind, rest) = body.split_first().ok_or_else(|| malformed.clone())?;
        let (name, _) = c_string(rest).ok_or(malformed)?;
        let statement = (*kind == b'S').then_some(name);
        if statement.is_none() {
            self.portals.remove(looked_up(name));
        }
        // The server does not mind closing what it does not know.
        let step = self.forward(wire, header, Expect::Replies(1));
        wire.name(|names, unit| names.close(unit, statement));
        Ok(step)
    }

    /// Sends a message of the extended protocol on, for which the client gets this.
    fn forward<R>(&mut self, wire: &mut Wire<R, O>, header: Header, expect: Expect) -> Step<O> {
        wire.expect(expect);
        self.front.pass(header)
    }

    /// Sends an `Execute` on that is admitted. The cost of an explained statement is that of all its rows.
    fn run<R>(&mut self, wire: &mut Wire<R, O>, header: Header, body: &[u8]) -> Step<O> {
        let reply = Expect::Replies(1);
        let Some((name, rest)) = c_string(body) else { return self.forward(wire, header, reply) };
        let (known, expect) = match self.portals.get(looked_up(name)) {
            Some(Portal { prepared: Prepared::Theirs(known), .. }) => (known, reply),
            Some(Portal { prepared: Prepared::Explained(known), formats }) => {
                (known, Expect::Explained(Arc::clone(formats)))
            }
            _ => return self.forward(wire, header, reply),
        };
        let explained = matches!(expect, Expect::Explained(_));
        let runs = wire.statements.behind(known);
        let (naming, resets) = (runs.naming.clone(), is_reset_all(runs.template.text()));
        let step = self.forward(wire, header, expect);
        wire.name(|names, unit| names.change(unit, naming.as_deref()));
        if explained && message::row_limit(rest) > 0 {
            return self.front.swap(header, message::execute(name));
        }
        if let Some(unit) = wire.units.last_mut().filter(|_| !explained) {
            unit.runs_reset |= resets;
        }
        step
    }

    /// Decides about the message that was asked about.
    pub(super) fn decide<R>(
        &mut self,
        wire: &mut Wire<R, O>,
        bytes: &[u8],
        decision: Decision<R, O>,
    ) -> Result<(), ProtocolError> {
        let Some(header) = Header::read(bytes)? else { return Ok(()) };
        let body = bytes.get(HEADER..).unwrap_or_default();
        let _: Step<O> = match decision {
            Decision::Go(running, goes) => {
                let step = self.go(wire, header, body, goes);
                wire.units.admit(running);
                step
            }
            Decision::Prepare(prepared, inner) => self.prepare(wire, (header, body), prepared, inner),
            Decision::Answer(reply) => self.answer(wire, header, reply),
            Decision::Refuse(error) => self.refuse(wire, header, error),
        };
        Ok(())
    }

    fn go<R>(&mut self, wire: &mut Wire<R, O>, header: Header, body: &[u8], goes: Goes) -> Step<O> {
        let step = if header.kind == b'E' {
            self.run(wire, header, body)
        } else {
            wire.units.push(true);
            wire.expected.push(Expect::Ready);
            self.front.pass(header)
        };
        wire.name(|names, unit| names.change(unit, goes.naming.as_deref()));
        let Some(inner) = goes.inner else { return step };
        if let Some(unit) = wire.units.last_mut() {
            unit.explained = Some(Explained::Table);
        }
        self.front.swap(header, message::query(inner.as_bytes()))
    }

    fn prepare<R>(
        &mut self,
        wire: &mut Wire<R, O>,
        (header, body): (Header, &[u8]),
        prepared: Prepared<O>,
        inner: Option<String>,
    ) -> Step<O> {
        let body = body.get(..header.total.saturating_sub(HEADER)).unwrap_or(body);
        let (name, rest) = c_string(body).unwrap_or_default();
        if let Prepared::Ours(statement) = prepared {
            let step = self.answer(wire, header, message::PARSE_COMPLETE.to_vec());
            wire.name(|names, unit| names.give_own(unit, name, statement));
            return step;
        }
        let step = self.forward(wire, header, Expect::Replies(1));
        wire.name(|names, unit| names.give(unit, name, prepared));
        let Some(inner) = inner else { return step };
        let (_, types) = c_string(rest).unwrap_or_default();
        self.front.swap(header, message::parse(name, inner.as_bytes(), types))
    }

    /// The message at the front does not go on, and the client is answered this in its place.
    fn answer<R>(&mut self, wire: &mut Wire<R, O>, header: Header, reply: Vec<u8>) -> Step<O> {
        if is_unit(header) && wire.unsynced {
            // Only the server knows what has become of the transaction.
            wire.insert(reply);
            wire.sync();
            return self.front.swap(header, message::SYNC.to_vec());
        }
        if is_unit(header) {
            wire.expected.push(Expect::Answer(reply));
        } else {
            wire.insert(reply);
        }
        self.front.skip(header)
    }

    /// It fails with this error, and with it what follows up to `Sync`.
    fn refuse<R>(&mut self, wire: &mut Wire<R, O>, header: Header, error: Vec<u8>) -> Step<O> {
        self.skipping = !is_unit(header);
        self.answer(wire, header, error)
    }
}

/// Whether a message is a unit by itself: a simple query or a function call.
fn is_unit(header: Header) -> bool {
    matches!(header.kind, b'Q' | b'F')
}
