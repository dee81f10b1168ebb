//! The newest renewal of a group: when it was sent, what it said, and whether it has its answer.

use super::distance::Told;
use crate::units::{Span, Time};

/// The newest renewal.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Question {
    seq: u64,
    /// `None` before the first; `awaiting`: it has no answer yet.
    sent: Option<Time>,
    awaiting: bool,
    /// It gave the lease up: what is granted in return is not used.
    gave_up: bool,
    /// The controller was behind and did not consider it: the next one goes out when it would have gone out without
    /// that answer.
    shed_until: Option<Time>,
    /// The newest that was answered.
    acked: u64,
    /// The load and the waiting in it.
    told: Told,
}

impl Question {
    /// That of a group of which renewal `acked` was answered.
    pub(super) fn resumed(acked: u64) -> Self {
        Self { seq: acked, acked, ..Self::default() }
    }

    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// When it was sent.
    pub(super) fn sent(&self) -> Option<Time> {
        self.sent
    }

    /// When it was sent, while it has no answer.
    pub(super) fn awaited(&self) -> Option<Time> {
        self.sent.filter(|_| self.awaiting)
    }

    /// Whether it gave the lease up.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// When the next one goes out if the controller did not consider this one.
    pub(super) fn shed_until(&self) -> Option<Time> {
        self.shed_until
    }

    /// The newest that was answered.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// The load and the waiting in it.
    pub(super) fn told(&self) -> Told {
        self.told
    }

    /// Another one is sent now.
    pub(super) fn ask(&mut self, now: Time, seq: u64, gives_up: bool) {
        debug_assert!(seq > self.seq, "sequence numbers grow");
        (self.seq, self.sent, self.awaiting) = (seq, Some(now), true);
        (self.gave_up, self.shed_until) = (gives_up, None);
    }

    /// Notes what it says.
    pub(super) fn tell(&mut self, told: Told) {
        self.told = told;
    }

    /// Takes the answer to `seq`; returns when it was asked, if that is the one that has no answer yet.
    pub(super) fn answer(&mut self, seq: u64) -> Option<Time> {
        if !self.awaiting || seq != self.seq {
            return None;
        }
        (self.awaiting, self.acked) = (false, seq);
        self.sent
    }

    /// The controller did not consider `seq`: the next one goes out after the wait for this one. Returns when it was
    /// asked, if that is the one that has no answer yet.
    pub(super) fn shed(&mut self, seq: u64, wait: Span) -> Option<Time> {
        let sent = self.awaited().filter(|_| seq == self.seq)?;
        self.shed_until.get_or_insert(sent.after(wait));
        Some(sent)
    }

    /// It will have no answer; false when it had one.
    pub(super) fn lose(&mut self) -> bool {
        std::mem::take(&mut self.awaiting)
    }
}
