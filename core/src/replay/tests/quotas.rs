//! Quotas with windows of a calendar and with one that rolls, beside a slow replay that asks the grant engine at each
//! moment what is left.

use super::pressed::{ByItself, answer};
use super::*;
use crate::engine::{Engine, EngineConfig};
use crate::group::{GroupId, GroupSpec};
use crate::quota::{Opening, Unit, cell, window_number};
use crate::replay::held::Steady;

const GROUP: GroupId = GroupId(7);
/// A window that samples of seconds show the cells of.
const MINUTE: Span = Span::secs(60);

/// What counts, and what of it is left.
#[derive(Clone)]
enum Machine {
    /// The grant engine's quota that rolls.
    Rolling(Box<Engine>, Unit, Span),
    /// What is used in each window of a calendar.
    Fixed { begins: Vec<Time>, used: Vec<i64>, unit: Unit, amount: i64 },
}

impl Machine {
    fn rolling(unit: Unit, amount: i64, length: Span) -> Self {
        let mut engine = Engine::new(Time(0), EngineConfig::default());
        let quota = Some(Ru(if unit == Unit::Ru { amount } else { amount * Unit::REQUEST.0 }));
        let spec = GroupSpec { quota, quota_unit: unit, ..GroupSpec::capped(Rate::whole(1)) };
        engine.put_group(Time(0), GROUP, spec).unwrap();
        let number = window_number(GROUP, 1);
        let opening = Opening { number, length, durable: Ru::MAX, rolls: true, ..Opening::default() };
        engine.open_quota(Time(0), GROUP, &opening);
        Self::Rolling(Box::new(engine), unit, length)
    }

    /// What an operation uses.
    fn uses(&self, cost: i64) -> i64 {
        match self {
            Self::Rolling(_, unit, _) => unit.of(Ru(cost)).0,
            Self::Fixed { unit: Unit::Requests, .. } => 1,
            Self::Fixed { .. } => cost,
        }
    }

    fn left(&self, at: Time) -> i64 {
        match self {
            Self::Rolling(engine, ..) => engine.quota_view(GROUP, at).unwrap().left.0,
            Self::Fixed { begins, used, amount, .. } => {
                amount - used[begins.partition_point(|begin| *begin <= at)]
            }
        }
    }

    /// When more may be left than at a moment.
    fn returns(&self, at: Time) -> Option<Time> {
        match self {
            Self::Rolling(engine, ..) => {
                let view = engine.quota_view(GROUP, at).unwrap();
                view.used.is_positive().then(|| at.after(view.resets_in))
            }
            Self::Fixed { begins, .. } => begins.get(begins.partition_point(|begin| *begin <= at)).copied(),
        }
    }

    /// Whether nothing that is used from one moment on comes back until another, nor does a window begin.
    fn is_of_one_window(&self, first: Time, last: Time) -> bool {
        match self {
            Self::Rolling(_, _, length) => {
                let cell = cell(*length).0;
                last.0 < (first.0 / cell + 1) * cell + length.0
            }
            Self::Fixed { begins, .. } => !begins.iter().any(|begin| first < *begin && *begin <= last),
        }
    }

    fn charge(&mut self, at: Time, uses: i64) {
        match self {
            Self::Rolling(engine, ..) => engine.charge_quota(at, GROUP, Span(u64::MAX), Ru(uses)),
            Self::Fixed { begins, used, .. } => used[begins.partition_point(|begin| *begin <= at)] += uses,
        }
    }
}

/// Decides each operation by itself, under a rate that never matters.
#[derive(Clone)]
struct Slow {
    machine: Machine,
    patience: Span,
    /// When the last one starts.
    free: Time,
    delayed: u128,
}

impl Slow {
    /// How much of a sample at so many moments is refused.
    fn sample(&mut self, sample: &Sample, moments: u64) -> u64 {
        let (costs, mut refused) = (sample.costs(), 0);
        for moment in 0..moments {
            let arrival = sample.start.after(Span(sample.length.0 * moment / moments));
            let [first, end] = [moment, moment + 1].map(|moment| costs.count * moment / moments);
            for operation in first..end {
                let cost = costs.before(operation + 1) - costs.before(operation);
                let (uses, latest) = (self.machine.uses(cost), arrival.after(self.patience));
                let mut start = Some(arrival.max(self.free));
                while let Some(at) = start.filter(|at| *at <= latest && self.machine.left(*at) < uses) {
                    start = self.machine.returns(at);
                }
                let Some(start) = start.filter(|start| *start <= latest) else {
                    // Those of a moment that come behind it are refused with it.
                    refused += (costs.before(end) - costs.before(operation)).unsigned_abs();
                    break;
                };
                self.machine.charge(start, uses);
                self.free = start;
                self.delayed += if start > arrival { u128::from(cost.unsigned_abs()) } else { 0 };
            }
        }
        refused
    }

