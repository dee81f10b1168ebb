//! The fence: how long this controller may speak to nodes after a commit that reached the disk.
//!
//! A controller that lost its store may have a successor that it cannot hear of. Only one of them can write to the
//! store. So a controller that has not written for the length of its fence is silent, and one that starts after an
//! unclean stop is silent for the length of its predecessor's fence, because until then the predecessor may still be
//! granting. A controller that yields to another on a copy of its store is silent, too.

use tidegate_core::units::{Span, Time};

use crate::leasing::LeasingCalls;
use crate::service::Service;
use crate::store::Write;
use crate::store::records::{META_FENCE, put_number};

/// Why the controller is silent towards nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Silence {
    /// It cannot write to its store.
    #[error(
        "this controller could not write to its store for {0} (fence) and may have a successor; leases stay valid \
         until they end, connect again"
    )]
    CutOff(Span),
    /// Its predecessor may not have noticed yet.
    #[error(
        "the predecessor of this controller may still be granting for {0}; leases stay valid until they end, connect \
         again"
    )]
    Predecessor(Span),
    /// Another controller runs on a copy of its store.
    #[error(
        "another controller runs on a copy of the store of this one and began earlier; this one is silent for {0}, and \
         for longer if nodes tell of the other again: stop one of them; leases stay valid until they end, connect again"
    )]
    Twin(Span),
    /// It has stopped, and its leases are those of the next one.
    #[error(
        "this controller has stopped and leaves its leases to the next one; they stay valid until they end, connect \
         again"
    )]
    Left,
}

impl Silence {
    /// Whether another controller may lead already, so that what this one knows may be old.
    pub(crate) fn may_have_successor(self) -> bool {
        match self {
            Self::CutOff(_) | Self::Left => true,
            Self::Predecessor(_) | Self::Twin(_) => false,
        }
    }
}

/// The fence of a controller, and the rest of its predecessor's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence {
    /// `None`: grants do not depend on the store.
    span: Option<Span>,
    /// Whether beats keep it open, and not commits.
    is_beaten: bool,
    /// The fence that a successor will wait for: this one, or a longer one before it.
    stored: Span,
    /// When the newest commit that is on disk began, or the newest beat that is stored was sent.
    confirmed: Option<Time>,
    /// Whether the newest commit failed.
    failed: bool,
    predecessor_until: Time,
    /// Until then, a controller on a copy of the store counts as alive and leads.
    twin_until: Time,
    /// What was granted is saved for the next controller.
    has_left: bool,
    /// The silence as it was last logged.
    told: Option<Silence>,
}

impl Fence {
    /// A controller that starts has just written.
    pub(crate) fn new(now: Time, span: Option<Span>, stored: Span, predecessor_until: Time) -> Self {
        Self {
            span,
            is_beaten: false,
            stored,
            confirmed: Some(now),
            failed: false,
            predecessor_until,
            twin_until: Time(0),
            has_left: false,
            told: None,
        }
    }

    /// The same, with beats of a cluster. Nothing else opens it: others look at beats only, so neither a commit nor the
    /// start itself holds them off.
    pub(crate) fn beaten(self) -> Self {
        Self { is_beaten: true, confirmed: None, ..self }
    }

    /// Notes that a commit that began at `began` is stored.
    fn confirm(&mut self, began: Time) {
        if !self.is_beaten {
            self.confirmed = self.confirmed.max(Some(began));
        }
        self.failed = false;
    }

    /// Whether the newest commit failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Yields to another controller until then.
    pub(crate) fn yield_until(&mut self, until: Time) {
        self.twin_until = until;
    }

    /// A write for when there is nothing else to store: a successor reads it.
    pub(crate) fn beat(&self) -> Option<Write> {
        self.span.filter(|_| !self.is_beaten).map(|_| put_number(META_FENCE, self.stored.0))
    }

    /// Why the controller is silent, if it is.
    pub(crate) fn silence(&self, now: Time) -> Option<Silence> {
        let left = self.predecessor_until.since(now);
        if left > Span(0) {
            return Some(Silence::Predecessor(left));
        }
        let left = self.twin_until.since(now);
        if left > Span(0) {
            return Some(Silence::Twin(left));
        }
        let is_cut_off = |span: Span| self.confirmed.is_none_or(|confirmed| now.since(confirmed) >= span);
        let cut_off = self.span.filter(|span| is_cut_off(*span)).map(Silence::CutOff);
        self.has_left.then_some(Silence::Left).or(cut_off)
    }

    /// Leaves what was granted to the next controller: from now on nothing is.
    pub(crate) fn leave(&mut self) {
        self.has_left = true;
    }

    /// Whether nodes may be spoken to.
    pub(crate) fn may_speak(&self, now: Time) -> Result<(), Silence> {
        self.silence(now).map_or(Ok(()), Err)
    }

    /// Notes that a beat that was sent at `sent` is stored.
    pub(crate) fn beat_stored(&mut self, sent: Time) {
        self.confirmed = self.confirmed.max(Some(sent));
    }

    /// Notes that a commit that began at `began` is on disk, or failed: when the store is back, another machine may
    /// have used it.
    pub(crate) fn committed(&mut self, began: Time, is_stored: bool) {
        if is_stored { self.confirm(began) } else { self.failed = true }
    }

