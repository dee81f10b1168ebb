//! A way to the model of the shared store on which a test hears of calls before they are made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_consensus::model::Model;
use tidegate_consensus::{Consensus, ConsensusError, Outcome, Page, Transaction};

/// What a test does before calls.
pub(crate) trait Way: Send + Sync {
    fn model(&self) -> &Model;
    fn before_transaction(&self, _: &Transaction) {}
    /// `from` is the key that a page begins with.
    fn before_page(&self, _from: &[u8]) {}
}

/// The model at the end of a way.
pub(crate) struct Over<W>(pub(crate) Arc<W>);

impl<W: Way> fmt::Debug for Over<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.model().fmt(f)
    }
}

impl<W: Way> Consensus for Over<W> {
    fn transact(&self, transaction: &Transaction, within: Duration) -> Result<Outcome, ConsensusError> {
        self.0.before_transaction(transaction);
        self.0.model().transact(transaction, within)
    }

    fn range(
        &self,
        from: &[u8],
        to: &[u8],
        most: usize,
        at: Option<u64>,
        within: Duration,
    ) -> Result<Page, ConsensusError> {
        self.0.before_page(from);
        self.0.model().range(from, to, most, at, within)
    }

    fn compact(&self, revision: u64, within: Duration) -> Result<(), ConsensusError> {
        self.0.model().compact(revision, within)
    }
}
