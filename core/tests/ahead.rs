//! Lumps granted before the pool covers them, and small operations that pass operations waiting for a lump: one rule a
//! test. Times are in milliseconds, rates and amounts in whole RU.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

mod common;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant, Held, LeaseTerms};
use tidegate_core::group::{ClientId, GroupId, GroupSpec};
use tidegate_core::node::{Acquired, Admitted, Heard, NodeConfig, NodeGroup, Refusal, WaiterId};
use tidegate_core::units::{Rate, Ru, Span};

use common::{at, leased};

const GROUP: GroupId = GroupId(2);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

/// A group of 100 RU/s and 100 RU of burst, with nothing left in the pool.
fn drained() -> Engine {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.put_group(at(0), GROUP, GroupSpec::capped(Rate::whole(100))).unwrap();
    let all = leased(engine.renew(at(0), ClientId(9), GROUP, 1, &large(100, 0), None));
    assert_eq!(all.lump, Ru::whole(100));
    // The client spends everything, has nothing more to do, and says goodbye.
    let spent = Ask { acked_seq: 1, ..Ask::default() };
    engine.renew(at(0), ClientId(9), GROUP, 2, &spent, None);
    engine.release(at(0), ClientId(9));
    assert_eq!(engine.group_view(GROUP).unwrap().pool, Ru::ZERO);
    engine
}

/// A waiting operation that the bucket never covers, at this distance.
fn large(ru: i64, ahead_ms: u64) -> Ask {
    Ask {
        backlog: Ru::whole(ru),
        head: Ru::whole(ru),
        waiting: 1,
        ahead: Span::millis(ahead_ms),
        ..Ask::default()
    }
}

fn wants(rate: i64) -> Ask {
    Ask { demand: Rate::whole(rate), ..Ask::default() }
}

fn holds(ask: Ask, seq: u64, terms: &LeaseTerms) -> Ask {
    Ask { acked_seq: seq, held: Held { rate: terms.rate, cap: terms.cap, lump: terms.lump }, ..ask }
}

/// C, which always wants more and has half of the rate.
struct Busy {
    seq: u64,
    terms: LeaseTerms,
}

impl Busy {
    fn renew(&mut self, engine: &mut Engine, ms: u64) {
        self.seq += 1;
        let ask = holds(wants(500), self.seq - 1, &self.terms);
        self.terms = leased(engine.renew(at(ms), C, GROUP, self.seq, &ask, None));
    }
}

/// The grant to A, which waits for 80 RU since 0 ms and asks again at 1,402 ms: 10 RU are missing, at 50 RU/s.
fn granted_ahead(engine: &mut Engine) -> LeaseTerms {
    let mut busy = Busy { seq: 0, terms: LeaseTerms::default() };
    busy.renew(engine, 0);
    let early = leased(engine.renew(at(0), A, GROUP, 1, &large(80, 300), None));
    assert_eq!((early.lump, early.rate), (Ru::ZERO, Rate::ZERO), "it is too far off");
    busy.renew(engine, 1);
    busy.renew(engine, 2);
    assert_eq!(busy.terms.rate, Rate::whole(50));
    leased(engine.renew(at(1_402), A, GROUP, 2, &holds(large(80, 300), 1, &early), None))
}

#[test]
fn a_lump_comes_as_long_before_the_pool_covers_it_as_an_answer_takes() {
    let mut engine = drained();
    let terms = granted_ahead(&mut engine);
    assert_eq!(terms.lump, Ru::whole(80));
    assert!((Span::millis(200)..=Span::millis(201)).contains(&terms.lump_after), "{}", terms.lump_after);
    let view = engine.group_view(GROUP).unwrap();
    assert_eq!(view.pool, Ru::ZERO);
    assert!(view.held >= Ru::whole(80), "it counts as held from now on: {view:?}");
}

#[test]
fn who_is_not_far_away_or_does_not_know_of_such_lumps_gets_none() {
    for ahead in [0, 9] {
        let mut engine = drained();
        let mut busy = Busy { seq: 0, terms: LeaseTerms::default() };
        busy.renew(&mut engine, 0);
        leased(engine.renew(at(0), A, GROUP, 1, &large(80, ahead), None));
        busy.renew(&mut engine, 1);
        busy.renew(&mut engine, 2);
        let ask = Ask { acked_seq: 1, ..large(80, ahead) };
        let terms = leased(engine.renew(at(1_599), A, GROUP, 2, &ask, None));
        assert_eq!((terms.lump, terms.lump_after), (Ru::ZERO, Span(0)), "{ahead} ms");
    }
}

