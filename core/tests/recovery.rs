//! While the controller recovers: how nodes go on, and who waits for whom. Times are in milliseconds, rates and amounts
//! in whole RU.

#![expect(clippy::panic, reason = "a test stops at the first surprise")]

mod common;

use tidegate_core::engine::{Engine, EngineConfig};
use tidegate_core::exchange::{Ask, Grant, Held, LeaseTerms};
use tidegate_core::group::{ClientId, Fallback, GroupId, GroupSpec};
use tidegate_core::node::{Acquired, Admitted, Dormant, LeaseState, NodeConfig, NodeGroup, Refusal};
use tidegate_core::units::{Rate, Ru, Span};

use common::{at, leased};

const GROUP: GroupId = GroupId(2);
const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);

fn wants(ru: i64) -> Ask {
    Ask { demand: Rate::whole(ru), backlog: Ru::whole(ru), ..Ask::default() }
}

fn recovering(fallback: Option<Fallback>) -> Grant {
    Grant::Recovering { ask_again: Span::secs(1), fallback }
}

/// A node with a lease on 50 RU/s until 5 s, and with this fallback.
fn node(fallback: Fallback) -> NodeGroup {
    let mut node = NodeGroup::new(at(0), NodeConfig { drift_ppm: 0, ..NodeConfig::default() });
    node.ask(at(0), 1);
    let terms = LeaseTerms {
        rate: Rate::whole(50),
        cap: Ru::whole(25),
        ttl: Span::secs(5),
        renew_after: Span::secs(1),
        max_fit: Ru::whole(100),
        fallback,
        ..LeaseTerms::default()
    };
    node.on_grant(at(1), 1, &Grant::Leased(terms));
    node
}

/// Operations of 1 RU every 10 ms that the node admits.
fn admitted(node: &mut NodeGroup, from: u64, until: u64) -> usize {
    (from..until).step_by(10).filter(|ms| node.try_acquire(at(*ms), Ru::whole(1)).is_ok()).count()
}

#[test]
fn a_controller_that_recovers_takes_neither_lease_nor_fallback_from_a_node() {
    for told in [None, Some(Fallback::Rate(Rate::whole(10)))] {
        let mut node = node(Fallback::Rate(Rate::whole(10)));
        node.ask(at(1_000), 2);
        node.on_grant(at(1_001), 2, &recovering(told));
        assert!((100..=126).contains(&admitted(&mut node, 3_000, 5_000)), "the lease goes on");
        assert!((9..=11).contains(&admitted(&mut node, 5_000, 6_000)), "then the fallback");
        for second in 6..20 {
            node.ask(at(second * 1_000), second);
            node.on_grant(at(second * 1_000 + 1), second, &recovering(told));
            let let_in = admitted(&mut node, second * 1_000 + 2, second * 1_000 + 1_000);
            assert!((9..=11).contains(&let_in), "{let_in} in second {second}");
        }
    }
}

#[test]
fn a_limit_that_comes_while_a_group_recovers_yields_nothing_before_that_is_over() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    assert_eq!(engine.put_group(at(0), GROUP, GroupSpec::unlimited()), Ok(()));
    engine.recover_until(at(6_000));
    let limited = GroupSpec::capped(Rate::whole(100));
    assert_eq!(engine.put_group(at(1_000), GROUP, limited), Ok(()));
    let mut pool = |ms| {
        // A node that holds nothing and wants nothing.
        engine.renew(at(ms), A, GROUP, ms, &Ask { acked_seq: 1, ..Ask::default() }, None);
        engine.group_view(GROUP).map(|view| view.pool)
    };
    assert_eq!([pool(3_000), pool(6_000), pool(6_300)], [0, 0, 30].map(|ru| Some(Ru::whole(ru))));
}

