//! Prepared statements of a connection: what the caller remembers of each, by the server's id.

use std::collections::BTreeMap;

/// Most statements that are remembered on one connection. Servers allow 16,382 for all connections together; when
/// it is reached, the oldest is forgotten, and executions of it are admitted as of an unknown statement.
pub(super) const PREPARED_LIMIT: usize = 4096;

/// The id that stands for the last statement that was prepared (MariaDB): it lets a client execute before it knows
/// the id.
pub(super) const LAST_ID: u32 = u32::MAX;

/// Statements of one connection.
#[derive(Debug)]
pub(super) struct Prepared<T> {
    statements: BTreeMap<u32, T>,
    last: Last<T>,
}

/// What [`LAST_ID`] means to the server at the end of what has been sent.
#[derive(Debug)]
enum Last<T> {
    None,
    /// The server never saw it: its own last is another.
    Refused,
    Sent(Option<T>),
}

impl<T> Prepared<T> {
    pub(super) fn new() -> Self {
        Self { statements: BTreeMap::new(), last: Last::None }
    }

    /// A statement goes to the server to be prepared.
    pub(super) fn sent(&mut self, template: Option<T>) {
        self.last = Last::Sent(template);
    }

    /// A statement does not.
    pub(super) fn refused(&mut self) {
        self.last = Last::Refused;
    }

    /// The server has prepared it. Where another has to be forgotten, it is rather one that `may_go`.
    pub(super) fn insert(&mut self, id: u32, template: T, may_go: impl Fn(&T) -> bool) {
        self.statements.insert(id, template);
        if self.statements.len() > PREPARED_LIMIT {
            let other = self.statements.iter().find(|(_, template)| may_go(template));
            let other = other.or_else(|| self.statements.first_key_value()).map(|(id, _)| *id);
            other.map(|id| self.statements.remove(&id));
        }
    }

    pub(super) fn remove(&mut self, id: u32) {
        if id == LAST_ID {
            self.last = Last::None;
        } else {
            self.statements.remove(&id);
        }
    }

    /// What is remembered of `id`.
    pub(super) fn get(&self, id: u32) -> Option<T>
    where
        T: Clone,
    {
        match &self.last {
            Last::Sent(template) if id == LAST_ID => template.clone(),
            _ => self.statements.get(&id).cloned(),
        }
    }

    /// Whether `id` means a statement that the server never saw.
    pub(super) fn is_refused(&self, id: u32) -> bool {
        id == LAST_ID && matches!(self.last, Last::Refused)
    }

    /// A command goes to the server behind which nothing is prepared.
    pub(super) fn reset_sent(&mut self) {
        self.last = Last::None;
    }

    /// The session is reset. What has been sent since then stays.
    pub(super) fn clear(&mut self) {
        self.statements.clear();
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.statements.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_room() {
        let mut prepared = Prepared::new();
        for id in 0..=u32::try_from(PREPARED_LIMIT).unwrap() {
            prepared.insert(id, id, |id| *id != 0);
        }
        assert_eq!(prepared.len(), PREPARED_LIMIT);
        assert_eq!((prepared.get(0), prepared.get(1), prepared.get(2)), (Some(0), None, Some(2)));
    }

    #[test]
    fn there_are_so_many_also_where_none_is_to_make_room() {
        let mut prepared = Prepared::new();
        for id in 0..=u32::try_from(PREPARED_LIMIT).unwrap() {
            prepared.insert(id, id, |_| false);
        }
        assert_eq!((prepared.len(), prepared.get(0), prepared.get(1)), (PREPARED_LIMIT, None, Some(1)));
    }

    #[test]
    fn the_last_is_the_one_that_was_sent_last() {
        let mut prepared = Prepared::new();
        assert_eq!(prepared.get(LAST_ID), None);
        prepared.sent(Some("a"));
        assert_eq!(prepared.get(LAST_ID), Some("a"));
        prepared.refused();
        assert!(prepared.is_refused(LAST_ID) && !prepared.is_refused(1));
        prepared.sent(None);
        assert_eq!((prepared.get(LAST_ID), prepared.is_refused(LAST_ID)), (None, false));
    }
}
