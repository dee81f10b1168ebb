//! The bound of a group whose rate warms up: in every window, all nodes together admit at most what the curve yields in it,
//! and what they owe.
//!
//! The curve is the warmest that any controller may have the group at. It warms up from when the group is made, at full
//! use, and cools once nothing was admitted for longer than a lease and the second that a node's demand is averaged over.
//! After a crash of the controller it begins cold again, beside the one before for as long as leases of that last. So it
//! does after a change, as warm as before. Fallbacks and limits in shadow admit beside it and are not judged.

use tidegate_core::group::{GroupId, GroupSpec};
use tidegate_core::policy::Policy as _;
use tidegate_core::policy::warm_up::{WarmUp, WarmUpState};
use tidegate_core::units::{Rate, Ru, Span, Time};

use super::holding::PACED_BURST;
use super::world::World;

/// Full use is followed in steps of this, each at the rate of its end, which is higher.
const STEP: Span = Span::millis(10);

/// A curve, and how far it is.
#[derive(Clone, Copy, Debug)]
struct Warming {
    curve: WarmUp,
    state: WarmUpState,
}

impl Warming {
    fn rate(&self) -> Rate {
        self.curve.rate(&self.state)
    }

    fn use_fully(&mut self, from: Time, to: Time) {
        let rate = self.rate();
        self.curve.pass(&mut self.state, (from, to), rate, true);
    }

    fn rest(&mut self, from: Time, to: Time) {
        self.curve.pass(&mut self.state, (from, to), Rate::ZERO, false);
    }
}

/// The admissions of a group beside its curve.
#[derive(Clone, Debug)]
pub struct Curve {
    now: Warming,
    /// The one of before a change or a crash, and until when leases of it may be out.
    before: Option<(Warming, Time)>,
    at: Time,
    last: Time,
    /// How long after an admission it may count as used.
    lasts: Span,
    /// RU above the curve at the end of the worst window that ends now, and in the worst of all.
    over: Ru,
    worst: Ru,
}

impl Curve {
    /// A cold one. An admission may count as use for as long as `lasts`.
    pub fn new(now: Time, curve: WarmUp, lasts: Span) -> Self {
        let warming = Warming { curve, state: curve.fresh() };
        Self { now: warming, before: None, at: now, last: now, lasts, over: Ru::ZERO, worst: Ru::ZERO }
    }

    /// A new one that begins now with this; leases of the one before end at `settled`.
    fn begins(&mut self, now: Time, warming: Warming, settled: Time) {
        self.catch_up(now);
        if self.before.is_none_or(|(before, _)| before.rate() < self.now.rate()) {
            self.before = Some((self.now, settled));
        }
        self.before = self.before.map(|(before, _)| (before, settled));
        (self.now, self.last) = (warming, now);
    }

    /// The controller is gone, and the next begins cold. Leases of the one before end at `settled`.
    pub fn crashed(&mut self, now: Time, settled: Time) {
        let curve = self.now.curve;
        self.begins(now, Warming { curve, state: curve.fresh() }, settled);
    }

    fn catch_up(&mut self, now: Time) {
        let idle_from = self.last.after(self.lasts);
        while self.at < now {
            let to = now.min(self.at.after(STEP));
            if self.at >= idle_from {
                // It cools all the way to the next admission, at which it is taken to be in use.
                self.now.rest(self.at, now);
                self.at = now;
                self.before = None;
                self.over = Ru::ZERO;
                return;
            }
            self.now.use_fully(self.at, to);
            let mut rate = self.now.rate();
            if let Some((before, until)) = &mut self.before {
                before.use_fully(self.at, to);
                rate = rate.max(before.rate());
                if *until <= to {
                    self.before = None;
                }
            }
            // Rounded up, however short the step.
            self.over = (self.over - rate.over(to.since(self.at)) - Ru(1)).or_zero();
            self.at = to;
        }
    }

    /// An operation was admitted.
    pub fn admit(&mut self, now: Time, cost: Ru) {
        self.catch_up(now);
        self.last = self.last.max(now);
        self.over += cost;
        self.worst = self.worst.max(self.over);
    }

