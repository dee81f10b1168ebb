//! What is counted of statements, where it is read: the controller's tables, and the page of metrics.

use tidegate_sql::{Answer, Code, Kind, Value};

use super::*;
use crate::metrics::Sample;

impl Stage {
    /// What a table of the controller has, as text, once it has a row that begins so.
    async fn table(&self, sql: &str, begin: &[&str]) -> Vec<Vec<String>> {
        let statement = Arc::new(parse_own(sql.as_bytes(), SqlDialect::PostgreSql).unwrap().unwrap());
        let told = async {
            let mut again = interval(Duration::from_millis(20));
            loop {
                again.tick().await;
                let governor = Arc::clone(&self.governor);
                let answer =
                    governor.answer(self.subject.clone(), SqlDialect::PostgreSql, Arc::clone(&statement));
                let Answer::Table(table) = answer.await.unwrap() else { panic!("{sql}") };
                let rows: Vec<Vec<String>> =
                    table.rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect();
                if rows.iter().any(|row| row.iter().zip(begin).all(|(value, wanted)| value == wanted)) {
                    return rows;
                }
            }
        };
        timeout(PATIENCE, told).await.expect(sql)
    }

    /// A count on the page of metrics; zero where it has no line.
    fn metric(&self, name: &str) -> u64 {
        let page = self.governor.metrics().page(Sample::default()).unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(&format!("tidegate_gateway_{name} ")));
        value.map_or(0, |value| value.parse().unwrap())
    }
}

fn text(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Int(number) => number.to_string(),
        Value::Float(number) => format!("{number:.6}"),
        Value::Text(text) => text,
    }
}

