//! Values of prepared statements that came in parts (`COM_STMT_SEND_LONG_DATA`), ahead of the execution that uses them.
//!
//! They have no response, and the server keeps them until it executes the statement or resets it. An execution that
//! does not go to the server must not leave them there: its client sends them again with the next one, and the server
//! appends what it gets to what it has.

use std::collections::BTreeSet;

use super::prepared::PREPARED_LIMIT;

/// Most statements of one connection that are known to have parts; beyond, each may have some.
const MOST: usize = PREPARED_LIMIT;

/// The parts that the server has of statements of one connection. Most connections never have any, and hold little for
/// them.
#[derive(Debug, Default)]
pub(super) struct Parts(Option<Box<Sent>>);

#[derive(Debug, Default)]
struct Sent {
    of: BTreeSet<u32>,
    of_others: bool,
    /// Bytes of parts that no execution has paid for.
    bytes: u64,
    /// The statement that the server is to reset, as an execution of it was refused.
    refused: Option<u32>,
}

impl Parts {
    /// So many bytes of a part for this statement go to the server.
    pub(super) fn sent(&mut self, id: u32, bytes: u64) {
        let sent = self.0.get_or_insert_default();
        sent.bytes = sent.bytes.saturating_add(bytes);
        if sent.of.len() < MOST {
            sent.of.insert(id);
        } else if !sent.of.contains(&id) {
            sent.of_others = true;
        }
    }

    /// The server uses the parts of this statement, or forgets them. Whether there may have been some.
    pub(super) fn gone(&mut self, id: u32) -> bool {
        self.0.as_mut().is_some_and(|sent| sent.of.remove(&id) || sent.of_others)
    }

    /// An execution of this statement does not go to the server.
    pub(super) fn refused(&mut self, id: u32) {
        if self.gone(id)
            && let Some(sent) = &mut self.0
        {
            sent.refused = Some(id);
        }
    }

    /// The statement that the server is to reset.
    pub(super) fn take_refused(&mut self) -> Option<u32> {
        self.0.as_mut()?.refused.take()
    }

    /// The bytes that the execution pays for that goes to the server next.
    pub(super) fn take_bytes(&mut self) -> u64 {
        self.0.as_mut().map(|sent| std::mem::take(&mut sent.bytes)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_known_once_and_beyond_the_limit_each_statement_may_have_some() {
        let mut parts = Parts::default();
        let most = u32::try_from(MOST).unwrap();
        for id in 0..most {
            parts.sent(id, 1);
            parts.sent(id, 1);
        }
        assert!(!parts.gone(most), "the limit is reached, and not passed");
        parts.sent(7, 1);
        assert!(!parts.gone(most), "it is known already");
        assert!(parts.gone(7) && !parts.gone(7));
        parts.sent(7, 1);
        parts.sent(most, 1);
        assert!(parts.gone(most) && parts.gone(7));
        assert_eq!((parts.take_bytes(), parts.take_bytes()), (2 * u64::from(most) + 3, 0));
    }
}
