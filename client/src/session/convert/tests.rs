//! Each field of a message, and the ends of its range.

mod ranges;

use tidegate_core::exchange::Held;

use super::*;

fn leased() -> v1::GrantEntry {
    v1::GrantEntry {
        group: "g".into(),
        status: v1::GrantStatus::Leased.into(),
        rate: 5,
        cap_micro_ru: 6,
        ttl_us: 7,
        fallback: Some(v1::Fallback { kind: Some(v1::fallback::Kind::Rate(8)) }),
        ack_now: true,
        ..v1::GrantEntry::default()
    }
}

#[test]
fn a_lease_is_read() {
    let expected = LeaseTerms {
        rate: Rate(5),
        cap: Ru(6),
        ttl: Span(7),
        fallback: Fallback::Rate(Rate(8)),
        ack_now: true,
        ..LeaseTerms::default()
    };
    assert_eq!(grant(&leased()), Ok(Grant::Leased(expected)));
}

/// Each field has a value of its own, so that none can stand for another.
#[test]
fn every_field_of_a_lease_is_read_from_its_own() {
    let entry = v1::GrantEntry {
        group: "g".into(),
        status: v1::GrantStatus::Leased.into(),
        rate: 1,
        cap_micro_ru: 2,
        fill_micro_ru: 3,
        lump_micro_ru: 4,
        lump_after_us: 5,
        ttl_us: 6,
        renew_after_us: 7,
        ask_again_us: 8,
        max_fit_micro_ru: 9,
        max_debt_micro_ru: 10,
        fallback: Some(v1::Fallback { kind: Some(v1::fallback::Kind::Rate(11)) }),
        allowance: Some(Box::new(v1::Allowance {
            window: 12,
            ceiling_micro_ru: 13,
            amount_micro_ru: 14,
            left_micro_ru: 15,
            resets_in_us: 16,
            window_us: 17,
            rolls: false,
        })),
        ..v1::GrantEntry::default()
    };
    let terms = LeaseTerms {
        rate: Rate(1),
        cap: Ru(2),
        fill: Ru(3),
        lump: Ru(4),
        lump_after: Span(5),
        ttl: Span(6),
        renew_after: Span(7),
        ask_again: Span(8),
        max_fit: Ru(9),
        max_debt: Ru(10),
        fallback: Fallback::Rate(Rate(11)),
        ack_now: false,
        scarce: false,
        lump_wanted: false,
        enforcement: Enforcement { shadow: false, paced: false },
        allowance: Some(Allowance {
            window: 12,
            unit: Unit::Ru,
            ceiling: Ru(13),
            amount: Ru(14),
            left: Ru(15),
            resets_in: Span(16),
            length: Span(17),
            rolls: false,
        }),
    };
    assert_eq!(grant(&entry), Ok(Grant::Leased(terms)));

    type Set = fn(&mut v1::GrantEntry, &mut LeaseTerms);
    let flags: [Set; 6] = [
        |entry, terms| (entry.ack_now, terms.ack_now) = (true, true),
        |entry, terms| (entry.scarce, terms.scarce) = (true, true),
        |entry, terms| (entry.lump_wanted, terms.lump_wanted) = (true, true),
        |entry, terms| (entry.shadow, terms.enforcement.shadow) = (true, true),
        |entry, terms| (entry.paced, terms.enforcement.paced) = (true, true),
        |entry, terms| {
            entry.allowance.as_mut().unwrap().rolls = true;
            terms.allowance.as_mut().unwrap().rolls = true;
        },
    ];
    for (which, set) in flags.into_iter().enumerate() {
        let (mut entry, mut terms) = (entry.clone(), terms);
        set(&mut entry, &mut terms);
        assert_eq!(grant(&entry), Ok(Grant::Leased(terms)), "flag {which}");
    }
}

