//! Facts 3 and 4: how far counters of windows are from the count of the last minute.

use tidegate_core::policy::fixed_window::FixedWindow;
use tidegate_core::policy::sub_windows::SubWindows;
use tidegate_core::policy::two_windows::TwoWindows;
use tidegate_core::policy::{Policy, Verdict};
use tidegate_core::units::{Ru, Span, Time};

use super::chart::{Chart, Series, Style};
use super::random::Random;
use super::table::Table;
use super::trace::seconds;
use super::{LabError, Section};

const MINUTE: Span = Span::secs(60);
/// Of random traffic.
const LENGTH: Span = Span::secs(3_600);
/// Shown of it.
const SHOWN: Time = Time(600_000_000);
/// Between two looks.
const LOOK: Span = Span::millis(500);
/// Calls a minute, from which one is drawn every 20 s.
const RATES: [u64; 5] = [20, 60, 100, 150, 240];

/// A counter of the last minute.
struct Counter {
    name: &'static str,
    count: Box<dyn FnMut(Time) -> Verdict>,
    used: Box<dyn FnMut(Time) -> Ru>,
}

/// A policy without a limit to speak of: what it counts is what came.
fn counter<P: Policy<State: 'static> + Clone + 'static>(
    name: &'static str,
    policy: P,
    used: fn(&P, &mut P::State, Time) -> Ru,
) -> Counter {
    let state = std::rc::Rc::new(std::cell::RefCell::new(policy.fresh()));
    let (counted, looked) = (state.clone(), policy.clone());
    Counter {
        name,
        count: Box::new(move |now| policy.try_acquire(&mut counted.borrow_mut(), now, Ru::whole(1))),
        used: Box::new(move |now| used(&looked, &mut state.borrow_mut(), now)),
    }
}

fn counters() -> Result<Vec<Counter>, LabError> {
    Ok(vec![
        counter("fixed window", FixedWindow::new(Ru::MAX, MINUTE)?, FixedWindow::used),
        counter("two windows", TwoWindows::new(Ru::MAX, MINUTE)?, TwoWindows::used),
        counter("five windows of 15 s", SubWindows::weighted(Ru::MAX, MINUTE, 4)?, SubWindows::used),
        counter("windows of 1 s", SubWindows::weighted(Ru::MAX, MINUTE, 60)?, SubWindows::used),
    ])
}

