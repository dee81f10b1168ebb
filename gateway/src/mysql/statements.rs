//! The statements of a connection: how many there were, which one is asked about, and what numbers and names stand for.

use tidegate_sql::Naming;

use super::command::Command;
use super::named::Named;
use super::outstanding::{Kept, Kind};
use super::parts::Parts;
use super::prepared::Prepared;

/// The statements of a connection; `T` is what the caller remembers of a prepared one.
#[derive(Debug)]
pub(super) struct Statements<T> {
    /// How many were asked about.
    count: u64,
    /// The database that the statement asked about will make the default.
    using: Option<String>,
    /// What it will do with names.
    naming: Option<Naming<T>>,
    /// What to keep of the statement that is prepared in place of it.
    preparing: Option<Kept<T>>,
    pub(super) prepared: Prepared<Kept<T>>,
    pub(super) parts: Parts,
    pub(super) named: Named<T>,
}

impl<T> Statements<T> {
    pub(super) fn new() -> Self {
        Self {
            count: 0,
            using: None,
            naming: None,
            preparing: None,
            prepared: Prepared::new(),
            parts: Parts::default(),
            named: Named::new(),
        }
    }

    /// Another one is asked about, which will make this database the default. Returns its number.
    pub(super) fn ask(&mut self, using: Option<String>) -> u64 {
        self.using = using;
        self.count = self.count.saturating_add(1);
        self.count
    }

    /// The number of the one asked about.
    pub(super) fn number(&self) -> u64 {
        self.count
    }

    /// It does not go to the server.
    pub(super) fn stays(&mut self, command: Command) {
        self.naming = None;
        if command == Command::Prepare {
            self.prepared.refused();
        }
    }

    /// What to keep of the one that is prepared in its place.
    pub(super) fn take_preparing(&mut self) -> Option<Kept<T>> {
        self.preparing.take()
    }

    /// The session was reset: nothing is prepared, by a number or by a name.
    pub(super) fn forget(&mut self) {
        self.prepared.clear();
        self.named.clear();
    }

    /// The statement asked about does this with names, if it is let through.
    pub(super) fn will_name(&mut self, naming: Naming<T>) {
        self.naming = Some(naming);
    }

    /// What the statement that goes to the server does with names.
    pub(super) fn take_naming(&mut self) -> Option<Naming<T>> {
        self.naming.take()
    }
}

impl<T: Clone> Statements<T> {
    /// It goes to the server. Returns what to keep of it once it is prepared, and the database of the session then.
    pub(super) fn goes(
        &mut self,
        command: Command,
        template: Option<T>,
    ) -> (Option<Kept<T>>, Option<String>) {
        let kept = template.filter(|_| command == Command::Prepare);
        let kept = kept.map(|template| Kept { template, kind: Kind::Theirs });
        if command == Command::Prepare {
            self.prepared.sent(kept.clone());
        }
        (kept, self.using.take())
    }

    /// The server is to prepare another one in its place.
    pub(super) fn prepares(&mut self, template: T, kind: Kind) {
        let kept = Kept { template, kind };
        self.prepared.sent(Some(kept.clone()));
        self.preparing = Some(kept);
    }
}
