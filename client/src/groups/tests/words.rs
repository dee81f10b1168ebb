//! What a group keeps of the answers of its controller, and what its threads hold.

use std::sync::Barrier;
use std::time::Duration;

use tidegate_core::exchange::{Allowance, Grant, LeaseTerms};
use tidegate_core::group::Fallback;
use tidegate_core::node::{Heard, NodeConfig};
use tidegate_core::units::{Rate, Ru, RuTotal, Span};
use tidegate_core::usage::Usage;
use tokio::runtime::{Builder, Handle};
use tokio::time::advance;

use super::super::*;
use crate::group::Group;
use crate::names::GroupName;
use crate::permit::Permit;
use crate::refused::Refused;
use crate::shared::Shared;

fn cell(id: u64, name: &str) -> Arc<GroupCell> {
    let shared = Shared::new(NodeConfig::default(), None);
    GroupCell::new(id, GroupName::new(name).unwrap(), shared, Arc::default(), None)
}

fn terms() -> LeaseTerms {
    LeaseTerms {
        rate: Rate::whole(100),
        cap: Ru::whole(100),
        fill: Ru::whole(100),
        ttl: Span::secs(60),
        renew_after: Span::secs(1),
        max_fit: Ru::whole(1_000),
        ..LeaseTerms::default()
    }
}

fn ask(cell: &Arc<GroupCell>, seq: u64) {
    cell.heed(crate::cell::Notice::Renew);
    assert!(cell.if_awake(|state, now| state.ask(now, seq)).flatten().is_some(), "nothing is due");
}

