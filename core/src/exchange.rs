//! The messages of a node and the controller about one group: `Ask` up, `Grant` down, `Lower` pushed.
//!
//! The wire formats convert to and from these; the simulation passes them as they are.

use std::hash::{Hash, Hasher};

use crate::group::Fallback;
use crate::quota::Unit;
use crate::units::{Rate, Ru, Span};

/// One group's entry in a renewal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ask {
    /// Sequence number of the newest renewal whose grant for this group was applied; 0 for none.
    pub acked_seq: u64,
    /// What the node may spend until a new grant arrives.
    pub held: Held,
    /// Tokens given back, which the node holds no more.
    pub returned: Ru,
    /// Tokens that operations did not need and the node had no room for. The node holds these no more, either.
    pub refunded: Ru,
    /// Estimates of the operations under way: a part may come back.
    pub running: Ru,
    /// The largest recent estimate, while an operation is under way.
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
    /// How long an answer takes to come: tokens that exist by then can be granted in it. Zero: the node wants no lump
    /// before it may be spent.
    pub ahead: Span,
    /// Debt not yet repaid.
    pub debt: Ru,
    /// Operations waiting for admission.
    pub waiting: u64,
    /// What was used of the group's quota.
    pub spending: Spending,
}

impl Ask {
    /// Whether the node had a lease, holds nothing of it any more and wants nothing.
    pub fn gives_up(&self) -> bool {
        self.acked_seq > 0
            && self.held == Held::default()
            && self.demand == Rate::ZERO
            && !self.backlog.is_positive()
            && !self.head.is_positive()
            && !self.wants_requests()
    }

    /// Whether the node counts requests and has some to begin, which may cost no RU.
    fn wants_requests(&self) -> bool {
        let Spending { unit, offered, .. } = self.spending;
        unit == Unit::Requests && (self.waiting > 0 || offered > Rate::ZERO)
    }
}

/// A node's use of its group's quota, operations under way at their estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spending {
    /// The window in which it counts; 0: the node has no share of a quota.
    pub window: u64,
    /// Used since the node's first share in it.
    pub used: Ru,
    /// The most that the node may use until a new grant arrives.
    pub ceiling: Ru,
    /// What is counted.
    pub unit: Unit,
    /// Requests offered in a second, if they are counted: the demand says so of RU.
    pub offered: Rate,
    /// Where the window rolls, the part of what was used that is estimates of operations under way. Requests have none: they
    /// count when they begin.
    pub running: Ru,
}

/// What a quota of RU in fixed windows does not have is left out: the courses of the simulation are older.
impl Hash for Spending {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { window, used, ceiling, unit, offered, running } = self;
        (window, used, ceiling).hash(state);
        if *unit == Unit::Requests {
            (unit, offered).hash(state);
        }
        if running.is_positive() {
            running.hash(state);
        }
    }
}

/// A node's share of its group's quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// The window in which it counts.
    pub window: u64,
    /// What is counted.
    pub unit: Unit,
    /// The most that the node may use in it, all that it has used included.
    pub ceiling: Ru,
    /// The quota.
    pub amount: Ru,
    /// What is left of it for all nodes, shares that they have not used included.
    pub left: Ru,
    /// Time to the end of the window; where it rolls, until something leaves it.
    pub resets_in: Span,
    /// The length of the window, for callers of the node; zero: unknown.
    pub length: Span,
    /// The window rolls: the share ends with the lease.
    pub rolls: bool,
}

/// All but the length, which decides nothing, and a unit of RU: the courses of the simulation are of what does.
impl Hash for Allowance {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { window, unit, ceiling, amount, left, resets_in, length: _, rolls } = self;
        (window, ceiling, amount, left, resets_in).hash(state);
        if *rolls {
            rolls.hash(state);
        }
        if *unit == Unit::Requests {
            unit.hash(state);
        }
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
    /// The node may spend within these terms until they end.
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
    /// The controller recovers from an unclean start, and the node proved no lease, or one worth less than its
    /// fallback.
    Recovering {
        /// Ask again after this long.
        ask_again: Span,
        /// What the node may admit meanwhile; `None`: what the controller said last.
        fallback: Option<Fallback>,
    },
}

impl Grant {
    /// The length of the lease in it.
    pub(crate) fn ttl(&self) -> Option<Span> {
        match self {
            Self::Leased(terms) => Some(terms.ttl),
            Self::Unlimited { ttl, .. } => Some(*ttl),
            Self::UnknownGroup | Self::Recovering { .. } => None,
        }
    }
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
    /// Time after receipt from which the lump may be spent: the pool covers it by then.
    pub lump_after: Span,
    /// Lease length, from the moment the node sent its renewal.
    pub ttl: Span,
    /// Renew again after this long if nothing happens.
    pub renew_after: Span,
    /// Time before which asking again is useless; zero: the node asks as soon as that helps.
    pub ask_again: Span,
    /// Cost above which no operation can ever be admitted.
    pub max_fit: Ru,
    /// Debt within which the node is expected to stay.
    pub max_debt: Ru,
    /// What the node may admit past the lease.
    pub fallback: Fallback,
    /// The node acknowledges at once: others wait for what this lowers.
    pub ack_now: bool,
    /// Others wait for tokens: the node gives surplus back early.
    pub scarce: bool,
    /// Others wait for a lump: the node gives surplus back as soon as it has some.
    pub lump_wanted: bool,
    /// How the node holds operations to the terms.
    pub enforcement: Enforcement,
    /// Its share of the quota, if the group or one above it has one.
    pub allowance: Option<Allowance>,
}

/// How a node holds operations to its lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Enforcement {
    /// Operations that the lease does not cover are counted and admitted all the same.
    pub shadow: bool,
    /// Each operation is paid for at the rate before the next one starts; no lumps are granted.
    pub paced: bool,
}
