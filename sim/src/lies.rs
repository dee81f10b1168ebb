//! The lies of a node that is let in: anything the wire can carry.

use tidegate_controller::service::RenewIn;
use tidegate_core::exchange::{Ask, Held};
use tidegate_core::units::{Rate, Ru, Span};
use tidegate_core::usage::{Consumption, RuParts};

use super::random::Random;

/// Makes lies of a renewal.
pub(super) fn distort(request: &mut RenewIn, random: &mut Random) {
    for entry in &mut request.entries {
        if let Ok((ask, proof)) = &mut entry.ask {
            distort_ask(ask, random);
            match random.below(8) {
                0 => proof.iter_mut().for_each(|byte| *byte ^= 0x5A),
                1 | 2 => forge(ask, proof, random),
                _ => {}
            }
        }
    }
    for report in &mut request.reports {
        if random.one_in(3) {
            let charged = RuParts::flat(Ru(any(random).max(0)));
            report.total =
                Ok(Consumption { charged, operations: random.bits() >> 1, ..Consumption::default() }.into());
        }
    }
    if random.one_in(50) {
        request.seq = random.bits();
    }
}

/// Claims more than was granted, in the proof and beside it: what is believed is the less of both.
fn forge(ask: &mut Ask, proof: &mut [u8], random: &mut Random) {
    let more = i64::MAX >> random.between(10, 40);
    ask.held = Held { rate: Rate(more), cap: Ru(more), lump: Ru(more) };
    // A version, then rate, cap and lump in clear; the end, the epoch and the code stay as they are.
    let numbers = proof.get_mut(1..25).unwrap_or_default();
    for number in numbers.chunks_exact_mut(8) {
        number.copy_from_slice(&more.to_be_bytes());
    }
}

fn distort_ask(ask: &mut Ask, random: &mut Random) {
    for _ in 0..random.between(1, 3) {
        match random.below(15) {
            0 => ask.held = Held::default(),
            1 => ask.held = Held { rate: Rate(any(random)), cap: Ru(any(random)), lump: Ru(any(random)) },
            2 => ask.returned = Ru(any(random)),
            3 => ask.acked_seq = random.bits(),
            4 => ask.demand = Rate(any(random)),
            5 => ask.backlog = Ru(any(random)),
            6 => ask.head = Ru(any(random)),
            7 => ask.debt = Ru(any(random)),
            8 => ask.refunded = Ru(any(random)),
            9 => ask.running = Ru(any(random)),
            10 => ask.largest = Ru(any(random)),
            11 => ask.steady = Rate(any(random)),
            12 => ask.beside = Ru(any(random)),
            13 => ask.ahead = Span(random.bits()),
            _ => ask.waiting = random.bits(),
        }
    }
}

/// A number at an edge or anywhere.
fn any(random: &mut Random) -> i64 {
    match random.below(6) {
        0 => i64::MIN,
        1 => i64::MAX,
        2 => -1,
        3 => 0,
        4 => Ru::MAX.0,
        _ => i64::from_be_bytes(random.bits().to_be_bytes()) >> random.below(40),
    }
}
