//! What a client gets through the gateway is what it gets from the server, byte for byte.

use std::pin::pin;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _, TryStreamExt as _};
use tokio::time::{Instant, timeout};
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, NoTls};

use super::stage::{Stage, is_in, state, value};
use crate::common::same;

/// Types, nulls, errors, several statements, COPY both ways, cursors, notifications, prepared statements, unusual names,
/// long rows, empty queries, bytes that are no UTF-8.
const SCRIPT: &str = r#"
\set VERBOSITY verbose
\pset null '(null)'
select 1, null::int, 'ä€😀', 1.5::numeric, now() > '2000-01-01', array[1,null,3], '{"a": [1]}'::jsonb, '\xdeadbeef'::bytea;
select 1/0;
select * from nowhere;
select 1; select 2 \; select 3; select 4/0 \; select 5;
create table "Ünusual ""name""" (id int primary key, "select" text, at timestamptz default '2026-01-01 00:00:00+00');
insert into "Ünusual ""name""" select g, repeat('x', g % 100) from generate_series(1, 5000) g;
update "Ünusual ""name""" set "select" = 'y' where id % 7 = 0;
delete from "Ünusual ""name""" where id > 4000;
copy "Ünusual ""name""" (id, "select") from stdin;
9001	one
9002	\N
9003	tab\there
\.
copy "Ünusual ""name""" from stdin;
not a number	x	y
\.
copy (select * from "Ünusual ""name""" order by id) to stdout;
copy (select 1/(g-3) from generate_series(1, 5) g) to stdout;
begin; declare c cursor for select id from "Ünusual ""name""" order by id; fetch 3 from c; fetch all from c; commit;
begin; select 1/0; select 1; rollback;
prepare p(int, text) as select $1 + 1, $2 || 'x'; execute p(41, 'a'); execute p('q', 1); deallocate p;
select $1 \bind 5
;
;
select repeat('0123456789', 200000), length(repeat('z', 17000000));
select g, md5(g::text) from generate_series(1, 100000) g;
do $$ begin raise notice 'told: %', 1; raise warning 'twice'; end $$;
explain (costs off) select count(*) from "Ünusual ""name""" where id = 1;
set client_min_messages = debug1; show client_min_messages; reset all;
select pg_sleep(0.01);
select E'\xff';
/* comment */ -- and another
select 'done' \gdesc
\d "Ünusual ""name"""
"#;

