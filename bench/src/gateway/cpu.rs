//! CPU time that the gateway charges, beside what the server itself says of the same statements: `pg_stat_kcache`,
//! MariaDB's `userstat` and MySQL's performance schema.

use super::load::{mariadb as client, mysql as newest_client, psql, said};
use super::stage::{Stage, plenty};
use crate::error::{BenchError, failed};
use crate::row::{Kind, MS, Mark, Row};
use crate::samples::Samples;
use crate::setting::Setting;
use tidegate_test_servers::{MariaDb, MySql, Postgres, ROOT};

/// Statements that take the executor milliseconds; `pg_stat_kcache` does not count parsing, sending and committing.
const MIX: &[&str] = &[
    "create table m (n int, k int, t text)",
    "insert into m select n, n % 97 as k, md5(n::text) as t from generate_series(1, 200000) n",
    "select k, count(*), avg(n) from m group by k order by 3 desc",
    "update m set t = reverse(t) where k < 20",
    "select count(*) from m a join m b on a.n = b.n where a.k = b.k",
    "delete from m where k = 5",
    "select sum(length(t)) from m where t like '%a%'",
    "drop table m",
];
/// Statements with two parallel workers each.
const PARALLEL: &[&str] = &[
    "create table p as select n, md5(n::text) as t from generate_series(1, 600000) n",
    "select count(*) from p where md5(t) like '%a1%'",
    "select count(*), max(t) from p where t like '%a%' and n % 7 = 3",
    "select sum(length(t)) from p where reverse(t) like '%a%b%'",
    "select n % 10, count(*), min(md5(t)) from p group by 1 order by 1",
    "drop table p",
];
const MARIADB_MIX: &[&str] = &[
    "create table m as select seq as n, seq % 97 as k, md5(seq) as t from seq_1_to_100000",
    "select k, count(*), avg(n) from m group by k order by 3 desc",
    "update m set t = reverse(t) where k < 20",
    "select sum(length(t)) from m where t like '%a%'",
    "delete from m where k = 5",
    "drop table m",
];
const MYSQL_MIX: &[&str] = &[
    "create table m as with recursive s as (select 1 as n union all select n + 1 from s where n < 100000)
     select /*+ SET_VAR(cte_max_recursion_depth = 100000) */ n, n % 97 as k, sha2(n, 256) as t from s",
    "select k, count(*), avg(n) from m group by k order by 3 desc",
    "update m set t = reverse(t) where k < 20",
    "select count(*) from m a join m b on a.n = b.n where a.k = b.k",
    "select sum(length(t)) from m where t like '%a%'",
    "delete from m where k = 5",
    "drop table m",
];

/// Measures the family.
pub fn run(setting: &Setting) -> Result<Vec<Row>, BenchError> {
    Ok(vec![postgres(setting)?, parallel(setting)?, mariadb(setting)?, mysql(setting)?])
}

fn postgres(setting: &Setting) -> Result<Row, BenchError> {
    let settings = [
        "shared_preload_libraries=pg_stat_statements,pg_stat_kcache",
        "max_parallel_workers_per_gather=0",
        // The log of a commit is written by another process then.
        "synchronous_commit=off",
    ];
    let server = Postgres::start(&settings)
        .map_err(failed("start PostgreSQL with Debian's package postgresql-15-pg-stat-kcache"))?;
    let mut stage = Stage::start(vec![plenty("bench")])?;
    let gateway = stage.gateway(&server.upstream())?;
    let ask = |database, sql| said(psql(&server, server.port(), database).args(["-c", sql]));
    ask("postgres", "create database bench")?;
    ask("postgres", "create extension pg_stat_statements")?;
    ask("postgres", "create extension pg_stat_kcache")?;
    let counted =
        "select coalesce(sum(exec_user_time + exec_system_time + plan_user_time + plan_system_time), 0)
        from pg_stat_kcache_detail where datname = 'bench'";
    compare(
        "gateway/CPU charged to PostgreSQL",
        "pg_stat_kcache",
        setting,
        &stage,
        || all(&server, gateway, MIX),
        || seconds(&ask("postgres", counted)?).map(|s| s * 1e3),
    )
}

