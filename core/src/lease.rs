//! One client's lease on one group, as the controller's ledger keeps it.
//!
//! The ledger counts what the node *may* be using, not what the newest grant says: a lowered rate or cap stays counted
//! at its old value until the node has acknowledged it, or until the older grant has ended. A node never returns more
//! than it was given, and what it can have is never above what counts as held. So the parts of a lease change together,
//! by the methods of this file.

use crate::exchange::{Ask, Held};
use crate::fill::Member;
use crate::quota::Share;
use crate::units::{Rate, Ru, Span, Time};
use crate::want::{AVERAGED, covers};

/// What the ledger knows of one client in one group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    /// Renewal that produced the newest grant.
    seq: u64,
    granted: Granted,
    held: Holding,
    tokens: Tokens,
    reported: Reported,
    /// The rate that the client wants, while the division has it.
    wish: Option<Rate>,
    place: Place,
    /// Its share of the quota of its group or one above.
    pub share: Share,
    /// The rate by which the group lists the lease; `None` while it does not.
    pub listed: Option<Rate>,
    /// The rate by which the group's sum of what is used counts it.
    pub counted: Rate,
}

/// The newest grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Granted {
    pub rate: Rate,
    pub cap: Ru,
    /// The tokens that came with it.
    pub lump: Ru,
    pub fill: Ru,
    pub expires: Time,
    /// The node is only metered: nothing in the chain has a limit.
    pub unlimited: bool,
}

/// What the node reported as held: in force until it acknowledges the newest grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub rate: Rate,
    pub cap: Ru,
    pub until: Time,
    /// The latest end of what the node holds. What the ledger counts may last longer: it counts the newest grant as
    /// applied, and what the node held before as kept, until each has ended.
    pub end: Time,
}

/// The tokens that are out, beside those that the rate yields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tokens {
    /// Lump tokens given and not yet reported spent or returned.
    pub lump: Ru,
    /// Tokens reported as spent on operations that have not ended: what these do not need comes back to the pool, where
    /// it has room. The ledger takes that room back when others need it first.
    pub running: Ru,
    /// The most tokens the node can have, and when that was computed: it cannot return more than it was given.
    most: Ru,
    counted_at: Time,
}

/// The load, as the node reported it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reported {
    pub demand: Rate,
    /// RU/s offered in operations that need no lump, and its average over the last renewals.
    pub steady: Rate,
    pub average: Rate,
    pub backlog: Ru,
    /// The lease exceeded the load at least once, so that the load's size is known.
    pub covered: bool,
    pub head: Ru,
    /// RU that wait beside an operation that needs a lump.
    pub beside: Ru,
    /// How long an answer takes to come.
    pub ahead: Span,
    pub largest: Ru,
    pub debt: Ru,
    pub waiting: u64,
    /// Requests offered in a second, where a quota counts them.
    pub offered: Rate,
}

/// The place in the queue for lumps, and the orders sent to the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Place {
    /// When the first waiter began to wait for a lump.
    queued_since: Option<Time>,
    /// When the node asks again, by the controller's advice, while it waits for a lump.
    asks_at: Time,
    /// When the newest order to lower was sent.
    ordered_at: Option<Time>,
}

impl Tokens {
    /// Takes tokens that come back, as far as the node can have them.
    fn take(&mut self, amount: Ru) -> Ru {
        let taken = amount.min(self.most);
        self.most -= taken;
        taken
    }
}

/// What it says.
impl Lease {
    /// The newest renewal that was answered; 0 before the first.
    pub(crate) fn seq(&self) -> u64 {
        self.seq
    }

    pub(crate) fn granted(&self) -> &Granted {
        &self.granted
    }

    pub(crate) fn held(&self) -> &Holding {
        &self.held
    }

    pub(crate) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    pub(crate) fn reported(&self) -> &Reported {
        &self.reported
    }

    /// The rate the node may be using.
    pub(crate) fn committed(&self) -> Rate {
        self.granted.rate.max(self.held.rate)
    }

    /// The depth of the bucket that the node may be using.
    pub(crate) fn cap(&self) -> Ru {
        self.granted.cap.max(self.held.cap)
    }

    /// The tokens that the node may hold, and those that its operations may return.
    pub(crate) fn hold(&self) -> Ru {
        self.cap() + self.tokens.lump + self.tokens.running
    }

    /// The end of everything that was granted.
    pub(crate) fn ends(&self) -> Time {
        self.granted.expires.max(self.held.until)
    }

    /// The rate that the client wants.
    pub(crate) fn want(&self) -> Rate {
        self.wish.unwrap_or_default()
    }

    /// Its entry in the division.
    pub(crate) fn entry(&self) -> Option<Member> {
        self.wish.map(|want| Member::new(want.0, 1))
    }

    /// When the first waiter began to wait for a lump, which is its place in the queue.
    pub(crate) fn queued_since(&self) -> Option<Time> {
        self.place.queued_since
    }

    /// When the node asks again, by the controller's advice, while it waits for a lump.
    pub(crate) fn asks_at(&self) -> Time {
        self.place.asks_at
    }

    /// When the newest order was sent to which no renewal answered yet.
    pub(crate) fn ordered_at(&self) -> Option<Time> {
        self.place.ordered_at
    }
}

/// What happens to it.
impl Lease {
    /// A lease that nodes hold from before this engine, until `until`.
    pub(crate) fn held_before(now: Time, seq: u64, held: &Held, until: Time) -> Self {
        let mut lease = Self { seq, ..Self::default() };
        lease.readmit(now, held, until);
        lease.granted.expires = until;
        lease
    }

