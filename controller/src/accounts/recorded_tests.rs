//! What is answered of recorded consumption: how far back, and all figures of a replay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tidegate_core::units::Ru;
use tidegate_core::usage::{Consumption, RuParts};
use tidegate_proto::v1;

use super::history::Resolution;
use super::usage::Step;
use crate::clock::Clock;
use crate::leasing::renewal::{RenewIn, ReportIn};
use crate::service::{Service, ServiceConfig};
use crate::store::RedbStore;

const SECOND: u64 = 1_000_000;
const DAY_S: u64 = 86_400;

fn begun() -> (Service, Arc<AtomicU64>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(RedbStore::open(&folder.path().join("store")).unwrap());
    let now = Arc::<AtomicU64>::default();
    let service = Service::load(store, ServiceConfig::default(), Clock::driven(Arc::clone(&now))).unwrap();
    (service, now, folder)
}

#[test]
fn an_answer_goes_back_as_far_as_is_kept_to_the_second_and_no_further() {
    let (service, ..) = begun();
    let now = service.clock().unix_ms() / 1_000;
    for (step, usual, kept) in [
        (Step::Second, 600, 600),
        (Step::Stored(Resolution::Minute), DAY_S, 90 * DAY_S),
        (Step::Stored(Resolution::Hour), 90 * DAY_S, 90 * DAY_S),
    ] {
        let range = |from, to| service.accounts().range(step, from, to);
        assert_eq!(range(0, 0), now - usual..now + 1, "{step:?}");
        assert_eq!(range(1, 0), now - kept..now + 1, "{step:?}");
        assert_eq!(range(now - 9, now - 3), now - 9..now - 3);
        assert_eq!(range(now - 9, now + 50), now - 9..now + 1, "nothing is known of what comes");
        assert!(range(now + 9, 0).is_empty() && range(now - 3, now - 9).is_empty());
    }
}

#[test]
fn a_replay_says_all_of_what_was_recorded_and_of_what_would_have_been() {
    let (service, now, _folder) = begun();
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let begin = service.clock().unix_ms() / 1_000;
    // 6 RU in the first second, in which one operation more was refused, 8 in the third, 1 in the fourth.
    for (seq, ru, operations) in [(1, 6, 6), (2, 6, 6), (3, 14, 14), (4, 15, 15)] {
        let charged = RuParts::flat(Ru::whole(ru));
        let waited_us = operations * 2_000;
        let total = Consumption { charged, operations, throttled: 1, waited_us, ..Consumption::default() };
        let total = Ok(total.into());
        let report = ReportIn { group: "default".to_owned(), incarnation: 0, total, waited: Vec::new() };
        let request = RenewIn { seq, reports: vec![report], ..RenewIn::default() };
        service.leasing().renew(session.client, session.session, request).unwrap();
        service.upkeep().flush().unwrap();
        now.fetch_add(SECOND, Ordering::Relaxed);
    }
    let wish = v1::WhatIfRequest {
        group: "default".to_owned(),
        resolution: "second".to_owned(),
        ru_per_sec: "4".to_owned(),
        ..v1::WhatIfRequest::default()
    };
    let figures = |at_once: bool| v1::WhatIfFigures {
        throttled_ppm: if at_once { 62_500 } else { 0 },
        delayed_ppm: if at_once { 500_000 } else { 250_000 },
        throttled_time_ppm: if at_once { 250_000 } else { 0 },
        use_ppm: if at_once { 937_500 } else { 1_000_000 },
        p50_wait_us: if at_once { 251_904 } else { 0 },
        p99_wait_us: if at_once { 1_007_616 } else { 393_216 },
        admitted_ru: if at_once { "15" } else { "16" }.to_owned(),
        throttled_ru: if at_once { "1" } else { "0" }.to_owned(),
    };
    let proposed = v1::WhatIfOutcome {
        ru_per_sec: "4".to_owned(),
        burst: "4".to_owned(),
        policy: "token_bucket".to_owned(),
        even: Some(figures(false)),
        at_once: Some(figures(true)),
        quota: String::new(),
    };
    let answer = v1::WhatIfReply {
        group: "default".to_owned(),
        resolution: "second".to_owned(),
        from_unix_s: begin,
        to_unix_s: begin + 4,
        samples: 3,
        recorded_ru: "15".to_owned(),
        recorded_operations: 15,
        recorded_throttled: 1,
        recorded_wait_us: 2_000,
        wanted_ru: "16".to_owned(),
        peak_ru_per_sec: "8".to_owned(),
        current: None,
        proposed: Some(proposed),
        cheapest_even: "4.35".to_owned(),
        cheapest_at_once: "7.3".to_owned(),
        groups: 1,
    };
    assert_eq!(service.accounts().what_if(&wish).unwrap(), answer);
}