/// Calls at random, at a rate that changes every 20 s.
fn traffic(seed: u64) -> Vec<Time> {
    let mut random = Random::new(seed, 3);
    let (mut calls, mut at, mut phase, mut rate) = (Vec::new(), 0_u64, 0, 100);
    while at < LENGTH.0 {
        if at >= phase {
            let drawn = usize::try_from(random.below(5)).unwrap_or_default();
            rate = RATES.get(drawn).copied().unwrap_or(100);
            phase = at + 20_000_000;
        }
        let gap = u128::from(random.exponential()) * 60_000_000 / u128::from(rate);
        at += u64::try_from(gap >> 32).unwrap_or(u64::MAX);
        calls.push(Time(at));
    }
    calls
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn calls(amount: Ru) -> f64 {
    amount.0 as f64 / 1e6
}

#[expect(clippy::cast_precision_loss, reason = "a minute's calls")]
fn float(count: usize) -> f64 {
    count as f64
}

/// Fact 3.
///
/// # Errors
/// A policy cannot be set so.
pub fn random_traffic(seed: u64) -> Result<Section, LabError> {
    let traffic = traffic(seed);
    let mut counters = counters()?;
    let mut truth = Vec::new();
    let mut curves: Vec<Vec<(f64, f64)>> = vec![Vec::new(); counters.len()];
    let mut coming = traffic.iter().peekable();
    let mut look = Time(MINUTE.0);
    while look < Time(LENGTH.0) {
        while let Some(call) = coming.next_if(|call| **call <= look) {
            for counter in &mut counters {
                (counter.count)(*call);
            }
        }
        let until = |at: u64| traffic.partition_point(|call| call.0 <= at);
        truth.push((seconds(look), float(until(look.0) - until(look.0 - MINUTE.0))));
        for (counter, curve) in counters.iter_mut().zip(&mut curves) {
            curve.push((seconds(look), calls((counter.used)(look))));
        }
        look = look.after(LOOK);
    }
    let mut table =
        Table::new(["counter", "mean error", "largest error", "lowest while the minute has 60 or more"]);
    let mut series =
        vec![Series { name: "last minute".to_owned(), style: Style::Line, points: truth.clone() }];
    for (counter, curve) in counters.iter().zip(curves) {
        let off = |(truth, own): (&(f64, f64), &(f64, f64))| (own.1 - truth.1).abs();
        let errors: Vec<f64> = truth.iter().zip(&curve).map(off).collect();
        let busy = truth.iter().zip(&curve).filter(|(truth, _)| truth.1 >= 60.0).map(|(_, own)| own.1);
        table.row([
            counter.name.to_owned(),
            format!("{:.2}", errors.iter().sum::<f64>() / float(errors.len())),
            format!("{:.1}", errors.iter().copied().fold(0.0, f64::max)),
            format!("{:.1}", busy.fold(f64::INFINITY, f64::min)),
        ]);
        series.push(Series { name: counter.name.to_owned(), style: Style::Line, points: curve });
    }
    for shown in &mut series {
        shown.points.retain(|(at, _)| *at <= seconds(SHOWN));
    }
    Ok(Section {
        name: "random-traffic",
        title: "Fact 3: a fixed window drops at each boundary, weighted windows follow the last minute"
            .to_owned(),
        text: vec![format!(
            "{} calls in an hour, at random, at a rate that changes every 20 s between {} and {} a minute (seed \
             {seed}). Looked at twice a second, beside the calls of the minute before each look. Weighted windows \
             count the leaving one by its part; with cells of 15 s there are five of them.",
            traffic.len(),
            RATES[0],
            RATES[4]
        )],
        tables: vec![table],
        pictures: vec![
            Chart {
                title: "What counts as the last minute".to_owned(),
                across: "seconds",
                up: "calls",
                series,
                limit: None,
            }
            .svg(),
        ],
    })
}

/// Fact 4.
///
/// # Errors
/// A policy cannot be set so.
pub fn weights() -> Result<Section, LabError> {
    let second = |second: u64| Time(second * 1_000_000);
    let mut table = Table::new(["moment", "before", "now", "counts", "one more of 3"]);
    for (moment, before, now, name) in [(103, 60, 0, "00:01:43"), (84, 3, 1, "24 s into the window")] {
        let policy = TwoWindows::new(Ru::whole(3), MINUTE)?;
        let mut state = policy.fresh();
        policy.charge(&mut state, second(30), Ru::whole(before));
        policy.charge(&mut state, second(60), Ru::whole(now));
        let used = policy.used(&mut state, second(moment));
        let verdict = match policy.try_acquire(&mut state, second(moment), Ru::whole(1)) {
            Verdict::RetryAt(at) => format!("refused, until {} s", at.0 / 1_000_000),
            verdict => format!("{verdict:?}").to_lowercase(),
        };
        let cells =
            [name.to_owned(), before.to_string(), now.to_string(), used.number().to_string(), verdict];
        table.row(cells);
    }
    Ok(Section {
        name: "weights",
        title: "Fact 4: the window before counts by the part of it that is still inside".to_owned(),
        text: vec![
            "At 00:01:43, 43 s of the second minute are over, and the first counts 17/60: 60 calls of it count 17. At \
             24 s into a window with 3 before and 1 now, 0.6 * 3 + 1 = 2.8 count; one more would be 3.8 of 3, and is \
             refused."
                .to_owned(),
        ],
        tables: vec![table],
        pictures: Vec::new(),
    })
}