#[test]
fn what_a_lump_ahead_of_its_time_takes_of_the_rate_is_leased_to_nobody() {
    let mut engine = drained();
    let lump = granted_ahead(&mut engine);
    // C has half, and the lump needs the other half.
    let other = leased(engine.renew(at(1_410), B, GROUP, 1, &wants(500), None));
    assert!(other.rate < Rate(1_000), "{other:?} beside {lump:?}");
    let later = leased(engine.renew(at(1_604), B, GROUP, 2, &holds(wants(500), 1, &other), None));
    assert!(later.rate > Rate::whole(20), "{later:?}");
    engine.check().unwrap();
}

#[test]
fn a_lump_ahead_of_its_time_that_never_arrived_is_there_again() {
    let mut engine = drained();
    let first = granted_ahead(&mut engine);
    let again = leased(engine.renew(at(1_450), A, GROUP, 3, &Ask { acked_seq: 1, ..large(80, 300) }, None));
    assert_eq!(again.lump, Ru::whole(80), "seq 2 was not acknowledged");
    assert!(again.lump_after < first.lump_after, "{} after {}", again.lump_after, first.lump_after);
    let view = engine.group_view(GROUP).unwrap();
    assert!(view.held < Ru::whole(100), "{view:?}");
}

#[test]
fn only_the_first_in_the_queue_gets_a_lump_ahead_of_its_time() {
    let mut engine = drained();
    let mut ask = |ms, client, seq, ru| {
        let ask = Ask { acked_seq: seq - 1, ..large(ru, 500) };
        leased(engine.renew(at(ms), client, GROUP, seq, &ask, None)).lump
    };
    // A is alone at first, and has a bucket for its operation; then both wait, B before A.
    let waiting = [ask(0, A, 1, 60), ask(1, B, 1, 80), ask(2, A, 2, 60)];
    assert_eq!(waiting, [Ru::ZERO; 3]);
    // The pool would cover the smaller one in 300 ms.
    assert_eq!(ask(300, A, 3, 60), Ru::ZERO);
    assert_eq!(ask(310, B, 2, 80), Ru::whole(80));
}

#[test]
fn there_is_no_lump_ahead_of_its_time_without_room_for_it() {
    let mut engine = drained();
    let mut busy = Busy { seq: 0, terms: LeaseTerms::default() };
    let deep = leased(engine.renew(at(0), A, GROUP, 1, &wants(60), None));
    assert!(deep.cap > Ru::whole(40), "{deep:?}");
    // A goes on with a bucket of that depth: the pool is full at 40 RU, and 60 beside it would be more than the burst.
    let held = Held { cap: deep.cap, ..Held::default() };
    let ask = |engine: &mut Engine, ms, seq| {
        let ask = Ask { acked_seq: seq - 1, held, ..large(60, 500) };
        leased(engine.renew(at(ms), A, GROUP, seq, &ask, None))
    };
    busy.renew(&mut engine, 0);
    ask(&mut engine, 0, 2);
    busy.renew(&mut engine, 1);
    busy.renew(&mut engine, 2);
    for (seq, ms) in (3..).zip([1_350, 1_400, 1_450, 1_500, 1_550]) {
        let terms = ask(&mut engine, ms, seq);
        assert_eq!(terms.lump, Ru::ZERO, "at {ms} ms");
        engine.check().unwrap();
    }
}

/// The pool of 200 RU is empty at 2 ms and fills at 100 RU/s; at 403 ms client 4 and A each get a lump of 60 RU.
fn two_on_their_way() -> Engine {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    let spec = GroupSpec { burst: Some(Ru::whole(200)), ..GroupSpec::capped(Rate::whole(100)) };
    engine.put_group(at(0), GROUP, spec).unwrap();
    leased(engine.renew(at(0), ClientId(9), GROUP, 1, &large(200, 0), None));
    engine.renew(at(0), ClientId(9), GROUP, 2, &Ask { acked_seq: 1, ..Ask::default() }, None);
    engine.release(at(0), ClientId(9));
    for seq in 1..=3 {
        for client in [A, B, C, ClientId(4)] {
            let ask = Ask { acked_seq: seq - 1, ..large(60, 90) };
            leased(engine.renew(at(seq), client, GROUP, seq, &ask, None));
        }
    }
    let mut ask = |client| {
        leased(engine.renew(at(403), client, GROUP, 4, &Ask { acked_seq: 3, ..large(60, 900) }, None))
    };
    // The fourth was the first whose part of the burst was too small.
    let (one, two) = (ask(ClientId(4)), ask(A));
    assert_eq!((one.lump, two.lump), (Ru::whole(60), Ru::whole(60)));
    assert!(one.lump_after < Span::millis(202), "{}", one.lump_after);
    assert!(two.lump_after > Span::millis(798), "{}: after the first", two.lump_after);
    engine
}