    /// The silence, if its kind changed since the last call.
    pub(crate) fn turn(&mut self, now: Time) -> Option<Option<Silence>> {
        let kind = |silence: Option<Silence>| silence.map(|silence| std::mem::discriminant(&silence));
        let silence = self.silence(now);
        let turned = kind(silence) != kind(self.told);
        self.told = silence;
        turned.then_some(silence)
    }
}

/// Why a controller of a cluster is silent, if it is one and is silent: only there beats keep the fence open.
pub(crate) fn silence_of_a_member(service: &Service) -> Option<Silence> {
    let state = service.lock();
    let fence = state.leasing.fence();
    if fence.is_beaten { fence.silence(service.clock().now()) } else { None }
}

/// Notes that a beat that was sent at `sent` is stored.
pub(crate) fn beaten(service: &Service, sent: Time) {
    service.lock().leasing.fence.beat_stored(sent);
}

impl LeasingCalls<'_> {
    /// Logs when the controller falls silent or speaks again.
    pub(crate) fn tell_silence(&self) {
        let turned = self.service.lock().leasing.fence.turn(self.service.clock().now());
        if let Some(silence) = turned {
            self.service.metrics.silent.set(i64::from(silence.is_some()));
            match silence {
                Some(silence @ (Silence::CutOff(_) | Silence::Twin(_))) => {
                    tracing::error!("no grants: {silence}")
                }
                Some(silence @ Silence::Predecessor(_)) => tracing::warn!("no grants yet: {silence}"),
                Some(silence @ Silence::Left) => tracing::debug!("no grants any more: {silence}"),
                None => tracing::info!("nodes are let in"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCE: Span = Span::secs(2);

    #[test]
    fn without_a_fence_nothing_depends_on_commits() {
        let fence = Fence::new(Time(0), None, Span(0), Time(0));
        assert_eq!(fence.beat(), None);
        assert_eq!(fence.silence(Time(u64::MAX)), None);
    }

    #[test]
    fn grants_end_a_fence_after_the_last_commit_began_and_go_on_after_the_next() {
        let mut fence = Fence::new(Time(0), Some(FENCE), FENCE, Time(0));
        assert_eq!(fence.silence(Time(1_999_999)), None);
        assert_eq!(fence.silence(Time(2_000_000)), Some(Silence::CutOff(FENCE)));
        fence.confirm(Time(1_000_000));
        fence.confirm(Time(500_000));
        assert_eq!(fence.silence(Time(2_999_999)), None);
        assert_eq!(fence.turn(Time(2_999_999)), None);
        assert_eq!(fence.turn(Time(3_000_000)), Some(Some(Silence::CutOff(FENCE))));
        assert_eq!(fence.turn(Time(3_000_001)), None);
        fence.confirm(Time(3_000_001));
        assert_eq!(fence.turn(Time(3_000_002)), Some(None));
    }

    #[test]
    fn only_beats_open_the_fence_of_a_cluster() {
        let mut fence = Fence::new(Time(0), Some(FENCE), FENCE, Time(0)).beaten();
        assert_eq!(fence.silence(Time(0)), Some(Silence::CutOff(FENCE)), "nobody is held off by a start");
        fence.committed(Time(0), true);
        assert_eq!(fence.silence(Time(1)), Some(Silence::CutOff(FENCE)), "nor by a commit");
        fence.beat_stored(Time(5));
        assert_eq!(fence.silence(Time(2_000_004)), None);
        fence.committed(Time(1_000_000), true);
        assert_eq!(fence.silence(Time(2_000_005)), Some(Silence::CutOff(FENCE)));
    }

    #[test]
    fn who_yields_is_silent_until_the_other_may_be_gone() {
        let mut fence = Fence::new(Time(0), None, FENCE, Time(0));
        fence.yield_until(Time(100));
        assert_eq!(fence.turn(Time(40)), Some(Some(Silence::Twin(Span(60)))));
        assert_eq!(fence.silence(Time(100)), None);
    }

    #[test]
    fn who_has_left_speaks_no_more_whatever_beats_say() {
        let mut fence = Fence::new(Time(0), Some(FENCE), FENCE, Time(100)).beaten();
        fence.beat_stored(Time(5));
        fence.leave();
        assert_eq!(
            fence.silence(Time(40)),
            Some(Silence::Predecessor(Span(60))),
            "which a successor waits for, too"
        );
        assert_eq!(fence.silence(Time(100)), Some(Silence::Left));
        fence.beat_stored(Time(3_000_000));
        assert_eq!(fence.silence(Time(3_000_001)), Some(Silence::Left));
        // Nor does it become one that may lead again, when beats have ended for its fence.
        assert_eq!(fence.silence(Time(9_000_000)), Some(Silence::Left));
    }

    #[test]
    fn a_successor_waits_for_the_fence_of_its_predecessor() {
        let fence = Fence::new(Time(0), None, FENCE, Time(100));
        assert_eq!(fence.silence(Time(40)), Some(Silence::Predecessor(Span(60))));
        assert_eq!(fence.silence(Time(100)), None);
    }
}
