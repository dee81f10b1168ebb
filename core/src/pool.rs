//! The tokens of a group that no node holds, and books that prove that none was created or lost.
//!
//! A pool accrues the rate that is not leased, up to the depth of the bucket less what the nodes may hold. Lumps and
//! fills leave it, returned tokens come back. The books record every movement in exact units, so that conservation is
//! an equality: `accrued = leased + pool + overflow + granted − returned` (invariant I3).

use std::hash::{Hash, Hasher};

use crate::units::{Accrual, MICRO, Rate, Ru, Span, Time};

/// Tokens in hand at the controller, with exact books.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    tokens: Ru,
    accrual: Accrual,
    last: Time,
    /// The least rate at which lumps granted ahead come, and when all of them must have come, if that is known.
    pledge: Rate,
    due: Option<Time>,
    books: Books,
}

/// `accrued − leased − overflow − granted + returned` since the group was created, in millionths of a micro-RU. Kept
/// apart from the tokens, to be compared with them.
#[derive(Clone, Copy, Debug, Default)]
struct Books(i128);

impl Books {
    /// Enters `rate`, in micro-RU per second, over `span`.
    fn rate(&mut self, rate: Rate, span: Span) {
        self.0 += i128::from(rate.0) * i128::from(span.0);
    }

    fn credit(&mut self, amount: Ru) {
        self.0 += i128::from(amount.0) * i128::from(MICRO);
    }

    fn debit(&mut self, amount: Ru) {
        self.0 -= i128::from(amount.0) * i128::from(MICRO);
    }
}

impl Pool {
    /// A pool with tokens in it, accruing from `now`. If it owes, its pledge is all rate that is not leased, because
    /// nobody knows how soon the tokens are needed.
    pub(crate) fn new(now: Time, tokens: Ru) -> Self {
        let mut books = Books::default();
        books.credit(tokens);
        Self { tokens, last: now, pledge: Rate::MAX, books, ..Self::default() }
    }

    /// Tokens in hand.
    pub(crate) fn tokens(&self) -> Ru {
        self.tokens
    }

    /// Accrues until `now` at what `limit` leaves above `committed`. The caller trims what has no room.
    pub(crate) fn accrue(&mut self, now: Time, limit: Rate, committed: Rate) {
        let span = now.since(self.last);
        if span.0 > 0 {
            self.last = now;
            let leased = committed.min(limit);
            self.books.rate(limit - leased, span);
            self.tokens += self.accrual.take(limit - leased, span);
        }
    }

    /// Discards what is above `room`.
    pub(crate) fn trim(&mut self, room: Ru) {
        let excess = (self.tokens - room.or_zero()).or_zero();
        self.tokens -= excess;
        self.books.debit(excess);
    }

    /// Takes tokens out for a node.
    pub(crate) fn grant(&mut self, amount: Ru) {
        debug_assert!(
            amount >= Ru::ZERO && amount <= self.tokens.or_zero(),
            "grant {amount} of {}",
            self.tokens
        );
        self.tokens -= amount;
        self.books.debit(amount);
    }

    /// Grants an amount that the pool need not have yet, to be spent after `after`: tokens are negative until it has
    /// come. It comes in time if no more than now is leased.
    pub(crate) fn grant_ahead(&mut self, now: Time, amount: Ru, after: Span) {
        let pledged = self.pledged();
        self.tokens -= amount;
        self.books.debit(amount);
        let owed = (Ru::ZERO - self.tokens).or_zero();
        // One micro-RU more, because the accrual carries the remainder of its division.
        let rate = (i128::from(owed.0) + 1) * i128::from(MICRO);
        let rate = (rate + i128::from(after.0) - 1) / i128::from(after.0.max(1));
        // No less than for earlier grants, which may be due sooner.
        self.pledge = Rate(i64::try_from(rate).unwrap_or(Rate::MAX.0)).max(pledged).min(Rate::MAX);
        self.due = Some(self.due.unwrap_or_default().max(now.after(after)));
    }