#[test]
fn a_share_of_requests_is_read_in_whole_requests_and_before_one_of_ru() {
    let requests = v1::RequestAllowance {
        window: 1,
        ceiling: 2,
        amount: 3,
        left: 4,
        resets_in_us: 5,
        window_us: 6,
        rolls: false,
    };
    let share = Allowance {
        window: 1,
        unit: Unit::Requests,
        ceiling: Ru::whole(2),
        amount: Ru::whole(3),
        left: Ru::whole(4),
        resets_in: Span(5),
        length: Span(6),
        rolls: false,
    };
    let both = |rolls| v1::GrantEntry {
        requests: Some(Box::new(v1::RequestAllowance { rolls, ..requests })),
        allowance: Some(Box::new(v1::Allowance { window: 9, ..v1::Allowance::default() })),
        ..leased()
    };
    for rolls in [false, true] {
        let Ok(Grant::Leased(terms)) = grant(&both(rolls)) else { panic!("{:?}", grant(&both(rolls))) };
        assert_eq!(terms.allowance, Some(Allowance { rolls, ..share }));
    }
}

#[test]
fn what_is_no_lease_says_no_more_than_its_own_fields() {
    let with = |status: v1::GrantStatus| v1::GrantEntry {
        status: status.into(),
        ttl_us: 1,
        renew_after_us: 2,
        ask_again_us: 3,
        message: "no entry for it".into(),
        ..leased()
    };
    let fallback = Fallback::Rate(Rate(8));
    let unlimited = Grant::Unlimited { ttl: Span(1), renew_after: Span(2), fallback };
    assert_eq!(grant(&with(v1::GrantStatus::Unlimited)), Ok(unlimited));
    let recovering = Grant::Recovering { ask_again: Span(3), fallback: Some(fallback) };
    assert_eq!(grant(&with(v1::GrantStatus::Recovering)), Ok(recovering));
    assert_eq!(grant(&with(v1::GrantStatus::UnknownGroup)), Ok(Grant::UnknownGroup));
    let refused = GrantError::Refused { group: "g".into(), message: "no entry for it".into() };
    assert_eq!(grant(&with(v1::GrantStatus::Refused)), Err(refused));
}

#[test]
fn the_ends_of_the_ranges_are_within_them() {
    type Set = fn(&mut v1::GrantEntry, u64);
    let (ru, rate) = (Ru::MAX.0.unsigned_abs(), Rate::MAX.0.unsigned_abs());
    let ends: [(&str, u64, Set); 17] = [
        ("rate", rate, |e, end| e.rate = end.cast_signed()),
        ("cap_micro_ru", ru, |e, end| e.cap_micro_ru = end.cast_signed()),
        ("fill_micro_ru", ru, |e, end| e.fill_micro_ru = end.cast_signed()),
        ("lump_micro_ru", ru, |e, end| e.lump_micro_ru = end.cast_signed()),
        ("max_fit_micro_ru", ru, |e, end| e.max_fit_micro_ru = end.cast_signed()),
        ("max_debt_micro_ru", ru, |e, end| e.max_debt_micro_ru = end.cast_signed()),
        ("lump_after_us", MAX_SPAN.0, |e, end| e.lump_after_us = end),
        ("ttl_us", MAX_SPAN.0, |e, end| e.ttl_us = end),
        ("renew_after_us", MAX_SPAN.0, |e, end| e.renew_after_us = end),
        ("ask_again_us", MAX_SPAN.0, |e, end| e.ask_again_us = end),
        ("proof", 1_024, |e, end| e.proof = vec![0; usize::try_from(end).unwrap()]),
        ("ceiling_micro_ru", ru, |e, end| {
            e.allowance.get_or_insert_default().ceiling_micro_ru = end.cast_signed()
        }),
        ("resets_in_us", MAX_WINDOW.0, |e, end| e.allowance.get_or_insert_default().resets_in_us = end),
        ("window_us", MAX_WINDOW.0, |e, end| e.allowance.get_or_insert_default().window_us = end),
        ("requests.ceiling", ru / 1_000_000, |e, end| e.requests.get_or_insert_default().ceiling = end),
        ("resets_in_us", MAX_WINDOW.0, |e, end| e.requests.get_or_insert_default().resets_in_us = end),
        ("window_us", MAX_WINDOW.0, |e, end| e.requests.get_or_insert_default().window_us = end),
    ];
    for (field, end, set) in ends {
        let at = |value| {
            let mut entry = leased();
            set(&mut entry, value);
            grant(&entry)
        };
        assert!(at(end).is_ok(), "{field} at {end}: {:?}", at(end));
        let beyond = at(end + 1).unwrap_err().to_string();
        // A proof is counted, not shown.
        let value = (end + 1).to_string();
        assert!(beyond.starts_with("grant for group g: "), "{beyond}");
        assert!(beyond.contains(field) && beyond.contains(&value), "{beyond}");
    }
    let most = v1::LowerEntry { group: "g".into(), rate_at_most: Rate::MAX.0 };
    assert_eq!(lower(&most), Ok(Rate::MAX));
    let beyond = lower(&v1::LowerEntry { rate_at_most: Rate::MAX.0 + 1, ..most }).unwrap_err();
    assert_eq!(
        beyond.to_string(),
        "grant for group g: rate_at_most is 1000000000000001, outside 0 to 1000000000000000"
    );
}

