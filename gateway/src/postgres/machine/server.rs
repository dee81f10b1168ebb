//! The server's side: what is for the client, which statement it belongs to, and where answers of the gateway go.

use super::{Event, Explained, Machine};
use crate::postgres::frame::{HEADER, Header, ProtocolError};
use crate::postgres::key::Key;
use crate::postgres::message;
use crate::postgres::reset::Reset;

/// Bytes of a server's message that are looked at.
const MAX_LOOK: usize = 2_048;

impl<R, O> Machine<R, O> {
    /// Looks at what the server sent and puts what is for the client into `out`, at most about `room` bytes. Returns
    /// how many bytes were used, and what happened; then call again.
    pub(crate) fn server(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        room: usize,
    ) -> Result<(usize, Option<Event<R>>), ProtocolError> {
        let (mut used, full) = (0_usize, out.len().saturating_add(room));
        loop {
            if self.server_rest == 0 {
                self.expected.answer(self.status, out);
            }
            let rest = bytes.get(used..).unwrap_or_default();
            if rest.is_empty() || out.len() >= full {
                return Ok((used, None));
            }
            if self.server_rest > 0 {
                let length = self.server_rest.min(rest.len());
                self.hand_over(rest.get(..length).unwrap_or_default(), out);
                (used, self.server_rest) = (used + length, self.server_rest - length);
                continue;
            }
            let Some(header) = Header::read(rest)? else { return Ok((used, None)) };
            let needed = match header.kind {
                b'Z' | b'C' | b'E' | b'K' => header.total.min(MAX_LOOK),
                b'R' if self.unbound && !self.ready => header.total.min(MAX_LOOK),
                _ => HEADER,
            };
            let Some(body) = rest.get(HEADER..needed.max(HEADER)) else { return Ok((used, None)) };
            if header.kind == b'Z'
                && self.expected.tells_ready()
                && let Some(event) = self.ended(body)
            {
                return Ok((used, Some(event)));
            }
            if let Some(formats) = self.expected.tells_costs(header.kind) {
                return Ok((used, Some(Event::Costs(formats))));
            }
            self.server_message(header, body, out);
        }
    }

    /// Makes the message at the front pass, and takes note of it.
    fn server_message(&mut self, header: Header, body: &[u8], out: &mut Vec<u8>) {
        (self.server_rest, self.withheld) = (header.total, false);
        let reply = matches!(header.kind, b'1' | b'2' | b'3' | b'n' | b's' | b'I' | b'C' | b'T');
        if reply {
            self.expected.replied();
        }
        if self.expected.instead_of(header.kind, self.units.first_mut(), out) {
            self.withheld = true;
        }
        let number = self.units.worked_on();
        match header.kind {
            b'1' => self.statements.parsed(number),
            b'3' => self.statements.closed(number),
            _ => {}
        }
        let unit = self.units.first_mut();
        let hides = unit.as_ref().is_some_and(|unit| unit.explained == Some(Explained::Table));
        match (header.kind, unit) {
            (b'Z', _) => self.expected.ready(),
            (b'R', _) if self.unbound && !self.ready => {
                if let Some(offer) = message::without_binding(body) {
                    out.extend_from_slice(&offer);
                    self.withheld = true;
                }
            }
            (b'K', _) if self.key.is_none() => self.key = Key::read(body),
            (b'D' | b'd', Some(unit)) => {
                unit.progress.sent_rows = unit.progress.sent_rows.saturating_add(1);
                self.withheld |= hides;
            }
            (b'H', Some(unit)) => {
                unit.copies_out = true;
                self.withheld |= hides;
            }
            (b'T' | b'I' | b'n' | b'c', Some(_)) => self.withheld |= hides,
            (b'C', Some(unit)) => {
                // `COPY` has one tag for both ways; rows that went out were counted as they did.
                if !std::mem::take(&mut unit.copies_out) {
                    let changed = &mut unit.progress.changed_rows;
                    *changed = changed.saturating_add(message::changed_rows(body));
                }
                unit.reset = unit.reset.max(Reset::of_tag(body));
                self.withheld |= hides;
                self.statements.done(number, body);
            }
            (b'E', Some(unit)) => {
                unit.failed = true;
                if let Some(error) = &unit.killed
                    && message::is_cancelled(body)
                {
                    out.extend_from_slice(error);
                    self.withheld = true;
                }
                if unit.simple {
                    self.statements.take_back(number);
                } else {
                    self.skip_to_sync();
                }
                self.copying_in = false;
            }
            (b'G' | b'W', Some(_)) => self.copy_in(),
            _ => {}
        }
    }

    /// A `ReadyForQuery` is at the front.
    fn ended(&mut self, body: &[u8]) -> Option<Event<R>> {
        self.status = body.first().copied().unwrap_or(b'I');
        if !self.ready {
            self.ready = true;
            return Some(Event::Login);
        }
        self.copying_in = false;
        let number = self.units.worked_on();
        let unit = self.units.end()?;
        self.statements.take_back(number);
        Some(Event::Ended(unit))
    }

    /// The server has failed in the unit at the front, and will not answer the rest of it.
    fn skip_to_sync(&mut self) {
        self.expected.skip_to_ready();
        self.statements.take_back(self.units.worked_on());
        self.server_skips = self.units.first().is_some_and(|unit| !unit.closed);
    }

    /// The server wants data from the client: a `Sync` it was sent already is one that it reads over.
    fn copy_in(&mut self) {
        self.copying_in = true;
        if let Some(unit) = self.units.first_mut().filter(|unit| !unit.simple && unit.closed)
            && self.expected.forget_ready()
        {
            unit.closed = false;
        }
    }

    fn hand_over(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        if !self.withheld {
            out.extend_from_slice(bytes);
        }
        if self.ready {
            self.units.count_out(bytes.len());
        }
    }
}
