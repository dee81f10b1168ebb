//! What a controller would refuse is not sent: a renewal stays within the ranges of its fields.

use super::*;

/// A renewal in which each amount, count and rate is this.
fn all(value: i64, unit: Unit) -> v1::RenewEntry {
    let (ru, rate) = (Ru(value), Rate(value));
    let spending = Spending { window: 1, used: ru, ceiling: ru, unit, offered: rate, running: ru };
    let ask = Ask {
        refunded: ru,
        running: ru,
        largest: ru,
        demand: rate,
        backlog: ru,
        steady: rate,
        beside: ru,
        debt: ru,
        spending,
        ..Ask::default()
    };
    renew_entry(&GroupName::new("g").unwrap(), &ask, &[])
}

#[test]
fn what_is_beyond_a_range_is_sent_as_its_end() {
    for (value, ru, rate) in [
        (-1, 0, 0),
        (i64::MIN, 0, 0),
        (Ru::MAX.0 + 1, Ru::MAX.0, Rate::MAX.0),
        (i64::MAX, Ru::MAX.0, Rate::MAX.0),
    ] {
        let expected = v1::RenewEntry {
            group: "g".into(),
            demand_rate: rate,
            backlog_micro_ru: ru,
            debt_micro_ru: ru,
            refunded_micro_ru: ru,
            running_micro_ru: ru,
            largest_micro_ru: ru,
            steady_rate: rate,
            beside_micro_ru: ru,
            ..v1::RenewEntry::default()
        };
        let spending =
            v1::Spending { window: 1, used_micro_ru: ru, ceiling_micro_ru: ru, running_micro_ru: ru };
        let of_ru = v1::RenewEntry { spending: Some(spending), ..expected.clone() };
        assert_eq!(all(value, Unit::Ru), of_ru, "{value}");
        let count = u64::try_from(ru / Unit::REQUEST.0).unwrap();
        let requests = v1::RequestSpending { window: 1, used: count, ceiling: count, offered_rate: rate };
        let of_requests = v1::RenewEntry { requests: Some(requests), ..expected };
        assert_eq!(all(value, Unit::Requests), of_requests, "{value}");
    }
}
