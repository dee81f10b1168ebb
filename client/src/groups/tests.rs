//! What a group asks and counts, as its client sees it.

#[cfg(test)]
mod words;

use std::time::Duration;

use tidegate_core::exchange::{Allowance, Grant, LeaseTerms};
use tidegate_core::group::Fallback;
use tidegate_core::node::{Heard, NodeConfig};
use tidegate_core::units::{Rate, Ru, Span};
use tidegate_core::usage::RuParts;
use tokio::time::advance;

use super::*;
use crate::cell::Notice;
use crate::group::Group;
use crate::shared::Shared;

const SECOND: Duration = Duration::from_secs(1);

/// One group of a client, and the lists on which it may be.
struct Alone {
    agenda: Arc<Agenda>,
    group: Group,
}

impl Alone {
    fn new(shared: &Arc<Shared>) -> Self {
        let agenda: Arc<Agenda> = Arc::default();
        let registry = Registry::new(Arc::clone(shared), Arc::clone(&agenda), 1);
        let Ok(cell) = registry.get_or_make("g") else { unreachable!("there is room for one") };
        Self { agenda, group: Group { cell } }
    }

    /// The session comes for the group with this message. Returns how long it would wait for the answer, if it asks.
    fn asks(&self, seq: u64) -> Option<Span> {
        self.group.cell.if_awake(|state, now| state.ask(now, seq)).flatten().map(|(_, _, wait)| wait)
    }

    /// The answer to that message is of no use. Returns whether it was the newest.
    fn unanswered(&self, seq: u64) -> Option<bool> {
        self.group.cell.if_awake(|state, now| state.unanswered(now, seq, Span::secs(1)))
    }

