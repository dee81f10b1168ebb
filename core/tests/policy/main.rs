//! Limiter policies, each beside an oracle that looks at all that was admitted. Times are in microseconds, amounts in
//! micro-RU.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod buckets;
mod edges;
mod paced;
mod settings;
mod trace;
mod warm_up;
mod windows;

use std::fmt::Debug;

use tidegate_core::policy::{Policy, Verdict};
use tidegate_core::units::{Ru, Time};

/// An admission as an oracle sees it.
#[derive(Clone, Copy, Debug)]
struct Admitted {
    at: i128,
    cost: i128,
    is_low: bool,
}

/// Whether one more fits behind what was admitted; the last argument asks for low priority.
type Fits<'a> = &'a dyn Fn(&[Admitted], i128, i128, bool) -> bool;

/// Runs operations through a policy and its oracle, which have to agree at each, and looks at what refusals promise.
fn agrees<P: Policy<State: Clone>>(policy: &P, fits: Fits<'_>, operations: &[(u64, i64)]) {
    let (mut state, mut log) = (policy.fresh(), Vec::new());
    for (at, cost) in operations.iter().copied() {
        let verdict = policy.try_acquire(&mut state, Time(at), Ru(cost));
        let (now, amount) = (i128::from(at), i128::from(cost));
        let is_low = !fits(&log, now, amount, false);
        let expected = !is_low || fits(&log, now, amount, true);
        assert_eq!(verdict.is_admitted(), expected, "{cost} at {at}: {verdict:?} after {log:?}");
        assert_eq!(
            verdict == Verdict::AdmitLow,
            expected && is_low,
            "{cost} at {at}: {verdict:?} after {log:?}"
        );
        if verdict.is_admitted() {
            log.push(Admitted { at: now, cost: amount, is_low });
        }
        keeps_its_promise(policy, &state, at, cost, verdict);
    }
}

/// After a refusal every earlier moment is refused, and the promised one admits.
fn keeps_its_promise<P: Policy<State: Clone>>(
    policy: &P,
    state: &P::State,
    now: u64,
    cost: i64,
    verdict: Verdict,
) {
    let ask = |at: u64| policy.try_acquire(&mut state.clone(), Time(at), Ru(cost));
    match verdict {
        Verdict::RetryAt(Time(promised)) => {
            assert!(promised > now, "{cost} at {now}: {verdict:?}");
            for earlier in [0, now / 2, now, now + (promised - now) / 2, promised - 1] {
                assert!(!ask(earlier).is_admitted(), "{cost} at {earlier}, before {verdict:?}");
            }
            assert!(ask(promised).is_admitted(), "{cost} at {promised}: {:?}", ask(promised));
        }
        Verdict::Never => assert_eq!(ask(u64::MAX), Verdict::Never, "{cost}"),
        Verdict::AdmitAt(Time(start)) => assert!(start > now, "{cost} at {now}: {verdict:?}"),
        Verdict::Admit | Verdict::AdmitLow => {}
    }
}

/// Whatever is admitted fits by a clock that never steps back: the latest moment that the policy has seen.
fn admits_no_more_when_time_steps_back<P: Policy<State: Clone + Debug>>(
    policy: &P,
    fits: Fits<'_>,
    operations: &[(u64, i64)],
) {
    let (mut state, mut log, mut latest) = (policy.fresh(), Vec::new(), 0);
    for (at, cost) in operations.iter().copied() {
        let verdict = policy.try_acquire(&mut state, Time(at), Ru(cost));
        if verdict == Verdict::Never {
            continue;
        }
        latest = latest.max(i128::from(at));
        let (amount, is_low) = (i128::from(cost), verdict == Verdict::AdmitLow);
        if verdict.is_admitted() {
            assert!(
                fits(&log, latest, amount, is_low),
                "{cost} at {at}: {verdict:?} after {log:?}, {state:?}"
            );
            log.push(Admitted { at: latest, cost: amount, is_low });
        }
        keeps_its_promise(policy, &state, at, cost, verdict);
    }
}
