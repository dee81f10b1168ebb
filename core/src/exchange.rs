//! What a node and the controller tell each other about one group: `Ask` up, `Grant` down, `Lower` pushed.
//!
//! The wire formats convert to and from these; the simulation passes them as they are.

use crate::group::Fallback;
use crate::units::{Rate, Ru, Span};

/// One group's entry in a renewal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Sequence number of the newest renewal whose grant for this group was applied; 0 for none.
    pub acked_seq: u64,
    /// What the node may spend until a new grant arrives.
    pub held: Held,
    /// Tokens given back; they have left the node already.
    pub returned: Ru,
    /// What operations did not need and the node had no room for; it, too, has left the node.
    pub refunded: Ru,
    /// What operations under way were admitted for: a part of it may come back.
    pub running: Ru,
    /// What the largest operation of the last while was admitted for, as long as one is under way.
    pub largest: Ru,
    /// RU/s offered: admitted plus arrived and waiting.
    pub demand: Rate,
    /// RU waiting for admission.
    pub backlog: Ru,
    /// Cost of the first waiter that needs a lump or, where none does, of the first; zero without waiters.
    pub head: Ru,
    /// RU/s offered in operations that fit the bucket, over the last renewals.
    pub steady: Rate,
    /// RU waiting in operations that pass the first waiter, which needs a lump.
    pub beside: Ru,
    /// How long an answer takes to come: tokens that are there by then are of use in it. Zero: lumps are not to come
    /// with a time from which they may be spent.
    pub ahead: Span,
    /// Debt not yet repaid.
    pub debt: Ru,
    /// Operations waiting for admission.
    pub waiting: u64,
}

impl Ask {
    /// The node had a lease, holds nothing of it any more and wants nothing.
    pub fn gives_up(&self) -> bool {
        self.acked_seq > 0
            && self.held == Held::default()
            && self.demand == Rate::ZERO
            && !self.backlog.is_positive()
            && !self.head.is_positive()
    }
}

/// The spending power of a node between two grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Held {
    /// Fill rate of the local bucket.
    pub rate: Rate,
    /// Depth of the local bucket.
    pub cap: Ru,
    /// Unspent lump tokens.
    pub lump: Ru,
}

/// The controller's answer for one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Grant {
    /// Spend within this until it ends.
    Leased(LeaseTerms),
    /// Metered, not throttled, until the lease ends.
    Unlimited {
        /// Lease length, from the moment the node sent its renewal.
        ttl: Span,
        /// Renew again after this long.
        renew_after: Span,
        /// What the node may admit past the lease.
        fallback: Fallback,
    },
    /// The group does not exist.
    UnknownGroup,
    /// The controller recovers from an unclean start: the node proved no lease, or one that is worth less than its
    /// fallback.
    Recovering {
        /// Ask again after this long.
        ask_again: Span,
        /// What the node may admit meanwhile; `None`: what it was told before.
        fallback: Option<Fallback>,
    },
}

/// A lease as the node applies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseTerms {
    /// Fill rate of the local bucket.
    pub rate: Rate,
    /// Depth of the local bucket.
    pub cap: Ru,
    /// Tokens for the local bucket at once; it never holds more than `cap`.
    pub fill: Ru,
    /// Tokens beside the bucket, spent first, not refilled.
    pub lump: Ru,
    /// The lump may be spent from so long after its receipt on: the pool covers it by then.
    pub lump_after: Span,
    /// Lease length, from the moment the node sent its renewal.
    pub ttl: Span,
    /// Renew again after this long if nothing happens.
    pub renew_after: Span,
    /// Asking again before this is useless; zero means as soon as it helps.
    pub ask_again: Span,
    /// An operation above this can never be admitted.
    pub max_fit: Ru,
    /// Debt the node is expected to stay within.
    pub max_debt: Ru,
    /// What the node may admit past the lease.
    pub fallback: Fallback,
    /// Acknowledge at once: others wait for what this lowered.
    pub ack_now: bool,
    /// Others wait for tokens: give back surplus early.
    pub scarce: bool,
    /// Others wait for a lump: give it back as soon as there is some.
    pub lump_wanted: bool,
}
