//! What a node says it holds and gives back counts once, and never for more than it was given. One rule a test. Times
//! are in milliseconds, rates and amounts in whole RU.

use tidegate_core::engine::Engine;
use tidegate_core::exchange::{Ask, Held, LeaseTerms};
use tidegate_core::group::ClientId;
use tidegate_core::units::{Rate, Ru};

use super::{A, B, GROUP, at, engine, holds, leased};

const C: ClientId = ClientId(3);

fn waits(rate: i64, backlog: i64) -> Ask {
    let (demand, backlog) = (Rate::whole(rate), Ru::whole(backlog));
    Ask { demand, backlog, head: Ru::whole(1), waiting: 1, ..Ask::default() }
}

/// A client takes this many RU out of the group, spends them and leaves, so that there is room in the pool.
fn drain(engine: &mut Engine, ru: i64) {
    let large = Ask { head: Ru::whole(ru), ..waits(0, ru) };
    let terms = leased(engine.renew(at(0), C, GROUP, 1, &large, None));
    assert_eq!(terms.lump, Ru::whole(ru));
    let leaves = Ask { acked_seq: 1, returned: terms.fill, ..Ask::default() };
    engine.renew(at(0), C, GROUP, 2, &leaves, None);
}

/// The tokens that exist, as far as the ledger knows.
fn counted(engine: &Engine) -> Ru {
    let view = engine.group_view(GROUP).unwrap();
    view.pool + view.held
}

fn pool(engine: &Engine) -> Ru {
    engine.group_view(GROUP).unwrap().pool
}

#[test]
fn tokens_that_were_returned_do_not_come_back_once_more() {
    let mut engine = engine();
    let terms = leased(engine.renew(at(0), A, GROUP, 1, &waits(20, 0), None));
    assert_eq!(terms.fill, terms.cap);
    drain(&mut engine, 60);
    let returns = |seq: u64| Ask { returned: terms.fill, ..holds(waits(0, 0), seq - 1, &terms) };
    leased(engine.renew(at(0), A, GROUP, 2, &returns(2), None));
    let once = pool(&engine);
    leased(engine.renew(at(0), A, GROUP, 3, &returns(3), None));
    // What is earned between two renewals is rounded up to a micro-RU.
    assert!(pool(&engine) <= once + Ru(1), "{once}, {}", pool(&engine));
}

/// A has a bucket with nothing in it, and the answer to its renewal 2 brought a lump of 6 RU and was lost.
fn lost(engine: &mut Engine) -> LeaseTerms {
    drain(engine, 60);
    assert_eq!(leased(engine.renew(at(0), B, GROUP, 1, &waits(0, 40), None)).lump, Ru::whole(40));
    let first = leased(engine.renew(at(0), A, GROUP, 1, &waits(20, 0), None));
    assert_eq!((first.fill, first.lump), (Ru::ZERO, Ru::ZERO));
    let returns = Ask { acked_seq: 1, returned: Ru::whole(40), ..Ask::default() };
    leased(engine.renew(at(0), B, GROUP, 2, &returns, None));
    let lost = leased(engine.renew(at(0), A, GROUP, 2, &holds(waits(20, 6), 1, &first), None));
    assert_eq!((lost.lump, lost.fill), (Ru::whole(6), Ru::ZERO));
    first
}

#[test]
fn a_lump_that_never_arrived_is_not_held_besides() {
    let mut engine = engine();
    let held = Held { lump: Ru::whole(6), ..holds(waits(0, 0), 1, &lost(&mut engine)).held };
    let before = counted(&engine);
    let claims = Ask { acked_seq: 1, held, ..waits(20, 0) };
    leased(engine.renew(at(0), A, GROUP, 3, &claims, None));
    assert!(counted(&engine) <= before, "{before}, {}", counted(&engine));
    assert!(engine.leases(GROUP).all(|lease| lease.lump == Ru::ZERO));
}

#[test]
fn a_lump_that_never_arrived_is_not_returned_besides() {
    let mut engine = engine();
    let first = lost(&mut engine);
    leased(engine.renew(at(0), A, GROUP, 3, &holds(waits(20, 0), 1, &first), None));
    let before = pool(&engine);
    let returns = Ask { returned: first.cap, ..holds(waits(20, 0), 3, &first) };
    leased(engine.renew(at(0), A, GROUP, 4, &returns, None));
    assert!(pool(&engine) <= before + Ru(9), "{before}, {}", pool(&engine));
}

