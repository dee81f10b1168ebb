//! The server's direction: what is for the client, which statement it belongs to, and where answers of the gateway go.

use super::wire::Wire;
use super::{Event, Explained, Heard};
use crate::postgres::frame::{HEADER, Header};
use crate::postgres::key::Key;
use crate::postgres::message;
use crate::postgres::reset::Reset;

/// Bytes of a server's message that are looked at.
const MAX_LOOK: usize = 2_048;

/// The server's direction.
#[derive(Debug)]
pub(super) struct ServerSide {
    /// The rest of its message, and whether it is kept from the client.
    rest: usize,
    withheld: bool,
    key: Option<Key>,
    /// The client is offered no login that is bound to the server's TLS.
    unbound: bool,
}

impl ServerSide {
    /// Before it has said anything.
    pub(super) fn new(unbound: bool) -> Self {
        Self { rest: 0, withheld: false, key: None, unbound }
    }

    pub(super) fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    pub(super) fn is_between_messages(&self) -> bool {
        self.rest == 0
    }

    /// See [`super::Machine::server`].
    pub(super) fn step<R, O>(
        &mut self,
        wire: &mut Wire<R, O>,
        bytes: &[u8],
        out: &mut Vec<u8>,
        room: usize,
    ) -> Heard<R> {
        let (mut used, full) = (0_usize, out.len().saturating_add(room));
        loop {
            if self.rest == 0 {
                wire.expected.answer(wire.status, out);
            }
            let rest = bytes.get(used..).unwrap_or_default();
            if rest.is_empty() || out.len() >= full {
                return Ok((used, None));
            }
            if self.rest > 0 {
                let piece = rest.get(..self.rest.min(rest.len())).unwrap_or_default();
                if !self.withheld {
                    out.extend_from_slice(piece);
                }
                if wire.ready {
                    wire.units.count_out(piece.len());
                }
                (used, self.rest) = (used + piece.len(), self.rest - piece.len());
                continue;
            }
            let Some(header) = Header::read(rest)? else { return Ok((used, None)) };
            let needed = match header.kind {
                b'Z' | b'C' | b'E' | b'K' => header.total.min(MAX_LOOK),
                b'R' if self.unbound && !wire.ready => header.total.min(MAX_LOOK),
                _ => HEADER,
            };
            let Some(body) = rest.get(HEADER..needed.max(HEADER)) else { return Ok((used, None)) };
            if header.kind == b'Z'
                && let Some(event) = wire.ended(body.first().copied().unwrap_or(b'I'))
            {
                return Ok((used, Some(event)));
            }
            if let Some(formats) = wire.expected.tells_costs(header.kind) {
                return Ok((used, Some(Event::Costs(formats))));
            }
            self.message(wire, header, body, out);
        }
    }

    /// Makes the message at the front pass, and takes note of it.
    fn message<R, O>(&mut self, wire: &mut Wire<R, O>, header: Header, body: &[u8], out: &mut Vec<u8>) {
        self.rest = header.total;
        if matches!(header.kind, b'1' | b'2' | b'3' | b'n' | b's' | b'I' | b'C' | b'T') {
            wire.expected.replied();
        }
        self.withheld = wire.expected.instead_of(header.kind, wire.units.first_mut(), out);
        let number = wire.units.worked_on();
        match header.kind {
            b'1' => wire.statements.parsed(number),
            b'3' => wire.statements.closed(number),
            _ => {}
        }
        let unit = wire.units.first_mut();
        let hides = unit.as_ref().is_some_and(|unit| unit.explained == Some(Explained::Table));
        self.withheld |= hides && b"TDdHcCIn".contains(&header.kind);
        match (header.kind, unit) {
            (b'Z', _) => wire.expected.ready(),
            (b'R', _) if self.unbound && !wire.ready => {
                if let Some(offer) = message::without_binding(body) {
                    out.extend_from_slice(&offer);
                    self.withheld = true;
                }
            }
            (b'K', _) if self.key.is_none() => self.key = Key::read(body),
            (b'D' | b'd', Some(unit)) => {
                unit.progress.sent_rows = unit.progress.sent_rows.saturating_add(1);
            }
            (b'H', Some(unit)) => unit.copies_out = true,
            (b'C', Some(unit)) => {
                // `COPY` has one tag for both ways; rows that went out were counted as they did.
                if !std::mem::take(&mut unit.copies_out) {
                    let changed = &mut unit.progress.changed_rows;
                    *changed = changed.saturating_add(message::changed_rows(body));
                }
                unit.reset = unit.reset.max(Reset::of_tag(body));
                wire.statements.done(number, body);
            }
            (b'E', Some(unit)) => {
                unit.failed = true;
                if let Some(error) = &unit.killed
                    && message::is_cancelled(body)
                {
                    out.extend_from_slice(error);
                    self.withheld = true;
                }
                wire.failed();
            }
            (b'G' | b'W', Some(_)) => wire.copy_in(),
            _ => {}
        }
    }
}
