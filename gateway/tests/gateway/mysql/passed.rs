//! What clients get through the gateway is what they get without it.

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use mysql_async::prelude::Queryable as _;
use mysql_async::{ChangeUserOpts, Conn, Params};
use tidegate_gateway::raise_descriptor_limit;
use tidegate_test_servers::ROOT;

use super::stage::{Stage, error, login, script, value};
use crate::common::{eventually, same};

pub(super) const SCRIPT: &str = "
create table t (id int primary key auto_increment, name varchar(50), v double, d datetime(3), b blob);
insert into t (name, v, d, b) values ('a', 1.5, '2024-01-02 03:04:05.678', x'00ff'), ('bü', null, null, null);
select * from t;
select id as `wei rd``name`, name as 'x y' from t order by id desc;
select null, '', 18446744073709551615, -3, x'fffe00', true;
select * from nosuch;
selec;
begin; update t set v = 2; rollback; select v from t;
select 1/0; show warnings;
select repeat('x', 20000000);
select seq, repeat('y', 100) from seq_1_to_100000;
create procedure p() begin select 1; select 2, 3; end;
delimiter //
create procedure q() begin select 1; select 2, 3; end//
create procedure r() begin declare v int; declare c cursor for select 1; open c; select v; select 4; close c; end//
delimiter ;
call q();
call r();
prepare s from 'select ? + 1'; set @a = 4; execute s using @a; deallocate prepare s;
signal sqlstate '45000' set message_text = 'böse';
kill query 999999;
use other; select database(); use shop;
load data local infile '/proc/sys/kernel/ostype' into table t (name); select name from t where name = 'Linux';
load data local infile '/nosuchfile' into table t;
set names latin1; select 'abc'; set names utf8mb4;
show status like 'nosuch';
drop table t; drop procedure q; drop procedure r;
";

#[tokio::test(flavor = "multi_thread")]
async fn a_script_gives_what_it_gives_without_the_gateway() {
    let stage = Stage::new().await;
    let direct = script(stage.server.port(), SCRIPT.as_bytes());
    let passed = script(stage.port(), SCRIPT.as_bytes());
    assert!(direct.len() > 20_000_000, "{} bytes", direct.len());
    same(&direct, &passed);
}

