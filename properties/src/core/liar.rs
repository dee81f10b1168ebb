//! A client that has a key to the door and lies: any numbers, any sequence, or numbers that are just believable.

use tidegate_core::exchange::{Ask, Grant, Held, LeaseTerms, Spending};
use tidegate_core::group::{ClientId, GroupId};
use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru, Span};
use tidegate_core::usage::{Consumption, RuParts, Usage};

use super::system::{Proof, System};
use crate::input::Input;

/// One liar.
pub(super) struct Liar {
    pub(super) client: ClientId,
    seq: u64,
    /// The newest grant and its number.
    granted: (u64, LeaseTerms),
    /// Everything it was ever granted, for proofs.
    proofs: Vec<(GroupId, Proof)>,
}

impl Liar {
    pub(super) fn new(index: usize) -> Self {
        Self {
            client: ClientId(1_000_000 + index as u64),
            seq: 0,
            granted: (0, LeaseTerms::default()),
            proofs: Vec::new(),
        }
    }
}

impl System {
    /// A renewal with any numbers in it.
    pub(super) fn lie(&mut self, index: usize, id: GroupId, input: &mut Input<'_>) {
        let Some(liar) = self.liars.get_mut(index) else { return };
        liar.seq = liar.seq.saturating_add(1);
        let seq = if input.below(8) == 0 { input.number() } else { liar.seq };
        let ask = if input.flag() { believable(liar, input) } else { anything(input) };
        let claim = input.below(liar.proofs.len().clamp(1, 200));
        let proof = liar.proofs.get(claim).filter(|(group, _)| *group == id).map(|(_, proof)| *proof);
        let client = liar.client;
        let proven = proof.and_then(|proof| self.believe(&proof, ask.held));
        let grant = self.engine.renew(self.now, client, id, seq, &ask, proven);
        let (now, epoch) = (self.now, self.epoch);
        if let (Some(Grant::Leased(terms)), Some(liar)) = (grant, self.liars.get_mut(index)) {
            // The adapter signs what was held before together with what is new, and cuts it at the largest amount.
            let lump = (ask.held.lump.or_zero() + terms.lump).min(Ru::MAX);
            let held = Held { rate: terms.rate, cap: terms.cap, lump };
            liar.proofs.push((id, Proof { held, ends: now.after(terms.ttl), epoch }));
            liar.granted = (seq, terms);
            liar.seq = liar.seq.max(seq);
            sane(&terms);
        }
        self.push_lowers();
    }

    /// A report with any numbers in it.
    pub(super) fn report_lies(&mut self, index: usize, id: GroupId, input: &mut Input<'_>) {
        let Some(liar) = self.liars.get(index) else { return };
        let mut any = || Ru(input.hostile());
        let charged = RuParts { cpu: any(), read: any(), write: any(), network: any(), flat: any() };
        let total = Consumption {
            charged,
            shadow: any(),
            operations: input.number(),
            throttled: input.number(),
            waited_us: input.number(),
            usage: Usage { cpu_ns: input.number(), net_out_bytes: input.number(), ..Usage::default() },
        };
        let _ = self.ledger.report(self.now, liar.client, id, &total.into());
    }

    /// It says goodbye, and perhaps goes on.
    pub(super) fn leave(&mut self, index: usize) {
        let Some(liar) = self.liars.get(index) else { return };
        self.engine.release(self.now, liar.client);
    }
}

/// Whatever is asked, what is granted is a lease that a node can apply.
fn sane(terms: &LeaseTerms) {
    assert!((Rate::ZERO..=Rate::MAX).contains(&terms.rate), "{terms:?}");
    assert!(terms.cap >= Ru::ZERO && terms.fill >= Ru::ZERO && terms.lump >= Ru::ZERO, "{terms:?}");
    assert!(terms.fill <= terms.cap, "{terms:?}");
}

/// Gives back all it was granted as if nothing had been spent, and says that it holds nothing.
fn believable(liar: &Liar, input: &mut Input<'_>) -> Ask {
    let (seq, terms) = liar.granted;
    let acked_seq = if input.flag() { seq } else { 0 };
    let holds = input.below(4);
    let held = Held {
        rate: if holds & 1 == 1 { terms.rate } else { Rate::ZERO },
        cap: if holds & 1 == 1 { terms.cap } else { Ru::ZERO },
        lump: if holds & 2 == 2 { terms.lump } else { Ru::ZERO },
    };
    let returned = if input.flag() { terms.cap + terms.lump + terms.fill } else { Ru::MAX };
    let wants = Ru(input.amount(Ru::MAX.0));
    let backlog = if input.flag() { wants } else { Ru::ZERO };
    Ask {
        acked_seq,
        held,
        returned,
        demand: Rate(wants.0.min(Rate::MAX.0)),
        backlog,
        head: backlog.scale(1, 2),
        debt: Ru::ZERO,
        waiting: 1,
        refunded: if input.flag() { terms.lump } else { Ru::ZERO },
        running: Ru(input.amount(Ru::MAX.0)),
        largest: backlog,
        steady: Rate(input.amount(Rate::MAX.0)),
        beside: backlog.scale(1, 2),
        ahead: Span(input.number()),
        // Nothing of its quota is used, and all of it is kept.
        spending: terms.allowance.map_or_else(Spending::default, |share| Spending {
            window: share.window,
            used: Ru::ZERO,
            ceiling: if input.flag() { share.ceiling } else { Ru::MAX },
            ..Spending::default()
        }),
    }
}

fn anything(input: &mut Input<'_>) -> Ask {
    Ask {
        acked_seq: input.number(),
        held: Held { rate: Rate(input.hostile()), cap: Ru(input.hostile()), lump: Ru(input.hostile()) },
        returned: Ru(input.hostile()),
        demand: Rate(input.hostile()),
        backlog: Ru(input.hostile()),
        head: Ru(input.hostile()),
        debt: Ru(input.hostile()),
        waiting: input.number(),
        refunded: Ru(input.hostile()),
        running: Ru(input.hostile()),
        largest: Ru(input.hostile()),
        steady: Rate(input.hostile()),
        beside: Ru(input.hostile()),
        ahead: Span(input.number()),
        spending: Spending {
            window: input.number(),
            used: Ru(input.hostile()),
            ceiling: Ru(input.hostile()),
            // Read last, so that inputs of before mean what they meant.
            unit: if input.flag() { Unit::Requests } else { Unit::Ru },
            offered: Rate(input.hostile()),
            running: Ru(input.hostile()),
        },
    }
}
