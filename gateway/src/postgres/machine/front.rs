//! The client's message at the front, once it is known what becomes of it.

use super::Step;
use crate::postgres::frame::Header;

/// The rest of a message that goes on or is dropped.
#[derive(Debug, Default)]
pub(super) struct Front {
    rest: usize,
    dropping: bool,
    /// What the server gets in its place.
    instead: Option<Vec<u8>>,
}

impl Front {
    /// It goes on.
    pub(super) fn pass<O>(&mut self, header: Header) -> Step<O> {
        (self.rest, self.dropping) = (header.total, false);
        Step::Pass(0)
    }

    /// It is dropped.
    pub(super) fn skip<O>(&mut self, header: Header) -> Step<O> {
        (self.rest, self.dropping) = (header.total, true);
        Step::Skip(0)
    }

    /// The server gets these bytes in its place; it has been accounted for.
    pub(super) fn swap<O>(&mut self, header: Header, bytes: Vec<u8>) -> Step<O> {
        self.instead = Some(bytes);
        self.skip(header)
    }

    /// Whether no message is on its way in part, so that another may be put before the next.
    pub(super) fn is_between_messages(&self) -> bool {
        self.rest == 0
    }

    /// What the server gets before anything else.
    pub(super) fn take_instead(&mut self) -> Option<Vec<u8>> {
        self.instead.take()
    }

    /// What becomes of so many bytes; `None` when the next message begins.
    pub(super) fn go_on<O>(&mut self, held: usize) -> Option<Step<O>> {
        let length = self.rest.min(held);
        self.rest -= length;
        match (length, self.rest) {
            (0, 0) => None,
            (0, _) => Some(Step::More(1)),
            _ if self.dropping => Some(Step::Skip(length)),
            _ => Some(Step::Pass(length)),
        }
    }
}
