//! Who pays, who waits, who may: statements under their groups.

use std::time::Duration;

use tidegate_gateway::{InTransaction, Principals};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_postgres::{Client, NoTls};

use super::stage::{Stage, gateway, is_in, login, state, used, value};
use crate::common::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_made_bound_and_changed_over_the_same_connection() {
    let stage = Stage::new().await;
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    assert_eq!(value(&ann, "select current_resource_group()").await, "default");
    admin.batch_execute("create resource group small ru_per_sec = 50 priority = low").await.unwrap();
    admin.batch_execute("alter user ann resource group small").await.unwrap();
    // A live session is moved at its next statement.
    is_in(&ann, "small").await;
    assert_eq!(state(ann.batch_execute("create resource group mine ru_per_sec = 1").await), "42501");
    assert_eq!(state(ann.batch_execute("set resource group default").await), "42501");
    assert_eq!(state(admin.batch_execute("create resource group small ru_per_sec = 1").await), "42710");
    assert_eq!(state(admin.batch_execute("create resource group x ru_per_sec = ").await), "42601");
    let shown = admin
        .query("select name, ru_per_sec from information_schema.resource_groups order by name", &[])
        .await;
    let shown: Vec<(String, String)> = shown.unwrap().iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(shown, [("default".into(), "UNLIMITED".into()), ("small".into(), "50".into())]);
    admin.batch_execute("set resource group small").await.unwrap();
    assert_eq!(value(&admin, "select current_resource_group()").await, "small");
    // The rest of the session works as before.
    assert_eq!(value(&ann, "select 40 + 2").await, "42");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_in_debt_refuses_others_spares_transactions_and_keeps_sessions_usable() {
    let stage = Stage::with(|config| {
        config.policy.max_wait = Duration::from_secs(2);
        config.policy.in_transaction = InTransaction::Owe;
    })
    .await;
    let (admin, ann, locking) = (stage.admin().await, stage.ann().await, stage.ann().await);
    admin.batch_execute("create resource group tiny ru_per_sec = 2").await.unwrap();
    admin.batch_execute("alter user ann resource group tiny").await.unwrap();
    for session in [&ann, &locking] {
        is_in(session, "tiny").await;
    }
    eventually("it is inside a transaction", async || locking.batch_execute("begin").await.is_ok()).await;
    // Some 100 RU of CPU: a minute's worth. Its result is held meanwhile, for as long as a statement waits.
    let heavy = stage.ann().await;
    let slow = tokio::spawn(async move {
        let sql = "select count(*) from generate_series(1, 2000) a, generate_series(1, 2000) b where a <> b";
        // Refused until the estimate fits what the group has.
        while heavy.batch_execute(sql).await.is_err() {}
    });
    eventually("the group owes", async || {
        let answer = ann.query("select 1", &[]).await;
        answer.is_err_and(|error| error.as_db_error().unwrap().message().contains("owes"))
    })
    .await;
    let error = ann.query("select 1", &[]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "53400", "{error:?}");
    assert!(error.message().contains("resource group tiny"), "{error:?}");
    assert!(error.hint().unwrap().starts_with("Retry after"), "{error:?}");
    // The same in the simple protocol.
    assert_eq!(state(ann.batch_execute("select 2").await), "53400");
    for _ in 0..3 {
        locking.batch_execute("select 4").await.unwrap();
    }
    locking.batch_execute("commit").await.unwrap();
    assert_eq!(state(locking.batch_execute("select 5").await), "53400");
    slow.abort();
    admin.batch_execute("alter user ann resource group default").await.unwrap();
    is_in(&ann, "default").await;
    assert_eq!(value(&ann, "select 3").await, "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_statements_cost_adds_up_to_what_their_group_consumed() {
    let stage = Stage::new().await;
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    admin.batch_execute("create resource group shop ru_per_sec = 100000").await.unwrap();
    admin.batch_execute("alter database shop resource group shop").await.unwrap();
    is_in(&ann, "shop").await;
    ann.batch_execute("create table t (a int)").await.unwrap();
    let insert = ann.prepare("insert into t values ($1)").await.unwrap();
    for number in 0..50 {
        ann.execute(&insert, &[&number]).await.unwrap();
    }
    assert!(ann.batch_execute("select a / 0 from t").await.is_err());
    eventually("statements are reported", async || {
        value(
            &admin,
            "select count(*) from tidegate.statements where template like 'INSERT INTO t%' and calls = 50",
        )
        .await
            == "1"
    })
    .await;
    let costs = "select sum(ru) from tidegate.statements where resource_group = 'shop'";
    eventually("both agree", async || {
        let costs: f64 = value(&admin, costs).await.parse().unwrap_or(0.0);
        let consumed = used(&admin, "shop").await;
        (costs - consumed).abs() < 0.000_5 && consumed > 100.0
    })
    .await;
    let explained = admin.simple_query("explain ru select count(*) from pg_class").await.unwrap();
    assert!(format!("{explained:?}").contains("counted by the kernel"), "{explained:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_gateways_hold_a_group_to_one_rate() {
    let stage = Stage::new().await;
    let other = gateway(&stage.controller, stage.postgres.port(), "gw2", |config| {
        config.policy.max_wait = Duration::from_secs(30);
    })
    .await;
    let admin = stage.admin().await;
    admin.batch_execute("create resource group fair ru_per_sec = 200").await.unwrap();
    admin.batch_execute("alter user ann resource group fair").await.unwrap();
    let ports = [stage.port(), other.addresses[0].port()];
    let began = Instant::now();
    let sessions: Vec<_> = (0..8)
        .map(|at| {
            tokio::spawn(async move {
                let session = login(ports[at % 2], "shop", ("ann", "ann")).await;
                while began.elapsed() < Duration::from_secs(6) {
                    let _ = session.simple_query("select count(*) from generate_series(1, 20000)").await;
                }
            })
        })
        .collect();
    for session in sessions {
        session.await.unwrap();
    }
    let most = began.elapsed().as_secs_f64() * 200.0 + 200.0;
    let mut before = -1.0;
    eventually("all is reported", async || {
        let now = used(&admin, "fair").await;
        let steady = now == before;
        before = now;
        tokio::time::sleep(Duration::from_secs(2)).await;
        steady
    })
    .await;
    // Eight statements were under way at most, of some 3 RU each.
    assert!((400.0..most + 60.0).contains(&before), "{before} RU, at most {most}");
    assert!(other.shutdown().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_has_a_longest_wait_of_its_own() {
    let stage = Stage::new().await;
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    ann.batch_execute("create table t (n int)").await.unwrap();
    admin.batch_execute("create resource group hasty ru_per_sec=20 max_wait='1ms'").await.unwrap();
    admin.batch_execute("alter user ann resource group hasty").await.unwrap();
    eventually("ann does not wait", async || {
        // Seconds of debt for what it writes, within milliseconds, for which the gateway would let her wait. Before the
        // group's first lease it is refused for want of one.
        drop(ann.simple_query("insert into t select generate_series(1, 300)").await);
        let answer = ann.simple_query("select 1").await;
        answer.is_err_and(|error| error.code().is_some_and(|code| code.code() == "53400"))
    })
    .await;
    admin.batch_execute("alter resource group hasty max_wait=default").await.unwrap();
    eventually("ann waits again", async || ann.simple_query("select 1").await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_s_name_chooses_a_group_for_those_who_may() {
    let stage = Stage::with(|config| config.policy.switchers = Principals::parse(["ann"]).unwrap()).await;
    let root = stage.admin().await;
    root.batch_execute("create resource group batch ru_per_sec=1000").await.unwrap();
    root.batch_execute("create user bob password 'ann'").await.unwrap();
    let group = async |user: &str, name: &str| {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(stage.port()).dbname("postgres").user(user).password("ann");
        let (client, connection) = config.application_name(name).connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        value(&client, "select current_resource_group()").await
    };
    assert_eq!(group("ann", "reports /*+ RESOURCE_GROUP(batch) */").await, "batch");
    assert_eq!(group("ann", "reports /*+ RESOURCE_GROUP(nowhere) */").await, "default");
    assert_eq!(group("bob", "reports /*+ RESOURCE_GROUP(batch) */").await, "default", "who may not");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_resets_a_session_gives_up_the_group_it_chose() {
    let stage = Stage::new().await;
    let admin = stage.admin().await;
    admin.batch_execute("create resource group small ru_per_sec = 5000").await.unwrap();
    let group = async || value(&admin, "select current_resource_group()").await;
    let choose = async || {
        eventually("the group is known", async || {
            admin.batch_execute("set resource group small").await.unwrap();
            group().await == "small"
        })
        .await;
    };
    for reset in [
        "discard all",
        "reset all",
        "select pg_advisory_unlock_all(); close all; unlisten *; RESET ALL;",
        "discard all; -- to the pool",
    ] {
        choose().await;
        admin.simple_query(reset).await.unwrap();
        assert_eq!(group().await, "default", "{reset}");
    }
    for reset in ["discard all", "reset all"] {
        choose().await;
        admin.query_typed(reset, &[]).await.unwrap();
        assert_eq!(group().await, "default", "{reset}, in the extended protocol");
    }
    choose().await;
    for other in ["reset work_mem", "discard temp", "discard plans", "select 'reset all'"] {
        admin.simple_query(other).await.unwrap();
        assert_eq!(group().await, "small", "{other}");
    }
    admin.batch_execute("begin").await.unwrap();
    assert_eq!(state(admin.simple_query("discard all").await), "25001");
    admin.batch_execute("rollback").await.unwrap();
    assert_eq!(group().await, "small", "it failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_s_hint_chooses_its_group_for_those_who_may() {
    let stage = Stage::with(|config| config.policy.switchers = Principals::parse(["ann"]).unwrap()).await;
    let root = stage.admin().await;
    root.batch_execute("create resource group batch ru_per_sec = 100000").await.unwrap();
    root.batch_execute("create user bob password 'ann'; grant all on database shop to bob").await.unwrap();
    let (ann, bob) = (stage.ann().await, login(stage.port(), "shop", ("bob", "ann")).await);
    let group = async |session: &Client, sql: &str| {
        let explained = format!("{:?}", session.simple_query(&format!("explain ru {sql}")).await.unwrap());
        let rest = explained.split_once("in group ").unwrap().1;
        rest.split(',').next().unwrap().to_owned()
    };
    let hinted = "select /*+ RESOURCE_GROUP(batch) */ 1 as hinted";
    eventually("the group is known", async || group(&ann, hinted).await == "batch").await;
    assert_eq!(group(&ann, "select 1").await, "default", "the hint was of the other statement");
    assert_eq!(group(&ann, "select /*+ resource_group(nowhere) */ 1").await, "default");
    assert_eq!(group(&bob, hinted).await, "default", "who may not");
    for session in [&ann, &bob] {
        session.simple_query(hinted).await.unwrap();
        session.query(hinted, &[]).await.unwrap();
        session.query_typed("select /*+ RESOURCE_GROUP(nowhere) */ 2 as nowhere", &[]).await.unwrap();
    }
    let calls = async |named: &str| {
        let sql = format!(
            "select resource_group || ' ' || calls from tidegate.statements where template like '%{named}%' order by 1"
        );
        let rows = root.query(&sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>()
    };
    eventually("the groups are charged", async || {
        let (hinted, nowhere) = (calls("hinted").await, calls("nowhere").await);
        hinted.len() == 2 && hinted[1].starts_with("default ") && nowhere == ["default 2"]
    })
    .await;
    // The rules of the group that pays hold, that of a hint that leads nowhere included.
    let watch = "query watch add resource group batch action kill sql text similar to 'select 1 as hinted'";
    root.batch_execute(watch).await.unwrap();
    let watch = "query watch add resource group default action kill sql text similar to 'select 1 as own'";
    root.batch_execute(watch).await.unwrap();
    eventually("it is watched", async || ann.simple_query("select 1 as own").await.is_err()).await;
    assert_eq!(state(ann.query(hinted, &[]).await), "57014");
    ann.simple_query("select 1 as hinted").await.unwrap();
    bob.simple_query(hinted).await.unwrap();
    assert_eq!(state(ann.simple_query("select /*+ RESOURCE_GROUP(nowhere) */ 1 as own").await), "57014");
    assert_eq!(state(ann.query("select /*+ RESOURCE_GROUP(nowhere) */ 1 as own", &[]).await), "57014");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_transactions_wait_they_wait_like_any_other() {
    let stage = Stage::with(|config| {
        config.policy.max_wait = Duration::from_millis(500);
        config.policy.in_transaction = InTransaction::Wait;
    })
    .await;
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    ann.batch_execute("begin").await.unwrap();
    admin.batch_execute("create resource group tiny ru_per_sec = 0.1").await.unwrap();
    admin.batch_execute("alter user ann resource group tiny").await.unwrap();
    is_in(&ann, "tiny").await;
    // A minute of debt, by what is over before it is looked at, so that its result is not held.
    eventually("the group has tokens", async || {
        ann.simple_query("select count(*) from generate_series(1, 100000)").await.is_ok()
    })
    .await;
    assert_eq!(state(ann.simple_query("select 1").await), "53400");
    assert_eq!(state(ann.query("select 1", &[]).await), "53400");
    admin.batch_execute("alter user ann resource group default").await.unwrap();
    eventually("she pays elsewhere", async || ann.simple_query("select 2").await.is_ok()).await;
    // A statement that did not run has not failed at the server: the transaction goes on.
    ann.batch_execute("create table made (a int); commit").await.unwrap();
    assert_eq!(value(&ann, "select count(*) from made").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_counters_cannot_be_read_is_estimated() {
    // Behind another proxy it does not show who its client is, as on another machine.
    let stage = Stage::new().await;
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, server) = (proxy.local_addr().unwrap().port(), stage.postgres.port());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = proxy.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
                copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    let far = gateway(&stage.controller, port, "far", |_| {}).await;
    let ann = login(far.addresses[0].port(), "shop", ("ann", "ann")).await;
    let work = "select count(*) from generate_series(1, 300000) as far";
    ann.simple_query(work).await.unwrap();
    let told = format!("{:?}", ann.simple_query(&format!("explain ru {work}")).await.unwrap());
    assert!(told.contains("in group default, estimated") && !told.contains("kernel"), "{told}");
    let admin = stage.admin().await;
    let estimated = "select coalesce(sum(estimated), 0), coalesce(sum(cpu_ru), 0) > 1 from tidegate.statements where template like '%far%'";
    eventually("it is reported", async || {
        let rows = admin.query(estimated, &[]).await.unwrap();
        let (calls, costs): (i64, i64) = (rows[0].get(0), rows[0].get(1));
        calls == 2 && costs == 1
    })
    .await;
    assert!(far.shutdown().await.is_empty());
}