#[test]
fn two_lumps_can_be_on_their_way_and_a_lease_of_what_is_left_leaves_both_in_time() {
    let mut engine = two_on_their_way();
    for ms in (410..1_300).step_by(30) {
        engine.renew(at(ms), ClientId(5), GROUP, ms, &Ask { acked_seq: ms - 30, ..wants(500) }, None);
        engine.check().unwrap();
    }
}

#[test]
fn a_lump_that_comes_back_leaves_one_that_is_due_sooner_in_time() {
    let mut engine = two_on_their_way();
    // A gives the second lump up. The first still needs all of the rate, so no more is leased.
    engine.renew(at(410), A, GROUP, 5, &Ask { acked_seq: 3, ..Ask::default() }, None);
    let other = leased(engine.renew(at(420), ClientId(5), GROUP, 1, &wants(500), None));
    assert!(other.rate < Rate::whole(1), "{other:?}");
    engine.renew(at(606), ClientId(6), GROUP, 1, &Ask::default(), None);
    assert!(engine.group_view(GROUP).unwrap().pool > Ru::ZERO);
}

#[test]
fn a_limit_that_is_lowered_meanwhile_holds_and_what_was_granted_ahead_is_earned_later() {
    let mut engine = drained();
    granted_ahead(&mut engine);
    engine.put_group(at(1_442), GROUP, GroupSpec::capped(Rate::whole(10))).unwrap();
    engine.release(at(1_442), C);
    // A spends its lump at its time. The pool then lacks 8 RU, which take 0.8 s.
    leased(engine.renew(at(1_602), A, GROUP, 3, &Ask { acked_seq: 2, ..Ask::default() }, None));
    let pool = |engine: &Engine| engine.group_view(GROUP).unwrap().pool;
    let one = leased(engine.renew(at(1_602), B, GROUP, 1, &wants(500), None));
    assert!(one.rate < Rate::whole(4), "it is owed first: {one:?}");
    let mut seq = 1;
    for ms in (1_700..4_000).step_by(100) {
        seq += 1;
        leased(engine.renew(at(ms), B, GROUP, seq, &Ask { acked_seq: seq - 1, ..Ask::default() }, None));
        // 10 RU/s since the change, less 8 RU.
        let since = i64::try_from(ms).unwrap() - 1_442;
        assert!(pool(&engine) <= (Ru::whole(10).scale(since, 1_000) - Ru::whole(8)).or_zero());
        engine.check().unwrap();
    }
    assert!(pool(&engine) > Ru::ZERO);
}

#[test]
fn a_clean_stop_keeps_what_a_pool_owes() {
    let mut engine = drained();
    granted_ahead(&mut engine);
    let saved = engine.snapshot(at(1_402));
    let mut restarted = Engine::new(at(1_402), EngineConfig::default());
    restarted.put_group(at(1_402), GROUP, GroupSpec::capped(Rate::whole(100))).unwrap();
    restarted.restore(at(1_402), &saved);
    let spent = Ask { acked_seq: 2, ..Ask::default() };
    leased(restarted.renew(at(1_702), A, GROUP, 3, &spent, None));
    assert_eq!(restarted.group_view(GROUP).unwrap().pool, Ru::whole(5), "10 RU of 15 were owed");
    restarted.check().unwrap();
}