#[test]
fn a_bucket_gets_no_deeper_while_leases_of_before_may_be_out() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.recover_until(at(5_100));
    engine.put_group(at(0), GROUP, GroupSpec::capped(Rate::whole(100))).unwrap();
    // Others hold the tokens by which a large operation would deepen this bucket, and have not proven them yet.
    let held = Held { rate: Rate::whole(50), cap: Ru::whole(20), lump: Ru::ZERO };
    let ask = Ask { held, head: Ru::whole(45), ..wants(45) };
    let terms = leased(engine.renew(at(10), A, GROUP, 1, &ask, Some(held)));
    assert_eq!((terms.rate, terms.cap), (held.rate, held.cap));
    let again = leased(engine.renew(at(20), A, GROUP, 2, &Ask { acked_seq: 1, ..ask }, None));
    assert_eq!((again.rate, again.cap), (held.rate, held.cap));
    // After recovery the ledger knows all leases.
    let after = leased(engine.renew(at(5_200), A, GROUP, 3, &Ask { acked_seq: 2, ..ask }, None));
    assert!(after.cap > held.cap, "{after:?}");
}

#[test]
fn a_newcomer_hears_of_the_fallback_from_a_controller_that_recovers() {
    let mut node = NodeGroup::new(at(0), NodeConfig::default());
    node.ask(at(0), 1);
    assert!(matches!(node.try_acquire(at(0), Ru(1)), Err(Refusal::Unavailable { .. })));
    node.on_grant(at(1), 1, &recovering(Some(Fallback::Rate(Rate::whole(10)))));
    assert!((19..=20).contains(&admitted(&mut node, 0, 2_000)));
    // The fallback changes meanwhile, and then ends.
    node.ask(at(2_000), 2);
    node.on_grant(at(2_001), 2, &recovering(Some(Fallback::Rate(Rate::whole(20)))));
    assert!((19..=21).contains(&admitted(&mut node, 2_002, 3_000)));
    node.ask(at(3_000), 3);
    node.on_grant(at(3_001), 3, &recovering(Some(Fallback::Stop)));
    assert_eq!((admitted(&mut node, 3_002, 4_000), node.state(at(4_000)).lease), (0, LeaseState::Recovering));
}

#[test]
fn a_fallback_that_is_worth_more_than_the_lease_takes_its_place_in_recovery() {
    let mut node = node(Fallback::Rate(Rate::whole(80)));
    node.ask(at(1_000), 2);
    node.on_grant(at(1_001), 2, &recovering(None));
    assert!((78..=81).contains(&admitted(&mut node, 1_002, 2_002)));
    let mut engine = Engine::new(at(0), EngineConfig::default());
    let spec = GroupSpec { fallback: Fallback::Rate(Rate::whole(40)), ..GroupSpec::capped(Rate::whole(100)) };
    engine.put_group(at(0), GROUP, spec).unwrap();
    engine.recover_until(at(6_000));
    let held = |rate| Held { rate: Rate::whole(rate), cap: Ru::whole(3), lump: Ru::ZERO };
    let asks = |rate| Ask { acked_seq: 9, held: held(rate), ..wants(500) };
    let told = engine.renew(at(100), A, GROUP, 10, &asks(30), Some(held(30)));
    let fallback = Some(Fallback::Rate(Rate::whole(40)));
    assert_eq!(told, Some(Grant::Recovering { ask_again: Span::secs(1), fallback }));
    assert_eq!(leased(engine.renew(at(100), B, GROUP, 10, &asks(60), Some(held(60)))).rate, Rate::whole(60));
}

#[test]
fn what_is_larger_than_the_bucket_of_the_fallback_is_let_in_when_that_is_full_and_owed() {
    let mut node = node(Fallback::Rate(Rate::whole(10)));
    let Ok(Acquired::Queued(large)) = node.acquire(at(5_000), Ru::whole(30), at(60_000)) else {
        panic!("there is nothing yet")
    };
    assert_eq!(node.poll(at(5_990)), None);
    assert_eq!(node.poll(at(6_000)), Some((large, Ok(Admitted::Paid))));
    assert_eq!((node.state(at(6_000)).debt, node.look().worst_debt()), (Ru::whole(20), Ru::whole(20)));
    assert!(node.try_acquire(at(7_900), Ru(1)).is_err(), "it is paid first");
    assert!(node.try_acquire(at(8_100), Ru::whole(1)).is_ok());
    let never = node.try_acquire(at(9_000), Ru::whole(101));
    assert_eq!(never, Err(Refusal::NeverFits { max: Ru::whole(100) }));
}

