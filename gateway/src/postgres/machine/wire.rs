//! What both directions of a session work on: its units, what the client gets next, and what names stand for.

use super::expected::{Expect, Expected};
use super::names::Names;
use super::units::Units;
use super::{Event, Unit};

/// The state of both directions.
#[derive(Debug)]
pub(super) struct Wire<R, O> {
    pub(super) units: Units<R>,
    pub(super) expected: Expected,
    pub(super) statements: Names<O>,
    /// The login has succeeded.
    pub(super) ready: bool,
    /// The status of the last `ReadyForQuery`: idle, in a transaction, or in a failed one.
    pub(super) status: u8,
    /// The server skips to the next `Sync` of the last unit.
    pub(super) server_skips: bool,
    pub(super) copying_in: bool,
    /// Units behind the first that end with it.
    read_over: usize,
    /// A unit has ended without a `Sync`, and no `ReadyForQuery` has come since.
    pub(super) unsynced: bool,
}

impl<R, O> Wire<R, O> {
    /// Before the login.
    pub(super) fn new() -> Self {
        let (units, expected, statements) = (Units::new(), Expected::default(), Names::default());
        let (ready, status) = (false, b'I');
        let (server_skips, copying_in, unsynced) = (false, false, false);
        let read_over = 0;
        Self { units, expected, statements, ready, status, server_skips, copying_in, read_over, unsynced }
    }

    /// A message of the extended protocol goes to the server, for which the client gets this.
    pub(super) fn expect(&mut self, expect: Expect) {
        self.units.open();
        if !self.server_skips {
            self.expected.push(expect);
        }
    }

    /// A message of the extended protocol does not go to the server; the client gets this.
    pub(super) fn insert(&mut self, reply: Vec<u8>) {
        self.units.open();
        // The client has had an error of this unit already, and hears nothing else before its end.
        if !self.server_skips {
            self.expected.insert(reply);
        }
    }

    /// A `Sync` goes to the server.
    pub(super) fn sync(&mut self) {
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
    }

    /// A message of the last unit goes to the server that does this with names.
    pub(super) fn name(&mut self, change: impl FnOnce(&mut Names<O>, u64)) {
        // What the server skips changes nothing.
        if !self.server_skips {
            change(&mut self.statements, self.units.opened());
        }
    }

    /// The server wants data from the client: a `Sync` it was sent already is one that it reads over, unless the data
    /// was sent before it. Of what else is behind that `Sync` the next one ends all: what is no data fails.
    pub(super) fn copy_in(&mut self) {
        let behind = self.units.behind_first();
        let Some(unit) = self.units.first_mut() else { return };
        if unit.copy_ends > 0 {
            unit.copy_ends -= 1;
            return;
        }
        self.copying_in = true;
        if !unit.simple && unit.closed && self.expected.forget_ready() {
            unit.closed = behind > 0;
            (self.copying_in, self.read_over) = (behind == 0, behind);
            for _ in 1..behind {
                self.expected.forget_ready();
            }
        }
    }

    /// The client ends the data that it copies in, or has sent ahead.
    pub(super) fn copied_in(&mut self) {
        if std::mem::take(&mut self.copying_in) {
            return;
        }
        if let Some(unit) = self.units.last_mut().filter(|unit| unit.simple || !unit.closed) {
            unit.copy_ends = unit.copy_ends.saturating_add(1);
        }
    }

    /// The server has failed in the unit at the front. In the extended protocol it will not answer the rest of it.
    pub(super) fn failed(&mut self) {
        self.copying_in = false;
        self.statements.take_back(self.units.worked_on());
        if let Some(unit) = self.units.first_mut().filter(|unit| !unit.simple) {
            self.expected.skip_to_ready();
            self.server_skips = !unit.closed;
        }
    }

    /// A `ReadyForQuery` of this status is at the front. One for each unit that it ends.
    pub(super) fn ended(&mut self, status: u8) -> Option<Event<R>> {
        if !self.expected.tells_ready() {
            self.read_over = self.read_over.checked_sub(1)?;
        }
        self.status = status;
        if !std::mem::replace(&mut self.ready, true) {
            return Some(Event::Login);
        }
        (self.copying_in, self.unsynced) = (false, false);
        self.statements.take_back(self.units.worked_on());
        self.units.end().map(Event::Ended)
    }

    /// Whether messages of the extended protocol were sent that no `Sync` has closed yet. What is copied in closes
    /// before anything else.
    pub(super) fn is_open(&self) -> bool {
        !self.copying_in && self.units.last().is_some_and(|unit| !unit.closed)
    }

    /// The server has answered all of the open unit, and gets something else than a `Sync`.
    pub(super) fn part(&mut self) -> Option<Unit<R>> {
        self.unsynced = true;
        self.statements.take_back(self.units.worked_on());
        self.units.end()
    }
}