#[test]
fn a_renewal_says_everything_in_its_own_field() {
    let group = GroupName::new("g").unwrap();
    let spending = Spending {
        window: 20,
        used: Ru::whole(21),
        ceiling: Ru::whole(22),
        unit: Unit::Ru,
        offered: Rate(23),
        running: Ru(24),
    };
    let ask = Ask {
        acked_seq: 1,
        held: Held { rate: Rate(2), cap: Ru(3), lump: Ru(4) },
        returned: Ru(5),
        refunded: Ru(6),
        running: Ru(7),
        largest: Ru(8),
        demand: Rate(9),
        backlog: Ru(10),
        head: Ru(11),
        steady: Rate(12),
        beside: Ru(13),
        ahead: Span(14),
        debt: Ru(15),
        waiting: 16,
        spending,
    };
    let entry = v1::RenewEntry {
        group: "g".into(),
        acked_seq: 1,
        held_rate: 2,
        held_cap_micro_ru: 3,
        held_lump_micro_ru: 4,
        returned_micro_ru: 5,
        refunded_micro_ru: 6,
        running_micro_ru: 7,
        largest_micro_ru: 8,
        demand_rate: 9,
        backlog_micro_ru: 10,
        head_micro_ru: 11,
        steady_rate: 12,
        beside_micro_ru: 13,
        ahead_us: 14,
        debt_micro_ru: 15,
        waiting: 16,
        proof: vec![17, 18],
        spending: Some(v1::Spending {
            window: 20,
            used_micro_ru: 21_000_000,
            ceiling_micro_ru: 22_000_000,
            running_micro_ru: 24,
        }),
        requests: None,
    };
    assert_eq!(renew_entry(&group, &ask, &[17, 18]), entry);

    let counted = Ask { spending: Spending { unit: Unit::Requests, ..spending }, ..ask };
    let requests = v1::RequestSpending { window: 20, used: 21, ceiling: 22, offered_rate: 23 };
    let of_requests = v1::RenewEntry { spending: None, requests: Some(requests), ..entry.clone() };
    assert_eq!(renew_entry(&group, &counted, &[17, 18]), of_requests);

    for unit in [Unit::Ru, Unit::Requests] {
        let none = Ask { spending: Spending { window: 0, unit, ..spending }, ..ask };
        let without = v1::RenewEntry { spending: None, requests: None, ..entry.clone() };
        assert_eq!(renew_entry(&group, &none, &[17, 18]), without, "{unit:?} without a share");
    }
}

#[test]
fn a_report_says_whose_it_is_and_every_field_of_its_total() {
    let total = Total::from_words(std::array::from_fn(|word| word as u128 + 1));
    let report = report(&GroupName::new("g").unwrap(), 7, &total);
    assert_eq!((&*report.group, report.incarnation, report.waited.len()), ("g", 7, 0));
    assert_eq!(report.total.unwrap().to_words(), Ok(total.to_words()));
}

#[test]
fn resources_used_are_written_field_by_field() {
    let usage = Usage::from_array(std::array::from_fn(|field| field as u64 + 1));
    let Usage { cpu_ns, read_requests, read_batches, read_bytes, .. } = usage;
    let Usage { write_requests, write_batches, write_bytes, .. } = usage;
    let Usage { net_in_bytes, net_out_bytes, cross_zone_bytes, .. } = usage;
    let said = v1::Usage {
        cpu_ns,
        read_requests,
        read_batches,
        read_bytes,
        write_requests,
        write_batches,
        write_bytes,
        net_in_bytes,
        net_out_bytes,
        cross_zone_bytes,
    };
    assert_eq!(usage_message(&usage), said);
}

