//! Between the wire and the engine, as the controller's adapter does it.

use tidegate_client::{QuotaUnit, Ru};
use tidegate_core::exchange::{Allowance, Ask, Grant, Held, Spending};
use tidegate_core::group::Fallback;
use tidegate_core::units::{Rate, Span};
use tidegate_core::usage::Total;
use tidegate_proto::v1;

/// RU of a report.
pub(crate) fn charged(total: &v1::Consumption) -> Ru {
    Total::from_words(total.to_words().expect("a client sends none that is out of range")).ru().clamped()
}

pub(super) fn ask(entry: &v1::RenewEntry) -> Ask {
    Ask {
        acked_seq: entry.acked_seq,
        held: Held {
            rate: Rate(entry.held_rate),
            cap: Ru(entry.held_cap_micro_ru),
            lump: Ru(entry.held_lump_micro_ru),
        },
        returned: Ru(entry.returned_micro_ru),
        demand: Rate(entry.demand_rate),
        backlog: Ru(entry.backlog_micro_ru),
        head: Ru(entry.head_micro_ru),
        debt: Ru(entry.debt_micro_ru),
        waiting: entry.waiting,
        refunded: Ru(entry.refunded_micro_ru),
        running: Ru(entry.running_micro_ru),
        largest: Ru(entry.largest_micro_ru),
        steady: Rate(entry.steady_rate),
        beside: Ru(entry.beside_micro_ru),
        ahead: Span(entry.ahead_us),
        spending: spending(entry),
    }
}

fn spending(entry: &v1::RenewEntry) -> Spending {
    let requests = entry.requests.map(|of| Spending {
        window: of.window,
        used: requests(of.used),
        ceiling: requests(of.ceiling),
        unit: QuotaUnit::Requests,
        offered: Rate(of.offered_rate),
        running: Ru::ZERO,
    });
    let of_ru = entry.spending.map(|of| Spending {
        window: of.window,
        used: Ru(of.used_micro_ru),
        ceiling: Ru(of.ceiling_micro_ru),
        running: Ru(of.running_micro_ru),
        ..Spending::default()
    });
    requests.or(of_ru).unwrap_or_default()
}

fn requests(count: u64) -> Ru {
    Ru::whole(i64::try_from(count).unwrap())
}

fn requests_out(share: &Allowance) -> v1::RequestAllowance {
    let whole = |amount: Ru| (amount.0 / QuotaUnit::REQUEST.0).unsigned_abs();
    v1::RequestAllowance {
        window: share.window,
        ceiling: whole(share.ceiling),
        amount: whole(share.amount),
        left: whole(share.left),
        resets_in_us: share.resets_in.0,
        window_us: share.length.0,
        rolls: share.rolls,
    }
}

pub(super) fn grant_entry(group: &str, grant: &Grant) -> v1::GrantEntry {
    let mut entry = v1::GrantEntry { group: group.into(), ..v1::GrantEntry::default() };
    let wire_fallback = |fallback| {
        let kind = match fallback {
            Fallback::Stop => v1::fallback::Kind::Rate(0),
            Fallback::Rate(rate) | Fallback::Part(rate, _) => v1::fallback::Kind::Rate(rate.0),
            Fallback::Unlimited => v1::fallback::Kind::Unlimited(true),
        };
        Some(v1::Fallback { kind: Some(kind) })
    };
    match grant {
        Grant::Leased(terms) => {
            entry.set_status(v1::GrantStatus::Leased);
            (entry.rate, entry.cap_micro_ru) = (terms.rate.0, terms.cap.0);
            (entry.fill_micro_ru, entry.lump_micro_ru) = (terms.fill.0, terms.lump.0);
            (entry.ttl_us, entry.renew_after_us) = (terms.ttl.0, terms.renew_after.0);
            (entry.ask_again_us, entry.lump_after_us) = (terms.ask_again.0, terms.lump_after.0);
            (entry.max_fit_micro_ru, entry.max_debt_micro_ru) = (terms.max_fit.0, terms.max_debt.0);
            entry.fallback = wire_fallback(terms.fallback);
            let of = |unit| terms.allowance.filter(|share| share.unit == unit);
            entry.requests = of(QuotaUnit::Requests).map(|share| Box::new(requests_out(&share)));
            let allowance = of(QuotaUnit::Ru).map(|share| v1::Allowance {
                window: share.window,
                ceiling_micro_ru: share.ceiling.0,
                amount_micro_ru: share.amount.0,
                left_micro_ru: share.left.0,
                resets_in_us: share.resets_in.0,
                window_us: share.length.0,
                rolls: share.rolls,
            });
            entry.allowance = allowance.map(Box::new);
            (entry.ack_now, entry.scarce) = (terms.ack_now, terms.scarce);
            entry.lump_wanted = terms.lump_wanted;
            (entry.shadow, entry.paced) = (terms.enforcement.shadow, terms.enforcement.paced);
            entry.proof = format!("proof of {group}").into_bytes();
        }
        Grant::Unlimited { ttl, renew_after, fallback } => {
            entry.set_status(v1::GrantStatus::Unlimited);
            (entry.ttl_us, entry.renew_after_us) = (ttl.0, renew_after.0);
            entry.fallback = wire_fallback(*fallback);
        }
        Grant::UnknownGroup => entry.set_status(v1::GrantStatus::UnknownGroup),
        Grant::Recovering { ask_again, fallback } => {
            entry.set_status(v1::GrantStatus::Recovering);
            entry.ask_again_us = ask_again.0;
            entry.fallback = fallback.and_then(wire_fallback);
        }
    }
    entry
}
