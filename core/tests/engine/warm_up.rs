//! Rates that warm up: the curve for the sum of leases, what warms and cools a group, and what a change or a restart
//! keeps.

use tidegate_core::GroupError;
use tidegate_core::group::Policy;
use tidegate_core::policy::warm_up::WarmUp;
use tidegate_core::policy::{Limiter, Verdict};
use tidegate_core::units::{Ru, Span, Time};
use tidegate_core::view::Snapshot;

use super::*;

fn warm_up(rate: i64, seconds: u64, factor: u32) -> GroupSpec {
    let policy = Policy::WarmUp { period: Span::secs(seconds), factor };
    GroupSpec { policy, ..GroupSpec::capped(Rate::whole(rate)) }
}

/// 200 RU/s after 10 s, a third of it when cold.
fn engine() -> Engine {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.put_group(at(0), GROUP, warm_up(200, 10, 3)).unwrap();
    engine
}

fn waits() -> Ask {
    Ask { backlog: Ru::whole(500), head: Ru::whole(1), largest: Ru::whole(1), waiting: 9, ..wants(500) }
}

/// Nodes that renew in turns every `STEP` ms, as long as they are told to.
struct Nodes {
    ids: Vec<ClientId>,
    seq: u64,
    terms: Vec<Option<LeaseTerms>>,
}

const STEP: u64 = 20;

impl Nodes {
    fn new(count: u64) -> Self {
        let ids: Vec<ClientId> = (1..=count).map(ClientId).collect();
        let terms = vec![None; ids.len()];
        Self { ids, seq: 0, terms }
    }

    /// All renew from `from` to `until` ms and ask for the same; after each answer, `see` has the sum of the rates.
    fn run(
        &mut self,
        engine: &mut Engine,
        (from, until): (u64, u64),
        ask: Ask,
        mut see: impl FnMut(u64, Rate),
    ) {
        let mut ms = from;
        while ms < until {
            self.seq += 1;
            for (id, terms) in self.ids.iter().zip(&mut self.terms) {
                let ask = match terms {
                    Some(held) => holds(ask, self.seq - 1, held),
                    None => ask,
                };
                *terms = Some(leased(engine.renew(at(ms), *id, GROUP, self.seq, &ask, None)));
            }
            let sum =
                self.terms.iter().flatten().map(|terms| terms.rate).fold(Rate::ZERO, |sum, rate| sum + rate);
            see(ms, sum);
            ms += STEP;
        }
    }
}

/// How much the single key lets start from cold until then, in micro-RU.
fn single(until: Time) -> i64 {
    let mut limiter = Limiter::new(WarmUp::new(Rate::whole(200), Span::secs(10), 3).unwrap());
    let (mut at, mut admitted) = (0, 0);
    while at < until.0 {
        match limiter.try_acquire(Time(at), Ru::whole(1)) {
            Verdict::RetryAt(Time(next)) => at = next,
            _ => admitted += 1_000_000,
        }
    }
    admitted
}

#[test]
fn the_sum_of_leases_follows_the_curve_of_one_key_from_a_third_of_the_limit_to_all_of_it() {
    for count in [1, 3, 8] {
        let (mut engine, mut admitted) = (engine(), 0_i64);
        let mut warm_at = None;
        Nodes::new(count).run(&mut engine, (0, 12_000), waits(), |ms, sum| {
            if ms < 1_000 {
                assert!(sum <= Rate::whole(71), "{sum} at {ms} ms");
            }
            assert!(sum <= Rate::whole(200));
            // What is leased now is used until the next step.
            admitted += sum.over(Span::millis(STEP)).0;
            // An operation of the key starts when the one before is paid for, on the next microsecond.
            let most = single(at(ms + STEP)) + 200_000;
            assert!(admitted <= most, "{count} nodes: {admitted} at {ms} ms, and one key {most}");
            if sum >= Rate::whole(198) {
                warm_at = warm_at.or(Some(ms));
            }
        });
        let warm_at = warm_at.unwrap();
        assert!((9_900..10_400).contains(&warm_at), "{count} nodes are warm at {warm_at} ms");
        let (is, one) = (admitted, single(at(12_000)));
        assert!(is >= one.checked_mul(97).unwrap() / 100, "{count} nodes: {is} of {one}");
    }
}