#[test]
fn a_part_of_a_fallback_stands_in_its_place() {
    let told = |entry: v1::GrantEntry| match grant(&entry) {
        Ok(Grant::Leased(terms)) => Some(terms.fallback),
        Ok(Grant::Recovering { fallback, .. }) => fallback,
        other => panic!("{other:?}"),
    };
    let part = v1::GrantEntry { fallback_part_rate: 5, fallback_part_us: 9, ..leased() };
    let recovering = |entry| v1::GrantEntry { status: v1::GrantStatus::Recovering.into(), ..entry };
    assert_eq!(told(part.clone()), Some(Fallback::Part(Rate(5), Span(9))));
    assert_eq!(told(v1::GrantEntry { fallback_part_rate: 0, ..part.clone() }), Some(Fallback::Stop));
    assert_eq!(told(v1::GrantEntry { fallback_part_us: 0, ..part.clone() }), Some(Fallback::Rate(Rate(8))));
    assert_eq!(told(recovering(part)), Some(Fallback::Part(Rate(5), Span(9))));
    assert_eq!(told(recovering(v1::GrantEntry { fallback: None, ..leased() })), None);
}

#[test]
fn fields_out_of_range_are_refused_by_name() {
    type Break = fn(&mut v1::GrantEntry);
    let cases: [(&str, Break); 12] = [
        ("fallback_part_rate", |e| (e.fallback_part_rate, e.fallback_part_us) = (-1, 1)),
        ("fallback_part_us", |e| e.fallback_part_us = u64::MAX),
        ("rate", |e| e.rate = -1),
        ("rate", |e| e.rate = i64::MAX),
        ("cap_micro_ru", |e| e.cap_micro_ru = i64::MIN),
        ("fill_micro_ru", |e| e.fill_micro_ru = i64::MAX),
        ("lump_micro_ru", |e| e.lump_micro_ru = -1),
        ("max_fit_micro_ru", |e| e.max_fit_micro_ru = -5),
        ("max_debt_micro_ru", |e| e.max_debt_micro_ru = -5),
        ("ttl_us", |e| e.ttl_us = u64::MAX),
        ("fallback.rate", |e| e.fallback = Some(v1::Fallback { kind: Some(v1::fallback::Kind::Rate(-3)) })),
        ("proof", |e| e.proof = vec![0; 2_000]),
    ];
    for (field, break_it) in cases {
        let mut entry = leased();
        break_it(&mut entry);
        let error = grant(&entry).unwrap_err().to_string();
        assert!(error.contains("group g") && error.contains(field), "{error}");
    }
    for status in [0, 5, 99, -1] {
        let error = grant(&v1::GrantEntry { status, ..leased() }).unwrap_err().to_string();
        // The refusal of a request has its own words.
        assert!(error.contains(&format!("status {status}")) || status == 5, "{error}");
    }
    assert!(lower(&v1::LowerEntry { group: "g".into(), rate_at_most: -1 }).is_err());
}

proptest::proptest! {
    #[test]
    fn whatever_arrives_is_within_the_limits_or_refused(
        status: i32, amounts: [i64; 6], spans: [u64; 3], fallback in proptest::option::of(proptest::num::i64::ANY),
    ) {
        let status = status.rem_euclid(7);
        let entry = v1::GrantEntry {
            status,
            rate: amounts[0],
            cap_micro_ru: amounts[1],
            fill_micro_ru: amounts[2],
            lump_micro_ru: amounts[3],
            max_fit_micro_ru: amounts[4],
            max_debt_micro_ru: amounts[5],
            ttl_us: spans[0],
            renew_after_us: spans[1],
            ask_again_us: spans[2],
            fallback: fallback.map(|rate| v1::Fallback { kind: Some(v1::fallback::Kind::Rate(rate)) }),
            ..v1::GrantEntry::default()
        };
        if let Ok(Grant::Leased(terms)) = grant(&entry) {
            assert!((0..=Rate::MAX.0).contains(&terms.rate.0));
            for amount in [terms.cap, terms.fill, terms.lump, terms.max_fit, terms.max_debt] {
                assert!((0..=Ru::MAX.0).contains(&amount.0));
            }
            assert!([terms.ttl, terms.renew_after, terms.ask_again].iter().all(|span| *span <= MAX_SPAN));
        }
    }
}
