//! Wire to core and back for the grant stream, field by field.
//!
//! Amounts are micro-RU, rates micro-RU per second, as on the wire. The error for a value out of range names the field
//! and the value; a refused entry or report does not affect the others.

use tidegate_core::exchange::{Allowance, Ask, Enforcement, Grant, Held, LeaseTerms, Spending};
use tidegate_core::group::Fallback;
use tidegate_core::quota::Unit;
use tidegate_core::units::{Rate, Ru, Span, Time};
use tidegate_core::usage::{Total, Usage};
use tidegate_core::waited::{LENGTHS, Waited};
use tidegate_proto::v1;

use crate::leasing::clients::NodeStats;
use crate::limits::{MAX_ENTRIES, MAX_PROOF_BYTES, MAX_WAITED};
use crate::service::{Answer, EntryIn, EntryOut, RefusedReport, RenewIn, Renewed, ReportIn, Sent, WaitedIn};

/// Why a whole message is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MessageError {
    /// Too many parts.
    #[error("{field}: {count} are too many: at most {MAX_ENTRIES} in one message")]
    TooMany {
        /// The field that has too many.
        field: &'static str,
        /// Their number.
        count: usize,
    },
    /// Sequence numbers start at one.
    #[error("seq: 0 is out of range; number renewals from 1")]
    NoSeq,
}

/// Decodes a renewal.
pub(crate) fn renew(message: v1::Renew) -> Result<RenewIn, MessageError> {
    if message.seq == 0 {
        return Err(MessageError::NoSeq);
    }
    bounded("entries", message.entries.len())?;
    Ok(RenewIn {
        seq: message.seq,
        entries: message.entries.into_iter().map(entry).collect(),
        reports: reports(message.reports)?,
        node: message.node.map(|node| NodeStats {
            process_cpu_ns: node.process_cpu_ns,
            metered_cpu_ns: node.metered_cpu_ns,
            resident_bytes: node.resident_bytes,
        }),
        // Older nodes send neither; a wrong value harms nobody else.
        sent: (message.answer_within_us > 0)
            .then_some(Sent { at: Time(message.sent_us), answer_within: Span(message.answer_within_us) }),
        counts_requests: message.counts_requests,
        counts_rolling: message.counts_rolling,
    })
}

/// Decodes reports.
pub(crate) fn reports(reports: Vec<v1::Report>) -> Result<Vec<ReportIn>, MessageError> {
    bounded("reports", reports.len())?;
    let decoded = reports.into_iter().map(|report| {
        let total = report.total.as_ref().ok_or_else(|| "total: is missing".to_owned());
        let total = total.and_then(consumption_in);
        let waited = total.as_ref().ok().map(|total| waited_in(&report.waited, total));
        // What was consumed counts, whatever is said of waits.
        let waited = waited.unwrap_or_else(|| Ok(Vec::new())).unwrap_or_else(|message| {
            tracing::debug!(group = %crate::quantity::cut(&report.group), message, "waits of a report are left out");
            Vec::new()
        });
        ReportIn { group: report.group, incarnation: report.incarnation, total, waited }
    });
    Ok(decoded.collect())
}

/// Decodes waits, which are no longer together than all that the group waited.
fn waited_in(pieces: &[v1::Waited], total: &Total) -> Result<Vec<WaitedIn>, String> {
    if pieces.len() > MAX_WAITED {
        return Err(format!("waited: {} pieces are too many: at most {MAX_WAITED}", pieces.len()));
    }
    let decoded = pieces.iter().map(|piece| {
        let v1::Waited { since_us, lengths, waits, in_vain } = piece;
        if lengths.len() != waits.len() {
            return Err(format!(
                "waited.waits: {} numbers for {} lengths; send one for each",
                waits.len(),
                lengths.len()
            ));
        }
        let mut waited = Waited::default();
        for (at, (length, waits)) in lengths.iter().zip(waits).enumerate() {
            let before = at.checked_sub(1).and_then(|before| lengths.get(before));
            let is_next = before.is_none_or(|before| before < length);
            let place = usize::try_from(*length).unwrap_or(usize::MAX);
            if !(is_next && waited.put(place, *waits)) {
                return Err(format!(
                    "waited.lengths: {length} at {at} is out of range: ascending, below {LENGTHS}"
                ));
            }
        }
        if u64::from(*in_vain) > waited.ended() {
            return Err(format!("waited.in_vain: {in_vain} is out of range: 0 to {}", waited.ended()));
        }
        let (since_us, least) = (u128::from(*since_us), waited.at_least());
        if since_us + least > total.waited_us {
            let all = total.waited_us;
            return Err(format!(
                "waited: waits of {least} us after {since_us} us are out of range: {all} us were waited in all"
            ));
        }
        Ok(WaitedIn { since_us, waits: waited.counts().collect(), in_vain: *in_vain })
    });
    decoded.collect()
}

