//! Each figure is on the page under its own name: all are different, so that none can stand for another.

use tidegate_core::units::{RuTotal, Span};
use tidegate_core::usage::{Parts, Total};

use super::*;

/// Has the page a line for each?
fn shows<'a>(page: &str, lines: impl IntoIterator<Item = (&'a str, String)>) {
    for (name, value) in lines {
        let line = format!("\ntidegate_{name} {value}\n");
        assert!(page.contains(&line), "{line} is not on the page: {page}");
    }
}

#[test]
fn each_count_is_under_its_own_name() {
    let metrics = Metrics::new();
    let counters = [
        ("renewals_total", &metrics.renewals),
        ("renewals_shed_total", &metrics.shed),
        ("lowers_total", &metrics.lowers),
        ("lowers_dropped_total", &metrics.lowers_dropped),
        ("leases_expired_total", &metrics.expired),
        ("watchers_dropped_total", &metrics.watchers_dropped),
        ("reports_apart_total", &metrics.apart),
        ("set_back_total", &metrics.set_back),
        ("twins_total", &metrics.twins),
        ("store_commit_failures_total", &metrics.commit_failures),
        ("changes_total", &metrics.changes),
        ("statement_watches_evicted_total", &metrics.watches_evicted),
        ("runaways_evicted_total", &metrics.runaways_evicted),
        ("statements_evicted_total", &metrics.statements_evicted),
    ];
    let gauges = [
        ("clients", &metrics.clients),
        ("watchers", &metrics.watchers),
        ("groups", &metrics.groups),
        ("bindings", &metrics.bindings),
        ("recovering", &metrics.recovering),
        ("silent", &metrics.silent),
        ("epoch", &metrics.epoch),
        ("leads", &metrics.leads),
        ("statement_watches", &metrics.watches),
        ("statements", &metrics.statements),
    ];
    let counted: Vec<_> = counters.into_iter().zip(1_u64..).collect();
    let set: Vec<_> = gauges.into_iter().zip(101_i64..).collect();
    for ((_, counter), count) in &counted {
        counter.inc_by(*count);
    }
    for ((_, gauge), count) in &set {
        gauge.set(*count);
    }
    let page = metrics.page(&[]).unwrap();
    shows(&page, counted.iter().map(|((name, _), count)| (*name, count.to_string())));
    shows(&page, set.iter().map(|((name, _), count)| (*name, count.to_string())));
}

#[test]
fn each_figure_with_labels_is_under_its_own_name() {
    let metrics = Metrics::new();
    metrics.alarms.open("throttled", 2);
    metrics.alarms.queued("ops", 3);
    metrics.alarms.dropped("ops", 4);
    (0..5).for_each(|_| metrics.alarms.tried("ops", "delivered"));
    metrics.providers.fetched("sso", Some(1_700_000_000));
    (0..2).for_each(|_| metrics.providers.fetched("sso", None));
    (0..6).for_each(|_| metrics.convicted("kill"));
    (0..7).for_each(|_| metrics.refuse("not_given"));
    let (status, _) = metrics.statuses.last().unwrap();
    (0..8).for_each(|_| metrics.granted(status));
    let charged = Parts {
        cpu: RuTotal(1_000_000),
        read: RuTotal(2_000_000),
        write: RuTotal(4_000_000),
        network: RuTotal(8_000_000),
        flat: RuTotal(16_000_000),
    };
    let more = Total { charged, operations: 3, throttled: 4, waited_us: 5_500_000, ..Total::default() };
    metrics.charges("web").add(&more);
    let mut waited = Waited::default();
    (0..90).for_each(|_| waited.count(Span::millis(2), false));
    (0..10).for_each(|_| waited.count(Span::millis(300), false));
    let web = GroupSample {
        name: "web".to_owned(),
        committed: Rate::whole(11),
        pool: Ru::whole(12),
        demand: Rate::whole(13),
        limit: Some(Rate::whole(14)),
        warm: Some(Rate::whole(15)),
        waits: Some(waited),
    };
    let plain = GroupSample { name: "plain".to_owned(), limit: None, warm: None, waits: None, ..web.clone() };
    let page = metrics.page(&[web, plain]).unwrap();
    let grants = format!("grants_total{{status=\"{status}\"}}");
    let lines = [
        ("alarms_open{kind=\"throttled\"}", "2"),
        ("webhook_queued{webhook=\"ops\"}", "3"),
        ("webhook_dropped_total{webhook=\"ops\"}", "4"),
        ("webhook_deliveries_total{webhook=\"ops\",outcome=\"delivered\"}", "5"),
        ("provider_fetches_total{provider=\"sso\",outcome=\"fetched\"}", "1"),
        ("provider_fetches_total{provider=\"sso\",outcome=\"failed\"}", "2"),
        ("provider_keys_timestamp_seconds{provider=\"sso\"}", "1700000000"),
        ("convictions_total{action=\"kill\"}", "6"),
        ("refused_total{reason=\"not_given\"}", "7"),
        (grants.as_str(), "8"),
        ("ru_charged_total{group=\"web\"}", "31.0"),
        ("operations_total{group=\"web\"}", "3"),
        ("throttled_total{group=\"web\"}", "4"),
        ("wait_seconds_total{group=\"web\"}", "5.5"),
        ("group_committed_ru_per_second{group=\"web\"}", "11.0"),
        ("group_pool_ru{group=\"web\"}", "12.0"),
        ("group_demand_ru_per_second{group=\"web\"}", "13.0"),
        ("group_limit_ru_per_second{group=\"web\"}", "14.0"),
        ("group_warm_up_ru_per_second{group=\"web\"}", "15.0"),
        ("group_wait_seconds{group=\"web\",quantile=\"0.5\"}", "0.002048"),
        ("group_wait_seconds{group=\"web\",quantile=\"0.99\"}", "0.32768"),
        ("group_pool_ru{group=\"plain\"}", "12.0"),
    ];
    shows(&page, lines.map(|(name, value)| (name, value.to_owned())));
    for absent in ["limit_ru_per_second", "warm_up_ru_per_second", "wait_seconds"] {
        assert!(!page.contains(&format!("tidegate_group_{absent}{{group=\"plain\"")), "{absent}");
    }
}
