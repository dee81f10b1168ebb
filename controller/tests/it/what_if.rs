//! What if: minutes that outlive their day, seconds in memory, and the replay of both by every surface.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use tidegate_controller::audit::Actor;
use tidegate_controller::service::Service;
use tidegate_controller::store::records::pair_key;
use tidegate_controller::store::{Store, Table, Write};
use tidegate_core::group::GroupId;
use tidegate_core::units::Ru;
use tidegate_proto::v1;

use crate::support::{Faulty, Lab, MemoryStore, Node, group, report, started, tell};

const MINUTE_US: u64 = 60 * 1_000_000;
const DAY_US: u64 = 24 * 60 * MINUTE_US;

/// Charges of each minute, in RU, and when it begins.
fn minutes(service: &Service, from_unix_s: u64) -> Vec<(u64, Ru)> {
    let points = service.accounts().usage_history("default", "minute", from_unix_s, 0).unwrap();
    points.into_iter().map(|(start, _, amount)| (start, amount.ru().clamped())).collect()
}

/// Lets a node charge so many RU more in each minute, from a whole hour on, and tidies in between as the server does.
/// Returns the first second.
fn work(service: &Service, now: &Arc<AtomicU64>, ru: &[i64]) -> u64 {
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let begin = service.clock().unix_ms() / 1_000;
    let mut sum = 0;
    for (seq, ru) in (1..).zip(ru) {
        sum += ru;
        tell(service, &session, seq, 1, sum);
        service.upkeep().flush().unwrap();
        service.upkeep().tidy().unwrap();
        now.fetch_add(MINUTE_US, Ordering::Relaxed);
    }
    begin
}

/// Tidies for so many minutes, as the server does.
fn tidy(service: &Service, now: &AtomicU64, minutes: u64) {
    for _ in 0..minutes {
        service.upkeep().tidy().unwrap();
        now.fetch_add(MINUTE_US, Ordering::Relaxed);
    }
}

/// The key of the oldest minute that is stored in full.
fn oldest_minute(store: &MemoryStore) -> Option<Vec<u8>> {
    let mut oldest = None;
    let mut visit = |key: &[u8], _: &[u8]| {
        oldest = Some(key.to_vec());
        Ok(ControlFlow::Break(()))
    };
    store.scan(Table::Minutes, &[], &mut visit).unwrap();
    oldest
}

#[test]
fn minutes_outlive_their_day_and_starts_and_go_after_ninety() {
    let store = Arc::new(MemoryStore::default());
    let now = Arc::new(AtomicU64::new(DAY_US));
    let service = started(&store, &now);
    let charges: Vec<i64> = (0..150).map(|minute| 1 + minute % 7).collect();
    let begin = work(&service, &now, &charges);
    let all: Vec<(u64, Ru)> =
        (0..).zip(&charges).map(|(minute, ru)| (begin + minute * 60, Ru::whole(*ru))).collect();
    assert_eq!(minutes(&service, 0), all);
    // A start in between packs what is packed already, and the hours that are not.
    drop(service);
    let service = started(&store, &now);
    tidy(&service, &now, 10);
    // The oldest hour has lost its first minutes when the next start packs it again.
    now.store(2 * DAY_US + 30 * MINUTE_US, Ordering::Relaxed);
    tidy(&service, &now, 1);
    drop(service);
    assert_eq!(oldest_minute(&store), Some(pair_key(begin + 30 * 60, GroupId::DEFAULT)));
    let service = started(&store, &now);
    tidy(&service, &now, 2);
    now.fetch_add(DAY_US, Ordering::Relaxed);
    tidy(&service, &now, 10);
    assert_eq!(minutes(&service, 0), [], "the last day is what is usual");
    assert_eq!(minutes(&service, begin), all, "by the minute, from short rows");
    let points = service.accounts().usage_history("default", "minute", begin, 0).unwrap();
    assert!(points.iter().all(|(_, length, amount)| *length == 60 && amount.operations <= 1));
    // A week of minutes at a time.
    now.fetch_add(8 * DAY_US, Ordering::Relaxed);
    let error = service.accounts().usage_history("default", "minute", begin, 0).unwrap_err();
    assert!(error.to_string().contains("at most 10080; ask for parts"), "{error}");
    let wish = v1::WhatIfRequest { from_unix_s: begin, ..wish("default", "1") };
    assert_eq!(service.accounts().what_if(&wish).unwrap().samples, 150);
    now.fetch_add(90 * DAY_US, Ordering::Relaxed);
    tidy(&service, &now, 2);
    let gone = service.accounts().what_if(&wish).unwrap_err();
    assert!(gone.to_string().starts_with("nothing of group default is recorded by the minute"), "{gone}");
}

