//! The session's side of a group: what it asks, and how answers and pushed orders are applied.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::node::{Heard, LeaseState};
use tidegate_core::units::{Rate, Span};
use tokio::sync::oneshot;

use super::GroupCell;

impl GroupCell {
    /// The entry for a `Renew`, if one is still due, and how long its answer is waited for; the core marks it in flight.
    pub(crate) fn ask(self: &Arc<Self>, seq: u64) -> Option<(Ask, Vec<u8>, Span)> {
        let ask = self.if_awake(|state, now| {
            state.announced = false;
            let due = state.node.due(now).is_some_and(|due| due.max(state.quiet_until) <= now);
            due.then(|| {
                state.asked_seq = seq;
                (state.node.ask(now, seq), state.proof.clone(), state.node.answer_wait())
            })
        });
        ask.flatten()
    }

    /// Applies a grant, as far as it is not stale.
    pub(crate) fn grant(self: &Arc<Self>, seq: u64, grant: &Grant, proof: Vec<u8>) -> Heard {
        let slewed = self.shared.slewed_by();
        let grant = &grant.on_slewed_clock(slewed.unwrap_or_default());
        let heard = self.if_awake(|state, now| {
            state.node.on_slewed_clock(now, slewed);
            let heard = state.node.on_grant(now, seq, grant);
            if heard == Heard::Applied {
                state.proof = proof;
                if let Grant::Leased(terms) = grant
                    && terms.rate > Rate::ZERO
                {
                    state.leased = terms.rate;
                }
                self.known.store(!matches!(grant, Grant::UnknownGroup), Ordering::Relaxed);
                for listener in state.listening.drain(..) {
                    // A caller that no longer waits need not know.
                    let _ = listener.send(());
                }
            }
            heard
        });
        heard.unwrap_or(Heard::Ignored)
    }

    /// Asks a controller that has not said yet whether it has the group; completes with its next answer. `None` when it
    /// has said so.
    pub(crate) fn ask_first(self: &Arc<Self>) -> Option<oneshot::Receiver<()>> {
        let answer = self.if_awake(|state, now| {
            let lease = state.node.state(now).lease;
            matches!(lease, LeaseState::None | LeaseState::Unknown).then(|| {
                state.node.renew_now(now);
                state.listen()
            })
        });
        answer.flatten()
    }

    /// The request `seq` got no usable answer; the next one waits for `pause`. False when another was sent since.
    pub(crate) fn unanswered(self: &Arc<Self>, seq: u64, pause: Span) -> bool {
        let newest = self.if_awake(|state, now| {
            let newest = state.asked_seq == seq;
            if newest {
                state.quiet_until = now.after(pause);
                state.node.on_session_lost(now);
            }
            newest
        });
        newest.unwrap_or(false)
    }

    /// The controller was behind and did not consider the request.
    pub(crate) fn shed(self: &Arc<Self>, seq: u64) {
        self.if_awake(|state, now| state.node.on_shed(now, seq));
    }

    /// The stream was lost, and with it any request in flight.
    pub(crate) fn session_lost(self: &Arc<Self>) {
        self.if_awake(|state, now| state.node.on_session_lost(now));
    }

    /// The controller wants the rate down now.
    pub(crate) fn lower(self: &Arc<Self>, at_most: Rate) {
        self.if_awake(|state, now| state.node.on_lower(now, at_most));
    }

    /// The definition changed, or the first answer is wanted.
    pub(crate) fn renew_now(self: &Arc<Self>) {
        self.if_awake(|state, now| state.node.renew_now(now));
    }

    /// Gives up lease, tokens and waiters.
    pub(crate) fn release(self: &Arc<Self>) {
        self.if_awake(|state, now| state.node.release(now));
    }
}