    /// The rate that must not be leased, so that lumps granted ahead come in time. It does not fall when tokens come
    /// back: these may be the ones that had more time.
    pub(crate) fn pledged(&self) -> Rate {
        if self.tokens < Ru::ZERO { self.pledge } else { Rate::ZERO }
    }

    /// Whether lumps granted ahead have not come in time.
    pub(crate) fn is_late(&self) -> bool {
        self.tokens < Ru::ZERO && self.due.is_some_and(|due| due <= self.last)
    }

    /// Drops the due time of lumps granted ahead: the limit by which it was computed is no longer in force.
    pub(crate) fn excuse(&mut self) {
        self.due = None;
    }

    /// Puts back tokens that a node returned or never received; discards what is above `room`.
    pub(crate) fn give_back(&mut self, amount: Ru, room: Ru) {
        self.tokens += amount;
        self.books.credit(amount);
        self.trim(room);
    }

    /// Empties the pool, which accrues again from `from` on.
    pub(crate) fn suspend_until(&mut self, from: Time) {
        self.trim(Ru::ZERO);
        self.excuse();
        self.last = self.last.max(from);
    }

    /// Whether the books balance, to the last millionth of a micro-RU.
    pub(crate) fn balances(&self) -> bool {
        self.imbalance() == 0
    }

    /// The amount in the books beyond the tokens; zero when none was created or lost.
    fn imbalance(&self) -> i128 {
        self.books.0 - i128::from(self.tokens.0) * i128::from(MICRO) - i128::from(self.accrual.remainder())
    }
}

/// The books depend on the past, and only their balance matters for the future: a search treats pools that differ in
/// nothing else as the same state.
impl Hash for Pool {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Without debt, an earlier pledge has no effect.
        let owes = (self.pledged(), self.due.filter(|_| self.tokens < Ru::ZERO));
        (self.tokens, self.accrual, self.last, owes, self.imbalance()).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    #[test]
    fn a_lump_ahead_of_its_time_pledges_the_least_rate_that_brings_it_in_time() {
        for (owed, after) in [(1, 7), (10, 3), (999_983, 1_000_000), (5_000_000, 777_777)] {
            let brought = |less: i64| {
                let mut pool = Pool::new(Time(0), Ru::ZERO);
                pool.grant_ahead(Time(0), Ru(owed), Span(after));
                assert!(!pool.is_late(), "nothing is due yet");
                let rate = Rate(pool.pledged().0 - less);
                pool.accrue(Time(after), rate, Rate::ZERO);
                assert_eq!(pool.is_late(), pool.tokens() < Ru::ZERO, "due at {after}");
                pool.tokens()
            };
            // A micro-RU more than is owed, since the accrual may carry almost as much.
            assert!(brought(0) >= Ru(1), "{owed} in {after}");
            assert!(brought(1) <= Ru::ZERO, "{owed} in {after}: a lower rate does as well");
        }
        let mut late = Pool::new(Time(0), Ru::ZERO);
        late.grant_ahead(Time(0), Ru(1), Span(7));
        late.accrue(Time(7), Rate::ZERO, Rate::ZERO);
        assert!(late.is_late(), "others have leased what was pledged");
    }