/// An hour counts as packed once its rows are stored: until then its minutes stay to be packed.
#[test]
fn minutes_outlive_their_day_if_the_disk_was_full_when_their_hour_was_over() {
    let disk = Arc::new(Faulty::over(Arc::new(MemoryStore::default())));
    let now = Arc::new(AtomicU64::new(DAY_US));
    let service = started(&disk, &now);
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let begin = service.clock().unix_ms() / 1_000;
    let mut failed = 0;
    for minute in 1..=150 {
        tell(&service, &session, minute, 1, i64::try_from(minute).unwrap());
        service.upkeep().flush().unwrap();
        disk.fill(true);
        failed += u32::from(service.upkeep().tidy().is_err());
        disk.fill(false);
        now.fetch_add(MINUTE_US, Ordering::Relaxed);
    }
    assert!(failed > 60, "{failed}");
    let all: Vec<(u64, Ru)> = (0..150).map(|minute| (begin + minute * 60, Ru::whole(1))).collect();
    for days in [0, 2] {
        now.fetch_add(days * DAY_US, Ordering::Relaxed);
        tidy(&service, &now, 10);
        assert_eq!(minutes(&service, begin), all, "after {days} days");
    }
}

fn wish(group: &str, rate: &str) -> v1::WhatIfRequest {
    v1::WhatIfRequest { group: group.to_owned(), ru_per_sec: rate.to_owned(), ..v1::WhatIfRequest::default() }
}

#[test]
fn a_damaged_row_is_an_error_that_names_its_table() {
    let store = Arc::new(MemoryStore::default());
    let now = Arc::new(AtomicU64::new(3 * DAY_US));
    let service = started(&store, &now);
    let hour = service.clock().unix_ms() / 3_600_000 * 3_600 - 2 * 86_400;
    let row = Write::Put(Table::PastMinutes, pair_key(hour, GroupId::DEFAULT), vec![1, 60]);
    store.commit(&[row]).unwrap();
    let wish = v1::WhatIfRequest { from_unix_s: hour, ..wish("default", "1") };
    let error = service.accounts().what_if(&wish).unwrap_err().to_string();
    assert!(error.contains("PastMinutes"), "{error}");
}

#[test]
fn seconds_are_what_was_charged_in_them_and_a_start_forgets_them() {
    let store = Arc::new(MemoryStore::default());
    let now = Arc::new(AtomicU64::new(DAY_US));
    let service = started(&store, &now);
    let session = service.leasing().hello("node", 1, "test").unwrap();
    let begin = service.clock().unix_ms() / 1_000;
    for (seq, sum) in [(1, 5), (2, 5), (3, 12), (4, 13)] {
        tell(&service, &session, seq, 1, sum);
        service.upkeep().flush().unwrap();
        now.fetch_add(1_000_000, Ordering::Relaxed);
    }
    let seconds = |service: &Service| {
        let points = service.accounts().usage_history("default", "second", 0, 0).unwrap();
        points.into_iter().map(|(start, length, all)| (start - begin, length, all.ru().0)).collect::<Vec<_>>()
    };
    assert_eq!(seconds(&service), [(0, 1, 5_000_000), (2, 1, 7_000_000), (3, 1, 1_000_000)]);
    let by_second = v1::WhatIfRequest { resolution: "second".into(), ..wish("default", "4") };
    let answer = service.accounts().what_if(&by_second).unwrap();
    assert_eq!(
        (answer.samples, answer.recorded_ru.as_str(), answer.peak_ru_per_sec.as_str()),
        (3, "13", "7")
    );
    drop(service);
    assert_eq!(seconds(&started(&store, &now)), []);
}

