//! One client's lease on one group, as the controller's ledger keeps it.
//!
//! The ledger counts what the node *may* be using, not what the newest grant says: a lowered rate or cap stays counted
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
    /// What the node reported as held: in force until it acknowledges the newest grant.
    pub held_rate: Rate,
    pub held_cap: Ru,
    pub held_until: Time,
    /// The latest end of what the node holds. What the ledger counts may last longer: it counts the newest grant as
    /// applied, and what the node held before as kept, until each has ended.
    pub held_end: Time,
    /// Lump tokens given and not yet reported spent or returned; `fresh_lump` is the part in the newest grant.
    pub lump: Ru,
    /// Tokens reported as spent on operations that have not ended: what these do not need comes back to the pool, where
    /// it has room. The ledger takes that room back when others need it first.
    pub running: Ru,
    pub fresh_lump: Ru,
    pub fresh_fill: Ru,
    /// The most tokens the node can have, and when that was computed: it cannot return more than it was given.
    pub tokens_max: Ru,
    pub counted_at: Time,
    /// The rate that the client wants, and whether the division has it.
    pub want: Rate,
    pub entered: bool,
    /// The rate by which the group lists the lease; `None` while it does not.
    pub listed: Option<Rate>,
    /// The load as reported, and its average over the last renewals.
    pub demand: Rate,
    pub average: Rate,
    pub backlog: Ru,
    /// The lease exceeded the load at least once, so that the load's size is known.
    pub covered: bool,
    pub head: Ru,
    /// RU/s offered in operations that need no lump, and RU of them that wait beside one that does.
    pub steady: Rate,
    pub beside: Ru,
    /// How long an answer takes to come.
    pub ahead: Span,
    pub largest: Ru,
    pub debt: Ru,
    pub waiting: u64,
    /// When the first waiter began to wait for a lump, which is its place in the queue.
    pub queued_since: Option<Time>,
    /// When the node asks again, by the controller's advice, while it waits for a lump.
    pub asks_at: Time,
    /// When the newest order to lower was sent.
    pub lowered_at: Option<Time>,
    /// The node is only metered: nothing in the chain has a limit.
    pub unlimited: bool,
}

impl Lease {
    /// The rate the node may be using.
    pub(crate) fn committed(&self) -> Rate {
        self.rate.max(self.held_rate)
    }

    /// The tokens that the node may hold, and those that its operations may return.
    pub(crate) fn hold(&self) -> Ru {
        self.cap.max(self.held_cap) + self.lump + self.running
    }

    /// The end of everything that was granted.
    pub(crate) fn ends(&self) -> Time {
        self.expires.max(self.held_until)
    }

    /// Its entry in the division.
    pub(crate) fn entry(&self) -> Option<Member> {
        self.entered.then(|| Member::new(self.want.0, 1))
    }

    /// Raises the most that the node can have by what it can have earned until `now`.
    pub(crate) fn count_tokens(&mut self, now: Time) {
        let income = self.committed().over(now.since(self.counted_at));
        self.counted_at = now;
        self.tokens_max = (self.tokens_max + income + Ru(1)).min(self.hold());
    }
}