#[tokio::test(start_paused = true)]
async fn the_last_word_is_of_the_newest_answer_and_of_no_late_one() {
    let (g, spill) = (cell(0, "g"), cell(1, "spill"));
    let word = || {
        let word = &g.last_word;
        (word.is_known(), word.may_demote(), word.target().is_some(), word.has_quota())
    };
    assert_eq!(word(), (false, true, false, false), "nothing was said");
    ask(&g, 1);
    advance(Duration::from_secs(2)).await;
    ask(&g, 2);
    let allowance = Some(Allowance { window: 1, ..Allowance::default() });
    let counted = Grant::Leased(LeaseTerms { allowance, ..terms() });
    assert_eq!(g.grant(2, &counted, Vec::new(), Some(Arc::clone(&spill))), Heard::Applied);
    assert_eq!(word(), (true, true, true, true));
    // The answer to the first comes late, and says what was true before.
    assert_ne!(g.grant(1, &Grant::Leased(terms()), Vec::new(), None), Heard::Applied);
    assert_eq!(word(), (true, true, true, true));
    assert_eq!(g.grant(2, &Grant::UnknownGroup, Vec::new(), None), Heard::Ignored);
    assert_eq!(word(), (true, true, true, true));
    advance(Duration::from_secs(2)).await;
    ask(&g, 3);
    assert_eq!(g.grant(3, &Grant::Leased(terms()), Vec::new(), None), Heard::Applied);
    assert_eq!(word(), (true, false, false, false));
    advance(Duration::from_secs(2)).await;
    ask(&g, 4);
    assert_eq!(g.grant(4, &Grant::UnknownGroup, Vec::new(), None), Heard::Applied);
    assert!(!g.last_word.is_known());
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_known_unless_there_is_no_limit() {
    let g = cell(0, "g");
    ask(&g, 1);
    g.grant(1, &Grant::Leased(terms()), Vec::new(), None);
    assert_eq!(g.remaining(), Some(Ru::whole(100)));
    advance(Duration::from_secs(2)).await;
    ask(&g, 2);
    let free = Grant::Unlimited { ttl: Span::secs(60), renew_after: Span::secs(1), fallback: Fallback::Stop };
    g.grant(2, &free, Vec::new(), None);
    assert_eq!(g.remaining(), None);
}

/// What threads hold is the group's: an operation that needs it has it.
#[tokio::test(start_paused = true)]
async fn an_operation_is_admitted_with_all_that_the_group_and_its_threads_have() {
    let cell = cell(0, "g");
    ask(&cell, 1);
    cell.grant(1, &Grant::Leased(LeaseTerms { rate: Rate(0), ..terms() }), Vec::new(), None);
    let group = Group { cell: Arc::clone(&cell) };
    // Enough for the thread to have a purse, where a seat is free for one.
    let spent = 20;
    (0..spent).for_each(|_| drop(group.try_acquire(Ru::whole(1)).unwrap()));
    // The thread comes back after a while, when the group lends no more.
    advance(Duration::from_millis(5)).await;
    let rest = Ru::whole(100 - spent);
    let all = group.try_acquire(rest).map(Permit::into_owned);
    assert!(all.is_ok(), "{:?} of {rest}", all.err());
    all.unwrap().cancel();
    assert!(group.try_acquire(rest + Ru(1)).is_err());
    assert_eq!(group.state().available, rest);
}

/// A group that its thread has a purse of, where a seat is free for one.
fn lent() -> (Arc<GroupCell>, Group) {
    let cell = cell(0, "g");
    ask(&cell, 1);
    cell.grant(1, &Grant::Leased(LeaseTerms { rate: Rate(0), ..terms() }), Vec::new(), None);
    let group = Group { cell: Arc::clone(&cell) };
    (0..3).for_each(|_| drop(group.try_acquire(Ru::whole(1)).unwrap()));
    (cell, group)
}

#[tokio::test(start_paused = true)]
async fn a_cost_below_nothing_is_refused_and_gives_nothing() {
    let (_cell, group) = lent();
    for cost in [Ru(-1), Ru::whole(-50), Ru(i64::MIN)] {
        let refused = group.try_acquire(cost).map(Permit::into_owned);
        assert!(matches!(refused, Err(Refused::InvalidCost { .. })), "{cost}: {refused:?}");
    }
    assert_eq!(group.state().available, Ru::whole(97));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_ends_after_its_thread_gave_all_back_is_charged_once() {
    let (_cell, group) = lent();
    let begun = [(); 2].map(|()| group.try_acquire(Ru::whole(1)).unwrap());
    // Everything is recalled.
    assert_eq!(group.consumption().operations, 3);
    let usage = Usage { cpu_ns: 7, ..Usage::default() };
    let mut charged = group.consumption().ru();
    for permit in begun {
        charged += RuTotal::from(permit.settle(&usage).total());
    }
    let total = group.consumption();
    assert_eq!((total.operations, total.usage.cpu_ns, total.ru()), (5, 14, charged));
}

/// Others that need what a thread holds have it, though the thread does nothing more.
#[test]
fn a_thread_that_rests_after_any_operation_keeps_nobody_waiting() {
    type Last = fn(&Group) -> Option<Permit<'static>>;
    let lasts: [(&str, Last); 4] = [
        ("admitted", |group| group.try_acquire(Ru::whole(1)).ok().map(Permit::into_owned)),
        ("admitted by the group", |group| group.try_acquire(Ru::whole(30)).ok().map(Permit::into_owned)),
        ("refused", |group| group.try_acquire(Ru::whole(99)).ok().map(Permit::into_owned)),
        ("refused again", |group| {
            drop(group.try_acquire(Ru::whole(99)));
            group.try_acquire(Ru::whole(99)).ok().map(Permit::into_owned)
        }),
    ];
    for (how, last) in lasts {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (_cell, group) = lent();
            let (rests, recalled, time) = (Barrier::new(2), Barrier::new(2), Handle::current());
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let _paused = time.enter();
                    (0..5).for_each(|_| drop(group.try_acquire(Ru::whole(1)).unwrap()));
                    let permit = last(&group);
                    rests.wait();
                    recalled.wait();
                    permit.is_some()
                });
                rests.wait();
                let available = group.state().available;
                recalled.wait();
                let admitted = thread.join().unwrap();
                assert!(available <= Ru::whole(92), "{how}: {available}");
                assert_eq!(how.starts_with("admitted"), admitted, "{how}");
            });
        });
    }
}