#[test]
fn what_was_refunded_is_not_returned_besides() {
    let mut engine = engine();
    drain(&mut engine, 70);
    let lump = leased(engine.renew(at(0), A, GROUP, 1, &waits(10, 30), None));
    assert_eq!((lump.lump, lump.fill), (Ru::whole(30), Ru::ZERO));
    // The bucket is empty, and all of the lump is spent on an operation that needs nothing in the end.
    let held = Held { lump: Ru::ZERO, ..holds(waits(0, 0), 1, &lump).held };
    let runs = Ask { running: Ru::whole(30), held, acked_seq: 1, ..waits(10, 0) };
    leased(engine.renew(at(0), A, GROUP, 2, &runs, None));
    let refunds = Ask { acked_seq: 2, refunded: Ru::whole(30), running: Ru::ZERO, ..runs };
    leased(engine.renew(at(0), A, GROUP, 3, &refunds, None));
    let before = pool(&engine);
    assert!(before >= Ru::whole(30) && before + held.cap < Ru::whole(100), "{before}");
    let returns = Ask { acked_seq: 3, refunded: Ru::ZERO, returned: held.cap, ..refunds };
    leased(engine.renew(at(0), A, GROUP, 4, &returns, None));
    assert!(pool(&engine) <= before + Ru(9), "{before}, {}", pool(&engine));
}

#[test]
fn what_is_returned_keeps_no_room_for_refunds() {
    let mut engine = engine();
    let lump = leased(engine.renew(at(0), A, GROUP, 1, &waits(10, 60), None));
    let before = pool(&engine);
    // Twenty of the lump were not needed, and operations run for what came out of the bucket, too.
    let held = Held { lump: Ru::ZERO, ..holds(waits(0, 0), 1, &lump).held };
    let running = Ru::whole(55);
    let ask = Ask { acked_seq: 1, held, returned: Ru::whole(20), running, ..waits(10, 0) };
    leased(engine.renew(at(0), A, GROUP, 2, &ask, None));
    assert_eq!(pool(&engine), before + Ru::whole(20));
}

#[test]
fn what_comes_back_in_recovery_is_discarded_and_afterwards_is_not() {
    let held = Held { rate: Rate::ZERO, cap: Ru::whole(10), lump: Ru::whole(25) };
    let back = Held { lump: Ru::ZERO, ..held };
    for (ms, earned, comes) in [(5_500, 0, 0), (6_000, 0, 25), (6_100, 10, 25)] {
        let mut engine = engine();
        engine.recover_until(at(6_000));
        let proof = Ask { acked_seq: 9, held, ..waits(0, 0) };
        leased(engine.renew(at(100), A, GROUP, 10, &proof, Some(held)));
        leased(engine.renew(at(5_000), A, GROUP, 11, &Ask { acked_seq: 10, ..proof }, None));
        let returns = Ask { acked_seq: 11, held: back, returned: Ru::whole(25), ..waits(0, 0) };
        leased(engine.renew(at(ms), A, GROUP, 12, &returns, None));
        assert_eq!(pool(&engine), Ru::whole(earned + comes), "at {ms} ms");
    }
}

#[test]
fn an_operation_that_ended_and_left_keeps_nobody_elses_room_from_being_taken_back() {
    let mut engine = engine();
    let least = |seq: u64| Ask { acked_seq: seq - 1, demand: Rate(1), ..Ask::default() };
    for (client, ru) in [(A, 20), (B, 30)] {
        let lump = leased(engine.renew(at(0), client, GROUP, 1, &waits(0, ru), None));
        assert_eq!(lump.lump, Ru::whole(ru));
        let runs = Ask { running: Ru::whole(ru), ..least(2) };
        leased(engine.renew(at(0), client, GROUP, 2, &runs, None));
    }
    // The operation of A needed all of its estimate, and A has nothing more to do.
    leased(engine.renew(at(0), A, GROUP, 3, &least(3), None));
    leased(engine.renew(at(0), A, GROUP, 4, &Ask { acked_seq: 3, ..Ask::default() }, None));
    let buckets = |engine: &Engine| engine.leases(GROUP).map(|lease| lease.cap).sum::<Ru>();
    assert_eq!(engine.group_view(GROUP).unwrap().held, buckets(&engine) + Ru::whole(30));
    // The pool fills, and needs the room that is kept for B.
    leased(engine.renew(at(4_000), C, GROUP, 1, &least(1), None));
    assert_eq!(engine.group_view(GROUP).unwrap().held, buckets(&engine));
    assert_eq!(counted(&engine), Ru::whole(100));
}