    /// The same of an even sample, of which all starts as it comes, or it comes at fewer moments.
    fn even(&mut self, sample: &Sample, fewer: u64) -> u64 {
        let most = sample.costs().count.min(sample.length.0);
        let mut after = self.clone();
        let finest = most.min(1_200);
        let last = sample.start.after(Span(sample.length.0 * (finest - 1) / finest));
        if self.machine.is_of_one_window(sample.start, last)
            && after.sample(sample, finest) == 0
            && after.delayed == self.delayed
        {
            *self = after;
            return 0;
        }
        self.sample(sample, fewer.clamp(20, 1_200).min(most))
    }

    /// Operations that cost nothing begin at once, as far as they may.
    fn free(&mut self, sample: &Sample) {
        let at = sample.start.max(self.free);
        for _ in 0..sample.operations {
            let uses = self.machine.uses(0);
            if uses > 0 && self.machine.left(at) >= uses {
                self.machine.charge(at, uses);
            }
        }
    }
}

/// Delayed in all, and what of each sample is refused.
fn slowly(
    record: &Record,
    settings: &Settings,
    spread: Spread,
    machine: Machine,
    most: Ru,
) -> (u128, Vec<u64>) {
    let mut slow = Slow { machine, patience: settings.patience, free: Time(0), delayed: 0 };
    let (pause, mut refused) = (settings.pause().0, Vec::<u64>::new());
    for (index, sample) in record.samples().iter().enumerate() {
        if !sample.amount.is_positive() {
            slow.free(sample);
        }
        let parts: Vec<_> = match spread {
            Spread::AtOnce => vec![*sample],
            Spread::Even => record.parts(index).collect(),
        };
        let part = |part: &Sample| match spread {
            _ if part.costs().before(1) > most.0 => part.amount.0.unsigned_abs(),
            Spread::AtOnce => slow.sample(part, 1),
            Spread::Even => slow.even(part, part.length.0.div_ceil(pause)),
        };
        refused.push(parts.iter().filter(|part| part.amount.is_positive()).map(part).sum());
    }
    (slow.delayed, refused)
}

/// Delayed in all, and what of each sample is refused, by the replay.
fn replayed(record: &Record, settings: &Settings, spread: Spread) -> (u128, Vec<u64>) {
    let (outcome, refused) = replay(record, settings, spread, &mut Budget::of(u64::MAX)).unwrap();
    (outcome.delayed, refused)
}

/// Samples of gaps and lengths in tenths of a second, micro-RU, and operations. Each of these costs something.
fn samples(parts: &[(u64, u64, i64, u64)]) -> Vec<Sample> {
    let mut at = 0;
    let sample = |(gap, length, micro, operations): &(u64, u64, i64, u64)| {
        let start = Time(at + gap.saturating_sub(40) * 100_000);
        at = start.0 + length * 100_000;
        Sample {
            start,
            length: Span(length * 100_000),
            amount: Ru(if *micro < 60 { 0 } else { *micro }),
            operations: *operations,
        }
    };
    parts.iter().map(sample).collect()
}

/// None, shorter and longer than a cell, and longer than most windows here.
const PATIENCES: [Span; 5] = [Span(0), Span::millis(300), Span::secs(1), Span::secs(20), Span::secs(200)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_quota_is_what_the_grant_engine_has_left_at_each_moment(
        parts in prop::collection::vec((0_u64..80, 1_u64..900, 0_i64..60_000_000, 1_u64..60), 1..14),
        // In hundredths of what is wanted.
        percent in 1_u64..150,
        length in prop::sample::select(&[7_777_777, 10_000_000, 60_000_000, 3_600_000_000][..]),
        rolls: bool,
        by_requests: bool,
        even: bool,
        patience in prop::sample::select(&PATIENCES[..]),
    ) {
        let samples = samples(&parts);
        let unit = if by_requests { Unit::Requests } else { Unit::Ru };
        let wanted: u64 = match unit {
            Unit::Requests => samples.iter().map(|sample| sample.operations).sum(),
            Unit::Ru => samples.iter().map(|sample| sample.amount.0.unsigned_abs()).sum(),
        };
        let amount = (wanted * percent / 100).max(1);
        let (length, signed) = (Span(length), i64::try_from(amount).unwrap());
        let begins: Vec<_> = (1..100).map(|window| Time(window * length.0)).collect();
        let windows = match (unit, rolls) {
            (Unit::Ru, true) => Windows::rolling(Ru(signed), length),
            (Unit::Ru, false) => Windows::new(Ru(signed), begins.clone()),
            (Unit::Requests, true) => Windows::rolling_requests(amount, length),
            (Unit::Requests, false) => Windows::requests(amount, begins.clone()),
        };
        let machine = if rolls {
            Machine::rolling(unit, signed, length)
        } else {
            Machine::Fixed { used: vec![0; begins.len() + 1], begins, unit, amount: signed }
        };
        let most = if unit == Unit::Ru { Ru(signed) } else { Ru::MAX };
        let settings = Settings { quota: Some(windows), ..bucket(1_000_000, 1_000_000, patience) };
        let record = Record::new(samples).unwrap();
        let spread = if even { Spread::Even } else { Spread::AtOnce };
        let slow = slowly(&record, &settings, spread, machine, most);
        prop_assert_eq!(replayed(&record, &settings, spread), slow);
    }
}