#[tokio::test(flavor = "multi_thread")]
async fn prepared_statements_and_changes_of_the_session_work() {
    let stage = Stage::new().await;
    let mut ann = stage.ann().await;
    let statement = ann.prep("select ?, repeat(?, 3)").await.unwrap();
    for number in 0..20_u32 {
        let row: (u32, String) = ann.exec_first(&statement, (number, "x")).await.unwrap().unwrap();
        assert_eq!(row, (number, "xxx".to_owned()));
    }
    ann.close(statement).await.unwrap();
    assert_eq!(error(ann.prep("selec ?").await).0, 1064);
    let long = "z".repeat(17_000_000);
    let length: usize = ann.exec_first("select length(?)", (&long,)).await.unwrap().unwrap();
    assert_eq!(length, long.len());
    ann.query_drop("set @mine = 1").await.unwrap();
    assert!(ann.reset().await.unwrap());
    assert_eq!(value::<Option<u32>>(&mut ann, "select @mine").await, None);
    let opts = ChangeUserOpts::new().with_user(Some(ROOT.0.into())).with_pass(Some(ROOT.1.into()));
    ann.change_user(opts.with_db_name(Some("other".into()))).await.unwrap();
    let now: (String, String) = ann.query_first("select current_user(), database()").await.unwrap().unwrap();
    assert_eq!(now, ("gate@%".to_owned(), "other".to_owned()));
    ann.disconnect().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_file_is_an_error_and_the_session_goes_on() {
    let stage = Stage::with(|config| config.local_infile = false).await;
    let refused = b"create temporary table t (a text);
        load data local infile '/proc/sys/kernel/ostype' into table t; select count(*) from t;";
    let heard = String::from_utf8(script(stage.port(), refused)).unwrap();
    assert!(heard.contains("ERROR 3948 (42000)") && heard.contains("passes no files"), "{heard}");
    assert!(heard.contains("|        0 |"), "{heard}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_in_the_middle_leaves_nothing_behind_where_that_is_wanted() {
    let stage = Stage::with(|config| config.kill_abandoned = true).await;
    let mut ann = stage.ann().await;
    let id: u64 = value(&mut ann, "select connection_id()").await;
    let running =
        tokio::spawn(async move { ann.query_drop("select count(*), sleep(60) from seq_1_to_10").await });
    let mut root = login(stage.server.port(), "shop", ROOT).await;
    let busy =
        format!("select count(*) from information_schema.processlist where id = {id} and command = 'Query'");
    eventually("it runs", async || value::<u32>(&mut root, &busy).await == 1).await;
    running.abort();
    let left = format!("select count(*) from information_schema.processlist where id = {id}");
    eventually("it is gone", async || value::<u32>(&mut root, &left).await == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_ends_its_sessions_and_new_ones_are_told() {
    let mut stage = Stage::new().await;
    let mut ann = stage.ann().await;
    stage.server.kill();
    assert!(ann.query_drop("select 1").await.is_err());
    let heard = String::from_utf8(script(stage.port(), b"select 1;")).unwrap();
    assert!(heard.contains("the gateway cannot reach the database"), "{heard}");
    stage.server.run().unwrap();
    let mut ann = stage.ann().await;
    assert_eq!(value::<u32>(&mut ann, "select 40 + 2").await, 42);
    let _: Vec<u32> = ann.exec("select ?", Params::from((1_u32,))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_sessions_at_once_get_their_own_answers() {
    const SESSIONS: u32 = 2_000;
    let most = raise_descriptor_limit();
    assert!(most > 6 * u64::from(SESSIONS), "{most} descriptors are too few; raise ulimit -n");
    let stage = Stage::with(|config| config.max_sessions = 2_100).await;
    stage.server.root("set global max_connections = 2200").unwrap();
    let logins = stream::iter(0..SESSIONS).map(|own| login_as_ann(stage.port(), own));
    let sessions: Vec<(u32, Conn)> = logins.buffer_unordered(50).collect().await;
    let asked = sessions.into_iter().map(|(own, mut session)| async move {
        for n in 0..3 {
            assert_eq!(value::<u32>(&mut session, &format!("select {own} + {n}")).await, own + n);
        }
        session
    });
    drop(join_all(asked).await);
    eventually("the server has none of them left", async || {
        let mut admin = stage.admin().await;
        value::<u32>(&mut admin, "select count(*) from information_schema.processlist where user = 'ann'")
            .await
            == 0
    })
    .await;
}

async fn login_as_ann(port: u16, own: u32) -> (u32, Conn) {
    (own, login(port, "shop", ("ann", "ann")).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_one_after_the_other_share_the_gateway_s_own_connection() {
    const LOGINS: u64 = 20;
    let stage = Stage::new().await;
    let mut root = login(stage.server.port(), "shop", ROOT).await;
    stage.ann().await.disconnect().await.unwrap();
    let made =
        "select variable_value from information_schema.global_status where variable_name = 'connections'";
    let before: u64 = value::<String>(&mut root, made).await.parse().unwrap();
    for _ in 0..LOGINS {
        let mut ann = stage.ann().await;
        assert_eq!(value::<u32>(&mut ann, "select 40 + 2").await, 42);
        ann.disconnect().await.unwrap();
    }
    let after: u64 = value::<String>(&mut root, made).await.parse().unwrap();
    // None for each login; now and then one, as a connection that is on its way back is not there for the next.
    assert!((LOGINS..=LOGINS + 4).contains(&(after - before)), "{}", after - before);
}