    /// A lease of as many tokens, at next to no rate.
    fn lease(&self, seq: u64, tokens: Ru) -> Heard {
        let (ttl, renew_after) = (Span::secs(60), Span::secs(30));
        let terms = LeaseTerms {
            cap: tokens,
            fill: tokens,
            max_fit: Ru::MAX,
            ttl,
            renew_after,
            ..Default::default()
        };
        let terms = LeaseTerms { rate: Rate(1), ..terms };
        self.group.cell.grant(seq, &Grant::Leased(terms), Vec::new(), None)
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_admitted_and_refused_counts_once_with_the_lock_and_from_a_purse() {
    let shared = Shared::new(NodeConfig::default(), None);
    let alone = Alone::new(&shared);
    assert!(alone.asks(1).is_some());
    assert_eq!(alone.lease(1, Ru::whole(100)), Heard::Applied);
    for round in 1..=2 {
        for _ in 0..80 {
            drop(alone.group.try_acquire(Ru::whole(1)));
        }
        assert!(alone.group.cell.lending().has_mine(), "they come one after another in a moment");
        alone.group.state();
        let counts = shared.counters.read();
        assert_eq!((counts.admitted, counts.refused), if round == 1 { (80, 0) } else { (100, 60) });
    }
    assert_eq!(alone.group.consumption().throttled, 60);
}

/// However long the lease is: what is left in a bucket is shown as of a tenth of a second ago at the latest.
#[tokio::test(start_paused = true)]
async fn what_a_thread_spent_is_seen_a_tenth_of_a_second_after_it_was_lent() {
    let alone = Alone::new(&Shared::new(NodeConfig::default(), None));
    assert!(alone.asks(1).is_some());
    assert_eq!(alone.lease(1, Ru::whole(100)), Heard::Applied);
    let spend = || drop(alone.group.try_acquire(Ru(10)).unwrap());
    spend();
    assert!(alone.group.cell.lending().has_mine());
    for _ in 0..5 {
        spend();
        assert_eq!(alone.group.remaining(), Some(Ru::whole(100)), "the thread has it");
        advance(Duration::from_micros(19_999)).await;
    }
    advance(Duration::from_micros(4)).await;
    spend();
    assert_eq!(alone.group.remaining(), Some(Ru::whole(100)), "a microsecond is left");
    advance(Duration::from_micros(1)).await;
    spend();
    assert_eq!(alone.group.remaining(), Some(Ru::whole(100) - Ru(80)));
}

#[tokio::test(start_paused = true)]
async fn a_thread_is_lent_tokens_when_operations_come_within_two_milliseconds() {
    for (apart_us, is_lent) in [(1_999, true), (2_000, false)] {
        let alone = Alone::new(&Shared::new(NodeConfig::default(), None));
        assert!(alone.asks(1).is_some());
        assert_eq!(alone.lease(1, Ru::whole(100)), Heard::Applied);
        for (pause_us, is_lent) in [(10_000, false), (apart_us, is_lent)] {
            advance(Duration::from_micros(pause_us)).await;
            drop(alone.group.try_acquire(Ru(10)).unwrap());
            assert_eq!(alone.group.cell.lending().has_mine(), is_lent, "{pause_us} us after the one before");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_due_is_asked_for_once_whatever_happens_until_then() {
    let alone = Alone::new(&Shared::new(NodeConfig::default(), None));
    let due = || alone.agenda.take_due(usize::MAX).len();
    for seq in [1, 2] {
        for _ in 0..100 {
            alone.group.charge_ru(RuParts::flat(Ru(1)));
            alone.group.try_acquire(Ru(1)).unwrap_err();
        }
        assert_eq!(due(), 1);
        assert!(alone.asks(seq).is_some());
        // No answer comes.
        advance(SECOND).await;
        alone.group.cell.if_awake(|state, _| state.looked());
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_no_use_puts_the_next_question_off_also_one_that_was_due() {
    let alone = Alone::new(&Shared::new(NodeConfig::default(), None));
    assert_eq!(alone.agenda.take_due(9).len(), 1);
    assert_eq!(alone.asks(1), Some(Span::secs(1)));
    advance(SECOND).await;
    alone.group.cell.if_awake(|state, _| state.looked());
    assert_eq!(alone.agenda.take_due(9).len(), 1, "it waited long enough for an answer");
    assert_eq!(alone.unanswered(1), Some(true));
    assert_eq!(alone.asks(2), None);
    advance(SECOND).await;
    assert_eq!(alone.asks(2), Some(Span::secs(1)));
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_no_use_to_an_earlier_question_leaves_the_newest_alone() {
    let alone = Alone::new(&Shared::new(NodeConfig::default(), None));
    assert!(alone.asks(1).is_some());
    advance(SECOND).await;
    assert!(alone.asks(2).is_some());
    assert_eq!(alone.unanswered(1), Some(false));
    assert_eq!(alone.lease(2, Ru::whole(1)), Heard::Applied);
}

/// Where the controller is far away, a group waits long for an answer, also the first time: others have waited for
/// theirs. What came and is of no use is not waited for.
#[tokio::test(start_paused = true)]
async fn a_group_waits_as_long_as_answers_take_and_a_second_after_one_of_no_use() {
    let shared = Shared::new(NodeConfig::default(), None);
    shared.answered_within(Span::secs(4));
    let alone = Alone::new(&shared);
    assert!(alone.asks(1).is_some_and(|wait| wait >= Span::secs(4)));
    advance(SECOND / 2).await;
    assert_eq!(alone.unanswered(1), Some(true));
    advance(SECOND - Duration::from_millis(1)).await;
    assert_eq!(alone.asks(2), None);
    advance(Duration::from_millis(1)).await;
    assert!(alone.asks(2).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_no_use_to_an_earlier_request_leaves_the_group_free_to_ask() {
    let alone = Alone::new(&Shared::new(NodeConfig::default(), None));
    assert!(alone.asks(1).is_some());
    alone.group.cell.heed(Notice::Renew);
    assert!(alone.asks(2).is_some());
    assert_eq!(alone.unanswered(1), Some(false));
    assert_eq!(alone.lease(2, Ru::whole(100)), Heard::Applied);
    alone.group.cell.heed(Notice::Renew);
    assert!(alone.asks(3).is_some(), "the newest request had a good answer");
}

/// The session is about to come for the group when it hears that the answer before was of no use.
#[tokio::test(start_paused = true)]
async fn a_group_whose_turn_came_in_a_pause_has_another_turn_after_it() {
    let alone = Alone::new(&Shared::new(NodeConfig::default(), None));
    assert_eq!(alone.agenda.take_due(9).len(), 1);
    assert!(alone.asks(1).is_some());
    alone.group.cell.heed(Notice::Renew);
    assert_eq!(alone.unanswered(1), Some(true));
    assert_eq!(alone.agenda.take_due(9).len(), 1, "it was due before the pause");
    assert_eq!(alone.asks(2), None);
    advance(SECOND).await;
    for cell in alone.agenda.take_scheduled(alone.group.cell.shared().clock.now()) {
        cell.if_awake(|state, _| state.looked());
    }
    assert_eq!(alone.agenda.take_due(9).len(), 1);
    assert!(alone.asks(2).is_some());
}

/// An answer to an earlier request lengthens the lease in hand, and says nothing that the newer one did not.
#[tokio::test(start_paused = true)]
async fn a_late_answer_changes_neither_the_target_of_a_group_nor_whether_it_has_a_quota() {
    let shared = Shared::new(NodeConfig::default(), None);
    let (alone, target) = (Alone::new(&shared), Alone::new(&shared).group.cell);
    let cell = &alone.group.cell;
    let (ttl, renew_after) = (Span::secs(60), Span::secs(30));
    let terms = LeaseTerms { rate: Rate(1), ttl, renew_after, ..LeaseTerms::default() };
    let answer = |seq, has_both: bool| {
        let allowance = has_both.then(Allowance::default);
        let grant = Grant::Leased(LeaseTerms { allowance, ..terms });
        cell.grant(seq, &grant, Vec::new(), has_both.then(|| Arc::clone(&target)))
    };
    let word = || {
        let word = &cell.last_word;
        (word.has_quota(), word.may_demote(), word.target().is_some())
    };
    for (first, says) in [(1, false), (11, true)] {
        assert!(alone.asks(first).is_some());
        assert_eq!(answer(first, says), Heard::Applied);
        for seq in [first + 1, first + 2] {
            advance(SECOND).await;
            cell.heed(Notice::Renew);
            assert!(alone.asks(seq).is_some());
        }
        assert_eq!(answer(first + 1, !says), Heard::Extended);
        assert_eq!(word(), (says, says, says));
        assert_eq!(answer(first + 2, says), Heard::Applied);
        cell.heed(Notice::Renew);
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_wakes_knows_how_long_the_answers_of_others_take() {
    let shared = Shared::new(NodeConfig { idle_after: Span(0), ..NodeConfig::default() }, None);
    let alone = Alone::new(&shared);
    let free = Grant::Unlimited { ttl: Span::secs(60), renew_after: Span(0), fallback: Fallback::Stop };
    alone.group.charge_ru(RuParts::flat(Ru(1)));
    // The second gives the lease up.
    for seq in [1, 2] {
        assert!(alone.asks(seq).is_some());
        assert_eq!(alone.group.cell.grant(seq, &free, Vec::new(), None), Heard::Applied);
    }
    alone.group.cell.if_awake(|state, _| state.looked());
    assert!(alone.group.cell.try_sleep(&alone.group.consumption()));
    for _ in 0..20 {
        shared.answered_within(Span::secs(3));
    }
    alone.group.try_acquire(Ru(1)).unwrap_err();
    let (woke, fresh) = (alone.asks(3), Alone::new(&shared).asks(1));
    assert!(woke == fresh && fresh > Some(Span::secs(3)), "{woke:?} and {fresh:?}");
}