/// Delayed, and what of each sample is refused, under a policy.
fn under(record: &Record, settings: &Settings, policy: impl Steady) -> (u128, Vec<u64>) {
    let (outcome, refused, _) = answer((record, settings), policy, true);
    (outcome.delayed, refused)
}

proptest! {
    #[test]
    fn what_passes_a_quota_as_a_whole_is_what_each_moment_by_itself_would_be(
        // Of so few operations each moment has one, however fine the moments are.
        parts in prop::collection::vec((0_u64..60, 1_u64..900, 0_i64..60_000_000, 1_u64..21), 1..40),
        rate in 1_000_i64..3_000_000,
        burst in 100_000_i64..40_000_000,
        amount in 1_000_000_i64..200_000_000,
        length in prop::sample::select(&[7_777_777, 10_000_000, 60_000_000, 3_600_000_000][..]),
        rolls: bool,
        paced: bool,
        patience in prop::sample::select(&PATIENCES[..]),
    ) {
        let begins = (1..100).map(|window| Time(window * length)).collect();
        let amount = Ru(amount);
        let quota = if rolls { Windows::rolling(amount, Span(length)) } else { Windows::new(amount, begins) };
        let settings = Settings {
            shape: if paced { Shape::Paced } else { Shape::TokenBucket },
            rate: Rate(rate),
            burst: Some(Ru(burst)),
            patience,
            quota: Some(quota),
        };
        let record = Record::new(samples(&parts)).unwrap();
        let [together, by_itself] = if paced {
            let policy = || drained(settings.rate).unwrap();
            let alone = ByItself { policy: policy(), passes: false };
            [under(&record, &settings, policy()), under(&record, &settings, alone)]
        } else {
            let policy = || Held::new(settings.rate, settings.burst()).unwrap();
            let alone = ByItself { policy: policy(), passes: false };
            [under(&record, &settings, policy()), under(&record, &settings, alone)]
        };
        prop_assert_eq!(together, by_itself);
    }
}

proptest! {
    #[test]
    fn no_rate_is_named_where_none_is_enough_and_one_where_one_is(
        parts in prop::collection::vec((0_u64..80, 1_u64..900, 0_i64..60_000_000, 1_u64..60), 1..20),
        percent in 1_u64..150,
        length in prop::sample::select(&[7_777_777, 10_000_000, 60_000_000, 3_600_000_000][..]),
        by_requests: bool,
        even: bool,
        patience in prop::sample::select(&PATIENCES[..]),
    ) {
        let samples = samples(&parts);
        let record = Record::new(samples.clone()).unwrap();
        let all = if by_requests {
            samples.iter().map(|sample| sample.operations).sum::<u64>()
        } else {
            samples.iter().map(|sample| sample.amount.0.unsigned_abs()).sum()
        };
        let (amount, length) = ((all * percent / 100).max(1), Span(length));
        let quota = if by_requests {
            Windows::rolling_requests(amount, length)
        } else {
            Windows::rolling(Ru(i64::try_from(amount).unwrap()), length)
        };
        let spread = if even { Spread::Even } else { Spread::AtOnce };
        let plenty = Settings { quota: Some(quota), ..bucket(1_000_000, 1_000_000, patience) };
        let found = cheapest(&record, &plenty, spread, patience, &mut Budget::of(u64::MAX)).unwrap();
        let settings = Settings { rate: found.unwrap_or(plenty.rate), ..plenty };
        let (_, refused) = replayed(&record, &settings, spread);
        let refused: u128 = refused.into_iter().map(u128::from).sum();
        prop_assert_eq!(refused <= record.amount() / 100, found.is_some(), "{:?}", found);
    }
}

