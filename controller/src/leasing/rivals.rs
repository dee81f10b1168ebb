//! Other controllers that run on copies of this store at the same time, and which of two falls silent.
//!
//! Nodes bring the standings of controllers. A controller names in its own standing the controllers it has heard of,
//! each with the latest moment of that one's clock. So when a controller reads its own name in the standing of another,
//! the other was alive at or after a moment of the reader's own clock: this compares no two clocks, and an old standing
//! that is brought again proves no more than it did. From then on the other's later standings extend its life by the
//! time that passed on its own clock between them.
//!
//! Of two, the one that began later yields, by what both sign: the wall clock at the start, then the instance. Both
//! compute the same result, whatever their clocks show, so they never yield to each other. A controller yields for
//! [`PRESENCE`] after the last moment at which the other is known to have lived; then the other may be gone, and it
//! speaks again.

use tidegate_core::units::{Span, Time};

use crate::leasing::standing::{MAX_RIVALS, Rival, Standing};

/// How long a controller counts as alive after it was last known to be: the longest possible lease, so that one that
/// speaks again finds no earlier lease out. With half of it, two that seldom hear of each other would speak in turns;
/// with twice of it, nodes would have no controller for two minutes after the leading one was stopped.
pub(crate) const PRESENCE: Span = Span::secs(60);
/// News of the same controller within this time are ignored: each takes the lock of all state. Half of it would double
/// these calls; with twice of it a sixth of [`PRESENCE`] would be lost.
const STEP: Span = Span::secs(5);

/// What is known of other controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rivals {
    instance: u64,
    began_unix_ms: u64,
    /// The entry to forget first comes first.
    heard: Vec<Rival>,
    twin: Option<Twin>,
}

/// A controller that runs at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Twin {
    /// Its start.
    pub(crate) instance: u64,
    /// Whether it began earlier, so that this controller yields.
    pub(crate) leads: bool,
    /// Its longest lease that may be out.
    pub(crate) longest_ttl: Span,
    /// The moment on its clock that corresponds to `lives_at`.
    at_us: u64,
    /// A moment on this controller's clock at which it was alive.
    lives_at: Time,
}

impl Twin {
    /// The time until which it counts as alive.
    pub(crate) fn until(&self) -> Time {
        self.lives_at.after(PRESENCE)
    }
}

impl Rivals {
    /// The rivals of a controller that begins.
    pub(crate) fn new(instance: u64, began_unix_ms: u64) -> Self {
        Self { instance, began_unix_ms, heard: Vec::new(), twin: None }
    }

    /// When this controller began, and the rivals that its standing names.
    pub(crate) fn said(&self) -> (u64, Vec<Rival>) {
        (self.began_unix_ms, self.heard.clone())
    }

    /// The controller that runs at the same time, as far as is known now.
    pub(crate) fn twin(&self, now: Time) -> Option<Twin> {
        self.twin.filter(|twin| now < twin.until())
    }

    /// What is known after a standing signed with the key of this store; `None` when that is nothing new. A start
    /// before this one in the lineage of the store has probably ended: it is named, and forgotten first.
    pub(crate) fn after(&self, standing: &Standing, is_before: bool, now: Time) -> Option<Self> {
        if standing.instance == self.instance {
            return None;
        }
        let mut next = self.clone();
        let names_this = standing.rivals.iter().any(|rival| rival.instance == self.instance);
        next.remember(standing, is_before && !names_this);
        next.judge(standing, now);
        (next != *self).then_some(next)
    }

    fn remember(&mut self, standing: &Standing, has_ended: bool) {
        let Standing { instance, at_us, .. } = *standing;
        if let Some(known) = self.heard.iter().find(|rival| rival.instance == instance)
            && at_us < known.at_us.saturating_add(STEP.0)
        {
            return;
        }
        self.heard.retain(|rival| rival.instance != instance);
        let rival = Rival { instance, at_us };
        if !has_ended {
            self.heard.drain(..(self.heard.len() + 1).saturating_sub(MAX_RIVALS));
            self.heard.push(rival);
        } else if self.heard.len() < MAX_RIVALS {
            self.heard.insert(0, rival);
        }
    }