#[tokio::test]
async fn grpc_and_rest_answer_alike_and_name_what_is_wrong() {
    let lab = Lab::start().await;
    lab.group("web", "1000").await;
    let mut node = Node::connect(&lab, "node", 1).await.unwrap();
    node.report(vec![report("web", 1, 600)]).await;
    let request = v1::WhatIfRequest { burst: "50".into(), patience_us: 1, ..wish("web", "5") };
    let reply = lab.admin().await.what_if(request).await.unwrap().into_inner();
    let (current, proposed) = (reply.current.clone().unwrap(), reply.proposed.clone().unwrap());
    assert_eq!((reply.samples, reply.wanted_ru.as_str(), reply.recorded_operations), (1, "600", 600));
    assert_eq!((current.ru_per_sec.as_str(), current.burst.as_str()), ("1000", "1000"));
    assert_eq!((proposed.ru_per_sec.as_str(), proposed.burst.as_str()), ("5", "50"));
    // 10 a second come, 5 go: the burst of 50 lasts ten seconds, and then half is refused.
    let (even, at_once) = (proposed.even.unwrap(), proposed.at_once.unwrap());
    assert!((405_000..=450_000).contains(&even.throttled_ppm), "{even:?}");
    assert_eq!((at_once.throttled_ppm, current.at_once.unwrap().throttled_ppm), (916_667, 0));
    assert_eq!(even.throttled_time_ppm, 1_000_000);

    let path = "/v1/groups/web/what-if?ru_per_sec=5&burst=50&patience_us=1";
    let (status, body) = lab.http("GET", path, None).await;
    assert_eq!((status, &body), (200, &serde_json::to_value(&reply).unwrap()));
    assert_eq!(body["proposed"]["even"]["throttled_ppm"], json!(even.throttled_ppm));

    // What groups below consume counts against the limit, too.
    let below = v1::Group { parent: "web".into(), ..group("below", "1000") };
    lab.running.service().definitions().create_group(&Actor::new(None, "test"), &below, false).unwrap();
    node.report(vec![report("below", 1, 60)]).await;
    let wish = || v1::WhatIfRequest { quota: "330 per day".into(), ..wish("web", "") };
    let all = lab.admin().await.what_if(wish()).await.unwrap().into_inner();
    assert_eq!((all.groups, all.wanted_ru.as_str()), (2, "660"));
    let history = v1::UsageHistoryRequest { group: "web".into(), below: true, ..Default::default() };
    let history = lab.admin().await.usage_history(history).await.unwrap().into_inner();
    let all_ru = |points: &[v1::HistoryPoint]| {
        points.iter().map(|point| point.amount.as_ref().unwrap().write_micro_ru).sum::<i64>()
    };
    assert_eq!((history.groups, all_ru(&history.points)), (2, 660_000_000));
    let (status, body) = lab.http("GET", "/v1/usage/web/history?below=true", None).await;
    assert_eq!((status, &body["groups"], body["points"].as_array().unwrap().len()), (200, &json!(2), 1));
    let (_, body) = lab.http("GET", "/v1/usage/web/history", None).await;
    assert_eq!((&body["groups"], &body["points"][0]["amount"]["operations"]), (&json!(1), &json!(600)));
    let proposed = all.proposed.unwrap();
    assert_eq!((proposed.quota.as_str(), proposed.even.unwrap().throttled_ppm), ("330 per day", 500_000));

    lab.group("idle", "unlimited").await;
    for (path, status, told) in [
        ("none/what-if?ru_per_sec=5", 404, "group none does not exist"),
        ("idle/what-if?ru_per_sec=5", 409, "nothing of group idle is recorded by the minute"),
        ("idle/what-if", 400, "without a limit nothing is throttled"),
        ("web/what-if?ru_per_sec=0", 400, "ru_per_sec"),
        ("web/what-if?ru_per_sec=-1", 400, "ru_per_sec"),
        ("web/what-if?burst=0", 400, "burst"),
        ("web/what-if?policy=leaky", 400, "paced"),
        ("web/what-if?quota=5%20per%20week", 400, "month"),
        ("web/what-if?resolution=day", 400, "\"second\", \"minute\" or \"hour\""),
        ("web/what-if?patience_us=3600000001", 400, "patience_us: 3600000001 is out of range"),
        ("web/what-if?burst=0.000001&patience_us=3600000000&ru_per_sec=1000000", 200, ""),
        ("web/what-if?rate=5", 400, "rate"),
    ] {
        let (found, body) = lab.http("GET", &format!("/v1/groups/{path}"), None).await;
        assert!(
            found == status && body.to_string().replace("\\\"", "\"").contains(told),
            "{path}: {found} {body}"
        );
    }
}