#[test]
fn the_smallest_fallback_admits_and_none_admits_nothing() {
    let mut least = node(Fallback::Rate(Rate(1)));
    assert!(least.try_acquire(at(5_500), Ru(1)).is_err());
    assert!(least.try_acquire(at(6_000), Ru::whole(100)).is_ok(), "a millionth in hand, the rest is owed");
    assert!(least.try_acquire(at(3_600_000), Ru(1)).is_err());
    let mut none = node(Fallback::Rate(Rate::ZERO));
    assert!(none.try_acquire(at(3_600_000), Ru(1)).is_err());
    let mut most = node(Fallback::Rate(Rate::MAX));
    most.ask(at(7_000), 2);
    most.on_grant(at(7_001), 2, &recovering(None));
    assert!(most.try_acquire(at(8_001), Ru::whole(100)).is_ok());
}

#[test]
fn a_group_recovers_for_the_leases_of_its_own_chain() {
    let (parent, slow, quick, other) = (GroupId(3), GroupId(4), GroupId(5), GroupId(6));
    let below = |parent| GroupSpec { parent: Some(parent), ..GroupSpec::capped(Rate::whole(50)) };
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.put_group(at(0), parent, GroupSpec::capped(Rate::whole(100))).unwrap();
    engine.put_group(at(0), slow, below(parent)).unwrap();
    engine.put_group(at(0), quick, below(parent)).unwrap();
    engine.put_group(at(0), other, GroupSpec::capped(Rate::whole(100))).unwrap();
    for (group, until) in [(parent, 1_000), (slow, 30_000), (quick, 2_000), (other, 5_000)] {
        engine.recover_group_until(group, at(until));
    }
    let until = [parent, slow, quick, other].map(|id| engine.group_recovering_until(id));
    assert_eq!(until, [at(30_000), at(30_000), at(30_000), at(5_000)]);
    let granted = |engine: &mut Engine, ms, id| {
        let grant = engine.renew(at(ms), A, id, ms, &wants(500), None);
        matches!(grant, Some(Grant::Leased(terms)) if terms.rate > Rate::ZERO)
    };
    assert!(!granted(&mut engine, 4_999, other) && granted(&mut engine, 5_001, other));
    assert!(!granted(&mut engine, 29_999, quick) && granted(&mut engine, 30_001, quick));
    // A level without a limit does not recover.
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.put_group(at(0), parent, GroupSpec::unlimited()).unwrap();
    engine.put_group(at(0), quick, below(parent)).unwrap();
    engine.recover_group_until(parent, at(30_000));
    engine.recover_group_until(quick, at(2_000));
    assert!(granted(&mut engine, 2_001, quick));
}

#[test]
fn a_recovery_survives_a_clean_restart_group_by_group() {
    let (slow, other) = (GroupId(4), GroupId(6));
    let define = |engine: &mut Engine| {
        engine.put_group(at(0), slow, GroupSpec::capped(Rate::whole(100))).unwrap();
        engine.put_group(at(0), other, GroupSpec::capped(Rate::whole(100))).unwrap();
    };
    let mut before = Engine::new(at(0), EngineConfig::default());
    define(&mut before);
    before.recover_group_until(slow, at(30_000));
    before.recover_group_until(other, at(5_000));
    let snapshot = before.snapshot(at(1_000));
    let mut after = Engine::new(at(0), EngineConfig::default());
    define(&mut after);
    after.restore(at(2_000), &snapshot);
    assert_eq!([slow, other].map(|id| after.group_recovering_until(id)), [at(31_000), at(6_000)]);
}