    fn judge(&mut self, standing: &Standing, now: Time) {
        let same = self.twin.filter(|twin| twin.instance == standing.instance);
        let named = standing.rivals.iter().filter(|rival| rival.instance == self.instance);
        let named = named.map(|rival| Time(rival.at_us));
        let later = same
            .and_then(|twin| standing.at_us.checked_sub(twin.at_us).map(|us| twin.lives_at.after(Span(us))));
        let Some(lives_at) = named.chain(later).max().map(|at| at.min(now)) else { return };
        let twin = Twin {
            instance: standing.instance,
            leads: (standing.began_unix_ms, standing.instance) < (self.began_unix_ms, self.instance),
            longest_ttl: standing.longest_ttl,
            at_us: standing.at_us,
            lives_at,
        };
        let known = self.twin(now);
        let is_news = match known {
            None => now < twin.until(),
            Some(known) if known.instance == twin.instance => lives_at >= known.lives_at.after(STEP),
            // Of several, one that leads counts, because this controller yields to it.
            Some(known) => now < twin.until() && !known.leads,
        };
        if is_news {
            self.twin = Some(twin);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 50;
    const SECOND: u64 = 1_000_000;

    fn own() -> Rivals {
        Rivals::new(OWN, 1_000)
    }

    /// A standing of `instance`, `at_s` on its clock, that names this controller with the moment `named_s`, if any.
    fn of(instance: u64, began_unix_ms: u64, at_s: u64, named_s: Option<u64>) -> Standing {
        let rivals = named_s.map(|at| Rival { instance: OWN, at_us: at * SECOND });
        let (at_us, rivals) = (at_s * SECOND, rivals.into_iter().collect());
        Standing { instance, began_unix_ms, at_us, rivals, epoch: 1, longest_ttl: Span::secs(5) }
    }

    fn at(seconds: u64) -> Time {
        Time(seconds * SECOND)
    }

    #[test]
    fn the_later_of_two_yields_whatever_is_alike() {
        for (instance, began, leads) in
            [(7, 999, true), (99, 999, true), (7, 1_001, false), (7, 1_000, true), (99, 1_000, false)]
        {
            let next = own().after(&of(instance, began, 5, Some(90)), false, at(100)).unwrap();
            assert_eq!(next.twin(at(100)).unwrap().leads, leads, "{instance} of {began}");
            // The other controller decides on the same pair.
            let other = Rivals::new(instance, began);
            let rivals = vec![Rival { instance, at_us: 5 * SECOND }];
            let standing = Standing { rivals, ..of(OWN, 1_000, 90, None) };
            let seen = other.after(&standing, false, at(6)).unwrap().twin(at(6)).unwrap();
            assert_eq!(seen.leads, !leads, "{instance} of {began}: exactly one yields");
        }
    }

    #[test]
    fn who_does_not_name_this_start_may_have_ended_long_ago() {
        let other = Rival { instance: 8, at_us: 99 * SECOND };
        for rivals in [vec![], vec![other]] {
            let standing = Standing { rivals, ..of(7, 1, 5, None) };
            let next = own().after(&standing, false, at(100)).unwrap();
            assert_eq!(next.twin(at(100)), None);
            assert_eq!(next.said().1, [Rival { instance: 7, at_us: 5 * SECOND }], "it is named from now on");
            assert_eq!(next.after(&standing, false, at(101)), None, "once");
        }
        // A start before this one in the lineage is named, too, and forgotten first.
        let before = own().after(&of(7, 1, 5, None), true, at(100)).unwrap();
        assert!(before.twin(at(100)).is_none() && before.said().1.len() == 1);
        let crowd = (1..=MAX_RIVALS as u64).fold(before, |rivals, number| {
            rivals.after(&of(200 + number, 1, 5, None), false, at(100)).unwrap()
        });
        assert!(crowd.said().1.iter().all(|rival| rival.instance > 200));
        assert_eq!(crowd.after(&of(7, 1, 50, None), true, at(100)), None, "there is no room for it");
        let alive = crowd.after(&of(7, 1, 5, Some(90)), true, at(100)).unwrap();
        assert!(alive.twin(at(100)).is_some(), "if it names this one it lives");
        assert_eq!(own().after(&of(OWN, 1_000, 5, Some(1)), false, at(100)), None, "it is its own");
    }

    #[test]
    fn what_is_brought_again_or_late_proves_no_more_than_it_did() {
        let standing = of(7, 1, 5, Some(100));
        let next = own().after(&standing, false, at(110)).unwrap();
        assert_eq!(next.twin(at(110)).unwrap().until(), at(160));
        assert_eq!(next.after(&standing, false, at(159)), None);
        assert_eq!(next.twin(at(160)), None);
        // After its time, and for a controller that has heard nothing.
        assert!(next.after(&standing, false, at(161)).is_none());
        assert_eq!(own().after(&standing, false, at(161)).unwrap().twin(at(161)), None);
        // A moment in the future counts as now.
        let future = of(7, 1, 5, Some(900));
        assert_eq!(own().after(&future, false, at(110)).unwrap().twin(at(110)).unwrap().until(), at(170));
    }

    #[test]
    fn later_words_of_a_known_twin_carry_its_life_forward_by_its_own_clock() {
        let first = own().after(&of(7, 1, 5, Some(100)), false, at(110)).unwrap();
        // Forty seconds later on its clock; how long the node took to bring it is unknown.
        let second = first.after(&of(7, 1, 45, None), false, at(155)).unwrap();
        assert_eq!(second.twin(at(155)).unwrap().until(), at(200));
        assert_eq!(second.after(&of(7, 1, 45, None), false, at(199)), None);
        assert_eq!(second.after(&of(7, 1, 46, None), false, at(199)), None, "too little to be news");
        // No clock extends its life past now.
        let fast = second.after(&of(7, 1, 900, None), false, at(160)).unwrap();
        assert_eq!(fast.twin(at(160)).unwrap().until(), at(220));
    }

    #[test]
    fn of_several_the_one_that_leads_counts_and_few_are_kept() {
        let later = own().after(&of(99, 2_000, 5, Some(100)), false, at(100)).unwrap();
        let both = later.after(&of(7, 1, 5, Some(100)), false, at(100)).unwrap();
        assert!(both.twin(at(100)).unwrap().leads);
        let again = both.after(&of(98, 2_000, 5, Some(110)), false, at(110)).unwrap();
        assert_eq!(again.twin(at(110)).unwrap().instance, 7);
        let crowd = (200..300).fold(own(), |rivals, instance| {
            rivals.after(&of(instance, 1, 5, None), false, at(100)).unwrap_or(rivals)
        });
        assert_eq!(crowd.said().1.len(), MAX_RIVALS);
        assert_eq!(crowd.said().1.last().unwrap().instance, 299);
    }
}
