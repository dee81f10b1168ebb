//! Between the wire's messages and the core's types: fails loudly, field by field.
//!
//! Amounts on the wire are 0 to 10^18 micro-RU, rates 0 to 10^15 micro-RU per second; anything else refuses the whole
//! entry, so that a broken controller cannot plant a lease that the core would have to mistrust.

use tidegate_core::exchange::{Allowance, Ask, Enforcement, Grant, LeaseTerms, Spending};
use tidegate_core::group::Fallback;
use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru, Span};
use tidegate_core::usage::{Total, Usage};
use tidegate_proto::v1;

use crate::names::GroupName;

/// Longest lease or pause a reply may name: one day.
const MAX_SPAN: Span = Span::secs(86_400);
/// Longest time to the next window of a quota: two months and a day, since a clock that was set back keeps a month's
/// window open for the next month, too.
const MAX_WINDOW: Span = Span::secs(63 * 86_400);
/// Longest proof that is kept and sent back, in bytes.
const MAX_PROOF: usize = 1_024;

/// A grant that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GrantError {
    #[error("grant for group {group}: {field} is {value}, outside 0 to {max}")]
    OutOfRange { group: String, field: &'static str, value: i64, max: i64 },
    #[error("grant for group {group}: {field} is {value} us, more than a day")]
    TooLong { group: String, field: &'static str, value: u64 },
    #[error("grant for group {group}: {field} is {value} us, more than {MAX_WINDOW}")]
    Window { group: String, field: &'static str, value: u64 },
    #[error("grant for group {group}: proof of {length} bytes is longer than {MAX_PROOF}")]
    Proof { group: String, length: usize },
    #[error("grant for group {group}: status {status} is not known to this client")]
    Status { group: String, status: i32 },
    #[error("grant for group {group}: the controller refused the request: {message}")]
    Refused { group: String, message: String },
}

/// Reads a grant.
pub(crate) fn grant(entry: &v1::GrantEntry) -> Result<Grant, GrantError> {
    let of = Fields(entry);
    if entry.proof.len() > MAX_PROOF {
        return Err(GrantError::Proof { group: entry.group.clone(), length: entry.proof.len() });
    }
    match entry.status() {
        v1::GrantStatus::Leased => Ok(Grant::Leased(LeaseTerms {
            rate: of.rate("rate", entry.rate)?,
            cap: of.ru("cap_micro_ru", entry.cap_micro_ru)?,
            fill: of.ru("fill_micro_ru", entry.fill_micro_ru)?,
            lump: of.ru("lump_micro_ru", entry.lump_micro_ru)?,
            lump_after: of.span("lump_after_us", entry.lump_after_us)?,
            ttl: of.span("ttl_us", entry.ttl_us)?,
            renew_after: of.span("renew_after_us", entry.renew_after_us)?,
            ask_again: of.span("ask_again_us", entry.ask_again_us)?,
            max_fit: of.ru("max_fit_micro_ru", entry.max_fit_micro_ru)?,
            max_debt: of.ru("max_debt_micro_ru", entry.max_debt_micro_ru)?,
            enforcement: Enforcement { shadow: entry.shadow, paced: entry.paced },
            fallback: of.fallback()?,
            ack_now: entry.ack_now,
            scarce: entry.scarce,
            lump_wanted: entry.lump_wanted,
            allowance: of.share()?,
        })),
        v1::GrantStatus::Unlimited => Ok(Grant::Unlimited {
            ttl: of.span("ttl_us", entry.ttl_us)?,
            renew_after: of.span("renew_after_us", entry.renew_after_us)?,
            fallback: of.fallback()?,
        }),
        v1::GrantStatus::UnknownGroup => Ok(Grant::UnknownGroup),
        v1::GrantStatus::Recovering => Ok(Grant::Recovering {
            ask_again: of.span("ask_again_us", entry.ask_again_us)?,
            // Earlier controllers do not say.
            fallback: entry.fallback.as_ref().map(|_| of.fallback()).transpose()?,
        }),
        v1::GrantStatus::Refused => {
            Err(GrantError::Refused { group: entry.group.clone(), message: entry.message.clone() })
        }
        v1::GrantStatus::Unspecified => {
            Err(GrantError::Status { group: entry.group.clone(), status: entry.status })
        }
    }
}

/// Reads a pushed rate.
pub(crate) fn lower(entry: &v1::LowerEntry) -> Result<Rate, GrantError> {
    in_range(&entry.group, "rate_at_most", entry.rate_at_most, Rate::MAX.0).map(Rate)
}

/// Writes a renewal entry.
pub(crate) fn renew_entry(group: &GroupName, ask: &Ask, proof: &[u8]) -> v1::RenewEntry {
    v1::RenewEntry {
        group: group.to_string(),
        acked_seq: ask.acked_seq,
        held_rate: ask.held.rate.0,
        held_cap_micro_ru: ask.held.cap.0,
        held_lump_micro_ru: ask.held.lump.0,
        returned_micro_ru: ask.returned.0,
        demand_rate: ask.demand.0.clamp(0, Rate::MAX.0),
        backlog_micro_ru: ask.backlog.0.clamp(0, Ru::MAX.0),
        head_micro_ru: ask.head.0,
        debt_micro_ru: ask.debt.0.clamp(0, Ru::MAX.0),
        proof: proof.to_vec(),
        waiting: ask.waiting,
        refunded_micro_ru: ask.refunded.0.clamp(0, Ru::MAX.0),
        running_micro_ru: ask.running.0.clamp(0, Ru::MAX.0),
        largest_micro_ru: ask.largest.0.clamp(0, Ru::MAX.0),
        steady_rate: ask.steady.0.clamp(0, Rate::MAX.0),
        beside_micro_ru: ask.beside.0.clamp(0, Ru::MAX.0),
        ahead_us: ask.ahead.0,
        spending: spending(&ask.spending),
        requests: requests(&ask.spending),
    }
}

/// Requests that were begun, for a quota that counts them.
fn requests(of: &Spending) -> Option<v1::RequestSpending> {
    (of.window > 0 && of.unit == Unit::Requests).then(|| v1::RequestSpending {
        window: of.window,
        used: whole(of.used),
        ceiling: whole(of.ceiling),
        offered_rate: of.offered.0.clamp(0, Rate::MAX.0),
    })
}

fn whole(requests: Ru) -> u64 {
    (requests.or_zero().min(Ru::MAX).0 / Unit::REQUEST.0).unsigned_abs()
}

fn spending(of: &Spending) -> Option<v1::Spending> {
    (of.window > 0 && of.unit == Unit::Ru).then(|| v1::Spending {
        window: of.window,
        used_micro_ru: of.used.0.clamp(0, Ru::MAX.0),
        ceiling_micro_ru: of.ceiling.0.clamp(0, Ru::MAX.0),
        running_micro_ru: of.running.0.clamp(0, Ru::MAX.0),
    })
}

/// Writes a report; `incarnation` is 0 for the current one.
pub(crate) fn report(group: &GroupName, incarnation: u64, total: &Total) -> v1::Report {
    let total = v1::Consumption::from_words(&total.to_words());
    v1::Report { group: group.to_string(), incarnation, total: Some(total), waited: Vec::new() }
}

/// Resources used, as a message of the wire: for reports of other kinds than a group's consumption.
pub fn usage_message(usage: &Usage) -> v1::Usage {
    v1::Usage {
        cpu_ns: usage.cpu_ns,
        read_requests: usage.read_requests,
        read_batches: usage.read_batches,
        read_bytes: usage.read_bytes,
        write_requests: usage.write_requests,
        write_batches: usage.write_batches,
        write_bytes: usage.write_bytes,
        net_in_bytes: usage.net_in_bytes,
        net_out_bytes: usage.net_out_bytes,
        cross_zone_bytes: usage.cross_zone_bytes,
    }
}

/// Checks the fields of one entry.
struct Fields<'a>(&'a v1::GrantEntry);

impl Fields<'_> {
    fn ru(&self, field: &'static str, value: i64) -> Result<Ru, GrantError> {
        in_range(&self.0.group, field, value, Ru::MAX.0).map(Ru)
    }

    fn rate(&self, field: &'static str, value: i64) -> Result<Rate, GrantError> {
        in_range(&self.0.group, field, value, Rate::MAX.0).map(Rate)
    }

    fn span(&self, field: &'static str, value: u64) -> Result<Span, GrantError> {
        if value > MAX_SPAN.0 {
            return Err(GrantError::TooLong { group: self.0.group.clone(), field, value });
        }
        Ok(Span(value))
    }

    /// The share of a quota, of whichever unit. Requests come last: a controller gives one of both.
    fn share(&self) -> Result<Option<Allowance>, GrantError> {
        match (&self.0.requests, &self.0.allowance) {
            (Some(share), _) => self.requests(share).map(Some),
            (None, Some(share)) => self.allowance(share).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn windows(&self, spans: [(&'static str, u64); 2]) -> Result<(), GrantError> {
        match spans.into_iter().find(|(_, value)| *value > MAX_WINDOW.0) {
            Some((field, value)) => Err(GrantError::Window { group: self.0.group.clone(), field, value }),
            None => Ok(()),
        }
    }

    fn requests(&self, share: &v1::RequestAllowance) -> Result<Allowance, GrantError> {
        self.windows([("resets_in_us", share.resets_in_us), ("window_us", share.window_us)])?;
        let most = Ru::MAX.0 / Unit::REQUEST.0;
        let whole = |field, value: u64| {
            let value = i64::try_from(value).unwrap_or(i64::MAX);
            in_range(&self.0.group, field, value, most).map(Ru::whole)
        };
        Ok(Allowance {
            window: share.window,
            unit: Unit::Requests,
            ceiling: whole("requests.ceiling", share.ceiling)?,
            amount: whole("requests.amount", share.amount)?,
            left: whole("requests.left", share.left)?,
            resets_in: Span(share.resets_in_us),
            length: Span(share.window_us),
            rolls: share.rolls,
        })
    }

    fn allowance(&self, share: &v1::Allowance) -> Result<Allowance, GrantError> {
        self.windows([("resets_in_us", share.resets_in_us), ("window_us", share.window_us)])?;
        Ok(Allowance {
            window: share.window,
            unit: Unit::Ru,
            ceiling: self.ru("ceiling_micro_ru", share.ceiling_micro_ru)?,
            amount: self.ru("amount_micro_ru", share.amount_micro_ru)?,
            left: self.ru("left_micro_ru", share.left_micro_ru)?,
            resets_in: Span(share.resets_in_us),
            length: Span(share.window_us),
            rolls: share.rolls,
        })
    }

    fn fallback(&self) -> Result<Fallback, GrantError> {
        use v1::fallback::Kind;
        if self.0.fallback_part_us > 0 {
            let rate = self.rate("fallback_part_rate", self.0.fallback_part_rate)?;
            let lasts = self.span("fallback_part_us", self.0.fallback_part_us)?;
            return Ok(if rate == Rate::ZERO { Fallback::Stop } else { Fallback::Part(rate, lasts) });
        }
        match self.0.fallback.as_ref().and_then(|fallback| fallback.kind.as_ref()) {
            None | Some(Kind::Rate(0) | Kind::Unlimited(false)) => Ok(Fallback::Stop),
            Some(Kind::Rate(rate)) => self.rate("fallback.rate", *rate).map(Fallback::Rate),
            Some(Kind::Unlimited(true)) => Ok(Fallback::Unlimited),
        }
    }
}

fn in_range(group: &str, field: &'static str, value: i64, max: i64) -> Result<i64, GrantError> {
    if (0..=max).contains(&value) {
        return Ok(value);
    }
    Err(GrantError::OutOfRange { group: group.into(), field, value, max })
}

#[cfg(test)]
mod tests;