    /// Takes a lease into the ledger that the node proved, and that ends no later than `until`.
    pub(crate) fn readmit(&mut self, now: Time, held: &Held, until: Time) {
        self.held = Holding { rate: held.rate, cap: held.cap, until, end: until };
        self.tokens.lump = held.lump;
        self.tokens.counted_at = now;
        self.tokens.most = held.cap + held.lump;
    }

    /// Takes in what the node holds and gives back by renewal `seq`, but never more than the ledger granted. Returns
    /// the tokens that come back.
    pub(crate) fn hear(&mut self, now: Time, seq: u64, ask: &Ask) -> Ru {
        let before = self.hold();
        // What the node can have grows by what it can have earned until now.
        let income = self.committed().over(now.since(self.tokens.counted_at));
        self.tokens.counted_at = now;
        self.tokens.most = (self.tokens.most + income + Ru(1)).min(before);
        let mut back = self.tokens.take(ask.returned.or_zero());
        if ask.acked_seq != self.seq && self.seq > 0 {
            // The node never applied the newest grant, and ignores it from now on. Of the fill, only the part comes back
            // for which the ledger counted a deeper bucket: tokens that came into the rest of the room may be spent.
            let fill = self.granted.fill.min((self.granted.cap - self.held.cap).or_zero());
            back += self.tokens.take(self.granted.lump + fill);
            self.tokens.lump -= self.granted.lump;
        } else {
            self.held.end = self.granted.expires;
        }
        self.held.until = self.ends();
        self.held.rate = ask.held.rate.max(Rate::ZERO).min(self.committed());
        self.held.cap = ask.held.cap.or_zero().min(self.cap());
        let lump = ask.held.lump.or_zero().min(self.tokens.lump);
        // Only tokens that the ledger counted until now can come back, because these had room all the time.
        back += self.tokens.take(ask.refunded.or_zero().min(self.tokens.running));
        (self.tokens.lump, self.tokens.running) = (lump, Ru::ZERO);
        let unlimited = self.granted.unlimited;
        self.granted = Granted { expires: now, unlimited, ..Granted::default() };
        self.tokens.running = ask.running.or_zero().min(before - self.hold() - back).or_zero();
        self.tokens.most = self.tokens.most.min(self.hold());
        self.seq = seq;
        back
    }

    /// Takes in the load; returns whether the node had a backlog and has one now.
    pub(crate) fn report(&mut self, ask: &Ask) -> (bool, bool) {
        let had_backlog = self.reported.backlog.is_positive();
        let (head, steady) = (ask.head.or_zero(), ask.steady.max(Rate::ZERO).min(Rate::MAX));
        let average = self.reported.average;
        self.reported = Reported {
            demand: ask.demand,
            steady,
            average: average + Rate((steady - average).0 / AVERAGED),
            backlog: ask.backlog.or_zero(),
            covered: self.reported.covered,
            head,
            beside: ask.beside.or_zero().min(Ru::MAX),
            ahead: ask.ahead,
            largest: ask.largest.or_zero().max(head).min(Ru::MAX),
            debt: ask.debt.or_zero(),
            waiting: ask.waiting,
            offered: ask.spending.offered.max(Rate::ZERO).min(Rate::MAX),
        };
        self.reported.covered = covers(self);
        (had_backlog, self.reported.backlog.is_positive())
    }

    /// Notes what the client wants, which the division has from now on.
    pub(crate) fn wish(&mut self, want: Rate) {
        self.wish = Some(want);
    }

    /// Forgets what the client wants, its backlog and its place in the queue.
    pub(crate) fn forget_interest(&mut self) {
        self.wish = None;
        self.reported.backlog = Ru::ZERO;
        self.place.queued_since = None;
    }

    /// Begins a grant that ends at `expires`, without rate or tokens so far.
    pub(crate) fn begin_grant(&mut self, now: Time, expires: Time, unlimited: bool) {
        (self.granted.expires, self.granted.unlimited) = (expires, unlimited);
        self.tokens.counted_at = now;
    }

    /// Grants a rate.
    pub(crate) fn grant(&mut self, rate: Rate) {
        self.granted.rate = rate;
    }

    /// Sets the depth of the bucket in this grant.
    pub(crate) fn cap_at(&mut self, cap: Ru) {
        self.granted.cap = cap;
    }

    /// Ends the grant no later than at `expires`.
    pub(crate) fn shorten(&mut self, expires: Time) {
        self.granted.expires = self.granted.expires.min(expires);
    }

    /// Gives tokens with the grant: a lump, and a fill for the bucket.
    pub(crate) fn give(&mut self, lump: Ru, fill: Ru) {
        self.tokens.lump += lump;
        (self.granted.lump, self.granted.fill) = (lump, fill);
        self.tokens.most = (self.tokens.most + lump + fill).min(self.hold());
    }

    /// Takes back room kept for what running operations may return, up to `amount`; returns how much.
    pub(crate) fn take_room(&mut self, amount: Ru) -> Ru {
        let taken = self.tokens.running.min(amount);
        self.tokens.running -= taken;
        self.tokens.most = self.tokens.most.min(self.hold());
        taken
    }

    /// Takes a place in the queue at `now`, or keeps the one that it has; returns the place.
    pub(crate) fn queue(&mut self, now: Time) -> Time {
        *self.place.queued_since.get_or_insert(now)
    }

    pub(crate) fn leave_queue(&mut self) {
        self.place.queued_since = None;
    }

    /// Notes an answer, with the advice to ask again at `asks_at`: earlier orders are answered.
    pub(crate) fn answered(&mut self, asks_at: Time) {
        (self.place.asks_at, self.place.ordered_at) = (asks_at, None);
    }

    /// Notes an order, sent now.
    pub(crate) fn order(&mut self, now: Time) {
        self.place.ordered_at = Some(now);
    }
}