#[test]
fn after_a_crash_a_lump_ahead_of_its_time_counts_and_nothing_comes_until_it_was_earned() {
    let mut engine = drained();
    let terms = granted_ahead(&mut engine);
    let mut restarted = Engine::new(at(1_402), EngineConfig::default());
    restarted.put_group(at(1_402), GROUP, GroupSpec::capped(Rate::whole(100))).unwrap();
    restarted.recover_until(at(7_000));
    let held = Held { rate: terms.rate, cap: terms.cap, lump: terms.lump };
    let proof = Ask { acked_seq: 2, held, ..Ask::default() };
    leased(restarted.renew(at(1_420), A, GROUP, 3, &proof, Some(held)));
    let view = restarted.group_view(GROUP).unwrap();
    assert_eq!((view.pool, view.held), (Ru::ZERO, Ru::whole(80)));
    restarted.expire(at(7_000));
    assert_eq!(restarted.group_view(GROUP).unwrap().pool, Ru::ZERO);
    restarted.check().unwrap();
}

/// A node that asked at 0 ms and was granted at 1 ms.
fn node(drift_ppm: u32, terms: LeaseTerms) -> NodeGroup {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm, ..NodeConfig::default() });
    node.ask(at(0), 1);
    assert_eq!(node.on_grant(at(1), 1, &Grant::Leased(terms)), Heard::Applied);
    node
}

fn terms(rate: i64, cap: i64, lump: i64, after_ms: u64) -> LeaseTerms {
    LeaseTerms {
        rate: Rate::whole(rate),
        cap: Ru::whole(cap),
        lump: Ru::whole(lump),
        lump_after: Span::millis(after_ms),
        ttl: Span::secs(5),
        renew_after: Span::secs(1),
        max_fit: Ru::whole(1_000),
        max_debt: Ru::whole(100),
        ..LeaseTerms::default()
    }
}

fn queued(outcome: Result<Acquired, Refusal>) -> WaiterId {
    match outcome {
        Ok(Acquired::Queued(id)) => id,
        other => panic!("not queued: {other:?}"),
    }
}

#[test]
fn a_lump_ahead_of_its_time_is_spent_by_nobody_before_that_by_any_clock() {
    let mut node = node(100_000, terms(0, 0, 80, 200));
    let waiter = queued(node.acquire(at(2), Ru::whole(80), at(60_000)));
    assert_eq!(node.state(at(2)).available, Ru::ZERO);
    assert!(node.try_acquire(at(150), Ru::whole(1)).is_err());
    // 220 ms on a clock that is a tenth fast are 200 ms.
    assert_eq!(node.poll(at(220)), None);
    let due = node.look().next_poll().unwrap();
    assert!(due > at(220) && due <= at(222), "{due:?}");
    assert_eq!(node.poll(due), Some((waiter, Ok(Admitted::Paid))));
}

#[test]
fn while_a_lump_waits_for_its_time_those_that_fit_the_bucket_go_on() {
    let mut node = node(0, terms(100, 50, 80, 300));
    let large = queued(node.acquire(at(2), Ru::whole(80), at(60_000)));
    assert_eq!(node.try_acquire(at(151), Ru::whole(10)), Ok(Admitted::Paid));
    let small = queued(node.acquire(at(152), Ru::whole(10), at(60_000)));
    assert_eq!(node.poll(at(202)), Some((small, Ok(Admitted::Paid))));
    assert_eq!(node.poll(at(302)), Some((large, Ok(Admitted::Paid))));
}

#[test]
fn a_lump_ahead_of_its_time_is_told_and_given_back_like_any_other() {
    let mut node = node(0, terms(0, 0, 80, 200));
    let waiter = queued(node.acquire(at(2), Ru::whole(80), at(60_000)));
    assert_eq!(node.ask(at(50), 2).held.lump, Ru::whole(80));
    node.on_grant(at(51), 2, &Grant::Leased(terms(0, 0, 0, 0)));
    assert!(node.cancel(at(60), waiter));
    let ask = node.ask(at(100), 3);
    assert_eq!((ask.returned, ask.held.lump), (Ru::whole(80), Ru::ZERO));
    assert_eq!(node.state(at(300)).available, Ru::ZERO, "it is gone before its time came");
}