#[test]
fn an_answer_that_comes_after_its_end_leaves_the_fallback_what_it_has() {
    let mut node = node(Fallback::Rate(Rate::whole(10)));
    node.ask(at(5_100), 2);
    let fallback = Fallback::Rate(Rate::whole(5));
    let max_fit = Ru::whole(100);
    let terms = LeaseTerms { ttl: Span::millis(500), max_fit, fallback, ..LeaseTerms::default() };
    node.on_grant(at(5_800), 2, &Grant::Leased(terms));
    assert_eq!(node.state(at(5_800)).available, Ru::whole(5));
    // A renewal does not give any of it away, either, though an operation waits that the bucket can never hold.
    node.try_acquire(at(5_800), Ru::whole(1)).unwrap();
    node.acquire(at(5_800), Ru::whole(50), at(60_000)).unwrap();
    assert_eq!(node.ask(at(5_900), 3).returned, Ru::ZERO);
    assert!(node.poll(at(6_000)).is_some_and(|(_, outcome)| outcome.is_ok()));
}

/// Renewals of clients of a group whose nodes together may admit 100 RU/s without leases.
struct Divided {
    engine: Engine,
    seq: u64,
}

impl Divided {
    fn new(fallback: Fallback) -> Self {
        let mut engine = Engine::new(at(0), EngineConfig::default());
        let total = Some(Rate::whole(100));
        let spec = GroupSpec { fallback, fallback_total: total, ..GroupSpec::capped(Rate::whole(1_000)) };
        assert_eq!(engine.put_group(at(0), GROUP, spec), Ok(()));
        Self { engine, seq: 0 }
    }

    /// The part in the answer to a client that has applied the answer to `acked`, and the number of this renewal.
    fn told(&mut self, ms: u64, client: ClientId, acked: u64) -> (i64, u64) {
        self.seq += 1;
        let ask = Ask { acked_seq: acked, ..wants(10) };
        let grant = self.engine.renew(at(ms), client, GROUP, self.seq, &ask, None);
        let fallback = match grant {
            Some(Grant::Leased(terms)) => terms.fallback,
            Some(Grant::Recovering { fallback: Some(fallback), .. }) => fallback,
            other => panic!("nothing is told: {other:?}"),
        };
        (fallback.rate().unwrap_or_default().0 / 1_000_000, self.seq)
    }

    /// Stores the reserved parts.
    fn store(&mut self, ms: u64) -> Vec<(ClientId, i64)> {
        let rows = self.engine.take_parts(at(ms));
        self.engine.parts_taken(&rows, true);
        rows.into_iter().map(|(client, _, rate)| (client, rate.0 / 1_000_000)).collect()
    }
}

#[test]
fn parts_of_a_fallback_are_told_when_they_are_stored_and_freed_when_less_is_acknowledged() {
    let mut group = Divided::new(Fallback::Stop);
    assert_eq!(group.told(0, A, 0).0, 0, "it is not on disk");
    assert_eq!(group.store(10), [(A, 100)]);
    let (told, seq) = group.told(20, A, 1);
    assert_eq!(told, 100);
    // The second client gets nothing before the first has acknowledged its smaller part.
    assert_eq!(group.told(30, B, 0).0, 0);
    assert_eq!(group.store(40), []);
    let (told, smaller) = group.told(50, A, seq);
    assert_eq!((told, group.told(60, B, 0).0), (50, 0));
    // That answer is lost: nothing is free.
    let (told, again) = group.told(70, A, seq);
    assert_eq!((told, group.engine.parts_out(GROUP), again > smaller), (50, Rate::whole(100), true));
    group.told(80, A, again);
    group.told(90, B, 0);
    assert_eq!(group.store(100), [(A, 50), (B, 50)]);
    assert_eq!((group.told(110, A, 0).0, group.told(120, B, 0).0), (50, 50));
}

#[test]
fn who_asks_for_nothing_is_told_its_part_and_not_the_fallback_of_each() {
    let mut group = Divided::new(Fallback::Rate(Rate::whole(1_000)));
    let nothing = |group: &mut Divided, ms, client| {
        group.seq += 1;
        let ask = Ask { acked_seq: group.seq - 1, ..Ask::default() };
        assert!(ask.gives_up());
        match group.engine.renew(at(ms), client, GROUP, group.seq, &ask, None) {
            Some(Grant::Leased(terms)) => terms.fallback,
            other => panic!("{other:?}"),
        }
    };
    group.told(0, A, 0);
    assert_eq!(nothing(&mut group, 10, A), Fallback::Stop, "nothing is on disk for it");
    group.store(20);
    let (told, _) = group.told(30, A, 0);
    assert_eq!(told, 100);
    let fallback = nothing(&mut group, 40, A);
    assert_eq!(fallback.rate(), Some(Rate::whole(100)), "{fallback:?}");
}

