//! What a group asks of the controller, and how the answers are taken in.

use tidegate_core::exchange::{Ask, Grant};
use tidegate_core::node::{Heard, LeaseState, NodeGroup};
use tidegate_core::units::{Rate, Time};
use tokio::sync::oneshot;

use super::effects::Contact;

/// The session's side of a group, beside the machine's own.
#[derive(Default)]
pub(super) struct Asking {
    /// The proof that the controller handed out with the lease, shown when renewing; opaque.
    proof: Vec<u8>,
    /// The last rate it was leased that was more than nothing.
    leased: Rate,
    /// The newest `Renew` that named the group; 0 for none.
    asked_seq: u64,
    /// Whether it is in the session's due set.
    announced: bool,
    /// A reply could not be used: no request before this.
    quiet_until: Time,
    /// Those that wait for the next answer.
    listening: Vec<oneshot::Sender<()>>,
}

impl Asking {
    /// Nobody is about to ask, or waits for an answer.
    pub(super) fn is_quiet(&self) -> bool {
        !self.announced && self.listening.is_empty()
    }

    pub(super) fn leased(&self) -> Rate {
        self.leased
    }

    /// When the next renewal is due.
    pub(super) fn due(&self, node: &NodeGroup, now: Time) -> Option<Time> {
        node.due(now).map(|due| due.max(self.quiet_until))
    }

    /// What the session is to know of the group once a renewal is `due`; `None` when it knows already.
    pub(super) fn announce(&mut self, due: Option<Time>, now: Time) -> Option<Contact> {
        if self.announced || due.is_none_or(|due| due > now) {
            return None;
        }
        self.announced = true;
        Some(if self.asked_seq == 0 { Contact::First } else { Contact::Again })
    }

    /// The session knows that a renewal is due.
    pub(super) fn is_announced(&self) -> bool {
        self.announced
    }

    /// The session comes with message `seq`: what is asked, with its proof, if a renewal is still due.
    pub(super) fn ask(&mut self, node: &mut NodeGroup, now: Time, seq: u64) -> Option<(Ask, Vec<u8>)> {
        self.announced = false;
        if self.due(node, now).is_none_or(|due| due > now) {
            return None;
        }
        self.asked_seq = seq;
        Some((node.ask(now, seq), self.proof.clone()))
    }

    /// Takes in an answer, as far as it is not stale.
    pub(super) fn hear(
        &mut self,
        node: &mut NodeGroup,
        now: Time,
        seq: u64,
        grant: &Grant,
        proof: Vec<u8>,
    ) -> Heard {
        let heard = node.on_grant(now, seq, grant);
        if heard == Heard::Applied {
            self.proof = proof;
            if let Grant::Leased(terms) = grant
                && terms.rate > Rate::ZERO
            {
                self.leased = terms.rate;
            }
            for listener in self.listening.drain(..) {
                // A caller that no longer waits need not know.
                let _ = listener.send(());
            }
        }
        heard
    }

    /// Asks a controller that has not said yet whether it has the group; completes with its next answer. `None` when it
    /// has said so.
    pub(super) fn ask_first(&mut self, node: &mut NodeGroup, now: Time) -> Option<oneshot::Receiver<()>> {
        if !matches!(node.state(now).lease, LeaseState::None | LeaseState::Unknown) {
            return None;
        }
        node.renew_now(now);
        Some(self.listen())
    }

    /// Completes with the next answer of the controller.
    pub(super) fn listen(&mut self) -> oneshot::Receiver<()> {
        self.listening.retain(|listener| !listener.is_closed());
        let (sender, receiver) = oneshot::channel();
        self.listening.push(sender);
        receiver
    }

    /// No answer will come any more.
    pub(super) fn end(&mut self) {
        self.listening.clear();
    }

    /// Request `seq` got no usable answer: nothing is asked before `until`. False when another was sent since.
    pub(super) fn unanswered(&mut self, node: &mut NodeGroup, now: Time, seq: u64, until: Time) -> bool {
        let newest = self.asked_seq == seq;
        if newest {
            self.quiet_until = until;
            node.on_session_lost(now);
        }
        newest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Callers give up and come again while the controller is away, and each of them listens.
    #[test]
    fn those_that_no_longer_listen_are_forgotten_and_the_others_are_not() {
        let mut asking = Asking::default();
        let mut first = asking.listen();
        for _ in 0..100 {
            drop(asking.listen());
        }
        let mut last = asking.listen();
        assert_eq!(asking.listening.len(), 2);
        asking.listening.drain(..).for_each(|listener| listener.send(()).unwrap());
        assert_eq!([first.try_recv(), last.try_recv()], [Ok(()), Ok(())]);
    }
}