#[test]
fn operations_that_fit_pass_one_that_waits_for_a_lump_and_leave_that_alone() {
    let mut node = node(0, terms(100, 50, 0, 0));
    assert_eq!(node.try_acquire(at(501), Ru::whole(50)), Ok(Admitted::Paid), "the bucket is empty");
    let large = queued(node.acquire(at(501), Ru::whole(80), at(60_000)));
    let first = queued(node.acquire(at(501), Ru::whole(5), at(60_000)));
    let second = queued(node.acquire(at(501), Ru::whole(5), at(60_000)));
    assert_eq!(node.poll(at(551)), Some((first, Ok(Admitted::Paid))));
    assert_eq!(node.poll(at(551)), None, "those that fit keep their order");
    assert!(node.try_acquire(at(552), Ru(1)).is_err(), "and nobody overtakes them");
    assert_eq!(node.poll(at(601)), Some((second, Ok(Admitted::Paid))));
    assert_eq!(
        node.try_acquire(at(621), Ru::whole(2)),
        Ok(Admitted::Paid),
        "nobody that fits waits any more"
    );
    let ask = node.ask(at(631), 2);
    assert_eq!((ask.head, ask.beside), (Ru::whole(80), Ru::ZERO));
    // The lump has come: a new operation may take tokens of the bucket, and there are none.
    node.on_grant(at(632), 2, &Grant::Leased(terms(10, 50, 80, 100)));
    assert!(node.try_acquire(at(640), Ru::whole(5)).is_err());
    assert_eq!(node.poll(at(733)), Some((large, Ok(Admitted::Paid))));
}

#[test]
fn an_operation_that_passes_takes_nothing_of_a_lump_that_does_not_suffice_yet() {
    let mut node = node(0, terms(10, 10, 30, 0));
    let large = queued(node.acquire(at(1), Ru::whole(80), at(60_000)));
    assert_eq!(
        node.try_acquire(at(1_001), Ru::whole(10)),
        Ok(Admitted::Paid),
        "the bucket is empty, the lump is not"
    );
    assert!(node.try_acquire(at(1_001), Ru::whole(5)).is_err());
    let small = queued(node.acquire(at(1_001), Ru::whole(5), at(60_000)));
    assert_eq!(node.poll(at(1_001)), None);
    assert_eq!(node.state(at(1_001)).available, Ru::whole(30));
    assert_eq!(node.poll(at(1_501)), Some((small, Ok(Admitted::Paid))));
    assert!(node.cancel(at(1_501), large));
}

#[test]
fn an_operation_that_the_bucket_will_cover_is_passed_by_nobody() {
    let mut node = node(0, terms(100, 50, 0, 0));
    let first = queued(node.acquire(at(1), Ru::whole(40), at(60_000)));
    let second = queued(node.acquire(at(1), Ru::whole(1), at(60_000)));
    assert_eq!(node.poll(at(300)), None);
    assert_eq!(node.poll(at(401)), Some((first, Ok(Admitted::Paid))));
    assert_eq!(node.poll(at(411)), Some((second, Ok(Admitted::Paid))));
}

#[test]
fn at_the_fallback_nobody_passes_anybody() {
    let fallback = tidegate_core::group::Fallback::Rate(Rate::whole(10));
    let mut node = node(0, LeaseTerms { fallback, ..terms(100, 50, 0, 0) });
    let large = queued(node.acquire(at(1), Ru::whole(80), at(60_000)));
    assert_eq!(
        node.try_acquire(at(4_999), Ru::whole(49)),
        Ok(Admitted::Paid),
        "the bucket is not for the large one"
    );
    let small = queued(node.acquire(at(5_000), Ru::whole(1), at(60_000)));
    // A second of the fallback fills its bucket: the large one starts, and owes the rest.
    assert_eq!(node.poll(at(5_500)), None);
    assert_eq!(node.poll(at(6_001)), Some((large, Ok(Admitted::Paid))));
    assert_eq!(node.poll(at(12_000)), None);
    assert_eq!(node.poll(at(13_200)), Some((small, Ok(Admitted::Paid))));
}

#[test]
fn what_does_not_fit_a_bucket_that_became_smaller_waits_for_a_lump_and_is_passed() {
    let mut node = node(0, terms(100, 50, 0, 0));
    let medium = queued(node.acquire(at(1), Ru::whole(40), at(60_000)));
    let small = queued(node.acquire(at(1), Ru::whole(2), at(60_000)));
    node.ask(at(10), 2);
    node.on_grant(at(11), 2, &Grant::Leased(terms(20, 10, 0, 0)));
    assert_eq!(node.poll(at(150)), Some((small, Ok(Admitted::Paid))));
    assert_eq!(node.ask(at(160), 3).head, Ru::whole(40));
    node.on_grant(at(161), 3, &Grant::Leased(terms(20, 10, 40, 0)));
    assert_eq!(node.poll(at(161)), Some((medium, Ok(Admitted::Paid))));
}
