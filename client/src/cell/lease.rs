//! The session's side of a group: what it asks, and how answers and pushed orders are applied.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::units::{Rate, Span};

use super::GroupCell;

impl GroupCell {
    /// The entry for a `Renew`, if one is still due; the core marks it in flight.
    pub(crate) fn ask(self: &Arc<Self>, seq: u64) -> Option<(Ask, Vec<u8>)> {
        self.with(|state, now| {
            state.announced = false;
            let due = state.node.due(now).is_some_and(|due| due.max(state.quiet_until) <= now);
            due.then(|| {
                state.asked_seq = seq;
                (state.node.ask(now, seq), state.proof.clone())
            })
        })
    }

    /// Applies a grant; false when it is stale.
    pub(crate) fn grant(self: &Arc<Self>, seq: u64, grant: &Grant, proof: Vec<u8>) -> bool {
        let applied = self.with(|state, now| {
            let applied = state.node.on_grant(now, seq, grant);
            if applied {
                state.proof = proof;
                self.known.store(!matches!(grant, Grant::UnknownGroup), Ordering::Relaxed);
            }
            applied
        });
        if applied {
            self.answers.send_modify(|answers| *answers = answers.saturating_add(1));
        }
        applied
    }

    /// The request `seq` got no usable answer; the next one waits for `pause`.
    pub(crate) fn unanswered(self: &Arc<Self>, seq: u64, pause: Span) {
        self.with(|state, now| {
            if state.asked_seq == seq {
                state.quiet_until = now.after(pause);
                state.node.on_session_lost(now);
            }
        });
    }

    /// The stream was lost, and with it any request in flight.
    pub(crate) fn session_lost(self: &Arc<Self>) {
        self.with(|state, now| state.node.on_session_lost(now));
    }

    /// The controller wants the rate down now.
    pub(crate) fn lower(self: &Arc<Self>, at_most: Rate) {
        self.with(|state, now| state.node.on_lower(now, at_most));
    }

    /// The definition changed, or the first answer is wanted.
    pub(crate) fn renew_now(self: &Arc<Self>) {
        self.with(|state, now| state.node.renew_now(now));
    }

    /// Gives up lease, tokens and waiters.
    pub(crate) fn release(self: &Arc<Self>) {
        self.with(|state, now| state.node.release(now));
    }
}