fn bounded(field: &'static str, count: usize) -> Result<(), MessageError> {
    if count > MAX_ENTRIES { Err(MessageError::TooMany { field, count }) } else { Ok(()) }
}

fn entry(entry: v1::RenewEntry) -> EntryIn {
    let ask = ask(&entry).map(|ask| (ask, entry.proof));
    EntryIn { group: entry.group, ask }
}

fn ask(entry: &v1::RenewEntry) -> Result<Ask, String> {
    if entry.proof.len() > MAX_PROOF_BYTES {
        return Err(format!("proof: {} bytes are too many: at most {MAX_PROOF_BYTES}", entry.proof.len()));
    }
    Ok(Ask {
        acked_seq: entry.acked_seq,
        held: Held {
            rate: rate("held_rate", entry.held_rate)?,
            cap: amount("held_cap_micro_ru", entry.held_cap_micro_ru)?,
            lump: amount("held_lump_micro_ru", entry.held_lump_micro_ru)?,
        },
        returned: amount("returned_micro_ru", entry.returned_micro_ru)?,
        demand: rate("demand_rate", entry.demand_rate)?,
        backlog: amount("backlog_micro_ru", entry.backlog_micro_ru)?,
        head: amount("head_micro_ru", entry.head_micro_ru)?,
        debt: amount("debt_micro_ru", entry.debt_micro_ru)?,
        waiting: entry.waiting,
        refunded: amount("refunded_micro_ru", entry.refunded_micro_ru)?,
        running: amount("running_micro_ru", entry.running_micro_ru)?,
        largest: amount("largest_micro_ru", entry.largest_micro_ru)?,
        steady: rate("steady_rate", entry.steady_rate)?,
        beside: amount("beside_micro_ru", entry.beside_micro_ru)?,
        ahead: Span(entry.ahead_us),
        spending: match (&entry.requests, &entry.spending) {
            (Some(of), _) => requests(of)?,
            (None, Some(of)) => spending(of)?,
            (None, None) => Spending::default(),
        },
    })
}

/// Begun of a quota of requests.
fn requests(of: &v1::RequestSpending) -> Result<Spending, String> {
    let most = Ru::MAX.0 / Unit::REQUEST.0;
    let whole = |field: &'static str, value: u64| {
        let requests = i64::try_from(value).ok().filter(|value| *value <= most).map(Ru::whole);
        requests.ok_or_else(|| format!("{field}: {value} is out of range: 0 to {most}"))
    };
    Ok(Spending {
        window: of.window,
        used: whole("requests.used", of.used)?,
        ceiling: whole("requests.ceiling", of.ceiling)?,
        unit: Unit::Requests,
        offered: rate("requests.offered_rate", of.offered_rate)?,
        running: Ru::ZERO,
    })
}

fn spending(of: &v1::Spending) -> Result<Spending, String> {
    Ok(Spending {
        window: of.window,
        used: amount("used_micro_ru", of.used_micro_ru)?,
        ceiling: amount("ceiling_micro_ru", of.ceiling_micro_ru)?,
        running: amount("spending.running_micro_ru", of.running_micro_ru)?,
        ..Spending::default()
    })
}

fn amount(field: &'static str, micro_ru: i64) -> Result<Ru, String> {
    let out_of_range = || format!("{field}: {micro_ru} is out of range: 0 to {}", Ru::MAX.0);
    Some(Ru(micro_ru)).filter(|ru| (Ru::ZERO..=Ru::MAX).contains(ru)).ok_or_else(out_of_range)
}

fn rate(field: &'static str, micro_ru_per_s: i64) -> Result<Rate, String> {
    let out_of_range = || format!("{field}: {micro_ru_per_s} is out of range: 0 to {}", Rate::MAX.0);
    Some(Rate(micro_ru_per_s)).filter(|rate| (Rate::ZERO..=Rate::MAX).contains(rate)).ok_or_else(out_of_range)
}

fn consumption_in(total: &v1::Consumption) -> Result<Total, String> {
    total.to_words().map(Total::from_words)
}