/// In RU, as the tables have it.
fn ru(amount: Ru) -> String {
    format!("{:.6}", crate::metrics::units(amount))
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_are_counted_in_the_controller_s_table_and_on_the_page() {
    let stage = Stage::with(Policy { max_wait: Duration::from_millis(1), ..Policy::default() }, None).await;
    let group = stage.group("own", "").await;
    let text = "insert into a select 1 from b";
    let did = Usage { cpu_ns: 6_000_000, read_bytes: 700_000, write_bytes: 30_000, ..Usage::default() };
    let progress = Progress { sent_rows: 2, changed_rows: 3, bytes_in: 4_000, bytes_out: 50_000 };
    let one = stage.answered(&group, text, false).await.unwrap().end(Some(did), progress, true);
    let other = stage.answered(&group, text, false).await.unwrap().end(None, progress, false);
    assert!(!one.estimated && other.estimated);
    // One that its group does not admit, and one that a watch refuses.
    lead_into_debt(&group).await;
    assert_eq!(stage.answered(&group, text, false).await.err().unwrap().code, Code::QUOTA);
    let (charged, usage) = (one.charged.plus(&other.charged), one.usage.plus(&other.usage));
    let sql = "select calls, throttled, rows, errors, estimated, ru, max_ru, cpu_ru, read_ru, write_ru, network_ru, \
               read_requests, read_batches, write_requests, write_batches, read_bytes, write_bytes, net_in_bytes, \
               net_out_bytes from tidegate.statements where resource_group = 'own'";
    let most = one.charged.total().max(other.charged.total());
    let amounts = [charged.total(), most, charged.cpu, charged.read, charged.write, charged.network].map(ru);
    let counts = [2, 1, 10, 1, 1].map(|number: u64| number.to_string());
    let used =
        [2, 2, 6, 2, usage.read_bytes, usage.write_bytes, 8_000, 100_000].map(|number| number.to_string());
    assert_eq!(stage.table(sql, &["2", "1"]).await, [[&counts[..], &amounts, &used].concat()]);
    assert!(usage.read_bytes >= 700_000 && usage.write_bytes >= 30_000, "{usage:?}");
    let outcomes = ["ok", "failed", "throttled"]
        .map(|outcome| stage.metric(&format!("statements_total{{outcome=\"{outcome}\"}}")));
    assert_eq!((outcomes, stage.metric("statements_estimated_total")), ([1; 3], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runaway_is_recorded_once_with_what_was_done_about_it() {
    let stage = Stage::new().await;
    let _other = stage.group("other", "").await;
    let text = "select 1 from a";
    for (at, (action, recorded, shown)) in [
        ("dryrun", "dryrun", "DryRun"),
        ("cooldown", "cooldown", "CoolDown"),
        ("kill", "kill", "Kill"),
        ("switch_group(other)", "switch_group", "SwitchGroup"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("own{at}");
        let group = stage.group(&name, &ruled(action)).await;
        let convicted = |action: &str| stage.metric(&format!("convictions_total{{action=\"{action}\"}}"));
        let before = (convicted("dryrun"), convicted(recorded));
        let mut running = stage.answered(&group, text, false).await.unwrap();
        assert_eq!(running.look(cpu(0), rows(1)), Verdict::Goes);
        assert!(running.deadline().is_some() && !running.cools_down());
        let verdict = running.look(cpu(0), rows(TOO_MANY));
        let dies = match &verdict {
            Verdict::Dies(denied) => {
                assert!(denied.message.contains(&name) && denied.message.contains("Rows = 10"), "{denied:?}");
                denied.code == Code::RUNAWAY
            }
            _ => false,
        };
        assert_eq!((dies, verdict == Verdict::Holds), (recorded == "kill", recorded == "cooldown"));
        assert_eq!((running.deadline(), running.cools_down()), (None, recorded == "cooldown"));
        let _ = running.look(cpu(0), rows(TOO_MANY));
        drop(running.end(cpu(1), rows(TOO_MANY), false));
        let target = if recorded == "switch_group" { "other" } else { "" };
        let sql = format!(
            "select repeats, action, match_type, switch_group, rule, template, tenant, user, gateway from \
             tidegate.runaways where resource_group = '{name}'"
        );
        let rule = "Rows = 10 (limit 10)";
        let told = ["1", shown, "identify", target, rule, "SELECT ? FROM a", "shop", "root", "gw"];
        assert_eq!(stage.table(&sql, &["1"]).await, [told]);
        assert_eq!(convicted(recorded) - before.1, 1);
        // And one that ended before anybody looked: nothing could be done about it.
        let early = stage.answered(&group, text, false).await.unwrap();
        drop(early.end(cpu(1), rows(TOO_MANY), false));
        stage.table(&sql, &["2"]).await;
        let both = u64::from(recorded == "dryrun");
        assert_eq!((convicted("dryrun") - before.0, convicted(recorded) - before.1), (1 + both, 1 + both));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_failed_is_judged_at_its_end_like_any_other() {
    let stage = Stage::new().await;
    let group = stage.group("own", &ruled("kill")).await;
    let convicted = || stage.metric("convictions_total{action=\"dryrun\"}");
    for (sent, failed, expected) in [(TOO_MANY - 1, true, 0), (TOO_MANY, true, 1), (TOO_MANY, false, 2)] {
        drop(stage.begun(&group).await.end(cpu(1), rows(sent), failed));
        assert_eq!(convicted(), expected, "{sent} rows, failed: {failed}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_watch_catches_is_recorded_and_what_it_refuses_is_counted_as_such() {
    let stage = Stage::new().await;
    let group = stage.group("own", "").await;
    for (action, text) in [("kill", "select 1 from a"), ("cooldown", "select 2 from b")] {
        stage
            .own(&format!(
                "query watch add resource group own action = {action} sql text similar to '{text}'"
            ))
            .await;
    }
    let waits = async {
        while !stage.answered(&group, "select 2 from b", false).await.unwrap().cools_down() {
            yield_now().await;
        }
    };
    timeout(PATIENCE, waits).await.expect("it is watched");
    let throttled = || stage.metric("statements_total{outcome=\"throttled\"}");
    let (before, killed) = (throttled(), stage.metric("convictions_total{action=\"kill\"}"));
    assert_eq!(stage.answered(&group, "select 1 from a", false).await.err().unwrap().code, Code::WATCHED);
    assert_eq!((throttled() - before, stage.metric("convictions_total{action=\"kill\"}") - killed), (1, 1));
    let sql = "select template, match_type, rule from tidegate.runaways where template like '%FROM a'";
    let told = ["SELECT ? FROM a", "watch", ""];
    assert_eq!(stage.table(sql, &[]).await, [told]);
    let refused = "select calls, throttled from tidegate.statements where template like '%FROM a'";
    assert_eq!(stage.table(refused, &[]).await, [["0", "1"]]);
}

/// A session that has sent other statements before it asks again after them.
#[tokio::test(flavor = "multi_thread")]
async fn a_watched_statement_that_waits_is_convicted_when_it_runs_and_not_when_it_is_given_up() {
    let owing = Policy { in_transaction: InTransaction::Owe, ..Policy::default() };
    let stage = Stage::with(owing, None).await;
    let (group, text) = (stage.group("own", "").await, "select 2 from b");
    stage
        .own(&format!("query watch add resource group own action = cooldown sql text similar to '{text}'"))
        .await;
    let waits = async {
        while !stage.answered(&group, text, false).await.unwrap().cools_down() {
            yield_now().await;
        }
    };
    timeout(PATIENCE, waits).await.expect("it is watched");
    let convicted = || stage.metric("convictions_total{action=\"cooldown\"}");
    assert_eq!(convicted(), 1);
    lead_into_debt(&group).await;
    for _ in 0..2 {
        assert!(matches!(stage.asked(&group, text, false), Admission::Wait(_)));
    }
    assert_eq!(convicted(), 1);
    // Inside a transaction it runs, and owes.
    assert!(stage.answered(&group, text, true).await.unwrap().cools_down());
    assert_eq!(convicted(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_charged_before_the_end_is_not_charged_again_and_nothing_is_left_out() {
    let stage = Stage::new().await;
    let group = stage.group("own", "").await;
    let began = group.consumption();
    let consumed = || Total { operations: 0, ..accounted(group.consumption().minus(&began).unwrap()) };
    let mut running = stage.answered(&group, "insert into a values (1)", false).await.unwrap();
    let part = |sent_rows, changed_rows, bytes_in, bytes_out| Progress {
        sent_rows,
        changed_rows,
        bytes_in,
        bytes_out,
    };
    let _ = running.look(cpu(3), part(0, 1, 10, 100));
    running_for(&running, Duration::from_millis(1)).await;
    let so_far = running.so_far(cpu(3), part(0, 2, 20, 200));
    assert!(so_far.charged.cpu >= Ru::whole(2) && so_far.usage.write_requests == 2, "{so_far:?}");
    assert!(so_far.elapsed >= Duration::from_millis(1), "{so_far:?}");
    assert_eq!((&so_far.group, so_far.waited, so_far.estimated), (group.name(), Duration::ZERO, false));
    assert_eq!(consumed(), told(&so_far));
    let ended = running.end(cpu(3), part(0, 7, 30, 300), false);
    let expected = Usage {
        cpu_ns: 9_000_000,
        write_requests: 7,
        write_batches: 1,
        net_in_bytes: 30,
        net_out_bytes: 300,
        ..Usage::default()
    };
    assert_eq!(ended.usage, expected, "an insert that returns nothing reads nothing");
    assert!(ended.elapsed >= so_far.elapsed, "{ended:?}");
    assert_eq!(consumed(), told(&ended));
    // A query, and one that changes nothing.
    for (text, reads) in [("select 1 from a", 1), ("delete from a", 0)] {
        let usage = stage.answered(&group, text, false).await.unwrap().end(cpu(1), rows(0), false).usage;
        let requests = [usage.read_requests, usage.read_batches, usage.write_requests, usage.write_batches];
        assert_eq!(requests, [reads, reads, 0, 0], "{text}");
    }
}

/// What a statement says that it cost, as its group has it.
fn told(ended: &Ended) -> Total {
    let mut total = Total::default();
    total.count(&Consumption { charged: ended.charged, usage: ended.usage, ..Consumption::default() });
    total
}

#[tokio::test(flavor = "multi_thread")]
async fn without_counters_a_statement_is_charged_for_no_more_than_its_time_however_often_it_is_looked_at() {
    let stage = Stage::new().await;
    let group = stage.group("own", "").await;
    let mut running = stage.begun(&group).await;
    let progress = Progress { sent_rows: 1 << 50, bytes_out: 5_000, ..Progress::default() };
    for looks in 1..=4 {
        running_for(&running, looks * Duration::from_millis(5)).await;
        let _ = running.look(None, progress);
    }
    let ended = running.end(None, progress, false);
    assert!(ended.usage.cpu_ns >= 20_000_000, "{ended:?}");
    assert!(u128::from(ended.usage.cpu_ns) <= ended.elapsed.as_nanos(), "{ended:?}");
    assert_eq!((ended.usage.read_bytes, ended.usage.net_out_bytes), (5_000, 5_000));
}

/// A statement is held for what it used beyond its estimate, and not for what others of its group used.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_within_its_estimate_goes_on_though_its_group_has_nothing_left() {
    let stage = Stage::new().await;
    let group = stage.group("own", "").await;
    let mut running = stage.begun(&group).await;
    lead_into_debt(&group).await;
    assert_eq!(running.look(cpu(0), rows(0)), Verdict::Goes);
    assert_eq!(running.look(cpu(300), rows(0)), Verdict::Holds);
}

#[test]
fn parts_of_a_text_add_up() {
    let part = |n| Progress { sent_rows: n, changed_rows: 2 * n, bytes_in: 3 * n, bytes_out: 4 * n };
    assert_eq!(part(5).plus(&part(7)), part(12));
}

#[test]
fn what_a_statement_cost_is_shown_with_where_that_is_known_from() {
    let ended = |estimated| Ended {
        group: tidegate_client::GroupName::new("g").unwrap(),
        charged: RuParts {
            cpu: Ru(1_500_000),
            read: Ru(2_000_000),
            write: Ru(250_000),
            network: Ru(125_000),
            ..RuParts::default()
        },
        usage: Usage {
            cpu_ns: 4_500_000,
            read_requests: 2,
            read_batches: 3,
            read_bytes: 4,
            write_requests: 5,
            write_batches: 6,
            write_bytes: 7,
            net_in_bytes: 8,
            net_out_bytes: 9,
            cross_zone_bytes: 10,
        },
        elapsed: Duration::from_micros(2_500),
        waited: Duration::from_millis(7),
        estimated,
    };
    for (estimated, source) in [(true, "estimated"), (false, "counted by the kernel")] {
        let table = explained(&ended(estimated));
        let total = format!("in group g, {source}; took 2.500 ms, waited 7.000 ms");
        let expected = [
            ("cpu", 1.5, "4.500 ms of CPU"),
            ("read", 2.0, "4 bytes in 2 requests"),
            ("write", 0.25, "7 bytes, 5 rows"),
            ("network", 0.125, "8 bytes in, 9 bytes out"),
            ("total", 3.875, &total),
        ];
        let row = |(part, ru, used): (&str, f64, &str)| {
            vec![Value::Text(part.into()), Value::Float(ru), Value::Text(used.into())]
        };
        assert_eq!(table.rows, expected.map(row));
        let columns: Vec<_> =
            table.columns.iter().map(|column| (column.name.as_str(), column.kind)).collect();
        assert_eq!(columns, [("part", Kind::Text), ("ru", Kind::Float), ("used", Kind::Text)]);
    }
}

#[test]
fn bytes_written_for_others_are_counted_over_all_servers() {
    let metrics = Metrics::new(1, false);
    for _ in 0..2 {
        metrics.unowned().give(5);
    }
    let server = metrics.unowned();
    server.give(10);
    assert_eq!(server.take(4, 0), 4);
    let page = metrics.page(Sample::default()).unwrap();
    for line in ["written_for_others_bytes_total 20", "written_by_others_bytes_total 4"] {
        assert!(page.contains(&format!("tidegate_gateway_{line}\n")), "{line}: {page}");
    }
}
