//! The tokens of a group that no node holds, and the books that prove none was made or lost.
//!
//! A pool accrues what is not leased out, up to the depth of the bucket less what the nodes may hold. Lumps and
//! fills leave it, returned tokens come back. Every movement is booked in exact units, so that conservation is an
//! equality: `accrued = leased + pool + overflow + granted − returned` (invariant I3).

use std::hash::{Hash, Hasher};

use crate::units::{Accrual, MICRO, Rate, Ru, Time};

/// Tokens in hand at the controller, with exact books.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    tokens: Ru,
    accrual: Accrual,
    last: Time,
    books: Books,
}

/// Sums since the group was made, in micro-RU, and in millionths of that where a rate is integrated.
#[derive(Clone, Copy, Debug, Default)]
struct Books {
    accrued: i128,
    leased: i128,
    overflow: i128,
    granted: i128,
    returned: i128,
}

impl Pool {
    /// A pool with tokens in it, accruing from `now`.
    pub(crate) fn new(now: Time, tokens: Ru) -> Self {
        let opening = i128::from(tokens.0) * i128::from(MICRO);
        Self { tokens, last: now, books: Books { accrued: opening, ..Books::default() }, ..Self::default() }
    }

    /// Tokens in hand.
    pub(crate) fn tokens(&self) -> Ru {
        self.tokens
    }

    /// Accrues until `now` at what `limit` leaves above `committed`; `room` is the most the pool may hold.
    pub(crate) fn advance(&mut self, now: Time, limit: Rate, committed: Rate, room: Ru) {
        let span = now.since(self.last);
        if span.0 > 0 {
            self.last = now;
            let leased = committed.min(limit);
            self.books.accrued += i128::from(limit.0) * i128::from(span.0);
            self.books.leased += i128::from(leased.0) * i128::from(span.0);
            self.tokens += self.accrual.take(limit - leased, span);
        }
        self.trim(room);
    }

    /// Discards what is above `room`.
    pub(crate) fn trim(&mut self, room: Ru) {
        let excess = (self.tokens - room.or_zero()).or_zero();
        self.tokens -= excess;
        self.books.overflow += i128::from(excess.0);
    }

    /// Takes tokens out for a node.
    pub(crate) fn grant(&mut self, amount: Ru) {
        debug_assert!(amount >= Ru::ZERO && amount <= self.tokens, "grant {amount} of {}", self.tokens);
        self.tokens -= amount;
        self.books.granted += i128::from(amount.0);
    }

    /// Puts back tokens that a node returned or never received; what is above `room` is discarded.
    pub(crate) fn give_back(&mut self, amount: Ru, room: Ru) {
        self.tokens += amount;
        self.books.returned += i128::from(amount.0);
        self.trim(room);
    }

    /// Starts accruing only at `from`, empty.
    pub(crate) fn suspend_until(&mut self, from: Time) {
        self.trim(Ru::ZERO);
        self.last = self.last.max(from);
    }

    /// Whether the books balance, to the last millionth of a micro-RU.
    pub(crate) fn balances(&self) -> bool {
        self.imbalance() == 0
    }

    /// What came in beyond what the books account for; zero when nothing was made or lost.
    fn imbalance(&self) -> i128 {
        let fine = i128::from(MICRO);
        let b = &self.books;
        b.accrued
            - b.leased
            - (i128::from(self.tokens.0) + b.overflow + b.granted - b.returned) * fine
            - i128::from(self.accrual.remainder())
    }
}

/// The books tell how a pool came to be, and only their balance says anything of what follows: pools that differ in
/// nothing else count as the same state in a search.
impl Hash for Pool {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.tokens, self.accrual, self.last, self.imbalance()).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Span;

    #[test]
    fn books_balance_through_odd_rates_and_every_movement() {
        let mut pool = Pool::new(Time(0), Ru(77));
        let mut now = Time(0);
        for step in 1..2_000_u64 {
            now = now.after(Span(step * 7 % 1_003));
            let committed = Rate(i64::try_from(step).unwrap() * 1_237 % 400_000);
            pool.advance(now, Rate(333_333), committed, Ru(900));
            if step % 3 == 0 {
                pool.grant(pool.tokens().scale(1, 3));
            }
            if step % 5 == 0 {
                pool.give_back(Ru(41), Ru(800));
            }
            assert!(pool.balances(), "step {step}: {pool:?}");
        }
        assert!(pool.books.overflow > 0 && pool.books.granted > 0);
    }

    #[test]
    fn a_suspended_pool_is_empty_and_accrues_nothing_before_its_time() {
        let mut pool = Pool::new(Time(0), Ru::whole(5));
        pool.suspend_until(Time(1_000_000));
        pool.advance(Time(900_000), Rate::whole(10), Rate::ZERO, Ru::whole(100));
        assert_eq!(pool.tokens(), Ru::ZERO);
        pool.advance(Time(1_500_000), Rate::whole(10), Rate::ZERO, Ru::whole(100));
        assert_eq!(pool.tokens(), Ru::whole(5));
        assert!(pool.balances());
    }

    #[test]
    fn pools_that_differ_only_in_balanced_books_hash_alike() {
        let hash = |pool: &Pool| {
            let mut hasher = std::hash::DefaultHasher::new();
            pool.hash(&mut hasher);
            hasher.finish()
        };
        let fresh = Pool::new(Time(0), Ru(50));
        let mut lent = fresh.clone();
        lent.grant(Ru(20));
        lent.give_back(Ru(20), Ru(50));
        assert_eq!(hash(&lent), hash(&fresh));
        lent.books.granted += 1;
        assert_ne!(hash(&lent), hash(&fresh));
    }
}