#[test]
fn a_group_that_is_hardly_used_stays_cold_and_one_that_rests_becomes_cold_again() {
    let (mut engine, mut nodes) = (engine(), Nodes::new(3));
    let hardly = Ask { demand: Rate::whole(10), ..Ask::default() };
    nodes.run(&mut engine, (0, 30_000), hardly, |_, _| ());
    assert_eq!(engine.warmth(GROUP, at(30_000)).unwrap().warmth, 0);
    nodes.run(&mut engine, (30_000, 41_000), waits(), |_, _| ());
    let view = engine.warmth(GROUP, at(41_000)).unwrap();
    assert_eq!((view.rate, view.warmth), (Rate::whole(200), 1_000));
    // As much is stored in the warm-up as is stored at most, once the leases have ended.
    let rests = |engine: &mut Engine, ms| {
        engine.expire(at(ms));
        engine.warmth(GROUP, at(ms)).unwrap()
    };
    let half = rests(&mut engine, 41_000 + 5_060 + 5_000);
    assert!(half.rate > Rate::whole(67) && half.rate < Rate::whole(200), "{half:?}");
    let cold = rests(&mut engine, 41_000 + 5_060 + 10_000);
    assert_eq!((cold.rate, cold.warmth), (Rate(66_666_666), 0));
    nodes.terms = vec![None; 3];
    nodes.run(&mut engine, (60_000, 60_100), waits(), |_, sum| assert!(sum <= Rate::whole(67), "{sum}"));
}

#[test]
fn leases_of_before_it_cooled_are_lowered_at_their_next_renewal_and_end_in_time() {
    let (mut engine, mut nodes) = (engine(), Nodes::new(2));
    nodes.run(&mut engine, (0, 12_000), waits(), |_, _| ());
    // One is cut off with its half; the other has no load any more, and the group cools.
    let held = nodes.terms[0].unwrap();
    let idle = Ask { demand: Rate::whole(1), ..Ask::default() };
    let first = nodes.ids[0];
    for step in 0..40 {
        let ms = 12_000 + step * 100;
        nodes.seq += 1;
        let ask = holds(idle, nodes.seq - 1, &nodes.terms[1].unwrap());
        nodes.terms[1] = Some(leased(engine.renew(at(ms), nodes.ids[1], GROUP, nodes.seq, &ask, None)));
    }
    let view = engine.group_view(GROUP).unwrap();
    assert!(view.committed >= held.rate, "{view:?}: the other may still use its lease");
    // Its lease has ended a ttl later, and the group goes on to cool.
    engine.expire(at(12_000 + 5_060));
    assert!(engine.leases(GROUP).all(|lease| lease.client != first));
    let cooled = engine.warmth(GROUP, at(24_000)).unwrap();
    assert!(cooled.rate < Rate::whole(100), "{cooled:?}");
    let (client, seq) = (nodes.ids[1], nodes.seq + 1);
    let terms = leased(engine.renew(at(24_000), client, GROUP, seq, &waits(), None));
    assert!(terms.rate <= cooled.rate, "{terms:?}");
}

#[test]
fn a_cold_group_hands_out_no_burst_and_those_below_it_share_its_rate() {
    let mut engine = engine();
    let below = GroupSpec { parent: Some(GROUP), ..GroupSpec::capped(Rate::whole(150)) };
    engine.put_group(at(0), GroupId(3), below.clone()).unwrap();
    engine.put_group(at(0), GroupId(4), below).unwrap();
    let mut sum = Rate::ZERO;
    for (group, client) in [(GroupId(3), A), (GroupId(4), B)] {
        let terms = leased(engine.renew(at(1_000), client, group, 1, &waits(), None));
        assert!(terms.enforcement.paced && terms.fill == Ru::ZERO && terms.lump == Ru::ZERO, "{terms:?}");
        assert!(terms.cap <= Rate::whole(67).over(Span::millis(5)));
        sum += terms.rate;
    }
    assert!(sum <= Rate::whole(67), "{sum}");
}