/// Beside what the kernel counted for whole processes, as `pg_stat_kcache` leaves out what workers use for themselves.
/// That includes a session's login, which is charged to no statement.
fn parallel(setting: &Setting) -> Result<Row, BenchError> {
    let settings = ["max_parallel_workers_per_gather=2", "synchronous_commit=off", "autovacuum=off"];
    let server = Postgres::start(&settings).map_err(failed("start PostgreSQL"))?;
    let mut stage = Stage::start(vec![plenty("bench")])?;
    let gateway = stage.gateway(&server.upstream())?;
    said(psql(&server, server.port(), "postgres").args(["-c", "create database bench"]))?;
    compare(
        "gateway/CPU charged to PostgreSQL and its parallel workers",
        "the kernel, of whole processes",
        setting,
        &stage,
        || all(&server, gateway, PARALLEL),
        || Ok(server.cpu_of_ended().map_err(failed("read CPU times"))?.as_secs_f64() * 1e3),
    )
}

fn mariadb(setting: &Setting) -> Result<Row, BenchError> {
    let server = MariaDb::start(&["--userstat=1"]).map_err(failed("start MariaDB"))?;
    server
        .root("create database bench; create user ann identified by 'ann'; grant all on bench.* to ann")
        .map_err(failed("make a database"))?;
    let mut stage = Stage::start(vec![plenty("bench")])?;
    let gateway = stage.gateway(&server.upstream())?;
    let counted =
        "select coalesce(sum(cpu_time), 0) from information_schema.user_statistics where user = 'ann'";
    compare(
        "gateway/CPU charged to MariaDB",
        "userstat",
        setting,
        &stage,
        || {
            let ask = |sql| said(client(gateway, ("ann", "ann"), "bench").args(["-e", sql]));
            MARIADB_MIX.iter().try_for_each(|sql| ask(sql).map(drop))
        },
        || seconds(&said(client(server.port(), ROOT, "mysql").args(["-e", counted]))?).map(|s| s * 1e3),
    )
}

fn mysql(setting: &Setting) -> Result<Row, BenchError> {
    let server = MySql::newest().map_err(failed("start MySQL"))?;
    let root = |sql: &str| server.root(sql).map_err(failed("set up MySQL"));
    root("create database bench; create user ann identified by 'ann'; grant all on bench.* to ann")?;
    root(
        "update performance_schema.setup_consumers set enabled = 'YES' where name = 'events_statements_cpu'",
    )?;
    let mut stage = Stage::start(vec![plenty("bench")])?;
    let gateway = stage.gateway(&server.upstream())?;
    // The server reports picoseconds.
    let counted = "select coalesce(sum(sum_cpu_time), 0) / 1e12
        from performance_schema.events_statements_summary_by_user_by_event_name where user = 'ann'";
    compare(
        "gateway/CPU charged to MySQL",
        "performance schema",
        setting,
        &stage,
        || {
            let ask = |sql| said(newest_client(gateway, ("ann", "ann"), "bench")?.args(["-e", sql]));
            MYSQL_MIX.iter().try_for_each(|sql| ask(sql).map(drop))
        },
        || {
            seconds(&said(newest_client(server.port(), ROOT, "mysql")?.args(["-e", counted]))?)
                .map(|s| s * 1e3)
        },
    )
}

/// One session that does all of it.
fn all(server: &Postgres, port: u16, mix: &[&str]) -> Result<(), BenchError> {
    said(psql(server, port, "bench").args(mix.iter().flat_map(|sql| ["-c", sql]))).map(drop)
}

/// Both figures of every round.
fn compare(
    case: &str,
    peer: &str,
    setting: &Setting,
    stage: &Stage,
    mut work: impl FnMut() -> Result<(), BenchError>,
    counted: impl Fn() -> Result<f64, BenchError>,
) -> Result<Row, BenchError> {
    let charged = || Ok(stage.consumed("bench")?.1 as f64 / 1e6);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..setting.with_rounds(5).rounds {
        let before = (charged()?, counted()?);
        work()?;
        ours.push(charged()? - before.0);
        theirs.push(counted()? - before.1);
    }
    let (ours, theirs) = (Samples::new(ours), Samples::new(theirs));
    let off = ours.over(&theirs).map(|ratio| (ratio - 1.0).abs() * 100.0);
    let note = format!("off by {:.1} %, which should be at most 5", off.median());
    Ok(Row::new(case, MS, ours).beside(Kind::Peer, peer, theirs, Some(Mark::Within(0.95, 1.05))).note(note))
}

fn seconds(text: &str) -> Result<f64, BenchError> {
    text.trim().parse().map_err(failed(format!("read {text}")))
}