#[test]
fn the_part_of_a_node_that_is_cut_off_is_nobody_elses_until_it_cannot_be_in_use() {
    let mut group = Divided::new(Fallback::Stop);
    group.told(0, A, 0);
    group.store(10);
    let (told, _) = group.told(20, A, 0);
    assert_eq!(told, 100);
    let hours = 3_600_000;
    for ms in [60_000, hours, 12 * hours] {
        group.told(ms, B, 0);
        assert_eq!((group.store(ms), group.told(ms, B, 0).0), (Vec::new(), 0), "A may be using all of it");
    }
    let late = 12 * hours + 60_000;
    assert_eq!(group.store(late), [(A, 0)]);
    group.told(late, B, 0);
    assert_eq!((group.store(late), group.told(late, B, 0).0), (vec![(B, 100)], 100));
    // A node that says goodbye, or is known to be another process now, frees its part at once.
    group.engine.release(at(late), B);
    group.told(late, A, 0);
    assert_eq!((group.store(late), group.told(late, A, 0).0), (vec![(B, 0), (A, 100)], 100));
}

#[test]
fn parts_survive_a_restart_and_a_recovery_sends_them() {
    let mut group = Divided::new(Fallback::Rate(Rate::whole(40)));
    group.engine.load_part(at(0), GROUP, A, Rate::whole(70));
    group.engine.recover_until(at(60_000));
    assert_eq!(group.told(0, B, 0).0, 0);
    assert_eq!(group.store(10), [(B, 30)]);
    assert_eq!(group.told(20, B, 0).0, 30);
    assert_eq!(group.told(30, A, 9).0, 40, "no more than each may have");
}

#[test]
fn a_part_of_a_fallback_ends_when_nothing_was_heard_for_long() {
    let part = Fallback::Part(Rate::whole(10), Span::secs(60));
    let mut node = node(part);
    assert!((18..=21).contains(&admitted(&mut node, 58_990, 59_990)), "a full bucket, and a second");
    assert_eq!(admitted(&mut node, 60_000, 90_000), 0);
    // Its time runs on through sleep.
    let mut idle = self::node(part);
    idle.ask(at(61_000), 2);
    let awake = idle.dormant().map(|rest| Dormant::from_words(rest.to_words()));
    assert!(awake.is_none_or(|rest| {
        let mut node = NodeGroup::awaken(at(70_000), NodeConfig::default(), &rest);
        node.acquire(at(70_000), Ru(1), at(90_000)).is_ok() && node.poll(at(80_000)).is_none()
    }));
}

proptest::proptest! {
    #[test]
    fn parts_never_pass_the_fallback_of_the_group_as_nodes_come_and_go(
        steps in proptest::collection::vec((0_u8..6, 0_u64..5, 1_u64..30_000), 1..80),
    ) {
        let mut group = Divided::new(Fallback::Stop);
        let (mut now, mut told) = (0, std::collections::BTreeMap::<u64, (i64, u64)>::new());
        for (what, client, ms) in steps {
            now += ms;
            match what {
                // An answer that arrives, and one that is lost.
                0 | 1 => {
                    let acked = told.get(&client).map_or(0, |(_, seq)| *seq);
                    let grant = group.told(now, ClientId(client), acked);
                    if what == 0 {
                        told.insert(client, grant);
                    }
                }
                2 => drop(group.store(now)),
                3 => {
                    let rows = group.engine.take_parts(at(now));
                    group.engine.parts_taken(&rows, false);
                }
                4 => {
                    told.remove(&client);
                    group.engine.release(at(now), ClientId(client));
                }
                _ => {}
            }
            group.engine.check().unwrap();
            let sum: i64 = told.values().map(|(part, _)| *part).sum();
            assert!(sum <= 100, "{told:?}");
        }
    }
}