/// What a cold group may not use yet is left to the groups beside it.
#[test]
fn a_group_beside_a_cold_one_has_what_that_may_not_use() {
    let mut engine = Engine::new(at(0), EngineConfig::default());
    engine.put_group(at(0), GroupId(3), GroupSpec::capped(Rate::whole(300))).unwrap();
    let below = |spec| GroupSpec { parent: Some(GroupId(3)), ..spec };
    engine.put_group(at(0), GROUP, below(warm_up(300, 10, 3))).unwrap();
    engine.put_group(at(0), GroupId(4), below(GroupSpec::capped(Rate::whole(300)))).unwrap();
    let asks = |engine: &mut Engine, ms, seq, held: &mut [Option<LeaseTerms>; 2]| {
        for ((group, client), held) in [(GROUP, A), (GroupId(4), B)].into_iter().zip(held) {
            let ask = held.map_or(waits(), |terms| holds(waits(), seq - 1, &terms));
            *held = Some(leased(engine.renew(at(ms), client, group, seq, &ask, None)));
        }
    };
    let mut held = [None, None];
    (1..10).for_each(|seq| asks(&mut engine, seq * 20, seq, &mut held));
    let [cold, beside] = held.map(|terms| terms.unwrap().rate);
    assert!(cold <= Rate::whole(102) && cold >= Rate::whole(95), "{cold}");
    assert!(beside >= Rate::whole(190), "{beside}");
}

#[test]
fn a_clean_restart_keeps_how_warm_a_group_is_and_any_other_start_is_cold() {
    let (mut engine, mut nodes) = (engine(), Nodes::new(2));
    nodes.run(&mut engine, (0, 8_000), waits(), |_, _| ());
    let before = engine.warmth(GROUP, at(8_000)).unwrap();
    assert!(before.warmth > 500, "{before:?}");
    let saved = engine.snapshot(at(8_000));
    let started = |away: u64| {
        let mut after = self::engine();
        after.restore(at(0), &Snapshot { away: Span::millis(away), ..saved.clone() });
        after.warmth(GROUP, at(0)).unwrap()
    };
    let after = started(0);
    assert!(after.rate <= before.rate && after.rate >= Rate(before.rate.0 - 10), "{after:?} of {before:?}");
    assert!(started(2_000).rate < after.rate, "time without a controller is idle");
    assert_eq!(started(60_000).warmth, 0);
    assert_eq!(self::engine().warmth(GROUP, at(0)).unwrap().warmth, 0);
    // One that is cold is not in it.
    assert_eq!(self::engine().snapshot(at(1_000)), Snapshot::default());
}

#[test]
fn a_changed_definition_keeps_how_warm_the_group_is_and_a_new_warm_up_begins_cold() {
    let (mut engine, mut nodes) = (engine(), Nodes::new(2));
    nodes.run(&mut engine, (0, 8_000), waits(), |_, _| ());
    let before = engine.warmth(GROUP, at(8_000)).unwrap().warmth;
    for (rate, seconds, factor) in
        [(400, 10, 3), (1, 10, 3), (200, 3_600, 3), (1_000_000, 60, 3), (200, 10, 3)]
    {
        engine.put_group(at(8_000), GROUP, warm_up(rate, seconds, factor)).unwrap();
        let after = engine.warmth(GROUP, at(8_000)).unwrap().warmth;
        assert!(after.abs_diff(before) <= 1, "{after} of {before}, {rate} RU/s in {seconds} s");
    }
    engine.put_group(at(8_000), GROUP, warm_up(200, 10, 50)).unwrap();
    let view = engine.warmth(GROUP, at(8_000)).unwrap();
    assert!(view.rate < Rate::whole(200) && view.warmth > 0, "{view:?}");
    engine.put_group(at(8_000), GROUP, GroupSpec::capped(Rate::whole(200))).unwrap();
    assert_eq!(engine.warmth(GROUP, at(8_000)), None);
    engine.put_group(at(8_000), GROUP, warm_up(200, 10, 3)).unwrap();
    assert_eq!(engine.warmth(GROUP, at(8_000)).unwrap().warmth, 0);
}

#[test]
fn a_rate_that_cannot_warm_up_is_refused() {
    let mut engine = engine();
    let refused = engine.put_group(at(1), GROUP, warm_up(1_000_000, 3_600, 3)).unwrap_err();
    assert!(matches!(refused, GroupError::WarmUp(GROUP, _)), "{refused:?}");
    assert_eq!(engine.limit(GROUP), Some(Rate::whole(200)));
}