    /// What happens to a pool that owes: a lump is granted ahead of its time, tokens come back, time passes.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Ahead(i64, u64),
        Back(i64),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            2 => (1_i64..3_000_000, 1_u64..1_000_000).prop_map(|(ru, after)| Step::Ahead(ru, after)),
            1 => (1_i64..500_000).prop_map(Step::Back),
            3 => (1_u64..400_000).prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 1..40)
    }

    /// A pool whose rate others lease, all but what is pledged, beside a list of what must have come, and when.
    struct Pledged {
        pool: Pool,
        now: Time,
        /// All that was granted, and when so much must have come in.
        granted: Ru,
        due: Vec<(Time, Ru)>,
    }

    impl Pledged {
        fn came(&self) -> Ru {
            self.pool.tokens() + self.granted
        }

        fn pass(&mut self, until: Time) {
            self.now = until;
            let limit = Rate::whole(1_000);
            self.pool.accrue(until, limit, limit - self.pool.pledged());
        }

        fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
            match step {
                Step::Ahead(ru, after) => {
                    self.pool.grant_ahead(self.now, Ru(ru), Span(after));
                    self.granted += Ru(ru);
                    self.due.push((self.now.after(Span(after)), self.granted));
                }
                Step::Back(ru) => self.pool.give_back(Ru(ru), Ru::MAX),
                Step::Pass(span) => {
                    let until = self.now.after(Span(span));
                    // Stops at each moment at which a lump must have come.
                    while let Some((at, all)) = self.due.iter().min().copied().filter(|(at, _)| *at <= until)
                    {
                        self.pass(at);
                        self.due.retain(|due| *due != (at, all));
                        prop_assert!(self.came() >= all, "{} of {all} came until {at:?}", self.came());
                    }
                    self.pass(until);
                }
            }
            prop_assert!(self.pool.balances());
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(1),
            ..ProptestConfig::with_cases(256)
        })]

        /// However many are on their way, whichever is due first, and whatever comes back meanwhile.
        #[test]
        fn every_lump_ahead_of_its_time_comes_in_time_if_others_lease_all_that_is_not_pledged(steps in steps()) {
            let pool = Pool::new(Time(0), Ru::ZERO);
            let mut pledged = Pledged { pool, now: Time(0), granted: Ru::ZERO, due: Vec::new() };
            for step in steps {
                pledged.step(step)?;
            }
            pledged.step(Step::Pass(1_000_000))?;
        }
    }

    #[test]
    fn only_a_pool_that_owes_remembers_its_pledge() {
        let hash = |pool: &Pool| {
            let mut hasher = std::hash::DefaultHasher::new();
            pool.hash(&mut hasher);
            hasher.finish()
        };
        let after = |span: u64| {
            let mut pool = Pool::new(Time(0), Ru(5));
            pool.grant_ahead(Time(0), Ru(9), Span(span));
            pool
        };
        let (mut sooner, mut later) = (after(10), after(20));
        assert_ne!(hash(&sooner), hash(&later));
        sooner.give_back(Ru(4), Ru(100));
        later.give_back(Ru(4), Ru(100));
        assert_eq!(hash(&sooner), hash(&later), "nothing is owed");
    }

    #[test]
    fn books_balance_through_odd_rates_and_every_movement() {
        let mut pool = Pool::new(Time(0), Ru(77));
        let (mut now, mut granted) = (Time(0), Ru::ZERO);
        for step in 1..2_000_u64 {
            now = now.after(Span(step * 7 % 1_003));
            let committed = Rate(i64::try_from(step).unwrap() * 1_237 % 400_000);
            pool.accrue(now, Rate(333_333), committed);
            pool.trim(Ru(900));
            if step % 3 == 0 {
                granted += pool.tokens().scale(1, 3);
                pool.grant(pool.tokens().scale(1, 3));
            }
            if step % 5 == 0 {
                pool.give_back(Ru(41), Ru(800));
            }
            assert!(pool.balances(), "step {step}: {pool:?}");
        }
        assert!(granted > Ru::ZERO);
    }

    #[test]
    fn a_suspended_pool_is_empty_and_accrues_nothing_before_its_time() {
        let mut pool = Pool::new(Time(0), Ru::whole(5));
        pool.suspend_until(Time(1_000_000));
        pool.accrue(Time(900_000), Rate::whole(10), Rate::ZERO);
        assert_eq!(pool.tokens(), Ru::ZERO);
        pool.accrue(Time(1_500_000), Rate::whole(10), Rate::ZERO);
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
        lent.books.0 += 1;
        assert_ne!(hash(&lent), hash(&fresh));
    }
}