    /// RU above the curve in the worst window.
    pub fn worst(&self) -> Ru {
        self.worst
    }
}

impl World {
    /// A definition is in force; leases of the one before end at `settled`.
    pub(super) fn bend_curve(&mut self, id: GroupId, spec: &GroupSpec, settled: Time) {
        let now = self.now;
        let Some(capped) = self.bounds.get_mut(&id) else { return };
        let Some(curve) = spec.curve().ok().flatten() else {
            capped.curve = None;
            return;
        };
        let lasts = settled.since(now) + Span::millis(1_100);
        match &mut capped.curve {
            Some(known) => {
                known.lasts = known.lasts.max(lasts);
                if known.now.curve != curve {
                    known.catch_up(now);
                    let state = curve.as_warm_as(&known.now.curve, &known.now.state);
                    known.begins(now, Warming { curve, state }, settled);
                }
            }
            none => *none = Some(Curve::new(now, curve, lasts)),
        }
    }

    /// The controller is gone, and the next begins cold.
    pub(super) fn cool_curves(&mut self) {
        let (now, settled) = (self.now, self.settled());
        for known in self.bounds.values_mut().filter_map(|capped| capped.curve.as_mut()) {
            known.crashed(now, settled);
        }
    }

    /// I5 by the curve of a group whose rate warms up.
    ///
    /// # Errors
    /// The worst window is above the curve and the overrun.
    pub fn judge_curve(&self, id: GroupId) -> Result<(), String> {
        let known = self.bounds.get(&id).and_then(|capped| capped.curve.as_ref());
        let Some(known) = known.filter(|_| !self.fallbacks_count) else { return Ok(()) };
        // Nodes pay a trifle ahead, to make up for late timers.
        let ahead = known.now.curve.rate(&known.now.curve.with_stored(Ru::ZERO)).over(PACED_BURST);
        let nodes = Ru(i64::try_from(self.nodes.len()).unwrap_or(i64::MAX));
        let allowed = self.overrun(id) + ahead + nodes;
        if known.worst <= allowed {
            return Ok(());
        }
        Err(format!(
            "I5: group {}: {} above the curve of its warm-up, and at most {allowed} is owed",
            id.0, known.worst
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve() -> Curve {
        let curve = WarmUp::new(Rate::whole(200), Span::secs(10), 3).unwrap();
        Curve::new(Time(0), curve, Span::secs(6))
    }

    /// The most above the curve when so many RU are admitted each tenth of a second from `from` for so many seconds.
    fn worst(known: &mut Curve, from: u64, seconds: u64, ru: i64) -> Ru {
        known.worst = Ru::ZERO;
        for step in 0..seconds * 10 {
            known.admit(Time(from * 1_000_000 + step * 100_000), Ru::whole(ru));
        }
        known.worst
    }

    #[test]
    fn what_is_within_the_curve_from_cold_is_allowed_and_no_more() {
        assert!(worst(&mut curve(), 0, 3, 6) <= Ru::whole(6));
        let full = worst(&mut curve(), 0, 3, 20);
        assert!(full > Ru::whole(350), "{full}: three seconds of the full rate are not");
        let mut warm = curve();
        worst(&mut warm, 0, 11, 6);
        assert!(worst(&mut warm, 11, 5, 20) <= Ru::whole(21), "it is warm after ten");
        assert!(worst(&mut warm, 32, 2, 20) > Ru::whole(200), "and cold after as long a pause");
    }

    #[test]
    fn a_crash_begins_cold_once_the_leases_of_before_have_ended() {
        let mut known = curve();
        worst(&mut known, 0, 11, 6);
        known.crashed(Time(11_000_000), Time(16_000_000));
        assert!(worst(&mut known, 11, 5, 20) <= Ru::whole(21));
        let after = worst(&mut known, 16, 2, 20);
        assert!(after > Ru::whole(100), "{after}");
    }
}
