//! The controller's steps: the service around engine and ledger, reduced to what it does to them.

use tidegate_core::engine::Engine;
use tidegate_core::exchange::{Ask, Grant, Held};
use tidegate_core::group::ClientId;
use tidegate_core::ledger::{Ledger, Reported};
use tidegate_core::units::{MICRO, Span, Time};
use tidegate_core::usage::Total;

use super::Model;
use super::state::{Books, Claim, Controller, Down, Order, State, Up, client, node_of};
use super::step::Delays;

impl Books {
    pub(super) fn ledger_is_dirty(&self) -> bool {
        !self.ledger.clone().take_dirty().is_empty()
    }

    /// What a controller that starts now finds.
    pub(super) fn loaded(&self) -> Ledger {
        let rows = self.stored.iter().map(|((client, group), total)| (*client, *group, *total));
        // No group was there before, so that no row is refused; were one, the books would not balance.
        Ledger::load(Time(0), std::iter::empty(), std::iter::empty(), rows).unwrap_or_default()
    }

    fn commit(&mut self) {
        for (client, group, total) in self.ledger.take_dirty() {
            self.stored.insert((client, group), total);
        }
    }
}

impl State {
    pub(super) fn commit(&mut self) {
        self.left.commits = self.left.commits.saturating_sub(1);
        self.books.change(Books::commit);
    }
}

impl Model {
    /// An engine with the definitions and no leases.
    pub(super) fn defined(&self, now: Time) -> Engine {
        let mut engine = Engine::new(now, self.setting.engine);
        for (id, spec) in &self.setting.groups {
            // Parents come first, so that nothing is refused.
            let refused = engine.put_group(now, *id, spec.clone());
            debug_assert!(refused.is_ok(), "{refused:?}");
        }
        engine
    }

    /// Changes the controller and checks I1 to I3.
    pub(super) fn steer<R>(
        &self,
        state: &mut State,
        change: impl FnOnce(&mut Controller) -> R,
    ) -> Result<R, String> {
        state.controller.change(|controller| {
            let result = change(controller);
            controller.engine.check().map(|()| result)
        })
    }

    /// The controller takes a message in and answers it.
    pub(super) fn hear(&self, state: &mut State, node: usize, up: &Up, late: Delays) -> Result<(), String> {
        let (now, group) = (state.now, self.group_of(node));
        if state
            .books
            .ledger
            .clone()
            .report(Time(0), up.client, group, &up.total)
            .is_ok_and(|new| new != Reported::Counted(Total::default()))
        {
            // A late report is lower than one before and changes nothing.
            state.books.change(|books| books.ledger.report(Time(0), up.client, group, &up.total)).ok();
        }
        let Some((seq, ask, proof)) = up.renewal else {
            return self.steer(state, |controller| controller.engine.release(now, up.client));
        };
        let (grant, lowers) = self.steer(state, |controller| {
            let epoch = controller.epoch;
            let recovering = controller.engine.recovering_until() > now;
            let held = proof.filter(|_| recovering).and_then(|claim| proven(&claim, &ask, epoch, now));
            let grant = controller.engine.renew(now, up.client, group, seq, &ask, held);
            let signed = grant.map(|grant| (grant, sign(&grant, &ask, epoch, now)));
            (signed, controller.engine.take_lowers())
        })?;
        self.send_down(state, up.client, Order::Granted(seq, grant), late.answer)?;
        for lower in lowers {
            self.send_down(state, lower.client, Order::Lower(lower.rate_at_most), late.orders)?;
        }
        Ok(())
    }

    /// Sends to an incarnation, if it lives and its stream leads here.
    fn send_down(&self, state: &mut State, to: ClientId, order: Order, late: bool) -> Result<(), String> {
        let (node, epoch) = (node_of(to), state.controller.epoch);
        let machine = state.nodes.get(node).ok_or("no such node")?;
        if client(node, machine.incarnation) != to || machine.stream != epoch {
            return Ok(());
        }
        let down = Down { epoch, order };
        if late && state.delay() {
            self.keep_down(state, node, down);
            return Ok(());
        }
        self.obey(state, node, down)
    }

    pub(super) fn crash(&self, state: &mut State) {
        state.left.crashes = state.left.crashes.saturating_sub(1);
        let now = state.now;
        state.books.change(|books| books.ledger = books.loaded());
        let longest = self.setting.longest_lease();
        let slack = longest.0 * u64::from(self.setting.engine.drift_ppm) / MICRO.unsigned_abs();
        let until = now.after(longest).after(Span(slack)).after(self.setting.engine.margin);
        state.controller.change(|controller| {
            controller.engine = self.defined(now);
            controller.engine.recover_until(until);
            controller.epoch += 1;
        });
        self.end_streams(state);
    }

    pub(super) fn restart(&self, state: &mut State) -> Result<(), String> {
        state.left.restarts = state.left.restarts.saturating_sub(1);
        let now = state.now;
        state.books.change(|books| {
            books.commit();
            books.ledger = books.loaded();
        });
        self.steer(state, |controller| {
            let snapshot = controller.engine.snapshot(now);
            controller.engine = self.defined(now);
            controller.engine.restore(now, &snapshot);
            controller.epoch += 1;
        })?;
        self.end_streams(state);
        Ok(())
    }

    /// Messages on their way to the old process do not arrive; those that it had sent may.
    fn end_streams(&self, state: &mut State) {
        for link in &mut state.links {
            if !link.up.is_empty() {
                link.change(|link| link.up.clear());
            }
        }
    }
}

/// What a node proves to hold from before an unclean stop.
fn proven(claim: &Claim, ask: &Ask, epoch: u64, now: Time) -> Option<Held> {
    (claim.epoch < epoch && claim.ends > now).then(|| Held {
        rate: claim.held.rate.min(ask.held.rate),
        cap: claim.held.cap.min(ask.held.cap),
        lump: claim.held.lump.min(ask.held.lump),
    })
}

/// The proof that goes with a lease.
fn sign(grant: &Grant, ask: &Ask, epoch: u64, now: Time) -> Option<Claim> {
    let Grant::Leased(terms) = grant else { return None };
    let held = Held { rate: terms.rate, cap: terms.cap, lump: ask.held.lump.or_zero() + terms.lump };
    Some(Claim { held, ends: now.after(terms.ttl), epoch })
}