#[tokio::test(flavor = "multi_thread")]
async fn psql_sees_the_same_to_the_byte() {
    let stage = Stage::new().await;
    let script =
        [SCRIPT.as_bytes(), b"select '\xff\xfe';\ndrop table \"\xc3\x9cnusual \"\"name\"\"\";\n"].concat();
    let (direct, through) = tokio::task::block_in_place(|| {
        (stage.psql(stage.postgres.port(), &script), stage.psql(stage.port(), &script))
    });
    assert!(direct.len() > 5_000_000, "{} bytes", direct.len());
    same(&direct, &through);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_prepares_pipelines_and_streams() {
    let stage = Stage::new().await;
    let ann = stage.ann().await;
    ann.batch_execute("create table t (a int primary key, b bytea)").await.unwrap();
    let insert = ann.prepare("insert into t values ($1, $2)").await.unwrap();
    // Pipelined: all are sent before the first is answered.
    let blob = vec![7_u8; 100];
    let numbers: Vec<i32> = (0..500).collect();
    let inserts =
        numbers.iter().map(|number| ann.execute_raw(&insert, [number as &(dyn ToSql + Sync), &blob]));
    assert_eq!(futures_util::future::try_join_all(inserts).await.unwrap(), vec![1; 500]);
    assert_eq!(state(ann.execute(&insert, &[&1, &blob]).await), "23505");
    // A result of more than 16 MB in one row, and one in many rows that is not read to the end.
    let row = ann.query_one("select repeat('x', 20000000)", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0).len(), 20_000_000);
    {
        let many = "select g from generate_series(1, 1000000) g";
        let mut rows = pin!(ann.query_raw(many, &[] as &[i32]).await.unwrap());
        assert_eq!(rows.next().await.unwrap().unwrap().get::<_, i32>(0), 1);
    }
    // COPY in and out.
    let sink = ann.copy_in("copy t (a) from stdin").await.unwrap();
    let mut sink = pin!(sink);
    for number in 1_000..2_000 {
        sink.send(bytes::Bytes::from(format!("{number}\n"))).await.unwrap();
    }
    assert_eq!(sink.as_mut().finish().await.unwrap(), 1_000);
    let copied = ann.copy_out("copy t to stdout").await.unwrap();
    let copied: Vec<bytes::Bytes> = copied.try_collect().await.unwrap();
    assert_eq!(copied.len(), 1_500);
    // A transaction with a portal.
    let mut ann = ann;
    let transaction = ann.transaction().await.unwrap();
    let portal = transaction.bind("select a from t order by a", &[]).await.unwrap();
    assert_eq!(transaction.query_portal(&portal, 10).await.unwrap().len(), 10);
    assert_eq!(transaction.query_portal(&portal, 5).await.unwrap()[0].get::<_, i32>(0), 10);
    transaction.rollback().await.unwrap();
    assert_eq!(value(&ann, "select count(*) from t").await, "1500");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_statement_is_cancelled_by_its_client() {
    let stage = Stage::new().await;
    let ann = stage.ann().await;
    let cancel = ann.cancel_token();
    let sleeping = tokio::spawn(async move {
        let answer = state(ann.simple_query("select pg_sleep(60)").await);
        (answer, value(&ann, "select 1").await)
    });
    let root = stage.direct().await;
    crate::common::eventually("the statement runs", async || {
        value(
            &root,
            "select count(*) from pg_stat_activity where query like '%sleep(60)' and state = 'active'",
        )
        .await
            == "1"
    })
    .await;
    cancel.cancel_query(NoTls).await.unwrap();
    assert_eq!(sleeping.await.unwrap(), ("57014".to_owned(), "1".to_owned()));
}

/// The server's word of it is behind what its sockets hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_whose_result_is_held_is_cancelled_by_its_client() {
    const HOLD: Duration = Duration::from_secs(30);
    let stage = Stage::with(|config| config.policy.max_wait = HOLD).await;
    let (admin, ann) = (stage.admin().await, stage.ann().await);
    admin.batch_execute("create resource group tiny ru_per_sec = 2").await.unwrap();
    admin.batch_execute("alter user ann resource group tiny").await.unwrap();
    is_in(&ann, "tiny").await;
    let rows =
        ann.simple_query_raw("select repeat('x', 1000) from generate_series(1, 10000000)").await.unwrap();
    let mut rows = pin!(rows);
    // Until nothing comes any more.
    while let Ok(row) = timeout(Duration::from_secs(2), rows.next()).await {
        row.unwrap().unwrap();
    }
    let cancelled = Instant::now();
    ann.cancel_token().cancel_query(NoTls).await.unwrap();
    let error = loop {
        if let Err(error) = rows.next().await.unwrap() {
            break error;
        }
    };
    assert_eq!(error.code().unwrap().code(), "57014");
    assert!(cancelled.elapsed() < HOLD / 2, "its hold was over: {:?}", cancelled.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn notifications_arrive_while_nothing_is_asked() {
    let stage = Stage::new().await;
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(stage.port()).dbname("shop").user("ann").password("ann");
    let (listener, mut connection) = config.connect(NoTls).await.unwrap();
    let (heard, mut hear) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message {
                heard.send(notification.payload().to_owned()).unwrap();
            }
        }
    });
    listener.batch_execute("listen news").await.unwrap();
    stage.ann().await.batch_execute("notify news, 'extra'").await.unwrap();
    assert_eq!(hear.recv().await.unwrap(), "extra");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_the_server_s_to_refuse() {
    let stage = Stage::new().await;
    let answer = super::stage::try_login(stage.port(), "shop", ("ann", "wrong")).await;
    assert_eq!(state(answer.map(|_| ())), "28P01");
}