/// Decodes used resources.
pub(super) fn usage_in(usage: v1::Usage) -> Usage {
    Usage {
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

/// Encodes consumption.
pub(crate) fn consumption(total: &Total) -> v1::Consumption {
    v1::Consumption::from_words(&total.to_words())
}

/// Encodes used resources.
pub(super) fn usage_out(usage: &Usage) -> v1::Usage {
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

/// Encodes the answer to a renewal.
pub(crate) fn granted(renewed: Renewed) -> v1::Granted {
    v1::Granted {
        seq: renewed.seq,
        epoch: renewed.epoch,
        entries: renewed.entries.into_iter().map(grant_entry).collect(),
        durable_seq: renewed.durable_seq,
        standing: renewed.standing.unwrap_or_default(),
        shed: renewed.shed,
        refused: refused(renewed.refused),
    }
}

/// Encodes reports that were not counted.
pub(crate) fn refused(refused: Vec<RefusedReport>) -> Vec<v1::RefusedReport> {
    let encoded = refused.into_iter().map(|report| v1::RefusedReport {
        group: report.group,
        incarnation: report.incarnation,
        message: report.message,
    });
    encoded.collect()
}

fn grant_entry(entry: EntryOut) -> v1::GrantEntry {
    let demote_to = entry.demote_to.map(|target| target.to_string()).unwrap_or_default();
    let (grant, proof) = match entry.answer {
        Answer::Grant(grant, proof) => (grant, proof),
        Answer::Refused(message) => {
            let status = v1::GrantStatus::Refused.into();
            return v1::GrantEntry { group: entry.group, status, message, ..v1::GrantEntry::default() };
        }
    };
    let (fallback_part_rate, fallback_part_us) = match grant {
        Grant::Leased(LeaseTerms { fallback, .. })
        | Grant::Unlimited { fallback, .. }
        | Grant::Recovering { fallback: Some(fallback), .. } => part(fallback),
        Grant::UnknownGroup | Grant::Recovering { fallback: None, .. } => (0, 0),
    };
    let encoded = match grant {
        Grant::Leased(terms) => leased(&terms),
        Grant::Unlimited { ttl, renew_after, fallback } => v1::GrantEntry {
            status: v1::GrantStatus::Unlimited.into(),
            ttl_us: ttl.0,
            renew_after_us: renew_after.0,
            fallback: Some(fallback_out(fallback)),
            ..v1::GrantEntry::default()
        },
        Grant::UnknownGroup => v1::GrantEntry {
            status: v1::GrantStatus::UnknownGroup.into(),
            message: format!(
                "group {} does not exist; create it or rebind its users",
                crate::quantity::cut(&entry.group)
            ),
            ..v1::GrantEntry::default()
        },
        Grant::Recovering { ask_again, fallback } => v1::GrantEntry {
            status: v1::GrantStatus::Recovering.into(),
            ask_again_us: ask_again.0,
            fallback: fallback.map(fallback_out),
            message:
                "the controller recovers from an unclean stop; new leases are given when old ones have ended"
                    .to_owned(),
            ..v1::GrantEntry::default()
        },
    };
    v1::GrantEntry { group: entry.group, proof, fallback_part_rate, fallback_part_us, demote_to, ..encoded }
}

/// The node's part of a group's fallback, and how long it lasts; zeros without one.
fn part(fallback: Fallback) -> (i64, u64) {
    match fallback {
        Fallback::Part(rate, lasts) => (rate.0, lasts.0),
        Fallback::Stop | Fallback::Rate(_) | Fallback::Unlimited => (0, 0),
    }
}

fn leased(terms: &LeaseTerms) -> v1::GrantEntry {
    // Names every term, so that none can be forgotten.
    let LeaseTerms {
        rate,
        cap,
        fill,
        lump,
        lump_after,
        ttl,
        renew_after,
        ask_again,
        max_fit,
        max_debt,
        fallback,
        ack_now,
        scarce,
        lump_wanted,
        enforcement: Enforcement { shadow, paced },
        allowance,
    } = *terms;
    let of = |unit| allowance.filter(|share| share.unit == unit);
    v1::GrantEntry {
        status: v1::GrantStatus::Leased.into(),
        rate: rate.0,
        cap_micro_ru: cap.0,
        fill_micro_ru: fill.0,
        lump_micro_ru: lump.0,
        lump_after_us: lump_after.0,
        ttl_us: ttl.0,
        renew_after_us: renew_after.0,
        ask_again_us: ask_again.0,
        max_fit_micro_ru: max_fit.0,
        max_debt_micro_ru: max_debt.0,
        fallback: Some(fallback_out(fallback)),
        ack_now,
        scarce,
        lump_wanted,
        shadow,
        paced,
        allowance: of(Unit::Ru).map(|share| Box::new(allowance_out(share))),
        requests: of(Unit::Requests).map(|share| Box::new(requests_out(share))),
        ..v1::GrantEntry::default()
    }
}

fn allowance_out(share: Allowance) -> v1::Allowance {
    v1::Allowance {
        window: share.window,
        ceiling_micro_ru: share.ceiling.0,
        amount_micro_ru: share.amount.0,
        left_micro_ru: share.left.0,
        resets_in_us: share.resets_in.0,
        window_us: share.length.0,
        rolls: share.rolls,
    }
}

/// Whole requests: nobody can begin a part of one.
fn requests_out(share: Allowance) -> v1::RequestAllowance {
    let whole = |amount: Ru| (amount.or_zero().0 / Unit::REQUEST.0).unsigned_abs();
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

fn fallback_out(fallback: Fallback) -> v1::Fallback {
    use v1::fallback::Kind;
    let kind = match fallback {
        Fallback::Stop => Kind::Rate(0),
        // A part travels in fields of its own; older nodes, which do not know these, have no fallback.
        Fallback::Part(..) => Kind::Rate(0),
        Fallback::Rate(rate) => Kind::Rate(rate.0),
        Fallback::Unlimited => Kind::Unlimited(true),
    };
    v1::Fallback { kind: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_out_of_range_are_refused_by_name() {
        let table: Vec<(&str, v1::RenewEntry)> = vec![
            ("held_rate", v1::RenewEntry { held_rate: -1, ..Default::default() }),
            ("held_cap", v1::RenewEntry { held_cap_micro_ru: i64::MAX, ..Default::default() }),
            ("held_lump", v1::RenewEntry { held_lump_micro_ru: -1, ..Default::default() }),
            ("returned", v1::RenewEntry { returned_micro_ru: i64::MIN, ..Default::default() }),
            ("demand_rate", v1::RenewEntry { demand_rate: Rate::MAX.0 + 1, ..Default::default() }),
            ("backlog", v1::RenewEntry { backlog_micro_ru: -1, ..Default::default() }),
            ("head", v1::RenewEntry { head_micro_ru: -1, ..Default::default() }),
            ("debt", v1::RenewEntry { debt_micro_ru: -1, ..Default::default() }),
            ("proof", v1::RenewEntry { proof: vec![0; 257], ..Default::default() }),
        ];
        for (field, message) in table {
            let error = entry(message).ask.unwrap_err();
            assert!(
                error.starts_with(field) && error.contains("at most") | error.contains("range"),
                "{error}"
            );
        }
        let total = v1::Consumption { write_micro_ru: -1, ..Default::default() };
        assert!(consumption_in(&total).unwrap_err().starts_with("write_micro_ru: -1"));
    }

    #[test]
    fn requests_are_counted_up_to_the_most_that_can_be_charged() {
        let most = u64::try_from(Ru::MAX.0 / Unit::REQUEST.0).unwrap();
        let of = |used, ceiling| v1::RequestSpending { window: 7, used, ceiling, offered_rate: 3 };
        let whole = |requests: u64| Ru::whole(i64::try_from(requests).unwrap());
        for (used, ceiling) in [(0, 0), (1, 2), (most - 1, most)] {
            let read = requests(&of(used, ceiling)).unwrap();
            let (used, ceiling) = (whole(used), whole(ceiling));
            let (unit, offered) = (Unit::Requests, Rate(3));
            assert_eq!(read, Spending { window: 7, used, ceiling, unit, offered, running: Ru::ZERO });
        }
        for (used, ceiling, field) in [(most + 1, 0, "requests.used"), (0, u64::MAX, "requests.ceiling")] {
            let refused = requests(&of(used, ceiling)).unwrap_err();
            assert!(refused.starts_with(field) && refused.ends_with(&format!("0 to {most}")), "{refused}");
        }
    }

    #[test]
    fn each_resource_that_was_used_is_read_and_told_as_itself() {
        let told = v1::Usage {
            cpu_ns: 1,
            read_requests: 2,
            read_batches: 3,
            read_bytes: 4,
            write_requests: 5,
            write_batches: 6,
            write_bytes: 7,
            net_in_bytes: 8,
            net_out_bytes: 9,
            cross_zone_bytes: 10,
        };
        let read = usage_in(told);
        assert_eq!(read.to_array(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        assert_eq!(usage_out(&read), told);
    }

    /// A report of 1000 us of waiting with these waits, as it is decoded.
    fn decoded(waited: Vec<v1::Waited>) -> ReportIn {
        let total = Some(v1::Consumption { waited_us: 1_000, ..Default::default() });
        let report = v1::Report { group: "g".to_owned(), total, waited, ..Default::default() };
        reports(vec![report]).unwrap().remove(0)
    }

    #[test]
    fn waits_that_cannot_be_are_refused_by_name_and_their_report_counts() {
        let piece = |since_us, lengths: &[u32], waits: &[u32], in_vain| v1::Waited {
            since_us,
            lengths: lengths.to_vec(),
            waits: waits.to_vec(),
            in_vain,
        };
        let bad = [
            ("waited: 17 pieces", vec![piece(0, &[], &[], 0); MAX_WAITED + 1]),
            ("waited.waits: 1 numbers for 2 lengths", vec![piece(0, &[1, 2], &[1], 0)]),
            ("waited.lengths: 1 at 1", vec![piece(0, &[1, 1], &[1, 1], 0)]),
            ("waited.lengths: 0 at 1", vec![piece(0, &[1, 0], &[1, 1], 0)]),
            ("waited.lengths: 105 at 0", vec![piece(0, &[105], &[1], 0)]),
            ("waited.lengths: 4294967295 at 1", vec![piece(0, &[3, u32::MAX], &[1, 1], 0)]),
            ("waited.in_vain: 4 is", vec![piece(0, &[0], &[3], 4)]),
            ("waited: waits of 65 us after 936 us", vec![piece(936, &[1], &[1], 0)]),
            ("waited: waits of 4294967295 us", vec![piece(0, &[0], &[u32::MAX], 0)]),
            ("waited: waits of 0 us after 18446744073709551615", vec![piece(u64::MAX, &[], &[], 0)]),
            ("waited: waits of 65 us after 990 us", vec![piece(0, &[1], &[1], 0), piece(990, &[1], &[1], 0)]),
        ];
        for (start, waited) in bad {
            let total = Total { waited_us: 1_000, ..Total::default() };
            let error = waited_in(&waited, &total).unwrap_err();
            assert!(error.starts_with(start), "{error}");
            let report = decoded(waited);
            assert_eq!((report.total, report.waited), (Ok(total), vec![]));
        }
        let report = decoded(vec![piece(0, &[0, 2], &[3, 5], 8), piece(935, &[1], &[1], 0)]);
        assert_eq!(report.total.unwrap().waited_us, 1_000);
        let [first, second] = [&report.waited[0], &report.waited[1]];
        assert_eq!((first.waits.as_slice(), first.in_vain), ([(0, 3), (2, 5)].as_slice(), 8));
        assert_eq!((second.since_us, second.waits.as_slice()), (935, [(1, 1)].as_slice()));
    }

    #[test]
    fn messages_are_bounded() {
        assert_eq!(renew(v1::Renew::default()).unwrap_err(), MessageError::NoSeq);
        let entries = vec![v1::RenewEntry::default(); MAX_ENTRIES + 1];
        let error = renew(v1::Renew { seq: 1, entries, ..Default::default() }).unwrap_err().to_string();
        assert!(error.contains("4097") && error.contains("4096"), "{error}");
        let many = vec![v1::Report::default(); MAX_ENTRIES + 1];
        assert!(reports(many).is_err());
        assert!(reports(vec![v1::Report::default()]).unwrap()[0].total.is_err());
    }

    #[test]
    fn a_node_is_told_every_term_of_its_lease() {
        let flags = |ack_now, scarce, lump_wanted| {
            let entry = leased(&LeaseTerms { ack_now, scarce, lump_wanted, ..LeaseTerms::default() });
            (entry.ack_now, entry.scarce, entry.lump_wanted)
        };
        for one in [(true, false, false), (false, true, false), (false, false, true)] {
            assert_eq!(flags(one.0, one.1, one.2), one);
        }
        let ahead = leased(&LeaseTerms { lump_after: Span(7), ..LeaseTerms::default() });
        assert_eq!(ahead.lump_after_us, 7);
    }

    #[test]
    fn consumption_round_trips() {
        let usage = v1::Usage { cpu_ns: 1, cross_zone_bytes: u64::MAX, ..Default::default() };
        let wire = v1::Consumption {
            cpu_micro_ru: 5,
            shadow_micro_ru: 6,
            waited_us: 7,
            usage: Some(usage),
            ..Default::default()
        };
        assert_eq!(consumption(&consumption_in(&wire).unwrap()), wire);
    }
}

#[cfg(test)]
mod parts_tests;
