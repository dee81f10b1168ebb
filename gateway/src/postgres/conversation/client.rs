//! The client's side: which messages go on, and which have to be decided first.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::{Ask, Conversation, Expect, Portal, Prepared, Step, Unit, count};
use crate::postgres::frame::{Broken, HEADER, Header, c_string};
use crate::postgres::message;

/// Bytes of a statement's text that are looked at; the rest passes unseen.
const MAX_TEXT: usize = 64 * 1_024;
/// Prepared statements and portals remembered per session, each; others are governed as of unknown kind.
const MAX_NAMES: usize = 4_096;
/// Answers outstanding, neighbours of the same kind counted once; a client that sends on is cut off.
const MAX_EXPECTED: usize = 65_536;
/// Longest message of a client that has not logged in yet, such as a Kerberos ticket.
const MAX_LOGIN_MESSAGE: usize = 65_536;

impl<R, O> Conversation<R, O> {
    /// Looks at what the client sent.
    pub(crate) fn client(&mut self, bytes: &[u8]) -> Result<Step<O>, Broken> {
        if self.client_rest > 0 {
            let length = self.client_rest.min(bytes.len());
            if length == 0 {
                return Ok(Step::More(1));
            }
            self.client_rest -= length;
            return Ok(self.moved(length));
        }
        let Some(header) = Header::read(bytes)? else {
            return Ok(Step::More(HEADER));
        };
        if !self.ready {
            if header.total > MAX_LOGIN_MESSAGE {
                let (what, length, max) = ("a message before the login", header.total, MAX_LOGIN_MESSAGE);
                return Err(Broken::TooLong { what, length, max });
            }
            return Ok(self.pass(header));
        }
        if self.expected.len() >= MAX_EXPECTED {
            return Err(Broken::TooMany { max: MAX_EXPECTED });
        }
        if self.skipping && !matches!(header.kind, b'S' | b'X') {
            return Ok(self.drop_message(header));
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

    fn message(&mut self, header: Header, body: &[u8]) -> Result<Step<O>, Broken> {
        match header.kind {
            b'Q' => Ok(Step::Ask(Ask::Query(text_at(HEADER, body)))),
            b'F' => Ok(Step::Ask(Ask::Query(0..0))),
            b'P' => {
                let (name, rest) = c_string(body).ok_or(Broken::Malformed { what: "the Parse message" })?;
                Ok(Step::Ask(Ask::Parse(text_at(HEADER + name.len() + 1, rest))))
            }
            b'B' => self.bind(header, body),
            b'E' => self.execute(header, body),
            b'D' => self.describe(header, body),
            b'C' => self.close(header, body),
            b'S' => Ok(self.sync(header)),
            b'c' | b'f' => {
                self.copying_in = false;
                Ok(self.pass(header))
            }
            // CopyData, Flush, Terminate, and whatever there will be.
            _ => Ok(self.pass(header)),
        }
    }

    fn bind(&mut self, header: Header, body: &[u8]) -> Result<Step<O>, Broken> {
        let malformed = Broken::Malformed { what: "the Bind message" };
        let (portal, rest) = c_string(body).ok_or_else(|| malformed.clone())?;
        let (name, rest) = c_string(rest).ok_or(malformed)?;
        let prepared = self.statements.get(name).cloned();
        let prepared = prepared.unwrap_or_else(|| Prepared::Theirs(Arc::clone(&self.unknown)));
        let ours = matches!(prepared, Prepared::Ours(_));
        let formats = if ours { message::result_formats(rest) } else { Arc::default() };
        remember(&mut self.portals, portal, Portal { prepared, formats });
        if ours {
            self.insert(message::BIND_COMPLETE.to_vec());
            return Ok(self.drop_message(header));
        }
        Ok(self.forward(header))
    }

    fn execute(&mut self, header: Header, body: &[u8]) -> Result<Step<O>, Broken> {
        let (name, _) = c_string(body).ok_or(Broken::Malformed { what: "the Execute message" })?;
        let admitted = self.units.back().is_some_and(|unit| !unit.closed && unit.running.is_some());
        match self.portals.get(name) {
            Some(Portal { prepared: Prepared::Ours(statement), formats }) => {
                let (statement, formats) = (Arc::clone(statement), Arc::clone(formats));
                Ok(Step::Ask(Ask::Run { statement, formats }))
            }
            // The server will skip it, too.
            _ if admitted || self.server_skips => Ok(self.forward(header)),
            Some(Portal { prepared: Prepared::Theirs(template), .. }) => {
                Ok(Step::Ask(Ask::Execute(Arc::clone(template))))
            }
            None => Ok(Step::Ask(Ask::Execute(Arc::clone(&self.unknown)))),
        }
    }

    fn describe(&mut self, header: Header, body: &[u8]) -> Result<Step<O>, Broken> {
        let malformed = Broken::Malformed { what: "the Describe message" };
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
        Ok(self.forward(header))
    }

    fn close(&mut self, header: Header, body: &[u8]) -> Result<Step<O>, Broken> {
        let malformed = Broken::Malformed { what: "the Close message" };
        let (kind, rest) = body.split_first().ok_or_else(|| malformed.clone())?;
        let (name, _) = c_string(rest).ok_or(malformed)?;
        match kind {
            b'S' => drop(self.statements.remove(name)),
            _ => drop(self.portals.remove(name)),
        }
        // The server does not mind closing what it does not know.
        Ok(self.forward(header))
    }

    fn sync(&mut self, header: Header) -> Step<O> {
        (self.skipping, self.needs_flush) = (false, false);
        // While data is copied in, the server reads over it.
        if !self.copying_in {
            self.server_skips = false;
            self.open_unit();
            if let Some(unit) = self.units.back_mut() {
                unit.closed = true;
            }
            self.expected.push_back(Expect::Ready);
        }
        self.pass(header)
    }

    /// The unit that messages of the extended protocol belong to.
    fn open_unit(&mut self) {
        if self.units.back().is_none_or(|unit| unit.closed) {
            self.units.push_back(Unit::new(false));
        }
    }

    /// Sends a message on that the server answers with one reply.
    fn forward(&mut self, header: Header) -> Step<O> {
        self.open_unit();
        if !self.server_skips {
            match self.expected.back_mut() {
                Some(Expect::Replies(count)) if *count < u32::MAX => *count += 1,
                _ => self.expected.push_back(Expect::Replies(1)),
            }
        }
        self.pass(header)
    }

    fn pass(&mut self, header: Header) -> Step<O> {
        (self.client_rest, self.dropping) = (header.total, false);
        Step::Pass(0)
    }

    fn drop_message(&mut self, header: Header) -> Step<O> {
        (self.client_rest, self.dropping) = (header.total, true);
        Step::Drop(0)
    }

    fn moved(&mut self, length: usize) -> Step<O> {
        if self.dropping {
            return Step::Drop(length);
        }
        if self.ready {
            let progress = self.units.back_mut().map_or(&mut self.carried, |unit| &mut unit.progress);
            progress.bytes_in = progress.bytes_in.saturating_add(count(length));
        }
        Step::Pass(length)
    }

    /// The message asked about goes on; `running` stands for it.
    pub(crate) fn go(&mut self, bytes: &[u8], running: R) -> Result<(), Broken> {
        let Some(header) = Header::read(bytes)? else { return Ok(()) };
        let carried = std::mem::take(&mut self.carried);
        if header.kind == b'E' {
            let _ = self.forward(header);
        } else {
            self.units.push_back(Unit::new(true));
            self.expected.push_back(Expect::Ready);
            let _ = self.pass(header);
        }
        if let Some(unit) = self.units.back_mut() {
            unit.running = Some(running);
            unit.progress = unit.progress.plus(&carried);
        }
        Ok(())
    }

    /// The simple query asked about is replaced by `inner`, which runs as `running`, and its result is withheld.
    /// Returns what to send to the server.
    pub(crate) fn explain(&mut self, bytes: &[u8], inner: &[u8], running: R) -> Result<Vec<u8>, Broken> {
        self.go(bytes, running)?;
        self.dropping = true;
        if let Some(unit) = self.units.back_mut() {
            unit.explained = true;
            unit.progress.bytes_in = unit.progress.bytes_in.saturating_add(count(inner.len()));
        }
        Ok(message::query(inner))
    }

    /// The simple query asked about does not go on; the client is answered this.
    pub(crate) fn answer(&mut self, bytes: &[u8], reply: Vec<u8>) -> Result<(), Broken> {
        if let Some(header) = Header::read(bytes)? {
            self.expected.push_back(Expect::Answer(reply));
            let _ = self.drop_message(header);
        }
        Ok(())
    }

    /// The statement asked about is this one.
    pub(crate) fn prepare(&mut self, bytes: &[u8], prepared: Prepared<O>) -> Result<(), Broken> {
        let Some(header) = Header::read(bytes)? else { return Ok(()) };
        let name = bytes.get(HEADER..).and_then(c_string).map_or(&[][..], |(name, _)| name);
        let ours = matches!(prepared, Prepared::Ours(_));
        remember(&mut self.statements, name, prepared);
        if ours {
            self.insert(message::PARSE_COMPLETE.to_vec());
            let _ = self.drop_message(header);
        } else {
            let _ = self.forward(header);
        }
        Ok(())
    }

    /// The message asked about does not go on, and the client is answered this in its place.
    pub(crate) fn replace(&mut self, bytes: &[u8], reply: Vec<u8>) -> Result<(), Broken> {
        if let Some(header) = Header::read(bytes)? {
            self.insert(reply);
            let _ = self.drop_message(header);
        }
        Ok(())
    }

    /// The message of the extended protocol asked about fails with this error, and with it what follows up to `Sync`.
    pub(crate) fn refuse(&mut self, bytes: &[u8], error: Vec<u8>) -> Result<(), Broken> {
        self.replace(bytes, error)?;
        self.skipping = true;
        Ok(())
    }

    fn insert(&mut self, reply: Vec<u8>) {
        self.open_unit();
        // The client has been told of an error of this unit already, and hears nothing else before its end.
        if self.server_skips {
            return;
        }
        // The server keeps its replies until it is told to send them.
        self.needs_flush |= matches!(self.expected.back(), Some(Expect::Replies(_)));
        match self.expected.back_mut() {
            Some(Expect::Insert(before)) => before.extend_from_slice(&reply),
            _ => self.expected.push_back(Expect::Insert(reply)),
        }
    }
}

/// Where a text is that begins at `start` with these bytes, and may be cut off.
fn text_at(start: usize, bytes: &[u8]) -> Range<usize> {
    let length = c_string(bytes).map_or(bytes.len(), |(text, _)| text.len());
    start..start.saturating_add(length)
}

/// Puts a name into a bounded map; another makes room.
fn remember<V>(names: &mut HashMap<Vec<u8>, V, RandomState>, name: &[u8], value: V) {
    if let Some(slot) = names.get_mut(name) {
        *slot = value;
        return;
    }
    if names.len() >= MAX_NAMES
        && let Some(other) = names.keys().next().cloned()
    {
        names.remove(&other);
    }
    names.insert(name.to_vec(), value);
}
