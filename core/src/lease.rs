//! One client's lease on one group, as the controller's ledger keeps it.
//!
//! The ledger counts what the node *may* be using, not what it was last told: a lowered rate or cap stays counted
//! at its old value until the node has acknowledged it, or until the older grant has ended.

use crate::fill::Member;
use crate::units::{Rate, Ru, Span, Time};

/// What the ledger knows of one client in one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    /// Renewal that produced the newest grant.
    pub seq: u64,
    /// Newest grant, and its end.
    pub rate: Rate,
    pub cap: Ru,
    pub expires: Time,
    /// What the node said it held when it asked: in force until it acknowledges the newest grant.
    pub held_rate: Rate,
    pub held_cap: Ru,
    pub held_until: Time,
    /// When what the node holds ends at the latest. What the ledger counts may last longer: the newest grant counts as
    /// applied until it has ended, and what was held before as not given up.
    pub held_end: Time,
    /// Lump tokens given and not yet reported spent or returned; the part in the newest grant.
    pub lump: Ru,
    /// Spent, by what the node says, on operations that have not ended: what they do not need comes back to the pool,
    /// and there is room for it. The ledger takes that back when others need it first.
    pub running: Ru,
    pub fresh_lump: Ru,
    pub fresh_fill: Ru,
    /// The most tokens the node can have, so that it cannot return more than it was given.
    pub tokens_max: Ru,
    pub counted_at: Time,
    /// What the client wants, and whether that is entered into the division.
    pub want: Rate,
    pub entered: bool,
    /// The rate under which the group lists it; `None` while it does not.
    pub listed: Option<Rate>,
    /// As reported, and its average over the last renewals.
    pub demand: Rate,
    pub average: Rate,
    pub backlog: Ru,
    /// What is leased was once more than the load, so that how much that is is known.
    pub covered: bool,
    pub head: Ru,
    /// RU/s offered in operations that need no lump, and what of them waits beside one that does.
    pub steady: Rate,
    pub beside: Ru,
    /// How long before it is needed an answer is of use.
    pub ahead: Span,
    pub largest: Ru,
    pub debt: Ru,
    pub waiting: u64,
    /// When the first waiter began to wait for a lump; its place in the queue.
    pub queued_since: Option<Time>,
    /// When it asks again, as it was told while it waits for a lump.
    pub asks_at: Time,
    /// When it was last told to lower itself.
    pub lowered_at: Option<Time>,
    /// Metered only: nothing in the chain has a limit.
    pub unlimited: bool,
}

impl Lease {
    /// The rate the node may be using.
    pub(crate) fn committed(&self) -> Rate {
        self.rate.max(self.held_rate)
    }

    /// The tokens the node may be holding, and those that may come back from its operations.
    pub(crate) fn hold(&self) -> Ru {
        self.cap.max(self.held_cap) + self.lump + self.running
    }

    /// The end of everything that was granted.
    pub(crate) fn ends(&self) -> Time {
        self.expires.max(self.held_until)
    }

    /// What it entered into the division.
    pub(crate) fn entry(&self) -> Option<Member> {
        self.entered.then(|| Member::new(self.want.0, 1))
    }

    /// Counts what the node can have been credited with until `now`.
    pub(crate) fn count_tokens(&mut self, now: Time) {
        let income = self.committed().over(now.since(self.counted_at));
        self.counted_at = now;
        self.tokens_max = (self.tokens_max + income + Ru(1)).min(self.hold());
    }
}