#[test]
fn what_was_used_comes_back_a_cell_after_the_window() {
    // 100 RU a second for five minutes; 3,000 in any minute. The first 30 seconds use it, and it comes back second by
    // second from the 61st on: what was used within a second leaves when its end is a minute ago.
    let seconds: Vec<_> = (0..300).map(|second| sample(second, 1, 100, 100)).collect();
    let quota = Some(Windows::rolling(Ru::whole(3_000), MINUTE));
    let record = Record::new(seconds).unwrap();
    for shape in [Shape::TokenBucket, Shape::Paced] {
        for spread in Spread::ALL {
            // What is paced and comes at once takes a tenth of its second.
            let patience = if spread == Spread::AtOnce { Span::millis(100) } else { Span(0) };
            let settings = Settings { shape, quota: quota.clone(), ..bucket(1_000, 1_000, patience) };
            let (outcome, lost) = replay(&record, &settings, spread, &mut Budget::default()).unwrap();
            for (second, lost) in (0_u64..).zip(&lost) {
                let starts = second % 61 < 30;
                assert_eq!(*lost, if starts { 0 } else { 100_000_000 }, "{shape:?}, {spread:?}: {second}");
            }
            // At most 3,000 RU in each minute of the five.
            assert_eq!((outcome.capacity, outcome.admitted()), (15_000_000_000, 15_000_000_000));
        }
    }
}

#[test]
fn who_has_patience_waits_until_enough_has_left_a_window_that_rolls() {
    let quota = Some(Windows::rolling_requests(10, MINUTE));
    let settings = |patience| Settings { quota: quota.clone(), ..bucket(1_000, 1_000, patience) };
    // Ten begin in the second 5, five of the gust in that of 66.
    let gusts = [sample(5, 1, 5, 5), sample(15, 1, 5, 5), sample(50, 1, 5, 5)];
    let waits = |patience| run(&gusts, &settings(patience), Spread::AtOnce);
    assert_eq!((waits(Span::millis(15_999)).refused, waits(Span::secs(16)).refused), (5_000_000, 0));
    assert_eq!(waits(Span::secs(16)).delayed, 5_000_000);
    // An operation above the quota never fits.
    let small =
        Settings { quota: Some(Windows::rolling(Ru::whole(10), MINUTE)), ..bucket(1_000, 1_000, PATIENT) };
    assert_eq!(run(&[sample(0, 60, 11, 1)], &small, Spread::Even).refused_ppm(), 1_000_000);
    let uncounted = Record::new(vec![sample(0, 60, 70, 0)]).unwrap();
    let error = replay(&uncounted, &settings(PATIENT), Spread::Even, &mut Budget::default()).unwrap_err();
    assert_eq!(error, ReplayError::Uncounted);
}

#[test]
fn a_window_that_rolls_ends_at_the_end_of_all_time() {
    let last = Sample {
        start: Time(u64::MAX - 3_000_000),
        length: Span(3_000_000),
        amount: Ru::whole(30),
        operations: 30,
    };
    for length in [Span(0), Span(1), MINUTE, Span(u64::MAX)] {
        let settings = Settings {
            quota: Some(Windows::rolling(Ru::whole(10), length)),
            ..bucket(1_000, 1_000, PATIENT)
        };
        for spread in Spread::ALL {
            assert!(run(&[last], &settings, spread).admitted() >= 10_000_000, "{length}");
        }
    }
}

/// Of a window that rolls, what came beyond it must not hold up those that come later.
#[test]
fn operations_that_cost_nothing_take_no_more_than_is_left_of_a_quota_of_requests() {
    // Ten in any minute: four in the first second, thirty ten seconds later, of which six are within the quota.
    let free = [sample(0, 1, 0, 4), sample(10, 1, 0, 30)];
    // Four are back from the first second, and ten when those six are, too.
    let paid = [sample(62, 1, 5, 5), sample(75, 1, 10, 10)];
    let record = Record::new(free.into_iter().chain(paid).collect()).unwrap();
    for (windows, refused) in [
        (Windows::rolling_requests(10, MINUTE), vec![0, 0, 1_000_000, 4_000_000]),
        (Windows::requests(10, vec![Time(60_000_000)]), vec![0, 0, 0, 5_000_000]),
    ] {
        let settings = Settings { quota: Some(windows), ..bucket(1_000, 1_000, Span(0)) };
        for spread in Spread::ALL {
            assert_eq!(replayed(&record, &settings, spread).1, refused, "{spread:?}");
        }
    }
}
